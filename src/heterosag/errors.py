"""The error tree. Each error says what it proves about whom.

Every error of this package is a `HeteroSagError`, so one `except` catches them all. The first question after an error
is whose fault it is, and the tree answers that:

- `UsageError`, `PlanError`, `LocalFileError`, `InfeasibleError`: the caller's own.
- `WireError`: bytes that no honest sender produces, from the sender named.
- `FaultyUserError`: the user named broke the protocol, provably.
- `FaultyBlockError`: somebody in the blocks named did; masks hide who.
- `FaultyServerError`: the server asked a client for what it must not have. The client released nothing.
- `TooFewSurvivorsError`: nobody's fault; the round cannot go on without exposing somebody.
- `ExposedUsersError`: nobody's fault; with the rounds before, this one would reveal the sum of the few users named.
- `BudgetError`: nobody's fault; the round would cost this user more privacy than its policy allows.
- `FailedCohortsError`: every cohort's round ended with an error of its own.
- `WithheldError`: the users named did not answer in an enrolment, which starts again without them.
- `StoppedRunError`: too many rounds of a run on Flower failed in a row; the reasons are named.
- `AbandonedRoundError`: the round was given up, and nothing is asked for again under its context.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = [
    "AbandonedRoundError",
    "BudgetError",
    "ExposedUsersError",
    "FailedCohortsError",
    "FaultyBlockError",
    "FaultyServerError",
    "FaultyUserError",
    "HeteroSagError",
    "InfeasibleError",
    "LocalFileError",
    "PlanError",
    "StoppedRunError",
    "TooFewSurvivorsError",
    "UsageError",
    "WireError",
    "WithheldError",
]

Name = int | str


class HeteroSagError(Exception):
    """Base of every error that this package raises on purpose. It stays what it is between processes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[HeteroSagError], args: tuple[Any, ...], values: dict[str, Any]) -> HeteroSagError:
    """An error from another process, with its message and what it names."""
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(values)
    return error


class UsageError(HeteroSagError, ValueError):
    """Local misuse: an argument that the called function cannot take. Proves nothing about other parties."""


class LocalFileError(UsageError):
    """A file that this party needs cannot be used. The message names it, and is for this party's eyes only."""


class PlanError(HeteroSagError, ValueError):
    """A plan that must not be used. `field` names the value to change."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class InfeasibleError(HeteroSagError, ValueError):
    """No plan meets all requirements. `contradiction` names two that clash, `nearest` is a plan for less, if any."""

    def __init__(self, contradiction: tuple[str, str], nearest: Any, instead: str) -> None:
        super().__init__(f"{contradiction[0]} and {contradiction[1]} contradict each other; possible: {instead}")
        self.contradiction = contradiction
        self.nearest = nearest


class WireError(HeteroSagError):
    """Bytes that no honest sender produces, or a message repeated when its answer is no longer kept.

    `sender` is who they came from, if known.
    """

    def __init__(self, problem: str, *, sender: Name | None = None) -> None:
        origin = "" if sender is None else f"from {sender!r}: "
        super().__init__(f"{origin}{problem}")
        self.problem = problem
        self.sender = sender


class FaultyUserError(HeteroSagError):
    """The named user broke the protocol in a way that everybody who saw the messages can check."""

    def __init__(self, user: Name, problem: str) -> None:
        super().__init__(f"user {user!r}: {problem}")
        self.user = user
        self.problem = problem


class FaultyBlockError(HeteroSagError):
    """Decoded blocks that honest users cannot make: `blocks` are pairs of segment and subgroups.

    `users` dealt or released false shares in this round: leave them out of the next ones.
    """

    def __init__(
        self, blocks: Iterable[tuple[int, tuple[int, ...]]], problem: str, *, users: Iterable[Name] = ()
    ) -> None:
        self.blocks = tuple(blocks)
        self.users = tuple(users)
        named = ", ".join(f"subgroups {list(subgroups)} in segment {segment}" for segment, subgroups in self.blocks)
        super().__init__(f"{problem}: {named}")
        self.problem = problem


class FaultyServerError(HeteroSagError):
    """The server's message must not be answered.

    Proves that the server is malicious, that the plan differs, or, where the message says that a step is not possible
    now, that one before it was lost on its way.
    """


class TooFewSurvivorsError(HeteroSagError):
    """No admissible set of survivors is left. `reason` is thresholds, min_survivors or robustness."""

    def __init__(self, reason: str, problem: str) -> None:
        super().__init__(problem)
        self.reason = reason


class ExposedUsersError(HeteroSagError):
    """Sums over these survivors would, with those of earlier rounds, reveal the sum of `users` alone.

    `over_epochs` says that the rounds of other epochs count too, so that a new one does not help.
    """

    def __init__(self, users: Iterable[Name], *, over_epochs: bool = False) -> None:
        self.users = tuple(users)
        advice = (
            "begin a round with other survivors. A new epoch does not help, and where users are sampled such a ledger "
            "comes to refuse every round, which is why only hide_sets_below turns it on"
            if over_epochs
            else "begin a new epoch, or a round with other survivors"
        )
        super().__init__(
            f"with the rounds before, this one would reveal the sum of users {list(self.users)} alone: {advice}"
        )


class BudgetError(HeteroSagError):
    """A round more would exceed this user's privacy budget: `epsilon` is spent of `limit`, at `delta`."""

    def __init__(self, epsilon: float, limit: float, delta: float) -> None:
        super().__init__(
            f"epsilon {epsilon:.3g} of {limit:g} is spent at delta {delta:g}, and this round would exceed the rest: "
            "this user takes part in no more of them"
        )
        self.epsilon = epsilon
        self.limit = limit
        self.delta = delta


class FailedCohortsError(HeteroSagError):
    """The round of every cohort ended with an error: `errors` has each one's, by the cohort's index."""

    def __init__(self, errors: Mapping[int, HeteroSagError]) -> None:
        self.errors = dict(errors)
        first = min(self.errors)
        super().__init__(
            f"all {len(self.errors)} cohorts failed, cohort {first} with {type(self.errors[first]).__name__}: "
            f"{self.errors[first]}"
        )


class WithheldError(HeteroSagError):
    """An enrolment ends because `users` did not answer; start it again without them."""

    def __init__(self, users: Iterable[Name], what: str) -> None:
        self.users = tuple(users)
        super().__init__(f"users {list(self.users)} gave no {what}: start again with a charter without them")


class StoppedRunError(HeteroSagError):
    """A run was stopped because too many of its rounds failed in a row. `reasons` has each distinct reason once.

    Args:
        rounds: How many rounds failed in a row.
        reasons: Why, each with how often.
    """

    def __init__(self, rounds: int, reasons: list[str]) -> None:
        self.rounds = rounds
        self.reasons = reasons
        super().__init__(f"stopped after {rounds} failed rounds in a row (stop_after): " + "; ".join(reasons))


class AbandonedRoundError(HeteroSagError):
    """The round is over without a result, by the server's own decision or because it was restarted."""
