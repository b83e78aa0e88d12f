"""A client's privacy budget: charged when a masked vector leaves, refused beyond the policy, over restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rounds import World

from heterosag.errors import BudgetError, FaultyServerError, PlanError, UsageError
from heterosag.plan import Plan
from heterosag.plan.sharing import PRIVACY_BITS
from heterosag.privacy import Accountant
from heterosag.protocol import ClientPhase, Policy, RoundId
from heterosag.protocol.budget import MemoryBudget, add_charge, event_of
from heterosag.protocol.rounding import Rounding
from heterosag.storage.budget import FileBudget
from heterosag.storage.release_log import FileReleaseLog


def noisy_plan(**change: Any) -> Plan:
    given: dict[str, Any] = {"classes": [12], "levels": [2], "dimension": 900, "design": "secagg", "subgroup_size": 12}
    given |= {"clipping_norm": 0.5, "noise_multiplier": 4.0, "min_block_survivors": 10}
    return Plan.build(**given | change)


def allows(rounds: int, plan: Plan) -> Policy:
    """A policy under which exactly so many rounds of the plan are possible."""
    low, high = 0.5, 100.0
    while high - low > 1e-3:
        middle = (low + high) / 2
        accountant = Accountant.filter(max_epsilon=middle, target_delta=1e-5)
        low, high = (middle, high) if accountant.would_exceed(event_of(plan), count=rounds) else (low, middle)
    return Policy(max_epsilon=high, delta=1e-5)


def world_of(plan: Plan, policy: Policy, budgets: dict[Any, Any]) -> World:
    """A round whose every user has the policy and a budget of its own."""
    world = World(plan)
    world.clients = {user: world.make_client(user, policy=policy, budget=budgets[user]) for user in plan.users}
    return world


def test_a_client_refuses_the_round_beyond_its_budget() -> None:
    plan = noisy_plan()
    policy, budgets = allows(2, plan), {user: MemoryBudget() for user in plan.users}
    for _ in range(2):
        world = world_of(plan, policy, budgets)
        world.run("advertise", "share", "mask", "unmask")
        assert len(world.server.decoded.survivors) == 12
    world = world_of(plan, policy, budgets)
    with pytest.raises(BudgetError, match="is spent at delta 1e-05") as refusal:
        world.clients[0].advertise()
    assert 0 < refusal.value.epsilon <= refusal.value.limit == policy.max_epsilon
    assert refusal.value.delta == 1e-5
    assert world.clients[0].phase is ClientPhase.FRESH


def test_a_round_that_does_not_end_is_charged_too_and_a_repeated_message_is_not() -> None:
    plan = noisy_plan()
    policy, budgets = allows(1, plan), {user: MemoryBudget() for user in plan.users}
    world = world_of(plan, policy, budgets)
    world.run("advertise", "share")
    first = world.answer("mask", 0)
    assert world.answer("mask", 0) == first
    with pytest.raises(BudgetError):
        budgets[0].check(plan, policy)
    budgets[1].check(plan, policy)


def test_a_round_opened_before_the_budget_was_spent_is_refused_when_it_masks() -> None:
    """Rounds may be set up ahead: what counts is when a vector leaves."""
    plan = noisy_plan()
    policy, budgets = allows(1, plan), {user: MemoryBudget() for user in plan.users}
    ahead = world_of(plan, policy, budgets)
    ahead.run("advertise", "share")
    budgets[0].charge(plan, policy)
    with pytest.raises(BudgetError):
        ahead.answer("mask", 0)
    assert ahead.clients[0].phase is ClientPhase.SHARED


def test_of_two_vectors_at_once_only_one_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between check and charge another process may have charged: the vector stays, though it is encoded."""
    plan = noisy_plan()
    policy, budgets = allows(1, plan), {user: MemoryBudget() for user in plan.users}
    world = world_of(plan, policy, budgets)
    world.run("advertise", "share")
    budgets[0].charge(plan, policy)
    monkeypatch.setattr(budgets[0], "check", lambda plan, policy: None)
    with pytest.raises(BudgetError):
        world.answer("mask", 0)
    assert world.clients[0].phase is ClientPhase.DEAD


def test_the_budget_is_checked_with_the_inbox_before_there_is_a_vector() -> None:
    plan = noisy_plan()
    policy, budgets = allows(1, plan), {user: MemoryBudget() for user in plan.users}
    world = world_of(plan, policy, budgets)
    world.run("advertise", "share")
    world.clients[0].check_inbox(world.waiting[0])
    budgets[0].charge(plan, policy)
    with pytest.raises(BudgetError):
        world.clients[0].check_inbox(world.waiting[0])
    assert world.clients[0].phase is ClientPhase.SHARED


