"""The accountant and the filter: what is composed, refused, kept and taken back."""

from __future__ import annotations

import inspect
import json
import math
from dataclasses import replace
from decimal import Decimal, localcontext
from typing import Any, get_args

import pytest
from cases import each

from heterosag.errors import UsageError
from heterosag.privacy import Accountant, NoisyRound, NoisySegment, accountant, epsilon, noise_within_budget
from heterosag.privacy.accounting import ORDERS, View, divergence, overhead

DELTA = 1e-5
ROUND = NoisyRound(noise_multiplier=3.0, honest=9, segments=(NoisySegment(size=10_000, trials=1, everywhere=90),))
OTHER = replace(ROUND, noise_multiplier=5.0, epoch=1)
CHEAP = replace(ROUND, noise_multiplier=50.0)


def test_equal_rounds_come_to_their_epsilon() -> None:
    found = Accountant(target_delta=DELTA)
    assert found.get_epsilon(DELTA) == 0.0
    found.compose(ROUND, 19)
    found.compose(ROUND)
    assert found.num_releases == 20
    assert found.get_epsilon(DELTA) == pytest.approx(epsilon(ROUND, rounds=20, delta=DELTA))
    assert found.get_epsilon(1e-7) > found.get_epsilon(DELTA)


def test_different_rounds_add_up_order_by_order() -> None:
    found = Accountant(target_delta=DELTA)
    found.compose(ROUND, 5)
    found.compose(OTHER, 7)
    assert (found.last_event, Accountant(target_delta=DELTA).last_event) == (OTHER, None)
    best = min(5 * divergence(ROUND, o) + 7 * divergence(OTHER, o) + overhead(o, DELTA) for o in ORDERS)
    assert found.get_epsilon(DELTA) == pytest.approx(best)
    assert found.get_epsilon(DELTA) < epsilon(ROUND, rounds=5, delta=DELTA) + epsilon(OTHER, rounds=7, delta=DELTA)


def test_repeated_rounds_join_the_last_entry_and_no_other() -> None:
    found = Accountant(target_delta=DELTA)
    for event, count in ((ROUND, 5), (OTHER, 3), (OTHER, 4), (ROUND, 2)):
        found.compose(event, count)
    assert found.num_releases == 14
    composed: Any = found.state_dict()["composed"]
    assert [(entry["event"]["epoch"], entry["count"]) for entry in composed] == [(0, 5), (1, 7), (0, 2)]
    apart = Accountant(target_delta=DELTA)
    apart.compose(ROUND, 7)
    apart.compose(OTHER, 7)
    assert found.get_epsilon(DELTA) == pytest.approx(apart.get_epsilon(DELTA))


def test_the_views_differ() -> None:
    model = Accountant(target_delta=DELTA, view="model")
    model.compose(ROUND, 20)
    assert model.get_epsilon(DELTA) == pytest.approx(epsilon(ROUND, rounds=20, delta=DELTA, view="model"))


@each("event, count, at", [(ROUND, 20, 5.0), (OTHER, 1, 0.5), (CHEAP, 1, 0.05)])
def test_epsilon_and_delta_are_rounded_up(event: NoisyRound, count: int, at: float) -> None:
    """Neither is below what the formulas give in exact arithmetic."""
    found = Accountant(target_delta=DELTA)
    found.compose(event, count)
    with localcontext(prec=40):
        costs = [(Decimal(order), count * Decimal(divergence(event, order))) for order in ORDERS]
        least = min(exact_epsilon(order, cost, Decimal(DELTA)) for order, cost in costs)
        deltas = [
            ((order - 1) * (cost - Decimal(at))).exp() * (1 - 1 / order) ** order / (order - 1) for order, cost in costs
        ]
        assert least <= Decimal(found.get_epsilon(DELTA)) <= least * (1 + Decimal("1e-11"))
        assert min(deltas) <= Decimal(found.get_delta(at)) <= min(deltas) * (1 + Decimal("1e-8"))


def exact_epsilon(order: Decimal, cost: Decimal, delta: Decimal) -> Decimal:
    return cost + (1 - 1 / order).ln() - (order * delta).ln() / (order - 1)


