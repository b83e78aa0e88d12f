"""Figures as SVG, with matplotlib (the `report` extra), which is imported on first use."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from heterosag.errors import UsageError
from heterosag.plan.design import Design
from heterosag.report.names import printable
from heterosag.report.upload import PARTS, reference_bytes, split_upload
from heterosag.storage.run_log import RunRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["COLOURS", "GREY", "PALETTE", "apply_theme", "draw_design", "draw_runs", "matplotlib_figure", "to_svg"]

PALETTE = (
    "#8dd3c7", "#ffed6f", "#bebada", "#fb8072", "#80b1d3", "#fdb462",
    "#b3de69", "#fccde5", "#d9d9d9", "#bc80bd", "#ccebc5", "#ffffb3",
)  # fmt: skip
"""For areas: pale enough for black text, and told apart with the common colour-vision deficiencies."""

COLOURS = ("#1b7f79", "#d1495b", "#3d5a98", "#c98b1b", "#6b4d8f", "#5a8f29", "#444444", "#b0679b")
"""For lines and bars, in this order."""

GREY = "#8a8a8a"
"""For what something is compared with; readable on light and on dark."""

_PHASES = ("advertise", "share", "mask", "agree", "unmask")
_WIDTH, _HEIGHT = 4.8, 3.0  # inches, so that text of 10 points can be read at the width of a phone


def draw_design(design: Design, *, classes: list[int] | None = None, ink: str = "#000000") -> Figure:
    """The design as a coloured matrix: a row a segment, a column a subgroup, one colour a block.

    Args:
        design: The design.
        classes: Each subgroup's class; boundaries between classes are drawn.
        ink: The colour of text on the cells, which are pale.

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
                axes.text(subgroup + 0.5, row + 0.5, text, ha="center", va="center", fontsize=9, color=ink)
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


def apply_theme(svg: str) -> str:
    """A drawing for a page that is light or dark: the colours of text, lines and bars become the page's own.

    Args:
        svg: What `to_svg` returned.

    Returns:
        The `svg` element, whose colours are the variables of the page's style where it has them.
    """
    names = {colour: f"--c{index}" for index, colour in enumerate(COLOURS)}
    names |= {"#000000": "--ink", "#dddddd": "--line", "#ffffff": "--card"}
    found = svg[svg.index("<svg") :]
    return re.sub("|".join(names), lambda match: f"var({names[match[0]]}, {match[0]})", found)


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
        _figure(
            "Bytes that a user sends in a round",
            "By class, slowest link first, mean over the rounds: the masked update, the shares of secrets that survive "
            "dropouts, keys and signatures. Grey: the same update as float32 without protection, and in the 64-bit "
            "integers of Flower's SecAgg+ (its vector only).",
            _upload(runs),
        ),
        *_time_figures(runs),
        *_error_figures(runs),
        _figure(
            "Survivors",
            "Users whose update is in the aggregate of each round. Grey: all users who took part.",
            _survivors(runs),
        ),
    ]
    if any(map(_is_private, runs)):
        caption = "What the rounds have cost every user: against whoever sees all sums, and the models only (dashed)."
        figures.append(_figure("Epsilon over rounds", caption, _epsilons(runs)))
    if any(map(_follows_norm, runs)):
        caption = "Largest norm of an update, which follows the median norm by a noisy bit of every user."
        figures.append(_figure("Clipping norm over rounds", caption, _norms(runs)))
    return figures


def _figure(title: str, caption: str, figure: Figure) -> dict[str, str]:
    _fit_legends(figure)
    return {"title": title, "caption": caption, "svg": apply_theme(to_svg(figure, title=title))}


def _fit_legends(figure: Figure) -> None:
    """Give a legend that is wider than its figure fewer columns; one line or bar needs none."""
    for axes in figure.axes:
        legend = axes.get_legend()
        if legend is not None and len(legend.get_texts()) == 1:
            legend.remove()
            continue
        for columns in (2, 1):
            if legend is not None and legend.get_window_extent().width > 0.85 * figure.bbox.width:
                legend.set_ncols(columns)


def _axes(height: float = _HEIGHT) -> tuple[Figure, Axes]:
    figure = matplotlib_figure(_WIDTH, height)
    axes = figure.subplots()
    axes.grid(axis="y", color="#dddddd", lw=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _name_rounds(axes: Axes, what: str) -> None:
    """The axes of what is drawn round by round."""
    axes.set_xlabel("round")
    axes.locator_params(axis="x", integer=True)
    axes.set_ylabel(what)


def _legend(axes: Axes, *, columns: int = 3) -> None:
    """Above the figure, where it hides nothing."""
    axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, borderaxespad=0)


def _label(run: RunRecord) -> str:
    """A run's name as matplotlib shows it: a dollar begins no formula, and an underscore hides no legend."""
    name = printable(run.name).replace("$", r"\$")
    return f" {name}" if name.startswith("_") else name


