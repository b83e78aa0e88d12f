"""Identities and directories in files, as a deployment provisions them."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from heterosag.crypto.identity import Identity, check_identity, check_one_user_each
from heterosag.errors import LocalFileError, UsageError
from heterosag.plan import User

__all__ = ["load_directory", "load_identity", "make_identity"]

_MOST_KEY = 1 << 16  # bytes
_MOST_DIRECTORY = 64 << 20  # bytes: some hundred thousand users


def load_identity(path: Path) -> Identity:
    """The identity in a private key's file: Ed25519, or derived from the key a Flower node authenticates with.

    Args:
        path: The file, which only its owner may read.

    Returns:
        The identity.

    Raises:
        LocalFileError: The file cannot be read, is no key, or others may read it.
    """
    path = path.expanduser()
    data = _read(path, _MOST_KEY)
    if os.name == "posix" and stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise LocalFileError(f"{path} can be read or written by others than its owner: chmod 600 it, or make a new key")
    try:
        return Identity.from_key_file(data)
    except UsageError as error:
        raise LocalFileError(f"{path}: {error}") from None


def make_identity(path: Path) -> Identity:
    """A fresh identity in a new file that only its owner may read; an existing file is never written over.

    Args:
        path: The file, which must not exist.

    Returns:
        The identity.

    Raises:
        LocalFileError: The file exists or cannot be made.
    """
    identity = Identity.generate()
    try:
        handle = os.open(path.expanduser(), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise LocalFileError(
            f"{path} is there already and is not written over: use it, or choose another name"
        ) from None
    except OSError as error:
        raise LocalFileError(f"cannot make the key file {path}: {error}") from None
    with os.fdopen(handle, "wb") as file:
        file.write(identity.to_key_file())
    return identity


def load_directory(path: Path) -> dict[User, bytes]:
    """Everybody's public keys from a JSON file: an object of user ids and keys in hex, each user once.

    Args:
        path: The file.

    Returns:
        Public keys by user.

    Raises:
        LocalFileError: The file cannot be read or is not one of these, others than its owner can write to it, or two
            users have one key; the message says where.
    """
    path = path.expanduser()
    data = _read(path, _MOST_DIRECTORY)
    if os.name == "posix" and path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise LocalFileError(
            f"{path} can be written to by others than its owner, who could put keys of their own into it: make sure "
            "that it is as it should be, then chmod go-w it"
        )
    try:
        keys: dict[User, bytes] = json.loads(data, object_pairs_hook=_once)
        if not isinstance(keys, dict):
            raise TypeError
    except (ValueError, TypeError, RecursionError):
        raise LocalFileError(f"{path} is not a JSON object of user ids, each once, and public keys in hex") from None
    for user, key in keys.items():
        try:
            check_identity(key)
        except UsageError as error:
            raise LocalFileError(f"{path}: user {user!r}: {error}") from None
    try:
        check_one_user_each(keys.items())
    except UsageError as error:
        raise LocalFileError(f"{path}: {error}") from None
    return keys


def _once(pairs: list[tuple[str, Any]]) -> dict[str, bytes]:
    """An object's keys as bytes; a name that comes twice would let one key hide another."""
    found = {user: bytes.fromhex(key) for user, key in pairs}
    if len(found) != len(pairs) or any(found[user].hex() != key.lower() for user, key in pairs):  # spaces, for instance
        raise ValueError
    return found


def _read(path: Path, most: int) -> bytes:
    try:
        if path.stat().st_size > most:
            raise LocalFileError(
                f"{path} is too large for what it should be, with more than {most:,} bytes: name another file"
            )
        return path.read_bytes()
    except OSError as error:
        raise LocalFileError(f"cannot read {path}: {error}") from None
