"""Trips to the nodes: who is lost on one, and whose replies count."""

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flower_nodes import (
    FIRST_NODE,
    LOOSE,
    LocalGrid,
    arrays,
    expected,
    grid_of,
    make_nodes,
    messages,
    result_of,
    stage_of,
    train,
)
from flwr.app import ConfigRecord, Message, RecordDict

from heterosag.flower import mod
from heterosag.flower.messages import HELLO, parts_to_fields
from heterosag.flower.rounds import Work
from heterosag.flower.trips import Trips


@pytest.mark.parametrize(
    "what",
    [
        "silent",
        pytest.param("crash", marks=pytest.mark.long),
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("error", "reborn")),
    ],
)
@pytest.mark.parametrize("stage", ["advertise", "share", "mask", "unmask"])
def test_a_node_lost_at_any_stage(stage: str, what: str, tmp_path: Path) -> None:
    nodes = make_nodes(12, tmp_path, train)
    victim = nodes[4].context.node_id
    broken = [True]

    def fault(at: str, node: int, message: Message) -> str:
        del message
        return what if broken[0] and (at, node) == (stage, victim) else ""

    grid, inside = grid_of(nodes, fault)
    model = arrays()
    (reply,) = grid.send_and_receive(messages(nodes, model))
    found = result_of(reply)
    kept = [node for node in inside.nodes if node != victim]
    if stage == "unmask" or (stage, what) == ("advertise", "reborn"):
        kept = list(inside.nodes)  # its vector had arrived; or nothing was lost yet
    assert sorted(grid.rounds[0].survivors) == sorted(kept)
    assert np.allclose(found["conv.weight"], model["conv.weight"] + expected(kept, model), atol=1e-6)
    if (stage, what) != ("advertise", "reborn"):
        assert grid.rounds[0].lost[victim].startswith(f"at {stage}")
    broken[0] = False
    for _ in range(
        2
    ):  # whoever missed what sets up the next round takes no part in that one, and is back in the one after
        (reply,) = grid.send_and_receive(messages(nodes, model))
        assert len(grid.rounds[-1].survivors) >= 11, reply
    assert len(grid.rounds[2].survivors) == 12
    assert [done.trips for done in grid.rounds] == [4, 2, 2]
    assert list(grid.rounds[0].trip_seconds) == ["advertise", "share", "mask", "unmask"]
    assert list(grid.rounds[2].trip_seconds) == ["mask", "unmask"]
    assert sum(grid.rounds[2].trip_seconds.values()) <= grid.rounds[2].seconds


def test_a_node_without_the_mod_is_named(tmp_path: Path) -> None:
    def secure(place: int) -> Any:
        return None if place == 0 else mod(policy=LOOSE, trust_server=True, release_log=tmp_path)

    nodes = make_nodes(9, tmp_path, train, secure=secure)
    grid, _ = grid_of(nodes)
    (reply,) = grid.send_and_receive(messages(nodes, arrays()))
    assert not reply.has_error()
    assert FIRST_NODE in grid.rounds[0].lost
    assert FIRST_NODE not in grid.rounds[0].survivors


@pytest.mark.parametrize("stage", ["advertise", "share", "mask", "unmask"])
def test_a_node_that_sends_garbage_is_lost_alone(stage: str, tmp_path: Path) -> None:
    nodes = make_nodes(12, tmp_path, train)
    malicious_user = nodes[4].context.node_id
    grid, inside = grid_of(nodes)
    plain = inside.send_and_receive

    def garbled(sent: Any, *, timeout: float | None = None) -> Any:
        listed = list(sent)
        stages = {message.metadata.dst_node_id: stage_of(message) for message in listed}
        replies = list(plain(listed, timeout=timeout))
        for reply in replies:
            sender = reply.metadata.src_node_id
            if not reply.has_error() and sender == malicious_user and stages[malicious_user] == stage:
                reply.content["heterosag"] = ConfigRecord({"message": b"x"})
        return replies

    inside.send_and_receive = garbled  # type: ignore[method-assign]
    (reply,) = grid.send_and_receive(messages(nodes, arrays()))
    assert not reply.has_error()
    assert grid.rounds[0].lost[malicious_user].startswith(f"at {stage}")
    assert (malicious_user in grid.rounds[0].survivors) == (stage == "unmask")


def test_late_and_stray_replies_are_ignored(tmp_path: Path) -> None:
    nodes = make_nodes(6, tmp_path, train)
    grid, inside = grid_of(nodes)
    plain = inside.send_and_receive

    def noisy(sent: Any, *, timeout: float | None = None) -> Any:
        replies = list(plain(sent, timeout=timeout))
        stray = Message(RecordDict(), reply_to=replies[0])
        stray.metadata.__dict__["_reply_to_message_id"] = "another"
        return [stray, *replies]

    inside.send_and_receive = noisy  # type: ignore[method-assign]
    (reply,) = grid.send_and_receive(messages(nodes, arrays()))
    assert not reply.has_error()
    assert stage_of(messages(nodes, arrays())[0]) == ""


def test_bytes_and_seconds_of_a_stage_that_is_repeated_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of an enrolment that begins again without nodes that were silent."""
    monkeypatch.setattr("heterosag.flower.trips.time", SimpleNamespace(perf_counter=itertools.count().__next__))
    nodes = make_nodes(2, tmp_path, train)
    trips = Trips(LocalGrid(nodes), None, counted=True)
    asked = {message.metadata.dst_node_id: message for message in messages(nodes, arrays())}
    work = Work(number=1, messages=asked, message_type="train")
    fields = {node: parts_to_fields([(0, HELLO, b"x" * 500)]) for node in asked}
    trips.carry(work, HELLO, fields, None)
    sent, received = dict(work.wire_sent[HELLO]), dict(work.wire_received[HELLO])
    assert work.trip_seconds == {HELLO: 1}
    del fields[FIRST_NODE]
    trips.carry(work, HELLO, fields, None)
    for now, before in ((work.wire_sent[HELLO], sent), (work.wire_received[HELLO], received)):
        assert {node: round(size / before[node], 1) for node, size in now.items()} == {
            node: 1.0 if node == FIRST_NODE else 2.0 for node in asked
        }
    assert work.trip_seconds == {HELLO: 2}
