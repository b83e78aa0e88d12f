"""The tables of what a privacy budget costs and gives, from the summary of `python tools/privacy`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["render_accuracy", "render_inversion"]

_WORDS = {
    "one block": "one block of everybody",
    "six subgroups": "six subgroups",
    "blocks of 16": "blocks of 16",
    "trusted server": "a trusted server, Gaussian noise",
}


def render_accuracy(found: dict[str, Any]) -> str:
    """Accuracy by data, blocks and epsilon: mean, least and greatest over the seeds, and the error of the mean."""
    lines = [_about(found), ""]
    for data, setting in found["settings"].items():
        runs = [run for run in found["accuracy"] if run["data"] == data]
        epsilons = list(dict.fromkeys(run["epsilon"] for run in runs))
        named = ["no noise" if epsilon is None else f"epsilon {epsilon:g}" for epsilon in epsilons]
        lines += [
            f"{_describe(data, setting, found['delta'])}:",
            "",
            *_table(["users hide in", *named], [_row(runs, blocks, epsilons) for blocks in _WORDS]),
            "",
        ]
    return "\n".join(lines)


def render_inversion(found: dict[str, Any]) -> str:
    """What the attacks come to, by noise: mean, least and greatest over the seeds."""
    rows = []
    for noise in dict.fromkeys(run["noise"] for run in found["inversion"]):
        runs = [run for run in found["inversion"] if run["noise"] == noise]
        cost = runs[0]["epsilon_of_one_round"]
        rows.append(
            [
                noise,
                "-" if cost is None else f"{runs[0]['noise_multiplier']:.2g}",
                "-" if cost is None else f"{cost:.1f}",
                _spread([run["shown"] for run in runs], "{:.0%}"),
                _spread([run["mean_correlation"] for run in runs], "{:.2f}"),
                _spread([run["membership"] for run in runs], "{:.2f}"),
            ]
        )
    head = ["noise", "z", "epsilon of one round", "pictures shown", "mean correlation", "membership, area under ROC"]
    return "\n".join([_about(found), "", *_table(head, rows), ""])


def _about(found: dict[str, Any]) -> str:
    seeds = ", ".join(map(str, found["seed"]))
    return f"`{found['command']}`, seeds {seeds}; mean over the seeds, with least and greatest."


def _describe(data: str, setting: dict[str, Any], delta: float) -> str:
    model = "softmax regression" if setting["model"] == "softmax:regression" else "a small network"
    return (
        f"{data}, {setting['users']} users, {model} of {setting['parameters']:,} parameters, "
        f"{setting['rounds']} rounds, {setting['dropout']:.0%} dropout, "
        f"delta {delta:g}, a clipping norm of {setting['clip']:g}"
    )


def _row(runs: Sequence[dict[str, Any]], blocks: str, epsilons: Sequence[float | None]) -> list[str]:
    cells = [_WORDS[blocks]]
    for epsilon in epsilons:
        these = [run for run in runs if run["blocks"] == blocks and run["epsilon"] == epsilon]
        error = these[0]["error_in_clipping_norms"]
        cells.append(
            _spread([run["accuracy"] for run in these], "{:.0%}", "" if error is None else f", off by {error:.1f}")
        )
    return cells


def _spread(values: Sequence[float], form: str, more: str = "") -> str:
    mean, low, high = (form.format(value) for value in (sum(values) / len(values), min(values), max(values)))
    return f"{mean} ({low} to {high}{more})"


def _table(header: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows)]
