"""Plans for more users than one cohort has: found for the users of one cohort, built for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

from heterosag.errors import PlanError, UsageError
from heterosag.plan import CohortPlan, Plan
from heterosag.plan.costs import largest_vectors
from heterosag.planner.noise import fit_plan
from heterosag.planner.optimize import Proposal, best
from heterosag.planner.requirements import Requirements

__all__ = ["CohortProposal", "best_cohorts", "fit_cohorts"]


_PARTS = (1.0, 0.97, 0.9, 0.8)
"""Of the deadline, tried in turn: cohorts that are smaller by one user may be cut otherwise, and send a little more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CohortProposal:
    """The best plan found for a cohort, and the cohorts of all users that are built like it.

    Args:
        plan: The plans of all cohorts.
        cohort: What was found for the users of one cohort.
        error: The bound on the error of the mean of all users.
        order: Users by rate, which are the plan's.
        seconds: How long each class's slowest user, of all cohorts, uploads its masked vector.
        bytes: How large that is, in the cohort where it is largest.
    """

    plan: CohortPlan
    cohort: Proposal
    error: float
    order: tuple[int, ...]
    seconds: tuple[float, ...]
    bytes: tuple[int, ...]


def best_cohorts(
    requirements: Requirements, *, cohort_size: int, assignment_seed: int | bytes | None = None
) -> CohortProposal:
    """The plan with the least error bound for the users of one cohort, carried over to all of them.

    Of users sorted by rate every n-th, from the slowest on, makes the cohort that the plan is found for: its class g
    begins with the user who is also the slowest of that class among all. `corrupt`, `attackers` and `failure` are of a
    cohort.

    Args:
        requirements: What the plan of a cohort must meet.
        cohort_size: Users that a cohort has at most.
        assignment_seed: Public seed of the split and the subgroups.

    Returns:
        The plans, and what they cost.

    Raises:
        InfeasibleError: No plan for a cohort meets the requirements.
        PlanError: A class has too few users for so many cohorts, or some cohort's uploads cannot be in time.
        UsageError: A cohort has fewer users than a plan can be for.

    Example:
        >>> from heterosag.planner import Requirements
        >>> from heterosag.planner.cohorts import best_cohorts
        >>> asked = Requirements(rates=(1.0,) * 60 + (4.0,) * 60, dimension=1000, deadline=0.02, value_range=0.5)
        >>> found = best_cohorts(asked, cohort_size=40)
        >>> len(found.plan.plans), max(found.seconds) <= 0.02
        (3, True)
    """
    order = tuple(sorted(range(len(requirements.rates)), key=lambda user: (requirements.rates[user], user)))
    rates = [requirements.rates[user] for user in order]
    count = -(-len(rates) // cohort_size) if cohort_size > 0 else 0
    if count < 1 or len(rates) // count < 4:
        raise UsageError(f"cohorts of at most {cohort_size!r} users are too small: a plan is for 4 users or more")
    for part in _PARTS:
        limits = {"deadline": requirements.deadline, "bits": requirements.bits}
        less: dict[str, Any] = {name: type(value)(part * value) for name, value in limits.items() if value is not None}
        found = best(replace(requirements, rates=tuple(rates[::count]), **less))
        proposal = _carry_over(found, order, rates, count, cohort_size, assignment_seed)
        slowest = (rates[first] for first in accumulate(proposal.plan.classes[:-1], initial=0))
        if all(8 * size <= requirements.budget(rate) for size, rate in zip(proposal.bytes, slowest, strict=True)):
            break
    else:
        raise PlanError("cohort_size", "no plan was found whose uploads are in time in the smaller cohorts too")
    return proposal


def _carry_over(
    found: Proposal,
    order: tuple[int, ...],
    rates: Sequence[float],
    count: int,
    cohort_size: int,
    assignment_seed: int | bytes | None,
) -> CohortProposal:
    """The cohorts of all users in the classes of one cohort's plan, and what they send."""
    firsts = [count * first for first in accumulate(found.plan.classes[:-1], initial=0)]
    classes = [stop - start for start, stop in pairwise([*firsts, len(rates)])]
    plan = CohortPlan.build(
        **found.plan.arguments()
        | {"classes": classes, "users": list(order), "min_robustness": None, "assignment_seed": assignment_seed},
        cohort_size=cohort_size,
    )
    sent = largest_vectors(plan.plans)
    return CohortProposal(
        plan=plan,
        cohort=found,
        error=plan.error_bound(),
        order=order,
        seconds=tuple(size * 8 / (rates[first] * 1e6) for size, first in zip(sent, firsts, strict=True)),
        bytes=tuple(sent),
    )


def fit_cohorts(arguments: Mapping[str, Any], *, cohort_size: int, **target: Any) -> CohortPlan:
    """Cohorts with the noise of a privacy target: the same for all, as much as the dearest cohort needs.

    Args:
        arguments: What `CohortPlan.build` takes, but ranges and noise; `min_block_survivors` among them is kept.
        cohort_size: Users that a cohort has at most.
        target: What `heterosag.planner.private.fit_plan` takes beside its arguments.

    Returns:
        The plans of all cohorts.

    Raises:
        PlanError: The arguments make no plan.
        UsageError: No noise meets the target.

    Example:
        >>> from heterosag.planner.cohorts import fit_cohorts
        >>> shape = {"classes": [81], "levels": [2], "dimension": 900, "design": "secagg", "subgroup_size": 40}
        >>> target = {"clipping_norm": 1.0, "target_epsilon": 8.0, "target_delta": 1e-5, "rounds": 2}
        >>> plan = fit_cohorts(shape, cohort_size=41, **target)
        >>> len(plan.plans), plan.noise_multiplier > 0
        (2, True)
    """
    named = {name: value for name, value in arguments.items() if name != "value_range"}
    shape = CohortPlan.build(**named | {"adaptive_clip": False}, cohort_size=cohort_size, value_range=1.0)
    own = {name: value for name, value in named.items() if name not in ("users", "assignment_seed")}
    each = {plan.classes: plan for plan in shape.plans}
    fitted = [fit_plan(own | {"classes": classes}, **target) for classes in each]
    least = min(plan.min_block_survivors for plan in fitted)
    if any(plan.min_block_survivors != least for plan in fitted):
        fitted = [fit_plan(own | {"classes": classes, "min_block_survivors": least}, **target) for classes in each]
    most = max(fitted, key=lambda plan: plan.noise_multiplier)
    return CohortPlan.build(**named | _noise_of(most), cohort_size=cohort_size)


def _noise_of(plan: Plan) -> dict[str, Any]:
    return {
        "clipping_norm": plan.clipping_norm,
        "noise_multiplier": plan.noise_multiplier,
        "min_block_survivors": plan.min_block_survivors,
        "colluders": plan.colluders,
    }
