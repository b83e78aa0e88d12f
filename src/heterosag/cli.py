"""The command line: `heterosag train`, `optimize`, `plan`, `round`, `report`, `studio`, `identity` and `directory`.

Heavy imports happen inside the commands, so that `heterosag --help` stays quick. Everything goes through typer:
newer versions carry a copy of click, so click itself is not to be imported here.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, get_args

import typer
from typer.core import TyperCommand, TyperGroup

from heterosag import __version__
from heterosag.choices import DesignName, RangesName, RuleName, SharingName
from heterosag.errors import HeteroSagError, PlanError, UsageError
from heterosag.training.config import TrainConfig, fields_of

if TYPE_CHECKING:
    from rich.console import RenderableType

    from heterosag.plan import Plan, User
    from heterosag.vector.quantize import ValueRange

__all__ = ["EXAMPLES", "app", "main"]

_ORDER = ("train", "optimize", "plan", "round", "report", "studio", "identity", "directory")  # as one uses them

EXAMPLES = {
    "train": (
        "heterosag train",
        "heterosag train --rule median --attack label-flip --attackers 2 --dropout 0.1",
        "heterosag train --plan plan.toml --rounds 30 --out runs/mine",
    ),
    "optimize": (
        "heterosag optimize --rates 0.5x20,2x40,8x36 --deadline 0.5",
        "heterosag optimize --rates links.csv --deadline 2 --save plan.toml",
        "heterosag optimize --epsilon 8 --rounds 20 --users 96 --dimension 3610",
    ),
    "plan": (
        "heterosag plan --classes 24,24 --subgroup-size 8 --rates 1,8",
        "heterosag plan --classes 12,12 --subgroup-size 6 --levels 4,16 --save p.toml",
        "heterosag plan --classes 24,24,24,24 --compare secagg,multigroup,perfect",
    ),
    "round": (
        "heterosag round",
        "heterosag round --drop share=2,mask=5 --malicious 2 --rule median --identities",
        "heterosag round --plan plan.toml --rounds 3",
    ),
    "report": (
        "heterosag report runs/mine",
        "heterosag report runs/one runs/other --out compared.html",
        "heterosag report runs --json",
    ),
    "studio": (
        "heterosag studio",
        "heterosag studio runs/mine",
        "heterosag studio --port 9000",
    ),
    "identity": (
        "heterosag identity ada.pem --make",
        "heterosag identity ada.pem",
        "heterosag identity ~/.ssh/flower_node --json",
    ),
    "directory": (
        "heterosag directory all.json --make --add ada=ada.pub --add bo=bo.pub",
        "heterosag directory all.json --mine ada=ada.pem",
        "heterosag directory all.json --rotate bo=bo2.pub --revoke eve",
    ),
}
"""Three of each command, which its help shows."""


class _Commands(TyperGroup):
    """The commands in the order in which one uses them."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for name in _ORDER if name in super(_Commands, self).list_commands(ctx)]


