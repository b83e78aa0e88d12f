"""An update's way into the segments' rings and back: scale, rotate, clip, quantize; and a block's sum to its mean.

The plan says where to cut and at which level, the quantizer rounds, the ring holds the result.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from heterosag.crypto.secret import Secret
from heterosag.plan import Cell, Plan, PlannedBlock
from heterosag.plan.noise import CLIP_RANGE, CLIP_TRIALS
from heterosag.privacy.mechanism import decode_mean, norm_factor, word_starts
from heterosag.protocol.cells import PIECE_SIZE, CellLanes, ParallelMap
from heterosag.protocol.rounding import Rounding
from heterosag.protocol.update import METRIC_LIMIT, Update
from heterosag.vector import ring
from heterosag.vector.quantize import ValueRange, check_finite, count_outside, dequantize, quantize
from heterosag.vector.ring import Lanes
from heterosag.vector.rotation import LONGEST, rotate_rows, unrotate_rows

__all__ = ["decode", "decode_blocks", "decode_clip_bit", "decode_metric", "fill_cells"]

_METRIC_SCALE = 2.0**24
_SURELY_FINITE = 1e300  # a bound that rounding errors cannot carry to infinity
_PREPARED_SIZE = 2 * LONGEST  # elements of a piece that is converted, scaled and rotated before: it stays in the cache


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

    Under noise the update is scaled to its clipping norm, and an element is a count of trials.

    Guarantees: every element is within 0 .. level-1, so a block of honest users cannot overflow. With
    `clip=False` elements wrap in the ring instead, as those of a malicious user may.
    """
    rounding = rounding or Rounding.from_system()
    noise = _Noise.of(plan, subgroup, update) if plan.noise_multiplier else None
    filled = []
    for _, run in groupby(
        plan.cells(subgroup), key=lambda cell: (cell.block.level, cell.bits, cell.segment == len(plan.segments))
    ):
        cells = list(run)
        if noise is not None and cells[0].segment == len(plan.segments):
            filled.append(noise.count_clip_bit(cells[0], rounding))
        else:
            filled += _fill_run(plan, cells, update, rounding, clip, parallel_map, noise if clip else None)
    return filled


@dataclass(frozen=True, slots=True, kw_only=True)
class _Noise(Secret):
    """What scales an update to its clipping norm (None: it is not finite), and where each segment's words begin.

    The factor tells the update's norm, of which a user releases a noisy bit at most.
    """

    factor: float | None = field(repr=False)
    starts: dict[int, int]

    @classmethod
    def of(cls, plan: Plan, subgroup: int, update: Update) -> _Noise:
        cells = plan.cells(subgroup)
        starts = word_starts([cell.size for cell in cells], [cell.block.level - 1 for cell in cells])
        by_segment = {cell.segment: start for cell, start in zip(cells, starts, strict=True)}
        return cls(factor=norm_factor(update.vector, plan.value_range[1]), starts=by_segment)

    def count(self, plan: Plan, update: Update, piece: _Piece, rounding: Rounding, out: Lanes) -> None:
        """The counts of a piece. It is scaled before it is rotated, which leaves the norm as it is."""
        cell = piece.cells[0]
        trials = cell.block.level - 1
        values = np.zeros(piece.stop - piece.start)
        if self.factor is not None:
            segments = [cell.segment for cell in piece.cells]
            rows = values.reshape(len(segments), -1)
            with np.errstate(all="ignore"):  # an error would tell something of the update
                np.multiply(update.vector[piece.start : piece.stop], self.factor, out=values, dtype=np.float64)
                rotate_rows(rows, segments, start=piece.begin, size=cell.size, dimension=plan.dimension, out=rows)
        rounding.count_trials(
            values,
            None if self.factor is None else 1.0,
            plan.noise_range(plan.segments[cell.segment], cell.block.level),
            trials,
            first_word=self.starts[cell.segment] + piece.begin * trials,
            out=out,
            size=plan.dimension,
        )

    def count_clip_bit(self, cell: Cell, rounding: Rounding) -> CellLanes:
        """The noisy bit of everybody's block: 1 within the norm, -1 beyond it, a fair coin where it is not finite."""
        out = np.empty(1, dtype=ring.lane_dtype(cell.bits))
        rounding.count_trials(
            np.array([1.0 if self.factor == 1.0 else -1.0]),
            None if self.factor is None else 1.0,
            CLIP_RANGE,
            CLIP_TRIALS,
            first_word=self.starts[cell.segment],
            out=out,
            size=1,
        )
        return CellLanes(out, np.ones(len(cell.lanes), dtype=np.uint64))


