"""What a plan must meet: links, deadline, dropout, adversaries."""

from __future__ import annotations

import math
from dataclasses import dataclass

from heterosag.choices import RangesName
from heterosag.errors import UsageError
from heterosag.plan.checks import check_ranges, default_colluders
from heterosag.vector.quantize import ValueRange, check_range

__all__ = ["A_FRACTION", "A_PROBABILITY", "LARGEST", "MOST", "MOST_USERS", "Requirements", "check_numbers", "within"]

MOST_USERS = 100_000
LARGEST = 10**9
"""Mb/s, seconds, and the ends of a value range: beyond every link and every model, and squares do not overflow."""

MOST = 2**63 - 1
"""Of elements, bits, weights, rounds: what a plan's integers are at most."""

A_FRACTION, A_PROBABILITY = "a fraction of users, at least 0 and below one half", "a probability above 0 and below 1"


def within(value: float, least: int, most: int = MOST) -> tuple[bool, str]:
    """A number's limits for `check_numbers`.

    Args:
        value: The number.
        least: What it is at least.
        most: What it is at most.

    Returns:
        Whether it is within them, and the limit that it exceeds.
    """
    return least <= value <= most, f"at least {least}" if value < least else f"at most {most}"


def check_numbers(given: object, **checks: tuple[bool, str]) -> None:
    """Refuse the first of some numbers that makes no sense.

    Args:
        given: What has them.
        checks: By name whether a number makes sense, and what makes sense.

    Raises:
        UsageError: One makes none; the message says which, and what it is.
    """
    for name, (sound, what) in checks.items():
        if not sound:
            raise UsageError(f"{name} is {what}, not {getattr(given, name)!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """What a plan is for.

    Args:
        rates: Mb/s of each user's upload.
        dimension: Elements of the update vector.
        deadline: Seconds for the masked vector's upload.
        bits: The bits that it may have, instead of a deadline.
        dropout: Fraction of users expected to drop out in a round.
        corrupt: Fraction of users who may be corrupt.
        attackers: Malicious users that the median must tolerate.
        min_survivors: As in `Plan.build`.
        value_range: As in `Plan.build`: a half width, or a pair.
        ranges: As in `Plan.build`.
        max_weight: As in `Plan.build`.
        most_classes: No plan has more.
        most_subgroups: No plan has more.
        failure: Largest probability that a round ends for lack of survivors.
        privacy_bits: How surely corrupt users leave enough honest ones in a block.

    Raises:
        UsageError: A value makes no sense; the message says which.

    With corrupt users thresholds count them as colluders, and every block keeps `min_survivors` honest survivors but
    for 2^-privacy_bits, if users are assigned at random inside their class: by an enrolment, or by the plan's
    `assignment_seed`.
    """

    rates: tuple[float, ...]
    dimension: int
    deadline: float | None = None
    bits: int | None = None
    dropout: float = 0.1
    corrupt: float = 0.0
    attackers: int = 0
    min_survivors: int = 3
    value_range: ValueRange | float = 1.0
    ranges: RangesName = "levels"
    max_weight: int = 1
    most_classes: int = 10
    most_subgroups: int = 128
    failure: float = 0.01
    privacy_bits: int = 40

    def __post_init__(self) -> None:
        if not 4 <= len(self.rates) <= MOST_USERS:
            raise UsageError(f"a plan is for 4 to {MOST_USERS} users, not {len(self.rates)}")
        for user, rate in enumerate(self.rates):
            if not (math.isfinite(rate) and rate > 0):
                raise UsageError(f"rates[{user}] is a finite number of Mb/s above 0, not {rate!r}")
            if rate > LARGEST:
                raise UsageError(f"rates[{user}] is at most {LARGEST} Mb/s, not {rate!r}")
        if (self.deadline is None) == (self.bits is None):
            raise UsageError("give a deadline in seconds or the bits that an upload may have, one of the two")
        for name, limit in (("deadline", self.deadline), ("bits", self.bits)):
            if limit is not None and not 0 < limit < math.inf:
                raise UsageError(f"{name} is a finite number above 0, not {limit!r}")
        check_ranges(self.ranges, value_range := check_range(self.value_range))
        check_numbers(
            self,
            dimension=within(self.dimension, 1),
            deadline=within(self.deadline or 0, 0, LARGEST),
            bits=within(self.bits or 1, 1),
            value_range=(max(map(abs, value_range)) <= LARGEST, f"within {-LARGEST} and {LARGEST}"),
            dropout=(0 <= self.dropout < 0.5, A_FRACTION),
            corrupt=(0 <= self.corrupt < 0.5, A_FRACTION),
            attackers=within(self.attackers, 0, len(self.rates)),
            min_survivors=within(self.min_survivors, 2),
            max_weight=within(self.max_weight, 1),
            most_classes=(self.most_classes >= 1, "at least 1"),
            most_subgroups=(2 <= self.most_subgroups <= 1000, "from 2 to 1000"),
            failure=(0 < self.failure < 1, A_PROBABILITY),
            privacy_bits=(self.privacy_bits >= 1, "at least 1"),
        )

    @property
    def colluders(self) -> int:
        """The corrupt users, as a number, and at least as many as `Plan.build` counts unless told."""
        users = len(self.rates)
        return max(math.ceil(self.corrupt * users), default_colluders(users, self.min_survivors))

    def budget(self, rate: float) -> float:
        """The bits that a user with this rate may upload.

        Args:
            rate: Mb/s.

        Returns:
            Bits until the deadline, or those of the requirement itself.
        """
        return float(self.bits) if self.bits is not None else rate * 1e6 * (self.deadline or 0.0)
