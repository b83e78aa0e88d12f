"""A node's own ledger on its disk: for which survivor sets it has released shares, epoch by epoch.

A node runs in a new process for every message, so what it remembers of earlier rounds is a file for each epoch, beside
its release log. It knows the rounds that it took part in itself, no others.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from heterosag.errors import LocalFileError
from heterosag.ledger import Ledger, epoch_of
from heterosag.plan import Plan

__all__ = ["LedgerFile"]


class LedgerFile:
    """A guard that refuses rounds which, with those before, would show fewer users than `sets_below`."""

    def __init__(self, folder: Path, plan: Plan, *, sets_below: int) -> None:
        self._path = folder / f"ledger-{epoch_of(plan).hex()}.json"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            known = json.loads(self._path.read_text(encoding="utf-8")) if self._path.exists() else []
            self._ledger = Ledger.from_rounds(plan, known, sets_below=sets_below)
        except (OSError, ValueError, TypeError) as error:
            raise LocalFileError(f"cannot read the ledger {self._path}: {error}") from None

    def check(self, survivors: frozenset[int]) -> None:
        """Raise an `ExposedUsersError` if sums over this set would newly show a small one."""
        self._ledger.check(survivors)

    def note(self, survivors: frozenset[int]) -> None:
        """Write the set through to the disk, before anything is released on it."""
        self._ledger.note(survivors)
        fresh = self._path.with_suffix(".tmp")
        try:
            with fresh.open("w", encoding="utf-8") as file:
                json.dump(self._ledger.to_rounds(), file)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self._path)
        except OSError as error:
            raise LocalFileError(f"cannot write the ledger {self._path}: {error}") from None
