"""The figure of README and start page: bits that a user sends for a parameter, and the accuracy that they buy.

It is drawn from two committed summaries, those of `python tools/few_levels` and of `make bench-full`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import benchmark_pages

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["FIGURE", "Benefit", "draw", "find_benefit"]

ROOT = Path(__file__).resolve().parents[2]
FIGURE = ROOT / "docs" / "figures" / "bits-and-accuracy.svg"
USERS = 100
LEVELS = "2,4,16,256"
_OTHERS, _OURS, _PLAIN = "#8a8a8a", "#d55e00", "#0072b2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Benefit:
    """What the figure shows.

    Args:
        bits: bits a parameter of a user's upload, by who sends them.
        rounds: rounds of training.
        accuracy: for each model the final test accuracies of plain federated averaging and of HeteroSAg, seed by seed.
    """

    bits: dict[str, float]
    rounds: int
    accuracy: dict[str, tuple[list[float], list[float]]]


def find_benefit() -> Benefit:
    """Read the numbers from the committed summaries."""
    peers = (case for case in benchmark_pages.load()["peer"] if case["users"] == USERS and case["graph"] == "sparse")
    peer = max(peers, key=lambda case: int(case["dimension"]))
    path = ROOT / "docs" / "summaries" / "few_levels.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    bits = {
        "SecAgg+": 8 * peer["peer"]["bytes up"] / peer["dimension"],
        "float32, not secure": 32.0,
        "HeteroSAg, SecAgg+'s precision": 8 * peer["fine"]["bytes up"] / peer["dimension"],
    }
    names = [f"{count} levels" for count in LEVELS.split(",")]
    for name, by_class in zip(reversed(names), reversed(found["bits"][str(USERS)][LEVELS]), strict=True):
        bits[f"HeteroSAg, class with {name}"] = by_class
    return Benefit(bits=bits, rounds=found["rounds"], accuracy=_accuracies(found))


def _accuracies(found: dict[str, Any]) -> dict[str, tuple[list[float], list[float]]]:
    runs = [run for run in found["runs"] if run["users"] == USERS and run["rule"] == "adaptive"]
    last = {(run["model"], run["levels"], run["seed"]): 100 * run["accuracy"][-1] for run in runs}
    models = dict.fromkeys(run["model"] for run in runs if run["model"] != "perceptron x10")  # the same one, rescaled
    return {
        model: (
            [last[model, "plain", seed] for seed in found["seed"]],
            [last[model, LEVELS, seed] for seed in found["seed"]],
        )
        for model in models
    }


def draw(path: Path = FIGURE) -> None:
    """Draw the two panels."""
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    shown = find_benefit()
    with mpl.rc_context(benchmark_pages.STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.4, 3.0), width_ratios=(1, 1))
        _draw_bits(left, shown.bits)
        _draw_accuracy(right, shown)
        figure.tight_layout(w_pad=2)
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)


def _draw_bits(axis: Axes, bits: dict[str, float]) -> None:
    colors = [_OURS if name.startswith("HeteroSAg") else _OTHERS for name in bits]
    axis.barh(range(len(bits)), list(bits.values()), color=colors, height=0.7)
    for place, value in enumerate(bits.values()):
        axis.text(value + 1, place, f"{value:.1f}" if value < 10 else f"{value:.0f}", va="center")
    axis.set_yticks(range(len(bits)), list(bits))
    axis.invert_yaxis()
    axis.set_xlim(0, 72)
    axis.set_xlabel("bits a user sends per parameter")
    axis.set_title(f"{USERS} users: slow links send fewer bits", loc="left", fontsize=10, fontweight="bold")


def _draw_accuracy(axis: Axes, shown: Benefit) -> None:
    for side, color, label in ((0, _PLAIN, "plain FedAvg"), (1, _OURS, "HeteroSAg")):
        means = [sum(runs[side]) / len(runs[side]) for runs in shown.accuracy.values()]
        places = [place + 0.38 * side - 0.19 for place in range(len(means))]
        axis.barh(places, means, height=0.34, color=color)
        for place, mean in zip(places, means, strict=True):
            axis.text(mean + 2, place, f"{mean:.1f}  {label}", va="center")
    axis.set_yticks(range(len(shown.accuracy)), list(shown.accuracy))
    axis.invert_yaxis()
    axis.set_xlim(0, 165)
    axis.set_xticks(range(0, 101, 25))
    axis.spines["bottom"].set_bounds(0, 100)  # what is beyond is for the names
    axis.set_xlabel(f"test accuracy after {shown.rounds} rounds, %", x=50 / 165)
    axis.set_title("MNIST: accuracy hardly changes", loc="left", fontsize=10, fontweight="bold")


if __name__ == "__main__":
    draw()
