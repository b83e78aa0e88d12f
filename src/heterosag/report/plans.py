"""Plans on a terminal: tables, and the design as a coloured matrix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from heterosag.plan import CohortPlan, Plan
from heterosag.plan.design import Design
from heterosag.plan.summary import summarise, summarise_cohorts
from heterosag.report.figures import PALETTE

__all__ = ["compare_plans", "describe_error", "show_cohorts", "show_matrix", "show_plan"]

_COLUMNS = 80  # of a terminal that everybody has


def show_plan(plan: Plan, dropout: float | None = None) -> RenderableType:
    """One plan: classes, guarantees, design, notes."""
    summary = summarise(plan, dropout)
    title = (
        f"{summary['design']}: {summary['users']} users, {len(summary['subgroups'])} subgroups, "
        f"{len(summary['segments'])} segments, {summary['dimension']:,} elements"
    )
    guarantees = Table("guarantee", "value", title="guarantees", title_justify="left", show_edge=False)
    for name, value in _guarantees(summary):
        guarantees.add_row(name, value)
    notes = Text("\n").join(Text(f"- {note}") for note in plan.notes)
    parts = [Text(title, style="bold"), _class_table(summary), guarantees, show_matrix(plan.design), notes]
    return Group(*(Padding(part, (0, 0, 1, 0)) for part in parts))


def show_cohorts(plan: CohortPlan, dropout: float | None = None) -> RenderableType:
    """Cohorts: classes and guarantees of the whole, a row for each cohort, notes."""
    summary = summarise_cohorts(plan, dropout)
    title = (
        f"{summary['design']}: {summary['users']} users in {len(summary['cohorts'])} cohorts of at most "
        f"{summary['cohort_size']}, {summary['dimension']:,} elements"
    )
    guarantees = Table("guarantee of all cohorts", "value", title="guarantees", title_justify="left", show_edge=False)
    for name, value in _guarantees(summary):
        guarantees.add_row(name, value)
    headings = ("cohort", "users", "of each class", "subgroups", "segments", "robustness", "tolerance", "fails")
    cohorts = Table(*headings, title="cohorts", title_justify="left", show_edge=False)
    for index, one in enumerate(summary["cohorts"]):
        figures = (index, one["users"], ", ".join(map(str, one["classes"])), one["subgroups"], one["segments"])
        robustness = f"{one['inference_robustness']:.4f}"
        fails = f"{one['failure_probability']:.2g}"
        cohorts.add_row(*map(str, figures), robustness, str(one["byzantine_tolerance"]), fails)
    notes = Text("\n").join(Text(f"- {note}") for note in plan.notes)
    parts: list[RenderableType] = [Text(title, style="bold"), _class_table(summary), guarantees, cohorts, notes]
    return Group(*(Padding(part, (0, 0, 1, 0)) for part in parts))


def compare_plans(plans: Sequence[Plan], dropout: float | None = None) -> RenderableType:
    """Plans side by side: what each costs and guarantees."""
    summaries = [summarise(plan, dropout) for plan in plans]
    table = Table("", *(summary["design"] for summary in summaries), title_justify="left")
    rows = [list(_structure(summary)) + list(_guarantees(summary)) for summary in summaries]
    for cells in zip(*rows, strict=True):
        table.add_row(cells[0][0], *(value for _, value in cells))
    for index in range(len(plans[0].classes)):
        uploads = [f"{_size(one['upload_bits'][index])} ({one['class_levels'][index]} levels)" for one in summaries]
        table.add_row(f"upload, class {index}", *uploads)
    notes = [Text(f"- {plan.design.name}: {note}") for plan in plans for note in plan.notes if "Theorem 1" in note]
    return Group(table, *notes)


def show_matrix(design: Design) -> RenderableType:
    """The segment-selection matrix: a row a segment, equal numbers in a row code it together, * is a star."""
    digits = len(str(design.subgroups - 1))
    fitting = [wide for wide in (digits + 2, digits + 1) if 4 + wide * design.subgroups <= _COLUMNS]
    if not fitting:
        return Text(f"(design matrix of {design.subgroups} subgroups not shown; --json lists it)", style="dim")
    wide = fitting[0]
    headings = (
        "design: a row a segment, a column a subgroup;",
        "equal numbers (and colours) in a row code the segment together, * alone",
    )
    lines = [Text(heading, style="dim") for heading in headings]
    lines.append(Text(" " * 4 + "".join(str(g).center(wide) for g in range(design.subgroups)), style="dim"))
    for index, (row, segment) in enumerate(zip(design.matrix(), design.segments, strict=True)):
        colour = {g: PALETTE[at % len(PALETTE)] for at, block in enumerate(segment) for g in block}
        line = Text.assemble((f"{index:>3} ", "dim"))
        for subgroup, entry in enumerate(row):
            line.append(("*" if entry is None else str(entry)).center(wide), style=f"black on {colour[subgroup]}")
        lines.append(line)
    return Text("\n").join(lines)


def _class_table(summary: dict[str, Any]) -> Table:
    headings = (
        "class",
        "users",
        "subgroups",
        "levels",
        "upload",
        "bits a\nvalue",
        "times\nunmasked",
        "times\none\nblock",
    )
    title = "a user's vector in a round, beside the same values unmasked, and masked in one block of everybody"
    table = Table(*headings, title=title, title_justify="left", show_edge=False)
    for index, users in enumerate(summary["classes"]):
        upload = summary["upload_bits"][index]
        table.add_row(
            str(index),
            str(users),
            _subgroups(summary, index),
            str(summary["class_levels"][index]),
            _size(upload),
            f"{upload / summary['dimension']:.2f}",
            f"{summary['expansion']['plaintext'][index]:.2f}",
            f"{summary['expansion']['secagg'][index]:.2f}",
        )
    return table


def _subgroups(summary: dict[str, Any], user_class: int) -> str:
    """Subgroups of a class; cohorts have a table of their own for them."""
    if "subgroups" not in summary:
        return "-"
    return str(sum(1 for subgroup in summary["subgroups"] if subgroup["class"] == user_class))


def _structure(summary: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "subgroups, segments", f"{len(summary['subgroups'])}, {len(summary['segments'])}"


def _guarantees(summary: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Name and value of each guarantee, in the words of the documentation."""
    bound = "" if summary["inference_robustness_exact"] else "at least "
    rate = f"{summary['dropout']:.0%} dropout"
    leak = summary["leak_probability"]
    yield "inference robustness", f"{bound}{summary['inference_robustness']:.4f}"
    yield "faulty users the median tolerates", str(summary["byzantine_tolerance"])
    yield f"lone survivor in one subgroup, {rate}", f"{leak['one']:.2g}"
    yield f"lone survivor in any subgroup, {rate}", f"{leak['any']:.2g}"
    yield "a lone survivor's segment leaks, without least survivors", f"{leak['block']:.2g}"
    yield f"the same with at least {summary['min_survivors']} survivors", f"{leak['with_min_survivors']:.2g}"
    yield f"a round fails, {rate}", f"{summary['failure_probability']:.2g}"
    half_width, dimension = summary["value_range"][1], summary["dimension"]
    for name, value in (("rounding noise", "quantization_error"), ("bias of clipping", "clip_bias")):
        yield f"error of the mean at most: {name}", describe_error(summary[value], dimension, half_width)
    yield "share threshold, agree quorum", f"{summary['share_threshold']}, {summary['agree_quorum']}"


def describe_error(bound: float, dimension: int, half_width: float) -> str:
    """A bound on the squared error of the mean as its root mean square a parameter, and against one update's.

    Args:
        bound: Of the squared error of all elements together.
        dimension: How many there are.
        half_width: Of the value range: three standard deviations of an update's element.

    Returns:
        Both numbers in words.
    """
    rms = (bound / dimension) ** 0.5
    return f"{rms:.2g} RMS, {_percent(3 * rms / half_width)} of an update"


def _percent(fraction: float) -> str:
    return f"{fraction:.0%}" if fraction >= 0.1 else f"{100 * fraction:.2g}%"


def _size(bits: int) -> str:
    return f"{bits / 8000:,.1f} kB"
