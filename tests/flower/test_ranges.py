"""The ranges of a grid's rounds: they start from the model, follow the updates array by array, and go on later."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flower_nodes import Node, grid_of, make_nodes, messages
from flwr.app import Message

from heterosag import Simulation, aggregate
from heterosag.aggregation.clipping import AdaptiveRange
from heterosag.errors import PlanError, UsageError
from heterosag.flower import SecureGrid, mod
from heterosag.flower.ranges import Ranges, RangeState, _Masked
from heterosag.plan import Plan
from heterosag.protocol.policy import Policy

OPTIONS: dict[str, Any] = {"subgroup_size": 3, "min_survivors": 2}


def model() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {"steps": np.array(0), "variance": np.ones(30), "weight": rng.normal(0, 0.1, (30, 40))}


def learn(node: int, before: dict[str, Any]) -> dict[str, Any]:
    """Weights move by 0.01, variances by 1 or so, a counter by 30."""
    rng, common = np.random.default_rng(node), np.random.default_rng(99)
    return {
        "steps": before["steps"] + 30,
        "weight": before["weight"] + (common.normal(0, 0.01, (30, 40)) + rng.normal(0, 0.01, (30, 40))) / np.sqrt(2),
        "variance": before["variance"] + common.normal(0.5, 0.7, 30) ** 2 + rng.normal(0, 0.2, 30) ** 2,
    }


def run(grid: SecureGrid, nodes: list[Node], rounds: int, before: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    found = []
    for _ in range(rounds):
        (reply,) = grid.send_and_receive(messages(nodes, before or model()))
        assert not reply.has_error(), reply.error.reason
        record = next(iter(reply.content.array_records.values()))
        found.append({name: array.numpy() for name, array in record.items()})
    return found


def error_of(found: dict[str, Any], nodes: list[Node], name: str) -> float:
    """How far the aggregate of an array is from the mean, in parts of the mean's own size."""
    before = model()
    true = np.mean([learn(node.context.node_id, before)[name] for node in nodes], axis=0) - before[name]
    return float(np.linalg.norm(found[name] - before[name] - true) / np.linalg.norm(true))


def test_arrays_have_ranges_of_their_own_which_follow_the_updates(tmp_path: Path) -> None:
    nodes = make_nodes(12, tmp_path, learn)
    grid, _ = grid_of(nodes, levels=[16], value_range=None, adapt_range=True, options=OPTIONS)
    assert grid.state_dict()["range"] is None
    found = run(grid, nodes, 9)
    plans = [done.plan for done in grid.rounds if done.plan is not None]
    assert plans[0].arrays == (30, 1200)  # a counter does not travel
    assert plans[0].rotate
    assert plans[0].ranges == "levels"
    first, last = plans[0].half_widths, plans[-1].half_widths
    assert last[0] > 5 * last[1]
    assert last[1] < first[1] / 2
    for name in ("weight", "variance"):
        assert error_of(found[-1], nodes, name) < 0.3, name
    assert [done.trips for done in grid.rounds] == [4] + [2] * 8


def test_a_grid_goes_on_with_the_ranges_of_another(tmp_path: Path) -> None:
    nodes = make_nodes(12, tmp_path, learn)
    options: dict[str, Any] = {"levels": [16], "value_range": None, "adapt_range": True, "options": OPTIONS}
    grid, _ = grid_of(nodes, **options)
    run(grid, nodes, 2)
    state = grid.state_dict()
    other, _ = grid_of(nodes, **options)
    other.load_state_dict(state)
    run(other, nodes, 1)
    (done,) = other.rounds
    assert done.plan is not None
    expected = AdaptiveRange.from_state_dict(state["range"]["adaptive"]).settle(done.plan)
    assert done.plan.half_widths == pytest.approx(expected.half_widths)


