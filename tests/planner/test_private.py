"""The planner under a privacy budget: the largest blocks that are allowed, as much noise as needed, nothing useless."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from heterosag.errors import InfeasibleError, UsageError
from heterosag.planner.private import (
    USELESS,
    PrivacyRequirements,
    best_private,
    error_at,
)
from heterosag.privacy import Accountant, NoisyRound, epsilon


def asking(**change: Any) -> PrivacyRequirements:
    given: dict[str, Any] = {"users": 96, "dimension": 5000, "epsilon": 8.0, "delta": 1e-5, "rounds": 20}
    return PrivacyRequirements(**given | change)


def test_one_block_of_everybody_is_best_and_the_figures_are_those_of_the_plan() -> None:
    found = best_private(asking())
    plan = found.plan
    assert (plan.design.name, len(plan.users), plan.clipping_norm) == ("secagg", 96, 1.0)
    assert found.error == pytest.approx(math.sqrt(plan.quantization_error()) / plan.value_range[1])
    assert found.error == pytest.approx(2.4, rel=0.05)
    assert plan.failure_probability() <= 0.01
    assert found.epsilon_server <= 8.0
    assert found.epsilon_model == pytest.approx(found.epsilon_server)
    assert {one.subgroups for one in found.others} >= {4, 6, 12, 14}
    assert all(one.error > found.error for one in found.others)
    assert [one.error for one in found.others] == sorted(one.error for one in found.others)


def test_users_who_keep_the_budget_take_part_in_all_rounds() -> None:
    plan = best_private(asking(rounds=7, epsilon=4.0, dimension=4000)).plan
    budget = Accountant.filter(max_epsilon=4.0, target_delta=1e-5)
    budget.compose(NoisyRound.of(plan), 7)
    assert budget.would_exceed(NoisyRound.of(plan))


def test_attackers_need_blocks_and_the_median_of_which_no_epsilon_of_the_models_is_known() -> None:
    found = best_private(asking(users=240, dimension=12_000, attackers=1))
    assert found.blocks.subgroups == 6
    assert found.plan.byzantine_tolerance() == 1
    assert found.plan.failure_probability() <= 0.01
    assert found.epsilon_model is None
    assert epsilon(found.plan, rounds=20, delta=1e-5, view="model") < 0.9 * found.epsilon_server  # were it the mean


@pytest.mark.slow
def test_more_levels_only_where_the_noise_needs_them() -> None:
    """Little noise over few elements: two levels would make more of it."""
    found = best_private(asking(users=16, dimension=20, epsilon=9.0, rounds=1))
    assert found.plan.levels[0] > 2
    assert found.plan.noise_multiplier < 1.5
    assert epsilon(found.plan, rounds=1, delta=1e-5) <= 9.0


@pytest.mark.long
def test_what_is_useless_is_refused_with_the_nearest_that_is_not() -> None:
    with pytest.raises(InfeasibleError, match="clipping norms") as refusal:
        best_private(asking(attackers=1))
    nearest = refusal.value.nearest
    assert nearest.plan.design.name == "secagg"
    assert nearest.error <= USELESS
    with pytest.raises(InfeasibleError, match="fewer elements") as refusal:
        best_private(asking(dimension=20_000))
    nearest = refusal.value.nearest
    assert nearest.rounds < 20
    assert nearest.error <= USELESS < best_private_error(asking(dimension=20_000, rounds=nearest.rounds + 1))
    with pytest.raises(InfeasibleError, match="about") as refusal:
        best_private(asking(dimension=2_000_000))
    assert refusal.value.nearest is None
    with pytest.raises(InfeasibleError, match="fewer attackers"):
        best_private(asking(users=8, attackers=3))


def best_private_error(requirements: PrivacyRequirements) -> float:
    try:
        return best_private(requirements).error
    except InfeasibleError:
        return math.inf


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"users": 3}, "users is at least 4, not 3"),
        ({"dimension": 0}, "dimension is at least 1, not 0"),
        ({"rounds": 0}, "rounds is at least 1, not 0"),
        ({"clip": 0.0}, r"clip is a positive number, not 0\.0"),
        ({"clip": math.nan}, "clip is a positive number, not nan"),
        ({"dropout": 0.5}, r"dropout is a fraction of users, at least 0 and below one half, not 0\.5"),
        ({"corrupt": -0.1}, r"corrupt is a fraction of users, at least 0 and below one half, not -0\.1"),
        ({"attackers": -1}, "attackers is at least 0, not -1"),
        ({"min_survivors": 1}, "min_survivors is at least 2, not 1"),
        ({"failure": 0}, "failure is a probability above 0 and below 1, not 0"),
        ({"users": 10**20}, "users is at most 100000, not 100000000000000000000"),
        ({"dimension": 10**20}, "dimension is at most 9223372036854775807, not 100000000000000000000"),
        ({"rounds": 10**20}, "rounds is at most 9223372036854775807, not 100000000000000000000"),
        ({"attackers": 97}, "attackers is at most 96, not 97"),
        ({"min_survivors": 97}, "min_survivors is at most 96, not 97"),
        ({"epsilon": 1e300}, r"epsilon is above 0 and at most 1000, not 1e\+300"),
        ({"epsilon": math.nan}, "epsilon is above 0 and at most 1000, not nan"),
        ({"delta": 0.0}, r"delta is a probability above 0 and below 1, not 0\.0"),
    ],
)
def test_requirements_that_make_no_sense_are_named(change: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=f"^{says}$"):
        asking(**change)


def test_the_error_at_another_epsilon_is_that_of_planning_for_it_to_a_few_hundredths() -> None:
    asked = asking()
    found = best_private(asked)
    for other in (7.0, 10.0):
        assert error_at(asked, found.blocks, other) == pytest.approx(
            best_private(replace(asked, epsilon=other)).error, rel=0.03
        )
    assert error_at(asked, found.blocks, 1e-9) is None


def test_where_sharing_is_sparse_a_twentieth_of_the_users_may_not_follow_the_mechanism() -> None:
    """Noise counted on too many honest users is too little."""
    asked = asking(users=300, dimension=20_000)
    found = best_private(asked)
    assert asked.colluders == found.plan.colluders == 15
    assert found.plan.honest == found.blocks.honest == found.plan.min_block_survivors - 15
