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


@each("limit, value, size", [("_TOGETHER", 3, 3), ("_COUNTS", 17, 1), ("_COUNTS", 8, 1), ("_EXPONENT", 7.0, 3)])
def test_trials_are_cut_at_each_of_the_limits(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: float, size: int
) -> None:
    """A trial of order 8 has an exponent of 2.3; a single trial is never cut, however many users count."""
    [one] = upper_bounds(9, size, 0.125, [8.0])
    with monkeypatch.context() as patch:
        patch.setattr(bound, limit, value)
        [pieces] = upper_bounds(9, 2 * size, 0.125, [8.0])
    assert pieces == pytest.approx(2 * one, rel=1e-12)


def test_a_bound_is_made_larger_for_the_arithmetic_of_single_numbers() -> None:
    found, inner = upper_bounds(5, 2, 0.125, [8.0])[0], bound._bound(5, 2, 0.125, 8.0)
    assert Fraction(found) / Fraction(inner) - 1 == pytest.approx(2.0**-30, rel=1e-3)


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


@each("honest, trials, rows", [(9, 1, 1000), (40, 1, 14), (30, 2, 7), (7, 3, 18), (1, 2, 1000), (400, 1, 30)])
def test_every_distribution_of_the_others_is_covered(
    monkeypatch: pytest.MonkeyPatch, honest: int, trials: int, rows: int
) -> None:
    """Those from a head on, as many as there are trials fewer, by that head; in windows as wide as they must be."""
    order, theta, others = 4.0, 0.125, bound._others
    heads: list[tuple[int, int]] = []
    counts: list[int] = []

    class Noted(bound._Rows):
        def __init__(self, others: Any, trials_of_all: int, *rest: Any) -> None:
            counts.append(trials_of_all)
            super().__init__(others, trials_of_all, *rest)

    def noted(count: int, theta: float, run: list[int], reach: float, size: int) -> Any:
        heads.extend((head, head + total - count) for head in run)
        needed = 2 * math.sqrt(count / 2 * (trials * order * math.log(1 / (1 - 2 * theta)) + 47))
        assert min(count + 1, needed) <= size <= min(count + 1, needed + 5)
        return others(count, theta, run, reach, size)

    total = (honest - 1) * trials
    with monkeypatch.context() as patch:
        patch.setattr(bound, "_others", noted)
        patch.setattr(bound, "_Rows", Noted)
        patch.setattr(bound, "_ROWS", rows)
        upper_bounds(honest, trials, theta, [order])
    assert {j for first, last in heads for j in range(first, last + 1)} == set(range(total + 1))
    assert len(heads) <= rows + 1
    assert set(counts) == {honest * trials}


@each("order", [1.1, 2.0, 2.0001, 2.5, 2.9999, 3.0, 3.5, 64.0])
def test_chords_are_used_near_zero_exactly_where_they_are_above(order: float) -> None:
    """For one trial, where the power with exponent order - 2 is convex."""
    assert bound._is_convex(1, order) == (0.5 ** (order - 2) + 1.5 ** (order - 2) >= 2)
    assert not bound._is_convex(2, order)


@each("honest, trials, order", [(9, 1, 32.0), (9, 4, 8.0), (20, 1, 2.5)])
def test_grids_go_up_to_theta_in_even_steps(honest: int, trials: int, order: float) -> None:
    points = bound._grid(honest, trials, 0.125, order)
    steps = points[1:] / points[:-1]
    assert points[-1] == 0.125
    assert 1.0 < steps.max() <= bound._RATIO + 1e-9
    assert steps == pytest.approx(steps[0])


def test_a_grid_of_nothing_but_theta() -> None:
    first = float(bound._grid(9, 1, 0.125, 32.0)[0])
    for theta in (first, first / 2):
        with np.errstate(all="raise"):
            assert list(bound._grid(9, 1, theta, 32.0)) == [theta]


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


