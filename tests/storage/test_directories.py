"""Directories: who is added, rotated and revoked, what is refused, and the command that does it."""

import os
from pathlib import Path

import pytest

from heterosag.crypto.identity import Identity
from heterosag.errors import LocalFileError, UsageError
from heterosag.storage.directories import (
    change_directory,
    check_own_key,
    directory_digest,
    read_public_key,
    save_directory,
)
from heterosag.storage.identities import load_directory, make_identity

KEYS = [Identity.generate().public for _ in range(4)]
KNOWN = {"alice": KEYS[0], "bob": KEYS[1]}


def test_users_are_added_rotated_and_revoked() -> None:
    assert change_directory(KNOWN, add={"carol": KEYS[2]}) == {**KNOWN, "carol": KEYS[2]}
    assert change_directory(KNOWN, rotate={"bob": KEYS[2]}) == {"alice": KEYS[0], "bob": KEYS[2]}
    assert change_directory(KNOWN, revoke=["bob"]) == {"alice": KEYS[0]}
    both = change_directory(KNOWN, add={"carol": KEYS[2]}, rotate={"alice": KEYS[3]}, revoke=["bob"])
    assert both == {"alice": KEYS[3], "carol": KEYS[2]}
    assert list(KNOWN.values()) == KEYS[:2]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"add": {"alice": KEYS[2]}}, "'alice' is in the directory already"),
        ({"rotate": {"carol": KEYS[2]}}, "'carol' is not in the directory"),
        ({"revoke": ["carol"]}, "'carol' is not in the directory"),
        ({"rotate": {"bob": KEYS[2]}, "revoke": ["bob"]}, "'bob' is named for two changes"),
        ({"revoke": ["bob", "bob"]}, "'bob' is named for two changes"),
        ({"add": {"carol": KEYS[0]}}, "is that of user 'alice'"),
        ({"rotate": {"alice": KEYS[0]}}, "is that of user 'alice'"),
        ({"add": {"carol": KEYS[1]}, "revoke": ["bob"]}, "is that of user 'bob'"),
        ({"add": {"carol": KEYS[2], "dave": KEYS[2]}}, "is that of user 'carol'"),
        ({"add": {"carol": bytes(32)}}, "small order"),
        ({"add": {"carol": b"short"}}, "32 bytes"),
    ],
)
def test_a_change_that_makes_no_sense_is_refused(changes: dict[str, dict[str, bytes]], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        change_directory(KNOWN, **changes)  # type: ignore[arg-type]


def test_the_digest_is_of_users_and_keys_and_not_of_their_order() -> None:
    turned = dict(reversed(KNOWN.items()))
    assert directory_digest(KNOWN) == directory_digest(turned)
    others = (
        {"alice": KEYS[1], "bob": KEYS[0]},
        {"alice": KEYS[0]},
        {"alice": KEYS[0], "bob": KEYS[2]},
        {"alic": KEYS[0], "bob": KEYS[1]},
    )
    assert len({directory_digest(KNOWN), *map(directory_digest, others)}) == 5


def test_a_directory_written_is_the_directory_read(tmp_path: Path) -> None:
    path = tmp_path / "everybody.json"
    save_directory(path, KNOWN, new=True)
    assert load_directory(path) == KNOWN
    with pytest.raises(LocalFileError, match="is there already"):
        save_directory(path, {}, new=True)
    (tmp_path / "link.json").symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(LocalFileError, match="is there already"):  # a link, if to nothing
        save_directory(tmp_path / "link.json", KNOWN, new=True)
    (tmp_path / "link.json").unlink()
    save_directory(path, {"alice": KEYS[2]})
    assert load_directory(path) == {"alice": KEYS[2]}
    assert [one.name for one in tmp_path.iterdir()] == ["everybody.json"]
    with pytest.raises(LocalFileError, match="cannot write"):
        save_directory(tmp_path / "nowhere" / "everybody.json", KNOWN)


def test_a_failed_write_leaves_the_directory_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_directory(tmp_path / "everybody.json", KNOWN)

    def full(_: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(LocalFileError, match="no space left"):
        save_directory(tmp_path / "everybody.json", {})
    assert load_directory(tmp_path / "everybody.json") == KNOWN


def test_public_keys_come_as_digits_or_in_a_file(tmp_path: Path) -> None:
    identity = make_identity(tmp_path / "private")
    text = identity.public.hex()
    (tmp_path / "public").write_text(f"{text}\n")
    assert read_public_key(text) == read_public_key(str(tmp_path / "public")) == identity.public
    (tmp_path / "ssh").write_text("ecdsa-sha2-nistp384 AAAA somebody")
    (tmp_path / "spaced").write_text(" ".join(text))
    (tmp_path / "large").write_text(text + " " * 10_000)
    (tmp_path / "binary").write_bytes(bytes(range(128, 192)))
    for name in ("private", "ssh", "spaced", "large", "binary"):
        with pytest.raises(LocalFileError, match="does not hold a public key in hex"):
            read_public_key(str(tmp_path / name))
    with pytest.raises(LocalFileError, match="no file with one"):
        read_public_key(str(tmp_path / "nothing"))


def test_a_users_own_key_is_the_one_the_directory_has(tmp_path: Path) -> None:
    known = {"alice": make_identity(tmp_path / "alice").public, "bob": make_identity(tmp_path / "bob").public}
    check_own_key(known, "alice", tmp_path / "alice")
    with pytest.raises(UsageError, match="another key for user 'alice'"):
        check_own_key(known, "alice", tmp_path / "bob")
    with pytest.raises(UsageError, match="'carol' is not in the directory"):
        check_own_key(known, "carol", tmp_path / "alice")