app = typer.Typer(
    cls=_Commands,
    help="Secure aggregation for federated learning on heterogeneous clients.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

_USERS, _GUARANTEES, _PRIVACY, _FILES = "Users and updates", "Guarantees", "Privacy", "Input and output"
_SCENE = "What happens in the round"

# --- flags that several commands share ----------------------------------------------------------------------------

_Classes = Annotated[str, typer.Option(help="Users per class, slowest link first: 5,5,5,5,5.", rich_help_panel=_USERS)]
_Levels = Annotated[
    str,
    typer.Option(
        help="Quantizer levels per class, non-decreasing: 2,6,8,10,12; auto: as many as the rates carry in time.",
        rich_help_panel=_USERS,
    ),
]
_Rates = Annotated[
    str,
    typer.Option(
        help="Upload rate per class in Mb/s, for --levels auto (default: 1, doubled from class to class).",
        rich_help_panel=_USERS,
    ),
]
_Deadline = Annotated[
    float | None,
    typer.Option(
        help="Seconds for an upload, for --levels auto (default: what four levels take the slowest class).",
        rich_help_panel=_USERS,
    ),
]
_Dimension = Annotated[int, typer.Option(help="Elements of the update vector.", rich_help_panel=_USERS)]
_Design = Annotated[
    DesignName, typer.Option(help="Which subgroups code a segment together.", rich_help_panel=_GUARANTEES)
]
_SubgroupSize = Annotated[int, typer.Option(help="Users a subgroup should have at least.", rich_help_panel=_GUARANTEES)]
_Range = Annotated[
    str,
    typer.Option(
        "--range",
        "--value-range",
        help="Three standard deviations of a value, or the two ends: 0.1 or -1,1.",
        rich_help_panel=_USERS,
    ),
]
_MinSurvivors = Annotated[int, typer.Option(help="Least survivors of a subgroup.", rich_help_panel=_GUARANTEES)]
_MinBlockSurvivors = Annotated[
    int | None,
    typer.Option(
        help="Least survivors of a block whose sum may be unmasked (default: those of its subgroups).",
        rich_help_panel=_GUARANTEES,
    ),
]
_MaxWeight = Annotated[int, typer.Option(help="Largest weight of a user; 1 means unweighted.", rich_help_panel=_USERS)]
_MinRobustness = Annotated[
    float | None,
    typer.Option(help="Least inference robustness of an admissible survivor set.", rich_help_panel=_GUARANTEES),
]
_Colluders = Annotated[
    int | None,
    typer.Option(
        help="Users who may collude with the server (default: min-survivors - 2).", rich_help_panel=_GUARANTEES
    ),
]
_AssignmentSeed = Annotated[
    int | None,
    typer.Option(help="Public seed that shuffles the users of a class into subgroups.", rich_help_panel=_GUARANTEES),
]
_Sharing = Annotated[SharingName, typer.Option(help="Who holds shares.", rich_help_panel=_GUARANTEES)]
_FillLevels = Annotated[
    bool,
    typer.Option(help="Raise levels as far as their rings hold, at no cost.", rich_help_panel=_USERS),
]
_Ranges = Annotated[
    RangesName,
    typer.Option(help="A range for every level, as is best for it, or a single one for all.", rich_help_panel=_USERS),
]
_Rotate = Annotated[
    bool, typer.Option(help="Spread every segment by a random rotation before it is quantized.", rich_help_panel=_USERS)
]
_Cohort = Annotated[
    int | None,
    typer.Option(
        help="Split users into cohorts of at most so many, each with a plan of its own.", rich_help_panel=_GUARANTEES
    ),
]
_PlanFile = Annotated[
    Path | None, typer.Option("--plan", help="Use the plan of this TOML file instead.", rich_help_panel=_FILES)
]
_Save = Annotated[Path | None, typer.Option(help="Write the plan to this TOML file.", rich_help_panel=_FILES)]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.", rich_help_panel=_FILES)]

_BESIDE_A_PLAN_FILE = {
    "plan_file",
    "save",
    "as_json",
    "dropout",
    "rule",
    "drop",
    "malicious",
    "identities",
    "seed",
    "plain",
    "rounds",
}


def main() -> None:
    """Run the command line; an error of ours is one line on standard error and exit code 2."""
    try:
        typer.main.get_command(app)(prog_name="heterosag")
    except HeteroSagError as error:
        _fail(str(error))
    except BrokenPipeError:
        sys.stderr.close()
        raise SystemExit(1) from None


class _Command(TyperCommand):
    """A command whose help reads as it was written.

    typer 0.20 on click 8.5 loses the help of arguments, which both of them keep under one name, and escapes brackets
    for a markup that is not in use.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        written = inspect.signature(inspect.unwrap(self.callback), eval_str=True).parameters if self.callback else {}
        for parameter in self.params:
            if parameter.param_type_name == "argument":
                parameter.help = written[str(parameter.name)].annotation.__metadata__[0].help

    def get_help(self, ctx: Any) -> str:
        return super().get_help(ctx).replace("\\[", "[")

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """The options, those of a group under its name."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            shown = parameter.get_help_record(ctx)
            if shown is not None:
                kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
                groups.setdefault(getattr(parameter, "rich_help_panel", None) or kind, []).append(shown)
        for name, rows in groups.items():
            with formatter.section(name):
                formatter.write_dl(rows)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Three examples, as they are typed."""
        del ctx
        with formatter.section("Examples"):
            for example in EXAMPLES[str(self.name)]:
                formatter.write(f"{'':{formatter.current_indent}}{example}\n")

    def format_arguments(self, ctx: Any, formatter: Any) -> None:
        """Nothing: click's own list of arguments, beside the one that typer puts before the options."""


def _fail(problem: str) -> NoReturn:
    print(f"heterosag: {problem}", file=sys.stderr)
    raise SystemExit(2)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"heterosag {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@app.command(cls=_Command, short_help="Build a plan; show what it costs and guarantees.")
def plan(
    context: typer.Context,
    classes: _Classes = "5,5,5,5,5",
    levels: _Levels = "auto",
    rates: _Rates = "",
    deadline: _Deadline = None,
    dimension: _Dimension = 79510,
    design: _Design = "perfect",
    subgroup_size: _SubgroupSize = 5,
    value_range: _Range = "-1,1",
    min_survivors: _MinSurvivors = 3,
    min_block_survivors: _MinBlockSurvivors = None,
    dropout: Annotated[
        float | None,
        typer.Option(help="Fraction of users expected to drop out in a round.", rich_help_panel=_GUARANTEES),
    ] = None,
    max_weight: _MaxWeight = 1,
    min_robustness: _MinRobustness = None,
    colluders: _Colluders = None,
    assignment_seed: _AssignmentSeed = None,
    sharing: _Sharing = "auto",
    fill_levels: _FillLevels = True,
    ranges: _Ranges = "levels",
    rotate: _Rotate = True,
    cohort: _Cohort = None,
    plan_file: _PlanFile = None,
    save: _Save = None,
    compare: Annotated[
        str,
        typer.Option(
            help="Designs to show side by side instead, such as secagg,paper,perfect.", rich_help_panel=_FILES
        ),
    ] = "",
    as_json: _Json = False,
) -> None:
    """Build a plan and show what it costs and guarantees, before a single key exists."""
    settings = _settings(locals())
    if cohort is not None:
        if plan_file is not None or save is not None or compare:
            raise UsageError("--cohort goes with the plan of the flags, not with --plan, --save or --compare")
        _show_cohorts(settings | {"cohort_size": cohort}, dropout, as_json=as_json)
        return
    if plan_file is not None:
        plans = [_load(plan_file, given=_given(context))]
    else:
        names = [name.strip() for name in compare.split(",")] if compare else [design]
        plans = [_build({**settings, "design": name}) for name in names]
    if save is not None:
        _write(save, plans[0].to_toml())
    _show_plans(plans, dropout, as_json=as_json, side_by_side=bool(compare))


@app.command(cls=_Command, short_help="Find the best plan for users' links and a deadline.")
def optimize(
    context: typer.Context,
    rates: Annotated[
        str,
        typer.Option(
            help="Users' upload rates in Mb/s: 0.5x20,2x20, a CSV file, or lognormal:MEDIAN:SPREAD:USERS.",
            rich_help_panel=_USERS,
        ),
    ] = "",
    deadline: Annotated[
        float | None, typer.Option(help="Seconds that the upload of a round may take.", rich_help_panel=_USERS)
    ] = None,
    bits: Annotated[
        int | None, typer.Option(help="Bits that an upload may have, instead of a deadline.", rich_help_panel=_USERS)
    ] = None,
    from_run: Annotated[
        Path | None,
        typer.Option(
            "--from", help="Learn rates and dropout from this run, and propose a better plan.", rich_help_panel=_FILES
        ),
    ] = None,
    dimension: _Dimension = 79510,
    value_range: _Range = "-1,1",
    ranges: _Ranges = "levels",
    min_survivors: _MinSurvivors = 3,
    max_weight: _MaxWeight = 1,
    dropout: Annotated[
        float, typer.Option(help="Fraction of users expected to drop out in a round.", rich_help_panel=_GUARANTEES)
    ] = 0.1,
    corrupt: Annotated[
        float, typer.Option(help="Fraction of users who may be corrupt.", rich_help_panel=_GUARANTEES)
    ] = 0.0,
    attackers: Annotated[
        int, typer.Option(help="Malicious users that the median must tolerate.", rich_help_panel=_GUARANTEES)
    ] = 0,
    failure: Annotated[
        float, typer.Option(help="How often a round may end for lack of survivors.", rich_help_panel=_GUARANTEES)
    ] = 0.01,
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="Privacy budget of every user, instead of a deadline: rounds with noise.", rich_help_panel=_PRIVACY
        ),
    ] = None,
    delta: Annotated[float, typer.Option(help="Delta of that epsilon.", rich_help_panel=_PRIVACY)] = 1e-5,
    rounds: Annotated[int, typer.Option(help="Rounds within the budget.", rich_help_panel=_PRIVACY)] = 20,
    clip: Annotated[float, typer.Option(help="Largest norm of an update.", rich_help_panel=_PRIVACY)] = 1.0,
    users: Annotated[
        int, typer.Option(help="Users, where no rates are given with --epsilon.", rich_help_panel=_PRIVACY)
    ] = 96,
    cohort: _Cohort = None,
    save: _Save = None,
    as_json: _Json = False,
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
    named = set(_given(context))
    if cohort is not None and (epsilon is not None or from_run is not None or save is not None):
        raise UsageError(
            "--cohort goes with --rates, not with --from or --save; with --epsilon plan for the --users of one cohort"
        )
    if epsilon is not None or named & private.keys():
        if epsilon is None or named & {"deadline", "bits", "from_run", "value_range", "max_weight"}:
            raise UsageError(
                "--delta, --rounds, --clip and --users go with --epsilon; a deadline, a range, weights do not"
            )
        if rates:
            private["users"] = len(read_rates(rates))
        asked.pop("max_weight")
        _optimize_private(private | asked | {"dimension": dimension}, save=save, as_json=as_json)
    elif from_run is not None:
        changed = {name: asked[name] for name in asked if name in named}
        _optimize_links(limits | changed, from_run=from_run, save=save, as_json=as_json)
    elif not rates:
        raise UsageError("optimize needs the users' upload rates: --rates 0.5x20,2x20 (Mb/s), or a CSV file")
    else:
        given = {"rates": read_rates(rates), "dimension": dimension, "value_range": _range(value_range)}
        asked |= given | {"ranges": ranges} | limits
        if cohort is None:
            _optimize_links(asked, from_run=None, save=save, as_json=as_json)
        else:
            _optimize_cohorts(asked, cohort, as_json=as_json)


