"""Evaluation: metrics are summed over everybody, once between two rounds of training, unless a node says otherwise."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flower_nodes import FIRST_NODE, LOOSE, Node, arrays, grid_of, make_nodes, messages, record, train
from flwr.app import ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from heterosag.crypto.keys import RoundSecrets
from heterosag.flower import SecureGrid, mod
from heterosag.protocol.client import Client, Polynomials
from heterosag.storage.run_log import read_run


def ask(nodes: list[Node], model: dict[str, Any] | None = None) -> list[Message]:
    content = RecordDict({"arrays": record(model or arrays()), "config": ConfigRecord({})})
    return [Message(content, dst_node_id=node.context.node_id, message_type=MessageType.EVALUATE) for node in nodes]


def evaluating(count: int, folder: Path, metrics: Any, *, mode: Any = lambda place: "secure") -> list[Node]:
    """Nodes whose evaluate functions return what `metrics` says for their place."""
    nodes = make_nodes(
        count,
        folder,
        train,
        secure=lambda place: mod(policy=LOOSE, trust_server=True, release_log=folder, evaluate=mode(place)),
    )
    for place, node in enumerate(nodes):

        def evaluate(message: Message, context: Any, place: int = place) -> Message:
            del context
            return Message(RecordDict({"metrics": MetricRecord(metrics(place))}), reply_to=message)

        secure = mod(policy=LOOSE, trust_server=True, release_log=folder, evaluate=mode(place))
        node.app._registered_funcs["evaluate.default"] = lambda message, context, secure=secure, evaluate=evaluate: (
            secure(message, context, evaluate)
        )
    return nodes


def trained(nodes: list[Node], **options: Any) -> SecureGrid:
    grid, _ = grid_of(nodes, **options)
    (reply,) = grid.send_and_receive(messages(nodes, arrays()))
    assert not reply.has_error()
    return grid


def test_the_strategy_sees_one_reply_with_the_means(tmp_path: Path) -> None:
    nodes = evaluating(9, tmp_path / "log", lambda place: {"num-examples": 5, "accuracy": place / 8, "loss": 2.0})
    grid = trained(nodes, record=tmp_path)
    (reply,) = grid.send_and_receive(ask(nodes))
    metrics = dict(reply.content.metric_records["metrics"])
    assert metrics == {
        "num-examples": 9, "accuracy": pytest.approx(0.5, abs=1e-5), "loss": pytest.approx(2.0, abs=1e-5),
    }  # fmt: skip
    (reply,) = grid.send_and_receive(messages(nodes, arrays()))
    assert not reply.has_error()
    assert [done.trips for done in grid.rounds] == [4, 2]
    assert [done.trips for done in grid.evaluations] == [2]
    grid.close()
    assert read_run(tmp_path / "run").rounds[0]["accuracy"] == pytest.approx(0.5, abs=1e-5)


def test_metrics_are_weighted_as_updates_are(tmp_path: Path) -> None:
    nodes = evaluating(6, tmp_path, lambda place: {"num-examples": 1 + place, "accuracy": float(place)})
    grid = trained(nodes, max_weight=10)
    (reply,) = grid.send_and_receive(ask(nodes))
    metrics = dict(reply.content.metric_records["metrics"])
    weights = np.arange(1, 7)
    assert metrics["num-examples"] == weights.sum()
    assert metrics["accuracy"] == pytest.approx(np.average(np.arange(6), weights=weights), abs=1e-4)


def test_strategies_evaluate_as_they_did(tmp_path: Path) -> None:
    nodes = evaluating(6, tmp_path, lambda place: {"num-examples": 5, "accuracy": 0.25})
    grid, inside = grid_of(nodes)
    strategy = FedAvg(fraction_evaluate=0.5, min_available_nodes=6)
    result = grid.start(strategy, initial_arrays=record({"w": np.zeros(30, dtype=np.float32)}), num_rounds=2)
    found = [dict(metrics)["accuracy"] for metrics in result.evaluate_metrics_clientapp.values()]
    assert found == [pytest.approx(0.25, abs=1e-6)] * 2
    assert [done.trips for done in [*grid.rounds, *grid.evaluations]] == [4, 2, 2, 2]
    assert all(len(done.survivors) == 6 for done in grid.evaluations)  # everybody, whoever was sampled
    assert {stage for stage, _ in inside.log} == {"advertise", "share", "mask", "unmask"}


def test_a_second_evaluation_of_one_round_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Many evaluations of models that differ a little would give the gradient."""
    nodes = evaluating(6, tmp_path, lambda place: {"num-examples": 5, "accuracy": 0.25})
    grid = trained(nodes)
    (first,) = grid.send_and_receive(ask(nodes))
    assert not first.has_error()
    (second,) = grid.send_and_receive(ask(nodes, arrays(seed=1)))
    assert second.has_error()
    assert "asked to evaluate again" in caplog.text
    assert not next(iter(grid.send_and_receive(messages(nodes, arrays())))).has_error()


