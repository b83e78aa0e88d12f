"""A release log on disk, for clients that must do each thing once, across restarts too.

All claims of a client are in one small database (SQLite, of the standard library). A claim is a transaction, on the
disk before `claim` returns: what the client then gives out, it never gives out differently, even if the program is
killed at any moment, and of two programs with the same folder one wins.

The log stays small. Of a client's rounds it keeps the claims of the newest 64; of every session it keeps the highest
number for ever, and a round at or below it of which the log holds nothing is refused. So a round whose claims
were removed can never be claimed again.

Claims are kept by digests over their context and value. The context of a survivor set follows from the keys of its
round and is not in the file, which alone tells nobody whom the set held, not even by trying all sets; whoever has the
round's messages needs no file for that.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from heterosag.crypto.hashing import digest
from heterosag.errors import FaultyServerError, LocalFileError
from heterosag.protocol.release_log import ReleaseLog
from heterosag.storage.durable_file import make_folder

__all__ = ["FileReleaseLog"]

_FILE = "releases.sqlite"
_VERSION = 1
_KEPT_ROUNDS = 64  # a client is in two rounds of a session at most; the others are for sessions side by side
_SECONDS = 60.0  # to wait for another program of the same client

_TABLES = (
    "CREATE TABLE sessions (name BLOB PRIMARY KEY, highest BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE rounds (id INTEGER PRIMARY KEY AUTOINCREMENT, context BLOB NOT NULL UNIQUE)",
    "CREATE TABLE claims (name BLOB PRIMARY KEY, value BLOB NOT NULL, "
    "round INTEGER REFERENCES rounds (id) ON DELETE CASCADE) WITHOUT ROWID",
    "CREATE INDEX claims_by_round ON claims (round)",
    f"PRAGMA user_version = {_VERSION}",
)


class FileReleaseLog:
    """Remembers claims in a folder, which it makes. Never delete it while its keys may still be asked for.

    Args:
        folder: One of this client's own, on a disk of this machine, which nobody else can write to.

    Raises:
        LocalFileError: The folder cannot be made, or others can write to it.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FILE
        try:
            make_folder(folder)
        except OSError as error:
            raise LocalFileError(f"cannot keep a release log in {folder}: {error}") from None

    def claim(self, context: bytes, kind: str, value: bytes) -> None:
        """Write a claim through to the disk, to be kept for ever: it belongs to no round.

        Args:
            context: What it is claimed under.
            kind: What is done once.
            value: What it is done with.

        Raises:
            FaultyServerError: Another value was claimed before.
            LocalFileError: The disk does not take it.
        """
        with self._transaction() as database:
            _claim(database, None, context, kind, value)

    def of_round(self, session: bytes, number: int, context: bytes) -> ReleaseLog:
        """The log for the claims of one round, which are removed when 64 newer rounds are in it.

        Args:
            session: The session of the round.
            number: Its number in the session.
            context: The context of its first messages, which tells it from every other round.

        Returns:
            A log whose claims raise what this one's raise, and a FaultyServerError for a round that is not in the log
            and not above all those of its session that ever were.
        """
        serial = number.to_bytes(8, "big")
        return _RoundLog(transaction=self._transaction, session=session, number=serial, context=context)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing, and alone: a second program waits."""
        try:
            with closing(sqlite3.connect(self._path, timeout=_SECONDS, isolation_level=None)) as database:
                _keep_private(self._path)
                database.execute("PRAGMA synchronous = EXTRA")
                database.execute("PRAGMA foreign_keys = ON")
                database.execute("BEGIN IMMEDIATE")
                (version,) = database.execute("PRAGMA user_version").fetchone()
                if version not in (0, _VERSION):
                    raise LocalFileError(f"the release log {self._path} has version {version}, not {_VERSION}")
                for statement in _TABLES if version == 0 else ():
                    database.execute(statement)
                yield database  # closed without a commit, nothing has happened
                database.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            raise LocalFileError(f"cannot write the release log {self._path}: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class _RoundLog:
    """The log of one round; numbers are eight bytes, which sort as numbers do."""

    transaction: Callable[[], AbstractContextManager[sqlite3.Connection]]
    session: bytes
    number: bytes
    context: bytes

    def claim(self, context: bytes, kind: str, value: bytes) -> None:
        """Write a claim of this round through to the disk."""
        with self.transaction() as database:
            _claim(database, self._enter(database, kind), context, kind, value)

    def _enter(self, database: sqlite3.Connection, kind: str) -> int:
        """The round's row: one that is there, or a new one if the number is new."""
        found = database.execute("SELECT id FROM rounds WHERE context = ?", (self.context,)).fetchone()
        if found is not None:
            return int(found[0])
        highest = database.execute("SELECT highest FROM sessions WHERE name = ?", (self.session,)).fetchone()
        if highest is not None and self.number <= highest[0]:
            raise FaultyServerError(
                f"asked to {kind} in round {int.from_bytes(self.number, 'big')}, of which the release log holds "
                f"nothing, after round {int.from_bytes(highest[0], 'big')} of the same session"
            )
        database.execute("INSERT OR REPLACE INTO sessions VALUES (?, ?)", (self.session, self.number))
        row = database.execute("INSERT INTO rounds (context) VALUES (?)", (self.context,)).lastrowid
        database.execute("DELETE FROM rounds WHERE id <= ?", ((row or 0) - _KEPT_ROUNDS,))
        return row or 0


def _keep_private(path: Path) -> None:
    """Only its owner reads the log. By its name: to close the file would let go of SQLite's locks on it.

    SQLite gives its journal, which it has not made yet, the same permissions.
    """
    if os.name == "posix" and path.stat().st_mode & 0o077:
        path.chmod(0o600)


def _claim(database: sqlite3.Connection, row: int | None, context: bytes, kind: str, value: bytes) -> None:
    name, claimed = digest("release", context, kind.encode()), digest("release-value", context, value)
    found = database.execute("SELECT value FROM claims WHERE name = ?", (name,)).fetchone()
    if found is None:
        database.execute("INSERT INTO claims VALUES (?, ?, ?)", (name, claimed, row))
    elif found[0] != claimed:
        raise FaultyServerError(f"asked a second time, for something else, to {kind} under one context")
