"""A node's memory of a run, in a file on its disk: ranges, models, epochs, enrolments, and when it evaluated last.

A node runs in a new process for every message, so this is a file beside its release log. It bounds what a server gains
from rounds that are all admissible by themselves: a range that jumps, one model trained again and again, users who are
assigned anew in every round, one enrolment after another until the seed is to the server's liking, one evaluation after
another of the same model. It is kept by the run that Flower names to the node, not by the session, which the server's
side chooses for each round.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from heterosag.errors import FaultyServerError, LocalFileError, PlanError
from heterosag.ledger import epoch_of
from heterosag.plan import Plan, User
from heterosag.protocol.policy import Policy
from heterosag.storage.durable_file import make_folder, replace_file
from heterosag.storage.locks import locked

__all__ = ["NodeMemory", "RunMemory"]


_NAME_BYTES = 16  # of a model's digest: a server gains nothing from two models of one name


_Positive = Annotated[float, msgspec.Meta(gt=0)]


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a run: `array_widths` of the last round and the `names` of its arrays, rounds by `models`.

    `unfinished` are the charters for which this node has revealed since it last finished an enrolment, `drawn_with` all
    users of theirs.
    `width_factors` are those of the last round's plan; a file that was written without them is compared without them.
    `weight_unit` is how many examples made a weight of one. `cohorts` are those of `enrolled` that are one of several.
    """

    names: list[str]
    array_widths: list[tuple[Annotated[int, msgspec.Meta(ge=0)], _Positive]]
    models: dict[str, int]
    epochs: list[str]
    enrolments: int
    enrolled: list[str]
    evaluated: bool
    unfinished: list[str] = []
    drawn_with: list[str] = []
    width_factors: tuple[_Positive, _Positive, Annotated[int, msgspec.Meta(ge=1)]] | None = None
    weight_unit: Annotated[int, msgspec.Meta(ge=1)] = 1
    cohorts: list[str] = []


_NOTHING = _Known(names=[], array_widths=[], models={}, epochs=[], enrolments=0, enrolled=[], evaluated=False)


class RunMemory(ABC):
    """The last range of a run, its models, epochs and enrolments so far, and the evaluation since the last training.

    Where they are kept, a subclass says.
    """

    def check_epoch(self, policy: Policy, plan: Plan) -> None:
        """Refuse one epoch more than the policy allows."""
        _check_epoch(self._read(), policy, plan)

    def has_enrolled(self, plan: Plan) -> bool:
        """Whether this is a plan that this node has drawn with the others."""
        return plan.frame.hex() in self._read().enrolled

    def is_cohort(self, plan: Plan) -> bool:
        """Whether this is the plan of this node's own among several cohorts that it has drawn with the others."""
        return plan.frame.hex() in self._read().cohorts

    def note_round(
        self, policy: Policy, plan: Plan, model: bytes, names: Sequence[str] = (), *, weight_unit: int = 1
    ) -> None:
        """Keep the range, the model and the epoch of a round before this node trains; refuse one beyond the policy.

        A range must not be too far from the one of the round before, however many rounds ago that was: how many it was
        is the server's word, which would otherwise widen what the policy allows. The names of the arrays, in order, say
        which elements are the same, `weight_unit` how many examples make a weight of one. Two programs of one node may
        be at it at once: all are checked under the lock that the note is under.
        """
        epoch = epoch_of(plan).hex()

        def note(known: _Known) -> _Known:
            _check_epoch(known, policy, plan)
            _check_range(known, policy, plan, list(names), weight_unit)
            _check_model(known, policy, model)
            new = plan.has_several_blocks and epoch not in known.epochs
            epochs = [*known.epochs, epoch] if new else known.epochs
            models = {**known.models, _name(model): known.models.get(_name(model), 0) + 1}
            return msgspec.structs.replace(
                known,
                names=list(names),
                array_widths=list(plan.array_widths),
                width_factors=plan.width_factors,
                weight_unit=weight_unit,
                models=models,
                epochs=epochs,
                evaluated=False,
            )

        self._change(note)

    def note_evaluation(self) -> None:
        """Keep that this node evaluates; refuse a second time without a round of training between them.

        Which evaluation it was does not count: sessions and numbers are the server's word.
        """

        def note(known: _Known) -> _Known:
            _check_evaluation(known)
            return msgspec.structs.replace(known, evaluated=True)

        self._change(note)

    def check_enrolment(self, policy: Policy, charter: bytes, users: Sequence[User]) -> None:
        """Refuse a charter that `note_enrolment` would refuse: who could not reveal must not commit.

        Whoever commits and does not reveal ends the enrolment for the others, and is taken for malicious.
        """
        _check_enrolment(self._read(), policy, charter.hex(), users)

    def note_enrolment(self, policy: Policy, charter: bytes, users: Sequence[User]) -> None:
        """Keep that this node reveals for a charter now; refuse one more than the policy allows epochs.

        A server that has seen all nonces knows the assignment. So that it does not start over with the same users until
        it likes one, a charter must lack a user for each that this node has revealed for and not finished.

        Args:
            policy: How many epochs a run may have.
            charter: What names the charter.
            users: Its users.
        """
        name = charter.hex()

        def note(known: _Known) -> _Known:
            _check_enrolment(known, policy, name, users)
            if name in known.unfinished:
                return known
            return msgspec.structs.replace(
                known,
                enrolments=known.enrolments + 1,
                unfinished=[*known.unfinished, name],
                drawn_with=sorted({*known.drawn_with, *map(str, users)}),
            )

        self._change(note)

    def note_enrolled(self, plan: Plan, *, cohort: bool = False) -> None:
        """Keep the plan that this node has drawn with the others, and forget what came to nothing before it.

        Args:
            plan: The plan.
            cohort: Whether it is that of one of several cohorts.
        """
        frame = plan.frame.hex()
        self._change(
            lambda known: msgspec.structs.replace(
                known,
                enrolled=[*known.enrolled, frame],
                cohorts=[*known.cohorts, frame] if cohort else known.cohorts,
                unfinished=[],
                drawn_with=[],
            )
        )

    def _change(self, change: Callable[[_Known], _Known]) -> None:
        self._rewrite(lambda data: msgspec.json.encode(change(_decode(data, str(self)))))

    def _read(self) -> _Known:
        return _decode(self._load(), str(self))

    @abstractmethod
    def _load(self) -> bytes | None:
        """What was written, None if there are none yet."""

    @abstractmethod
    def _rewrite(self, change: Callable[[bytes | None], bytes]) -> None:
        """Read, change and write, with nobody else at it in between."""


