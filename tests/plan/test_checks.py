"""What a plan refuses, by the name of the argument, and what it takes where nothing is said."""

from typing import Any

import pytest
from cases import each
from paper_plan import PAPER

from heterosag.errors import PlanError
from heterosag.plan import Plan


def test_no_neighbour_fits() -> None:
    with pytest.raises(PlanError, match="29 or 26"):
        Plan.build([3] * 28, [2] * 28, 10_000, value_range=1.0, subgroup_size=3)


@each(
    "change, field",
    [
        ({"classes": []}, "classes"),
        ({"classes": [5, 0, 5, 5, 5]}, "classes[1]"),
        ({"classes": "55555"}, "classes"),
        ({"levels": [2, 6, 8, 10]}, "levels"),
        ({"levels": [2, 6, 8, 10, 9]}, "levels[4]"),
        ({"levels": [1, 6, 8, 10, 12]}, "levels[0]"),
        ({"levels": [2, 6, 8, 10, 2**33]}, "levels[4]"),
        ({"dimension": 4}, "dimension"),
        ({"dimension": 0}, "dimension"),
        ({"dimension": 7.5}, "dimension"),
        ({"design": "best"}, "design"),
        ({"design": "paper", "classes": [5] * 6, "levels": [2] * 6}, "design"),
        ({"value_range": (1.0, -1.0)}, "value_range"),
        ({"value_range": (0.0, float("inf"))}, "value_range"),
        ({"subgroup_size": 0}, "subgroup_size"),
        ({"min_survivors": 6}, "min_survivors"),
        ({"min_survivors": 1}, "min_survivors"),
        ({"min_survivors": "3"}, "min_survivors"),
        ({"min_survivors": None}, "min_survivors"),
        ({"classes": [1, 1], "levels": [2, 2]}, "min_survivors"),
        ({"max_weight": 0}, "max_weight"),
        ({"max_weight": 2**62}, "max_weight"),
        ({"min_robustness": 0.9}, "min_robustness"),
        ({"min_robustness": -0.1}, "min_robustness"),
        ({"colluders": -1}, "colluders"),
        ({"colluders": 25}, "colluders"),
        ({"colluders": 22}, "dropout"),
        ({"dropout": 0.5}, "dropout"),
        ({"dropout": 1.0}, "dropout"),
        ({"users": range(24)}, "users"),
        ({"users": [0] * 25}, "users"),
        ({"users": [*range(24), -1]}, "users"),
        ({"users": [*range(24), "a\nb"]}, "users"),
        ({"users": [*range(24), 1.5]}, "users"),
        ({"assignment_seed": -1}, "assignment_seed"),
        ({"assignment_seed": b""}, "assignment_seed"),
        ({"sharing": "ring"}, "sharing"),
        ({"users": 5}, "users"),
        ({"users": "abcde"}, "users"),
        ({"design": [1]}, "design"),
        ({"classes": [2**40], "levels": [2]}, "classes"),
        ({"value_range": (0.0, 1e-303), "levels": [2**20] * 5}, "value_range"),
        ({"value_range": (0.0, 1e-310)}, "value_range"),
        ({"metrics": "loss"}, "metrics"),
        ({"metrics": ["loss", "loss"]}, "metrics"),
        ({"metrics": ["count"]}, "metrics"),
        ({"metrics": [""]}, "metrics"),
        ({"metrics": ["loss"], "classes": [2**15], "levels": [2], "subgroup_size": 2**10}, "metrics"),
    ],
)
def test_nonsense_is_refused_by_name(change: dict[str, Any], field: str) -> None:
    with pytest.raises(PlanError) as refusal:
        Plan.build(**{**PAPER, **change})
    assert refusal.value.field == field
    assert str(refusal.value).startswith(f"{field}: ")


@each(
    "change, remedy",
    [
        ({"min_survivors": 6}, {"min_survivors": 5}),
        ({"levels": [2, 6, 8, 10, 9]}, {"levels": [2, 6, 8, 10, 10]}),
        ({"min_robustness": 0.9}, {"min_robustness": 0.8}),
        ({"dropout": 0.5}, {"dropout": 0.44}),
        ({"design": "paper", "classes": [5] * 6, "levels": [2] * 6}, {"design": "paper-composite"}),
    ],
)
def test_the_refusal_names_a_value_that_works(change: dict[str, Any], remedy: dict[str, Any]) -> None:
    with pytest.raises(PlanError) as refusal:
        Plan.build(**{**PAPER, **change})
    (value,) = remedy.values()
    assert str(value[-1] if isinstance(value, list) else value) in str(refusal.value)
    Plan.build(**{**PAPER, **change, **remedy})


def test_every_subgroup_has_its_least_survivors_where_there_are_several_blocks() -> None:
    base: dict[str, Any] = {"classes": [8], "levels": [2], "dimension": 100, "value_range": 1.0, "subgroup_size": 2}
    with pytest.raises(PlanError, match="the 2 users of subgroup 0"):
        Plan.build(**base, min_survivors=3)
    assert Plan.build(**base, min_survivors=2).min_block_survivors == 2
    assert Plan.build(**base, min_survivors=2, min_block_survivors=4).min_block_survivors == 4
    with pytest.raises(PlanError, match="the 4 users of the smallest block") as refusal:
        Plan.build(**base, min_survivors=2, min_block_survivors=5)
    assert refusal.value.field == "min_block_survivors"
    assert Plan.build(**base, design="secagg", min_survivors=3).min_block_survivors == 3


def test_colluders_are_what_the_least_survivors_hide_from_unless_said() -> None:
    base: dict[str, Any] = {"classes": [40], "levels": [2], "dimension": 100, "value_range": 1.0, "subgroup_size": 8}
    assert Plan.build(**base).colluders == 1
    assert Plan.build(**base, min_survivors=5).colluders == 3
    assert Plan.build(**base, colluders=0).agree_quorum == 21
    assert Plan.build(**{**base, "classes": [41]}).agree_quorum == 22


def test_a_plan_needs_a_range() -> None:
    with pytest.raises(PlanError, match="value_range: must be given"):
        Plan.build([5], [2], 9)
    with pytest.raises(PlanError, match="value_range"):
        Plan.from_toml("classes = [5]\nlevels = [2]\ndimension = 9\n")


def test_a_design_with_several_blocks_in_any_segment_protects_subgroups() -> None:
    """The paper's design of two subgroups codes one segment together and leaves both alone in the other."""
    plan = Plan.build([8], [2], 100, design="paper", value_range=1.0, subgroup_size=4)
    assert [len(segment.blocks) for segment in plan.segments] == [1, 2]
    assert plan.has_several_blocks
    with pytest.raises(PlanError, match="users of subgroup"):
        Plan.build([5], [2], 100, design="paper", value_range=1.0, subgroup_size=2)
