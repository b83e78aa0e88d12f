"""A node's part in an enrolment: who takes part, how often, and in which order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from flower_nodes import (
    FIRST_NODE,
    LOOSE,
    Node,
    arrays,
    grid_of,
    make_nodes,
    messages,
    signed_nodes,
    train,
)
from flwr.app import ConfigRecord, Message, RecordDict

pytest.importorskip("flwr")


def draw(nodes: list[Node], directory: dict[str, bytes]) -> int:
    """How many nodes draw together, on a grid that knows of no draw before; nobody is shown all nonces."""
    grid, inside = grid_of(nodes, lambda stage, *_: "silent" if stage == "advertise" else "", directory=directory)
    assert next(iter(grid.send_and_receive(messages(nodes, arrays())))).has_error()
    return sum(stage == "advertise" for stage, _ in inside.log)


def test_a_server_that_starts_over_again_and_again_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each enrolment is another seed that it could choose: a node takes part in so many of a run."""
    nodes, directory = signed_nodes(14, tmp_path, policy=replace(LOOSE, max_epochs=2))
    assert [draw(nodes[less:], directory) for less in range(3)] == [14, 13, 0]
    assert "after 2 times in this run" in caplog.text


def test_a_server_that_starts_over_with_the_same_users_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It has seen all nonces, does not like the seed, and shows them to nobody: each try costs it a user."""
    nodes, directory = signed_nodes(14, tmp_path)
    assert draw(nodes, directory) == 14
    assert draw(nodes, directory) == 0
    assert "after 1 enrolments that this node has revealed in and not finished, 0 of their users" in caplog.text
    assert draw(nodes[1:], directory) == 13
    assert draw(nodes[:1] + nodes[2:], directory) == 0  # one user, another each time, is not enough
    assert draw(nodes[:1] + nodes[3:], directory) == 12


@pytest.mark.long
def test_an_enrolment_that_finishes_ends_what_came_to_nothing_before(tmp_path: Path) -> None:
    nodes, directory = signed_nodes(13, tmp_path)
    assert draw(nodes, directory) == 13
    for chosen in (nodes[1:], nodes):
        grid, _ = grid_of(chosen, directory=directory)
        (reply,) = grid.send_and_receive(messages(chosen, arrays()))
        assert not reply.has_error()
    assert set(grid.rounds[0].lost) == {FIRST_NODE}  # which has not finished one


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
