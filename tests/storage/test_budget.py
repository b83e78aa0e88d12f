"""Charges on disk: across programs, with a file lost or set back, and never on a file that is not as it was written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from heterosag.errors import BudgetError, LocalFileError
from heterosag.plan import Plan
from heterosag.protocol import Policy
from heterosag.storage.budget import FileBudget

PLAN = Plan.build(
    [12], [2], 900, design="secagg", subgroup_size=12, min_block_survivors=10, clipping_norm=0.5, noise_multiplier=4.0
)
POLICY = Policy(max_epsilon=3.0)


def spend(folder: Path) -> int:
    """Charge until it is refused."""
    for rounds in range(100):
        try:
            FileBudget(folder).charge(PLAN, POLICY)
        except BudgetError:
            return rounds
    pytest.fail("no round was refused")


def test_charges_outlive_the_program_and_a_refused_one_is_not_kept(tmp_path: Path) -> None:
    rounds = spend(tmp_path / "new")
    assert rounds > 1
    assert FileBudget(tmp_path / "new").rounds == rounds
    with pytest.raises(BudgetError):
        FileBudget(tmp_path / "new").check(PLAN, POLICY)
    assert FileBudget(tmp_path).rounds == 0


@pytest.mark.parametrize("name", ["budget.json", "budget-copy.json"])
def test_a_file_that_is_lost_or_set_back_takes_no_charge_back(tmp_path: Path, name: str) -> None:
    FileBudget(tmp_path).charge(PLAN, POLICY)
    path = tmp_path / name
    before = path.read_bytes()
    rounds = spend(tmp_path) + 1
    path.write_bytes(before)
    assert FileBudget(tmp_path).rounds == rounds
    path.unlink()
    assert FileBudget(tmp_path).rounds == rounds
    with pytest.raises(BudgetError):
        FileBudget(tmp_path).charge(PLAN, POLICY)


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "{}", '{"checksum": "00"}', "[" * 100_000, '{"version": 1, "number": 0, "charges": []}'],
)
def test_a_file_that_is_not_as_it_was_written_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "budget.json").write_text(content, encoding="utf-8")
    with pytest.raises(LocalFileError, match="cannot read the privacy budget"):
        FileBudget(tmp_path).charge(PLAN, POLICY)


def test_a_changed_charge_is_refused(tmp_path: Path) -> None:
    FileBudget(tmp_path).charge(PLAN, POLICY)
    content = json.loads((tmp_path / "budget.json").read_text(encoding="utf-8"))
    content["charges"][0]["event"]["noise_multiplier"] = 400.0
    (tmp_path / "budget.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(LocalFileError, match="not as it was written"):
        FileBudget(tmp_path).check(PLAN, POLICY)


def test_a_file_of_another_version_is_refused_by_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heterosag.storage.budget._VERSION", 7)
    FileBudget(tmp_path).charge(PLAN, POLICY)
    monkeypatch.undo()
    with pytest.raises(LocalFileError, match="reads version 1, not 7"):
        FileBudget(tmp_path).check(PLAN, POLICY)
    path = tmp_path / "budget.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"number": 1', '"number": 2'), encoding="utf-8")
    with pytest.raises(LocalFileError, match="not as it was written"):
        FileBudget(tmp_path).check(PLAN, POLICY)


def test_charges_that_no_accountant_made_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heterosag.storage.budget.add_charge", lambda charges, plan, policy: [{"count": 1}])
    FileBudget(tmp_path).charge(PLAN, POLICY)
    monkeypatch.undo()
    with pytest.raises(LocalFileError, match="cannot use the privacy budget"):
        FileBudget(tmp_path).check(PLAN, POLICY)


def _full(*_: object) -> None:
    raise OSError("no space left on device")


def test_folders_that_cannot_be_used_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LocalFileError, match="cannot keep the privacy budget"):
        FileBudget(tmp_path / "file" / "folder")
    budget = FileBudget(tmp_path)
    monkeypatch.setattr(Path, "replace", _full)
    with pytest.raises(LocalFileError, match="cannot write the privacy budget"):
        budget.charge(PLAN, POLICY)
