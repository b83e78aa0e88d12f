"""From bounds to epsilon: the published checks, both views, and the noise that a target needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from cases import each

from heterosag.errors import PlanError, UsageError
from heterosag.plan import CohortPlan, Plan
from heterosag.plan.sharing import PRIVACY_BITS
from heterosag.privacy import cache
from heterosag.privacy.accounting import (
    ORDERS,
    NoisyRound,
    NoisySegment,
    View,
    cheapest_order,
    divergence,
    epsilon,
    gaussian_noise_multiplier_for,
    noise_multiplier_for,
    overhead,
    rho,
)

DELTA = 1e-5


def noisy(z: float = 3.0, honest: int = 9, trials: int = 1, size: int = 10_000, **more: Any) -> NoisyRound:
    segment = NoisySegment(size=size, trials=trials, everywhere=more.pop("everywhere", honest))
    return NoisyRound(noise_multiplier=z, honest=honest, segments=(segment,), **more)


def least(price: Any) -> float:
    return min(price(order) for order in ORDERS)


def distance_from(wanted: float) -> Callable[[float], float]:
    return lambda order: abs(math.log((order - 1) / (wanted - 1)))


def looked_up(search: Callable[[], object]) -> list[tuple[cache.Inputs, float]]:
    """The inputs and the order of every bound that a search needs, once each, in the order in which it asks."""
    found: dict[tuple[cache.Inputs, float], None] = {}
    look_up = cache.look_up

    def asked(inputs: cache.Inputs, orders: Sequence[float], compute: Any) -> list[float]:
        found.update(dict.fromkeys((inputs, order) for order in orders))
        return look_up(inputs, orders, compute)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "look_up", asked)
        search()
    return list(found)


# --- published figures --------------------------------------------------------------------------------------------


@pytest.mark.long
@each(
    "honest, trials, z, rounds, published",
    [(9, 1, 2.99, 20, 8.270), (9, 1, 3.0, 1, 1.606), (32, 15, 0.68, 1, 7.778), (32, 15, 2.99, 20, 7.939)],
)
def test_epsilon_at_the_largest_theta_is_as_published(
    honest: int, trials: int, z: float, rounds: int, published: float
) -> None:
    def price(order: float) -> float:
        cost = float(rho(honest, trials, 0.125, [order])[0]) * honest / (4 * z**2 * trials)
        return rounds * cost + overhead(order, DELTA)

    guess = 1 + math.sqrt(-math.log(DELTA) * 2 * z**2 / rounds)
    assert cheapest_order(price, guess)[0] == pytest.approx(published, abs=2e-3)


def test_gaussian_noise_converts_as_published() -> None:
    assert cheapest_order(lambda order: order / 2 + overhead(order, DELTA), 6.0)[0] == pytest.approx(4.753, abs=1e-3)


@each("sigma, delta", [(0.7, 1e-5), (1.0, 1e-5), (3.0, 1e-6), (30.0, 1e-7)])
def test_conversion_is_above_the_exact_epsilon_of_gaussian_noise(sigma: float, delta: float) -> None:
    """The exact delta of the Gaussian mechanism (Balle, Wang 2018) at the converted epsilon is at most delta."""
    found = least(lambda order: order / (2 * sigma**2) + overhead(order, delta))

    def normal(x: float) -> float:
        return math.erfc(-x / math.sqrt(2)) / 2

    exact = normal(0.5 / sigma - found * sigma) - math.exp(found) * normal(-0.5 / sigma - found * sigma)
    assert delta / 30 < exact <= delta


# --- one round ----------------------------------------------------------------------------------------------------


def test_a_round_costs_a_little_more_than_gaussian_noise_would() -> None:
    for order in (2.0, 8.0):
        ideal = order / (2 * 3.0**2)
        assert ideal < divergence(noisy(), order) < 1.08 * ideal
        assert ideal < divergence(noisy(honest=200, size=10**6), order) < 1.01 * ideal


def test_the_worst_of_the_users_segments_counts() -> None:
    short, long = NoisySegment(size=16, trials=16, everywhere=9), NoisySegment(size=10**6, trials=1, everywhere=9)
    both = NoisyRound(noise_multiplier=3.0, honest=9, segments=(short, long))
    costs = [divergence(replace(both, segments=(one,)), 4.0) for one in (short, long)]
    assert costs[0] > 1.01 * costs[1]
    assert divergence(both, 4.0) == max(costs)


def test_the_model_hides_in_everybody() -> None:
    found = divergence(noisy(everywhere=90), 4.0, "model")
    assert found == pytest.approx(4.0 / (2 * 9.0 * 10), rel=0.02)
    assert divergence(noisy(everywhere=90), 4.0, "server") == divergence(noisy(), 4.0, "model")


def test_a_clip_bit_costs_what_its_coordinate_does() -> None:
    """Trial by trial, which is a little more than all of them at once."""
    extra = divergence(noisy(clip_bit=12), 4.0) - divergence(noisy(), 4.0)
    at_once = float(rho(12, 16, 0.125, [4.0])[0]) / 64
    assert at_once <= extra < 1.03 * at_once


def test_the_noise_of_a_trusted_server_is_that_of_its_conversion() -> None:
    """And a little less than the mechanism needs."""
    found = gaussian_noise_multiplier_for(target_epsilon=4.753, target_delta=DELTA, rounds=1)
    assert found == pytest.approx(1.0, rel=1e-3)
    target: dict[str, Any] = {"target_epsilon": 8.0, "target_delta": DELTA, "rounds": 20}
    ours = noise_multiplier_for(noisy(), **target)
    assert 0.95 * ours < gaussian_noise_multiplier_for(**target) < ours
    with pytest.raises(UsageError, match="no noise keeps"):
        gaussian_noise_multiplier_for(target_epsilon=1e-9, target_delta=DELTA, rounds=1)


@each("target, rounds", [(0.05, 1), (0.5, 1), (1.0, 20), (8.0, 20), (50.0, 3)])
def test_the_noise_of_a_trusted_server_meets_the_target_exactly(target: float, rounds: int) -> None:
    z = gaussian_noise_multiplier_for(target_epsilon=target, target_delta=DELTA, rounds=rounds)
    found = least(lambda order: rounds * order / (2 * z**2) + overhead(order, DELTA))
    assert found == pytest.approx(target, rel=1e-9)


@each(
    "change, problem",
    [
        ({"segments": ()}, "at least one segment"),
        ({"clip_bit": -1}, "clip_bit"),
        ({"clip_bit": True}, "clip_bit"),
        ({"failure_probability": 1.0}, "probability"),
        ({"failure_probability": math.nan}, "probability"),
        ({"honest": 0}, "honest"),
        ({"segments": (NoisySegment(size=10_000, trials=1, everywhere=0),)}, "honest"),
        ({"noise_multiplier": 0.0}, "noise multiplier"),
    ],
)
def test_rounds_without_meaning_are_refused(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        replace(noisy(), **change)


def test_levels_that_are_too_few_are_refused_with_the_least() -> None:
    with pytest.raises(PlanError, match="take at least 17, or more noise"):
        noisy(z=3.0, size=1)


@each(
    "values, problem",
    [
        ((9, 1, 0.0, [2.0]), "theta"),
        ((9, 1, 0.126, [2.0]), "theta"),
        ((9, 1, math.nan, [2.0]), "theta"),
        ((9, 1, 0.125, [1.0]), "orders"),
        ((9, 1, 0.125, [2.0, 1025.0]), "orders"),
        ((9, 1, 0.125, [math.nan]), "orders"),
        ((0, 1, 0.125, [2.0]), "honest"),
        ((9, 0, 0.125, [2.0]), "trials"),
    ],
)
def test_bounds_without_meaning_are_refused(values: Any, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        rho(*values)


def test_theta_is_rounded_up_to_a_grid() -> None:
    assert rho(9, 1, 0.1, [2.0]) == rho(9, 1, 103 / 1024, [2.0]) < rho(9, 1, 0.1007, [2.0])
    assert rho(9, 1, 1e-9, [2.0]) == rho(9, 1, 1 / 64, [2.0])
    assert rho(9, 1, 0.125, []).size == 0


def test_a_view_that_nobody_has_is_refused() -> None:
    with pytest.raises(UsageError, match="server or model"):
        divergence(noisy(), 2.0, "both")  # type: ignore[arg-type]


# --- epsilon ------------------------------------------------------------------------------------------------------


@each("view", ["server", "model"])
def test_epsilon_falls_with_noise_and_users_and_rises_with_rounds_and_theta(view: View) -> None:
    def at(rounds: int = 20, **change: Any) -> float:
        return epsilon(noisy(**change), rounds=rounds, delta=DELTA, view=view)

    for values in (
        [at(z=z) for z in (8.0, 5.0, 3.0, 2.0, 1.0, 0.5)],
        [at(rounds=rounds) for rounds in (1, 2, 5, 20, 100)],
        [at(honest=honest, z=1.0 * math.sqrt(honest)) for honest in (60, 20, 9, 4)],  # the same noise of one user
        [at(size=size) for size in (10_000, 1000, 400, 260)],
    ):
        assert values == sorted(values)
        assert values[0] < values[-1]


def test_fewer_honest_survivors_than_the_noise_was_planned_for_cost_more() -> None:
    """The variance of one user is z^2 c^2 / h: a plan that counts on more of them needs them."""
    values = [epsilon(noisy(z=3.0, everywhere=n), rounds=20, delta=DELTA, view="model") for n in (200, 90, 30, 9, 3)]
    assert values == sorted(values)


def test_the_search_finds_the_least_of_all_orders() -> None:
    for z, rounds in ((3.0, 20), (0.5, 1), (30.0, 1), (1.0, 500), (2.0, 3)):
        one = noisy(z=z)
        of_all = least(lambda order, one=one, n=rounds: n * divergence(one, order) + overhead(order, DELTA))
        found = epsilon(one, rounds=rounds, delta=DELTA)
        assert found == pytest.approx(of_all, rel=1e-9)
        assert found > of_all * (1 + 1e-13), "rounding errors of the sums are added, not taken away"


@each("guess", ORDERS)
def test_the_search_finds_the_least_of_all_orders_from_any_guess(guess: float) -> None:
    for wanted in ORDERS:
        assert cheapest_order(distance_from(wanted), guess) == (0.0, wanted)


@each("wanted", ORDERS)
def test_a_search_that_guesses_right_looks_at_the_neighbours_only(wanted: float) -> None:
    asked: list[float] = []

    def price(order: float) -> float:
        asked.append(order)
        return distance_from(wanted)(order)

    assert cheapest_order(price, wanted)[1] == asked[0] == wanted
    assert len(asked) <= 5


@each(
    "z, rounds, view, everywhere",
    [
        *((z, rounds, "server", 9) for z, rounds in ((3.0, 20), (0.5, 1), (30.0, 1), (1.0, 500), (2.0, 3))),
        *((z, rounds, view, 90) for z, rounds in ((3.0, 20), (0.5, 20)) for view in ("server", "model")),
    ],
)
def test_the_search_for_epsilon_begins_next_to_the_cheapest_order(
    z: float, rounds: int, view: View, everywhere: int
) -> None:
    """Bounds take time: of the orders, only those around the one that counts are tried."""
    one = noisy(z=z, everywhere=everywhere)
    asked = looked_up(lambda: epsilon(one, rounds=rounds, delta=DELTA, view=view))
    orders = [order for _, order in asked]
    best = min(orders, key=lambda order: rounds * divergence(one, order, view) + overhead(order, DELTA))
    assert abs(ORDERS.index(orders[0]) - ORDERS.index(best)) <= 1
    assert len(orders) <= 6


@each("target", [1e-320, 1e-20, 1e-16])
def test_a_budget_that_no_noise_keeps_is_refused_however_small(target: float) -> None:
    with pytest.raises(UsageError, match="no noise keeps 20 rounds within epsilon"):
        noise_multiplier_for(noisy(), target_epsilon=target, target_delta=DELTA, rounds=20)


@each("target", [1e33, 1e300])
def test_a_budget_beyond_all_numbers_needs_the_least_noise(target: float) -> None:
    large = noise_multiplier_for(noisy(), target_epsilon=1e9, target_delta=DELTA, rounds=20)
    assert noise_multiplier_for(noisy(), target_epsilon=target, target_delta=DELTA, rounds=20) == large


def test_failures_are_part_of_delta() -> None:
    half = noisy(failure_probability=DELTA / 2)
    assert epsilon(half, rounds=20, delta=DELTA) == epsilon(noisy(), rounds=20, delta=DELTA / 2)
    with pytest.raises(UsageError, match="must exceed"):
        epsilon(half, rounds=20, delta=DELTA / 2)
    target: dict[str, Any] = {"target_epsilon": 8.0, "rounds": 20}
    found = noise_multiplier_for(half, target_delta=DELTA, **target)
    assert found == noise_multiplier_for(noisy(), target_delta=DELTA / 2, **target)
    assert found > noise_multiplier_for(noisy(), target_delta=DELTA, **target)
    with pytest.raises(UsageError, match="must exceed"):
        noise_multiplier_for(half, target_delta=DELTA / 2, **target)


@each("change, problem", [({"rounds": 0}, "rounds"), ({"rounds": True}, "rounds"), ({"delta": 0.0}, "delta is above 0"),
                          ({"delta": 1.0}, "delta")])  # fmt: skip
def test_an_epsilon_of_nothing_is_refused(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        epsilon(noisy(), **({"rounds": 1, "delta": DELTA} | change))


# --- plans --------------------------------------------------------------------------------------------------------


def plan_of(**change: Any) -> Plan:
    given: dict[str, Any] = {"classes": [24, 24], "levels": [2, 4], "dimension": 9000, "subgroup_size": 8}
    given |= {"clipping_norm": 0.5, "noise_multiplier": 3.0, "min_survivors": 5, "min_block_survivors": 12}
    return Plan.build(**given | {"honest": 9} | change)


def test_a_plan_stands_for_its_rounds() -> None:
    plan = plan_of()
    found = NoisyRound.of(plan)
    assert (found.noise_multiplier, found.honest, found.failure_probability) == (3.0, 9, 0.0)
    assert {(one.size, one.trials) for one in found.segments} == {
        (segment.size, block.level - 1) for segment in plan.segments for block in segment.blocks
    }
    assert {one.everywhere for one in found.segments} == {9, plan.share_threshold - plan.colluders}
    for view in ("server", "model"):
        assert epsilon(plan, rounds=20, delta=DELTA, view=view) == epsilon(found, rounds=20, delta=DELTA, view=view)
    target = {"target_epsilon": 8.0, "target_delta": DELTA, "rounds": 20}
    assert noise_multiplier_for(plan, **target) == noise_multiplier_for(found, **target)
    assert epsilon(plan.with_value_range(70.0), rounds=20, delta=DELTA) == epsilon(plan, rounds=20, delta=DELTA)


def test_survivors_help_the_model_where_all_blocks_count_alike() -> None:
    """Three of twelve need not follow the mechanism: the colluders, in whatever block; or, of more, three of each."""
    same = plan_of(levels=[4, 4], colluders=3)
    assert {one.everywhere for one in NoisyRound.of(same, survivors=40).segments} == {37}
    mixed = NoisyRound.of(plan_of(colluders=3), survivors=40)
    assert {one.everywhere for one in mixed.segments} == {9, 37}
    more = plan_of(levels=[4, 4], colluders=2)
    assert {len(segment.blocks) for segment in more.segments} == {3}
    assert {one.everywhere for one in NoisyRound.of(more, survivors=40).segments} == {31}


def test_an_adaptive_clip_is_charged_among_everybody() -> None:
    """What does not follow the mechanism in a block may be in all of them."""
    for change, others in (({"colluders": 3}, 3), ({"levels": [4, 4], "colluders": 2}, 9)):
        plain, adaptive = (NoisyRound.of(plan_of(**change, adaptive_clip=bit), survivors=40) for bit in (False, True))
        assert (plain.clip_bit, adaptive.clip_bit) == (0, 40 - others)
        assert replace(adaptive, clip_bit=0) == plain
        assert divergence(adaptive, 8.0) > divergence(plain, 8.0)
    few = NoisyRound.of(plan_of(adaptive_clip=True, levels=[4, 4], colluders=2), survivors=12)
    assert few.clip_bit == few.honest == 9
    target = {"target_epsilon": 8.0, "target_delta": DELTA, "rounds": 20}
    plain, adaptive = (noise_multiplier_for(plan_of(adaptive_clip=bit), **target) for bit in (False, True))
    among = NoisyRound.of(plan_of(adaptive_clip=True)).clip_bit
    assert adaptive == pytest.approx(plain / math.sqrt(1 - plain**2 / among), rel=0.05)  # were both Gaussian


def test_a_sparse_sharing_graph_may_fail() -> None:
    plan = plan_of(sharing="sparse", classes=[400], levels=[2], subgroup_size=40, dropout=0.05, colluders=3)
    found = NoisyRound.of(plan)
    assert found.failure_probability == 2.0**-PRIVACY_BITS
    assert plan.share_threshold > plan.min_block_survivors, "of a user's neighbours, not of everybody"
    assert {one.everywhere for one in found.segments} == {plan.min_block_survivors - plan.colluders}


def test_cohorts_cost_what_the_dearest_of_them_does() -> None:
    """A user is in one of them, and nobody says in which."""
    given: dict[str, Any] = {"design": "secagg", "subgroup_size": 24, "clipping_norm": 0.5, "noise_multiplier": 3.0}
    given |= {"min_survivors": 10, "min_block_survivors": 10, "honest": 9, "colluders": 1, "adaptive_clip": True}
    cohorts = CohortPlan.build([49], [2], 9000, cohort_size=25, **given)
    parts = [NoisyRound.of(plan) for plan in cohorts.plans]
    assert [plan.share_threshold for plan in cohorts.plans] == [14, 13]
    found = NoisyRound.of(cohorts)
    assert (found.noise_multiplier, found.honest, found.failure_probability) == (3.0, 9, 0.0)
    assert [one.everywhere for one in found.segments] == [12, 13]
    assert [part.clip_bit for part in parts] == [13, 12]
    assert found.clip_bit == 12
    for view in ("server", "model"):
        assert divergence(found, 8.0, view) == max(divergence(part, 8.0, view) for part in parts)
    assert {one.everywhere for one in NoisyRound.of(cohorts, survivors=20).segments} == {19}
    sparse = Plan.build(**cohorts.plans[1].arguments() | {"sharing": "sparse"})
    mixed = NoisyRound.of(replace(cohorts, plans=(cohorts.plans[0], sparse)))
    assert mixed.failure_probability == 2.0**-PRIVACY_BITS
    alone = CohortPlan.build([24], [2], 9000, cohort_size=24, **given)
    assert NoisyRound.of(alone) == NoisyRound.of(alone.plans[0])


def test_plans_that_cost_nothing_that_is_known_are_refused() -> None:
    with pytest.raises(UsageError, match="no noise"):
        NoisyRound.of(Plan.build([8], [4], 10, value_range=1.0, subgroup_size=4))
    for survivors in (0, 49, True, 2.5):
        with pytest.raises(UsageError, match="survivors of this plan are 1 to 48"):
            NoisyRound.of(plan_of(), survivors=survivors)  # type: ignore[arg-type]


def test_survivors_are_one_to_all_users() -> None:
    same = plan_of(levels=[4, 4], colluders=3)
    for survivors, everywhere in ((1, 9), (48, 45)):
        assert {one.everywhere for one in NoisyRound.of(same, survivors=survivors).segments} == {everywhere}


# --- the noise for a target ---------------------------------------------------------------------------------------


@each(
    "target, rounds, view, change",
    [
        (8.0, 20, "server", {}),
        (8.0, 20, "model", {"everywhere": 90}),
        (1.0, 1, "server", {}),
        (0.02, 1, "server", {}),
        (0.5, 1, "server", {"size": 28}),
        (8.0, 20, "server", {"size": 160}),
        (8.0, 20, "server", {"size": 100, "trials": 3, "honest": 12}),
        (8.0, 20, "server", {"clip_bit": 300}),
        (30.0, 1, "server", {"trials": 15, "honest": 6, "size": 16}),
    ],
)
def test_the_noise_for_a_target_meets_it_and_is_hardly_more(
    target: float, rounds: int, view: View, change: dict[str, Any]
) -> None:
    like = noisy(z=10.0, **change)
    z = noise_multiplier_for(like, target_epsilon=target, target_delta=DELTA, rounds=rounds, view=view)
    assert epsilon(replace(like, noise_multiplier=z), rounds=rounds, delta=DELTA, view=view) <= target
    try:
        less = replace(like, noise_multiplier=0.997 * z)
    except PlanError:
        return  # the levels need that much
    assert epsilon(less, rounds=rounds, delta=DELTA, view=view) > target


@each(
    "target, rounds, view, change, thetas, orders",
    [
        (0.2, 1, "server", {"everywhere": 90}, 1, 6),  # so much noise that theta is as small as counts
        (1.0, 1, "server", {}, 1, 6),
        (8.0, 20, "server", {"size": 160}, 1, 6),  # so little that theta is as large as may be
        (8.0, 20, "model", {"size": 1000, "everywhere": 90}, 1, 6),
        (30.0, 1, "server", {}, 1, 4),  # smaller orders cost more than the target whatever the noise
        (8.0, 20, "server", {"size": 400}, 3, 6),
        (2.0, 1, "server", {"size": 1000, "everywhere": 90}, 3, 6),
    ],
)
def test_the_search_for_noise_tries_few_orders_and_thetas(
    target: float, rounds: int, view: View, change: dict[str, Any], thetas: int, orders: int
) -> None:
    like = noisy(z=10.0, **change)
    asked = looked_up(
        lambda: noise_multiplier_for(like, target_epsilon=target, target_delta=DELTA, rounds=rounds, view=view)
    )
    assert len({inputs for inputs, _ in asked}) <= thetas
    assert len(asked) <= orders * thetas


def test_noise_grows_without_limit_towards_a_target_that_no_noise_meets() -> None:
    """The overhead of the last order, which is the least: there, nothing is left for the divergence."""
    limit = overhead(ORDERS[-1], DELTA)
    assert limit == least(lambda order: overhead(order, DELTA))
    with pytest.raises(UsageError, match="no noise keeps 1 rounds within epsilon"):
        gaussian_noise_multiplier_for(target_epsilon=limit, target_delta=DELTA, rounds=1)
    targets, found = [limit / (1 - 2e-12)], []  # what `epsilon` adds for rounding, twice
    for _ in range(4):
        targets = [math.nextafter(targets[0], 0.0), *targets, math.nextafter(targets[-1], 1.0)]
    for target in targets:
        try:
            found.append(noise_multiplier_for(noisy(), target_epsilon=target, target_delta=DELTA, rounds=1))
        except UsageError:
            found.append(math.inf)
    assert found == sorted(found, reverse=True)
    assert found[0] == math.inf > found[-1] > 1e6


def test_levels_may_need_more_noise_than_the_target() -> None:
    like = noisy(z=20.0, size=16)
    z = noise_multiplier_for(like, target_epsilon=50.0, target_delta=DELTA, rounds=1)
    assert z == pytest.approx(4 * math.sqrt(9))
    assert epsilon(replace(like, noise_multiplier=z), rounds=1, delta=DELTA) < 50.0


def test_a_target_that_no_noise_meets_is_refused() -> None:
    with pytest.raises(UsageError, match=r"no noise keeps 500 rounds within epsilon 0\.5"):
        noise_multiplier_for(noisy(clip_bit=3), target_epsilon=0.5, target_delta=DELTA, rounds=500)
    with pytest.raises(UsageError, match="no noise"):
        noise_multiplier_for(noisy(), target_epsilon=1e-3, target_delta=DELTA, rounds=1)
    for wrong in (0.0, math.nan, math.inf):
        with pytest.raises(UsageError, match="epsilon is a positive number"):
            noise_multiplier_for(noisy(), target_epsilon=wrong, target_delta=DELTA, rounds=1)
