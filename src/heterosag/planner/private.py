"""Plans within a privacy budget: which blocks, least survivors, levels and noise make the error of the mean least.

The noise multiplier z of a budget hardly depends on the plan. The error of the mean in units of the clipping norm c,

    z sqrt(m / (h N))        for m elements, h honest survivors of a block and N users,

falls with the square root of h: what counts is how many a block's sum hides in. So the largest blocks are best that the
other requirements allow: one of everybody, or, where the median must tolerate attackers, as few subgroups as do. The
least survivors of a block are as many as the failure limit allows. Levels hardly matter under noise, so they are the
fewest that it needs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from heterosag.choices import RuleName
from heterosag.errors import InfeasibleError, PlanError, UsageError
from heterosag.plan import Plan
from heterosag.plan.checks import default_colluders
from heterosag.plan.design import Design, has_perfect, make, tolerated_subgroups
from heterosag.plan.noise import MAX_TRIALS, coordinate_limit, least_level
from heterosag.plan.sharing import majority
from heterosag.planner.noise import fit_noise, fit_plan, least_block_survivors
from heterosag.planner.requirements import A_FRACTION, A_PROBABILITY, MOST_USERS, check_numbers, within
from heterosag.privacy import NoisyRound, NoisySegment, epsilon, noise_within_budget
from heterosag.privacy.accounting import gaussian_noise_multiplier_for

__all__ = [
    "USELESS",
    "Blocks",
    "PrivacyRequirements",
    "PrivateProposal",
    "best_private",
    "error_at",
    "fit_noise",
    "fit_plan",
    "least_block_survivors",
]

USELESS = 3.0
"""Error of the mean, in units of the clipping norm, beyond which much of the accuracy is lost."""

_MOST_SUBGROUPS = 16
_MOST_EPSILON = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyRequirements:
    """What a private plan is for.

    Args:
        users: How many users there are.
        dimension: Elements of the update vector.
        epsilon: Each user's budget, against whoever sees all sums.
        delta: Delta of that epsilon.
        rounds: Rounds that must be possible within it.
        clip: Clipping norm of an update.
        dropout: Fraction of users expected to drop out in a round.
        corrupt: Fraction of users who may not follow the protocol.
        attackers: Malicious users that the median must tolerate.
        min_survivors: Least survivors of a subgroup.
        failure: Largest probability that a round ends for lack of survivors.

    Raises:
        UsageError: A value makes no sense; the message says which.
    """

    users: int
    dimension: int
    epsilon: float
    delta: float = 1e-5
    rounds: int = 20
    clip: float = 1.0
    dropout: float = 0.1
    corrupt: float = 0.0
    attackers: int = 0
    min_survivors: int = 3
    failure: float = 0.01

    def __post_init__(self) -> None:
        check_numbers(
            self,
            users=within(self.users, 4, MOST_USERS),
            dimension=within(self.dimension, 1),
            epsilon=(0 < self.epsilon <= _MOST_EPSILON, f"above 0 and at most {_MOST_EPSILON}"),
            delta=(0 < self.delta < 1, A_PROBABILITY),
            rounds=within(self.rounds, 1),
            clip=(math.isfinite(self.clip) and self.clip > 0.0, "a positive number"),
            dropout=(0 <= self.dropout < 0.5, A_FRACTION),
            corrupt=(0 <= self.corrupt < 0.5, A_FRACTION),
            attackers=within(self.attackers, 0, self.users),
            min_survivors=within(self.min_survivors, 2, self.users),
            failure=(0 < self.failure < 1, A_PROBABILITY),
        )

    @property
    def colluders(self) -> int:
        """The corrupt users, as a number: at least one, and as many as `Plan.build` counts unless told."""
        return max(math.ceil(self.corrupt * self.users), default_colluders(self.users, self.min_survivors), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """What one number of subgroups comes to.

    Args:
        subgroups: How many there are.
        block_users: Users of a block.
        min_block_survivors: Least survivors of a block.
        honest: Those of them who follow the mechanism.
        level: Levels of every element.
        noise_multiplier: Noise of a block over the honest ones, in units of the clipping norm.
        error: Of the mean of all users, in units of the clipping norm.
    """

    subgroups: int
    block_users: int
    min_block_survivors: int
    honest: int
    level: int
    noise_multiplier: float
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateProposal:
    """The best private plan.

    Args:
        plan: The plan itself.
        blocks: How it was found.
        error: Of the mean, in units of the clipping norm.
        target_epsilon: The budget that the noise is for; `epsilon_server` is what is spent of it.
        epsilon_server: Of all rounds, against whoever sees all sums.
        epsilon_model: Of all rounds, against whoever sees the released models only; None where attackers must be
            tolerated, since the rule is then the median and the bound is for the mean.
        delta: Of both.
        rounds: How many rounds they are for.
        others: What other numbers of subgroups would give.
    """

    plan: Plan
    blocks: Blocks
    error: float
    target_epsilon: float
    epsilon_server: float
    epsilon_model: float | None
    delta: float
    rounds: int
    others: tuple[Blocks, ...]

    @property
    def rule(self) -> RuleName:
        """The rule that the plan is for."""
        return "mean" if self.epsilon_model is not None else "median"


def best_private(requirements: PrivacyRequirements) -> PrivateProposal:
    """The plan within a privacy budget whose mean has the least error.

    Args:
        requirements: What the plan must meet.

    Returns:
        The plan, its two epsilons, and what other numbers of subgroups would give.

    Raises:
        InfeasibleError: No plan, or none with an error below `USELESS` clipping norms; names the nearest useful one.

    Example:
        >>> from heterosag.planner.private import PrivacyRequirements, best_private
        >>> found = best_private(PrivacyRequirements(users=96, dimension=5000, epsilon=8.0, rounds=20))
        >>> found.plan.design.name, found.error < 3.0
        ('secagg', True)
    """
    tried = _try_all(requirements)
    if not tried:
        raise InfeasibleError(
            (f"{requirements.attackers} attackers and {requirements.corrupt:.0%} corrupt users", "a budget"),
            None,
            f"more than {requirements.users} users, or fewer attackers",
        )
    chosen = min(tried, key=lambda one: one.error)
    if chosen.error > USELESS:
        raise _useless(requirements, chosen)
    return _propose(requirements, chosen, tried)


def _propose(requirements: PrivacyRequirements, chosen: Blocks, tried: list[Blocks]) -> PrivateProposal:
    plan = _build(requirements, chosen)
    rounds, delta, mean = requirements.rounds, requirements.delta, not requirements.attackers
    return PrivateProposal(
        plan=plan,
        blocks=chosen,
        error=chosen.error,
        target_epsilon=requirements.epsilon,
        epsilon_server=epsilon(plan, rounds=rounds, delta=delta),
        epsilon_model=epsilon(plan, rounds=rounds, delta=delta, view="model") if mean else None,
        delta=delta,
        rounds=rounds,
        others=tuple(one for one in tried if one != chosen),
    )


def _try_all(requirements: PrivacyRequirements, most: int | None = None) -> list[Blocks]:
    """One block of everybody, and numbers of subgroups whose every two meet and none is alone, fewest first."""
    numbers = [1] if not requirements.attackers else []
    numbers += [
        count
        for count in range(4, min(_MOST_SUBGROUPS, requirements.users // requirements.min_survivors) + 1, 2)
        if has_perfect(count)
        and tolerated_subgroups(count) >= requirements.attackers
        and count <= requirements.dimension
    ]
    tried = (_try(requirements, count) for count in numbers)
    return list(islice((found for found in tried if found is not None), most))


def _try(requirements: PrivacyRequirements, subgroups: int) -> Blocks | None:
    """The least survivors, levels and noise of one number of subgroups; None where too few would be honest."""
    users = requirements.users
    size = users // subgroups
    design = _design(subgroups)
    sizes = [size + (place < users % subgroups) for place in range(subgroups)]
    needed = majority(users, requirements.colluders)
    least = least_block_survivors(
        design,
        sizes,
        dropout=requirements.dropout,
        min_survivors=requirements.min_survivors,
        needed=needed,
        failure=requirements.failure,
    )
    honest = least - requirements.colluders
    if honest < 1:
        return None
    segments = max(1, subgroups - 1)
    shortest = requirements.dimension // segments
    level, noise = _fit(requirements, honest, shortest)
    return Blocks(
        subgroups=subgroups,
        block_users=users if subgroups == 1 else 2 * size,
        min_block_survivors=least,
        honest=honest,
        level=level,
        noise_multiplier=noise,
        error=noise * math.sqrt(requirements.dimension / (honest * users)),
    )


def _fit(requirements: PrivacyRequirements, honest: int, size: int) -> tuple[int, float]:
    """The fewest levels that the noise of the budget needs, and that noise."""
    level = 2
    while True:
        least = 4.0 * coordinate_limit(size) * math.sqrt(honest / (level - 1))
        segment = NoisySegment(size=size, trials=level - 1, everywhere=honest)
        like = NoisyRound(noise_multiplier=least, honest=honest, segments=(segment,))
        target: dict[str, Any] = {"delta": requirements.delta, "rounds": requirements.rounds}
        noise = noise_within_budget(like, max_epsilon=requirements.epsilon, **target)
        if noise > 1.01 * least or level > 64:
            return level, noise
        ideal = math.sqrt(requirements.rounds * _ideal(requirements))
        level = min(MAX_TRIALS + 1, max(level + 1, least_level(ideal, honest, size)))


def error_at(requirements: PrivacyRequirements, blocks: Blocks, epsilon: float) -> float | None:
    """The error of the mean with the same blocks at another epsilon, to a few hundredths.

    Quick, for a curve: noise is taken to grow as that of Gaussian noise does.

    Args:
        requirements: What the blocks were found for.
        blocks: Of a `PrivateProposal`.
        epsilon: The budget instead of theirs.

    Returns:
        The error in units of the clipping norm; None where no noise keeps so small a budget.

    Example:
        >>> from heterosag.planner.private import PrivacyRequirements, best_private, error_at
        >>> asked = PrivacyRequirements(users=96, dimension=5000, epsilon=8.0, rounds=20)
        >>> found = best_private(asked)
        >>> error_at(asked, found.blocks, 8.0) == found.error < error_at(asked, found.blocks, 4.0)
        True
    """
    target: dict[str, Any] = {"target_delta": requirements.delta, "rounds": requirements.rounds}
    try:
        own, other = (
            gaussian_noise_multiplier_for(target_epsilon=one, **target) for one in (requirements.epsilon, epsilon)
        )
    except UsageError:
        return None
    return blocks.error * other / own


def _ideal(requirements: PrivacyRequirements) -> float:
    """The square of the noise multiplier of one round's part of the budget, were the noise Gaussian."""
    loss = -math.log(requirements.delta)
    return 1.0 / (2.0 * (math.sqrt(loss + requirements.epsilon) - math.sqrt(loss)) ** 2)


