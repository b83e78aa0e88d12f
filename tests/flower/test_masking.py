"""The mask phase on a node: what it refuses to train on, and an app's function that fails."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flower_nodes import (
    FIRST_NODE,
    LocalGrid,
    arrays,
    grid_of,
    make_nodes,
    messages,
    record,
    told_at_home,
    train,
)
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from heterosag.flower import Privacy, SecureGrid, mod
from heterosag.flower.masking import Masking
from heterosag.flower.messages import TERMS
from heterosag.protocol import Client
from heterosag.protocol.pipeline import Part
from heterosag.protocol.policy import Policy
from heterosag.storage.budget import FileBudget

MODEL = {"w": np.zeros(2000)}
FAILURES = [
    "returns nothing",
    "no message",
    "ends the program",
    "is cancelled",
    "leaves a generator",
    "an exception of no kind",
    "a huge metric",
]


def failing_app(how: str, folder: Path) -> ClientApp:
    """An app whose train function does what no app should."""
    app = ClientApp(mods=[mod(trust_server=True, release_log=folder, policy=Policy.any_plan())])

    @app.train()
    def fail(message: Message, context: Context) -> Any:
        del context
        before = message.content.array_records["arrays"]["w"].numpy()
        if how == "returns nothing":
            return None
        if how == "no message":
            return RecordDict({"arrays": record({"w": before})})
        if how == "ends the program":
            raise SystemExit("no data")
        if how == "is cancelled":
            raise asyncio.CancelledError
        if how == "leaves a generator":
            raise GeneratorExit
        if how == "an exception of no kind":
            raise BaseException("patient 8812")
        if how == "a huge metric":
            metrics = MetricRecord({"num-examples": 1, "loss": 10**400})
            return Message(RecordDict({"arrays": record({"w": before}), "metrics": metrics}), reply_to=message)
        np.seterr(all="raise")
        return Message(RecordDict({"arrays": record({"w": before + 1e-200})}), reply_to=message)

    return app


def test_a_train_function_that_fails_is_a_dropout(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def some_fail(node: int, before: dict[str, Any]) -> dict[str, Any]:
        if node == FIRST_NODE:
            raise RuntimeError("out of memory")
        return train(node, before)

    nodes = make_nodes(9, tmp_path, some_fail)
    grid, _ = grid_of(nodes)
    (reply,) = grid.send_and_receive(messages(nodes, arrays()))
    assert not reply.has_error()
    assert "out of memory" not in grid.rounds[0].lost[FIRST_NODE]
    assert "the app's function failed" in grid.rounds[0].lost[FIRST_NODE]
    assert "in some_fail\n" in caplog.text, "the node's own log says where"
    assert 1 not in nodes[0].context.state.config_records["heterosag"]["rounds"]  # type: ignore[operator]


@pytest.mark.parametrize("how", [*FAILURES, "numpy raises"])
def test_no_failure_of_the_app_is_told_or_left_uncharged_under_noise(how: str, tmp_path: Path) -> None:
    """A server that chooses the model would read from it, free of charge, whether a node has data of some kind."""
    nodes = make_nodes(8, tmp_path, lambda node, before: {"w": before["w"] + 0.001})
    nodes[0].app = failing_app(how, tmp_path)
    asked = Privacy(clipping_norm=0.5, target_epsilon=8.0, rounds=3)
    options = {"design": "secagg", "subgroup_size": 8, "dropout": 0.0}
    grid = SecureGrid(LocalGrid(nodes), levels=[2], privacy=asked, options=options)
    with np.errstate():
        (reply,) = grid.send_and_receive(messages(nodes, MODEL))
    assert not reply.has_error(), reply.error.reason
    assert (len(grid.rounds[0].survivors), grid.rounds[0].lost) == (8, {})
    assert FileBudget(tmp_path / str(FIRST_NODE)).rounds == 1


@pytest.mark.parametrize("how", FAILURES)
def test_every_failure_of_the_app_is_told_as_one_text_without_noise(how: str, tmp_path: Path) -> None:
    nodes = make_nodes(9, tmp_path, train)
    nodes[0].app = failing_app(how, tmp_path)
    grid, _ = grid_of(nodes)
    (reply,) = grid.send_and_receive(messages(nodes, MODEL))
    assert not reply.has_error()
    assert "the app's function failed, or returned what cannot be aggregated" in grid.rounds[0].lost[FIRST_NODE]


def test_an_app_that_is_interrupted_stops(tmp_path: Path) -> None:
    def interrupt(node: int, before: dict[str, Any]) -> dict[str, Any]:
        raise KeyboardInterrupt

    nodes = make_nodes(9, tmp_path, interrupt)
    grid, _ = grid_of(nodes)
    with pytest.raises(KeyboardInterrupt):
        grid.send_and_receive(messages(nodes, arrays()))


def test_what_runs_the_app_holds_no_saved_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A traceback with local variables, from below the app's function, would print the round's secrets."""
    held, mask = [], Masking.mask

    def look(masking: Masking, client: Client, part: Part) -> bytes:
        held.append((set(masking.opening), repr(masking)))
        return mask(masking, client, part)

    monkeypatch.setattr(Masking, "mask", look)
    nodes = make_nodes(9, tmp_path, train)
    grid, _ = grid_of(nodes)
    grid.send_and_receive(messages(nodes, arrays()))
    assert len(held) == 9
    for names, shown in held:
        assert {"plan", "session"} <= names <= {"plan", "session", *TERMS}
        assert "'clients'" not in shown


