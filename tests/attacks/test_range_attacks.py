"""Attacks on the adaptive range that worked on version 0.1.0.

The numbers are the rows of docs/threat-model.md, "Attacks that worked".
"""

from __future__ import annotations

import numpy as np

from heterosag import Plan, Simulation, aggregate
from heterosag.aggregation.clipping import follow, measure_clipping


def test_13_one_malicious_user_drives_the_range_of_four_subgroups() -> None:
    """Two blocks a segment: the median of two is their mean, so one user that says that it clipped everything moves the
    range by e^0.5 in every round."""
    plan = Plan.build([24], [16], 3_000, value_range=0.1, subgroup_size=6)
    assert len(plan.subgroups) == 4
    half = 0.1
    for number in range(12):
        updates = np.random.default_rng(number).normal(0, 0.03, (24, plan.dimension))
        updates[5] = 1e6
        rounding = Simulation(secure=False, rounding_seed=number)
        result = aggregate(plan.with_value_range(half), updates, rule="median", simulate=rounding)
        half = follow(half, measure_clipping(plan, result.combined), 0.999)
    assert half > 24
