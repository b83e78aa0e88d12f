"""The release log on disk: claims outlive programs killed at any moment, of several at once one wins, and the file
stays small."""

import ctypes
import multiprocessing
import os
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from heterosag.crypto.hashing import digest
from heterosag.errors import FaultyServerError, LocalFileError, UsageError
from heterosag.protocol import RoundReleaseLog
from heterosag.protocol.context import survivors_bytes
from heterosag.storage import release_log
from heterosag.storage.release_log import FileReleaseLog

TRACEME, SYSCALL = 0, 24  # of ptrace(2)


def test_claims_outlive_the_program(tmp_path: Path) -> None:
    FileReleaseLog(tmp_path / "log").claim(b"context", "unmask", b"one")
    again = FileReleaseLog(tmp_path / "log")
    again.claim(b"context", "unmask", b"one")
    again.claim(b"context", "sign", b"two")
    again.claim(b"other", "unmask", b"two")
    with pytest.raises(FaultyServerError, match="asked a second time"):
        again.claim(b"context", "unmask", b"two")
    assert [path.name for path in (tmp_path / "log").iterdir()] == ["releases.sqlite"]


def test_nobody_else_reads_the_log_or_its_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[int] = []
    claim = release_log._claim

    def note(*arguments: Any) -> None:
        claim(*arguments)
        modes.extend(path.stat().st_mode & 0o777 for path in tmp_path.iterdir())

    monkeypatch.setattr(release_log, "_claim", note)
    before = os.umask(0)
    try:
        FileReleaseLog(tmp_path).claim(b"context", "unmask", b"one")
        (tmp_path / "releases.sqlite").chmod(0o644)  # as the file of a release before is
        FileReleaseLog(tmp_path).claim(b"context", "mask", b"one")
    finally:
        os.umask(before)
    assert modes == [0o600] * 4, "the file and its journal, twice"


def test_a_log_of_somebody_else_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FileReleaseLog(tmp_path).claim(b"context", "unmask", b"one")
    (tmp_path / "releases.sqlite").chmod(0o644)

    def refuse(*_: object) -> None:
        raise PermissionError("not the owner")

    monkeypatch.setattr(Path, "chmod", refuse)
    with pytest.raises(LocalFileError, match=r"cannot write the release log .* not the owner"):
        FileReleaseLog(tmp_path).claim(b"context", "mask", b"one")


def test_a_survivor_set_cannot_be_found_by_trying_all(tmp_path: Path) -> None:
    """Its context, which is hashed with it, follows from keys that the file does not hold."""
    log, context = FileReleaseLog(tmp_path), digest("context/sharers", b"keys of the round")
    log.of_round(b"session", 1, b"first context").claim(context, "unmask", survivors_bytes([0, 1, 3]))
    with closing(sqlite3.connect(tmp_path / "releases.sqlite")) as database:
        kept = [row for table in ("sessions", "rounds", "claims") for row in database.execute(f"SELECT * FROM {table}")]
    values = {value for row in kept for value in row if isinstance(value, bytes)}
    assert context not in values
    tried = {survivors_bytes(some) for size in range(5) for some in combinations(range(4), size)}
    for known in ((), *((value,) for value in values)):
        assert values.isdisjoint(digest("release-value", *known, some) for some in tried)
    assert digest("release-value", context, survivors_bytes([0, 1, 3])) in values


def claim_round(log: FileReleaseLog, number: int, kind: str = "share", value: bytes = b"value") -> None:
    context = b"round %d" % number
    log.of_round(b"session", number, context).claim(context, kind, value)


def test_a_round_is_claimed_once_while_it_is_kept(tmp_path: Path) -> None:
    log = FileReleaseLog(tmp_path)
    assert isinstance(log, RoundReleaseLog)
    for number in (0, 1):  # the next round's shares come before this one's vector
        claim_round(log, number)
    for number in (0, 1):
        claim_round(log, number, "mask", b"one")
        claim_round(log, number, "mask", b"one")
        with pytest.raises(FaultyServerError, match="asked a second time"):
            claim_round(log, number, "mask", b"two")


