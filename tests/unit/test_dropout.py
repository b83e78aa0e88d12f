"""Leak and failure probabilities against exact enumeration and the numbers of claims.md."""

from itertools import combinations, product
from math import comb, prod

import pytest

from heterosag.design import Design, make
from heterosag.dropout import failure_probability, leak_probability, least_subgroup_size
from heterosag.errors import UsageError
from heterosag.graph import majority
from heterosag.plan import Plan


def counts_with_chances(sizes: list[int], dropout: float) -> list[tuple[tuple[int, ...], float]]:
    """Every way that survivors may be spread over the subgroups, with its probability."""
    ways = [
        [(alive, comb(size, alive) * (1 - dropout) ** alive * dropout ** (size - alive)) for alive in range(size + 1)]
        for size in sizes
    ]
    return [(tuple(a for a, _ in case), prod(p for _, p in case)) for case in product(*ways)]


def is_legal(
    design: Design, counts: tuple[int, ...], floor: int, needed: int, minimum: float, per_subgroup: bool
) -> bool:
    """The spec's rule for a survivor set, straight from the blocks."""
    lost = [g for g, alive in enumerate(counts) if not alive]
    if sum(counts) < max(needed, 1) or float(design.robustness(lost)) < minimum:
        return False
    sums = [sum(counts[g] for g in block) for segment in design.segments for block in segment]
    if per_subgroup and len(design.segments[0]) > 1:
        sums += counts
    return all(total == 0 or total >= floor for total in sums)


def enumerate_failure(
    design: Design, sizes: list[int], dropout: float, floor: int, needed: int, minimum: float, per_subgroup: bool
) -> float:
    """The share of cases in which no choice of whole subgroups to drop leaves a legal set."""
    failing = 0.0
    for counts, chance in counts_with_chances(sizes, dropout):
        choices = (
            tuple(0 if g in dropped else alive for g, alive in enumerate(counts))
            for many in range(len(sizes))
            for dropped in combinations(range(len(sizes)), many)
        )
        if not any(is_legal(design, left, floor, needed, minimum, per_subgroup) for left in choices):
            failing += chance
    return failing


@pytest.mark.parametrize("name", ["perfect", "paper-composite", "secagg", "multigroup"])
@pytest.mark.parametrize(
    ("sizes", "floor"),
    [([3, 3, 3, 3], 3), ([4, 3, 3, 2], 3), ([3, 3, 4], 2), ([2, 2, 2, 2, 2], 2), ([3, 2], 2), ([4, 4, 4, 3], 4)],
)
@pytest.mark.parametrize("extra", [0, 2])
def test_failure_equals_enumeration(name: str, sizes: list[int], floor: int, extra: int) -> None:
    """With thresholds of a majority or more, as every plan has them."""
    needed = majority(sum(sizes)) + extra
    design = make(name, len(sizes))
    minimum = float(design.robustness())
    for dropout in (0.0, 0.1, 0.4):
        for per_subgroup in (False, True):
            found = failure_probability(
                design,
                sizes,
                dropout,
                floor=floor,
                needed=needed,
                losses=design.tolerated_losses(minimum),
                floor_per_subgroup=per_subgroup,
            )
            expected = enumerate_failure(design, sizes, dropout, floor, needed, minimum, per_subgroup)
            assert found == pytest.approx(expected, abs=1e-12), (dropout, per_subgroup)


@pytest.mark.parametrize("losses", [1, 2, 3])
def test_failure_with_more_losses_allowed_equals_enumeration(losses: int) -> None:
    """A lower min_robustness lets the server drop several subgroups of an even design."""
    design = make("perfect", 6)
    sizes = [2, 2, 3, 2, 2, 3]
    minimum = 1 - (losses + 0.5) / len(design.segments)  # e lost subgroups leave 1 - e/5 here
    for lost in combinations(range(6), losses):
        assert float(design.robustness(lost)) >= minimum
    found = failure_probability(design, sizes, 0.3, floor=3, needed=8, losses=losses, floor_per_subgroup=False)
    assert found == pytest.approx(enumerate_failure(design, sizes, 0.3, 3, 8, minimum, False), abs=1e-12)


@pytest.mark.parametrize("name", ["perfect", "paper-composite", "secagg", "multigroup"])
@pytest.mark.parametrize("sizes", [[3, 3, 3, 3], [4, 3, 2], [2, 3, 2, 2, 2]])
def test_leak_equals_enumeration(name: str, sizes: list[int]) -> None:
    design = make(name, len(sizes))
    for dropout in (0.0, 0.1, 0.5):
        leak = leak_probability(design, sizes, dropout)
        cases = counts_with_chances(sizes, dropout)
        blocks = [block for segment in design.segments for block in segment]
        exposed = sum(p for counts, p in cases if any(sum(counts[g] for g in block) == 1 for block in blocks))
        assert leak.block == pytest.approx(exposed, abs=1e-12)
        assert leak.any == pytest.approx(sum(p for counts, p in cases if 1 in counts), abs=1e-12)
        smallest = min(range(len(sizes)), key=lambda g: sizes[g])
        assert leak.one >= sum(p for counts, p in cases if counts[smallest] == 1) - 1e-12
        assert leak.with_floor == 0.0


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
    ("size", "dropout", "most"), [(4, 0.05, 9e-5), (4, 0.10, 0.002), (4, 0.20, 0.055), (8, 0.05, 3e-5), (8, 0.2, 3e-5)]
)
def test_abort_rates_stay_within_those_of_the_specification(size: int, dropout: float, most: float) -> None:
    plan = Plan.build([12 * size], [2], 1000, subgroup_size=size, dropout=dropout)
    assert len(plan.subgroups) == 12
    assert 0 < plan.failure_probability() <= most


@pytest.mark.parametrize(("corrupt", "size"), [(0.0, 10), (0.05, 12), (0.10, 14), (0.20, 18), (0.33, 25)])
def test_subgroups_that_keep_three_honest_survivors_in_every_block(corrupt: float, size: int) -> None:
    assert least_subgroup_size(1000, corrupt=corrupt, dropout=0.1) == size


def test_wishes_that_no_subgroup_size_meets_are_named() -> None:
    with pytest.raises(UsageError, match="no subgroup size"):
        least_subgroup_size(20, corrupt=0.4, dropout=0.4)
    for wrong in ({"corrupt": 1.0, "dropout": 0.0}, {"corrupt": 0.0, "dropout": -0.1}):
        with pytest.raises(UsageError, match="no subgroups for"):
            least_subgroup_size(100, **wrong)