def test_the_budget_holds_across_a_restart_and_a_rolled_back_client(tmp_path: Path) -> None:
    plan = noisy_plan()
    policy = allows(1, plan)
    world = World(plan)
    options: dict[str, Any] = {"policy": policy, "budget": FileBudget(tmp_path)}
    world.clients[0] = world.make_client(0, **options, release_log=FileReleaseLog(tmp_path))
    world.run("advertise", "share")
    saved = world.clients[0].save()
    world.answer("mask", 0)

    options["budget"] = FileBudget(tmp_path)  # the program starts again
    options["release_log"] = FileReleaseLog(tmp_path)
    world.clients[0] = world.make_client(0, **options, saved=saved)
    with pytest.raises(BudgetError):
        world.answer("mask", 0)
    with pytest.raises(BudgetError):
        world.make_client(0, round_id=RoundId(session=b"another run", number=0), **options).advertise()
    assert FileBudget(tmp_path).rounds == 1

    options["policy"] = allows(3, plan)  # more budget: yet a round is masked once, and not charged again
    world.clients[0] = world.make_client(0, **options, saved=saved)
    with pytest.raises(FaultyServerError, match="second time"):
        world.answer("mask", 0)
    assert FileBudget(tmp_path).rounds == 1


def test_a_client_that_has_spent_its_budget_still_ends_its_last_round(tmp_path: Path) -> None:
    plan = noisy_plan()
    policy = allows(1, plan)
    world = World(plan)
    options: dict[str, Any] = {"policy": policy, "budget": FileBudget(tmp_path)}
    world.clients[0] = world.make_client(0, **options)
    world.run("advertise", "share", "mask")
    world.clients[0] = world.make_client(0, **options, saved=world.clients[0].save())
    world.run("unmask")
    assert len(world.server.decoded.survivors) == 12


def test_a_budget_needs_noise_that_nobody_can_repeat() -> None:
    plan = noisy_plan()
    policy = Policy(max_epsilon=8.0)
    world = World(plan)
    with pytest.raises(UsageError, match="give a budget that outlives"):
        world.make_client(0, policy=policy)
    world.clients[0] = world.make_client(0, policy=policy, budget=MemoryBudget())
    world.run("advertise", "share")
    for bad in ({"rounding": Rounding.from_seed(1, 0)}, {"clip": False}):
        with pytest.raises(UsageError, match="has no privacy"):
            world.clients[0].mask(world.waiting[0], world.updates[0], **bad)  # type: ignore[arg-type]
    world.answer("mask", 0)


def test_a_policy_with_a_limit_refuses_plans_without_noise_and_limits_that_make_no_sense() -> None:
    plain = Plan.build([12], [16], 40, value_range=0.5, subgroup_size=6)
    with pytest.raises(PlanError, match="no noise") as refusal:
        Policy(max_epsilon=8.0).check(plain)
    assert refusal.value.field == "noise_multiplier"
    with pytest.raises(PlanError, match="no noise"):
        Policy(max_epsilon=8.0, frame=plain.frame).check(plain)
    for bad in ({"max_epsilon": 0.0}, {"max_epsilon": float("nan")}, {"max_epsilon": 1.0, "delta": 0.0}, {"delta": 2}):
        with pytest.raises(UsageError):
            Policy(**bad)


def test_without_a_limit_rounds_are_counted_and_count_under_a_limit_later() -> None:
    plan = noisy_plan()
    budget = MemoryBudget()
    for _ in range(3):
        budget.charge(plan, Policy())
    with pytest.raises(BudgetError):
        budget.charge(plan, allows(3, plan))
    budget.charge(plan, allows(4, plan))


def test_plans_without_noise_are_not_charged(tmp_path: Path) -> None:
    plan = Plan.build([12], [16], 40, value_range=0.5, subgroup_size=6)
    world = World(plan, budget=FileBudget(tmp_path))
    world.run("advertise", "share", "mask", "unmask")
    assert world.server.decoded.survivors
    assert FileBudget(tmp_path).rounds == 0


def test_charges_add_up_over_plans() -> None:
    plan, other = noisy_plan(), noisy_plan(noise_multiplier=6.0)
    policy = allows(2, plan)
    charges = add_charge(add_charge([], plan, policy), other, policy)
    assert len(charges) == 2
    with pytest.raises(BudgetError):
        add_charge(charges, plan, policy)
    assert len(charges) == 2


def test_a_sparse_graph_may_fail_once_for_every_plan() -> None:
    given: dict[str, Any] = {"sharing": "sparse", "classes": [400], "subgroup_size": 400, "min_block_survivors": 300}
    given |= {"dropout": 0.05, "levels": [4], "noise_multiplier": 8.0}
    plan = noisy_plan(**given, assignment_seed=1)
    one, other = event_of(plan), event_of(noisy_plan(**given, assignment_seed=2))
    assert one.failure_probability == 2.0**-PRIVACY_BITS
    assert one.epoch == int.from_bytes(plan.frame[:6], "little"), "files of charges name a plan so"
    assert one.epoch != other.epoch
    accountant = Accountant(target_delta=1e-5)
    for event in (one, one, other):
        accountant.compose(event)
    assert one == event_of(noisy_plan(**given, assignment_seed=1))