def _lines(
    runs: Sequence[RunRecord], has: Callable[[RunRecord], bool] | None = None
) -> Iterator[tuple[RunRecord, str]]:
    """The runs that have what a figure shows, and their colours: a run's is the same in every figure."""
    return ((run, COLOURS[at % len(COLOURS)]) for at, run in enumerate(runs) if has is None or has(run))


def _knows_error(run: RunRecord) -> bool:
    """On Flower nobody sees the true mean; under a privacy budget the record does not have it."""
    return any(line["aggregate_error"] is not None for line in run.rounds)


def _is_private(run: RunRecord) -> bool:
    return any("privacy" in line for line in run.rounds)


def _follows_norm(run: RunRecord) -> bool:
    return any("within_norm" in line.get("privacy", {}) for line in run.rounds)


def _accuracy_rounds(runs: Sequence[RunRecord]) -> Figure:
    figure, axes = _axes()
    for run, colour in _lines(runs):
        axes.plot([r["round"] for r in run.rounds], _accuracies(run), color=colour, label=_label(run))
    _name_rounds(axes, "test accuracy, %")
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
        axes.plot(times, reached, color=colour, label=f"{_label(run)}{ends}", marker=".", ms=4)
    axes.set_xlabel("communication time, s")
    axes.set_ylabel("test accuracy, %")
    axes.set_ylim(0, 100)
    axes.set_xlim(left=0)
    _legend(axes, columns=1)  # names and what they reached are long
    return figure


def _upload(runs: Sequence[RunRecord]) -> Figure:
    """A stacked bar for each class of each run, and for each size of a model what it takes without quantization."""
    rows = [row for run in runs for row in _upload_rows(run, several=len(runs) > 1)]
    sizes = {run.plan["dimension"]: reference_bytes(run) for run in runs}
    for dimension, named in sizes.items():
        what = f", {dimension:,} parameters" if len(sizes) > 1 else ""
        rows += [(f"{name}{what}", {name: float(size)}) for name, size in named.items()]
    figure, axes = _axes(height=1.3 + (0.4 if len(runs) > 1 else 0.3) * len(rows))
    most = max(sum(parts.values()) for _, parts in rows) or 1.0
    colours = dict(zip(PARTS, COLOURS, strict=False))
    for place, (_, parts) in enumerate(rows):
        left = 0.0
        for part, size in parts.items():
            axes.barh(place, size / 1000, left=left / 1000, height=0.7, color=colours.get(part, GREY))
            left += size
        axes.text((left + 0.015 * most) / 1000, place, f"{left / 1000:,.1f}", va="center", fontsize=9)
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.2 * most / 1000)
    axes.set_xlabel("kB that a user sends in a round")
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x", color="#dddddd", lw=0.7)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    handles = [axes.barh([0], [0], color=colours[part]) for part in PARTS]
    axes.legend(
        handles, list(PARTS), frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=3, fontsize=9,
        borderaxespad=0, columnspacing=1.0, handlelength=1.0,
    )  # fmt: skip
    return figure


def _upload_rows(run: RunRecord, *, several: bool) -> list[tuple[str, dict[str, float]]]:
    """The name of each class's bar, and its parts; neighbouring classes that send the same have one bar."""
    levels = run.plan.get("class_levels", [])
    groups: list[tuple[int, int, dict[str, float]]] = []
    for index, parts in enumerate(split_upload(run)):
        if groups:
            first, last, before = groups[-1]
            same = levels[index : index + 1] == levels[last : last + 1]
            if same and math.isclose(sum(parts.values()), sum(before.values()), rel_tol=0.01):
                groups[-1] = first, index, before
                continue
        groups.append((index, index, parts))
    rows = []
    for first, last, parts in groups:
        which = f"class {first}" if first == last else f"classes {first} to {last}"
        level = f", {levels[first]:,} levels" if first < len(levels) else ""
        rows.append((f"{_label(run)}\n{which}{level}" if several else f"{which}{level}", parts))
    return rows


def _time_figures(runs: Sequence[RunRecord]) -> list[dict[str, str]]:
    """The time of the protocol, of the runs that recorded it: the plain engine has none."""
    timed = [(run, colour, times) for run, colour in _lines(runs) if any(times := _phase_milliseconds(run))]
    if not timed:
        return []
    caption = "Cryptography on this machine: one user's part (all users' divided by their number), and the server's."
    if len(timed) < len(runs):
        caption += f" Only of {', '.join(printable(run.name) for run, _, _ in timed)}: the other runs recorded none."
    return [_figure("Time of the protocol in a round, by phase", caption, _times(timed))]


