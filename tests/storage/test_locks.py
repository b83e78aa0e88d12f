"""A lock between programs: one is inside at a time, and a place that cannot be locked is named."""

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from heterosag.errors import LocalFileError
from heterosag.storage.locks import hold, is_held, locked


def is_free(path: Path) -> bool:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def test_nobody_else_is_inside_until_it_is_left(tmp_path: Path) -> None:
    path = tmp_path / "node.lock"
    with locked(path):
        assert not is_free(path)
    assert is_free(path)
    with pytest.raises(ZeroDivisionError), locked(path):
        _ = 1 / 0
    assert is_free(path)
    assert path.read_bytes() == b""


def test_a_place_that_cannot_be_locked_is_named(tmp_path: Path) -> None:
    with pytest.raises(LocalFileError, match="cannot lock"), locked(tmp_path / "nowhere" / "node.lock"):
        pass


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP])
def test_a_disk_without_locks_is_named(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A raw error of the system would leave a node as the text of an exception."""

    def refuse(file: Any, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(LocalFileError, match=f"cannot lock .*{os.strerror(number)}"), locked(tmp_path / "node.lock"):
        pass


def test_a_lock_is_its_owners_and_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / "node.lock").symlink_to(tmp_path / "victim")
    with pytest.raises(LocalFileError, match="cannot lock"), locked(tmp_path / "node.lock"):
        pass
    assert (tmp_path / "victim").read_bytes() == b"precious"
    before = os.umask(0)
    try:
        with locked(tmp_path / "other.lock"):
            assert (tmp_path / "other.lock").stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)


def test_a_file_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("ab") as first, path.open("ab") as second:
        assert hold(first)
        assert not hold(second)
        with path.open("rb") as looked_at:
            assert is_held(looked_at)
        first.close()
        assert hold(second)


def test_a_file_that_cannot_be_locked_is_held_by_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> None:
        raise OSError("no locks on this disk")

    with (tmp_path / "file").open("ab") as first, (tmp_path / "file").open("ab") as second:
        assert hold(first)
        monkeypatch.setattr(fcntl, "flock", refuse)
        assert hold(second)
