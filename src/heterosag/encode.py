"""An update's way into the segments' rings and back: weigh, clip, cut, quantize; and a block's sum to its mean.

The plan says where to cut and at which level, the quantizer rounds, the ring holds the result. Rounding draws from a
key of its own: from the system's entropy in a deployment, from a seed in a simulation, and never from anything that a
mask is made of.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from heterosag import ring
from heterosag.crypto.labels import digest
from heterosag.crypto.prg import BLOCK_SIZE, KEY_SIZE, keystream
from heterosag.errors import UsageError
from heterosag.plan import Plan, PlannedBlock
from heterosag.quantize import check_finite, dequantize, quantize
from heterosag.ring import Lanes

__all__ = ["EncodedSegment", "Rounding", "decode", "encode"]

_WORD_SIZE = 4  # bytes of randomness an element's rounding takes


@dataclass(frozen=True, slots=True)
class Rounding:
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
        first = start * _WORD_SIZE
        aligned = first - first % BLOCK_SIZE
        stream = keystream(self._key, first - aligned + count * _WORD_SIZE, start=aligned)
        return np.frombuffer(stream, dtype="<u4", offset=first - aligned)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedSegment:
    """One segment of a user's update in its block's ring, not yet masked, and its auxiliary lanes by name."""

    lanes: Lanes
    auxiliary: dict[str, int]


def encode(
    plan: Plan, subgroup: int, vector: npt.NDArray[np.floating[Any]], rounding: Rounding, *, weight: int = 1
) -> Iterator[EncodedSegment]:
    """The segments of a user's vector, in order, each as weight * level in its block's ring.

    Guarantees: every element is within 0 .. weight*(level-1), so a block of honest users cannot overflow; the whole
    vector is checked before the first segment is given out.
    """
    if vector.shape != (plan.dimension,):
        raise UsageError(f"the plan is for vectors of {plan.dimension} elements, this one has the shape {vector.shape}")
    if vector.dtype.kind != "f":
        raise UsageError(f"an update is a vector of floats, not of {vector.dtype}")
    if isinstance(weight, bool) or not isinstance(weight, int) or not 1 <= weight <= plan.weight_bound:
        raise UsageError(f"this plan takes whole weights from 1 to {plan.weight_bound}, not {weight!r}")
    check_finite(vector)
    return _encode(plan, subgroup, vector, rounding, weight)


def _encode(
    plan: Plan, subgroup: int, vector: npt.NDArray[np.floating[Any]], rounding: Rounding, weight: int
) -> Iterator[EncodedSegment]:
    for segment, block in zip(plan.segments, plan.blocks_of(subgroup), strict=True):
        lanes = np.empty(segment.size, dtype=ring.lane_dtype(block.bits))
        clipped = quantize(
            vector[segment.start : segment.stop],
            block.level,
            plan.value_range,
            rounding.words(segment.start, segment.size),
            out=lanes,
            weight=weight,
        )
        counters = {"count": 1, "weight": weight, "clipped": clipped}
        yield EncodedSegment(lanes=lanes, auxiliary={name: counters[name] for name in plan.lanes})


def decode(plan: Plan, block: PlannedBlock, sums: Lanes, weight: int) -> npt.NDArray[np.float64]:
    """A block's decoded sum of weighted levels as the weighted mean of its survivors' values."""
    return dequantize(sums, weight, block.level, plan.value_range)
