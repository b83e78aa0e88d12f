"""What a node remembers of a run: its last range, its epochs and enrolments, and its last evaluation."""

from pathlib import Path

import pytest

from heterosag.errors import FaultyServerError, LocalFileError, PlanError
from heterosag.plan import Plan
from heterosag.protocol import Policy
from heterosag.storage.node_memory import NodeMemory

REST = '"models": {}, "epochs": [], "enrolments": 0, "enrolled": [], "evaluated": false}'


def plan(seed: int = 0, half: float = 1.0) -> Plan:
    return Plan.build([12], [4], 30, value_range=half, subgroup_size=3, assignment_seed=seed)


def test_a_memory_knows_which_plans_are_of_cohorts(tmp_path: Path) -> None:
    memory, others = NodeMemory(tmp_path, 7), plan(seed=5)
    memory.note_enrolled(plan(), cohort=True)
    memory.note_enrolled(others)
    assert [memory.is_cohort(one) for one in (plan(), others)] == [True, False]
    assert memory.has_enrolled(plan())
    assert memory.has_enrolled(others)


def test_the_range_is_held_against_the_round_before(tmp_path: Path) -> None:
    file, policy = NodeMemory(tmp_path / "node", 7), Policy()
    file.note_round(policy, plan(half=1.0), b"model")
    with pytest.raises(PlanError, match=r"0\.4 times"):
        file.note_round(policy, plan(half=0.4), b"model")
    file.note_round(policy, plan(half=2.0), b"model")
    file.note_round(policy, plan(half=4.0), b"model")
    NodeMemory(tmp_path / "node", 8).note_round(policy, plan(half=9.0), b"model")


def test_the_range_of_every_array_is_held_against_the_round_before(tmp_path: Path) -> None:
    def scaled(*scales: float) -> Plan:
        arrays = [10] * 3 if len(scales) == 3 else [15] * 2
        return Plan.build([12], [4], 30, value_range=1.0, subgroup_size=3, arrays=arrays, scales=scales)

    file, policy = NodeMemory(tmp_path, 7), Policy()
    file.note_round(policy, scaled(1.0, 1.0, 8.0), b"model")
    with pytest.raises(PlanError, match=r"0\.125 times"):
        file.note_round(policy, scaled(1.0, 1.0, 1.0), b"model")
    with pytest.raises(PlanError, match="8 times"):  # other arrays: elements 15 to 19 had 1
        file.note_round(policy, scaled(1.0, 8.0), b"model")
    file.note_round(policy, scaled(1.0, 2.0, 4.0), b"model")
    file.note_round(policy, scaled(2.0, 4.0), b"model")
    file.note_round(policy, scaled(2.0, 2.0, 8.0), b"model")


def test_the_range_does_not_change_by_way_of_weights_or_levels(tmp_path: Path) -> None:
    """What bounds an element is the range, times the width for its levels, times max_weight over the node's weight."""

    def other(level: int = 4, most: int = 100, half: float = 1.0) -> Plan:
        return Plan.build([12], [level], 30, value_range=half, subgroup_size=3, max_weight=most)

    file, policy = NodeMemory(tmp_path, 7), Policy()
    file.note_round(policy, other(), b"model")
    for far in (other(most=10), other(most=1000), other(most=1000, half=0.1), other(level=65536)):
        with pytest.raises(PlanError, match="times that of the last round"):
            file.note_round(policy, far, b"model")
    file.note_round(policy, other(most=200, half=0.5), b"model")
    file.note_round(policy, other(level=8, most=200, half=0.5), b"model", weight_unit=2)
    with pytest.raises(PlanError, match="max_weight is 10 times that of the last round"):
        file.note_round(policy, other(level=8, most=200, half=0.5), b"model", weight_unit=20)


def test_a_file_without_weights_and_levels_is_read(tmp_path: Path) -> None:
    text = '{"names": [], "array_widths": [[30, 1.0]], ' + REST
    (tmp_path / "run-7.json").write_text(text, encoding="utf-8")
    file = NodeMemory(tmp_path, 7)
    with pytest.raises(PlanError, match="3 times"):
        file.note_round(Policy(), plan(half=3.0), b"model")
    file.note_round(Policy(), plan(half=2.0), b"model")
    assert b'"width_factors":[' in (tmp_path / "run-7.json").read_bytes()


def test_arrays_in_another_order_are_compared_each_with_each(tmp_path: Path) -> None:
    """A server that swaps two arrays would give each the other's range, with every place of the vector as it was."""
    two = Plan.build([12], [4], 30, value_range=1.0, subgroup_size=3, arrays=[15, 15], scales=[1.0, 8.0])
    file, policy = NodeMemory(tmp_path, 7), Policy()
    file.note_round(policy, two, b"model", ["a", "b"])
    file.note_round(policy, two, b"model", ["a", "b"])
    with pytest.raises(PlanError, match=r"0\.125 times"):
        file.note_round(policy, two, b"model", ["b", "a"])
    file.note_round(policy, two, b"model", ["a", "b"])