def _optimize_links(asked: dict[str, Any], *, from_run: Path | None, save: Path | None, as_json: bool) -> None:
    from heterosag.planner import Requirements, best
    from heterosag.report.proposals import describe, next_steps, show
    from heterosag.storage.run_log import read_run
    from heterosag.storage.run_requirements import learn_requirements

    before = None
    if from_run is not None:
        run = read_run(from_run)
        before = float(run.plan["quantization_error"]) + float(run.plan.get("clip_bias", 0.0))
        requirements = learn_requirements(run, **asked)
    else:
        requirements = Requirements(**asked)
    proposal = best(requirements)
    if save is not None:
        _write(save, proposal.plan.to_toml())
    _print(lambda: describe(proposal, before), lambda: show(proposal, before), as_json=as_json)
    if not as_json:
        print(next_steps(proposal, save))


def _optimize_cohorts(asked: dict[str, Any], cohort: int, *, as_json: bool) -> None:
    from heterosag.planner import Requirements
    from heterosag.planner.cohorts import best_cohorts
    from heterosag.report.proposals import describe_cohorts, next_steps_of_cohorts, show_cohort_proposal

    proposal = best_cohorts(Requirements(**asked), cohort_size=cohort)
    _print(lambda: describe_cohorts(proposal), lambda: show_cohort_proposal(proposal), as_json=as_json)
    if not as_json:
        print(next_steps_of_cohorts(proposal))


