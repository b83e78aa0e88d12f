"""`heterosag identity` and `heterosag directory` as a user runs them."""

import fcntl
import json
from pathlib import Path

import pytest
from command import run_command

from heterosag.storage import directories
from heterosag.storage.directories import directory_digest
from heterosag.storage.identities import load_directory, load_identity, make_identity


def test_an_identity_is_made_once_and_its_public_key_printed(tmp_path: Path) -> None:
    file = tmp_path / "ada.pem"
    made = run_command("identity", str(file), "--make").stdout.strip()
    assert made == load_identity(file).public.hex()
    assert json.loads(run_command("identity", str(file), "--json").stdout) == {"public": made}
    before = file.read_bytes()
    assert run_command("identity", str(file), "--make", expect=2).stderr.startswith("heterosag: ")
    assert file.read_bytes() == before


def test_the_command_makes_checks_and_changes_a_directory(tmp_path: Path) -> None:
    users = {name: make_identity(tmp_path / f"{name}.key").public.hex() for name in ("alice", "bob", "carol", "dave")}
    file = str(tmp_path / "everybody.json")

    def run(*words: str) -> str:
        return run_command("directory", file, *words).stdout

    def fails(*words: str) -> str:
        return run_command("directory", file, *words, expect=2).stderr

    assert "cannot read" in fails()
    assert "--make takes the users" in fails("--make")
    assert "--make takes the users" in fails("--make", "--add", f"alice={users['alice']}", "--revoke", "bob")
    assert "--add takes USER=KEY, not 'alice'" in fails("--add", "alice")
    twice = ("--add", f"alice={users['alice']}", "--add", f"alice={users['bob']}")
    assert "names user 'alice' twice" in fails("--make", *twice)
    run("--make", *(word for name in ("alice", "bob") for word in ("--add", f"{name}={users[name]}")))
    found = json.loads(run("--json"))
    assert found["keys"] == {name: users[name] for name in ("alice", "bob")}
    assert found["digest"] == directory_digest(load_directory(Path(file))).hex()
    assert "is there already" in fails("--make", "--add", f"carol={users['carol']}")
    changed = run("--add", f"carol={users['carol']}", "--rotate", f"alice={users['dave']}", "--revoke", "bob")
    assert changed.splitlines()[:-1] == [f"{users['dave']} alice", f"{users['carol']} carol"]
    assert changed.splitlines()[-1].startswith("2 users, digest ")
    run("--mine", f"alice={tmp_path / 'dave.key'}")
    assert "--mine takes USER=KEY_FILE, not 'alice'" in fails("--mine", "alice")
    assert "another key for user 'alice'" in fails("--mine", f"alice={tmp_path / 'alice.key'}")


def test_the_command_reads_and_writes_a_directory_under_one_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or else a revocation is lost where another change has read before it and writes after it."""
    alice, bob = (make_identity(tmp_path / f"{name}.key").public.hex() for name in ("alice", "bob"))
    file, held = tmp_path / "everybody.json", []

    def note(name: str) -> None:
        real = getattr(directories, name)

        def noting(*arguments: object) -> object:
            with (tmp_path / ".everybody.json.lock").open("rb") as lock, pytest.raises(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held.append(name)
            return real(*arguments)

        monkeypatch.setattr(directories, name, noting)

    for name in ("load_directory", "replace_file"):
        note(name)
    run_command("directory", str(file), "--make", "--add", f"alice={alice}", "--add", f"bob={bob}")
    run_command("directory", str(file), "--revoke", "bob")
    assert held == ["replace_file", "load_directory", "replace_file"]
