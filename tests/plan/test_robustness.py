"""Robustness of designs against brute force, and the bounds that stand in for it."""

import random
from fractions import Fraction
from itertools import combinations

import pytest
from cases import each

from heterosag.plan import robustness
from heterosag.plan.design import Design, make, paper, perfect


def brute_force(design: Design, lost: frozenset[int] = frozenset()) -> Fraction:
    """Robustness by looking at every proper set of surviving subgroups."""
    alive = [g for g in range(design.subgroups) if g not in lost]
    segments = design.surviving(lost)
    sets_of = [{sum(1 << g for g in block) for block in segment} for segment in segments]
    most = 0
    everyone = sum(1 << g for g in alive)
    for chosen in range(1, 1 << len(alive)):
        mask = sum(1 << g for index, g in enumerate(alive) if chosen >> index & 1)
        if mask == everyone:
            continue
        most = max(most, sum(all(block & mask in (0, block) for block in blocks) for blocks in sets_of))
    return 1 - Fraction(most, len(segments))


@each("subgroups", range(1, 14))
@each("name", ["perfect", "paper-composite", "secagg", "multigroup"])
def test_robustness_equals_brute_force(name: str, subgroups: int) -> None:
    design = make(name, subgroups)
    assert design.robustness().exact
    assert design.robustness().value == brute_force(design)


@each("name", ["perfect", "paper-composite", "secagg", "multigroup"])
@pytest.mark.parametrize("subgroups", [*range(3, 9), *(pytest.param(many, marks=pytest.mark.slow) for many in (9, 10))])
def test_robustness_after_every_loss_equals_brute_force(name: str, subgroups: int) -> None:
    design = make(name, subgroups)
    for count in (1, 2, 3):
        for lost in combinations(range(subgroups), count):
            found = design.robustness(lost)
            assert found.exact
            assert found.value == brute_force(design, frozenset(lost)), lost


@each("subgroups", [12, 13])
def test_robustness_after_some_losses_equals_brute_force(subgroups: int) -> None:
    for design in (perfect(subgroups), paper(subgroups)):
        for lost in ((0,), (1, 5), (0, 3, 7), (2, 3, 4, 11)):
            assert design.robustness(lost).value == brute_force(design, frozenset(lost))


@each("name", ["perfect", "paper-composite", "secagg", "multigroup"])
def test_the_quick_upper_bound_is_one(name: str) -> None:
    for subgroups in (2, 5, 6, 8, 9):
        design = make(name, subgroups)
        for count in (0, 1, 2, subgroups - 1):
            for lost in combinations(range(subgroups), count):
                assert design.robustness_at_most(lost) >= design.robustness(lost).value


def test_lower_bound_is_labelled_and_below_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = perfect(20).robustness((0, 1, 2))
    monkeypatch.setattr(robustness, "WORK", 100)
    bound = perfect(20).robustness((0, 1, 2))
    assert exact.exact
    assert not bound.exact
    assert 0 < bound.value <= exact.value
    assert str(bound).startswith("at least")


@pytest.mark.parametrize(
    "subgroups", [pytest.param(36, marks=pytest.mark.long), 48, pytest.param(64, marks=pytest.mark.long)]
)
def test_small_tables_exhaust_the_budget_too(subgroups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that names 40% of the subgroups as lost made a client search for up to a minute.

    What took so long were calls on small arrays, so calls are counted: the budget allows for as many as take seconds.
    """
    calls = 0
    join, cut = robustness._CutSearch._join, robustness._CutSearch._best_cut

    def count_join(self: robustness._CutSearch, labels: robustness._Labels, segment: int) -> robustness._Labels:
        nonlocal calls
        calls += 1
        return join(self, labels, segment)

    def count_cuts(self: robustness._CutSearch, labels: robustness._Labels, components: robustness._Labels) -> int:
        nonlocal calls
        calls += 1 << (len(components) - 1)
        return cut(self, labels, components)

    monkeypatch.setattr(robustness._CutSearch, "_join", count_join)
    monkeypatch.setattr(robustness._CutSearch, "_best_cut", count_cuts)
    lost = random.Random(0).sample(range(subgroups), subgroups * 2 // 5)
    found = paper(subgroups).robustness(lost)
    assert 0 < calls < 45_000
    assert not found.exact
    assert found.value <= paper(subgroups).robustness_at_most(lost)


@each("name", ["perfect", "paper-composite", "secagg", "multigroup"])
def test_the_quick_lower_bound_is_one(name: str) -> None:
    for subgroups in (1, 2, 5, 6, 8, 9):
        design = make(name, subgroups)
        for count in (0, 1, 2, subgroups - 1):
            for lost in combinations(range(subgroups), count):
                assert design.robustness_at_least(lost) <= design.robustness(lost).value


def test_many_components_are_joined_further() -> None:
    """Sixty subgroups: pairings whose differences share a large factor leave many components to join."""
    assert paper(60).robustness().value == Fraction(1, 2)
    assert paper(63).robustness().value == Fraction(2, 3)
