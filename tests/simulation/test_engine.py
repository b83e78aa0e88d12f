"""The embedded engine: what goes in, what comes back, what is measured."""

import logging
import re

import numpy as np
import pytest
from aggregated import UPDATES, plan_of

import heterosag
from heterosag import Simulation, aggregate
from heterosag.aggregation.rules import Rule
from heterosag.errors import (
    FaultyBlockError,
    TooFewSurvivorsError,
    UsageError,
)
from heterosag.plan import Plan
from heterosag.protocol import RoundId
from heterosag.simulation.engine import rounding_error_of


def test_arrays_come_back_as_they_came() -> None:
    names = [f"phone-{i}" for i in range(16)]
    plan = plan_of(users=names)
    updates = {
        name: {"w": UPDATES[i, :24].reshape(4, 6).astype(np.float32), "b": UPDATES[i, 24:].astype(np.float16)}
        for i, name in enumerate(names)
    }
    result = aggregate(plan, updates)
    assert list(result.aggregate) == ["w", "b"]
    assert result.aggregate["w"].shape == (4, 6)
    assert result.aggregate["w"].dtype == np.float32
    assert result.aggregate["b"].dtype == np.float16
    assert np.abs(result.aggregate["w"] - UPDATES[:, :24].mean(axis=0).reshape(4, 6)).max() < 2 / 15
    as_lists = aggregate(plan, {name: list(arrays.values()) for name, arrays in updates.items()})
    assert isinstance(as_lists.aggregate, list)
    rows = aggregate(plan, UPDATES.astype(np.float32))
    assert rows.aggregate.shape == (30,)
    assert rows.aggregate.dtype == np.float32


def test_torch_updates_come_back_as_tensors() -> None:
    torch = pytest.importorskip("torch")
    updates = {i: {"w": torch.tensor(UPDATES[i], dtype=torch.bfloat16)} for i in range(16)}
    result = aggregate(plan_of(), updates)
    assert result.aggregate["w"].dtype == torch.bfloat16


def test_a_round_without_enough_survivors_raises_by_name() -> None:
    with pytest.raises(TooFewSurvivorsError, match="thresholds need 9"):
        aggregate(plan_of(), UPDATES, simulate=Simulation(dropped=dict.fromkeys(range(8), "mask")))


def test_weights_and_metrics() -> None:
    plan = plan_of(max_weight=10, metrics=["loss"], levels=[1024, 4096])
    weights = {i: i % 10 + 1 for i in range(16)}
    metrics = {i: {"loss": float(i)} for i in range(16)}
    result = aggregate(plan, UPDATES, weights=weights, metrics=metrics, simulate=Simulation(dropped={3: "mask"}))
    alive = [i for i in range(16) if i != 3]
    expected = np.average(UPDATES[alive], axis=0, weights=[weights[i] for i in alive])
    assert np.abs(result.vector - expected).max() < 2 / 1023
    assert result.metrics["loss"] == pytest.approx(np.average(alive, weights=[weights[i] for i in alive]))
    listed = aggregate(
        plan, UPDATES, weights=list(weights.values()), metrics=metrics, simulate=Simulation(rounding_seed=1)
    )
    mapped = aggregate(plan, UPDATES, weights=weights, metrics=metrics, simulate=Simulation(rounding_seed=1))
    assert np.array_equal(listed.vector, mapped.vector)


