"""Rounds in a row on Flower: the next round's set-up rides on this one's trips."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from flower_nodes import (
    FIRST_NODE,
    arrays,
    expected,
    grid_of,
    make_nodes,
    record,
    result_of,
    rounds,
    signed_nodes,
    stage_of,
    train,
)
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp.strategy import FedAvg

from heterosag.flower.messages import TERMS

np = pytest.importorskip("numpy")


def test_stages_fall_to_two(tmp_path: Path) -> None:
    nodes = make_nodes(12, tmp_path, train)
    grid, inside = grid_of(nodes)
    for reply in rounds(grid, nodes, 4):
        mean = expected(list(inside.nodes), {})
        assert np.allclose(result_of(reply)["conv.weight"], arrays()["conv.weight"] + mean, atol=1e-6)
    assert [done.trips for done in grid.rounds] == [4, 2, 2, 2]
    assert list(grid.rounds[2].received_bytes) == ["mask", "unmask", "share", "advertise"]


def test_bytes_are_those_of_all_messages_of_a_round(tmp_path: Path) -> None:
    """In the first one messages of three rounds go, of one phase more than one."""
    down: dict[int, int] = {}

    def count(stage: str, node: int, message: Message) -> str:
        del stage
        sent: Any = message.content.config_records["heterosag"]["messages"]
        down[node] = down.get(node, 0) + sum(map(len, sent))
        return ""

    nodes = make_nodes(6, tmp_path, train)
    grid, inside = grid_of(nodes, count)
    for number in range(2):
        down.clear()
        inside.bytes_up.clear()
        rounds(grid, nodes, 1)
        done = grid.rounds[number]
        for sizes, carried in ((done.sent_bytes, down), (done.received_bytes, inside.bytes_up)):
            assert {node: sum(by[node] for by in sizes.values()) for node in carried} == carried


def test_stages_fall_to_three_with_identities(tmp_path: Path) -> None:
    """Six nodes in two subgroups are one block of everybody: nothing is drawn."""
    nodes, directory = signed_nodes(6, tmp_path)
    grid, _ = grid_of(nodes, directory=directory)
    assert not any(reply.has_error() for reply in rounds(grid, nodes, 3))
    assert [done.trips for done in grid.rounds] == [5, 3, 3]


def test_an_enrolment_adds_two_trips_to_the_first_round(tmp_path: Path) -> None:
    nodes, directory = signed_nodes(12, tmp_path)
    grid, inside = grid_of(nodes, directory=directory)
    assert not any(reply.has_error() for reply in rounds(grid, nodes, 3))
    assert [done.trips for done in grid.rounds] == [7, 3, 3]
    assert sum(stage == "commit" for stage, _ in inside.log) == 12


def test_preparing_can_be_turned_off(tmp_path: Path) -> None:
    nodes = make_nodes(6, tmp_path, train)
    grid, _ = grid_of(nodes, prepare=False)
    rounds(grid, nodes, 2)
    assert [done.trips for done in grid.rounds] == [4, 4]
    assert all(not node.context.state.config_records["heterosag"]["rounds"] for node in nodes)


def test_a_changed_cohort_is_set_up_anew(tmp_path: Path) -> None:
    nodes = make_nodes(12, tmp_path, train)
    grid, _ = grid_of(nodes)
    for chosen in (nodes, nodes, nodes[:9], nodes[:9], nodes[:9]):
        assert not rounds(grid, chosen, 1)[0].has_error()
    assert [done.trips for done in grid.rounds] == [4, 2, 4, 4, 2]


def test_sampling_stops_preparing(tmp_path: Path) -> None:
    """With other nodes in every round nothing is set up that nobody would use."""
    nodes = make_nodes(12, tmp_path, train)
    grid, inside = grid_of(nodes)
    for place in range(3):
        rounds(grid, nodes[place : place + 9], 1)
    assert [done.trips for done in grid.rounds] == [4, 4, 4]
    before = len(inside.log)
    rounds(grid, nodes[3:], 1)
    assert len(inside.log) - before == 4 * 9


def test_what_is_kept_of_epochs_is_bounded_under_sampling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heterosag.flower.epochs._MOST_PLANS", 2)
    monkeypatch.setattr("heterosag.flower.exchange._MOST_LEDGERS", 2)
    nodes = make_nodes(12, tmp_path, train)
    grid, _ = grid_of(nodes)
    for place in (0, 1, 2, 3, 0):
        assert not rounds(grid, nodes[place : place + 9], 1)[0].has_error()
    kept = {plan.frame for plan in grid._epochs._plans.values()}
    assert len(kept) == len(grid._exchange._ledgers) == 2
    assert {frame for _, frame in grid._exchange._opened} <= kept


def test_a_range_that_follows_the_updates_is_settled(tmp_path: Path) -> None:
    nodes = make_nodes(9, tmp_path, train)
    grid, _ = grid_of(nodes, value_range=0.01, adapt_range=True)
    rounds(grid, nodes, 3)
    widths = [done.plan.value_range[1] for done in grid.rounds if done.plan is not None]
    assert widths[0] < widths[1] < widths[2]
    assert [done.trips for done in grid.rounds] == [4, 2, 2]


def test_a_node_lost_at_unmask_sits_out_one_round(tmp_path: Path) -> None:
    nodes = make_nodes(12, tmp_path, train)
    victim, lost = nodes[4].context.node_id, [True]
    grid, _ = grid_of(nodes, lambda stage, node, _: "silent" if lost[0] and (stage, node) == ("unmask", victim) else "")
    rounds(grid, nodes, 1)
    lost[0] = False
    rounds(grid, nodes, 2)
    assert [victim in done.survivors for done in grid.rounds] == [True, False, True]
    assert "was not set up" in grid.rounds[1].lost[victim]
    assert [done.trips for done in grid.rounds] == [4, 2, 2]


def test_a_node_that_lost_its_state_is_back_in_the_third_round(tmp_path: Path) -> None:
    nodes = make_nodes(12, tmp_path, train)
    grid, _ = grid_of(nodes)
    rounds(grid, nodes, 1)
    victim = nodes[4]
    victim.context.state = RecordDict()
    rounds(grid, nodes, 3)
    assert [victim.context.node_id in done.survivors for done in grid.rounds] == [True, False, False, True]


def test_a_failed_part_leaves_the_others(tmp_path: Path) -> None:
    """A train function fails: the node is out of that round, and in the next, without another trip."""
    fails = [False]

    def sometimes(node: int, before: dict[str, Any]) -> dict[str, Any]:
        if fails[0] and node == FIRST_NODE:
            raise RuntimeError("out of memory")
        return train(node, before)

    nodes = make_nodes(12, tmp_path, sometimes)
    grid, _ = grid_of(nodes)
    rounds(grid, nodes, 1)
    fails[0] = True
    rounds(grid, nodes, 1)
    fails[0] = False
    rounds(grid, nodes, 1)
    assert [FIRST_NODE in done.survivors for done in grid.rounds] == [True, False, True]
    assert [done.trips for done in grid.rounds] == [4, 2, 2]


def test_a_node_that_flower_says_is_gone_is_not_waited_for_again_in_the_round(tmp_path: Path) -> None:
    nodes = make_nodes(12, tmp_path, train)
    grid, inside = grid_of(nodes, lambda stage, node, _: "error" if node == FIRST_NODE else "")
    rounds(grid, nodes, 2)
    assert sum(node == FIRST_NODE for _, node in inside.log) == 2
    assert all(len(done.survivors) == 11 for done in grid.rounds)


def test_a_server_with_a_new_session_makes_nodes_forget_the_old_one(tmp_path: Path) -> None:
    nodes = make_nodes(6, tmp_path, train)
    rounds(grid_of(nodes)[0], nodes, 1)
    kept = [dict(node.context.state["heterosag"]) for node in nodes]
    again, _ = grid_of(nodes)
    rounds(again, nodes, 1)
    assert [done.trips for done in again.rounds] == [4]
    assert all(
        node.context.state["heterosag"]["session"] != old["session"] for node, old in zip(nodes, kept, strict=True)
    )  # type: ignore[index]


def test_a_server_that_asks_for_the_next_vector_too_gets_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Two vectors are never outstanding: what is asked ahead of the lowest round is keys and shares only."""
    nodes = make_nodes(9, tmp_path, train)
    seen: list[Message] = []

    def keep(stage: str, node: int, message: Message) -> str:
        if stage == "mask" and node == FIRST_NODE:
            seen.append(message)
        return ""

    grid, _ = grid_of(nodes, keep)
    rounds(grid, nodes, 1)
    fields = dict(nodes[0].context.state["heterosag"])
    ahead = fields["rounds"][0]  # type: ignore[index]
    record_of = {"rounds": [ahead, ahead + 1], "stages": ["advertise", "mask"], "messages": [b"", b""]}  # type: ignore[operator]
    opening = {name: fields[name] for name in ("plan", "session", *TERMS) if name in fields}
    message = Message(
        RecordDict({"heterosag": ConfigRecord({**opening, **record_of})}), dst_node_id=FIRST_NODE, message_type="train"
    )
    message.metadata.__dict__["_message_id"] = "m"
    reply = nodes[0].app(message, nodes[0].context)
    assert "only keys and shares" in caplog.text
    assert stage_of(seen[0]) == ""  # the node took our record out before training
    assert [bool(error) for error in reply.content["heterosag"]["errors"]] == [False, True]  # type: ignore[index]


def test_strategies_run_in_two_trips_a_round(tmp_path: Path) -> None:
    nodes = make_nodes(6, tmp_path, train)
    grid, _ = grid_of(nodes)
    strategy = FedAvg(fraction_evaluate=0.0, min_available_nodes=6)
    grid.start(strategy, initial_arrays=record({"w": np.zeros(30, dtype=np.float32)}), num_rounds=3)
    assert [done.trips for done in grid.rounds] == [4, 2, 2]
