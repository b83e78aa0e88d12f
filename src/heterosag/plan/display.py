"""What a person sees of a plan: one line, and in a notebook its costs, guarantees and coloured design."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heterosag.plan.plan import Plan

__all__ = ["html", "line"]

_HUES = 137.5  # degrees between neighbouring colours: the golden angle, so that near numbers look unlike


def line(plan: Plan) -> str:
    """A plan in one line."""
    levels = ",".join(map(str, plan.levels))
    return (
        f"<Plan of {len(plan.users)} users in {len(plan.subgroups)} subgroups, {plan.design.name} design: "
        f"{plan.dimension:,} elements, levels {levels}, robustness {plan.robustness()}, "
        f"Byzantine tolerance {plan.byzantine_tolerance()}>"
    )


def html(plan: Plan) -> str:
    """A plan for a notebook: what each class sends, what is guaranteed, and which subgroups code together."""
    from heterosag.plan import costs

    bits = costs.of(plan).per_class()
    rows = zip(plan.classes, plan.levels, bits, strict=True)
    classes = "".join(
        f"<tr><td>{index}</td><td>{users}</td><td>{level:,}</td><td>{size / 8000:,.1f}</td></tr>"
        for index, (users, level, size) in enumerate(rows)
    )
    guarantees = "".join(
        f"<tr><th>{name}</th><td>{value}</td></tr>"
        for name, value in (
            ("inference robustness", str(plan.robustness())),
            ("malicious users that the median tolerates", str(plan.byzantine_tolerance())),
            (f"a round fails at {plan.dropout:.0%} dropout", f"{plan.failure_probability():.2g}"),
            ("least survivors of a subgroup", str(plan.min_survivors)),
        )
    )
    return (
        "<table><tr><th>class</th><th>users</th><th>levels</th><th>kB a round</th></tr>"
        f"{classes}</table><table>{guarantees}</table>{_matrix(plan)}"
    )


def _matrix(plan: Plan) -> str:
    """The segment-selection matrix; subgroups that code a segment together have one colour."""
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in plan.design.matrix())
    return f"<table><caption>segments by subgroups</caption>{rows}</table>"


def _cell(entry: int | None) -> str:
    if entry is None:
        return "<td>*</td>"
    return f'<td style="background: hsl({entry * _HUES % 360:.0f} 60% 80%); color: black">{entry}</td>'
