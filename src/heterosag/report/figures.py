"""Figures as SVG, with matplotlib (the `report` extra), which is imported on first use."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from heterosag.errors import UsageError
from heterosag.plan.design import Design
from heterosag.report.runs import summarise_run
from heterosag.storage.run_log import RunRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["COLOURS", "PALETTE", "draw_design", "draw_runs", "matplotlib_figure", "to_svg"]

PALETTE = (
    "#8dd3c7", "#ffed6f", "#bebada", "#fb8072", "#80b1d3", "#fdb462",
    "#b3de69", "#fccde5", "#d9d9d9", "#bc80bd", "#ccebc5", "#ffffb3",
)  # fmt: skip
"""For areas: pale enough for black text, and told apart with the common colour-vision deficiencies."""

COLOURS = ("#1b7f79", "#d1495b", "#3d5a98", "#c98b1b", "#6b4d8f", "#5a8f29", "#444444", "#b0679b")
"""For lines and bars, in this order."""


def draw_design(design: Design, *, classes: list[int] | None = None) -> Figure:
    """The design as a coloured matrix: a row a segment, a column a subgroup, one colour a block.

    Args:
        design: The design.
        classes: Each subgroup's class; boundaries between classes are drawn.

    Returns:
        A figure of matplotlib.
    """
    cell = 0.42
    figure = matplotlib_figure(cell * design.subgroups + 1.2, cell * len(design.segments) + 1.1)
    axes = figure.subplots()
    for row, (entries, segment) in enumerate(zip(design.matrix(), design.segments, strict=True)):
        for at, block in enumerate(segment):
            for subgroup in block:
                entry = entries[subgroup]
                axes.fill_between([subgroup, subgroup + 1], row, row + 1, color=PALETTE[at % len(PALETTE)], lw=0)
                text = "*" if entry is None else str(entry)
                axes.text(subgroup + 0.5, row + 0.5, text, ha="center", va="center", fontsize=9)
    axes.hlines(range(len(design.segments) + 1), 0, design.subgroups, color="white", lw=1.5)
    axes.vlines(range(design.subgroups + 1), 0, len(design.segments), color="white", lw=0.7)
    if classes:
        borders = [g for g in range(1, design.subgroups) if classes[g] != classes[g - 1]]
        axes.vlines(borders, 0, len(design.segments), color="#444444", lw=1.5)
    axes.set_xlim(0, design.subgroups)
    axes.set_ylim(len(design.segments), 0)
    axes.set_xticks([g + 0.5 for g in range(design.subgroups)], [str(g) for g in range(design.subgroups)])
    axes.set_yticks([row + 0.5 for row in range(len(design.segments))], [str(r) for r in range(len(design.segments))])
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set_xlabel("subgroup, slowest links first")
    axes.set_ylabel("segment of the update")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return figure


def to_svg(figure: Figure, *, title: str) -> str:
    """The figure as SVG text, the same bytes for the same figure.

    Args:
        figure: A figure of matplotlib.
        title: What it shows, in words, for whoever cannot see it.

    Returns:
        The text.
    """
    import matplotlib as mpl

    out = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "heterosag", "svg.fonttype": "path"}):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Title": title})
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", out.getvalue(), flags=re.DOTALL)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def matplotlib_figure(width: float, height: float) -> Figure:
    """An empty figure, so many inches wide and high.

    Args:
        width: Inches.
        height: Inches.

    Returns:
        A figure of matplotlib.

    Raises:
        UsageError: It is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError("figures need matplotlib: pip install 'heterosag[report]'") from None
    return Figure(figsize=(width, height), layout="tight")


# --- of a report on runs --------------------------------------------------------------------------------------------


def draw_runs(runs: Sequence[RunRecord]) -> list[dict[str, str]]:
    """Title, caption and SVG of every figure of a report on these runs.

    Args:
        runs: Records with at least one round each.

    Returns:
        A dict with `title`, `caption` and `svg` for each figure.
    """
    figures = [
        _figure(
            "Accuracy over communication time",
            "Test accuracy of the global model over the time that uploads and downloads take at the classes' rates, by "
            "the bytes that were sent; a round takes as long as its slowest user. For a run on Flower: over the time "
            "that its rounds took, training included.",
            _accuracy_time(runs),
        ),
        _figure("Accuracy over rounds", "The same after each round.", _accuracy_rounds(runs)),
        _figure("Bytes a user sends in a round", "By class, slowest link first, all phases together.", _bytes(runs)),
        _figure(
            "Seconds of protocol in a round, by phase",
            "Cryptography on this machine: one user's part (all users' divided by their number), and the server's.",
            _seconds(runs),
        ),
        _figure("Survivors", "Users whose update is in the aggregate of each round.", _survivors(runs)),
    ]
    private = [run for run in runs if any("privacy" in line for line in run.rounds)]
    if private:
        caption = "What the rounds have cost every user: against whoever sees all sums, and the models only (dashed)."
        figures.append(_figure("Epsilon over rounds", caption, _epsilons(private)))
    adaptive = [run for run in private if any("within_norm" in line.get("privacy", {}) for line in run.rounds)]
    if adaptive:
        caption = "Largest norm of an update, which follows the median norm by a noisy bit of every user."
        figures.append(_figure("Clipping norm over rounds", caption, _norms(adaptive)))
    return figures


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


def _legend(axes: Axes, *, columns: int = 3) -> None:
    """Above the figure, where it hides nothing."""
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, borderaxespad=0)


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
        reached = _accuracies(run)
        known = [value for value in reached if not math.isnan(value)]
        ends = f": {known[-1]:.1f}% in {spent:.3g} s" if known else ""
        axes.plot(times, reached, color=colour, label=f"{run.name}{ends}", marker=".", ms=4)
    axes.set_xlabel("communication time, s")
    axes.set_ylabel("test accuracy, %")
    axes.set_ylim(0, 100)
    axes.set_xlim(left=0)
    _legend(axes, columns=2)
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


def _epsilons(runs: Sequence[RunRecord]) -> Figure:
    figure, axes = _axes()
    for run, colour in _lines(runs):
        lines = [line for line in run.rounds if "privacy" in line]
        for name, style in (("epsilon_server", "-"), ("epsilon_model", "--")):
            known = [(line["round"], line["privacy"][name]) for line in lines if line["privacy"][name] is not None]
            label = run.name if name == "epsilon_server" else f"{run.name}, models only"
            axes.plot([at for at, _ in known], [value for _, value in known], style, color=colour, label=label)
    axes.set_xlabel("round")
    axes.locator_params(axis="x", integer=True)
    axes.set_ylabel("epsilon")
    axes.set_ylim(bottom=0)
    _legend(axes)
    return figure


def _norms(runs: Sequence[RunRecord]) -> Figure:
    figure, axes = _axes()
    for run, colour in _lines(runs):
        lines = [line for line in run.rounds if "privacy" in line]
        norms = [line["privacy"]["clipping_norm"] for line in lines]
        axes.plot([line["round"] for line in lines], norms, color=colour, label=run.name)
    axes.set_xlabel("round")
    axes.locator_params(axis="x", integer=True)
    axes.set_ylabel("clipping norm")
    axes.set_ylim(bottom=0)
    _legend(axes)
    return figure
