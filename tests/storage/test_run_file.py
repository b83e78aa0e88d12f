"""What a node remembers of a run: its last range and the epochs that it joined."""

from pathlib import Path

import pytest

from heterosag.errors import LocalFileError, PlanError
from heterosag.plan import Plan
from heterosag.protocol import Policy, RoundId
from heterosag.storage.run_file import RunFile


def plan(seed: int = 0, half: float = 1.0) -> Plan:
    return Plan.build([12], [4], 30, value_range=half, subgroup_size=3, assignment_seed=seed)


def number(at: int, session: bytes = b"s") -> RoundId:
    return RoundId(session=session, number=at)


def test_the_range_is_held_against_the_round_before(tmp_path: Path) -> None:
    file, policy = RunFile(tmp_path / "node", 7), Policy()
    file.check(policy, plan(half=9.0), number(1))
    file.note(plan(half=1.0), number(1))
    file.check(policy, plan(half=2.0), number(2))
    with pytest.raises(PlanError, match="4 times"):
        file.check(policy, plan(half=4.0), number(2))
    file.check(policy, plan(half=4.0), number(3))  # it missed a round
    with pytest.raises(PlanError, match="9 times"):
        file.check(policy, plan(half=9.0), number(2, b"another session"))
    RunFile(tmp_path / "node", 8).check(policy, plan(half=9.0), number(2))


def test_the_servers_round_number_widens_little(tmp_path: Path) -> None:
    file = RunFile(tmp_path, 7)
    file.note(plan(half=1.0), number(1))
    for at in (41, 2**40, 2**64 - 1):
        file.check(Policy(), plan(half=16.0), number(at))
        with pytest.raises(PlanError, match="17 times that of 4 rounds before"):
            file.check(Policy(), plan(half=17.0), number(at))


def test_epochs_are_counted_once_each(tmp_path: Path) -> None:
    file, policy = RunFile(tmp_path, 7), Policy(max_epochs=2)
    for at, seed in enumerate((0, 1, 0, 1)):
        file.check(policy, plan(seed), number(at))
        file.note(plan(seed), number(at))
    with pytest.raises(PlanError, match="after 2 epochs") as refusal:
        file.check(policy, plan(2), number(5))
    assert refusal.value.field == "assignment"


@pytest.mark.parametrize("text", ["[]", "{", '{"number": 1}', '{"half_width": 0, "number": 1, "epochs": []}'])
def test_a_damaged_file_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "run-7.json").write_text(text, encoding="utf-8")
    with pytest.raises(LocalFileError, match=r"run-7\.json"):
        RunFile(tmp_path, 7).check(Policy(), plan(), number(1))


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "node").write_text("not a folder", encoding="utf-8")
    with pytest.raises(LocalFileError, match=r"run-7\.json"):
        RunFile(tmp_path / "node", 7).note(plan(), number(1))
