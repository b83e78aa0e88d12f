"""What the server has learned over an epoch: the sums of which users, and which small sets of them stand out.

In a round the server learns, in every segment, the sum of each block's survivors. Assignment and segments stay the same
in an epoch, so the sums of one block over the rounds are sums over subsets of the same users. If updates change little
from round to round, such sums can be added and subtracted: whatever set of users has its indicator in the row space of
the survivor sets, its sum is exposed. The ledger keeps that row space, modulo a random prime, as the space orthogonal
to it: a set is exposed if and only if every vector of that space sums to zero over the set.

`Ledger` is of one epoch, which is what a server needs. `History` goes over epochs: whatever the plans were, it keeps
sums of users for each range of elements, which is what a user's own guard needs, since a server can assign users anew
in every round.

Guarantees: sets of fewer than `LARGEST` users are found, none missed and none invented but with the probability below,
under the assumption that an update is the same in every round (what really changes hides more). For larger sets there
is a bound only: the smallest difference of two survivor sets, one inside the other, is exposed for sure. Differences of
users are not looked at: two rounds, each with another user missing, show the server the difference of the two. Nor is
what colluding users know of their own updates.

Ranks modulo a prime differ from those over the rationals only if the prime divides a certain nonzero determinant of
survivor sets. A server that knew the prime would choose its sets so. Every ledger therefore draws its own from the
system's entropy, out of the 50 million primes between 2^30 and 2^31, and tells nobody. A determinant of n survivor sets
is at most n^(n/2), so at most n*log2(n)/60 of these primes divide it: an answer is wrong with a probability of at most
3e-7 for 100 users and 4e-6 for 1,000. What is stored are survivor sets, not the prime: a ledger that is read back draws
a new one.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from heterosag.crypto.hashing import digest
from heterosag.errors import ExposedUsersError, UsageError
from heterosag.plan import Plan, User

__all__ = ["LARGEST", "Exposure", "History", "Ledger", "epoch_of", "summarise_ledgers"]

LARGEST = 4
"""Sets of fewer users than this are searched exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """A set of users whose sum the server can work out in some segments.

    Args:
        users: The set.
        segments: Indices of the segments.
    """

    users: tuple[User, ...]
    segments: tuple[int, ...]


def epoch_of(plan: Plan) -> bytes:
    """What names an epoch: who is assigned to which subgroup, and which subgroups code which elements together.

    Nothing else of a plan: ranges follow the updates, and a change of levels or thresholds must not begin a new ledger.

    Args:
        plan: Any plan of the epoch.

    Returns:
        32 bytes.
    """
    blocks = [(at.start, at.stop, [block.subgroups for block in at.blocks]) for at in plan.segments]
    return digest("epoch", repr((plan.users, plan.assignment, blocks)).encode())


