"""From arguments to structure: what a plan is made of, and what is refused; a replaced value makes it anew."""

from dataclasses import replace
from typing import Any

import pytest
from cases import each
from paper_plan import PAPER

import heterosag
from heterosag.errors import PlanError
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
    with pytest.raises((ValueError, TypeError), match="init=False"):  # a TypeError from Python 3.13 on
        replace(plan, agree_quorum=1)
