"""Flower, in this process: the mod and the grid through every stage and fault."""

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flower_nodes import (
    FIRST_NODE,
    LEVEL,
    LOOSE,
    OPTIONS,
    LocalGrid,
    Node,
    arrays,
    expected,
    grid_of,
    make_nodes,
    messages,
    record,
    result_of,
    shift,
    stage_of,
    told_at_home,
    train,
)
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAdam, FedAvg, FedMedian, FedProx, Krum

from heterosag import Plan, Simulation, aggregate
from heterosag.errors import PlanError, UsageError
from heterosag.flower import SecureGrid, mod
from heterosag.flower.messages import round_digest
from heterosag.protocol import Identity
from heterosag.report.page import make_page
from heterosag.report.runs import summarise_run
from heterosag.storage.identities import load_identity, make_identity
from heterosag.storage.run_log import read_run

# --- what comes back ------------------------------------------------------------------------------------------------


def test_names_shapes_types_and_values_come_back(tmp_path: Path) -> None:
    nodes = make_nodes(12, tmp_path, train)
    grid, inside = grid_of(nodes)
    model = arrays()
    (reply,) = grid.send_and_receive(messages(nodes, model))
    found = result_of(reply)
    mean = expected(list(inside.nodes), model)
    assert list(found) == list(model)
    for name, array in found.items():
        assert array.dtype == model[name].dtype
        assert array.shape == model[name].shape
    assert np.allclose(found["conv.weight"], model["conv.weight"] + mean, atol=1e-6)
    assert found["steps"] == 7
    assert reply.content.metric_records["metrics"]["num-examples"] == 12
    assert len(grid.rounds[0].survivors) == 12
    assert grid.rounds[0].lost == {}


def test_stages_are_as_few_as_security_allows(tmp_path: Path) -> None:
    nodes = make_nodes(6, tmp_path, train)
    grid, inside = grid_of(nodes)
    list(grid.send_and_receive(messages(nodes, arrays())))
    stages = list(dict.fromkeys(stage for stage, _ in inside.log))
    assert stages == ["advertise", "share", "mask", "unmask"]
    assert len(inside.log) == 4 * 6


