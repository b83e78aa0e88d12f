"""Fits find what the points were made of, and their intervals widen with the noise."""

import doctest

import numpy as np
import pytest

from heterosag.errors import UsageError
from reproduction import fits
from reproduction.fits import Estimate, fit_floor, fit_line, fit_power


def test_exact_points_give_exact_numbers() -> None:
    x = [1.0, 2.0, 5.0, 9.0]
    constant, slope = fit_line(x, [4 - 3 * value for value in x])
    assert (constant.value, slope.value) == pytest.approx((4, -3))
    assert fit_power(x, [7 * value**1.5 for value in x]).value == pytest.approx(1.5)
    a, b = fit_floor(x, [20 / value + 0.25 for value in x])
    assert (a.value, b.value) == pytest.approx((20, 0.25))
    for found in (constant, slope, a, b):
        assert found.error == pytest.approx(0, abs=1e-9)


def test_standard_errors_are_those_of_ordinary_least_squares() -> None:
    """Against the textbook formula: s / sqrt(sum (x - mean)^2)."""
    rng = np.random.default_rng(0)
    x = np.linspace(0, 10, 30)
    y = 1 + 2 * x + rng.normal(0, 0.5, 30)
    _, slope = fit_line(x.tolist(), y.tolist())
    left = y - np.polyval(np.polyfit(x, y, 1), x)
    assert slope.error == pytest.approx(np.sqrt(left @ left / 28 / np.sum((x - x.mean()) ** 2)))


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(1)
    x = np.tile([16.0, 32.0, 64.0, 128.0], 5)
    hits = sum(
        fit_power(x.tolist(), (x**0.7 * np.exp(rng.normal(0, 0.1, x.size))).tolist()).contains(0.7) for _ in range(400)
    )
    assert 0.9 < hits / 400 < 0.99


def test_what_is_no_power_has_a_wide_interval() -> None:
    x = [16.0, 32.0, 64.0, 128.0]
    straight, curved = (fit_power(x, [a + value for value in x]) for a in (0.0, 50.0))
    assert straight.contains(1)
    assert curved.error > 100 * straight.error
    assert not curved.contains(1)


def test_a_floor_is_found_below_orders_of_magnitude() -> None:
    rng = np.random.default_rng(2)
    rounds = [1, 3, 10, 30, 100, 300, 1000]
    _, b = fit_floor(rounds, [(100 / j + 0.5) * np.exp(rng.normal(0, 0.02)) for j in rounds])
    assert b.contains(0.5)
    assert b.error < 0.05


def test_too_little_is_refused_and_an_estimate_prints_its_interval() -> None:
    with pytest.raises(UsageError, match="three points"):
        fit_line([1, 2], [1, 2])
    with pytest.raises(UsageError, match="different places"):
        fit_line([1, 1, 1], [1, 2, 3])
    with pytest.raises(UsageError, match="positive numbers"):
        fit_power([1, 2, 3], [1, 0, 1])
    with pytest.raises(UsageError, match="positive excess"):
        fit_floor([1, 2, 3], [1, -1, 1])
    one = Estimate(value=0.5, error=0.1)
    assert str(one) == "0.50 (0.30 to 0.70)"
    assert one.contains(0.3)
    assert not one.contains(0.71)


def test_the_examples_of_the_module_run() -> None:
    found = doctest.testmod(fits)
    assert found.attempted > 3
    assert found.failed == 0
