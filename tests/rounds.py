"""A round driven by hand, so that a test can look at, change, drop or repeat any message."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from heterosag.plan import Plan
from heterosag.protocol import Client, Identity, RoundId, Server
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
        "subgroup_size": 3,
        "min_survivors": 2,
        **changes,
    }
    return Plan.build(**requirements)


def change(kind: type[wire.Message], data: bytes, plan: Plan, **fields: Any) -> bytes:
    """The message with some fields replaced."""
    from msgspec.structs import replace

    return wire.encode(replace(wire.decode(kind, data, plan=plan), **fields))
