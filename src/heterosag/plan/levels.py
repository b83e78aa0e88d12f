"""Levels from links: `levels="auto"` gives every class as many as its rate carries until a deadline.

A class has one ring width, and a width as many levels as the largest block's ring holds. Of all non-decreasing widths
that meet the deadline those with the least error of the mean are taken (rounding noise, and the bias of what the best
range clips, as `heterosag.plan.ranges` has them), and of nearly equal ones those with the fewest bits. No class has
more levels than make rounding negligible beside what users' updates differ by: more bits would buy nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import combinations_with_replacement
from typing import Any

from heterosag.choices import RangesName
from heterosag.errors import PlanError
from heterosag.plan.assignment import Subgroup, split_evenly
from heterosag.plan.design import Design
from heterosag.plan.ranges import THREE_DEVIATIONS, best_width, level_cost, rounding_noise
from heterosag.vector import ring

__all__ = ["ENOUGH", "LEVELS_OF_EQUALS", "LEVELS_OF_THE_SLOWEST", "THRIFT", "check_rates", "choose_levels"]

LEVELS_OF_THE_SLOWEST = 4
"""Levels of the slowest class where there is no deadline: what they cost in accuracy is in docs/concepts/ranges.md."""

LEVELS_OF_EQUALS = 16
"""Levels of everybody where there is no deadline and all rates are alike."""

ENOUGH = 0.02
"""Rounding noise of a value, over its variance, below which more levels buy nothing."""

THRIFT = 0.01
"""Bits that would lower the error of the mean by less than this fraction of it are not spent."""

_MOST_CLASSES = 12
_Parts = Counter[tuple[int, int, int]]
"""How many segments have so many elements, in a block of this class and so many users."""


def check_rates(rates: Any, classes: int) -> tuple[float, ...]:
    """The upload rate of each class in Mb/s.

    Args:
        rates: One for all, or one for each class.
        classes: How many classes there are.

    Returns:
        One for each class.

    Raises:
        PlanError: They are not such numbers.
    """
    if isinstance(rates, (int, float)) and not isinstance(rates, bool):
        rates = [rates]
    number = isinstance(rates, Sequence) and not isinstance(rates, (str, bytes))
    if not number or len(rates) not in (1, classes):
        raise PlanError("rates", f"levels='auto' needs the upload rate of each of {classes} classes in Mb/s: {rates!r}")
    for rate in rates:
        if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 < rate < math.inf:
            raise PlanError("rates", f"are finite numbers of Mb/s above 0, not {rate!r}")
    return tuple(float(rate) for rate in rates) * (classes if len(rates) == 1 else 1)


def choose_levels(
    design: Design,
    subgroups: Sequence[Subgroup],
    dimension: int,
    rates: Sequence[float],
    *,
    deadline: float | None = None,
    lanes: int = 2,
    ranges: RangesName = "levels",
) -> tuple[int, ...]:
    """The levels of each class.

    Args:
        design: Which subgroups code a segment together.
        subgroups: Who is in each, class by class.
        dimension: Elements of the update vector.
        rates: Upload rate of each class in Mb/s.
        deadline: Seconds for the upload of a masked vector (default: what the slowest class takes for four levels, or
            everybody for sixteen where all rates are alike).
        lanes: Auxiliary lanes that follow each segment.
        ranges: Whether every level has a range of its own.

    Returns:
        Levels, non-decreasing.

    Raises:
        PlanError: Two levels take longer than the deadline.
    """
    if len(rates) > _MOST_CLASSES:
        raise PlanError("levels", f"auto is for up to {_MOST_CLASSES} classes, not {len(rates)}: give them by number")
    blocks, sent = _parts(design, subgroups, dimension)
    users = sum(len(subgroup.members) for subgroup in subgroups)
    largest = max(count for _, count, _ in blocks)
    choices = _choices(largest, users, ranges)

    def seconds(levels: Sequence[int]) -> float:
        """The upload of whoever takes longest."""
        return max(
            8 * _bytes(parts, levels, lanes) / (rate * 1e6)
            for parts_of_class, rate in zip(sent, rates, strict=True)
            for parts in parts_of_class
        )

    if deadline is None:
        target = LEVELS_OF_EQUALS if len(set(rates)) == 1 else LEVELS_OF_THE_SLOWEST
        deadline = seconds([next(level for level in choices if level >= target)] * len(rates))
    if isinstance(deadline, bool) or not isinstance(deadline, (int, float)) or not 0 < deadline < math.inf:
        raise PlanError("deadline", f"is a finite number of seconds above 0, not {deadline!r}")
    limit = deadline * (1 + 1e-12)  # a deadline that is an upload's own time is met by it
    feasible = [levels for levels in combinations_with_replacement(choices, len(rates)) if seconds(levels) <= limit]
    if not feasible:
        least = seconds([choices[0]] * len(rates))
        raise PlanError(
            "deadline", f"{deadline:g} s are too short for two levels, which take {least:.3g} s: use at least that"
        )
    costs = {level: level_cost(level, users, single=ranges == "single") for level in choices}
    errors = {
        levels: math.fsum(times * count * size * costs[levels[at]] for (at, count, size), times in blocks.items())
        for levels in feasible
    }
    least_error = min(errors.values())
    return min(
        (levels for levels in feasible if errors[levels] <= (1 + THRIFT) * least_error),
        key=lambda levels: (sum(map(math.log2, levels)), errors[levels]),
    )


def _choices(largest: int, users: int, ranges: RangesName) -> list[int]:
    """The levels that fill a ring of the largest block, from two on until more buy nothing."""
    found = []
    for bits in range(ring.width(largest, 2), 64):
        level = ((1 << bits) - 1) // largest + 1
        found.append(level)
        width = THREE_DEVIATIONS if ranges == "single" else best_width(level, users)
        if rounding_noise(level, width) <= ENOUGH:
            break
    return found


def _parts(design: Design, subgroups: Sequence[Subgroup], dimension: int) -> tuple[_Parts, list[list[_Parts]]]:
    """All blocks, and for each class what its subgroups send, each kind of subgroup once."""
    blocks: _Parts = Counter()
    sent: list[_Parts] = [Counter() for _ in subgroups]
    for segment, size in zip(design.segments, split_evenly(dimension, len(design.segments)), strict=True):
        for block in segment:
            slowest = min(subgroups[g].user_class for g in block)
            part = slowest, sum(len(subgroups[g].members) for g in block), size
            blocks[part] += 1
            for g in block:
                sent[g][part] += 1
    classes = 1 + max(subgroup.user_class for subgroup in subgroups)
    by_class: list[list[_Parts]] = [[] for _ in range(classes)]
    for subgroup, parts in zip(subgroups, sent, strict=True):
        if parts not in by_class[subgroup.user_class]:
            by_class[subgroup.user_class].append(parts)
    return blocks, by_class


def _bytes(parts: _Parts, levels: Sequence[int], lanes: int) -> int:
    """A packed vector: every cell's elements, then its auxiliary lanes."""
    return sum(
        times * (ring.packed_size(size, ring.width(count, levels[at])) + 8 * lanes)
        for (at, count, size), times in parts.items()
    )
