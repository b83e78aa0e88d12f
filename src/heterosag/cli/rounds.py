"""`heterosag round`: rounds in memory with real keys and bytes, checked against the plain sum."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from heterosag.choices import RuleName
from heterosag.cli.application import Command, app
from heterosag.cli.options import (
    AssignmentSeed,
    Classes,
    Cohort,
    Colluders,
    Deadline,
    Design,
    Dimension,
    FillLevels,
    Json,
    Levels,
    MaxWeight,
    MinBlockSurvivors,
    MinRobustness,
    MinSurvivors,
    PlanFile,
    Range,
    Ranges,
    Rates,
    Rotate,
    Sharing,
    SubgroupSize,
    build_plan,
    given_flags,
    load_only,
    plan_settings,
)
from heterosag.cli.output import print_found
from heterosag.errors import UsageError

__all__ = ["run_round"]

_ROUND = "What happens in the round"
_MOST_ROUNDS = 1000
_MOST_SEED = 2**64 - 1  # of rounding
_MOST_DIGITS = 7  # of a number of users


@app.command("round", cls=Command, short_help="Run a round with real keys and bytes, and check it.")
def run_round(
    context: typer.Context,
    classes: Classes = "24,24,24,24",
    levels: Levels = "auto",
    rates: Rates = "",
    deadline: Deadline = None,
    dimension: Dimension = 79510,
    design: Design = "perfect",
    subgroup_size: SubgroupSize = 8,
    value_range: Range = "-1,1",
    min_survivors: MinSurvivors = 3,
    min_block_survivors: MinBlockSurvivors = None,
    max_weight: MaxWeight = 1,
    min_robustness: MinRobustness = None,
    colluders: Colluders = None,
    assignment_seed: AssignmentSeed = None,
    sharing: Sharing = "auto",
    fill_levels: FillLevels = True,
    ranges: Ranges = "levels",
    rotate: Rotate = True,
    plan_file: PlanFile = None,
    rule: Annotated[RuleName, typer.Option(help="How block means are combined.", rich_help_panel=_ROUND)] = "mean",
    drop: Annotated[
        str, typer.Option(help="Users who drop out before a phase: share=2,mask=5,unmask=1.", rich_help_panel=_ROUND)
    ] = "",
    malicious: Annotated[
        int, typer.Option(help="Users who send -30 times their update, unclipped.", rich_help_panel=_ROUND)
    ] = 0,
    identities: Annotated[
        bool, typer.Option("--identities", help="Sign keys and agree on the survivor set.", rich_help_panel=_ROUND)
    ] = False,
    seed: Annotated[
        int, typer.Option(help="Seed of updates, dropouts and rounding; never of a secret.", rich_help_panel=_ROUND)
    ] = 0,
    plain: Annotated[bool, typer.Option("--plain", help="Skip the cryptography.", rich_help_panel=_ROUND)] = False,
    rounds: Annotated[
        int, typer.Option(help="Rounds in a row, each set up on the messages of the last.", rich_help_panel=_ROUND)
    ] = 1,
    cohort: Cohort = None,
    as_json: Json = False,
) -> None:
    """Run one round in memory with real keys, masks and bytes, and check its result against the plain sum."""
    from heterosag.report.rounds import run, show

    if not 0 <= seed <= _MOST_SEED:
        raise UsageError(f"--seed is an integer from 0 to 2^64-1, not {seed}")
    if rounds > _MOST_ROUNDS:
        raise UsageError(f"--rounds is at most {_MOST_ROUNDS}, not {rounds}")
    played: dict[str, Any] = {
        "rule": rule,
        "drop": _counts(drop),
        "malicious": malicious,
        "identities": identities,
        "seed": seed,
        "secure": not plain,
    }
    if cohort is not None:
        if plan_file is not None or rounds != 1:
            raise UsageError("--cohort goes with one round and the plan of the flags, not with --plan or --rounds")
        summary = _run_cohorts(plan_settings(locals()) | {"cohort_size": cohort}, played)
    else:
        chosen = (
            load_only(plan_file, given=given_flags(context))
            if plan_file is not None
            else build_plan(plan_settings(locals()))
        )
        summary = run(chosen, rounds=rounds, **played)
    print_found(lambda: summary, lambda: show(summary), as_json=as_json)
    if summary["error"] is not None:
        raise typer.Exit(1)


def _run_cohorts(settings: dict[str, Any], played: dict[str, Any]) -> dict[str, Any]:
    from heterosag.plan import CohortPlan
    from heterosag.report.cohorts import run_cohorts

    workers = (os.cpu_count() or 1) if hasattr(os, "fork") else 1
    return run_cohorts(CohortPlan.build(**settings), workers=workers, **played)


def _counts(text: str) -> dict[str, int]:
    """share=2,mask=5 as a mapping."""
    found: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        phase, _, count = part.partition("=")
        if not (count.isdecimal() and len(count) <= _MOST_DIGITS):
            raise UsageError(
                f"--drop takes phase=number with commas between them, such as share=2,mask=5; not {text!r}"
            )
        found[phase] = found.get(phase, 0) + int(count)
    return found
