"""The mask phase on a node: what it refuses to train on, and an app's function that fails."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from flower_nodes import (
    FIRST_NODE,
    arrays,
    grid_of,
    make_nodes,
    messages,
    record,
    told_at_home,
    train,
)
from flwr.app import ConfigRecord, Message


def test_a_train_function_that_fails_is_a_dropout(tmp_path: Path) -> None:
    def some_fail(node: int, before: dict[str, Any]) -> dict[str, Any]:
        if node == FIRST_NODE:
            raise RuntimeError("out of memory")
        return train(node, before)

    nodes = make_nodes(9, tmp_path, some_fail)
    grid, _ = grid_of(nodes)
    (reply,) = grid.send_and_receive(messages(nodes, arrays()))
    assert not reply.has_error()
    assert "out of memory" not in grid.rounds[0].lost[FIRST_NODE]
    assert "the app's function failed" in grid.rounds[0].lost[FIRST_NODE]
    assert 1 not in nodes[0].context.state.config_records["heterosag"]["rounds"]  # type: ignore[operator]


def test_another_model_in_the_mask_stage_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nodes = make_nodes(9, tmp_path, train)
    victim = nodes[2].context.node_id

    def swap(stage: str, node: int, message: Message) -> str:
        if (stage, node) == ("mask", victim):
            message.content["arrays"] = record(arrays(seed=1))
        return ""

    grid, _ = grid_of(nodes, swap)
    list(grid.send_and_receive(messages(nodes, arrays())))
    told_at_home(caplog, "is not what the server says everybody sees", grid.rounds[0].lost[victim])
    assert victim not in grid.rounds[0].survivors


def test_another_configuration_for_one_node_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A learning rate of zero for everybody else would leave the victim's update alone in its block."""
    nodes = make_nodes(9, tmp_path, train)
    victim = nodes[2].context.node_id

    def change(stage: str, node: int, message: Message) -> str:
        if stage == "mask" and node == victim:
            message.content["config"] = ConfigRecord({"lr": 0.0})
        return ""

    grid, _ = grid_of(nodes, change)
    list(grid.send_and_receive(messages(nodes, arrays())))
    told_at_home(caplog, "is not what the server says everybody sees", grid.rounds[0].lost[victim])
