"""More nodes than a cohort has: each cohort with its own plan and session, all in the same trips."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from flower_nodes import (
    FIRST_NODE,
    OPTIONS,
    arrays,
    expected,
    grid_of,
    make_nodes,
    result_of,
    rounds,
    shift,
    signed_nodes,
    train,
)
from flwr.app import Message
from flwr.serverapp.strategy import FedAvg

from heterosag import CohortPlan
from heterosag.errors import PlanError
from heterosag.flower import Privacy, SecureGrid
from heterosag.protocol import Policy
from heterosag.storage.run_log import read_run

np = pytest.importorskip("numpy")


def moved(reply: Message) -> Any:
    return result_of(reply)["conv.weight"] - arrays()["conv.weight"]


def split_of(grid: SecureGrid) -> list[set[int]]:
    plan = grid.rounds[-1].plan
    assert isinstance(plan, CohortPlan)
    return [{int(user) for user in one.users} for one in plan.plans]


def test_cohorts_ride_on_the_same_trips(tmp_path: Path) -> None:
    nodes = make_nodes(11, tmp_path, train)
    grid, inside = grid_of(nodes, cohort_size=4)
    for reply in rounds(grid, nodes, 2):
        assert np.allclose(moved(reply), expected(list(inside.nodes), {}), atol=1e-6)
        assert reply.content.metric_records["metrics"]["num-examples"] == 11
    assert [done.trips for done in grid.rounds] == [4, 2]
    assert sorted(map(len, split_of(grid))) == [3, 4, 4]
    assert len(grid.rounds[0].survivors) == 11
    assert grid.rounds[0].failed_cohorts == {}
    plans = {node.context.state.config_records["heterosag"]["plan"] for node in nodes}
    sessions = {node.context.state.config_records["heterosag"]["session"] for node in nodes}
    assert len(plans) == len(sessions) == 3, "a plan, keys and a session for each cohort"
    assert grid.rounds[-1].ledger is not None
    assert len(grid.rounds[-1].ledger["cohorts"]) == 3


def test_a_cohort_that_is_not_ready_is_set_up_in_full_while_the_others_wait(tmp_path: Path) -> None:
    nodes = make_nodes(10, tmp_path, train)
    silent: set[int] = set()
    grid, inside = grid_of(
        nodes,
        lambda stage, node, _: "silent" if stage == "unmask" and node in silent else "",
        cohort_size=5,
        options=OPTIONS | {"dropout": 0.3},
    )
    rounds(grid, nodes, 1)
    one, other = split_of(grid)
    silent |= set(sorted(one)[:2])  # what they miss is the set-up of the round after
    assert not rounds(grid, nodes, 1)[0].has_error()
    silent.clear()
    begin = len(inside.log)
    reply = rounds(grid, nodes, 1)[0]
    assert grid.rounds[-1].trips == 4
    asked = [{node for stage, node in inside.log[begin:] if stage == name} for name in ("advertise", "share")]
    assert asked == [one, one]
    assert {node for stage, node in inside.log[begin:] if stage == "mask"} == one | other
    assert np.allclose(moved(reply), expected([*one, *other], {}), atol=1e-6)


def test_a_cohort_that_fails_costs_its_part_and_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nodes = make_nodes(8, tmp_path, train)
    silent: set[int] = set()
    grid, _ = grid_of(
        nodes,
        lambda stage, node, _: "silent" if stage == "mask" and node in silent else "",
        cohort_size=4,
        record=tmp_path / "runs",
    )
    rounds(grid, nodes, 1)
    one, other = split_of(grid)
    silent |= set(sorted(one)[:3])
    reply = rounds(grid, nodes, 1)[0]
    assert np.allclose(moved(reply), expected(list(other), {}), atol=1e-6)
    done = grid.rounds[-1]
    assert list(done.failed_cohorts) == [0]
    assert "TooFewSurvivorsError" in done.failed_cohorts[0]
    assert set(done.survivors) == other
    assert "cohort 0 failed" in caplog.text
    silent |= set(sorted(other)[:3])
    failed = rounds(grid, nodes, 1)[0]
    assert failed.has_error()
    assert "all 2 cohorts failed" in failed.error.reason
    assert sorted(grid.rounds[-1].failed_cohorts) == [0, 1]
    grid.close()
    assert grid.record_folder is not None
    lines = read_run(grid.record_folder).rounds
    assert [sorted(line.get("failed_cohorts", {})) for line in lines] == [[], ["0"], ["0", "1"]]
    assert lines[1]["cohort_survivors"] == [0, len(other)]
    assert len(read_run(grid.record_folder).plan["cohorts"]) == 2


@pytest.mark.slow
def test_a_malicious_node_in_each_cohort_is_outvoted_and_costs_the_mean_its_cohort(tmp_path: Path) -> None:
    bad: set[int] = set()

    def attack(node: int, before: dict[str, Any]) -> dict[str, Any]:
        return {name: array + 0 for name, array in before.items()} if node in bad else train(node, before)

    nodes = make_nodes(24, tmp_path, attack)
    options = {"subgroup_size": 2, "min_survivors": 2, "ranges": "single", "rotate": False, "dropout": 0.0}
    grid, _ = grid_of(nodes, cohort_size=12, rule="median", options=options, assignment="server")
    rounds(grid, nodes, 1)
    bad |= {min(cohort) for cohort in split_of(grid)}
    reply = rounds(grid, nodes, 1)[0]
    plan = grid.rounds[-1].plan
    assert plan is not None
    assert plan.byzantine_tolerance() >= 2
    honest = [shift(node.context.node_id) for node in nodes if node.context.node_id not in bad]
    assert min(honest) <= float(moved(reply).min()) <= float(moved(reply).max()) <= max(honest)


@pytest.mark.slow
def test_evaluation_is_that_of_all_cohorts(tmp_path: Path) -> None:
    nodes = make_nodes(14, tmp_path, train)
    grid, _ = grid_of(nodes, cohort_size=7)
    strategy = FedAvg(min_train_nodes=14, min_evaluate_nodes=14, min_available_nodes=14)
    from flower_nodes import record

    result = grid.start(strategy, record(arrays()), num_rounds=2)
    assert result.evaluate_metrics_clientapp[2]["accuracy"] == pytest.approx(0.5, abs=1e-3)
    assert [len(done.survivors) for done in grid.evaluations] == [14, 14]


def test_nodes_draw_their_cohorts_together(tmp_path: Path) -> None:
    nodes, directory = signed_nodes(8, tmp_path)
    grid, inside = grid_of(nodes, directory=directory, cohort_size=4)
    reply = rounds(grid, nodes, 1)[0]
    assert np.allclose(moved(reply), expected(list(inside.nodes), {}), atol=1e-6)
    assert grid.rounds[0].trips == 7
    assert sum(stage == "commit" for stage, _ in inside.log) == 8
    plan = grid.rounds[0].plan
    assert plan is not None
    assert plan.assignment_seed is not None
    enrolled = [json.loads(path.read_text())["enrolled"] for path in tmp_path.glob("*/run-1.json")]
    assert sorted(map(len, enrolled)) == [1] * 8
    assert len({frames[0] for frames in enrolled}) == 2, "every node keeps the plan of its own cohort"


def test_nodes_with_the_default_policy_draw_three_cohorts(tmp_path: Path) -> None:
    """Each has a third of the directory: the fraction that a policy asks for is of all cohorts."""
    nodes, directory = signed_nodes(36, tmp_path, policy=Policy())
    options = OPTIONS | {"subgroup_size": 6, "min_survivors": 3}
    grid, inside = grid_of(nodes, directory=directory, cohort_size=12, options=options)
    for reply in rounds(grid, nodes, 2):
        assert np.allclose(moved(reply), expected(list(inside.nodes), {}), atol=1e-6)
    assert [len(done.survivors) for done in grid.rounds] == [36, 36]
    assert sorted(map(len, split_of(grid))) == [12, 12, 12]
    memories = [json.loads(path.read_text()) for path in tmp_path.glob("*/run-1.json")]
    assert all(known["cohorts"] == known["enrolled"] for known in memories)


@pytest.mark.parametrize(("nodes", "size", "said"), [(8, 4, False), (13, 5, True)])
def test_cohorts_of_fewer_nodes_than_the_default_policy_asks_for_are_named(
    nodes: int, size: int, said: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    signed, directory = signed_nodes(nodes, tmp_path)
    grid, _ = grid_of(signed, directory=directory, cohort_size=size, options={**OPTIONS, "subgroup_size": 4})
    with caplog.at_level("WARNING", logger="flwr"):
        rounds(grid, signed, 1)
    assert ("cohorts of 4 nodes: by default a node enrols in none of fewer than 12" in caplog.text) is said


def test_a_cohort_that_the_server_chose_has_the_fraction_of_the_directory_that_a_plan_has(tmp_path: Path) -> None:
    nodes, directory = signed_nodes(36, tmp_path, policy=Policy(), assignment="server")
    options = OPTIONS | {"subgroup_size": 6, "min_survivors": 3}
    grid, _ = grid_of(nodes, directory=directory, cohort_size=12, options=options, assignment="server")
    assert rounds(grid, nodes, 1)[0].has_error()
    assert all("below this node's policy" in why for why in grid.rounds[0].lost.values())


def test_subgroups_of_cohorts_that_the_server_drew_by_itself_are_refused(tmp_path: Path) -> None:
    nodes, directory = signed_nodes(18, tmp_path)
    grid, _ = grid_of(nodes, directory=directory, cohort_size=9, assignment="server")
    assert rounds(grid, nodes, 1)[0].has_error()
    assert len(grid.rounds[0].lost) == 18
    assert all("must not answer" in why for why in grid.rounds[0].lost.values())


@pytest.mark.slow
def test_a_grid_of_cohorts_goes_on_in_another_program(tmp_path: Path) -> None:
    nodes = make_nodes(14, tmp_path, train)
    grid, _ = grid_of(nodes, cohort_size=7)
    rounds(grid, nodes, 2)
    state = json.loads(json.dumps(grid.state_dict()))
    again, _ = grid_of(nodes, cohort_size=7)
    again.load_state_dict(state)
    assert not rounds(again, nodes, 1)[0].has_error()
    assert split_of(again) == split_of(grid)
    assert again.rounds[0].ledger is not None
    assert again.rounds[0].ledger["rounds"] == 1, "the same survivors as before"


@pytest.mark.slow
def test_noise_holds_in_every_cohort(tmp_path: Path) -> None:
    nodes = make_nodes(21, tmp_path, train)
    options = {"design": "secagg", "subgroup_size": 10, "rotate": False}
    privacy = Privacy(clipping_norm=1.0, target_epsilon=8.0, rounds=2)
    grid, _ = grid_of(nodes, value_range=None, privacy=privacy, cohort_size=11, options=options, levels=[2])
    assert not rounds(grid, nodes, 1)[0].has_error()
    plan, spent = grid.rounds[0].plan, grid.rounds[0].privacy
    assert isinstance(plan, CohortPlan)
    assert plan.noise_multiplier > 0
    assert spent is not None
    assert 0 < spent["epsilon_server"] < 8.0


def test_a_plan_of_ones_own_may_have_cohorts(tmp_path: Path) -> None:
    nodes = make_nodes(14, tmp_path, train)
    names = [str(node.context.node_id) for node in nodes]
    elements = sum(array.size for array in arrays().values() if array.dtype.kind == "f")
    plan = CohortPlan.build(
        [14], [17], elements, cohort_size=7, users=names, value_range=0.5, subgroup_size=3, min_survivors=2,
        rotate=False, ranges="single",
    )  # fmt: skip
    grid, inside = grid_of(nodes, plan=plan, options=None, value_range=None)
    assert np.allclose(moved(rounds(grid, nodes, 1)[0]), expected(list(inside.nodes), {}), atol=1e-6)
    assert grid.rounds[0].plan == plan


@pytest.mark.slow
def test_a_class_too_small_for_all_cohorts_is_merged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nodes = make_nodes(15, tmp_path, train, config=lambda place: {"heterosag-class": int(place < 2)})
    grid, _ = grid_of(nodes, levels=[17, 17], cohort_size=5, options={"min_survivors": 2, "rotate": False})
    assert not rounds(grid, nodes, 1)[0].has_error()
    assert "3 cohorts need some of every class" in caplog.text
    assert len(split_of(grid)) == 3
    with pytest.raises(PlanError, match="cohort_size"):
        grid_of(nodes, cohort_size=3)
    assert FIRST_NODE in grid.rounds[0].survivors
