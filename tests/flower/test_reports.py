"""The numbers beside arrays: a weight, and metrics in their slots."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("flwr")

from flower_nodes import (
    FIRST_NODE,
    LOOSE,
    arrays,
    grid_of,
    make_nodes,
    messages,
    told_at_home,
    train,
)

from heterosag import Plan
from heterosag.flower import mod
from heterosag.flower.reports import SLOTS, fill_slots


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


def test_a_metric_without_a_name_fills_no_other_slot() -> None:
    plan = Plan.build([6], [4], 9, value_range=1.0, subgroup_size=3, min_survivors=2, metrics=SLOTS)
    filled, names = fill_slots(plan, {"": float("nan"), "loss": 2.0}, wanted=(), leave_out="num-examples")
    assert names == ["", "loss"]
    assert list(filled.values())[1:] == [2.0, *[0.0] * 6]
