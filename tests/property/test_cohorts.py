"""Rounds of cohorts: for any split and dropouts the result is the rule over plain integer sums, or the named error."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
import pytest
from cases import examples
from hypothesis import assume, given
from hypothesis import strategies as st

from heterosag import CohortPlan, Plan, Simulation, aggregate
from heterosag.errors import FailedCohortsError, PlanError, TooFewSurvivorsError
from heterosag.protocol import Phase, outcome
from heterosag.protocol.encoding import decode, fill_cells
from heterosag.protocol.rounding import Rounding
from heterosag.protocol.update import Update

PHASES = [phase.value for phase in Phase]
SEED = 11


@st.composite
def cohorts(draw: st.DrawFn) -> CohortPlan:
    classes = draw(st.lists(st.integers(5, 16), min_size=1, max_size=2))
    try:
        return CohortPlan.build(
            classes=classes,
            levels=sorted(draw(st.lists(st.sampled_from([2, 6, 50]), min_size=len(classes), max_size=len(classes)))),
            dimension=draw(st.integers(7, 40)),
            cohort_size=draw(st.integers(5, 32)),
            value_range=1.0,
            design=draw(st.sampled_from(["perfect", "secagg", "multigroup"])),
            subgroup_size=2,
            min_survivors=2,
            max_weight=draw(st.sampled_from([1, 9])),
            min_robustness=0.0,
            assignment_seed=draw(st.none() | st.integers(0, 9)),
            metrics=draw(st.sampled_from([[], ["loss"]])),
            rotate=draw(st.booleans()),
        )
    except PlanError:
        assume(False)
        raise


def plain_sums(whole: CohortPlan, plan: Plan, survivors: tuple[Any, ...], updates: Any, weights: list[int]) -> Any:
    """By segment and block the plain integer sum of the survivors' quantized vectors, their number and weight."""
    cells = {
        user: fill_cells(
            plan,
            plan.subgroup_of(user),
            Update.of(plan, updates[user], weight=weights[user], metrics=dict.fromkeys(plan.metrics, 0.5)),
            Rounding.from_seed(SEED, whole.index(user)),
        )
        for user in survivors
    }
    sums = {}
    for at, segment in enumerate(plan.segments):
        for block in segment.blocks:
            present = [user for user in survivors if plan.subgroup_of(user) in block.subgroups]
            if present:
                total = sum(cells[user][at].elements.astype(object) for user in present)
                sums[at, block.subgroups] = (total, len(present), sum(weights[user] for user in present))
    return sums


def rules_for(plans: Sequence[Plan], *rules: str) -> list[str]:
    """The rules that have an effect: where there is one block, the mean alone."""
    several = len(plans) > 1 or plans[0].has_several_blocks
    return [rule for rule in rules if several or rule == "mean"]


def naive(whole: CohortPlan, sums: dict[int, Any], rule: str) -> list[float]:
    """The rule, element by element, over whatever blocks of whichever cohorts have the element."""
    means: list[list[tuple[float, int]]] = [[] for _ in range(whole.dimension)]
    for index, found in sums.items():
        plan = whole.plans[index]
        for (at, subgroups), (total, count, weight) in found.items():
            segment = plan.segments[at]
            block = next(block for block in segment.blocks if block.subgroups == subgroups)
            mean = decode(plan, block, total.astype(np.uint64), count, weight, segment=at)
            for element, value in zip(range(segment.start, segment.stop), mean.tolist(), strict=True):
                means[element].append((value, weight))
    if rule == "median":
        return [median(value for value, _ in here) for here in means]
    return [sum(value * weight for value, weight in here) / sum(weight for _, weight in here) for here in means]


