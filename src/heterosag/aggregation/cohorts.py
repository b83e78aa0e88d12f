"""Block sums of all cohorts to one result.

The rule sees the blocks of all cohorts at once, so that a mean is that of all survivors and a median that of all
blocks. Cohorts may be cut into different numbers of segments: the rule is applied range by range of elements between
neighbouring cuts, and a segment's blocks are decoded when its first range comes. A cohort that failed costs its users'
part, and is named.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from heterosag.aggregation.combine import (
    BlockSum,
    Combined,
    check_blocks,
    check_left,
    decode_segment,
    mean_metrics,
    within_norm,
)
from heterosag.aggregation.rules import Rule
from heterosag.errors import FailedCohortsError, FaultyBlockError, HeteroSagError, PlanError, UsageError
from heterosag.plan import CohortPlan, Plan, User
from heterosag.plan.layout import ranges_between_cuts
from heterosag.protocol.server import Decoded

__all__ = ["CohortSums", "CombinedCohorts", "blocks_by_plan", "combine_cohorts", "users_at_fault"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CohortSums:
    """What one cohort's round gave.

    Args:
        cohort: The cohort's index.
        survivors: Whose updates are in its sums.
        blocks: The decoded blocks of each of its segments.
        faulty_blocks: Those that were left out; the metrics' may be one of them.
        faulty_users: They dealt or released false shares: leave them out of the next rounds.
    """

    cohort: int
    survivors: tuple[User, ...]
    blocks: tuple[tuple[BlockSum, ...], ...]
    faulty_blocks: tuple[BlockSum, ...]
    faulty_users: tuple[User, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CombinedCohorts:
    """The aggregate of all cohorts, and what it was made of.

    Args:
        vector: The aggregate.
        survivors: Whose updates are in it, in roster order.
        cohorts: The sums of each cohort that did not fail.
        failed: Why each of the others did, by its index: its users have no part in the aggregate.
        metrics: Means of the plan's metrics.
        inference_robustness: The least of the cohorts', each with its survivors.
        byzantine_tolerance: How many faulty users the blocks of all these cohorts tolerate.
        within_norm: The noisy fraction of survivors within the clipping norm; None where the plan does not ask for it.
    """

    vector: npt.NDArray[np.float64]
    survivors: tuple[User, ...]
    cohorts: tuple[CohortSums, ...]
    failed: dict[int, HeteroSagError]
    metrics: dict[str, float]
    inference_robustness: float
    byzantine_tolerance: int
    within_norm: float | None = None

    @property
    def faulty_blocks(self) -> tuple[BlockSum, ...]:
        """The blocks of all cohorts that were left out."""
        return tuple(block for one in self.cohorts for block in one.faulty_blocks)

    @property
    def faulty_users(self) -> tuple[User, ...]:
        """Who dealt or released false shares, in cohorts that failed too: leave them out of the next rounds."""
        known = [user for one in self.cohorts for user in one.faulty_users]
        return (*known, *users_at_fault(self.failed))


def users_at_fault(failed: Mapping[int, HeteroSagError]) -> list[User]:
    """Who is known to have dealt or released false shares in cohorts that failed.

    Args:
        failed: Why each failed cohort did.

    Returns:
        The users, cohort by cohort.
    """
    return [user for error in failed.values() if isinstance(error, FaultyBlockError) for user in error.users]


def blocks_by_plan(
    plan: Plan | CohortPlan, combined: Combined | CombinedCohorts
) -> list[tuple[Plan, tuple[tuple[BlockSum, ...], ...]]]:
    """Every plan that gave sums, with the decoded blocks of each of its segments.

    Args:
        plan: The plan or the cohorts of a round.
        combined: What the round gave.

    Returns:
        One pair, or one for each cohort that did not fail.

    Raises:
        UsageError: The one is of cohorts and the other is not.
    """
    if isinstance(plan, CohortPlan) and isinstance(combined, CombinedCohorts):
        return [(plan.plans[one.cohort], one.blocks) for one in combined.cohorts]
    if isinstance(plan, Plan) and isinstance(combined, Combined):
        return [(plan, combined.blocks)]
    raise UsageError("the result of cohorts goes with their CohortPlan, that of a plan with the plan")


def combine_cohorts(plan: CohortPlan, found: Sequence[Decoded | HeteroSagError], rule: Rule) -> CombinedCohorts:
    """Check every cohort's blocks, and combine the sound ones of all cohorts by the rule.

    A cohort with faulty blocks that the rule cannot leave out has failed, as one whose round ended with an error has.

    Args:
        plan: The cohorts.
        found: What the server unmasked of each cohort, or why it has nothing.
        rule: How blocks become one.

    Returns:
        The aggregate over the cohorts that did not fail.

    Raises:
        UsageError: There is not one entry for each cohort.
        FailedCohortsError: All cohorts failed; a single one's error is raised itself.
        FaultyBlockError: For some elements no cohort has a sound block left, or all have too few for the rule.
    """
    if len(found) != len(plan.plans):
        raise UsageError(f"{len(plan.plans)} cohorts have {len(plan.plans)} outcomes, not {len(found)}")
    sums: dict[int, CohortSums] = {}
    failed: dict[int, HeteroSagError] = {}
    decoded: dict[int, Decoded] = {}
    for index, (own, outcome) in enumerate(zip(plan.plans, found, strict=True)):
        if isinstance(outcome, HeteroSagError):
            failed[index] = outcome
            continue
        try:
            sums[index] = _check(index, own, outcome, rule)
        except FaultyBlockError as error:
            failed[index] = error
        else:
            decoded[index] = outcome
    check_failures(failed, len(plan.plans))
    survivors = {user for one in sums.values() for user in one.survivors}
    tolerance = plan.byzantine_tolerance(survivors)
    return CombinedCohorts(
        vector=_combine(plan, sums, rule, tolerance),
        survivors=tuple(user for user in plan.users if user in survivors),
        cohorts=tuple(sums.values()),
        failed=failed,
        metrics=_metrics(plan, decoded),
        within_norm=_within_norm(plan, decoded),
        inference_robustness=min(plan.plans[index].inference_robustness(one.survivors) for index, one in sums.items()),
        byzantine_tolerance=tolerance,
    )


def check_failures(failed: dict[int, HeteroSagError], cohorts: int) -> None:
    """Raise if no cohort is left, or if one failed by the caller's own fault.

    Args:
        failed: Why each failed cohort did.
        cohorts: How many there are in all.

    Raises:
        FailedCohortsError: All cohorts failed; a single one's error is raised itself.
        UsageError: A cohort's error is the caller's own, as a `PlanError` is.
    """
    for error in failed.values():
        if isinstance(error, (UsageError, PlanError)) or cohorts == 1:
            raise error
    if len(failed) == cohorts:
        raise FailedCohortsError(failed)


def _check(index: int, plan: Plan, decoded: Decoded, rule: Rule) -> CohortSums:
    blocks, faulty = check_blocks(plan, decoded, rule)
    return CohortSums(
        cohort=index,
        survivors=decoded.survivors,
        blocks=blocks,
        faulty_blocks=faulty,
        faulty_users=decoded.faulty,
    )


def _combine(plan: CohortPlan, sums: dict[int, CohortSums], rule: Rule, tolerance: int) -> npt.NDArray[np.float64]:
    """The rule over the blocks of all cohorts, range by range; of each cohort one decoded segment is kept at a time."""
    plans = [plan.plans[index] for index in sums]
    faulty = [user for one in sums.values() for user in one.faulty_users]
    vector = np.empty(plan.dimension)
    current: list[tuple[int, list[npt.NDArray[np.float64]], list[int]]] = [(-1, [], [])] * len(plans)
    for start, stop, places in ranges_between_cuts([own.segments for own in plans]):
        means: list[npt.NDArray[np.float64]] = []
        weights: list[int] = []
        for at, (own, one, segment) in enumerate(zip(plans, sums.values(), places, strict=True)):
            if current[at][0] != segment:
                current[at] = (segment, *decode_segment(own, one.blocks, segment, rule))
            first = own.segments[segment].start
            means += [mean[start - first : stop - first] for mean in current[at][1]]
            weights += current[at][2]
        met = [block for one, segment in zip(sums.values(), places, strict=True) for block in one.blocks[segment]]
        check_left(met, rule, tolerance, f"at element {start} of any cohort", faulty)
        vector[start:stop] = rule.combine(means, weights)
    return vector


def _within_norm(plan: CohortPlan, decoded: dict[int, Decoded]) -> float | None:
    """The noisy fraction of all cohorts' survivors whose norm was within the clipping norm."""
    found = [(within_norm(plan.plans[index], one.metrics), len(one.survivors)) for index, one in decoded.items()]
    known = [(within, survivors) for within, survivors in found if within is not None]
    total = sum(survivors for _, survivors in known)
    return math.fsum(within * survivors for within, survivors in known) / total if known else None


def _metrics(plan: CohortPlan, decoded: dict[int, Decoded]) -> dict[str, float]:
    """The mean of each metric over the survivors of all cohorts whose metrics are sound."""
    found = [
        (mean_metrics(plan.plans[index], one.metrics), one.metrics.weight)
        for index, one in decoded.items()
        if one.metrics is not None
    ]
    sound = [(means, weight) for means, weight in found if means]
    if len(sound) == 1:
        return sound[0][0]
    total = sum(weight for _, weight in sound)
    names = plan.plans[0].metrics if sound else ()
    return {name: math.fsum(means[name] * weight for means, weight in sound) / total for name in names}
