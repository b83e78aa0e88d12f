"""Noise on Flower: planned by the grid, kept to by the nodes, with nothing exact beside it."""

from __future__ import annotations

import dataclasses
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flower_nodes import FIRST_NODE, LocalGrid, grid_of, make_nodes, messages, record, result_of, signed_nodes
from flwr.app import Message, MessageType
from flwr.serverapp.strategy import FedAvg

import heterosag.planner.noise
from heterosag.aggregation.clipping import follow_norm
from heterosag.aggregation.rules import find_rule
from heterosag.choices import RuleName
from heterosag.errors import BudgetError, PlanError, UsageError
from heterosag.flower import Privacy, SecureGrid, mod
from heterosag.flower.epochs import Epochs
from heterosag.flower.privacy import GridBudget
from heterosag.plan import CohortPlan, Plan
from heterosag.plan.cohorts import plans_of
from heterosag.privacy import Accountant, epsilon
from heterosag.protocol.budget import event_of
from heterosag.protocol.policy import Policy
from heterosag.storage.budget import FileBudget

ASKED = Privacy(clipping_norm=0.5, target_epsilon=8.0, rounds=3)
OPTIONS: dict[str, Any] = {"design": "secagg", "subgroup_size": 8, "dropout": 0.0}
MODEL = {"w": np.zeros(2000, dtype=np.float32)}


def train(node: int, before: dict[str, Any]) -> dict[str, Any]:
    return {name: value + 0.001 for name, value in before.items()}


def private_grid(nodes: Any, fault: Any = None, **change: Any) -> SecureGrid:
    given: dict[str, Any] = {"levels": [2], "privacy": ASKED, "options": OPTIONS}
    return SecureGrid(LocalGrid(nodes, fault), **given | change)


def noisy_plan(noise_multiplier: float = 6.0) -> Plan:
    return Plan.build(
        [8], [2], 2000, design="secagg", subgroup_size=8, min_block_survivors=8, clipping_norm=1.0,
        noise_multiplier=noise_multiplier,
    )  # fmt: skip


def test_a_private_run_ends_at_its_target_and_its_record_says_what_it_cost(tmp_path: Path) -> None:
    nodes = make_nodes(8, tmp_path, train, loss=0.25)
    grid = private_grid(nodes, record=tmp_path)
    strategy = FedAvg(min_available_nodes=8, fraction_evaluate=1.0)
    result = grid.start(strategy, initial_arrays=record(MODEL), num_rounds=4)
    assert [bool(done.error) for done in grid.rounds] == [False, False, False, True]
    assert "BudgetError" in grid.rounds[-1].error
    plan = grid.rounds[0].plan
    assert plan is not None
    assert (plan.clipping_norm, plan.metrics, plan.max_weight, plan.lanes) == (0.5, (), 1, ("count",))
    assert epsilon(plan, rounds=3, delta=1e-5) <= 8.0
    moved = result.arrays["w"].numpy()
    deviation = plan.noise_multiplier * 0.5 / np.sqrt(plan.honest * 8 / 3)
    assert moved.std() == pytest.approx(deviation, rel=0.1)
    assert not grid.evaluations
    lines = [json.loads(line) for line in (tmp_path / "run" / "record.jsonl").read_text().splitlines()]
    costs = [line["privacy"]["epsilon_server"] for line in lines if "privacy" in line]
    assert costs == sorted(costs)
    assert len(costs) == 3
    assert costs[-1] <= 8.0
    assert "loss" not in str(grid.rounds[0].combined and grid.rounds[0].combined.metrics)


