"""The planner's answers for people and scripts: what was found, what it costs, which requirement binds."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from heterosag.plan import CohortPlan, Plan
from heterosag.plan.cohorts import plans_of
from heterosag.plan.costs import beside_vector
from heterosag.plan.summary import summarise, summarise_cohorts
from heterosag.planner import Proposal
from heterosag.planner.cohorts import CohortProposal
from heterosag.planner.private import USELESS, Blocks, PrivateProposal
from heterosag.privacy.statement import word_for
from heterosag.report.plans import describe_error, show_cohorts, show_plan

__all__ = [
    "describe",
    "describe_cohorts",
    "describe_private",
    "show",
    "show_cohort_proposal",
    "show_private",
]

_LITTLE = 2.0
"""Error of the mean, in units of the clipping norm, up to which a few points of accuracy are lost."""


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

    def words(error: float) -> str:
        return describe_error(error, plan.dimension, plan.value_range[1])

    lines = [
        f"error of the mean at most {words(proposal.error)};",
        f"no plan of these subgroup sizes has less than {words(proposal.lower_bound)}",
    ]
    if before is not None:
        lines.append(f"the plan of the run: {words(before)}")
    lines.append(f"what would help most: {proposal.binding}")
    lines += [f"  {one.what}: {words(one.error)}" for one in proposal.relaxing]
    return Group(show_plan(plan), _uploads(plan, proposal), *map(Text, lines))


def describe_cohorts(proposal: CohortProposal) -> dict[str, Any]:
    """A proposal of cohorts in JSON types: what binds and what would help is said of a cohort."""
    return describe(proposal.cohort) | {
        "error": proposal.error,
        "lower_bound": None,
        "upload_seconds": list(proposal.seconds),
        "upload_bytes": list(proposal.bytes),
        "order": list(proposal.order),
        "plan": summarise_cohorts(proposal.plan),
    }


def show_cohort_proposal(proposal: CohortProposal) -> RenderableType:
    """A proposal of cohorts as tables."""
    plan = proposal.plan
    lines = [
        f"error of the mean of all {len(plan.users)} users at most "
        f"{describe_error(proposal.error, plan.dimension, plan.value_range[1])};",
        f"of a cohort's {describe_error(proposal.cohort.error, plan.dimension, plan.value_range[1])}",
        f"what would help a cohort most: {proposal.cohort.binding}",
    ]
    return Group(show_cohorts(plan), _uploads(plan, proposal), *map(Text, lines))


def _uploads(plan: Plan | CohortPlan, proposal: Proposal | CohortProposal) -> Table:
    """What a user of each class sends: its masked vector, which a deadline is for, and all messages of a round."""
    table = Table("class", "users", "levels", "vector, kB", "seconds", "all messages, kB", "seconds")
    beside = sum(beside_vector(plans_of(plan)[0], 0).values())
    for index, (users, level) in enumerate(zip(plan.classes, plan.levels, strict=True)):
        size, seconds = proposal.bytes[index], proposal.seconds[index]
        sent = [f"{size / 1000:,.1f}", f"{seconds:.3g}", f"{(size + beside) / 1000:,.1f}"]
        table.add_row(str(index), str(users), f"{level:,}", *sent, f"{seconds * (1 + beside / size):.3g}")
    return table


def describe_private(proposal: PrivateProposal) -> dict[str, Any]:
    """A private proposal in JSON types."""
    return {
        "error_in_clipping_norms": proposal.error,
        "epsilon_server": proposal.epsilon_server,
        "epsilon_model": proposal.epsilon_model,
        "delta": proposal.delta,
        "rounds": proposal.rounds,
        "noise_multiplier": proposal.plan.noise_multiplier,
        "honest": proposal.plan.honest,
        "chosen": asdict(proposal.blocks),
        "others": [asdict(one) for one in proposal.others],
        "plan": summarise(proposal.plan),
    }


def show_private(proposal: PrivateProposal) -> RenderableType:
    """A private proposal as tables."""
    plan = proposal.plan
    table = Table("", "subgroups", "block", "survivors", "honest", "levels", "noise, c", "error, c")
    for one in sorted((proposal.blocks, *proposal.others), key=lambda one: one.error):
        chosen = one == proposal.blocks
        table.add_row("chosen" if chosen else "", *_row(one), style="bold" if chosen else None)
    noise = plan.noise_multiplier
    most = plan.honest * len(plan.users) / noise**2
    views = f"epsilon {proposal.epsilon_server:.2f} against whoever sees all sums"
    if proposal.epsilon_model is not None:
        views += f", {proposal.epsilon_model:.2f} against whoever sees the models only (with the mean)"
    lines = [
        f"{views}, at delta {proposal.delta:g} over {proposal.rounds} rounds: {word_for(proposal.epsilon_server)}",
        f"the mean is off by {proposal.error:.2g} clipping norms c: {_worth(proposal.error)}",
        f"an error of 1c would take {most:,.0f} elements (honest x users / noise^2), not {plan.dimension:,}",
        "larger blocks have less error, smaller ones tolerate more attackers (users of a block, its least survivors):",
    ]
    return Group(show_plan(plan), *map(Text, lines), table)


def _row(one: Blocks) -> list[str]:
    figures = (one.subgroups, one.block_users, one.min_block_survivors, one.honest, one.level)
    return [*(f"{figure:,}" for figure in figures), f"{one.noise_multiplier:.2f}", f"{one.error:.2f}"]


def _worth(error: float) -> str:
    """What an error costs in accuracy, roughly, as measured (docs/how-to/privacy.md)."""
    much = f"beyond {USELESS:g} much of it may be lost"
    if error <= _LITTLE:
        return f"a few points of accuracy; {much}"
    return f"more than a few points of accuracy; {much}"