def test_delta_is_the_inverse_of_epsilon() -> None:
    found = Accountant(target_delta=DELTA)
    assert found.get_delta(1.0) == 0.0
    found.compose(ROUND, 20)
    spent = found.get_epsilon(DELTA)
    assert found.get_delta(spent) == pytest.approx(DELTA, rel=1e-3)
    assert found.get_delta(spent / 2) > DELTA
    assert found.get_delta(0.0) <= 1.0
    found.compose(ROUND, 10_000)
    assert found.get_delta(0.0) == 1.0
    with pytest.raises(UsageError, match="epsilon"):
        found.get_delta(-1.0)


def test_what_was_spent_in_one_value() -> None:
    found = Accountant(target_delta=DELTA)
    assert found.get_privacy_spent().optimal_order is None
    found.compose(ROUND, 20)
    spent = found.get_privacy_spent()
    assert (spent.delta, spent.num_releases, spent.accounting_method) == (DELTA, 20, "rdp")
    assert spent.epsilon == found.get_epsilon(DELTA)
    assert spent.optimal_order in ORDERS
    assert found.get_privacy_spent(1e-7).epsilon > spent.epsilon


def test_a_limit_is_seen_before_it_is_passed() -> None:
    found = Accountant(target_delta=DELTA, max_epsilon=7.6)
    found.compose(ROUND, 20)
    before = found.get_epsilon(DELTA)
    assert not found.would_exceed(OTHER, 30.0, 3)
    assert found.would_exceed(ROUND)
    assert not found.would_exceed(ROUND, max_epsilon=9.0)
    assert found.would_exceed(ROUND, 9.0, 100)
    assert found.get_epsilon(DELTA) == before
    found.compose(ROUND)
    reached = found.get_epsilon(DELTA)
    again = Accountant(target_delta=DELTA, max_epsilon=reached)
    assert not again.would_exceed(ROUND, count=21)
    assert again.would_exceed(ROUND, reached * (1.0 - 1e-9), 21)
    with pytest.raises(UsageError, match="max_epsilon"):
        Accountant(target_delta=DELTA).would_exceed(ROUND)


def test_failures_count_once_an_epoch_and_use_up_delta() -> None:
    risky = replace(ROUND, failure_probability=4e-6)
    found = Accountant(target_delta=DELTA)
    found.compose(risky, 3)
    found.compose(OTHER)
    found.compose(risky, 2)
    plain = Accountant(target_delta=6e-6)
    plain.compose(ROUND, 5)
    plain.compose(OTHER)
    assert found.get_epsilon(DELTA) == pytest.approx(plain.get_epsilon(6e-6))
    assert found.get_delta(5.0) == pytest.approx(plain.get_delta(5.0) + 4e-6)
    found.compose(replace(risky, epoch=2))
    found.compose(replace(risky, epoch=3))
    assert found.get_epsilon(DELTA) == math.inf
    found = Accountant(target_delta=DELTA)
    found.compose(replace(ROUND, failure_probability=DELTA))
    assert found.get_epsilon(DELTA) == math.inf


@each(
    "settings, problem",
    [
        ({"target_delta": 0.0}, "delta"),
        ({"target_delta": DELTA, "max_epsilon": 0.0}, "epsilon"),
        ({"target_delta": DELTA, "max_epsilon": True}, "epsilon"),
        ({"target_delta": DELTA, "view": "both"}, "view"),
    ],
)
def test_settings_without_meaning_are_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        Accountant(**settings)


@each("count", [0, -1, True, 1.5])
def test_a_count_of_rounds_is_an_integer(count: Any) -> None:
    with pytest.raises(UsageError, match="number of rounds"):
        Accountant(target_delta=DELTA).compose(ROUND, count)


# --- the filter ---------------------------------------------------------------------------------------------------


def test_a_filter_admits_up_to_its_budget_and_refuses_beyond() -> None:
    found = Accountant.filter(max_epsilon=8.0, target_delta=DELTA)
    rounds = 0
    while not found.would_exceed(ROUND):
        found.compose(ROUND)
        rounds += 1
    fixed = max(n for n in range(1, 40) if epsilon(ROUND, rounds=n, delta=DELTA) <= 8.0)
    assert 0.9 * fixed <= rounds <= fixed
    state = found.state_dict()
    with pytest.raises(UsageError, match="exceed the budget of epsilon 8"):
        found.compose(ROUND)
    assert found.state_dict() == state
    assert found.get_epsilon(DELTA) <= 8.0
    assert found.get_privacy_spent().accounting_method == "rdp-filter"
    assert found.get_privacy_spent().optimal_order == found.order