def test_evaluation_can_be_off_on_some_nodes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nodes = evaluating(6, tmp_path, lambda place: {"num-examples": 5}, mode=lambda place: "off")
    grid = trained(nodes)
    with caplog.at_level(logging.INFO, logger="flwr"):
        for _ in range(2):
            replies = list(grid.send_and_receive(ask(nodes)))
            assert all("evaluation is off" in str(reply.error.reason) for reply in replies)
    assert caplog.text.count("evaluation is off on 6 of 6 nodes") == 1
    assert not grid.evaluations


def test_a_node_whose_evaluation_is_off_refuses_a_server_that_asks_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = evaluating(6, tmp_path, lambda place: {"num-examples": 5}, mode=lambda place: "off")
    grid = trained(nodes)
    grid._exchange.evaluates.clear()
    (reply,) = grid.send_and_receive(ask(nodes))
    assert reply.has_error()
    assert "asked to evaluate, which is 'off'" in caplog.text


def test_plaintext_by_name_is_the_old_way(tmp_path: Path) -> None:
    nodes = evaluating(6, tmp_path, lambda place: {"num-examples": place + 1}, mode=lambda place: "plaintext")
    grid = trained(nodes, plaintext_evaluation=True, max_weight=10)
    replies = list(grid.send_and_receive(ask(nodes)))
    assert sorted(reply.content.metric_records["metrics"]["num-examples"] for reply in replies) == list(range(1, 7))  # type: ignore[type-var]


