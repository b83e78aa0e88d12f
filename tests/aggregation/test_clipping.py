"""The adaptive range: it finds the size of the updates, array by array, and nobody drives it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from cases import each, examples
from hypothesis import given
from hypothesis import strategies as st

from heterosag import CohortPlan, Plan, Simulation, aggregate
from heterosag.aggregation.clipping import (
    AdaptiveRange,
    follow_norm,
    follow_quantile,
    measure_clipping,
    with_deviations,
)
from heterosag.aggregation.combine import Combined
from heterosag.errors import UsageError
from heterosag.plan import User

SIZES = [3_000, 40, 900]


def plan_of(levels: int = 4, sizes: list[int] = SIZES, **changes: Any) -> Plan:
    options: dict[str, Any] = {"value_range": 1.0, "subgroup_size": 3, "arrays": sizes, "dropout": 0.0} | changes
    return Plan.build([12], [levels], sum(sizes), **options)


def starting_at(half_width: float, sizes: Sequence[int] = (), **options: Any) -> AdaptiveRange:
    return AdaptiveRange([half_width / 3] * max(len(sizes), 1), sizes, **options)


def run(
    follows: AdaptiveRange,
    plan: Plan,
    deviations: list[float],
    rounds: int,
    *,
    common: float = 0.5,
    seed: int = 0,
    rule: Any = "mean",
    malicious: dict[int, float] | None = None,
    weights: list[int] | None = None,
) -> list[tuple[float, ...]]:
    """The half widths of each round, under Gaussian updates of these deviations, a part of which all users share."""
    rng = np.random.default_rng(seed)
    each_element = np.repeat(deviations, plan.arrays or (plan.dimension,))
    found = []
    for number in range(rounds):
        settled = follows.settle(plan)
        found.append(settled.half_widths)
        own = rng.normal(size=(len(plan.users), plan.dimension)) * math.sqrt(1 - common)
        updates = (own + rng.normal(size=plan.dimension) * math.sqrt(common)) * each_element
        for user, factor in (malicious or {}).items():
            updates[user] *= factor
        rounding = Simulation(secure=False, rounding_seed=number, malicious=list(malicious or {}))
        result = aggregate(settled, updates, rule=rule, simulate=rounding, weights=weights)
        follows.follow(settled, result.combined)
    return [*found, follows.settle(plan).half_widths]


@each("level", [2, 4, 16, 256])
@each("first", [0.003, 3.0])
@pytest.mark.slow
def test_a_range_finds_three_deviations_from_far_below_and_above(level: int, first: float) -> None:
    plan = plan_of(level, [4_000], arrays=())
    last = run(starting_at(first), plan, [0.1], 25)[-1]
    assert last[0] == pytest.approx(0.3, rel=0.25)


@each("level", [2, 4, 16])
def test_scales_make_unlike_arrays_alike(level: int) -> None:
    """Array by array the ranges come near to three deviations of theirs, which are up to a thousand times apart."""
    deviations = [0.01, 1.0, 0.1]
    follows = starting_at(0.2, SIZES)
    last = run(follows, plan_of(level), deviations, 25)[-1]
    fit = [half / (3 * deviation) for half, deviation in zip(last, deviations, strict=True)]
    assert 0.1 < min(fit) < max(fit) < 4  # the power 0.7: a part of what is left between them
    assert max(last) / min(last) > 10


def test_the_error_is_far_less_than_in_one_range_for_all() -> None:
    """Of the small array, relative to its size, at four levels."""
    deviations = [0.01, 3.0, 0.1]
    each_element = np.repeat(deviations, SIZES)
    updates = np.random.default_rng(0).normal(size=4_000 - 60) * each_element
    everybody = np.tile(updates, (12, 1))
    plan = plan_of()
    errors = {}
    for name, settled in (
        ("scales", with_deviations(plan, deviations)),
        ("one", with_deviations(plan_of(arrays=()), [float(np.sqrt(np.mean(each_element**2)))])),
    ):
        result = aggregate(settled, everybody, simulate=Simulation(secure=False, rounding_seed=1))
        errors[name] = float(np.sqrt(np.mean((result.vector - updates)[:3_000] ** 2))) / 0.01
    assert errors["scales"] < 0.4
    assert errors["one"] > 5 * errors["scales"]


def test_arrays_of_nothing_but_noise_fall_and_stay_down() -> None:
    """What an array shows where nothing moves is the noise of its own scale: it must not feed on it."""
    follows = starting_at(0.3, SIZES)
    found = np.array(run(follows, plan_of(2), [0.1, 0.0, 0.1], 30))
    assert found[-1, 1] < 0.2 * found[0, 1]
    assert found[-1, 0] == pytest.approx(0.3, rel=0.3)


def test_weights_are_in_the_range_and_not_in_the_scales() -> None:
    """A user of weight w sends x * w / W: the range follows that."""
    plan = plan_of(16, max_weight=100)
    last = run(starting_at(0.3, SIZES), plan, [0.1, 0.1, 0.1], 20, weights=[20] * 12)[-1]
    assert all(half == pytest.approx(0.3 * 0.2, rel=0.3) for half in last)


def test_no_belief_moves_by_more_than_half_in_its_logarithm() -> None:
    for first, deviations in ((1e-3, [1.0, 100.0, 1e-3]), (100.0, [1e-3, 1.0, 0.0])):
        found = np.log(run(starting_at(first, SIZES), plan_of(), deviations, 12))
        assert np.abs(np.diff(found, axis=0)).max() <= 0.5 + 1e-9


@pytest.mark.long
@examples(4)
@given(
    factors=st.lists(st.sampled_from([0.0, -1.0, 1e3, -1e9, 1e30]), min_size=1, max_size=2),
    level=st.sampled_from([2, 4, 16]),
    seed=st.integers(0, 100),
)
def test_a_malicious_minority_moves_scales_by_a_bounded_factor(factors: list[float], level: int, seed: int) -> None:
    """Under the median, fewer than half of the blocks of every segment are malicious users'."""
    sizes = [600, 200]
    plan = Plan.build([36], [level], 800, value_range=1.0, subgroup_size=3, arrays=sizes, dropout=0.0)
    assert plan.byzantine_tolerance() >= 2
    malicious = {plan.subgroups[g].members[0]: factor for g, factor in enumerate(factors)}
    options: dict[str, Any] = {"rule": "median", "seed": seed}
    honest = run(starting_at(0.3, sizes), plan, [0.1, 0.1], 10, **options)[-1]
    attacked = run(starting_at(0.3, sizes), plan, [0.1, 0.1], 10, malicious=malicious, **options)[-1]
    assert max(abs(math.log(one / other)) for one, other in zip(attacked, honest, strict=True)) < 0.5


