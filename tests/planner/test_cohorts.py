"""Plans for more users than a cohort has: every cohort meets what was asked of one."""

import pytest
from cases import each

from heterosag.errors import InfeasibleError, UsageError
from heterosag.plan import CohortPlan
from heterosag.planner import Requirements, best
from heterosag.planner.cohorts import best_cohorts, fit_cohorts
from heterosag.privacy import NoisyRound, epsilon

RATES = (0.5,) * 31 + (2.0,) * 40 + (8.0,) * 40


@each("seed", [None, 3])
def test_every_user_of_every_cohort_meets_the_deadline(seed: int | None) -> None:
    asked = Requirements(rates=RATES[::-1], dimension=2000, deadline=0.1)
    found = best_cohorts(asked, cohort_size=30, assignment_seed=seed)
    assert [len(plan.users) for plan in found.plan.plans] == [28, 28, 28, 27]
    assert found.plan.users == found.order
    assert [asked.rates[user] for user in found.order] == sorted(RATES)
    for plan in found.plan.plans:
        sizes = plan.vector_sizes()
        assert plan.design.name == found.cohort.plan.design.name
        assert plan.levels == found.cohort.plan.levels
        for user in plan.users:
            assert sizes[plan.subgroup_of(user)] * 8 <= asked.rates[int(user)] * 1e6 * 0.1
    assert max(found.seconds) <= 0.1
    assert len(found.bytes) == len(found.plan.classes)
    assert found.error == found.plan.error_bound() < found.cohort.error


def test_one_cohort_is_the_plan_without_cohorts() -> None:
    asked = Requirements(rates=RATES[:40], dimension=2000, deadline=0.1)
    alone, found = best(asked), best_cohorts(asked, cohort_size=40)
    assert found.plan.plans == (alone.plan,)
    assert (found.seconds, found.bytes, found.order) == (alone.seconds, alone.bytes, alone.order)


def test_cohorts_that_are_too_small_and_requirements_that_clash_are_named() -> None:
    asked = Requirements(rates=RATES, dimension=2000, deadline=0.1)
    for size in (0, 3):
        with pytest.raises(UsageError, match="too small: a plan is for 4 users"):
            best_cohorts(asked, cohort_size=size)
    with pytest.raises(InfeasibleError):
        best_cohorts(Requirements(rates=RATES, dimension=2000, deadline=0.1, attackers=9), cohort_size=30)


def test_the_noise_of_cohorts_meets_the_target_in_each() -> None:
    shape = {"classes": [41], "levels": [2], "dimension": 900, "design": "secagg", "subgroup_size": 20}
    plan = fit_cohorts(
        shape | {"dropout": 0.1}, cohort_size=21, clipping_norm=1.0, target_epsilon=8.0, target_delta=1e-5, rounds=5
    )
    assert [len(one.users) for one in plan.plans] == [21, 20]
    assert len({one.min_block_survivors for one in plan.plans}) == 1
    whole = epsilon(NoisyRound.of(plan), rounds=5, delta=1e-5)
    assert all(epsilon(one, rounds=5, delta=1e-5) <= whole <= 8.0 for one in plan.plans)
    assert whole > 5.0, "a filter, which users can keep as their budget, needs somewhat more noise"
    assert CohortPlan.decode(plan.encode()) == plan
    again = fit_cohorts(
        shape | {"min_block_survivors": 15}, cohort_size=21, clipping_norm=1.0, target_epsilon=8.0, target_delta=1e-5,
        rounds=5,
    )  # fmt: skip
    assert {one.min_block_survivors for one in again.plans} == {15}