def test_a_malicious_user_is_tolerated_by_the_median_and_spoils_the_mean() -> None:
    """One user of sixty sends thirty times its update, unclipped: it wraps in its blocks' rings."""
    plan = Plan.build([60], [8], 40, value_range=1.0, subgroup_size=5)
    honest = np.tile(np.linspace(-0.5, 0.5, 40), (60, 1))
    updates = honest.copy()
    updates[7] *= 30
    for secure in (True, False):
        median = aggregate(
            plan, updates, rule="median", simulate=Simulation(malicious=[7], rounding_seed=2, secure=secure)
        )
        assert np.abs(median.vector - honest[0]).max() < 0.15
    with pytest.raises(FaultyBlockError, match="the rule 'mean' cannot leave out") as refusal:
        aggregate(plan, updates, rule="mean", simulate=Simulation(malicious=[7], rounding_seed=2))
    assert all(7 // 5 in subgroups for _, subgroups in refusal.value.blocks)


def test_a_rule_of_ones_own() -> None:
    most = Rule(name="largest", leaves_out_faulty=True, combine=lambda means, weights: np.max(np.stack(means), axis=0))
    assert (aggregate(plan_of(), UPDATES, rule=most).vector >= aggregate(plan_of(), UPDATES).vector - 0.2).all()


def test_a_seed_makes_rounding_reproducible_and_rounds_differ() -> None:
    plan = plan_of()
    one = aggregate(plan, UPDATES, simulate=Simulation(rounding_seed=5))
    assert np.array_equal(one.vector, aggregate(plan, UPDATES, simulate=Simulation(rounding_seed=5)).vector)
    assert not np.array_equal(one.vector, aggregate(plan, UPDATES, simulate=Simulation(rounding_seed=6)).vector)
    later = aggregate(plan, UPDATES, simulate=Simulation(rounding_seed=5), round_id=RoundId(session=b"s", number=1))
    assert not np.array_equal(one.vector, later.vector)
    assert not np.array_equal(aggregate(plan, UPDATES).vector, aggregate(plan, UPDATES).vector)


def test_the_logger_is_silent_by_default_and_never_shows_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    assert any(isinstance(handler, logging.NullHandler) for handler in logging.getLogger("heterosag").handlers)
    with caplog.at_level(logging.DEBUG, logger="heterosag"):
        aggregate(plan_of(), UPDATES)
    assert caplog.messages == ["round 0: 16 of 16 users survived"]


def test_public_names() -> None:
    assert heterosag.aggregate is aggregate
    assert heterosag.Result is type(aggregate(plan_of(), UPDATES, simulate=Simulation(secure=False)))


def test_metrics_have_lanes_of_their_own_whatever_their_name() -> None:
    """A metric called clipped, and weights beyond a byte, do not touch the segments' lanes."""
    plan = plan_of(max_weight=1001, metrics=["loss", "clipped"], levels=[1024, 4096])
    weights = [1 + 1000 * (i % 2) for i in range(16)]
    metrics = {i: {"loss": 0.5, "clipped": float(i)} for i in range(16)}
    result = aggregate(plan, UPDATES, weights=weights, metrics=metrics)
    assert np.abs(result.vector - np.average(UPDATES, axis=0, weights=weights)).max() < 4 / 1023
    assert result.metrics["loss"] == pytest.approx(0.5, abs=1e-6)
    assert result.metrics["clipped"] == pytest.approx(np.average(range(16), weights=weights), abs=1e-5)
    assert {block.weight for segment in result.blocks for block in segment} <= {4 * 1002}
    assert all(block.clipped == 0 for segment in result.blocks for block in segment)


def test_a_result_is_shown_at_a_glance() -> None:
    result = aggregate(plan_of(), UPDATES, simulate=Simulation(dropped={3: "mask"}, secure=False))
    assert re.fullmatch(
        r"<Result: survivors 15, elements 30 of [\d.e-]+ RMS, rounding error at most [\d.e-]+ RMS, faulty blocks 0, "
        r"inference robustness 0.6667, Byzantine tolerance 0>",
        repr(result),
    )
    assert "<th>survivors</th><td>15</td>" in result._repr_html_()


def test_a_result_says_how_large_rounding_errors_are() -> None:
    rng = np.random.default_rng(0)
    plan = Plan.build([24], [4], 2000, value_range=1.0, subgroup_size=4)
    updates = rng.normal(0, 0.01, (24, 2000))
    result = aggregate(plan, updates, simulate=Simulation(secure=False, rounding_seed=0))
    error = float(np.sqrt(np.mean((result.vector - updates.mean(axis=0)) ** 2)))
    assert result.rounding_error is not None
    assert 0.5 < error / result.rounding_error <= 1.05  # a bound, which elements in the middle of two levels reach
    assert result.rounding_error > 3 * np.sqrt(np.mean(updates.mean(axis=0) ** 2))  # so wide a range leaves noise
    arrays = Plan.build([24], [4], 2000, value_range=1.0, subgroup_size=4, arrays=[1500, 500])
    assert rounding_error_of(arrays.with_value_range(1.0, [0.5, 2.0])) is None


# --- ranges -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("level", "rotate"), [(2, False), (4, True), (16, False)])
def test_the_mean_is_unbiased_inside_the_range(level: int, rotate: bool) -> None:
    """Over many roundings the error is what chance leaves: the mean square of its z-scores is 1."""
    plan = Plan.build([12], [level], 600, value_range=0.3, subgroup_size=3, rotate=rotate)
    half = min(plan.range_of(block)[1] for segment in plan.segments for block in segment.blocks)
    updates = np.random.default_rng(0).uniform(-half, half, (12, 600)) * (0.2 if rotate else 1.0)
    rounds = [
        aggregate(plan, updates, simulate=Simulation(secure=False, rounding_seed=seed)).vector for seed in range(50)
    ]
    errors = np.array(rounds) - updates.mean(axis=0)
    scores = errors.mean(axis=0) / (errors.std(axis=0, ddof=1) / np.sqrt(len(rounds)))
    assert np.mean(scores**2) == pytest.approx(1.0, abs=0.25)  # four standard deviations and more
    assert plan.quantization_error() >= np.sum(errors**2, axis=1).mean()


@pytest.mark.parametrize("level", [2, 4])
def test_outside_the_range_the_bias_is_the_one_stated(level: int) -> None:
    """Of Gaussian elements of which the value range holds three deviations, the same ones of all users."""
    plan = Plan.build([12], [level], 4_000, value_range=0.3, subgroup_size=3)
    common = np.random.default_rng(1).normal(0, 0.1, 4_000)
    updates = np.tile(common, (12, 1))
    rounds = [
        aggregate(plan, updates, simulate=Simulation(secure=False, rounding_seed=seed)).vector for seed in range(25)
    ]
    left = plan.quantization_error() / len(rounds)  # of the noise
    bias = np.sum((np.mean(rounds, axis=0) - common) ** 2)
    assert plan.clip_bias() * 0.8 < bias < plan.clip_bias() * 1.2 + left


def test_a_simulation_takes_range_and_scales_from_the_updates_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    rng = np.random.default_rng(0)
    sizes = np.repeat([0.01, 2.0], [900, 100])
    updates = rng.normal(0, sizes, (12, 1_000))
    updates[5] = 1e9
    plan = Plan.build([12], [16], 1_000, value_range=1.0, subgroup_size=3, arrays=[900, 100])
    fitted = Simulation(value_range="auto", malicious=[5], rounding_seed=0, secure=False)
    with caplog.at_level(logging.WARNING):
        result = aggregate(plan, updates, rule="median", simulate=fitted)
    assert "in plaintext, which only a simulation can see" in caplog.text
    honest = np.delete(updates, 5, axis=0).mean(axis=0)
    for part in (slice(0, 900), slice(900, 1_000)):
        error = np.sqrt(np.mean((result.vector - honest)[part] ** 2))
        assert error < 2 * np.sqrt(np.mean(honest[part] ** 2))
    still = aggregate(plan, np.zeros((12, 1_000)), simulate=Simulation(value_range="auto", secure=False))
    assert np.abs(still.vector).max() < 1.0


def test_ranges_that_a_simulation_cannot_take_are_named() -> None:
    with pytest.raises(UsageError, match="or 'auto', not 'best'"):
        Simulation(value_range="best")  # type: ignore[arg-type]
    noisy = Plan.build(
        [16], [1025], 8, design="secagg", subgroup_size=16, clipping_norm=1.0, noise_multiplier=2.0, dropout=0.0
    )
    with pytest.raises(UsageError, match=r"clipping norm.*: leave value_range='auto' out"):
        aggregate(noisy, np.zeros((16, 8)), simulate=Simulation(value_range="auto"))
