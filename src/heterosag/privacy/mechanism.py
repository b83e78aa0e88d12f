"""The Poisson-binomial mechanism (Chen, Ozgur, Kairouz 2022): counts of biased coins in place of rounded values.

A coordinate x becomes the probability T / 2^32 with T = 2^31 + v, v = x 2^32 / 2R rounded towards zero and clamped.
What a user sends of it is q, the number of t fresh 32-bit words below T. A block's mean is R (2 sum(q) / (t n) - 1).
With two levels, t = 1, this is the stochastic quantizer in a wide range.

Guarantees: privacy is stated about the integers T. Whatever float arithmetic does, v is within its limit, and the sum
of a user's v^2 within what its clipping norm allows, since the update is scaled to a little less. Every trial of every
element has a word of its own. An update that is not finite sends fair coins everywhere: refusing it would say something
about it. The words must come from a key that the system's entropy made for this round, and that is erased after it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from heterosag.crypto.keystream import draw_words
from heterosag.errors import UsageError
from heterosag.plan.noise import MAX_THETA, MAX_TRIALS
from heterosag.vector import _numba
from heterosag.vector.ring import Lanes

__all__ = ["count_trials", "decode_mean", "norm_factor", "thresholds", "word_starts"]

_SPAN = 2.0**32
_HALF = 1 << 31
_MARGIN = 1.0 - 2.0**-20  # for the rounding errors of a norm over up to 10^9 elements
_FEW = 1e-200  # a sum of squares that is larger has lost nothing to underflow
_PIECE = 1 << 16  # elements whose squares are added up together
_CHUNK = 1 << 14  # elements whose words are compared together without a compiled loop


def norm_factor(vector: npt.NDArray[np.floating[Any]], clipping_norm: float) -> float | None:
    """What a whole update is to be multiplied with so that its norm is within the clipping norm.

    Args:
        vector: The update, before or after its rotation, which leaves the norm as it is.
        clipping_norm: Largest norm.

    Returns:
        A factor of at most 1; None for an update that is not finite, which `count_trials` takes as one of zeros.

    Example:
        >>> norm_factor(np.array([3.0, 4.0]), 10.0)
        1.0
        >>> round(norm_factor(np.array([30.0, 40.0]), 10.0), 5)
        0.2
    """
    unit, squares = 1.0, _sum_of_squares(vector, 1.0)
    if not _FEW < squares < 1.0 / _FEW:  # zero, not finite, or squares that leave the range of a float
        unit = max(abs(float(vector.min())), abs(float(vector.max()))) if vector.size else 0.0
        if not math.isfinite(unit):
            return None
        if unit == 0.0:
            return 1.0
        squares = _sum_of_squares(vector, unit)
    factor = min(1.0, clipping_norm * _MARGIN / unit / math.sqrt(squares))
    return factor if factor >= np.finfo(np.float64).tiny else 0.0


def _sum_of_squares(vector: npt.NDArray[np.floating[Any]], unit: float) -> float:
    """Of the elements in this unit, in float64, piece by piece. A dot product's threads would cost more than it."""
    found, squares = [], np.empty(min(vector.size, _PIECE))
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for start in range(0, vector.size, _PIECE):
            piece = vector[start : start + _PIECE]
            part = squares[: piece.size]
            if unit == 1.0:
                np.square(piece, out=part, dtype=np.float64)
            else:
                np.divide(piece, unit, out=part, dtype=np.float64)
                np.square(part, out=part)
            found.append(float(np.add.reduce(part)))
    return sum(found)


def word_starts(sizes: Sequence[int], trials: Sequence[int]) -> list[int]:
    """Where the words of each segment begin, so that no two trials of a vector share one.

    Args:
        sizes: Elements of each segment.
        trials: Trials of an element in each segment.

    Returns:
        The first word of each segment.

    Example:
        >>> word_starts([10, 20, 5], [15, 1, 3])
        [0, 150, 170]
    """
    starts = [0]
    for size, count in zip(sizes, trials, strict=True):
        starts.append(starts[-1] + size * count)
    return starts[:-1]


def thresholds(
    values: npt.NDArray[np.floating[Any]], factor: float | None, *, block_range: float, theta: float
) -> npt.NDArray[np.uint32]:
    """T for every value: a word is below it with the probability T / 2^32, which is one half plus value / 2R.

    Args:
        values: Elements of an update, rotated.
        factor: What `norm_factor` said of the whole update.
        block_range: The range R of the block.
        theta: Largest distance of a probability from one half, at most 1/8.

    Returns:
        2^31 + v, v rounded towards zero and clamped; 2^31 everywhere for an update that is not finite.

    Raises:
        UsageError: Numbers that have no meaning here.

    Example:
        >>> (thresholds(np.array([0.5, -9.0]), 1.0, block_range=8.0, theta=0.125) / 2**32).tolist()
        [0.53125, 0.375]
    """
    multiplier, limit = _scale(factor, block_range, theta)
    return _thresholds(np.zeros(values.shape) if factor is None else values, multiplier, limit)


