"""The Plan tab: what the page shows of a plan, and of what more time or another budget would buy."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from heterosag import planner
from heterosag.plan import Plan, costs
from heterosag.plan.ranges import THREE_DEVIATIONS, deviations
from heterosag.plan.summary import summarise
from heterosag.report.upload import FLOAT32
from heterosag.studio.choosing import Choice
from heterosag.studio.exports import export_plan, export_private_run, export_run
from heterosag.studio.guarantees import list_guarantees
from heterosag.studio.private import EPSILONS, describe_private, trace_epsilon
from heterosag.vector import ring

__all__ = ["choose_point", "describe", "name_curves", "spread_points", "trace"]

_CURVE = 18  # points
_LIKELY_FAILURE = 0.01  # from here on the page warns


def describe(choice: Choice) -> dict[str, Any]:
    """Everything the Plan tab shows, in JSON types."""
    plan, proposal = choice.plan, choice.proposal
    summary = summarise(plan)
    return {
        "design": summary["design"],
        "digest": summary["digest"],
        "users": summary["users"],
        "dimension": summary["dimension"],
        "min_survivors": plan.min_survivors,
        "error": plan.error_bound(),
        "robustness": float(plan.robustness()),
        "deviation": (plan.value_range[1] - plan.value_range[0]) / 2 / deviations(THREE_DEVIATIONS),
        "subgroups": [
            {"class": subgroup.user_class, "users": len(subgroup.members), "who": _span(subgroup.members)}
            for subgroup in plan.subgroups
        ],
        "segments": _segments(plan),
        "classes": _classes(choice),
        "deadline": choice.requirements.deadline,
        "attackers": {"wanted": choice.requirements.attackers, "tolerated": summary["byzantine_tolerance"]},
        "problem": choice.problem,
        "privacy": None if choice.private is None else describe_private(choice.private),
        "guarantees": list(list_guarantees(plan, summary)),
        "warnings": list(_warnings(choice, summary)),
        "notes": summary["notes"],
        "proposal": None
        if proposal is None
        else {
            "lower_bound": proposal.lower_bound,
            "binding": proposal.binding,
            "relaxing": [{"what": one.what, "error": one.error} for one in proposal.relaxing],
        },
        "savings": _savings(choice),
        "exports": _exports(choice),
    }


def _exports(choice: Choice) -> dict[str, str]:
    """The plan as it leaves the page, by the name of the form."""
    robust = choice.requirements.attackers > 0 and choice.plan.byzantine_tolerance() > 0
    deadline = choice.requirements.deadline
    if choice.private is None:
        return export_plan(choice.plan) | export_run(choice.plan, choice.rates, deadline=deadline, robust=robust)
    found = describe_private(choice.private)
    return export_plan(choice.plan) | {"command": found["command"]} | export_private_run(choice.private.proposal)


def _savings(choice: Choice) -> dict[str, Any] | None:
    """How many times less a user uploads than as float32, and than in one sum of everybody that is as precise.

    All users' uploads together, and those of the class with the slowest links.
    """
    plan = choice.plan
    if plan.noise_multiplier:
        return None
    rows = _classes(choice)
    levels, bits = costs.match_secagg(plan)
    references = {"float32": FLOAT32 * plan.dimension, "secagg": ring.packed_size(plan.dimension, bits)}
    all_users = sum(row["users"] * row["bytes"] for row in rows) / len(plan.users)
    return {
        "secagg_levels": levels,
        "secagg_bits": bits,
        **{
            name: {"all": size / all_users, "slowest": size / rows[0]["bytes"], "bytes": size}
            for name, size in references.items()
        },
    }


def _segments(plan: Plan) -> list[dict[str, Any]]:
    return [
        {
            "start": segment.start,
            "size": segment.size,
            "blocks": [
                {
                    "subgroups": list(block.subgroups),
                    "users": block.users,
                    "level": block.level,
                    "bits": block.bits,
                    "range": list(plan.range_of(block)),
                }
                for block in segment.blocks
            ],
        }
        for segment in plan.segments
    ]


def _classes(choice: Choice) -> list[dict[str, Any]]:
    """A class as the page's bars show it: bytes of its largest upload, seconds of its slowest user."""
    plan, expansion = choice.plan, costs.of(choice.plan).expansion()
    sizes = costs.largest_vectors([plan])
    return [
        {
            "users": users,
            "level": plan.levels[index],
            "rate": choice.rates[index],
            "bytes": sizes[index],
            "float32": FLOAT32 * plan.dimension / sizes[index],
            "plaintext_bytes": sizes[index] / expansion[index],
            "seconds": sizes[index] * 8 / (choice.rates[index] * 1e6),
        }
        for index, users in enumerate(plan.classes)
    ]


