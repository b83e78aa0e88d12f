"""The ranges of a grid's rounds: fixed, or following the updates from the first model on.

A node accepts a range within a factor of the last one that it masked under, however many rounds ago that was. A range
that follows the updates at full speed would leave that factor behind while a node misses one round, so the range waits
for nodes that come back, as far as the others accept it.

Whatever the range does, arrays that were positive in the first model stay so: rounding and noise may make a running
variance negative.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from logging import INFO, WARNING
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.common.logger import log

from heterosag.aggregation.clip_counts import MOST_CLIPPED, Clipping
from heterosag.aggregation.clipping import AdaptiveRange, follow_norm
from heterosag.aggregation.cohorts import CombinedCohorts
from heterosag.aggregation.combine import Combined
from heterosag.aggregation.positive import PositiveArrays
from heterosag.errors import PlanError, UsageError
from heterosag.plan import CohortPlan, Plan
from heterosag.plan.cohorts import plans_of
from heterosag.protocol.policy import Policy
from heterosag.vector.quantize import ValueRange, check_range

__all__ = ["RangeState", "Ranges"]

_ACCEPTED = Policy().max_range_change
_PATIENCE = 3  # rounds that a range waits for a node

_HalfWidths = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Masked:
    """The half widths that a node masked under last, in which round, and how many have waited for it since."""

    half_widths: _HalfWidths
    number: int
    waited: int = 0

    @property
    def bounds(self) -> tuple[_HalfWidths, _HalfWidths]:
        """The least and the greatest half widths that the node accepts now."""
        return self.half_widths / _ACCEPTED, self.half_widths * _ACCEPTED


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeState:
    """What a grid that goes on later needs of its ranges: where they stand, and which arrays stay positive."""

    adaptive: AdaptiveRange | None
    norm: float | None
    positive: PositiveArrays

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> RangeState:
        """What `Ranges.state_dict` gave.

        Raises:
            UsageError: It is no such state.
        """
        if set(state) != {"adaptive", "clipping_norm", "positive"}:
            raise UsageError("this is no state of a grid's ranges")
        adaptive, norm = state["adaptive"], state["clipping_norm"]
        return cls(
            adaptive=None if adaptive is None else AdaptiveRange.from_state_dict(adaptive),
            norm=None if norm is None else check_range(norm)[1],
            positive=PositiveArrays.from_state_dict(state["positive"]),
        )


class Ranges:
    """Settles a plan's range and scales round by round."""

    def __init__(
        self, first: ValueRange | float | None, *, adapts: bool, given: Plan | CohortPlan | None = None
    ) -> None:
        self.adaptive: AdaptiveRange | None = None
        self._adapts = adapts
        self._given = given
        self._norm: float | None = None
        self._positive: PositiveArrays | None = None
        self._first: ValueRange | None = None
        self._masked: dict[str, _Masked] = {}
        self._number = 0
        if first is not None:
            try:
                self._first = check_range(first)
            except UsageError as error:
                raise PlanError("value_range", str(error)) from None
        elif not adapts and given is None:
            raise PlanError("value_range", "a range that does not adapt must be given")

    def state_dict(self) -> dict[str, Any] | None:
        """What a grid that goes on later needs; None before the first round."""
        if self._positive is None:
            return None
        return {
            "adaptive": None if self.adaptive is None else self.adaptive.state_dict(),
            "clipping_norm": self._norm,
            "positive": self._positive.state_dict(),
        }

    def resume(self, state: RangeState) -> None:
        """Go on with the range of another grid."""
        self.adaptive, self._norm, self._positive = state.adaptive, state.norm, state.positive

    def settle(
        self,
        plan: Plan | CohortPlan,
        model: npt.NDArray[np.float64],
        nodes: Collection[str] = (),
        arrays: Sequence[int] = (),
        names: Sequence[str] = (),
    ) -> Plan | CohortPlan:
        """The plan with the range and the scales of this round, which starts from a model and asks these nodes.

        The model's arrays have so many elements each and these names, also where those of the plan are not told apart.
        """
        sizes = tuple(arrays) or (model.size,)
        if self._positive is None or self._positive.arrays != sizes:
            self._positive = PositiveArrays.of(model, sizes, names)
        if not self._adapts or plan.noise_multiplier:  # noise is that of the plan's own clipping norm
            settled = self._norm or self._first
            return plan if settled is None else plan.with_value_range(settled)
        if self.adaptive is None or self.adaptive.arrays != plan.arrays:
            half_widths = self._first and [max(map(abs, self._first))] * max(len(plan.arrays), 1)
            if self._first is None and self._given is not None:
                half_widths = list(plans_of(self._given)[0].half_widths)
            self.adaptive = AdaptiveRange.start(model, plan.arrays, half_widths=half_widths)
        followed = self.adaptive.settle(plan)
        wanted = np.array(plans_of(followed)[0].half_widths)
        met = self._wait_for(nodes, wanted)
        return followed if np.array_equal(met, wanted) else self.adaptive.settle(plan, half_widths=met.tolist())

    def _wait_for(self, nodes: Collection[str], half_widths: _HalfWidths) -> _HalfWidths:
        """Half widths that nodes which come back accept too, those first who were away for the shortest time.

        A range waits for a few rounds: a node that is asked again and again and never answers holds up nobody. One
        whose range is too far from the others' is left to itself.
        """
        known = {node: self._masked[node] for node in nodes if node in self._masked}
        known = {node: one for node, one in known.items() if one.half_widths.shape == half_widths.shape}
        low, high = np.zeros_like(half_widths), np.full_like(half_widths, np.inf)
        for node, one in sorted(known.items(), key=lambda item: -item[1].number):
            back = one.number < self._number
            if back and one.waited >= _PATIENCE:
                continue
            least, greatest = one.bounds
            narrower = np.maximum(low, least), np.minimum(high, greatest)
            if np.all(narrower[0] <= narrower[1]):
                low, high = narrower
            if back:
                self._masked[node] = replace(one, waited=one.waited + 1)
        return np.clip(half_widths, low, high)

    def describe(self, plan: Plan | CohortPlan, combined: Combined | CombinedCohorts) -> None:
        """Log the range of a round that ended well, and what was clipped to it; a warning where that is much."""
        if plan.noise_multiplier:  # whole updates are clipped to their norm, and nobody counts them
            return
        found, halves = Clipping.of(plan, combined), plans_of(plan)[0].half_widths
        clipped, expected = found.fraction, found.expected
        ends = f"{min(halves):.3g}" if len(set(halves)) == 1 else f"{min(halves):.3g} to {max(halves):.3g} by array"
        line = f"range: 3 standard deviations are {ends}; {clipped:.2%} of elements were clipped"
        if self._adapts:
            line += f", {expected:.2%} are best"
        if clipped <= MOST_CLIPPED:
            log(INFO, "\t%s", line)
            return
        why = "these levels are few" if expected > MOST_CLIPPED else "the range is too narrow"
        fits = f": value_range={found.fitting[1]:.3g} fits these updates"
        then = "; the range follows the updates from round to round" if self._adapts else fits
        log(WARNING, "\t%s: %s, and the mean is biased towards zero%s", line, why, then)

    def follow(
        self, plan: Plan | CohortPlan, combined: Combined | CombinedCohorts, model: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.float64]:
        """Learn from a round; the model after it."""
        after: npt.NDArray[np.float64] = model + combined.vector
        self._number += 1
        masked = _Masked(np.array(plans_of(plan)[0].half_widths), self._number)
        self._masked |= dict.fromkeys(map(str, combined.survivors), masked)
        if combined.within_norm is not None:
            self._norm = follow_norm(plan.value_range[1], combined.within_norm)
        if self.adaptive is not None:
            self.adaptive.follow(plan, combined)
        held = 0 if self._positive is None else self._positive.hold(model, after)
        if held:
            log(WARNING, "\t%d elements of arrays that were positive fell too far, and were held", held)
        return after
