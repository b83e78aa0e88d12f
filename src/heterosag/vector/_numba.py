"""Compiled loops for large vectors, where Numba is installed (`heterosag[fast]`): one pass where NumPy takes several.

Each loop below is ordinary Python and gives the same bits as the NumPy code it stands in for, which is what tests hold
it to. It is compiled on first use and kept in Numba's cache; nothing here is needed, and nothing else knows of Numba.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

__all__ = [
    "FLOATS",
    "WORTH",
    "add_bits",
    "add_planes",
    "count_below",
    "find",
    "hadamard",
    "pack_bits",
    "round_down",
    "round_down_far",
]

WORTH = 1 << 18
"""Elements from which a vector is worth the second that loading the compiler takes."""

FLOATS = (np.float32, np.float64)
"""Types of values that loops are compiled for."""

_Loop = TypeVar("_Loop", bound=Callable[..., Any])


def find(loop: _Loop, elements: int) -> _Loop | None:
    """The compiled form of one of the loops below for a vector of so many elements; None if NumPy is to do it."""
    return _compile(loop) if elements >= WORTH else None


@lru_cache
def _compile(loop: _Loop) -> _Loop | None:
    try:
        import numba
    except ImportError:  # not there, or not for this NumPy
        return None
    compiled: _Loop
    try:
        compiled = numba.njit(loop, nogil=True, cache=True)
    except RuntimeError:  # nowhere to keep what it compiles
        compiled = numba.njit(loop, nogil=True)
    return compiled


def round_down(
    values: npt.NDArray[Any],
    low: float,
    scale: float,
    words: npt.NDArray[np.uint32],
    top: float,
    ends: tuple[float, float],
    out: npt.NDArray[Any],
) -> int:
    """out = floor((values - low) * scale + words / 2^32) within 0 .. top, which is below 2^31.

    Returns how many values lie outside the ends.
    """
    outside = 0
    for place in range(values.size):
        value = np.float64(values[place])
        scaled = (value - low) * scale + np.float64(words[place]) * 2.0**-32
        out[place] = np.int32(min(max(scaled, 0.0), top))
        outside += int(value < ends[0]) + int(value > ends[1])
    return outside


def round_down_far(
    values: npt.NDArray[Any],
    low: float,
    scale: float,
    words: npt.NDArray[np.uint32],
    top: float,
    ends: tuple[float, float],
    out: npt.NDArray[Any],
) -> int:
    """`round_down` for a top below 2^63."""
    outside = 0
    for place in range(values.size):
        value = np.float64(values[place])
        scaled = (value - low) * scale + np.float64(words[place]) * 2.0**-32
        out[place] = np.int64(min(max(scaled, 0.0), top))
        outside += int(value < ends[0]) + int(value > ends[1])
    return outside


def count_below(
    values: npt.NDArray[Any],
    factor: float,
    limit: float,
    words: npt.NDArray[np.uint32],
    trials: int,
    out: npt.NDArray[Any],
) -> None:
    """out = how many of each value's words are below 2^31 + values * factor, rounded to zero and within the limit."""
    for place in range(values.size):
        scaled = min(max(np.float64(values[place]) * factor, -limit), limit)
        threshold = np.uint32(np.int64(scaled) + 2147483648)
        below = 0
        for trial in range(place * trials, (place + 1) * trials):
            below += words[trial] < threshold
        out[place] = below


