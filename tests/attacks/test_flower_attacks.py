"""Attacks on Flower that worked on version 0.1.0, against the real mod and grid.

The numbers are the rows of docs/threat-model.md, "Attacks that worked".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flower_nodes import FIRST_NODE, LocalGrid, make_nodes
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from heterosag import Plan
from heterosag.crypto.keys import RoundSecrets
from heterosag.flower import SecureGrid, mod
from heterosag.protocol.client import Client, Polynomials
from heterosag.protocol.pipeline import ServerPipeline
from heterosag.protocol.policy import Policy
from heterosag.storage.run_log import read_run


@pytest.fixture(autouse=True)
def _identity_of_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Flower's runtime sets in a process before an app may make messages."""
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_run_id", "_task_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


OPTIONS: dict[str, Any] = {"subgroup_size": 3, "min_survivors": 2}


def ask(nodes: list[Any], size: int = 30) -> list[Message]:
    arrays = ArrayRecord({"w": Array(np.zeros(size, dtype=np.float32))})
    content = RecordDict({"arrays": arrays, "config": ConfigRecord({"lr": 0.1})})
    return [Message(content, dst_node_id=node.context.node_id, message_type=MessageType.TRAIN) for node in nodes]


def grid_of(nodes: list[Any], **options: Any) -> SecureGrid:
    return SecureGrid(LocalGrid(nodes), levels=[4096], value_range=1.0, adapt_range=False, options=OPTIONS, **options)


# --- 2: another run configuration for the victim --------------------------------------------------------------------


@pytest.mark.parametrize("told", [False, True])
def test_2_the_victim_alone_trained(told: bool, tmp_path: Path) -> None:
    """`local-epochs` is 1 for the victim and 0 for everybody else, so the sum was the victim's update. A node that sees
    another configuration than the rest is not combined with them, whether the grid is told what to expect or not."""
    secret = np.linspace(-0.8, 0.8, 30)
    nodes = make_nodes(9, tmp_path, lambda node, before: before)
    for node in nodes:
        node.app = _trains_if_told(secret, tmp_path)  # type: ignore[assignment]
        node.context.run_config = {"local-epochs": int(node.context.node_id == FIRST_NODE)}
    grid = grid_of(nodes, **({"run_config": {"local-epochs": 0}} if told else {}))
    (reply,) = grid.send_and_receive(ask(nodes))
    assert not reply.has_error()
    assert "another run configuration" in grid.rounds[0].lost[FIRST_NODE]
    assert np.abs(reply.content.array_records["arrays"]["w"].numpy()).max() < 0.01


def test_2_a_run_of_another_series_for_the_victim(tmp_path: Path) -> None:
    """The SuperLink says which series a run is of, and with it which state of earlier runs an app finds."""
    nodes = make_nodes(9, tmp_path, lambda node, before: before)
    nodes[0].context.series_id = 7
    grid = grid_of(nodes)
    (reply,) = grid.send_and_receive(ask(nodes))
    assert not reply.has_error()
    assert "another run configuration" in grid.rounds[0].lost[FIRST_NODE]


def test_2_a_server_that_knows_better_is_refused_by_the_node(tmp_path: Path) -> None:
    """It takes the victim's advertisement all the same, and asks it to train under its own configuration."""
    secret = np.linspace(-0.8, 0.8, 30)
    nodes = make_nodes(9, tmp_path, lambda node, before: before)
    for node in nodes:
        node.app = _trains_if_told(secret, tmp_path)  # type: ignore[assignment]
        node.context.run_config = {"local-epochs": int(node.context.node_id == FIRST_NODE)}
    grid = grid_of(nodes)
    honest, cohort = grid._exchange._run_of, grid._exchange._cohort(0)
    grid._exchange._run_of = lambda reply: cohort.seen if any(cohort.seen) else honest(reply)  # type: ignore[method-assign]
    (reply,) = grid.send_and_receive(ask(nodes))
    assert FIRST_NODE not in grid.rounds[0].survivors
    assert np.abs(reply.content.array_records["arrays"]["w"].numpy()).max() < 0.01


