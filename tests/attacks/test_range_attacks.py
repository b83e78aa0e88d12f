"""Attacks on the adaptive range that worked on version 0.1.0.

The numbers are the rows of docs/threat-model.md, "Attacks that worked".
"""

from __future__ import annotations

import numpy as np
import pytest

from heterosag import Plan, Simulation, aggregate
from heterosag.aggregation.clipping import AdaptiveRange, follow_quantile, measure_clipping


def attack(plan: Plan, number: int) -> Simulation:
    """One user says that it clipped everything."""
    return Simulation(secure=False, rounding_seed=number, malicious=[plan.users[5]])


def updates_of(number: int, dimension: int) -> np.ndarray:
    updates = np.random.default_rng(number).normal(0, 0.03, (24, dimension))
    updates[5] = 1e6
    return updates


@pytest.mark.parametrize("subgroup_size", [3, 6])
def test_13_one_malicious_user_drives_the_range_of_four_subgroups(subgroup_size: int) -> None:
    """The median of two blocks is their mean, so one user moved the range from 0.1 to 24 in twelve rounds. Of fewer
    than three blocks the least counts now, and the range stays where the honest users' updates are."""
    plan = Plan.build([24], [16], 3_000, value_range=0.1, subgroup_size=subgroup_size)
    assert len(plan.subgroups) == 24 // subgroup_size
    follows = AdaptiveRange([0.1 / 3])
    for number in range(12):
        settled = follows.settle(plan)
        result = aggregate(settled, updates_of(number, 3_000), rule="median", simulate=attack(plan, number))
        follows.follow(settled, result.combined)
    assert follows.settle(plan).value_range[1] == pytest.approx(0.09, rel=0.2)


def test_13_the_rule_of_0_1_0_is_robust_too() -> None:
    plan = Plan.build([24], [16], 3_000, value_range=0.1, subgroup_size=6, ranges="single", rotate=False)
    half = 0.1
    for number in range(12):
        settled = plan.with_value_range(half)
        result = aggregate(settled, updates_of(number, 3_000), rule="median", simulate=attack(plan, number))
        half = follow_quantile(half, measure_clipping(plan, result.combined), 0.999)
    assert 0.05 < half < 0.2


def test_13_with_one_block_the_range_is_capped_and_its_speed_bounded() -> None:
    """Nothing is robust in one block of everybody; what a round can do is bounded, and so is the end of it."""
    plan = Plan.build([24], [16], 3_000, value_range=0.1, subgroup_size=6, design="secagg")
    follows = AdaptiveRange([0.1 / 3], largest=2.0)
    before = 0.1
    for number in range(12):
        settled = follows.settle(plan)
        rule = "unchecked_mean"
        result = aggregate(settled, updates_of(number, 3_000), rule=rule, simulate=attack(plan, number))
        follows.follow(settled, result.combined)
        after = follows.settle(plan).value_range[1]
        assert after <= min(2.0, before * np.exp(0.5)) * (1 + 1e-12)
        before = after
