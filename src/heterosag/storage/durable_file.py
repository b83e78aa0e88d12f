"""A file that is replaced as a whole: after a crash at any moment it has its old content, or all of the new one."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["replace_file"]

_FOLDER = getattr(os, "O_DIRECTORY", None)  # None where a folder cannot be opened, as on Windows


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
    if _FOLDER is not None:
        folder = os.open(path.parent, os.O_RDONLY | _FOLDER)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
