"""A node's own ledger on its disk: for which sums it has released shares, over all epochs.

A node runs in a new process for every message, so what it remembers of earlier rounds is a file beside its
release log, one for all models: elements are told by their place. It knows the rounds that it took part in itself, no
others.
"""

from __future__ import annotations

import json
from pathlib import Path

from heterosag.errors import LocalFileError
from heterosag.ledger import History
from heterosag.plan import Plan
from heterosag.storage.durable_file import make_folder, replace_file
from heterosag.storage.locks import locked

__all__ = ["LedgerFile"]

_FORMAT = 1


class LedgerFile:
    """A guard that refuses rounds which, with those before, would expose a set of fewer users than `sets_below`."""

    def __init__(self, folder: Path, plan: Plan, *, sets_below: int) -> None:
        self._path = folder / "ledger.json"
        self._plan = plan
        self._below = sets_below
        try:
            make_folder(folder)
        except OSError as error:
            raise LocalFileError(f"cannot keep the ledger {self._path}: {error}") from None
        old = sorted(folder.glob("ledger-*.json"))
        if old:
            raise LocalFileError(
                f"{old[0]} is a ledger of version 0.1.0, whose rounds this version cannot remember: remove the files "
                f"ledger-*.json from {folder} to go on without them"
            )
        self._read()

    def check(self, survivors: frozenset[int]) -> None:
        """Raise an `ExposedUsersError` if sums over this set would newly reveal that of a small one."""
        self._read().check(self._plan, survivors)

    def note(self, survivors: frozenset[int]) -> None:
        """Write the set through to the disk, before anything is released on it.

        Two programs of one node may be at it at once: under a lock the notes are read and the set is checked again, so
        that of two sets which together expose a small one only the first is noted.
        """
        with locked(self._path.with_suffix(".lock")):
            ledger = self._read()
            ledger.check(self._plan, survivors)
            ledger.note(self._plan, survivors)
            try:
                replace_file(self._path, json.dumps({"format": _FORMAT} | ledger.to_dict()).encode())
            except OSError as error:
                raise LocalFileError(f"cannot write the ledger {self._path}: {error}") from None

    def _read(self) -> History:
        try:
            values = json.loads(self._path.read_text(encoding="utf-8"))
            if values["format"] == _FORMAT:
                return History.from_dict(values, sets_below=self._below)
        except FileNotFoundError:
            return History(sets_below=self._below)
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise LocalFileError(f"cannot read the ledger {self._path}: {error}") from None
        raise LocalFileError(
            f"the ledger {self._path} is of another release: go on with that release, or remove the file to go on "
            "without the rounds that it remembers"
        )
