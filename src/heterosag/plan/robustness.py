"""Inference robustness: how many segments the most exposed proper set of subgroups can be decoded in.

It looks like a search over 2^Z sets, but a set is decodable in several segments exactly when the union of their
pairings, read as a graph on the subgroups, is disconnected with the set a union of components. `most_decodable` walks
those unions instead of the sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from heterosag.errors import UsageError

__all__ = ["WORK", "Block", "Robustness", "Segment", "general_bounds", "most_decodable"]

Block = tuple[int, ...]
"""The subgroups that code a segment together, ascending."""

Segment = tuple[Block, ...]
"""The blocks of a segment: every subgroup is in one of them."""

WORK = 2_000_000_000
"""Array elements to look at before a lower bound is given instead: two seconds, for hundreds of subgroups a few."""

_STEP = 50_000  # what each join and each cut costs besides, in elements: calls of NumPy, however small the table is

_Labels = npt.NDArray[np.int32]

_MAX_COMPONENTS = 6  # up to here every cut of the components is tried, beyond it they are joined further


@dataclass(frozen=True, slots=True, kw_only=True)
class Robustness:
    """An inference robustness: exact, or (`exact` false) a proven lower bound.

    Args:
        value: The least fraction of segments in which a set of subgroups stays hidden.
        exact: Whether it is that fraction itself, not only a bound.
    """

    value: Fraction
    exact: bool = True

    def __float__(self) -> float:
        return float(self.value)

    def __str__(self) -> str:
        return f"{'' if self.exact else 'at least '}{float(self.value):.4g}"


def most_decodable(segments: Sequence[Segment], survivors: Sequence[int]) -> tuple[int, bool]:
    """In how many segments the most exposed proper set of survivors is decodable, and whether that is exact."""
    if len(survivors) < 2:
        return 0, True
    if any(len(block) > 2 for segment in segments for block in segment):
        whole = [segment for segment in segments if len(segment) == 1]
        if len(whole) != len(segments):
            raise UsageError("robustness is computed for blocks of one, two or all subgroups")
        return 0, True
    partners = _partner_table(segments, survivors)
    alone = int((partners == np.arange(len(survivors))).sum(axis=0).max())
    [bound] = general_bounds(segments, [len(survivors)])
    search = _CutSearch(partners, best=max(alone, int(any(len(segment) > 1 for segment in segments))), bound=bound)
    return (search.best, True) if search.run() else (bound, False)


def _partner_table(segments: Sequence[Segment], survivors: Sequence[int]) -> _Labels:
    """Row l, column i: the position of survivor i's partner in segment l, i itself where it is alone."""
    position = {subgroup: index for index, subgroup in enumerate(survivors)}
    table = np.tile(np.arange(len(survivors), dtype=np.int32), (len(segments), 1))
    for row, segment in zip(table, segments, strict=True):
        for block in segment:
            if len(block) == 2:
                a, b = position[block[0]], position[block[1]]
                row[a], row[b] = b, a
    return table


