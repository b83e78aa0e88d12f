"""A node's ledger on disk: it remembers over programs, and damage to it is named."""

from pathlib import Path

import pytest
from rounds import small_plan

from heterosag.errors import ExposedUsersError, LocalFileError
from heterosag.storage.ledger_file import LedgerFile

EVERYBODY = frozenset(range(12))


def test_what_one_program_noted_the_next_one_refuses_to_complete(tmp_path: Path) -> None:
    plan = small_plan()
    LedgerFile(tmp_path / "node", plan, sets_below=2).note(EVERYBODY)
    again = LedgerFile(tmp_path / "node", plan, sets_below=2)
    again.check(EVERYBODY)
    for refused in (again.check, again.note):
        with pytest.raises(ExposedUsersError):
            refused(EVERYBODY - {3})
    LedgerFile(tmp_path / "another node", plan, sets_below=2).check(EVERYBODY - {3})


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"rows": 1}'])
def test_a_damaged_ledger_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "ledger.json").write_text(text)
    with pytest.raises(LocalFileError, match=r"cannot read the ledger .*ledger\.json"):
        LedgerFile(tmp_path, small_plan(), sets_below=2)


def test_a_ledger_of_another_format_is_named(tmp_path: Path) -> None:
    LedgerFile(tmp_path, small_plan(), sets_below=2).note(EVERYBODY)
    text = (tmp_path / "ledger.json").read_text()
    assert text.startswith('{"format": 1, ')
    (tmp_path / "ledger.json").write_text(text.replace("1", "2", 1))
    with pytest.raises(LocalFileError, match=r"^the ledger .+ledger\.json is of another release: .* remove the file"):
        LedgerFile(tmp_path, small_plan(), sets_below=2)


def _full(*_: object) -> None:
    raise OSError("no space left on device")


def test_a_ledger_that_cannot_be_kept_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LocalFileError, match="cannot keep the ledger"):
        LedgerFile(tmp_path / "file" / "node", small_plan(), sets_below=2)
    ledger = LedgerFile(tmp_path, small_plan(), sets_below=2)
    monkeypatch.setattr(Path, "replace", _full)
    with pytest.raises(LocalFileError, match="cannot write the ledger"):
        ledger.note(EVERYBODY)


def test_ledgers_of_the_version_before_are_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "ledger-00ff.json").write_text("{}")
    with pytest.raises(LocalFileError, match=r"ledger-00ff\.json is a ledger of version 0\.1\.0.*remove"):
        LedgerFile(tmp_path, small_plan(), sets_below=2)