class NodeMemory(RunMemory):
    """Memory of a run in a file of a folder, which it makes."""

    def __init__(self, folder: Path, run: int) -> None:
        self._path = folder / f"run-{run}.json"

    def __str__(self) -> str:
        return str(self._path)

    def _load(self) -> bytes | None:
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LocalFileError(f"cannot read {self._path}: {error}") from None

    def _rewrite(self, change: Callable[[bytes | None], bytes]) -> None:
        """Under a lock: two programs of one node may be at it at once."""
        try:
            make_folder(self._path.parent)
            with locked(self._path.with_suffix(".lock")):
                replace_file(self._path, change(self._load()))
        except OSError as error:
            raise LocalFileError(f"cannot write {self._path}: {error}") from None


def _decode(data: bytes | None, where: str) -> _Known:
    try:
        return _NOTHING if data is None else msgspec.json.decode(data, type=_Known)
    except msgspec.MsgspecError as error:
        raise LocalFileError(
            f"cannot read {where}: {error}. If another version of heterosag wrote it, only that one can go on with the "
            "run: end the run, and remove the file"
        ) from None


def _check_epoch(known: _Known, policy: Policy, plan: Plan) -> None:
    epochs = known.epochs
    if plan.has_several_blocks and epoch_of(plan).hex() not in epochs and len(epochs) >= policy.max_epochs:
        raise PlanError(
            "assignment",
            f"users are assigned anew, after {len(epochs)} epochs of this run; this client's policy "
            f"accepts {policy.max_epochs}: a server that assigns users anew again and again solves for single ones",
        )


def _check_enrolment(known: _Known, policy: Policy, charter: str, users: Sequence[User]) -> None:
    if charter in known.unfinished:  # the same message again
        return
    if known.enrolments >= policy.max_epochs:
        raise PlanError(
            "assignment",
            f"users draw their assignment once more, after {known.enrolments} times in this run; this client's policy "
            f"accepts {policy.max_epochs}: a server that starts over again and again chooses among as many",
        )
    missing = len(set(known.drawn_with) - set(map(str, users)))
    if missing < len(known.unfinished):
        raise FaultyServerError(
            f"asked to draw again after {len(known.unfinished)} enrolments that this node has revealed in and not "
            f"finished, {missing} of their users left out: a server that starts over leaves out one for each"
        )


def _check_range(known: _Known, policy: Policy, plan: Plan, names: list[str], weight_unit: int) -> None:
    """A node of n examples has the weight n / unit, but at most the largest: so it is held to the range times the
    largest weight, times the unit, over n, or to the range itself. None of them may change too much."""
    if not known.array_widths:
        return
    same = names == known.names
    if known.width_factors is None:
        policy.check_change(plan.array_widths, known.array_widths, same_elements=same)
        return
    (low, high, weight), (low_before, high_before, weight_before) = plan.width_factors, known.width_factors
    for unit, unit_before in ((1, 1), (weight_unit, known.weight_unit)):
        factors = (low, high, weight * unit), (low_before, high_before, weight_before * unit_before)
        policy.check_change(plan.array_widths, known.array_widths, same_elements=same, factors=factors)


def _check_model(known: _Known, policy: Policy, model: bytes) -> None:
    rounds = known.models.get(_name(model), 0)
    if rounds >= policy.max_rounds_of_a_model:
        raise PlanError(
            "model",
            f"asked for another round of one model after {rounds}; this client's policy accepts "
            f"{policy.max_rounds_of_a_model}: sums of the same updates, round after round, show them ever more exactly",
        )


def _name(model: bytes) -> str:
    return model[:_NAME_BYTES].hex()


def _check_evaluation(known: _Known) -> None:
    if known.evaluated:
        raise FaultyServerError("asked to evaluate again before this node has trained another round")