def test_a_window_is_as_wide_as_hoeffding_says() -> None:
    count, reach = 2000, 60.0
    wide = bound._half_width(count, reach)
    outside = sum(math.comb(count, k) for k in range(count + 1) if abs(k - count / 2) > wide)
    assert 2 * math.exp(-1.1 * reach) < outside / 2**count <= 2 * math.exp(-reach)


@each("reach", [10.0, 40.0, 200.0])
def test_windows_hold_all_that_is_near_the_mean(reach: float) -> None:
    count, theta, heads = 100, 0.125, [0, 1, 35, 50, 99, 100]
    wide = bound._half_width(count, reach)
    rows = bound._others(count, theta, heads, reach, min(count + 1, 2 * math.ceil(wide) + 3))
    assert np.isfinite(rows).all()
    for row, head in zip(rows, heads, strict=True):
        exact = np.array(distribution([0.5 + theta] * head + [0.5 - theta] * (count - head)))
        mean = count * 0.5 + theta * (2 * head - count)
        near = [k for k in range(count + 1) if abs(k - mean) <= wide]
        start = int(exact.argmax() - row.argmax())
        assert near[0] >= start
        assert row[near[0] - start : near[-1] - start + 1] == pytest.approx(exact[near], rel=0.02, abs=0)


def test_lines_over_squares() -> None:
    for at_low, at_high in ((1.0, 1.1), (1.0, 3.0), (1.0, 8.0), (2.0, 2.0)):
        eta = np.linspace(1.0, 2.0, 10_001)
        line = at_low + (at_high - at_low) * (eta - 1.0)
        found = bound._steepest(np.array([1.0]), np.array([2.0]), np.array([[at_low]]), np.array([[at_high]]))
        assert found == pytest.approx(float((line / eta**2).max()), rel=1e-6)


@each("low, high", [(0.05, 0.1), (0.1, 0.125)])
def test_lines_that_hardly_rise_are_greatest_where_they_begin(low: float, high: float) -> None:
    found = bound._steepest(np.array([low]), np.array([high]), np.array([[1.0]]), np.array([[1.01]]))
    assert found == pytest.approx(1 / low**2)


@each("at_low, at_high", [(0.0, 0.0), (1.0, 1.0), (1.0, 2.0), (1e-200, 1e200)])
def test_lines_of_any_slope_raise_no_floating_point_error(at_low: float, at_high: float) -> None:
    with np.errstate(divide="raise", invalid="raise", over="raise"):
        found = bound._steepest(np.array([1.0]), np.array([2.0]), np.array([[at_low]]), np.array([[at_high]]))
    assert found >= max(at_low, at_high / 4)


def test_logarithms_of_chords() -> None:
    ends, heights = np.array([0.0, 0.5, 1.5]), np.array([[1.0, 1.2, 9.0]])
    eta = np.linspace(1e-3, 1.5, 30_001)
    chord = np.interp(eta, ends, heights[0])
    true = float((np.log1p(eta**2 * chord) / eta**2).max())
    assert true <= bound._greatest_logarithm(ends, heights) <= true * 1.02


def test_logarithms_of_chords_end_where_the_chords_do() -> None:
    rising = bound._greatest_logarithm(np.array([0.0, 1e-3]), np.array([[1.0, 2.0]]))
    assert rising == pytest.approx(2.0, rel=1e-4)  # the logarithm hardly matters there
    falling = bound._greatest_logarithm(np.array([1.0, 2.0]), np.array([[9.0, 0.0]]))
    assert falling == pytest.approx(math.log(10.0), rel=0.02)


# --- one distribution of the others -------------------------------------------------------------------------------


@each("trials, order", [(1, 2.0), (1, 2.5), (1, 64.0), (2, 8.0), (3, 1.5)])
def test_one_skewed_distribution_is_bounded_for_its_own_side(trials: int, order: float) -> None:
    """Not for both sides of one half: the mirror image of others is another distribution of others."""
    rest = [0.65, 0.7, 0.7]
    grid = bound._grid(4, trials, 0.125, order)
    found = bound._Rows(np.array([distribution(rest)]), 4 * trials, trials, order).bound(grid)
    fair = distribution([*rest, *[0.5] * trials])
    curve = []
    for eta in 0.125 * np.linspace(0.005, 1.0, 200):
        moved = distribution([*rest, *[0.5 + eta] * trials])
        curve.append(max(divergence(*pair, order) for pair in ((moved, fair), (fair, moved))) / eta**2)
    assert max(curve) * (1 - 1e-6) <= found <= max(curve) * 1.01


