"""The plan: what it holds and states, and how its range is replaced."""

from dataclasses import replace

import numpy as np
import pytest
from paper_plan import PAPER

from heterosag.errors import PlanError, UsageError
from heterosag.plan import Plan
from heterosag.plan.ranges import best_width, deviations


def test_every_level_has_a_width_of_its_own() -> None:
    """As is best for so many levels and all users; the slow class has the narrow range."""
    plan = Plan.build([6, 6, 6, 6], [2, 4, 16, 256], 1000, value_range=0.3, subgroup_size=3)
    found = {block.level: plan.range_of(block) for segment in plan.segments for block in segment.blocks}
    assert sorted(found) == [2, 4, 16, 256]
    for level, (low, high) in found.items():
        assert high == -low == pytest.approx(0.1 * deviations(best_width(level, 24)))
    assert sorted(found.values(), reverse=True) == [found[level] for level in sorted(found)]
    single = replace(plan, ranges="single")
    assert {single.range_of(block) for segment in single.segments for block in segment.blocks} == {(-0.3, 0.3)}
    assert single.frame != plan.frame


def test_scales_move_with_the_range_and_the_frame_stays() -> None:
    plan = Plan.build([12], [4], 10, value_range=0.3, subgroup_size=3, arrays=[4, 1, 5])
    assert plan.half_widths == (0.3,)
    assert plan.array_widths == ((plan.dimension, 0.3),)
    assert list(plan.scaled_parts(0, 10)) == []
    moved = plan.with_value_range(0.6, [1.0, 0.5, 8])
    assert moved.half_widths == pytest.approx((0.6, 0.3, 4.8))
    assert moved.array_widths == tuple(zip(moved.arrays, moved.half_widths, strict=True))
    assert list(moved.scaled_parts(0, 10)) == [(0, 4, 1.0), (4, 5, 0.5), (5, 10, 8.0)]
    assert list(moved.scaled_parts(3, 7)) == [(3, 4, 1.0), (4, 5, 0.5), (5, 7, 8.0)]
    assert list(moved.scaled_parts(4, 5)) == [(4, 5, 0.5)]
    assert moved.frame == plan.frame != Plan.build([12], [4], 10, value_range=0.3, subgroup_size=3).frame
    assert moved.with_value_range(0.6).digest == moved.digest != plan.with_value_range(0.6).digest
    assert Plan.decode(moved.encode()) == moved == Plan.from_toml(moved.to_toml())
    assert replace(moved, scales=[1.0, 0.5, 8.0]) == moved


def test_survivors_decide_about_robustness() -> None:
    plan = Plan.build([32], [4], 700, value_range=1.0, subgroup_size=4)  # eight subgroups, seven segments, no star
    everyone = set(plan.users)
    assert plan.inference_robustness(everyone) == plan.inference_robustness() == 6 / 7
    assert plan.inference_robustness(everyone - {0, 1, 2}) == 6 / 7
    assert plan.inference_robustness(everyone - set(range(4))) == 6 / 7
    assert plan.inference_robustness(everyone - set(range(8))) == 5 / 7
    assert plan.lost_subgroups(everyone - set(range(4))) == {0}
    assert plan.byzantine_tolerance(everyone - set(range(24))) == 0
    with pytest.raises(UsageError, match="77 is not a user"):
        plan.inference_robustness({77})


def test_another_value_range_makes_the_plan_that_build_would() -> None:
    plan = Plan.build(**PAPER, assignment_seed=3)
    moved = plan.with_value_range((-0.25, 0.5))
    assert moved == Plan.build(**{**PAPER, "value_range": (-0.25, 0.5)}, assignment_seed=3)
    assert moved.digest == Plan.build(**{**PAPER, "value_range": (-0.25, 0.5)}, assignment_seed=3).digest
    assert moved.digest != plan.digest
    with pytest.raises(PlanError, match="value_range"):
        plan.with_value_range((1.0, 0.0))


def test_a_range_is_refused_alike_however_it_is_given() -> None:
    plan = Plan.build(**PAPER)
    for narrow in ((0, 5e-324), (0.0, 1e-308)):
        with pytest.raises(PlanError, match="too narrow") as first:
            Plan.build(**{**PAPER, "value_range": narrow})
        with pytest.raises(PlanError, match="too narrow") as second:
            plan.with_value_range(narrow)
        assert str(first.value) == str(second.value)


def test_one_number_is_the_half_width_of_a_range_around_zero() -> None:
    plan = Plan.build(**{**PAPER, "value_range": 0.25})
    assert plan.value_range == (-0.25, 0.25)
    assert plan == Plan.build(**PAPER).with_value_range(np.float32(0.25))
    assert Plan.from_toml(plan.to_toml()).digest == plan.digest
    for wrong in (0, -1.0, float("nan"), True, "1", None):
        with pytest.raises(PlanError, match="value range"):
            plan.with_value_range(wrong)  # type: ignore[arg-type]


def test_integers_of_numpy_make_the_same_plan() -> None:
    arguments = {"dimension": 40, "subgroup_size": 3, "min_survivors": 2, "max_weight": 5, "colluders": 1}
    ours, theirs = (
        Plan.build([6, 6], [2, 5], value_range=1.0, **{name: kind(value) for name, value in arguments.items()})
        for kind in (int, np.int64)
    )
    assert ours == theirs
    assert ours.digest == theirs.digest
    assert Plan.decode(theirs.encode()) == ours


def test_a_negative_zero_is_a_zero() -> None:
    for name, zero, other in (
        ("dropout", 0.0, -0.0),
        ("min_robustness", 0.0, -0.0),
        ("value_range", (0.0, 1.0), (-0.0, 1.0)),
    ):
        one, two = (Plan.build(**(PAPER | {name: value})) for value in (zero, other))
        assert one == two
        assert (one.digest, one.frame) == (two.digest, two.frame)


def test_an_assignment_matters_where_there_are_blocks_or_neighbours() -> None:
    one_block = {"design": "secagg", "value_range": 1.0}
    assert Plan.build([6, 6], [2, 5], 40, value_range=1.0, subgroup_size=3).assignment_matters
    assert not Plan.build([12], [4], 40, subgroup_size=12, **one_block).assignment_matters
    assert Plan.build([300], [4], 40, subgroup_size=300, **one_block).assignment_matters
