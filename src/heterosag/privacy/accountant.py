"""The accountant: adds up what rounds cost a user, with the method names of Flower's own accountant.

Two ways, which differ in what may have been known when a round was chosen:

- `Accountant(...)` takes the least epsilon over all orders. That holds where the parameters of all rounds were fixed
  before the first (or follow from nothing that the rounds revealed).
- `Accountant.filter(...)` is a privacy filter (Feldman, Zrnic 2021): it fixes one order beforehand and refuses what
  would exceed the budget of that order. It holds where the parameters of a round were chosen after earlier results
  were seen, which is what a client must assume of a server. A part of delta is set aside for failures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, get_args

from heterosag.errors import UsageError
from heterosag.privacy.accounting import (
    ORDERS,
    NoisyRound,
    NoisySegment,
    View,
    cheapest_order,
    check_delta,
    check_rounds,
    divergence,
    noise_multiplier_for,
    overhead,
)

__all__ = ["Accountant", "PrivacySpent", "noise_within_budget"]

STATE_VERSION = 1
"""Version of what `Accountant.state_dict` gives."""

_SET_ASIDE = 0.1  # of a filter's delta, for failures


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacySpent:
    """What composed rounds cost: epsilon at delta, the number of rounds, and the order that shows it.

    Args:
        epsilon: What was spent.
        delta: At which delta.
        num_releases: How many rounds.
        accounting_method: How they were composed.
        optimal_order: The order that shows it, None where nothing was spent.
    """

    epsilon: float
    delta: float
    num_releases: int
    accounting_method: str
    optimal_order: float | None


class Accountant:
    """Adds up rounds; see the module for which of the two kinds to take.

    Args:
        target_delta: Delta of the epsilon that is reported.
        max_epsilon: Limit of `would_exceed`.
        view: Who looks.

    Example:
        >>> from heterosag.privacy import Accountant, NoisyRound, NoisySegment
        >>> one = NoisySegment(size=10_000, trials=1, everywhere=90)
        >>> accountant = Accountant(target_delta=1e-5, max_epsilon=7.6)
        >>> noisy = NoisyRound(noise_multiplier=3.0, honest=9, segments=(one,))
        >>> accountant.compose(noisy, 20)
        >>> accountant.would_exceed(noisy)
        True
        >>> accountant.num_releases
        20
    """

    def __init__(self, *, target_delta: float, max_epsilon: float | None = None, view: View = "server") -> None:
        check_delta(target_delta)
        if view not in get_args(View):
            raise UsageError(f"a view is server or model, not {view!r}")
        if max_epsilon is not None:
            _check_epsilon(max_epsilon)
        self._delta, self._limit, self._view = target_delta, max_epsilon, view
        self._order: float | None = None
        self._composed: list[tuple[NoisyRound, int]] = []

    @classmethod
    def filter(cls, *, max_epsilon: float, target_delta: float, view: View = "server") -> Accountant:
        """An accountant for rounds that may be chosen in view of earlier ones: it refuses to go beyond its budget.

        Args:
            max_epsilon: The budget.
            target_delta: Delta of that epsilon.
            view: Who looks.

        Returns:
            An accountant of one order, the one that leaves most rounds, were the noise Gaussian.

        Raises:
            UsageError: A budget that allows no round whatever its noise.
        """
        found = cls(target_delta=target_delta, max_epsilon=max_epsilon, view=view)
        delta = target_delta * (1.0 - _SET_ASIDE)
        found._order = max(ORDERS, key=lambda order: (max_epsilon - overhead(order, delta)) / order)
        if overhead(found._order, delta) >= max_epsilon:
            raise UsageError(f"epsilon {max_epsilon:g} at delta {target_delta:g} allows no round at all")
        return found

    @property
    def num_releases(self) -> int:
        """Rounds composed so far."""
        return sum(count for _, count in self._composed)

    @property
    def last_event(self) -> NoisyRound | None:
        """The round that was composed last; None before the first."""
        return self._composed[-1][0] if self._composed else None

    @property
    def order(self) -> float | None:
        """The one order of a filter; None of an accountant that takes the best of all."""
        return self._order

    def compose(self, event: NoisyRound, count: int = 1) -> None:
        """Add rounds.

        Args:
            event: One of the rounds.
            count: How many of them.

        Raises:
            UsageError: Not a number of rounds; or, of a filter, rounds beyond its budget, of which none is added.
        """
        composed = self._with(event, count)
        if self._order is not None and self._spent(composed, self._delta)[0] > self._limit_or(None):
            raise UsageError(f"these rounds would exceed the budget of epsilon {self._limit_or(None):g}")
        self._composed = composed

    def get_epsilon(self, delta: float) -> float:
        """Epsilon of what was composed, at this delta: 0 before the first round.

        Args:
            delta: Probability with which the guarantee may fail; of a filter, the delta it was made for.

        Returns:
            Epsilon; infinite where failures use up delta.

        Raises:
            UsageError: Not a delta, or not the filter's.
        """
        check_delta(delta)
        if self._order is not None and delta != self._delta:
            raise UsageError(f"this filter is for delta {self._delta:g}, not for {delta:g}")
        return self._spent(self._composed, delta)[0]

    def get_delta(self, epsilon: float) -> float:
        """The delta of what was composed at this epsilon.

        Args:
            epsilon: Epsilon of the guarantee, 0 or more.

        Returns:
            The least delta at which it holds.

        Raises:
            UsageError: Not an epsilon, or asked of a filter.
        """
        if not (math.isfinite(epsilon) and epsilon >= 0.0):
            raise UsageError(f"epsilon is a number from 0, not {epsilon!r}")
        if self._order is not None:
            raise UsageError(f"a filter is for one delta, {self._delta:g}")
        if not self._composed:
            return 0.0

        def price(order: float) -> float:
            loss = self._divergence(self._composed, order) + math.log1p(-1.0 / order) - epsilon
            return (order - 1.0) * loss - math.log(order)

        found = math.exp(min(0.0, cheapest_order(price, 1.0 + max(epsilon, 1.0))[0]))
        return min(1.0, found * (1.0 + 1e-9) + _failures(self._composed))

    def get_privacy_spent(self, delta: float | None = None) -> PrivacySpent:
        """What was composed, in one value.

        Args:
            delta: As of `get_epsilon`; None: the accountant's own.

        Returns:
            Epsilon, delta, the number of rounds and the order.

        Raises:
            UsageError: As `get_epsilon`.
        """
        used = self._delta if delta is None else delta
        epsilon = self.get_epsilon(used)
        order = self._spent(self._composed, used)[1]
        return PrivacySpent(
            epsilon=epsilon,
            delta=used,
            num_releases=self.num_releases,
            accounting_method="rdp" if self._order is None else "rdp-filter",
            optimal_order=order,
        )

    def would_exceed(self, event: NoisyRound, max_epsilon: float | None = None, count: int = 1) -> bool:
        """Whether composing these rounds would exceed a limit; nothing is composed.

        Args:
            event: One of the rounds.
            max_epsilon: The limit; None: the accountant's own.
            count: How many rounds.

        Returns:
            True if epsilon at the accountant's delta would be above the limit.

        Raises:
            UsageError: There is no limit, or not a number of rounds; or another limit than a filter's own.
        """
        if self._order is not None and max_epsilon not in (None, self._limit):
            raise UsageError(f"this filter is for epsilon {self._limit:g}, not for {max_epsilon:g}")
        return self._spent(self._with(event, count), self._delta)[0] > self._limit_or(max_epsilon)

    def state_dict(self) -> dict[str, object]:
        """All of the accountant's state, in what JSON can hold."""
        return {
            "version": STATE_VERSION,
            "target_delta": self._delta,
            "max_epsilon": self._limit,
            "view": self._view,
            "order": self._order,
            "composed": [{"event": asdict(event), "count": count} for event, count in self._composed],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the composed rounds of a state that `state_dict` gave.

        Args:
            state: The state, of an accountant that was made alike.

        Raises:
            UsageError: Not such a state, or one of another accountant; this one is as it was.
        """
        mine = self.state_dict()
        try:
            if any(state[name] != value for name, value in mine.items() if name != "composed"):
                raise UsageError("this is the state of an accountant with other settings")
            self._composed = [_parse(entry) for entry in state["composed"]]
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            raise UsageError(f"this is not the state of an accountant: {error}") from None

    def _with(self, event: NoisyRound, count: int) -> list[tuple[NoisyRound, int]]:
        check_rounds(count)
        last, number = self._composed[-1] if self._composed else (None, 0)
        return [*self._composed[:-1], (event, number + count)] if event == last else [*self._composed, (event, count)]

    def _limit_or(self, given: float | None) -> float:
        limit = self._limit if given is None else given
        if limit is None:
            raise UsageError("say max_epsilon, to the accountant or here")
        return _check_epsilon(limit)

    def _divergence(self, composed: list[tuple[NoisyRound, int]], order: float) -> float:
        return sum(count * divergence(event, order, self._view) for event, count in composed)

    def _spent(self, composed: list[tuple[NoisyRound, int]], delta: float) -> tuple[float, float | None]:
        """Epsilon, and the order that shows it."""
        if not composed:
            return 0.0, None
        failures = _failures(composed)
        if self._order is not None:
            if failures > _SET_ASIDE * delta:
                return math.inf, None
            price = self._divergence(composed, self._order) + overhead(self._order, delta * (1.0 - _SET_ASIDE))
            return max(0.0, price) * (1.0 + 1e-12), self._order
        if failures >= delta:
            return math.inf, None
        left = delta - failures
        ideal = sum(count / (2.0 * event.noise_multiplier**2) for event, count in composed)
        guess = 1.0 + math.sqrt(-math.log(left) / ideal)
        price, order = cheapest_order(lambda order: self._divergence(composed, order) + overhead(order, left), guess)
        return max(0.0, price) * (1.0 + 1e-12), order


def noise_within_budget(noisy: NoisyRound, *, max_epsilon: float, delta: float, rounds: int) -> float:
    """The noise multiplier with which users who keep this budget take part in so many rounds.

    A little more than `noise_multiplier_for` says: users cannot know that the parameters of rounds were fixed before
    the first, so they count by a filter.

    Args:
        noisy: A round; its own noise multiplier does not matter.
        max_epsilon: Each user's budget, against whoever sees all sums.
        delta: Delta of that epsilon.
        rounds: How many rounds there are.

    Returns:
        A noise multiplier, within half a hundredth of the least.

    Raises:
        UsageError: A budget that no noise keeps, or a number that has no meaning.

    Example:
        >>> one = NoisySegment(size=10_000, trials=1, everywhere=9)
        >>> noisy = NoisyRound(noise_multiplier=1.0, honest=9, segments=(one,))
        >>> round(noise_within_budget(noisy, max_epsilon=8.0, delta=1e-5, rounds=20), 1)
        2.9
    """
    budget = Accountant.filter(max_epsilon=max_epsilon, target_delta=delta)
    check_delta(_SET_ASIDE * delta, noisy.failure_probability)
    found = noise_multiplier_for(noisy, target_epsilon=max_epsilon, target_delta=delta, rounds=rounds)
    while budget.would_exceed(replace(noisy, noise_multiplier=found), count=rounds):
        found *= 1.002
    return found


def _failures(composed: list[tuple[NoisyRound, int]]) -> float:
    """Once for every epoch."""
    return sum(event.failure_probability for event in {event: None for event, _ in composed})


def _check_epsilon(value: float) -> float:
    if isinstance(value, bool) or not (math.isfinite(value) and value > 0.0):
        raise UsageError(f"epsilon is a positive number, not {value!r}")
    return value


def _parse(entry: Mapping[str, Any]) -> tuple[NoisyRound, int]:
    event = dict(entry["event"])
    segments = tuple(NoisySegment(**segment) for segment in event.pop("segments"))
    check_rounds(entry["count"])
    return NoisyRound(segments=segments, **event), entry["count"]
