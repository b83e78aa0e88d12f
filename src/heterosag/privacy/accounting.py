"""What rounds cost a user: Rényi divergences that add up, and the epsilon they come to.

Neighbours differ in one user: all of its trials, in every coordinate and round, become fair coins. Two views, never one
figure for both: `server` sees the sum of every block, `model` sees only the mean over all blocks.

A coordinate of a user moves its block's sum by a divergence of at most rho eta^2, where eta = x / 2R
(`heterosag.privacy.bound`). Coordinates are independent given the data, so their divergences add, and the norm bounds
the sum of the squares: a round costs at most c^2 rho / 4R^2 = rho h / (4 z^2 t), the largest over the user's segments.
Rounds add. At last, for every order alpha,

    epsilon = divergence + ln(1 - 1/alpha) - ln(alpha delta) / (alpha - 1)

holds (Canonne, Kamath, Steinke 2020), and the least over all orders is the figure. Orders are tried only where the
least can be: each costs time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
import numpy.typing as npt

from heterosag.choices import View
from heterosag.errors import UsageError
from heterosag.plan import CohortPlan, Plan
from heterosag.plan.noise import CLIP_RANGE, CLIP_TRIALS, MAX_THETA, check_noise, coordinate_limit, noise_range
from heterosag.plan.sharing import PRIVACY_BITS
from heterosag.privacy import bound, cache

__all__ = [
    "ORDERS",
    "NoisyRound",
    "NoisySegment",
    "View",
    "cheapest_order",
    "check_delta",
    "check_rounds",
    "divergence",
    "epsilon",
    "gaussian_noise_multiplier_for",
    "noise_multiplier_for",
    "overhead",
    "rho",
]

ORDERS: tuple[float, ...] = (
    *(1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 14.0, 16.0),
    *(20.0, 24.0, 28.0, 32.0, 40.0, 48.0, 64.0, 80.0, 96.0, 128.0, 192.0, 256.0, 384.0, 512.0),
)
"""Orders among which the least epsilon is looked for: more would make it smaller by less than a hundredth."""

_STEPS = 1024  # of theta to one: the grid that it is rounded up to
_LEAST_STEPS = 16  # below, a smaller theta gains a thousandth at most
_NO_NOISE = "no noise keeps {rounds} rounds within epsilon {epsilon:g} at delta {delta:g}"
_ROUNDING = 1e-12  # relative, for the arithmetic behind the bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisySegment:
    """One of a user's segments, as far as its noise goes.

    - `size`: elements of the segment.
    - `trials`: trials of an element, one less than the levels of the user's block.
    - `everywhere`: fewest honest survivors over all blocks of the segment with so many trials: what the mean hides in.
    """

    size: int
    trials: int
    everywhere: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyRound:
    """A round of the mechanism: all that its cost depends on. The clipping norm is not part of it.

    - `noise_multiplier`: standard deviation of a block's noise over `honest` users, in units of the clipping norm.
    - `honest`: fewest honest survivors of a block.
    - `segments`: the segments of one user.
    - `clip_bit`: honest survivors whose bit for adaptive clipping is summed; 0 where there is none.
    - `failure_probability`: that the round's epoch has a block with fewer honest survivors, or a sharing graph that
      fails; added to delta once an epoch.
    - `epoch`: tells epochs of equal parameters apart.
    """

    noise_multiplier: float
    honest: int
    segments: tuple[NoisySegment, ...]
    clip_bit: int = 0
    failure_probability: float = 0.0
    epoch: int = 0

    @classmethod
    def of(cls, plan: Plan | CohortPlan, *, survivors: int | None = None) -> NoisyRound:
        """A round of a plan, for whoever of its users it costs most.

        Args:
            plan: A plan with noise, or cohorts, of which each user is in one: the segments of all of them, of which
                the dearest counts.
            survivors: Fewest survivors of a round, over all blocks; None: those without which no round of the plan
                ends. Counts where all blocks of a segment have the same level.

        Returns:
            The round, with the probability that a sparse sharing graph fails.

        Raises:
            UsageError: A plan without noise, or not a number of survivors.

        Example:
            >>> plan = Plan.build([40], [2], 10_000, design="secagg", subgroup_size=40, min_block_survivors=32,
            ...     clipping_norm=1.0, noise_multiplier=4.0)
            >>> NoisyRound.of(plan).honest
            31
        """
        if not plan.noise_multiplier:
            raise UsageError("this plan has no noise: build it with clipping_norm and noise_multiplier")
        if isinstance(plan, CohortPlan):
            parts = [cls.of(one, survivors=survivors) for one in plan.plans]
            return replace(
                parts[0],
                segments=_sorted({segment for part in parts for segment in part.segments}),
                clip_bit=min(part.clip_bit for part in parts),
                failure_probability=max(part.failure_probability for part in parts),
            )
        needed = plan.share_threshold if plan.sharing.complete else 0
        fewest = max(plan.min_block_survivors, needed) if survivors is None else survivors
        if isinstance(fewest, bool) or not isinstance(fewest, int) or not 1 <= fewest <= len(plan.users):
            raise UsageError(f"survivors of this plan are 1 to {len(plan.users)}, not {survivors!r}")
        others = plan.min_block_survivors - plan.honest  # who may not follow the mechanism in a block
        found, everybody = set(), fewest
        for segment in plan.segments:
            levels = {block.level for block in segment.blocks}
            in_all = plan.colluders if others <= plan.colluders else others * len(segment.blocks)
            everybody = max(plan.honest, min(everybody, fewest - in_all))
            everywhere = max(plan.honest, fewest - in_all if len(levels) == 1 else 0)
            found |= {NoisySegment(size=segment.size, trials=level - 1, everywhere=everywhere) for level in levels}
        return cls(
            noise_multiplier=plan.noise_multiplier,
            honest=plan.honest,
            segments=_sorted(found),
            clip_bit=everybody if plan.adaptive_clip else 0,
            failure_probability=0.0 if plan.sharing.complete else 2.0**-PRIVACY_BITS,
        )

    def __post_init__(self) -> None:
        """Refuse parameters that no plan may have."""
        if not self.segments:
            raise UsageError("a round has at least one segment")
        for segment in self.segments:
            noise_range(self.noise_multiplier, 1.0, self.honest, segment.trials, segment.size)
            check_noise(self.noise_multiplier, segment.everywhere, segment.trials, segment.size)
        if isinstance(self.clip_bit, bool) or not isinstance(self.clip_bit, int) or self.clip_bit < 0:
            raise UsageError(f"clip_bit is a number of users, not {self.clip_bit!r}")
        if not 0.0 <= self.failure_probability < 1.0:
            raise UsageError(f"a probability is from 0 to 1, not {self.failure_probability!r}")


def _sorted(segments: set[NoisySegment]) -> tuple[NoisySegment, ...]:
    return tuple(sorted(segments, key=lambda one: (one.size, one.trials, one.everywhere)))


# --- bounds -------------------------------------------------------------------------------------------------------


def rho(honest: int, trials: int, theta: float, orders: Sequence[float]) -> npt.NDArray[np.float64]:
    """A certified upper bound of rho for every order; known ones come from the cache.

    Args:
        honest: Honest survivors of a block, the user among them.
        trials: Trials of an element.
        theta: Largest distance of a trial's probability from one half, at most 1/8; rounded up to a grid.
        orders: Orders of the divergence, above 1 and at most 1024.

    Returns:
        For each order an upper bound of D(P || Q) / eta^2 and D(Q || P) / eta^2, where P is the sum of a coordinate in
        which the user's trials have the probability 1/2 + eta, and Q the one in which they are fair coins.

    Raises:
        UsageError: A number that has no meaning here.

    Example:
        >>> rho(9, 1, 0.125, [2]).round(3).tolist()
        [0.499]
    """
    check_noise(1.0, honest, trials, 1)
    if not 0.0 < theta <= MAX_THETA:
        raise UsageError(f"theta is above 0 and at most {MAX_THETA}, not {theta!r}")
    wanted = [float(order) for order in orders]
    if not all(1.0 < order <= bound.MAX_ORDER for order in wanted):
        raise UsageError(f"orders are above 1 and at most {bound.MAX_ORDER:g}, not {list(orders)!r}")
    steps = max(_LEAST_STEPS, math.ceil(theta * _STEPS))

    def compute(missing: Sequence[float]) -> list[float]:
        return bound.upper_bounds(honest, trials, steps / _STEPS, missing)

    return np.array(cache.look_up((honest, trials, steps), wanted, compute), dtype=np.float64)


def divergence(noisy: NoisyRound, order: float, view: View = "server") -> float:
    """The Rényi divergence that one round costs a user at most.

    Args:
        noisy: The round.
        order: Order of the divergence.
        view: Who looks.

    Returns:
        An upper bound of the divergence between a user's round and its neighbour's, in either direction.

    Raises:
        UsageError: An order or a view that does not exist.

    Example:
        >>> one = NoisySegment(size=10_000, trials=1, everywhere=90)
        >>> cost = divergence(NoisyRound(noise_multiplier=3.0, honest=9, segments=(one,)), 8.0)
        >>> 8 / (2 * 3.0**2) < cost < 1.1 * 8 / (2 * 3.0**2)
        True
    """
    return _unit_cost(noisy, order, view) / noisy.noise_multiplier**2 + _clip_cost(noisy, order)


def _unit_cost(noisy: NoisyRound, order: float, view: View) -> float:
    """The divergence of the coordinates at the noise multiplier 1, with theta as it is."""
    if view not in get_args(View):
        raise UsageError(f"a view is server or model, not {view!r}")
    costs = set()
    for segment in noisy.segments:
        theta = noise_range(noisy.noise_multiplier, 1.0, noisy.honest, segment.trials, segment.size).theta
        steps = max(_LEAST_STEPS, math.ceil(theta * _STEPS))
        costs.add((noisy.honest if view == "server" else segment.everywhere, segment.trials, steps))
    scale = noisy.honest / 4.0
    return max(
        scale / trials * float(rho(honest, trials, steps / _STEPS, [order])[0]) for honest, trials, steps in costs
    )


def _clip_cost(noisy: NoisyRound, order: float) -> float:
    if not noisy.clip_bit:
        return 0.0
    one = float(rho(noisy.clip_bit, 1, CLIP_RANGE.theta, [order])[0])  # trial by trial: far quicker, and hardly more
    return CLIP_TRIALS * one * CLIP_RANGE.theta**2


# --- epsilon ------------------------------------------------------------------------------------------------------


def overhead(order: float, delta: float) -> float:
    """What a divergence of this order adds up to epsilon with, at this delta.

    Args:
        order: The divergence's order.
        delta: Above 0, below 1.

    Returns:
        What is added to the divergence.
    """
    return math.log1p(-1.0 / order) - math.log(order * delta) / (order - 1.0)


def cheapest_order(price: Callable[[float], float], guess: float) -> tuple[float, float]:
    """The least price among `ORDERS`, and its order: from a guess on, in steps that become smaller.

    Whatever order is found, its price is a valid one; the search only saves time.

    Args:
        price: The price of an order.
        guess: Where to begin.

    Returns:
        The price and its order.
    """
    prices: dict[int, float] = {}
    guess = min(max(guess, ORDERS[0]), ORDERS[-1])

    def at(place: int) -> float:
        if place not in prices:
            prices[place] = price(ORDERS[place])
        return prices[place]

    best = min(range(len(ORDERS)), key=lambda place: abs(math.log((ORDERS[place] - 1.0) / (guess - 1.0))))
    for stride in (3, 1):
        while True:
            near = [place for place in (best, best - stride, best + stride) if 0 <= place < len(ORDERS)]
            found = min(near, key=at)
            if found == best:
                break
            best = found
    return prices[best], ORDERS[best]


def check_delta(delta: float, failures: float = 0.0) -> float:
    """What is left of delta after the failures that are added to it.

    Args:
        delta: What is allowed.
        failures: Probabilities that the bound does not hold at all.

    Returns:
        What is left.

    Raises:
        UsageError: Delta is no probability, or nothing is left of it.
    """
    if not 0.0 < delta < 1.0:
        raise UsageError(f"delta is above 0 and below 1, not {delta!r}")
    if failures >= delta:
        raise UsageError(
            f"the mechanism fails with a probability of {failures:.2g}, which delta, {delta:.2g}, must exceed"
        )
    return delta - failures


def check_rounds(rounds: int) -> None:
    """Refuse what is no number of rounds.

    Args:
        rounds: How many there are.

    Raises:
        UsageError: It is no integer of at least 1.
    """
    if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
        raise UsageError(f"a number of rounds is 1 or more, not {rounds!r}")


def epsilon(noisy: NoisyRound | Plan, *, rounds: int, delta: float, view: View = "server") -> float:
    """The epsilon of so many equal rounds.

    Args:
        noisy: One of the rounds, or a plan with noise, which stands for its `NoisyRound.of`.
        rounds: How many there are.
        delta: Probability with which the guarantee may fail; the round's own failures are part of it.
        view: Who looks.

    Returns:
        Epsilon at this delta. Up to 10 it is called differential privacy, above a noise floor.

    Raises:
        UsageError: A number that has no meaning, or a delta that the failures exceed.

    Example:
        >>> one = NoisySegment(size=10_000, trials=1, everywhere=90)
        >>> noisy = NoisyRound(noise_multiplier=3.0, honest=9, segments=(one,))
        >>> round(epsilon(noisy, rounds=20, delta=1e-5), 1)
        7.5
        >>> round(epsilon(noisy, rounds=20, delta=1e-5, view="model"), 1)
        2.0
    """
    check_rounds(rounds)
    if isinstance(noisy, Plan):
        noisy = NoisyRound.of(noisy)
    left = check_delta(delta, noisy.failure_probability)
    ideal = rounds * _hidden(noisy, view) / (2.0 * noisy.noise_multiplier**2)  # an order, were the noise Gaussian
    guess = 1.0 + math.sqrt(-math.log(left) / ideal)
    price, _ = cheapest_order(lambda order: rounds * divergence(noisy, order, view) + overhead(order, left), guess)
    return max(0.0, price) * (1.0 + _ROUNDING)


def noise_multiplier_for(
    noisy: NoisyRound | Plan, *, target_epsilon: float, target_delta: float, rounds: int, view: View = "server"
) -> float:
    """The least noise multiplier with which so many rounds stay within a target.

    Args:
        noisy: A round, or a plan with noise; its own noise multiplier does not matter.
        target_epsilon: Largest epsilon.
        target_delta: Delta of that epsilon.
        rounds: How many rounds there are.
        view: Who looks.

    Returns:
        A noise multiplier at which `epsilon` is at most the target, within a thousandth of the least such one; never
        below what the levels of the round need.

    Raises:
        UsageError: A target that no noise meets, or a number that has no meaning.

    Example:
        >>> one = NoisySegment(size=10_000, trials=1, everywhere=90)
        >>> noisy = NoisyRound(noise_multiplier=1.0, honest=9, segments=(one,))
        >>> round(noise_multiplier_for(noisy, target_epsilon=8.0, target_delta=1e-5, rounds=20), 1)
        2.9
    """
    check_rounds(rounds)
    if not (math.isfinite(target_epsilon) and target_epsilon > 0.0):
        raise UsageError(f"epsilon is a positive number, not {target_epsilon!r}")
    like = NoisyRound.of(noisy) if isinstance(noisy, Plan) else noisy
    left = check_delta(target_delta, like.failure_probability)
    least = max(
        4.0 * coordinate_limit(segment.size) * math.sqrt(like.honest / segment.trials) for segment in like.segments
    )

    loss = -math.log(left)
    ideal = (math.sqrt(loss + target_epsilon) - math.sqrt(loss)) ** 2  # divergence an order, were the noise Gaussian
    if not ideal:
        raise UsageError(_NO_NOISE.format(rounds=rounds, epsilon=target_epsilon, delta=target_delta))

    def enough(noise_multiplier: float) -> float:
        """The noise that meets the target with theta as it is at the given noise: too much if that noise is less."""
        now = replace(like, noise_multiplier=max(noise_multiplier, least))

        def price(order: float) -> float:
            budget = target_epsilon * (1.0 - 2.0 * _ROUNDING) - overhead(order, left) - rounds * _clip_cost(now, order)
            return math.sqrt(rounds * _unit_cost(now, order, view) / budget) if budget > 0.0 else math.inf

        return cheapest_order(price, 1.0 + math.sqrt(loss / ideal))[0]

    found, low = math.inf, math.sqrt(rounds * _hidden(like, view) / (2.0 * ideal))
    while (high := enough(low)) < found:
        if not math.isfinite(high):
            break
        if high < low and low > least:  # theta was too small
            low = max(least, 0.99 * high)
        else:
            found, low = high, enough(high)
    if not math.isfinite(found):
        raise UsageError(_NO_NOISE.format(rounds=rounds, epsilon=target_epsilon, delta=target_delta))
    return max(found, least)


def gaussian_noise_multiplier_for(*, target_epsilon: float, target_delta: float, rounds: int) -> float:
    """The least noise multiplier of Gaussian noise on a sum, by the same orders: what a trusted server would add.

    Args:
        target_epsilon: Largest epsilon.
        target_delta: Delta of that epsilon.
        rounds: How many rounds there are.

    Returns:
        The standard deviation of the noise, in units of the clipping norm.

    Raises:
        UsageError: A target that no noise meets, or a number that has no meaning.

    Example:
        >>> round(gaussian_noise_multiplier_for(target_epsilon=8.0, target_delta=1e-5, rounds=20), 2)
        2.85
    """
    check_rounds(rounds)
    check_delta(target_delta)
    budgets = [(target_epsilon - overhead(order, target_delta), order) for order in ORDERS]
    found = [math.sqrt(rounds * order / (2.0 * budget)) for budget, order in budgets if budget > 0.0]
    if not found:
        raise UsageError(_NO_NOISE.format(rounds=rounds, epsilon=target_epsilon, delta=target_delta))
    return min(found)


def _hidden(noisy: NoisyRound, view: View) -> float:
    """What part of a block's noise a view sees, as variances."""
    return 1.0 if view == "server" else noisy.honest / min(segment.everywhere for segment in noisy.segments)