def _times(timed: Sequence[tuple[RunRecord, str, list[float]]]) -> Figure:
    """Bars in groups: a group a phase and side, a bar a run."""
    names = [f"{phase}, {who}" for phase in _PHASES for who in ("user", "server")]
    figure, axes = _axes(height=1.0 + len(names) * max(0.25, 0.14 * len(timed)))
    thick = 0.8 / len(timed)
    for at, (run, colour, times) in enumerate(timed):
        places = [index + (at - (len(timed) - 1) / 2) * thick for index in range(len(names))]
        axes.barh(places, times, thick, color=colour, label=_label(run))
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x", color="#dddddd", lw=0.7)
    axes.set_xlabel("time in a round, ms")
    _legend(axes)
    return figure


def _phase_milliseconds(run: RunRecord) -> list[float]:
    """Phase by phase, of a user and of the server: mean over the rounds that went well."""
    good = [line for line in run.rounds if line["error"] is None]
    found = []
    for phase in _PHASES:
        users = sum(line["user_seconds"].get(phase, 0.0) / max(line["participants"], 1) for line in good)
        server = sum(line["server_seconds"].get(phase, 0.0) for line in good)
        found += [1000 * users / max(len(good), 1), 1000 * server / max(len(good), 1)]
    return found


def _error_figures(runs: Sequence[RunRecord]) -> list[dict[str, str]]:
    """The error of the aggregate, where somebody knows it."""
    known = [run for run in runs if _knows_error(run)]
    if not known:
        return []
    lines = [line for run in known for line in run.rounds]
    relative = all(
        line.get("aggregate_rms") for line in lines if line["error"] is None or line["aggregate_error"] is not None
    )
    caption = (
        "Distance of the aggregate from the mean of the honest survivors' updates: quantization, clipping, and what "
        "malicious users add. Root mean square over the parameters"
        + (", in percent of that of the mean itself: below 100% the signal is larger." if relative else ".")
    )
    return [_figure("Error of the aggregate", caption, _errors(runs, relative=relative))]


def _errors(runs: Sequence[RunRecord], *, relative: bool) -> Figure:
    figure, axes = _axes()
    for run, colour in _lines(runs, _knows_error):
        lines = [line for line in run.rounds if line["aggregate_error"] is not None]
        errors = [100 * line["aggregate_error"] / line["aggregate_rms"] if relative else line["aggregate_error"]
                  for line in lines]  # fmt: skip
        axes.plot([line["round"] for line in lines], errors, color=colour, label=_label(run))
    _name_rounds(axes, "error, % of update" if relative else "error, RMS per parameter")
    axes.set_ylim(bottom=0)
    _legend(axes)
    return figure


def _survivors(runs: Sequence[RunRecord]) -> Figure:
    figure, axes = _axes()
    for run, colour in _lines(runs):
        numbers, survivors = [r["round"] for r in run.rounds], [r["survivors"] for r in run.rounds]
        axes.step(numbers, survivors, where="mid", color=colour, label=_label(run), ls="-" if run is runs[0] else "--")
    _name_rounds(axes, "survivors, users")
    users = sorted({max(line["participants"] for line in run.rounds) for run in runs})
    for count in users:
        axes.axhline(count, color=GREY, lw=1, ls=":")
        axes.text(0.99, count, f"{count} users", transform=axes.get_yaxis_transform(), ha="right", va="bottom",
                  fontsize=9)  # fmt: skip
    most = max(1, users[-1], *(line["survivors"] for run in runs for line in run.rounds))
    axes.set_ylim(0, 1.15 * most)  # with space for the number, and no line on the edge
    _legend(axes)
    return figure


def _epsilons(runs: Sequence[RunRecord]) -> Figure:
    figure, axes = _axes()
    for run, colour in _lines(runs, _is_private):
        lines = [line for line in run.rounds if "privacy" in line]
        for name, style in (("epsilon_server", "-"), ("epsilon_model", "--")):
            known = [(line["round"], line["privacy"][name]) for line in lines if line["privacy"][name] is not None]
            label = _label(run) if name == "epsilon_server" else f"{_label(run)}, models only"
            if known:  # there is none of the models where the rule is not the mean
                axes.plot([at for at, _ in known], [value for _, value in known], style, color=colour, label=label)
    _name_rounds(axes, "epsilon of all rounds so far")
    axes.set_ylim(bottom=0)
    _legend(axes)
    return figure


def _norms(runs: Sequence[RunRecord]) -> Figure:
    figure, axes = _axes()
    for run, colour in _lines(runs, _follows_norm):
        lines = [line for line in run.rounds if "privacy" in line]
        norms = [line["privacy"]["clipping_norm"] for line in lines]
        axes.plot([line["round"] for line in lines], norms, color=colour, label=_label(run))
    _name_rounds(axes, "clipping norm, L2")
    axes.set_ylim(bottom=0)
    _legend(axes)
    return figure
