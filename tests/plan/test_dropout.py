"""Leak and failure probabilities against exact enumeration and what the paper claims of them."""

from collections.abc import Iterable
from fractions import Fraction
from itertools import combinations, product
from math import comb, prod

import pytest

from heterosag.errors import UsageError
from heterosag.plan import Plan
from heterosag.plan.design import Design, make
from heterosag.plan.dropout import failure_probability, leak_probability, least_subgroup_size
from heterosag.plan.sharing import majority

DIGITS = Fraction(1, 10**12)
"""How far from the exact value a probability may be, relative to it: nine digits are promised."""

SIZES = [([3, 3, 3, 3], 3), ([4, 3, 3, 2], 3), ([3, 3, 4], 2), ([2, 2, 2, 2, 2], 2), ([3, 2], 2), ([4, 4, 4, 3], 4)]
RATES = (0.0, 1e-9, 1e-3, 0.1, 0.4, 0.99)

Counts = tuple[int, ...]


def ways(size: int, dropout: float) -> list[int]:
    """Entry k: the exact probability that k of so many users survive, times the denominator of dropout^size."""
    gone, whole = dropout.as_integer_ratio()
    return [comb(size, k) * (whole - gone) ** k * gone ** (size - k) for k in range(size + 1)]


def total(cases: Iterable[Counts], sizes: list[int], dropout: float) -> Fraction:
    """The exact probability of these cases, each so many survivors in every subgroup."""
    masses = [ways(size, dropout) for size in sizes]
    counted = sum(prod(mass[k] for mass, k in zip(masses, counts, strict=True)) for counts in cases)
    return Fraction(counted, dropout.as_integer_ratio()[1] ** sum(sizes))


def all_counts(sizes: list[int]) -> list[Counts]:
    """Every way that survivors may be spread over the subgroups."""
    return list(product(*(range(size + 1) for size in sizes)))


def is_close(found: float, exact: Fraction) -> bool:
    return abs(Fraction(found) - exact) <= DIGITS * exact


def is_admissible(design: Design, counts: Counts, min_survivors: int, needed: int, minimum: float) -> bool:
    """The spec's rule for a survivor set, straight from the blocks."""
    lost = [g for g, alive in enumerate(counts) if not alive]
    if sum(counts) < max(needed, 1) or float(design.robustness(lost)) < minimum:
        return False
    sums = [sum(counts[g] for g in block) for segment in design.segments for block in segment]
    if any(len(segment) > 1 for segment in design.segments):
        sums += counts
    return all(total == 0 or total >= min_survivors for total in sums)


def failing(design: Design, sizes: list[int], min_survivors: int, needed: int, minimum: float) -> list[Counts]:
    """The cases in which no choice of whole subgroups to drop leaves an admissible set."""
    cases = all_counts(sizes)
    admissible = {counts for counts in cases if is_admissible(design, counts, min_survivors, needed, minimum)}
    drops = list(product((0, 1), repeat=len(sizes)))
    return [
        counts
        for counts in cases
        if admissible.isdisjoint(
            tuple(alive * kept for alive, kept in zip(counts, drop, strict=True)) for drop in drops
        )
    ]


@pytest.mark.parametrize("name", ["perfect", "paper-composite", "secagg", "multigroup"])
def test_failure_equals_enumeration_to_twelve_digits(name: str) -> None:
    """With thresholds of a majority or more, as every plan has them."""
    for (sizes, min_survivors), extra in product(SIZES, (0, 2)):
        needed = majority(sum(sizes)) + extra
        design = make(name, len(sizes))
        minimum = float(design.robustness())
        cases = failing(design, sizes, min_survivors, needed, minimum)
        for dropout in RATES:
            found = failure_probability(
                design,
                sizes,
                dropout,
                min_survivors=min_survivors,
                min_block_survivors=min_survivors,
                needed=needed,
                losses=design.tolerated_losses(minimum),
            )
            exact = total(cases, sizes, dropout)
            assert is_close(found, exact), (sizes, min_survivors, extra, dropout, found, float(exact))


@pytest.mark.parametrize("losses", [1, 2, 3])
def test_failure_with_more_losses_allowed_equals_enumeration(losses: int) -> None:
    """A lower min_robustness lets the server drop several subgroups of an even design."""
    design = make("perfect", 6)
    sizes = [2, 2, 3, 2, 2, 3]
    minimum = 1 - (losses + 0.5) / len(design.segments)  # e lost subgroups leave 1 - e/5 here
    for lost in combinations(range(6), losses):
        assert float(design.robustness(lost)) >= minimum
    cases = failing(design, sizes, 2, 8, minimum)
    for dropout in (1e-4, 0.3):
        found = failure_probability(
            design, sizes, dropout, min_survivors=2, min_block_survivors=2, needed=8, losses=losses
        )
        assert is_close(found, total(cases, sizes, dropout)), (dropout, found)


def test_no_losses_tolerated_at_all_is_certain_failure() -> None:
    assert failure_probability(make("perfect", 4), [3] * 4, 0.1, min_survivors=3, min_block_survivors=3, needed=7,
                               losses=-1) == 1.0  # fmt: skip


