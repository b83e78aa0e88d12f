"""A round driven by hand, so that a test can look at, change, drop or repeat any message."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pytest

from heterosag.crypto.field import ELEMENT_SIZE
from heterosag.crypto.seal import SEALED_SIZE
from heterosag.errors import FaultyServerError, HeteroSagError
from heterosag.plan import Plan
from heterosag.protocol import Client, ClientPhase, Decoded, Identity, Policy, RoundId, Server
from heterosag.protocol import messages as wire

ROUND = RoundId(session=b"test", number=3)


class World:
    """Clients and a server, and the messages waiting for each user."""

    def __init__(self, plan: Plan, *, signed: bool = False, **client_options: Any) -> None:
        self.plan = plan
        self.identities = {user: Identity.generate() for user in plan.users} if signed else None
        self.directory = None if self.identities is None else {u: i.public for u, i in self.identities.items()}
        self.server = Server(plan, ROUND, directory=self.directory)
        self.clients = {user: self.make_client(user, **client_options) for user in plan.users}
        self.waiting: dict[Any, bytes] = dict.fromkeys(plan.users, b"")
        self.updates = np.random.default_rng(7).uniform(-1, 1, (len(plan.users), plan.dimension))

    def make_client(self, user: Any, plan: Plan | None = None, round_id: RoundId = ROUND, **options: Any) -> Client:
        identity = None if self.identities is None else self.identities[user]
        chosen = {"identity": identity, "directory": self.directory, "trust_server": identity is None, **options}
        chosen.setdefault("policy", Policy.any_plan())
        saved = chosen.pop("saved", None)
        if saved is not None:
            return Client.restore(saved, plan or self.plan, user, round_id, **chosen)
        return Client(plan or self.plan, user, round_id, **chosen)

    def answer(self, phase: str, user: Any, message: bytes | None = None) -> bytes:
        given = self.waiting[user] if message is None else message
        return self.clients[user].answer(phase, given, self.updates[self.plan.index(user)])

    def run(self, *phases: str, without: Collection[Any] = ()) -> dict[Any, bytes]:
        """Run whole phases; users in `without` stay silent. Returns what the server sends last."""
        for phase in phases:
            for user in self.waiting:
                if user not in without:
                    self.server.receive(user, self.answer(phase, user))
            self.waiting = self.server.close()
        return self.waiting


def small_plan(**changes: Any) -> Plan:
    """Twelve users, four subgroups of three, three segments, no star."""
    requirements: dict[str, Any] = {
        "classes": [6, 6],
        "levels": [2, 5],
        "dimension": 40,
        "value_range": 1.0,
        "ranges": "single",
        "rotate": False,
        "subgroup_size": 3,
        "min_survivors": 2,
        **changes,
    }
    return Plan.build(**requirements)


def change(kind: type[wire.Message], data: bytes, plan: Plan, **fields: Any) -> bytes:
    """The message with some fields replaced."""
    from msgspec.structs import replace

    return wire.encode(replace(wire.decode(kind, data, plan=plan), **fields))


def refuses(world: World, user: Any, phase: str, message: bytes, match: str) -> None:
    """The client raises, dies, and answers nothing any more."""
    with pytest.raises(FaultyServerError, match=match):
        world.answer(phase, user, message)
    assert world.clients[user].phase is ClientPhase.DEAD
    with pytest.raises(HeteroSagError):
        world.answer(phase, user)


def roster_of(world: World) -> wire.Roster:
    return wire.decode(wire.Roster, world.waiting[0], plan=world.plan)


def masking(**changes: Any) -> World:
    world = World(small_plan(**changes))
    world.run("advertise", "share")
    return world


def inbox_of(world: World, user: int = 0) -> wire.Inbox:
    return wire.decode(wire.Inbox, world.waiting[user], plan=world.plan)


def agreeing(**changes: Any) -> World:
    world = World(small_plan(**changes), signed=True)
    world.run("advertise", "share", "mask")
    return world


def unmasking(*, signed: bool = False, without: Collection[int] = (), **changes: Any) -> World:
    world = World(small_plan(**changes), signed=signed)
    world.run("advertise", "share")
    world.run("mask", without=without)
    if signed:
        world.run("agree")
    return world


def show_sharers(plan: Plan, user: int, data: bytes, shown: Collection[int]) -> bytes:
    """A user's inbox with another list of sharers, and the rows of those dealers only."""
    inbox = wire.decode(wire.Inbox, data, plan=plan)
    dealers = [dealer for dealer in plan.sharing.holders(user) if dealer in inbox.sharers]
    places = [place for place, dealer in enumerate(dealers) if dealer in shown]
    boxes, pairs = wire.cut_rows(inbox.sealed, SEALED_SIZE), wire.cut_rows(inbox.commitments, wire.PAIR_SIZE)
    kept = {"sealed": b"".join(boxes[p] for p in places), "commitments": b"".join(pairs[p] for p in places)}
    return change(wire.Inbox, data, plan, sharers=sorted(shown), **kept)


def change_rows(data: bytes, size: int, rows: Mapping[int, bytes]) -> bytes:
    """Rows of one size with some of them replaced, by place."""
    return b"".join(rows.get(place, row) for place, row in enumerate(wire.cut_rows(data, size)))


def released(world: World, user: int) -> tuple[bytes, dict[int, bytes]]:
    """A user's answer to the unmask request, and the share in it of each dealer."""
    state: Any = world.clients[user]._state
    message = world.answer("unmask", user)
    rows = wire.cut_rows(wire.decode(wire.Released, message, plan=world.plan).shares, ELEMENT_SIZE)
    return message, dict(zip(sorted(state.held), rows, strict=True))


def masked_signatures(world: World) -> dict[int, bytes]:
    """Everybody's signature that it masked under c2, as the server in its agree phase has them."""
    state: Any = world.server._state
    return dict(state.masked.signatures)


def survivor_set(
    plan: Plan, user: int, context: bytes, survivors: Collection[int], signatures: Mapping[int, bytes]
) -> bytes:
    """What a server sends a user for it to sign: the set, and the signatures of its dealers in it."""
    dealers = [dealer for dealer in plan.sharing.holders(user) if dealer in survivors]
    listed = [signatures[dealer] for dealer in dealers]
    return wire.encode(wire.SurvivorSet(wire.WIRE_VERSION, context, sorted(survivors), listed))


def total_counts(decoded: Decoded) -> list[int]:
    return [sum(block.auxiliary["count"] for block in segment) for segment in decoded.segments]