@pytest.mark.parametrize("fixed", [{"value_range": None, "adapt_range": True}, {"value_range": 9.0}])
def test_an_array_that_was_positive_stays_so(
    fixed: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fall(node: int, before: dict[str, Any]) -> dict[str, Any]:
        return learn(node, before) | {"variance": before["variance"] - 3.0}

    nodes = make_nodes(12, tmp_path, fall)
    grid, _ = grid_of(nodes, levels=[16], options=OPTIONS, **fixed)
    with caplog.at_level("WARNING", logger="flwr"):
        found = run(grid, nodes, 4)
    assert np.all(found[-1]["variance"] >= 0.25)
    assert "fell too far, and were held" in caplog.text


def test_arrays_that_were_positive_in_the_first_model_stay_so_also_under_a_plan_that_tells_none_apart() -> None:
    plan = Plan.build([12], [16], 5, value_range=9.0, subgroup_size=3, rotate=False)
    combined = aggregate(plan, np.full((12, 5), -3.0), simulate=Simulation(rounding_seed=0, secure=False)).combined
    first, second = (Ranges(9.0, adapts=False) for _ in range(2))
    assert first.state_dict() is None
    before = np.array([1.0, 1.0, -1.0, 1.0, 0.5])
    assert first.settle(plan, before, (), [2, 3]) is not None
    second.resume(RangeState.of(json.loads(json.dumps(first.state_dict()))))
    now = np.array([0.5, 0.1, 1.0, 1.0, 1.0])  # the second array has become positive
    second.settle(plan, now, (), [2, 3])
    after = second.follow(plan, combined, now)
    assert after[:2].tolist() == [0.125, 0.025]
    assert np.all(after[2:] < 0)
    assert second.state_dict() == first.state_dict()
    second.settle(plan, now, (), [3, 2])  # another model
    assert np.all(second.follow(plan, combined, now) > 0)
    with pytest.raises(UsageError, match="no state of a grid's ranges"):
        RangeState.of({"clipping_norm": 1.0})


def test_a_range_that_does_not_adapt_is_the_plans_or_the_one_given() -> None:
    plan = Plan.build([12], [16], 30, value_range=0.5, subgroup_size=3, arrays=[10, 20], scales=[1.0, 2.0])
    still = Ranges(None, adapts=False, given=plan)
    assert still.settle(plan, np.ones(30)) is plan
    assert Ranges(0.25, adapts=False).settle(plan, np.ones(30)).half_widths == (0.25, 0.5)
    assert still.adaptive is None


def test_an_adaptive_range_starts_with_a_plan_given_or_a_half_width() -> None:
    plan = Plan.build([12], [16], 30, value_range=0.5, subgroup_size=3, arrays=[10, 20], scales=[1.0, 2.0])
    settled = Ranges(None, adapts=True, given=plan).settle(plan, np.ones(30))
    assert settled.half_widths == pytest.approx((0.5, 1.0))
    settled = Ranges((-0.1, 0.3), adapts=True, given=plan).settle(plan, np.ones(30))
    assert settled.half_widths == pytest.approx((0.3, 0.3))


@pytest.mark.parametrize(
    ("level", "half", "adapts", "said"),
    [
        (16, 3.0, True, "range: 3 standard deviations are 3; 0."),
        (16, 1.5, True, "too narrow, and the mean is biased towards zero; the range follows the updates"),
        (16, 1.5, False, "too narrow, and the mean is biased towards zero: value_range=2.9"),
        (2, 3.0, True, "these levels are few, and the mean is biased"),
    ],
)
def test_the_log_shows_range_and_clipped_share_and_warns_above_a_hundredth(
    level: int, half: float, adapts: bool, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    plan = Plan.build([12], [level], 4000, value_range=half, subgroup_size=3)
    updates = np.random.default_rng(0).normal(size=(12, 4000))
    found = aggregate(plan, updates, simulate=Simulation(rounding_seed=0, secure=False)).combined
    with caplog.at_level("INFO", logger="flwr"):
        Ranges(half, adapts=adapts).describe(plan, found)
    (line,) = caplog.records
    assert said in line.getMessage()
    assert line.levelname == ("WARNING" if "biased" in said else "INFO")
    assert ("are best" in line.getMessage()) == adapts


def test_every_round_says_its_range_unless_there_is_noise(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nodes = make_nodes(12, tmp_path, learn)
    grid, _ = grid_of(nodes, levels=[16], value_range=None, adapt_range=True, options=OPTIONS)
    with caplog.at_level("INFO", logger="flwr"):
        run(grid, nodes, 2)
    assert caplog.text.count(" by array; ") == caplog.text.count("of elements were clipped") == 2
    caplog.clear()
    noisy = Plan.build(
        [40], [2], 1000, design="secagg", subgroup_size=40, min_block_survivors=32, clipping_norm=1.0,
        noise_multiplier=4.0,
    )  # fmt: skip
    combined = grid.rounds[0].combined
    assert combined is not None
    Ranges(1.0, adapts=False).describe(noisy, combined)
    assert caplog.text == ""


def test_misuse_is_named() -> None:
    with pytest.raises(PlanError, match="must be given"):
        Ranges(None, adapts=False)
    with pytest.raises(PlanError, match="value_range"):
        Ranges(-1.0, adapts=True)


def away(nodes: list[Node], rounds: dict[int, set[int]]) -> Any:
    """A fault: of nodes by their place, the rounds in which each does not answer."""
    places = {node.context.node_id: place for place, node in enumerate(nodes)}

    def fault(stage: str, node: int, message: Message) -> str:
        del stage
        record = message.content.config_records["heterosag"]
        numbers = {int(number) for number in record["rounds"]}  # type: ignore[union-attr]
        return "silent" if min(numbers) in rounds.get(places[node], set()) else ""

    return fault


WEIGHTS = {"weight": np.random.default_rng(0).normal(0, 0.1, (30, 40))}


def large_steps(node: int, before: dict[str, Any]) -> dict[str, Any]:
    """Updates far beyond the range that a run begins with: it rises as fast as it may for many rounds."""
    rng = np.random.default_rng(node)
    return {name: array + rng.normal(0, 1, array.shape) for name, array in before.items()}


def careful_nodes(folder: Path) -> list[Node]:
    """Nodes that accept a range within a factor of two of their last, as by default, and any plan."""
    careful = replace(Policy.any_plan(), max_range_change=Policy().max_range_change)
    return make_nodes(
        12, folder, large_steps, secure=lambda _: mod(trust_server=True, release_log=folder, policy=careful)
    )


NARROW: dict[str, Any] = {"levels": [16], "value_range": 1e-3, "adapt_range": True, "options": OPTIONS}


@pytest.mark.long
@pytest.mark.parametrize("missed", [{2}, {2, 3}])
def test_the_range_waits_for_a_node_that_missed_rounds(missed: set[int], tmp_path: Path) -> None:
    nodes = careful_nodes(tmp_path)
    grid, _ = grid_of(nodes, away(nodes, {5: missed}), **NARROW)
    run(grid, nodes, 5, WEIGHTS)
    survivors = [len(done.survivors) for done in grid.rounds]
    assert [number for number, count in enumerate(survivors, start=1) if count < 12] == sorted(missed)
    halves = [done.plan.half_widths[0] for done in grid.rounds if done.plan is not None]
    assert all(1 / 2.0001 < after / before < 2.0001 for before, after in pairwise(halves))


@pytest.mark.long
def test_the_range_does_not_wait_for_a_silent_node_for_ever(tmp_path: Path) -> None:
    nodes = careful_nodes(tmp_path)
    silent = away(nodes, {5: set(range(2, 20))})
    grid, _ = grid_of(nodes, silent, **NARROW)
    run(grid, nodes, 8, WEIGHTS)
    halves = np.log([done.plan.half_widths[0] for done in grid.rounds if done.plan is not None])
    assert 1 <= np.sum(np.diff(halves) < 0.49) <= 3  # all other rounds go on at full speed
    assert halves[-1] - halves[0] > 1.9


def test_nodes_too_far_apart_are_left_to_themselves() -> None:
    ranges = Ranges(None, adapts=True)
    ranges._number = 9
    ranges._masked = {
        "near": _Masked(np.array([1.0]), 9),
        "back": _Masked(np.array([3.0]), 7),
        "far": _Masked(np.array([40.0]), 1),
        "other": _Masked(np.array([1.0, 1.0]), 8),  # masked a model of other arrays
    }
    everybody = ["near", "back", "far", "other", "new"]
    assert ranges._wait_for(everybody, np.array([0.7])).tolist() == [1.5]  # not beyond twice the range of the others
    assert [ranges._wait_for(everybody, np.array([0.7])).tolist() for _ in range(3)] == [[1.5], [1.5], [0.7]]
    assert ranges._wait_for([], np.array([0.7])).tolist() == [0.7]


@pytest.mark.parametrize("change", [{"max_weight": 10}, {"weight_unit": 1}])
def test_what_updates_are_held_to_does_not_jump_by_way_of_weights(tmp_path: Path, change: dict[str, int]) -> None:
    """An update of weight w is held to the range times max_weight over w, so the range alone says too little."""
    own = mod(trust_server=True, release_log=tmp_path, policy=Policy())
    nodes = make_nodes(8, tmp_path, learn, secure=lambda _: own)
    options: dict[str, Any] = {"max_weight": 1000, "weight_unit": 10, "value_range": 1e-3, "adapt_range": False}
    for weights, refused in ((options, False), (options, False), (options | change, True)):
        grid, _ = grid_of(nodes, **weights, options={"design": "secagg", "subgroup_size": 8})
        (reply,) = grid.send_and_receive(messages(nodes, model()))
        assert reply.has_error() == refused
