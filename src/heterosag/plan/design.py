"""Designs: for every segment, how the subgroups are partitioned into blocks that code it together.

What the server decodes of a segment are the sums of its blocks, so the sum of a set S of subgroups is decodable in a
segment exactly when S is a union of that segment's blocks. *Inference robustness* (Definition 1 of the paper) is the
smallest part of the segments that stays hidden, over all proper sets S; `robustness` finds it.

`perfect` rests on perfect one-factorisations of the complete graph: the union of any two segments' pairings is one
Hamiltonian cycle, hence connected, hence no proper set is decodable twice. `paper` is the paper's Algorithm 1, whose
unions are connected only when the number of subgroups is prime.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from heterosag.errors import UsageError
from heterosag.plan.robustness import WORK, Block, Robustness, Segment, general_bounds, most_decodable

__all__ = [
    "DESIGNS",
    "Block",
    "Design",
    "Robustness",
    "has_perfect",
    "is_prime",
    "make",
    "multigroup",
    "paper",
    "perfect",
    "secagg",
    "tolerated_blocks",
    "tolerated_subgroups",
]

# A starter over Z_15: seven pairs with the differences 1..7; its translates, each with the fixed point joined to the
# sixteenth subgroup, are a perfect one-factorisation of K16, which neither of the two infinite families has.
_STARTER_16 = ((1, 3), (2, 11), (4, 5), (6, 13), (7, 10), (8, 12), (9, 14))


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """Which subgroups code each segment together. All four kinds are values of this one type.

    Args:
        name: What it is called.
        subgroups: How many subgroups it is for.
        segments: The blocks of each segment, each a tuple of subgroups.
    """

    name: str
    subgroups: int
    segments: tuple[Segment, ...]
    _known: dict[frozenset[int], Robustness] = field(default_factory=dict, init=False, repr=False, compare=False)
    _tolerated: dict[float, int] = field(default_factory=dict, init=False, repr=False, compare=False)
    _at_least: dict[int, Fraction] = field(default_factory=dict, init=False, repr=False, compare=False)
    _bounds: list[Fraction] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        everyone = list(range(self.subgroups))
        for index, segment in enumerate(self.segments):
            if sorted(subgroup for block in segment for subgroup in block) != everyone:
                raise UsageError(f"segment {index} of a design must hold every subgroup exactly once")
        if not self.segments or not self.subgroups:
            raise UsageError("a design has at least one subgroup and one segment")

    @property
    def has_star(self) -> bool:
        """Whether some segment is coded by one subgroup alone while there are others."""
        return self.subgroups > 1 and any(len(block) == 1 for segment in self.segments for block in segment)

    def block_of(self, segment: int, subgroup: int) -> Block:
        """The block in which a subgroup codes a segment.

        Args:
            segment: The segment's index.
            subgroup: The subgroup's index.

        Returns:
            The subgroups of the block.
        """
        return next(block for block in self.segments[segment] if subgroup in block)

    def surviving(self, lost: Collection[int] = ()) -> tuple[Segment, ...]:
        """The segments' blocks once some subgroups are wholly gone.

        Args:
            lost: Indices of those subgroups.

        Returns:
            The blocks of each segment; those of lost subgroups alone are left out.
        """
        if not lost:
            return self.segments
        gone = set(lost)
        return tuple(
            tuple(left for block in segment if (left := tuple(g for g in block if g not in gone)))
            for segment in self.segments
        )

    def robustness(self, lost: Collection[int] = ()) -> Robustness:
        """Inference robustness once the subgroups in `lost` are wholly gone.

        Guarantees: computed from the blocks, never from a formula; a proper set of surviving subgroups is decodable
        in at most the fraction 1 - value of the segments. Where the exact value costs too much, a proven lower bound.

        Args:
            lost: Indices of subgroups of which nobody survived.

        Returns:
            The value, and whether it is exact.

        Raises:
            UsageError: There is no such subgroup.
        """
        key = frozenset(lost)
        if not key <= set(range(self.subgroups)):
            raise UsageError(f"lost subgroups must be among 0..{self.subgroups - 1}, not {sorted(key)}")
        if key not in self._known:
            count, exact = most_decodable(self.surviving(key), sorted(set(range(self.subgroups)) - key))
            self._known[key] = Robustness(value=1 - Fraction(count, len(self.segments)), exact=exact)
        return self._known[key]

    def robustness_at_most(self, lost: Collection[int] = ()) -> Fraction:
        """A quick upper bound: no more than what the subgroup that is alone most often leaves hidden.

        Args:
            lost: Indices of subgroups of which nobody survived.

        Returns:
            A bound that `robustness` never exceeds.
        """
        gone = set(lost)
        alone = [0] * self.subgroups
        if self.subgroups - len(gone) < 2:
            return Fraction(1)
        for segment in self.surviving(gone):
            for block in segment:
                if len(block) == 1:
                    alone[block[0]] += 1
        return 1 - Fraction(max(alone), len(self.segments))

    def robustness_at_least(self, lost: Collection[int] = ()) -> Fraction:
        """A quick lower bound, which depends only on how many subgroups are lost.

        Args:
            lost: Indices of subgroups of which nobody survived.

        Returns:
            A bound that `robustness` is never below.
        """
        count = len(frozenset(lost))
        if count not in self._at_least:
            everyone = self.robustness().value
            free = count == 0 or (count == 1 and self._first_loss_is_free())
            self._at_least[count] = everyone if free else self._bound(self.subgroups - count)
        return self._at_least[count]

    def decodable(self, subgroups: Iterable[int], lost: Collection[int] = ()) -> tuple[int, ...]:
        """The segments in which the server learns the sum of exactly these subgroups.

        Args:
            subgroups: Indices of the subgroups.
            lost: Indices of subgroups of which nobody survived.

        Returns:
            Indices of the segments.
        """
        wanted = set(subgroups) - set(lost)
        return tuple(
            index
            for index, segment in enumerate(self.surviving(lost))
            if wanted and all(wanted.issuperset(block) or wanted.isdisjoint(block) for block in segment)
        )

    def byzantine_tolerance(self, lost: Collection[int] = ()) -> int:
        """How many faulty subgroups, wherever they are, leave a majority of sound blocks in every segment.

        Args:
            lost: Indices of subgroups of which nobody survived.

        Returns:
            A number of subgroups.
        """
        return min(tolerated_blocks(len(segment)) for segment in self.surviving(lost))

    def tolerated_losses(self, minimum: float) -> int:
        """The largest e such that losing any e whole subgroups surely keeps the robustness at `minimum` or above.

        Exact for e = 0 and 1; from 2 on by the general lower bound, so it may be too small but never too large.

        Args:
            minimum: The robustness to keep.

        Returns:
            A number of subgroups, -1 if the robustness is below the minimum with everybody.
        """
        if minimum not in self._tolerated:
            self._tolerated[minimum] = self._tolerate(minimum)
        return self._tolerated[minimum]

    def _tolerate(self, minimum: float) -> int:
        if float(self.robustness()) < minimum:
            return -1
        if not self.has_star and self.subgroups > 2 and len(self.segments) > 1:
            tolerated = int(self._first_loss_is_free())
        elif float(self.robustness_at_most((0,))) < minimum:
            tolerated = 0
        elif self.subgroups**5 <= WORK:
            singles = range(self.subgroups if self.subgroups > 1 else 0)
            tolerated = int(bool(singles) and all(float(self.robustness({one})) >= minimum for one in singles))
        else:
            tolerated = 0
        bounded = (e for e in range(2, self.subgroups) if float(self._bound(self.subgroups - e)) >= minimum)
        return max((tolerated, *bounded))

    def _bound(self, survivors: int) -> Fraction:
        if not self._bounds:  # by survivors, from none on: the segments are looked through once
            most = general_bounds(self.segments, range(self.subgroups + 1))
            self._bounds.extend(1 - Fraction(bound, len(self.segments)) for bound in most)
        return self._bounds[survivors]

    def _first_loss_is_free(self) -> bool:
        """Whether any two pairings join into one cycle: without one subgroup it is a path, which is still connected."""
        several = not self.has_star and self.subgroups > 2 and len(self.segments) > 1
        return several and self.robustness().value == 1 - Fraction(1, len(self.segments))

    def matrix(self) -> list[list[int | None]]:
        """The segment-selection matrix [B]: a row a segment, a column a subgroup; None is the paper's star."""
        rows: list[list[int | None]] = [[None] * self.subgroups for _ in self.segments]
        for row, segment in zip(rows, self.segments, strict=True):
            for block in segment:
                for subgroup in block:
                    row[subgroup] = None if len(block) == 1 and self.subgroups > 1 else block[0]
        return rows

    def matrix_text(self, labels: Sequence[str] | None = None) -> str:
        """The matrix as the paper prints it.

        Args:
            labels: Names of the subgroups; their indices unless given.

        Returns:
            A line a segment, a column a subgroup, `*` for a star.
        """
        names = [str(index) for index in range(self.subgroups)] if labels is None else list(labels)
        cells = [["*" if entry is None else names[entry] for entry in row] for row in self.matrix()]
        wide = max(len(cell) for row in [names, *cells] for cell in row)
        lines = [" ".join(cell.rjust(wide) for cell in row) for row in [names, *cells]]
        return "\n".join([lines[0], *(f"{line}  {index}" for index, line in enumerate(lines[1:]))])


