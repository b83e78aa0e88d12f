"""Secret sharing against its budgets, and the server's memory against its accumulators."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import numpy as np

from bench.rows import CPU, Row, in_turn, seconds
from heterosag.crypto.keys import RoundSecrets
from heterosag.crypto.shamir import coefficients, combine, split_two
from heterosag.plan import Plan
from heterosag.protocol import Client, RoundId, Server
from heterosag.protocol.client import Polynomials
from heterosag.vector import ring


def rows() -> Iterator[Row]:
    """Sharing both secrets, rebuilding them, and memory."""
    for users, budget in ((300, 0.025), (1000, 0.010)):
        plan = Plan.build([users], [12], 1000, value_range=1.0, subgroup_size=10)
        secrets = RoundSecrets.generate()
        places = [holder + 1 for holder in (0, *plan.sharing.holders(0))]

        def share(plan: Plan = plan, secrets: RoundSecrets = secrets, places: list[int] = places) -> None:
            polynomials = Polynomials.draw(plan, secrets)
            split_two(polynomials.mask, polynomials.self, places)

        name = f"share both secrets among {len(places)} holders, {users} users / budget of {budget * 1000:.0f} ms"
        yield Row.of(name, in_turn(share, clock=CPU)[0], budget, goal=1.0)
    yield _rebuild()
    yield _setup()
    yield _memory()


def _rebuild() -> Row:
    """Three hundred secrets from the same holders: with and without sharing the Lagrange coefficients."""
    places = tuple(range(1, 152))
    shares = list(range(7, 7 + len(places)))

    def shared() -> None:
        coefficients.cache_clear()
        for _ in range(300):
            combine(coefficients(places), shares)

    def apart() -> None:
        coefficients.cache_clear()
        combine(coefficients(places), shares)

    together, one = in_turn(shared, apart, clock=CPU)
    return Row.of(
        "rebuild 300 secrets of 151 shares / 300 times one", together, [300 * spent for spent in one], goal=0.1
    )


def _setup() -> Row:
    """What a user does once per peer (agree, derive, seal, open, commit), as the number of users grows."""

    def per_peer(users: int) -> float:
        plan = Plan.build([users], [2], users, value_range=1.0, subgroup_size=8, sharing="complete")
        round_id = RoundId(session=b"bench")
        server = Server(plan, round_id)
        clients = {user: Client(plan, user, round_id, trust_server=True) for user in plan.users}
        for user, client in clients.items():
            server.receive(user, client.advertise())
        roster = server.close()
        spent = 0.0
        for user, message in roster.items():
            start = CPU()
            reply = clients[user].share(message)
            spent = CPU() - start if user == users - 1 else 0.0
            server.receive(user, reply)
        inbox = server.close()[users - 1]
        spent += seconds(lambda: clients[users - 1].mask(inbox, np.zeros(plan.dimension)), CPU)
        return spent / (users - 1)

    pairs = [(per_peer(192), per_peer(48)) for _ in range(3)]
    many, few = zip(*pairs, strict=True)
    return Row.of("setup of a user per peer, N=192 / N=48 (linear: 1; sharing adds N)", many, few)


def _memory() -> Row:
    """Peak memory of the server while vectors arrive, the message itself not counted, over Z x dimension lanes."""
    plan = Plan.build([80], [12], 500_000, value_range=1.0, subgroup_size=8)
    round_id = RoundId(session=b"bench")
    server = Server(plan, round_id)
    clients = {user: Client(plan, user, round_id, trust_server=True) for user in plan.users}
    update = np.zeros(plan.dimension, dtype=np.float32)
    for client in clients.values():
        server.receive(client.user, client.advertise())
    messages = server.close()
    for user, message in messages.items():
        server.receive(user, clients[user].share(message))
    tracemalloc.start()
    messages = server.close()
    largest = 0
    for user, message in messages.items():
        tracemalloc.stop()
        vector = clients[user].mask(message, update)
        del clients[user]
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        server.receive(user, vector)
        largest = max(largest, tracemalloc.get_traced_memory()[1] - before)
        if user == 7:
            break
    tracemalloc.stop()
    lanes = sum(
        cell.size * ring.lane_dtype(cell.bits).itemsize for g in range(len(plan.subgroups)) for cell in plan.cells(g)
    )
    return Row.of("server memory while a vector arrives / Z x dimension lanes", [lanes + largest], lanes, goal=1.2)
