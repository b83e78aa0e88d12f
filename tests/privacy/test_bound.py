"""The certified bound: never below what any other users can do, and close above it."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import each, examples
from hypothesis import given
from hypothesis import strategies as st

from heterosag.privacy import bound
from heterosag.privacy.accounting import rho
from heterosag.privacy.bound import upper_bounds

CERTIFIED = json.loads((Path(__file__).parent / "certified.json").read_text(encoding="utf-8"))
TIGHT = 1.002
"""How far above what somebody can do a bound may be; some are sums of bounds of pieces."""


def certified() -> list[tuple[int, int, float, list[float], list[float]]]:
    found = []
    for key, values in CERTIFIED["values"].items():
        honest, trials, theta = key.split(",")
        found.append((int(honest), int(trials), float(theta), values["lower"], values["upper"]))
    return found


def check_between(honest: int, trials: int, theta: float, lower: list[float], upper: list[float]) -> None:
    for found, low, high in zip(rho(honest, trials, theta, CERTIFIED["orders"]), lower, upper, strict=True):
        assert low * (1 - 1e-9) <= found <= high * TIGHT


@each("row", [row for row in certified() if row[0] * row[1] < 150])
def test_bounds_are_between_what_was_certified(row: Any) -> None:
    check_between(*row)


@pytest.mark.slow
@each("row", [row for row in certified() if row[0] * row[1] >= 150])
def test_large_bounds_are_between_what_was_certified(row: Any) -> None:
    check_between(*row)


@each("honest, trials, theta, place", [(32, 15, 0.125, 2), (100, 15, 0.0625, 0), (100, 3, 0.125, 4)])
def test_one_order_of_large_bounds(honest: int, trials: int, theta: float, place: int) -> None:
    [(lower, upper)] = [(low, up) for h, t, limit, low, up in certified() if (h, t, limit) == (honest, trials, theta)]
    [found] = rho(honest, trials, theta, [CERTIFIED["orders"][place]])
    assert lower[place] * (1 - 1e-9) <= found <= upper[place] * TIGHT


# --- against brute force ------------------------------------------------------------------------------------------


def distribution(probabilities: list[Any]) -> list[Any]:
    """Of the number of successes, in whatever numbers the probabilities are."""
    found = [probabilities[0] * 0 + 1]
    for p in probabilities:
        fail, success = [*(q * (1 - p) for q in found), 0], [0, *(q * p for q in found)]
        found = [a + b for a, b in zip(fail, success, strict=True)]
    return found


def divergence(left: list[float], right: list[float], order: float) -> float:
    logs = order * np.log(np.array(left)) + (1 - order) * np.log(np.array(right))
    top = float(logs.max())
    return (top + math.log(math.fsum(np.exp(logs - top)))) / (order - 1)


ORDERS = (1.1, 2.0, 2.5, 6.0, 17.0, 64.0, 512.0)


@examples(150)
@given(
    honest=st.integers(1, 8),
    trials=st.integers(1, 4),
    theta=st.sampled_from((0.125, 0.0625)),
    order=st.sampled_from(ORDERS),
    part=st.floats(-1.0, 1.0).filter(lambda part: abs(part) > 1e-3),
    others=st.data(),
)
def test_no_profile_of_others_is_above_the_bound(
    honest: int, trials: int, theta: float, order: float, part: float, others: Any
) -> None:
    """Others of any probabilities within theta of one half, trial by trial: extremes and what is between."""
    count = (honest - 1) * trials
    where = st.one_of(st.sampled_from((-1.0, 1.0)), st.floats(-1.0, 1.0))
    rest = [0.5 + theta * place for place in others.draw(st.lists(where, min_size=count, max_size=count))]
    eta = part * theta
    left, right = distribution([*rest, *[0.5 + eta] * trials]), distribution([*rest, *[0.5] * trials])
    limit = float(rho(honest, trials, theta, [order])[0]) * eta**2
    for one, other in ((left, right), (right, left)):
        assert divergence(one, other, order) <= limit + 1e-12


@each("honest, trials, order", [(2, 1, 2), (4, 1, 5), (3, 2, 3), (5, 1, 32), (2, 3, 8), (1, 2, 4)])
def test_bounds_hold_in_exact_arithmetic(honest: int, trials: int, order: int) -> None:
    theta = Fraction(1, 8)
    [limit] = rho(honest, trials, 0.125, [order])
    best = 0.0
    count = (honest - 1) * trials
    for heads in range(count + 1):
        rest = [Fraction(1, 2) + theta] * heads + [Fraction(1, 2) - theta] * (count - heads)
        for eta in (theta / 90, *(theta * Fraction(step, 16) for step in range(1, 17))):
            left = distribution([*rest, *[Fraction(1, 2) + eta] * trials])
            right = distribution([*rest, *[Fraction(1, 2)] * trials])
            for one, other in ((left, right), (right, left)):
                total = sum(a**order / b ** (order - 1) for a, b in zip(one, other, strict=True))
                best = max(best, math.log1p(float(total - 1)) / ((order - 1) * float(eta) ** 2))
    assert best <= limit <= best * 1.02


def test_the_greatest_is_found_between_the_ends_too() -> None:
    """Two honest users, order 32: the greatest is at a tenth of theta, where neither end nor a coarse grid shows it."""
    theta, order = 0.125, 32.0
    points = theta * np.linspace(0.005, 1.0, 800)
    rest = [0.5 - theta], [0.5 + theta]
    curve = []
    for eta in points:
        pairs = [(distribution([*one, 0.5 + eta]), distribution([*one, 0.5])) for one in rest]
        curve.append(max(divergence(*pair, order) for one in pairs for pair in (one, one[::-1])) / eta**2)
    place = int(np.argmax(curve))
    assert 0.05 < points[place] / theta < 0.2
    assert curve[place] > 1.2 * curve[-1]
    assert curve[place] <= upper_bounds(2, 1, theta, [order])[0] <= curve[place] * TIGHT


# --- how it changes -----------------------------------------------------------------------------------------------


def test_more_honest_users_cost_less_and_a_larger_theta_more() -> None:
    for order in (1.5, 4.0, 32.0):
        by_users = [float(rho(honest, 1, 0.125, [order])[0]) for honest in (1, 2, 3, 5, 9, 20, 60)]
        assert by_users == sorted(by_users, reverse=True)
        by_theta = [float(rho(9, 2, theta, [order])[0]) for theta in (0.001, 0.03, 0.06, 0.09, 0.125)]
        assert by_theta == sorted(by_theta)
        by_order = rho(9, 1, 0.125, [1.1, 1.5, 2.0, 2.5, 3.0, 8.0, 64.0, 512.0, 1024.0])
        assert list(by_order) == sorted(by_order)


def test_pieces_of_trials_cost_a_little_more_than_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    [whole] = upper_bounds(9, 8, 0.125, [8.0])
    monkeypatch.setattr(bound, "_COUNTS", 27)
    [pieces] = upper_bounds(9, 8, 0.125, [8.0])  # of 3, 3 and 2 trials
    assert whole < pieces < 1.02 * whole
    assert pieces == pytest.approx(2 * upper_bounds(9, 3, 0.125, [8.0])[0] + upper_bounds(9, 2, 0.125, [8.0])[0])


def test_many_trials_at_a_high_order_stay_finite() -> None:
    [found] = upper_bounds(3, 15, 0.125, [512.0])
    [one] = upper_bounds(3, 1, 0.125, [512.0])
    assert 10 * one < found <= 15 * one * 1.001


def test_runs_of_distributions_are_covered_by_one_with_fewer_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for order in (2.0, 2.5, 16.0, 64.0):
        [each_one] = upper_bounds(40, 1, 0.125, [order])
        with monkeypatch.context() as patch:
            patch.setattr(bound, "_ROWS", 14)
            [covered] = upper_bounds(40, 1, 0.125, [order])
        assert each_one <= covered <= 1.12 * each_one


def test_an_order_between_two_and_three_is_bounded_as_well_as_its_neighbours() -> None:
    """(alpha - 1) rho is convex in alpha, and rho / alpha hardly changes."""
    two, between, three = (upper_bounds(20, 1, 0.125, [order])[0] for order in (2.0, 2.5, 3.0))
    assert 1.5 * between <= (two + 2 * three) / 2 * TIGHT
    assert two / 2 / TIGHT <= between / 2.5 <= three / 3 * TIGHT


def test_a_thousand_users_are_close_to_gaussian_noise() -> None:
    for order in (2.0, 8.0):
        [found] = rho(1000, 1, 0.125, [order])
        variance = 999 * (0.25 - 0.125**2) + 0.25
        assert found == pytest.approx(order / (2 * variance), rel=0.01)


def test_ten_thousand_users_take_no_longer() -> None:
    [found] = rho(10_000, 1, 0.015625, [8.0])
    assert 2 * 8 / 10_000 < found < 2 * 8 / 10_000 * 1.005


# --- numbers ------------------------------------------------------------------------------------------------------


@each("count, probability", [(0, 0.625), (1, 0.375), (40, 0.625), (300, 0.375)])
def test_binomials_keep_their_relative_accuracy(count: int, probability: float) -> None:
    first, found = bound._binomial(count, probability, 200.0)
    p = Fraction(probability)
    for place, value in enumerate(found, start=first):
        exact = math.comb(count, place) * p**place * (1 - p) ** (count - place)
        assert abs(Fraction(float(value)) / exact - 1) <= (7 * count + 30) * 2.0**-53


def test_what_is_outside_a_window_is_less_than_it_says() -> None:
    reach = 60.0
    rows = bound._others(2000, 0.125, [0, 700, 2000], reach, 2 * math.ceil(bound._half_width(2000, reach)) + 3)
    assert rows.shape[1] < 600
    assert np.abs(1 - rows.sum(axis=1)).max() < 1e-12


def test_lines_over_squares() -> None:
    for at_low, at_high in ((1.0, 1.1), (1.0, 3.0), (1.0, 8.0), (2.0, 2.0)):
        eta = np.linspace(1.0, 2.0, 10_001)
        line = at_low + (at_high - at_low) * (eta - 1.0)
        found = bound._steepest(np.array([1.0]), np.array([2.0]), np.array([[at_low]]), np.array([[at_high]]))
        assert found == pytest.approx(float((line / eta**2).max()), rel=1e-6)


def test_logarithms_of_chords() -> None:
    ends, heights = np.array([0.0, 0.5, 1.5]), np.array([[1.0, 1.2, 9.0]])
    eta = np.linspace(1e-3, 1.5, 30_001)
    chord = np.interp(eta, ends, heights[0])
    true = float((np.log1p(eta**2 * chord) / eta**2).max())
    assert true <= bound._greatest_logarithm(ends, heights) <= true * 1.02
