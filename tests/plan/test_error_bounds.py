"""Bounds on the error of the mean: those of the paper, and what is rounded and clipped."""

from dataclasses import replace

import numpy as np
import pytest
from cases import each
from paper_plan import PAPER

from heterosag.errors import PlanError
from heterosag.plan import Plan


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


def test_weights_cost_no_bits_and_no_error_when_all_are_the_largest() -> None:
    plan = Plan.build([12], [4], 60, value_range=1.0, subgroup_size=3, max_weight=10)
    plain = Plan.build([12], [4], 60, value_range=1.0, subgroup_size=3)
    assert plan.quantization_error() == plain.quantization_error()
    assert [block.bits for block in plan.blocks_of(0)] == [block.bits for block in plain.blocks_of(0)]
    with pytest.raises(PlanError, match="must contain zero"):
        Plan.build([12], [4], 60, value_range=(0.1, 1.0), subgroup_size=3, max_weight=10)


def test_of_a_range_too_wide_for_squares_the_bounds_are_infinite() -> None:
    wide = Plan.build([6], [4], 10, value_range=1e200, subgroup_size=3)
    assert (wide.quantization_error(), wide.clip_bias()) == (float("inf"), float("inf"))


def test_a_plan_with_noise_takes_a_large_clipping_norm() -> None:
    options = {"design": "secagg", "subgroup_size": 20, "noise_multiplier": 3.0, "min_block_survivors": 15}
    large, one = (Plan.build([20], [8], 100, clipping_norm=norm, **options) for norm in (1e199, 1.0))
    assert Plan.decode(large.encode()).digest == large.digest
    assert large.quantization_error() == float("inf")
    assert large.notes == one.notes
