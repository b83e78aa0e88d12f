"""Clients that end between messages: saved states and release logs on disk."""

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from rounds import ROUND, World, change, small_plan

from heterosag import Simulation, aggregate
from heterosag.aggregation.combine import combine
from heterosag.aggregation.rules import find_rule
from heterosag.crypto.hashing import digest
from heterosag.errors import FaultyServerError, UsageError
from heterosag.plan import Plan
from heterosag.protocol import Client, Policy, RoundId
from heterosag.protocol import messages as wire
from heterosag.protocol.transitions import ClientPhase
from heterosag.storage.release_log import FileReleaseLog


def reborn(world: World, user: int) -> None:
    """Replace a client by one restored from its saved state, as a new process would have it."""
    data = world.clients[user].save()
    fresh = world.make_client(user, saved=data)
    assert fresh.phase is world.clients[user].phase
    world.clients[user] = fresh


@pytest.mark.parametrize("signed", [False, True])
def test_a_round_of_clients_reborn_between_all_messages(signed: bool) -> None:
    world = World(small_plan(), signed=signed)
    phases = ["advertise", "share", "mask", *(["agree"] if signed else []), "unmask"]
    for phase in phases:
        for user in world.plan.users:
            reborn(world, int(user))
        world.run(phase, without={5} if phase == "mask" else ())
    survivors = world.server.decoded.survivors
    assert survivors == tuple(user for user in range(12) if user != 5)
    plain = aggregate(
        world.plan, world.updates, simulate=Simulation(secure=False, dropped={5: "mask"}, rounding_seed=1)
    )
    assert plain.survivors == survivors
    decoded = [block for segment in world.server.decoded.segments for block in segment]
    assert [block.survivors for block in decoded] == [block.survivors for segment in plain.blocks for block in segment]
    assert all(block.fault is None for block in decoded)
    rough = combine(world.plan, world.server.decoded, find_rule("mean")).vector
    assert np.abs(rough - world.updates[[user for user in range(12) if user != 5]].mean(axis=0)).max() < 1.0


def test_a_restored_client_answers_a_duplicate_alike_and_refuses_another_message() -> None:
    world = World(small_plan())
    roster = world.run("advertise")[0]
    first = world.answer("share", 0)
    reborn(world, 0)
    assert world.clients[0].share(roster) == first
    with pytest.raises(FaultyServerError, match="second, different message"):
        world.clients[0].share(roster + b"\0")
    assert world.clients[0].phase is ClientPhase.DEAD
    reborn(world, 0)
    assert world.clients[0].phase is ClientPhase.DEAD


def test_saved_clients_are_bound_to_plan_user_and_round() -> None:
    world = World(small_plan())
    world.run("advertise")
    data = world.clients[0].save()
    strangers: list[tuple[int, dict[str, Any]]] = [
        (1, {}),
        (0, {"round_id": RoundId(session=b"test", number=4)}),
        (0, {"plan": small_plan(dimension=41)}),
    ]
    for user, other in strangers:
        with pytest.raises(UsageError, match="another plan, user, session or round"):
            world.make_client(user, saved=data, **other)


def test_damaged_states_are_refused() -> None:
    world = World(small_plan())
    world.run("advertise")
    data = world.clients[0].save()
    for wrong in (b"", data[:-1], data + b"\0", data[:40] + bytes([data[40] ^ 1]) + data[41:], bytes(64)):
        with pytest.raises(UsageError, match="cut or changed"):
            world.make_client(0, saved=wrong)


def test_states_with_a_right_digest_and_wrong_contents_are_refused() -> None:
    world = World(small_plan())
    world.run("advertise")
    body = msgspec.msgpack.decode(world.clients[0].save()[32:])
    changes = [
        ({"format": 9}, "format 9"),
        ({"secrets": None}, "secrets are missing"),
        ({"secrets": [b"\xff" * 32, bytes(32), bytes(32)]}, "field element"),
        ({"kind": "agreed"}, "no state is called"),
        ({"kind": "shared"}, "no state is called"),
        ({"phase": 3}, "not a saved client"),
        ({"phase": "asleep"}, "not a saved client"),
    ]
    for fields, problem in changes:
        wrong = msgspec.msgpack.encode(body | fields)
        with pytest.raises(UsageError, match=problem):
            world.make_client(0, saved=digest("saved-client", wrong) + wrong)


def test_a_saved_client_shows_nothing_and_cannot_be_pickled() -> None:
    import pickle

    from heterosag.protocol.client_state import _Saved

    saved = _Saved(format=1, context=b"c", user=0, phase="fresh", kind="fresh", replies={}, secrets=(b"a", b"b", b"c"))
    assert "secrets" not in repr(saved)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(saved)


def test_a_restored_state_of_old_does_not_release_twice(tmp_path: Path) -> None:
    """A node that is killed after it answered, before its state was saved, is asked again with another set."""
    plan = small_plan()
    world = World(plan)
    log = FileReleaseLog(tmp_path)
    world.clients[0] = world.make_client(0, release_log=log)
    world.run("advertise", "share", "mask")
    old = world.clients[0].save()
    request = world.waiting[0]
    world.answer("unmask", 0)
    second = world.make_client(0, saved=old, release_log=FileReleaseLog(tmp_path))

    fewer = change(wire.UnmaskRequest, request, plan, survivors=[user for user in range(12) if user != 11])
    with pytest.raises(FaultyServerError, match="asked a second time"):
        second.unmask(fewer)