@pytest.mark.parametrize(
    ("sizes", "rule", "cohort_size"),
    [
        ([200], "median", 512),  # 29 subgroups outvote most without noise, and one of an odd number is alone
        ([300], "median", 512),  # as many of them collude as survive in the smallest blocks
        ([150, 150], "mean", 512),
        ([200, 200], "mean", 200),
    ],
)
def test_nodes_of_the_default_policy_take_part_under_noise(
    sizes: list[int], rule: RuleName, cohort_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the grid chooses by itself has blocks that noise can make private, and survivors as nodes ask for them."""
    levels, names = [16 << index for index in range(len(sizes))], iter(map(str, range(1000)))
    members = [[next(names) for _ in range(size)] for size in sizes]
    epochs = Epochs(
        given=None, levels=levels, rate_limits=(), options={}, rule=find_rule(rule), max_weight=1, weighted_by="",
        directory=dict.fromkeys(map(str, range(sum(sizes))), b""), assignment="enrolled", scaled=False,
        cohort_size=cohort_size, privacy=ASKED,
    )  # fmt: skip
    monkeypatch.setattr(heterosag.planner.noise, "noise_within_budget", lambda *given, **target: 6.0)
    plan = epochs._build(members, [user for group in members for user in group], (2000,))
    policy = Policy(max_epsilon=20.0)
    for own in plans_of(plan):
        assert own.noise_multiplier == 6.0
        assert own.honest >= own.colluders
        policy.check(own, cohorts=plan if isinstance(plan, CohortPlan) else None, settled=False)
    for group in members:
        policy.check_draw(plan, group[0])


def test_nodes_keep_their_own_budget_whatever_the_grid_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def secure(place: int) -> Any:
        policy = Policy(min_users=2, max_epsilon=8.0, delta=1e-5)
        return mod(policy=policy, trust_server=True, release_log=tmp_path / "releases")

    def config(place: int) -> dict[str, Any]:
        return {"heterosag-name": f"clinic-{place}"}

    nodes = make_nodes(8, tmp_path, train, secure=secure, config=config)
    grid = private_grid(nodes, prepare=False)
    monkeypatch.setattr(GridBudget, "charge", lambda self, plan: None)  # a grid that does not care
    replies = [next(iter(grid.send_and_receive(messages(nodes, MODEL)))) for _ in range(4)]
    assert [reply.has_error() for reply in replies] == [False, False, False, True]
    assert all("privacy budget" in why for why in grid.rounds[-1].lost.values())
    for place in range(8):
        assert FileBudget(tmp_path / "releases" / f"name-clinic-{place}").rounds == 3
    again = make_nodes(8, tmp_path, train, secure=secure, config=config)  # another run with the same nodes
    for node in again:
        node.context.node_id += 1  # which have registered anew
    assert next(iter(private_grid(again, prepare=False).send_and_receive(messages(again, MODEL)))).has_error()


@pytest.mark.parametrize("config", [{}, {"heterosag-name": "../elsewhere"}, {"heterosag-name": ""}])
def test_a_budget_over_runs_needs_a_name_that_no_server_chooses(
    config: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def secure(place: int) -> Any:
        return mod(policy=Policy(min_users=2, max_epsilon=8.0), trust_server=True, release_log=tmp_path)

    nodes = make_nodes(8, tmp_path, train, secure=secure, config=lambda place: config)
    assert next(iter(private_grid(nodes).send_and_receive(messages(nodes, MODEL)))).has_error()
    assert "heterosag-name" in caplog.text


@pytest.mark.parametrize("fails", ["raises", "not finite", "other arrays", "no number"])
def test_whether_training_failed_is_not_told_under_noise(
    fails: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A refusal would be an exact bit of the node's data, for any model that a server chooses, and not be charged."""

    def some_fail(node: int, before: dict[str, Any]) -> dict[str, Any]:
        if node != FIRST_NODE:
            return train(node, before)
        if fails == "raises":
            raise RuntimeError("the loss is not finite")
        if fails == "not finite":
            return {"w": before["w"] * np.nan}
        return {"w": before["w"][1:]} if fails == "other arrays" else {"v": before["w"]}

    nodes = make_nodes(8, tmp_path, some_fail)
    grid = private_grid(nodes)
    (reply,) = grid.send_and_receive(messages(nodes, MODEL))
    assert not reply.has_error()
    assert (len(grid.rounds[0].survivors), grid.rounds[0].lost) == (8, {})
    assert FileBudget(tmp_path / str(FIRST_NODE)).rounds == 1
    assert ("noise goes in the place of this node's update" in caplog.text) == (fails != "not finite")


def test_a_node_with_a_budget_refuses_a_grid_without_noise(tmp_path: Path) -> None:
    def secure(place: int) -> Any:
        return mod(policy=Policy(min_users=2, max_epsilon=8.0), trust_server=True, release_log=tmp_path)

    nodes = make_nodes(8, tmp_path, train, secure=secure)
    grid, _ = grid_of(nodes, levels=[2], options=OPTIONS)
    assert next(iter(grid.send_and_receive(messages(nodes, MODEL)))).has_error()
    assert all("below this node's policy" in why for why in grid.rounds[0].lost.values())


def test_what_is_exact_is_off_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nodes = make_nodes(8, tmp_path, train)
    with caplog.at_level(logging.INFO, logger="flwr"):
        grid = private_grid(nodes, max_weight=7)
        asked = messages(nodes, MODEL)
        evaluations = [
            Message(one.content, dst_node_id=one.metadata.dst_node_id, message_type=MessageType.EVALUATE)
            for one in asked
        ]
        grid.send_and_receive(asked)
        (reply,) = grid.send_and_receive(evaluations)
    assert reply.has_error()
    assert "no secure evaluation" in reply.error.reason
    for words in (
        "weights are off under privacy",
        "nodes count alike, and no metrics",
        "there is no secure evaluation",
    ):
        assert words in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="flwr"):
        private_grid(nodes)
    assert [one.getMessage() for one in caplog.records] == [
        "under privacy nodes count alike, and no metrics or secure evaluations: their sums would be exact"
    ]