def test_one_distribution_of_many_others_is_bounded_as_well_between_orders_two_and_three() -> None:
    row = bound._others(499, 0.125, [0], 50.0, 500)
    two, between, three = (
        bound._Rows(row, 500, 1, order).bound(bound._grid(500, 1, 0.125, order)) / order for order in (2.0, 2.5, 3.0)
    )
    assert two / 1.001 <= between <= three * 1.001


@each("trials, order", [(1, 8.0), (2, 2.5), (2, bound.MAX_ORDER)])
def test_places_that_nobody_reaches_change_nothing(trials: int, order: float) -> None:
    values = distribution([0.5, 0.515625, 0.484375])
    grid = bound._grid(4, trials, 0.015625, order)
    with np.errstate(divide="raise", invalid="raise", over="raise"):
        bare, padded = (
            bound._Rows(np.pad([values], ((0, 0), (some, some))), 4 * trials, trials, order).bound(grid)
            for some in (0, 5)
        )
    assert padded == pytest.approx(bare, rel=1e-6)


@each("window, counts, trials, order", [(1, 1, 1, 2.0), (41, 40, 1, 512.0), (300, 500, 50, 1.1), (900, 3000, 1, 8.0)])
def test_rounding_errors_are_added_as_the_proof_says(window: int, counts: int, trials: int, order: float) -> None:
    """docs/concepts/privacy-proof.md, Numbers: the formula of the code, and the errors that it stands for."""
    rows = bound._Rows(np.full((1, window), 1 / window), counts, trials, order)
    length = window + trials
    units = rows._slack * 2.0**53
    assert units == pytest.approx((24 * counts + 100) * order + 4 * length + 2000, rel=1e-9)
    terms, tangents = (14 * counts + 61) * order + 7 * counts + 30, trials * counts * order / 8
    assert units > terms + tangents + length + 6 * math.exp(-47) * 2**53


# --- rows of the others, one by one -------------------------------------------------------------------------------


def skewed(falls: bool) -> Any:
    """Log-concave others, of whom r is far below 1 at a rare sum and little above it elsewhere; or the reverse."""
    found = 1.05 ** -np.arange(400.0)
    return (found if falls else found[::-1]) / found.sum()


def greatest(others: Any, trials: int, order: float, points: Any) -> float:
    """Of both divergences over eta^2, at these points."""
    fair = np.convolve(others, distribution([0.5] * trials)).tolist()
    found = []
    for eta in points:
        moved = np.convolve(others, distribution([0.5 + eta] * trials)).tolist()
        found.append(max(divergence(moved, fair, order), divergence(fair, moved, order)) / eta**2)
    return float(max(found))


@each(
    "falls, trials, order, close",
    [
        (True, 1, 2.5, 1.2),
        (False, 1, 2.5, 2.2),
        (True, 2, 1.1, 1.2),
        (False, 2, 1.1, 2.5),
        (True, 2, 8.0, 12.0),
        (False, 2, 8.0, 18.0),
        (True, 1, 1.5, 1.01),
        (False, 1, 1.5, 1.01),
    ],
)
def test_near_zero_both_directions_are_bounded(falls: bool, trials: int, order: float, close: float) -> None:
    end, others = 0.125, skewed(falls)
    true = greatest(others, trials, order, end * np.linspace(0.05, 1.0, 20))
    found = bound._Rows(others[None], 1, trials, order).bound(np.array([end]))
    assert true * (1 - 1e-9) <= found <= close * true


