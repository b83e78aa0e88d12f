"""Noise for a plan that is given otherwise: just what a privacy target needs, and the least survivors of its blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heterosag.choices import View
from heterosag.plan import Plan
from heterosag.plan import dropout as chances
from heterosag.plan.design import Design
from heterosag.plan.sharing import majority
from heterosag.privacy import NoisyRound, noise_multiplier_for, noise_within_budget

__all__ = ["count_on", "fit_noise", "fit_plan", "least_block_survivors"]


def fit_noise(
    arguments: Mapping[str, Any],
    *,
    target_epsilon: float,
    target_delta: float,
    rounds: int,
    view: View = "server",
    survivors: int | None = None,
) -> Plan:
    """A plan with just the noise that a target needs.

    Args:
        arguments: What `Plan.build` takes but the noise multiplier; a clipping norm is among them.
        target_epsilon: Epsilon of all rounds.
        target_delta: Delta of that epsilon.
        rounds: How many rounds there are.
        view: Whom the target is against; against whoever sees all sums, users can keep it as their budget.
        survivors: Fewest survivors of a round, which count for the view of the model.

    Returns:
        The plan.

    Raises:
        PlanError: The arguments make no plan.
        UsageError: No noise meets the target.

    Example:
        >>> from heterosag.planner.private import fit_noise
        >>> plan = fit_noise({"classes": [40], "levels": [2], "dimension": 9000, "design": "secagg",
        ...     "subgroup_size": 40, "min_block_survivors": 30, "clipping_norm": 1.0},
        ...     target_epsilon=8.0, target_delta=1e-5, rounds=20)
        >>> round(plan.noise_multiplier, 1)
        2.9
    """
    much = Plan.build(**{**arguments, "noise_multiplier": 1e6})
    like = NoisyRound.of(much, survivors=survivors)
    if view == "server":
        noise = noise_within_budget(like, max_epsilon=target_epsilon, delta=target_delta, rounds=rounds)
    else:
        target = {"target_epsilon": target_epsilon, "target_delta": target_delta}
        noise = noise_multiplier_for(like, **target, rounds=rounds, view=view)
    return Plan.build(**{**arguments, "noise_multiplier": noise})


def fit_plan(
    arguments: Mapping[str, Any],
    *,
    clipping_norm: float,
    target_epsilon: float,
    target_delta: float,
    rounds: int,
    view: View = "server",
    others: int = 1,
    failure: float = 0.01,
) -> Plan:
    """A plan with the noise of a target, whose blocks need as many survivors as rounds may fail for.

    Args:
        arguments: What `Plan.build` takes, but ranges and noise; `min_block_survivors` among them is kept.
        clipping_norm: Largest norm of an update.
        target_epsilon: Epsilon of all rounds.
        target_delta: Delta of that epsilon.
        rounds: How many rounds there are.
        view: Whom the target is against.
        others: Users who may not follow the mechanism; the plan's colluders where those are more.
        failure: Largest probability that a round ends because a block has too few survivors.

    Returns:
        The plan.

    Raises:
        PlanError: The arguments make no plan.
        UsageError: No noise meets the target.
    """
    arguments = {name: value for name, value in arguments.items() if name != "value_range"}
    shape = Plan.build(**{**arguments, "adaptive_clip": False}, value_range=1.0)
    colluders, least = count_on(shape, others=others, failure=failure)
    least = arguments.get("min_block_survivors") or least
    noisy = {"clipping_norm": clipping_norm, "min_block_survivors": least, "colluders": colluders}
    target: dict[str, Any] = {"target_epsilon": target_epsilon, "target_delta": target_delta, "rounds": rounds}
    return fit_noise({**arguments, **noisy}, **target, view=view)


def count_on(shape: Plan, *, others: int = 1, failure: float = 0.01) -> tuple[int, int]:
    """Whom noise that is added to a plan counts on.

    Args:
        shape: The plan, without noise.
        others: Users who may not follow the mechanism; the plan's colluders where those are more.
        failure: Largest probability that a round ends because a block has too few survivors.

    Returns:
        Colluders, and the most survivors that every block can be asked for: the rest of them are honest.
    """
    colluders = max(shape.colluders, others)
    least = least_block_survivors(
        shape.design,
        [len(subgroup.members) for subgroup in shape.subgroups],
        dropout=shape.dropout,
        min_survivors=shape.min_survivors,
        needed=majority(len(shape.users), colluders),
        failure=failure,
    )
    return colluders, least


def least_block_survivors(
    design: Design, sizes: list[int], *, dropout: float, min_survivors: int, needed: int, failure: float
) -> int:
    """The most survivors that every block can be asked for while rounds fail as seldom as required.

    Args:
        design: Which subgroups code together.
        sizes: Users of each subgroup.
        dropout: Fraction of users who drop out.
        min_survivors: Least survivors of a subgroup.
        needed: Survivors that thresholds need in any case.
        failure: How often a round may fail.

    Returns:
        The number; the fewest that are possible where even those fail more often.
    """
    low = min_survivors if len(sizes) == 1 else 2 * min_survivors
    smallest = min(sum(sizes[one] for one in block) for segment in design.segments for block in segment)

    def fails(least: int) -> bool:
        return (
            chances.failure_probability(
                design,
                sizes,
                dropout,
                min_survivors=min_survivors,
                min_block_survivors=least,
                needed=needed,
                losses=0,
            )
            > failure
        )

    high = smallest + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fails(middle) else (middle, high)
    return low
