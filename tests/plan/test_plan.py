"""The plan: what it holds and states, and how its range is replaced."""

from dataclasses import replace

import numpy as np
import pytest
from cases import each
from paper_plan import PAPER

import heterosag
from heterosag.errors import PlanError, UsageError
from heterosag.plan import Plan


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
    plan = Plan.build([84] * 3, [2, 5, 9], 2520, design="paper-composite", value_range=1.0, subgroup_size=size)
    assert len(plan.subgroups) == 3 * parts
    assert plan.quantization_error() == pytest.approx(theorem_2([2, 5, 9], 252, 2520, -1.0, 1.0))


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
