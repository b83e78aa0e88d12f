"""What independent dropouts do to a plan: the probability of a leak and of a round that fails.

Every user is gone with the same probability p, independently: the model of the paper's Theorem 3. The theorem gives
the probability n(1-p)p^(n-1) that one given subgroup of n users is left with a single survivor; what a user of the
software needs to know is the probability for any subgroup, whether a block of this design is exposed by it, and how
often the floor rule, which prevents the leak, ends a round instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from heterosag.design import Design
from heterosag.errors import UsageError

__all__ = ["LeakProbability", "failure_probability", "leak_probability", "least_subgroup_size"]

_Masses = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeakProbability:
    """Probabilities that dropouts leave a single survivor, so that a sum is somebody's own vector.

    - `one`: in one given subgroup, the smallest (Theorem 3).
    - `any`: in any subgroup.
    - `block`: in a block of this design, so that the server would see that user's segment if nobody objected.
    - `with_floor`: after the floor rule, which never lets such a block be unmasked.
    """

    one: float
    any: float
    block: float
    with_floor: float = 0.0


def leak_probability(design: Design, sizes: Sequence[int], dropout: float) -> LeakProbability:
    """The leak of Theorem 3 for subgroups of the given sizes."""
    empty = [dropout**size for size in sizes]
    single = [size * (1 - dropout) * dropout ** (size - 1) for size in sizes]
    anywhere = -math.expm1(math.fsum(math.log1p(-chance) for chance in single if chance < 1))
    if any(chance >= 1 for chance in single):
        anywhere = 1.0
    if _is_whole(design):
        everyone = sum(sizes)
        block = everyone * (1 - dropout) * dropout ** (everyone - 1)
    elif design.has_star:
        block = anywhere
    else:  # every two subgroups meet: one survivor here and none there
        no_empty = math.prod(1 - chance for chance in empty)
        neither = math.prod(1 - alone - none for alone, none in zip(single, empty, strict=True))
        block = max(0.0, anywhere - no_empty + neither)
    return LeakProbability(one=max(single), any=anywhere, block=block)


def failure_probability(
    design: Design,
    sizes: Sequence[int],
    dropout: float,
    *,
    floor: int,
    needed: int,
    losses: int,
    floor_per_subgroup: bool,
) -> float:
    """The probability that no legal set of survivors is left and the round ends with an error.

    `needed` survivors reach the thresholds; `losses` whole subgroups may be lost before the robustness falls below
    what the plan asks for (see `Design.tolerated_losses`: from two on an underestimate, so that this is then an upper
    bound). The server may drop whole subgroups to make the rest legal, and this counts that.
    """
    masses = [_binomial(size, 1 - dropout) for size in sizes]
    if _is_whole(design):
        good = _tail(_binomial(sum(sizes), 1 - dropout), max(floor, needed))
    elif design.has_star or floor_per_subgroup:
        good = _tail(_totals(masses, low=range(floor), most_low=losses), needed)
    else:
        good = _paired_success(masses, floor=floor, needed=needed, losses=losses)
    return min(1.0, max(0.0, 1.0 - good))


def _is_whole(design: Design) -> bool:
    return all(len(segment) == 1 for segment in design.segments)


def _paired_success(masses: list[_Masses], *, floor: int, needed: int, losses: int) -> float:
    """Every two subgroups meet and none is alone: either all pairs reach the floor, or all below it are dropped.

    All pairs reach the floor k when every subgroup has at least h = ceil(k/2) survivors, or when one has m < h and
    every other at least k - m. Once a whole subgroup is gone the others meet nobody in one segment each, so that
    dropping one means dropping all below k.
    """
    half = -(-floor // 2)
    good = 0.0
    for dropped in range(2) if losses >= 2 else range(1):
        # First what is legal as it is; then what dropping makes legal, less the part counted already.
        low = range(0) if not dropped else range(half, floor)
        legal = _tail(_totals([_at_least(mass, half) for mass in masses], low, losses, least_low=2 * dropped), needed)
        for one in {mass.size: index for index, mass in enumerate(masses)}.values():
            same = sum(1 for mass in masses if mass.size == masses[one].size)
            for m in range(0 if losses >= 1 else 1, half):
                others = [_at_least(mass, floor - m) for index, mass in enumerate(masses) if index != one]
                low = range(0) if not dropped else range(floor - m, floor)
                chance = same * float(masses[one][m]) if m < masses[one].size else 0.0
                counted = _totals(others, low, losses - dropped, least_low=dropped)
                legal += chance * _tail(counted, needed - (0 if dropped else m))
        good += -legal if dropped else legal
    if losses >= 2:
        good += _tail(_totals(masses, range(floor), losses, least_low=2), needed)
    return good


def _totals(masses: list[_Masses], low: range, most_low: int, *, least_low: int = 0) -> _Masses:
    """The distribution of all survivors in subgroups whose own count is not in `low`.

    Only cases with `least_low` to `most_low` subgroups in `low` are counted; those subgroups add nothing.
    """
    rows = min(max(most_low, 0), len(masses)) + 1 if low else 1
    table = [np.ones(1)] + [np.zeros(1)] * (rows - 1)
    for mass in masses:
        kept = mass.copy()
        kept[low.start : low.stop] = 0.0
        gone = float(mass[low.start : low.stop].sum())
        table = [
            _add(np.convolve(table[row], kept), table[row - 1] * gone if row else np.zeros(1)) for row in range(rows)
        ]
    total = np.zeros(1)
    for row in table[least_low:]:
        total = _add(total, row)
    return total if most_low >= 0 or not low else np.zeros(1)


def _add(a: _Masses, b: _Masses) -> _Masses:
    longer, shorter = (a, b) if a.size >= b.size else (b, a)
    out = longer.copy()
    out[: shorter.size] += shorter
    return out


def _at_least(mass: _Masses, least: int) -> _Masses:
    kept = mass.copy()
    kept[:least] = 0.0
    return kept


def _tail(mass: _Masses, least: int) -> float:
    return float(mass[max(0, least) :].sum())


def _binomial(trials: int, chance: float) -> _Masses:
    if chance in (0.0, 1.0):
        out = np.zeros(trials + 1)
        out[trials if chance else 0] = 1.0
        return out
    logs = [
        math.lgamma(trials + 1)
        - math.lgamma(hits + 1)
        - math.lgamma(trials - hits + 1)
        + hits * math.log(chance)
        + (trials - hits) * math.log1p(-chance)
        for hits in range(trials + 1)
    ]
    return np.array([math.exp(log) for log in logs])


def least_subgroup_size(users: int, *, corrupt: float, dropout: float, honest: int = 3, bits: int = 40) -> int:
    """The smallest subgroups with which every block of `perfect` keeps so many honest survivors, but for 2^-bits.

    Blocks are pairs of subgroups of n users, every pair of the users/n subgroups once; a user is honest and survives
    with probability 1 - corrupt - dropout (at worst nobody is both corrupt and gone), independently. A union bound over
    the pairs.
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
