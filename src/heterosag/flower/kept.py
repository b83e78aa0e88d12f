"""What a node keeps from message to message, and where.

A node on a network keeps its release log and its memory of a run in a folder of its disk. In Flower's simulation all
nodes are one machine's, and every run has new ones: there the memory of a run is in its Context, and nothing is
written to the disk unless a folder is asked for. The process that a node runs in tells it which of the two it is; a
run's or a node's configuration, which the server's side may set, does not count.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from flwr.app import ConfigRecord, Context

from heterosag.flower.messages import value
from heterosag.plan import Plan
from heterosag.protocol import MemoryReleaseLog, ReleaseLog
from heterosag.protocol.budget import Budget, Charges, add_charge
from heterosag.protocol.guard import Guard
from heterosag.protocol.policy import Policy
from heterosag.storage.budget import FileBudget
from heterosag.storage.ledger_file import LedgerFile
from heterosag.storage.node_memory import NodeMemory, RunMemory
from heterosag.storage.release_log import FileReleaseLog

__all__ = ["Kept", "in_simulation"]

_MEMORY, _BUDGET = "heterosag.run", "heterosag.budget"
_ENGINE = "flwr.simulation.ray_transport.ray_actor"


def in_simulation() -> bool:
    """Whether this process is an actor of Flower's simulation engine."""
    ray = sys.modules.get("ray")
    if ray is None or _ENGINE not in sys.modules or not ray.is_initialized():
        return False
    return ray.get_runtime_context().get_actor_id() is not None


@dataclass(frozen=True, slots=True)
class Kept:
    """Where a node keeps what must outlive a message.

    Args:
        asked: The folder that was asked for; None leaves it to the environment and to where the node runs.
        hide_sets_below: The smallest set of users whose sum the node lets anybody learn; counting them needs a folder.
    """

    asked: Path | None
    hide_sets_below: int = 0

    def folder(self, context: Context) -> Path | None:
        """The node's folder, None in a simulation that asked for none."""
        asked = self.asked or os.environ.get("HETEROSAG_RELEASES")
        if asked is None and not self.hide_sets_below and in_simulation():
            return None
        return Path(asked or Path.home() / ".local/state/heterosag") / str(context.node_id)

    def release_log(self, context: Context) -> ReleaseLog:
        """What this node has shared, masked, signed and released."""
        folder = self.folder(context)
        return MemoryReleaseLog() if folder is None else FileReleaseLog(folder)

    def memory(self, context: Context) -> RunMemory:
        """What this node remembers of the run."""
        folder = self.folder(context)
        return _ContextMemory(context) if folder is None else NodeMemory(folder, context.run_id)

    def budget(self, context: Context, owner: str) -> Budget:
        """What rounds with noise have cost this node: in all runs; in a simulation without a folder, in this one.

        Args:
            context: The run's Context.
            owner: Whose budget it is, by a name that no server chooses: a node's id is the SuperLink's word, and so
                would be when a budget begins at zero again.

        Returns:
            The budget.
        """
        folder = self.folder(context)
        return _ContextBudget(context) if folder is None else FileBudget(folder.with_name(owner))

    def guard(self, context: Context, plan: Plan) -> Guard | None:
        """This node's own ledger, if it has one."""
        folder = self.folder(context)
        if folder is None or not self.hide_sets_below:
            return None
        return LedgerFile(folder, plan, sets_below=self.hide_sets_below)


class _ContextMemory(RunMemory):
    """Memory of a run in its Context."""

    def __init__(self, context: Context) -> None:
        self._state = context.state

    def __str__(self) -> str:
        return "the memory of this run"

    def _load(self) -> bytes | None:
        record = self._state.config_records.get(_MEMORY)
        return None if record is None else bytes(value(record, "memory", bytes, sender="context"))

    def _rewrite(self, change: Callable[[bytes | None], bytes]) -> None:
        self._state[_MEMORY] = ConfigRecord({"memory": change(self._load())})


class _ContextBudget:
    """Charges of a run in its Context."""

    def __init__(self, context: Context) -> None:
        self._state = context.state

    def check(self, plan: Plan, policy: Policy) -> None:
        """Refuse a round that would exceed the policy."""
        add_charge(self._charges, plan, policy)

    def charge(self, plan: Plan, policy: Policy) -> None:
        """Keep the charge of a round."""
        self._state[_BUDGET] = ConfigRecord({"charges": json.dumps(add_charge(self._charges, plan, policy))})

    @property
    def _charges(self) -> Charges:
        record = self._state.config_records.get(_BUDGET)
        return [] if record is None else list(json.loads(value(record, "charges", str, sender="context")))
