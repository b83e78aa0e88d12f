"""What a round on Flower says of itself: its bytes, and why nodes are lost."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flower_nodes import (
    grid_of,
    make_nodes,
    messages,
    shift,
    train,
)
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict

from heterosag.errors import UsageError
from heterosag.flower.rounds import Work, wire_size
from heterosag.storage.run_log import read_run


def test_messages_are_at_most_three_percent_above_the_packed_bytes(tmp_path: Path) -> None:
    size = 79_510

    def ones(node: int, before: dict[str, Any]) -> dict[str, Any]:
        return {"w": before["w"] + np.float32(shift(node))}

    nodes = make_nodes(10, tmp_path, ones)
    grid, _ = grid_of(nodes, levels=[12], options={"subgroup_size": 5, "min_survivors": 2})
    list(grid.send_and_receive(messages(nodes, {"w": np.zeros(size, dtype=np.float32)})))
    done = grid.rounds[0]
    assert done.plan is not None
    packed = done.plan.vector_sizes()
    for node, sent in done.received_bytes["mask"].items():
        assert sent <= 1.03 * packed[done.plan.subgroup_of(str(node))]


def test_bytes_on_the_wire_are_all_that_flower_carries(tmp_path: Path) -> None:
    from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

    carried: dict[tuple[str, int], int] = {}

    def fault(stage: str, node: int, message: Message) -> str:
        carried[stage, node] = sum(len(item.deflate()) for item in get_all_nested_objects(message).values())
        return ""

    nodes = make_nodes(6, tmp_path / "log", train)
    grid, _ = grid_of(nodes, fault, record=tmp_path)
    model = {"w": np.zeros(20_000, dtype=np.float32)}
    list(grid.send_and_receive(messages(nodes, model)))
    grid.close()
    done = grid.rounds[0]
    for (stage, node), size in carried.items():
        assert abs(done.wire_sent[stage][node] - size) < 100  # the message's own id is set only when it is sent
    up = [sum(sizes.values()) for sizes in (done.received_bytes["mask"], done.wire_received["mask"])]
    assert up[0] < up[1] < 1.03 * up[0] + 6 * 1500
    assert sum(map(sum, (s.values() for s in done.received_bytes.values()))) < sum(
        map(sum, (s.values() for s in done.wire_received.values()))
    )
    assert min(done.wire_sent["mask"].values()) > 80_000  # the model, in plaintext
    assert max(done.wire_sent["share"].values()) < 80_000


@pytest.mark.parametrize("asked", [True, False])
def test_bytes_on_the_wire_are_counted_as_asked_whether_there_is_a_record_or_not(tmp_path: Path, asked: bool) -> None:
    nodes = make_nodes(6, tmp_path / "log", train)
    grid, _ = grid_of(nodes, record=None if asked else tmp_path, wire_bytes=asked)
    list(grid.send_and_receive(messages(nodes, {"w": np.zeros(10, dtype=np.float32)})))
    grid.close()
    assert bool(grid.rounds[0].wire_sent) == bool(grid.rounds[0].wire_received) == asked


def test_the_size_of_a_message_is_that_of_its_objects() -> None:
    from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

    values = {
        "one": b"x" * 70_000,
        "many": [b"y" * 300, b"", b"z" * 20_000],
        "text": "t",
        "numbers": [1, 2],
        "none": b"",
    }
    arrays = ArrayRecord({"w": Array(np.arange(1000.0))})
    content = RecordDict({"heterosag": ConfigRecord(values), "arrays": arrays, "metrics": MetricRecord({"loss": 1.0})})
    message = Message(content, dst_node_id=5, message_type="train")
    before = message.content["heterosag"]
    found = sum(len(item.deflate()) for item in get_all_nested_objects(message).values())
    assert abs(wire_size(message) - found) < 40
    assert message.content["heterosag"] is before
    refused = Message(Error(code=2, reason="no" * 100), reply_to=message)
    assert wire_size(refused) == len(refused.deflate())


def test_a_node_does_not_choose_what_its_reason_does_to_logs_and_records(tmp_path: Path) -> None:
    """Megabytes of words in every round would fill the disk, and control sequences rewrite a terminal."""
    nodes = make_nodes(9, tmp_path / "log", train)
    malicious = nodes[4].context.node_id
    plain = nodes[4].app

    def shout(message: Message, context: Any) -> Message:
        plain(message, context)
        return Message(Error(code=2, reason="\x1b[2J\x1b]0;owned\x07\u202e" + "A" * 3_000_000), reply_to=message)

    nodes[4].app = shout  # type: ignore[assignment]
    grid, _ = grid_of(nodes, record=tmp_path)
    (reply,) = grid.send_and_receive(messages(nodes, {"w": np.zeros(10, dtype=np.float32)}))
    assert not reply.has_error()
    grid.close()
    said = grid.rounds[0].lost[malicious]
    assert said.startswith("at advertise: [2J]0;ownedAAA")
    assert said.isprintable()
    assert len(said) < 320
    assert (tmp_path / "run" / "record.jsonl").stat().st_size < 100_000


@pytest.mark.parametrize("refused", ["", "no"])
def test_a_node_does_not_choose_at_which_stage_it_is_lost(
    refused: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A stage of its own words is as good for logs and records as a reason of its own words."""
    nodes = make_nodes(9, tmp_path / "log", train)
    malicious = nodes[4].context.node_id
    stage = "x\nINFO: secure round 1: 9 of 9 nodes survived\n\x1b[2J\x1b]0;owned\x07" + "A" * 3_000_000

    def shout(message: Message, context: Any) -> Message:
        asked: Any = message.content.config_records["heterosag"]
        fields: Any = {"rounds": asked["rounds"][:1], "stages": [stage], "messages": [b""], "errors": [refused]}
        return Message(RecordDict({"heterosag": ConfigRecord(fields)}), reply_to=message)

    nodes[4].app = shout  # type: ignore[assignment]
    grid, _ = grid_of(nodes, record=tmp_path)
    with caplog.at_level("INFO", logger="flwr"):
        (reply,) = grid.send_and_receive(messages(nodes, {"w": np.zeros(10, dtype=np.float32)}))
    assert not reply.has_error()
    grid.close()
    done = grid.rounds[0]
    assert done.lost == {malicious: "at advertise: " + (refused or "answered no stage that there is")}
    assert done.lost_at == {malicious: "advertise"}
    assert "\x1b" not in caplog.text
    assert "9 of 9 nodes survived" not in caplog.text
    assert (tmp_path / "run" / "record.jsonl").stat().st_size < 100_000
    assert read_run(tmp_path / "run").rounds[0]["dropped"]["advertise"] == 1


def test_a_node_is_lost_at_a_stage_that_there_is() -> None:
    work = Work(number=1, messages={}, message_type="train")
    with pytest.raises(UsageError, match="a stage that it was asked for"):
        work.lose(1, "mask\x1b", "late")
    assert not work.lost


def test_seconds_that_a_node_spends_on_a_stage_add_up_and_are_at_most_what_each_trip_took() -> None:
    work = Work(number=1, messages={}, message_type="train")
    for said in (0.25, 0.5, -1.0, 7.0):
        work.note_seconds("commit", 1, ConfigRecord({"seconds": said}), 1.0)
    assert work.node_seconds == {"commit": {1: 1.75}}


def test_of_a_traceback_the_last_line_is_the_reason() -> None:
    work = Work(number=1, messages={}, message_type="train")
    work.lose(1, "mask", "Traceback:\n  in train\nRuntimeError: out of memory\n")
    assert work.lost == {1: "at mask: RuntimeError: out of memory"}
