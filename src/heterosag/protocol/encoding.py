"""An update's way into the segments' rings and back: weigh, clip, cut, quantize; and a block's sum to its mean.

The plan says where to cut and at which level, the quantizer rounds, the ring holds the result. Rounding draws from a
key of its own: from the system's entropy in a deployment, from a seed in a simulation, and never from anything that a
mask is made of.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from heterosag.crypto.hashing import digest
from heterosag.crypto.keystream import BLOCK_SIZE, CHUNK_SIZE, KEY_SIZE, Keystream, chunk_buffer
from heterosag.crypto.secret import Secret
from heterosag.errors import UsageError
from heterosag.plan import Cell, Plan, PlannedBlock
from heterosag.vector import ring
from heterosag.vector.quantize import check_finite, count_outside, dequantize, quantize
from heterosag.vector.ring import Lanes
from heterosag.vector.rotation import rotate, unrotate

__all__ = [
    "METRIC_LIMIT",
    "PIECE_SIZE",
    "CellLanes",
    "Rounding",
    "ParallelMap",
    "Update",
    "check_update",
    "decode",
    "decode_metric",
    "fill_cells",
]

METRIC_LIMIT = 2**28
"""Largest magnitude of a metric."""

PIECE_SIZE = 1 << 20
"""Elements of a piece of a large vector: pieces are encoded and masked apart from one another."""

ParallelMap = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
"""Runs a function over independent pieces: `map` itself, or that of a pool of threads."""

_METRIC_SCALE = 2.0**20
_WORD_SIZE = 4  # bytes of randomness an element's rounding takes
_CHUNK = CHUNK_SIZE // _WORD_SIZE  # elements whose words are drawn together: they stay in the cache until used


@dataclass(frozen=True, slots=True)
class Rounding(Secret):
    """The random key of one user's rounding in one round."""

    _key: bytes = field(repr=False)

    @classmethod
    def from_system(cls) -> Rounding:
        """A fresh key from the operating system, as a deployment uses it."""
        return cls(secrets.token_bytes(KEY_SIZE))

    @classmethod
    def from_seed(cls, seed: int, user: int, round_number: int = 0) -> Rounding:
        """A reproducible key for a simulation: one for each seed, user (roster index) and round."""
        if not all(0 <= part < 2**64 for part in (seed, user, round_number)):
            raise UsageError("a rounding seed, a user's index and a round are numbers from 0 to 2^64-1")
        parts = (part.to_bytes(8, "little") for part in (seed, user, round_number))
        return cls(digest("simulated-rounding", *parts))

    def words(self, start: int, count: int) -> npt.NDArray[np.uint32]:
        """The words of elements start..start+count-1: every element of a vector has its own."""
        return np.concatenate(
            [np.empty(0, dtype=np.uint32), *(part.copy() for part in self.draw(start, start + count))]
        )

    def draw(self, start: int, stop: int) -> Iterator[npt.NDArray[np.uint32]]:
        """The words of elements start..stop-1, a chunk at a time in one buffer."""
        skipped = start * _WORD_SIZE % BLOCK_SIZE
        stream = Keystream(self._key, start=start * _WORD_SIZE - skipped)
        buffer = chunk_buffer()
        stream.read_into(buffer, skipped)
        for begin in range(start, stop, _CHUNK):
            yield stream.read_into(buffer, (min(stop, begin + _CHUNK) - begin) * _WORD_SIZE).view("<u4")


@dataclass(frozen=True, slots=True)
class CellLanes:
    """The contents of one cell: elements in lanes of their ring, auxiliary lanes of 64 bits. Changed in place."""

    elements: Lanes
    auxiliary: npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What a user brings to a round, checked against the plan; `extent` is its least and greatest element."""

    vector: npt.NDArray[np.floating[Any]]
    weight: int
    metrics: dict[str, float]
    extent: tuple[float, float]


def check_update(
    plan: Plan,
    vector: npt.NDArray[np.floating[Any]],
    *,
    weight: int = 1,
    metrics: Mapping[str, float] | None = None,
) -> Update:
    """Refuse, before anything is encoded, an update that does not fit the plan."""
    if vector.shape != (plan.dimension,):
        raise UsageError(f"the plan is for vectors of {plan.dimension} elements, this one has the shape {vector.shape}")
    if vector.dtype.kind != "f":
        raise UsageError(f"an update is a vector of floats, not of {vector.dtype}")
    if isinstance(weight, bool) or not isinstance(weight, int) or not 1 <= weight <= plan.max_weight:
        above = isinstance(weight, int) and weight > plan.max_weight
        hint = ": build it with a larger max_weight" if above else ""
        raise UsageError(f"this plan takes whole weights from 1 to {plan.max_weight}, not {weight!r}{hint}")
    extent = check_finite(vector)
    values = dict(metrics or {})
    if values.keys() != set(plan.metrics):
        raise UsageError(
            f"this plan sums the metrics {list(plan.metrics)}, not {sorted(values)}: build it with the metrics you give"
        )
    for name, value in values.items():
        if not abs(value) <= METRIC_LIMIT:  # also refuses NaN
            raise UsageError(f"metric {name!r} must lie within {METRIC_LIMIT} of zero, not {value!r}")
    return Update(vector=vector, weight=weight, metrics=values, extent=extent)


def fill_cells(
    plan: Plan,
    subgroup: int,
    update: Update,
    rounding: Rounding | None = None,
    *,
    clip: bool = True,
    parallel_map: ParallelMap = map,
) -> list[CellLanes]:
    """A user's cells, not yet masked: weight * level of every element in its block's ring, then auxiliary lanes.

    A large vector is quantized in pieces, which `parallel_map` runs; the result does not depend on it.

    Guarantees: every element is within 0 .. weight*(level-1), so a block of honest users cannot overflow. With
    `clip=False` elements wrap in the ring instead, as those of a malicious user may.
    """
    rounding = rounding or Rounding.from_system()
    cells = plan.cells(subgroup)
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
                weight=update.weight,
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
    if cell.segment < len(plan.segments):
        values = {"count": 1, "weight": update.weight, "clipped": clipped}
    else:
        values = {"count": 1, **{name: round(value * _METRIC_SCALE) % 2**64 for name, value in update.metrics.items()}}
    return CellLanes(elements, np.array([values[lane] for lane in cell.lanes], dtype=np.uint64))


def decode(plan: Plan, block: PlannedBlock, sums: Lanes, weight: int, *, segment: int = 0) -> npt.NDArray[np.float64]:
    """A block's decoded sum of weighted levels as the weighted mean of its survivors' values, the rotation undone."""
    mean = dequantize(sums, weight, block.level, plan.value_range)
    return unrotate(mean, segment) if plan.rotate else mean


def decode_metric(total: int, users: int) -> float | None:
    """The sum of a metric over so many users from its 64-bit lane; None if honest users cannot have made it."""
    value = (total - 2**64 if total >= 2**63 else total) / _METRIC_SCALE
    return value if abs(value) <= users * METRIC_LIMIT else None