def test_a_filter_spends_its_budget_to_the_last() -> None:
    wide = Accountant.filter(max_epsilon=8.0, target_delta=DELTA)
    wide.compose(ROUND, 20)
    budget = wide.get_epsilon(DELTA)
    found = Accountant.filter(max_epsilon=budget, target_delta=DELTA)
    assert found.order == wide.order
    assert not found.would_exceed(ROUND, count=20)
    found.compose(ROUND, 20)
    assert found.num_releases == 20
    less = Accountant.filter(max_epsilon=budget * (1.0 - 1e-9), target_delta=DELTA)
    assert less.order == wide.order
    assert less.would_exceed(ROUND, count=20)


def test_a_filter_needs_a_budget_that_leaves_something_for_rounds() -> None:
    least = min(overhead(order, 0.9 * DELTA) for order in ORDERS)
    for budget in (0.99 * least, least):
        with pytest.raises(UsageError, match="allows no round"):
            Accountant.filter(max_epsilon=budget, target_delta=DELTA)
    assert Accountant.filter(max_epsilon=1.01 * least, target_delta=DELTA).get_epsilon(DELTA) == 0.0


@each("budget, event, count", [(8.0, ROUND, 20), (0.5, CHEAP, 1)])
def test_a_filter_rounds_epsilon_up(budget: float, event: NoisyRound, count: int) -> None:
    for view in get_args(View):
        found = Accountant.filter(max_epsilon=budget, target_delta=DELTA, view=view)
        found.compose(event, count)
        order = found.order
        assert order is not None
        with localcontext(prec=40):
            cost = count * Decimal(divergence(event, order, view))
            exact = exact_epsilon(Decimal(order), cost, Decimal("0.9") * Decimal(DELTA))
            assert exact <= Decimal(found.get_epsilon(DELTA)) <= exact * (1 + Decimal("1e-11"))


@each("budget, rounds", [(8.0, 20), (2.0, 3)])
def test_the_noise_within_a_budget_is_the_least_that_its_filter_admits(budget: float, rounds: int) -> None:
    noise = noise_within_budget(ROUND, max_epsilon=budget, delta=DELTA, rounds=rounds)
    limit = Accountant.filter(max_epsilon=budget, target_delta=DELTA)
    assert not limit.would_exceed(replace(ROUND, noise_multiplier=noise), count=rounds)
    assert limit.would_exceed(replace(ROUND, noise_multiplier=0.995 * noise), count=rounds)
    assert noise == noise_within_budget(OTHER, max_epsilon=budget, delta=DELTA, rounds=rounds), "whatever it has now"


def test_no_noise_keeps_a_budget_whose_delta_failures_use_up() -> None:
    """A tenth of delta is set aside for them, whatever the noise."""
    few, many = (replace(ROUND, failure_probability=part * DELTA) for part in (0.09, 0.11))
    assert noise_within_budget(few, max_epsilon=8.0, delta=DELTA, rounds=2) > 0
    with pytest.raises(UsageError, match="delta"):
        noise_within_budget(many, max_epsilon=8.0, delta=DELTA, rounds=2)


def test_a_filter_has_one_order_whatever_is_composed() -> None:
    """Its price is a sum at the order that was fixed from the budget alone: never the least over orders."""
    found = Accountant.filter(max_epsilon=8.0, target_delta=DELTA)
    order = found.order
    assert order is not None
    found.compose(ROUND, 3)
    found.compose(OTHER, 9)
    total = 3 * divergence(ROUND, order) + 9 * divergence(OTHER, order)
    assert found.order == order
    assert found.get_epsilon(DELTA) == pytest.approx(total + overhead(order, 0.9 * DELTA))


def test_a_filter_is_for_one_epsilon_and_one_delta() -> None:
    found = Accountant.filter(max_epsilon=8.0, target_delta=DELTA)
    assert not found.would_exceed(ROUND, 8.0)
    for ask, problem in (
        (lambda: found.get_epsilon(1e-6), "for delta"),
        (lambda: found.get_delta(1.0), "for one delta"),
        (lambda: found.would_exceed(ROUND, 9.0), "for epsilon 8"),
        (lambda: Accountant.filter(max_epsilon=1e-3, target_delta=DELTA), "allows no round"),
    ):
        with pytest.raises(UsageError, match=problem):
            ask()


