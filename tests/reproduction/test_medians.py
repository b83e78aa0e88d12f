"""The median over blocks and over users: which blocks a malicious user spoils, and what is left of it."""

import numpy as np
import pytest

pytest.importorskip("torch")

from heterosag.aggregation.rules import RULES
from heterosag.plan import Plan
from reproduction.baselines import combine_blocks
from reproduction.medians import count_faulty_blocks

PLAN = Plan.build([20], [12], 40, value_range=1.0, subgroup_size=4, design="paper", min_survivors=2)


def test_a_malicious_user_spoils_one_block_a_segment() -> None:
    assert count_faulty_blocks(PLAN, []) == (0, 0)
    assert count_faulty_blocks(PLAN, [7]) == (5, 5)
    together = [PLAN.index(PLAN.users[member]) for member in PLAN.subgroups[0].members]
    assert count_faulty_blocks(PLAN, together) == (5, 5)


def test_the_median_over_blocks_ignores_one_malicious_user_and_the_mean_does_not() -> None:
    rng = np.random.default_rng(0)
    updates = rng.normal(1, 0.1, (20, 40))
    honest = updates.mean(axis=0)
    updates[3] = 1e6
    given = dict(enumerate(updates))
    assert np.abs(combine_blocks(PLAN, given, RULES["median"]) - honest).max() < 0.3
    assert np.abs(combine_blocks(PLAN, given, RULES["mean"]) - honest).max() > 1e4
