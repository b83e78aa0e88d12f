"""One round of ours, step by step through `Client` and `Server`, and what each step cost."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import mean

import numpy as np
import numpy.typing as npt

from bench.rows import CPU, Clock
from heterosag.aggregation.combine import combine
from heterosag.aggregation.rules import find_rule
from heterosag.crypto import shamir
from heterosag.crypto.seal import SEALED_SIZE
from heterosag.plan import Plan, User
from heterosag.protocol import Client, Policy, RoundId, Server
from heterosag.protocol import messages as wire
from heterosag.simulation.inputs import directory_of, identities_of

PHASES = ("advertise", "share", "mask", "agree", "unmask")


@dataclass(kw_only=True)
class Cost:
    """What a round cost: by phase a user's mean seconds and largest message, the server's seconds, and the error."""

    user_seconds: dict[str, float] = field(default_factory=dict)
    user_bytes: dict[str, int] = field(default_factory=dict)
    server_seconds: dict[str, float] = field(default_factory=dict)
    error: float = 0.0

    @property
    def seconds(self) -> float:
        return sum(self.user_seconds.values())

    @property
    def sent(self) -> int:
        return sum(self.user_bytes.values())

    @property
    def server(self) -> float:
        return sum(self.server_seconds.values())


class Stopwatch:
    """Adds up seconds under names."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.times: dict[str, list[float]] = {}

    def __call__(self, name: str) -> _Lap:
        return _Lap(self, name)


class _Lap:
    def __init__(self, watch: Stopwatch, name: str) -> None:
        self.watch, self.name = watch, name

    def __enter__(self) -> None:
        self.start = self.watch.clock()

    def __exit__(self, *_: object) -> None:
        self.watch.times.setdefault(self.name, []).append(self.watch.clock() - self.start)


def inbox_of(plan: Plan, user: int, dealt: Mapping[int, wire.Shares]) -> bytes:
    """What the server sends a user to mask if everybody has shared; its dealers' messages are given."""
    dealers = plan.sharing.holders(user)
    places = {dealer: plan.sharing.holders(dealer).index(user) for dealer in dealers}
    pairs = [wire.cut_rows(dealt[dealer].commitments, wire.PAIR_SIZE)[places[dealer] + 1] for dealer in dealers]
    boxes = [wire.cut_rows(dealt[dealer].sealed, SEALED_SIZE)[places[dealer]] for dealer in dealers]
    everybody = list(range(len(plan.users)))
    context = dealt[dealers[0]].context
    return wire.encode(wire.Inbox(wire.WIRE_VERSION, context, everybody, b"".join(pairs), b"".join(boxes)))


def dropouts(users: int, lost: int) -> list[int]:
    """The places of so many users, spread over all: no subgroup loses more of its members than others do."""
    return [place * users // lost for place in range(lost)]


def play(
    plan: Plan,
    updates: npt.NDArray[np.float32],
    lost: int,
    *,
    policy: Policy | None = None,
    identities: bool = False,
) -> Cost:
    """A whole round, one user after another; `lost` of them, spread over all, drop out between share and mask.

    policy: what the clients ask of the plan (default: what they ask by default).
    """
    shamir.coefficients.cache_clear()  # a round has other survivors than those before
    keys = identities_of(plan, identities)
    directory = directory_of(keys)
    round_id = RoundId(session=secrets.token_bytes(16))
    server = Server(plan, round_id, directory=directory)
    clients = {
        user: Client(
            plan,
            user,
            round_id,
            identity=None if keys is None else keys[user],
            directory=directory,
            trust_server=keys is None,
            policy=policy,
        )
        for user in plan.users
    }
    gone = set(dropouts(len(plan.users), lost))
    alive = [place for place in range(len(plan.users)) if place not in gone]
    users, theirs = Stopwatch(CPU), Stopwatch(CPU)
    cost = Cost()
    messages: dict[User, bytes] = dict.fromkeys(plan.users, b"")
    for phase in PHASES:
        if phase == "agree" and not identities:
            continue
        for place, user in enumerate(plan.users):
            if user not in messages or (phase == "mask" and place in gone):
                continue
            client = clients[user]
            with users(phase):
                if phase == "advertise":
                    reply = client.advertise()
                elif phase == "mask":
                    reply = client.mask(messages[user], updates[place])
                else:
                    reply = getattr(client, phase)(messages[user])
            cost.user_bytes[phase] = max(cost.user_bytes.get(phase, 0), len(reply))
            with theirs(phase):
                server.receive(user, reply)
        with theirs(phase):
            messages = server.close()
    with theirs("unmask"):
        combined = combine(plan, server.decoded, find_rule("mean"))
    cost.user_seconds = {phase: mean(times) for phase, times in users.times.items()}
    cost.server_seconds = {phase: sum(times) for phase, times in theirs.times.items()}
    cost.error = float(np.abs(combined.vector - updates[alive].mean(axis=0, dtype=np.float64)).max())
    return cost
