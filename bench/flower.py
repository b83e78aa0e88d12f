"""A round on Flower, ours and the peer's SecAgg+, each through its own mod and its own server side, in this process."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from bench import peer
from bench.rows import Row
from heterosag.flower import SecureGrid, mod

USERS, DIMENSION, LOST = 25, 79_510, 3
LEVELS = (12, 1 << 20)
_FIRST = 100


def rows() -> Iterator[Row]:
    """Bytes on the wire and seconds of protocol, a node and the server; coarse levels, and fine ones."""
    rng = np.random.default_rng(0)
    updates = rng.normal(0, 0.02, (USERS, DIMENSION)).astype(np.float32)
    _ours(updates[:, :100], LEVELS[0])  # what is slow the first time
    peer.run(updates[:, :100], LOST)
    theirs = peer.run(updates, LOST)
    for level in LEVELS:
        ours = _ours(updates, level)
        what = f"{level} levels, {USERS} nodes, {DIMENSION:,} parameters, {LOST} lost"
        found = {
            "bytes a node sends: SecAgg+ / ours": theirs.sent / ours.sent,
            "seconds of protocol a node: SecAgg+ / ours": theirs.seconds / ours.seconds,
            "seconds of the server: SecAgg+ / ours": theirs.server / ours.server,
            "largest error of the mean: SecAgg+ / ours": theirs.error / ours.error,
        }
        for name, value in found.items():
            yield Row(name=f"Flower, {name} ({what})", ratio=value, goal=None, better="higher")


class _Home:
    """A node: its app and its context."""

    def __init__(self, node: int, update: npt.NDArray[np.float32], folder: Path) -> None:
        self.context = Context(run_id=1, node_id=node, node_config={}, state=RecordDict(), run_config={})
        self.app = ClientApp(mods=[mod(trust_server=True, release_log=folder)])

        @self.app.train()
        def train(message: Message, context: Context) -> Message:
            del context
            before = message.content.array_records["arrays"]["w"].numpy()
            arrays = ArrayRecord({"w": Array(before + update)})
            content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1000})})
            return Message(content, reply_to=message)


class _Grid:
    """Calls the nodes' apps; some are silent from the stage mask on, as the peer's are."""

    def __init__(self, homes: list[_Home], lost: set[int]) -> None:
        self.homes = {home.context.node_id: home for home in homes}
        self.lost = lost
        self._numbers = itertools.count(1)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        del timeout
        replies = []
        for message in messages:
            node = message.metadata.dst_node_id
            message.metadata.__dict__["_message_id"] = str(next(self._numbers))
            stage = message.content.config_records["heterosag"]["stage"]
            if not (stage == "mask" and node in self.lost):
                replies.append(self.homes[node].app(message, self.homes[node].context))
        return replies


def _ours(updates: npt.NDArray[np.float32], level: int) -> peer.Cost:
    peer.be_a_task()
    with tempfile.TemporaryDirectory() as folder:
        homes = [_Home(_FIRST + place, update, Path(folder)) for place, update in enumerate(updates)]
        inside = _Grid(homes, {_FIRST + place for place in range(LOST)})
        half = float(np.abs(updates).max())
        options = {"subgroup_size": 6, "floor": 2, "min_robustness": 0.0}
        fine: Any = inside  # all that a round needs of a Grid
        grid = SecureGrid(fine, levels=[level], value_range=half, options=options)
        arrays = ArrayRecord({"w": Array(np.zeros(updates.shape[1], dtype=np.float32))})
        content = RecordDict({"arrays": arrays, "config": ConfigRecord({})})
        ids = list(inside.homes)
        messages = [Message(content, dst_node_id=node, message_type=MessageType.TRAIN) for node in ids]
        (reply,) = grid.send_and_receive(messages)
    done = grid.rounds[0]
    if done.error:
        raise RuntimeError(done.error)
    alive = [node - _FIRST for node in done.survivors]
    decoded = reply.content.array_records["arrays"]["w"].numpy()
    return peer.Cost(
        node_seconds={stage: float(np.mean(list(by.values()))) for stage, by in done.node_seconds.items()},
        node_bytes={stage: max(by.values()) for stage, by in done.wire_received.items()},
        server_seconds=done.server_seconds,
        error=float(np.abs(decoded - updates[alive].astype(np.float64).mean(axis=0)).max()),
    )
