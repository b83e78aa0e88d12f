"""Flower's own SecAgg+ in this process: its real client mod and its real workflow through a Grid that only calls.

Nothing of the peer is written anew here. Users drop out between share and mask, and so are left out of its sum.
"""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")

import flwr.compat.common.recorddict_compat as compat
from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.client.mod import secaggplus_mod
from flwr.common import Code, FitIns, FitRes, Parameters, Status, ndarrays_to_parameters
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key, Stage
from flwr.server.compat.legacy_context import LegacyContext
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD
from flwr.server.workflow.constant import Key as WorkflowKey
from flwr.server.workflow.secure_aggregation.secaggplus_workflow import WorkflowState
from flwr.supercore.task_identity import TaskIdentity

from bench.round import Cost
from bench.rows import CPU
from heterosag.flower.rounds import wire_size

STAGES = {
    Stage.SETUP: "advertise",
    Stage.SHARE_KEYS: "share",
    Stage.COLLECT_MASKED_VECTORS: "mask",
    Stage.UNMASK: "unmask",
}
"""The peer's stages by the names of ours."""


def be_a_task() -> None:
    """What Flower's runtime sets in a process before an app may make messages."""
    for name in ("_run_id", "_task_id", "_node_id"):
        setattr(TaskIdentity, name, 1)
    logging.getLogger("flwr").setLevel(logging.ERROR)


def stage_of(message: Message) -> str:
    """What the server asks for, by the name of our phase."""
    return STAGES[str(message.content.config_records[RECORD_KEY_CONFIGS][Key.STAGE])]


class _Proxy:
    def __init__(self, node: int) -> None:
        self.node_id, self.cid = node, str(node)


class _Manager:
    def __init__(self, count: int) -> None:
        self.count = count

    def num_available(self) -> int:
        return self.count


class _Strategy:
    """All nodes in every round; keeps what the server decoded."""

    def __init__(self, nodes: list[int]) -> None:
        self.nodes = nodes
        self.decoded: Any = None

    def configure_fit(self, *_: Any) -> list[tuple[_Proxy, FitIns]]:
        return [(_Proxy(node), FitIns(Parameters([], "numpy.ndarray"), {})) for node in self.nodes]

    def aggregate_fit(self, _: int, results: Any, failures: Any) -> tuple[Any, dict[str, Any]]:
        del failures
        self.decoded = results[0][1].parameters
        return self.decoded, {}


class Calls:
    """A grid that calls the client mod in this process and takes its time."""

    def __init__(self, updates: dict[int, npt.NDArray[np.float32]], lost: set[int]) -> None:
        self.updates, self.lost = updates, lost
        self.homes = {
            node: Context(run_id=1, node_id=node, node_config={}, state=RecordDict(), run_config={}) for node in updates
        }
        self.seconds: dict[str, list[float]] = {}
        self.bytes: dict[str, int] = {}
        self.inside = 0.0

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        del timeout
        start = CPU()
        replies = [self.carry(message) for message in messages]
        self.inside += CPU() - start
        return replies

    def carry(self, sent: Message) -> Message:
        """One node's answer."""
        node, stage = sent.metadata.dst_node_id, stage_of(sent)
        message = Message(copy.deepcopy(sent.content), dst_node_id=node, message_type=sent.metadata.message_type)
        if stage == "mask" and node in self.lost:
            return Message(Error(5, "lost"), reply_to=message)
        training = 0.0

        def train(to_train: Message, own: Context) -> Message:
            nonlocal training
            del own
            start = CPU()
            done = FitRes(Status(Code.OK, ""), ndarrays_to_parameters([self.updates[node]]), 1000, {})
            answer = Message(compat.fitres_to_recorddict(done, False), reply_to=to_train)
            training = CPU() - start
            return answer

        start = CPU()
        reply = secaggplus_mod(message, self.homes[node], train)
        self.seconds.setdefault(stage, []).append(CPU() - start - training)
        self.bytes[stage] = max(self.bytes.get(stage, 0), wire_size(reply))
        return reply


def run(updates: npt.NDArray[np.float32], lost: int, half: float, *, neighbours: int | None = None) -> Cost:
    """A round of the peer. half: half width of its range. neighbours: shares a user hands out; None: all others."""
    nodes = [100 + place for place in range(len(updates))]
    grid = Calls(dict(zip(nodes, updates, strict=True)), set(nodes[:lost]))
    strategy, stages = begin(grid, half, neighbours=neighbours)
    cost = Cost()
    for stage, step in stages.items():
        grid.inside, start = 0.0, CPU()
        if not step():
            raise RuntimeError(f"the peer's round ended at {stage}")
        cost.server_seconds[stage] = CPU() - start - grid.inside
    cost.user_seconds = {stage: float(np.mean(times)) for stage, times in grid.seconds.items()}
    cost.user_bytes = dict(grid.bytes)
    decoded = compat.parameters_to_arrayrecord(strategy.decoded, True).to_numpy_ndarrays()[0]
    cost.error = float(np.abs(decoded - updates[lost:].astype(np.float64).mean(axis=0)).max())
    return cost


def begin(grid: Calls, half: float, *, neighbours: int | None) -> tuple[_Strategy, dict[str, Callable[[], bool]]]:
    """A round of the peer's workflow over a grid: what keeps its result, and its stages, to be called in turn."""
    be_a_task()
    nodes = list(grid.updates)
    strategy = _Strategy(nodes)
    home = Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config={})
    context = LegacyContext(home, strategy=strategy, client_manager=_Manager(len(nodes)))  # type: ignore[arg-type]
    context.state[MAIN_CONFIGS_RECORD] = ConfigRecord({WorkflowKey.CURRENT_ROUND: 1})
    context.state[MAIN_PARAMS_RECORD] = compat.parameters_to_arrayrecord(Parameters([], "numpy.ndarray"), True)
    workflow = SecAggPlusWorkflow(num_shares=neighbours or 1.0, reconstruction_threshold=0.51, clipping_range=half)
    state = WorkflowState()
    stages: dict[str, Callable[..., bool]] = {
        "advertise": workflow.setup_stage,
        "share": workflow.share_keys_stage,
        "mask": workflow.collect_masked_vectors_stage,
        "unmask": workflow.unmask_stage,
    }
    return strategy, {name: partial(stage, grid, context, state) for name, stage in stages.items()}
