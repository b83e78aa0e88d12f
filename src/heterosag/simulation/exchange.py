"""The messages of one plan's round in memory, phase by phase; or the same sums without the cryptography."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from heterosag.plan import User
from heterosag.protocol import encoding
from heterosag.protocol.blocks import join_blocks
from heterosag.protocol.cells import CellLanes
from heterosag.protocol.guard import Guard
from heterosag.protocol.server import Decoded, Refusal, Server
from heterosag.protocol.survivors import outcome
from heterosag.protocol.transitions import Phase
from heterosag.simulation.inputs import directory_of
from heterosag.simulation.workers import Workers, WorkerSettings, assemble

__all__ = ["Traffic", "play", "play_plain"]


@dataclass(slots=True, kw_only=True)
class Traffic:
    """What a round sent, and how long it took.

    Args:
        sent: Encoded bytes of each user's messages, by phase.
        received: Encoded bytes of the messages to each user, by phase.
        user_seconds: CPU seconds of all users together, by phase: what else the machine does is not counted.
        server_seconds: Seconds of the server on the clock, by phase.
        server_cpu_seconds: CPU seconds of the server, all its threads together, by phase.
    """

    sent: dict[str, dict[User, int]] = field(default_factory=dict)
    received: dict[str, dict[User, int]] = field(default_factory=dict)
    user_seconds: dict[str, float] = field(default_factory=dict)
    server_seconds: dict[str, float] = field(default_factory=dict)
    server_cpu_seconds: dict[str, float] = field(default_factory=dict)


def play(
    settings: WorkerSettings,
    absent: Mapping[User, Phase],
    traffic: Traffic,
    *,
    secure: bool,
    signed: bool,
    workers: int,
    guard: Guard | None,
) -> tuple[Decoded, tuple[Refusal, ...]]:
    """One plan's round, with the cryptography or without.

    Args:
        settings: Plan, round and users.
        absent: Who drops out, and before which phase.
        traffic: Is told what crosses, also in a round that fails.
        secure: False skips the cryptography.
        signed: Whether users agree on the survivors, or would.
        workers: Processes for the users, and threads for the server.
        guard: Keeps the ledger over rounds.

    Returns:
        What the server unmasked, and the messages that it did not take.
    """
    if secure:
        return _play_secure(settings, absent, traffic, workers=workers, guard=guard)
    return play_plain(settings, absent, guard, signed=signed), ()


def _play_secure(
    settings: WorkerSettings, absent: Mapping[User, Phase], traffic: Traffic, *, workers: int, guard: Guard | None
) -> tuple[Decoded, tuple[Refusal, ...]]:
    """The round between users in so many processes and a server in this one."""
    keys = settings.identities
    clients = assemble(settings, workers)
    try:
        with ThreadPoolExecutor(workers) as threads:  # started when it unmasks, long after the fork
            parallel_map = threads.map if workers > 1 else map
            server = Server(
                settings.plan,
                settings.round_id,
                directory=directory_of(keys),
                guard=guard,
                parallel_map=parallel_map,
            )
            decoded = _secure_round(server, clients, absent, traffic, signed=keys is not None)
    finally:
        clients.dismiss()
    return decoded, tuple(server.refusals)


def _secure_round(
    server: Server, clients: Workers, absent: Mapping[User, Phase], traffic: Traffic, *, signed: bool
) -> Decoded:
    """Drive clients and server through the phases, and count what crosses between them."""
    order = list(Phase)
    messages: dict[User, bytes] = dict.fromkeys(server.plan.users, b"")
    for phase in order if signed else [phase for phase in order if phase is not Phase.AGREE]:
        name = phase.value
        traffic.received[name] = {user: len(message) for user, message in messages.items()}
        present = {
            user: message
            for user, message in messages.items()
            if user not in absent or order.index(absent[user]) > order.index(phase)
        }
        answers = clients.answer(phase, present)
        traffic.sent[name] = {user: len(reply) for user, (reply, _) in answers.items()}
        traffic.user_seconds[name] = sum(seconds for _, seconds in answers.values())
        start, spent = time.perf_counter(), time.process_time()
        for user, (reply, _) in answers.items():
            server.receive(user, reply)
        messages = server.close()
        traffic.server_seconds[name] = time.perf_counter() - start
        traffic.server_cpu_seconds[name] = time.process_time() - spent
    return server.decoded


def play_plain(settings: WorkerSettings, absent: Mapping[User, Phase], guard: Guard | None, *, signed: bool) -> Decoded:
    """The same sums without the cryptography: the oracle says who survives, and their cells are added.

    Args:
        settings: Plan, round and users.
        absent: Who drops out, and before which phase.
        guard: Keeps the ledger over rounds.
        signed: Whether users would agree on the survivors.

    Returns:
        What the server would have unmasked.
    """
    plan, inputs = settings.plan, settings.inputs
    survivors = outcome(plan, absent, identities=signed).unwrap()
    if guard is not None:
        indices = frozenset(plan.index(user) for user in survivors)
        guard.check(indices)
        guard.note(indices)
    sums: dict[int, list[CellLanes]] = {}
    for user in survivors:
        subgroup = plan.subgroup_of(user)
        cells = encoding.fill_cells(
            plan, subgroup, inputs[user], settings.rounding[user], clip=user not in settings.malicious
        )
        if subgroup not in sums:
            sums[subgroup] = cells  # made for this user alone, so others can be added in place
            continue
        for total, cell in zip(sums[subgroup], cells, strict=True):
            total.elements[:] += cell.elements
            total.auxiliary[:] += cell.auxiliary
    segments, metrics = join_blocks(plan, [plan.index(user) for user in survivors], sums)
    return Decoded(survivors=survivors, segments=segments, metrics=metrics)
