"""An update's way into the segments' rings and back: clip, cut, quantize; and a block's sum to its mean.

The plan says where to cut and at which level, the quantizer rounds, the ring holds the result.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

import numpy as np
import numpy.typing as npt

from heterosag.plan import Cell, Plan, PlannedBlock
from heterosag.protocol.cells import PIECE_SIZE, CellLanes, ParallelMap
from heterosag.protocol.rounding import Rounding
from heterosag.protocol.update import METRIC_LIMIT, Update
from heterosag.vector import ring
from heterosag.vector.quantize import check_finite, count_outside, dequantize, quantize
from heterosag.vector.ring import Lanes
from heterosag.vector.rotation import rotate, unrotate

__all__ = ["decode", "decode_metric", "fill_cells"]

_METRIC_SCALE = 2.0**24


def fill_cells(
    plan: Plan,
    subgroup: int,
    update: Update,
    rounding: Rounding | None = None,
    *,
    clip: bool = True,
    parallel_map: ParallelMap = map,
) -> list[CellLanes]:
    """A user's cells, not yet masked: the level of every element in its block's ring, then auxiliary lanes.

    With weights the update is scaled by weight / max_weight first: whatever its weight, a user adds 0 .. level-1 to a
    sum, so a sum of levels is no knapsack that reveals single users' levels, and weights cost no bits.

    A large vector is quantized in pieces, which `parallel_map` runs; the result does not depend on it.

    Guarantees: every element is within 0 .. level-1, so a block of honest users cannot overflow. With
    `clip=False` elements wrap in the ring instead, as those of a malicious user may.
    """
    rounding = rounding or Rounding.from_system()
    cells = plan.cells(subgroup)
    if update.weight != plan.max_weight:
        scaled = update.vector.astype(np.float64) * (update.weight / plan.max_weight)
        update = replace(update, vector=scaled, extent=check_finite(scaled))
    if plan.rotate:
        parts = [rotate(update.vector[c.start : c.stop], c.segment) if c.size else np.empty(0) for c in cells]
        rotated = np.concatenate(parts)
        update = replace(update, vector=rotated, extent=check_finite(rotated))
    filled = []
    for _, run in groupby(cells, key=lambda cell: (cell.block.level, cell.bits, cell.segment == len(plan.segments))):
        filled += _fill_run(plan, list(run), update, rounding, clip, parallel_map)
    return filled


def _fill_run(
    plan: Plan, cells: list[Cell], update: Update, rounding: Rounding, clip: bool, parallel_map: ParallelMap
) -> list[CellLanes]:
    """Neighbouring cells of one level and ring, quantized together: many small segments cost as much as a large one."""
    first, last = cells[0], cells[-1]
    elements = np.empty(last.stop - first.start, dtype=ring.lane_dtype(first.bits))
    values = update.vector[first.start : last.stop]

    def fill(start: int) -> int:
        """Quantize a piece, and count what was clipped."""
        stop, clipped = min(start + PIECE_SIZE, elements.size), 0
        for words in rounding.draw(first.start + start, first.start + stop):
            part = slice(start, start + words.size)
            clipped += quantize(
                values[part],
                first.block.level,
                plan.value_range,
                words,
                out=elements[part],
                wrap_bits=None if clip else first.bits,
                size=elements.size,
                extent=update.extent,
            )
            start = part.stop
        return clipped

    clipped = sum(parallel_map(fill, range(0, elements.size, PIECE_SIZE)))
    found = []
    for cell in cells:
        part = slice(cell.start - first.start, cell.stop - first.start)
        outside = count_outside(values[part], plan.value_range) if clipped else 0
        found.append(_with_lanes(plan, cell, update, elements[part], outside))
    return found


def _with_lanes(plan: Plan, cell: Cell, update: Update, elements: Lanes, clipped: int) -> CellLanes:
    values = {"count": 1, "weight": update.weight, "clipped": clipped}
    if cell.segment == len(plan.segments):
        scale = _METRIC_SCALE * (update.weight / plan.max_weight)
        values |= {name: round(value * scale) % 2**64 for name, value in update.metrics.items()}
    return CellLanes(elements, np.array([values[lane] for lane in cell.lanes], dtype=np.uint64))


def decode(
    plan: Plan, block: PlannedBlock, sums: Lanes, survivors: int, weight: int, *, segment: int = 0
) -> npt.NDArray[np.float64]:
    """A block's decoded sum of levels as the weighted mean of its survivors' values, the rotation undone."""
    mean = dequantize(sums, survivors, block.level, plan.value_range)
    if plan.max_weight > 1:
        mean *= survivors * plan.max_weight / weight
    return unrotate(mean, segment) if plan.rotate else mean


def decode_metric(plan: Plan, total: int, weight: int) -> float | None:
    """The weighted mean of a metric from its 64-bit lane; None if users of this weight cannot have made it."""
    mean = (total - 2**64 if total >= 2**63 else total) / _METRIC_SCALE * plan.max_weight / weight
    return mean if abs(mean) <= METRIC_LIMIT + 1 else None  # each user's part was rounded
