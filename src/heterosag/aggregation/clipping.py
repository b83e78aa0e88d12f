"""The adaptive value range: it follows a quantile of the updates' sizes, by securely summed counters.

Every user counts its clipped elements in an auxiliary lane of each segment, summed securely with everything else. The
fraction of clipped elements says whether the range holds the required quantile, and the range moves a bounded step
towards it. Per segment the median over the sound blocks is taken, so that malicious users cannot move the range far.
"""

from __future__ import annotations

import math

import numpy as np

from heterosag.aggregation.combine import Combined
from heterosag.plan import Plan

__all__ = ["measure_clipping", "follow"]

_FASTEST, _SLOWEST = 0.5, -0.1  # how far the range may move in one round, as a logarithm


def measure_clipping(plan: Plan, combined: Combined) -> float:
    """The fraction of elements that users clipped in a round.

    Args:
        plan: The plan of the round.
        combined: What it gave.

    Returns:
        A number from 0 to 1: of each segment the median over its sound blocks, and of these the mean.
    """
    fractions = []
    for segment, blocks in zip(plan.segments, combined.blocks, strict=True):
        sound = [block.clipped / (block.survivors * segment.size) for block in blocks if block.fault is None]
        if sound:
            fractions.append(float(np.median(sound)))
    return float(np.mean(fractions)) if fractions else 0.0


def follow(half_width: float, clipped: float, quantile: float) -> float:
    """The next half width: the range moves until the fraction of clipped elements is 1 - quantile.

    Args:
        half_width: That of the round.
        clipped: The fraction that was clipped in it.
        quantile: The fraction of elements that the range is to hold.

    Returns:
        Half widths move by a bounded step a round.
    """
    target = 1 - quantile
    step = 0.25 * math.log((clipped + 0.1 * target) / target)
    return half_width * math.exp(min(_FASTEST, max(_SLOWEST, step)))
