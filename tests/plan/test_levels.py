"""Levels from links: `levels="auto"`."""

from itertools import pairwise

import pytest

from heterosag.errors import PlanError
from heterosag.plan import CohortPlan, Plan
from heterosag.plan.levels import LEVELS_OF_EQUALS, LEVELS_OF_THE_SLOWEST
from heterosag.vector import ring


def built(levels: object = "auto", **changes: object) -> Plan:
    arguments = {"classes": [18, 18, 18], "dimension": 5000, "value_range": 0.5, "subgroup_size": 6, **changes}
    if levels == "auto":
        arguments = {"rates": [1.0, 2.0, 8.0], **arguments}
    return Plan.build(levels=levels, **arguments)  # type: ignore[arg-type]


def seconds(plan: Plan, rates: list[float]) -> float:
    """The upload of whoever takes longest."""
    sizes = plan.vector_sizes()
    return max(8 * sizes[g] / (rates[one.user_class] * 1e6) for g, one in enumerate(plan.subgroups))


def test_without_a_deadline_the_slowest_has_four_levels_and_the_others_what_fits_in_its_time() -> None:
    rates = [1.0, 2.0, 8.0]
    plan = built()
    assert LEVELS_OF_THE_SLOWEST <= plan.levels[0] < plan.levels[1] <= plan.levels[2]
    assert seconds(plan, rates) == pytest.approx(8 * plan.vector_sizes()[0] / 1e6)


def test_users_alike_have_sixteen_levels() -> None:
    plan = built(rates=3.0)
    assert len(set(plan.levels)) == 1
    assert LEVELS_OF_EQUALS <= plan.levels[0] < 2 * LEVELS_OF_EQUALS


@pytest.mark.parametrize("deadline", [0.031, 0.035, 0.04, 0.06])
@pytest.mark.parametrize("design", ["perfect", "secagg", "multigroup"])
def test_a_deadline_is_met_and_one_more_bit_of_the_slowest_would_miss_it(deadline: float, design: str) -> None:
    rates = [1.0, 2.0, 8.0]
    plan = built(deadline=deadline, design=design, classes=[18, 18, 12])
    assert seconds(plan, rates) <= deadline
    largest = max(block.users for segment in plan.segments for block in segment.blocks)
    wider = ((1 << (ring.width(largest, plan.levels[0]) + 1)) - 1) // largest + 1
    more = [max(wider, level) for level in plan.levels]
    capped = plan.levels[0] >= 16
    assert capped or seconds(built(more, design=design, classes=[18, 18, 12]), rates) > deadline


def test_under_noise_there_is_one_auxiliary_lane_to_send() -> None:
    """Two levels fit into a deadline that a second lane of 64 bits would miss."""
    noisy = {"classes": [24], "dimension": 90, "value_range": None, "design": "secagg", "subgroup_size": 24}
    noisy |= {"clipping_norm": 1.0, "noise_multiplier": 4.0, "rates": [0.001]}
    plan = built(deadline=0.55, **noisy)
    assert plan.lanes == ("count",)
    assert 0.55 - 0.064 < seconds(plan, [0.001]) <= 0.55


def test_levels_end_where_more_bits_buy_nothing() -> None:
    hurried, patient = built(deadline=10.0), built(deadline=1000.0)
    assert hurried.levels == patient.levels
    assert max(patient.levels) < 128
    dearer = built([256] * 3)
    assert patient.error_bound() < 1.2 * built(rates=[8.0], deadline=1000.0).error_bound()
    assert max(patient.vector_sizes()) < max(dearer.vector_sizes())


def test_more_time_never_makes_the_error_larger() -> None:
    errors = [built(deadline=deadline).error_bound() for deadline in (0.023, 0.026, 0.03, 0.04, 0.08)]
    assert all(later <= 1.02 * sooner for sooner, later in pairwise(errors))


def test_one_block_of_everybody_has_one_level() -> None:
    assert len(set(built(design="secagg").levels)) == 1


def test_cohorts_have_the_same_levels() -> None:
    arguments: dict[str, object] = {"value_range": 0.5, "subgroup_size": 6}
    whole = CohortPlan.build([60, 61], "auto", 5000, cohort_size=50, rates=[1.0, 4.0], **arguments)
    assert len(whole.plans) == 3
    assert {plan.levels for plan in whole.plans} == {whole.levels}
    assert whole.levels[0] < whole.levels[1]


def test_a_plan_with_chosen_levels_is_the_plan_of_these_levels() -> None:
    chosen = built()
    assert chosen == built(chosen.levels, fill_levels=True)
    assert Plan.decode(chosen.encode()) == chosen


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"rates": None}, "rates", "upload rate of each class"),
        ({"rates": [1.0, 2.0]}, "rates", "each of 3 classes"),
        ({"rates": "1,2,4"}, "rates", "each of 3 classes"),
        ({"rates": [1.0, 0.0, 2.0]}, "rates", "above 0"),
        ({"rates": [1.0, True, 2.0]}, "rates", "finite numbers"),
        ({"deadline": 0.001}, "deadline", "too short for two levels"),
        ({"deadline": -1.0}, "deadline", "above 0"),
        ({"levels": [2, 4, 8], "rates": [1.0, 2.0, 4.0]}, "rates", "no effect"),
        ({"levels": [2, 4, 8], "deadline": 1.0}, "deadline", "no effect"),
        ({"classes": [6] * 13, "rates": 1.0}, "levels", "up to 12 classes"),
    ],
)
def test_what_cannot_be_chosen_from_is_refused(changes: dict[str, object], field: str, words: str) -> None:
    with pytest.raises(PlanError, match=words) as caught:
        built(**changes)
    assert caught.value.field == field
