"""The plan that a grid makes by itself: it survives, and it says what it cannot do."""

from __future__ import annotations

import ast
import re
from typing import Any

import pytest
from cases import examples
from hypothesis import given
from hypothesis import strategies as st

from heterosag.aggregation.rules import RULES, Rule, find_rule
from heterosag.choices import RuleName
from heterosag.errors import PlanError
from heterosag.flower.plans import MOST_FAILURES, Choice, choose, choose_cohorts, survives_one_loss
from heterosag.plan import CohortPlan
from heterosag.protocol.policy import Policy
from heterosag.protocol.survivors import check_admissible


def made(counts: list[int], *, rule: RuleName | Rule = "mean", **options: Any) -> Choice:
    members, first = [], 0
    for count in counts:
        members.append([str(user) for user in range(first, first + count)])
        first += count
    levels = [4, 16, 64][: len(counts)]
    return choose(members, levels, 20_000, rule=find_rule(rule), options={"assignment_seed": 1, **options})


def survives_every_single_loss(choice: Choice) -> bool:
    plan = choice.plan
    everybody = frozenset(range(len(plan.users)))
    for lost in everybody:
        check_admissible(plan, everybody - {lost}, dealers=sorted(everybody))
    return True


def test_one_class_and_the_mean_make_one_block_that_survives() -> None:
    for nodes in range(8, 65):
        choice = made([nodes], max_weight=1 + nodes % 3)
        assert not choice.plan.has_several_blocks
        assert choice.plan.failure_probability(0.1) <= MOST_FAILURES
        assert survives_every_single_loss(choice)
        Policy().check(choice.plan)
        assert "one class and the mean ask for no more" in " ".join(choice.notes)


def test_six_and_seven_nodes_survive_one_loss_and_say_their_figure() -> None:
    for nodes in (6, 7):
        choice = made([nodes])
        assert survives_every_single_loss(choice)
        assert f"fails in {choice.plan.failure_probability():.2g} of rounds" in choice.notes[1]
        assert "more nodes" in choice.notes[-1]
        assert 0.015 < choice.plan.failure_probability(0.1) < 0.03  # as docs/flower.md says


@pytest.mark.parametrize("counts", [[300], [512], [150, 150], [75, 75, 75], [400, 100, 20]])
@pytest.mark.parametrize("rule", ["mean", "median"])
def test_beyond_256_nodes_as_many_survive_as_nodes_that_draw_ask_for(counts: list[int], rule: RuleName) -> None:
    """One in twenty counts as a colluder there: three survivors would be too few to hide among."""
    plan = made(counts, rule=rule).plan
    Policy().check(plan)
    for user in {subgroup.user_class: subgroup.members[0] for subgroup in plan.subgroups}.values():
        Policy().check_draw(plan, plan.users[user])
    assert plan.failure_probability() <= MOST_FAILURES


def test_survivors_that_are_told_are_taken_as_told() -> None:
    plan = made([150, 150], min_survivors=3).plan
    assert plan.min_survivors == 3
    with pytest.raises(PlanError, match="a larger min_survivors"):
        Policy().check_draw(plan, plan.users[0])


@pytest.mark.property
@examples(40)
@given(st.integers(8, 64), st.integers(0, 64), st.integers(1, 1000))
def test_two_classes_survive_or_are_merged_and_said(nodes: int, slow: int, max_weight: int) -> None:
    choice = made([slow % (nodes + 1), nodes - slow % (nodes + 1)], max_weight=max_weight)
    assert choice.plan.failure_probability(0.1) <= MOST_FAILURES
    assert survives_every_single_loss(choice)
    Policy().check(choice.plan)
    merged = any(len(classes) > 1 for classes in choice.classes)
    assert merged == any("codes at the level of" in note for note in choice.notes)


def test_a_class_of_one_node_does_not_end_the_others_rounds() -> None:
    choice = made([30, 1])
    assert choice.classes == ((0, 1),)
    assert "class 1 (1 nodes) codes at the level of class 0 (30 nodes)" in choice.notes[0]
    apart = made([16, 1, 16])
    assert apart.classes == ((0, 1), (2,))
    assert len(apart.plan.subgroups) >= 4


