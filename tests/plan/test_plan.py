"""The plan: what it holds and states, and how its range is replaced."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cases import each
from paper_plan import PAPER

import heterosag
from heterosag.errors import PlanError, UsageError
from heterosag.plan import Plan
from heterosag.plan.ranges import best_width, deviations


def test_the_papers_first_experiment() -> None:
    plan = heterosag.Plan.build(
        classes=[5, 5, 5, 5, 5],
        levels=[2, 6, 8, 10, 12],
        dimension=79510,
        design="perfect",
        value_range=(-1.0, 1.0),
        subgroup_size=5,
        min_survivors=3,
        max_weight=1,
        min_robustness=None,
        colluders=0,
        users=None,
        assignment_seed=None,
    )
    assert plan.users == tuple(range(25))
    assert [subgroup.members for subgroup in plan.subgroups] == [tuple(range(5 * g, 5 * g + 5)) for g in range(5)]
    assert plan.inference_robustness() == 0.8
    assert plan.byzantine_tolerance() == 1
    assert plan.min_robustness == 0.8
    assert plan.share_threshold == plan.agree_quorum == 13
    assert [segment.size for segment in plan.segments] == [15902] * 5


def theorem_2(levels: list[int], users: int, dimension: int, low: float, high: float) -> float:
    """sigma^2 of Theorem 2, as printed (for one subgroup a class)."""
    groups = len(levels)
    total = sum((2 * (groups - g) - 1) / (k - 1) ** 2 for g, k in enumerate(levels))
    return (high - low) ** 2 / (4 * users**2) * dimension / groups * (users / groups) * total


def test_quantization_error_is_theorem_2() -> None:
    plan = Plan.build(**{**PAPER, "value_range": (-0.5, 2.0)})
    assert plan.quantization_error() == pytest.approx(theorem_2([2, 6, 8, 10, 12], 25, 79510, -0.5, 2.0))


@each("counts", [(1, 2, 2), (2, 1, 2), (3, 3, 1), (1, 1, 5)])
def test_quantization_error_is_lemma_2(counts: tuple[int, ...]) -> None:
    levels, size, dimension = [2, 4, 9], 4, 700
    z = sum(counts)
    plan = Plan.build(
        [size * c for c in counts],
        levels,
        dimension - dimension % z,
        design="paper-composite",
        value_range=1.0,
        ranges="single",
        subgroup_size=size,
    )
    users = size * z
    total = sum(
        sum(2 * (z - sum(counts[:g]) - j) - 1 for j in range(counts[g])) / (levels[g] - 1) ** 2 for g in range(3)
    )
    expected = 4 / (4 * users**2) * plan.dimension / z * size * total
    assert plan.quantization_error() == pytest.approx(expected)


@each("parts", [1, 2, 3, 7])
def test_proposition_1_more_subgroups_do_not_change_the_error(parts: int) -> None:
    """Algorithm 1 with every class cut into the same number of subgroups."""
    size = 84 // parts
    plan = Plan.build(
        [84] * 3, [2, 5, 9], 2520, design="paper-composite", value_range=1.0, ranges="single", subgroup_size=size
    )
    assert len(plan.subgroups) == 3 * parts
    assert plan.quantization_error() == pytest.approx(theorem_2([2, 5, 9], 252, 2520, -1.0, 1.0))


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


def test_noise_and_bias_are_named_apart() -> None:
    """Of Gaussian elements: the bound on rounding holds what is inside, the bias what is clipped, all users alike."""
    plan = Plan.build([12], [4], 4000, value_range=0.3, subgroup_size=3)
    single = replace(plan, ranges="single")
    assert single.clip_bias() == 0.0
    assert single.error_bound() == single.quantization_error()
    element = np.random.default_rng(0).normal(0, 0.1, 4000)
    h = plan.range_of(plan.segments[0].blocks[0])[1]
    assert np.sum((np.clip(element, -h, h) - element) ** 2) == pytest.approx(plan.clip_bias(), rel=0.2)
    assert 4000 * (2 * h / 3) ** 2 / 4 / 12 == pytest.approx(plan.quantization_error())
    assert plan.error_bound() == plan.quantization_error() + plan.clip_bias() < single.error_bound()


def test_scales_move_with_the_range_and_the_frame_stays() -> None:
    plan = Plan.build([12], [4], 10, value_range=0.3, subgroup_size=3, arrays=[4, 1, 5])
    assert plan.half_widths == (0.3,)
    assert list(plan.scaled_parts(0, 10)) == []
    moved = plan.with_value_range(0.6, [1.0, 0.5, 8])
    assert moved.half_widths == pytest.approx((0.6, 0.3, 4.8))
    assert list(moved.scaled_parts(0, 10)) == [(0, 4, 1.0), (4, 5, 0.5), (5, 10, 8.0)]
    assert list(moved.scaled_parts(3, 7)) == [(3, 4, 1.0), (4, 5, 0.5), (5, 7, 8.0)]
    assert list(moved.scaled_parts(4, 5)) == [(4, 5, 0.5)]
    assert moved.frame == plan.frame != Plan.build([12], [4], 10, value_range=0.3, subgroup_size=3).frame
    assert moved.with_value_range(0.6).digest == moved.digest != plan.with_value_range(0.6).digest
    assert Plan.decode(moved.encode()) == moved == Plan.from_toml(moved.to_toml())
    assert replace(moved, scales=[1.0, 0.5, 8.0]) == moved


@each(
    "wrong, field",
    [
        ({"ranges": "double"}, "ranges"),
        ({"value_range": (0.1, 0.2)}, "value_range"),
        ({"value_range": 1e308, "levels": [2**32]}, "value_range"),
        ({"arrays": [4, 5]}, "arrays"),
        ({"arrays": "45"}, "arrays"),
        ({"arrays": [0, 10]}, "arrays[0]"),
        ({"arrays": [4, 6], "scales": [1.0]}, "scales"),
        ({"scales": [1.0]}, "scales"),
        ({"arrays": [4, 6], "scales": [1.0, 0.0]}, "scales[1]"),
        ({"arrays": [4, 6], "scales": [float("nan"), 1.0]}, "scales[0]"),
        ({"arrays": [4, 6], "scales": [True, 1.0]}, "scales[0]"),
        ({"arrays": [4, 6], "scales": [1e30, 1.0]}, "scales[0]"),
    ],
)
def test_ranges_and_scales_that_make_no_sense(wrong: dict[str, Any], field: str) -> None:
    good: dict[str, Any] = {"classes": [12], "levels": [4], "dimension": 10, "value_range": 1.0, "subgroup_size": 3}
    with pytest.raises(PlanError) as refusal:
        Plan.build(**good | wrong)
    assert refusal.value.field == field


def test_weights_cost_no_bits_and_no_error_when_all_are_the_largest() -> None:
    plan = Plan.build([12], [4], 60, value_range=1.0, subgroup_size=3, max_weight=10)
    plain = Plan.build([12], [4], 60, value_range=1.0, subgroup_size=3)
    assert plan.quantization_error() == plain.quantization_error()
    assert [block.bits for block in plan.blocks_of(0)] == [block.bits for block in plain.blocks_of(0)]
    with pytest.raises(PlanError, match="must contain zero"):
        Plan.build([12], [4], 60, value_range=(0.1, 1.0), subgroup_size=3, max_weight=10)


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


def test_a_replaced_value_builds_the_plan_anew() -> None:
    """Parties bind the digest, so no field of a plan may be changed behind it."""
    plan = Plan.build(**PAPER)
    assert plan.digest, plan.vector_sizes()  # known, and not to be kept
    looser = replace(plan, min_survivors=2)
    kept = {"min_robustness": plan.min_robustness, "min_block_survivors": 3, "colluders": 1}
    assert looser == Plan.build(**PAPER, min_survivors=2, **kept)
    assert looser.digest not in (b"", plan.digest)
    weighted = replace(plan, max_weight=4)
    assert weighted.vector_sizes() == Plan.build(**PAPER, max_weight=4).vector_sizes() > plan.vector_sizes()  # a lane
    assert replace(plan) == plan
    assert replace(plan).digest == plan.digest
    with pytest.raises(PlanError, match="min_survivors"):
        replace(plan, min_survivors=6)
    with pytest.raises(ValueError, match="init=False"):
        replace(plan, agree_quorum=1)


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