@examples(25)
@given(whole=cohorts(), data=st.data())
def test_the_result_is_the_rule_over_plain_sums_or_the_named_error(whole: CohortPlan, data: st.DataObject) -> None:
    users = len(whole.users)
    updates = np.random.default_rng(data.draw(st.integers(0, 99))).uniform(-1.2, 1.2, (users, whole.dimension))
    weights = data.draw(st.lists(st.integers(1, whole.plans[0].max_weight), min_size=users, max_size=users))
    dropped = data.draw(st.dictionaries(st.integers(0, users - 1), st.sampled_from(PHASES), max_size=users // 2))
    signed = data.draw(st.booleans())
    rule = data.draw(st.sampled_from(rules_for(whole.plans, "mean", "median")))
    options: dict[str, Any] = {
        "rule": rule,
        "weights": weights,
        "identities": signed,
        "metrics": {user: dict.fromkeys(whole.plans[0].metrics, 0.5) for user in whole.users},
    }
    simulation = Simulation(dropped=dropped, rounding_seed=SEED)
    ends = [
        outcome(plan, {user: dropped[user] for user in plan.users if user in dropped}, identities=signed)
        for plan in whole.plans
    ]
    lost = {index: end.error for index, end in enumerate(ends) if end.error is not None}
    if len(lost) == len(ends):
        for secure in (True, False):
            with pytest.raises((FailedCohortsError, TooFewSurvivorsError)) as failure:
                aggregate(whole, updates, simulate=replace(simulation, secure=secure), **options)
            if len(ends) > 1:
                assert isinstance(failure.value, FailedCohortsError)
                assert failure.value.errors.keys() == lost.keys()
            else:
                assert isinstance(failure.value, TooFewSurvivorsError)
        return
    result = aggregate(whole, updates, simulate=simulation, **options)
    assert result.failed.keys() == lost.keys()
    for index, expected in lost.items():
        error = result.failed[index]
        assert isinstance(error, TooFewSurvivorsError)
        assert error.reason == expected.reason
    assert set(result.survivors) == {user for end in ends if end.error is None for user in end.survivors}
    assert list(result.survivors) == sorted(result.survivors)
    sums = {
        index: plain_sums(whole, plan, ends[index].survivors, updates, weights)
        for index, plan in enumerate(whole.plans)
        if index not in lost
    }
    for one in result.cohorts:
        blocks = {(block.segment, block.subgroups): block for segment in one.blocks for block in segment}
        assert blocks.keys() == sums[one.cohort].keys()
        for key, (total, count, weight) in sums[one.cohort].items():
            assert blocks[key].sums.astype(object).tolist() == total.tolist()
            assert (blocks[key].survivors, blocks[key].weight) == (count, weight)
    assert result.vector.tolist() == pytest.approx(naive(whole, sums, rule), abs=1e-9)
    assert result.metrics == pytest.approx(dict.fromkeys(whole.plans[0].metrics, 0.5), abs=1e-6)
    plain = aggregate(whole, updates, simulate=replace(simulation, secure=False), **options)
    assert np.array_equal(plain.vector, result.vector)
    assert result.combined.byzantine_tolerance == whole.byzantine_tolerance(result.survivors)


@pytest.mark.long
@examples(15)
@given(whole=cohorts(), data=st.data())
def test_one_cohort_gives_the_bits_of_the_plan_alone(whole: CohortPlan, data: st.DataObject) -> None:
    plan = whole.plans[0]
    alone = CohortPlan(
        users=plan.users, cohort_size=len(plan.users), assignment_seed=plan.assignment_seed, plans=(plan,)
    )
    updates = dict(
        zip(plan.users, np.random.default_rng(3).uniform(-1, 1, (len(plan.users), plan.dimension)), strict=True)
    )
    weights = {user: 1 + at % plan.max_weight for at, user in enumerate(plan.users)}
    dropped = data.draw(st.dictionaries(st.sampled_from(plan.users), st.sampled_from(PHASES), max_size=2))
    rule: Any = data.draw(st.sampled_from(rules_for([plan], "mean", "median", "trimmed_mean")))
    options: dict[str, Any] = {
        "rule": rule,
        "weights": weights,
        "metrics": {user: dict.fromkeys(plan.metrics, 0.25) for user in plan.users},
        "simulate": Simulation(dropped=dropped, rounding_seed=SEED),
    }
    if outcome(plan, dropped).error is not None:
        with pytest.raises(TooFewSurvivorsError) as today:
            aggregate(plan, updates, **options)
        with pytest.raises(TooFewSurvivorsError) as now:
            aggregate(alone, updates, **options)
        assert str(now.value) == str(today.value)
        return
    one, many = aggregate(plan, updates, **options), aggregate(alone, updates, **options)
    assert np.array_equal(one.vector, many.vector)
    assert one.survivors == many.survivors
    assert one.metrics == many.metrics
    assert one.combined.byzantine_tolerance == many.combined.byzantine_tolerance
    assert one.combined.inference_robustness == many.combined.inference_robustness
    assert one.traffic.sent == many.traffic.sent
