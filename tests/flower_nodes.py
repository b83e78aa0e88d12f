"""A Grid in this process: nodes are ClientApps with a Context each, and anything may go wrong on the way."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from heterosag.flower import SecureGrid, mod
from heterosag.protocol import Identity
from heterosag.protocol.policy import Policy

Fault = Callable[[str, int, Message], str]
"""From stage, node and message to what happens: "" (nothing), "silent", "error", "crash", "reborn"."""

FIRST_NODE = 2**63 + 17  # as Flower's ids are


def stage_of(message: Message) -> str:
    """The stage of the lowest round that a trip names."""
    record = message.content.config_records.get("heterosag")
    return "" if record is None else str(record["stages"][0])  # type: ignore[index]


class Node:
    """A ClientApp and what it keeps."""

    def __init__(self, node_id: int, app: ClientApp, config: dict[str, Any]) -> None:
        self.app = app
        self.context = Context(run_id=1, node_id=node_id, node_config=config, state=RecordDict(), run_config={})


class LocalGrid(Grid):
    """Carries messages to nodes at once. Replies have the id of what they answer, and a wrong source, as a lost node's
    error replies have in a deployment."""

    def __init__(self, nodes: Iterable[Node], fault: Fault | None = None) -> None:
        self.nodes = {node.context.node_id: node for node in nodes}
        self.fault = fault or (lambda stage, node, message: "")
        self.log: list[tuple[str, int]] = []
        self.bytes_up: dict[int, int] = {}
        self._ids = itertools.count(1)

    def set_run(self, run: Any) -> None:
        self._run = run

    @property
    def run(self) -> Any:
        return self._run

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        return Message(*args, **kwargs)

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return [message.metadata.message_type for message in messages]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        del message_ids
        return []

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        del timeout
        replies = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = f"message-{next(self._ids)}"
            reply = self._carry(message)
            if reply is not None:
                replies.append(reply)
        return replies[::-1]

    def _carry(self, message: Message) -> Message | None:
        node, stage = message.metadata.dst_node_id, stage_of(message)
        self.log.append((stage, node))
        what = self.fault(stage, node, message)
        if what == "silent":
            return None
        if what == "error":
            return self._marked(Message(Error(code=5, reason="node unavailable"), reply_to=message), 1)
        home = self.nodes[node]
        if what == "reborn":
            home.context.state = RecordDict()
        try:
            reply = home.app(message, home.context)
        except Exception as error:  # as Flower's runtime does
            return Message(Error(code=2, reason=repr(error)), reply_to=message)
        if what == "crash":
            return None
        if not reply.has_error():
            record = reply.content.config_records.get("heterosag")
            if record is not None and "messages" in record:
                self.bytes_up[node] = self.bytes_up.get(node, 0) + sum(map(len, record["messages"]))  # type: ignore[arg-type]
        return reply

    @staticmethod
    def _marked(reply: Message, source: int) -> Message:
        reply.metadata.__dict__["_src_node_id"] = source
        return reply


def trainer(update: Callable[[int, dict[str, Any]], dict[str, Any]], secure: Any, **metrics: float) -> ClientApp:
    """An app whose train function adds what `update` says for its node; `secure` is its mod, or its list of them."""
    app = ClientApp(mods=secure if isinstance(secure, list) else [secure] if secure is not None else [])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        record = next(iter(message.content.array_records.values()))
        before = {name: array.numpy() for name, array in record.items()}
        after = update(context.node_id, before)
        arrays = ArrayRecord({name: Array(np.asarray(value)) for name, value in after.items()})
        content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 10, **metrics})})
        context.state["mine"] = ConfigRecord({"trained": True})
        return Message(content, reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        del context
        metrics = MetricRecord({"num-examples": 5, "accuracy": 0.5})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


def make_nodes(
    count: int,
    folder: Path,
    update: Callable[[int, dict[str, Any]], dict[str, Any]],
    *,
    config: Callable[[int], dict[str, Any]] = lambda place: {},
    secure: Callable[[int], Any] | None = None,
    **metrics: float,
) -> list[Node]:
    nodes = []
    for place in range(count):
        node_id = FIRST_NODE + 1000 * place
        own = secure(place) if secure else mod(trust_server=True, release_log=folder, policy=Policy.any_plan())
        nodes.append(Node(node_id, trainer(update, own, **metrics), config(place)))
    return nodes


# --- a model, what nodes do to it, and a grid for them ------------------------------------------------------------

LEVEL, HALF = 17, 0.5
STEP = 2 * HALF / (LEVEL - 1)


def arrays(seed: int = 0) -> dict[str, Any]:
    """A model of mixed shapes and types."""
    rng = np.random.default_rng(seed)
    return {
        "conv.weight": rng.normal(size=(3, 2, 4)).astype(np.float32),
        "half": rng.normal(size=5).astype(np.float16),
        "double": rng.normal(size=(2, 3)),
        "steps": np.array(7, dtype=np.int64),
    }


def shift(node: int) -> float:
    """A node's update: a step of the quantizer, so that rounding leaves no chance."""
    return STEP * ((node - FIRST_NODE) // 1000 % 5 - 2)


def train(node: int, before: dict[str, Any]) -> dict[str, Any]:
    return {
        name: array + np.asarray(shift(node) if array.dtype.kind == "f" else 0).astype(array.dtype)
        for name, array in before.items()
    }


def record(values: dict[str, Any]) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(value)) for name, value in values.items()})


