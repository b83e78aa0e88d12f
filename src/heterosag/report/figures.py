"""Figures as SVG, with matplotlib (the `report` extra), which is imported on first use."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

from heterosag.errors import UsageError
from heterosag.plan.design import Design

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["COLOURS", "PALETTE", "draw_design", "matplotlib_figure", "to_svg"]

PALETTE = (
    "#8dd3c7", "#ffed6f", "#bebada", "#fb8072", "#80b1d3", "#fdb462",
    "#b3de69", "#fccde5", "#d9d9d9", "#bc80bd", "#ccebc5", "#ffffb3",
)  # fmt: skip
"""For areas: pale enough for black text, and told apart with the common colour-vision deficiencies."""

COLOURS = ("#1b7f79", "#d1495b", "#3d5a98", "#c98b1b", "#6b4d8f", "#5a8f29", "#444444", "#b0679b")
"""For lines and bars, in this order."""


def draw_design(design: Design, *, classes: list[int] | None = None) -> Figure:
    """The design as a coloured matrix: a row a segment, a column a subgroup, one colour a block.

    `classes` gives each subgroup's class; boundaries between classes are drawn.
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
    """The figure as SVG text, the same bytes for the same figure."""
    import matplotlib as mpl

    out = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "heterosag", "svg.fonttype": "path"}):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Title": title})
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", out.getvalue(), flags=re.DOTALL)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def matplotlib_figure(width: float, height: float) -> Figure:
    """An empty figure, so many inches wide and high."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError("figures need matplotlib: pip install 'heterosag[report]'") from None
    return Figure(figsize=(width, height), layout="tight")
