"""BREA, the baseline of section 1.2, as a running protocol.

From the published description of So, Guler and Avestimehr, "Byzantine-resilient secure federated learning" (2020):
every user rounds its update into a prime field and shares the whole vector with polynomials of degree T among all N
users. Every user computes, on the shares it holds, the squared distance of every two updates: values of a polynomial of
degree 2T, whose constant the server decodes although up to A holders send something false and D nothing. With the
distances it selects users by multi-Krum, and from the sums of the selected users' shares, decoded likewise, it learns
their sum.

`secure_round` does all of it with real shares; `plain_round` gives the same bits from the rounded vectors themselves.
Shares are not verified here: BREA's commitments are in `brea_commitments.py`, and cost what that module says. Channels
between users are taken for granted.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from heterosag.crypto.keystream import KEY_SIZE, keystream
from heterosag.errors import UsageError
from heterosag.simulation.engine import Traffic
from reproduction import field
from reproduction.field import ELEMENT_SIZE, PRIME, Elements

__all__ = ["Brea", "BreaRound", "Step", "multi_krum", "plain_round", "quantize", "secure_round"]

Step = Literal["share", "distances", "sum"]
"""What a user does in a round: a user who drops out before a step does neither it nor what follows."""

Integers = npt.NDArray[np.int64]

_STEPS: tuple[Step, ...] = ("share", "distances", "sum")
_PIECE = 2048  # elements that a simulated round works on at a time, so that its memory does not grow with the vector
_LARGEST = 2.0**52  # what a rounded element is cut to, so that floating point still holds it exactly


@dataclass(frozen=True, slots=True, kw_only=True)
class Brea:
    """The parameters of a round. `privacy` is T: the shares of so many users reveal nothing.

    `bound` is the largest size of an element; honest users clip to it, so that no distance between them wraps.
    """

    users: int
    privacy: int
    adversaries: int
    dropouts: int
    selected: int
    scale: int = 1024
    bound: float = 0.5

    def __post_init__(self) -> None:
        counts = (self.privacy, self.adversaries, self.dropouts, self.selected - 1, self.scale - 1)
        if min(counts) < 0 or not self.bound > 0:
            raise UsageError(f"the parameters of BREA are not negative, and it selects somebody: {self!r}")
        least = 2 * self.adversaries + 1 + max(self.selected + 2, self.dropouts + 2 * self.privacy)
        if self.users < least:
            raise UsageError(
                f"BREA needs 2A + 1 + max(k + 2, D + 2T) = {least} users, not {self.users}, for {self.adversaries} "
                f"adversaries, {self.selected} selected, {self.dropouts} dropouts, privacy against {self.privacy}"
            )

    @property
    def points(self) -> range:
        """Where the polynomials are evaluated, user by user."""
        return range(1, self.users + 1)

    def check_dimension(self, dimension: int) -> None:
        """Refuse vectors so long that the distance of two honest users could wrap."""
        farthest = dimension * (2 * int(self.bound * self.scale) + 2) ** 2
        if farthest >= PRIME:
            raise UsageError(f"squared distances of {dimension} elements can reach {farthest}, beyond the field")


@dataclass(frozen=True, slots=True, kw_only=True)
class BreaRound:
    """What a round gives: the selected users, the sum of their rounded vectors, and what it took."""

    total: Integers
    selected: tuple[int, ...]
    distances: npt.NDArray[np.uint64]
    false_holders: tuple[int, ...]
    traffic: Traffic

    def mean(self, brea: Brea) -> npt.NDArray[np.float64]:
        """The mean of the selected users' updates."""
        return self.total / (brea.scale * len(self.selected))


def quantize(brea: Brea, update: npt.NDArray[np.floating], rng: np.random.Generator, *, clip: bool = True) -> Integers:
    """An update in steps of 1/scale, rounded up or down at random without bias; a malicious user does not clip."""
    most = brea.bound * brea.scale if clip else _LARGEST
    scaled = np.clip(update.astype(np.float64) * brea.scale, -most, most)
    low = np.floor(scaled)
    return (low + (rng.random(scaled.shape) < scaled - low)).astype(np.int64)