def test_bit_identical_with_the_embedded_engine(tmp_path: Path) -> None:
    nodes = make_nodes(12, tmp_path, train)
    grid, inside = grid_of(nodes)
    model = {"w": np.zeros(50, dtype=np.float32)}
    list(grid.send_and_receive(messages(nodes, model)))
    done = grid.rounds[0]
    assert done.plan is not None
    assert done.combined is not None
    updates = {str(node): {"w": np.full(50, shift(node), dtype=np.float32)} for node in inside.nodes}
    embedded = aggregate(replace(done.plan, metrics=()), updates)
    assert np.array_equal(embedded.vector, done.combined.vector)
    for ours, theirs in zip(embedded.blocks, done.combined.blocks, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            assert a.subgroups == b.subgroups
            assert np.array_equal(a.sums, b.sums)


def test_weights_and_metrics_are_summed_securely(tmp_path: Path) -> None:
    nodes = make_nodes(9, tmp_path, train, loss=0.25, secret=1.0)
    grid, _ = grid_of(nodes, max_weight=8, weight_unit=5, metrics=["loss"])
    (reply,) = grid.send_and_receive(messages(nodes, arrays()))
    metrics = dict(reply.content.metric_records["metrics"])
    assert metrics == {"num-examples": 90, "loss": pytest.approx(0.25, abs=1e-4)}


def test_messages_are_at_most_three_percent_above_the_packed_bytes(tmp_path: Path) -> None:
    size = 79_510

    def ones(node: int, before: dict[str, Any]) -> dict[str, Any]:
        return {"w": before["w"] + np.float32(shift(node))}

    nodes = make_nodes(10, tmp_path, ones)
    grid, _ = grid_of(nodes, levels=[12], options={"subgroup_size": 5, "min_survivors": 2})
    list(grid.send_and_receive(messages(nodes, {"w": np.zeros(size, dtype=np.float32)})))
    done = grid.rounds[0]
    assert done.plan is not None
    packed = done.plan.vector_sizes()
    for node, sent in done.received_bytes["mask"].items():
        assert sent <= 1.03 * packed[done.plan.subgroup_of(str(node))]


# --- strategies -----------------------------------------------------------------------------------------------------


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


def test_the_rule_on_the_grid_bears_a_liar(tmp_path: Path) -> None:
    malicious_user = FIRST_NODE

    def some_lie(node: int, before: dict[str, Any]) -> dict[str, Any]:
        return {"w": before["w"] + np.float32(-0.5 if node == malicious_user else 0.125)}

    nodes = make_nodes(30, tmp_path, some_lie)
    model = {"w": np.zeros(40, dtype=np.float32)}
    grid, _ = grid_of(nodes, rule="median")
    (reply,) = grid.send_and_receive(messages(nodes, model))
    assert np.allclose(result_of(reply)["w"], 0.125, atol=1e-6)


# --- plans ----------------------------------------------------------------------------------------------------------


def test_nodes_name_their_class_once(tmp_path: Path) -> None:
    nodes = make_nodes(12, tmp_path, train, config=lambda place: {"heterosag-class": place % 2})
    grid, inside = grid_of(nodes, levels=[5, 17])
    for _ in range(2):
        list(grid.send_and_receive(messages(nodes, arrays())))
    assert sum(stage == "hello" for stage, _ in inside.log) == 12
    plan = grid.rounds[1].plan
    assert plan is not None
    assert plan.classes == (6, 6)
    for place, node in enumerate(nodes):
        assert plan.subgroups[plan.subgroup_of(str(node.context.node_id))].user_class == place % 2


def test_nodes_name_their_rate(tmp_path: Path) -> None:
    nodes = make_nodes(12, tmp_path, train, config=lambda place: {"heterosag-rate": 0.5 + place})
    grid, _ = grid_of(nodes, levels=[5, 17], rate_limits=[6.0])
    list(grid.send_and_receive(messages(nodes, arrays())))
    plan = grid.rounds[0].plan
    assert plan is not None
    assert plan.classes == (6, 6)


def test_a_node_that_names_nothing_is_left_out(tmp_path: Path) -> None:
    nodes = make_nodes(12, tmp_path, train, config=lambda place: {"heterosag-class": 0} if place else {})
    grid, _ = grid_of(nodes, levels=[5, 17])
    (reply,) = grid.send_and_receive(messages(nodes, arrays()))
    assert not reply.has_error()
    assert "heterosag-class" in grid.rounds[0].lost[FIRST_NODE]
    assert len(grid.rounds[0].survivors) == 11


def test_a_changing_set_of_nodes_gets_a_new_plan(tmp_path: Path) -> None:
    nodes = make_nodes(12, tmp_path, train)
    grid, _ = grid_of(nodes)
    for chosen in (nodes, nodes, nodes[3:]):
        (reply,) = grid.send_and_receive(messages(chosen, arrays()))
        assert not reply.has_error()
    plans = [done.plan for done in grid.rounds]
    assert plans[0] == plans[1]
    assert plans[2] is not None
    assert len(plans[2].users) == 9


def test_a_plan_given_is_used_or_refused(tmp_path: Path) -> None:
    nodes = make_nodes(6, tmp_path, train)
    users = [str(node.context.node_id) for node in nodes]
    plan = Plan.build([6], [LEVEL], 36, subgroup_size=3, min_survivors=2, users=users, value_range=(-0.75, 0.75))
    grid = SecureGrid(LocalGrid(nodes), plan=plan, adapt_range=False)
    list(grid.send_and_receive(messages(nodes, arrays())))
    assert grid.rounds[0].plan == plan
    (reply,) = grid.send_and_receive(messages(nodes[1:], arrays()))
    assert "other nodes" in str(reply.error.reason)
    (reply,) = grid.send_and_receive(messages(nodes, {"w": np.zeros(9, dtype=np.float32)}))
    assert "the plan given is for 36 elements" in str(reply.error.reason) or "36" in str(reply.error.reason)
    for more in ({"metrics": ["loss"]}, {"max_weight": 4}, {"options": {"min_survivors": 2}}):
        with pytest.raises(PlanError, match="a plan given has its own"):
            SecureGrid(LocalGrid(nodes), plan=plan, **more)  # type: ignore[arg-type]


def test_the_range_follows_the_updates(tmp_path: Path) -> None:
    nodes = make_nodes(6, tmp_path, train)
    grid, _ = grid_of(nodes, value_range=0.01, adapt_range=True)
    for _ in range(3):
        list(grid.send_and_receive(messages(nodes, arrays())))
    widths = [done.plan.value_range[1] for done in grid.rounds if done.plan is not None]
    assert widths[0] < widths[1] < widths[2]


# --- faults ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["silent", "error", "crash", "reborn"])
@pytest.mark.parametrize("stage", ["advertise", "share", "mask", "unmask"])
def test_a_node_lost_at_any_stage(stage: str, what: str, tmp_path: Path) -> None:
    nodes = make_nodes(12, tmp_path, train)
    victim = nodes[4].context.node_id
    broken = [True]

    def fault(at: str, node: int, message: Message) -> str:
        del message
        return what if broken[0] and (at, node) == (stage, victim) else ""

    grid, inside = grid_of(nodes, fault)
    model = arrays()
    (reply,) = grid.send_and_receive(messages(nodes, model))
    found = result_of(reply)
    kept = [node for node in inside.nodes if node != victim]
    if stage == "unmask" or (stage, what) == ("advertise", "reborn"):
        kept = list(inside.nodes)  # its vector had arrived; or nothing was lost yet
    assert sorted(grid.rounds[0].survivors) == sorted(kept)
    assert np.allclose(found["conv.weight"], model["conv.weight"] + expected(kept, model), atol=1e-6)
    if (stage, what) != ("advertise", "reborn"):
        assert grid.rounds[0].lost[victim].startswith(f"at {stage}")
    broken[0] = False
    for _ in range(2):  # whoever missed what sets up the next round sits that one out, and is back in the one after
        (reply,) = grid.send_and_receive(messages(nodes, model))
        assert len(grid.rounds[-1].survivors) >= 11, reply
    assert len(grid.rounds[2].survivors) == 12
    assert [done.trips for done in grid.rounds] == [4, 2, 2]


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


def test_a_node_without_the_mod_is_named(tmp_path: Path) -> None:
    def secure(place: int) -> Any:
        return None if place == 0 else mod(policy=LOOSE, trust_server=True, release_log=tmp_path)

    nodes = make_nodes(9, tmp_path, train, secure=secure)
    grid, _ = grid_of(nodes)
    (reply,) = grid.send_and_receive(messages(nodes, arrays()))
    assert not reply.has_error()
    assert FIRST_NODE in grid.rounds[0].lost
    assert FIRST_NODE not in grid.rounds[0].survivors


# --- what a node refuses --------------------------------------------------------------------------------------------


def ask(node: Node, model: dict[str, Any], **fields: Any) -> Message:
    records: dict[str, Any] = {"arrays": record(model)}
    if fields:
        records["heterosag"] = ConfigRecord(fields)
    message = Message(RecordDict(records), dst_node_id=node.context.node_id, message_type=MessageType.TRAIN)
    message.metadata.__dict__["_message_id"] = "m"
    return node.app(message, node.context)


def test_a_server_without_the_grid_gets_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (node,) = make_nodes(1, tmp_path, train)
    reply = ask(node, arrays())
    told_at_home(caplog, "asked for something in plaintext", str(reply.error.reason))
    secure = mod(trust_server=True, release_log=tmp_path)
    for kind in ("query", "query.anything", "evaluate", "train.anything", "get_parameters"):
        message = Message(RecordDict(), dst_node_id=node.context.node_id, message_type="query")
        message.metadata.__dict__ |= {"_message_id": "m", "_message_type": kind}
        reply = secure(message, node.context, node.app)
        told_at_home(caplog, "asked for something in plaintext", str(reply.error.reason))


def test_nonsense_stages_are_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (node,) = make_nodes(1, tmp_path, train)

    def refused(detail: str, **fields: Any) -> None:
        told_at_home(caplog, detail, str(ask(node, arrays(), **fields).error.reason))

    refused("no stage is called 'dance'", rounds=[1], stages=["dance"], messages=[b""])
    refused("without having advertised", rounds=[1], stages=["mask"], messages=[b""])
    refused("'stages' is missing", rounds=[1], messages=[b""])
    refused("no list of int", rounds=[1.0], stages=["mask"], messages=[b""])
    refused("lists of one length", rounds=[1, 2], stages=["mask"], messages=[b""])
    refused("without having advertised", rounds=[1], stages=["advertise"], messages=[b""])
    refused("'plan' is missing", rounds=[1], stages=["advertise"], messages=[b""], session=b"s")


def test_without_identities_a_node_must_be_told_to_trust(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nodes = make_nodes(6, tmp_path, train, secure=lambda place: mod(policy=LOOSE, release_log=tmp_path))
    grid, _ = grid_of(nodes)
    (reply,) = grid.send_and_receive(messages(nodes, arrays()))
    assert reply.has_error()
    told_at_home(caplog, "trust_server=True", grid.rounds[0].lost[FIRST_NODE])


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


def test_a_node_in_another_class_than_it_named_refuses(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The server asked, and then plans as if a node had said something else."""
    nodes = make_nodes(12, tmp_path, train, config=lambda place: {"heterosag-class": place % 2})
    grid, _ = grid_of(nodes, levels=[5, 17])
    grid._epochs.classes = {node.context.node_id: int(place >= 6) for place, node in enumerate(nodes)}
    list(grid.send_and_receive(messages(nodes, arrays())))
    told_at_home(caplog, "another class than 1", grid.rounds[0].lost[nodes[1].context.node_id])
    assert nodes[0].context.node_id not in grid.rounds[0].lost


def test_a_class_without_nodes_and_classes_nobody_asked_for(tmp_path: Path) -> None:
    nodes = make_nodes(9, tmp_path, train, config=lambda place: {"heterosag-class": 1})
    for levels in ([5, 17], [17]):
        grid, _ = grid_of(nodes, levels=levels)
        (reply,) = grid.send_and_receive(messages(nodes, arrays()))
        assert not reply.has_error()
        assert len(grid.rounds[0].survivors) == 9


@pytest.mark.parametrize("stage", ["advertise", "share", "mask", "unmask"])
def test_a_node_that_sends_garbage_is_lost_alone(stage: str, tmp_path: Path) -> None:
    nodes = make_nodes(12, tmp_path, train)
    malicious_user = nodes[4].context.node_id
    grid, inside = grid_of(nodes)
    plain = inside.send_and_receive

    def garbled(sent: Any, *, timeout: float | None = None) -> Any:
        listed = list(sent)
        stages = {message.metadata.dst_node_id: stage_of(message) for message in listed}
        replies = list(plain(listed, timeout=timeout))
        for reply in replies:
            sender = reply.metadata.src_node_id
            if not reply.has_error() and sender == malicious_user and stages[malicious_user] == stage:
                reply.content["heterosag"] = ConfigRecord({"message": b"x"})
        return replies

    inside.send_and_receive = garbled  # type: ignore[method-assign]
    (reply,) = grid.send_and_receive(messages(nodes, arrays()))
    assert not reply.has_error()
    assert grid.rounds[0].lost[malicious_user].startswith(f"at {stage}")
    assert (malicious_user in grid.rounds[0].survivors) == (stage == "unmask")


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


def test_other_terms_for_one_node_are_another_context(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Weight 1000 for the victim and 1 for the others would show its update in the high digits of the sum."""
    nodes = make_nodes(9, tmp_path, train)
    victim = nodes[2].context.node_id

    def change(stage: str, node: int, message: Message) -> str:
        fields = dict(message.content["heterosag"])
        if "weight-unit" in fields and node == victim:
            message.content["heterosag"] = ConfigRecord({**fields, "weight-unit": 1})
        return ""

    grid, _ = grid_of(nodes, change, max_weight=8, weight_unit=5)
    list(grid.send_and_receive(messages(nodes, arrays())))
    told_at_home(caplog, "is not what the server says everybody sees", grid.rounds[0].lost[victim])
    assert victim not in grid.rounds[0].survivors


@pytest.mark.parametrize("stage", ["share", "mask"])
def test_a_stage_sent_twice_is_answered_once(stage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Flower may run two messages at once, each from the state before: other shares or values would reveal the
    difference."""
    rng = np.random.default_rng(0)

    def restless(node: int, before: dict[str, Any]) -> dict[str, Any]:
        del node  # no two trainings end alike
        return {name: array + rng.normal(0, 0.1, array.shape).astype(array.dtype) for name, array in before.items()}

    nodes = make_nodes(9, tmp_path, restless)
    victim = nodes[1]
    second: list[Message] = []

    def twice(at: str, node: int, message: Message) -> str:
        if (at, node) == (stage, victim.context.node_id):
            before = RecordDict({"heterosag": ConfigRecord(dict(victim.context.state["heterosag"]))})
            content = RecordDict(dict(message.content))
            copy = Message(content, dst_node_id=node, message_type=MessageType.TRAIN)
            copy.metadata.__dict__["_message_id"] = "copy"
            victim.app(copy, victim.context)
            victim.context.state = before
            again = Message(RecordDict(dict(message.content)), dst_node_id=node, message_type=MessageType.TRAIN)
            again.metadata.__dict__["_message_id"] = "again"
            second.append(victim.app(again, victim.context))
        return "silent" if at == stage and node == victim.context.node_id else ""

    grid, _ = grid_of(nodes, twice)
    list(grid.send_and_receive(messages(nodes, arrays())))
    assert "asked a second time" in caplog.text
    refusal = second[0].error.reason if second[0].has_error() else refusals(second[0])[0]
    assert "asked a second time" not in refusal


def refusals(reply: Message) -> list[str]:
    """What a node refused of a trip, part by part."""
    return list(reply.content.config_records["heterosag"]["errors"])  # type: ignore[arg-type]


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


def test_a_weight_that_the_train_function_does_not_give_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = make_nodes(
        6,
        tmp_path,
        train,
        secure=lambda _: mod(policy=LOOSE, trust_server=True, release_log=tmp_path, weighted_by=["rows"]),
    )
    grid, _ = grid_of(nodes, max_weight=4, weighted_by="rows")
    list(grid.send_and_receive(messages(nodes, arrays())))
    told_at_home(caplog, "no single number 'rows'", grid.rounds[0].lost[FIRST_NODE])


def test_a_restarted_node_never_releases_twice(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The unmask stage is sent, the node answers and dies before its context is saved, and is asked for less."""
    from heterosag.protocol import messages as wire

    nodes = make_nodes(9, tmp_path, train)
    victim = nodes[1]
    kept: dict[str, Any] = {}

    def spy(stage: str, node: int, message: Message) -> str:
        if (stage, node) == ("unmask", victim.context.node_id):
            kept["state"] = victim.context.state["heterosag"]
            kept["message"] = message.content["heterosag"]["messages"][0]
        return ""

    grid, _ = grid_of(nodes, spy)
    list(grid.send_and_receive(messages(nodes, arrays())))
    assert 1 not in victim.context.state.config_records["heterosag"]["rounds"]  # type: ignore[operator]
    victim.context.state["heterosag"] = kept["state"]
    plan = grid.rounds[0].plan
    assert plan is not None
    request = wire.decode(wire.UnmaskRequest, kept["message"], plan=plan)
    drop = next(index for index in request.survivors if plan.users[index] != str(victim.context.node_id))
    fewer = wire.UnmaskRequest(
        request.version, request.context, [index for index in request.survivors if index != drop], []
    )
    reply = ask(victim, arrays(), rounds=[1], stages=["unmask"], messages=[wire.encode(fewer)])
    told_at_home(caplog, "asked a second time", str(reply.error.reason))


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


# --- misuse on the server's side ------------------------------------------------------------------------------------


def test_misuse_of_the_grid_is_named(tmp_path: Path) -> None:
    nodes = make_nodes(6, tmp_path, train)
    inside = LocalGrid(nodes)
    for changes in (
        {"rate_limits": [1.0]}, {"levels": [2, 4, 8], "rate_limits": [2.0, 1.0]}, {"value_range": 0},
        {"weight_unit": 0}, {"quantile": 1.0}, {"options": {"users": ["1"]}},
    ):  # fmt: skip
        with pytest.raises(PlanError):
            SecureGrid(inside, **changes)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="timeouts are for the stages"):
        SecureGrid(inside, timeouts={"dance": 1.0})
    unknown = SecureGrid(inside, options={"dance": 1})
    (reply,) = unknown.send_and_receive(messages(nodes, arrays()))
    assert "does not know all of it" in str(reply.error.reason)
    grid, _ = grid_of(nodes)
    sent = messages(nodes, arrays())
    with pytest.raises(UsageError, match="use send_and_receive"):
        grid.push_messages(sent)
    other = Message(RecordDict(), dst_node_id=FIRST_NODE, message_type=MessageType.QUERY)
    with pytest.raises(UsageError, match="cannot be mixed"):
        grid.send_and_receive([*sent, other])
    assert list(grid.push_messages([other])) == ["query"]
    assert list(grid.pull_messages(["x"])) == []
    assert list(grid.get_node_ids()) == [node.context.node_id for node in nodes]
    grid.set_run("run")
    assert grid.run == "run"
    different = messages(nodes[:3], arrays()) + messages(nodes[3:], arrays(seed=1))
    (reply,) = grid.send_and_receive(different)
    assert "one model and one configuration" in str(reply.error.reason)


def test_late_and_stray_replies_are_ignored(tmp_path: Path) -> None:
    nodes = make_nodes(6, tmp_path, train)
    grid, inside = grid_of(nodes)
    plain = inside.send_and_receive

    def noisy(sent: Any, *, timeout: float | None = None) -> Any:
        replies = list(plain(sent, timeout=timeout))
        stray = Message(RecordDict(), reply_to=replies[0])
        stray.metadata.__dict__["_reply_to_message_id"] = "another"
        return [stray, *replies]

    inside.send_and_receive = noisy  # type: ignore[method-assign]
    (reply,) = grid.send_and_receive(messages(nodes, arrays()))
    assert not reply.has_error()
    assert stage_of(messages(nodes, arrays())[0]) == ""


def test_flower_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    import heterosag.flower

    monkeypatch.setitem(sys.modules, "flwr.app", None)
    with pytest.raises(UsageError, match=r"heterosag\[flower\]"):
        heterosag.flower.__getattr__("mod")
    with pytest.raises(AttributeError):
        heterosag.flower.__getattr__("dance")


# --- records, sizes, identities in files --------------------------------------------------------------------------


def test_a_run_leaves_the_record_that_every_engine_leaves(tmp_path: Path) -> None:
    def fault(stage: str, node: int, message: Message) -> str:
        return "silent" if (stage, node) == ("share", FIRST_NODE) else ""

    nodes = make_nodes(12, tmp_path / "log", train)
    grid, _ = grid_of(nodes, fault, record=tmp_path / "run", rule="median")
    evaluate = grid.recorded(lambda number, model: MetricRecord({"accuracy": 0.1 * number, "loss": 2.0 - number}))
    strategy = FedAvg(fraction_evaluate=0.0)
    initial = record({"w": np.zeros(30, dtype=np.float32)})
    strategy.start(grid=grid, initial_arrays=initial, num_rounds=2, evaluate_fn=evaluate)
    grid.close()
    run = read_run(tmp_path / "run")
    assert run.config["engine"] == "flower"
    assert run.config["classes"] == [12]
    assert [line["accuracy"] for line in run.rounds] == [0.1, 0.2]
    assert [line["loss"] for line in run.rounds] == [1.0, 0.0]
    assert [line["survivors"] for line in run.rounds] == [11, 11]
    assert all(line["dropped"]["share"] == 1 for line in run.rounds)
    assert run.rounds[0]["sent_bytes"]["mask"][0] > 0
    assert set(run.rounds[0]["user_seconds"]) == {"advertise", "share", "mask", "unmask"}
    assert run.end is not None
    assert run.end["rounds"] == 2
    found = summarise_run(run)
    assert found["accuracy"] == 0.2
    assert found["aggregate_error"] is None
    assert "Accuracy over rounds" in make_page([run])


def test_a_round_that_fails_and_one_that_nobody_judges_are_recorded(tmp_path: Path) -> None:
    down = [True]

    def fault(stage: str, node: int, message: Message) -> str:
        return "silent" if down[0] else ""

    nodes = make_nodes(12, tmp_path / "log", train, config=lambda place: {"heterosag-class": place % 2})
    grid, _ = grid_of(
        nodes, fault, levels=[3, LEVEL], record=tmp_path / "run", options={**OPTIONS, "min_robustness": 0}
    )
    list(grid.send_and_receive(messages(nodes, arrays())))  # no plan: nobody named its class
    down[0] = False
    list(grid.send_and_receive(messages(nodes, arrays())))
    grid.close()
    run = read_run(tmp_path / "run")
    assert [line["error"] is None for line in run.rounds] == [False, True]
    assert run.rounds[0]["dropped"]["hello"] == 12
    assert run.config["classes"] == [6, 6]
    assert [line["accuracy"] for line in run.rounds] == [None, None]
    assert run.rounds[1]["sent_bytes"]["mask"][1] > run.rounds[1]["sent_bytes"]["mask"][0]
    page = make_page([run])
    assert "rounds (failed)" in page
    assert "nan" not in page.lower().replace("financ", "")


def test_what_nodes_say_of_the_model_is_recorded(tmp_path: Path) -> None:
    """A weighted mean over those who say something that is a number; the others do not count."""
    said: list[dict[str, Any]] = [
        {"num-examples": 10, "accuracy": 0.9, "loss": 1.0},
        {"num-examples": 30, "accuracy": 0.5},
        {"num-examples": 99, "loss": 2.0},
        {"num-examples": 50, "accuracy": float("nan")},
        {"accuracy": 0.1},
        {"num-examples": 0, "accuracy": 0.2},
    ]
    nodes = make_nodes(6, tmp_path / "log", train)
    for node, metrics in zip(nodes, said, strict=True):
        original = node.app

        def answer(message: Message, context: Any, original: Any = original, metrics: Any = metrics) -> Message:
            if message.metadata.message_type == "evaluate":
                return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)
            return original(message, context)

        node.app = answer  # type: ignore[assignment]
    grid, _ = grid_of(nodes, record=tmp_path / "run")
    list(grid.send_and_receive(messages(nodes, arrays())))
    grid._exchange.evaluates = {node.context.node_id: "plaintext" for node in nodes}
    ask = [Message(RecordDict(), dst_node_id=node.context.node_id, message_type="evaluate") for node in nodes]
    list(grid.send_and_receive(ask))
    grid.close()
    (line,) = read_run(tmp_path / "run").rounds
    assert line["accuracy"] == pytest.approx((10 * 0.9 + 30 * 0.5) / 40)
    assert line["loss"] == pytest.approx((10 * 1.0 + 99 * 2.0) / 109)


def test_a_grid_used_twice_keeps_what_was_judged(tmp_path: Path) -> None:
    nodes = make_nodes(6, tmp_path / "log", train)
    grid, _ = grid_of(nodes, record=tmp_path / "run")
    scores = iter([0.1, 0.5, 0.9, 0.2, 0.6, 0.8])
    evaluate = grid.recorded(lambda number, model: MetricRecord({"accuracy": next(scores)}))
    for _ in range(2):
        initial = record({"w": np.zeros(30, dtype=np.float32)})
        strategy = FedAvg(fraction_evaluate=0.0)
        strategy.start(grid=grid, initial_arrays=initial, num_rounds=2, evaluate_fn=evaluate)
    grid.close()
    grid.close()
    assert [line["accuracy"] for line in read_run(tmp_path / "run").rounds] == [0.5, 0.9, 0.6, 0.8]
    list(grid.send_and_receive(messages(nodes, arrays())))  # not recorded, and no error
    assert len(read_run(tmp_path / "run").rounds) == 4
    with pytest.raises(UsageError, match="holds a run already"):
        grid_of(nodes, record=tmp_path / "run")


def test_liars_about_time_and_a_full_disk_cost_no_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = make_nodes(6, tmp_path / "log", train)
    for node in nodes[:2]:
        original = node.app

        def lie(message: Message, context: Any, original: Any = original) -> Message:
            reply = original(message, context)
            reply.content.config_records["heterosag"]["seconds"] = 1e308
            return reply  # type: ignore[no-any-return]

        node.app = lie  # type: ignore[assignment]
    grid, _ = grid_of(nodes, record=tmp_path / "run")
    (reply,) = grid.send_and_receive(messages(nodes, arrays()))
    result_of(reply)
    (line,) = read_run(tmp_path / "run").rounds
    assert sum(line["user_seconds"].values()) < 6 * grid.rounds[0].seconds

    def full(*_: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("heterosag.storage.run_log.RunWriter.write", full)
    (reply,) = grid.send_and_receive(messages(nodes, arrays()))
    result_of(reply)


def test_a_run_without_any_plan_leaves_no_record(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nodes = make_nodes(6, tmp_path / "log", train)
    other = Plan.build([6], [LEVEL], 36, users=list("abcdef"), value_range=1.0, **OPTIONS)
    grid, _ = grid_of(nodes, levels=(16,), options=None, plan=other, record=tmp_path / "run")
    (reply,) = grid.send_and_receive(messages(nodes, arrays()))
    assert reply.has_error()
    monitored = logging.getLogger("flwr")
    monitored.addHandler(caplog.handler)
    grid.close()
    monitored.removeHandler(caplog.handler)
    assert "no round had a plan" in caplog.text
    assert not (tmp_path / "run").exists()


def test_a_node_keeps_its_paths_to_itself(tmp_path: Path) -> None:
    def config(place: int) -> dict[str, Any]:
        return {"heterosag-key": str(tmp_path / "private-name" / "key")} if place == 0 else {}

    nodes = make_nodes(6, tmp_path, train, config=config)
    grid, _ = grid_of(nodes)
    list(grid.send_and_receive(messages(nodes, arrays())))
    why = grid.rounds[0].lost[nodes[0].context.node_id]
    assert "LocalFileError" in why
    assert "private-name" not in why


def test_bytes_on_the_wire_are_all_that_flower_carries(tmp_path: Path) -> None:
    from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

    carried: dict[tuple[str, int], int] = {}

    def fault(stage: str, node: int, message: Message) -> str:
        carried[stage, node] = sum(len(item.deflate()) for item in get_all_nested_objects(message).values())
        return ""

    nodes = make_nodes(6, tmp_path / "log", train)
    grid, _ = grid_of(nodes, fault, record=tmp_path / "run")
    model = {"w": np.zeros(20_000, dtype=np.float32)}
    list(grid.send_and_receive(messages(nodes, model)))
    grid.close()
    done = grid.rounds[0]
    for (stage, node), size in carried.items():
        assert abs(done.wire_sent[stage][node] - size) < 100  # the message's own id is set only when it is sent
    up = [sum(sizes.values()) for sizes in (done.received_bytes["mask"], done.wire_received["mask"])]
    assert up[0] < up[1] < 1.03 * up[0] + 6 * 1500
    assert sum(map(sum, (s.values() for s in done.received_bytes.values()))) < sum(
        map(sum, (s.values() for s in done.wire_received.values()))
    )
    assert min(done.wire_sent["mask"].values()) > 80_000  # the model, in plaintext
    assert max(done.wire_sent["share"].values()) < 80_000


def test_identities_from_the_files_that_the_node_config_names(tmp_path: Path) -> None:
    """Half of the nodes have Ed25519 keys, half the keys that Flower's nodes authenticate with."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    keys = []
    for place in range(6):
        path = tmp_path / f"{place}.key"
        if place % 2:
            make_identity(path)
        else:
            form, cipher = serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
            key = ec.generate_private_key(ec.SECP384R1())
            path.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, cipher))
            path.chmod(0o600)
        keys.append(path)
    known = {str(FIRST_NODE + 1000 * place): load_identity(path).public for place, path in enumerate(keys)}
    (tmp_path / "known.json").write_text(json.dumps({node: key.hex() for node, key in known.items()}))

    def config(place: int) -> dict[str, Any]:
        return {"heterosag-key": str(keys[place]), "heterosag-directory": str(tmp_path / "known.json")}

    nodes = make_nodes(
        6, tmp_path, train, config=config, secure=lambda place: mod(policy=LOOSE, release_log=tmp_path / "log")
    )
    grid, inside = grid_of(nodes, directory=known)
    (reply,) = grid.send_and_receive(messages(nodes, arrays()))
    result_of(reply)
    assert "agree" in {stage for stage, _ in inside.log}
    assert len(grid.rounds[0].survivors) == 6
    nodes[0].context.node_config["heterosag-key"] = str(keys[1])  # somebody else's
    list(grid.send_and_receive(messages(nodes, arrays())))
    assert nodes[0].context.node_id in grid.rounds[1].lost


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


def test_rounds_that_would_isolate_a_node_are_refused_by_grid_and_node(tmp_path: Path) -> None:
    """Everybody in the first round, everybody but one in the second: their difference is that one."""
    gone: list[int] = []

    def fault(stage: str, node: int, message: Message) -> str:
        return "silent" if stage == "mask" and node in gone else ""

    options = {**OPTIONS, "min_robustness": 0.0}
    for place, (grid_hides, node_hides) in enumerate(((2, 0), (0, 2), (0, 0))):
        folder = tmp_path / str(place)

        def careful(_: int, folder: Path = folder, below: int = node_hides) -> Any:
            return mod(policy=LOOSE, trust_server=True, release_log=folder, hide_sets_below=below)

        nodes = make_nodes(12, folder, train, secure=careful)
        grid, _ = grid_of(nodes, fault, options=options, hide_sets_below=grid_hides, record=folder / "run")
        gone[:] = []
        (first,) = grid.send_and_receive(messages(nodes, arrays()))
        gone[:] = [nodes[0].context.node_id]
        (second,) = grid.send_and_receive(messages(nodes, arrays()))
        grid.close()
        result_of(first)
        assert second.has_error() == bool(grid_hides or node_hides)
        line = read_run(folder / "run").rounds[1]
        if grid_hides:
            assert line["error"]["kind"] == "ExposedUsersError"
        elif node_hides:
            assert line["error"]["kind"] == "TooFewSurvivorsError"
            assert all("ExposedUsersError" in why or "mask" in why for why in line["lost"].values())
        else:
            assert line["ledger"]["shown_users"] == 1


def test_a_damaged_ledger_is_named_at_home_only(tmp_path: Path) -> None:
    nodes = make_nodes(
        6,
        tmp_path,
        train,
        secure=lambda _: mod(policy=LOOSE, trust_server=True, release_log=tmp_path, hide_sets_below=2),
    )
    grid, _ = grid_of(nodes)
    list(grid.send_and_receive(messages(nodes, arrays())))
    (books,) = (tmp_path / str(nodes[0].context.node_id)).glob("ledger.json")
    books.write_text("{")
    list(grid.send_and_receive(messages(nodes, arrays())))
    assert "LocalFileError" in grid.rounds[1].lost[nodes[0].context.node_id]


@pytest.mark.parametrize("classes", [5, "x", [0.5], ["a"]])
def test_classes_that_are_none_are_refused_by_name(
    classes: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = make_nodes(6, tmp_path, train)

    def spoil(stage: str, node: int, message: Message) -> str:
        del stage
        own: Any = message.content.config_records["heterosag"]
        if node == FIRST_NODE and "classes" in own:
            own["classes"] = classes
        return ""

    grid, _ = grid_of(nodes, spoil)
    list(grid.send_and_receive(messages(nodes, arrays())))
    told_at_home(caplog, "'classes' is missing or no list of int", grid.rounds[0].lost[FIRST_NODE])


def test_all_that_an_app_can_see_of_arrays_is_bound(tmp_path: Path) -> None:
    """Bytes that numpy does not read, another type beside the data, and a record that holds no array."""
    (node,) = make_nodes(1, tmp_path, train)
    (message,) = messages([node], {"w": np.zeros(3, dtype=np.float32)})
    known = {round_digest(message, {}, b"")}
    data = message.content.array_records["arrays"]["w"].data
    for changed in (
        Array("float32", (3,), "numpy.ndarray", data + b"1"),
        Array("float64", (3,), "numpy.ndarray", data),
        Array("float32", (1, 3), "numpy.ndarray", data),
        Array("float32", (3,), "another", data),
    ):
        message.content["arrays"] = ArrayRecord({"w": changed})
        known.add(round_digest(message, {}, b""))
    message.content["arrays"] = ArrayRecord({"w": Array("float32", (3,), "numpy.ndarray", data)})
    assert round_digest(message, {}, b"") in known
    message.content["empty"] = ArrayRecord()
    known.add(round_digest(message, {}, b""))
    assert len(known) == 6


@pytest.mark.parametrize("data", [b"", b"garbage", b"\x93NUMPY\x01\x00"])
def test_an_array_that_cannot_be_read_is_a_named_error(data: bytes, tmp_path: Path) -> None:
    nodes = make_nodes(6, tmp_path, train)
    grid, _ = grid_of(nodes)
    content = RecordDict({"arrays": ArrayRecord({"w": Array("float32", (3,), "numpy.ndarray", data)})})
    asked = [Message(content, dst_node_id=node.context.node_id, message_type=MessageType.TRAIN) for node in nodes]
    (reply,) = grid.send_and_receive(asked)
    assert "an array that cannot be read" in str(reply.error.reason)
