"""The adaptive range: it follows the size of the updates, by what the server has decoded already.

Two things are public after a round, and nothing else is used: how many elements users clipped, counted in an auxiliary
lane of each segment and summed with everything else, and the aggregate. The first says how large users' elements are:
after the rotation they are distributed as a Gaussian, whose tail beyond a known width shows its standard deviation. The
second says which arrays of the model move more than others: their mean squares, less the known noise of rounding.

`AdaptiveRange` believes in a standard deviation for every array, and settles from them the value range and the scales
of the next round. Pitfalls, and what is done about them:

- A malicious user counts as clipped what it likes: of a segment's blocks the median counts, of fewer than three the
  least, and no belief rises or falls by more than 0.5 in its logarithm in a round, or leaves stated bounds.
- A scale feeds on its own noise where levels are few: the noise is subtracted, and scales follow a power below one of
  what is left, so that an array of noise alone falls to where it does no harm.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from heterosag.aggregation.clip_counts import (
    MOST_CLIPPED,
    AnyCombined,
    AnyPlan,
    Clipping,
    ClippingWarning,
    DecodedRange,
    find_growth,
    find_ranges,
    measure_clipping,
)
from heterosag.errors import UsageError
from heterosag.plan import CohortPlan, Plan
from heterosag.plan.cohorts import plans_of
from heterosag.plan.ranges import THREE_DEVIATIONS, deviations, rounding_noise

__all__ = [
    "MOST_CLIPPED",
    "AdaptiveRange",
    "Clipping",
    "ClippingWarning",
    "follow_norm",
    "follow_quantile",
    "measure_clipping",
    "with_deviations",
]

LARGEST = 1000.0
"""The greatest half width, times the scale of any array, that an adaptive range takes by itself."""

_LEAST = 1e-5  # the least one
_STEP = 0.5  # how far a belief moves in one round at most, as a logarithm
_POWER = 0.7  # of an array's size in the aggregate that its scale follows
_NOISE_LEFT = 0.05  # the least mean square of an array, in parts of the noise: where nothing else shows
_FIRST_PART = 0.3  # of the model's own size that a first update is believed to have
_LEAST_PART = 0.1  # of the whole model's root mean square that an array is taken for at least
_NORM_RATE = 0.2  # of a clipping norm's logarithm, for a fraction of users
_THREE = deviations(THREE_DEVIATIONS)

Vector = npt.NDArray[np.floating[Any]]
P = TypeVar("P", Plan, CohortPlan, Plan | CohortPlan)


class AdaptiveRange:
    """The value range and the scales of a run's rounds, which follow its updates.

    Args:
        deviations: The standard deviation that is believed of a user's elements, of each array.
        arrays: Elements of each array, in order (default: all are one array).
        largest: The greatest half width, times the scale of any array.

    Raises:
        UsageError: The numbers do not fit each other.

    Guarantees: from one round to the next no array's range changes by more than a factor of e^0.5, and none leaves its
    bounds, whatever the sums of a round are; `settle` may be told other half widths.

    Example:
        >>> import numpy as np
        >>> from heterosag import Plan, Simulation, aggregate
        >>> from heterosag.aggregation.clipping import AdaptiveRange
        >>> model = np.concatenate([np.full(900, 0.1), np.full(100, 2.0)])
        >>> follows = AdaptiveRange.start(model, arrays=[900, 100])
        >>> plan = Plan.build([12], [4], 1000, value_range=1.0, arrays=[900, 100])
        >>> rng = np.random.default_rng(0)
        >>> for number in range(8):
        ...     settled = follows.settle(plan)
        ...     updates = rng.normal(0, 0.01, (12, 1000)) + rng.normal(0, 0.01, 1000)
        ...     result = aggregate(settled, updates, simulate=Simulation(secure=False, rounding_seed=number))
        ...     follows.follow(settled, result.combined)
        >>> bool(np.all(abs(np.log(np.array(follows.settle(plan).half_widths) / 0.042)) < 0.4))
        True
    """

    def __init__(
        self,
        deviations: Sequence[float],
        arrays: Sequence[int] = (),
        *,
        largest: float = LARGEST,
    ) -> None:
        if len(deviations) != max(len(arrays), 1):
            raise UsageError(f"{len(arrays)} arrays have as many deviations, not {len(deviations)}")
        if not all(math.isfinite(deviation) and deviation > 0 for deviation in deviations) or not largest > _LEAST:
            raise UsageError(f"deviations are finite and above 0, the largest half width is above {_LEAST:g}")
        self.arrays = tuple(arrays)
        self.largest = largest
        self._believed = self._bound(np.array(deviations, dtype=np.float64))

    @classmethod
    def start(
        cls,
        model: Vector,
        arrays: Sequence[int] = (),
        *,
        half_widths: Sequence[float] | None = None,
        largest: float = LARGEST,
    ) -> AdaptiveRange:
        """What to believe before the first round, from the public model alone.

        Args:
            model: The model that the first round starts from, as one vector.
            arrays: Elements of each of its arrays.
            half_widths: Three standard deviations of each array's updates, where they are known (default: from the
                model).
            largest: As in `AdaptiveRange`.

        Returns:
            A range whose first updates are a part of the model's own size, array by array. Arrays of zeros say
            nothing of themselves and are taken for the largest.

        Raises:
            UsageError: The arrays are not those of the model, or it is not finite.
        """
        sizes = list(arrays) or [model.size]
        if sum(sizes) != model.size:
            raise UsageError(f"arrays of {sum(sizes)} elements, the model has {model.size}")
        parts = [model[begin:end].astype(np.float64) for begin, end in pairwise(accumulate(sizes, initial=0))]
        if half_widths is not None:
            return cls([half / _THREE for half in half_widths], arrays, largest=largest)
        roots = np.array([math.sqrt(np.mean(part**2)) for part in parts])
        whole = math.sqrt(np.average(roots**2, weights=sizes))
        if not math.isfinite(whole):
            raise UsageError("the model is not finite")
        taken = (
            np.where(roots > 0, np.maximum(roots, _LEAST_PART * whole), roots.max()) if whole else np.ones(len(sizes))
        )
        logs = np.log(taken)
        pulled = _POWER * logs + (1 - _POWER) * np.average(logs, weights=sizes)
        first = _FIRST_PART * np.exp(pulled)
        return cls(first.tolist(), arrays, largest=largest)

    def settle(self, plan: P, *, half_widths: Sequence[float] | None = None) -> P:
        """A plan with the range and the scales of the next round.

        Args:
            plan: A plan of the same arrays, or cohorts, with any range.
            half_widths: Three standard deviations of each array's updates, to be believed from now on instead.

        Returns:
            The plan, settled.

        Raises:
            UsageError: The plan's arrays are others.
        """
        if plan.arrays != self.arrays:
            raise UsageError(
                f"the plan has {len(plan.arrays)} arrays, or others than the {len(self.arrays)} known here"
            )
        if half_widths is not None:
            self._believed = self._bound(np.array(half_widths, dtype=np.float64) / _THREE)
        return with_deviations(plan, self._believed.tolist())

    def follow(self, plan: AnyPlan, combined: AnyCombined) -> None:
        """Learn from a round that ended well.

        Args:
            plan: The plan of the round, or its cohorts, as `settle` gave it.
            combined: What was decoded.
        """
        ranges = find_ranges(plan, combined)
        grown = find_growth(ranges)
        moves = np.full(len(self._believed), max(-_STEP, min(_STEP, grown)))
        if len(self.arrays) > 1 and any(one.sound for one in ranges):
            squares = self._mean_squares(plan, combined, ranges, grown)
            moves += self._relative_moves(squares)
        self._believed = self._bound(self._believed * np.exp(np.clip(moves, -_STEP, _STEP)))

    def state_dict(self) -> dict[str, Any]:
        """What a run that goes on later needs, in JSON types."""
        return {"deviations": self._believed.tolist(), "arrays": list(self.arrays), "largest": self.largest}

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> AdaptiveRange:
        """The inverse of `state_dict`.

        Args:
            state: What that gave; a key of earlier states, `positive`, is passed over.

        Returns:
            A range that goes on as the other would have.

        Raises:
            UsageError: This is not such a state.
        """
        try:
            return cls(
                [float(deviation) for deviation in state["deviations"]],
                [int(size) for size in state["arrays"]],
                largest=float(state["largest"]),
            )
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            raise UsageError(f"this is not the state of an adaptive range: {error}") from None

    def _bound(self, believed: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.clip(believed, _LEAST / _THREE, self.largest / _THREE)

    def _relative_moves(self, squares: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """How the arrays move against each other, as logarithms, such that all together stay as large."""
        logs = np.log(self._believed)
        wanted = _POWER * (logs + np.log(squares) / 2)
        sizes = np.array(self.arrays)
        moves: npt.NDArray[np.float64] = wanted - logs - np.average(wanted - logs, weights=sizes)
        before, after = np.average(squares, weights=sizes), np.average(squares * np.exp(-2 * moves), weights=sizes)
        return moves + math.log(after / before) / 2

    def _mean_squares(
        self, plan: AnyPlan, combined: AnyCombined, ranges: Sequence[DecodedRange], grown: float
    ) -> npt.NDArray[np.float64]:
        """The mean square of the aggregate's elements in each array, the noise of rounding subtracted, in units of what
        was believed of it."""
        sound = [block for one in ranges for _, block, _ in one.sound]
        heaviest = sum(block.survivors for block in sound) * plans_of(plan)[0].max_weight
        weighted = sum(block.weight for block in sound) / heaviest
        noises = [_noise(one, grown) for one in ranges]
        found, ends, place = [], list(accumulate(self.arrays, initial=0)), 0
        for (begin, end), believed in zip(pairwise(ends), self._believed, strict=True):
            square = float(np.mean((combined.vector[begin:end] * (weighted / believed)) ** 2))
            noise, at = 0.0, begin
            while at < end:
                while ranges[place].stop <= at:
                    place += 1
                upto = min(end, ranges[place].stop)
                noise += noises[place] * (upto - at) / (end - begin)
                at = upto
            found.append(max(square - noise, _NOISE_LEFT * noise, 1e-30))
        return np.array(found)


def with_deviations(plan: P, deviations: Sequence[float]) -> P:
    """A plan whose range and scales are those of updates with these standard deviations.

    Args:
        plan: The plan, or cohorts.
        deviations: One for each of its arrays, or one for all.

    Returns:
        The plan, settled.
    """
    common = math.exp(np.average(np.log(deviations), weights=plan.arrays or None))
    scales = [deviation / common for deviation in deviations] if plan.arrays else []
    return plan.with_value_range(_THREE * common, scales)


def _noise(one: DecodedRange, grown: float) -> float:
    """The variance that rounding adds to an element of a range's mean, in units of the deviation believed."""
    users = sum(found.survivors for _, found, _ in one.sound)
    actual = math.exp(max(-2.0, min(2.0, grown)))
    total = sum(found.survivors * rounding_noise(block.level, block.width, actual) for block, found, _ in one.sound)
    return total / max(users, 1) ** 2


