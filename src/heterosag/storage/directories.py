"""A directory's life: who is added to it, whose key is rotated, who is revoked, and how its owner compares it.

Every user pins a directory of its own. A change counts for whoever has taken the changed file, so the digest is what
users compare over a channel that the server does not control.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from heterosag.crypto.hashing import digest
from heterosag.crypto.identity import check_identity
from heterosag.errors import LocalFileError, UsageError
from heterosag.plan import User
from heterosag.storage.durable_file import replace_file
from heterosag.storage.identities import load_directory, load_identity
from heterosag.storage.locks import locked

__all__ = [
    "change_directory",
    "check_own_key",
    "directory_digest",
    "edit_directory",
    "read_public_key",
    "save_directory",
]

_HEX_DIGITS = 64
_CAN_LOCK = os.name == "posix"
_MOST_KEY = 1 << 10  # bytes


def change_directory(
    directory: Mapping[User, bytes],
    *,
    add: Mapping[User, bytes] | None = None,
    rotate: Mapping[User, bytes] | None = None,
    revoke: Sequence[User] = (),
) -> dict[User, bytes]:
    """A directory with users added, given another key, or taken out.

    Args:
        directory: Public keys by user.
        add: Users who are not in it yet.
        rotate: Users who are in it, with the key that replaces theirs.
        revoke: Users who are in it, and shall not be.

    Returns:
        The changed directory; the one given stays as it is.

    Raises:
        UsageError: A user is there already or is not there, is named twice, or a key is somebody's already.

    Example:
        >>> from heterosag.protocol import Identity
        >>> from heterosag.storage.directories import change_directory
        >>> alice, bob, new = (Identity.generate().public for _ in range(3))
        >>> known = change_directory({}, add={"alice": alice, "bob": bob})
        >>> known = change_directory(known, rotate={"alice": new}, revoke=["bob"])
        >>> known == {"alice": new}
        True
    """
    add, rotate = dict(add or {}), dict(rotate or {})
    for user, changes in Counter([*add, *rotate, *revoke]).items():
        if changes > 1:
            raise UsageError(f"user {user!r} is named for two changes: make one after the other")
    for user in (*rotate, *revoke):
        if user not in directory:
            raise UsageError(f"user {user!r} is not in the directory")
    revoked, owners = set(revoke), {key: user for user, key in directory.items()}
    changed = {user: key for user, key in directory.items() if user not in revoked}
    for user, key in (*add.items(), *rotate.items()):
        if user in add and user in directory:
            raise UsageError(f"user {user!r} is in the directory already: rotate gives it another key")
        if key in owners:
            raise UsageError(
                f"the key for user {user!r} is that of user {owners[key]!r}: every key is for one user, once"
            )
        check_identity(key)
        changed[user], owners[key] = key, user
    return changed


def directory_digest(directory: Mapping[User, bytes]) -> bytes:
    """What users compare to know that they have the same directory; the order of its users does not count.

    Args:
        directory: Public keys by user.

    Returns:
        The digest, 32 bytes.
    """
    entries = sorted((str(user).encode(), key) for user, key in directory.items())
    return digest("directory", *(part for entry in entries for part in entry))


def read_public_key(given: str) -> bytes:
    """A public key as `heterosag identity` prints it: the hex digits themselves, or the name of a file with them.

    Args:
        given: 64 hex digits, or a path.

    Returns:
        The key.

    Raises:
        LocalFileError: It is neither.
    """
    text = given
    if not _is_hex(text):
        path = Path(given).expanduser()
        try:
            data = path.read_bytes()[: _MOST_KEY + 1]
            text = data.decode("ascii").strip() if len(data) <= _MOST_KEY else ""
        except OSError as error:
            raise LocalFileError(f"{given} is no public key in hex, and no file with one: {error}") from None
        except UnicodeDecodeError:
            text = ""
        if not _is_hex(text):
            raise LocalFileError(
                f"{path} does not hold a public key in hex: `heterosag identity KEY_FILE` prints that of a private "
                "key, the key of a SuperNode too"
            )
    return bytes.fromhex(text)


def check_own_key(directory: Mapping[User, bytes], user: User, key_file: Path) -> None:
    """Refuse a directory that names another key for a user than the one of its own key file.

    Args:
        directory: Public keys by user.
        user: The user.
        key_file: Its private key's file.

    Raises:
        UsageError: The directory does not have the user, or with another key.
    """
    if user not in directory:
        raise UsageError(f"user {user!r} is not in the directory")
    if directory[user] != load_identity(key_file).public:
        raise UsageError(f"the directory has another key for user {user!r} than {key_file} is")


def edit_directory(
    path: Path,
    *,
    add: Mapping[User, bytes] | None = None,
    rotate: Mapping[User, bytes] | None = None,
    revoke: Sequence[User] = (),
    new: bool = False,
) -> dict[User, bytes]:
    """Read a directory, change it and write it, with nobody else who does so in between.

    Two changes at once come one after the other, so that neither is lost: `save_directory` alone writes what its caller
    has read before, however long ago. The lock is a file `.NAME.lock` beside the directory, which stays there. On a
    system that cannot lock files, as Windows, change a directory in one program at a time.

    Args:
        path: The file.
        add: As for `change_directory`.
        rotate: As for `change_directory`.
        revoke: As for `change_directory`.
        new: Make a file that is not there yet, of the users that are added.

    Returns:
        The changed directory.

    Raises:
        UsageError: The change makes no sense, as for `change_directory`; the file is as it was.
        LocalFileError: The file cannot be read, locked or written; or it is there and should not be.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from heterosag.protocol import Identity
        >>> from heterosag.storage.directories import edit_directory
        >>> alice, bob = (Identity.generate().public for _ in range(2))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "everybody.json"
        ...     _ = edit_directory(file, add={"alice": alice, "bob": bob}, new=True)
        ...     edit_directory(file, revoke=["bob"]) == {"alice": alice}
        True
    """
    path = path.expanduser()
    known = Path(os.path.realpath(path))  # one lock, by whichever link somebody comes
    with locked(known.with_name(f".{known.name}.lock")) if _CAN_LOCK else nullcontext():
        changed = change_directory({} if new else load_directory(path), add=add, rotate=rotate, revoke=revoke)
        save_directory(path, changed, new=new)
    return changed


def save_directory(path: Path, directory: Mapping[User, bytes], *, new: bool = False) -> None:
    """Write a directory that `load_directory` reads: all of it or, where anything fails, nothing.

    Args:
        path: The file. It keeps its permissions; a new one is its owner's alone.
        directory: Public keys by user.
        new: Refuse to replace a file that is there.

    Raises:
        LocalFileError: The file is there and should not be, or cannot be written.
    """
    path = path.expanduser()
    if new and (path.exists() or path.is_symlink()):
        raise LocalFileError(f"{path} is there already and is not written over: leave --make out to change it")
    listed = {str(user): directory[user].hex() for user in sorted(directory, key=str)}
    try:
        replace_file(path, f"{json.dumps(listed, indent=2)}\n".encode())
    except OSError as error:
        raise LocalFileError(f"cannot write the directory {path}: {error}") from None


def _is_hex(text: str) -> bool:
    return len(text) == _HEX_DIGITS and all(digit in "0123456789abcdefABCDEF" for digit in text)
