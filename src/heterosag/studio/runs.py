"""The Runs tab: the runs of a folder, and their rounds as they are written.

A run is asked for by a name that the listing gives. Names are looked up, never joined to a path, and links are not
followed, so nothing outside the folder can be named.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from heterosag.errors import UsageError
from heterosag.report.runs import summarise_run, summary_rows
from heterosag.report.settings import describe_runs, find_differences
from heterosag.storage.run_log import RECORD, RunRecord, is_written, read_run

__all__ = ["MOST_COMPARED", "compare", "describe_run", "find_run", "follow", "list_runs"]

MOST_COMPARED = 8
_MOST_RUNS = 500
_DEEPEST = 4  # folders below the one that is served
_LARGEST_RECORD = 64_000_000  # bytes
_PAUSE = 0.5  # seconds between two looks
_LONGEST_ERROR = 300  # characters

_Stamp = tuple[int, int, int, bool]


def _folders(root: Path) -> dict[str, Path]:
    """Every run's folder by its name: its path below the root, or the root's own name."""
    found: dict[str, Path] = {}
    for place, inner, files in os.walk(root):
        folder = Path(place)
        below = folder.relative_to(root)
        inner.sort()
        if len(below.parts) >= _DEEPEST:
            inner.clear()
        if RECORD in files and (folder / RECORD).is_file() and not (folder / RECORD).is_symlink():
            found[below.as_posix() if below.parts else root.resolve().name or "run"] = folder
        if len(found) >= _MOST_RUNS:
            break
    return found


def find_run(root: Path, name: str) -> Path:
    """The folder of a run that the listing has."""
    folders = _folders(root)
    if name not in folders:
        raise UsageError("no run of this folder has that name")
    return folders[name]


def list_runs(root: Path) -> list[dict[str, Any]]:
    """Every run in a few words: those that are running first, then the newest; one that cannot be read says why."""
    listed: list[dict[str, Any]] = []
    for name, folder in _folders(root).items():
        try:
            listed.append({"name": name, "problem": None, **_glance(folder, _stamp(folder))})
        except UsageError as error:
            listed.append({"name": name, "problem": str(error)})
    return sorted(listed, key=_rank)


def _rank(run: dict[str, Any]) -> tuple[bool, bool, float, str]:
    """Where a run comes in the listing."""
    if run["problem"]:
        return True, True, 0.0, run["name"]
    return False, run["state"] != "running", -datetime.fromisoformat(run["started"]).timestamp(), run["name"]


def _stamp(folder: Path) -> _Stamp:
    """What changes with the record."""
    try:
        found = (folder / RECORD).stat()
    except OSError:
        raise UsageError("its record is gone") from None
    return found.st_ino, found.st_size, found.st_mtime_ns, is_written(folder)


@lru_cache(maxsize=_MOST_RUNS)
def _glance(folder: Path, stamp: _Stamp) -> dict[str, Any]:
    """A run's state, read once for each stamp."""
    with _reading(folder):
        return _state(_read(folder), stamp)


@contextmanager
def _reading(*folders: Path) -> Iterator[None]:
    """What is wrong with a record, in words that do not name its place; JSON that no run writes is wrong too."""
    try:
        yield
    except UsageError as error:
        problem = str(error)
        for folder in folders:
            problem = problem.replace(f"{folder}{os.sep}", "")
        raise UsageError(problem) from None
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise UsageError(f"its record is not one that a run writes ({type(error).__name__}: {error})") from None


def _read(folder: Path) -> RunRecord:
    size = _stamp(folder)[1]
    if size > _LARGEST_RECORD:
        raise UsageError(f"its record has {size:,} bytes; this page reads up to {_LARGEST_RECORD:,}")
    return read_run(folder)


def _state(run: RunRecord, stamp: _Stamp) -> dict[str, Any]:
    """How far a run is; one of 0.1.0 does not say when it began, and counts from its last line."""
    *_, written, is_open = stamp
    judged = [found for line in run.rounds if (found := _finite(line.get("accuracy"))) is not None]
    return {
        "rounds": len(run.rounds),
        "failed": sum(line.get("error") is not None for line in run.rounds),
        "planned": run.config.get("rounds"),
        "state": "finished" if run.end is not None else "running" if is_open else "interrupted",
        "started": run.started or datetime.fromtimestamp(written / 1e9, UTC).isoformat(timespec="seconds"),
        "accuracy": judged[-1] if judged else None,
    }


