"""Ranges and limits of the privacy mechanism."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from cases import each, examples
from hypothesis import given
from hypothesis import strategies as st

from heterosag.errors import PlanError, UsageError
from heterosag.plan import Plan
from heterosag.plan.noise import MAX_THETA, MAX_TRIALS, coordinate_limit, least_level, noise_range


def test_ranges_are_those_of_the_formulas() -> None:
    found = noise_range(2.0, 0.5, 16, 4, 400)
    assert found.block_range == pytest.approx(2.0 * 0.5 * math.sqrt(4 / 16))
    assert found.coordinate_limit == pytest.approx(0.5 * 4 / math.sqrt(400))
    assert found.theta == pytest.approx(found.coordinate_limit / (2 * found.block_range))


def test_a_short_segment_may_hold_the_whole_norm_in_one_coordinate() -> None:
    assert [coordinate_limit(size) for size in (1, 16, 64)] == [1.0, 1.0, 0.5]


def test_theta_does_not_depend_on_the_clipping_norm() -> None:
    assert noise_range(2.0, 1e-9, 16, 4, 400).theta == noise_range(2.0, 1e9, 16, 4, 400).theta


@examples(100)
@given(st.floats(0.05, 50.0), st.integers(1, 2000), st.integers(1, 10**7))
def test_the_least_level_is_named_and_is_the_least(z: float, honest: int, size: int) -> None:
    level = least_level(z, honest, size)
    if level > MAX_TRIALS + 1:
        return
    assert noise_range(z, 1.0, honest, max(1, level - 1), size).theta <= MAX_THETA
    if level > 2:
        with pytest.raises(PlanError, match=f"take at least {level}, or more noise") as refusal:
            noise_range(z, 1.0, honest, level - 2, size)
        assert refusal.value.field == "levels"


def test_a_limit_that_is_just_met_is_met() -> None:
    """t = 16 h (r / z c)^2 exactly, in numbers that a float holds and in others."""
    assert noise_range(1.0, 1.0, 4, 64, 1).theta == MAX_THETA
    for honest in range(1, 200):
        z = 4.0 * math.sqrt(honest / 15)
        assert noise_range(z, 1.0, honest, 15, 7).theta == pytest.approx(MAX_THETA)


@each(
    "values, problem",
    [
        ((0.0, 1.0, 9, 1, 10), "noise multiplier"),
        ((math.nan, 1.0, 9, 1, 10), "noise multiplier"),
        ((3.0, 0.0, 9, 1, 10**4), "clipping norm"),
        ((3.0, math.inf, 9, 1, 10**4), "clipping norm"),
        ((3.0, 5e-324, 9000, 1, 10**6), "range of a float"),
        ((3.0, 1.0, 0, 1, 10), "honest is an integer, 1 or more"),
        ((3.0, 1.0, True, 1, 10), "honest"),
        ((3.0, 1.0, 9, 1.0, 10), "trials is an integer, 1 to 65535"),
        ((3.0, 1.0, 9, MAX_TRIALS + 1, 10), "trials"),
        ((3.0, 1.0, 9, 1, 0), "size"),
    ],
)
def test_numbers_without_meaning_are_refused(values: Any, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        noise_range(*values)


# --- plans --------------------------------------------------------------------------------------------------------


GOOD: dict[str, Any] = {
    "classes": [40],
    "levels": [2],
    "dimension": 2000,
    "design": "secagg",
    "subgroup_size": 40,
    "min_block_survivors": 32,
    "clipping_norm": 0.5,
    "noise_multiplier": 3.0,
}


def test_a_plan_with_noise_has_no_weights_is_rotated_and_sends_one_exact_lane() -> None:
    plan = Plan.build(**GOOD, max_weight=7)
    assert (plan.noise_multiplier, plan.honest, plan.clipping_norm) == (3.0, 31, 0.5)
    assert (plan.max_weight, plan.rotate, plan.lanes, plan.value_range) == (1, True, ("count",), (-0.5, 0.5))
    assert "weights are off under noise: every user counts alike" in plan.notes
    assert any(note.startswith("noise is counted on 31 honest survivors") for note in plan.notes)
    assert plan.noise_range(plan.segments[0], 2) == noise_range(3.0, 0.5, 31, 1, 2000)
    plain = Plan.build([40], [2], 2000, value_range=1.0, subgroup_size=40, design="secagg")
    assert (plain.noise_multiplier, plain.honest, plain.clipping_norm) == (0.0, 0, None)
    assert not any("noise" in note for note in plain.notes)
    assert not any("weights" in note for note in Plan.build(**GOOD).notes)


def test_the_error_is_that_of_the_noise_of_all_users() -> None:
    """z c sqrt(m / (h N)) in L2."""
    plan = Plan.build(**GOOD)
    assert math.sqrt(plan.quantization_error()) == pytest.approx(3.0 * 0.5 * math.sqrt(2000 / (31 * 40)))


@each(
    "change, field, problem",
    [
        ({"noise_multiplier": -1.0}, "noise_multiplier", "number from 0"),
        ({"noise_multiplier": math.nan}, "noise_multiplier", "number from 0"),
        ({"noise_multiplier": "much"}, "noise_multiplier", "number from 0"),
        ({"noise_multiplier": True}, "noise_multiplier", "number from 0"),
        ({"noise_multiplier": 0.0}, "clipping_norm", "give a noise_multiplier, or a value_range"),
        ({"noise_multiplier": 0.0, "clipping_norm": None}, "value_range", "must be given"),
        ({"noise_multiplier": 0.0, "clipping_norm": None, "value_range": 1.0, "honest": 5}, "honest", "noise"),
        ({"clipping_norm": None}, "clipping_norm", "must be given with a noise_multiplier"),
        ({"clipping_norm": 0.0}, "clipping_norm", "positive number"),
        ({"clipping_norm": math.inf}, "clipping_norm", "positive number"),
        ({"clipping_norm": True}, "clipping_norm", "positive number"),
        ({"clipping_norm": "1"}, "clipping_norm", "positive number"),
        ({"clipping_norm": 1e-250}, "clipping_norm", "range of a float"),
        ({"value_range": 1.0}, "value_range", "leave it out"),
        ({"honest": 0}, "honest", "1 to 31, the 32 least survivors"),
        ({"honest": 32}, "honest", "raise min_block_survivors"),
        ({"honest": 3.0}, "honest", "integer"),
        ({"honest": True}, "honest", "integer"),
        ({"colluders": 5, "min_block_survivors": 5}, "min_block_survivors", "raise it to 6 at least"),
        ({"metrics": ["loss"]}, "metrics", "leave them out"),
        ({"design": "multigroup", "subgroup_size": 20, "min_block_survivors": 16}, "design", "or `secagg`"),
        ({"noise_multiplier": 0.5}, "levels", "take at least 17"),
        ({"levels": [1 << 17]}, "levels", "more than the 65536"),
        ({"noise_multiplier": 5e-324}, "levels", "take at least"),
        ({"adaptive_clip": 1}, "adaptive_clip", "true or false"),
        (
            {"noise_multiplier": 0.0, "clipping_norm": None, "value_range": 1.0, "adaptive_clip": True},
            "adaptive_clip",
            "give a noise_multiplier too",
        ),
    ],
)
def test_a_plan_whose_noise_makes_no_sense_names_the_value_to_change(
    change: dict[str, Any], field: str, problem: str
) -> None:
    with pytest.raises(PlanError, match=problem) as refusal:
        Plan.build(**GOOD | change)
    assert refusal.value.field == field


def test_the_least_level_that_is_named_is_enough() -> None:
    assert Plan.build(**GOOD | {"noise_multiplier": 0.5, "levels": [17]}).levels == (17,)


@each("multiplier", [5e-324, 1e-200, 1e-100])
def test_hardly_any_noise_needs_more_levels_than_there_are(multiplier: float) -> None:
    options = {"design": "secagg", "subgroup_size": 20, "clipping_norm": 1.0, "min_block_survivors": 15}
    with pytest.raises(PlanError, match="levels are too few"):
        Plan.build([20], [16], 100, noise_multiplier=multiplier, **options)


def test_designs_with_noise() -> None:
    """Blocks of two subgroups hide in both; one that is alone in a segment is a star."""
    wide = {"classes": [64], "subgroup_size": 8, "dimension": 9000, "min_block_survivors": 12, "colluders": 2}
    plan = Plan.build(**GOOD | wide | {"design": "perfect", "min_survivors": 4})
    assert plan.honest == 10
    assert not plan.design.has_star
    with pytest.raises(PlanError, match="blocks of one subgroup"):
        Plan.build(**GOOD | wide | {"design": "paper-composite", "min_survivors": 4, "min_block_survivors": 6})


def test_a_plan_with_noise_goes_through_bytes_toml_and_replace() -> None:
    plan = Plan.build(**GOOD, honest=20)
    assert Plan.decode(plan.encode()) == plan
    assert Plan.from_toml(plan.to_toml()) == plan
    assert "clipping_norm = 0.5\nnoise_multiplier = 3.0\nhonest = 20\n" in plan.to_toml()
    assert "value_range" not in plan.to_toml()
    assert Plan.build(**plan.arguments()) == plan
    more = dataclasses.replace(plan, noise_multiplier=4.0)
    assert (more.noise_multiplier, more.honest, more.clipping_norm) == (4.0, 20, 0.5)
    assert more.digest != plan.digest
    with pytest.raises(PlanError, match="stands for a clipping norm"):
        dataclasses.replace(plan, value_range=(-1.0, 2.0))


def test_the_clipping_norm_may_follow_and_the_frame_stays() -> None:
    plan = Plan.build(**GOOD)
    wider = plan.with_value_range(2.0)
    assert wider.clipping_norm == 2.0
    assert wider.frame == plan.frame
    assert wider.digest != plan.digest == wider.with_value_range(0.5).digest
    assert Plan.build(**GOOD | {"noise_multiplier": 3.1}).frame != plan.frame
    assert Plan.build(**GOOD | {"honest": 30}).frame != plan.frame
    with pytest.raises(PlanError, match="stands for a clipping norm"):
        plan.with_value_range((-1.0, 2.0))


def test_toml_needs_the_norm_with_noise_and_the_range_without() -> None:
    text = Plan.build(**GOOD).to_toml()
    for gone, missing in (("clipping_norm", "clipping_norm"), ("noise_multiplier", "value_range")):
        lines = [line for line in text.splitlines() if not line.startswith((gone, "digest"))]
        with pytest.raises(PlanError, match=rf"missing keys \['{missing}'\]"):
            Plan.from_toml("\n".join(lines))


def test_an_adaptive_clip_is_one_more_element_of_everybody() -> None:
    plain = Plan.build(**GOOD | {"levels": [4]})
    plan = Plan.build(**GOOD | {"levels": [4]}, adaptive_clip=True)
    *segments, bit = plan.cells(0)
    assert segments == list(plain.cells(0))
    assert (bit.segment, bit.start, bit.size, bit.lanes) == (1, 2000, 1, ("count",))
    assert (bit.block.level, bit.block.users, bit.bits) == (17, 40, 10)
    assert plan.vector_sizes()[0] == plain.vector_sizes()[0] + 2 + 8
    assert plan.frame != plain.frame
    assert Plan.decode(plan.encode()) == plan == Plan.from_toml(plan.to_toml())
    assert dataclasses.replace(plan, noise_multiplier=4.0).adaptive_clip


def test_levels_that_a_client_must_account_for_are_few() -> None:
    """Each takes up to seconds, and a plan of a few kB could have hundreds."""

    def build(classes: int) -> Plan:
        return Plan.build(
            [4] * classes, [200 + 8 * one for one in range(classes)], 100_000, subgroup_size=4, min_block_survivors=8,
            fill_levels=False, clipping_norm=1.0, noise_multiplier=50.0,
        )  # fmt: skip

    assert {block.level for segment in build(8).segments for block in segment.blocks} <= {200 + 8 * i for i in range(8)}
    with pytest.raises(PlanError, match="11 different ones, and with noise at most 8"):
        build(12)
