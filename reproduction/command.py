"""What `python -m reproduction` prints and writes."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from heterosag.errors import UsageError
from reproduction.estimates import HOW
from reproduction.items import ITEMS, Item, choose, known_summaries, run_item, title_of
from reproduction.outcome import Scale, Summary
from reproduction.records import find_commit
from reproduction.running import Job, train
from reproduction.settings import EXPERIMENTS

__all__ = ["run", "show_items"]

_STYLES = {"holds": "green", "partly": "yellow", "fails": "red", "not judged": "dim"}


def show_items(*, as_json: bool) -> None:
    """Name every item."""
    if as_json:
        print(json.dumps({"items": [_describe(item) for item in ITEMS.values()], "estimates": HOW}, indent=2))
        return
    table = Table("item", "what", "in the paper", "quick", "full", "data")
    for item in ITEMS.values():
        table.add_row(
            item.name,
            item.title,
            item.place,
            *(_time(item.estimate(one)) for one in (Scale.QUICK, Scale.FULL)),
            item.data,
        )
    console = Console(highlight=False)
    console.print(table)
    console.print(HOW)


def _describe(item: Item) -> dict[str, Any]:
    return {
        "item": item.name,
        "title": item.title,
        "place": item.place,
        "estimate_seconds": {scale.value: item.estimate(scale) for scale in (Scale.QUICK, Scale.FULL)},
        "data": item.data,
    }


def run(
    names: Sequence[str],
    *,
    scale: str,
    out: Path,
    data_dir: str,
    seed: int,
    workers: int,
    as_json: bool,
    only: Sequence[str] = (),
    as_it_is: bool = False,
    rounds: int | None = None,
    records: Path | None = None,
) -> None:
    """Reproduce items, judge their claims, and write everything into one folder; with `only`, just train some runs."""
    if scale not in list(Scale):
        raise UsageError(f"the scale is quick or full (tiny is for tests), not {scale!r}")
    chosen = choose(names)
    console = Console(highlight=False, quiet=as_json)
    job = Job(
        scale=Scale(scale),
        seed=seed,
        folder=out,
        data_dir=data_dir,
        workers=workers,
        only=tuple(only),
        as_it_is=as_it_is,
        rounds=rounds,
        records=records,
        commit=find_commit(),
        say=lambda line: console.print(line),
    )
    if only:
        _train(chosen, job)
        return
    done = []
    for item in chosen:
        console.print(f"[bold]{title_of(item, job)}[/bold] ({item.place}): about {_time(item.estimate(job.scale))}")
        began = time.perf_counter()
        summary = run_item(item, job)
        done.append(summary)
        if item.walk_through:
            _walk(console, summary)
        for verdict in summary.outcome.verdicts:
            style = _STYLES[verdict.holds.value]
            words = escape(f"{verdict.claim}: {verdict.found}")
            console.print(f"  [{style}]{verdict.holds.value:10}[/{style}] {words}", markup=True)
        console.print(f"  {time.perf_counter() - began:.0f} s")
    from reproduction.page import lead, write_all

    summaries = known_summaries(out / "summaries")
    page = write_all(summaries, out)
    if as_json:
        print(json.dumps({"page": str(page), "items": [_judged(summary) for summary in done]}, indent=2))
        return
    console.print(f"{lead(summaries)} page: {page}")


def _train(chosen: Sequence[Item], job: Job) -> None:
    for item in chosen:
        if item.name not in EXPERIMENTS:
            raise UsageError(f"{item.name} has no runs to choose from: leave --only out")
        train(job, item.name, EXPERIMENTS[item.name](job.scale, job.seed, job.data_dir))


def _walk(console: Console, summary: Summary) -> None:
    """An example step by step: its text and its tables."""
    for paragraph in summary.outcome.text:
        console.print(escape(paragraph))
    for found in summary.outcome.tables:
        table = Table(*found.head, title=escape(found.title), title_justify="left")
        for row in found.rows:
            table.add_row(*(escape(cell) for cell in row))
        console.print(table)


def _judged(summary: Summary) -> dict[str, Any]:
    return {
        "item": summary.item,
        "scale": summary.scale.value,
        "seed": summary.seed,
        "duration_seconds": summary.duration_seconds,
        "verdicts": [
            {
                "claim": verdict.claim,
                "ours": verdict.ours,
                "paper": verdict.paper,
                "found": verdict.found,
                "holds": verdict.holds.value,
                "note": verdict.note,
            }
            for verdict in summary.outcome.verdicts
        ],
        "values": summary.outcome.values,
        "runs": [asdict(run) for run in summary.outcome.runs],
    }


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.0f} h"
