"""The stochastic quantizer, eq. (3) of the paper.

A value x of the range [r1, r2] lies between two of the K equally spaced levels T(l) = r1 + l*delta,
delta = (r2 - r1)/(K - 1). It is rounded up with probability (x - T(l))/delta and down otherwise, which makes the
result unbiased with variance (T(l+1) - x)(x - T(l)) <= delta^2/4 (Lemma 1).

Randomness is an argument: one uniform 32-bit word an element. Where the words come from (the rounding key) is
the caller's business, and must have nothing to do with a mask.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from heterosag.errors import UsageError
from heterosag.vector import _numba
from heterosag.vector.ring import Lanes, reduce

__all__ = ["MAX_LEVEL", "ValueRange", "check_finite", "check_range", "count_outside", "dequantize", "quantize", "step"]

ValueRange = tuple[float, float]

MAX_LEVEL = 1 << 32
"""Most levels of a quantizer: as fine as the words that decide the rounding."""

_WORD_SCALE = 2.0**-32
_FAR = 2.0**1000  # beyond any ring, and finite
_CHUNK = 1 << 14  # elements: the float64 intermediates of a chunk stay in the cache


def step(value_range: ValueRange, level: int) -> float:
    """The distance of two neighbouring levels [the paper's delta]."""
    return (value_range[1] - value_range[0]) / (level - 1)


def check_range(value_range: ValueRange | float) -> ValueRange:
    """The range as two finite floats in rising order, or a `UsageError` that says what is wrong with it.

    One number is the half width of a range around zero.
    """
    try:
        if isinstance(value_range, (str, bool)):
            raise TypeError
        if isinstance(value_range, int | float | np.integer | np.floating):
            value_range = -float(value_range), float(value_range)
        low, high = (float(end) for end in value_range)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"a value range is two numbers, or one half width, not {value_range!r}") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high and math.isfinite(high - low)):
        raise UsageError(f"a value range is two finite numbers in rising order, not {value_range!r}")
    return low + 0.0, high + 0.0  # no negative zero: equal ranges are equal as bytes


def check_finite(values: npt.NDArray[np.floating[Any]]) -> tuple[float, float]:
    """Least and greatest value; refuses NaN and infinity, which have no level and would spoil a whole sum."""
    if not values.size:
        return 0.0, 0.0
    least, most = float(values.min()), float(values.max())
    if not (math.isfinite(least) and math.isfinite(most)):
        with np.errstate(over="ignore"):  # what float64 cannot hold counts as infinite
            bad = np.flatnonzero(~np.isfinite(values.astype(np.float64)))
        raise UsageError(
            f"{bad.size} of {values.size} values are NaN or infinite, the first at place {bad[0]}: an update must be "
            "finite before it is aggregated"
        )
    return least, most


def count_outside(values: npt.NDArray[np.floating[Any]], value_range: ValueRange) -> int:
    """How many values lie outside the range, its ends taken in the values' own type."""
    low, high = _ends(values.dtype, value_range)
    return int(np.count_nonzero((values < low) | (values > high)))


def _ends(dtype: np.dtype[np.floating[Any]], value_range: ValueRange) -> ValueRange:
    """The ends of a range as the nearest numbers that a type has."""
    limits = np.finfo(dtype)
    least, most = float(limits.min), float(limits.max)
    low, high = (float(dtype.type(min(max(end, least), most))) for end in value_range)
    return low, high


def quantize(
    values: npt.NDArray[np.floating[Any]],
    level: int,
    value_range: ValueRange,
    words: npt.NDArray[np.uint32],
    *,
    out: Lanes,
    wrap_bits: int | None = None,
    size: int | None = None,
    extent: tuple[float, float] | None = None,
) -> int:
    """Write q for every value into `out`, q in 0..level-1, and return how many values were clipped.

    Guarantees: q is within 0..level-1 whatever the float arithmetic did; values beyond the range go to its end
    and are counted; NaN and infinity are refused before `out` is touched. With `wrap_bits` values beyond the range
    wrap modulo 2^wrap_bits instead, which is what a malicious user may send. `size` is that of the whole vector of
    which these are some values; it decides whether a compiled loop is worth it, never what comes out. `extent` is what
    `check_finite` said of that vector, if it was asked already.
    """
    if not (values.shape == words.shape == out.shape) or values.ndim != 1:
        raise UsageError(f"values {values.shape}, words {words.shape} and out {out.shape} must be one equal length")
    if not values.size:
        return 0
    least, most = check_finite(values) if extent is None else extent
    low, high = value_range
    scale = (level - 1) / (high - low)
    if (high - low) * scale < level - 1:
        scale = math.nextafter(scale, math.inf)  # so that the upper end never falls just below the top level
    inside = low <= least and most <= high
    # Whether rounding can reach `level` at all; mostly it cannot, and a pass over the values is saved.
    reaches = not inside or (most - low) * scale + (1.0 - _WORD_SCALE) >= level
    loop = _numba.round_down if level < 1 << 31 else _numba.round_down_far
    compiled = _numba.find(loop, size or values.size) if values.dtype in _numba.FLOATS else None
    just_below = math.nextafter(level, 0.0)
    if wrap_bits is None and compiled is not None:
        return compiled(values, low, scale, words, just_below, _ends(values.dtype, value_range), out)
    clipped = 0 if inside else count_outside(values, value_range)
    if wrap_bits is not None:
        _round_chunks(values, low, scale, words, out, lambda chunk: _wrap(chunk, wrap_bits))
    elif reaches:
        _round_chunks(values, low, scale, words, out, lambda chunk: np.clip(chunk, 0.0, just_below, out=chunk))
    else:
        _round_chunks(values, low, scale, words, out, None)
    if wrap_bits is not None:
        reduce(out, wrap_bits)
    return clipped


def _round_chunks(
    values: npt.NDArray[np.floating[Any]],
    low: float,
    scale: float,
    words: npt.NDArray[np.uint32],
    out: Lanes,
    limit: Callable[[npt.NDArray[np.float64]], object] | None,
) -> None:
    """out = floor((values - low) * scale + u), u uniform on [0, 1) from the words, after `limit`.

    floor(x + u) is l + 1 with probability x - l: no comparison. What is not negative is floored by the conversion.
    """
    scaled, uniform = np.empty(_CHUNK), np.empty(_CHUNK)
    with np.errstate(over="ignore", under="ignore"):  # what overflows lies far outside the range and is clipped
        for start in range(0, values.size, _CHUNK):
            part = slice(start, min(start + _CHUNK, values.size))
            chunk, draw = scaled[: part.stop - start], uniform[: part.stop - start]
            chunk[:] = values[part]  # converted once: NumPy calculates faster in place than across types
            chunk -= low
            chunk *= scale
            draw[:] = words[part]
            draw *= _WORD_SCALE
            chunk += draw
            if limit is not None:
                limit(chunk)
            out[part] = chunk


def _wrap(chunk: npt.NDArray[np.float64], bits: int) -> None:
    np.floor(chunk, out=chunk)
    np.mod(np.clip(chunk, -_FAR, _FAR, out=chunk), 2.0**bits, out=chunk)


def dequantize(sums: npt.NDArray[Any], users: int, level: int, value_range: ValueRange) -> npt.NDArray[np.float64]:
    """A sum of so many users' levels back to the mean of their values: r1 + delta * sum(q) / users."""
    if users <= 0:
        raise UsageError(f"a sum has a positive number of users, not {users}")
    mean = sums.astype(np.float64)
    mean /= users
    mean *= step(value_range, level)
    mean += value_range[0]
    return mean
