"""A client's privacy budget: what rounds with noise have cost it, and the refusal of the one beyond its policy.

A round is charged when its masked vector is about to leave, whether or not the round ends, over all plans and epochs.
The client computes the cost itself from the plan, for whoever sees all sums. It assumes that the server chose each plan
in view of the rounds before, so the sum is kept by a privacy filter (`Accountant.filter`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

from heterosag.errors import BudgetError
from heterosag.plan import CohortPlan, Plan
from heterosag.plan.cohorts import plans_of
from heterosag.privacy import Accountant, NoisyRound
from heterosag.protocol.policy import Policy

__all__ = ["Budget", "Charges", "MemoryBudget", "add_charge", "event_of"]

Charges = list[dict[str, Any]]
"""Rounds charged so far, as `Accountant.state_dict` has them."""


class Budget(Protocol):
    """Remembers, for good, what rounds cost one user."""

    def check(self, plan: Plan, policy: Policy) -> None:
        """Refuse a round that would exceed the policy.

        Args:
            plan: The plan of the round.
            policy: What this client allows.

        Raises:
            BudgetError: It would.
        """

    def charge(self, plan: Plan, policy: Policy) -> None:
        """Persist the charge of a round before returning.

        Args:
            plan: The plan of the round.
            policy: What this client allows.

        Raises:
            BudgetError: It would exceed the policy.
        """


class MemoryBudget:
    """A budget for a client that lives and dies with its process.

    Example:
        >>> from heterosag import BudgetError, Plan, Policy
        >>> from heterosag.protocol.budget import MemoryBudget
        >>> plan = Plan.build([40], [2], 10_000, design="secagg", subgroup_size=40, min_block_survivors=32,
        ...     clipping_norm=1.0, noise_multiplier=4.0)
        >>> budget, policy = MemoryBudget(), Policy(max_epsilon=1.2, delta=1e-5)
        >>> budget.charge(plan, policy)
        >>> try:
        ...     budget.charge(plan, policy)
        ... except BudgetError:
        ...     print("the budget is spent")
        the budget is spent
    """

    def __init__(self) -> None:
        self._charges: Charges = []

    def check(self, plan: Plan, policy: Policy) -> None:
        """Refuse a round that would exceed the policy.

        Args:
            plan: The plan of the round.
            policy: What this client allows.

        Raises:
            BudgetError: It would.
        """
        add_charge(self._charges, plan, policy)

    def charge(self, plan: Plan, policy: Policy) -> None:
        """Keep the charge of a round.

        Args:
            plan: The plan of the round.
            policy: What this client allows.

        Raises:
            BudgetError: It would exceed the policy.
        """
        self._charges = add_charge(self._charges, plan, policy)


def event_of(plan: Plan | CohortPlan) -> NoisyRound:
    """A round of a plan as a client charges it: where a plan may fail, the failure counts once for every plan.

    Args:
        plan: The plan of the round, or its cohorts, for a user of any of them.

    Returns:
        What the accountant takes.
    """
    event = NoisyRound.of(plan)
    if not event.failure_probability:
        return event
    return replace(event, epoch=int.from_bytes(plans_of(plan)[0].frame[:6], "little"))


def add_charge(charges: Charges, plan: Plan | CohortPlan, policy: Policy) -> Charges:
    """The charges with a round of this plan; without a limit it is only counted.

    Args:
        charges: The rounds so far.
        plan: A plan with noise, or cohorts.
        policy: Has the limit and its delta.

    Returns:
        The rounds with the new one; what was given is as it was.

    Raises:
        BudgetError: The round would exceed the limit.
        UsageError: Charges that no budget wrote.
    """
    limit = policy.max_epsilon
    accountant = (
        Accountant(target_delta=policy.delta)
        if limit is None
        else Accountant.filter(max_epsilon=limit, target_delta=policy.delta)
    )
    accountant.load_state_dict(accountant.state_dict() | {"composed": charges})
    event = event_of(plan)
    if limit is not None and accountant.would_exceed(event):
        raise BudgetError(accountant.get_epsilon(policy.delta), limit, policy.delta)
    accountant.compose(event)
    composed: Any = accountant.state_dict()["composed"]
    return list(composed)
