"""Cohorts: a user's cost stays flat and the server's grows linearly with the users; ten thousand of them in a budget.

Every user runs its real cryptography, a tenth of them drop out before they mask, and block sums are compared with the
plain integer sums. `python -m bench.cohorts 10000 100000 500` is one round by itself, in JSON.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from bench.large import peak
from bench.rows import WALL, Row
from heterosag import CohortPlan
from heterosag.report.cohorts import run_cohorts

ROUND_BUDGET, SERVER_BUDGET, MEMORY = 480.0, 60.0, 4 << 30  # seconds, seconds, bytes

MEASURED: dict[str, Any] = {}
"""Absolute numbers, for the page."""


def rows(*, full: bool = False) -> Iterator[Row]:
    """The same users in one cohort and in several, then more users; each round in a process of its own."""
    fewer, more, cohort, elements = (1_000, 10_000, 500, 100_000) if full else (300, 600, 100, 2_000)
    alone, split, large = (
        _apart(fewer, elements, fewer),
        _apart(fewer, elements, cohort),
        _apart(more, elements, cohort),
    )
    MEASURED.update({"elements": elements, "one_cohort": alone, "cohorts": split, "large": large})
    what = f"m={elements:,}, 10% dropped"
    name = f"a user's milliseconds, {fewer:,} users in one cohort / in cohorts of {cohort}, {what}"
    yield Row.of(name, [alone["user_ms"]], split["user_ms"], better="higher")
    name = f"the server's seconds, {fewer:,} users in one cohort / in cohorts of {cohort}, {what}"
    yield Row.of(name, [alone["server"]], split["server"], better="higher")
    name = f"a user's milliseconds, {more:,} users / {fewer:,} in cohorts of {cohort}, {what}"
    yield Row.of(name, [large["user_ms"]], split["user_ms"], goal=1.3)
    name = f"the server's seconds a user, {more:,} users / {fewer:,} in cohorts of {cohort}, {what}"
    yield Row.of(name, [large["server"] / more], split["server"] / fewer, goal=1.3)
    if full:
        what = f"{more:,} users, {elements:,} elements, 10% dropped, all cores"
        yield Row.of(
            f"a round and its check, {what} / {ROUND_BUDGET:.0f} s", [large["seconds"]], ROUND_BUDGET, goal=1.0
        )
        yield Row.of(f"the server's part of it / {SERVER_BUDGET:.0f} s", [large["server"]], SERVER_BUDGET, goal=1.0)
        yield Row.of("the memory of all its processes / 4 GiB", [large["bytes"]], float(MEMORY), goal=1.0)


def _apart(users: int, elements: int, cohort: int) -> dict[str, float]:
    words = [sys.executable, "-m", "bench.cohorts", str(users), str(elements), str(cohort)]
    shown = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    found: dict[str, float] = json.loads(shown.splitlines()[-1])
    return found


def play(users: int, elements: int, cohort: int) -> dict[str, float]:
    """One round: seconds of the whole and of the server, a user's milliseconds, and bytes of all processes at most."""
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
        "seconds": spent,
        "server": sum(row["server_seconds"] for row in done["phases"]),
        "user_ms": done["user_ms"],
        "bytes": peak() + (workers - 1) * largest,
    }


if __name__ == "__main__":
    print(json.dumps(play(*map(int, sys.argv[1:4]))))
