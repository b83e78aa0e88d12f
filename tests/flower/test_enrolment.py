"""A node's part in an enrolment: who takes part, how often, and in which order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from flower_nodes import FIRST_NODE, LOOSE, arrays, grid_of, make_nodes, messages, signed_nodes, train
from flwr.app import ConfigRecord, Message, RecordDict

pytest.importorskip("flwr")


def test_a_server_that_starts_over_again_and_again_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each enrolment is another seed that it could choose: a node takes part in so many of a run."""
    nodes, directory = signed_nodes(12, tmp_path, policy=replace(LOOSE, max_epochs=2))
    for number in range(3):
        grid, _ = grid_of(nodes, lambda stage, *_: "silent" if stage == "advertise" else "", directory=directory)
        (reply,) = grid.send_and_receive(messages(nodes, arrays()))
        assert ("no node draws its assignment" in str(reply.error.reason)) == (number == 2)
    assert "after 2 times in this run" in caplog.text


def test_a_node_without_an_identity_does_not_enrol(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nodes, directory = signed_nodes(12, tmp_path)
    for node in nodes:
        node.app = make_nodes(1, tmp_path, train)[0].app
    grid, _ = grid_of(nodes, directory=directory)
    (reply,) = grid.send_and_receive(messages(nodes, arrays()))
    assert reply.has_error()
    assert "with identities only" in caplog.text


def test_an_enrolment_that_was_not_begun_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nodes, _ = signed_nodes(6, tmp_path)
    fields = {"rounds": [0], "stages": ["reveal"], "messages": [b""]}
    message = Message(RecordDict({"heterosag": ConfigRecord(fields)}), dst_node_id=FIRST_NODE, message_type="train")  # type: ignore[arg-type]
    message.metadata.__dict__["_message_id"] = "m"
    assert nodes[0].app(message, nodes[0].context).has_error()
    assert "has not begun" in caplog.text
