"""A lock between programs: one is inside at a time, and a place that cannot be locked is named."""

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from heterosag.errors import LocalFileError
from heterosag.storage.locks import locked


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
