"""Directories: who is added, rotated and revoked, what is refused, and the command that does it."""

import os
from pathlib import Path
from threading import Event, Thread

import pytest

from heterosag.crypto.identity import Identity
from heterosag.errors import LocalFileError, UsageError
from heterosag.storage import directories
from heterosag.storage.directories import (
    change_directory,
    check_own_key,
    directory_digest,
    edit_directory,
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


def test_a_directory_is_made_and_edited(tmp_path: Path) -> None:
    path = tmp_path / "everybody.json"
    assert edit_directory(path, add=KNOWN, new=True) == load_directory(path) == KNOWN
    with pytest.raises(LocalFileError, match="is there already"):
        edit_directory(path, add=KNOWN, new=True)
    with pytest.raises(UsageError, match="'carol' is not in the directory"):
        edit_directory(path, revoke=["carol"])
    changed = edit_directory(path, add={"carol": KEYS[3]}, rotate={"alice": KEYS[2]}, revoke=["bob"])
    assert changed == load_directory(path) == {"alice": KEYS[2], "carol": KEYS[3]}
    for name, words in (("nothing.json", "cannot read"), ("nowhere/everybody.json", "cannot lock")):
        with pytest.raises(LocalFileError, match=words):
            edit_directory(tmp_path / name, revoke=["bob"])


@pytest.mark.parametrize("name", ["everybody.json", "link.json"])
def test_of_two_changes_at_once_none_is_lost(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A revocation that its owner has seen confirmed must not be undone by another change that began before it."""
    path = tmp_path / "everybody.json"
    (tmp_path / "link.json").symlink_to(path)
    save_directory(path, KNOWN)
    read, go_on, load = Event(), Event(), load_directory

    def load_and_wait(one: Path) -> dict[object, bytes]:
        found = load(one)
        if not read.is_set():  # the first one only
            read.set()
            assert go_on.wait(60)
        return found

    monkeypatch.setattr(directories, "load_directory", load_and_wait)
    first = Thread(target=edit_directory, args=(path,), kwargs={"add": {"carol": KEYS[2]}})
    second = Thread(target=edit_directory, args=(tmp_path / name,), kwargs={"revoke": ["bob"]})
    first.start()
    assert read.wait(60)
    second.start()
    second.join(0.2)
    assert second.is_alive(), "it waits until the first has written"
    go_on.set()
    for one in (first, second):
        one.join(60)
    assert load_directory(path) == {"alice": KEYS[0], "carol": KEYS[2]}


def test_of_two_that_make_a_directory_at_once_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, refused = tmp_path / "everybody.json", []
    checked, go_on, save = Event(), Event(), directories.replace_file

    def wait_and_save(one: Path, content: bytes) -> None:
        if not checked.is_set():
            checked.set()
            assert go_on.wait(60)
        save(one, content)

    def make_another() -> None:
        try:
            edit_directory(path, add={"carol": KEYS[2]}, new=True)
        except LocalFileError as error:
            refused.append(str(error))

    monkeypatch.setattr(directories, "replace_file", wait_and_save)
    first = Thread(target=edit_directory, args=(path,), kwargs={"add": KNOWN, "new": True})
    second = Thread(target=make_another)
    first.start()
    assert checked.wait(60)
    second.start()
    second.join(0.2)
    go_on.set()
    for one in (first, second):
        one.join(60)
    assert load_directory(path) == KNOWN
    assert len(refused) == 1
    assert "is there already" in refused[0]


def test_where_files_cannot_be_locked_a_directory_is_edited_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directories, "_CAN_LOCK", False)
    edit_directory(tmp_path / "everybody.json", add=KNOWN, new=True)
    assert load_directory(tmp_path / "everybody.json") == KNOWN
    assert [one.name for one in tmp_path.iterdir()] == ["everybody.json"]


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
