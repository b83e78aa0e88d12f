"""The sharing graph: who holds whose shares, and the thresholds.

With up to a few hundred users everybody holds a share of everybody's secrets. Beyond that each user shares with k
neighbours on a random regular graph (Bell, Bonawitz, Gascon, Lepoint and Raykova 2020): users in a random order on a
ring, each joined with the k/2 nearest on either side. k and the threshold t follow from hypergeometric tails, which are
summed in integers with a bound on their error, and exactly where that leaves a comparison open: no rounding decides
about security. The search takes few sums for any number of users, since a client repeats it on the server's plan.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

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

_PRECISION = 256  # bits of a sum of probabilities, see `_is_rarer`


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

    def least(k: int) -> int:
        return max(k // 2 + 1, min_threshold)

    def suffice(k: int, t: int) -> bool:
        return (
            t <= k
            and _is_rarer(users, users - bad, k, 1, users * (users - k - 1) << PRIVACY_BITS)
            and _is_rarer(users, users - gone, k, t, users << FAILURE_BITS)
        )

    # If k neighbours suffice with their least threshold, k + 2 do. Only for the last condition, where the threshold is
    # k/2 + 1, does that need an argument. Let X of k and Y of two more neighbours survive, and G of all users drop out:
    # P[X + Y <= m + 1] - P[X <= m] = P[X = m + 1, Y = 0] - P[X = m, Y = 2] at m = k/2, and the first of these two is
    # m (G - m) / ((m + 1) (N - G - m - 1)) of the second, less than 1 if G < N/2. With G >= N/2 no k suffices.
    # Beyond that k are tried one by one until t1 asks for no higher threshold: for a plan up to about 50, as its least
    # threshold is above the colluders, or the corrupt users are 5%.
    even = range(2, users, 2)
    first = bisect_left(even, True, key=lambda k: suffice(k, least(k))) if 2 * gone < users else len(even)
    for k in even[first:]:
        t1 = _most_corrupt(users, malicious, k)
        t = max(math.ceil((t1 + k - 1.25) / 2) + 1 if malicious_server else t1 + 1, least(k))
        if suffice(k, t):
            return k, t
    raise UsageError(
        f"no sharing graph on {users} users tolerates {corrupt:.0%} corrupt and {dropped:.0%} dropped users: "
        "expect fewer of them, or use the complete graph"
    )


def _most_corrupt(users: int, malicious: int, k: int) -> int:
    """The least t1 with P[more than t1 of k holders are corrupt] <= 2^-41 / N.

    The two sides are never equal: 2^41 would divide C(N, k), in which 2 is a factor at most log2(N) times.
    """
    rare = users << (PRIVACY_BITS + 1)
    return bisect_left(
        range(min(k, malicious)), True, key=lambda t1: _is_rarer(users, users - malicious, k, k - t1, rare)
    )


def _is_rarer(users: int, marked: int, drawn: int, least: int, draws: int) -> bool:
    """Whether fewer than `least` of `drawn` users are among the `marked` ones less than once in so many draws.

    The weights of the hypergeometric distribution are counted outwards from the greatest, which is 2^256, and rounded
    down. None is larger than the one before, so that each is too small by at most the number of steps to it, and all
    of them together by less than (drawn + 1)^2.
    """
    rest, mode = users - marked, (drawn + 1) * (marked + 1) // (users + 2)
    tail = total = 0
    weight, at = 1 << _PRECISION, mode
    while weight:
        total += weight
        tail += weight if at < least else 0
        weight = weight * at * (rest - drawn + at) // ((marked - at + 1) * (drawn - at + 1))
        at -= 1
    weight, at = 1 << _PRECISION, mode
    while weight := weight * (marked - at) * (drawn - at) // ((at + 1) * (rest - drawn + at + 1)):
        at += 1
        total += weight
        tail += weight if at < least else 0
    error = (drawn + 1) ** 2
    if (tail + error) * draws < total:
        return True
    if tail * draws >= total + error:
        return False
    return sum(math.comb(marked, i) * math.comb(rest, drawn - i) for i in range(least)) * draws < math.comb(
        users, drawn
    )
