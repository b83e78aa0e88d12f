"""How a vector is laid out: segments, the blocks that code each, and the cells that a subgroup sends of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from heterosag.errors import PlanError
from heterosag.plan.assignment import Subgroup, split_evenly
from heterosag.plan.design import Design
from heterosag.vector import ring
from heterosag.vector.quantize import MAX_LEVEL, ValueRange

__all__ = ["Cell", "PlannedBlock", "PlannedSegment", "check_width", "cut"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBlock:
    """The subgroups that code one segment together, at which level and in which ring.

    Args:
        subgroups: Their indices.
        users: How many users they have together.
        level: The quantizer level of the slowest class among them.
        bits: The width of the ring in which their values are summed.
    """

    subgroups: tuple[int, ...]
    users: int
    level: int
    bits: int


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

    The metrics of a plan are one more cell behind the last segment: no elements, a block of everybody.

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


def cut(
    design: Design,
    subgroups: tuple[Subgroup, ...],
    levels: tuple[int, ...],
    dimension: int,
    value_range: ValueRange,
    fill_levels: bool,
) -> tuple[PlannedSegment, ...]:
    """The segments' slices, and every block's level and ring width."""
    if len(design.segments) > dimension:
        raise PlanError(
            "dimension",
            f"{dimension} elements cannot be cut into the {len(design.segments)} segments that {len(subgroups)} "
            "subgroups need: raise subgroup_size so that there are fewer subgroups",
        )
    segments = []
    start = 0
    for blocks, size in zip(design.segments, split_evenly(dimension, len(design.segments)), strict=True):
        planned = tuple(_planned(block, subgroups, levels, value_range, fill_levels) for block in blocks)
        segments.append(PlannedSegment(start=start, stop=start + size, blocks=planned))
        start += size
    return tuple(segments)


def check_width(value_range: ValueRange, level: int, *, fill: bool) -> None:
    """Refuse a range in which so many levels have no distance that a float can hold."""
    low, high = value_range
    if not math.isfinite((MAX_LEVEL if fill else level) / (high - low)):
        raise PlanError("value_range", f"{value_range} is too narrow for {level} levels: widen it")


def _planned(
    block: tuple[int, ...],
    subgroups: tuple[Subgroup, ...],
    levels: tuple[int, ...],
    value_range: ValueRange,
    fill: bool,
) -> PlannedBlock:
    users = sum(len(subgroups[g].members) for g in block)
    level = min(levels[subgroups[g].user_class] for g in block)
    bits = ring.width(users, level)
    check_width(value_range, level, fill=fill)
    if fill:
        level = min(MAX_LEVEL, ((1 << bits) - 1) // users + 1)
    return PlannedBlock(subgroups=block, users=users, level=level, bits=bits)
