"""The record that both sides talk in, and what of a message is bound."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

from flower_nodes import (
    arrays,
    grid_of,
    make_nodes,
    messages,
    told_at_home,
    train,
)
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MessageType, Metadata, RecordDict

from heterosag.errors import UsageError
from heterosag.flower.messages import arrays_of, round_digest


def npy(header: str) -> bytes:
    """A file of numpy's format with a header of the sender's choice."""
    line = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(line).to_bytes(2, "little") + line


def test_other_terms_for_one_node_are_another_context(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Weight 1000 for the victim and 1 for the others would show its update in the high digits of the sum."""
    nodes = make_nodes(9, tmp_path, train)
    victim = nodes[2].context.node_id

    def change(stage: str, node: int, message: Message) -> str:
        fields = dict(message.content["heterosag"])
        if "weight-unit" in fields and node == victim:
            message.content["heterosag"] = ConfigRecord({**fields, "weight-unit": 1})
        return ""

    grid, _ = grid_of(nodes, change, max_weight=8, weight_unit=5)
    list(grid.send_and_receive(messages(nodes, arrays())))
    told_at_home(caplog, "is not what the server says everybody sees", grid.rounds[0].lost[victim])
    assert victim not in grid.rounds[0].survivors


def test_all_that_an_app_can_see_of_arrays_is_bound(tmp_path: Path) -> None:
    """Bytes that numpy does not read, another type beside the data, and a record that holds no array."""
    (node,) = make_nodes(1, tmp_path, train)
    (message,) = messages([node], {"w": np.zeros(3, dtype=np.float32)})
    known = {round_digest(message, {}, b"")}
    data = message.content.array_records["arrays"]["w"].data
    for changed in (
        Array("float32", (3,), "numpy.ndarray", data + b"1"),
        Array("float64", (3,), "numpy.ndarray", data),
        Array("float32", (1, 3), "numpy.ndarray", data),
        Array("float32", (3,), "another", data),
    ):
        message.content["arrays"] = ArrayRecord({"w": changed})
        known.add(round_digest(message, {}, b""))
    message.content["arrays"] = ArrayRecord({"w": Array("float32", (3,), "numpy.ndarray", data)})
    assert round_digest(message, {}, b"") in known
    message.content["empty"] = ArrayRecord()
    known.add(round_digest(message, {}, b""))
    assert len(known) == 6


@pytest.mark.parametrize("data", [b"", b"garbage", b"\x93NUMPY\x01\x00"])
def test_an_array_that_cannot_be_read_is_a_named_error(data: bytes, tmp_path: Path) -> None:
    nodes = make_nodes(6, tmp_path, train)
    grid, _ = grid_of(nodes)
    content = RecordDict({"arrays": ArrayRecord({"w": Array("float32", (3,), "numpy.ndarray", data)})})
    asked = [Message(content, dst_node_id=node.context.node_id, message_type=MessageType.TRAIN) for node in nodes]
    (reply,) = grid.send_and_receive(asked)
    assert "an array that cannot be read" in str(reply.error.reason)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"PK\x03\x04garbage", id="BadZipFile"),
        pytest.param(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'x': ((("), id="TokenError"),
        pytest.param(npy("  1\n 2\n   x"), id="IndentationError"),
        pytest.param(npy("{'descr': ((),), 'fortran_order': False, 'shape': (3,), }"), id="IndexError"),
        pytest.param(npy(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({10**27},), }}"), id="OverflowError"),
    ],
)
def test_hostile_bytes_of_an_array_are_a_named_error(data: bytes) -> None:
    """numpy fails in many ways on bytes that somebody chose; any that escaped would end the program."""
    content = RecordDict({"arrays": ArrayRecord({"w": Array("float32", (3,), "numpy.ndarray", data)})})
    with pytest.raises(UsageError, match="a train message carries an array that cannot be read"):
        arrays_of(content, "a train message")


def test_the_page_says_of_every_field_that_an_app_sees_whether_it_is_bound() -> None:
    """A field that Flower adds is one more by which a server might tell one node's app what no other sees."""
    page = (Path(__file__).parents[2] / "docs" / "flower.md").read_text(encoding="utf-8")
    table = page.partition("## What a node binds")[2].partition("\n## ")[0]
    said: set[str] = set()
    for row in re.findall(r"^\| (.*?) \|", table, re.MULTILINE):
        owner = ""
        for name in re.findall(r"`([A-Za-z_.]+)`", row):
            owner = name.rpartition(".")[0] or owner
            said.add(f"{owner}.{name.rpartition('.')[2]}")
    for kind in (Metadata, Message):
        fields = {f"{kind.__name__}.{name}" for name, one in vars(kind).items() if isinstance(one, property)}
        assert fields - {"Message.metadata", "Message.children"} <= said  # which consist of the others
    assert {f"Context.{field.name}" for field in dataclasses.fields(Context)} <= said


def test_a_message_of_another_run_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nodes see one run in their Context; a number beside it could tell one of them to train."""
    nodes = make_nodes(9, tmp_path, train)
    victim = nodes[2].context.node_id

    def change(stage: str, node: int, message: Message) -> str:
        if stage == "mask" and node == victim:
            message.metadata.__dict__["_run_id"] = 2
        return ""

    grid, _ = grid_of(nodes, change)
    (reply,) = grid.send_and_receive(messages(nodes, arrays()))
    assert not reply.has_error()
    told_at_home(caplog, "a message of run 2 in the Context of run 1", grid.rounds[0].lost[victim])
    assert victim not in grid.rounds[0].survivors


def test_a_message_that_carries_an_error_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (node,) = make_nodes(1, tmp_path, train)
    (asked,) = messages([node], arrays())
    asked.metadata.__dict__["_message_id"] = "m"
    reply = node.app(Message(Error(code=2, reason="no"), reply_to=asked), node.context)
    told_at_home(caplog, "asked for something in plaintext", reply.error.reason)