def _scale(factor: float | None, block_range: float, theta: float) -> tuple[float, float]:
    """What an element is multiplied with, and the limit of the result."""
    if not (0.0 < theta <= MAX_THETA and math.isfinite(block_range) and block_range > 0.0):
        raise UsageError(f"theta {theta!r} and range {block_range!r} are not those of a block")
    return (0.0 if factor is None else factor * (_SPAN / 2.0 / block_range)), float(math.floor(theta * _SPAN))


def _thresholds(values: npt.NDArray[np.floating[Any]], factor: float, limit: float) -> npt.NDArray[np.uint32]:
    scaled = values.astype(np.float64)
    with np.errstate(over="ignore", under="ignore"):  # what overflows is clamped
        scaled *= factor
    np.clip(scaled, -limit, limit, out=scaled)
    return (scaled.astype(np.int64) + _HALF).astype(np.uint32)


def count_trials(
    values: npt.NDArray[np.floating[Any]],
    factor: float | None,
    *,
    block_range: float,
    theta: float,
    trials: int,
    key: bytes,
    first_word: int,
    out: Lanes,
    size: int | None = None,
) -> None:
    """Write q for every value into `out`: how many of its words are below its threshold.

    Args:
        values: Elements of a segment, or a piece of it, rotated.
        factor: What `norm_factor` said of the whole update.
        block_range: The range R of the block.
        theta: Largest distance of a probability from one half, at most 1/8.
        trials: Trials of an element; the words of element i are first_word + i trials .. first_word + (i+1) trials - 1.
        key: Key of the words.
        first_word: The first word of these values; `word_starts` says where a segment's begin.
        out: Gets the counts, 0 .. trials.
        size: Elements of the whole vector; decides whether a compiled loop is worth it, never what comes out.

    Raises:
        UsageError: Arrays that do not fit together, or numbers that have no meaning here; `out` is not touched.
    """
    if values.shape != out.shape or values.ndim != 1:
        raise UsageError(f"values {values.shape} and out {out.shape} must be one equal length")
    if not 1 <= trials <= min(MAX_TRIALS, int(np.iinfo(out.dtype).max)):
        raise UsageError(f"{trials} trials of an element cannot be counted in {out.dtype}")
    multiplier, limit = _scale(factor, block_range, theta)
    native = values.dtype in _numba.FLOATS or factor is None
    compiled = _numba.find(_numba.count_below, (size or values.size) * trials) if native else None
    start = 0
    for words in draw_words(key, first_word, first_word + values.size * trials, together=trials):
        part = slice(start, start + words.size // trials)
        chunk = np.zeros(part.stop - start) if factor is None else values[part]
        if compiled is not None:
            compiled(chunk, multiplier, limit, words, trials, out[part])
        else:
            _count_below(chunk, multiplier, limit, words, trials, out[part])
        start = part.stop


def _count_below(
    values: npt.NDArray[np.floating[Any]],
    factor: float,
    limit: float,
    words: npt.NDArray[np.uint32],
    trials: int,
    out: Lanes,
) -> None:
    """What `_numba.count_below` does, bit for bit."""
    step = max(1, _CHUNK // trials)
    for start in range(0, values.size, step):
        part = slice(start, min(start + step, values.size))
        rows = words[start * trials : part.stop * trials].reshape(-1, trials)
        out[part] = np.count_nonzero(rows < _thresholds(values[part], factor, limit)[:, None], axis=1)


def decode_mean(sums: npt.NDArray[Any], survivors: int, trials: int, block_range: float) -> npt.NDArray[np.float64]:
    """A block's sum of counts as the mean of its survivors' values: R (2 sum(q) / (t n) - 1).

    Args:
        sums: The decoded sums.
        survivors: Users who are in them.
        trials: Trials of an element.
        block_range: The range R of the block.

    Returns:
        The mean, still rotated.

    Raises:
        UsageError: Not a number of users or of trials.

    Example:
        >>> decode_mean(np.array([0, 8, 16]), 4, 4, 2.0).tolist()
        [-2.0, 0.0, 2.0]
    """
    if survivors < 1 or trials < 1:
        raise UsageError(f"a sum has a positive number of users and trials, not {survivors} and {trials}")
    mean = sums.astype(np.float64)
    mean *= 2.0 / (trials * survivors)
    mean -= 1.0
    mean *= block_range
    return mean
