"""Designs: the paper's matrices, its properties, and robustness against brute force."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import pytest
from cases import each

from heterosag.errors import UsageError
from heterosag.plan.design import (
    Design,
    has_perfect,
    is_prime,
    make,
    multigroup,
    paper,
    perfect,
    secagg,
    tolerated_subgroups,
)
from heterosag.plan.robustness import Segment


def algorithm_1(groups: int) -> list[list[int | None]]:
    """The paper's Algorithm 1, line by line."""
    rows: list[list[int | None]] = [[None] * groups for _ in range(groups)]
    for g in range(groups - 1):
        for r in range(groups - g - 1):
            row = (2 * g + r) % groups
            rows[row][g] = rows[row][g + r + 1] = g
    return rows


def test_matrix_of_five_groups_is_the_papers() -> None:
    assert paper(5).matrix_text() == ("0 1 2 3 4\n0 0 2 * 2  0\n0 * 0 3 3  1\n0 1 1 0 *  2\n0 1 * 1 0  3\n* 1 2 2 1  4")


def test_matrix_of_six_groups_is_the_papers() -> None:
    assert paper(6).matrix_text() == (
        "0 1 2 3 4 5\n0 0 2 3 3 2  0\n0 * 0 3 * 3  1\n0 1 1 0 4 4  2\n0 1 * 1 0 *  3\n0 1 2 2 1 0  4\n* 1 2 * 2 1  5"
    )


def test_matrix_of_unequal_classes_is_the_papers() -> None:
    """L = (1, 2, 2): Algorithm 1 on flattened indices prints the matrix of Appendix F."""
    labels = ["(0,0)", "(1,0)", "(1,1)", "(2,0)", "(2,1)"]
    rows = [line.split() for line in paper(5).matrix_text(labels).splitlines()]
    assert rows[0] == labels
    assert [row[:-1] for row in rows[1:]] == [
        ["(0,0)", "(0,0)", "(1,1)", "*", "(1,1)"],
        ["(0,0)", "*", "(0,0)", "(2,0)", "(2,0)"],
        ["(0,0)", "(1,0)", "(1,0)", "(0,0)", "*"],
        ["(0,0)", "(1,0)", "*", "(1,0)", "(0,0)"],
        ["*", "(1,0)", "(1,1)", "(1,1)", "(1,0)"],
    ]


@each("groups", range(2, 30))
def test_closed_form_is_algorithm_1(groups: int) -> None:
    assert paper(groups).matrix() == algorithm_1(groups)


@each("groups", range(2, 30))
def test_property_1_each_column_has_one_star(groups: int) -> None:
    matrix = paper(groups).matrix()
    assert all(sum(row[g] is None for row in matrix) == 1 for g in range(groups))


@each("groups", range(2, 30))
def test_property_2_two_columns_meet_once(groups: int) -> None:
    matrix = paper(groups).matrix()
    for g, h in combinations(range(groups), 2):
        assert sum(row[g] is not None and row[g] == row[h] for row in matrix) == 1


@each("groups", range(2, 30))
def test_property_3_where_the_stars_are(groups: int) -> None:
    for index, row in enumerate(paper(groups).matrix()):
        stars = [g for g in range(groups) if row[g] is None]
        if groups % 2:
            assert len(stars) == 1
        elif index % 2 == 0:
            assert not stars
        else:
            assert stars[1] - stars[0] == groups // 2
            assert len(stars) == 2


def test_property_4_is_false() -> None:
    """Claims: for five groups each of the ten triples decodes one row, where the paper's Case 4 says none."""
    assert all(len(paper(5).decodable(triple)) == 1 for triple in combinations(range(5), 3))


def test_six_groups_expose_every_second_one() -> None:
    assert paper(6).decodable({0, 2, 4}) == (1, 3, 5)


@each("groups", range(3, 60))
def test_true_robustness_of_the_paper_is_one_minus_one_over_the_least_prime_factor(groups: int) -> None:
    factor = next(d for d in range(2, groups + 1) if groups % d == 0)
    assert paper(groups).robustness().value == 1 - Fraction(1, factor)


def test_theorem_1_fails_where_claims_say_so() -> None:
    def claimed(groups: int) -> Fraction:
        return Fraction(groups - 1 - (groups % 2 == 0), groups)

    holds = [groups for groups in range(2, 40) if paper(groups).robustness().value == claimed(groups)]
    assert holds == [3, 4, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37]
    assert paper(2).robustness().value == Fraction(1, 2)
    assert paper(75).robustness().value == Fraction(2, 3)


