"""The embedded engine: what goes in, what comes back, what is measured."""

import logging
import re
from typing import Any

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
from heterosag.protocol import Identity, RoundId
from heterosag.protocol import messages as wire
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


@pytest.mark.parametrize("signed", [False, True])
def test_dropouts_at_every_phase(signed: bool) -> None:
    dropped = {0: "advertise", 4: "share", 8: "mask", 12: "agree", 13: "unmask"}
    result = aggregate(plan_of(), UPDATES, simulate=Simulation(dropped=dropped, rounding_seed=1), identities=signed)
    assert set(result.survivors) == set(range(16)) - {0, 4, 8}
    assert np.abs(result.vector - UPDATES[list(result.survivors)].mean(axis=0)).max() < 2 / 15
    sent = result.traffic.sent
    assert 0 not in sent["advertise"]
    assert 4 in sent["advertise"]
    assert 4 not in sent["share"]
    assert 8 not in sent["mask"]
    assert 12 not in sent["unmask"]
    assert ("agree" in sent) == signed


def test_users_who_drop_out_before_masking_need_no_update() -> None:
    updates = {i: UPDATES[i] for i in range(16) if i not in (2, 9)}
    result = aggregate(plan_of(), updates, simulate=Simulation(dropped={2: "mask", 9: "advertise"}))
    assert len(result.survivors) == 14
    with pytest.raises(UsageError, match="user 2 has no update"):
        aggregate(plan_of(), updates, simulate=Simulation(dropped={2: "unmask", 9: "advertise"}))


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


def test_traffic_counts_real_bytes_and_time() -> None:
    plan = plan_of()
    result = aggregate(plan, UPDATES)
    traffic = result.traffic
    assert list(traffic.sent) == ["advertise", "share", "mask", "unmask"]
    assert all(len(by_user) == 16 for by_user in traffic.sent.values())
    for user in plan.users:
        size = wire.vector_size(plan, plan.subgroup_of(user))
        assert size < traffic.sent["mask"][user] < size + 64
    assert all(seconds > 0 for seconds in (*traffic.user_seconds.values(), *traffic.server_seconds.values()))
    assert traffic.received["advertise"] == dict.fromkeys(range(16), 0)
    assert all(size > 0 for size in traffic.received["unmask"].values())


def test_a_rule_of_ones_own() -> None:
    most = Rule(name="largest", leaves_out_faulty=True, combine=lambda means, weights: np.max(np.stack(means), axis=0))
    assert (aggregate(plan_of(), UPDATES, rule=most).vector >= aggregate(plan_of(), UPDATES).vector - 0.2).all()


def test_identities_may_be_brought_along() -> None:
    identities = {i: Identity.generate() for i in range(16)}
    assert len(aggregate(plan_of(), UPDATES, identities=identities).survivors) == 16
    del identities[5]
    with pytest.raises(UsageError, match="user 5 has no identity"):
        aggregate(plan_of(), UPDATES, identities=identities)


def test_a_seed_makes_rounding_reproducible_and_rounds_differ() -> None:
    plan = plan_of()
    one = aggregate(plan, UPDATES, simulate=Simulation(rounding_seed=5))
    assert np.array_equal(one.vector, aggregate(plan, UPDATES, simulate=Simulation(rounding_seed=5)).vector)
    assert not np.array_equal(one.vector, aggregate(plan, UPDATES, simulate=Simulation(rounding_seed=6)).vector)
    later = aggregate(plan, UPDATES, simulate=Simulation(rounding_seed=5), round_id=RoundId(session=b"s", number=1))
    assert not np.array_equal(one.vector, later.vector)
    assert not np.array_equal(aggregate(plan, UPDATES).vector, aggregate(plan, UPDATES).vector)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"updates": UPDATES[:15]}, "16 users, but there are 15 updates"),
        ({"updates": UPDATES[:, :29]}, "for 30 elements, the updates have 29"),
        ({"updates": {}}, "has no update"),
        ({"updates": {99: UPDATES[0]}}, "99 is not a user"),
        ({"simulate": lambda: Simulation(dropped={99: "mask"})}, "99 is not a user"),
        ({"simulate": lambda: Simulation(dropped={1: "lunch"})}, "before one of the phases"),
        ({"rule": "krum"}, "no rule is called"),
        ({"weights": [1] * 15}, "16 weights"),
        ({"weights": {99: 1}}, "99 is not a user"),
        ({"weights": {0: 2}}, "integer weights from 1 to 1"),
        ({"metrics": {0: {"loss": 1.0}}}, "sums the metrics"),
        ({"simulate": lambda: Simulation(malicious=[99])}, "99 is not a user"),
        ({"simulate": lambda: Simulation(rounding_seed=-1)}, "rounding seed"),
    ],
)
def test_bad_input_gets_a_clear_error(change: dict[str, Any], match: str) -> None:
    arguments = {"updates": UPDATES, "simulate": Simulation, **change}
    with pytest.raises(UsageError, match=match):
        aggregate(plan_of(), arguments.pop("updates"), simulate=arguments.pop("simulate")(), **arguments)


