"""The mask phase on a node: what it refuses to train on, and an app's function that fails."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from flower_nodes import (
    FIRST_NODE,
    arrays,
    grid_of,
    make_nodes,
    messages,
    record,
    told_at_home,
    train,
)
from flwr.app import ConfigRecord, Message

from heterosag.flower import mod
from heterosag.protocol.policy import Policy


def test_a_train_function_that_fails_is_a_dropout(tmp_path: Path) -> None:
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
    assert 1 not in nodes[0].context.state.config_records["heterosag"]["rounds"]  # type: ignore[operator]


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
