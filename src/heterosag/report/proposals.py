"""The planner's answers for people and scripts: what was found, what it costs, which requirement binds."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from heterosag.plan.costs import summarise
from heterosag.planner import Proposal
from heterosag.report.plans import show_plan

__all__ = ["describe", "show"]


def describe(proposal: Proposal, before: float | None = None) -> dict[str, Any]:
    """A proposal in JSON types; `before` is the error of the plan that it would replace."""
    found: dict[str, Any] = {
        "error": proposal.error,
        "lower_bound": proposal.lower_bound,
        "upload_seconds": list(proposal.seconds),
        "upload_bytes": list(proposal.bytes),
        "binding": proposal.binding,
        "relaxing": [{"what": one.what, "error": one.error} for one in proposal.relaxing],
        "order": list(proposal.order),
        "plan": summarise(proposal.plan),
    }
    return found if before is None else found | {"error_before": before}


def show(proposal: Proposal, before: float | None = None) -> RenderableType:
    """A proposal as tables."""
    plan = proposal.plan
    table = Table("class", "users", "levels", "upload, kB", "seconds")
    for index, (users, level) in enumerate(zip(plan.classes, plan.levels, strict=True)):
        size, seconds = proposal.bytes[index], proposal.seconds[index]
        table.add_row(str(index), str(users), f"{level:,}", f"{size / 1000:,.1f}", f"{seconds:.3g}")
    lines = [
        Text(f"error bound {proposal.error:.4g}; no plan of these subgroup sizes has less than "
             f"{proposal.lower_bound:.4g}"),
    ]  # fmt: skip
    if before is not None:
        lines.append(Text(f"the plan of the run: {before:.4g}"))
    lines.append(Text(f"what would help most: {proposal.binding}"))
    lines += [Text(f"  {one.what}: {one.error:.4g}") for one in proposal.relaxing]
    return Group(show_plan(plan), table, *lines)
