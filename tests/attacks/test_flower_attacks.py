"""Attacks on Flower that worked on version 0.1.0, against the real mod and grid.

The numbers are the rows of docs/threat-model.md, "Attacks that worked".
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flower_nodes import FIRST_NODE, LocalGrid, make_nodes
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from heterosag.flower import SecureGrid, mod


@pytest.fixture(autouse=True)
def _identity_of_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Flower's runtime sets in a process before an app may make messages."""
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_run_id", "_task_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


OPTIONS: dict[str, Any] = {"subgroup_size": 3, "min_survivors": 2}


def ask(nodes: list[Any], size: int = 30) -> list[Message]:
    arrays = ArrayRecord({"w": Array(np.zeros(size, dtype=np.float32))})
    content = RecordDict({"arrays": arrays, "config": ConfigRecord({"lr": 0.1})})
    return [Message(content, dst_node_id=node.context.node_id, message_type=MessageType.TRAIN) for node in nodes]


def grid_of(nodes: list[Any], **options: Any) -> SecureGrid:
    return SecureGrid(LocalGrid(nodes), levels=[4096], value_range=1.0, adapt_range=False, options=OPTIONS, **options)


# --- 2: another run configuration for the victim --------------------------------------------------------------------


def test_2_the_victim_alone_trains(tmp_path: Path) -> None:
    """`local-epochs` is 1 for the victim and 0 for everybody else, so the sum is the victim's update."""
    secret = np.linspace(-0.8, 0.8, 30)
    nodes = make_nodes(6, tmp_path, lambda node, before: {"w": before["w"] + secret.astype(np.float32)})
    for node in nodes:
        node.app = _trains_if_told(secret, tmp_path)  # type: ignore[assignment]
        node.context.run_config = {"local-epochs": int(node.context.node_id == FIRST_NODE)}
    (reply,) = grid_of(nodes).send_and_receive(ask(nodes))
    found = reply.content.array_records["arrays"]["w"].numpy() * 6
    assert np.abs(found - secret).max() < 0.01


def _trains_if_told(secret: Any, folder: Path) -> ClientApp:
    app = ClientApp(mods=[mod(trust_server=True, release_log=folder)])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        record = next(iter(message.content.array_records.values()))
        after = record["w"].numpy() + secret * int(context.run_config["local-epochs"])
        arrays = ArrayRecord({"w": Array(after.astype(np.float32))})
        return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 10})}), reply_to=message)

    return app


# --- 7: what an error says ------------------------------------------------------------------------------------------


def test_7_a_nodes_weight_in_its_error(tmp_path: Path) -> None:
    nodes = make_nodes(6, tmp_path, lambda node, before: before)
    grid = grid_of(nodes, max_weight=4)
    list(grid.send_and_receive(ask(nodes)))
    assert "this node's weight is 10" in grid.rounds[0].lost[FIRST_NODE]


def test_7_any_metric_as_the_weight(tmp_path: Path) -> None:
    """The sum of weights of a small block is public: the server names the loss as the weight."""
    nodes = make_nodes(6, tmp_path, lambda node, before: before, secret=28.0)
    grid = grid_of(nodes, max_weight=100, weighted_by="secret")
    list(grid.send_and_receive(ask(nodes)))
    blocks = grid.rounds[0].combined.blocks[0]  # type: ignore[union-attr]
    assert {block.weight / block.survivors for block in blocks} == {28.0}