def test_nobody_is_left_with_an_update() -> None:
    with pytest.raises(UsageError, match="nobody has an update"):
        aggregate(plan_of(), {}, simulate=Simulation(dropped=dict.fromkeys(range(16), "mask")))


def test_the_logger_is_silent_by_default_and_never_shows_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    assert any(isinstance(handler, logging.NullHandler) for handler in logging.getLogger("heterosag").handlers)
    with caplog.at_level(logging.DEBUG, logger="heterosag"):
        aggregate(plan_of(), UPDATES)
    assert caplog.messages == ["round 0: 16 of 16 users survived"]


@pytest.mark.parametrize("design", ["perfect", "paper", "secagg", "multigroup"])
def test_many_users_on_a_sparse_sharing_graph(design: str) -> None:
    plan = Plan.build(
        [110],
        [4],
        50,
        design=design,
        value_range=1.0,
        subgroup_size=10,
        min_survivors=2,
        sharing="sparse",
        assignment_seed=4,
        dropout=0.05,
    )
    updates = np.random.default_rng(0).uniform(-1, 1, (110, 50))
    result = aggregate(plan, updates, simulate=Simulation(dropped={3: "mask", 50: "unmask"}, rounding_seed=1))
    assert plan.sharing.neighbours < 60
    assert len(result.traffic.sent["share"]) == 110
    plain = aggregate(
        plan, updates, simulate=Simulation(dropped={3: "mask", 50: "unmask"}, rounding_seed=1, secure=False)
    )
    assert np.array_equal(result.vector, plain.vector)


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


def test_weights_are_whole_numbers_of_any_kind() -> None:
    plan = plan_of(max_weight=10)
    assert aggregate(plan, UPDATES, weights=np.full(16, 3), simulate=Simulation(secure=False)).blocks[0][0].weight == 24
    assert (
        aggregate(plan, UPDATES, weights={0: np.int64(3)}, simulate=Simulation(secure=False)).blocks[0][0].weight == 10
    )
    for bad in ([1.9] * 16, {0: 1.5}):
        with pytest.raises(UsageError, match="integers"):
            aggregate(plan, UPDATES, weights=bad)  # type: ignore[arg-type]


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
    with pytest.raises(UsageError, match="clipping norm"):
        aggregate(noisy, np.zeros((16, 8)), simulate=Simulation(value_range="auto"))


def test_a_list_has_the_updates_in_roster_order() -> None:
    plan, simulate = plan_of(), Simulation(secure=False, rounding_seed=1)
    listed = [{"w": row[:24].reshape(4, 6), "b": row[24:]} for row in UPDATES]
    found = aggregate(plan, listed, simulate=simulate)
    by_name = aggregate(plan, dict(zip(plan.users, listed, strict=True)), simulate=simulate)
    rows = aggregate(plan, UPDATES.tolist(), simulate=simulate)
    assert found.aggregate["w"].shape == (4, 6)
    assert np.array_equal(found.vector, by_name.vector)
    assert np.array_equal(found.vector, rows.aggregate)
    pairs = aggregate(plan, tuple([row[:24], row[24:]] for row in UPDATES), simulate=simulate)
    assert [array.shape for array in pairs.aggregate] == [(24,), (6,)]


@pytest.mark.parametrize(
    ("updates", "words"),
    [
        (UPDATES[0], "not a ndarray of the shape"),
        (UPDATES.reshape(16, 5, 6), "not a ndarray of the shape"),
        ([{"w": row} for row in UPDATES[:3]], "there are 3 updates"),
        ([[1.0, 2.0], [1.0]], "not a list"),
        ([], "not a list"),
        ("updates", "not a str"),
        (None, "not a NoneType"),
        ({"weight": UPDATES[0], "bias": UPDATES[0]}, "A state_dict is one user's update"),
    ],
)
def test_what_are_no_updates_gets_an_error_with_the_accepted_forms(updates: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        aggregate(plan_of(), updates)
    assert "a list with one update a user in roster order, or a 2-D array" in str(caught.value)


def test_swapped_arguments_are_named() -> None:
    with pytest.raises(UsageError, match="the arguments are swapped"):
        aggregate(UPDATES, plan_of())  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="takes a Plan or a CohortPlan first, not a str"):
        aggregate("plan", UPDATES)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda update: update[:-1], "user 3: array .* expected is"),
        (lambda update: update * np.nan, "user 3: 6 of 6 values are NaN or infinite"),
    ],
)
def test_a_bad_update_is_named_by_its_user(spoil: Any, complaint: str) -> None:
    plan = Plan.build([12], [4], 6, value_range=1.0, subgroup_size=3)
    updates = {user: np.zeros(6) for user in plan.users}
    updates[3] = spoil(updates[3])
    with pytest.raises(UsageError, match=f"the update of {complaint}"):
        aggregate(plan, updates)
