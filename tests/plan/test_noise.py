"""Ranges and limits of the privacy mechanism."""

from __future__ import annotations

import doctest
import math
from typing import Any

import pytest
from cases import each, examples
from hypothesis import given
from hypothesis import strategies as st

from heterosag.errors import PlanError, UsageError
from heterosag.plan import noise
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


def test_examples_run() -> None:
    assert doctest.testmod(noise).failed == 0