def test_a_robust_rule_outvotes_one_malicious_node_or_is_refused() -> None:
    for nodes in (*range(8, 36), 48, 64):
        try:
            choice = made([nodes], rule="median")
        except PlanError as error:
            assert nodes < 24
            assert error.field == "rule"  # noqa: PT017
            continue
        assert choice.plan.byzantine_tolerance() >= 1
        assert survives_one_loss(choice.plan)
        assert survives_every_single_loss(choice)
        safe = choice.plan.failure_probability(0.1) <= MOST_FAILURES
        assert safe or (nodes < 30 and any("more nodes" in note for note in choice.notes))
        assert choice.plan.failure_probability(0.1) < 0.04  # as docs/flower.md says
        assert choice.notes[-1].startswith(f"the rule outvotes {choice.plan.byzantine_tolerance()} malicious node")
    assert made([20], rule="median", min_survivors=2).plan.byzantine_tolerance() == 1
    assert made([29, 1], rule="median").classes == ((0, 1),)


def test_a_refused_rule_says_what_nodes_must_allow() -> None:
    with pytest.raises(PlanError, match="no plan for 20 nodes") as refusal:
        made([20], rule="median")
    (policy,) = re.findall(r"Policy\([^)]*\)", str(refusal.value))
    (options,) = re.findall(r"options=(\{[^}]*\})", str(refusal.value))
    named = dict(re.findall(r"(\w+)=(\d+)", policy))
    plan = made([20], rule="median", **ast.literal_eval(options)).plan
    Policy(**{name: int(value) for name, value in named.items()}).check(plan)
    for name in named:  # all of it is needed
        with pytest.raises(PlanError):
            Policy(**{other: int(value) for other, value in named.items() if other != name}).check(plan)


def test_a_trimmed_mean_outvotes_as_many_as_it_cuts_off() -> None:
    choice = made([30], rule="trimmed_mean", subgroup_size=3, min_survivors=2)
    assert min(len(segment.blocks) for segment in choice.plan.segments) == 5
    assert choice.plan.byzantine_tolerance() == 2
    assert choice.notes[-1] == "the rule outvotes 1 malicious node"
    median, trimmed = made([64], rule="median"), made([64], rule="trimmed_mean")
    assert median.notes[-1] == "the rule outvotes 2 malicious nodes"
    assert trimmed.notes[-1] == "the rule outvotes 1 malicious node"
    assert trimmed.plan.failure_probability() < median.plan.failure_probability()


def test_an_unchecked_mean_outvotes_nobody_and_asks_for_no_blocks() -> None:
    choice = made([30], rule="unchecked_mean")
    assert not choice.plan.has_several_blocks
    assert not any("outvotes" in note for note in choice.notes)


def test_a_rule_of_ones_own_that_leaves_out_blocks_has_several() -> None:
    own = Rule(name="own", leaves_out_faulty=True, combine=RULES["median"].combine)
    choice = made([64], rule=own)
    assert choice.plan.has_several_blocks
    assert choice.notes[-1] == f"the median would outvote {choice.plan.byzantine_tolerance()} malicious nodes"


def test_a_design_or_subgroup_size_is_taken_as_told() -> None:
    choice = made([12], rule="median", subgroup_size=3, min_survivors=2)
    assert len(choice.plan.subgroups) == 4
    assert choice.notes[-1] == "the rule outvotes 0 malicious nodes"
    assert made([9], subgroup_size=3).notes[0].endswith("does NOT survive every single lost node")
    with pytest.raises(PlanError, match="does not know all of it"):
        made([9], subgroup_size=3, colour="red")


@pytest.mark.parametrize("sizes", [[600], [300, 300], [40, 560], [37, 50, 120], [1000, 25, 300]])
@pytest.mark.parametrize("cohort_size", [32, 100, 300])
@pytest.mark.parametrize("rule", ["mean", "median"])
def test_nodes_with_the_default_policy_draw_the_cohorts_that_are_chosen(
    sizes: list[int], cohort_size: int, rule: RuleName
) -> None:
    names = iter(range(10_000))
    members = [[str(next(names)) for _ in range(size)] for size in sizes]
    levels = [4 << index for index in range(len(sizes))]
    arguments, _ = choose_cohorts(members, levels, 5000, cohort_size=cohort_size, rule=find_rule(rule), options={})
    cohorts = CohortPlan.build(**arguments)
    first = 0
    for count in cohorts.classes:
        Policy().check_draw(cohorts, cohorts.users[first])
        first += count
