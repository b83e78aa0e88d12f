"""Figures from plots: nothing here computes, it only draws what a summary holds."""

from __future__ import annotations

import io
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from heterosag.report.figures import COLOURS, PALETTE, matplotlib_figure, to_svg
from reproduction.outcome import Plot, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw", "png", "svg"]

_COLUMNS = 3


def svg(plot: Plot) -> str:
    """The figure as SVG text."""
    return to_svg(draw(plot), title=plot.title)


def png(plot: Plot) -> bytes:
    """The figure as PNG bytes."""
    out = io.BytesIO()
    draw(plot).savefig(out, format="png", dpi=130, metadata={"Software": None})
    return out.getvalue()


def draw(plot: Plot) -> Figure:
    """The figure of a plot."""
    return {"lines": _lines, "bars": _bars, "matrix": _matrix, "heat": _heat, "pictures": _pictures}[plot.kind](plot)


def _lines(plot: Plot) -> Figure:
    panels = [(name, list(series)) for name, series in _by_panel(plot.series)]
    columns = min(_COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    labels = list(dict.fromkeys(series.label for series in plot.series))
    below = 0.24 * -(-len(labels) // (2 if columns == 1 else 3)) + 0.2
    figure = matplotlib_figure(7.0 if columns == 1 else 3.4 * columns, (3.6 if rows == 1 else 2.8 * rows) + below)
    grid = np.atleast_1d(figure.subplots(rows, columns, sharey=True, squeeze=False)).reshape(-1)
    for axes, (name, series) in zip(grid, panels, strict=False):
        _plain(axes)
        for one in series:
            colour = COLOURS[labels.index(one.label) % len(COLOURS)]
            mark = "o" if one.points or len(one.x) <= 12 else None
            style = "none" if one.points else "--" if one.dashed else "-"
            axes.plot(one.x, one.y, linestyle=style, color=colour, lw=1.5, marker=mark, ms=3.5, label=one.label)
            if one.low:
                axes.fill_between(one.x, one.low, one.high, color=colour, alpha=0.2, lw=0)
        if plot.log_x:
            axes.set_xscale("log")
            _name_ticks(axes, series)
        else:
            axes.locator_params(axis="x", integer=True)
        if plot.log_y:
            axes.set_yscale("log")
        axes.set_title(name, fontsize=10)
        axes.set_xlabel(plot.x_label)
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    for first in grid[::columns]:
        first.set_ylabel(plot.y_label)
    handles = {h.get_label(): h for axes in grid for h in axes.get_legend_handles_labels()[0]}
    _legend(figure, [handles[label] for label in labels], columns=2 if columns == 1 else 3)
    return figure


def _name_ticks(axes: Axes, series: list[Series]) -> None:
    """On a logarithmic axis with few points, ticks where the points are; Matplotlib's own overlap within a decade."""
    places = sorted({x for one in series for x in one.x})
    if len(places) <= 8:
        axes.set_xticks(places, [f"{x / 1e6:g} M" if x >= 1e6 else f"{x:,.10g}" for x in places])
        axes.set_xticks([], minor=True)


def _legend(figure: Figure, handles: list[Any], *, columns: int) -> None:
    """Under the panels, where it hides nothing."""
    if len(handles) > 1:
        figure.set_layout_engine("constrained")
        figure.legend(handles=handles, loc="outside lower left", ncols=columns, frameon=False, fontsize=8.5)


def _by_panel(series: tuple[Series, ...]) -> list[tuple[str, list[Series]]]:
    names = dict.fromkeys(one.panel for one in series)
    return [(name, [one for one in series if one.panel == name]) for name in names]


def _bars(plot: Plot) -> Figure:
    figure = matplotlib_figure(6.4, 3.6)
    axes = figure.subplots()
    _plain(axes)
    width = 0.8 / len(plot.series)
    for place, one in enumerate(plot.series):
        at = [x + (place - (len(plot.series) - 1) / 2) * width for x in one.x]
        bars = axes.bar(at, one.y, width * 0.92, color=COLOURS[place % len(COLOURS)], label=one.label)
        axes.bar_label(
            bars, labels=[f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in one.y], fontsize=8
        )
    axes.set_xticks(range(len(plot.ticks)), plot.ticks)
    axes.set_ylabel(plot.y_label)
    _legend(figure, list(axes.get_legend_handles_labels()[0]), columns=3)
    return figure


def _plain(axes: Axes) -> None:
    axes.grid(color="#dddddd", lw=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _matrix(plot: Plot) -> Figure:
    rows, columns = len(plot.grid), len(plot.grid[0])
    figure = matplotlib_figure(0.5 * columns + 1.2, 0.42 * rows + 1.1)
    axes = figure.subplots()
    for row, (colours, texts) in enumerate(zip(plot.grid, plot.texts, strict=True)):
        for column, (colour, text) in enumerate(zip(colours, texts, strict=True)):
            axes.fill_between([column, column + 1], row, row + 1, color=PALETTE[int(colour) % len(PALETTE)], lw=0)
            axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=9)
    axes.hlines(range(rows + 1), 0, columns, color="white", lw=1.5)
    axes.vlines(range(columns + 1), 0, rows, color="white", lw=0.7)
    axes.set_xlim(0, columns)
    axes.set_ylim(rows, 0)
    axes.set_xticks([column + 0.5 for column in range(columns)], plot.ticks)
    axes.set_yticks([row + 0.5 for row in range(rows)], [str(row) for row in range(rows)])
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set_xlabel(plot.x_label)
    axes.set_ylabel(plot.y_label)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return figure


def _heat(plot: Plot) -> Figure:
    figure = matplotlib_figure(7.0, 2.4)
    axes = figure.subplots()
    drawn = axes.imshow(np.array(plot.grid), aspect="auto", cmap="viridis", interpolation="nearest")
    figure.colorbar(drawn, ax=axes, label="samples")
    axes.set_xlabel(plot.x_label)
    axes.set_ylabel(plot.y_label)
    return figure


def _pictures(plot: Plot) -> Figure:
    groups = [
        (name, [row for _, row in rows])
        for name, rows in groupby(zip(plot.ticks, plot.grid, strict=True), key=lambda pair: pair[0])
    ]
    columns = max(len(rows) for _, rows in groups)
    figure = matplotlib_figure(1.1 * columns + 1.3, 1.1 * len(groups))
    grid = figure.subplots(len(groups), columns, squeeze=False)
    for line, (name, rows) in zip(grid, groups, strict=True):
        for axes, row in zip(line, rows, strict=True):
            side = round(len(row) ** 0.5)
            axes.imshow(np.array(row).reshape(side, side), cmap="gray_r", vmin=0, vmax=1)
            axes.set_xticks([])
            axes.set_yticks([])
        line[0].set_ylabel(name, rotation=0, ha="right", va="center")
    return figure