@dataclass(slots=True)
class _Block:
    """One block's history: its users, the survivor sets seen as bits, and the space orthogonal to all of them.

    That space is `hidden`, one vector a row, modulo `prime`, which the server must not know. `smallest` is the size of
    the smallest survivor set, or difference of two nested ones. A block does not change, so what a search for exposed
    sets finds is kept in `searched`.
    """

    users: tuple[int, ...]
    segments: tuple[int, ...]
    prime: int
    seen: frozenset[int] = frozenset()
    smallest: int | None = None
    hidden: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    searched: dict[int, frozenset[frozenset[int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.hidden.size and not self.seen:
            self.hidden = np.eye(len(self.users), dtype=np.int64)

    def bits_of(self, survivors: frozenset[int]) -> int:
        return sum(1 << place for place, user in enumerate(self.users) if user in survivors)

    def after(self, bits: int) -> _Block:
        """This block once the sum over one more survivor set is known."""
        if bits in self.seen or not bits:
            return self
        members = [place for place in range(len(self.users)) if bits >> place & 1]
        apart = [(bits ^ other).bit_count() for other in self.seen if bits & other in (bits, other)]
        smallest = min([len(members), *apart, *([] if self.smallest is None else [self.smallest])])
        hidden = _orthogonal(self.hidden, members, self.prime)
        return _Block(self.users, self.segments, self.prime, self.seen | {bits}, smallest, hidden)

    def adding(self, bits: int) -> _Block:
        """`after`, but a sum that follows from those before is not kept."""
        after = self.after(bits)
        return self if len(after.hidden) == len(self.hidden) else after

    def exposed(self, below: int) -> frozenset[frozenset[int]]:
        """The smallest sets of fewer than `below` users whose sum is exposed, as roster indices."""
        if below not in self.searched:
            self.searched[below] = self._search(below)
        return self.searched[below]

    def _search(self, below: int) -> frozenset[frozenset[int]]:
        empty = ~self.hidden.any(axis=0)
        found = {frozenset([int(place)]) for place in np.flatnonzero(empty)} if below > 1 else set()
        rest = np.flatnonzero(~empty)
        sums = self._fingerprints()
        where: dict[int, list[int]] = {}
        for place in rest.tolist():
            where.setdefault(int(sums[place]), []).append(place)
        if below > 2:
            for one in rest.tolist():
                for other in where.get(-int(sums[one]) % self.prime, ()):
                    if one < other and self._cancel(one, other):
                        found.add(frozenset((one, other)))
        if below > 3:
            for at, one in enumerate(rest.tolist()):
                missing = -(sums[one] + sums[rest[at + 1 :]]) % self.prime
                for place in np.flatnonzero(np.isin(missing, sums[rest])).tolist():
                    other = int(rest[at + 1 + place])
                    for third in where[int(missing[place])]:
                        if third > other and self._cancel(one, other, third):
                            found.add(frozenset((one, other, third)))
        return frozenset(frozenset(self.users[place] for place in places) for places in found)

    def _fingerprints(self) -> npt.NDArray[np.int64]:
        """A number for every user that sums to zero over each set that is exposed, and over few others."""
        factors = [pow(_BASE, place, self.prime) for place in range(1, len(self.hidden) + 1)]
        scaled = self.hidden * np.array(factors, dtype=np.int64)[:, None] % self.prime
        return np.asarray(scaled.sum(axis=0) % self.prime)

    def _cancel(self, *places: int) -> bool:
        """Whether the sum over these users is exposed."""
        return not (self.hidden[:, places].sum(axis=1) % self.prime).any()


_BASE = 7  # of the fingerprints' factors


def _draw_prime() -> int:
    """A random prime between 2^30 and 2^31: products of two residues fit into 64 bits."""
    while True:
        number = 1 << 30 | secrets.randbelow(1 << 30) | 1
        if _is_prime(number):
            return number


def _is_prime(number: int) -> bool:
    """The test of Miller and Rabin, which for odd numbers from 9 to 3,215,031,750 is exact with these four bases."""
    odd, halvings = number - 1, 0
    while odd % 2 == 0:
        odd, halvings = odd // 2, halvings + 1
    for base in (2, 3, 5, 7):
        power = pow(base, odd, number)
        if power in (1, number - 1):
            continue
        for _ in range(halvings - 1):
            power = power * power % number
            if power == number - 1:
                break
        else:
            return False
    return True


def _orthogonal(hidden: npt.NDArray[np.int64], members: list[int], prime: int) -> npt.NDArray[np.int64]:
    """The part of a space (one vector a row) that sums to zero over the members, modulo the prime."""
    sums = hidden[:, members].sum(axis=1) % prime
    places = np.flatnonzero(sums)
    if not places.size:
        return hidden
    pivot = int(places[0])
    scaled = hidden[pivot] * pow(int(sums[pivot]), -1, prime) % prime
    reduced = (hidden - sums[:, None] * scaled[None, :] % prime) % prime
    return np.delete(reduced, pivot, axis=0)


def _check_below(sets_below: int) -> int:
    """How large the sets are that must stay hidden, if they are searched for."""
    if not 0 <= sets_below <= LARGEST:
        raise UsageError(f"sets_below is 0 to {LARGEST}, not {sets_below!r}")
    return sets_below


def _news(before: _Block, after: _Block, below: int) -> frozenset[frozenset[int]]:
    """The small sets whose sum is exposed after one more survivor set, and was not before."""
    return frozenset() if after is before else after.exposed(below) - before.exposed(below)


def _smallest(exposed: Iterable[frozenset[int]], names: Sequence[User]) -> list[User]:
    """The names of the smallest exposed set; of equal ones that of the first users."""
    smallest = min(exposed, key=lambda users: (len(users), sorted(users)))
    return [names[user] for user in sorted(smallest)]


class Ledger:
    """What has been learned of the users of one plan. As a guard it refuses rounds that would expose a small set.

    Give it to `aggregate`, `Server` and `Client` as `guard`. With weights the sums of weights of the same sets are
    known too, and exactly, since a user's weight is the same in every round.

    Args:
        plan: The plan of the epoch.
        sets_below: Refuse a round that would newly expose a set of fewer users than this (0: only keep count).

    Raises:
        UsageError: Sets of so many users are not searched.

    Example:
        >>> from heterosag import ExposedUsersError, Ledger, Plan
        >>> plan = Plan.build([12], [4], 30, value_range=1.0, subgroup_size=4)
        >>> ledger = Ledger(plan, sets_below=2)
        >>> ledger.note(frozenset(range(12)))
        >>> try:
        ...     ledger.check(frozenset(range(11)))
        ... except ExposedUsersError as error:
        ...     print(error.users)
        (11,)
    """

    def __init__(self, plan: Plan, *, sets_below: int = 0) -> None:
        self.plan = plan
        self._below = _check_below(sets_below)
        self._segments = len(plan.segments)
        segments: dict[tuple[int, ...], list[int]] = {}
        for at, segment in enumerate(plan.segments):
            for block in segment.blocks:
                segments.setdefault(block.subgroups, []).append(at)
        prime = _draw_prime()
        self._blocks = [
            _Block(tuple(user for user, own in enumerate(plan.assignment) if own in subgroups), tuple(at), prime)
            for subgroups, at in segments.items()
        ]
        self._rounds: list[tuple[int, ...]] = []

    @property
    def rounds(self) -> int:
        """Survivor sets whose sums the server has learned, or could have; one that follows itself counts once."""
        return len(self._rounds)

    def check(self, survivors: frozenset[int]) -> None:
        """Refuse survivors with whom the server would newly learn the sum of a small set.

        Args:
            survivors: Roster indices.

        Raises:
            ExposedUsersError: Names the smallest such set.
        """
        if self._below:
            pairs = ((block, block.after(block.bits_of(survivors))) for block in self._blocks)
            exposed = [users for before, after in pairs for users in _news(before, after, self._below)]
            if exposed:
                raise ExposedUsersError(_smallest(exposed, self.plan.users))

    def note(self, survivors: frozenset[int]) -> None:
        """Count in that the server has learned, or could have, the sums over these survivors.

        Args:
            survivors: Roster indices.
        """
        noted = tuple(sorted(survivors))
        if self._rounds[-1:] != [noted]:  # the same set again teaches nothing, be it signed, released or a new round
            self._blocks = [block.after(block.bits_of(survivors)) for block in self._blocks]
            self._rounds.append(noted)

    def exposures(self, *, below: int = 3) -> tuple[Exposure, ...]:
        """What the server can work out by now.

        Args:
            below: Look for sets of fewer users than this.

        Returns:
            The smallest sets of users whose sum is exposed, and in which segments.

        Raises:
            UsageError: Sets of so many users are not searched.
        """
        if not 1 <= below <= LARGEST:
            raise UsageError(f"below is from 1 to {LARGEST}, not {below!r}")
        found: dict[frozenset[int], list[int]] = {}
        for block in self._blocks:
            for users in block.exposed(below):
                found.setdefault(users, []).extend(block.segments)
        return tuple(
            Exposure(users=tuple(self.plan.users[user] for user in sorted(users)), segments=tuple(sorted(segments)))
            for users, segments in sorted(found.items(), key=lambda item: (len(item[0]), sorted(item[0])))
        )

    def summary(self) -> dict[str, Any]:
        """The ledger in JSON types, for a run's record."""
        found = self.exposures(below=3)
        differences = [block.smallest for block in self._blocks if block.smallest is not None]
        return {
            "rounds": self.rounds,
            "sums": sum(len(block.seen) * len(block.segments) for block in self._blocks),
            "exposed_users": sum(len(exposure.users) == 1 for exposure in found),
            "exposed_pairs": sum(len(exposure.users) == 2 for exposure in found),
            "exposed_segments": len({at for exposure in found for at in exposure.segments}),
            "segments": self._segments,
            "smallest_set_at_most": min(differences, default=None),
        }

    def to_rounds(self) -> list[list[int]]:
        """The survivor sets noted so far, to keep across programs; `from_rounds` reads them back."""
        return [list(survivors) for survivors in self._rounds]

    @classmethod
    def from_rounds(cls, plan: Plan, rounds: Iterable[Sequence[int]], *, sets_below: int = 0) -> Ledger:
        """A ledger that has noted survivor sets before.

        Args:
            plan: The plan of the epoch.
            rounds: What `to_rounds` returned.
            sets_below: As of the class.

        Returns:
            The ledger.

        Raises:
            UsageError: These are no survivor sets of the plan.
        """
        ledger = cls(plan, sets_below=sets_below)
        for survivors in rounds:
            if not all(isinstance(user, int) and 0 <= user < len(plan.users) for user in survivors):
                raise UsageError("a ledger's rounds are lists of roster indices of its plan")
            ledger.note(frozenset(survivors))
        return ledger


def summarise_ledgers(ledgers: Sequence[Ledger]) -> dict[str, Any]:
    """The ledgers of all cohorts as one, in JSON types: no sum is over users of two cohorts, so they add up.

    Args:
        ledgers: One for each cohort, or the only one.

    Returns:
        The keys of `Ledger.summary`: exposures, sums and segments of all cohorts, the most rounds of a cohort, the
        smallest set of any; and of several cohorts each one's own under `cohorts`.

    Example:
        >>> from heterosag import CohortPlan, Ledger
        >>> from heterosag.ledger import summarise_ledgers
        >>> plan = CohortPlan.build([24], [4], 30, cohort_size=12, value_range=1.0, subgroup_size=4)
        >>> ledgers = [Ledger(one) for one in plan.plans]
        >>> ledgers[1].note(frozenset(range(12)))
        >>> found = summarise_ledgers(ledgers)
        >>> found["rounds"], found["segments"], [one["rounds"] for one in found["cohorts"]]
        (1, 6, [0, 1])
    """
    each = [ledger.summary() for ledger in ledgers]
    if len(each) == 1:
        return each[0]
    added = ("sums", "exposed_users", "exposed_pairs", "exposed_segments", "segments")
    smallest = [one["smallest_set_at_most"] for one in each if one["smallest_set_at_most"] is not None]
    return {
        "rounds": max(one["rounds"] for one in each),
        **{name: sum(one[name] for one in each) for name in added},
        "smallest_set_at_most": min(smallest, default=None),
        "cohorts": each,
    }


class History:
    """What the sums of all rounds of one party reveal together, whatever the plans were.

    For every range of elements that no segment of any plan so far cuts, it keeps the sums over users, by name. A new
    sum that follows from those before adds nothing, so there are never more of them than users.

    Args:
        sets_below: Sets of fewer users than this must stay hidden; 0 for none.
    """

    def __init__(self, *, sets_below: int) -> None:
        self._below = _check_below(sets_below)
        self._prime = _draw_prime()
        self._users: dict[User, int] = {}
        self._ranges: list[tuple[int, int, _Block]] = []

    def check(self, plan: Plan, survivors: frozenset[int]) -> None:
        """Refuse survivors whose sums, with those before, would newly reveal that of a small set.

        Args:
            plan: The plan of the round.
            survivors: Roster indices.

        Raises:
            ExposedUsersError: They would; it names the set.
        """
        if not self._below:
            return
        for before, after in self._after(plan, survivors):
            news = _news(before, after, self._below)
            if news:
                raise ExposedUsersError(_smallest(news, list(self._users)), over_epochs=True)

    def note(self, plan: Plan, survivors: frozenset[int]) -> None:
        """The server has learned, or could have, the sums over these survivors.

        Args:
            plan: The plan of the round.
            survivors: Roster indices.
        """
        after = [block for _, block in self._after(plan, survivors)]
        self._ranges = [(start, stop, block) for (start, stop, _), block in zip(self._ranges, after, strict=True)]

    def _after(self, plan: Plan, survivors: frozenset[int]) -> list[tuple[_Block, _Block]]:
        """Every range's sums before and after the round; ranges are cut, and users added, as the plan asks for."""
        for user in plan.users:
            self._users.setdefault(user, len(self._users))
        ends = sorted({0, *(stop for _, stop, _ in self._ranges), *(segment.stop for segment in plan.segments)})
        found = []
        for start, stop in pairwise(ends):
            inside = next((block for low, high, block in self._ranges if low <= start and stop <= high), None)
            found.append((start, stop, self._widened(inside)))
        self._ranges = found
        pairs = []
        for start, stop, before in found:
            segment = next((one for one in plan.segments if one.start <= start and stop <= one.stop), None)
            after = before
            for block in segment.blocks if segment is not None else ():
                members = [index for index in survivors if plan.assignment[index] in block.subgroups]
                after = after.adding(sum(1 << self._users[plan.users[index]] for index in members))
            pairs.append((before, after))
        return pairs

    def _widened(self, block: _Block | None) -> _Block:
        """A range's sums with a place for every user known by now."""
        users = tuple(range(len(self._users)))
        if block is None:
            return _Block(users, (), self._prime)
        more = len(users) - len(block.users)
        if not more:
            return block
        hidden = np.zeros((len(block.hidden) + more, len(users)), dtype=np.int64)
        hidden[: len(block.hidden), : len(block.users)] = block.hidden
        hidden[len(block.hidden) :, len(block.users) :] = np.eye(more, dtype=np.int64)
        return _Block(users, (), block.prime, block.seen, block.smallest, hidden)

    def to_dict(self) -> dict[str, Any]:
        """The history in JSON types; `from_dict` reads it back."""
        ranges = [
            [start, stop, sorted(format(bits, "x") for bits in block.seen)] for start, stop, block in self._ranges
        ]
        return {"users": list(self._users), "ranges": ranges}

    @classmethod
    def from_dict(cls, values: dict[str, Any], *, sets_below: int) -> History:
        """A history as `to_dict` wrote it.

        Args:
            values: What `to_dict` returned.
            sets_below: As when it was made.

        Returns:
            The history.

        Raises:
            UsageError: A sum is over users that the history does not have.
        """
        history = cls(sets_below=sets_below)
        history._users = {user: place for place, user in enumerate(values["users"])}
        users = tuple(range(len(history._users)))
        for start, stop, seen in values["ranges"]:
            block = _Block(users, (), history._prime)
            for text in seen:
                bits = int(text, 16)
                if bits >> len(users):
                    raise UsageError("a history's sums are over its users")
                block = block.after(bits)  # independent of the others modulo an earlier prime, so it is kept
            history._ranges.append((int(start), int(stop), block))
        return history
