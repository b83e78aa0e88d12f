"""A lock between the programs of one node: Flower may run two messages of it at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from heterosag.errors import LocalFileError

__all__ = ["locked"]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Nobody else who asks for the same path is inside at the same time; the file itself stays empty."""
    try:
        import fcntl

        file = path.open("w")
    except ImportError:
        raise LocalFileError("this node's files need a system that can lock them") from None
    except OSError as error:
        raise LocalFileError(f"cannot lock {path}: {error}") from None
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