# --- The four designs -------------------------------------------------------------------------------------------


def secagg(subgroups: int) -> Design:
    """One block of everybody, one segment: the protocol of Bonawitz et al., the baseline.

    Args:
        subgroups: How many.

    Returns:
        The design: one segment, one block.
    """
    return Design(name="secagg", subgroups=subgroups, segments=((tuple(range(subgroups)),),))


def multigroup(subgroups: int) -> Design:
    """Every subgroup codes the whole vector alone: the strawman of the paper's section 3.2.

    Args:
        subgroups: How many.

    Returns:
        The design: one segment, a block a subgroup.
    """
    return Design(name="multigroup", subgroups=subgroups, segments=(tuple((g,) for g in range(subgroups)),))


def paper(subgroups: int) -> Design:
    """The paper's Algorithm 1: g and h meet in segment (g + h - 1) mod Z, and g is a star in (2g - 1) mod Z.

    Args:
        subgroups: How many.

    Returns:
        The design: as many segments as subgroups.
    """
    segments = tuple(_fold([(segment + 1 - g) % subgroups for g in range(subgroups)]) for segment in range(subgroups))
    return Design(name="paper" if is_prime(subgroups) else "paper-composite", subgroups=subgroups, segments=segments)


def perfect(subgroups: int) -> Design:
    """A perfect one-factorisation: no proper set of subgroups is decodable in more than one segment.

    Guarantees: robustness (Z-2)/(Z-1) for even Z and (Z-1)/Z for odd Z, 1 for Z <= 2. Raises where Z has no known
    construction; `has_perfect` tells.

    Args:
        subgroups: How many.

    Returns:
        The design: a segment less than subgroups if they are even in number, else as many.

    Raises:
        UsageError: No construction is known for that number.

    Example:
        >>> from heterosag.plan.design import perfect
        >>> float(perfect(5).robustness())
        0.8
        >>> perfect(4).segments
        (((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2)))
    """
    if not has_perfect(subgroups):
        raise UsageError(f"no perfect one-factorisation is built in for {subgroups} subgroups")
    segments = tuple(
        _fold([partner if partner < subgroups else g for g, partner in enumerate(factor[:subgroups])])
        for factor in _factorisation(subgroups + subgroups % 2)
    )
    return Design(name="perfect", subgroups=subgroups, segments=segments)


