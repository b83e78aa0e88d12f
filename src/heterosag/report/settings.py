"""What runs were: data, model, links, seed, time, version and command, and the settings in which runs differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from heterosag.storage.run_log import RunRecord

__all__ = ["describe_classes", "describe_runs", "find_differences", "list_settings"]

_UNKNOWN = "not recorded"


def describe_runs(runs: Sequence[RunRecord]) -> list[tuple[str, list[str]]]:
    """What ran, when and on what: the name of a row, and a cell a run.

    Args:
        runs: Any records.

    Returns:
        The rows.
    """
    rows: dict[str, Callable[[RunRecord], str]] = {
        "what": _describe_engine,
        "started": lambda run: _describe_time(run.started),
        "took": _describe_duration,
        "data": _describe_data,
        "model": lambda run: f"{_named(run.config.get('model'), 'auto')}{run.plan['dimension']:,} parameters",
        "users": _describe_users,
        "rounds": lambda run: f"{len(run.rounds)} of {run.config.get('rounds', len(run.rounds))}{_unfinished(run)}",
        "seed": lambda run: str(run.config.get("seed", _UNKNOWN)),
        "version": lambda run: f"heterosag {run.version}" if run.version else _UNKNOWN,
    }
    return [(name, [cell(run) for run in runs]) for name, cell in rows.items()]


def describe_classes(run: RunRecord) -> list[dict[str, str]]:
    """A row for each class of a run: users, link, levels.

    Args:
        run: A record.

    Returns:
        The rows, slowest link first.
    """
    levels = run.plan.get("class_levels", [])
    return [
        {
            "class": str(index),
            "users": str(users),
            "upload": _rate(run.config.get("rates"), index),
            "download": _rate(run.config.get("download_rates") or run.config.get("rates"), index),
            "levels": str(levels[index]) if index < len(levels) else _UNKNOWN,
        }
        for index, users in enumerate(run.config["classes"])
    ]


def find_differences(runs: Sequence[RunRecord]) -> list[tuple[str, list[str]]]:
    """The settings that are not the same in all runs.

    Args:
        runs: Any records.

    Returns:
        The rows: a setting, and its value in each run.
    """
    return [(name, cells) for name, cells in list_settings(runs) if len(set(cells)) > 1]


def list_settings(runs: Sequence[RunRecord]) -> list[tuple[str, list[str]]]:
    """Every setting of the runs.

    Args:
        runs: Any records.

    Returns:
        The rows: a setting, and its value in each run; "-" where a run does not have it.
    """
    names = dict.fromkeys(name for run in runs for name in run.config)
    return [(name, [_value(run.config.get(name)) for run in runs]) for name in names]


def _value(value: Any) -> str:
    if value is None or value in ("", []):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return ", ".join(map(_value, value)) if isinstance(value, list) else str(value)


def _describe_engine(run: RunRecord) -> str:
    if run.config.get("engine") == "flower":
        return "a run on Flower, with secure aggregation"
    secure = "with secure aggregation" if run.config["secure"] else "by the plain engine, without cryptography"
    return f"training on one machine, {secure}"


def _describe_time(started: str | None) -> str:
    if started is None:
        return _UNKNOWN
    when = datetime.fromisoformat(started)
    return f"{when.day} {when:%B %Y, %H:%M} UTC"


def _describe_duration(run: RunRecord) -> str:
    seconds = (run.end or {}).get("seconds")
    if seconds is None:
        return "no end recorded"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def _describe_data(run: RunRecord) -> str:
    if run.config.get("engine") == "flower":
        return "the nodes' own"
    split = run.config.get("partition")
    samples = run.config.get("train_samples")
    return ", ".join(
        [run.config["data"], *([f"{samples:,} samples"] if samples else []), *([f"split {split}"] if split else [])]
    )


def _describe_users(run: RunRecord) -> str:
    sizes = run.config["classes"]
    one = "1 class" if len(sizes) == 1 else f"{len(sizes)} classes"
    return f"{sum(sizes)} in {one}: {', '.join(map(str, sizes))}"


def _named(name: str | None, unless: str) -> str:
    return f"{name}, " if name and name != unless else ""


def _rate(rates: list[float] | None, index: int) -> str:
    """A class's link: its own, or everybody's; an empty list means 1 Mb/s, doubled from class to class."""
    if rates is None:
        return _UNKNOWN
    if not rates:
        return f"{2.0**index:g} Mb/s (default)"
    return f"{rates[index] if len(rates) > 1 else rates[0]:g} Mb/s"


def _unfinished(run: RunRecord) -> str:
    return "" if run.end is not None else ", not finished"
