"""Cohorts: a user's cost stays flat and the server's grows linearly with the users; ten thousand of them in a budget.

Every user runs its real cryptography, a tenth of them drop out before they mask, and block sums are compared with the
plain integer sums. `python -m bench.cohorts 10000 100000 500` measures users, elements and cohort size as given, beside
a thousand users in cohorts and in one, and writes docs/summaries/cohorts.json, which "Beyond one machine" is filled
from (`make docs-pages`). With `--round` it is one round by itself, in JSON.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from bench import machine
from bench.large import peak
from bench.rows import WALL, Row
from heterosag import CohortPlan
from heterosag.report.cohorts import run_cohorts

ROUND_BUDGET, SERVER_BUDGET, MEMORY = 480.0, 60.0, 4 << 30  # seconds, seconds, bytes

SUMMARY = Path(__file__).resolve().parents[1] / "docs" / "summaries" / "cohorts.json"

MEASURED: dict[str, Any] = {}
"""Absolute numbers, for the page."""


def rows(*, full: bool = False) -> Iterator[Row]:
    """The same users in one cohort and in several, then more users; each round in a process of its own."""
    more, cohort, elements = (10_000, 500, 100_000) if full else (600, 100, 2_000)
    MEASURED.update(measure(more, elements, cohort))
    yield from compare(MEASURED, budgets=full)


def measure(more: int, elements: int, cohort: int) -> dict[str, Any]:
    """A round of so many users, and of a tenth of them, or half, in cohorts and in one."""
    fewer = min(1_000, more // 2)
    return {
        "elements": elements,
        "cohort": cohort,
        "one_cohort": _apart(fewer, elements, fewer),
        "cohorts": _apart(fewer, elements, cohort),
        "large": _apart(more, elements, cohort),
    }


def compare(found: dict[str, Any], *, budgets: bool) -> Iterator[Row]:
    """The ratios of what was measured, and with `budgets` the largest round against its limits."""
    alone, split, large, cohort = found["one_cohort"], found["cohorts"], found["large"], found["cohort"]
    fewer, more = split["users"], large["users"]
    what = f"m={found['elements']:,}, 10% dropped"
    name = f"a user's milliseconds, {fewer:,} users in one cohort / in cohorts of {cohort}, {what}"
    yield Row.of(name, [alone["user_ms"]], split["user_ms"], better="higher")
    name = f"the server's CPU seconds, {fewer:,} users in one cohort / in cohorts of {cohort}, {what}"
    yield Row.of(name, [alone["server_cpu"]], split["server_cpu"], better="higher")
    name = f"a user's milliseconds, {more:,} users / {fewer:,} in cohorts of {cohort}, {what}"
    yield Row.of(name, [large["user_ms"]], split["user_ms"], goal=1.3)
    name = f"the server's CPU seconds a user, {more:,} users / {fewer:,} in cohorts of {cohort}, {what}"
    yield Row.of(name, [large["server_cpu"] / more], split["server_cpu"] / fewer, goal=1.3)
    if budgets:
        what = f"{more:,} users, {found['elements']:,} elements, 10% dropped, all cores"
        name = f"a round and its check, {what} / {ROUND_BUDGET:.0f} s"
        yield Row.of(name, [large["seconds"]], ROUND_BUDGET, goal=1.0)
        yield Row.of(f"the server's part of it / {SERVER_BUDGET:.0f} s", [large["server"]], SERVER_BUDGET, goal=1.0)
        yield Row.of("the memory of all its processes / 4 GiB", [large["bytes"]], float(MEMORY), goal=1.0)


def _apart(users: int, elements: int, cohort: int) -> dict[str, Any]:
    words = [sys.executable, "-m", "bench.cohorts", "--round", str(users), str(elements), str(cohort)]
    shown = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    found: dict[str, Any] = json.loads(shown.splitlines()[-1])
    return found


def play(users: int, elements: int, cohort: int) -> dict[str, Any]:
    """One round: seconds of the whole and of the server, a user's milliseconds and bytes, memory of all processes."""
    plan = CohortPlan.build(
        [users], [12], elements, cohort_size=cohort, value_range=1.0, subgroup_size=8, assignment_seed=0, dropout=0.1
    )
    workers = os.cpu_count() or 1
    start = WALL()
    done = run_cohorts(plan, drop={"mask": users // 10}, workers=workers)
    spent = WALL() - start
    if not done["exact"] or done["failed_cohorts"]:
        raise ArithmeticError(f"the sums are not exact, or cohorts failed: {done['failed_cohorts']}")
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return {
        "users": users,
        "cohorts": done["cohorts"],
        "survivors": done["survivors"],
        "workers": workers,
        "seconds": spent,
        "server": sum(row["server_seconds"] for row in done["phases"]),
        "server_cpu": sum(row["server_cpu_seconds"] for row in done["phases"]),
        "user_ms": done["user_ms"],
        "bytes": peak() + (workers - 1) * largest,
        "blocks": max(len(segment.blocks) for one in plan.plans for segment in one.segments),
        "sent": {row["phase"]: row["sent_bytes"]["mean"] for row in done["phases"]},
        "received": {row["phase"]: row["received_bytes"]["max"] for row in done["phases"]},
    }


def flower_ms(size: int) -> float:
    """CPU milliseconds in which Flower makes a message with so many bytes into its objects and back."""
    from flwr.app import ConfigRecord, Message, MessageType, RecordDict
    from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
    from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_run_id", "_task_id", "_node_id"):
        setattr(TaskIdentity, name, 1)  # as Flower's runtime sets them before an app may make messages
    found = []
    for _ in range(40):
        record = ConfigRecord({"messages": [os.urandom(size)], "stages": ["mask"], "rounds": [1]})
        message = Message(RecordDict({"heterosag": record}), dst_node_id=2, message_type=MessageType.TRAIN)
        start = time.process_time()
        objects = {name: one.deflate() for name, one in get_all_nested_objects(message).items()}
        inflate_object_from_contents(message.object_id, objects)
        found.append(time.process_time() - start)
    return 1000 * median(found)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.cohorts", description="Rounds of cohorts, measured.")
    parser.add_argument("users", type=int)
    parser.add_argument("elements", type=int)
    parser.add_argument("cohort", type=int)
    parser.add_argument("--round", action="store_true", help="one round by itself, in JSON")
    parser.add_argument("--summary", type=Path, default=SUMMARY, help="where the summary goes")
    given = parser.parse_args()
    if given.round:
        print(json.dumps(play(given.users, given.elements, given.cohort)))
        return
    start = WALL()
    found = measure(given.users, given.elements, given.cohort)
    vector = int(found["large"]["sent"]["mask"])
    listed = list(compare(found, budgets=given.users == 10_000))
    summary = {
        "command": f"python -m bench.cohorts {given.users} {given.elements} {given.cohort}",
        "seed": 0,
        "flower_ms": flower_ms(vector),
        "duration_seconds": round(WALL() - start, 1),
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "machine": machine.describe(),
        "rows": [row.as_json() for row in listed],
        **found,
    }
    given.summary.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    for row in listed:
        print(f"{row.name}: {row.ratio:.3g}{'' if row.met else ', MISSED'}")
    print(f"{given.summary}: now `make docs-pages`")


if __name__ == "__main__":
    main()
