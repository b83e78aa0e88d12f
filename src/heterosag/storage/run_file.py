"""What a node remembers of a run on its disk: ranges, epochs, what it enrolled for, and when it evaluated last.

A node runs in a new process for every message, so this is a file beside its release log. It bounds what a server gains
from rounds that are all admissible by themselves: a range that jumps, users who are assigned anew in every round, one
enrolment after another until the seed is to the server's liking, one evaluation after another of the same model. It is
kept by the run that Flower names to the node, not by the session, which the server's side chooses for each round.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec

from heterosag.errors import FaultyServerError, LocalFileError, PlanError
from heterosag.ledger import epoch_of
from heterosag.plan import Plan
from heterosag.protocol.policy import Policy
from heterosag.storage.locks import locked

__all__ = ["RunFile"]

_MOST_ROUNDS = 4  # missed ones that widen what a range may change by: their number is the server's word


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a run; `number` and `half_width` are of the last round that was masked."""

    number: int
    half_width: Annotated[float, msgspec.Meta(gt=0)] | None
    epochs: list[str]
    enrolments: int
    enrolled: list[str]
    evaluated: int | None


_NOTHING = _Known(number=0, half_width=None, epochs=[], enrolments=0, enrolled=[], evaluated=None)


class RunFile:
    """The last range of a run, its epochs and enrolments so far, and the evaluation since the last training."""

    def __init__(self, folder: Path, run: int) -> None:
        self._path = folder / f"run-{run}.json"

    def check_epoch(self, policy: Policy, plan: Plan) -> None:
        """Refuse one epoch more than the policy allows."""
        epochs = self._read().epochs
        if plan.has_several_blocks and epoch_of(plan).hex() not in epochs and len(epochs) >= policy.max_epochs:
            raise PlanError(
                "assignment",
                f"users are assigned anew, after {len(epochs)} epochs of this run; this client's policy "
                f"accepts {policy.max_epochs}: a server that assigns users anew again and again solves for single ones",
            )

    def check_range(self, policy: Policy, plan: Plan, number: int) -> None:
        """Refuse a range too far from the last one."""
        known = self._read()
        if known.half_width is not None:
            rounds = min(max(1, number - known.number), _MOST_ROUNDS)
            policy.check_change(plan.value_range, (-known.half_width, known.half_width), rounds=rounds)

    def has_enrolled(self, plan: Plan) -> bool:
        """Whether this is a plan that this node has drawn with the others."""
        return plan.frame.hex() in self._read().enrolled

    def note_round(self, plan: Plan, number: int) -> None:
        """Keep the range and the epoch that are masked under now."""
        epoch, (low, high) = epoch_of(plan).hex(), plan.value_range

        def note(known: _Known) -> _Known:
            new = plan.has_several_blocks and epoch not in known.epochs
            epochs = [*known.epochs, epoch] if new else known.epochs
            return msgspec.structs.replace(
                known, number=number, half_width=(high - low) / 2, epochs=epochs, evaluated=None
            )

        self._change(note)

    def note_evaluation(self, number: int) -> None:
        """Keep that this node evaluates now; refuse a second evaluation without a round of training between them."""

        def note(known: _Known) -> _Known:
            if known.evaluated not in (None, number):
                raise FaultyServerError("asked to evaluate again before this node has trained another round")
            return msgspec.structs.replace(known, evaluated=number)

        self._change(note)

    def note_enrolment(self, policy: Policy) -> None:
        """Keep that this node draws an assignment now; refuse one more than the policy allows epochs."""

        def note(known: _Known) -> _Known:
            if known.enrolments >= policy.max_epochs:
                raise PlanError(
                    "assignment",
                    f"users draw their assignment once more, after {known.enrolments} times in this run; this "
                    f"client's policy accepts {policy.max_epochs}: a server that starts over again and again chooses "
                    "among as many",
                )
            return msgspec.structs.replace(known, enrolments=known.enrolments + 1)

        self._change(note)

    def note_enrolled(self, plan: Plan) -> None:
        """Keep the plan that this node has drawn with the others."""
        frame = plan.frame.hex()
        self._change(lambda known: msgspec.structs.replace(known, enrolled=[*known.enrolled, frame]))

    def _change(self, change: Callable[[_Known], _Known]) -> None:
        """Read, change and write under a lock: two programs of one node may be at it at once."""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with locked(self._path.with_suffix(".lock")):
                fresh = self._path.with_suffix(".tmp")
                fresh.write_bytes(msgspec.json.encode(change(self._read())))
                fresh.replace(self._path)
        except OSError as error:
            raise LocalFileError(f"cannot write {self._path}: {error}") from None

    def _read(self) -> _Known:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_Known) if self._path.exists() else _NOTHING
        except (OSError, msgspec.MsgspecError) as error:
            raise LocalFileError(f"cannot read {self._path}: {error}") from None