def test_bounds_hold_whatever_is_decoded() -> None:
    plan = Plan.build([6], [4], 100, value_range=1.0, design="secagg", subgroup_size=6, dropout=0.0)
    follows = starting_at(1.0, largest=5.0)
    found = run(follows, plan, [1.0], 30, malicious={0: 1e9}, rule="unchecked_mean")
    assert max(halves[0] for halves in found) <= 5.0
    assert min(halves[0] for halves in run(starting_at(1.0), plan, [0.0], 30)) >= 1e-5


def test_a_round_whose_blocks_are_all_faulty_moves_nothing() -> None:
    plan = plan_of()
    settled = starting_at(0.3, SIZES).settle(plan)
    result = aggregate(settled, np.zeros((12, plan.dimension)), simulate=Simulation(secure=False, rounding_seed=0))
    assert measure_clipping(plan, result.combined) == 0.0
    lost = Combined(
        vector=result.vector,
        survivors=result.survivors,
        blocks=tuple(() for _ in result.blocks),
        faulty_blocks=(),
        metrics={},
        inference_robustness=1.0,
        byzantine_tolerance=0,
    )
    assert measure_clipping(plan, lost) == 0.0
    follows = starting_at(0.3)
    follows.follow(plan, lost)
    assert follows.settle(plan_of(arrays=())).value_range == pytest.approx((-0.3, 0.3))


def test_a_start_takes_the_models_own_size() -> None:
    model = np.concatenate([np.full(3_000, 0.05), np.zeros(40), np.full(900, 1.0)])
    halves = AdaptiveRange.start(model, SIZES).settle(plan_of()).half_widths
    assert halves[0] < halves[1] == halves[2]  # zeros say nothing: they are taken for the largest
    assert halves[2] / halves[0] == pytest.approx(20**0.7)
    assert AdaptiveRange.start(np.zeros(10)).settle(plan_of(sizes=[10], arrays=())).value_range[1] == pytest.approx(0.9)


def test_a_state_comes_back_as_it_was() -> None:
    follows = starting_at(0.3, SIZES, largest=7.0)
    run(follows, plan_of(), [0.01, 1.0, 0.1], 4)
    again = AdaptiveRange.from_state_dict(follows.state_dict())
    assert again.state_dict() == follows.state_dict()
    earlier = follows.state_dict() | {"positive": [False, False, True]}
    assert AdaptiveRange.from_state_dict(earlier).state_dict() == follows.state_dict()
    plan = plan_of()
    assert again.settle(plan).digest == follows.settle(plan).digest
    known = follows.state_dict()
    for wrong in (
        {},
        {**known, "arrays": "x"},
        {**known, "arrays": [math.inf, 1, 1]},
        {**known, "deviations": [0.0, 1.0, 1.0]},
        {**known, "deviations": [10**400, 1.0, 1.0]},
    ):
        with pytest.raises(UsageError):
            AdaptiveRange.from_state_dict(wrong)


