"""One self-contained page about one run or several: figures as SVG, tables, guarantees in words. No network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heterosag.errors import UsageError
from heterosag.plan.design import make
from heterosag.report.figures import COLOURS, draw_design, matplotlib_figure, to_svg
from heterosag.report.runs import summarise_run, summary_rows
from heterosag.report.templates import render, write
from heterosag.storage.run_log import RunRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["make_page", "write_page"]

_WIDEST_DESIGN = 40


def write_page(runs: Sequence[RunRecord], path: Path) -> None:
    """Write the page of some runs."""
    write(path, make_page(runs))


def make_page(runs: Sequence[RunRecord]) -> str:
    """The page as HTML text."""
    if not runs or any(not run.rounds for run in runs):
        raise UsageError("a report needs runs with at least one round")
    summaries = [summarise_run(run) for run in runs]
    return render(
        Path(__file__).with_name("page.html"),
        title=", ".join(run.name for run in runs),
        runs=[
            {"summary": summary, "guarantees": _guarantees(run), "design": _design(run), "errors": _errors(run)}
            for run, summary in zip(runs, summaries, strict=True)
        ],
        figures=_figures(runs),
        rows=summary_rows(summaries),
    )


def _figures(runs: Sequence[RunRecord]) -> list[dict[str, str]]:
    """Title, caption and SVG of every figure."""
    return [
        _figure("Accuracy over rounds", "Test accuracy of the global model after each round.", _accuracy_rounds(runs)),
        _figure(
            "Accuracy over communication time",
            "The same over the time that uploads and downloads take at the classes' rates; a round takes as long as "
            "its slowest user. For a run on Flower: over the time that its rounds took, training included.",
            _accuracy_time(runs),
        ),
        _figure("Bytes a user sends in a round", "By class, slowest link first, all phases together.", _bytes(runs)),
        _figure(
            "Seconds of protocol in a round, by phase",
            "Cryptography on this machine: one user's part (all users' divided by their number), and the server's.",
            _seconds(runs),
        ),
        _figure("Survivors", "Users whose update is in the aggregate of each round.", _survivors(runs)),
    ]


def _figure(title: str, caption: str, figure: Figure) -> dict[str, str]:
    svg = to_svg(figure, title=title)
    return {"title": title, "caption": caption, "svg": svg[svg.index("<svg") :]}


def _axes(width: float = 6.4, height: float = 3.4) -> tuple[Figure, Axes]:
    figure = matplotlib_figure(width, height)
    axes = figure.subplots()
    axes.grid(axis="y", color="#dddddd", lw=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _legend(axes: Axes) -> None:
    """Above the figure, where it hides nothing."""
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0)


def _lines(runs: Sequence[RunRecord]) -> Any:
    return zip(runs, (COLOURS[at % len(COLOURS)] for at in range(len(runs))), strict=True)


def _accuracy_rounds(runs: Sequence[RunRecord]) -> Figure:
    figure, axes = _axes()
    for run, colour in _lines(runs):
        axes.plot([r["round"] for r in run.rounds], _accuracies(run), color=colour, label=run.name)
    axes.set_xlabel("round")
    axes.locator_params(axis="x", integer=True)
    axes.set_ylabel("test accuracy, %")
    axes.set_ylim(0, 100)
    _legend(axes)
    return figure


def _accuracies(run: RunRecord) -> list[float]:
    """Accuracy in percent, a gap where nobody measured it."""
    return [math.nan if line["accuracy"] is None else 100 * line["accuracy"] for line in run.rounds]


def _accuracy_time(runs: Sequence[RunRecord]) -> Figure:
    figure, axes = _axes()
    for run, colour in _lines(runs):
        spent, times = 0.0, []
        for line in run.rounds:
            spent += line["round_seconds"]
            times.append(spent)
        axes.plot(times, _accuracies(run), color=colour, label=run.name)
    axes.set_xlabel("time, s")
    axes.set_ylabel("test accuracy, %")
    axes.set_ylim(0, 100)
    _legend(axes)
    return figure


def _grouped(axes: Axes, runs: Sequence[RunRecord], names: Sequence[str], values: Sequence[Sequence[float]]) -> None:
    """Bars in groups: a group a name, a bar a run."""
    wide = 0.8 / len(runs)
    for at, (row, (run, colour)) in enumerate(zip(values, _lines(runs), strict=True)):
        places = [index + (at - (len(runs) - 1) / 2) * wide for index in range(len(names))]
        axes.bar(places, row, wide, color=colour, label=run.name)
    axes.set_xticks(range(len(names)), names)
    _legend(axes)


def _bytes(runs: Sequence[RunRecord]) -> Figure:
    figure, axes = _axes()
    sent = [[size / 1000 for size in summarise_run(run)["sent_bytes"]] for run in runs]
    most = max(len(row) for row in sent)
    _grouped(axes, runs, [f"class {index}" for index in range(most)], [row + [0.0] * (most - len(row)) for row in sent])
    axes.set_ylabel("kB")
    return figure


def _seconds(runs: Sequence[RunRecord]) -> Figure:
    figure, axes = _axes()
    phases = ["advertise", "share", "mask", "agree", "unmask"]
    names = [f"{phase}\n{who}" for phase in phases for who in ("user", "server")]
    values = []
    for run in runs:
        good = [line for line in run.rounds if line["error"] is None]
        row = []
        for phase in phases:
            users = sum(line["user_seconds"].get(phase, 0.0) / max(line["participants"], 1) for line in good)
            server = sum(line["server_seconds"].get(phase, 0.0) for line in good)
            row += [1000 * users / max(len(good), 1), 1000 * server / max(len(good), 1)]
        values.append(row)
    _grouped(axes, runs, names, values)
    axes.tick_params(axis="x", labelsize=7)
    axes.set_ylabel("ms a round")
    return figure


def _survivors(runs: Sequence[RunRecord]) -> Figure:
    figure, axes = _axes()
    for run, colour in _lines(runs):
        style = {"color": colour, "label": run.name, "ls": "-" if run is runs[0] else "--"}
        axes.step([r["round"] for r in run.rounds], [r["survivors"] for r in run.rounds], **style)
    axes.set_xlabel("round")
    axes.locator_params(axis="x", integer=True)
    axes.set_ylabel("survivors")
    axes.set_ylim(bottom=0)
    _legend(axes)
    return figure


def _design(run: RunRecord) -> str:
    """The coloured design, or nothing where it is too wide to read."""
    count = len(run.plan["subgroups"])
    if count > _WIDEST_DESIGN:
        return ""
    figure = draw_design(make(run.plan["design"], count), classes=[entry["class"] for entry in run.plan["subgroups"]])
    svg = to_svg(figure, title=f"The design {run.plan['design']}")
    return svg[svg.index("<svg") :]


def _guarantees(run: RunRecord) -> list[str]:
    """What the plan guarantees, in words."""
    plan, leak = run.plan, run.plan["leak_probability"]
    return [
        f"The server learns, of any set of subgroups, at most {1 - plan['inference_robustness']:.1%} of the segments "
        "of their sum (inference robustness "
        f"{plan['inference_robustness']:.4f}{'' if plan['inference_robustness_exact'] else ', a lower bound'}).",
        f"The median tolerates {plan['byzantine_tolerance']} faulty users wherever they are.",
        f"A block with fewer than {plan['min_survivors']} survivors is never unmasked; without that rule some user's "
        f"segment would show in {leak['block']:.2g} of the rounds at {plan['dropout']:.0%} dropout.",
        f"A round fails for lack of survivors with probability {plan['failure_probability']:.2g}.",
        f"{plan['share_threshold']} shares rebuild a secret; {plan['agree_quorum']} users must agree on who survived.",
        *plan["notes"],
    ]


def _errors(run: RunRecord) -> list[str]:
    """Rounds that failed, and why."""
    return [f"round {r['round']}: {r['error']['kind']}: {r['error']['message']}" for r in run.rounds if r["error"]][:10]
