"""What the server has learned over an epoch: the sums of which users, and which small sets of them stand out.

In a round the server learns, in every segment, the sum of each block's survivors. Assignment and segments stay the same
in an epoch, so the sums of one block over the rounds are sums over subsets of the same users. If updates change little
from round to round, such sums can be added and subtracted: whatever set of users has its indicator in the row space of
the survivor sets, its sum is exposed. The ledger keeps that row space exactly, in integers, as the space orthogonal
to it: a set is shown if and only if every vector of that space sums to zero over the set.

Guarantees: sets of fewer than `LARGEST` users are found exactly, none missed and none invented, under the assumption
that an update is the same in every round (what really changes hides more). For larger sets there is a bound only: the
smallest difference of two survivor sets, one inside the other, is shown for sure. Sums that cross epochs are not looked
at, nor what colluding users know of their own updates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from heterosag.crypto.hashing import digest
from heterosag.errors import ExposedUsersError, UsageError
from heterosag.plan import Plan, User

__all__ = ["LARGEST", "Exposure", "Ledger", "epoch_of"]

LARGEST = 4
"""Sets of fewer users than this are searched exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """A set of users whose sum the server can work out in some segments."""

    users: tuple[User, ...]
    segments: tuple[int, ...]


def epoch_of(plan: Plan) -> bytes:
    """What names an epoch: who is assigned to which subgroup, and which subgroups code which elements together.

    Nothing else of a plan: ranges follow the updates, and a change of levels or thresholds must not begin a new ledger.
    """
    blocks = [(at.start, at.stop, [block.subgroups for block in at.blocks]) for at in plan.segments]
    return digest("epoch", repr((plan.users, plan.assignment, blocks)).encode())


@dataclass(slots=True)
class _Block:
    """One block's history: its users, the survivor sets seen as bits, and the space orthogonal to all of them.

    `smallest` is the size of the smallest survivor set, or difference of two nested ones.
    """

    users: tuple[int, ...]
    segments: tuple[int, ...]
    seen: frozenset[int] = frozenset()
    smallest: int | None = None
    hidden: npt.NDArray[Any] = field(default_factory=lambda: np.zeros((0, 0), dtype=object))

    def __post_init__(self) -> None:
        if not self.hidden.size and not self.seen:
            self.hidden = np.array(np.eye(len(self.users), dtype=np.int64), dtype=object)

    def bits_of(self, survivors: frozenset[int]) -> int:
        return sum(1 << place for place, user in enumerate(self.users) if user in survivors)

    def after(self, bits: int) -> _Block:
        """This block once the sum over one more survivor set is known."""
        if bits in self.seen or not bits:
            return self
        members = [place for place in range(len(self.users)) if bits >> place & 1]
        apart = [(bits ^ other).bit_count() for other in self.seen if bits & other in (bits, other)]
        smallest = min([len(members), *apart, *([] if self.smallest is None else [self.smallest])])
        return _Block(self.users, self.segments, self.seen | {bits}, smallest, _orthogonal(self.hidden, members))

    def shown(self, below: int) -> frozenset[frozenset[int]]:
        """The smallest sets of fewer than `below` users whose sum is shown, as roster indices."""
        columns = [tuple(column) for column in self.hidden.T]
        zero = tuple([0] * len(self.hidden))
        where: dict[tuple[int, ...], list[int]] = {}
        for place, column in enumerate(columns):
            where.setdefault(column, []).append(place)
        found = {frozenset([place]) for place in where.get(zero, ())} if below > 1 else set()
        rest = [place for place, column in enumerate(columns) if column != zero]
        if below > 2:
            found |= {
                frozenset((one, other)) for one in rest for other in where.get(_minus(columns[one]), ()) if one < other
            }
        if below > 3:
            for at, one in enumerate(rest):
                for other in rest[at + 1 :]:
                    missing = _minus(tuple(a + b for a, b in zip(columns[one], columns[other], strict=True)))
                    third = [place for place in where.get(missing, ()) if place > other and missing != zero]
                    found |= {frozenset((one, other, place)) for place in third}
        return frozenset(frozenset(self.users[place] for place in places) for places in found)


def _minus(column: Sequence[int]) -> tuple[int, ...]:
    return tuple(-value for value in column)


def _orthogonal(hidden: npt.NDArray[Any], members: list[int]) -> npt.NDArray[Any]:
    """The part of a space (one vector a row) that sums to zero over the members, in integers."""
    sums = hidden[:, members].sum(axis=1) if len(hidden) else np.zeros(0, dtype=object)
    places = [place for place, value in enumerate(sums) if value]
    if not places:
        return hidden
    pivot = min(places, key=lambda place: abs(sums[place]))
    rows = []
    for place, row in enumerate(hidden):
        if place != pivot:
            if sums[place]:
                row = row * sums[pivot] - hidden[pivot] * sums[place]
                row = row // math.gcd(*(int(value) for value in row))
            rows.append(row)
    return np.array(rows, dtype=object).reshape(len(rows), hidden.shape[1])


