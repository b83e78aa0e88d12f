"""An app on Flower three ways, nodes and server in this process: plain, with our two lines, and with SecAgg+.

Every node is a ClientApp with a Context of its own, and every reply is counted as Flower would carry it. Local training
and counting are left out of the seconds.
"""

from __future__ import annotations

import copy
import itertools
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters
from flwr.server import ServerConfig
from flwr.server.compat.legacy_context import LegacyContext
from flwr.server.strategy import FedAvg as OlderFedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_PARAMS_RECORD
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from bench.apps.models import App, Arrays
from bench.rows import CPU
from heterosag.aggregation.clipping import measure_clipping
from heterosag.flower import SecureGrid, mod
from heterosag.flower.rounds import wire_size

_FIRST = 100  # node id
_WEIGHTS = 100  # different weights


@dataclass(slots=True, kw_only=True)
class Meter:
    """What a run took: bytes that nodes sent, and seconds that are not the protocol's."""

    sent: int = 0
    apart: float = 0.0
    trained: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a run: test accuracy, bytes that a node sends in a round, CPU seconds of a round without training,
    and the share of elements that were clipped in the last round."""

    accuracy: float
    bytes: float
    seconds: float
    clipped: float | None = None

    def as_json(self) -> dict[str, float | None]:
        """The numbers with as many digits as mean something."""
        return {
            "accuracy": round(self.accuracy, 4),
            "bytes": round(self.bytes),
            "seconds": round(self.seconds, 3),
            "clipped": None if self.clipped is None else round(self.clipped, 5),
        }


class InProcess(Grid):
    """Carries messages to the apps of nodes."""

    def __init__(self, apps: Mapping[int, ClientApp], meter: Meter) -> None:
        self._apps, self._meter = apps, meter
        self._homes = {
            node: Context(run_id=1, node_id=node, node_config={}, state=RecordDict(), run_config={}) for node in apps
        }
        self._numbers = itertools.count(1)

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        return Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config={})

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        return Message(*args, **kwargs)

    def get_node_ids(self) -> Iterable[int]:
        return list(self._apps)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        del timeout
        return [self._carry(message) for message in messages]

    def _carry(self, sent: Message) -> Message:
        start = CPU()
        about = sent.metadata
        about.__dict__["_message_id"] = str(next(self._numbers))
        node = about.dst_node_id
        message = Message(
            copy.deepcopy(sent.content), dst_node_id=node, message_type=about.message_type, group_id=about.group_id
        )
        message.metadata.__dict__["_message_id"] = about.message_id
        self._meter.apart += CPU() - start
        reply = self._apps[node](message, self._homes[node])
        start = CPU()
        if reply.has_error():
            raise RuntimeError(f"node {node}: {reply.error.reason}")
        self._meter.sent += wire_size(reply)
        self._meter.apart += CPU() - start
        return reply


def _train(app: App, part: int, arrays: Arrays, meter: Meter) -> tuple[Arrays, int, float]:
    """The same draws for a node's next training on every side."""
    start = CPU()
    number = meter.trained.count(part)
    meter.trained.append(part)
    found = app.train(arrays, part, seed=1000 * number + part)
    meter.apart += CPU() - start
    return found


def _node(app: App, part: int, meter: Meter, mods: list[Any]) -> ClientApp:
    made = ClientApp(mods=mods)

    @made.train()
    def train(message: Message, context: Context) -> Message:
        del context
        before = {name: array.numpy() for name, array in message.content.array_records["arrays"].items()}
        after, examples, loss = _train(app, part, before, meter)
        metrics = MetricRecord({"num-examples": examples, "train_loss": loss})
        return Message(RecordDict({"arrays": _record(after), "metrics": metrics}), reply_to=message)

    return made


def _record(arrays: Mapping[str, npt.NDArray[Any]]) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})