def rounds(grid: SecureGrid, nodes: list[Node], count: int) -> list[Message]:
    """The replies of so many rounds of training, one after another."""
    return [reply for _ in range(count) for reply in grid.send_and_receive(messages(nodes, arrays()))]


def messages(nodes: list[Node], model: dict[str, Any]) -> list[Message]:
    content = RecordDict({"arrays": record(model), "config": ConfigRecord({"lr": 0.1})})
    return [Message(content, dst_node_id=node.context.node_id, message_type=MessageType.TRAIN) for node in nodes]


OPTIONS: dict[str, Any] = {
    "subgroup_size": 3,
    "min_survivors": 2,
    "ranges": "single",
    "rotate": False,
    "fill_levels": False,
}
"""Levels of all blocks lie in the value range itself, so that what is sent can be worked out by hand."""

LOOSE = Policy.any_plan()


def signed_nodes(count: int, folder: Path, **options: Any) -> tuple[list[Node], dict[str, bytes]]:
    """Nodes with identities, and their directory."""
    identities = [Identity.generate() for _ in range(count)]
    directory = {str(FIRST_NODE + 1000 * place): one.public for place, one in enumerate(identities)}

    def secure(place: int) -> Any:
        own = {"policy": LOOSE, "release_log": folder, **options}
        return mod(identity=identities[place], directory=directory, **own)

    return make_nodes(count, folder, train, secure=secure), directory


def ask(node: Node, model: dict[str, Any], **fields: Any) -> Message:
    records: dict[str, Any] = {"arrays": record(model)}
    if fields:
        records["heterosag"] = ConfigRecord(fields)
    message = Message(RecordDict(records), dst_node_id=node.context.node_id, message_type=MessageType.TRAIN)
    message.metadata.__dict__["_message_id"] = "m"
    return node.app(message, node.context)


def grid_of(nodes: list[Node], fault: Any = None, **changes: Any) -> tuple[SecureGrid, LocalGrid]:
    inside = LocalGrid(nodes, fault)
    requirements: dict[str, Any] = {
        "levels": [LEVEL], "value_range": HALF, "adapt_range": False, "options": OPTIONS, **changes,
    }  # fmt: skip
    return SecureGrid(inside, **requirements), inside


def result_of(reply: Message) -> dict[str, Any]:
    assert not reply.has_error(), reply.error.reason
    return {name: array.numpy() for name, array in reply.content.array_records["arrays"].items()}


def told_at_home(caplog: pytest.LogCaptureFixture, detail: str, reason: str) -> None:
    """What went wrong is in the node's own log; the server gets a fixed text."""
    assert detail in caplog.text
    assert detail not in reason
    assert reason.endswith("; the node's own log says more")


def expected(nodes: list[int], model: dict[str, Any]) -> float:
    del model
    return float(np.mean([shift(node) for node in nodes]))