def describe_run(root: Path, name: str) -> dict[str, Any]:
    """A run with a point for every round."""
    folder = find_run(root, name)
    with _reading(folder):
        stamp = _stamp(folder)
        run = _read(folder)
        return {"name": name, **_state(run, stamp), "points": _points(run)}


def _points(run: RunRecord) -> list[dict[str, Any]]:
    """What the figures need of each round; time runs on over the rounds."""
    points, spent = [], 0.0
    for line in run.rounds:
        spent += _finite(line.get("round_seconds")) or 0.0
        error = line.get("error")
        points.append(
            {
                "round": int(line["round"]),
                "accuracy": _finite(line.get("accuracy")),
                "loss": _finite(line.get("loss")),
                "aggregate_error": _finite(line.get("aggregate_error")),
                "relative_error": _relative_error(line),
                "seconds": spent,
                "survivors": int(line.get("survivors", 0)),
                "refusals": int(line.get("refusals", 0)),
                "bytes": _sent(line),
                "error": f"{error['kind']}: {error['message']}"[:_LONGEST_ERROR] if error else None,
            }
        )
    return points


def _finite(value: Any) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None


def _relative_error(line: dict[str, Any]) -> float | None:
    """The error of the aggregate over the size of what it stands for, both root mean squares; None if unknown."""
    error, size = _finite(line.get("aggregate_error")), _finite(line.get("aggregate_rms"))
    return _finite(error / size) if error is not None and size else None


def _sent(line: dict[str, Any]) -> list[float]:
    """Bytes of a user of each class, all phases together."""
    phases = list((line.get("sent_bytes") or {}).values())
    return [sum(_finite(size) or 0.0 for size in sizes) for sizes in zip(*phases, strict=True)] if phases else []


def compare(root: Path, names: Sequence[str]) -> dict[str, Any]:
    """Runs side by side, in the words of the report."""
    if not 1 <= len(names) <= MOST_COMPARED:
        raise UsageError(f"compare one to {MOST_COMPARED} runs")
    folders = [find_run(root, name) for name in names]
    with _reading(*folders):
        found = [_read(folder) for folder in folders]
        rows = summary_rows([summarise_run(run) for run in found])
        tables = {"rows": rows, "ran": describe_runs(found), "differences": find_differences(found)}
    return {"names": list(names), "commands": [run.command for run in found]} | {
        table: [{"name": name, "cells": cells} for name, cells in rows] for table, rows in tables.items()
    }


async def follow(root: Path, names: Sequence[str]) -> AsyncIterator[str]:
    """Server-sent events without end: the listing when it changes, each named run whole, then its new rounds."""
    import anyio

    seen: dict[str, _Stamp] = {}
    sent: dict[str, list[dict[str, Any]]] = {}
    listing: Any = None
    quiet = 0
    while True:
        changed = await anyio.to_thread.run_sync(_changes, root, seen)
        if changed or listing is None:
            fresh = await anyio.to_thread.run_sync(list_runs, root)
            if fresh != listing:
                listing = fresh
                yield _event("list", {"runs": fresh})
        for name in [name for name in names if name in changed]:
            try:
                run = await anyio.to_thread.run_sync(describe_run, root, name)
            except UsageError as error:
                yield _event("problem", {"name": name, "problem": str(error)})
                continue
            before = sent.get(name)
            sent[name] = run["points"]
            if before is None or len(before) > len(run["points"]):
                yield _event("run", run)
                continue
            new = [point for at, point in enumerate(run["points"]) if at >= len(before) or before[at] != point]
            yield _event("rounds", {**run, "points": new})
        quiet = 0 if changed else quiet + 1
        if quiet >= 20:
            quiet = 0
            yield ": still here\n\n"  # so that a reader who has gone is noticed
        await anyio.sleep(_PAUSE)


def _changes(root: Path, seen: dict[str, _Stamp]) -> set[str]:
    """The runs whose record is not as it was when last looked at; `seen` is brought up to date."""
    now = {}
    for name, folder in _folders(root).items():
        with suppress(UsageError):  # gone between two looks
            now[name] = _stamp(folder)
    changed = {name for name in now.keys() | seen.keys() if now.get(name) != seen.get(name)}
    seen.clear()
    seen.update(now)
    return changed


def _event(kind: str, data: dict[str, Any]) -> str:
    return f"event: {kind}\ndata: {json.dumps(data, allow_nan=False)}\n\n"
