"""Targets for the records on Flower: the server's record to a node, and nodes' records to the grid, with odd fields.

Nodes run in this process, as the tests have them. Their keys are fresh in every process.
"""

from __future__ import annotations

import copy
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
from fuzz.scripts import Script, change, promise

with warnings.catch_warnings():  # of what flwr's dependencies will drop
    warnings.simplefilter("ignore")
    import flower_nodes as local
    from flwr.app import ConfigRecord, Message, RecordDict
    from flwr.common.logger import FLOWER_LOGGER
    from flwr.supercore.task_identity import TaskIdentity

    from heterosag.flower import SecureGrid

__all__ = ["flower_node", "flower_server"]

NODES = 6
KNOWN = {
    "rounds",
    "stages",
    "messages",
    "errors",
    "run",
    "run-config",
    "evaluate",
    "metrics",
    "seconds",
    "class",
    "rate",
}
OPTIONS: dict[str, Any] = {"design": "secagg", "min_survivors": 2}


@dataclass(kw_only=True)
class Tape:
    """What reaches one node on each trip of a session: its Context before, and the message."""

    node: Any
    seen: list[tuple[Any, Any]] = field(default_factory=list)


@contextmanager
def _runtime() -> Iterator[None]:
    """What Flower's runtime sets and a Message asks for; and no log, since thousands of rounds fail here."""
    names = ("_run_id", "_task_id", "_node_id")
    before, disabled = {name: getattr(TaskIdentity, name) for name in names}, FLOWER_LOGGER.disabled
    try:
        for name in names:
            setattr(TaskIdentity, name, 1)
        FLOWER_LOGGER.disabled = True
        yield
    finally:
        FLOWER_LOGGER.disabled = disabled
        for name, value in before.items():
            setattr(TaskIdentity, name, value)


def _federation(carry: Any) -> tuple[list[Any], Any]:
    """Nodes and a grid over them; `carry` sees each message with its node before, and its reply after."""
    nodes = local.make_nodes(NODES, Path(tempfile.mkdtemp()), local.train)

    class Grid(local.LocalGrid):
        def _carry(self, message: Any) -> Any:
            return carry(self.nodes[message.metadata.dst_node_id], message, super()._carry)

    options: dict[str, Any] = {"levels": [local.LEVEL], "value_range": local.HALF, "adapt_range": False}
    return nodes, SecureGrid(Grid(nodes), options=OPTIONS, **options)


def _run(nodes: list[Any], grid: Any, rounds: int) -> list[Any]:
    """Rounds of training, each with an evaluation after it; every reply."""
    replies = []
    for seed in range(rounds):
        model = local.arrays(seed)
        replies += grid.send_and_receive(local.messages(nodes, model))
        content = RecordDict({"arrays": local.record(model)})
        replies += grid.send_and_receive(
            [Message(content, dst_node_id=node.context.node_id, message_type="evaluate") for node in nodes]
        )
    return replies


@lru_cache(maxsize=1)
def play() -> Tape:
    """Two rounds with an evaluation each, and what node 0 was sent in them."""
    seen: list[tuple[Any, Any]] = []

    def carry(node: Any, message: Any, onward: Any) -> Any:
        if node is nodes[0]:
            seen.append((copy.deepcopy(node.context), copy.deepcopy(message)))
        return onward(message)

    nodes, grid = _federation(carry)
    with _runtime():
        replies = _run(nodes, grid, 2)
    assert not any(reply.has_error() for reply in replies)
    return Tape(node=nodes[0], seen=seen)


def _edited(record: Any, script: Script) -> Any:
    """A record after the script's edits, None where Flower could not carry it."""
    try:
        fields = msgspec.msgpack.decode(change(msgspec.msgpack.encode(dict(record)), script))
        return ConfigRecord(fields)
    except (TypeError, ValueError, AttributeError, OverflowError, msgspec.MsgspecError, RecursionError):
        return None


def flower_node(data: bytes) -> None:
    """The server's record, edited, at any trip of a session: answered, or refused with a fixed text."""
    script = Script(data)
    tape = play()
    context, message = (copy.deepcopy(one) for one in tape.seen[script.below(len(tape.seen))])
    record = _edited(message.content["heterosag"], script)
    if record is None:
        return
    message.content["heterosag"] = record
    with _runtime():
        reply = tape.node.app(message, context)
    if reply.has_error():
        promise(reply.error.reason.endswith("the node's own log says more"), "an error that is not one of the texts")
        return
    answered = reply.content["heterosag"]
    assert len(reply.content) == 1, "more than our record left the node"
    assert set(answered) <= KNOWN, "a field that no page names"


def flower_server(data: bytes) -> None:
    """Two nodes' records, edited, throughout a round and its evaluation: one reply each, and nothing escapes."""
    script = Script(data)

    def carry(node: Any, message: Any, onward: Any) -> Any:
        reply = onward(message)
        if node in nodes[:2] and reply is not None and not reply.has_error() and script.below(2):
            record = _edited(reply.content["heterosag"], script)
            if record is None:
                return None
            reply.content["heterosag"] = record
        return reply

    nodes, grid = _federation(carry)
    with _runtime():
        assert len(_run(nodes, grid, 1)) == 2