def general_bounds(segments: Sequence[Segment], survivors: Iterable[int]) -> list[int]:
    """In how many segments a proper set can be decodable at most, by counting, for each number of survivors.

    Where every two subgroups meet in one segment, a set of k among u survivors has k(u-k) pairs to the outside, and
    one segment holds at most min(k, u-k) of them: at least max(k, u-k) >= u/2 segments stay hidden.
    """
    if all(len(segment) <= 1 for segment in segments):
        return [0 for _ in survivors]
    meetings = {block for segment in segments for block in segment if len(block) == 2}
    everyone = {g for block in meetings for g in block}
    if len(meetings) * 2 != len(everyone) * (len(everyone) - 1) or len(everyone) < 2:
        return [len(segments) for _ in survivors]
    return [len(segments) - -(-number // 2) for number in survivors]


class _CutSearch:
    """Finds the proper set that is decodable in most segments.

    A set that is decodable in two segments or more is a union of components of the join of some two pairings. For
    every two segments: where the join has few components, all their unions are tried; where it has many, further
    pairings are joined in until it has few. Joins seen before are skipped, so the structured designs stay cheap.
    """

    def __init__(self, partners: _Labels, *, best: int, bound: int) -> None:
        self.partners = partners
        self.best = best
        self._bound = bound
        self._seen: set[bytes] = set()
        self._work = 0

    def run(self) -> bool:
        """True when the search was complete, so that `best` is exact."""
        for first in range(len(self.partners) - 1):
            if self.best >= self._bound:
                return True
            self._work += self.partners[first + 1 :].size // 2
            if self._work > WORK:
                return False
            apart = self._apart(first)
            if not all(self._explore(labels) for labels in self._joins(first, apart)):
                return False
        return True

    def _apart(self, first: int) -> _Labels:
        """The later segments whose pairing, joined with that of segment `first`, leaves several components.

        Walk from subgroup 0 with one pairing after the other, for all segments at once. A connected join is one cycle,
        and the walk is back after half of its subgroups; or one path between two subgroups that are alone, and it
        is back after meeting everyone. Elsewhere it is back sooner, or too many are alone.
        """
        mine, later = self.partners[first], self.partners[first + 1 :]
        everyone = np.arange(len(mine))
        alone = (mine == everyone).sum() + (later == everyone).sum(axis=1)
        due = np.where(alone == 0, len(mine) // 2, len(mine))
        rows, at = np.arange(len(later)), np.zeros(len(later), dtype=np.int32)
        apart = alone > 2
        for step in range(1, int(due.max())):
            at = mine[later[rows, at]]
            apart |= (at == 0) & (step < due)
        return (first + 1 + np.flatnonzero(apart)).astype(np.int32)

    def _joins(self, first: int, others: _Labels) -> _Labels:
        """Component labels (least member) of segment `first` joined with each of the others, a row each."""
        mine = self.partners[first]
        jump = self.partners[others][:, mine]
        labels = np.tile(np.arange(len(mine), dtype=np.int32), (len(jump), 1))
        for _ in range(max(1, len(mine) - 1).bit_length()):
            np.minimum(labels, np.take_along_axis(labels, jump, axis=1), out=labels)
            jump = np.take_along_axis(jump, jump, axis=1)
        return np.minimum(labels, labels[:, mine])

    def _explore(self, labels: _Labels) -> bool:
        """Try every union of the components `labels` describe; False when that takes too much work."""
        todo = [labels]
        while todo and self.best < self._bound:
            current = todo.pop()
            key = current.tobytes()
            if key in self._seen:
                continue
            self._seen.add(key)
            self._work += self.partners.size + _STEP
            if self._work > WORK:
                return False
            fits = (current[self.partners] == current).all(axis=1)
            self.best = max(self.best, int(np.count_nonzero(fits)))
            components = np.unique(current)
            if 2 < len(components) <= _MAX_COMPONENTS:
                self.best = max(self.best, self._best_cut(current, components))
            elif len(components) > _MAX_COMPONENTS:
                further = np.flatnonzero(~fits)
                self._work += len(further) * _STEP
                joins = (self._join(current, int(segment)) for segment in further)
                todo.extend(joined for joined in joins if joined.any())
        return True

    def _best_cut(self, labels: _Labels, components: _Labels) -> int:
        """Over all ways to split the components in two, the most segments without a pair across."""
        most = 0
        for chosen in range(1, 1 << (len(components) - 1)):
            side = np.isin(labels, components[[bool(chosen >> i & 1) for i in range(len(components))]])
            most = max(most, int(np.count_nonzero((side[self.partners] == side).all(axis=1))))
        self._work += self.partners.size + _STEP << (len(components) - 1)
        return most

    def _join(self, labels: _Labels, segment: int) -> _Labels:
        """Labels once one more pairing is joined in (all zero: connected)."""
        joined = labels
        while True:
            least = np.arange(len(labels), dtype=np.int32)
            np.minimum.at(least, joined, joined[self.partners[segment]])
            lower = least[least[joined]]
            if (lower == joined).all():
                return joined
            joined = lower
