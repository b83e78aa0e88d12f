"""A certified upper bound of how far one user's trials move a block's sum.

One coordinate of one block: h honest survivors count t Bernoulli trials each, with probabilities within theta of one
half; the sum of the counts is released. One user's trials have the probability 1/2 + eta, its neighbour's are fair
coins. With A the distribution of everybody else's count, P_eta = A * Bin(t, 1/2 + eta) is what is released, and

    rho_alpha(h, t, theta) = sup of max(D_alpha(P_eta || P_0), D_alpha(P_0 || P_eta)) / eta^2

over 0 < eta <= theta and over everybody else. The worst others have probabilities 1/2 + theta and 1/2 - theta (the sum
of P^alpha Q^(1 - alpha) is convex in each of them), so A_j = Bin(j, 1/2 + theta) * Bin(n - j, 1/2 - theta) for some j
of n = (h - 1) t is enough; a negative eta is a positive one with n - j in place of j.

What follows bounds the supremum over the continuous eta from above, by convexity, between the points of a grid; sums
run over a window of A, and what lies outside is bounded and added; rounding errors are bounded and added. Nothing here
is an estimate. docs/concepts/privacy-proof.md proves each step under the name of the function that takes it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["MAX_ORDER", "MAX_THETA", "upper_bounds"]

MAX_ORDER = 1024.0
"""Largest order of a Rényi divergence: beyond, single trials leave the range of a float."""

MAX_THETA = 0.125
"""Largest distance of a trial's probability from one half."""

Array = npt.NDArray[np.float64]

_RATIO = 1.05  # of neighbouring points of the grid of eta: it makes a bound too large by at most some 0.07%
_NEAR = 2.4e-3  # square of a step near zero, where one is the distance at which a sum is about e
_FAR = 0.7  # the step, as a fraction of the distance from zero, from which the rest is one step
_PARTS = 128  # of a step
_TAIL = 47.0  # what is outside the windows adds at most 6 exp(-_TAIL) to a sum
_TINY = 1e-290  # smaller probabilities are left to what is outside
_EXPONENT = 350.0  # largest exponent that sums are formed with
_COUNTS = 500  # trials of a block that are bounded in one piece
_TOGETHER = 64  # trials of a user that are
_ROWS = 1000  # most distributions of the others that are looked at
_POINTS = 16  # of the grid that are taken together
_CELLS = 1 << 16  # numbers that are worked on together: they stay in the cache
_UNIT = 2.0**-53


