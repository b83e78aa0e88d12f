"""How wide a range is best for so many levels and so many users.

A wide range costs rounding noise, a narrow one clips. Noise is averaged over the N users of a mean, the bias of
clipping is not. For an element that is distributed as a Gaussian of standard deviation 1, as elements are after the
rotation, a range of -h .. h has

    clip bias squared   E (|x| - h)^2 beyond h      = 2 ((1 + h^2) Q(h) - h phi(h))
    rounding noise      step^2 / 6                  = (2 h / (K - 1))^2 / 6
                        at two levels exactly         h^2 - E clip(x)^2

and the best h minimises bias^2 + noise / N. Widths are integers, in 64ths of a standard deviation, and every party must
come to the same ones: they are found by decimal arithmetic, which rounds alike on every machine.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext
from functools import lru_cache

from heterosag.vector.quantize import ValueRange

__all__ = [
    "THREE_DEVIATIONS",
    "best_width",
    "block_range",
    "clip_bias",
    "clipped_fraction",
    "deviations",
    "level_cost",
    "rounding_noise",
]

_UNIT = 64
_WIDEST = 16 * _UNIT  # beyond what the most levels and users want

THREE_DEVIATIONS = 3 * _UNIT
"""The width of a block whose range is the plan's value range itself."""

_DIGITS = 60
_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")


@lru_cache(maxsize=4096)
def best_width(level: int, users: int) -> int:
    """The best half width, in 64ths of a standard deviation.

    Args:
        level: Levels of the quantizer, at least 2.
        users: Users whose mean is taken.

    Returns:
        The least width at which a wider range costs more noise than it saves bias.

    Example:
        >>> from heterosag.plan.ranges import best_width, deviations
        >>> [round(deviations(best_width(level, 12)), 1) for level in (2, 4, 16)]
        [1.3, 2.1, 3.0]
    """
    low, high = 1, _WIDEST
    with localcontext(Context(prec=_DIGITS)):
        while low < high:
            middle = (low + high) // 2
            if _slope(Decimal(middle) / _UNIT, level, users) < 0:
                low = middle + 1
            else:
                high = middle
    return low


def _slope(h: Decimal, level: int, users: int) -> Decimal:
    """The derivative of bias^2 + noise / users at h, which rises with h."""
    density = (-h * h / 2).exp() / (2 * _PI).sqrt()
    tail = Decimal("0.5") - density * _series(h)
    noise = 2 * h - 4 * h * tail if level == 2 else 4 * h / (3 * Decimal(level - 1) ** 2)
    return noise / users - 4 * (density - h * tail)


def _series(h: Decimal) -> Decimal:
    """h + h^3 / 3 + h^5 / (3 * 5) + ...: the density times it is the probability between 0 and h."""
    term = total = h
    odd = 1
    while term > total.scaleb(-_DIGITS):
        odd += 2
        term = term * h * h / odd
        total += term
    return total


def block_range(value_range: ValueRange, width: int) -> ValueRange:
    """The range of a block of this width, where the plan's value range is three standard deviations wide."""
    if width == THREE_DEVIATIONS:
        return value_range
    low, high = value_range
    return low * width / THREE_DEVIATIONS, high * width / THREE_DEVIATIONS


def deviations(width: int) -> float:
    """A width in standard deviations."""
    return width / _UNIT


def clipped_fraction(width: int) -> float:
    """The fraction of a Gaussian's elements that lies beyond a width."""
    return math.erfc(deviations(width) / math.sqrt(2))


def clip_bias(width: int) -> float:
    """The square of what clipping at a width takes from a Gaussian's element, on average, its variance being 1."""
    h = deviations(width)
    density = math.exp(-h * h / 2) / math.sqrt(2 * math.pi)
    return max(0.0, (1 + h * h) * clipped_fraction(width) - 2 * h * density)


def rounding_noise(level: int, width: int, deviation: float = 1.0) -> float:
    """The variance of rounding a Gaussian's element to so many levels within a width, which is in units of 1."""
    h = deviations(width)
    if level > 2:
        return (2 * h / (level - 1)) ** 2 / 6
    z = h / deviation
    beyond = math.erfc(z / math.sqrt(2))
    density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return h * h - deviation**2 * (1 - beyond - 2 * z * density) - h * h * beyond


def level_cost(level: int, users: int, *, single: bool = False) -> float:
    """What a user's value at so many levels adds to the error of the mean of all users, up to a factor that all share.

    Args:
        level: Levels of the quantizer.
        users: Users whose mean is taken.
        single: All levels have the value range itself, in place of the one that is best for them.

    Returns:
        Rounding noise, and the bias of clipping, which does not average out.
    """
    if single:
        return 1.0 / (level - 1) ** 2
    width = best_width(level, users)
    wide = width / THREE_DEVIATIONS
    return (wide / (level - 1)) ** 2 + users * clip_bias(width) / deviations(THREE_DEVIATIONS) ** 2
