"""The table of apps on Flower, plain and secure, from the summary of `python -m bench.apps`."""

from __future__ import annotations

from typing import Any

SIDES = {
    "plain": "plain FedAvg",
    "secure": "our two lines",
    "weighted": "and `max_weight=100`",
    "secagg+": "SecAgg+",
}


def render(found: dict[str, Any]) -> str:
    """A row for each app and side: means over the seeds, and the worst loss of accuracy against plain."""
    header = ["app", "parameters, arrays", "", "accuracy", "less plain (worst)", "bytes a node", "of plain", "seconds"]
    seeds = ", ".join(map(str, found["seed"]))
    rounds = sorted({run["rounds"] for run in found["runs"]})
    lines = [
        f"`{found['command']}`: {found['nodes']} nodes, {' or '.join(map(str, rounds))} rounds, seeds {seeds}.",
        "",
        f"| {' | '.join(header)} |",
        f"|{' --- |' * len(header)}",
    ]
    for app in dict.fromkeys(run["app"] for run in found["runs"]):
        runs = {
            side: sorted((run for run in found["runs"] if (run["app"], run["side"]) == (app, side)), key=_seed)
            for side in SIDES
        }
        about = runs["plain"][0]
        for side, named in SIDES.items():
            first = side == "plain"
            lost = [one["accuracy"] - base["accuracy"] for one, base in zip(runs[side], runs["plain"], strict=True)]
            sent = _mean(runs[side], "bytes")
            cells = [
                app if first else "",
                f"{about['parameters']:,}, {about['arrays']}" if first else "",
                named,
                f"{_mean(runs[side], 'accuracy'):.1%}",
                "" if first else f"{100 * sum(lost) / len(lost):+.1f} ({100 * min(lost):+.1f})",
                f"{sent:,.0f}",
                "" if first else f"{sent / _mean(runs['plain'], 'bytes'):.2f}",
                f"{_mean(runs[side], 'seconds'):.2f}",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _seed(run: dict[str, Any]) -> int:
    return int(run["seed"])


def _mean(runs: list[dict[str, Any]], key: str) -> float:
    return float(sum(run[key] for run in runs) / len(runs))
