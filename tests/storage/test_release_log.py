"""The release log on disk: claims outlive programs, and of several at once one wins."""

import multiprocessing
from pathlib import Path

import pytest

from heterosag.errors import FaultyServerError, UsageError
from heterosag.storage.release_log import FileReleaseLog


def test_claims_outlive_the_program(tmp_path: Path) -> None:
    FileReleaseLog(tmp_path / "log").claim(b"context", "unmask", b"one")
    again = FileReleaseLog(tmp_path / "log")
    again.claim(b"context", "unmask", b"one")
    again.claim(b"context", "sign", b"two")
    again.claim(b"other", "unmask", b"two")
    with pytest.raises(FaultyServerError, match="asked a second time"):
        again.claim(b"context", "unmask", b"two")
    assert len(list((tmp_path / "log").iterdir())) == 3


def _claim(folder: Path, value: bytes, results: "multiprocessing.Queue[str]") -> None:
    try:
        FileReleaseLog(folder).claim(b"context", "unmask", value)
        results.put("claimed")
    except FaultyServerError:
        results.put("refused")


def test_of_programs_that_claim_at_once_one_wins(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    results: multiprocessing.Queue[str] = context.Queue()
    workers = [context.Process(target=_claim, args=(tmp_path, bytes([place]), results)) for place in range(6)]
    for worker in workers:
        worker.start()
    found = sorted(results.get(timeout=30) for _ in workers)
    for worker in workers:
        worker.join()
    assert found == ["claimed", *["refused"] * 5]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot keep a release log"):
        FileReleaseLog(tmp_path / "file" / "log")
    log = FileReleaseLog(tmp_path / "log")
    (tmp_path / "log").rmdir()
    with pytest.raises(UsageError, match="cannot write the release log"):
        log.claim(b"context", "mask", b"")
