"""`python -m bench [--full] [--only SUITE] [--summary FILE]`: measure, print a table, compare with the baseline.

Rows are ratios of two sides measured in this run. bench/latest.json gets them all; bench/baseline.json holds those of
the run that is committed, and a row that got a fifth worse than it is named. `--baseline` writes that file anew.
`--second` writes the ratios of this run beside those of the first in its summary, to show which ones can be repeated.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import (
    against_peer,
    cohorts,
    convolutions,
    flower,
    identities,
    large,
    ledger,
    machine,
    masking,
    planning,
    privacy,
    profile,
    scaling,
    sharing,
    startup,
    training,
)
from bench.rows import Row
from reproduction.records import find_commit

HERE = Path(__file__).parent
LATEST, BASELINE = HERE / "latest.json", HERE / "baseline.json"
TOLERATED = 1.2
"""How much worse than the baseline a ratio may be before it is named."""

RUN = ("command", "commit", "duration_seconds", "date", "machine")
"""What a summary says of each run that it has ratios of."""

Suite = Callable[[], Iterable[Row]]
SHORT: dict[str, Suite] = {
    "startup": startup.rows,
    "masking": masking.rows,
    "sharing": sharing.rows,
    "identities": identities.rows,
    "training": training.rows,
    "convolutions": convolutions.rows,
    "planning": planning.rows,
    "privacy": privacy.rows,
    "peer": against_peer.rows,
    "flower": flower.rows,
    "profile": profile.rows,
    "scaling": scaling.rows,
    "cohorts": cohorts.rows,
}
FULL: dict[str, Suite] = SHORT | {
    "peer": lambda: against_peer.rows(against_peer.FULL),
    "scaling": lambda: scaling.rows(full=True),
    "cohorts": lambda: cohorts.rows(full=True),
    "large": large.rows,
    "ledger": ledger.rows,
}
PARTS: dict[str, Suite] = {"peer-large": lambda: against_peer.rows(against_peer.LARGE)}
"""Parts of suites, named after them, that can be measured again by themselves."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Ratios, measured in one run.")
    parser.add_argument("--full", action="store_true", help="all sizes: half an hour")
    parser.add_argument(
        "--only", action="append", choices=sorted(FULL | PARTS), help="only this suite; may be given again"
    )
    parser.add_argument("--summary", type=Path, help="write rows, series and machine there, for the documents")
    parser.add_argument("--baseline", action="store_true", help="write bench/baseline.json anew from this run")
    parser.add_argument("--second", action="store_true", help="add this run's ratios to the summary of the first run")
    given = parser.parse_args()
    if given.second and (given.baseline or not given.full or not given.summary or not given.summary.exists()):
        parser.error(
            "--second measures what --full has measured: give --full and the --summary of that run, no --baseline"
        )
    suites = FULL if given.full else SHORT
    console, start = Console(), time.perf_counter()
    before = _read(given.summary) if given.summary and (given.second or given.only) else {}
    commit = find_commit()
    found: dict[str, list[Row]] = {}
    for name in given.only or suites:
        console.print(f"{name} …", style="dim")
        measured = list((FULL | suites | PARTS)[name]())
        found.setdefault(name.partition("-")[0], []).extend(measured)
        console.print(_table(name, measured))
        if given.summary:  # after each suite, so that a run that is interrupted leaves what it has measured
            _write(given.summary, _summary(given, found, start, before, commit))
    rows = [row for part in found.values() for row in part]
    _write(LATEST, [row.as_json() for row in rows])
    _compare(console, rows)
    if given.baseline:
        kept = (_read(BASELINE) if given.only else {}) | {row.name: row.ratio for row in rows}
        _write(BASELINE, kept)


def _read(path: Path) -> dict[str, Any]:
    """A file of JSON; empty where there is none."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def _table(title: str, rows: list[Row]) -> Table:
    table = Table("row", "ratio", "least to greatest", "goal", "", title=title)
    for row in rows:
        sign = "at most" if row.better == "lower" else "at least"
        goal = "" if row.goal is None else f"{sign} {row.goal:g}"
        spread = f"{row.low:.3g} to {row.high:.3g}" if row.repeats > 1 else "one run"
        table.add_row(
            row.name, f"{row.ratio:.3g}", spread, goal, "" if row.goal is None else "ok" if row.met else "MISSED"
        )
    return table


def _compare(console: Console, rows: list[Row]) -> None:
    """Name what got worse than the baseline."""
    before: dict[str, float] = _read(BASELINE)
    known = [row for row in rows if row.name in before]
    worse = [row for row in known if row.worse_than(before[row.name]) > TOLERATED]
    for row in worse:
        factor = row.worse_than(before[row.name])
        console.print(f"{row.name}: {factor:.2f} times worse than the baseline", style="bold red")
    console.print(f"{len(known)} rows compared with bench/baseline.json, {len(worse)} of them a fifth or more worse")


def _beside(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """The summary of a first run, each of its rows with the ratio that it has in a second one."""
    ratios = {row["name"]: row["ratio"] for rows in second["rows"].values() for row in rows}
    rows = {
        suite: [row | ({"second": ratios[row["name"]]} if row["name"] in ratios else {}) for row in rows]
        for suite, rows in first["rows"].items()
    }
    run = {key: second[key] for key in RUN}
    before = first.get("second", []) if "--only" in second["command"] else []
    return first | {"rows": rows, "second": [*before, run]}


def _merge(before: dict[str, Any], again: dict[str, Any], partly: Collection[str] = ()) -> dict[str, Any]:
    """A summary in which some suites were measured again, some of them `partly`; it says so."""
    run = {key: again[key] for key in RUN}
    parts = {key: again[key] for key in ("peer", "series", "large", "profile", "cohorts") if again.get(key)}
    rows = dict(again["rows"])
    for suite in partly & rows.keys():  # the others are still to be measured
        rows[suite] = _replace(before["rows"][suite], rows[suite], ("name",))
        if suite == "peer":
            parts["peer"] = _replace(before["peer"], again["peer"], ("users", "dimension", "graph"))
    return before | parts | {"rows": before["rows"] | rows, "again": [*before.get("again", []), run]}


def _replace(before: list[dict[str, Any]], again: list[dict[str, Any]], keys: tuple[str, ...]) -> list[dict[str, Any]]:
    """A list in which what has the same keys is replaced, and what is new comes last."""
    found = {tuple(one[key] for key in keys): one for one in before}
    return list((found | {tuple(one[key] for key in keys): one for one in again}).values())


def _summary(
    given: argparse.Namespace, found: dict[str, list[Row]], start: float, before: dict[str, Any], commit: str
) -> dict[str, Any]:
    """What has been measured so far: alone, beside a first run, or in the place of what an earlier one measured."""
    only = "".join(f" --only {name}" for name in given.only or ())
    whole = "make bench-second" if given.second else "make bench-full"
    part = f"python -m bench{' --full' * given.full}{' --second' * given.second}{only}"
    summary = {
        "command": whole if given.full and not only else part,
        "commit": commit,
        "seed": 0,
        "duration_seconds": round(time.perf_counter() - start, 1),
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "machine": machine.describe(),
        "rows": {name: [row.as_json() for row in rows] for name, rows in found.items()},
        "peer": against_peer.MEASURED,
        "series": scaling.SERIES,
        "large": large.MEASURED,
        "profile": profile.MEASURED,
        "cohorts": cohorts.MEASURED,
    }
    if given.second:
        return _beside(before, summary)
    if before:
        return _merge(before, summary, {name.partition("-")[0] for name in given.only if name in PARTS})
    return summary


if __name__ == "__main__":
    main()
