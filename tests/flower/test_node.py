"""A node's side: what it refuses, what it tells the server, and what it does once only."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flower_nodes import (
    FIRST_NODE,
    LOOSE,
    OPTIONS,
    arrays,
    ask,
    grid_of,
    make_nodes,
    messages,
    record,
    result_of,
    told_at_home,
    train,
)
from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.clientapp.mod import LocalDpMod, arrays_size_mod, fixedclipping_mod, message_size_mod
from flwr.serverapp.strategy import DifferentialPrivacyClientSideFixedClipping, FedAvg

from heterosag.flower import mod
from heterosag.storage.identities import load_identity, make_identity
from heterosag.storage.run_log import read_run


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


def test_a_node_in_a_faster_class_than_it_named_refuses(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The server asked, and then plans as if a node had said something else."""
    nodes = make_nodes(12, tmp_path, train, config=lambda place: {"heterosag-class": place % 2})
    grid, _ = grid_of(nodes, levels=[5, 17])
    grid._epochs.classes = {node.context.node_id: int(place >= 6) for place, node in enumerate(nodes)}
    list(grid.send_and_receive(messages(nodes, arrays())))
    told_at_home(caplog, "a faster class than 0", grid.rounds[0].lost[nodes[6].context.node_id])
    for place in (0, 1):  # as it named, and slower
        assert nodes[place].context.node_id not in grid.rounds[0].lost


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


def test_a_node_keeps_its_paths_to_itself(tmp_path: Path) -> None:
    def config(place: int) -> dict[str, Any]:
        return {"heterosag-key": str(tmp_path / "private-name" / "key")} if place == 0 else {}

    nodes = make_nodes(6, tmp_path, train, config=config)
    grid, _ = grid_of(nodes)
    list(grid.send_and_receive(messages(nodes, arrays())))
    why = grid.rounds[0].lost[nodes[0].context.node_id]
    assert "LocalFileError" in why
    assert "private-name" not in why


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


@pytest.mark.slow
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
        grid, _ = grid_of(nodes, fault, options=options, hide_sets_below=grid_hides, record=folder)
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
            assert line["ledger"]["exposed_users"] == 1


def test_a_damaged_ledger_is_named_at_home_only(tmp_path: Path) -> None:
    nodes = make_nodes(
        6,
        tmp_path,
        train,
        secure=lambda _: mod(policy=LOOSE, trust_server=True, release_log=tmp_path, hide_sets_below=2),
    )
    grid, _ = grid_of(nodes)
    list(grid.send_and_receive(messages(nodes, arrays())))
    (ledger,) = (tmp_path / str(nodes[0].context.node_id)).glob("ledger.json")
    ledger.write_text("{")
    list(grid.send_and_receive(messages(nodes, arrays())))
    assert "LocalFileError" in grid.rounds[1].lost[nodes[0].context.node_id]


# --- other mods -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [message_size_mod, arrays_size_mod])
def test_mods_that_count_bytes_may_come_before_ours(first: Any, tmp_path: Path) -> None:
    own = mod(policy=LOOSE, trust_server=True, release_log=tmp_path)
    nodes = make_nodes(6, tmp_path, train, secure=lambda _: [first, own])
    grid, _ = grid_of(nodes)
    for seed in range(2):
        (reply,) = grid.send_and_receive(messages(nodes, arrays(seed)))
        result_of(reply)


def moved(node: int, before: dict[str, Any]) -> dict[str, Any]:
    return {name: array + np.float32(0.1) for name, array in before.items()}


def test_a_mod_that_changes_what_was_trained_comes_after_ours(tmp_path: Path) -> None:
    """Before ours it finds no arrays, and the server is told what to do; after ours what it made is aggregated."""
    own = mod(policy=LOOSE, trust_server=True, release_log=tmp_path)
    clip = LocalDpMod(clipping_norm=1e-3, sensitivity=0.0, epsilon=1.0, delta=1e-5)  # clips, and adds no noise
    model = {"w": np.zeros(100, dtype=np.float32)}
    found = []
    for listed in ([own], [own, clip], [clip, own]):
        nodes = make_nodes(6, tmp_path, moved, secure=lambda _, listed=listed: listed)
        grid, _ = grid_of(nodes, value_range=0.1)
        (reply,) = grid.send_and_receive(messages(nodes, model))
        found.append((reply, grid.rounds[0]))
    (plain, _), (clipped, _), (refused, done) = found
    assert np.allclose(result_of(plain)["w"], 0.1, atol=0.02)
    assert float(np.linalg.norm(result_of(clipped)["w"])) < 0.2 < float(np.linalg.norm(result_of(plain)["w"]))
    assert refused.has_error()
    assert all("the heterosag mod comes before it" in why for why in done.lost.values())
    assert len(done.lost) == 6


def test_flowers_clipping_on_the_nodes_works_after_ours(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    own = mod(policy=LOOSE, trust_server=True, release_log=tmp_path)
    nodes = make_nodes(6, tmp_path, moved, secure=lambda _: [own, fixedclipping_mod])
    grid, _ = grid_of(nodes)
    strategy = DifferentialPrivacyClientSideFixedClipping(
        FedAvg(fraction_evaluate=0.0), noise_multiplier=0.0, clipping_norm=1.0, num_sampled_clients=6
    )
    grid.start(strategy, record({"w": np.zeros(100, dtype=np.float32)}), num_rounds=2)
    assert [len(done.survivors) for done in grid.rounds] == [6, 6]
    assert "parameters are clipped by value: 1.0000" in caplog.text
