"""A secure round of training: what comes back is the aggregate, in the names, shapes and types that went out."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flower_nodes import (
    FIRST_NODE,
    arrays,
    expected,
    grid_of,
    make_nodes,
    messages,
    record,
    result_of,
    shift,
    train,
)
from flwr.serverapp.strategy import FedAdam

from heterosag import aggregate
from heterosag.flower import mod


def test_names_shapes_types_and_values_come_back(tmp_path: Path) -> None:
    nodes = make_nodes(12, tmp_path, train)
    grid, inside = grid_of(nodes)
    model = arrays()
    (reply,) = grid.send_and_receive(messages(nodes, model))
    found = result_of(reply)
    mean = expected(list(inside.nodes), model)
    assert list(found) == list(model)
    for name, array in found.items():
        assert array.dtype == model[name].dtype
        assert array.shape == model[name].shape
    assert np.allclose(found["conv.weight"], model["conv.weight"] + mean, atol=1e-6)
    assert found["steps"] == 7
    assert reply.content.metric_records["metrics"]["num-examples"] == 12
    assert len(grid.rounds[0].survivors) == 12
    assert grid.rounds[0].lost == {}


def test_bit_identical_with_the_embedded_engine(tmp_path: Path) -> None:
    nodes = make_nodes(12, tmp_path, train)
    grid, inside = grid_of(nodes)
    model = {"w": np.zeros(50, dtype=np.float32)}
    list(grid.send_and_receive(messages(nodes, model)))
    done = grid.rounds[0]
    assert done.plan is not None
    assert done.combined is not None
    updates = {str(node): {"w": np.full(50, shift(node), dtype=np.float32)} for node in inside.nodes}
    embedded = aggregate(replace(done.plan, metrics=()), updates)
    assert np.array_equal(embedded.vector, done.combined.vector)
    for ours, theirs in zip(embedded.blocks, done.combined.blocks, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            assert a.subgroups == b.subgroups
            assert np.array_equal(a.sums, b.sums)


def test_integers_stay_out_where_a_strategy_makes_floats_of_them(tmp_path: Path) -> None:
    """FedAdam's arrays are all floats after a round: a counter that joined then would be another plan, and range."""
    nodes = make_nodes(6, tmp_path, train, secure=lambda _: mod(trust_server=True, release_log=tmp_path))
    grid, _ = grid_of(nodes, options=None, adapt_range=True)
    result = grid.start(FedAdam(fraction_evaluate=0.0), record(arrays()), num_rounds=3)
    assert result.arrays["steps"].numpy().dtype.kind == "f"
    assert [done.error for done in grid.rounds] == ["", "", ""]
    assert [done.trips for done in grid.rounds] == [4, 2, 2]


def test_the_rule_on_the_grid_tolerates_a_malicious_node(tmp_path: Path) -> None:
    malicious_user = FIRST_NODE

    def some_are_malicious(node: int, before: dict[str, Any]) -> dict[str, Any]:
        return {"w": before["w"] + np.float32(-0.5 if node == malicious_user else 0.125)}

    nodes = make_nodes(30, tmp_path, some_are_malicious)
    model = {"w": np.zeros(40, dtype=np.float32)}
    grid, _ = grid_of(nodes, rule="median")
    (reply,) = grid.send_and_receive(messages(nodes, model))
    assert np.allclose(result_of(reply)["w"], 0.125, atol=1e-6)


def test_the_range_follows_the_updates(tmp_path: Path) -> None:
    nodes = make_nodes(6, tmp_path, train)
    grid, _ = grid_of(nodes, value_range=0.01, adapt_range=True)
    for _ in range(3):
        list(grid.send_and_receive(messages(nodes, arrays())))
    widths = [done.plan.value_range[1] for done in grid.rounds if done.plan is not None]
    assert widths[0] < widths[1] < widths[2]


@pytest.mark.parametrize("adapts", [True, False])
def test_a_model_that_is_not_finite_is_refused_by_the_name_of_its_array(adapts: bool, tmp_path: Path) -> None:
    nodes = make_nodes(12, tmp_path, train)
    model = {"w": np.zeros(40, dtype=np.float32), "mask": np.array([0, -np.inf], dtype=np.float32)}
    grid, inside = grid_of(nodes, adapt_range=adapts)
    (reply,) = grid.send_and_receive(messages(nodes, model))
    assert reply.error.reason.startswith("UsageError: the model is not finite in ['mask'], so no update would be")
    assert "SecureGrid(exclude=['mask'])" in reply.error.reason
    assert inside.log == []
    grid, _ = grid_of(nodes, adapt_range=adapts, exclude=["mask"])
    found = result_of(next(iter(grid.send_and_receive(messages(nodes, model)))))
    assert np.array_equal(found["mask"], model["mask"])