def _trains_if_told(secret: Any, folder: Path) -> ClientApp:
    app = ClientApp(mods=[mod(trust_server=True, release_log=folder, policy=Policy.any_plan())])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        record = next(iter(message.content.array_records.values()))
        after = record["w"].numpy() + secret * int(context.run_config["local-epochs"])
        arrays = ArrayRecord({"w": Array(after.astype(np.float32))})
        return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 10})}), reply_to=message)

    return app


# --- 7: what an error says ------------------------------------------------------------------------------------------


def test_7_a_nodes_weight_was_in_its_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A weight above the bound is capped: even a refusal of fixed words would tell the server that it is above."""
    nodes = make_nodes(6, tmp_path, lambda node, before: before)
    grid = grid_of(nodes, max_weight=4)
    (reply,) = grid.send_and_receive(ask(nodes))
    assert reply.content.metric_records["metrics"]["num-examples"] == 6 * 4
    assert not grid.rounds[0].lost
    assert "this node's weight of 10 is capped" in caplog.text


def test_7_what_an_app_raises_stays_at_home(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail(node: int, before: dict[str, Any]) -> dict[str, Any]:
        if node == FIRST_NODE:
            raise KeyError("patient 8812")
        return before

    nodes = make_nodes(9, tmp_path, fail)
    grid = grid_of(nodes)
    (reply,) = grid.send_and_receive(ask(nodes))
    assert not reply.has_error()
    assert "8812" not in grid.rounds[0].lost[FIRST_NODE]
    assert "the app's function failed" in grid.rounds[0].lost[FIRST_NODE]
    assert "8812" in caplog.text


@pytest.mark.parametrize("bad", [np.full(30, np.nan, dtype=np.float32), np.zeros(31, dtype=np.float32)])
def test_7_an_update_that_cannot_be_aggregated_is_told_in_the_words_for_it(bad: Any, tmp_path: Path) -> None:
    nodes = make_nodes(9, tmp_path, lambda node, before: {"w": bad} if node == FIRST_NODE else before)
    grid = grid_of(nodes)
    (reply,) = grid.send_and_receive(ask(nodes))
    assert not reply.has_error()
    assert "TrainingError: the app's function failed, or returned" in grid.rounds[0].lost[FIRST_NODE]


def test_7_any_metric_was_the_weight(tmp_path: Path) -> None:
    """The sum of weights of a small block is public: the server named a private metric as the weight."""
    nodes = make_nodes(6, tmp_path, lambda node, before: before, secret=28.0)
    grid = grid_of(nodes, max_weight=100, weighted_by="secret")
    (reply,) = grid.send_and_receive(ask(nodes))
    assert reply.has_error()
    assert not grid.rounds[0].survivors


# --- 11: one dealer of false shares ---------------------------------------------------------------------------------


def deal_false_shares(monkeypatch: pytest.MonkeyPatch, cheats: Callable[[str], bool]) -> None:
    """Have some users deal shares of other secrets than those whose public keys they advertised."""
    honest = Client.share

    def share(self: Client, message: bytes, **options: Any) -> bytes:
        if cheats(str(self.user)):
            options["polynomials"] = Polynomials.draw(self.plan, RoundSecrets.generate())
        return honest(self, message, **options)

    monkeypatch.setattr(Client, "share", share)


@pytest.mark.parametrize("rule", ["median", pytest.param("mean", marks=pytest.mark.long)])
def test_11_a_node_that_deals_false_shares_is_left_out_of_the_next_round(
    rule: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The median goes on without its subgroup's blocks; the mean loses one round and says whose fault it was."""
    nodes = make_nodes(24, tmp_path, lambda node, before: {"w": before["w"] + np.float32(0.25)})
    cheat = nodes[3].context.node_id
    deal_false_shares(monkeypatch, lambda user: user == str(cheat))
    grid = grid_of(nodes, rule=rule, record=tmp_path)
    (first,) = grid.send_and_receive(ask(nodes))
    assert first.has_error() == (rule == "mean")
    assert grid.rounds[0].faulty == (cheat,)
    grid.close()
    assert read_run(tmp_path / "run").rounds[0]["faulty_users"] == [str(cheat)]
    if rule == "mean":
        assert f"user '{cheat}' dealt shares" in str(first.error.reason)
    (second,) = grid.send_and_receive(ask(nodes))
    assert len(grid.rounds[1].survivors) == 23
    assert "dealt or released false shares in a round before" in grid.rounds[1].lost[cheat]
    assert np.allclose(second.content.array_records["arrays"]["w"].numpy(), 0.25, atol=0.01)


