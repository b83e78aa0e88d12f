"""The numbers beside arrays: a weight, and metrics in their slots."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("flwr")

from flower_nodes import (
    FIRST_NODE,
    HALF,
    LEVEL,
    LOOSE,
    arrays,
    grid_of,
    make_nodes,
    messages,
    told_at_home,
    train,
)
from flwr.app import Message, MetricRecord, RecordDict

from heterosag import Plan
from heterosag.flower import mod
from heterosag.flower.reports import SLOTS, common_names, fill_slots, numbers_of


def test_weights_and_metrics_are_summed_securely(tmp_path: Path) -> None:
    nodes = make_nodes(9, tmp_path, train, loss=0.25, secret=1.0)
    grid, _ = grid_of(nodes, max_weight=8, weight_unit=5, metrics=["loss"])
    (reply,) = grid.send_and_receive(messages(nodes, arrays()))
    metrics = dict(reply.content.metric_records["metrics"])
    assert metrics == {"num-examples": 90, "loss": pytest.approx(0.25, abs=1e-4)}


def test_a_weight_that_the_train_function_does_not_give_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = make_nodes(
        6,
        tmp_path,
        train,
        secure=lambda _: mod(policy=LOOSE, trust_server=True, release_log=tmp_path, weighted_by=["rows"]),
    )
    grid, _ = grid_of(nodes, max_weight=4, weighted_by="rows")
    list(grid.send_and_receive(messages(nodes, arrays())))
    told_at_home(caplog, "no single number 'rows'", grid.rounds[0].lost[FIRST_NODE])


def test_a_node_above_the_bound_is_capped_and_not_lost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nodes = make_nodes(6, tmp_path, train)  # of 10 examples each
    grid, _ = grid_of(nodes, max_weight=4)
    (reply,) = grid.send_and_receive(messages(nodes, arrays()))
    assert grid.rounds[0].lost == {}
    assert reply.content.metric_records["metrics"]["num-examples"] == 24
    assert "this node's weight of 10 is capped at the plan's max_weight of 4" in caplog.text


def test_unweighted_rounds_are_warned_of_unless_they_are_meant(caplog: pytest.LogCaptureFixture) -> None:
    grid_of([], max_weight=1)
    grid_of([], max_weight=4)
    assert "nodes count alike" not in caplog.text
    grid_of([])
    assert "nodes count alike" in caplog.text


def test_metrics_that_cannot_be_averaged_are_named(caplog: pytest.LogCaptureFixture) -> None:
    metrics = MetricRecord({"loss": 1.5, "by_class": [0.5, 0.25]})
    reply = Message(RecordDict({"metrics": metrics}), dst_node_id=1, message_type="train")
    assert numbers_of(reply) == {"loss": 1.5}
    assert "because they are lists: ['by_class']" in caplog.text
    plan = Plan.build([6], [4], 9, value_range=1.0, subgroup_size=3, min_survivors=2, metrics=["accuracy"])
    filled, names = fill_slots(plan, {"loss": 2.0, "accuracy": 1.0}, wanted=(), leave_out="num-examples")
    assert (filled, names) == ({"accuracy": 1.0}, ["accuracy"])
    assert "no place for them: ['loss']" in caplog.text
    slots = Plan.build([6], [4], 9, value_range=1.0, subgroup_size=3, min_survivors=2, metrics=SLOTS)
    many = {f"metric-{place}": 1.0 for place in range(9)}
    assert len(fill_slots(slots, many, wanted=(), leave_out="num-examples")[1]) == 8
    assert "only the first 8 of 9 metrics are averaged" in caplog.text


def test_a_plan_without_metrics_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nodes = make_nodes(6, tmp_path, train, loss=0.25)
    users = [str(node.context.node_id) for node in nodes]
    size = sum(value.size for value in arrays().values() if value.dtype.kind == "f")
    plan = Plan.build([6], [LEVEL], size, value_range=HALF, subgroup_size=3, min_survivors=2, users=users)
    grid, _ = grid_of(nodes, plan=plan, options=None)
    for seed in range(2):
        (reply,) = grid.send_and_receive(messages(nodes, arrays(seed)))
        assert not reply.has_error()
    assert caplog.text.count("no metrics are averaged") == 1


def test_a_metric_without_a_name_fills_no_other_slot() -> None:
    plan = Plan.build([6], [4], 9, value_range=1.0, subgroup_size=3, min_survivors=2, metrics=SLOTS)
    filled, names = fill_slots(plan, {"": float("nan"), "loss": 2.0}, wanted=(), leave_out="num-examples")
    assert names == ["", "loss"]
    assert list(filled.values())[1:] == [2.0, *[0.0] * 6]


def test_only_metrics_that_all_nodes_have_are_averaged() -> None:
    slots = Plan.build([6], [4], 9, value_range=1.0, subgroup_size=3, min_survivors=2, metrics=SLOTS)
    sums = {slot: float(place) for place, slot in enumerate(SLOTS)}
    assert common_names(slots, [("a", "b"), ("a", "b")], sums) == {"a": 0.0, "b": 1.0}
    assert common_names(slots, [("a", "b"), ("a", "b"), ("b",)], sums) == {}  # its b is in the slot of their a
    assert common_names(slots, [("a", "b"), ("a", "b"), ("a",)], sums) == {"a": 0.0}
    assert common_names(slots, [("a", "b"), ("a", "b"), ()], sums) == {}
    named = Plan.build([6], [4], 9, value_range=1.0, subgroup_size=3, min_survivors=2, metrics=["a", "b"])
    assert common_names(named, [("a", "b"), ("a", "b"), ("b",)], {"a": 1.0, "b": 2.0}) == {"b": 2.0}
    assert common_names(named, [], {"a": 1.0}) == {}
