"""What users clipped in a round: how many elements, and how much larger than believed their updates are by that.

Users count their clipped elements in an auxiliary lane of each segment, which is summed with everything else. After the
rotation elements are distributed as a Gaussian, whose tail beyond a known width shows its standard deviation. A
malicious user counts as clipped what it likes, so of a segment's blocks the median counts, of fewer than three the
least.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from heterosag.aggregation.cohorts import CombinedCohorts, blocks_by_plan
from heterosag.aggregation.combine import BlockSum, Combined
from heterosag.plan import CohortPlan, Plan, PlannedBlock
from heterosag.plan.cohorts import plans_of
from heterosag.plan.layout import ranges_between_cuts
from heterosag.plan.ranges import clipped_fraction, deviations
from heterosag.vector.quantize import ValueRange

__all__ = [
    "MOST_CLIPPED",
    "AnyCombined",
    "AnyPlan",
    "Clipping",
    "ClippingWarning",
    "DecodedRange",
    "find_growth",
    "find_ranges",
    "measure_clipping",
]

AnyPlan = Plan | CohortPlan
AnyCombined = Combined | CombinedCohorts

MOST_CLIPPED = 0.01
"""The fraction of elements, beyond what is best for the levels, that may be clipped without a warning."""

_WIDER = 1.1  # how much wider a range must be to be worth a warning
_UNSEEN = -0.1  # how far a belief falls at least while nothing is clipped, as a logarithm


class ClippingWarning(UserWarning):
    """Users clipped more of their updates than is best, so the mean is biased towards zero: has the range to use."""


@dataclass(frozen=True, slots=True)
class DecodedRange:
    """A range of elements that no plan cuts: its sound blocks, each as planned, as decoded, and its segment's size."""

    start: int
    stop: int
    sound: list[tuple[PlannedBlock, BlockSum, int]]


def find_ranges(plan: AnyPlan, combined: AnyCombined) -> list[DecodedRange]:
    """The segments of a plan; of cohorts the ranges between the cuts of all of them."""
    parts = blocks_by_plan(plan, combined)
    found = []
    for start, stop, places in ranges_between_cuts([own.segments for own, _ in parts]):
        sound = []
        for (own, blocks), at in zip(parts, places, strict=True):
            planned = {block.subgroups: block for block in own.segments[at].blocks}
            size = own.segments[at].size
            sound += [(planned[block.subgroups], block, size) for block in blocks[at] if block.fault is None]
        found.append(DecodedRange(start, stop, sound))
    return found


def find_growth(ranges: Iterable[DecodedRange]) -> float:
    """By how much users' elements are larger than was believed, as a logarithm."""
    ratios, sizes = [], []
    for one in ranges:
        logs = [
            _grown(deviations(block.width), found.clipped, found.survivors * size) for block, found, size in one.sound
        ]
        if logs:
            ratios.append(_middle(logs))
            sizes.append(one.stop - one.start)
    return float(np.average(ratios, weights=sizes)) if ratios else 0.0


def _grown(width: float, clipped: int, elements: int) -> float:
    """How much larger than 1 the deviation is of elements of which so many lie beyond a width, as a logarithm.

    A Gaussian of deviation 1 has that tail beyond some other width: their quotient. Where nothing is clipped it is
    smaller, by as much as that shows, or a little.
    """
    fraction = min(max(clipped, 0.5) / elements, 0.999)
    found = math.log(width / -NormalDist().inv_cdf(fraction / 2))
    return found if clipped else min(found, _UNSEEN)


def _middle(values: Sequence[float]) -> float:
    """What a segment's blocks say, robustly: the median, of fewer than three the least."""
    return float(np.median(values)) if len(values) >= 3 else min(values)


def measure_clipping(plan: AnyPlan, combined: AnyCombined) -> float:
    """The fraction of elements that users clipped in a round, robustly: no malicious minority of blocks raises it.

    Args:
        plan: The plan of the round, or its cohorts.
        combined: What it gave.

    Returns:
        A number from 0 to 1: of each segment the median over its sound blocks, of fewer than three the least, and of
        these the mean. Of cohorts likewise, over the blocks of all of them between the cuts of any.
    """
    fractions = []
    for one in find_ranges(plan, combined):
        clipped = [found.clipped / (found.survivors * size) for _, found, size in one.sound]
        if clipped:
            fractions.append(_middle(clipped))
    return float(np.mean(fractions)) if fractions else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Clipping:
    """What users clipped in a round, and what they would have to.

    Args:
        fraction: Of elements that were clipped.
        expected: Of elements that are clipped in the best range for these levels.
        value_range: The range in use.
        fitting: The range that fits the updates: three standard deviations of an element, by what was clipped.
    """

    fraction: float
    expected: float
    value_range: ValueRange
    fitting: ValueRange

    @classmethod
    def of(cls, plan: AnyPlan, combined: AnyCombined) -> Clipping:
        """Judge a round.

        Args:
            plan: The plan of the round, or its cohorts.
            combined: What it gave.

        Returns:
            What was clipped.
        """
        blocks = [block for one in plans_of(plan) for segment in one.segments for block in segment.blocks]
        low, high = plan.value_range
        grown = math.exp(find_growth(find_ranges(plan, combined)))
        return cls(
            fraction=measure_clipping(plan, combined),
            expected=float(np.mean([clipped_fraction(block.width) for block in blocks])),
            value_range=(low, high),
            fitting=(low * grown, high * grown),
        )

    @property
    def warning(self) -> str | None:
        """What to say where more than a hundredth is clipped beyond what is best and a wider range would help."""
        wider = self.fitting[1] - self.fitting[0] > _WIDER * (self.value_range[1] - self.value_range[0])
        if self.fraction <= self.expected + MOST_CLIPPED or not wider:
            return None
        fits, used = _written(self.fitting), _written(self.value_range)
        return (
            f"{self.fraction:.1%} of elements were clipped, where {self.expected:.1%} are best: the aggregate is "
            f"biased towards zero. These updates want value_range={fits} or more, not {used}; if their arrays differ "
            "much in size, ranges of their own (Plan.build(arrays=...))"
        )


def _written(ends: ValueRange) -> str:
    """A range as it is given: a half width, or a pair."""
    low, high = ends
    return f"{high:.3g}" if low == -high else f"({low:.3g}, {high:.3g})"
