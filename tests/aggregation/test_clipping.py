"""The range follows the fraction of clipped elements, by bounded steps."""

import math

import numpy as np
import pytest
from rounds import small_plan

from heterosag import Simulation, aggregate
from heterosag.aggregation.clipping import follow, measure_clipping


def test_the_fraction_is_that_of_the_updates_and_of_sound_blocks_only() -> None:
    plan = small_plan()
    updates = np.zeros((len(plan.users), plan.dimension))
    updates[:, ::2] = 5.0
    assert measure_clipping(
        plan, aggregate(plan, updates, simulate=Simulation(secure=False)).combined
    ) == pytest.approx(np.mean([np.mean(np.arange(segment.start, segment.stop) % 2 == 0) for segment in plan.segments]))
    assert (
        measure_clipping(plan, aggregate(plan, np.zeros_like(updates), simulate=Simulation(secure=False)).combined) == 0
    )


def test_the_range_stays_where_the_quantile_is_and_moves_by_bounded_steps() -> None:
    assert follow(2.0, 0.0009, 0.999) == pytest.approx(2.0, rel=1e-3)
    assert follow(1.0, 0.0, 0.999) == pytest.approx(math.exp(-0.1))
    assert follow(1.0, 1.0, 0.999) == pytest.approx(math.exp(0.5))
    steps = [follow(1.0, clipped, 0.99) for clipped in np.linspace(0, 1, 50)]
    assert steps == sorted(steps)
