"""Flower, in this process: the mod and the grid through every stage and fault."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flower_nodes import (
    FIRST_NODE,
    LOOSE,
    LocalGrid,
    arrays,
    grid_of,
    make_nodes,
    messages,
    record,
    shift,
    train,
)
from flwr.app import Message, MessageType, RecordDict
from flwr.serverapp.strategy import FedAdam, FedAvg, FedMedian, FedProx, Krum

from heterosag import Simulation, aggregate
from heterosag.errors import PlanError, UsageError
from heterosag.flower import SecureGrid, mod
from heterosag.protocol import Identity


def test_stages_are_as_few_as_security_allows(tmp_path: Path) -> None:
    nodes = make_nodes(6, tmp_path, train)
    grid, inside = grid_of(nodes)
    list(grid.send_and_receive(messages(nodes, arrays())))
    stages = list(dict.fromkeys(stage for stage, _ in inside.log))
    assert stages == ["advertise", "share", "mask", "unmask"]
    assert len(inside.log) == 4 * 6


@pytest.mark.parametrize("strategy", [FedAvg, FedAdam, FedProx])
def test_strategies_run_on_it(strategy: Any, tmp_path: Path) -> None:
    nodes = make_nodes(6, tmp_path, train)
    grid, _ = grid_of(nodes)
    options = {"proximal_mu": 0.1} if strategy is FedProx else {}
    chosen = strategy(fraction_evaluate=0.5, min_available_nodes=6, **options)
    model = {"w": np.zeros(30, dtype=np.float32)}
    result = grid.start(chosen, initial_arrays=record(model), num_rounds=2)
    assert len(grid.rounds) == 2
    assert all(not done.error for done in grid.rounds)
    assert result.arrays["w"].numpy().shape == (30,)
    if strategy is FedAvg:
        mean = float(np.mean([shift(node.context.node_id) for node in nodes]))
        assert np.allclose(result.arrays["w"].numpy(), 2 * mean, atol=1e-6)


@pytest.mark.parametrize("strategy", [FedMedian, Krum])
def test_strategies_that_need_each_reply_are_refused(strategy: Any, tmp_path: Path) -> None:
    nodes = make_nodes(6, tmp_path, train)
    grid, inside = grid_of(nodes)
    options = {"num_malicious_nodes": 1} if strategy is Krum else {}
    with pytest.raises(UsageError, match=r"rule='median'.* on the SecureGrid"):
        grid.start(strategy(min_available_nodes=6, **options), initial_arrays=record(arrays()), num_rounds=1)
    assert inside.log == []


def test_too_many_lost_is_a_named_error_and_the_next_round_works(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = make_nodes(6, tmp_path, train)
    broken = [True]
    grid, _ = grid_of(nodes, lambda stage, node, message: "silent" if broken[0] and stage == "mask" else "")
    with caplog.at_level(logging.WARNING, logger="flwr"):
        (reply,) = grid.send_and_receive(messages(nodes, arrays()))
    assert reply.has_error()
    assert "TooFewSurvivorsError" in str(reply.error.reason)
    assert grid.rounds[0].error == reply.error.reason
    broken[0] = False
    (reply,) = grid.send_and_receive(messages(nodes, arrays()))
    assert not reply.has_error()


def test_a_round_says_in_the_log_how_many_survived(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nodes = make_nodes(6, tmp_path, train)
    grid, _ = grid_of(nodes)
    with caplog.at_level(logging.INFO, logger="flwr"):
        grid.send_and_receive(messages(nodes, arrays()))
    assert "secure round 1: 6 of 6 nodes survived" in caplog.text


def test_a_failed_round_leaves_the_strategy_going(tmp_path: Path) -> None:
    nodes = make_nodes(6, tmp_path, train)
    first = [True]

    def fault(stage: str, node: int, message: Message) -> str:
        del node, message
        return "silent" if first[0] and stage == "share" else ""

    grid, inside = grid_of(nodes, fault)
    strategy = FedAvg(min_available_nodes=6, fraction_evaluate=0.0)
    original = strategy.configure_train

    def configure(number: int, *rest: Any) -> Any:
        first[0] = number == 1
        return original(number, *rest)

    strategy.configure_train = configure  # type: ignore[method-assign]
    result = strategy.start(grid=grid, initial_arrays=record({"w": np.zeros(9, dtype=np.float32)}), num_rounds=2)
    assert [bool(done.error) for done in grid.rounds] == [True, False]
    assert result.arrays is not None
    assert inside.log


def test_a_node_outside_the_directory_is_left_out(tmp_path: Path) -> None:
    identities = [Identity.generate() for _ in range(7)]
    directory = {str(FIRST_NODE + 1000 * place): one.public for place, one in enumerate(identities) if place < 6}

    def secure(place: int) -> Any:
        if place == 6:
            return mod(policy=LOOSE, trust_server=True, release_log=tmp_path)
        return mod(policy=LOOSE, identity=identities[place], directory=directory, release_log=tmp_path)

    nodes = make_nodes(7, tmp_path, train, secure=secure)
    grid, _ = grid_of(nodes, directory=directory)
    (reply,) = grid.send_and_receive(messages(nodes, arrays()))
    assert not reply.has_error()
    assert len(grid.rounds[0].survivors) == 6
    assert "no key in the directory" in grid.rounds[0].lost[nodes[6].context.node_id]


def test_a_strategy_that_was_not_checked_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nodes = make_nodes(6, tmp_path, train)
    grid, _ = grid_of(nodes)
    with caplog.at_level(logging.WARNING, logger="flwr"):
        FedAvg(min_available_nodes=6, fraction_evaluate=0.0).start(
            grid=grid, initial_arrays=record(arrays()), num_rounds=2
        )
    assert caplog.text.count("use SecureGrid.start(strategy, ...)") == 1
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="flwr"):
        grid_of(nodes)[0].start(FedAvg(min_available_nodes=6, fraction_evaluate=0.0), record(arrays()), num_rounds=1)
    assert "SecureGrid.start" not in caplog.text


def test_clipping_for_differential_privacy_is_refused(tmp_path: Path) -> None:
    from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping as Clipping

    nodes = make_nodes(6, tmp_path, train)
    grid, _ = grid_of(nodes)
    strategy = Clipping(FedAvg(min_available_nodes=6), 0.1, 1.0, 6)
    with pytest.raises(UsageError, match="needs every client's own reply"):
        grid.start(strategy, initial_arrays=record(arrays()), num_rounds=1)


def test_identities_add_the_agree_stage(tmp_path: Path) -> None:
    identities = [Identity.generate() for _ in range(6)]
    directory = {str(FIRST_NODE + 1000 * place): one.public for place, one in enumerate(identities)}

    def secure(place: int) -> Any:
        return mod(policy=LOOSE, identity=identities[place], directory=directory, release_log=tmp_path)

    nodes = make_nodes(6, tmp_path, train, secure=secure)
    grid, inside = grid_of(nodes, directory=directory)
    (reply,) = grid.send_and_receive(messages(nodes, arrays()))
    assert not reply.has_error()
    assert list(dict.fromkeys(stage for stage, _ in inside.log))[3] == "agree"


def test_misuse_of_the_grid_is_named(tmp_path: Path) -> None:
    nodes = make_nodes(6, tmp_path, train)
    inside = LocalGrid(nodes)
    for changes in (
        {"rate_limits": [1.0]}, {"levels": [2, 4, 8], "rate_limits": [2.0, 1.0]}, {"value_range": 0},
        {"weight_unit": 0}, {"adapt_range": False}, {"options": {"users": ["1"]}},
    ):  # fmt: skip
        with pytest.raises(PlanError):
            SecureGrid(inside, **changes)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="timeouts are for the stages"):
        SecureGrid(inside, timeouts={"dance": 1.0})
    with pytest.raises(PlanError, match="does not know"):
        SecureGrid(inside, options={"dance": 1})
    grid, _ = grid_of(nodes)
    sent = messages(nodes, arrays())
    other = Message(RecordDict(), dst_node_id=FIRST_NODE, message_type=MessageType.QUERY)
    with pytest.raises(UsageError, match="cannot be mixed"):
        grid.send_and_receive([*sent, other])
    different = messages(nodes[:3], arrays()) + messages(nodes[3:], arrays(seed=1))
    (reply,) = grid.send_and_receive(different)
    assert "one model and one configuration" in str(reply.error.reason)


def test_flower_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    import heterosag.flower

    monkeypatch.setitem(sys.modules, "flwr.app", None)
    with pytest.raises(UsageError, match=r"heterosag\[flower\]"):
        heterosag.flower.__getattr__("mod")
    with pytest.raises(AttributeError):
        heterosag.flower.__getattr__("dance")


@pytest.mark.long
def test_whole_runs_agree_with_the_embedded_engine_within_two_points(tmp_path: Path) -> None:
    """The same local training on both engines; only the quantizer's coins differ."""
    sklearn = pytest.importorskip("sklearn.datasets")
    x, y = sklearn.load_digits(return_X_y=True)
    x = np.hstack([x / 16.0, np.ones((len(y), 1))])
    hot, count, rounds = np.eye(10)[y], 12, 6

    def scores(weights: Any, rows: Any) -> Any:
        z = np.exp(x[rows] @ weights - (x[rows] @ weights).max(axis=1, keepdims=True))
        return z / z.sum(axis=1, keepdims=True)

    def learn(place: int, weights: Any) -> Any:
        rows = np.arange(place, 1400, count)
        for _ in range(20):
            weights = weights - 0.5 * x[rows].T @ (scores(weights, rows) - hot[rows]) / len(rows)
        return weights

    def judge(weights: Any) -> float:
        return float((scores(weights, slice(1400, None)).argmax(axis=1) == y[1400:]).mean())

    def train_node(node: int, before: dict[str, Any]) -> dict[str, Any]:
        return {"w": learn((node - FIRST_NODE) // 1000, before["w"])}

    nodes = make_nodes(count, tmp_path, train_node)
    grid, _ = grid_of(nodes, levels=[65], rule="median")
    strategy = FedAvg(fraction_evaluate=0.0, min_available_nodes=count)
    result = strategy.start(grid=grid, initial_arrays=record({"w": np.zeros((65, 10))}), num_rounds=rounds)
    on_flower = result.arrays["w"].numpy()

    assert grid.rounds[0].plan is not None
    plan = replace(grid.rounds[0].plan, metrics=())
    embedded = np.zeros((65, 10))
    for number in range(rounds):
        updates = {user: {"w": learn((int(user) - FIRST_NODE) // 1000, embedded) - embedded} for user in plan.users}
        embedded = (
            embedded + aggregate(plan, updates, rule="median", simulate=Simulation(rounding_seed=number)).aggregate["w"]
        )
    assert judge(on_flower) > 0.8
    assert abs(judge(on_flower) - judge(embedded)) <= 0.02
    assert not np.array_equal(on_flower, embedded)
    scale = np.sqrt(np.mean(embedded**2))
    assert np.sqrt(np.mean((on_flower - embedded) ** 2)) < 0.1 * scale