def test_what_does_not_fit_is_refused() -> None:
    follows = starting_at(0.3, SIZES)
    with pytest.raises(UsageError, match="others than the 3 known here"):
        follows.settle(plan_of(arrays=()))
    with pytest.raises(UsageError, match="as many deviations"):
        AdaptiveRange([1.0], [2, 3])
    for wrong in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(UsageError, match="finite and above 0"):
            AdaptiveRange([wrong])
    with pytest.raises(UsageError, match="largest half width"):
        AdaptiveRange([1.0], largest=0.0)
    with pytest.raises(UsageError, match="the model has 5"):
        AdaptiveRange.start(np.ones(5), [2, 2])
    with pytest.raises(UsageError, match="not finite"):
        AdaptiveRange.start(np.full(4, np.nan))


def test_the_rule_of_a_quantile_has_a_largest_width() -> None:
    half = 1.0
    for _ in range(50):
        half = follow_quantile(half, 1.0, 0.999)
    assert half == 1000.0
    assert follow_quantile(1.0, 0.0, 0.999) == pytest.approx(math.exp(-0.1))


# --- the clipping norm --------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_clipping_norm_finds_the_median_of_the_norms_and_moves_by_a_tenth_at_most() -> None:
    noise: dict[str, Any] = {"clipping_norm": 5.0, "noise_multiplier": 3.0, "min_block_survivors": 50}
    plan = Plan.build([64], [64], 40, subgroup_size=64, design="secagg", adaptive_clip=True, **noise)
    updates = np.random.default_rng(1).normal(size=(64, 40))
    updates *= (np.linspace(0.5, 1.5, 64) / np.linalg.norm(updates, axis=1))[:, None]
    norms, norm = [], 5.0
    for number in range(40):
        settled = plan.with_value_range(norm)
        result = aggregate(settled, updates, simulate=Simulation(secure=number == 0, rounding_seed=number))
        assert result.within_norm is not None
        norms.append(norm := follow_norm(norm, result.within_norm))
    assert norms[0] == pytest.approx(5.0 * math.exp(-0.1), rel=0.03)
    assert np.median(norms[-10:]) == pytest.approx(1.0, abs=0.15)
    assert [follow_norm(2.0, within) for within in (-9.0, 0.0, 9.0)] == [
        2.0 * math.exp(0.1),
        2.0 * math.exp(0.1),
        2.0 * math.exp(-0.1),
    ]


# --- cohorts --------------------------------------------------------------------------------------------------------


def cohorts_of(count: int) -> CohortPlan:
    """So many cohorts of twelve users and one of eleven, which is cut into other segments."""
    return CohortPlan.build(
        [12 * count - 1], [16], sum(SIZES), cohort_size=12, value_range=1.0, subgroup_size=4, min_survivors=2,
        arrays=SIZES, dropout=0.0, min_robustness=0.0,
    )  # fmt: skip


def test_one_cohort_moves_a_range_as_the_plan_alone_does() -> None:
    plan = plan_of()
    whole = CohortPlan(users=plan.users, cohort_size=12, assignment_seed=None, plans=(plan,))
    follows, alone = starting_at(1.0, SIZES), starting_at(1.0, SIZES)
    updates = np.random.default_rng(1).normal(0, 0.1, (12, sum(SIZES)))
    for number in range(3):
        simulate = Simulation(secure=False, rounding_seed=number)
        settled, mine = follows.settle(whole), alone.settle(plan)
        assert settled.plans == (mine,)
        many, one = aggregate(settled, updates, simulate=simulate), aggregate(mine, updates, simulate=simulate)
        assert measure_clipping(settled, many.combined) == measure_clipping(mine, one.combined)
        follows.follow(settled, many.combined)
        alone.follow(mine, one.combined)
        assert follows.state_dict() == alone.state_dict()


def test_cohorts_find_the_size_of_the_updates_without_those_that_failed() -> None:
    whole = cohorts_of(3)
    assert len({len(plan.segments) for plan in whole.plans}) > 1
    follows = starting_at(4.0, SIZES)
    rng = np.random.default_rng(2)
    gone: dict[User, Any] = dict.fromkeys(whole.plans[1].users[:9], "mask")
    for number in range(12):
        settled = follows.settle(whole)
        simulate = Simulation(secure=False, rounding_seed=number, dropped=gone if number % 3 == 0 else {})
        result = aggregate(settled, rng.normal(0, 0.1, (35, sum(SIZES))), simulate=simulate)
        assert list(result.failed) == ([1] if number % 3 == 0 else [])
        follows.follow(settled, result.combined)
    assert follows.settle(whole).plans[0].half_widths[0] == pytest.approx(0.3, rel=0.5)