def multi_krum(distances: Sequence[Sequence[int]], adversaries: int, selected: int) -> list[int]:
    """The rows selected one after another: each time the one with the least sum of distances to its nearest.

    Of n rows that are left the n - A - 2 nearest count; of equal rows the first is taken.
    """
    left = set(range(len(distances)))
    nearest = [sorted((d, other) for other, d in enumerate(row) if other != own) for own, row in enumerate(distances)]
    chosen = []
    for _ in range(min(selected, len(distances))):
        count = max(1, len(left) - adversaries - 2)
        scores = {
            own: sum([distance for distance, other in nearest[own] if other in left][:count]) for own in sorted(left)
        }
        best = min(scores, key=lambda own: scores[own])
        chosen.append(best)
        left.remove(best)
    return chosen


# --- the round ----------------------------------------------------------------------------------------------------


class _User:
    """One user's side: it deals shares of its vector, and computes on those that it holds."""

    def __init__(self, brea: Brea, vector: Integers) -> None:
        self._vector = vector
        self._privacy = brea.privacy
        self._powers = field.powers(brea.points, brea.privacy)
        self._key = secrets.token_bytes(KEY_SIZE)
        self._products = np.zeros((0, 0), dtype=np.uint64)

    def deal(self, start: int, size: int) -> Elements:
        """Everybody's share of a piece of the vector, a row for each holder."""
        random = np.zeros((0, size), dtype=np.uint64)
        if self._privacy:
            width = self._privacy * ELEMENT_SIZE
            offset = start * width  # even: a piece starts at an even element
            random = field.from_bytes(keystream(self._key, size * width, start=offset)).reshape(self._privacy, size)
        secret = field.from_signed(self._vector[start : start + size])
        return field.matmul(self._powers, np.concatenate([secret[None], random]))

    def hold(self, shares: Elements) -> None:
        """Take a piece of everybody's share into the products of every two of them."""
        products = field.matmul(shares, shares.T)
        self._products = field.add(self._products, products) if self._products.size else products

    def distances(self) -> Elements:
        """The squared distance of every two shares, each pair once."""
        return field.distances_of(self._products)[np.triu_indices(len(self._products), 1)]


def secure_round(
    brea: Brea,
    vectors: Mapping[int, Integers],
    *,
    dropped: Mapping[int, Step] | None = None,
    false_holders: Collection[int] = (),
) -> BreaRound:
    """A round with real shares.

    Args:
        brea: The parameters.
        vectors: Each user's rounded vector, users being numbers from 0; who drops out before sharing needs none.
        dropped: Users who drop out, each with the step before which it does.
        false_holders: Malicious users who send random elements instead of what they are asked to compute.

    Returns:
        The selected users and their sum, which malicious holders were found, and bytes and seconds by step.

    Raises:
        UsageError: A vector is missing, or so long that distances could wrap.
        UndecodableError: More users dropped out or sent something false than the parameters allow.
    """
    absent = {user: _STEPS.index(step) for user, step in (dropped or {}).items()}
    present = [[user for user in range(brea.users) if absent.get(user, 3) > step] for step in range(3)]
    dealers, *holders = present
    dimension = _check(brea, vectors, dealers)
    users = {user: _User(brea, vectors[user]) for user in dealers}
    traffic = Traffic()
    clock = _Clock(traffic)
    for start, size in _pieces(dimension):
        dealt = []
        for user in dealers:
            with clock.user("share"):
                dealt.append(users[user].deal(start, size))
        for user in holders[0]:
            shares = np.stack([piece[user] for piece in dealt])
            with clock.user("distances"):
                users[user].hold(shares)
    table = []
    for user in holders[0]:
        with clock.user("distances"):
            found = users[user].distances()
        table.append(field.random_elements(found.size) if user in false_holders else found)
    with clock.server("distances"):
        decoded, wrong = field.decode_columns([brea.points[u] for u in holders[0]], np.stack(table), 2 * brea.privacy)
        distances = _square(decoded, len(dealers))
        chosen = [dealers[place] for place in multi_krum(distances.tolist(), brea.adversaries, brea.selected)]
    caught = {holders[0][place] for place in wrong}
    total, found_later = _sum_selected(brea, users, chosen, holders[1], false_holders, dimension, clock)
    _count_bytes(brea, traffic, present, dimension)
    return BreaRound(
        total=total,
        selected=tuple(chosen),
        distances=distances,
        false_holders=tuple(sorted(caught | found_later)),
        traffic=traffic,
    )


