"""A release log in a folder, for clients that must do each thing once, across restarts too.

Every claim is a file of its own, named by the digest of context and kind and made only if it does not exist, so that of
two programs with the same folder one wins. The claim is on the disk before `claim` returns: what the client then gives
out, it never gives out differently, even if the program is killed in between.
"""

from __future__ import annotations

import os
from pathlib import Path

from heterosag.crypto.hashing import digest
from heterosag.errors import FaultyServerError, LocalFileError

__all__ = ["FileReleaseLog"]


class FileReleaseLog:
    """Remembers claims in a folder, which it makes. Never delete it while its keys may still be asked for.

    Args:
        folder: One of this client's own.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise LocalFileError(f"cannot keep a release log in {folder}: {error}") from None

    def claim(self, context: bytes, kind: str, value: bytes) -> None:
        """Write a claim through to the disk.

        Args:
            context: What it is claimed under.
            kind: What is done once.
            value: What it is done with.

        Raises:
            FaultyServerError: Another value was claimed before.
            LocalFileError: The disk does not take it.
        """
        path = self._folder / digest("release", context, kind.encode()).hex()
        fresh = path.with_name(f"{path.name}.{os.getpid()}.{os.urandom(8).hex()}")
        try:
            with fresh.open("xb") as file:
                file.write(value)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(fresh, path)  # whole or not at all, and only if nobody claimed before
            except FileExistsError:
                with path.open("rb") as file:
                    before = file.read(len(value) + 1)  # of another length is another claim
                if before != value:
                    raise FaultyServerError(
                        f"asked a second time, for something else, to {kind} under one context"
                    ) from None
            finally:
                fresh.unlink()
            self._settle()
        except OSError as error:
            raise LocalFileError(f"cannot write the release log {path}: {error}") from None

    def _settle(self) -> None:
        """See the folder's entry on the disk too."""
        handle = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