def test_a_filter_sets_a_part_of_delta_aside_for_failures() -> None:
    found = Accountant.filter(max_epsilon=8.0, target_delta=DELTA)
    assert not found.would_exceed(replace(ROUND, failure_probability=0.9e-6))
    assert not found.would_exceed(replace(ROUND, failure_probability=0.1 * DELTA))
    assert found.would_exceed(replace(ROUND, failure_probability=1.1e-6))


# --- state --------------------------------------------------------------------------------------------------------


def made(kind: str) -> Accountant:
    if kind == "filter":
        return Accountant.filter(max_epsilon=8.0, target_delta=DELTA, view="model")
    return Accountant(target_delta=DELTA, max_epsilon=8.0)


@each("kind", ["filter", "plain"])
def test_state_goes_through_json_and_back(kind: str) -> None:
    found = made(kind)
    found.compose(ROUND, 3)
    found.compose(replace(OTHER, clip_bit=5, failure_probability=1e-9), 2)
    state = json.loads(json.dumps(found.state_dict()))
    again = made(kind)
    again.load_state_dict(state)
    assert again.state_dict() == found.state_dict()
    assert again.get_epsilon(DELTA) == found.get_epsilon(DELTA) > 0
    assert again.num_releases == 5


def test_state_that_was_stored_in_version_1_loads() -> None:
    event = {
        "noise_multiplier": 3.0,
        "honest": 9,
        "segments": [{"size": 10_000, "trials": 1, "everywhere": 90}],
        "clip_bit": 0,
        "failure_probability": 0.0,
        "epoch": 0,
    }
    stored = {
        "version": 1,
        "target_delta": DELTA,
        "max_epsilon": 8.0,
        "view": "server",
        "order": None,
        "composed": [{"event": event, "count": 3}],
    }
    found = made("plain")
    found.load_state_dict(stored)
    assert (found.last_event, found.num_releases) == (ROUND, 3)
    assert json.loads(json.dumps(found.state_dict())) == stored


def test_state_of_another_accountant_is_refused() -> None:
    state = made("plain").state_dict()
    for other in (made("filter"), Accountant(target_delta=1e-6, max_epsilon=8.0), Accountant(target_delta=DELTA)):
        with pytest.raises(UsageError, match="other settings"):
            other.load_state_dict(state)


def damaged() -> list[Any]:
    found = made("plain")
    found.compose(ROUND, 3)

    def changed(**change: Any) -> dict[str, Any]:
        state = json.loads(json.dumps(found.state_dict()))
        state["composed"][0] |= change
        return state

    event = json.loads(json.dumps(found.state_dict()))["composed"][0]["event"]
    return [
        {},
        found.state_dict() | {"version": 2},
        found.state_dict() | {"composed": 5},
        found.state_dict() | {"composed": [5]},
        changed(count=0),
        changed(count="3"),
        changed(event={}),
        changed(event=event | {"more": 1}),
        changed(event=event | {"noise_multiplier": -1.0}),
        changed(event=event | {"noise_multiplier": "3"}),
        changed(event=event | {"segments": [{}]}),
        changed(event=event | {"segments": 3}),
    ]


@each("state", damaged())
def test_damaged_state_is_refused_and_changes_nothing(state: Any) -> None:
    found = made("plain")
    found.compose(OTHER)
    before = found.state_dict()
    with pytest.raises(UsageError):
        found.load_state_dict(state)
    assert found.state_dict() == before


def test_it_has_the_methods_of_flowers_accountant() -> None:
    accounting = pytest.importorskip("flwr.supercore.privacy_accounting")
    theirs = accounting.PrivacyAccountant
    for name in ("compose", "get_epsilon", "get_delta", "get_privacy_spent", "would_exceed", "state_dict",
                 "load_state_dict"):  # fmt: skip
        assert list(inspect.signature(getattr(Accountant, name)).parameters) == list(
            inspect.signature(getattr(theirs, name)).parameters
        )
    fields = inspect.signature(accounting.PrivacySpent).parameters
    assert list(fields) == list(inspect.signature(accountant.PrivacySpent).parameters)
