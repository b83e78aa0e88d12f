"""What independent dropouts do to a plan: the probability of a leak and of a round that fails.

Every user is gone with the same probability p, independently: the model of the paper's Theorem 3. The theorem gives
the probability n(1-p)p^(n-1) that one given subgroup of n users is left with a single survivor; what a user of the
software needs to know is the probability for any subgroup, whether a block of this design is exposed by it, and how
often the least survivors of a subgroup, which prevent the leak, end a round instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from heterosag.errors import UsageError
from heterosag.plan.design import Design

__all__ = ["LeakProbability", "failure_probability", "leak_probability", "least_subgroup_size"]

_Masses = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeakProbability:
    """Probabilities that dropouts leave a single survivor, so that a sum is somebody's own vector.

    - `one`: in one given subgroup, the smallest (Theorem 3).
    - `any`: in any subgroup.
    - `block`: in a block of this design, so that the server would see that user's segment if nobody objected.
    - `with_min_survivors`: after the rule of least survivors, which never lets such a block be unmasked.
    """

    one: float
    any: float
    block: float
    with_min_survivors: float = 0.0


def leak_probability(design: Design, sizes: Sequence[int], dropout: float) -> LeakProbability:
    """The leak of Theorem 3 for subgroups of the given sizes.

    Args:
        design: Which subgroups code together.
        sizes: The users of each subgroup.
        dropout: The fraction of users who drop out, independently of one another.

    Returns:
        The probabilities for one subgroup, for any, and for a block.

    Example:
        >>> from heterosag.plan.design import perfect
        >>> from heterosag.plan.dropout import leak_probability
        >>> f"{leak_probability(perfect(4), [5, 5, 5, 5], 0.2).one:.4f}"
        '0.0064'
    """
    masses = [_binomial(size, dropout) for size in sizes]
    # The probability of having seen neither a lone survivor nor an empty subgroup, the one, the other, and both.
    neither, lone, empty, both = 1.0, 0.0, 0.0, 0.0
    anywhere = 0.0
    for mass in masses:
        none, one, more = float(mass[0]), float(mass[1]), _sum(mass[2:])
        both = both + lone * none + empty * one
        lone, empty = lone * (one + more) + neither * one, empty * (none + more) + neither * none
        neither *= more
        anywhere = anywhere * (none + more) + one
    if _is_whole(design):
        block = float(_binomial(sum(sizes), dropout)[1])
    elif design.has_star:
        block = anywhere
    else:  # every two subgroups meet: one survivor here and none there
        block = both
    return LeakProbability(one=max(float(mass[1]) for mass in masses), any=anywhere, block=block)


def failure_probability(
    design: Design,
    sizes: Sequence[int],
    dropout: float,
    *,
    min_survivors: int,
    min_block_survivors: int,
    needed: int,
    losses: int,
) -> float:
    """The probability that no admissible set of survivors is left and the round ends with an error.

    The server may drop whole subgroups to make the rest admissible, and this counts that. Where a block needs more
    survivors than its subgroups do, the lesser of two upper bounds is taken: every subgroup needs as many, or no
    subgroup may be dropped and the probabilities of every subgroup and block add up.

    Args:
        design: Which subgroups code together.
        sizes: The users of each subgroup.
        dropout: The fraction of users who drop out, independently of one another.
        min_survivors: The least survivors of a subgroup.
        min_block_survivors: The least survivors of a block.
        needed: How many survivors reach the thresholds.
        losses: How many whole subgroups may be lost before the robustness falls below what the plan asks for (see
            `Design.tolerated_losses`: from two on an underestimate, so that this is then an upper bound).

    Returns:
        The probability.
    """
    if losses < 0:
        return 1.0
    masses = [_binomial(size, dropout) for size in sizes]
    if _is_whole(design):
        failing = _sum(_binomial(sum(sizes), dropout)[: max(min_block_survivors, needed)])
    else:
        least = max(min_survivors, min_block_survivors)
        failing = _alone_failure(masses, min_survivors=least, needed=needed, losses=losses)
        if min_block_survivors > min_survivors:
            failing = min(
                failing, _together_failure(design, sizes, dropout, min_survivors, min_block_survivors, needed)
            )
    return min(1.0, failing)


def _is_whole(design: Design) -> bool:
    return all(len(segment) == 1 for segment in design.segments)


def _alone_failure(masses: list[_Masses], *, min_survivors: int, needed: int, losses: int) -> float:
    """Every subgroup needs its least survivors: those with fewer are dropped, if they are few enough.

    It fails when more than `losses` have too few, or when those that have not have too few survivors together.
    """
    rows = min(losses, len(masses)) + 1
    table = [np.ones(1)] + [np.zeros(1)] * (rows - 1)  # row l: survivors, when l subgroups were dropped
    failing = 0.0
    for mass in masses:
        low, high = _sum(mass[:min_survivors]), _at_least(mass, min_survivors)
        failing += _sum(table[-1]) * low
        table = [
            _add(_convolve(row, high), table[dropped - 1] * low) if dropped else _convolve(row, high)
            for dropped, row in enumerate(table)
        ]
    return failing + sum(_sum(row[:needed]) for row in table)


def _together_failure(
    design: Design, sizes: Sequence[int], dropout: float, min_survivors: int, min_block_survivors: int, needed: int
) -> float:
    """Some subgroup, some block or everybody together has too few survivors: the union bound."""
    blocks = {block for segment in design.segments for block in segment}
    asked = [(sum(sizes), needed), *((size, min_survivors) for size in sizes)]
    asked += [(sum(sizes[subgroup] for subgroup in block), min_block_survivors) for block in sorted(blocks)]
    found = {one: _sum(_binomial(one[0], dropout)[: one[1]]) for one in set(asked)}
    return math.fsum(found[one] for one in asked)


# All of this is sums of products of positive numbers, in an order of our own: accurate to the last few digits however
# small a probability is, and the same on every machine. (np.convolve and np.sum are neither: they leave the order to
# the processor's own kernels.)


def _convolve(a: _Masses, b: _Masses) -> _Masses:
    longer, shorter = (a, b) if a.size >= b.size else (b, a)
    out = np.zeros(a.size + b.size - 1)
    for shift, factor in enumerate(shorter.tolist()):
        if factor:
            out[shift : shift + longer.size] += longer * factor
    return out


def _sum(mass: _Masses) -> float:
    return math.fsum(mass.tolist())


def _add(a: _Masses, b: _Masses) -> _Masses:
    longer, shorter = (a, b) if a.size >= b.size else (b, a)
    out = longer.copy()
    out[: shorter.size] += shorter
    return out


def _at_least(mass: _Masses, least: int) -> _Masses:
    kept = mass.copy()
    kept[:least] = 0.0
    return kept


def _binomial(users: int, dropout: float) -> _Masses:
    """How likely it is that so many of the users survive: entry k for k of them.

    Each entry follows from its neighbour, from the likeliest one outward, and all are divided by their sum: as accurate
    in the tails as in the middle.
    """
    if dropout == 0.0:
        return np.array([0.0] * users + [1.0])
    odds = (1 - dropout) / dropout
    likeliest = min(users, int((users + 1) * (1 - dropout)))
    mass = [0.0] * (users + 1)
    mass[likeliest] = 1.0
    for alive in range(likeliest, users):
        mass[alive + 1] = mass[alive] * ((users - alive) / (alive + 1) * odds)
    for alive in range(likeliest, 0, -1):
        mass[alive - 1] = mass[alive] * (alive / (users - alive + 1) / odds)
    total = math.fsum(mass)
    return np.array([part / total for part in mass])


def least_subgroup_size(users: int, *, corrupt: float, dropout: float, honest: int = 3, bits: int = 40) -> int:
    """The smallest subgroups with which every block of `perfect` keeps so many honest survivors, but for 2^-bits.

    Blocks are pairs of subgroups of n users, every pair of the users/n subgroups once; a user is honest and survives
    with probability 1 - corrupt - dropout (at worst nobody is both corrupt and gone), independently. A union bound over
    the pairs.

    Args:
        users: How many there are.
        corrupt: The fraction of them who are corrupt.
        dropout: The fraction who drop out.
        honest: Honest survivors that every block must keep.
        bits: It fails with a probability of at most 2^-bits.

    Returns:
        The users of a subgroup.

    Raises:
        UsageError: No size is enough, or the fractions make no sense.
    """
    if not (corrupt >= 0 and dropout >= 0 and corrupt + dropout < 1 and honest >= 1 and bits >= 1 and users >= 2):
        raise UsageError(f"no subgroups for {users} users, {corrupt:g} of them corrupt and {dropout:g} gone")
    sound = 1 - corrupt - dropout
    for size in range(1, users // 2 + 1):
        subgroups = users // size
        few = math.fsum(
            math.comb(2 * size, count) * sound**count * (1 - sound) ** (2 * size - count)
            for count in range(min(honest, 2 * size + 1))
        )
        if few * subgroups * (subgroups - 1) / 2 <= 2.0**-bits:
            return size
    raise UsageError(
        f"no subgroup size keeps {honest} honest survivors in every block of {users} users: expect fewer corrupt or "
        "dropped ones, or use the design secagg"
    )
