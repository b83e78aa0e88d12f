"""A user's steps with identities against the same steps with every signature verified, as 0.1.0 did.

Where N is large a few users take all their steps: they and those who deal shares to them share, and what the others
would sign is signed with their keys. What 0.1.0 verified beyond that is timed beside each user's steps, on the very
signatures: everybody's that it masked, and everybody's on the survivor set. What else is cheaper now is on both sides,
so against 0.1.0's own code the ratio may differ; to see that one, run `bench.round.play(plan, updates, 0,
identities=True).seconds` in a checkout of it and in this one, in turn.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from bench.round import inbox_of
from bench.rows import CPU, Row, seconds
from heterosag.crypto.hashing import index_bytes
from heterosag.crypto.identity import Identity, verify
from heterosag.plan import Plan
from heterosag.protocol import Client, RoundId, Server
from heterosag.protocol import messages as wire
from heterosag.protocol.context import sharers_context, survivors_bytes

SAMPLED = 5
"""Users timed of each N, next to each other on the sharing graph, so that they have most dealers in common."""


def rows() -> Iterator[Row]:
    """At the sizes whose sharing graphs are complete and sparse."""
    for users, goal in ((100, 0.9), (1000, 0.65)):
        plan = Plan.build([users], [12], 79_510, value_range=1.0, subgroup_size=8)
        ours, before = _Sampled(plan).measure()
        graph = "complete" if plan.sharing.complete else "sparse"
        name = f"a user's steps with identities, {users:,} users, {graph} graph / the same, every signature verified"
        yield Row.of(name, ours, before, goal=goal)


@dataclass
class _Spent:
    """Seconds of one user's steps, and of verifying what 0.1.0 verified besides."""

    steps: float = 0.0
    besides: float = 0.0


class _Sampled:
    """A round of which a few users are played."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.keys = [Identity.generate() for _ in plan.users]
        self.directory = {user: key.public for user, key in zip(plan.users, self.keys, strict=True)}
        self.round_id = RoundId(session=secrets.token_bytes(16))
        ring = plan.sharing.order or tuple(range(len(plan.users)))
        self.chosen = ring[:SAMPLED]
        self.spent = {index: _Spent() for index in self.chosen}

    def measure(self) -> tuple[list[float], list[float]]:
        """For each user that counts its steps, and its steps with everything verified."""
        plan = self.plan
        server = Server(plan, self.round_id, directory=self.directory)
        clients = [self._client(index) for index in range(len(plan.users))]
        for index, client in enumerate(clients):
            reply = self._timed(index, client.advertise)
            server.receive(plan.users[index], reply)
        roster = server.close()
        dealt: dict[int, wire.Shares] = {}
        for dealer in sorted({*self.chosen, *(one for index in self.chosen for one in plan.sharing.holders(index))}):
            reply = self._timed(dealer, partial(clients[dealer].share, roster[plan.users[dealer]]))
            dealt[dealer] = wire.decode(wire.Shares, reply, plan=plan)
        for index in self.chosen:
            self._finish(index, clients[index], dealt)
        counted = list(self.spent.values())[1:]  # the first warms up
        return [one.steps for one in counted], [one.steps + one.besides for one in counted]

    def _client(self, index: int) -> Client:
        return Client(
            self.plan,
            self.plan.users[index],
            self.round_id,
            identity=self.keys[index],
            directory=self.directory,
        )

    def _timed(self, index: int, step: Callable[[], bytes]) -> bytes:
        start = CPU()
        reply = step()
        if index in self.spent:
            self.spent[index].steps += CPU() - start
        return reply

    def _finish(self, index: int, client: Client, dealt: dict[int, wire.Shares]) -> None:
        """Mask, agree and unmask with everybody, whose signatures are made here."""
        plan, everybody = self.plan, list(range(len(self.plan.users)))
        c1 = dealt[index].context
        dealers = plan.sharing.holders(index)
        inbox = inbox_of(plan, index, dealt)
        update = np.zeros(plan.dimension, dtype=np.float32)
        self._timed(index, lambda: client.mask(inbox, update))
        c2 = sharers_context(c1, plan, self.round_id.model, everybody)
        masked = [self.keys[one].sign("masked", c2, index_bytes(one)) for one in everybody]
        shown = wire.SurvivorSet(wire.WIRE_VERSION, c2, everybody, [masked[one] for one in dealers])
        self._timed(index, lambda: client.agree(wire.encode(shown)))
        survivors = survivors_bytes(everybody)
        signed = [(one, self.keys[one].sign("survivors", c2, survivors)) for one in everybody]
        request = wire.UnmaskRequest(wire.WIRE_VERSION, c2, everybody, signed[: plan.agree_quorum])
        self._timed(index, lambda: client.unmask(wire.encode(request)))

        def verify_the_others() -> None:
            for one in set(everybody).difference(dealers):
                verify(self.keys[one].public, masked[one], "masked", c2, index_bytes(one))
            for one, signature in signed[plan.agree_quorum :]:
                verify(self.keys[one].public, signature, "survivors", c2, survivors)

        self.spent[index].besides += seconds(verify_the_others, CPU)
