"""Run schedules of the simulated world: `python tools/fault_simulation --schedules N --seed S`.

There are two kinds, N schedules of each: rounds alone, and rounds in a row on pipelines. Schedule number i has the seed
S + i. A schedule that breaks an invariant is printed with its events and the command that replays it: the same events
with the same bytes, since keys, polynomials, vectors and rounding come from the seed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import Any

sys.path[:1] = [str(folder) for folder in Path(__file__).resolve().parents[1:3]]  # run as a folder: find what is beside

from fault_simulation.pipelined import PipelinedWorld  # noqa: E402
from fault_simulation.world import Report, World, simulate, simulate_all  # noqa: E402
from reproduction.records import find_commit  # noqa: E402

_KINDS: dict[str, type[World]] = {"alone": World, "pipeline": PipelinedWorld}
_CHUNK = 50
_MOST_SHOWN = 5  # failing schedules whose events are printed


class Tally:
    """What all schedules came to."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.moods: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.failed: list[str] = []

    def add(self, report: Report, kind: str) -> None:
        self.kinds[kind] += 1
        self.moods[f"{kind}: {report.mood}"] += 1
        self.counts += report.counts
        self.faults += report.faults
        if report.failure:
            self.failed.append(f"{kind} {report.seed}")

    @property
    def schedules(self) -> int:
        return self.kinds.total()

    def ended(self) -> dict[str, int]:
        return {name[7:]: count for name, count in sorted(self.counts.items()) if name.startswith("ended: ")}


def run_all(kind: str, first: int, schedules: int, workers: int) -> Iterator[Report]:
    """Reports in the order of their seeds."""
    last = first + schedules
    chunks = [range(start, min(start + _CHUNK, last)) for start in range(first, last, _CHUNK)]
    if workers == 1:
        for chunk in chunks:
            yield from simulate_all(chunk, _KINDS[kind])
        return
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            for reports in pool.map(partial(simulate_all, kind=_KINDS[kind]), chunks):
                yield from reports
        except BrokenProcessPool as error:
            print(f"a worker is gone, the schedules that are left are lost: {error}", flush=True)


def show_failure(report: Report, kind: str) -> None:
    print(f"\n{kind}, seed {report.seed} ({report.mood}) failed; its events:")
    print("\n".join(report.trace))
    print(f"FAILED: {report.failure}")
    command = f"{shlex.quote(sys.executable)} tools/fault_simulation --kind {kind} --replay {report.seed}"
    print(f"replay: {command}", flush=True)


def soak(kinds: list[str], first: int, schedules: int, workers: int) -> tuple[Tally, float]:
    """Run schedules of each kind, with a line of progress now and then."""
    tally, start = Tally(), time.monotonic()
    shown, wanted = start, schedules * len(kinds)
    for kind in kinds:
        for report in run_all(kind, first, schedules, workers):
            tally.add(report, kind)
            if report.failure and len(tally.failed) <= _MOST_SHOWN:
                show_failure(report, kind)
            if time.monotonic() - shown > 10:
                shown = time.monotonic()
                rate = 60 * tally.schedules / (shown - start)
                print(f"{tally.schedules} of {wanted}, {rate:.0f} a minute, {len(tally.failed)} failed", flush=True)
    return tally, time.monotonic() - start


def summarise(tally: Tally, asked: argparse.Namespace, seconds: float) -> dict[str, Any]:
    kind = f"--kind {asked.kind} " if asked.kind else ""
    numbers = f"--schedules {asked.schedules} --seed {asked.seed} --workers {asked.workers}"
    command = f"python tools/fault_simulation {kind}{numbers}"
    return {
        "command": command,
        "commit": find_commit(),
        "seed": asked.seed,
        "duration_seconds": round(seconds, 1),
        "schedules": tally.schedules,
        "kinds": dict(tally.kinds),
        "lost": asked.schedules * len(_kinds(asked)) - tally.schedules,
        "failed": tally.failed,
        "per_minute": round(60 * tally.schedules / seconds),
        "rounds": sum(tally.ended().values()),
        "ended": tally.ended(),
        "faults": dict(sorted(tally.faults.items())),
        "checked": {name: count for name, count in sorted(tally.counts.items()) if not name.startswith("ended: ")},
        "moods": dict(sorted(tally.moods.items())),
    }


def print_summary(summary: dict[str, Any]) -> None:
    for name in ("ended", "faults", "checked", "moods"):
        print(f"{name}: " + ", ".join(f"{key} {count}" for key, count in summary[name].items()))
    print(
        f"{summary['schedules']} schedules, {summary['rounds']} rounds in {summary['duration_seconds']} s "
        f"({summary['per_minute']} a minute): {len(summary['failed'])} failed, {summary['lost']} lost"
    )


def _kinds(asked: argparse.Namespace) -> list[str]:
    return [asked.kind] if asked.kind else list(_KINDS)


def replay(kind: str, seed: int) -> int:
    """Run one schedule again and print its events."""
    report = simulate(seed, keep_trace=True, kind=_KINDS[kind])
    print("\n".join(report.trace))
    print(f"seed {seed}, trace {report.digest:08x}: {report.failure or 'every invariant held'}")
    return 1 if report.failure else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/fault_simulation", description="Run schedules of the simulated world.")
    parser.add_argument("--kind", choices=list(_KINDS), help="rounds alone or on pipelines; both unless said")
    parser.add_argument("--schedules", type=int, default=2000, help="how many of each kind")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first one; the next ones follow")
    parser.add_argument("--replay", type=int, metavar="SEED", help="run this one only, and print its events")
    parser.add_argument("--summary", type=Path, metavar="FILE", help="write the counts as JSON")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    asked = parser.parse_args()
    if asked.replay is not None:
        return replay(asked.kind or "alone", asked.replay)
    tally, seconds = soak(_kinds(asked), asked.seed, asked.schedules, asked.workers)
    summary = summarise(tally, asked, seconds)
    print_summary(summary)
    if asked.summary is not None:
        asked.summary.write_text(json.dumps(summary, indent=2) + "\n")
    return 1 if tally.failed or summary["lost"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