@pytest.mark.parametrize("least", [1, pytest.param(81, marks=pytest.mark.slow)])
@each("more", range(80))
def test_perfect_has_the_robustness_it_promises(least: int, more: int) -> None:
    subgroups = least + more
    if subgroups > 131 or not has_perfect(subgroups):
        return
    design = perfect(subgroups)
    if subgroups <= 2:
        assert design.robustness().value == 1
        assert len(design.segments) == 1
    elif subgroups % 2:
        assert design.robustness().value == Fraction(subgroups - 1, subgroups)
        assert all(sum(len(block) == 1 for block in segment) == 1 for segment in design.segments)
        assert len(design.segments) == subgroups
    else:
        assert design.robustness().value == Fraction(subgroups - 2, subgroups - 1)
        assert not design.has_star
        assert len(design.segments) == subgroups - 1


@each("subgroups", [4, 8, 10, 12, 16, 30])
def test_losing_one_subgroup_costs_an_even_perfect_design_nothing(subgroups: int) -> None:
    design = perfect(subgroups)
    assert all(design.robustness({g}).value == design.robustness().value for g in range(subgroups))
    assert design.tolerated_losses(float(design.robustness())) == 1


@each("subgroups", [5, 7, 11, 13])
def test_prime_designs_lose_one_segment_a_lost_subgroup(subgroups: int) -> None:
    for losses in (1, 2, 3):
        lost = range(losses)
        assert perfect(subgroups).robustness(lost).value == 1 - Fraction(1 + losses, subgroups)


def test_where_perfect_has_no_construction() -> None:
    assert [z for z in range(1, 60) if not has_perfect(z)] == [27, 28, 35, 36, 39, 40, 49, 50, 51, 52, 55, 56]
    with pytest.raises(UsageError, match="28"):
        perfect(28)


def test_leaving_the_extra_subgroup_out_gives_the_papers_algorithm() -> None:
    for prime in (3, 5, 7, 11, 13):
        assert perfect(prime).segments == paper(prime).segments


@each("groups", range(2, 41))
def test_byzantine_bound_holds_and_is_tight(groups: int) -> None:
    """Claims: B <= ceil(G/4) - 1, zero for G <= 4; tight: one more can spoil half of some segment's blocks."""
    bound = -(-groups // 4) - 1
    design = paper(groups)
    assert design.byzantine_tolerance() == tolerated_subgroups(groups) == bound
    worst = min(design.segments, key=len)
    assert 2 * (bound + 1) >= len(worst)
    assert all(2 * bound < len(segment) for segment in design.segments)
    if has_perfect(groups):
        assert perfect(groups).byzantine_tolerance() == bound


def test_byzantine_tolerance_of_the_baselines_and_after_losses() -> None:
    assert secagg(12).byzantine_tolerance() == 0
    assert multigroup(12).byzantine_tolerance() == 5
    assert perfect(12).byzantine_tolerance() == 2
    assert perfect(12).byzantine_tolerance(lost=range(9)) == 0


@each("minimum", [0.0, 0.3, 0.5, 0.8])
def test_tolerated_losses_never_promise_too_much(minimum: float) -> None:
    for design in (perfect(8), perfect(9), paper(6), multigroup(5), secagg(4)):
        tolerated = design.tolerated_losses(minimum)
        if tolerated < 0:
            assert float(design.robustness()) < minimum
        for lost in combinations(range(design.subgroups), max(0, min(tolerated, design.subgroups - 1))):
            assert float(design.robustness(lost)) >= minimum or tolerated < 0


def test_a_design_refuses_what_is_not_a_partition() -> None:
    with pytest.raises(UsageError, match="every subgroup exactly once"):
        Design(name="odd", subgroups=3, segments=(((0, 1),),))
    with pytest.raises(UsageError, match=r"among 0\.\.3"):
        perfect(4).robustness({9})
    with pytest.raises(UsageError, match="no design is called"):
        make("other", 4)


def test_is_prime() -> None:
    assert [n for n in range(-2, 30) if is_prime(n)] == [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]


def test_bounds_for_all_numbers_of_losses_come_from_one_look_at_the_segments() -> None:
    """A plan of 4,000 users took two minutes: its segments were looked through once for every number of losses."""
    looked = 0

    class Counting(tuple[Segment, ...]):
        def __iter__(self) -> Iterator[Segment]:
            nonlocal looked
            looked += 1
            return super().__iter__()

    design = perfect(60)
    counted = replace(design, segments=Counting(design.segments))
    looked = 0
    assert counted.tolerated_losses(0.5) == design.tolerated_losses(0.5)
    assert looked < 20
