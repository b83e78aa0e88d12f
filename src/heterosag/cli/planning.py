"""`heterosag plan` and `heterosag optimize`: what a plan costs and guarantees, and the best one for users' links."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heterosag.cli.application import Command, app
from heterosag.cli.options import (
    FILES,
    GUARANTEES,
    PRIVACY,
    USERS,
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
    Save,
    Sharing,
    SubgroupSize,
    build_plan,
    flag_of,
    given_flags,
    load_only,
    plan_settings,
    read_range,
)
from heterosag.cli.output import print_found, write_file
from heterosag.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from heterosag.plan import Plan

__all__ = ["optimize", "plan"]

_BESIDE_NO_EPSILON = {"deadline", "bits", "from_run", "value_range", "ranges", "max_weight"}


@app.command(cls=Command, short_help="Build a plan; show what it costs and guarantees.")
def plan(
    context: typer.Context,
    classes: Classes = "5,5,5,5,5",
    levels: Levels = "auto",
    rates: Rates = "",
    deadline: Deadline = None,
    dimension: Dimension = 79510,
    design: Design = "perfect",
    subgroup_size: SubgroupSize = 5,
    value_range: Range = "-1,1",
    min_survivors: MinSurvivors = 3,
    min_block_survivors: MinBlockSurvivors = None,
    dropout: Annotated[
        float | None,
        typer.Option(
            help="Fraction of users expected to drop out in a round (default: 0.1, or what the plan of --plan says).",
            rich_help_panel=GUARANTEES,
        ),
    ] = None,
    max_weight: MaxWeight = 1,
    min_robustness: MinRobustness = None,
    colluders: Colluders = None,
    assignment_seed: AssignmentSeed = None,
    sharing: Sharing = "auto",
    fill_levels: FillLevels = True,
    ranges: Ranges = "levels",
    rotate: Rotate = True,
    cohort: Cohort = None,
    plan_file: PlanFile = None,
    save: Save = None,
    compare: Annotated[
        str,
        typer.Option(help="Designs to show side by side instead, such as secagg,paper,perfect.", rich_help_panel=FILES),
    ] = "",
    as_json: Json = False,
) -> None:
    """Build a plan and show what it costs and guarantees, before a single key exists."""
    settings = plan_settings(locals())
    if cohort is not None:
        if plan_file is not None or save is not None or compare:
            raise UsageError("--cohort goes with the plan of the flags, not with --plan, --save or --compare")
        _show_cohorts(settings | {"cohort_size": cohort}, dropout, as_json=as_json)
        return
    if compare and "design" in given_flags(context):
        raise UsageError("--compare names the designs: leave --design out")
    if compare and plan_file is not None:
        raise UsageError("--compare goes with the plan of the flags: leave --plan out")
    if compare and save is not None:
        raise UsageError("--save writes one plan: leave --compare out, and name its design with --design")
    if plan_file is not None:
        plans = [load_only(plan_file, given=given_flags(context))]
    else:
        names = [name.strip() for name in compare.split(",")] if compare else [design]
        plans = [build_plan({**settings, "design": name}) for name in names]
    if save is not None:
        write_file(save, plans[0].to_toml())
    if not (as_json or given_flags(context)):
        print("no flags: this is the plan of the defaults; heterosag plan --help lists what to give\n")
    _show_plans(plans, dropout, as_json=as_json, side_by_side=bool(compare))


@app.command(cls=Command, short_help="Find the best plan for users' links and a deadline.")
def optimize(
    context: typer.Context,
    rates: Annotated[
        str,
        typer.Option(
            help="Users' upload rates in Mb/s: 0.5x20,2x20, a CSV file, or lognormal:MEDIAN:SPREAD:USERS.",
            rich_help_panel=USERS,
        ),
    ] = "",
    deadline: Annotated[
        float | None, typer.Option(help="Seconds that the upload of a round may take.", rich_help_panel=USERS)
    ] = None,
    bits: Annotated[
        int | None, typer.Option(help="Bits that an upload may have, instead of a deadline.", rich_help_panel=USERS)
    ] = None,
    from_run: Annotated[
        Path | None,
        typer.Option(
            "--from", help="Learn rates and dropout from this run, and propose a better plan.", rich_help_panel=FILES
        ),
    ] = None,
    dimension: Dimension = 79510,
    value_range: Range = "-1,1",
    ranges: Ranges = "levels",
    min_survivors: MinSurvivors = 3,
    max_weight: MaxWeight = 1,
    dropout: Annotated[
        float, typer.Option(help="Fraction of users expected to drop out in a round.", rich_help_panel=GUARANTEES)
    ] = 0.1,
    corrupt: Annotated[
        float, typer.Option(help="Fraction of users who may be corrupt.", rich_help_panel=GUARANTEES)
    ] = 0.0,
    attackers: Annotated[
        int, typer.Option(help="Malicious users that the median must tolerate.", rich_help_panel=GUARANTEES)
    ] = 0,
    failure: Annotated[
        float,
        typer.Option(help="Largest probability that a round ends for lack of survivors.", rich_help_panel=GUARANTEES),
    ] = 0.01,
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="Privacy budget of every user, instead of a deadline: rounds with noise.", rich_help_panel=PRIVACY
        ),
    ] = None,
    delta: Annotated[float, typer.Option(help="Delta of that epsilon.", rich_help_panel=PRIVACY)] = 1e-5,
    rounds: Annotated[int, typer.Option(help="Rounds within the budget.", rich_help_panel=PRIVACY)] = 20,
    clip: Annotated[float, typer.Option(help="Largest norm of an update.", rich_help_panel=PRIVACY)] = 1.0,
    users: Annotated[
        int, typer.Option(help="Users, where no rates are given with --epsilon.", rich_help_panel=PRIVACY)
    ] = 96,
    cohort: Cohort = None,
    save: Save = None,
    as_json: Json = False,
) -> None:
    """Find the classes, subgroups and levels that suit the users' links best, or better than a run's; with --epsilon
    the blocks, least survivors and noise of a privacy budget."""
    from heterosag.planner import read_rates

    limits: dict[str, Any] = {"deadline": deadline} if deadline is not None else {}
    limits |= {"bits": bits} if bits is not None else {}
    asked: dict[str, Any] = {
        "min_survivors": min_survivors,
        "max_weight": max_weight,
        "dropout": dropout,
        "corrupt": corrupt,
        "attackers": attackers,
        "failure": failure,
    }
    private = {"epsilon": epsilon, "delta": delta, "rounds": rounds, "clip": clip, "users": users}
    named = given_flags(context)
    if cohort is not None and (epsilon is not None or from_run is not None or save is not None):
        raise UsageError(
            "--cohort goes with --rates, not with --from or --save; with --epsilon plan for the --users of one cohort"
        )
    alone = [name for name in named if name in private]
    if epsilon is None and alone:
        raise UsageError(f"{flag_of(alone[0])} goes with --epsilon: give that too, or leave {flag_of(alone[0])} out")
    if epsilon is not None:
        others = [name for name in named if name in _BESIDE_NO_EPSILON]
        if others:
            raise UsageError(f"{flag_of(others[0])} does not go with --epsilon: leave one of them out")
        if rates and "users" in named:
            raise UsageError("--rates says how many users there are: leave --users out")
        if rates:
            private["users"] = len(read_rates(rates))
        asked.pop("max_weight")
        _optimize_private(private | asked | {"dimension": dimension}, save=save, as_json=as_json)
    elif from_run is not None:
        if {"rates", "dimension", "value_range", "ranges"}.intersection(named):
            raise UsageError("--from takes rates, dimension and ranges from the run: leave these flags out")
        changed = {name: asked[name] for name in asked if name in named}
        _optimize_links(limits | changed, from_run=from_run, save=save, as_json=as_json)
    elif not rates:
        raise UsageError("optimize needs the users' upload rates: --rates 0.5x20,2x20 (Mb/s), or a CSV file")
    else:
        given = {"rates": read_rates(rates), "dimension": dimension, "value_range": read_range(value_range)}
        asked |= given | {"ranges": ranges} | limits
        if cohort is None:
            _optimize_links(asked, from_run=None, save=save, as_json=as_json)
        else:
            _optimize_cohorts(asked, cohort, as_json=as_json)


def _optimize_links(asked: dict[str, Any], *, from_run: Path | None, save: Path | None, as_json: bool) -> None:
    from heterosag.planner import Requirements, best
    from heterosag.report.next_steps import next_steps
    from heterosag.report.proposals import describe, show
    from heterosag.storage.run_log import read_run
    from heterosag.storage.run_requirements import learn_requirements

    before = None
    if from_run is not None:
        run = read_run(from_run)
        run.require(plan=["quantization_error"])
        before = float(run.plan["quantization_error"]) + float(run.plan.get("clip_bias", 0.0))
        requirements = learn_requirements(run, **asked)
    else:
        requirements = Requirements(**asked)
    proposal = best(requirements)
    if save is not None:
        write_file(save, proposal.plan.to_toml())
    print_found(lambda: describe(proposal, before), lambda: show(proposal, before), as_json=as_json)
    if not as_json:
        print(next_steps(proposal, save))


def _optimize_cohorts(asked: dict[str, Any], cohort: int, *, as_json: bool) -> None:
    from heterosag.planner import Requirements
    from heterosag.planner.cohorts import best_cohorts
    from heterosag.report.next_steps import next_steps_of_cohorts
    from heterosag.report.proposals import describe_cohorts, show_cohort_proposal

    proposal = best_cohorts(Requirements(**asked), cohort_size=cohort)
    print_found(lambda: describe_cohorts(proposal), lambda: show_cohort_proposal(proposal), as_json=as_json)
    if not as_json:
        print(next_steps_of_cohorts(proposal))


def _optimize_private(asked: dict[str, Any], *, save: Path | None, as_json: bool) -> None:
    from heterosag.planner.private import PrivacyRequirements, best_private
    from heterosag.report.next_steps import next_steps_of_private
    from heterosag.report.proposals import describe_private, show_private

    proposal = best_private(PrivacyRequirements(**asked))
    if save is not None:
        write_file(save, proposal.plan.to_toml())
    print_found(lambda: describe_private(proposal), lambda: show_private(proposal), as_json=as_json)
    if not as_json:
        print(next_steps_of_private(proposal))


def _show_plans(plans: list[Plan], dropout: float | None, *, as_json: bool, side_by_side: bool) -> None:
    def found() -> dict[str, Any]:
        from heterosag.plan.summary import summarise

        summaries = [summarise(plan, dropout) for plan in plans]
        return {"plans": summaries} if side_by_side else summaries[0]

    def shown() -> RenderableType:
        from heterosag.report.plans import compare_plans, show_plan

        return compare_plans(plans, dropout) if side_by_side else show_plan(plans[0], dropout)

    print_found(found, shown, as_json=as_json)


def _show_cohorts(settings: dict[str, Any], dropout: float | None, *, as_json: bool) -> None:
    from heterosag.plan import CohortPlan
    from heterosag.plan.summary import summarise_cohorts

    found = CohortPlan.build(**settings)

    def shown() -> RenderableType:
        from heterosag.report.plans import show_cohorts

        return show_cohorts(found, dropout)

    print_found(lambda: summarise_cohorts(found, dropout), shown, as_json=as_json)
