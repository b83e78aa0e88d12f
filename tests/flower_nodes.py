"""A Grid in this process: nodes are ClientApps with a Context each, and anything may go wrong on the way."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from heterosag.flower import mod
from heterosag.protocol.policy import Policy

Fault = Callable[[str, int, Message], str]
"""From stage, node and message to what happens: "" (nothing), "silent", "error", "crash", "reborn"."""

FIRST_NODE = 2**63 + 17  # as Flower's ids are


def stage_of(message: Message) -> str:
    record = message.content.config_records.get("heterosag")
    return "" if record is None else str(record["stage"])


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
            if record is not None and isinstance(record.get("message"), bytes):
                self.bytes_up[node] = self.bytes_up.get(node, 0) + len(record["message"])  # type: ignore[arg-type]
        return reply

    @staticmethod
    def _marked(reply: Message, source: int) -> Message:
        reply.metadata.__dict__["_src_node_id"] = source
        return reply


def trainer(update: Callable[[int, dict[str, Any]], dict[str, Any]], secure: Any, **metrics: float) -> ClientApp:
    """An app whose train function adds what `update` says for its node."""
    app = ClientApp(mods=[secure] if secure is not None else [])

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
