"""Locks between programs: of one node, of which Flower may run two messages at once, and of a file that is written."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from heterosag.errors import LocalFileError

__all__ = ["hold", "is_held", "locked"]

_TRIES = 500  # a millisecond apart: whoever looks whether a file is held has it for a moment


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Nobody else who asks for the same path is inside at the same time; the file itself stays as it is, or empty.

    A new one is its owner's alone, so nobody else can hold it; a link is not followed.
    """
    try:
        import fcntl

        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except ImportError:
        raise LocalFileError("this node's files need a system that can lock them") from None
    except OSError as error:
        raise LocalFileError(f"cannot lock {path}: {error}") from None
    with os.fdopen(handle, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:  # some network disks have no locks
            raise LocalFileError(f"cannot lock {path}: {error}") from None
        yield


def hold(file: IO[Any]) -> bool:
    """Mark an open file as this program's until it is closed or the program ends, where the system can lock files.

    Args:
        file: The file, open for writing.

    Returns:
        Whether nobody else holds it, as far as the system can tell: without locks nobody does.
    """
    with suppress(ImportError):
        import fcntl

        for _ in range(_TRIES):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:  # somebody looks whether it is held, or holds it already
                time.sleep(0.001)
            except OSError:
                return True
            else:
                return True
        return False
    return True


def is_held(file: IO[Any]) -> bool:
    """Whether some program holds a file.

    Args:
        file: The file, open for reading.

    Returns:
        Whether it is held.

    Raises:
        OSError: The system cannot lock files, or not these.
    """
    try:
        import fcntl
    except ImportError:
        raise OSError("this system cannot lock files") from None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # which others who only look may have at the same time
    except BlockingIOError:
        return True
    fcntl.flock(file, fcntl.LOCK_UN)
    return False