def _span(plan: Plan, segment: int, block: PlannedBlock) -> ValueRange:
    """The range that a block's levels stand for."""
    if not plan.noise_multiplier:
        return plan.range_of(block)
    wide = plan.noise_range(plan.segments[segment], block.level).block_range
    return -wide, wide


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """What is quantized together: whole cells of equal size, or elements begin..end-1 of one large cell."""

    cells: list[Cell]
    begin: int
    end: int

    @property
    def start(self) -> int:
        """The first element's place in the vector."""
        return self.cells[0].start + self.begin

    @property
    def stop(self) -> int:
        """The place after the last one."""
        return self.cells[-1].start + self.end


def _pieces(cells: list[Cell], longest: int) -> Iterator[_Piece]:
    """Cut neighbouring cells: many small segments cost as much as a large one, and a large one is not held twice."""
    for size, alike in groupby(cells, key=lambda cell: cell.size):
        row = list(alike)
        together = max(1, longest // max(size, 1))
        for at in range(0, len(row), together):
            for begin in range(0, size, longest):
                yield _Piece(cells=row[at : at + together], begin=begin, end=min(size, begin + longest))


def _fill_run(
    plan: Plan,
    cells: list[Cell],
    update: Update,
    rounding: Rounding,
    clip: bool,
    parallel_map: ParallelMap,
    noise: _Noise | None,
) -> list[CellLanes]:
    """Neighbouring cells of one level and ring."""
    first, last = cells[0], cells[-1]
    elements = np.empty(last.stop - first.start, dtype=ring.lane_dtype(first.bits))

    def fill(piece: _Piece) -> dict[int, int]:
        """Quantize a piece, and count what was clipped of each of its segments."""
        if noise is not None:
            out = elements[piece.start - first.start : piece.stop - first.start]
            noise.count(plan, update, piece, rounding, out)
            return {}
        span = _span(plan, piece.cells[0].segment, first.block)
        rows, extent = _prepare(plan, update, piece)
        values, at, clipped = rows.reshape(-1), 0, 0
        for words in rounding.draw(piece.start, piece.stop):
            place = piece.start - first.start + at
            clipped += quantize(
                values[at : at + words.size],
                first.block.level,
                span,
                words,
                out=elements[place : place + words.size],
                wrap_bits=None if clip else first.bits,
                size=plan.dimension,
                extent=extent,
            )
            at += words.size
        if not clipped or len(rows) == 1:
            return {piece.cells[0].segment: clipped}
        return {cell.segment: count_outside(row, span) for cell, row in zip(piece.cells, rows, strict=True)}

    clipped: Counter[int] = Counter()
    longest = PIECE_SIZE if noise is None and _goes_as_it_is(plan, update) else _PREPARED_SIZE
    for counts in parallel_map(fill, _pieces(cells, longest)):
        clipped.update(counts)
    return [
        _with_lanes(
            plan, cell, update, elements[cell.start - first.start : cell.stop - first.start], clipped[cell.segment]
        )
        for cell in cells
    ]


def _goes_as_it_is(plan: Plan, update: Update) -> bool:
    """Whether values are quantized without being scaled, weighted or rotated first."""
    return update.weight == plan.max_weight and not plan.rotate and not plan.scales


def _prepare(
    plan: Plan, update: Update, piece: _Piece
) -> tuple[npt.NDArray[np.floating[Any]], tuple[float, float] | None]:
    """A piece's values as they are quantized, a row a segment: scaled, weighted, rotated; and what they lie between."""
    given = update.vector[piece.start : piece.stop]
    values = given.reshape(len(piece.cells), -1)
    if _goes_as_it_is(plan, update):
        return values, update.extent
    prepared, smallest = np.empty(values.shape), 1.0
    with np.errstate(all="ignore"):  # what overflows is refused below, whatever the program does about it
        for start, stop, scale in plan.scaled_parts(piece.start, piece.stop):
            part = slice(start - piece.start, stop - piece.start)
            np.divide(given[part], scale, out=prepared.reshape(-1)[part], dtype=np.float64)
            values, smallest = prepared, min(smallest, scale)
        if update.weight != plan.max_weight:
            values = np.multiply(values, update.weight / plan.max_weight, out=prepared, dtype=np.float64)
        if plan.rotate:
            segments, size = [cell.segment for cell in piece.cells], piece.cells[0].size
            rotate_rows(values, segments, start=piece.begin, size=size, dimension=plan.dimension, out=prepared)
    return prepared, _bound(update, smallest) or check_finite(prepared.reshape(-1))


def _bound(update: Update, smallest: float) -> tuple[float, float] | None:
    """Numbers between which an update's elements lie once divided by scales, the smallest of them given, and rotated.

    The rotation makes an element at most the square root of its piece's length larger. None if they may be infinite.
    """
    if update.extent is None:
        return None
    largest = max(map(abs, update.extent)) / smallest * math.sqrt(LONGEST)
    return (-largest, largest) if largest < _SURELY_FINITE else None


def _with_lanes(plan: Plan, cell: Cell, update: Update, elements: Lanes, clipped: int) -> CellLanes:
    values = {"count": 1, "weight": update.weight, "clipped": clipped}
    if cell.segment == len(plan.segments):
        scale = _METRIC_SCALE * (update.weight / plan.max_weight)
        values |= {name: round(value * scale) % 2**64 for name, value in update.metrics.items()}
    return CellLanes(elements, np.array([values[lane] for lane in cell.lanes], dtype=np.uint64))


def decode(
    plan: Plan, block: PlannedBlock, sums: Lanes, survivors: int, weight: int, *, segment: int = 0
) -> npt.NDArray[np.float64]:
    """A block's decoded sum of levels as the weighted mean of its survivors' values."""
    mean: npt.NDArray[np.float64] = decode_blocks(plan, segment, [(block, sums, survivors, weight)])[0]
    return mean


def decode_blocks(
    plan: Plan, segment: int, blocks: Sequence[tuple[PlannedBlock, Lanes, int, int]]
) -> npt.NDArray[np.float64]:
    """The means of a segment's blocks, a row each, from their sums, survivors and weights: all that was done undone."""
    means = np.empty((len(blocks), blocks[0][1].size))
    for mean, (block, sums, survivors, weight) in zip(means, blocks, strict=True):
        mean[:] = dequantize(sums, survivors, block.level, _span(plan, segment, block))
        if plan.max_weight > 1:
            mean *= survivors * plan.max_weight / weight
    if plan.rotate:
        unrotate_rows(means, [segment] * len(blocks), dimension=plan.dimension)
    place = plan.segments[segment].start
    for start, stop, scale in plan.scaled_parts(place, plan.segments[segment].stop):
        means[:, start - place : stop - place] *= scale
    return means


def decode_metric(plan: Plan, total: int, weight: int) -> float | None:
    """The weighted mean of a metric from its 64-bit lane; None if users of this weight cannot have made it."""
    mean = (total - 2**64 if total >= 2**63 else total) / _METRIC_SCALE * plan.max_weight / weight
    rounded = max(1.0, plan.max_weight * 2.0**-25)  # each user's part is off by half of the smallest number at most
    return mean if abs(mean) <= METRIC_LIMIT + rounded else None


def decode_clip_bit(sums: Lanes, survivors: int) -> float:
    """The fraction of survivors whose norm was within the clipping norm, with noise: it may be below 0 or above 1."""
    [mean] = decode_mean(sums, survivors, CLIP_TRIALS, CLIP_RANGE.block_range)
    return float((1.0 + mean) / 2.0)
