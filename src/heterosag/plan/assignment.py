"""Who is assigned to which subgroup.

Users come listed class by class. A class is cut into as many subgroups as the wanted size fits into it, with sizes as
even as possible, so that no subgroup is smaller than wanted unless its class is. Where the `perfect` design has no
construction for the resulting number of subgroups, the nearest number that has one is reached by merging or splitting
subgroups inside a class.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Literal

from heterosag.crypto.hashing import shuffle
from heterosag.errors import PlanError
from heterosag.plan.design import has_perfect

__all__ = ["Subgroup", "assign", "count_subgroups", "deal", "fit_perfect", "split_evenly", "surrounded_probability"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subgroup:
    """Users of one class who always act together.

    Args:
        user_class: The class, by its index, slowest first.
        members: Their roster indices.
    """

    user_class: int
    members: tuple[int, ...]


def split_evenly(total: int, parts: int) -> list[int]:
    """`total` as `parts` numbers that differ by one at most, larger ones first."""
    small, larger = divmod(total, parts)
    return [small + 1] * larger + [small] * (parts - larger)


def surrounded_probability(sizes: Sequence[int], colluders: int, enough: int) -> float:
    """How likely a user's subgroup has enough colluders to be unmasked with this user and them alone.

    Args:
        sizes: Users of each subgroup of the user's class; the user may be in the largest of them.
        colluders: Users who collude, at worst all in that class.
        enough: How many of them make the least survivors together with the user.

    Returns:
        The probability over assignments drawn at random within the class.
    """
    others, drawn = sum(sizes) - 1, max(sizes) - 1
    colluders = min(colluders, others)
    honest = others - colluders
    some, most = max(enough, drawn - honest), min(colluders, drawn)
    if some > most:
        return 0.0
    ways, here = 0, math.comb(colluders, some) * math.comb(honest, drawn - some)
    while some <= most:  # from one number of colluders to the next by small factors: each binomial anew takes minutes
        ways += here
        here = here * (colluders - some) * (drawn - some) // ((some + 1) * (honest - drawn + some + 1))
        some += 1
    return ways / math.comb(others, drawn)


def count_subgroups(classes: Sequence[int], subgroup_size: int) -> list[int]:
    """How many subgroups each class is cut into."""
    return [max(1, users // subgroup_size) for users in classes]


def fit_perfect(
    classes: Sequence[int], counts: Sequence[int], *, least_users: int, most: int
) -> tuple[list[int], str | None]:
    """Numbers of subgroups for which `perfect` exists, nearest to `counts`, and a note on the change.

    Args:
        classes: Users of each class.
        counts: Subgroups that each class should have.
        least_users: Users that every subgroup has at least, if `counts` are changed.
        most: Subgroups in all at most, if they are.

    Returns:
        Subgroups of each class, and None where they are as many as they should be.

    Raises:
        PlanError: Nothing that merging and splitting reaches fits.
    """
    wanted = sum(counts)
    if has_perfect(wanted):
        return list(counts), None
    tried: list[str] = []
    merged, split = (_changes(classes, counts, by, least_users) for by in (-1, 1))
    for distance in range(1, sum(classes)):
        for target, changes, how in (  # merging first: larger subgroups are safer
            (wanted - distance, merged, "merging"),
            (wanted + distance, split, "splitting"),
        ):
            changed = next(changes, None)
            if target > most:
                changed = None
            if (changed is None and len(tried) == 2) or not has_perfect(target):
                continue
            if changed is not None:
                return changed, (
                    f"perfect has no construction for {wanted} subgroups; {target} were reached by {how} "
                    f"subgroups inside a class (now {','.join(map(str, changed))} per class)"
                )
            tried.append(str(target))
    raise PlanError(
        "subgroup_size",
        f"perfect has no construction for {wanted} subgroups, and no class can be merged or split to reach "
        f"{' or '.join(tried)}: change subgroup_size or the classes so that one of those numbers comes out",
    )


def _changes(
    classes: Sequence[int], counts: Sequence[int], by: Literal[-1, 1], least_users: int
) -> Iterator[list[int] | None]:
    """Merge where subgroups are smallest (by -1), or split where they are largest, again and again.

    Each step changes one number by one, so that all of them together take little more time than the last. None stands
    for numbers with which a subgroup has too few users.
    """
    changed = list(counts)
    ends = [1] * len(classes) if by < 0 else classes
    small = sum(users // count < least_users for users, count in zip(classes, changed, strict=True))

    def rank(g: int) -> tuple[float, int]:
        return -by * classes[g] / (changed[g] + by), g

    queue = [rank(g) for g, end in enumerate(ends) if changed[g] != end]
    heapify(queue)
    while queue:
        _, g = heappop(queue)
        small -= classes[g] // changed[g] < least_users
        changed[g] += by
        small += classes[g] // changed[g] < least_users
        if changed[g] != ends[g]:
            heappush(queue, rank(g))
        yield None if small else changed


def assign(classes: Sequence[int], counts: Sequence[int], seed: bytes | None) -> tuple[Subgroup, ...]:
    """Subgroups in class order. With a seed users of a class are shuffled first; without one they stay as listed."""
    subgroups = []
    first = 0
    for index, (users, count) in enumerate(zip(classes, counts, strict=True)):
        members = list(range(first, first + users))
        if seed is not None:
            members = [members[i] for i in shuffle(f"assignment/{index}", seed, users)]
        start = 0
        for size in split_evenly(users, count):
            subgroups.append(Subgroup(user_class=index, members=tuple(sorted(members[start : start + size]))))
            start += size
        first += users
    return tuple(subgroups)


def deal(classes: Sequence[int], count: int, seed: bytes | None) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """The members of `count` cohorts as roster indices, ascending, and how many of them each class has.

    The users of a class, with a seed shuffled, are dealt in turn, and the next class goes on where the last one ended:
    so a cohort has at most one user more than another, of any class and in all.
    """
    members: list[list[int]] = [[] for _ in range(count)]
    sizes: list[list[int]] = [[] for _ in range(count)]
    first = 0
    for index, users in enumerate(classes):
        before = [len(own) for own in members]
        for place, user in enumerate(range(users) if seed is None else shuffle(f"cohorts/{index}", seed, users)):
            members[(first + place) % count].append(first + user)
        for own, held, size in zip(members, before, sizes, strict=True):
            size.append(len(own) - held)
        first += users
    return [tuple(sorted(own)) for own in members], [tuple(size) for size in sizes]