def follow_quantile(half_width: float, clipped: float, quantile: float) -> float:
    """The rule of 0.1.0: a single range moves until the fraction of clipped elements is 1 - quantile, at any levels.

    It diverges where levels are few; for comparison.

    Args:
        half_width: That of the round.
        clipped: The fraction that was clipped in it.
        quantile: The fraction of elements that the range is to hold.

    Returns:
        The next half width. It moves by a bounded step a round.
    """
    target = 1 - quantile
    step = 0.25 * math.log((clipped + 0.1 * target) / target)
    return min(LARGEST, half_width * math.exp(min(_STEP, max(-0.1, step))))


def follow_norm(clipping_norm: float, within: float) -> float:
    """The next clipping norm: it moves towards the median of the users' norms (Andrew et al. 2021).

    Args:
        clipping_norm: That of the round [c].
        within: The fraction of users whose norm was within it, with noise: `Combined.within_norm`.

    Returns:
        c exp(-0.2 (within - 1/2)): a tenth more or less at most, whatever the sum of the bits was.

    Example:
        >>> from heterosag.aggregation.clipping import follow_norm
        >>> round(follow_norm(1.0, 1.0), 3), follow_norm(1.0, 0.5)
        (0.905, 1.0)
    """
    return clipping_norm * math.exp(-_NORM_RATE * (min(1.0, max(0.0, within)) - 0.5))