def plain(app: App) -> Outcome:
    """FedAvg as it is."""
    meter = Meter()
    grid = InProcess({_FIRST + part: _node(app, part, meter, []) for part in range(len(app.parts))}, meter)
    start = CPU()
    result = FedAvg(fraction_evaluate=0.0).start(grid=grid, initial_arrays=_record(app.start()), num_rounds=app.rounds)
    return _outcome(app, _arrays_of(result), meter, CPU() - start)


def secure(app: App, **options: Any) -> Outcome:
    """The same with our two lines; options are those of a `SecureGrid`."""
    meter = Meter()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HETEROSAG_RELEASES"] = folder
        parts = range(len(app.parts))
        apps = {_FIRST + part: _node(app, part, meter, [mod(trust_server=True)]) for part in parts}
        start = CPU()
        grid = SecureGrid(InProcess(apps, meter), **options)
        result = grid.start(FedAvg(fraction_evaluate=0.0), _record(app.start()), num_rounds=app.rounds)
        took = CPU() - start
    failed = [done.error for done in grid.rounds if done.error]
    if failed:
        raise RuntimeError(failed[0])
    last = grid.rounds[-1]
    clipped = None if last.plan is None or last.combined is None else measure_clipping(last.plan, last.combined)
    return _outcome(app, _arrays_of(result), meter, took, clipped)


def weighted(app: App) -> Outcome:
    """With weights by the number of examples, as plain FedAvg has them."""
    most = max(len(y) for _, y in app.parts)
    return secure(app, max_weight=_WEIGHTS, weight_unit=-(-most // _WEIGHTS))


class _Client(NumPyClient):
    """The node of the older API, which SecAgg+ needs.

    It sends single precision: the quantizer of SecAgg+ computes in an array's own type, and overflows in half
    precision.
    """

    def __init__(self, app: App, part: int, meter: Meter) -> None:
        self._app, self._part, self._meter = app, part, meter

    def fit(self, parameters: Any, config: Any) -> Any:
        del config
        before = dict(zip(self._app.start(), parameters, strict=True))
        after, examples, loss = _train(self._app, self._part, before, self._meter)
        return [array.astype(np.float32) for array in after.values()], examples, {"train_loss": loss}


def secagg_plus(app: App) -> Outcome:
    """Flower's SecAgg+ through its own workflow, with its own range and levels; everybody has shares of everybody."""
    meter = Meter()

    def node(part: int) -> ClientApp:
        return ClientApp(client_fn=lambda _: _Client(app, part, meter).to_client(), mods=[secaggplus_mod])

    grid = InProcess({_FIRST + part: node(part) for part in range(len(app.parts))}, meter)
    first = app.start()
    home = Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config={})
    strategy = OlderFedAvg(
        fraction_evaluate=0.0,
        min_available_clients=len(app.parts),
        initial_parameters=ndarrays_to_parameters(list(first.values())),
    )
    context = LegacyContext(home, config=ServerConfig(num_rounds=app.rounds), strategy=strategy)
    start = CPU()
    DefaultWorkflow(fit_workflow=SecAggPlusWorkflow(num_shares=1.0, reconstruction_threshold=0.51))(grid, context)
    took = CPU() - start
    found = context.state.array_records[MAIN_PARAMS_RECORD].to_numpy_ndarrays()
    return _outcome(app, dict(zip(first, found, strict=True)), meter, took)


SIDES: dict[str, Callable[[App], Outcome]] = {
    "plain": plain,
    "secure": secure,
    "weighted": weighted,
    "secagg+": secagg_plus,
}


def _arrays_of(result: Any) -> Arrays:
    return {name: array.numpy() for name, array in result.arrays.items()}


def _outcome(app: App, arrays: Arrays, meter: Meter, took: float, clipped: float | None = None) -> Outcome:
    rounds = app.rounds
    if len(meter.trained) != rounds * len(app.parts):
        raise RuntimeError(f"{len(meter.trained)} trainings in {rounds} rounds of {len(app.parts)} nodes")
    return Outcome(
        accuracy=app.accuracy(arrays),
        bytes=meter.sent / (rounds * len(app.parts)),
        seconds=(took - meter.apart) / rounds,
        clipped=clipped,
    )
