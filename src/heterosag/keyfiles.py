"""Identities and directories in files, as a deployment provisions them."""

from __future__ import annotations

import json
import os
from pathlib import Path

from heterosag.crypto.identity import Identity
from heterosag.crypto.keys import PUBLIC_KEY_SIZE
from heterosag.errors import UsageError
from heterosag.plan import User

__all__ = ["load_directory", "load_identity", "make_identity"]

_MOST = 64 << 20  # bytes of a directory: some hundred thousand users


def load_identity(path: Path) -> Identity:
    """The identity in a private key's file: Ed25519, or derived from the key a Flower node authenticates with."""
    try:
        return Identity.from_key_file(_read(path, 1 << 16))
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def make_identity(path: Path) -> Identity:
    """A fresh identity in a new file that only its owner may read; an existing file is never written over."""
    identity = Identity.generate()
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise UsageError(f"cannot make the key file {path}: {error}") from None
    with os.fdopen(handle, "wb") as file:
        file.write(identity.to_key_file())
    return identity


def load_directory(path: Path) -> dict[User, bytes]:
    """Everybody's public keys from a JSON file: an object of user ids and keys in hex."""
    try:
        found = json.loads(_read(path, _MOST))
        if not isinstance(found, dict):
            raise TypeError
        keys: dict[User, bytes] = {user: bytes.fromhex(key) for user, key in found.items()}
    except (ValueError, TypeError):
        raise UsageError(f"{path} is not a JSON object of user ids and public keys in hex") from None
    short = [user for user, key in keys.items() if len(key) != PUBLIC_KEY_SIZE]
    if short:
        raise UsageError(f"{path}: the key of {short[0]!r} has not {PUBLIC_KEY_SIZE} bytes")
    return keys


def _read(path: Path, most: int) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error}") from None
    if len(data) > most:
        raise UsageError(f"{path} is too large for what it should be")
    return data
