"""The search: which bits each subgroup gets.

Users are sorted by upload rate, slowest first, and cut into Z subgroups of n. A block codes at its slower subgroup's
level, so a user of subgroup i sends, in units of a segment's elements,

    b_1 + ... + b_{i-1} + (Z - i) b_i        (and a star's bits in an odd design, mostly b_i - 1)

bits, where b_i rises with i, and the ring of b bits holds K(b) = floor((2^b - 1) / s) + 1 levels. The bound on the
error of the mean is a sum over pairs, each at its slower member's level: (Z - i) c(K(b_i)) over the subgroups, where
c(K) is the rounding noise at K levels (Theorem 2) in the range that is best for them, and the bias of what that clips;
in a single range it is 1 / (K - 1)^2. A slow subgroup with many bits costs everybody who is faster; that is the trade.

For given n the best b is found by dynamic programming over the places where a class may begin, with the bits spent by
slower subgroups as the state: exact for every Z up to `_PLACES`, and beyond over that many places, spread evenly. n
runs over the subgroup sizes that the other requirements allow. `lower_bound` is the error that no plan of these
subgroup sizes can beat: every subgroup with the bits it could have if all slower ones had the fewest. Of plans whose
errors are within a thousandth of the least the one with the fewest bits is taken.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from heterosag.errors import UsageError
from heterosag.plan import dropout as chances
from heterosag.plan.design import has_perfect, make, tolerated_subgroups
from heterosag.plan.layout import lane_names
from heterosag.plan.ranges import level_cost
from heterosag.plan.sharing import majority
from heterosag.planner.requirements import Requirements
from heterosag.vector.quantize import check_range

__all__ = ["MOST_SIZES", "THRIFT", "Model", "Solved", "sizes_for", "solve", "solve_size"]

THRIFT = 0.001
"""Bits that would lower the error by less than this fraction of it are not spent."""

MOST_SIZES = 6
"""Subgroup sizes that are tried."""

_PLACES = 20
_MOST_BITS_ABOVE = 24  # beyond the fewest: the error is then below 2^-40 of the range


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """Bits of every subgroup for one subgroup size, and the error that the model gives them."""

    size: int
    bits: tuple[int, ...]
    error: float
    lower_bound: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One subgroup size: what bits cost and what they buy."""

    users: int
    size: int
    subgroups: int
    requirements: Requirements
    careful: bool = False  # space for the last byte of every segment, and for segments of unequal size

    @property
    def star(self) -> int:
        """1 for an odd design, in which every subgroup codes one segment alone."""
        return self.subgroups % 2

    @property
    def segments(self) -> int:
        """Segments of the design."""
        return self.subgroups - 1 + self.star

    @property
    def elements(self) -> int:
        """Elements of the largest segment."""
        return -(-self.requirements.dimension // self.segments)

    @property
    def block(self) -> int:
        """Users of the largest block."""
        return 2 * (self.users // self.subgroups) + min(self.users % self.subgroups, 2)

    @property
    def fewest(self) -> int:
        """Bits of a ring with two levels."""
        return self.block.bit_length()

    def level(self, bits: int) -> int:
        """The most levels that a ring of so many bits holds for the largest block."""
        return int(min((2**bits - 1) // self.block + 1, 2**32))

    def starts(self) -> list[int]:
        """The place, in users by rate, at which each subgroup begins."""
        even, more = divmod(self.users, self.subgroups)
        return [place * even + min(place, more) for place in range(self.subgroups)]

    def budgets(self, rates: Sequence[float]) -> list[int]:
        """For each subgroup, the bits an element's way through all segments may take: its slowest member's budget."""
        lanes = len(lane_names(weighted=self.requirements.max_weight > 1, noise=False))
        fixed = self.segments * (64 * lanes + (7 if self.careful else 0))
        elements = self.elements if self.careful else self.requirements.dimension / self.segments
        return [math.floor((self.requirements.budget(rates[at]) - fixed) / elements) for at in self.starts()]

    def error(self, weighted: float, *, block: float | None = None, elements: float | None = None) -> float:
        """The bound on the error, from the sum over pairs: with blocks and segments of mean size unless given."""
        low, high = check_range(self.requirements.value_range)
        width = high - low
        users = 2 * self.users / self.subgroups if block is None else block
        size = self.requirements.dimension / self.segments if elements is None else elements
        return weighted * users * size * width**2 / 4 / self.users**2

    def lower_bound(self, rates: Sequence[float]) -> float:
        """Less than this no bits can bring: the smallest blocks and segments, slower subgroups with the fewest bits."""
        requirements = self.requirements
        smallest, elements = 2 * (self.users // self.subgroups), requirements.dimension // self.segments
        fewest = smallest.bit_length()
        total = 0.0
        for place, (at, weight) in enumerate(zip(self.starts(), self.weights(), strict=True)):
            after = self.subgroups - 1 - place + self.star
            budget = (
                (requirements.budget(rates[at]) - 128 * self.segments) / max(elements, 1) - place * fewest + self.star
            )
            bits = min(63, math.floor(budget / after)) if after else 63
            level = min((2 ** max(bits, fewest) - 1) // smallest + 1, 2**32)
            total += weight * self.cost_of(level)
        return self.error(total, block=smallest, elements=elements)

    def spends(self, place: int, bits: int) -> int:
        """Bits of an element's way through the segments in which this subgroup is the slower one, or alone."""
        paired = (self.subgroups - 1 - place) * bits
        if not self.star:
            return paired
        largest = -(-self.users // self.subgroups)
        return paired + (largest * (self.level(bits) - 1)).bit_length()

    def weights(self) -> list[float]:
        """In how many pairs each subgroup is the slower one; a star counts half."""
        return [self.subgroups - 1 - place + self.star / 2 for place in range(self.subgroups)]

    def cost(self, bits: int) -> float:
        """The error of one pair at so many bits, up to a factor that all share."""
        return self.cost_of(self.level(bits))

    def cost_of(self, level: int) -> float:
        """The same, at so many levels: rounding noise, and the bias of clipping, which does not average out."""
        return level_cost(level, self.users, single=self.requirements.ranges == "single")


def solve(
    requirements: Requirements, rates: Sequence[float], *, sizes: int = MOST_SIZES, careful: bool = False
) -> Solved | None:
    """The best bits over all subgroup sizes that the requirements allow, or the first few of them."""
    users = len(rates)
    models = [
        Model(users=users, size=size, subgroups=users // size, requirements=requirements, careful=careful)
        for size in sizes_for(requirements)[:sizes]
    ]
    found = [solved for model in models if (solved := solve_size(model, rates)) is not None]
    if not found:
        return None
    bound = min(solved.lower_bound for solved in found)
    return replace(min(found, key=lambda solved: solved.error), lower_bound=bound)


def sizes_for(requirements: Requirements) -> list[int]:
    """Subgroup sizes to try: the smallest that are allowed, and some larger ones, whose segments are fewer."""
    users = len(requirements.rates)
    least = max(-(-users // requirements.most_subgroups), requirements.min_survivors)
    if requirements.corrupt > 0:
        try:
            needed = chances.least_subgroup_size(
                users,
                corrupt=requirements.corrupt,
                dropout=requirements.dropout,
                honest=requirements.min_survivors,
                bits=requirements.privacy_bits,
            )
        except UsageError:
            return []
        least = max(least, needed)
    fitting = [size for size in range(least, users // 2 + 1) if _fits(requirements, users // size)]
    allowed: list[int] = []
    for size in fitting:
        if len(allowed) < MOST_SIZES and (len(allowed) < 3 or size >= 1.4 * allowed[-1]) and _lasts(requirements, size):
            allowed.append(size)
    return allowed


def _fits(requirements: Requirements, subgroups: int) -> bool:
    """Whether `perfect` has so many subgroups, and the median tolerates the attackers among them."""
    return (
        has_perfect(subgroups)
        and tolerated_subgroups(subgroups) >= requirements.attackers
        and subgroups <= min(requirements.dimension, requirements.most_subgroups)
    )


def _lasts(requirements: Requirements, size: int) -> bool:
    """Whether rounds end for lack of survivors as seldom as required."""
    users = len(requirements.rates)
    needed = majority(users, requirements.colluders)
    return (
        _failure(users, size, requirements.dropout, requirements.min_survivors, needed, requirements.failure)
        <= requirements.failure
    )


@lru_cache(maxsize=1024)
def _failure(users: int, size: int, dropout: float, min_survivors: int, needed: int, enough: float) -> float:
    """The probability that a round ends for lack of survivors, or a quick bound on it that is `enough`.

    The bound: some subgroup with too few survivors, or fewer than a majority left (Hoeffding).
    """
    subgroups = users // size
    even, more = divmod(users, subgroups)
    few = math.fsum(
        math.comb(even, count) * (1 - dropout) ** count * dropout ** (even - count)
        for count in range(min(min_survivors, even + 1))
    )
    bound = subgroups * few + math.exp(-2 * users * max((users - needed) / users - dropout, 0.0) ** 2)
    if bound <= enough:
        return bound
    return chances.failure_probability(
        make("perfect", subgroups),
        [even + (place < more) for place in range(subgroups)],
        dropout,
        min_survivors=min_survivors,
        min_block_survivors=min_survivors,
        needed=needed,
        losses=0 if subgroups % 2 or subgroups == 2 else 1,
    )


def solve_size(model: Model, rates: Sequence[float]) -> Solved | None:
    """The best bits of one subgroup size, in at most as many classes as required."""
    budgets = model.budgets(rates)
    if budgets[0] < model.spends(0, model.fewest):
        return None
    bits = _spend(model, budgets, min(_PLACES, model.subgroups))
    if len(set(bits)) > model.requirements.most_classes:
        bits = _spend(model, budgets, model.requirements.most_classes)
    spent = math.fsum(weight * model.cost(width) for weight, width in zip(model.weights(), bits, strict=True))
    return Solved(size=model.size, bits=tuple(bits), error=model.error(spent), lower_bound=model.lower_bound(rates))


def _spend(model: Model, budgets: Sequence[int], most_places: int) -> list[int]:
    """Bits for every subgroup, by dynamic programming over widths from the fewest up: each is one run of subgroups.

    `error[k, t]` is the least error of the subgroups before the k-th place when they have t bits together. A run that
    begins at a place must fit that subgroup's budget: the bits before it, and its own width for everybody from there
    on. Two levels suffice for everybody (the caller has seen to it), so there always is an answer.
    """
    count = model.subgroups
    places = _places(budgets, most_places)
    ends = [*places, count]
    weights = model.weights()
    ahead = [math.fsum(weights[:place]) for place in ends]
    widths = range(model.fewest, min(63, model.fewest + _MOST_BITS_ABOVE) + 1)
    limit = count * widths[-1]
    error = np.full((len(ends), limit + 1), np.inf)
    error[0, 0] = 0.0
    begun: dict[int, npt.NDArray[np.int16]] = {}
    for width in widths:
        cost = model.cost(width)
        before, origin = error.copy(), np.full(error.shape, -1, dtype=np.int16)
        for start, place in enumerate(places):
            budget = min(budgets[place] - model.spends(place, width), limit)
            if budget < 0 or not np.isfinite(before[start, : budget + 1]).any():
                continue
            for stop in range(start + 1, len(ends)):
                shift = (ends[stop] - place) * width
                reach = min(budget, limit - shift)
                found = before[start, : reach + 1] + cost * (ahead[stop] - ahead[start])
                window = slice(shift, shift + reach + 1)
                better = found < error[stop, window]
                error[stop, window][better] = found[better]
                origin[stop, window][better] = start
        begun[width] = origin
    cheapest = np.flatnonzero(error[-1] <= (1 + THRIFT) * error[-1].min())[0]
    return _trace(ends, int(cheapest), begun)


def _trace(ends: Sequence[int], total: int, begun: Mapping[int, npt.NDArray[np.int16]]) -> list[int]:
    """The bits of every subgroup on the way to a total: each run is narrower than the one after it."""
    bits = [0] * ends[-1]
    stop, below = len(ends) - 1, max(begun) + 1
    while stop:
        width = max(width for width in begun if width < below and begun[width][stop, total] >= 0)
        start = int(begun[width][stop, total])
        bits[ends[start] : ends[stop]] = [width] * (ends[stop] - ends[start])
        total -= (ends[stop] - ends[start]) * width
        stop, below = start, width
    return bits


def _places(budgets: Sequence[int], most: int) -> list[int]:
    """Where a class may begin: where the budget grows by most, and spread evenly."""
    count = len(budgets)
    if count <= most:
        return list(range(count))
    jumps = sorted(range(1, count), key=lambda place: budgets[place - 1] - budgets[place])[: most // 2]
    chosen = {0, *(place for place in jumps if budgets[place] > budgets[place - 1])}
    spread = iter(sorted(range(count), key=lambda place: (place * most % count, place)))
    while len(chosen) < most:
        chosen.add(next(spread))
    return sorted(chosen)
