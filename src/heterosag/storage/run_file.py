"""What a node remembers of a run on its disk: the value range that it masked under last, and the epochs it joined.

A node runs in a new process for every message, so this is a file beside its release log. It bounds what a server gains
from rounds that are all admissible by themselves: a range that jumps, or users who are assigned anew in every round. It
is kept by the run that Flower names to the node, not by the session, which the server's side chooses for each round.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from heterosag.errors import LocalFileError, PlanError
from heterosag.ledger import epoch_of
from heterosag.plan import Plan
from heterosag.protocol.context import RoundId
from heterosag.protocol.policy import Policy
from heterosag.storage.locks import locked

__all__ = ["RunFile"]


_MOST_ROUNDS = 4  # missed ones that widen what a range may change by: their number is the server's word


class RunFile:
    """The last range of a run, the round that had it, and the epochs joined so far."""

    def __init__(self, folder: Path, run: int) -> None:
        self._path = folder / f"run-{run}.json"

    def check(self, policy: Policy, plan: Plan, round_id: RoundId) -> None:
        """Refuse a range too far from the last one, or one epoch more than the policy allows."""
        known = self._read()
        if known is None:
            return
        half = known["half_width"]
        rounds = min(max(1, round_id.number - known["number"]), _MOST_ROUNDS)
        policy.check_change(plan.value_range, (-half, half), rounds=rounds)
        new = plan.has_several_blocks and epoch_of(plan).hex() not in known["epochs"]
        if new and len(known["epochs"]) >= policy.max_epochs:
            raise PlanError(
                "assignment",
                f"users are assigned anew, after {len(known['epochs'])} epochs of this run; this client's policy "
                f"accepts {policy.max_epochs}: a server that assigns users anew again and again solves for single ones",
            )

    def note(self, plan: Plan, round_id: RoundId) -> None:
        """Keep the range and the epoch that are masked under now."""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise LocalFileError(f"cannot write {self._path}: {error}") from None
        with locked(self._path.with_suffix(".lock")):
            self._note(plan, round_id)

    def _note(self, plan: Plan, round_id: RoundId) -> None:
        before = self._read()
        epochs = [] if before is None else before["epochs"]
        epoch = epoch_of(plan).hex()
        if plan.has_several_blocks and epoch not in epochs:
            epochs = [*epochs, epoch]
        low, high = plan.value_range
        known = {
            "number": round_id.number,
            "half_width": (high - low) / 2,
            "epochs": epochs,
        }
        try:
            fresh = self._path.with_suffix(".tmp")
            fresh.write_text(json.dumps(known), encoding="utf-8")
            fresh.replace(self._path)
        except OSError as error:
            raise LocalFileError(f"cannot write {self._path}: {error}") from None

    def _read(self) -> dict[str, Any] | None:
        """What is known of this run, None if nothing is."""
        try:
            if not self._path.exists():
                return None
            known = json.loads(self._path.read_text(encoding="utf-8"))
            half = float(known["half_width"])
            if not 0 < half < math.inf:
                raise ValueError("its half width is not a positive number")
            epochs = [str(epoch) for epoch in known["epochs"]]
            return {"number": int(known["number"]), "half_width": half, "epochs": epochs}
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise LocalFileError(f"cannot read {self._path}: {error}") from None