@each("trials, order", [(1, 64.0), (2, 32.0)])
@pytest.mark.parametrize("falls", [False, True])
def test_between_points_far_apart_both_directions_are_bounded(falls: bool, trials: int, order: float) -> None:
    """Where the greatest is at the last point, at the first, or within the first or the second step."""
    others = skewed(falls)
    for parts in ((0.1, 0.15, 0.2), (0.5, 0.7, 1.0), (0.3, 0.6, 0.8), (0.25, 0.4, 0.6)):
        grid = 0.125 * np.array(parts)
        true = greatest(others, trials, order, np.linspace(grid[0], grid[-1], 60))
        found = bound._Rows(others[None], 1, trials, order)._between(grid)
        assert true * (1 - 1e-9) <= found <= 1.06 * true


@each("points", range(2, 36))
def test_the_greatest_is_found_at_the_end_of_a_grid_of_any_size(points: int) -> None:
    """A user alone, order 2: -ln(1 - 4 eta^2) / eta^2 rises, and rounding errors are added to it."""
    grid: Any = 0.125 / 1.05 ** np.arange(points)[::-1]
    true = 64 * math.log(16 / 15)
    assert true < bound._Rows(np.ones((1, 1)), 1, 1, 2.0).bound(grid) <= true * (1 + 1e-9)


# --- rounding errors and what is outside, near zero ---------------------------------------------------------------


def test_near_zero_rounding_errors_of_sums_are_added() -> None:
    end = 3e-4
    true = -math.log1p(-4 * end**2) / end**2
    assert true <= bound._Rows(np.ones((1, 1)), 1, 1, 2.0).bound(np.array([end])) <= true * (1 + 1e-5)


@each("order, end", [(1.1, 0.05), (1.1, 0.125), (1.5, 0.03), (2.0, 0.01)])
def test_at_zero_a_bound_holds_though_the_others_have_rounding_errors(order: float, end: float) -> None:
    """The other's count is 0 or 1. Both divergences over eta^2 fall from order / 2 times 5/2, the sum of Q u^2."""
    counts = 500
    error = 7 * counts * 2.0**-53
    others = np.array([[0.25 * (1 + error), 0.75 * (1 - error)]])
    found = bound._Rows(others, counts, 1, order).bound(np.array([end]))
    assert order / 2 * 2.5 <= found <= order / 2 * 2.5 * (1 + 1e-8)


def test_near_zero_rounding_errors_of_slopes_are_added() -> None:
    """An error of r makes the slope of the chord of ln r wrong by this over the end; order 2, where r is rarely low."""
    end, counts, others = 3e-6, 500, skewed(falls=True)
    error = (14 * counts + 61) * 2.0**-53 / end
    fair = np.convolve(others, [0.25, 0.5, 0.25])
    change = np.convolve(others, [end**2 - end, -2 * end**2, end**2 + end])
    slopes = np.abs(np.log1p(change / fair)) / end
    found = bound._Rows(others[None], counts, 2, 2.0).bound(np.array([end]))
    assert np.sum(fair * (slopes + error) ** 2) <= found <= np.sum(fair * slopes**2) * (1 + 1e-5)


@each("trials, order", [(1, 3.0), (1, 100.0), (2, 3.0), (2, 100.0)])
def test_what_is_outside_is_added_near_zero(trials: int, order: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """As much as if all that may be outside had the greatest or the least likelihood ratio there is."""
    end = 0.01 / (order * trials)
    rows = bound._Rows(np.ones((1, 1)), 1, trials, order)
    found = []
    for tail in (0.0, 1000.0):
        monkeypatch.setattr(bound, "_TAIL", tail)
        found.append(rows.bound(np.array([end])))
    most = -trials * math.log1p(-2 * end)
    forward = math.expm1(order * most) - order * math.expm1(most)
    backward = math.expm1((order - 1) * most) + (order - 1) * math.expm1(-most)
    true = 6 * math.exp(-order * most) * max(forward, backward) / ((order - 1) * end**2)
    assert true <= found[0] - found[1] <= true * order / (order - 1) * 1.04
