"""Ranges and limits of the privacy mechanism: what follows from the noise multiplier, before any accounting.

With noise multiplier z, clipping norm c, h honest survivors of a block and t trials (levels less one), a block counts
in the range -R .. R with R = z c sqrt(t / h). An honest user's coordinate has the variance R^2 / t at zero, so h of
them add noise of standard deviation z c to a sum. A coordinate is clamped to r = c min(1, 4 / sqrt(L)) in a segment of
L elements, which rotation has spread, and moves the probability of a trial by at most theta = r / 2R from one half.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from heterosag.errors import PlanError, UsageError
from heterosag.plan.design import Design
from heterosag.plan.layout import PlannedSegment

__all__ = [
    "CLIP_RANGE",
    "CLIP_TRIALS",
    "MAX_THETA",
    "MAX_TRIALS",
    "MOST_LEVELS",
    "NoiseRange",
    "check_adaptive_clip",
    "check_blocks",
    "check_honest",
    "check_multiplier",
    "check_noise",
    "coordinate_limit",
    "least_level",
    "noise_range",
    "norm_of",
    "range_under_noise",
]

MAX_THETA = 0.125
"""Largest distance of a trial's probability from one half that a plan may have."""

MOST_LEVELS = 8
"""Different levels that the blocks of a plan with noise have at most: each takes a second or so to account for."""

MAX_TRIALS = (1 << 16) - 1
"""Most trials of an element: each takes a word of randomness."""

CLIP_TRIALS = 16
"""Trials of a user's clip bit, which is 1 where its norm is within the clipping norm and -1 where it is not."""

_LEAST_RANGE = 1e-200
_FAR_TOO_MANY = 2.0**63


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseRange:
    """What a coordinate is counted in: the block's range R, the coordinate's limit r, and theta = r / 2R."""

    block_range: float
    coordinate_limit: float
    theta: float


CLIP_RANGE = NoiseRange(block_range=4.0, coordinate_limit=1.0, theta=MAX_THETA)
"""What a clip bit is counted in: whichever it is, it moves the probability of a trial by 1/8 from one half."""


def coordinate_limit(size: int) -> float:
    """The limit of a coordinate in a segment of so many elements, as a part of the clipping norm [r / c]."""
    return min(1.0, 4.0 / math.sqrt(size))


def least_level(noise_multiplier: float, honest: int, size: int) -> int:
    """The fewest levels with which theta is within its limit: t >= 16 h (r / z c)^2 trials."""
    ratio = coordinate_limit(size) / noise_multiplier
    trials = 16.0 * honest * (ratio * ratio)  # infinite where a power would be an OverflowError
    return math.ceil(min(trials * (1.0 - 2.0**-40), _FAR_TOO_MANY)) + 1


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
    least = least_level(noise_multiplier, honest, size)
    if trials + 1 < least:
        raise PlanError(
            "levels",
            f"{trials + 1} levels are too few for a noise multiplier of {noise_multiplier:g} over {honest} honest "
            f"survivors in a segment of {size} elements: take at least {least}, or more noise",
        )
    limit = coordinate_limit(size)
    block_range = noise_multiplier * clipping_norm * math.sqrt(trials / honest)
    theta = limit / (2.0 * noise_multiplier * math.sqrt(trials / honest))
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


# --- the arguments of a plan --------------------------------------------------------------------------------------


def check_multiplier(value: Any) -> float:
    """The noise multiplier of a plan, 0 where there is no noise."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value < math.inf:
        raise PlanError("noise_multiplier", f"must be a number from 0, which is no noise, not {value!r}")
    return float(value)


def range_under_noise(noise_multiplier: float, clipping_norm: Any, value_range: Any) -> Any:
    """What stands for the value range of a plan: with noise, -c .. c for the clipping norm c."""
    if not noise_multiplier:
        if clipping_norm is not None:
            raise PlanError("clipping_norm", "bounds an update under noise: give a noise_multiplier, or a value_range")
        if value_range is None:
            raise PlanError("value_range", "must be given: a pair, or the half width of a range around zero")
        return value_range
    if clipping_norm is None:
        raise PlanError("clipping_norm", "must be given with a noise_multiplier: the largest norm of an update")
    if value_range is not None:
        raise PlanError("value_range", "follows from the noise: leave it out, clipping_norm bounds an update")
    plain = isinstance(clipping_norm, (int, float)) and not isinstance(clipping_norm, bool)
    if not plain or not 0.0 < clipping_norm < math.inf:
        raise PlanError("clipping_norm", f"must be a positive number, not {clipping_norm!r}")
    return -float(clipping_norm), float(clipping_norm)


def norm_of(value_range: tuple[float, float]) -> float:
    """The clipping norm that a value range stands for."""
    if value_range[0] != -value_range[1]:
        raise PlanError("value_range", f"stands for a clipping norm c under noise, -c to c: {value_range} does not")
    return value_range[1]


def check_honest(noise_multiplier: float, honest: Any, least: int, colluders: int) -> int:
    """Honest survivors that the noise is counted on: at most the least survivors of a block less colluders."""
    if not noise_multiplier:
        if honest:
            raise PlanError("honest", "says what noise is counted on: give a noise_multiplier too, or leave it out")
        return 0
    if least <= colluders:
        raise PlanError(
            "min_block_survivors",
            f"{colluders} colluders may be all {least} survivors of a block, which leaves no honest noise: raise "
            f"it to {colluders + 1} at least, and for useful noise far beyond",
        )
    most = least - colluders
    if honest is None:
        return most
    if isinstance(honest, bool) or not isinstance(honest, int) or not 1 <= honest <= most:
        raise PlanError(
            "honest",
            f"must be an integer from 1 to {most}, the {least} least survivors of a block less {colluders} colluders, "
            f"not {honest!r}: raise min_block_survivors to count on more",
        )
    return honest


def check_adaptive_clip(noise_multiplier: float, wanted: Any) -> bool:
    """Whether users send a noisy bit that says if their norm was within the clipping norm."""
    if not isinstance(wanted, bool):
        raise PlanError("adaptive_clip", f"must be true or false, not {wanted!r}")
    if wanted and not noise_multiplier:
        raise PlanError("adaptive_clip", "is about the clipping norm: give a noise_multiplier too, or leave it out")
    return wanted


def check_blocks(
    noise_multiplier: float,
    clipping_norm: float,
    honest: int,
    design: Design,
    segments: tuple[PlannedSegment, ...],
    metrics: tuple[str, ...],
) -> None:
    """Refuse what noise cannot make private."""
    if metrics:
        raise PlanError("metrics", f"{list(metrics)} would be summed exactly beside the noise: leave them out")
    if design.has_star:
        raise PlanError(
            "design",
            f"{design.name} has blocks of one subgroup here: with noise use `perfect` with an even number of subgroups "
            "(by subgroup_size), or `secagg`",
        )
    found = {block.level for segment in segments for block in segment.blocks}
    if len(found) > MOST_LEVELS:
        raise PlanError("levels", f"blocks have {len(found)} different ones, and with noise at most {MOST_LEVELS}")
    for segment in segments:
        for level in {block.level for block in segment.blocks}:
            if level - 1 > MAX_TRIALS:
                raise PlanError("levels", f"{level} are more than the {MAX_TRIALS + 1} that noise may have")
            try:
                noise_range(noise_multiplier, clipping_norm, honest, level - 1, segment.size)
            except UsageError as error:
                raise PlanError("clipping_norm", str(error)) from None