def pack_bits(lanes: npt.NDArray[Any], bits: int, steps: npt.NDArray[np.uint64], packed: npt.NDArray[np.uint8]) -> None:
    """Pack elements of fewer than eight bits back to back; `steps` is what ring.py moves fields by."""
    at = 0
    words = np.empty(256, dtype=np.uint64)  # eight elements each, which are `bits` bytes
    fields = words.view(np.uint8)
    for first in range(0, lanes.size, fields.size):
        part = lanes[first : first + fields.size]
        count = (part.size + 7) // 8
        words[count - 1] = 0
        for i in range(part.size):
            fields[i] = part[i]
        for step in range(3):
            lower, upper, far = steps[step, 0], steps[step, 1], steps[step, 2]
            for i in range(count):
                words[i] = words[i] & lower | words[i] >> far & upper
        for k in range(bits):
            for i in range(min(count, (packed.size - at - k + bits - 1) // bits)):
                packed[at + i * bits + k] = words[i] >> np.uint64(8 * k) & np.uint64(255)
        at += count * bits


def add_planes(packed: npt.NDArray[np.uint8], bits: int, total: npt.NDArray[Any]) -> None:
    """Add the whole bytes of a vector packed in planes (see ring.py) to lanes wider than the ring, where sums wrap."""
    kind, count = total.dtype.type, total.size
    at, shift = 0, 0
    for width in (4, 2, 1):
        if bits // 8 & width:
            plane = packed[at : at + width * count]
            if width == 4:
                for i in range(count):
                    low = kind(plane[4 * i]) | kind(plane[4 * i + 1]) << kind(8)
                    total[i] += low | (kind(plane[4 * i + 2]) | kind(plane[4 * i + 3]) << kind(8)) << kind(16)
            elif width == 2:
                for i in range(count):
                    total[i] += (kind(plane[2 * i]) | kind(plane[2 * i + 1]) << kind(8)) << kind(shift)
            else:
                for i in range(count):
                    total[i] += kind(plane[i]) << kind(shift)
            at += width * count
            shift += 8 * width


def add_bits(
    packed: npt.NDArray[np.uint8],
    shift: int,
    bits: int,
    steps: npt.NDArray[np.uint64],
    total: npt.NDArray[Any],
) -> None:
    """Add what `pack_bits` has packed to lanes, where sums wrap."""
    kind, at = total.dtype.type, 0
    words = np.empty(256, dtype=np.uint64)
    fields = words.view(np.uint8)
    for first in range(0, total.size, fields.size):
        part = total[first : first + fields.size]
        count = (part.size + 7) // 8
        words[:count] = 0
        for k in range(bits):
            for i in range(min(count, (packed.size - at - k + bits - 1) // bits)):
                words[i] |= np.uint64(packed[at + i * bits + k]) << np.uint64(8 * k)
        at += count * bits
        for step in range(2, -1, -1):
            lower, upper, far = steps[step, 0], steps[step, 1], steps[step, 2]
            for i in range(count):
                words[i] = words[i] & lower | (words[i] & upper) << far
        for i in range(part.size):
            part[i] += kind(fields[i]) << kind(shift)


def hadamard(values: npt.NDArray[Any], signs: npt.NDArray[np.int8], out: npt.NDArray[np.float64]) -> None:
    """out = the signed values' orthonormal Walsh-Hadamard transform, piece by piece (see rotation.py); may be `values`.

    Rounds of sums and differences of elements 1, 2, 4, ... apart, two at a time, as far as possible inside what the
    cache holds. The first four have loops of their own, which a compiler makes much of.
    """
    place, length = 0, 1 << 16
    while place < values.size:
        while length > values.size - place:
            length //= 2
        piece, factor = out[place : place + length], 1.0 / math.sqrt(length)
        held = min(length, 1 << 12)
        for start in range(place, place + length, held):
            near, given, sign = out[start : start + held], values[start : start + held], signs[start : start + held]
            for at in range(held):
                near[at] = np.float64(given[at]) * (sign[at] * factor)
            if held >= 16:
                for at in range(held // 4):
                    a, b, c, d = near[4 * at], near[4 * at + 1], near[4 * at + 2], near[4 * at + 3]
                    e, f, g, h = a + b, a - b, c + d, c - d
                    near[4 * at], near[4 * at + 1], near[4 * at + 2], near[4 * at + 3] = e + g, f + h, e - g, f - h
                for sixteen in range(0, held, 16):
                    for at in range(sixteen, sixteen + 4):
                        a, b, c, d = near[at], near[at + 4], near[at + 8], near[at + 12]
                        e, f, g, h = a + b, a - b, c + d, c - d
                        near[at], near[at + 4], near[at + 8], near[at + 12] = e + g, f + h, e - g, f - h
        for began, until in ((16 if held >= 16 else 1, held), (held, length)):
            for start in range(0, length, until):
                apart = began
                while apart < until:
                    pair = until // apart == 2
                    for first in range(start, start + until, 2 * apart if pair else 4 * apart):
                        one, two = piece[first : first + apart], piece[first + apart : first + 2 * apart]
                        if pair:
                            for at in range(apart):
                                a, b = one[at], two[at]
                                one[at], two[at] = a + b, a - b
                        else:
                            three = piece[first + 2 * apart : first + 3 * apart]
                            four = piece[first + 3 * apart : first + 4 * apart]
                            for at in range(apart):
                                a, b, c, d = one[at], two[at], three[at], four[at]
                                e, f, g, h = a + b, a - b, c + d, c - d
                                one[at], two[at], three[at], four[at] = e + g, f + h, e - g, f - h
                    apart *= 2 if pair else 4
        place += length
