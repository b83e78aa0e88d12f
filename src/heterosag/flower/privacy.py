"""Differential privacy on Flower: what the grid is asked for, and what its rounds have cost so far.

The grid plans the noise and ends rounds beyond its target; the nodes do not rely on that. A node whose policy has a
`max_epsilon` counts by itself, on its own disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from logging import INFO
from typing import Any

from flwr.common.logger import log

from heterosag.errors import BudgetError, UsageError
from heterosag.plan import CohortPlan, Plan
from heterosag.privacy import Accountant
from heterosag.protocol.budget import event_of
from heterosag.storage.privacy_record import describe_privacy

__all__ = ["GridBudget", "Privacy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Privacy:
    """What a `SecureGrid` is asked for: noise with which so many rounds stay within a target.

    Args:
        clipping_norm: Largest norm of an update; larger ones are scaled down by their nodes.
        target_epsilon: Largest epsilon of all rounds, against whoever sees all sums.
        target_delta: Delta of that epsilon.
        rounds: Rounds that must be possible within it.
        adaptive_clip: Let the clipping norm follow the median norm of the updates, by a noisy bit of every node, which
            is charged too.

    Raises:
        UsageError: A number has no meaning; the message says which.
    """

    clipping_norm: float
    target_epsilon: float
    rounds: int
    target_delta: float = 1e-5
    adaptive_clip: bool = False

    def __post_init__(self) -> None:
        Accountant.filter(max_epsilon=self.target_epsilon, target_delta=self.target_delta)
        if not self.clipping_norm > 0:
            raise UsageError(f"clipping_norm is above 0, not {self.clipping_norm!r}")
        if isinstance(self.rounds, bool) or self.rounds < 1:
            raise UsageError(f"rounds is an integer of at least 1, not {self.rounds!r}")

    @property
    def target(self) -> dict[str, Any]:
        """What the planner takes to fit a plan's noise to it."""
        names = ("clipping_norm", "target_epsilon", "target_delta", "rounds")
        return {name: getattr(self, name) for name in names}


class GridBudget:
    """Adds up what the rounds of a grid cost a node that takes part in all of them.

    Args:
        asked: The target.
        mean: Whether the rule is the mean, without which nothing is said of whoever sees the models only.
        identities: Whether nodes sign.
    """

    def __init__(self, asked: Privacy, *, mean: bool, identities: bool) -> None:
        self._asked, self._mean, self._identities = asked, mean, identities
        self._server, self._model = _accountants(asked)
        self._full = False

    def state_dict(self) -> dict[str, Any]:
        """The charges so far, in JSON types."""
        return {"server": self._server.state_dict(), "model": self._model.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from charges of a program before, with one round more: it may have begun after the state was saved.

        That round is taken for one like the last that was charged, and counts among the rounds of the record. Where it
        is beyond the target there are no rounds left; a state without charges has none more.

        Args:
            state: What `state_dict` returned.

        Raises:
            UsageError: It is no such state; the budget is as it was.
        """
        if set(state) != {"server", "model"}:
            raise UsageError("a grid's budget has the charges of two views")
        server, model = _accountants(self._asked)
        server.load_state_dict(state["server"])
        model.load_state_dict(state["model"])
        last = server.last_event
        full = last is not None and server.would_exceed(last)
        if last is not None and not full:
            server.compose(last)
            model.compose(last)
        self._server, self._model, self._full = server, model, full
        if last is not None and not full:
            log(INFO, "one round more is charged, for one that may have begun after the state was saved")

    def charge(self, plan: Plan | CohortPlan) -> dict[str, Any]:
        """Charge a round before it begins, whether or not it will end.

        Args:
            plan: Its plan, or its cohorts, which have the same noise: the charge holds for a node of any.

        Returns:
            What the record says of it.

        Raises:
            BudgetError: It would exceed the target; it is not charged.
        """
        delta, event = self._asked.target_delta, event_of(plan)
        if self._full or self._server.would_exceed(event):
            raise BudgetError(self._server.get_epsilon(delta), self._asked.target_epsilon, delta)
        self._server.compose(event)
        self._model.compose(event)
        server = self._server.get_epsilon(delta)
        model = min(server, self._model.get_epsilon(delta)) if self._mean else None
        return describe_privacy(
            plan,
            epsilon_server=server,
            epsilon_model=model,
            delta=delta,
            rounds=self._server.num_releases,
            identities=self._identities,
        )


def _accountants(asked: Privacy) -> tuple[Accountant, Accountant]:
    """What counts rounds against whoever sees all sums, and against whoever sees the models only."""
    server = Accountant.filter(max_epsilon=asked.target_epsilon, target_delta=asked.target_delta)
    return server, Accountant(target_delta=asked.target_delta, view="model")
