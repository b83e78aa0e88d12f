"""Blocks of all cohorts to one result: faulty blocks, metrics, and outcomes that do not fit."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from heterosag import CohortPlan, Simulation, aggregate
from heterosag.aggregation.cohorts import combine_cohorts
from heterosag.aggregation.rules import find_rule
from heterosag.errors import FailedCohortsError, FaultyBlockError, PlanError, TooFewSurvivorsError, UsageError
from heterosag.protocol import Decoded, RoundId
from heterosag.protocol.rounding import Rounding
from heterosag.simulation.exchange import play_plain
from heterosag.simulation.inputs import collect
from heterosag.simulation.workers import WorkerSettings

WHOLE = CohortPlan.build(
    [27], [64], 30, cohort_size=14, value_range=1.0, subgroup_size=2, min_survivors=2, min_robustness=0.0,
    metrics=["loss"],
)  # fmt: skip
UPDATES = np.random.default_rng(0).uniform(-1, 1, (27, 30))
FEW = TooFewSurvivorsError("min_survivors", "too few")
MEAN, MEDIAN = find_rule("mean"), find_rule("median")


def decoded(cohort: int) -> Decoded:
    plan = WHOLE.plans[cohort]
    given = {user: UPDATES[int(user)] for user in plan.users}
    _, inputs = collect(plan, given, None, {user: {"loss": float(cohort)} for user in plan.users}, {})
    rounding = {user: Rounding.from_seed(1, WHOLE.index(user)) for user in plan.users}
    settings = WorkerSettings(
        plan=plan, round_id=RoundId(session=b"s"), identities=None, inputs=inputs, rounding=rounding, malicious=()
    )
    return play_plain(settings, {}, None, signed=Simulation().secure)


def spoil(found: Decoded, segment: int | None = None) -> Decoded:
    """All blocks of a segment faulty, or the metrics'."""
    if segment is None:
        assert found.metrics is not None
        return replace(found, metrics=replace(found.metrics, fault="spoilt"))
    segments = tuple(
        tuple(replace(block, fault="spoilt") for block in blocks) if at == segment else blocks
        for at, blocks in enumerate(found.segments)
    )
    return replace(found, segments=segments)


def test_cohorts_with_different_numbers_of_segments_are_combined_element_by_element() -> None:
    one, two = WHOLE.plans
    assert len(one.segments) != len(two.segments)
    combined = combine_cohorts(WHOLE, [decoded(0), decoded(1)], MEAN)
    assert np.abs(combined.vector - UPDATES.mean(axis=0)).max() < 2 / 63
    assert combined.survivors == WHOLE.users
    assert combined.metrics["loss"] == pytest.approx(13 / 27)
    assert combined.inference_robustness == WHOLE.inference_robustness()
    assert combined.byzantine_tolerance == WHOLE.byzantine_tolerance()


def test_the_robust_rule_goes_on_with_the_blocks_of_other_cohorts() -> None:
    found = spoil(decoded(0), 1)
    combined = combine_cohorts(WHOLE, [found, decoded(1)], MEDIAN)
    assert not combined.failed
    assert combined.cohorts[0].faulty_blocks
    segment = WHOLE.plans[0].segments[1]
    alone = combine_cohorts(WHOLE, [FEW, decoded(1)], MEDIAN)
    assert np.array_equal(combined.vector[segment.start : segment.stop], alone.vector[segment.start : segment.stop])
    with pytest.raises(FaultyBlockError, match="no sound block is left at element 0 of any cohort"):
        combine_cohorts(WHOLE, [spoil(decoded(0), 0), spoil(decoded(1), 0)], MEDIAN)


def test_the_mean_goes_on_without_a_cohort_that_has_a_faulty_block() -> None:
    combined = combine_cohorts(WHOLE, [spoil(decoded(0), 0), decoded(1)], MEAN)
    assert isinstance(combined.failed[0], FaultyBlockError)
    assert combined.survivors == WHOLE.plans[1].users
    assert combined.metrics == {"loss": 1.0}
    with pytest.raises(FailedCohortsError, match="all 2 cohorts failed"):
        combine_cohorts(WHOLE, [spoil(decoded(0), 0), FEW], MEAN)


def test_metrics_are_those_of_cohorts_whose_metrics_are_sound() -> None:
    assert combine_cohorts(WHOLE, [spoil(decoded(0)), decoded(1)], MEDIAN).metrics == {"loss": 1.0}
    assert combine_cohorts(WHOLE, [spoil(decoded(0)), spoil(decoded(1))], MEDIAN).metrics == {}


def test_the_callers_own_errors_are_raised_and_outcomes_must_fit() -> None:
    for error in (UsageError("no"), PlanError("levels", "no")):
        with pytest.raises(type(error), match="no"):
            combine_cohorts(WHOLE, [error, decoded(1)], MEAN)
    with pytest.raises(UsageError, match="2 cohorts have 2 outcomes, not 1"):
        combine_cohorts(WHOLE, [FEW], MEAN)


def test_clip_bits_of_all_cohorts_are_averaged() -> None:
    noise: dict[str, Any] = {"clipping_norm": 1.0, "noise_multiplier": 9.0, "min_block_survivors": 8}
    shape: dict[str, Any] = {"cohort_size": 10, "design": "secagg", "subgroup_size": 10, "adaptive_clip": True}
    plan = CohortPlan.build([29], [64], 40, **shape, **noise)
    updates = np.zeros((29, 40))
    updates[::2] = 1.0
    found = aggregate(plan, updates, simulate=Simulation(secure=False, rounding_seed=3)).combined
    assert found.within_norm == pytest.approx(14 / 29, abs=5 * 0.5 / math.sqrt(29))
    assert combine_cohorts(WHOLE, [decoded(0), decoded(1)], MEAN).within_norm is None