def _sum_selected(
    brea: Brea,
    users: Mapping[int, _User],
    chosen: Sequence[int],
    holders: Sequence[int],
    false_holders: Collection[int],
    dimension: int,
    clock: _Clock,
) -> tuple[Integers, set[int]]:
    """The decoded sum of the selected users' vectors, and the holders whose sums were false.

    A user would have kept the shares that it holds. To save memory they are dealt once more here, from the same secret
    keys, which no clock sees.
    """
    table = np.empty((len(holders), dimension), dtype=np.uint64)
    for start, size in _pieces(dimension):
        dealt = [users[user].deal(start, size) for user in chosen]
        for row, user in zip(table, holders, strict=True):
            shares = [piece[user] for piece in dealt]
            with clock.user("sum"):
                own = shares[0]
                for share in shares[1:]:
                    own = field.add(own, share)
            row[start : start + size] = field.random_elements(size) if user in false_holders else own
    with clock.server("sum"):
        decoded, wrong = field.decode_columns([brea.points[user] for user in holders], table, brea.privacy)
        total = field.to_signed(decoded)
    return total, {holders[place] for place in wrong}


def plain_round(brea: Brea, vectors: Mapping[int, Integers], *, dropped: Mapping[int, Step] | None = None) -> BreaRound:
    """The same result from the rounded vectors themselves: distances in the field, multi-Krum, the selected sum."""
    dealers = [user for user in range(brea.users) if (dropped or {}).get(user) != "share"]
    _check(brea, vectors, dealers)
    rows = np.stack([vectors[user] for user in dealers])
    distances = field.squared_distances(field.from_signed(rows))
    chosen = multi_krum(distances.tolist(), brea.adversaries, brea.selected)
    return BreaRound(
        total=rows[chosen].sum(axis=0),
        selected=tuple(dealers[place] for place in chosen),
        distances=distances,
        false_holders=(),
        traffic=Traffic(),
    )


def _check(brea: Brea, vectors: Mapping[int, Integers], dealers: Sequence[int]) -> int:
    missing = [user for user in dealers if user not in vectors]
    if missing or not dealers:
        raise UsageError(f"users {missing} have no vector" if missing else "everybody has dropped out")
    sizes = {vectors[user].size for user in dealers}
    if len(sizes) != 1:
        raise UsageError(f"vectors of one round are equally long, not {sorted(sizes)}")
    dimension = sizes.pop()
    brea.check_dimension(dimension)
    return dimension


def _pieces(dimension: int) -> Iterator[tuple[int, int]]:
    for start in range(0, dimension, _PIECE):
        yield start, min(_PIECE, dimension - start)


def _square(pairs: Elements, count: int) -> npt.NDArray[np.uint64]:
    """Distances of every two of so many users, from those of each pair."""
    found = np.zeros((count, count), dtype=np.uint64)
    found[np.triu_indices(count, 1)] = pairs
    return found + found.T


class _Clock:
    """Adds up CPU seconds of all users and of the server, step by step: what else the machine does is not counted."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic

    @contextmanager
    def user(self, step: Step) -> Iterator[None]:
        start = time.process_time()
        yield
        _add(self._traffic.user_seconds, step, time.process_time() - start)

    @contextmanager
    def server(self, step: Step) -> Iterator[None]:
        start, spent = time.perf_counter(), time.process_time()
        yield
        _add(self._traffic.server_seconds, step, time.perf_counter() - start)
        _add(self._traffic.server_cpu_seconds, step, time.process_time() - spent)


def _add(seconds: dict[str, float], step: Step, more: float) -> None:
    seconds[step] = seconds.get(step, 0.0) + more


def _count_bytes(brea: Brea, traffic: Traffic, present: Sequence[Sequence[int]], dimension: int) -> None:
    """What the messages of the round are long: arrays of elements, eight bytes each."""
    dealers, holders, adders = present
    vector = dimension * ELEMENT_SIZE
    pairs = len(dealers) * (len(dealers) - 1) // 2 * ELEMENT_SIZE
    traffic.sent |= {
        "share": dict.fromkeys(dealers, (brea.users - 1) * vector),
        "distances": dict.fromkeys(holders, pairs),
        "sum": dict.fromkeys(adders, vector),
    }
    traffic.received |= {
        "share": {},
        "distances": {user: (len(dealers) - 1) * vector for user in holders},
        "sum": dict.fromkeys(adders, brea.selected * ELEMENT_SIZE),
    }