def _optimize_private(asked: dict[str, Any], *, save: Path | None, as_json: bool) -> None:
    from heterosag.planner.private import PrivacyRequirements, best_private
    from heterosag.report.proposals import describe_private, next_steps_of_private, show_private

    proposal = best_private(PrivacyRequirements(**asked))
    if save is not None:
        _write(save, proposal.plan.to_toml())
    _print(lambda: describe_private(proposal), lambda: show_private(proposal), as_json=as_json)
    if not as_json:
        print(next_steps_of_private(proposal))


@app.command("round", cls=_Command, short_help="Run a round with real keys and bytes, and check it.")
def run_round(
    context: typer.Context,
    classes: _Classes = "24,24,24,24",
    levels: _Levels = "auto",
    rates: _Rates = "",
    deadline: _Deadline = None,
    dimension: _Dimension = 79510,
    design: _Design = "perfect",
    subgroup_size: _SubgroupSize = 8,
    value_range: _Range = "-1,1",
    min_survivors: _MinSurvivors = 3,
    min_block_survivors: _MinBlockSurvivors = None,
    max_weight: _MaxWeight = 1,
    min_robustness: _MinRobustness = None,
    colluders: _Colluders = None,
    assignment_seed: _AssignmentSeed = None,
    sharing: _Sharing = "auto",
    fill_levels: _FillLevels = True,
    ranges: _Ranges = "levels",
    rotate: _Rotate = True,
    plan_file: _PlanFile = None,
    rule: Annotated[RuleName, typer.Option(help="How block means are combined.", rich_help_panel=_SCENE)] = "mean",
    drop: Annotated[
        str, typer.Option(help="Users who drop out before a phase: share=2,mask=5,unmask=1.", rich_help_panel=_SCENE)
    ] = "",
    malicious: Annotated[
        int, typer.Option(help="Users who send -30 times their update, unclipped.", rich_help_panel=_SCENE)
    ] = 0,
    identities: Annotated[
        bool, typer.Option("--identities", help="Sign keys and agree on the survivor set.", rich_help_panel=_SCENE)
    ] = False,
    seed: Annotated[
        int, typer.Option(help="Seed of updates, dropouts and rounding; never of a secret.", rich_help_panel=_SCENE)
    ] = 0,
    plain: Annotated[bool, typer.Option("--plain", help="Skip the cryptography.", rich_help_panel=_SCENE)] = False,
    rounds: Annotated[
        int, typer.Option(help="Rounds in a row, each set up on the messages of the last.", rich_help_panel=_SCENE)
    ] = 1,
    cohort: _Cohort = None,
    as_json: _Json = False,
) -> None:
    """Run one round in memory with real keys, masks and bytes, and check its result against the plain sum."""
    from heterosag.report.rounds import run, show

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
        summary = _run_cohorts(_settings(locals()) | {"cohort_size": cohort}, played)
    else:
        chosen = _load(plan_file, given=_given(context)) if plan_file is not None else _build(_settings(locals()))
        summary = run(chosen, rounds=rounds, **played)
    _print(lambda: summary, lambda: show(summary), as_json=as_json)
    if summary["error"] is not None:
        raise typer.Exit(1)


