"""A file that is replaced as a whole: after a crash at any moment it has its old content, or all of the new one.

Its folder is there after a crash too, if `make_folder` made it.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from itertools import takewhile
from pathlib import Path

from heterosag.errors import LocalFileError

__all__ = ["make_folder", "replace_file"]

_ROOT = 0
_HAS_MODES = os.name == "posix"  # elsewhere permissions are no part of what `stat` says
_FOLDER = getattr(os, "O_DIRECTORY", None)  # None where a folder cannot be opened, as on Windows


def make_folder(folder: Path) -> None:
    """Make a folder for this user alone, and those above it, with their names on the disk.

    A folder that is there already may be one that others can read, but none that they can write to or own: whoever does
    takes files away, puts others in their place, or plants links.

    Args:
        folder: The folder, which may be there already.

    Raises:
        OSError: It cannot be made.
        LocalFileError: Others than its owner can write to it, or it is another user's, root apart.
    """
    missing = list(takewhile(lambda one: not one.is_dir(), (folder, *folder.parents)))
    for made in reversed(missing):
        made.mkdir(mode=0o700 if made == folder else 0o755, exist_ok=True)
        _sync(made.parent)
    found = folder.stat()
    if _HAS_MODES and found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise LocalFileError(
            f"{folder} can be written to by others than its owner: chmod go-w it, or choose a folder of one user's own"
        )
    if _HAS_MODES and found.st_uid not in (os.geteuid(), _ROOT):
        raise LocalFileError(
            f"{folder} is another user's, who could replace what is kept in it: chown it, or choose another folder"
        )


def replace_file(path: Path, content: bytes) -> None:
    """Write a file through to the disk, its name too: without the folder's, a crash could bring the old file back.

    Where the path is a link, the file that it leads to is replaced, which other programs may read under its own name.
    The new content is first in a file of a name that nobody can foresee, so no link is followed that somebody has put
    there, and what a crash leaves behind is in nobody's way.

    Args:
        path: The file, which need not be there yet; its folder must be. It keeps its permissions; a new one is its
            owner's alone.
        content: All of it.

    Raises:
        OSError: The disk does not take it, or the path is a link that leads nowhere but to itself; unless it was the
            folder's entry, the file is as it was.
    """
    path = Path(os.path.realpath(path))
    if path.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)  # 0600, and exclusively
    fresh = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            if path.exists():
                fresh.chmod(path.stat().st_mode & 0o777)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def _sync(folder: Path) -> None:
    """Write the names in a folder through to the disk, where that is possible."""
    if _FOLDER is not None:
        handle = os.open(folder, os.O_RDONLY | _FOLDER)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