def _span(members: tuple[int, ...]) -> str:
    """Who is assigned to a subgroup, by place on the roster."""
    whole = members[-1] - members[0] == len(members) - 1
    return f"users {members[0]} to {members[-1]}" if whole and len(members) > 1 else f"users {_some(members)}"


def _some(members: tuple[int, ...]) -> str:
    return ", ".join(map(str, members[:12])) + (", ..." if len(members) > 12 else "")


def _warnings(choice: Choice, summary: dict[str, Any]) -> Iterator[str]:
    """What speaks against the plan, as far as the form's own requirements go."""
    plan, requirements = choice.plan, choice.requirements
    tolerates = summary["byzantine_tolerance"]
    if tolerates < requirements.attackers:
        yield f"The median tolerates {tolerates} attackers, not the {requirements.attackers} you want to tolerate."
    if summary["failure_probability"] > _LIKELY_FAILURE:
        yield f"{summary['failure_probability']:.1%} of the rounds fail for lack of survivors."
    if float(plan.robustness()) == 0 and len(plan.subgroups) > 1:
        yield "The server learns some set of subgroups' whole sum."
    rows = _classes(choice)
    late = [index for index, row in enumerate(rows) if row["seconds"] > (requirements.deadline or math.inf)]
    large = [index for index, row in enumerate(rows) if row["bytes"] * 8 > (requirements.bits or math.inf)]
    if late:
        most = max(rows[index]["seconds"] for index in late)
        limit = requirements.deadline
        yield f"{_named(late)} up to {most:.3g} s for the upload, more than the deadline of {limit:g} s."
    if large:
        most = max(rows[index]["bytes"] * 8 for index in large)
        yield f"{_named(large)} up to {most:,} bits for the upload, more than the {requirements.bits:,} allowed."


def _named(classes: list[int]) -> str:
    listed = ", ".join(map(str, classes))
    return f"Class {listed} needs" if len(classes) == 1 else f"Classes {listed} need"


# --- the trade-off ------------------------------------------------------------------------------------------------


def name_curves(choice: Choice) -> list[str]:
    """The curves that are drawn: one of error against deadline, or of error against epsilon one for some blocks."""
    if choice.private is None:
        return [""]
    named = {1: "one block"}
    return [named.get(one.subgroups, f"{one.subgroups} subgroups") for one in choice.private.curves]


def spread_points(choice: Choice) -> list[float]:
    """Deadlines around the plan's own, for the curve; or epsilons. The plan's own is among them."""
    middle = choose_point(choice)[0]
    if choice.private is not None:
        return sorted({*EPSILONS, middle})
    spread = {float(f"{middle * 0.4 * 12.5 ** (at / (_CURVE - 1)):.3g}") for at in range(_CURVE)}
    return sorted(spread if choice.proposal is None else spread | {middle})


def trace(choice: Choice, curve: int, at: float) -> tuple[float, float | None]:
    """The planner's error bound at one deadline; or the error of the mean at one epsilon."""
    own, error = choose_point(choice)
    if choice.private is not None:
        if at == own and curve == 0:
            return own, error
        return trace_epsilon(choice.private, choice.private.curves[curve], at)
    if at == own and choice.requirements.deadline == own:
        return own, error
    return planner.trade_off(choice.requirements, [at])[0]


def choose_point(choice: Choice) -> tuple[float, float]:
    """Where the plan stands: the deadline it was made for, or the seconds that it takes, and its error bound.

    Of a plan with noise its budget, and the error of the mean in clipping norms.
    """
    if choice.private is not None:
        return choice.private.requirements.epsilon, choice.private.proposal.error
    met = choice.requirements.deadline if choice.proposal is not None and choice.problem is None else None
    return met or max(row["seconds"] for row in _classes(choice)), choice.plan.error_bound()
