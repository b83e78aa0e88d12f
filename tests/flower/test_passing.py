"""What passes through a grid: all but messages that train or evaluate."""

from pathlib import Path

import pytest
from flower_nodes import FIRST_NODE, LocalGrid, arrays, make_nodes, messages, train
from flwr.app import Message, MessageType, RecordDict

from heterosag.errors import UsageError
from heterosag.flower.passing import PassingGrid


class Passing(PassingGrid):
    def send_and_receive(self, messages: object, *, timeout: float | None = None) -> list[Message]:
        raise NotImplementedError


def test_runs_nodes_and_messages_pass_through(tmp_path: Path) -> None:
    nodes = make_nodes(2, tmp_path, train)
    grid = Passing(LocalGrid(nodes))
    other = Message(RecordDict(), dst_node_id=FIRST_NODE, message_type=MessageType.QUERY)
    assert list(grid.push_messages([other])) == ["query"]
    assert list(grid.pull_messages(["x"])) == []
    assert list(grid.get_node_ids()) == [node.context.node_id for node in nodes]
    made = grid.create_message(RecordDict(), dst_node_id=1, message_type="query")
    assert made.metadata.dst_node_id == 1
    grid.set_run("run")
    assert grid.run == "run"


def test_what_needs_a_secure_round_does_not(tmp_path: Path) -> None:
    nodes = make_nodes(2, tmp_path, train)
    evaluate = Message(RecordDict(), dst_node_id=FIRST_NODE, message_type=MessageType.EVALUATE)
    for listed in (messages(nodes, arrays()), [evaluate]):
        with pytest.raises(UsageError, match="use send_and_receive"):
            Passing(LocalGrid(nodes)).push_messages(listed)