def _run_cohorts(settings: dict[str, Any], played: dict[str, Any]) -> dict[str, Any]:
    from heterosag.plan import CohortPlan
    from heterosag.report.cohorts import run_cohorts

    workers = (os.cpu_count() or 1) if hasattr(os, "fork") else 1
    return run_cohorts(CohortPlan.build(**settings), workers=workers, **played)


@app.command(cls=_Command, short_help="Compare runs: a table, and a page with figures.")
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, or folders that have runs in them.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("report.html"),
    as_json: _Json = False,
) -> None:
    """Compare runs: a table here, and one self-contained page with figures."""
    from heterosag.report.page import write_page
    from heterosag.report.runs import compare_runs, summarise_run
    from heterosag.storage.run_log import find_runs, read_run

    found = [read_run(folder) for named in runs for folder in find_runs(named)]
    write_page(found, out)
    if as_json:
        print(json.dumps({"report": str(out), "runs": [summarise_run(run) for run in found]}, indent=2))
        return
    from rich.console import Console

    console = Console(highlight=False)
    console.print(compare_runs(found))
    console.print(f"report: {out}")


@app.command(cls=_Command, short_help="Serve a page to choose plans and watch runs.")
def studio(
    runs: Annotated[Path, typer.Argument(help="Folder whose runs are shown.")] = Path("runs"),
    port: Annotated[int, typer.Option(help="Port on this machine.")] = 8642,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Serve a page on this machine to choose a plan by looking at it, and to watch runs."""
    _need("uvicorn", "studio")
    from heterosag.studio.serve import serve

    if runs == Path("runs"):
        runs.mkdir(exist_ok=True)  # where training puts runs by itself
    serve(runs, port=port, open_page=open_page)


@app.command(cls=_Command, short_help="Print an identity's public key, or make one.")
def identity(
    key_file: Annotated[Path, typer.Argument(help="A private key's file: Ed25519, or the key of a Flower node.")],
    make: Annotated[bool, typer.Option("--make", help="Make a fresh key in a new file first.")] = False,
    as_json: _Json = False,
) -> None:
    """Print the public key of an identity, for everybody's directory."""
    from heterosag.storage.identities import load_identity, make_identity

    public = (make_identity if make else load_identity)(key_file).public.hex()
    typer.echo(json.dumps({"public": public}) if as_json else public)


@app.command(cls=_Command, short_help="Make, check and change everybody's directory.")
def directory(
    file: Annotated[Path, typer.Argument(help="The directory: a JSON file of users and public keys.")],
    make: Annotated[bool, typer.Option("--make", help="Make a new directory of the users that are added.")] = False,
    add: Annotated[
        list[str] | None, typer.Option(help="A user who is not in it yet: USER=KEY, in hex or a file with that.")
    ] = None,
    rotate: Annotated[
        list[str] | None, typer.Option(help="A user who is in it, with the key that replaces the old one: USER=KEY.")
    ] = None,
    revoke: Annotated[list[str] | None, typer.Option(help="A user who is taken out of it.")] = None,
    mine: Annotated[
        list[str] | None,
        typer.Option(help="Check that it has the key of this private key's file for a user: USER=KEY_FILE."),
    ] = None,
    as_json: _Json = False,
) -> None:
    """Check everybody's directory and print its digest, for users to compare; make it, and change who is in it."""
    from heterosag.storage import directories
    from heterosag.storage.identities import load_directory

    added: dict[User, bytes] = {user: directories.read_public_key(key) for user, key in _pairs("add", add).items()}
    rotated: dict[User, bytes] = {
        user: directories.read_public_key(key) for user, key in _pairs("rotate", rotate).items()
    }
    if make and (rotate or revoke or not added):
        raise UsageError("--make takes the users of a new directory with --add USER=KEY, and no other change")
    if make or added or rotated or revoke:
        before = {} if make else load_directory(file)
        changed = directories.change_directory(before, add=added, rotate=rotated, revoke=revoke or [])
        directories.save_directory(file, changed, new=make)
    known = load_directory(file)
    for user, key_file in _pairs("mine", mine).items():
        directories.check_own_key(known, user, Path(key_file))
    keys, digest = {str(user): key.hex() for user, key in known.items()}, directories.directory_digest(known).hex()
    if as_json:
        print(json.dumps({"users": len(keys), "digest": digest, "keys": keys}, indent=2))
        return
    for name, public in keys.items():
        print(public, name)
    print(f"{len(keys)} users, digest {digest}")


def _pairs(name: str, given: Sequence[str] | None) -> dict[str, str]:
    """`USER=VALUE` of a flag that may come often, each user once."""
    found: dict[str, str] = {}
    for text in given or ():
        user, equals, value = text.partition("=")
        if not (user and equals and value):
            raise UsageError(f"--{name} takes USER=KEY, not {text!r}")
        if user in found:
            raise UsageError(f"--{name} names user {user!r} twice")
        found[user] = value
    return found


def _with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Put a flag for every setting of the configuration where the command takes `**flags`."""
    written = inspect.signature(command, eval_str=True).parameters.values()
    first, *last = (one for one in written if one.kind is not inspect.Parameter.VAR_KEYWORD)
    settings = []
    kinds = fields_of()
    for setting in dataclasses.fields(TrainConfig):
        flag, default = setting.name.replace("_", "-"), setting.default
        given = [one for one in get_args(kinds[setting.name]) if one is not NoneType]
        many = "tuple" in str(kinds[setting.name])
        kind = str if many else kinds[setting.name] if default is not None else given[0]  # several numbers are a text
        shown = ",".join(map(str, default)) if isinstance(default, tuple) else default
        option = typer.Option(
            f"--{flag}/--no-{flag}" if kind is bool else f"--{flag}",
            *(["--range"] if setting.name == "value_range" else []),  # as the other commands call it
            help=setting.metadata["help"] + ("" if default in (None, "", ()) else f" [{shown}]"),
            rich_help_panel=setting.metadata["group"],
        )
        settings.append(
            inspect.Parameter(setting.name, inspect.Parameter.KEYWORD_ONLY, default=None,
                              annotation=Annotated[kind | None, option])
        )  # fmt: skip
    command.__signature__ = inspect.Signature([first, *settings, *last])  # type: ignore[attr-defined]
    return command


@app.command(cls=_Command, short_help="Train a model over many users, on this machine.")
@_with_settings
def train(
    config: Annotated[Path | None, typer.Argument(help="A TOML file of settings; flags override it.")] = None,
    *,
    plan_file: Annotated[
        Path | None,
        typer.Option(
            "--plan",
            help="Take users, levels, design and thresholds from the plan of this TOML file.",
            rich_help_panel="Users and plan",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run [runs/DATA-DESIGN-RULE-SEED]", rich_help_panel=_FILES)
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the run in this folder.", rich_help_panel=_FILES)
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print nothing while it runs.", rich_help_panel=_FILES)
    ] = False,
    brief: Annotated[
        bool, typer.Option("--brief", help="Print progress, but no table at the end.", rich_help_panel=_FILES)
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON summary for scripts.", rich_help_panel=_FILES)
    ] = False,
    **flags: Any,
) -> None:
    """Train a model over many users with secure aggregation between them, on this machine."""
    given = {name: value for name, value in flags.items() if value is not None}
    if resume is not None and (given or config or out or plan_file):
        raise UsageError("--resume goes on with a run as it was configured: give no other settings with it")
    planned = None if plan_file is None else _load_plan(plan_file)
    chosen = _training_settings(config, given, planned)
    _need("torch", "training")
    if planned is not None:
        from heterosag.training.models import count_parameters
        from heterosag.training.plan_settings import check_dimension

        check_dimension(planned, chosen.model, count_parameters(chosen.model, chosen.data))
    from heterosag.report.runs import compare_runs, summarise_run, watch
    from heterosag.storage.run_log import read_run
    from heterosag.training.runs import Run

    folder = (
        resume or out or Path("runs") / f"{chosen.data}-{chosen.design}-{chosen.rule}-{chosen.seed}".replace(":", "-")
    )
    run = Run.resume(folder) if resume is not None else Run(chosen, folder)
    try:
        with watch(run.config.rounds, run.rounds_done, silent=quiet or as_json) as progress:
            run.train(progress)
    except KeyboardInterrupt:
        print(
            f"heterosag: stopped after round {run.rounds_done}; go on with: heterosag train --resume {folder}",
            file=sys.stderr,
        )
        raise SystemExit(130) from None
    record = read_run(folder)
    if as_json:
        print(json.dumps({"run": str(folder), **summarise_run(record)}, indent=2))
    elif not quiet:
        from rich.console import Console

        console = Console(highlight=False)
        if not brief:
            console.print(compare_runs([record]))
        for words in filter(None, [_privacy_of(record.rounds), (record.end or {}).get("budget")]):
            console.print(words)
        console.print(f"run: {folder}")


def _training_settings(config: Path | None, given: dict[str, Any], planned: Plan | None) -> TrainConfig:
    """The settings of a file, of a plan, which overrides it, and of flags; what has no effect is refused."""
    named = {} if config is None else TrainConfig.named_in(_text_of(config))
    written = TrainConfig.from_dict(named)
    if planned is not None:
        from heterosag.training.plan_settings import PLANNED, settings_of

        for name in (*PLANNED, "cohort", "epsilon"):
            if name in given:
                raise UsageError(f"--{name.replace('_', '-')} cannot be given with --plan, which says it")
        named = named | settings_of(planned)
    chosen = TrainConfig.from_dict(named | given)
    for problem in (*written.without_effect(named), *chosen.without_effect(given)):
        raise UsageError(f"{problem}; leave it out")
    return chosen


def _privacy_of(rounds: Sequence[dict[str, Any]]) -> str | None:
    """What the last round's line claims."""
    spent = rounds[-1].get("privacy") if rounds else None
    return None if spent is None else f"privacy: {spent['statement']}"


def _need(module: str, extra: str) -> None:
    """Say which extra brings a module that is missing."""
    from importlib.util import find_spec

    for needed in (module, *({"sklearn"} if extra == "training" else ())):
        if find_spec(needed) is None:
            raise UsageError(f"this command needs {needed}: pip install 'heterosag[{extra}]'")


# --- from flags to plans ------------------------------------------------------------------------------------------


def _settings(flags: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `Plan.build` from a command's flags."""
    sizes = _integers("classes", flags["classes"])
    same = ("dimension", "design", "subgroup_size", "min_survivors", "max_weight", "min_robustness")
    more = ("min_block_survivors", "colluders", "assignment_seed", "sharing", "fill_levels", "ranges", "rotate")
    return {
        **{name: flags[name] for name in (*same, *more)},
        "classes": sizes,
        **_levels(flags, len(sizes)),
        "value_range": _range(flags["value_range"]),
        **({"dropout": flags["dropout"]} if flags.get("dropout") is not None else {}),
    }


def _range(text: str) -> ValueRange | float:
    """Two numbers, or the half width of a range around zero."""
    ends = _numbers("range", text)
    return ends[0] if len(ends) == 1 else tuple(ends)  # type: ignore[return-value]


def _levels(flags: dict[str, Any], classes: int) -> dict[str, Any]:
    """The levels by number, or what they are chosen from."""
    rates = _numbers("rates", flags["rates"]) if flags["rates"] else None
    chosen = {name: value for name, value in (("rates", rates), ("deadline", flags["deadline"])) if value is not None}
    if flags["levels"] != "auto":
        return {"levels": _integers("levels", flags["levels"]), **chosen}  # refused there: they would have no effect
    return {"levels": "auto", "rates": [2.0**index for index in range(classes)], **chosen}


def _build(settings: dict[str, Any]) -> Plan:
    from heterosag.plan import Plan

    return Plan.build(**settings)


def _given(context: typer.Context) -> list[str]:
    """The flags that stand on the command line."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]


def _load(path: Path, *, given: list[str]) -> Plan:
    """The plan of a file, which says it all: flags that would silently be ignored beside it are refused."""
    ignored = [name for name in given if name not in _BESIDE_A_PLAN_FILE]
    if ignored:
        flag = {"value_range": "range"}.get(ignored[0], ignored[0]).replace("_", "-")
        _fail(f"--{flag} cannot be given with --plan: change the value in the file instead")
    return _load_plan(path)


def _load_plan(path: Path) -> Plan:
    from heterosag.plan import Plan

    return Plan.from_toml(_text_of(path))


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from None


def _show_plans(plans: list[Plan], dropout: float | None, *, as_json: bool, side_by_side: bool) -> None:
    def found() -> dict[str, Any]:
        from heterosag.plan.summary import summarise

        summaries = [summarise(plan, dropout) for plan in plans]
        return {"plans": summaries} if side_by_side else summaries[0]

    def shown() -> RenderableType:
        from heterosag.report.plans import compare_plans, show_plan

        return compare_plans(plans, dropout) if side_by_side else show_plan(plans[0], dropout)

    _print(found, shown, as_json=as_json)


def _show_cohorts(settings: dict[str, Any], dropout: float | None, *, as_json: bool) -> None:
    from heterosag.plan import CohortPlan
    from heterosag.plan.summary import summarise_cohorts

    found = CohortPlan.build(**settings)

    def shown() -> RenderableType:
        from heterosag.report.plans import show_cohorts

        return show_cohorts(found, dropout)

    _print(lambda: summarise_cohorts(found, dropout), shown, as_json=as_json)


def _print(found: Callable[[], Any], shown: Callable[[], RenderableType], *, as_json: bool) -> None:
    """JSON for scripts, or what a person reads on a terminal."""
    if as_json:
        print(json.dumps(found(), indent=2))
        return
    from rich.console import Console

    Console(highlight=False).print(shown())


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise PlanError("save", f"cannot write {path}: {error}") from None


# --- from text to values ------------------------------------------------------------------------------------------


def _numbers(name: str, text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise PlanError(name, f"must be numbers with commas between them, not {text!r}") from None


def _integers(name: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise PlanError(name, f"must be integers with commas between them, such as 5,5,5; not {text!r}") from None


def _counts(text: str) -> dict[str, int]:
    """share=2,mask=5 as a mapping."""
    found: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        phase, _, count = part.partition("=")
        if not count.isdigit():
            raise UsageError(
                f"--drop takes phase=number with commas between them, such as share=2,mask=5; not {text!r}"
            )
        found[phase] = found.get(phase, 0) + int(count)
    return found