@pytest.mark.parametrize("prepare", [True, pytest.param(False, marks=pytest.mark.long)])
def test_11_a_node_that_deals_false_shares_is_asked_no_more_under_a_plan_given(
    prepare: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its plan has it still; rounds go on as if it had dropped out, and without what it set up ahead."""
    nodes = make_nodes(12, tmp_path, lambda node, before: {"w": before["w"] + np.float32(0.25)})
    cheat = nodes[3].context.node_id
    deal_false_shares(monkeypatch, lambda user: user == str(cheat))
    users = [str(node.context.node_id) for node in nodes]
    plan = Plan.build([12], [4096], 30, design="secagg", users=users, value_range=0.5)
    grid = SecureGrid(LocalGrid(nodes), plan=plan, adapt_range=False, prepare=prepare, stop_after=1)
    (first,) = grid.send_and_receive(ask(nodes))
    assert first.has_error()
    assert grid.rounds[0].faulty == (cheat,)
    for number in (1, 2):
        (reply,) = grid.send_and_receive(ask(nodes))
        assert np.allclose(reply.content.array_records["arrays"]["w"].numpy(), 0.25, atol=0.01)
        assert len(grid.rounds[number].survivors) == 11
        assert grid.rounds[number].lost == {cheat: "at advertise: dealt or released false shares in a round before"}


def test_11_nodes_that_take_turns_with_false_shares_do_not_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each costs the mean one round; none of these counts as a failure that stops the run."""
    nodes = make_nodes(12, tmp_path, lambda node, before: before)
    turn = [0]
    deal_false_shares(monkeypatch, lambda user: turn[0] < 3 and user == str(nodes[turn[0]].context.node_id))
    grid = grid_of(nodes, stop_after=1, prepare=False)
    for turn[0] in range(4):
        (reply,) = grid.send_and_receive(ask(nodes))
        assert reply.has_error() == (turn[0] < 3)
    assert len(grid.rounds[3].survivors) == 9


# --- 10: a range that jumps -----------------------------------------------------------------------------------------


def test_10_a_node_remembers_the_range_of_the_round_before(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    policy = replace(Policy.any_plan(), max_range_change=2.0)
    own = lambda place: mod(trust_server=True, release_log=tmp_path, policy=policy)  # noqa: E731
    nodes = make_nodes(6, tmp_path, lambda node, before: before, secure=own)
    grid = grid_of(nodes)
    for half, fails in ((1.0, False), (0.5, False), (0.2, True), (0.2, True), (0.25, False), (2.125, True)):
        grid._ranges._first = (-half, half)
        (reply,) = grid.send_and_receive(ask(nodes))
        assert reply.has_error() == fails, half
    assert "0.4 times that of the last round" in caplog.text
    assert "8.5 times that of the last round" in caplog.text


def test_10_a_vector_that_is_refused_moves_no_range(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Rounds whose inbox is garbage give no vector, so they are no steps on the way to a narrow range."""
    policy = replace(Policy.any_plan(), max_range_change=2.0)
    own = lambda place: mod(trust_server=True, release_log=tmp_path, policy=policy)  # noqa: E731
    nodes = make_nodes(6, tmp_path, lambda node, before: before, secure=own)
    spoilt = False

    def spoil(stage: str, node: int, message: Message) -> str:
        del node
        if spoilt and stage == "mask":
            record: Any = message.content["heterosag"]
            record["messages"] = [b"garbage", *record["messages"][1:]]
        return ""

    fixed: dict[str, Any] = {"levels": [4096], "value_range": 1.0, "adapt_range": False}
    grid = SecureGrid(LocalGrid(nodes, spoil), options=OPTIONS, stop_after=0, **fixed)
    assert not next(iter(grid.send_and_receive(ask(nodes)))).has_error()
    for step in range(1, 7):
        spoilt = step < 6
        grid._ranges._first = (-(0.5**step), 0.5**step)
        assert next(iter(grid.send_and_receive(ask(nodes)))).has_error()
    assert "0.0156 times that of" in caplog.text


def test_10_a_node_counts_the_rounds_of_one_model(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever else of the message changes, such as the round's number in its configuration."""
    policy = replace(Policy.any_plan(), max_rounds_of_a_model=2)
    own = lambda place: mod(trust_server=True, release_log=tmp_path, policy=policy)  # noqa: E731
    nodes = make_nodes(6, tmp_path, lambda node, before: before, secure=own)
    grid = grid_of(nodes)
    for number, fails in enumerate((False, False, True)):
        messages = ask(nodes)
        for message in messages:
            message.content["config"] = ConfigRecord({"server-round": number})
        (reply,) = grid.send_and_receive(messages)
        assert reply.has_error() == fails
    assert "another round of one model after 2" in caplog.text


# --- 12: default plans that one silent node ends, a class of one's own -----------------------------------------------


@pytest.mark.parametrize("count", [9, 10, 11, 15])
def test_12_one_silent_node_does_not_end_the_rounds_of_a_default_plan(count: int, tmp_path: Path) -> None:
    own = lambda place: mod(trust_server=True, release_log=tmp_path)  # noqa: E731
    nodes = make_nodes(count, tmp_path, lambda node, before: before, secure=own)
    victim = nodes[3].context.node_id
    silent = LocalGrid(nodes, lambda stage, node, message: "silent" if node == victim else "")
    grid = SecureGrid(silent)
    (reply,) = grid.send_and_receive(ask(nodes))
    assert not reply.has_error()
    assert len(grid.rounds[0].survivors) == count - 1


def test_12_a_node_that_names_a_class_of_its_own_is_merged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    own = lambda place: mod(trust_server=True, release_log=tmp_path)  # noqa: E731
    classes = lambda place: {"heterosag-class": int(place == 5)}  # noqa: E731
    nodes = make_nodes(12, tmp_path, lambda node, before: before, secure=own, config=classes)
    grid = SecureGrid(LocalGrid(nodes), levels=[4, 64])
    (reply,) = grid.send_and_receive(ask(nodes))
    assert not reply.has_error()
    assert len(grid.rounds[0].survivors) == 12
    assert "class 1 (1 nodes) codes at the level of class 0 (11 nodes)" in caplog.text


# --- 9: users assigned anew in every round --------------------------------------------------------------------------


def test_9_a_node_joins_so_many_epochs_of_a_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    policy = replace(Policy.any_plan(), max_epochs=3)
    own = lambda place: mod(trust_server=True, release_log=tmp_path, policy=policy)  # noqa: E731
    nodes = make_nodes(12, tmp_path, lambda node, before: before, secure=own)
    grid = grid_of(nodes)
    for number in range(5):
        grid._exchange._cohort(0).pipeline.session = bytes([number])  # chosen anew, which gains it nothing
        grid._epochs._plans.clear()  # a new seed for who is assigned where
        (reply,) = grid.send_and_receive(ask(nodes))
        assert reply.has_error() == (number >= 3)
    assert "after 3 epochs of this run" in caplog.text


def test_9_one_block_of_everybody_is_no_epoch(tmp_path: Path) -> None:
    policy = replace(Policy.any_plan(), max_epochs=0)
    own = lambda place: mod(trust_server=True, release_log=tmp_path, policy=policy)  # noqa: E731
    nodes = make_nodes(6, tmp_path, lambda node, before: before, secure=own)
    whole = {**OPTIONS, "design": "secagg"}
    grid = SecureGrid(LocalGrid(nodes), levels=[4096], value_range=1.0, adapt_range=False, options=whole)
    for _ in range(2):
        grid._epochs._plans.clear()
        (reply,) = grid.send_and_receive(ask(nodes))
        assert not reply.has_error()


# --- 8: what many evaluations tell ------------------------------------------------------------------------------------


@pytest.mark.long
def test_8_sixty_evaluations_gave_a_nodes_gradient(tmp_path: Path) -> None:
    """The loss of the model and of sixty others near it, asked of one node, was its gradient. Now no node answers for
    itself, and all together answer once between two rounds of training."""
    target = np.linspace(-1, 1, 30)

    def losses(message: Message, context: Context) -> Message:
        del context
        weights = message.content.array_records["arrays"]["w"].numpy()
        loss = float(np.mean((weights - target) ** 2))
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 10, "loss": loss})}), reply_to=message)

    nodes = make_nodes(9, tmp_path, lambda node, before: before)
    for node in nodes:
        own = mod(trust_server=True, release_log=tmp_path, policy=Policy.any_plan())
        node.app._registered_funcs["evaluate.default"] = lambda m, c, own=own: own(m, c, losses)
    grid = grid_of(nodes)
    assert not next(iter(grid.send_and_receive(ask(nodes)))).has_error()
    victim = nodes[0]
    for place in range(60):
        arrays = ArrayRecord({"w": Array(np.eye(30, dtype=np.float32)[place % 30] * 1e-3)})
        alone = Message(RecordDict({"arrays": arrays}), dst_node_id=victim.context.node_id, message_type="evaluate")
        alone.metadata.__dict__["_message_id"] = "m"
        assert victim.app(alone, victim.context).has_error()
    answered = 0
    for place in range(60):
        arrays = ArrayRecord({"w": Array(np.eye(30, dtype=np.float32)[place % 30] * 1e-3)})
        content = RecordDict({"arrays": arrays})
        asked = [Message(content, dst_node_id=node.context.node_id, message_type="evaluate") for node in nodes]
        (reply,) = grid.send_and_receive(asked)
        answered += not reply.has_error()
    assert answered == 1