def test_running_variances_stay_positive_under_noise(tmp_path: Path) -> None:
    """The noise of an element is many times its value."""
    nodes = make_nodes(8, tmp_path, train)
    model = {**MODEL, "norm.running_var": np.full(64, 0.01, dtype=np.float32)}
    found = result_of(next(iter(private_grid(nodes).send_and_receive(messages(nodes, model)))))
    assert found["w"].min() < -0.1
    assert found["norm.running_var"].min() == pytest.approx(0.0025)


def test_a_model_that_is_not_finite_is_refused_before_it_is_charged(tmp_path: Path) -> None:
    """Every update would be sent as fair coins: a round of noise alone, which nobody would notice."""
    nodes = make_nodes(8, tmp_path, train)
    grid = private_grid(nodes)
    (reply,) = grid.send_and_receive(messages(nodes, {**MODEL, "mask": np.array([0.0, np.nan])}))
    assert "not finite in ['mask']" in reply.error.reason
    assert grid.rounds[-1].privacy is None
    assert grid.state_dict()["budget"]["server"]["composed"] == []


def test_noise_of_flower_on_top_is_refused(tmp_path: Path) -> None:
    from flwr.serverapp.strategy import DifferentialPrivacyClientSideFixedClipping as Clipping

    grid = private_grid(make_nodes(8, tmp_path, train))
    with pytest.raises(UsageError, match="private already"):
        grid.start(Clipping(FedAvg(min_available_nodes=8), 0.1, 1.0, 8), initial_arrays=record(MODEL), num_rounds=1)


def test_misuse_is_named(tmp_path: Path) -> None:
    nodes = make_nodes(8, tmp_path, train)
    noisy = noisy_plan(4.0)
    with pytest.raises(PlanError, match=r"give privacy=Privacy"):
        grid_of(nodes, plan=noisy)
    for bad in ({"plan": noisy}, {"value_range": 1.0}, {"metrics": ["loss"]}):
        with pytest.raises(PlanError, match="plans noise itself"):
            private_grid(nodes, **bad)
    for wrong, says in (
        ({"clipping_norm": 0.0}, r"clipping_norm is above 0, not 0\.0"),
        ({"rounds": 0}, "rounds is an integer of at least 1, not 0"),
        ({"rounds": True}, "rounds is an integer of at least 1, not True"),
        ({"target_epsilon": 0.0}, r"epsilon is a positive number, not 0\.0"),
        ({"target_delta": 1.0}, r"delta is above 0 and below 1, not 1\.0"),
    ):
        given: dict[str, Any] = {"clipping_norm": 1.0, "target_epsilon": 8.0, "rounds": 3}
        with pytest.raises(UsageError, match=f"^{says}$"):
            Privacy(**given | wrong)


def test_the_models_view_is_of_the_mean_only() -> None:
    noisy = noisy_plan()
    assert GridBudget(ASKED, mean=False, identities=True).charge(noisy)["epsilon_model"] is None
    budget = GridBudget(ASKED, mean=True, identities=True)
    spent = budget.charge(noisy)
    assert spent["epsilon_model"] <= spent["epsilon_server"]
    with pytest.raises(BudgetError):
        [budget.charge(noisy) for _ in range(100)]


def test_a_grid_counts_the_failure_of_sparse_graphs_once_a_plan_as_nodes_do(monkeypatch: pytest.MonkeyPatch) -> None:
    charged: list[Any] = []
    monkeypatch.setattr(Accountant, "compose", lambda self, event: charged.append(event))
    for seed in (1, 2):
        plan = Plan.build(
            [300], [2], 2000, design="secagg", subgroup_size=300, assignment_seed=seed, sharing="sparse",
            min_block_survivors=250, clipping_norm=1.0, noise_multiplier=60.0,
        )  # fmt: skip
        GridBudget(ASKED, mean=False, identities=True).charge(plan)
        assert charged[-1] == event_of(plan)
        assert charged[-1].failure_probability > 0
    assert len({event.epoch for event in charged}) == 2