def _design(subgroups: int) -> Design:
    return make("secagg", 1) if subgroups == 1 else make("perfect", subgroups)


def _build(requirements: PrivacyRequirements, chosen: Blocks) -> Plan:
    return Plan.build(
        [requirements.users],
        [chosen.level],
        requirements.dimension,
        design="secagg" if chosen.subgroups == 1 else "perfect",
        subgroup_size=requirements.users // chosen.subgroups,
        min_survivors=requirements.min_survivors,
        min_block_survivors=chosen.min_block_survivors,
        colluders=requirements.colluders,
        dropout=requirements.dropout,
        clipping_norm=requirements.clip,
        noise_multiplier=chosen.noise_multiplier,
        honest=chosen.honest,
    )


def _useless(requirements: PrivacyRequirements, chosen: Blocks) -> InfeasibleError:
    """Say why, and look for the nearest useful plan: without attackers, or with fewer rounds."""
    problem = (
        f"epsilon {requirements.epsilon:g} over {requirements.rounds} rounds",
        f"{requirements.dimension:,} elements of {requirements.users} users (the mean would be off by "
        f"{chosen.error:.1f} clipping norms, and beyond {USELESS:g} much of the accuracy is lost)",
    )
    if requirements.attackers:
        easier = replace(requirements, attackers=0)
        nearest = _answer(easier)
        if nearest is not None:
            return InfeasibleError(problem, nearest, f"one block of everybody: an error of {nearest.error:.1f}")
    low, high = 0, requirements.rounds
    while high - low > 1:
        middle = (low + high) // 2
        [first] = _try_all(replace(requirements, rounds=middle), 1)  # the fewest subgroups: the least error
        low, high = (middle, high) if first.error <= USELESS else (low, middle)
    more = math.ceil(requirements.users * chosen.error / USELESS)
    instead = f"about {more} users in such blocks, or an update of fewer elements"
    if not low:
        return InfeasibleError(problem, None, instead)
    nearest = _answer(replace(requirements, rounds=low))
    return InfeasibleError(problem, nearest, f"{low} rounds; {instead}")


def _answer(requirements: PrivacyRequirements) -> PrivateProposal | None:
    try:
        return best_private(requirements)
    except (InfeasibleError, PlanError):
        return None
