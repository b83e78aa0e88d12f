"""What users clipped in a round, and when that is worth a warning."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from heterosag import CohortPlan, Plan, Simulation, aggregate
from heterosag.aggregation.clip_counts import Clipping, ClippingWarning, measure_clipping
from heterosag.errors import UsageError


def test_a_result_of_cohorts_goes_with_their_plan() -> None:
    whole = CohortPlan.build([24], [16], 60, cohort_size=12, value_range=1.0, subgroup_size=4, min_survivors=2)
    result = aggregate(whole, np.zeros((24, 60)), simulate=Simulation(secure=False))
    with pytest.raises(UsageError, match="goes with their CohortPlan"):
        measure_clipping(whole.plans[0], result.combined)


def test_clipping_beyond_what_is_best_warns_with_the_range_to_use() -> None:
    plan = Plan.build([16], [256], 3000, value_range=0.3, subgroup_size=4, assignment_seed=1)
    updates = np.random.default_rng(0).normal(0.0, 0.1, (16, 3000))
    simulate = Simulation(secure=False, rounding_seed=1)
    fitting = Clipping.of(plan, aggregate(plan, updates, simulate=simulate).combined)
    assert fitting.warning is None
    with pytest.warns(ClippingWarning, match=r"want value_range=0\.[89]") as caught:
        aggregate(plan, 3 * updates, simulate=simulate)
    assert Path(caught[0].filename) == Path(__file__)
    wide = plan.with_value_range(0.9)
    assert Clipping.of(wide, aggregate(wide, 3 * updates, simulate=simulate).combined).warning is None


def test_clipping_in_cohorts_warns_where_aggregate_was_called() -> None:
    plan = CohortPlan.build([24], [256], 3000, cohort_size=12, value_range=0.3, subgroup_size=4, min_survivors=2)
    updates = np.random.default_rng(0).normal(0.0, 0.3, (24, 3000))
    with pytest.warns(ClippingWarning, match=r"want value_range=0\.[89]") as caught:
        aggregate(plan, updates, simulate=Simulation(secure=False, rounding_seed=1))
    assert [Path(one.filename) for one in caught] == [Path(__file__)]


def test_what_few_levels_clip_by_intent_is_no_reason_to_warn() -> None:
    plan = Plan.build([16], [2], 3000, value_range=0.3, subgroup_size=4, assignment_seed=1)
    updates = np.random.default_rng(0).normal(0.0, 0.1, (16, 3000))
    found = Clipping.of(plan, aggregate(plan, updates, simulate=Simulation(secure=False, rounding_seed=1)).combined)
    assert found.fraction > 0.1
    assert found.warning is None
    assert found.fitting[1] == pytest.approx(0.3, rel=0.1)
