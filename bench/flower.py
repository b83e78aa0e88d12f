"""A round on Flower, ours and the peer's SecAgg+, each through its own mod and its own server side, in this process."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from bench import peer
from bench.against_peer import COARSE, FINE
from bench.round import Cost
from bench.rows import CPU, Row
from heterosag.flower import SecureGrid, mod
from heterosag.flower.messages import values
from heterosag.flower.rounds import wire_size

USERS, DIMENSION, LOST = 25, 79_510, 3
LEVELS = (COARSE, FINE)
"""As fine as the peer there is one range for all, nothing is rotated and no level raised, as in against_peer.py."""

_FIRST = 100
_REPEATS = 3


_MEASURES: dict[str, Callable[[Cost], float]] = {
    "bytes a node sends": lambda cost: cost.sent,
    "seconds of protocol a node": lambda cost: cost.seconds,
    "seconds of the server": lambda cost: cost.server,
    "largest error of the mean": lambda cost: cost.error,
}


def rows() -> Iterator[Row]:
    """Bytes on the wire and seconds of protocol, a node and the server, at one range: medians, measured in turn."""
    rng = np.random.default_rng(0)
    updates = rng.normal(0, 0.02, (USERS, DIMENSION)).astype(np.float32)
    half = float(np.abs(updates).max())
    sides: dict[str, Callable[[], Cost]] = {"peer": lambda: peer.run(updates, LOST, half)}
    sides |= {str(level): lambda level=level: _ours(updates, level, half) for level in LEVELS}  # type: ignore[misc]
    found: dict[str, list[Cost]] = {side: [] for side in sides}
    for _ in range(_REPEATS + 1):  # the first does not count
        for side, measure in sides.items():
            found[side].append(measure())
    what = f"{USERS} nodes, {DIMENSION:,} parameters, {LOST} lost"
    for level in LEVELS:
        for name, of in _MEASURES.items():
            theirs, ours = ([of(cost) for cost in found[side][1:]] for side in ("peer", str(level)))
            yield Row.of(f"Flower, {name}: SecAgg+ / ours ({level} levels, {what})", theirs, ours, better="higher")


class _Home:
    """A node: its app, its context, and the seconds that it trained."""

    def __init__(self, node: int, update: npt.NDArray[np.float32], folder: Path) -> None:
        self.context = Context(run_id=1, node_id=node, node_config={}, state=RecordDict(), run_config={})
        self.app = ClientApp(mods=[mod(trust_server=True, release_log=folder)])
        self.trained = 0.0

        @self.app.train()
        def train(message: Message, context: Context) -> Message:
            del context
            start = CPU()
            before = message.content.array_records["arrays"]["w"].numpy()
            arrays = ArrayRecord({"w": Array(before + update)})
            content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1000})})
            reply = Message(content, reply_to=message)
            self.trained += CPU() - start
            return reply


class _Grid:
    """Calls the nodes' apps and takes their time; some are silent from the stage mask on, as the peer's are."""

    def __init__(self, homes: list[_Home], lost: set[int]) -> None:
        self.homes = {home.context.node_id: home for home in homes}
        self.lost = lost
        self.seconds: dict[str, list[float]] = {}
        self.bytes: dict[str, int] = {}
        self.inside = 0.0
        self._numbers = itertools.count(1)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        del timeout
        start = CPU()
        replies = [reply for message in messages if (reply := self._carry(message)) is not None]
        self.inside += CPU() - start
        return replies

    def _carry(self, message: Message) -> Message | None:
        home = self.homes[message.metadata.dst_node_id]
        message.metadata.__dict__["_message_id"] = str(next(self._numbers))
        stage = values(message.content.config_records["heterosag"], "stages", str, sender="server")[0]
        if stage == "mask" and home.context.node_id in self.lost:
            return None
        start, home.trained = CPU(), 0.0
        reply = home.app(message, home.context)
        self.seconds.setdefault(stage, []).append(CPU() - start - home.trained)
        self.bytes[stage] = max(self.bytes.get(stage, 0), wire_size(reply))
        return reply


def _ours(updates: npt.NDArray[np.float32], level: int, half: float) -> Cost:
    peer.be_a_task()
    with tempfile.TemporaryDirectory() as folder:
        homes = [_Home(_FIRST + place, update, Path(folder)) for place, update in enumerate(updates)]
        inside = _Grid(homes, {_FIRST + place for place in range(LOST)})
        options: dict[str, Any] = {"subgroup_size": 6}
        if level == FINE:
            options |= {"ranges": "single", "rotate": False, "fill_levels": False}
        fine: Any = inside  # all that a round needs of a Grid
        grid = SecureGrid(fine, levels=[level], value_range=half, options=options, max_weight=1, prepare=False)
        arrays = ArrayRecord({"w": Array(np.zeros(updates.shape[1], dtype=np.float32))})
        content = RecordDict({"arrays": arrays, "config": ConfigRecord({})})
        messages = [Message(content, dst_node_id=node, message_type=MessageType.TRAIN) for node in inside.homes]
        start = CPU()
        (reply,) = grid.send_and_receive(messages)
        server = CPU() - start - inside.inside
    done = grid.rounds[0]
    if done.error:
        raise RuntimeError(done.error)
    alive = [node - _FIRST for node in done.survivors]
    decoded = reply.content.array_records["arrays"]["w"].numpy()
    return Cost(
        user_seconds={stage: float(np.mean(times)) for stage, times in inside.seconds.items()},
        user_bytes=inside.bytes,
        server_seconds={"all": server},
        error=float(np.abs(decoded - updates[alive].astype(np.float64).mean(axis=0)).max()),
    )
