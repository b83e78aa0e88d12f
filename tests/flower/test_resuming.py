"""A grid goes on in another program where one stopped: range, exclusions, plans, ledgers, budget."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flower_nodes import (
    FIRST_NODE,
    LOOSE,
    LocalGrid,
    arrays,
    grid_of,
    make_nodes,
    messages,
    result_of,
    signed_nodes,
    train,
)

from heterosag.errors import UsageError
from heterosag.flower import Privacy, SecureGrid, mod
from heterosag.flower.resuming import GridState


def silent_last(stage: str, node: int, message: Any) -> str:
    return "silent" if stage == "mask" and node == FIRST_NODE + 5000 else ""


def loose_nodes(folder: Path, **options: Any) -> list[Any]:
    own: dict[str, Any] = {"policy": LOOSE, "trust_server": True, "release_log": folder, **options}
    return make_nodes(6, folder, train, secure=lambda _: mod(**own))


def test_range_plans_ledger_and_exclusions_are_resumed(tmp_path: Path) -> None:
    nodes = loose_nodes(tmp_path)
    options: dict[str, Any] = {"adapt_range": True, "hide_sets_below": 2}
    first, _ = grid_of(nodes, **options)
    result_of(next(iter(first.send_and_receive(messages(nodes, arrays())))))
    first._epochs.faulty.add(3)
    first._epochs.withheld.add(2**63 + 4)
    state = json.loads(json.dumps(first.state_dict()))

    second, _ = grid_of(nodes, silent_last, **options)
    second.load_state_dict(state)
    assert second.state_dict() == state
    assert state["range"] is not None
    assert second._ranges.state_dict() == first._ranges.state_dict() == state["range"]
    assert (second._epochs.faulty, second._epochs.withheld) == ({3}, set())  # another run's nodes draw anew
    (reply,) = second.send_and_receive(messages(nodes, arrays(1)))  # with round 1 it would expose the silent node
    assert second.rounds[0].plan is not None
    assert first.rounds[0].plan is not None
    assert second.rounds[0].plan.frame == first.rounds[0].plan.frame
    assert "ExposedUsersError" in reply.error.reason
    fresh, _ = grid_of(loose_nodes(tmp_path / "fresh"), silent_last, **options)
    result_of(next(iter(fresh.send_and_receive(messages(nodes, arrays(1))))))


def test_a_ledger_of_rounds_that_cannot_be_is_not_forgotten(tmp_path: Path) -> None:
    nodes = loose_nodes(tmp_path)
    options: dict[str, Any] = {"adapt_range": True, "hide_sets_below": 2}
    first, _ = grid_of(nodes, **options)
    result_of(next(iter(first.send_and_receive(messages(nodes, arrays())))))
    state = json.loads(json.dumps(first.state_dict()))
    ((epoch, rounds),) = state["ledgers"].items()
    second, _ = grid_of(nodes, **options)
    second.load_state_dict(state | {"ledgers": {epoch: [*rounds, [0, 99]]}})
    for attempt in (1, 2):
        (reply,) = second.send_and_receive(messages(nodes, arrays(attempt)))
        assert "UsageError" in reply.error.reason


def test_assignments_that_nodes_drew_are_drawn_anew(tmp_path: Path) -> None:
    nodes, directory = signed_nodes(12, tmp_path)
    first, _ = grid_of(nodes, directory=directory)
    result_of(next(iter(first.send_and_receive(messages(nodes, arrays())))))
    state = first.state_dict()
    assert state["plans"] == []
    second, inside = grid_of(nodes, directory=directory)
    second.load_state_dict(state)
    result_of(next(iter(second.send_and_receive(messages(nodes, arrays())))))
    assert "commit" in {stage for stage, _ in inside.log}


def test_a_privacy_budget_is_resumed() -> None:
    from heterosag.plan import Plan

    plan = Plan.build(
        [40], [2], 1000, design="secagg", subgroup_size=40, min_block_survivors=32, clipping_norm=1.0,
        noise_multiplier=4.0,
    )  # fmt: skip
    asked = Privacy(clipping_norm=1.0, rounds=3, target_epsilon=8.0, target_delta=1e-5)
    first, second = (SecureGrid(grid_of([])[1], privacy=asked) for _ in range(2))
    assert first._budget is not None
    assert second._budget is not None
    once = first._budget.charge(plan)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second._budget.charge(plan)["epsilon_server"] > once["epsilon_server"]
    with pytest.raises(UsageError, match="another privacy"):
        grid_of([])[0].load_state_dict(first.state_dict())
    with pytest.raises(UsageError, match="two views"):
        second.load_state_dict({**first.state_dict(), "budget": {}})


@pytest.mark.parametrize(
    "change", [{"version": 2}, {"range": 0}, {"faulty": ["x"]}, {"ledgers": {"00": [[-1]]}}, {"more": 1}]
)
def test_what_is_no_state_is_refused(change: dict[str, Any]) -> None:
    grid = grid_of([])[0]
    with pytest.raises(UsageError, match="no state of a SecureGrid"):
        grid.load_state_dict({**grid.state_dict(), **change})
    with pytest.raises(UsageError, match="no state"):
        GridState.of({})
    for nothing in ({}, None, "state", [1]):
        with pytest.raises(UsageError, match="no state of a SecureGrid"):
            grid.load_state_dict(nothing)  # type: ignore[arg-type]


@pytest.mark.parametrize("state", [None, "x", 1, [], [("version", 1)]])
def test_what_is_not_even_a_mapping_is_refused(state: Any) -> None:
    """A file of a program before may hold `null`."""
    with pytest.raises(UsageError, match="no state of a SecureGrid"):
        grid_of([])[0].load_state_dict(state)


def spoilt(state: dict[str, Any], where: str) -> dict[str, Any]:
    state = json.loads(json.dumps(state))
    if where == "adaptive":
        state["range"]["adaptive"]["arrays"][0] = float("inf")
    elif where == "positive":
        state["range"]["positive"]["arrays"][0] = float("inf")
    elif where == "plans":
        state["plans"][-1]["plan"] = "AAAA"
    elif where == "model":
        state["budget"]["model"] = {}
    else:
        state["budget"]["server"]["composed"][0]["event"]["segments"][0]["size"] = float("inf")
    return state


@pytest.mark.parametrize("where", ["adaptive", "positive", "plans"])
def test_of_a_state_that_is_refused_nothing_is_taken(where: str, tmp_path: Path) -> None:
    nodes = loose_nodes(tmp_path)
    first, _ = grid_of(nodes, value_range=None, adapt_range=True)
    result_of(next(iter(first.send_and_receive(messages(nodes, arrays())))))
    second, _ = grid_of(nodes, value_range=None, adapt_range=True)
    before = second.state_dict()
    with pytest.raises(UsageError, match="no state of a SecureGrid"):
        second.load_state_dict(spoilt(first.state_dict(), where))
    assert second.state_dict() == before
    second.load_state_dict(first.state_dict())
    assert second.state_dict() == first.state_dict()


@pytest.mark.parametrize("where", ["positive", "plans", "model", "server"])
def test_of_a_state_that_is_refused_no_charge_is_taken(where: str, tmp_path: Path) -> None:
    asked = Privacy(clipping_norm=0.5, target_epsilon=8.0, rounds=3)
    options: dict[str, Any] = {"design": "secagg", "subgroup_size": 8, "dropout": 0.0}
    nodes = make_nodes(8, tmp_path, train)
    first, second = (SecureGrid(LocalGrid(nodes), levels=[2], privacy=asked, options=options) for _ in range(2))
    result_of(next(iter(first.send_and_receive(messages(nodes, {"w": np.zeros(200)})))))
    before = second.state_dict()
    with pytest.raises(UsageError, match="no state of a SecureGrid"):
        second.load_state_dict(spoilt(first.state_dict(), where))
    assert second.state_dict() == before


def test_a_state_is_loaded_before_the_first_round(tmp_path: Path) -> None:
    nodes = loose_nodes(tmp_path)
    grid, _ = grid_of(nodes)
    grid.send_and_receive(messages(nodes, arrays()))
    with pytest.raises(UsageError, match="before the first round"):
        grid.load_state_dict(grid.state_dict())