def test_a_block_that_needs_more_than_its_subgroups_is_an_upper_bound() -> None:
    """Straight from the rule: every block of the survivors has at least so many, by dropping whole subgroups."""
    design, sizes = make("perfect", 4), [3, 3, 3, 3]
    cases = []
    for counts in all_counts(sizes):
        found = False
        for drop in product((0, 1), repeat=4):
            left = [alive * kept for alive, kept in zip(counts, drop, strict=True)]
            sums = [sum(left[g] for g in block) for segment in design.segments for block in segment]
            lost = [g for g, alive in enumerate(left) if not alive]
            sound = all(total == 0 or total >= 3 for total in sums) and all(not one or one >= 2 for one in left)
            found = found or (sound and sum(left) >= 7 and float(design.robustness(lost)) >= float(design.robustness()))
        if not found:
            cases.append(counts)
    exact = total(cases, sizes, 0.1)
    bound = failure_probability(
        design, sizes, 0.1, min_survivors=2, min_block_survivors=3, needed=7,
        losses=design.tolerated_losses(float(design.robustness())),
    )  # fmt: skip
    assert float(exact) <= bound < 1


@pytest.mark.parametrize(("size", "dropout"), [(8, 0.1), (8, 0.01), (16, 0.05)])
def test_failure_of_a_real_plan_is_exact_however_small(size: int, dropout: float) -> None:
    """Twelve subgroups, three survivors in each, or one subgroup lost: in integers, as one minus what succeeds."""
    plan = Plan.build([12 * size], [2], 1000, value_range=1.0, subgroup_size=size, dropout=dropout)
    mass = ways(size, dropout)

    def spread(least: int, subgroups: int) -> list[int]:
        """Survivors in all when every one of the subgroups has at least so many."""
        found = [1]
        for _ in range(subgroups):
            longer = [0] * (len(found) + size)
            for (a, one), (b, two) in product(enumerate(found), enumerate(mass)):
                longer[a + b] += one * two if b >= least else 0
            found = longer
        return found

    needed = max(plan.agree_quorum, plan.share_threshold)
    assert plan.design.tolerated_losses(plan.min_robustness) == 1
    success = sum(spread(3, 12)[needed:]) + 12 * sum(mass[:3]) * sum(spread(3, 11)[needed:])
    exact = 1 - Fraction(success, dropout.as_integer_ratio()[1] ** (12 * size))
    assert is_close(plan.failure_probability(), exact), (plan.failure_probability(), float(exact))


def test_failure_is_tiny_but_known_where_everybody_is_one_block() -> None:
    plan = Plan.build([300], [2], 100, value_range=1.0, design="secagg", dropout=0.05)
    needed = max(plan.agree_quorum, plan.share_threshold if plan.sharing.complete else 0)
    exact = total([(k,) for k in range(needed)], [300], 0.05)
    assert exact < Fraction(1, 10**100)
    assert is_close(plan.failure_probability(), exact)


@pytest.mark.parametrize("name", ["perfect", "paper-composite", "secagg", "multigroup"])
@pytest.mark.parametrize("sizes", [[3, 3, 3, 3], [4, 3, 2], [2, 3, 2, 2, 2], [1, 2, 1, 3]])
def test_leak_equals_enumeration_to_twelve_digits(name: str, sizes: list[int]) -> None:
    design = make(name, len(sizes))
    blocks = [block for segment in design.segments for block in segment]
    cases = all_counts(sizes)
    exposed = [counts for counts in cases if any(sum(counts[g] for g in block) == 1 for block in blocks)]
    lone = [counts for counts in cases if 1 in counts]
    for dropout in RATES:
        leak = leak_probability(design, sizes, dropout)
        assert is_close(leak.block, total(exposed, sizes, dropout)), dropout
        assert is_close(leak.any, total(lone, sizes, dropout)), dropout
        one = max(total([(1,)], [size], dropout) for size in sizes)
        assert is_close(leak.one, one), dropout
        assert leak.with_min_survivors == 0.0


def test_theorem_3_for_one_subgroup_and_for_all() -> None:
    """Claims: 7.2e-7 is right for one subgroup of 8 at 10%; for any of 128 it is 9.2e-5."""
    leak = leak_probability(make("perfect", 128), [8] * 128, 0.1)
    assert leak.one == pytest.approx(7.2e-7, rel=0.01)
    assert leak.any == pytest.approx(9.2e-5, rel=0.01)


def test_the_papers_own_plan_leaks_in_a_quarter_of_the_rounds() -> None:
    """Claims: N=300, G=75, n=4 at 10% dropout leaks in 23.7% of rounds."""
    leak = leak_probability(make("paper-composite", 75), [4] * 75, 0.1)
    assert leak.any == pytest.approx(0.237, abs=0.001)
    assert leak.block == leak.any


@pytest.mark.parametrize(
    ("size", "dropout", "most"), [(6, 0.05, 9e-5), (6, 0.10, 0.015), (8, 0.05, 3e-5), (8, 0.1, 3e-5), (8, 0.2, 2e-4)]
)
def test_abort_rates_stay_within_those_of_the_specification(size: int, dropout: float, most: float) -> None:
    plan = Plan.build([12 * size], [2], 1000, value_range=1.0, subgroup_size=size, dropout=dropout)
    assert len(plan.subgroups) == 12
    assert 0 < plan.failure_probability() <= most


@pytest.mark.parametrize(("corrupt", "size"), [(0.0, 10), (0.05, 12), (0.10, 14), (0.20, 18), (0.33, 25)])
def test_subgroups_that_keep_three_honest_survivors_in_every_block(corrupt: float, size: int) -> None:
    assert least_subgroup_size(1000, corrupt=corrupt, dropout=0.1) == size


def test_requirements_that_no_subgroup_size_meets_are_named() -> None:
    with pytest.raises(UsageError, match="no subgroup size"):
        least_subgroup_size(20, corrupt=0.4, dropout=0.4)
    for wrong in ({"corrupt": 1.0, "dropout": 0.0}, {"corrupt": 0.0, "dropout": -0.1}):
        with pytest.raises(UsageError, match="no subgroups for"):
            least_subgroup_size(100, **wrong)
