"""A round over a transport of your own: here a queue a user, one process; yours may be HTTP, MQTT or pigeons.

The machines do no I/O. Whatever carries bytes between them will do, as long as the server knows who sent what.
Run it: python examples/own_transport.py
"""

from __future__ import annotations

import secrets
from queue import SimpleQueue

import numpy as np

from heterosag import Plan
from heterosag.aggregation.combine import combine
from heterosag.aggregation.rules import RULES
from heterosag.protocol import Client, RoundId, Server

plan = Plan.build(classes=[12, 12], levels=[4, 16], dimension=1000, value_range=1.0, subgroup_size=4)
round_id = RoundId(session=secrets.token_bytes(16), number=1)
updates = np.random.default_rng(0).normal(0.1, 0.2, (24, 1000))

to_user = {user: SimpleQueue[bytes]() for user in plan.users}
to_server = SimpleQueue[tuple[int, bytes]]()

# Everybody's own side. A client over a network takes identity= and directory=; here the server is ours, so trusted.
clients = {user: Client(plan, user, round_id, trust_server=True) for user in plan.users}
server = Server(plan, round_id)

for phase in ("advertise", "share", "mask", "unmask"):
    for user, client in clients.items():
        if user == 5 and phase in ("mask", "unmask"):
            continue  # this user dropped out
        message = b"" if phase == "advertise" else to_user[user].get()
        to_server.put((user, client.answer(phase, message, updates[user])))
    while not to_server.empty():
        server.receive(*to_server.get())
    for user, message in server.close().items():
        to_user[user].put(message)

result = combine(plan, server.decoded, RULES["mean"])
alive = [user for user in plan.users if user != 5]
error = float(np.abs(result.vector - np.clip(updates[alive], -1, 1).mean(axis=0)).max())
print(f"{len(result.survivors)} survivors, largest distance to their mean {error:.3f}")
