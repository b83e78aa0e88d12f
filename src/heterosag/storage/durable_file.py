"""A file that is replaced as a whole: after a crash at any moment it has its old content, or all of the new one.

Its folder is there after a crash too, if `make_folder` made it.
"""

from __future__ import annotations

import os
from itertools import takewhile
from pathlib import Path

__all__ = ["make_folder", "replace_file"]

_FOLDER = getattr(os, "O_DIRECTORY", None)  # None where a folder cannot be opened, as on Windows


def make_folder(folder: Path) -> None:
    """Make a folder for this user alone, and those above it, with their names on the disk.

    Args:
        folder: The folder, which may be there already.

    Raises:
        OSError: It cannot be made.
    """
    missing = list(takewhile(lambda one: not one.is_dir(), (folder, *folder.parents)))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for made in reversed(missing):
        _sync(made.parent)


def replace_file(path: Path, content: bytes) -> None:
    """Write a file through to the disk, its name too: without the folder's, a crash could bring the old file back.

    Args:
        path: The file, which need not be there yet; its folder must be.
        content: All of it.

    Raises:
        OSError: The disk does not take it; unless it was the folder's entry, the file is as it was.
    """
    fresh = path.with_name(f".{path.name}.tmp")
    with fresh.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    _sync(path.parent)


def _sync(folder: Path) -> None:
    """Write the names in a folder through to the disk, where that is possible."""
    if _FOLDER is not None:
        handle = os.open(folder, os.O_RDONLY | _FOLDER)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
