"""Rules that combine the decoded means of a segment's blocks into one vector.

A rule sees, for one segment, the mean of every sound block and the block's total weight. The weighted mean gives the
mean over all survivors. The coordinate-wise median and the trimmed mean tolerate faulty blocks: with the median fewer
than half of a segment's blocks may be faulty (Yin et al. 2018). `unchecked_mean` is the mean of a server that does not
look for impossible sums, as federated averaging over plain secure aggregation does not: for comparison only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from heterosag.errors import UsageError
from heterosag.plan.design import tolerated_blocks

__all__ = ["RULES", "Rule", "find_rule", "trimmed_mean"]

_Means = Sequence[npt.NDArray[np.float64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A way to combine block means.

    Args:
        name: What it is called.
        leaves_out_faulty: Whether a faulty block is left out, or ends the round.
        takes_faulty: Whether it is used all the same, as a server without checks would; only for comparison.
        tolerates: How many malicious ones among so many blocks it tolerates; None where that is not known, or none.
        combine: Takes the means of a segment's blocks and their weights, and returns one vector.
    """

    name: str
    leaves_out_faulty: bool
    takes_faulty: bool = False
    tolerates: Callable[[int], int] | None = None
    combine: Callable[[_Means, Sequence[int]], npt.NDArray[np.float64]]


def _mean(means: _Means, weights: Sequence[int]) -> npt.NDArray[np.float64]:
    total = np.zeros_like(means[0])
    for mean, weight in zip(means, weights, strict=True):
        total += mean * weight
    return total / sum(weights)


def _median(means: _Means, weights: Sequence[int]) -> npt.NDArray[np.float64]:
    del weights  # one block, one voice: a malicious user's weight must not buy influence
    middle: npt.NDArray[np.float64] = np.median(np.stack(means), axis=0)
    return middle


def trimmed_mean(fraction: float = 0.25) -> Rule:
    """The mean, coordinate by coordinate, of what is left when `fraction` of the blocks is cut off at either end.

    With three blocks or more at least one is cut off at either end.

    Args:
        fraction: How many of the blocks are cut off at either end.

    Returns:
        The rule.

    Raises:
        UsageError: The fraction is not from 0 to below one half.

    Example:
        >>> from heterosag.aggregation.rules import trimmed_mean
        >>> trimmed_mean(0.2).combine([[0.0], [1.0], [2.0], [3.0], [100.0]], [1, 1, 1, 1, 1])
        array([2.])
    """
    if not (isinstance(fraction, (int, float)) and 0 <= fraction < 0.5):
        raise UsageError(f"a trimmed mean cuts off a fraction from 0 to below one half at either end, not {fraction!r}")

    def cut_off(blocks: int) -> int:
        return max(math.floor(fraction * blocks), int(fraction > 0 and blocks >= 3))

    def combine(means: _Means, weights: Sequence[int]) -> npt.NDArray[np.float64]:
        del weights
        count = len(means)
        cut = cut_off(count)
        ordered = np.sort(np.stack(means), axis=0)
        left: npt.NDArray[np.float64] = ordered[cut : count - cut].mean(axis=0)
        return left

    return Rule(
        name="trimmed_mean" if fraction == 0.25 else f"trimmed_mean({fraction:g})",
        leaves_out_faulty=True,
        tolerates=cut_off,
        combine=combine,
    )


RULES: dict[str, Rule] = {
    rule.name: rule
    for rule in (
        Rule(name="mean", leaves_out_faulty=False, combine=_mean),
        Rule(name="unchecked_mean", leaves_out_faulty=False, takes_faulty=True, combine=_mean),
        Rule(name="median", leaves_out_faulty=True, tolerates=tolerated_blocks, combine=_median),
        trimmed_mean(),
    )
}
"""Every rule by its name."""


def find_rule(rule: str | Rule) -> Rule:
    """A rule by name, or the rule given.

    Args:
        rule: A name in `RULES`, or a rule.

    Returns:
        The rule.

    Raises:
        UsageError: No rule has this name.
    """
    if isinstance(rule, Rule):
        return rule
    if not isinstance(rule, str) or rule not in RULES:
        raise UsageError(
            f"no rule is called {rule!r}: choose one of {', '.join(RULES)}, or make a heterosag.aggregation.rules.Rule"
        )
    return RULES[rule]