def test_plaintext_takes_the_name_of_both_sides(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nodes = evaluating(6, tmp_path, lambda place: {"num-examples": 1}, mode=lambda place: "plaintext")
    grid, inside = grid_of(nodes)
    with caplog.at_level(logging.INFO, logger="flwr"):
        for number in range(2):
            assert not next(iter(grid.send_and_receive(messages(nodes, arrays(number))))).has_error()
            before = len(inside.log)
            replies = list(grid.send_and_receive(ask(nodes)))
            assert {reply.error.reason for reply in replies} == {"evaluation is in plaintext on this node"}
            assert len(inside.log) == before
    line = "6 of 6 nodes evaluate in plaintext: they are not asked without SecureGrid(plaintext_evaluation=True)"
    assert caplog.text.count(line) == 1


HOSTILE: list[dict[str, Any] | None] = [
    None,
    {"num-examples": 5, "accuracy": 1.0},
    {"num-examples": 5, "acc": 1.0},
    {"accuracy": 1.0},
    {"num-examples": 10**15, "accuracy": 1.0},
    {"num-examples": 5, "accuracy": float("nan")},
]
"""What a malicious node says that it evaluated in plaintext; None for a reply without metrics."""


def claiming(nodes: list[Node], metrics: dict[str, Any] | None) -> None:
    """Let one node say that it evaluates in plaintext, and then these metrics."""
    honest = nodes[4].app

    def hostile(message: Message, context: Any) -> Message:
        if message.metadata.message_type == MessageType.EVALUATE and "heterosag" not in message.content:
            content = RecordDict({} if metrics is None else {"metrics": MetricRecord(metrics)})
            return Message(content, reply_to=message)
        reply = honest(message, context)
        if not reply.has_error():
            reply.content["heterosag"] = ConfigRecord({**dict(reply.content["heterosag"]), "evaluate": "plaintext"})
        return reply

    nodes[4].app = hostile  # type: ignore[assignment]


def accuracies(grid: SecureGrid, nodes: list[Node], count: int) -> list[Any]:
    strategy = FedAvg(min_available_nodes=len(nodes))
    first = record({"w": np.zeros(30, dtype=np.float32)})
    found = grid.start(strategy, initial_arrays=first, num_rounds=count).evaluate_metrics_clientapp
    return [dict(metrics)["accuracy"] for metrics in found.values()]


@pytest.mark.parametrize("metrics", HOSTILE)
def test_a_node_that_claims_plaintext_neither_ends_a_run_nor_has_a_say(
    metrics: dict[str, Any] | None, tmp_path: Path
) -> None:
    """It was believed, and its own reply went to the strategy beside the mean of the others."""
    nodes = evaluating(6, tmp_path, lambda place: {"num-examples": 5, "accuracy": 0.5})
    claiming(nodes, metrics)
    grid, _ = grid_of(nodes)
    assert accuracies(grid, nodes, 2) == [pytest.approx(0.5, abs=1e-5)] * 2


@pytest.mark.parametrize("others", ["secure", "plaintext"])
@pytest.mark.parametrize("metrics", HOSTILE)
def test_where_plaintext_is_allowed_a_malicious_node_is_one_of_many(
    others: str, metrics: dict[str, Any] | None, tmp_path: Path
) -> None:
    nodes = evaluating(6, tmp_path, lambda place: {"num-examples": 5, "accuracy": 0.5}, mode=lambda place: others)
    claiming(nodes, metrics)
    grid, _ = grid_of(nodes, plaintext_evaluation=True)
    for found in accuracies(grid, nodes, 2):
        assert 0.5 - 1e-5 <= found <= (5 * 0.5 + 1.0) / 6 + 1e-5


def test_a_node_whose_metrics_are_in_the_sum_does_not_count_twice(tmp_path: Path) -> None:
    nodes = evaluating(6, tmp_path, lambda place: {"num-examples": 5, "accuracy": 0.5})
    claiming(nodes, {"num-examples": 5, "accuracy": 1.0})
    grid = trained(nodes, plaintext_evaluation=True)
    (reply,) = grid.send_and_receive(ask(nodes))
    assert dict(reply.content.metric_records["metrics"]) == {
        "num-examples": 6, "accuracy": pytest.approx(0.5, abs=1e-5),
    }  # fmt: skip


def test_an_app_without_an_evaluate_function_is_asked_three_times(tmp_path: Path) -> None:
    nodes = make_nodes(6, tmp_path, train)
    for node in nodes:
        del node.app._registered_funcs["evaluate.default"]
    grid, inside = grid_of(nodes)
    asked = []
    for number in range(4):
        assert not next(iter(grid.send_and_receive(messages(nodes, arrays(number))))).has_error()
        before = len(inside.log)
        (reply,) = grid.send_and_receive(ask(nodes, arrays(number)))
        assert reply.has_error()
        asked.append(len(inside.log) > before)
    assert asked == [True, True, True, False]
    assert "no node could evaluate in 3 evaluations" in str(reply.error.reason)
    assert len(grid.evaluations) == 3
    assert not next(iter(grid.send_and_receive(messages(nodes, arrays())))).has_error()


@pytest.mark.parametrize("before", ["succeeds", "is lost"])
def test_a_round_that_fails_before_it_masks_does_not_turn_evaluation_off(before: str, tmp_path: Path) -> None:
    """Nodes then refuse to evaluate again; they do not once they have trained."""
    nodes = evaluating(6, tmp_path, lambda place: {"num-examples": 5, "accuracy": 0.25})
    now = 1

    def fault(stage: str, node: int, message: Message) -> str:
        del node
        evaluates = message.metadata.message_type == MessageType.EVALUATE
        if now == 1 and evaluates and before == "is lost":
            return "crash"
        return "silent" if now == 2 and stage == "mask" and not evaluates else ""

    grid, _ = grid_of(nodes, fault, stop_after=0)
    failed = []
    for now in range(1, 4):
        for asked in (messages(nodes, arrays(now)), ask(nodes, arrays(now))):
            (reply,) = grid.send_and_receive(asked)
            failed.append(reply.has_error())
    assert failed == [False, before == "is lost", True, True, False, False]


@pytest.mark.parametrize(
    "course",
    [
        ["", "poisoned", "poisoned", "poisoned", ""],
        ["poisoned", "poisoned", ""],
        pytest.param(["poisoned", "poisoned", "late", "poisoned", ""], marks=pytest.mark.slow),
    ],
)
def test_a_model_on_which_no_node_can_evaluate_does_not_turn_evaluation_off(course: list[str], tmp_path: Path) -> None:
    """A poisoned update may make everybody's function fail, also before any evaluation has succeeded."""
    now = 0

    def metrics(place: int) -> dict[str, float]:
        if course[now] == "poisoned":
            raise RuntimeError("the loss is not finite")
        return {"num-examples": 5, "accuracy": 0.25}

    def fault(stage: str, node: int, message: Message) -> str:
        del stage, node
        return "crash" if course[now] == "late" and message.metadata.message_type == MessageType.EVALUATE else ""

    nodes = evaluating(6, tmp_path, metrics)
    grid, _ = grid_of(nodes, fault)
    failed = []
    for now in range(len(course)):
        assert not next(iter(grid.send_and_receive(messages(nodes, arrays(now))))).has_error()
        failed.append(next(iter(grid.send_and_receive(ask(nodes, arrays(now))))).has_error())
    assert failed == [what != "" for what in course]


def test_evaluation_before_training_is_named(tmp_path: Path) -> None:
    nodes = make_nodes(6, tmp_path, train)
    grid, _ = grid_of(nodes)
    (reply,) = grid.send_and_receive(ask(nodes))
    assert "nothing was trained yet" in str(reply.error.reason)
    grid = trained(nodes)
    (reply,) = grid.send_and_receive([*ask(nodes[:3]), *ask(nodes[3:], arrays(seed=1))])
    assert "one model and one configuration" in str(reply.error.reason)


def test_a_metric_that_not_every_node_has_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The mean of what some nodes call otherwise would be over other numbers too."""
    nodes = evaluating(6, tmp_path, lambda place: {"num-examples": 5, "a": 0.25, "acc" if place else "accuracy": 0.5})
    grid = trained(nodes)
    with caplog.at_level(logging.WARNING, logger="flwr"):
        (reply,) = grid.send_and_receive(ask(nodes))
    found = reply.content.metric_records["metrics"]
    assert set(found) == {"a", "num-examples"}
    assert found["a"] == pytest.approx(0.25)
    assert "1 of 6 nodes name other metrics than ['a', 'acc']: not averaged ['acc']" in caplog.text


def test_a_choice_that_there_is_not_is_named() -> None:
    with pytest.raises(ValueError, match="evaluate is one of secure, off, plaintext"):
        mod(evaluate="maybe")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="assignment is one of enrolled, server"):
        mod(assignment="maybe")  # type: ignore[arg-type]


def test_what_one_node_evaluates_is_not_seen_by_the_app_of_another_round(tmp_path: Path) -> None:
    """The app's functions find nothing of ours in the state, and what they leave there stays."""
    found: list[bool] = []
    app = ClientApp(mods=[mod(policy=LOOSE, trust_server=True, release_log=tmp_path)])

    @app.train()
    def look(message: Message, context: Any) -> Message:
        found.append("heterosag" in context.state)
        context.state["heterosag"] = ConfigRecord({"spoilt": True})
        return Message(
            RecordDict({"arrays": message.content["arrays"], "metrics": MetricRecord({"num-examples": 1})}),
            reply_to=message,
        )

    nodes = make_nodes(6, tmp_path, train)
    nodes[0].app = app
    grid = trained(nodes)
    assert found == [False]
    assert FIRST_NODE in grid.rounds[0].survivors


@pytest.mark.slow
def test_a_node_that_deals_false_shares_for_evaluations_is_left_out_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One such node would end every evaluation, and no round of training would name it."""
    nodes = evaluating(24, tmp_path, lambda place: {"num-examples": 5, "accuracy": 0.25})
    cheat = nodes[3].context.node_id
    honest, calls = Client.share, [0]

    def share(self: Client, message: bytes, **options: Any) -> bytes:
        calls[0] += self.user == str(cheat)
        if self.user != str(cheat) or calls[0] != 2:  # the first is of the round of training
            return honest(self, message, **options)
        return honest(self, message, polynomials=Polynomials.draw(self.plan, RoundSecrets.generate()))

    monkeypatch.setattr(Client, "share", share)
    grid = trained(nodes)
    assert not grid.rounds[0].faulty
    (reply,) = grid.send_and_receive(ask(nodes))
    assert reply.has_error()
    assert grid.evaluations[0].faulty == (cheat,)
    assert not next(iter(grid.send_and_receive(messages(nodes, arrays())))).has_error()
    assert "dealt or released false shares in a round before" in grid.rounds[1].lost[cheat]
    (reply,) = grid.send_and_receive(ask(nodes))
    assert reply.content.metric_records["metrics"]["accuracy"] == pytest.approx(0.25)


def test_no_name_of_a_metric_stands_for_the_weight(tmp_path: Path) -> None:
    """A strategy divides by the weight, so that a metric of that name could end its run."""
    nodes = evaluating(6, tmp_path, lambda place: {"num-examples": 5, "accuracy": 0.0})
    grid, inside = grid_of(nodes)
    carry = inside._carry

    def rename(message: Message) -> Message | None:
        reply = carry(message)
        if reply is not None and not reply.has_error():
            reply.content.config_records["heterosag"]["metrics"] = ["num-examples"]
        return reply

    inside._carry = rename  # type: ignore[method-assign]
    (reply,) = grid.send_and_receive(messages(nodes, arrays()))
    assert reply.content.metric_records["metrics"]["num-examples"] == 6
