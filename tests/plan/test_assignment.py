"""Users are assigned to subgroups evenly, in an order that a seed decides."""

import math

import pytest

from heterosag.errors import PlanError
from heterosag.plan import Plan
from heterosag.plan.assignment import surrounded_probability


def test_subgroups_of_a_class_differ_by_one_at_most() -> None:
    plan = Plan.build([11, 17, 5], [2, 4, 8], 1000, value_range=1.0, subgroup_size=5)
    assert [(s.user_class, len(s.members)) for s in plan.subgroups] == [(0, 6), (0, 5), (1, 6), (1, 6), (1, 5), (2, 5)]
    assert sorted(i for s in plan.subgroups for i in s.members) == list(range(33))


def test_a_number_without_perfect_design_is_reached_inside_a_class() -> None:
    plan = Plan.build([140, 140], [2, 4], 10_000, value_range=1.0, subgroup_size=10)
    assert len(plan.subgroups) == 29
    assert "28 subgroups; 29 were reached by splitting" in plan.notes[0]
    merged = Plan.build([130, 140], [2, 4], 10_000, value_range=1.0, subgroup_size=10)
    assert len(merged.subgroups) == 26
    assert "27 subgroups; 26 were reached by merging" in merged.notes[0]


def test_named_users_and_seeded_assignment() -> None:
    names = [f"phone-{i}" for i in range(20)]
    plan = Plan.build([10, 10], [2, 4], 500, value_range=1.0, subgroup_size=5, users=names, assignment_seed=7)
    assert plan.index("phone-3") == 3
    for subgroup in plan.subgroups:
        assert all((member < 10) == (subgroup.user_class == 0) for member in subgroup.members)
    again = Plan.build([10, 10], [2, 4], 500, value_range=1.0, subgroup_size=5, users=names, assignment_seed=7)
    other = Plan.build([10, 10], [2, 4], 500, value_range=1.0, subgroup_size=5, users=names, assignment_seed=8)
    assert plan == again
    assert plan.subgroups != other.subgroups
    listed = Plan.build([10, 10], [2, 4], 500, value_range=1.0, subgroup_size=5, users=names)
    assert any("listed order" in note for note in listed.notes)
    assert not any("listed order" in note for note in plan.notes)
    assert plan.subgroup_of("phone-19") in (2, 3)


def test_what_no_merging_or_splitting_reaches_is_refused_without_trying_everything() -> None:
    """A client builds a server's plan anew: trying every number of subgroups from the start would take it hours."""
    for classes, dimension in (([2] * 10_000, 1), ([1] + [2] * 10_000, 10**6), ([20_000, 1], 10**6)):
        with pytest.raises(PlanError, match="no class can be merged or split"):
            Plan.build(classes, [2] * len(classes), dimension, value_range=1.0, subgroup_size=1, min_survivors=2)


def test_how_likely_colluders_surround_a_user_is_the_hypergeometric_tail() -> None:
    for sizes, colluders, enough in (((4, 3), 3, 1), ((4, 3), 3, 3), ((5, 5, 4), 9, 2), ((6,), 5, 2), ((3, 3), 1, 2)):
        others, drawn = sum(sizes) - 1, max(sizes) - 1
        bad = min(colluders, others)
        ways = [math.comb(bad, some) * math.comb(others - bad, drawn - some) for some in range(drawn + 1)]
        assert surrounded_probability(sizes, colluders, enough) == sum(ways[enough:]) / sum(ways)
    assert surrounded_probability((4, 4), 3, 5) == 0.0


def test_a_class_of_many_takes_few_binomials(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are numbers of thousands of digits, and a charter of a few kB could ask for thousands of them."""
    asked: list[tuple[int, int]] = []
    comb = math.comb
    monkeypatch.setattr(math, "comb", lambda n, k: asked.append((n, k)) or comb(n, k))
    assert 0.0 < surrounded_probability((1000, 1000), 1000, 510) < 0.5
    assert len(asked) == 3
