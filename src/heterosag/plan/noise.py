"""Ranges and limits of the privacy mechanism: what follows from the noise multiplier, before any accounting.

With noise multiplier z, clipping norm c, h honest survivors of a block and t trials (levels less one), a block counts
in the range -R .. R with R = z c sqrt(t / h). An honest user's coordinate has the variance R^2 / t at zero, so h of
them add noise of standard deviation z c to a sum. A coordinate is clamped to r = c min(1, 4 / sqrt(L)) in a segment of
L elements, which rotation has spread, and moves the probability of a trial by at most theta = r / 2R from one half.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from heterosag.errors import PlanError, UsageError

__all__ = ["MAX_THETA", "MAX_TRIALS", "NoiseRange", "check_noise", "coordinate_limit", "least_level", "noise_range"]

MAX_THETA = 0.125
"""Largest distance of a trial's probability from one half that a plan may have."""

MAX_TRIALS = (1 << 16) - 1
"""Most trials of an element: each takes a word of randomness."""

_LEAST_RANGE = 1e-200


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseRange:
    """What a coordinate is counted in: the block's range R, the coordinate's limit r, and theta = r / 2R."""

    block_range: float
    coordinate_limit: float
    theta: float


def coordinate_limit(size: int) -> float:
    """The limit of a coordinate in a segment of so many elements, as a part of the clipping norm [r / c]."""
    return min(1.0, 4.0 / math.sqrt(size))


def least_level(noise_multiplier: float, honest: int, size: int) -> int:
    """The fewest levels with which theta is within its limit: t >= 16 h (r / z c)^2 trials."""
    trials = 16.0 * honest * (coordinate_limit(size) / noise_multiplier) ** 2
    return math.ceil(trials * (1.0 - 2.0**-40)) + 1


def noise_range(noise_multiplier: float, clipping_norm: float, honest: int, trials: int, size: int) -> NoiseRange:
    """The ranges of a block.

    Args:
        noise_multiplier: Standard deviation of the noise of `honest` users in a sum, as a part of the clipping norm.
        clipping_norm: Largest norm of an update.
        honest: Honest survivors that the noise is counted on.
        trials: Trials of an element, one less than its levels.
        size: Elements of the segment.

    Returns:
        The range of the block, the limit of a coordinate and theta.

    Raises:
        UsageError: A number that has no meaning here.
        PlanError: Names the least level, where theta would be above its limit.

    Example:
        >>> noise_range(3.0, 1.0, 9, 1, 10_000).theta
        0.02
    """
    check_noise(noise_multiplier, honest, trials, size)
    if not (math.isfinite(clipping_norm) and clipping_norm > 0.0):
        raise UsageError(f"a clipping norm is a positive number, not {clipping_norm!r}")
    limit = coordinate_limit(size)
    block_range = noise_multiplier * clipping_norm * math.sqrt(trials / honest)
    theta = limit / (2.0 * noise_multiplier * math.sqrt(trials / honest))
    least = least_level(noise_multiplier, honest, size)
    if trials + 1 < least:
        raise PlanError(
            "levels",
            f"{trials + 1} levels are too few for a noise multiplier of {noise_multiplier:g} over {honest} honest "
            f"survivors in a segment of {size} elements: take at least {least}, or more noise",
        )
    if not _LEAST_RANGE <= block_range <= 1.0 / _LEAST_RANGE:
        raise UsageError(f"a clipping norm of {clipping_norm!r} leaves the range of a float")
    return NoiseRange(block_range=block_range, coordinate_limit=limit * clipping_norm, theta=min(theta, MAX_THETA))


def check_noise(noise_multiplier: float, honest: int, trials: int, size: int) -> None:
    """Refuse numbers that have no meaning here."""
    if not (math.isfinite(noise_multiplier) and noise_multiplier > 0.0):
        raise UsageError(f"a noise multiplier is a positive number, not {noise_multiplier!r}")
    for name, value, most in (("honest", honest, None), ("trials", trials, MAX_TRIALS), ("size", size, None)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1 or (most is not None and value > most):
            limits = "1 or more" if most is None else f"1 to {most}"
            raise UsageError(f"{name} is an integer, {limits}, not {value!r}")
