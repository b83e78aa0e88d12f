"""How a vector is laid out: segments, the blocks that code each, and the cells that a subgroup sends of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from heterosag.choices import RangesName
from heterosag.errors import PlanError
from heterosag.plan.assignment import Subgroup, split_evenly
from heterosag.plan.design import Design
from heterosag.plan.ranges import THREE_DEVIATIONS, best_width, block_range
from heterosag.vector import ring
from heterosag.vector.quantize import MAX_LEVEL, ValueRange

__all__ = ["Cell", "PlannedBlock", "PlannedSegment", "check_width", "cut", "lane_names", "ranges_between_cuts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBlock:
    """The subgroups that code one segment together, at which level, in which ring and in a range how wide.

    Args:
        subgroups: Their indices.
        users: How many users they have together.
        level: The quantizer level of the slowest class among them.
        bits: The width of the ring in which their values are summed.
        width: That of their range, in 64ths of a standard deviation, of which the plan's value range has three on
            either side.
    """

    subgroups: tuple[int, ...]
    users: int
    level: int
    bits: int
    width: int = THREE_DEVIATIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSegment:
    """One slice of the vector, elements start..stop-1, and its blocks.

    Args:
        start: The first element.
        stop: The element behind the last one.
        blocks: Which subgroups code the slice together.
    """

    start: int
    stop: int
    blocks: tuple[PlannedBlock, ...]

    @property
    def size(self) -> int:
        """Elements of the slice."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What one subgroup sends of one segment: elements start..stop-1 in its block's ring, then auxiliary lanes.

    The metrics of a plan are one more cell behind the last segment: no elements, a block of everybody. So is the clip
    bit of a plan with noise, as one element.

    Args:
        segment: The segment's index.
        start: The first element.
        stop: The element behind the last one.
        block: The block that the subgroup is in.
        lanes: The names of the auxiliary lanes.
    """

    segment: int
    start: int
    stop: int
    block: PlannedBlock
    lanes: tuple[str, ...]

    @property
    def size(self) -> int:
        """Elements of the cell."""
        return self.stop - self.start

    @property
    def bits(self) -> int:
        """Width of the elements' ring."""
        return self.block.bits


def lane_names(*, weighted: bool, noise: bool) -> tuple[str, ...]:
    """The auxiliary lanes that follow each segment, 64 bits each.

    Args:
        weighted: Whether users may have weights above 1.
        noise: Whether users add noise.

    Returns:
        Their names: `count` is a constant 1. Under noise it is alone, since exact counts of clipped elements would tell
        something beside the noise.
    """
    if noise:
        return ("count",)
    return ("count", "weight", "clipped") if weighted else ("count", "clipped")


def cut(
    design: Design,
    subgroups: tuple[Subgroup, ...],
    levels: tuple[int, ...],
    dimension: int,
    value_range: ValueRange,
    fill_levels: bool,
    ranges: RangesName,
) -> tuple[PlannedSegment, ...]:
    """The segments' slices, and every block's level, ring and range."""
    if len(design.segments) > dimension:
        raise PlanError(
            "dimension",
            f"{dimension} elements cannot be cut into the {len(design.segments)} segments that {len(subgroups)} "
            "subgroups need: raise subgroup_size so that there are fewer subgroups",
        )
    everybody = sum(len(subgroup.members) for subgroup in subgroups)

    def plan_block(block: tuple[int, ...]) -> PlannedBlock:
        users = sum(len(subgroups[g].members) for g in block)
        level = min(levels[subgroups[g].user_class] for g in block)
        bits = ring.width(users, level)
        if fill_levels:
            level = min(MAX_LEVEL, ((1 << bits) - 1) // users + 1)
        width = THREE_DEVIATIONS if ranges == "single" else best_width(level, everybody)
        planned = PlannedBlock(subgroups=block, users=users, level=level, bits=bits, width=width)
        check_width(value_range, planned)
        return planned

    segments = []
    start = 0
    for blocks, size in zip(design.segments, split_evenly(dimension, len(design.segments)), strict=True):
        planned = tuple(plan_block(block) for block in blocks)
        segments.append(PlannedSegment(start=start, stop=start + size, blocks=planned))
        start += size
    return tuple(segments)


def check_width(value_range: ValueRange, block: PlannedBlock) -> None:
    """Refuse a range in which a block's levels have no distance that a float can hold."""
    low, high = block_range(value_range, block.width)
    if not (low < high and math.isfinite(high - low) and math.isfinite(block.level / (high - low))):
        narrow = high - low < 1
        raise PlanError(
            "value_range",
            f"{value_range} is too {'narrow' if narrow else 'wide'} for {block.level} levels: "
            f"{'widen' if narrow else 'narrow'} it",
        )


def ranges_between_cuts(
    plans: Sequence[Sequence[PlannedSegment]],
) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """The ranges of elements between neighbouring cuts of several plans of equal dimension.

    Args:
        plans: The segments of each.

    Yields:
        First element, end, and of each plan the segment that has them; together they are the whole vector.
    """
    places = [0] * len(plans)
    start = 0
    for stop in sorted({segment.stop for segments in plans for segment in segments}):
        yield start, stop, tuple(places)
        places = [at + (segments[at].stop == stop) for segments, at in zip(plans, places, strict=True)]
        start = stop