def test_epochs_are_counted_once_each(tmp_path: Path) -> None:
    file, policy = NodeMemory(tmp_path, 7), Policy(max_epochs=2)
    for seed in (0, 1, 0, 1):
        file.check_epoch(policy, plan(seed))
        file.note_round(policy, plan(seed), b"model")
    with pytest.raises(PlanError, match="after 2 epochs") as refusal:
        file.check_epoch(policy, plan(2))
    assert refusal.value.field == "assignment"
    file.check_epoch(policy, Plan.build([12], [4], 30, value_range=1.0, design="secagg"))  # nothing to solve for


def test_rounds_of_one_model_are_counted_in_whatever_order_they_come(tmp_path: Path) -> None:
    file, policy = NodeMemory(tmp_path, 7), Policy(max_rounds_of_a_model=2)
    for model in (b"one", b"another", b"one", b"another"):
        file.note_round(policy, plan(), model)
    for model in (b"one", b"another"):
        with pytest.raises(PlanError, match="another round of one model after 2"):
            file.note_round(policy, plan(), model)
    file.note_round(policy, plan(), b"a third")
    NodeMemory(tmp_path, 8).note_round(policy, plan(), b"one")


def test_a_node_evaluates_once_between_two_rounds_of_training(tmp_path: Path) -> None:
    file = NodeMemory(tmp_path, 7)
    file.note_evaluation()
    with pytest.raises(FaultyServerError, match="evaluate again"):
        file.note_evaluation()
    file.note_round(Policy(), plan(), b"model")
    file.note_evaluation()


def test_two_programs_at_once_are_held_against_each_other(tmp_path: Path) -> None:
    """Both have checked before either notes: the second note is refused, so its vector is not given out."""
    policy = Policy(max_epochs=1)
    one, other = NodeMemory(tmp_path, 7), NodeMemory(tmp_path, 7)
    one.check_epoch(policy, plan(0))
    other.check_epoch(policy, plan(1))
    one.note_round(policy, plan(0, half=1.0), b"model")
    with pytest.raises(PlanError, match="after 1 epochs"):
        other.note_round(policy, plan(1), b"model")
    with pytest.raises(PlanError, match="9 times"):
        other.note_round(policy, plan(0, half=9.0), b"model")


def test_enrolments_are_counted_and_their_plans_kept(tmp_path: Path) -> None:
    file, policy = NodeMemory(tmp_path, 7), Policy(max_epochs=2)
    assert not file.has_enrolled(plan(3))
    for number in range(2):
        file.note_enrolment(policy, b"%d" % number, ["1", "2"][number:])
    file.note_enrolled(plan(3))
    assert file.has_enrolled(plan(3, half=0.25))
    assert not file.has_enrolled(plan(4))
    for refuses in (file.check_enrolment, file.note_enrolment):  # nor does it commit
        with pytest.raises(PlanError, match="after 2 times"):
            refuses(policy, b"2", ["1", "2"])


def test_each_enrolment_that_is_not_finished_costs_a_user(tmp_path: Path) -> None:
    file, policy, users = NodeMemory(tmp_path, 7), Policy(), list("abcdef")
    for number in range(3):
        for _ in range(2):  # the same message again
            file.check_enrolment(policy, b"%d" % number, users[number:])
            file.note_enrolment(policy, b"%d" % number, users[number:])
        for refused in (users, users[number:], [*users[number:], "new"]):
            with pytest.raises(FaultyServerError, match="leaves out one for each"):
                file.check_enrolment(policy, b"another", refused)
            with pytest.raises(FaultyServerError, match="leaves out one for each"):
                file.note_enrolment(policy, b"another", refused)
    file.check_enrolment(policy, b"another", ["a", "d", "new"])  # which users it leaves out is the server's choice
    file.note_enrolled(plan(3))
    file.check_enrolment(policy, b"another", users)


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        '{"names": [], "array_widths": [[1, 1.0]]}',
        '{"names": [], "array_widths": [[1, 0]], ' + REST,
        '{"names": [], "array_widths": 1, ' + REST,
    ],
)
def test_a_damaged_file_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "run-7.json").write_text(text, encoding="utf-8")
    with pytest.raises(LocalFileError, match=r"run-7\.json"):
        NodeMemory(tmp_path, 7).note_round(Policy(), plan(), b"model")


def test_a_file_of_an_earlier_version_is_refused(tmp_path: Path) -> None:
    """It had one range an array and no sizes, so nothing says of which elements."""
    old = '{"half_widths": [1.0], ' + REST
    (tmp_path / "run-7.json").write_text(old, encoding="utf-8")
    with pytest.raises(LocalFileError, match=r"run-7\.json: .*missing.*If another version of heterosag wrote it"):
        NodeMemory(tmp_path, 7).note_round(Policy(), plan(), b"model")


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "node").write_text("not a folder", encoding="utf-8")
    with pytest.raises(LocalFileError, match=r"run-7\.json"):
        NodeMemory(tmp_path / "node", 7).note_round(Policy(), plan(), b"model")