DESIGNS: dict[str, Callable[[int], Design]] = {
    "perfect": perfect,
    "paper": paper,
    "paper-composite": paper,
    "secagg": secagg,
    "multigroup": multigroup,
}
"""Every design by its name: from a number of subgroups to the design."""


def make(name: str, subgroups: int) -> Design:
    """The design called `name` on so many subgroups.

    Args:
        name: One of `DESIGNS`.
        subgroups: How many.

    Returns:
        The design.

    Raises:
        UsageError: No design has this name, or it has no construction for so many subgroups.
    """
    if name not in DESIGNS:
        raise UsageError(f"no design is called {name!r}: choose one of {', '.join(DESIGNS)}")
    return DESIGNS[name](subgroups)


def has_perfect(subgroups: int) -> bool:
    """Whether `perfect` can be built on so many subgroups.

    Args:
        subgroups: How many.

    Returns:
        Whether `perfect` takes that number.
    """
    full = subgroups + subgroups % 2
    return subgroups > 0 and (full in (2, 16) or is_prime(full - 1) or is_prime(full // 2))


def tolerated_blocks(blocks: int) -> int:
    """How many faulty blocks of a segment leave a majority of sound ones, as the median needs: ceil(n/2) - 1.

    Args:
        blocks: How many blocks of the segment are decoded.

    Returns:
        The most that are fewer than half; 0 for no block.
    """
    return max(0, -(-blocks // 2) - 1)


def tolerated_subgroups(subgroups: int) -> int:
    """How many faulty subgroups, wherever they are, the median tolerates in a design of pairs: ceil(Z/4) - 1.

    Such are `perfect` and `paper` with everybody there: a faulty subgroup spoils one block of each segment, and of
    these there are at least ceil(Z/2).

    Args:
        subgroups: How many [Z].

    Returns:
        What `Design.byzantine_tolerance` says of such a design, without building it.
    """
    return tolerated_blocks(-(-subgroups // 2))


def is_prime(number: int) -> bool:
    """Whether a number is prime; trial division is enough for numbers of subgroups.

    Args:
        number: Any integer.

    Returns:
        False below 2.
    """
    return number > 1 and all(number % divisor for divisor in range(2, math.isqrt(number) + 1))


def _fold(partners: list[int]) -> Segment:
    """The blocks of an involution: a fixed point is a star."""
    return tuple((g,) if partner == g else (g, partner) for g, partner in enumerate(partners) if partner >= g)


def _factorisation(count: int) -> Iterator[list[int]]:
    """A perfect one-factorisation of the complete graph on an even count, each factor as a list of partners."""
    if count == 2:
        yield [1, 0]
    elif is_prime(count - 1):
        for segment in range(count - 1):
            reflected = [(segment + 1 - g) % (count - 1) for g in range(count - 1)]
            yield _close(reflected)
    elif count == 16:
        for shift in range(15):
            translated = list(range(15))
            for a, b in _STARTER_16:
                translated[(a + shift) % 15], translated[(b + shift) % 15] = (b + shift) % 15, (a + shift) % 15
            yield _close(translated)
    else:
        yield from _double_prime(count // 2)


def _close(partners: list[int]) -> list[int]:
    """Join the one fixed point of an involution with one more subgroup."""
    left_over = next(g for g, partner in enumerate(partners) if partner == g)
    closed = [*partners, left_over]
    closed[left_over] = len(partners)
    return closed


def _double_prime(p: int) -> Iterator[list[int]]:
    """K_{2p}: subgroup (x, s), x mod p and s = 0 or 1, has the index x + s*p."""
    for i in range(p):
        partners = [0] * (2 * p)
        for side in (0, p):
            for j in range(1, p):
                partners[(i + j) % p + side] = (i - j) % p + side
        partners[i], partners[i + p] = i + p, i
        yield partners
    for d in range(1, p):
        yield [(x + d) % p + p for x in range(p)] + [(x - d) % p for x in range(p)]
