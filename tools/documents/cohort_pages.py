"""What "Beyond one machine" says, from docs/summaries/cohorts.json alone: measured rows, and what follows from them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

SUMMARY = Path(__file__).resolve().parents[2] / "docs" / "summaries" / "cohorts.json"

TARGETS = (10**5, 10**6)
"""Users that the measured costs are carried to."""

WITHIN = 60.0
"""Seconds in which the server's part of a round is to be done: an assumption."""

FLOAT_SIZE = 4  # bytes of an element of the model on its way to the users
SUM_SIZE = 8  # bytes of an element of a block's sum
LATE = 0.001  # the chance that a node misses a trip: an assumption
TIMEOUT = 60.0  # seconds after which a trip ends without those who are late: an assumption


def load() -> dict[str, Any]:
    """The committed summary of `python -m bench.cohorts`."""
    found: dict[str, Any] = json.loads(SUMMARY.read_text(encoding="utf-8"))
    return found


def about() -> str:
    """Where the numbers are from."""
    found = load()
    machine, large = found["machine"], found["large"]
    return (
        f"Measured by `{found['command']}` (seed {found['seed']}, {found['duration_seconds'] / 60:.0f} minutes, "
        f"{found['date']}) on {machine['processor']}, {machine['cores']} cores, Python {machine['python']}: "
        f"{large['users']:,} users in {large['cohorts']} cohorts, {found['elements']:,} elements, a tenth of the users "
        "lost before they mask, real cryptography for every user.\n"
    )


def measured() -> str:
    """The three rounds side by side."""
    found = load()
    rounds = [found["one_cohort"], found["cohorts"], found["large"]]
    heads = [f"{one['users']:,} users in {_cohorts(one['cohorts'])}" for one in rounds]
    rows = [
        ("a user's CPU, ms", [f"{one['user_ms']:.1f}" for one in rounds]),
        ("the server's part, s", [f"{one['server']:.1f}" for one in rounds]),
        ("the server's CPU a user, ms", [f"{1000 * _core_seconds(one):.2f}" for one in rounds]),
        ("the whole round and its check, s", [f"{one['seconds']:.0f}" for one in rounds]),
        ("memory of all processes, MB", [f"{one['bytes'] / 1e6:,.0f}" for one in rounds]),
        ("a user sends, kB", [f"{sum(one['sent'].values()) / 1000:.1f}" for one in rounds]),
        ("a user receives at most, kB", [f"{sum(one['received'].values()) / 1000:.1f}" for one in rounds]),
    ]
    return _table(["", *heads], rows)


def goals() -> str:
    """Every row of the run that has a goal."""
    lines = ["| row | ratio | goal | |", "|---|---:|---:|---|"]
    for row in load()["rows"]:
        if row["goal"] is not None:
            met = "met" if row["ratio"] <= row["goal"] else "**missed**"
            lines.append(f"| {row['name']} | {row['ratio']:.2f} | at most {row['goal']:g} | {met} |")
    return "\n".join(lines) + "\n"


def carried() -> str:
    """The measured costs of a user times the users."""
    found = load()
    large, elements = found["large"], found["elements"]
    core, sent, received = _core_seconds(large), sum(large["sent"].values()), sum(large["received"].values())
    down = received + FLOAT_SIZE * elements
    rows = []
    for name, value in (
        ("cohorts", lambda users: f"{math.ceil(users / found['cohort']):,}"),
        ("the server's core-seconds", lambda users: f"{users * core:,.0f}"),
        (f"cores that do it in {WITHIN:.0f} s", lambda users: f"{math.ceil(users * core / WITHIN):,}"),
        ("bytes in, GB", lambda users: f"{users * sent / 1e9:,.1f}"),
        ("bytes out, the protocol's, GB", lambda users: f"{users * received / 1e9:,.1f}"),
        ("bytes out with the model, GB", lambda users: f"{users * down / 1e9:,.1f}"),
        (f"line in, Gb/s, over {WITHIN:.0f} s", lambda users: f"{users * sent * 8e-9 / WITHIN:,.1f}"),
        (f"line out, Gb/s, over {WITHIN:.0f} s", lambda users: f"{users * down * 8e-9 / WITHIN:,.1f}"),
    ):
        rows.append((name, [value(users) for users in (large["users"], *TARGETS)]))
    return _table(["", *(f"{users:,} users" for users in (large["users"], *TARGETS))], rows)


def processes() -> str:
    """What a server process hands over, and what one core handles."""
    found = load()
    large = found["large"]
    core = _core_seconds(large)
    one = large["blocks"] * found["elements"] * SUM_SIZE
    last = math.ceil(TARGETS[-1] / found["cohort"])
    return (
        f"One server core handles {WITHIN / core:,.0f} users in {WITHIN:.0f} s, which is "
        f"{math.floor(WITHIN / core / found['cohort']):,} cohorts of {found['cohort']}. What a process hands over of a "
        f"cohort are its block sums: {large['blocks']} blocks of {found['elements']:,} elements of {SUM_SIZE} bytes, "
        f"{one / 1e6:,.1f} MB, for a robust rule, and {SUM_SIZE * found['elements'] / 1e6:.2f} MB for the mean, which "
        f"can be added up at once. Of the {last:,} cohorts of {TARGETS[-1]:,} users that is {last * one / 1e9:,.0f} GB "
        "for a robust rule, range by range of elements, and "
        f"{last * SUM_SIZE * found['elements'] / 1e9:,.1f} GB for the mean.\n"
    )


def superlink() -> str:
    """Where Flower is the limit."""
    found = load()
    each, large = found["flower_ms"], found["large"]
    rows = [
        (f"{users:,} nodes", [f"{4 * users:,}", f"{4 * users * each / 1000:,.0f}"])
        for users in (large["users"], *TARGETS)
    ]
    return (
        f"Flower takes {each:.2f} CPU ms to make a message with a masked vector of "
        f"{large['sent']['mask'] / 1000:.0f} kB into its "
        f"objects and back, so one process carries {1000 / each:,.0f} of them a second at most.\n\n"
        + _table(["", "messages of a steady round", "core-seconds in Flower's serialisation, at most"], rows)
    )


def stragglers() -> str:
    """What waiting costs, under stated chances."""
    found = load()
    cohort = found["cohort"]
    everybody = (1 - LATE) ** cohort
    return (
        f"If a node misses a trip with a chance of {LATE:.1%} and a trip ends after {TIMEOUT:.0f} s at the latest, all "
        f"{cohort} nodes of a cohort are in time in {everybody:.0%} of its trips, and all of {TARGETS[0]:,} nodes in "
        f"{(1 - LATE) ** TARGETS[0]:.0e} of them: where all cohorts go together every trip lasts {TIMEOUT:.0f} s, and "
        f"a steady round of two trips {2 * TIMEOUT:.0f} s; a cohort by itself waits {(1 - everybody) * TIMEOUT:.0f} s "
        f"a trip on average. A round that is set up anew takes four trips: {2 * TIMEOUT:.0f} s more.\n"
    )


def _core_seconds(one: dict[str, Any]) -> float:
    """CPU seconds that the server spends on a user."""
    return float(one["server_cpu"] / one["users"])


def _cohorts(count: int) -> str:
    return "one cohort" if count == 1 else f"{count} cohorts"


def _table(heads: list[str], rows: list[tuple[str, list[str]]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1)]
    return "\n".join(lines + [f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows]) + "\n"