def test_a_restored_state_of_old_does_not_mask_twice(tmp_path: Path) -> None:
    """A node that is killed after it sent its vector trains again: other values under the same masks would show the
    difference of the two."""
    world = World(small_plan())
    world.clients[0] = world.make_client(0, release_log=FileReleaseLog(tmp_path))
    inbox = world.run("advertise", "share")[0]
    old = world.clients[0].save()
    world.clients[0].mask(inbox, world.updates[0])
    second = world.make_client(0, saved=old, release_log=FileReleaseLog(tmp_path))
    with pytest.raises(FaultyServerError, match="asked a second time"):
        second.mask(inbox, world.updates[1])
    assert second.phase is ClientPhase.DEAD


def test_a_restored_state_of_old_does_not_share_twice(tmp_path: Path) -> None:
    """Fresh polynomials under the same sealing keys and nonces would show the difference of the shares."""
    world = World(small_plan())
    world.clients[0] = world.make_client(0, release_log=FileReleaseLog(tmp_path))
    roster = world.run("advertise")[0]
    old = world.clients[0].save()
    world.clients[0].share(roster)
    second = world.make_client(0, saved=old, release_log=FileReleaseLog(tmp_path))
    with pytest.raises(FaultyServerError, match="asked a second time"):
        second.share(roster)


def test_a_whole_round_with_logs_and_saved_states(tmp_path: Path) -> None:
    plan = Plan.build([6], [4], 30, value_range=1.0, subgroup_size=3, min_survivors=2, design="secagg")
    world = World(plan)
    for user in plan.users:
        world.clients[user] = Client(
            plan,
            user,
            ROUND,
            trust_server=True,
            release_log=FileReleaseLog(tmp_path / str(user)),
            policy=Policy.any_plan(),
        )
    world.run("advertise", "share", "mask", "unmask")
    assert len(world.server.decoded.survivors) == 6
    for user in plan.users:
        with sqlite3.connect(tmp_path / str(user) / "releases.sqlite") as database:
            assert database.execute("SELECT count(*) FROM claims").fetchone() == (3,)  # share, mask, unmask
        database.close()


def test_masking_secrets_are_those_of_the_roster() -> None:
    """A saved client without them would send its vector under its own mask alone."""
    world = World(small_plan())
    world.run("advertise", "share")
    data = world.clients[0].save()
    body = msgspec.msgpack.decode(data[32:])
    assert len(body["pairs"]) == 11
    for pairs in ({}, body["pairs"] | {0: bytes(32)}, body["pairs"] | {1: bytes(31)}):
        changed = msgspec.msgpack.encode(body | {"pairs": pairs})
        with pytest.raises(UsageError, match="masking secrets"):
            world.make_client(0, saved=digest("saved-client", changed) + changed)
    for stranger in (-1, 12):
        changed = msgspec.msgpack.encode(body | {"roster": [*body["roster"], stranger]})
        with pytest.raises(UsageError, match="masking secrets"):
            world.make_client(0, saved=digest("saved-client", changed) + changed)


def test_a_client_that_has_masked_is_restored_with_what_it_masked_under() -> None:
    world = World(small_plan())
    world.run("advertise")
    settled = RoundId(session=ROUND.session, number=ROUND.number, model=b"m" * 32)
    world.server.settle(world.plan, settled)
    for client in world.clients.values():
        client.settle(world.plan, settled)
    world.run("share")
    reply = world.answer("mask", 0)
    saved = world.clients[0].save()
    again = world.make_client(0, saved=saved)  # made with the round alone, as a node is that knows no model yet
    again.settle(world.plan, settled)
    assert again.mask(world.waiting[0], world.updates[0]) == reply
    opened = world.make_client(0, saved=saved, plan=world.plan.with_value_range(0.5))  # the range it was opened with
    assert opened.plan.value_range == world.plan.value_range
    with pytest.raises(FaultyServerError, match="another value range"):
        opened.settle(world.plan.with_value_range(0.5), settled)
    body = msgspec.msgpack.decode(saved[32:])
    changed = msgspec.msgpack.encode(body | {"settled": [1.0, -1.0, False, b"m" * 32]})
    with pytest.raises(UsageError, match="not a saved client"):
        world.make_client(0, saved=digest("saved-client", changed) + changed)


def test_a_client_is_restored_with_the_scales_it_masked_under() -> None:
    world = World(small_plan(arrays=[10, 30], scales=[1.0, 2.0]))
    settled = world.plan.with_value_range(0.5, scales=[3.0, 0.25])
    world.server.settle(settled, ROUND)
    for client in world.clients.values():
        client.settle(settled, ROUND)
    world.run("advertise", "share")
    reply = world.answer("mask", 0)
    again = world.make_client(0, saved=world.clients[0].save())  # made with the plan that the round was opened with
    assert (again.plan.value_range, again.plan.scales) == (settled.value_range, settled.scales)
    again.settle(settled, ROUND)
    assert again.mask(world.waiting[0], world.updates[0]) == reply


def test_a_client_that_masked_metrics_alone_is_restored_with_them_alone() -> None:
    world, alone = World(small_plan(metrics=["loss"])), replace(ROUND, metrics_only=True)
    world.run("advertise", "share")
    world.clients[0].settle(world.plan, alone)
    reply = world.clients[0].mask(world.waiting[0], np.empty(0), metrics={"loss": 1.0})
    again = world.make_client(0, saved=world.clients[0].save())  # made before it is known what the round sums
    assert again.plan.dimension == 0
    again.settle(world.plan, alone)
    assert again.mask(world.waiting[0], np.empty(0), metrics={"loss": 1.0}) == reply
    known = world.make_client(0, round_id=alone, saved=again.save())  # and made when it is
    assert known.plan.dimension == 0
    assert known.phase == again.phase