class Ledger:
    """What has been learned of the users of one plan. As a guard it refuses rounds that would show a small set.

    Give it to `Server` and `Client` as `guard`. A round that would newly show a set of fewer than `sets_below` users is
    refused (0: refuse nothing, only keep count).
    """

    def __init__(self, plan: Plan, *, sets_below: int = 0) -> None:
        if not 0 <= sets_below <= LARGEST:
            raise UsageError(f"sets_below is 0 to {LARGEST}, not {sets_below!r}")
        self._plan = plan
        self._below = sets_below
        self._segments = len(plan.segments)
        segments: dict[tuple[int, ...], list[int]] = {}
        for at, segment in enumerate(plan.segments):
            for block in segment.blocks:
                segments.setdefault(block.subgroups, []).append(at)
        self._blocks = [
            _Block(tuple(user for user, own in enumerate(plan.assignment) if own in subgroups), tuple(at))
            for subgroups, at in segments.items()
        ]
        self._rounds: list[tuple[int, ...]] = []

    @property
    def rounds(self) -> int:
        """Survivor sets whose sums the server has learned, or could have; one that follows itself counts once."""
        return len(self._rounds)

    def check(self, survivors: frozenset[int]) -> None:
        """Raise an `ExposedUsersError` if sums over these survivors (roster indices) would newly show a small set."""
        if self._below:
            shown = [set_ for block in self._blocks for set_ in self._news(block, survivors)]
            if shown:
                smallest = min(shown, key=lambda users: (len(users), sorted(users)))
                raise ExposedUsersError([self._plan.users[user] for user in sorted(smallest)])

    def note(self, survivors: frozenset[int]) -> None:
        """The server has learned, or could have, the sums over these survivors."""
        noted = tuple(sorted(survivors))
        if self._rounds[-1:] != [noted]:  # the same set again teaches nothing, be it signed, released or a new round
            self._blocks = [block.after(block.bits_of(survivors)) for block in self._blocks]
            self._rounds.append(noted)

    def _news(self, block: _Block, survivors: frozenset[int]) -> frozenset[frozenset[int]]:
        after = block.after(block.bits_of(survivors))
        if after is block:
            return frozenset()
        return after.shown(self._below) - block.shown(self._below)

    def exposures(self, *, below: int = 3) -> tuple[Exposure, ...]:
        """The smallest sets of fewer than `below` users whose sum is shown, and in which segments."""
        if not 1 <= below <= LARGEST:
            raise UsageError(f"sets of fewer than 1 to {LARGEST} users are searched, not {below!r}")
        found: dict[frozenset[int], list[int]] = {}
        for block in self._blocks:
            for users in block.shown(below):
                found.setdefault(users, []).extend(block.segments)
        return tuple(
            Exposure(users=tuple(self._plan.users[user] for user in sorted(users)), segments=tuple(sorted(segments)))
            for users, segments in sorted(found.items(), key=lambda item: (len(item[0]), sorted(item[0])))
        )

    def summary(self) -> dict[str, Any]:
        """The ledger in JSON types, for a run's record."""
        found = self.exposures(below=3)
        differences = [block.smallest for block in self._blocks if block.smallest is not None]
        return {
            "rounds": self.rounds,
            "sums": sum(len(block.seen) * len(block.segments) for block in self._blocks),
            "shown_users": sum(len(exposure.users) == 1 for exposure in found),
            "shown_pairs": sum(len(exposure.users) == 2 for exposure in found),
            "shown_segments": len({at for exposure in found for at in exposure.segments}),
            "segments": self._segments,
            "smallest_set_at_most": min(differences, default=None),
        }

    def to_rounds(self) -> list[list[int]]:
        """The survivor sets noted so far, to keep across programs; `from_rounds` reads them back."""
        return [list(survivors) for survivors in self._rounds]

    @classmethod
    def from_rounds(cls, plan: Plan, rounds: Iterable[Sequence[int]], *, sets_below: int = 0) -> Ledger:
        """A ledger that has noted these survivor sets."""
        ledger = cls(plan, sets_below=sets_below)
        for survivors in rounds:
            if not all(isinstance(user, int) and 0 <= user < len(plan.users) for user in survivors):
                raise UsageError("a ledger's rounds are lists of roster indices of its plan")
            ledger.note(frozenset(survivors))
        return ledger
