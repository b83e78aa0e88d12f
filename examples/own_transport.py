"""Rounds over a transport of your own: here a queue a user, one process; yours may be HTTP, MQTT or pigeons.

The machines do no I/O. Whatever carries bytes between them will do, as long as the server knows who sent what. Each
round's keys and shares ride on the messages of the round before, so all rounds but the first take two trips.
Run it: python examples/own_transport.py
"""

from __future__ import annotations

import secrets
from queue import SimpleQueue

import numpy as np

from heterosag import Client, Plan
from heterosag.aggregation.combine import combine
from heterosag.aggregation.rules import RULES
from heterosag.protocol import RoundId
from heterosag.protocol.pipeline import Answer, ClientPipeline, Part, ServerPipeline

plan = Plan.build(classes=[12, 12], levels=[4, 16], dimension=1000, value_range=1.0, subgroup_size=4)
session = secrets.token_bytes(16)
updates = np.random.default_rng(0).normal(0.1, 0.2, (24, 1000))

to_user = {user: SimpleQueue[list[Part]]() for user in plan.users}
to_server = SimpleQueue[tuple[int, list[Answer]]]()

# Everybody's own side. A client over a network takes identity= and directory=; here the server is ours, so trusted.
clients = {user: ClientPipeline(plan, user, session, trust_server=True) for user in plan.users}
server = ServerPipeline(session)


def train_and_mask(client: Client, part: Part) -> bytes:
    """A user's answer in the mask phase: the model has come, so the round is settled, and the update is masked."""
    client.settle(plan, RoundId(session=session, number=part.number, model=model))
    return client.mask(part.message, updates[plan.index(client.user)])


for number in (1, 2, 3):
    model = secrets.token_bytes(32)  # in training: a digest of the model that everybody trains from
    server.begin(plan)
    server.settle(plan, model=model)
    while not server.done:
        phase = server.phase
        for user, parts in server.send().items():
            to_user[user].put(parts)
        for user, client in clients.items():
            while not to_user[user].empty():
                parts = to_user[user].get()
                if (number, phase.value, user) != (2, "mask", 5):  # there this user dropped out
                    to_server.put((user, client.answer(parts, train_and_mask)))
        while not to_server.empty():
            user, answers = to_server.get()
            for answer in answers:
                if answer.error is None:
                    server.receive(user, answer.number, answer.message)
        server.close()
    result = combine(plan, server.decoded, RULES["mean"])
    alive = [plan.index(user) for user in result.survivors]
    error = float(np.abs(result.vector - np.clip(updates[alive], -1, 1).mean(axis=0)).max())
    print(f"round {number}: {server.trips} trips, {len(alive)} survivors, largest distance to their mean {error:.3f}")