def upper_bounds(honest: int, trials: int, theta: float, orders: Sequence[float]) -> list[float]:
    """An upper bound of rho for every order; theta is a multiple of 2^-20, so that one half plus it is exact.

    More trials than can be bounded at once are cut into pieces: rho(h, t1 + t2) <= rho(h, t1) + rho(h, t2), since the
    sums over both pieces show at least as much as their sum.
    """
    found = []
    for order in orders:
        together = int(min(_TOGETHER, _COUNTS // honest, _EXPONENT / (order * _steepness(theta))))
        size = max(1, min(trials, together))
        whole, rest = divmod(trials, size)
        total = whole * _bound(honest, size, theta, order)
        if rest:
            total += _bound(honest, rest, theta, order)
        found.append(total * (1.0 + 2.0**-30))  # for the roundings of single numbers
    return found


def _steepness(theta: float) -> float:
    """No trial's likelihood ratio is beyond the exponential of this, nor below that of its negative."""
    return -math.log1p(-2.0 * theta)


def _bound(honest: int, trials: int, theta: float, order: float) -> float:
    """The bound for trials in one piece, over all distributions of the others.

    With more than _ROWS of them, runs of neighbours j .. j + w - 1 are covered by one that lacks w - 1 of the others'
    trials: fewer trials that all of the run have in common show more.
    """
    others = (honest - 1) * trials
    width = max(1, math.ceil(others / _ROWS))
    kept = others - (width - 1)
    heads = sorted({*range(0, kept, width), kept})
    reach = trials * order * _steepness(theta) + _TAIL
    size = min(kept + 1, 2 * math.ceil(_half_width(kept, reach)) + 3)
    grid = _grid(honest, trials, theta, order)
    step = max(1, _CELLS // ((size + trials) * (_POINTS + trials)))
    found = 0.0
    for start in range(0, len(heads), step):
        rows = _others(kept, theta, heads[start : start + step], reach, size)
        found = max(found, _Rows(rows, honest * trials, trials, order).bound(grid))
    return found


def _grid(honest: int, trials: int, theta: float, order: float) -> Array:
    """Points from where the bound near zero ends up to theta, neighbours at most _RATIO apart."""
    if _is_convex(trials, order):
        first = math.sqrt(honest / (2.2 * order * (order - 1.0)))  # the divergence is about 1 / (order - 1) there
    else:
        first = min(theta / 40.0, 0.001 * math.sqrt(honest / trials) / order)
    if first >= theta:
        return np.array([theta])
    pieces = math.ceil(math.log(theta / first) / math.log(_RATIO))
    points = first * (theta / first) ** (np.arange(pieces + 1.0) / pieces)
    points[-1] = theta
    return points


def _is_convex(trials: int, order: float) -> bool:
    """Whether both sums, less one and over eta^2, are convex in eta: for one trial, where r is linear in eta."""
    return trials == 1 and not 2.0 < order < 3.0


# --- distributions ------------------------------------------------------------------------------------------------


def _half_width(count: int, reach: float) -> float:
    """A sum of so many trials is further from its mean with a probability of at most 2 exp(-reach), by Hoeffding."""
    return math.sqrt(count / 2.0 * reach)


def _binomial(count: int, probability: float, reach: float) -> tuple[int, Array]:
    """Bin(count, probability) in a window around its mode, and where the window begins.

    Products of ratios from the mode outward: every value keeps its relative accuracy, however small it is.
    """
    mode = min(count, int((count + 1) * probability))
    wide = math.ceil(_half_width(count, reach)) + 1
    low, high = max(0, mode - wide), min(count, mode + wide)
    odds = probability / (1.0 - probability)
    above = np.arange(mode, high, dtype=np.float64)
    below = np.arange(mode, low, -1, dtype=np.float64)
    rising = np.cumprod((count - above) / (above + 1.0) * odds)
    falling = np.cumprod(below / (count - below + 1.0) / odds)
    values = np.concatenate([falling[::-1], [1.0], rising])
    return low, values / values.sum()


def _others(count: int, theta: float, heads: Sequence[int], reach: float, size: int) -> Array:
    """A_j in a window of `size` counts around its mean, a row for each j; zero where it is tiny."""
    rows = np.zeros((len(heads), size))
    for row, head in zip(rows, heads, strict=True):
        first, up = _binomial(head, 0.5 + theta, reach)
        second, down = _binomial(count - head, 0.5 - theta, reach)
        values, begin = np.convolve(up, down), first + second
        mean = count * (0.5 - theta) + 2.0 * theta * head
        start = min(max(round(mean) - size // 2, 0), count + 1 - size)
        low, high = max(begin, start), min(begin + values.size, start + size)
        row[low - start : high - start] = values[low - begin : high - begin]
    rows[rows < _TINY] = 0.0
    return rows


def _weights(trials: int, points: Array) -> Array:
    """Bin(trials, 1/2 + eta), a row for each eta."""
    places = np.arange(trials + 1.0)
    ways = np.array([float(math.comb(trials, place)) for place in range(trials + 1)])
    eta = points[:, None]
    found: Array = ways * (0.5 + eta) ** places * (0.5 - eta) ** (trials - places)
    return found


def _slopes(trials: int, points: Array) -> Array:
    """The derivative of `_weights` by eta."""
    fewer = _weights(trials - 1, points)
    none = np.zeros((points.size, 1))
    return trials * (np.hstack([none, fewer]) - np.hstack([fewer, none]))


# --- the supremum over eta ----------------------------------------------------------------------------------------


class _Rows:
    """Some distributions of the others at one order; P is P_eta, Q is P_0, r = P / Q."""

    def __init__(self, others: Array, counts: int, trials: int, order: float) -> None:
        padded = np.pad(others, ((0, 0), (trials, trials)))
        shifted = np.lib.stride_tricks.sliding_window_view(padded, trials + 1, axis=1)
        self._shifted = np.ascontiguousarray(shifted[:, :, ::-1])
        self._fair: Array = self._shifted @ _weights(trials, np.zeros(1))[0]
        nothing = self._fair == 0.0
        self._shifted[nothing] = 1.0  # so that r = 1 where Q, which weighs it, is zero
        self._below = np.where(nothing, 1.0, self._fair)
        self._trials, self._order = trials, order
        self._slack = ((24.0 * counts + 100.0) * order + 4.0 * self._fair.shape[1] + 2000.0) * _UNIT

    def bound(self, grid: Array) -> float:
        """The largest of all bounds, over all eta up to the grid's end, of both divergences."""
        steep: Array = (self._shifted @ _slopes(self._trials, np.zeros(1))[0]) / self._below
        if _is_convex(self._trials, self._order):
            found = self._near_zero_of_one(grid[0], steep)
        else:
            found = self._near_zero(grid[0], steep)
        slices = [grid[start : start + _POINTS + 1] for start in range(0, grid.size - 1, _POINTS)]
        return max([found, *map(self._between, slices)])

    def _between(self, grid: Array) -> float:
        """The bound from the grid's first point to its last.

        ln r is concave in eta. So D(Q || P) is convex and below its chords, and D(P || Q) is below what it would be if
        ln r went on along its tangent at a point of the grid, which is convex again and below its chord.
        """
        chances = self._shifted @ _weights(self._trials, grid).T
        slopes = self._shifted @ _slopes(self._trials, grid).T
        slopes /= chances
        chances /= self._below[:, :, None]
        logs = np.log(chances, out=chances)
        backward = self._divergence((1.0 - self._order) * logs)
        found = _steepest(grid[:-1], grid[1:], backward[:, :-1], backward[:, 1:])
        middle = np.sqrt(grid[:-1] * grid[1:])
        low, high = np.append(grid[0], middle), np.append(middle, grid[-1])
        at_low = self._divergence(self._order * (logs + (low - grid) * slopes))
        at_high = self._divergence(self._order * (logs + (high - grid) * slopes))
        return max(found, _steepest(low, high, at_low, at_high))

    def _sums(self, exponents: Array) -> Array:
        """For each row and eta the sum of Q exp(exponents)."""
        found: Array = np.matmul(self._fair[:, None, :], np.exp(exponents, out=exponents))[:, 0, :]
        return found

    def _divergence(self, exponents: Array) -> Array:
        """D from the exponents of its sum, with what is outside the window and every rounding error added."""
        found: Array = (np.log(self._sums(exponents)) + self._slack) / (self._order - 1.0)
        return found

    def _near_zero(self, end: float, steep: Array) -> float:
        """The bound on 0 < eta <= end: r = exp(eta w) with w between the slopes of chord and tangent of ln r, and the
        second derivative of a sum's terms by ln r bounds the sum."""
        order = self._order
        chord = np.log((self._shifted @ _weights(self._trials, np.array([end]))[0]) / self._below) / end
        error = self._slack / (order * end)
        forward, backward = np.zeros_like(steep), np.zeros_like(steep)
        for slope in (steep + np.copysign(error, steep), chord + np.copysign(error, chord)):
            y, square, at_zero = end * slope, slope**2, order * (order - 1.0)
            second = order**2 * np.exp(order * y) - order * np.exp(y)
            np.maximum(forward, square * np.maximum(at_zero, second), out=forward)
            second = (order - 1.0) ** 2 * np.exp((1.0 - order) * y) + (order - 1.0) * np.exp(y)
            np.maximum(backward, square * np.maximum(at_zero, second), out=backward)
        worst = max(float((self._fair * terms).sum(axis=1).max()) for terms in (forward, backward))
        return worst / (2.0 * (order - 1.0)) + self._outside(end)

    def _near_zero_of_one(self, end: float, steep: Array) -> float:
        """The bound on 0 < eta <= end for one trial: r = 1 + eta u, and H = (sum - 1) / eta^2 is convex in eta."""
        order = self._order
        wide = np.abs(steep) + self._slack / (order * end)
        at_zero = order * (order - 1.0) / 2.0 * (self._fair * wide**2).sum(axis=1)
        points = _falling_steps(end, float(at_zero.max()))
        logs = np.log1p(steep[:, :, None] * points)
        found = 0.0
        for power in (order, 1.0 - order):
            heights = (self._sums(power * logs) - 1.0 + self._slack) / points**2
            ends, values = np.append(0.0, points), np.column_stack([at_zero, heights])
            found = max(found, _greatest_logarithm(ends, values))
        return found / (order - 1.0) + self._outside(end)

    def _outside(self, end: float) -> float:
        """What is outside the window adds at most this near zero: there, too, |ln r| <= eta w."""
        slope = self._trials * _steepness(end) / end
        return 6.0 * math.exp(-_TAIL) * (self._order * slope) ** 2 / (2.0 * (self._order - 1.0))


def _falling_steps(end: float, height: float) -> Array:
    """Points from `end` down, so close that the chords of H, about `height` (1 + height eta^2 / 2), are good bounds."""
    found = [end]
    while (step := math.sqrt(_NEAR / height) / found[-1]) < _FAR:
        found.append(found[-1] * (1.0 - step))
    return np.array(found[::-1])


def _greatest_logarithm(ends: Array, heights: Array) -> float:
    """The greatest ln(1 + eta^2 C) / eta^2 for the chords C of convex functions, a row each, known at the ends.

    It is C ln(1 + x) / x with x = eta^2 C, and the last factor falls with x: bounded in parts of each chord.
    """
    parts = np.arange(_PARTS + 1.0) / _PARTS
    eta = ends[:-1, None] + (ends[1:] - ends[:-1])[:, None] * parts
    chord = heights[:, :-1, None] + (heights[:, 1:] - heights[:, :-1])[:, :, None] * parts
    x = eta[:, :-1] ** 2 * np.minimum(chord[:, :, :-1], chord[:, :, 1:])
    factor = np.divide(np.log1p(x), x, out=np.ones_like(x), where=x > 0.0)
    return float((np.maximum(chord[:, :, :-1], chord[:, :, 1:]) * factor).max())


def _steepest(low: Array, high: Array, at_low: Array, at_high: Array) -> float:
    """The greatest value of line / eta^2 between low and high, for the lines through the values there."""
    slope = (at_high - at_low) / (high - low)
    intercept = at_low - slope * low
    found = np.maximum(at_low / low**2, at_high / high**2)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        top = -2.0 * intercept / slope
        between = np.where((top > low) & (top < high), slope**2 / (-4.0 * intercept), 0.0)
    return float(np.maximum(found, between).max())
