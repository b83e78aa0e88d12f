"""From users' links to the best plan: the clustering and the levels that the paper leaves open.

Users are sorted by upload rate, slowest first, and cut into Z subgroups of n. A block codes at its slower subgroup's
level, so a user of subgroup i sends, in units of a segment's elements,

    b_1 + ... + b_{i-1} + (Z - i) b_i        (and a star's bits in an odd design, mostly b_i - 1)

bits, where b_i rises with i, and the ring of b bits holds K(b) = floor((2^b - 1) / (s W)) + 1 levels. The bound on the
quantization error (Theorem 2) is a sum over pairs, each at its slower member's level: (Z - i) / (K(b_i) - 1)^2 over the
subgroups. A slow subgroup with many bits costs everybody who is faster; that is the trade.

For given n the best b is found by dynamic programming over the places where a class may begin, with the bits spent by
slower subgroups as the state: exact for every Z up to `_PLACES`, and beyond over that many places, spread evenly. n
runs over the subgroup sizes that the other wishes allow. `lower_bound` is the error that no plan of these subgroup
sizes can beat: every subgroup with the bits it could have if all slower ones had the fewest. Of plans whose errors are
within a thousandth of the least the one with the fewest bits is taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from heterosag import dropout as chances
from heterosag.design import has_perfect, make
from heterosag.errors import InfeasibleError, PlanError, UsageError
from heterosag.graph import majority
from heterosag.plan import Plan
from heterosag.quantize import check_range

__all__ = ["InfeasibleError", "Proposal", "Relaxation", "Wishes", "best", "spread_rates", "trade_off"]

THRIFT = 0.001
"""Bits that would lower the error by less than this share of it are not spent."""

_PLACES = 20
_MOST_BITS_ABOVE = 24  # beyond the fewest: the error is then below 2^-40 of the range
_SIZES = 6  # subgroup sizes that are tried
_MOST_USERS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a plan is for.

    rates: Mb/s of each user's upload. Either a deadline in seconds for the masked vector's upload, or the bits that it
    may have. dropout, corrupt: shares of users. attackers: liars that the median must bear. failure: how often a round
    may end for lack of survivors. With corrupt users thresholds count them as colluders, and every block keeps `floor`
    honest survivors but for 2^-privacy_bits, if users are placed at random inside their class: by an enrolment, or by
    the `assignment_seed` of the plan's recipe.
    """

    rates: tuple[float, ...]
    dimension: int
    deadline: float | None = None
    bits: int | None = None
    dropout: float = 0.1
    corrupt: float = 0.0
    attackers: int = 0
    floor: int = 3
    value_range: tuple[float, float] = (-1.0, 1.0)
    weight_bound: int = 1
    most_classes: int = 10
    most_subgroups: int = 128
    failure: float = 0.01
    privacy_bits: int = 40

    def __post_init__(self) -> None:
        if not 4 <= len(self.rates) <= _MOST_USERS:
            raise UsageError(f"a plan is for 4 to {_MOST_USERS} users, not {len(self.rates)}")
        if not all(math.isfinite(rate) and rate > 0 for rate in self.rates):
            raise UsageError("every user's rate is a finite number of Mb/s above 0")
        if (self.deadline is None) == (self.bits is None):
            raise UsageError("give a deadline in seconds, or the bits that an upload may have")
        limit = self.deadline if self.deadline is not None else float(self.bits or 0)
        if not (math.isfinite(limit) and limit > 0):
            raise UsageError(f"a deadline or a number of bits is finite and above 0, not {limit!r}")
        if not (0 <= self.dropout < 0.5 and 0 <= self.corrupt < 0.5 and self.attackers >= 0):
            raise UsageError("dropout and corrupt are shares of users below one half, attackers a number of them")
        if self.dimension < 1 or self.floor < 2 or self.weight_bound < 1 or self.most_classes < 1:
            raise UsageError("dimension, weight_bound and most_classes are at least 1, floor at least 2")
        check_range(self.value_range)
        if not (2 <= self.most_subgroups <= 1000 and 0 < self.failure < 1 and self.privacy_bits >= 1):
            raise UsageError("most_subgroups is 2 to 1000, failure a probability, privacy_bits at least 1")

    @property
    def colluders(self) -> int:
        """The corrupt users, as a number."""
        return math.ceil(self.corrupt * len(self.rates))

    def budget(self, rate: float) -> float:
        """The bits that a user with this rate may upload."""
        return float(self.bits) if self.bits is not None else rate * 1e6 * (self.deadline or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxation:
    """What giving way on one wish would buy: the error bound with it."""

    what: str
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The best plan found.

    order: users by rate, which are the plan's. seconds, bytes: of the masked vector, of each class's slowest user.
    error: the plan's bound; no plan of these subgroup sizes has less than lower_bound. binding: which wish costs most.
    """

    plan: Plan
    error: float
    lower_bound: float
    seconds: tuple[float, ...]
    bytes: tuple[int, ...]
    order: tuple[int, ...]
    binding: str
    relaxing: tuple[Relaxation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Solved:
    """Bits of every subgroup for one subgroup size, and the error that the model gives them."""

    size: int
    bits: tuple[int, ...]
    error: float
    lower_bound: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    """One subgroup size: what bits cost and what they buy."""

    users: int
    size: int
    subgroups: int
    wishes: Wishes
    careful: bool = False  # room for the last byte of every segment, and for segments of unequal size

    @property
    def star(self) -> int:
        return self.subgroups % 2

    @property
    def segments(self) -> int:
        return self.subgroups - 1 + self.star

    @property
    def elements(self) -> int:
        return -(-self.wishes.dimension // self.segments)

    @property
    def block(self) -> int:
        """Users of the largest block."""
        return 2 * (self.users // self.subgroups) + min(self.users % self.subgroups, 2)

    @property
    def fewest(self) -> int:
        """Bits of a ring with two levels."""
        return (self.block * self.wishes.weight_bound).bit_length()

    def level(self, bits: int) -> int:
        return int(min((2**bits - 1) // (self.block * self.wishes.weight_bound) + 1, 2**32))

    def starts(self) -> list[int]:
        """The place, in users by rate, at which each subgroup begins."""
        even, more = divmod(self.users, self.subgroups)
        return [place * even + min(place, more) for place in range(self.subgroups)]

    def rooms(self, rates: Sequence[float]) -> list[int]:
        """For each subgroup, the bits an element's way through all segments may take: its slowest member's budget."""
        lanes = 3 if self.wishes.weight_bound > 1 else 2
        fixed = self.segments * (64 * lanes + (7 if self.careful else 0))
        elements = self.elements if self.careful else self.wishes.dimension / self.segments
        return [math.floor((self.wishes.budget(rates[at]) - fixed) / elements) for at in self.starts()]

    def error(self, weighted: float, *, block: float | None = None, elements: float | None = None) -> float:
        """The bound on the error, from the sum over pairs: with blocks and segments of mean size unless given."""
        width = self.wishes.value_range[1] - self.wishes.value_range[0]
        share = self.wishes.weight_bound / (self.wishes.weight_bound + self.users - 1)
        users = 2 * self.users / self.subgroups if block is None else block
        size = self.wishes.dimension / self.segments if elements is None else elements
        return weighted * users * size * width**2 / 4 * share**2

    def lower_bound(self, rates: Sequence[float]) -> float:
        """Less than this no bits can bring: the smallest blocks and segments, slower subgroups with the fewest bits."""
        wishes = self.wishes
        smallest, elements = 2 * (self.users // self.subgroups), wishes.dimension // self.segments
        fewest = (smallest * wishes.weight_bound).bit_length()
        total = 0.0
        for place, (at, weight) in enumerate(zip(self.starts(), self.weights(), strict=True)):
            after = self.subgroups - 1 - place + self.star
            room = (wishes.budget(rates[at]) - 128 * self.segments) / max(elements, 1) - place * fewest + self.star
            bits = min(63, math.floor(room / after)) if after else 63
            level = min((2 ** max(bits, fewest) - 1) // (smallest * wishes.weight_bound) + 1, 2**32)
            total += weight / (level - 1) ** 2
        return self.error(total, block=smallest, elements=elements)

    def spends(self, place: int, bits: int) -> int:
        """Bits of an element's way through the segments in which this subgroup is the slower one, or alone."""
        paired = (self.subgroups - 1 - place) * bits
        if not self.star:
            return paired
        largest = -(-self.users // self.subgroups)
        return paired + (largest * self.wishes.weight_bound * (self.level(bits) - 1)).bit_length()

    def weights(self) -> list[float]:
        return [self.subgroups - 1 - place + self.star / 2 for place in range(self.subgroups)]

    def cost(self, bits: int) -> float:
        return 1.0 / (self.level(bits) - 1) ** 2


def best(wishes: Wishes) -> Proposal:
    """The plan with the least error bound that meets every wish, or an `InfeasibleError` that says which two clash."""
    order = tuple(sorted(range(len(wishes.rates)), key=lambda user: (wishes.rates[user], user)))
    rates = [wishes.rates[user] for user in order]
    solved = _solve(wishes, rates)
    if solved is None:
        raise _infeasible(wishes, rates)
    return _propose(wishes, rates, order, solved)


def trade_off(wishes: Wishes, deadlines: Iterable[float]) -> list[tuple[float, float | None]]:
    """The error bound at each deadline, None where nothing meets it."""
    rates = sorted(wishes.rates)
    found: list[tuple[float, float | None]] = []
    for deadline in deadlines:
        solved = _solve(replace(wishes, deadline=deadline, bits=None), rates)
        found.append((deadline, None if solved is None else solved.error))
    return found


def spread_rates(median: float, spread: float, users: int) -> tuple[float, ...]:
    """Rates of a log-normal distribution, at evenly spaced quantiles: the same each time."""
    if not (median > 0 and spread >= 0 and 4 <= users <= _MOST_USERS):
        raise UsageError(f"a distribution has a median above 0, a spread of at least 0 and 4 to {_MOST_USERS} users")
    normal = NormalDist()
    try:
        return tuple(median * math.exp(spread * normal.inv_cdf((place + 0.5) / users)) for place in range(users))
    except OverflowError:
        raise UsageError(f"a spread of {spread:g} is beyond every link: it is the logarithm's, 0.5 is a lot") from None


# --- the search -----------------------------------------------------------------------------------------------------


def _solve(wishes: Wishes, rates: Sequence[float], *, sizes: int = _SIZES, careful: bool = False) -> _Solved | None:
    """The best bits over all subgroup sizes that the wishes allow, or the first few of them."""
    users = len(rates)
    models = [
        _Model(users=users, size=size, subgroups=users // size, wishes=wishes, careful=careful)
        for size in _sizes(wishes)[:sizes]
    ]
    found = [solved for model in models if (solved := _solve_size(model, rates)) is not None]
    if not found:
        return None
    bound = min(solved.lower_bound for solved in found)
    return replace(min(found, key=lambda solved: solved.error), lower_bound=bound)


def _sizes(wishes: Wishes) -> list[int]:
    """Subgroup sizes to try: the smallest that are allowed, and some larger ones, whose segments are fewer."""
    users = len(wishes.rates)
    least = max(-(-users // wishes.most_subgroups), -(-wishes.floor // 2), 1)
    if wishes.corrupt > 0:
        try:
            needed = chances.least_subgroup_size(
                users, corrupt=wishes.corrupt, dropout=wishes.dropout, honest=wishes.floor, bits=wishes.privacy_bits
            )
        except UsageError:
            return []
        least = max(least, needed)
    fitting = [size for size in range(least, users // 2 + 1) if _fits(wishes, users // size)]
    allowed: list[int] = []
    for size in fitting:
        if len(allowed) < _SIZES and (len(allowed) < 3 or size >= 1.4 * allowed[-1]) and _lasts(wishes, size):
            allowed.append(size)
    return allowed


def _fits(wishes: Wishes, subgroups: int) -> bool:
    """Whether `perfect` has so many subgroups, and the median bears the attackers among them."""
    return (
        has_perfect(subgroups)
        and -(-subgroups // 4) - 1 >= wishes.attackers
        and subgroups <= min(wishes.dimension, wishes.most_subgroups)
    )


def _lasts(wishes: Wishes, size: int) -> bool:
    """Whether rounds end for lack of survivors as seldom as wished."""
    alone, users = wishes.weight_bound > 1, len(wishes.rates)
    needed = majority(users, wishes.colluders)
    return _failure(users, size, wishes.dropout, wishes.floor, alone, needed, wishes.failure) <= wishes.failure


@lru_cache(maxsize=1024)
def _failure(users: int, size: int, dropout: float, floor: int, alone: bool, needed: int, enough: float) -> float:
    """The probability that a round ends for lack of survivors, or a quick bound on it that is `enough`.

    The bound: some guarded set of subgroups below the floor, or fewer than a majority left (Hoeffding).
    """
    subgroups = users // size
    even, more = divmod(users, subgroups)
    sets = subgroups if alone or subgroups % 2 else subgroups * (subgroups - 1) / 2
    members = even if alone or subgroups % 2 else 2 * even
    few = math.fsum(
        math.comb(members, count) * (1 - dropout) ** count * dropout ** (members - count)
        for count in range(min(floor, members + 1))
    )
    bound = sets * few + math.exp(-2 * users * max((users - needed) / users - dropout, 0.0) ** 2)
    if bound <= enough:
        return bound
    return chances.failure_probability(
        make("perfect", subgroups),
        [even + (place < more) for place in range(subgroups)],
        dropout,
        floor=floor,
        needed=needed,
        losses=0 if subgroups % 2 or subgroups == 2 else 1,
        floor_per_subgroup=alone,
    )


def _solve_size(model: _Model, rates: Sequence[float]) -> _Solved | None:
    """The best bits of one subgroup size, in at most as many classes as wished."""
    rooms = model.rooms(rates)
    if rooms[0] < model.spends(0, model.fewest):
        return None
    bits = _spend(model, rooms, min(_PLACES, model.subgroups))
    if len(set(bits)) > model.wishes.most_classes:
        bits = _spend(model, rooms, model.wishes.most_classes)
    spent = math.fsum(weight * model.cost(width) for weight, width in zip(model.weights(), bits, strict=True))
    return _Solved(size=model.size, bits=tuple(bits), error=model.error(spent), lower_bound=model.lower_bound(rates))


def _spend(model: _Model, rooms: Sequence[int], most_places: int) -> list[int]:
    """Bits for every subgroup, by dynamic programming over widths from the fewest up: each is one run of subgroups.

    `error[k, t]` is the least error of the subgroups before the k-th place when they have t bits together. A run that
    begins at a place must fit that subgroup's room: the bits before it, and its own width for everybody from there on.
    Two levels suffice for everybody (the caller has seen to it), so there always is an answer.
    """
    count = model.subgroups
    places = _places(rooms, most_places)
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
            room = min(rooms[place] - model.spends(place, width), limit)
            if room < 0 or not np.isfinite(before[start, : room + 1]).any():
                continue
            for stop in range(start + 1, len(ends)):
                shift = (ends[stop] - place) * width
                reach = min(room, limit - shift)
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


def _places(rooms: Sequence[int], most: int) -> list[int]:
    """Where a class may begin: where room grows by most, and spread evenly."""
    count = len(rooms)
    if count <= most:
        return list(range(count))
    jumps = sorted(range(1, count), key=lambda place: rooms[place - 1] - rooms[place])[: most // 2]
    chosen = {0, *(place for place in jumps if rooms[place] > rooms[place - 1])}
    spread = iter(sorted(range(count), key=lambda place: (place * most % count, place)))
    while len(chosen) < most:
        chosen.add(next(spread))
    return sorted(chosen)


# --- the answer -----------------------------------------------------------------------------------------------------


def _propose(wishes: Wishes, rates: Sequence[float], order: tuple[int, ...], solved: _Solved) -> Proposal:
    """The plan of the bits found, with what it costs and what giving way would buy."""
    plan = _build(wishes, order, solved)
    if not _keeps(plan, wishes, rates):
        careful = _solve(wishes, rates, careful=True)
        if careful is None:
            raise _infeasible(wishes, rates)
        solved, plan = careful, _build(wishes, order, careful)
    firsts = [sum(plan.classes[:place]) for place in range(len(plan.classes))]
    sent = [0] * len(plan.classes)
    for size, subgroup in zip(plan.vector_sizes(), plan.subgroups, strict=True):
        sent[subgroup.user_class] = max(sent[subgroup.user_class], size)
    error = plan.quantization_error()
    relaxing = tuple(_relax(wishes, rates, solved.error, error))
    binding = min(relaxing, key=lambda one: one.error).what if relaxing else "nothing: giving way would not help"
    return Proposal(
        plan=plan,
        error=error,
        lower_bound=solved.lower_bound,
        seconds=tuple(size * 8 / (rates[first] * 1e6) for size, first in zip(sent, firsts, strict=True)),
        bytes=tuple(sent),
        order=order,
        binding=binding,
        relaxing=relaxing,
    )


def _keeps(plan: Plan, wishes: Wishes, rates: Sequence[float]) -> bool:
    """Whether every user's upload, to the last byte, is within its budget."""
    sizes = plan.vector_sizes()
    return all(8 * sizes[plan.seats[place]] <= wishes.budget(rate) for place, rate in enumerate(rates))


def _build(wishes: Wishes, order: tuple[int, ...], solved: _Solved) -> Plan:
    """The plan: a class is a run of subgroups of one width, and levels fill their rings."""
    users = len(order)
    model = _Model(users=users, size=solved.size, subgroups=users // solved.size, wishes=wishes)
    starts = [*model.starts(), users]
    widths = sorted(set(solved.bits))
    classes = [
        sum(starts[place + 1] - starts[place] for place, width in enumerate(solved.bits) if width == one)
        for one in widths
    ]
    return Plan.build(
        classes,
        [model.level(width) for width in widths],
        wishes.dimension,
        users=list(order),
        subgroup_size=solved.size,
        floor=wishes.floor,
        value_range=wishes.value_range,
        weight_bound=wishes.weight_bound,
        dropout=wishes.dropout,
        colluders=wishes.colluders,
        fill_levels=True,
    )


def _relax(wishes: Wishes, rates: Sequence[float], modelled: float, error: float) -> Iterable[Relaxation]:
    """What each wish costs: the error if it were a little less, where that is less by more than a hundredth."""
    changes: dict[str, dict[str, Any]] = {}
    if wishes.deadline is not None:
        changes["a deadline a quarter longer"] = {"deadline": 1.25 * wishes.deadline}
    if wishes.bits is not None:
        changes["a quarter more bits"] = {"bits": math.ceil(1.25 * wishes.bits)}
    if wishes.dropout > 0:
        changes["half the dropout"] = {"dropout": wishes.dropout / 2}
    if wishes.corrupt > 0:
        changes["half the corrupt users"] = {"corrupt": wishes.corrupt / 2}
    if wishes.attackers > 0:
        changes["one attacker fewer"] = {"attackers": wishes.attackers - 1}
    if wishes.floor > 2:
        changes["a floor one lower"] = {"floor": wishes.floor - 1}
    if len(rates) > 4 * wishes.most_subgroups:
        changes["twice the subgroups"] = {"most_subgroups": min(2 * wishes.most_subgroups, 1000)}
    for what, change in changes.items():
        solved = _solve(replace(wishes, **change), rates, sizes=2)
        if solved is not None and solved.error < 0.99 * modelled:
            yield Relaxation(what=what, error=error * solved.error / modelled)


def _infeasible(wishes: Wishes, rates: Sequence[float]) -> InfeasibleError:
    """Which two wishes clash, and the nearest plan."""
    if not _sizes(wishes):
        return _clash(wishes)
    slowest = f"the slowest upload of {rates[0]:g} Mb/s" if wishes.bits is None else "two levels for everybody"
    needed = min(_fewest_bits(wishes, size, rates) for size in _sizes(wishes))
    if wishes.bits is not None:
        wider = replace(wishes, bits=math.ceil(needed))
        return InfeasibleError((f"an upload of {wishes.bits} bits", slowest), _answer(wider), _words(wider))
    longer = replace(wishes, deadline=needed / (rates[0] * 1e6) * 1.0001)
    return InfeasibleError((f"a deadline of {wishes.deadline:g} s", slowest), _answer(longer), _words(longer))


def _fewest_bits(wishes: Wishes, size: int, rates: Sequence[float]) -> float:
    """Bits of the smallest upload of the slowest subgroup: two levels everywhere."""
    model = _Model(users=len(rates), size=size, subgroups=len(rates) // size, wishes=wishes)
    lanes = 3 if wishes.weight_bound > 1 else 2
    return model.segments * (64 * lanes + 7) + model.elements * (model.spends(0, model.fewest) + 1)


def _clash(wishes: Wishes) -> InfeasibleError:
    """No subgroup size is left: name the two wishes of which giving up one would leave some."""
    pairs: list[tuple[str, str, dict[str, Any]]] = [
        (
            f"{wishes.attackers} attackers",
            f"{wishes.dropout:.0%} dropout at a floor of {wishes.floor}",
            {"attackers": 0},
        ),
        (f"{wishes.corrupt:.0%} corrupt users", f"only {len(wishes.rates)} users", {"corrupt": 0.0}),
        (f"{wishes.dropout:.0%} dropout", f"a floor of {wishes.floor} in every block", {"dropout": 0.0}),
        (f"{wishes.attackers} attackers", f"{wishes.corrupt:.0%} corrupt users", {"attackers": 0, "corrupt": 0.0}),
    ]
    for one, other, change in pairs:
        easier = replace(wishes, **change)
        if easier != wishes and _sizes(easier):
            easier = _tighten(wishes, easier)
            return InfeasibleError((one, other), _answer(easier), _words(easier))
    return InfeasibleError((f"only {len(wishes.rates)} users", f"a floor of {wishes.floor}"), None, "more users")


def _tighten(wishes: Wishes, easier: Wishes) -> Wishes:
    """As many attackers as there is room for, if they were what was given up."""
    for attackers in range(wishes.attackers - 1, easier.attackers, -1):
        if _sizes(replace(easier, attackers=attackers)):
            return replace(easier, attackers=attackers)
    return easier


def _answer(wishes: Wishes) -> Proposal | None:
    try:
        return best(wishes)
    except (InfeasibleError, PlanError):
        return None


def _words(wishes: Wishes) -> str:
    limit = f"{wishes.bits} bits" if wishes.bits is not None else f"a deadline of {wishes.deadline:.4g} s"
    return (
        f"{limit}, {wishes.attackers} attackers, {wishes.corrupt:.0%} corrupt, {wishes.dropout:.0%} dropout, floor "
        f"{wishes.floor}"
    )
