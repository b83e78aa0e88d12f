"""Bounds on the error of the mean: the noise of rounding, and the bias of clipping."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from heterosag.plan.ranges import THREE_DEVIATIONS, block_range, clip_bias, deviations
from heterosag.vector.quantize import step

if TYPE_CHECKING:
    from heterosag.plan.plan import Plan

__all__ = ["bias_of_clipping", "noise_of_rounding", "square"]


def noise_of_rounding(plan: Plan) -> float:
    """Bound on E||mean of quantized - mean||^2: Theorem 2, Lemma 2, for any design and sizes; that of the noise itself
    under noise."""
    if plan.noise_multiplier:
        return square(plan.noise_multiplier * plan.value_range[1]) * plan.dimension / (plan.honest * len(plan.users))
    total = math.fsum(
        block.users * segment.size * square(step(block_range(plan.value_range, block.width), block.level)) / 4
        for segment in plan.segments
        for block in segment.blocks
    )
    return total / len(plan.users) ** 2


def bias_of_clipping(plan: Plan) -> float:
    """Bound on ||E mean of quantized - mean||^2, for Gaussian elements and users who clip the same ones."""
    if plan.ranges == "single":
        return 0.0
    deviation = (plan.value_range[1] - plan.value_range[0]) / 2 / deviations(THREE_DEVIATIONS)
    total = math.fsum(
        block.users * segment.size * clip_bias(block.width) for segment in plan.segments for block in segment.blocks
    )
    return total * square(deviation) / len(plan.users)


def square(number: float) -> float:
    """Infinite where `number**2` would be an `OverflowError`."""
    return number * number