def test_8_a_new_session_is_no_new_evaluation(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The server gives every evaluation one number, each in a session of its own."""
    nodes = make_nodes(6, tmp_path, lambda node, before: before)
    grid = grid_of(nodes)
    assert not next(iter(grid.send_and_receive(ask(nodes)))).has_error()
    answered = []
    for place in range(3):
        grid._exchange._cohort(0).pipeline = ServerPipeline(bytes([place]))
        content = RecordDict({"arrays": ArrayRecord({"w": Array(np.full(30, place, dtype=np.float32))})})
        asked = [Message(content, dst_node_id=node.context.node_id, message_type="evaluate") for node in nodes]
        (reply,) = grid.send_and_receive(asked)
        answered.append(not reply.has_error())
        assert grid._exchange._cohort(0).pipeline.number == 1
        grid._evaluations._why_none = ""
    assert answered == [True, False, False]
    assert "asked to evaluate again" in caplog.text


def test_8_the_local_model_was_a_parameter_away(tmp_path: Path) -> None:
    """`get_parameters` of an app with a client_fn, or any query, returned what the app holds."""
    secure = mod(trust_server=True, release_log=tmp_path, policy=Policy.any_plan())
    (node,) = make_nodes(1, tmp_path, lambda node, before: before)

    def tell(message: Message, context: Context) -> Message:
        del context
        return Message(RecordDict({"secret": ConfigRecord({"model": [1.0]})}), reply_to=message)

    for kind in ("get_parameters", "get_properties", "query", "query.model", "reconnect"):
        message = Message(RecordDict(), dst_node_id=node.context.node_id, message_type="query")
        message.metadata.__dict__ |= {"_message_id": "m", "_message_type": kind}
        assert secure(message, node.context, tell).has_error()
