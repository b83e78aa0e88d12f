"""The sharing graph: who holds whose shares, and the thresholds.

With up to a few hundred users everybody holds a share of everybody's secrets. Beyond that each user shares with k
neighbours on a random regular graph (Bell, Bonawitz, Gascon, Lepoint and Raykova 2020): users in a random order on a
ring, each joined with the k/2 nearest on either side. k and the threshold t follow from hypergeometric tails; they
are compared as integers, so no rounding decides about security.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from heterosag.errors import UsageError

__all__ = [
    "FAILURE_BITS",
    "PRIVACY_BITS",
    "SharingGraph",
    "complete_graph",
    "find_neighbours",
    "majority",
    "sparse_graph",
]

PRIVACY_BITS = 40
"""`find_neighbours` lets privacy fail with a probability of at most 2^-40."""

FAILURE_BITS = 20
"""`find_neighbours` lets a round end for lack of shares with a probability of at most 2^-20."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingGraph:
    """Whose shares each user holds, and how many shares rebuild a secret.

    A dealer always keeps a share of its own, which it gives when it survives.

    Args:
        users: How many there are.
        neighbours: How many others hold shares of each.
        threshold: How many shares rebuild a secret.
        order: The ring that neighbours are counted on, as roster indices; empty for the complete graph.
    """

    users: int
    neighbours: int
    threshold: int
    order: tuple[int, ...] = ()
    _places: dict[int, int] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def complete(self) -> bool:
        """Whether everybody holds a share of everybody's secrets."""
        return not self.order

    def holders(self, user: int) -> tuple[int, ...]:
        """The other users who hold shares of a user's secrets.

        Args:
            user: The user's roster index.

        Returns:
            Their roster indices, in rising order.
        """
        if self.complete:
            return tuple(other for other in range(self.users) if other != user)
        if not self._places:
            self._places.update({someone: place for place, someone in enumerate(self.order)})
        place = self._places[user]
        half = self.neighbours // 2
        around = (place + offset for offset in range(-half, half + 1) if offset)
        return tuple(sorted(self.order[spot % self.users] for spot in around))


def majority(users: int, colluders: int = 0) -> int:
    """floor((N+c)/2) + 1: two sets of this size share an honest user though c users collude.

    Args:
        users: N, how many there are.
        colluders: c, how many of them may collude with the server.

    Returns:
        The size.

    Example:
        >>> from heterosag.plan.sharing import majority
        >>> majority(25), majority(25, colluders=5)
        (13, 16)
    """
    return (users + colluders) // 2 + 1


def complete_graph(users: int, colluders: int = 0) -> SharingGraph:
    """Everybody shares with everybody; a majority rebuilds.

    Args:
        users: How many there are.
        colluders: How many of them may collude with the server.

    Returns:
        The graph, with the majority as its threshold.
    """
    return SharingGraph(users=users, neighbours=users - 1, threshold=majority(users, colluders))


def sparse_graph(order: Sequence[int], neighbours: int, threshold: int) -> SharingGraph:
    """The ring graph on users in the given (random) order.

    Args:
        order: Roster indices in the order of the ring.
        neighbours: k, an even number of them.
        threshold: t, how many shares rebuild a secret.

    Returns:
        The graph.

    Raises:
        UsageError: The order is no permutation, or k and t do not fit it.
    """
    users = len(order)
    if neighbours % 2 or not 2 <= neighbours < users or sorted(order) != list(range(users)):
        raise UsageError(
            f"a sharing graph on {users} users needs an even number of neighbours below {users} (not {neighbours}) "
            "and an order that names each roster index once"
        )
    return SharingGraph(users=users, neighbours=neighbours, threshold=threshold, order=tuple(order))


def find_neighbours(
    users: int, corrupt: float, dropped: float, *, min_threshold: int = 1, malicious_server: bool = False
) -> tuple[int, int]:
    """The smallest even k, and t, for N users of whom some are malicious and some drop out.

    Guarantees: except with probability 2^-40 the honest survivors stay connected and no user has t corrupt holders;
    except with 2^-20 every user keeps t holders who answer. t is more than half of k, however few users may be
    corrupt by the bounds.

    Args:
        users: N, how many there are.
        corrupt: The fraction of them who may be malicious.
        dropped: The fraction who drop out.
        min_threshold: The least threshold.
        malicious_server: Ask for a threshold that a server cannot reach twice with different answers (the
            semi-malicious model of Bell et al.).

    Returns:
        k, the neighbours of each user, and t, the threshold.

    Raises:
        UsageError: No k below N does, or the fractions make no sense.
    """
    if users < 3 or not (0 <= corrupt < 1 and 0 <= dropped < 1 and corrupt + dropped < 1):
        raise UsageError(f"no sharing graph for {users} users with {corrupt:g} corrupt and {dropped:g} dropped")
    malicious, gone, bad = (math.floor(share * users + 1e-9) for share in (corrupt, dropped, corrupt + dropped))
    for k in range(2, users, 2):
        total = math.comb(users, k)
        if users * (users - k - 1) * math.comb(bad, k) << (PRIVACY_BITS + 1) >= 2 * total:
            continue
        t1 = _least_tail(users, malicious, k, total)
        t = math.ceil((t1 + k - 1.25) / 2) + 1 if malicious_server else t1 + 1
        t = max(t, k // 2 + 1, min_threshold)
        if t > k:
            continue
        enough_left = sum(_hypergeometric(users, users - gone, k)[:t])
        if enough_left * users << FAILURE_BITS < total:
            return k, t
    raise UsageError(
        f"no sharing graph on {users} users tolerates {corrupt:.0%} corrupt and {dropped:.0%} dropped users: "
        "expect fewer of them, or use the complete graph"
    )


def _hypergeometric(users: int, marked: int, drawn: int) -> list[int]:
    """Entry i: in how many ways i of the `drawn` users are among the `marked` ones."""
    return [math.comb(marked, i) * math.comb(users - marked, drawn - i) for i in range(drawn + 1)]


def _least_tail(users: int, malicious: int, k: int, total: int) -> int:
    """The least t1 with P[more than t1 of k holders are corrupt] <= 2^-41 / N."""
    tails = list(accumulate(reversed(_hypergeometric(users, malicious, k))))  # entry j: at least k - j corrupt
    small_enough = sum(1 for tail in tails if tail * users << (PRIVACY_BITS + 1) <= total)
    return k - small_enough