def test_pruning_keeps_the_highest_number_of_every_session(tmp_path: Path) -> None:
    log = FileReleaseLog(tmp_path)
    log.claim(b"charter", "commit", b"nonce")
    log.of_round(b"old", 7, b"old 7").claim(b"old 7", "share", b"value")
    size = 0
    for number in range(2**63 - 40, 2**63 + 40):  # as numbers, also where the sign bit is
        claim_round(log, number)
        claim_round(log, number, "mask")
        size = size or (tmp_path / "releases.sqlite").stat().st_size
    with sqlite3.connect(tmp_path / "releases.sqlite") as database:
        assert database.execute("SELECT count(*) FROM claims").fetchone() == (2 * 64 + 1,)
        assert database.execute("SELECT count(*) FROM rounds").fetchone() == (64,)
    database.close()
    claim_round(log, 2**63 + 39, "mask")  # kept, and the same
    for number in (0, 2**63 - 40, 2**63 - 25):  # removed, or never there
        with pytest.raises(FaultyServerError, match=f"in round {number}, of which the release log holds nothing"):
            claim_round(log, number, "mask")
    for number in (3, 7):
        with pytest.raises(FaultyServerError, match="after round 7 of the same session"):
            log.of_round(b"old", number, b"old %d" % number).claim(b"old", "share", b"value")
    with pytest.raises(FaultyServerError, match="after round 7"):  # the number again, with another plan
        log.of_round(b"old", 7, b"another frame").claim(b"c", "share", b"value")
    log.of_round(b"old", 8, b"old 8").claim(b"old 8", "share", b"value")
    with pytest.raises(FaultyServerError, match="asked a second time"):
        log.claim(b"charter", "commit", b"another")


def test_the_file_does_not_grow_with_rounds(tmp_path: Path) -> None:
    log, path = FileReleaseLog(tmp_path), tmp_path / "releases.sqlite"
    for number in range(70):
        claim_round(log, number)
    size = path.stat().st_size
    for number in range(70, 210):
        claim_round(log, number)
    assert path.stat().st_size == size < 40_000


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


# --- a program that is killed ---------------------------------------------------------------------------------------


def run_and_kill(work: Callable[[], None], stops: int) -> bool:
    """Run in a process of its own, killed when it enters or leaves its system call of this number; whether it ended."""
    libc = ctypes.CDLL(None, use_errno=True)
    child = os.fork()
    if child == 0:
        try:
            if libc.ptrace(TRACEME, 0, None, None):
                os._exit(77)
            os.kill(os.getpid(), signal.SIGSTOP)
            work()
            os._exit(0)
        finally:
            os._exit(78)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        pytest.skip("this system does not let a test trace its own process")
    for _ in range(stops):
        libc.ptrace(SYSCALL, child, None, None)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            return True
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs ptrace")
@pytest.mark.parametrize("begun", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_program_killed_between_any_two_writes_leaves_a_claim_or_none(begun: bool, tmp_path: Path) -> None:
    """Also while rounds are removed. What is there afterwards is the log before the claim or the log after it."""
    before = tmp_path / "before"
    log = FileReleaseLog(before)
    for number in range(66 if begun else 0):
        claim_round(log, number)
    outcomes = []
    for stop in range(2, 10_000, 2):  # a system call is entered and left: killed after each of them
        folder = tmp_path / str(stop)
        shutil.copytree(before, folder)
        told, tell = os.pipe()

        def work(folder: Path = folder, tell: int = tell) -> None:
            claim_round(FileReleaseLog(folder), 66, value=b"first")
            os.write(tell, b"!")  # given out: from here on the claim must hold

        ended = run_and_kill(work, stop)
        os.close(tell)
        given_out = os.read(told, 1) == b"!"
        os.close(told)
        outcomes.append(_outcome(folder, begun))
        assert outcomes[-1] == "claimed" or not given_out
        shutil.rmtree(folder)
        if ended:
            break
    assert set(outcomes) == {"claimed", "free"}
    assert outcomes == sorted(outcomes, reverse=True)  # never claimed and then not


def _outcome(folder: Path, begun: bool) -> str:
    log, outcome = FileReleaseLog(folder), "free"
    try:
        claim_round(log, 66, value=b"second")
    except FaultyServerError:
        outcome = "claimed"
        claim_round(log, 66, value=b"first")
    if begun:  # what was there before holds in either case
        with pytest.raises(FaultyServerError, match="asked a second time"):
            claim_round(log, 65, value=b"second")
        with pytest.raises(FaultyServerError, match="holds nothing"):
            claim_round(log, 1)
    with sqlite3.connect(folder / "releases.sqlite") as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database.close()
    return outcome


# --- files that cannot be used --------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot keep a release log"):
        FileReleaseLog(tmp_path / "file" / "log")
    log = FileReleaseLog(tmp_path / "log")
    (tmp_path / "log").rmdir()
    with pytest.raises(UsageError, match="cannot write the release log"):
        log.claim(b"context", "mask", b"")


def test_a_file_that_is_no_log_or_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "releases.sqlite"
    path.write_bytes(b"not a database, and long enough to be told from an empty one" * 20)
    with pytest.raises(LocalFileError, match=r"releases\.sqlite"):
        FileReleaseLog(tmp_path).claim(b"context", "mask", b"")
    path.unlink()
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 9")
    database.close()
    with pytest.raises(LocalFileError, match="has version 9, not 1"):
        FileReleaseLog(tmp_path).claim(b"context", "mask", b"")