def test_another_model_in_the_mask_stage_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nodes = make_nodes(9, tmp_path, train)
    victim = nodes[2].context.node_id

    def swap(stage: str, node: int, message: Message) -> str:
        if (stage, node) == ("mask", victim):
            message.content["arrays"] = record(arrays(seed=1))
        return ""

    grid, _ = grid_of(nodes, swap)
    list(grid.send_and_receive(messages(nodes, arrays())))
    told_at_home(caplog, "is not what the server says everybody sees", grid.rounds[0].lost[victim])
    assert victim not in grid.rounds[0].survivors


def test_another_configuration_for_one_node_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A learning rate of zero for everybody else would leave the victim's update alone in its block."""
    nodes = make_nodes(9, tmp_path, train)
    victim = nodes[2].context.node_id

    def change(stage: str, node: int, message: Message) -> str:
        if stage == "mask" and node == victim:
            message.content["config"] = ConfigRecord({"lr": 0.0})
        return ""

    grid, _ = grid_of(nodes, change)
    list(grid.send_and_receive(messages(nodes, arrays())))
    told_at_home(caplog, "is not what the server says everybody sees", grid.rounds[0].lost[victim])


@pytest.mark.parametrize("phase", ["advertised", "shared"])
def test_nothing_is_trained_for_a_message_that_is_refused(phase: str, tmp_path: Path) -> None:
    """A node that trained first would tell the server, by the kind of its refusal, whether training had failed."""
    trained: list[int] = []

    def note(node: int, before: dict[str, Any]) -> dict[str, Any]:
        trained.append(node)
        raise RuntimeError("whatever the data say")

    nodes = make_nodes(9, tmp_path, note)

    def spoil(stage: str, node: int, message: Message) -> str:
        del node
        if stage == "share" and phase == "advertised":
            return "silent"
        if stage == "mask":
            sent: Any = message.content["heterosag"]
            sent["messages"] = [b"garbage", *sent["messages"][1:]]
        return ""

    grid, _ = grid_of(nodes, spoil)
    (reply,) = grid.send_and_receive(messages(nodes, arrays()))
    assert reply.has_error()
    assert not trained
    if phase == "shared":
        assert {"does not decode" in why for why in grid.rounds[0].lost.values()} == {True}


def test_a_training_that_fails_counts_as_a_round_of_its_model(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trained: list[int] = []

    def fail(node: int, before: dict[str, Any]) -> dict[str, Any]:
        trained.append(node)
        raise RuntimeError("out of memory")

    policy = replace(Policy.any_plan(), max_rounds_of_a_model=2)
    own = lambda place: mod(trust_server=True, release_log=tmp_path, policy=policy)  # noqa: E731
    nodes = make_nodes(9, tmp_path, fail, secure=own)
    grid, _ = grid_of(nodes, stop_after=0)
    for _ in range(3):
        (reply,) = grid.send_and_receive(messages(nodes, arrays()))
        assert reply.has_error()
    assert len(trained) == 2 * 9
    assert "another round of one model after 2" in caplog.text


@pytest.mark.parametrize("unit", [0, -1])
def test_terms_that_cannot_be_are_refused_before_training(
    unit: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trained: list[int] = []
    nodes = make_nodes(9, tmp_path, lambda node, before: trained.append(node) or before)  # type: ignore[func-returns-value]
    grid, _ = grid_of(nodes, max_weight=7)
    grid._exchange.terms["weight-unit"] = unit
    assert next(iter(grid.send_and_receive(messages(nodes, arrays())))).has_error()
    assert not trained
    assert "units of at least one example" in caplog.text