def test_with_identities_and_blocks_that_the_nodes_drew(tmp_path: Path) -> None:
    policy = Policy(min_users=2, max_epsilon=8.0)
    nodes, directory = signed_nodes(16, tmp_path, policy=policy)
    options = {"subgroup_size": 4, "min_survivors": 3, "dropout": 0.0}
    grid = private_grid(nodes, directory=directory, options=options)
    (reply,) = grid.send_and_receive(messages(nodes, MODEL))
    assert not reply.has_error()
    plan = grid.rounds[0].plan
    assert plan is not None
    assert (len(plan.subgroups), plan.min_block_survivors, plan.honest) == (4, 8, 7)
    assert "malicious or curious" in str(grid.rounds[0].privacy)
    assert FileBudget(tmp_path / f"key-{directory[str(nodes[0].context.node_id)].hex()}").rounds == 1


def test_the_clipping_norm_follows_the_nodes_from_round_to_round_and_from_grid_to_grid(tmp_path: Path) -> None:
    asked = dataclasses.replace(ASKED, rounds=4, adaptive_clip=True)
    nodes = make_nodes(8, tmp_path, train)
    grid = private_grid(nodes, privacy=asked)
    grid.start(FedAvg(min_available_nodes=8, fraction_evaluate=0.0), initial_arrays=record(MODEL), num_rounds=2)
    first, second = (done.plan for done in grid.rounds)
    assert first is not None
    assert second is not None
    assert first.adaptive_clip
    assert (first.clipping_norm, first.frame) == (0.5, second.frame)
    combined = grid.rounds[0].combined
    assert combined is not None
    assert combined.within_norm is not None
    assert second.clipping_norm == pytest.approx(follow_norm(0.5, combined.within_norm))
    again = private_grid(make_nodes(8, tmp_path / "again", train), privacy=asked)
    again.load_state_dict(grid.state_dict())
    again.start(FedAvg(min_available_nodes=8, fraction_evaluate=0.0), initial_arrays=record(MODEL), num_rounds=1)
    plan, last = again.rounds[-1].plan, grid.rounds[1].combined
    assert plan is not None
    assert last is not None
    assert last.within_norm is not None
    assert plan.clipping_norm == pytest.approx(follow_norm(second.value_range[1], last.within_norm))


class Killed(BaseException):
    """The server dies, and nothing of it is left but what was saved."""


def dies(stage: str, node: int, message: Any) -> str:
    """Masked vectors have left when the trip after them begins."""
    if stage == "unmask":
        raise Killed
    return ""


def test_a_round_that_a_killed_server_forgot_is_charged(tmp_path: Path) -> None:
    asked = dataclasses.replace(ASKED, rounds=8)
    nodes = make_nodes(8, tmp_path, train)
    saved: dict[str, Any] | None = None
    for killed in (False, True, True, False):
        grid = private_grid(nodes, dies if killed else None, privacy=asked, prepare=False)
        if saved is not None:
            grid.load_state_dict(saved)
            saved = grid.state_dict()  # as documented: once more before the first round
        if killed:
            with pytest.raises(Killed):
                grid.send_and_receive(messages(nodes, MODEL))
        else:
            assert not next(iter(grid.send_and_receive(messages(nodes, MODEL)))).has_error()
            saved = grid.state_dict()
    left = FileBudget(tmp_path / str(nodes[0].context.node_id)).rounds
    assert left == 4
    last = grid.rounds[-1]
    assert last.plan is not None
    assert last.privacy is not None
    assert last.privacy["epsilon_server"] >= epsilon(last.plan, rounds=left, delta=1e-5)
    assert last.privacy["epsilon_model"] >= epsilon(last.plan, rounds=left, delta=1e-5, view="model")
    assert "over 5 rounds" in last.privacy["statement"]  # and one for the first restart, before which none was lost


def test_a_state_is_charged_one_round_more_where_there_is_any_and_room_for_it() -> None:
    def resumed(state: dict[str, Any]) -> GridBudget:
        budget = GridBudget(ASKED, mean=True, identities=True)
        budget.load_state_dict(json.loads(json.dumps(state)))
        return budget

    first = GridBudget(ASKED, mean=True, identities=True)
    assert resumed(first.state_dict()).state_dict() == first.state_dict()
    first.charge(noisy_plan())
    first.charge(noisy_plan(7.0))
    before = resumed(first.state_dict())
    first.charge(noisy_plan(7.0))
    assert before.state_dict() == first.state_dict()
    with pytest.raises(BudgetError) as full:
        [first.charge(noisy_plan()) for _ in range(100)]
    after = resumed(first.state_dict())
    assert after.state_dict() == first.state_dict()
    with pytest.raises(BudgetError) as none_left:
        after.charge(noisy_plan(600.0))  # whose cost the budget would allow
    assert str(none_left.value) == str(full.value)
