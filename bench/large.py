"""Large: a hundred million elements in bounded memory, and a round of a thousand users, each within its budget."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench.rows import WALL, Row
from bench.scaling import user_step
from heterosag import Plan, Simulation, aggregate
from heterosag.choices import PhaseName
from heterosag.plan import User
from heterosag.protocol import Client, RoundId, Server
from heterosag.simulation.workers import all_cores
from heterosag.vector import ring

HUGE, USUAL = 10**8, 10**6
MEMORY = 1 << 30  # bytes beyond the input
ROUND_BUDGET, SERVER_BUDGET = 300.0, 20.0  # seconds

MEASURED: dict[str, Any] = {}
"""Absolute numbers, for the page."""


def rows() -> Iterator[Row]:
    """Each in a process of its own, so that its memory is its own."""
    huge, usual = _apart("user", HUGE), _apart("user", USUAL)
    MEASURED["user"] = huge
    each = huge["seconds"] / HUGE
    yield Row.of("a user's seconds an element, m=10^8 / m=10^6", [each], usual["seconds"] / USUAL, goal=1.3)
    yield Row.of("a user's memory beyond its input, m=10^8 / 1 GiB", [huge["bytes"]], float(MEMORY), goal=1.0)
    name = "a user's wall seconds, m=10^8: one thread / all cores"
    yield Row.of(name, [huge["one_thread"]], huge["all_cores"], better="higher")
    server = MEASURED["server"] = _apart("server", HUGE)
    yield Row.of(
        "the server's memory while a vector arrives, m=10^8 / its accumulators",
        [server["bytes"]],
        server["lanes"],
        goal=1.5,
    )
    done = MEASURED["thousand"] = _apart("thousand", USUAL)
    what = "a round of 1,000 users, 1,000,000 elements, 10% dropped, two processes"
    yield Row.of(f"{what} / budget of {ROUND_BUDGET:.0f} s", [done["seconds"]], ROUND_BUDGET, goal=1.0)
    yield Row.of(
        f"the server's part of it / budget of {SERVER_BUDGET:.0f} s", [done["server"]], SERVER_BUDGET, goal=1.0
    )


def _apart(task: str, elements: int) -> dict[str, float]:
    words = [sys.executable, "-m", "bench.large", task, str(elements)]
    shown = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    found: dict[str, float] = json.loads(shown.splitlines()[-1])
    return found


def peak() -> int:
    """The most memory this process has had, in bytes: Linux keeps it since the program began, unlike getrusage, which
    counts the process that started it too."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def user(elements: int) -> dict[str, float]:
    """A user's mask step; what it takes beyond its vector of float32."""
    user_step(1 << 18)  # loads and compiles what is loaded and compiled once
    before = peak()
    _, spent = user_step(elements)
    most = peak()
    alone = _once(elements, threaded=False)
    return {
        "seconds": spent,
        "bytes": most - before - 4 * elements,
        "one_thread": alone,
        "all_cores": _once(elements, threaded=True),
    }


def _once(elements: int, *, threaded: bool) -> float:
    """Wall seconds of the same step."""
    return user_step(elements, parallel_map=all_cores() if threaded else map, threads=2)[1]


def server(elements: int) -> dict[str, float]:
    """Vectors of four subgroups of three, added up as they arrive: accumulators, and what a vector takes on top."""
    plan = Plan.build([12], [12], elements, value_range=1.0, subgroup_size=3)
    round_id = RoundId(session=secrets.token_bytes(16))
    machine = Server(plan, round_id)
    clients = {name: Client(plan, name, round_id, trust_server=True) for name in plan.users}
    for name, client in clients.items():
        machine.receive(name, client.advertise())
    for name, message in machine.close().items():
        machine.receive(name, clients[name].share(message))
    inboxes = machine.close()
    update = np.random.default_rng(0).random(elements, dtype=np.float32)
    spent, most = [], 0
    for name in plan.users[:3]:
        vector = clients.pop(name).mask(inboxes[name], update, parallel_map=all_cores())
        tracemalloc.start()
        start = WALL()
        machine.receive(name, vector)
        spent.append(WALL() - start)
        most = max(most, tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    lanes = sum(
        cell.size * ring.lane_dtype(cell.bits).itemsize for g in range(len(plan.subgroups)) for cell in plan.cells(g)
    )
    return {"bytes": lanes + most, "lanes": lanes, "message": len(vector), "seconds": median(spent)}


def thousand(elements: int) -> dict[str, float]:
    """A whole round of real cryptography for every user."""
    count = 1000
    plan = Plan.build([count], [12], elements, value_range=1.0, subgroup_size=8, dropout=0.1, sharing="sparse")
    rng = np.random.default_rng(0)
    updates = np.empty((count, elements), dtype=np.float32)
    for row in updates:
        rng.standard_normal(out=row, dtype=np.float32)
        row *= 0.2
    gone: dict[User, PhaseName] = dict.fromkeys(plan.users[::10], "mask")
    start = WALL()
    result = aggregate(plan, updates, simulate=Simulation(dropped=gone), workers=2)
    spent = WALL() - start
    alive = [place for place in range(count) if place % 10]
    clipped = np.clip(updates, -1, 1, out=updates)
    mean = np.zeros(elements)
    for place in alive:
        mean += clipped[place]
    error = float(np.abs(result.vector - mean / len(alive)).max())
    return {"seconds": spent, "server": sum(result.traffic.server_seconds.values()), "error": error} | {
        f"users_{phase}": value for phase, value in result.traffic.user_seconds.items()
    }


if __name__ == "__main__":
    task, elements = sys.argv[1], int(sys.argv[2])
    print(json.dumps({"user": user, "server": server, "thousand": thousand}[task](elements)))
