"""The command line: `heterosag plan`.

Heavy imports happen inside the commands, so that `heterosag --help` stays quick.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from heterosag import __version__
from heterosag.errors import HeteroSagError, PlanError

if TYPE_CHECKING:
    from heterosag.plan import Plan

__all__ = ["app", "main"]

app = typer.Typer(
    help="Secure aggregation for federated learning on devices that are not all alike.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def main() -> None:
    """Run the command line; an error of ours is one line on standard error and exit code 2."""
    try:
        app(prog_name="heterosag")
    except HeteroSagError as error:
        _fail(str(error))
    except BrokenPipeError:
        sys.stderr.close()
        raise SystemExit(1) from None


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


@app.command()
def plan(
    classes: Annotated[str, typer.Option(help="Users per class, slowest link first: 5,5,5,5,5.")] = "5,5,5,5,5",
    levels: Annotated[str, typer.Option(help="Quantizer levels per class, never falling: 2,6,8,10,12.")] = "",
    dimension: Annotated[int, typer.Option(help="Elements of the update vector.")] = 79510,
    design: Annotated[str, typer.Option(help="perfect, paper, paper-composite, secagg or multigroup.")] = "perfect",
    subgroup_size: Annotated[int, typer.Option(help="Users a subgroup should have at least.")] = 5,
    value_range: Annotated[
        str, typer.Option("--range", help="Smallest and largest value; what lies outside is clipped.")
    ] = "-1,1",
    floor: Annotated[int, typer.Option(help="Least survivors of a block whose sum may be unmasked.")] = 3,
    dropout: Annotated[float | None, typer.Option(help="Share of users expected to vanish in a round.")] = None,
    weight_bound: Annotated[int, typer.Option(help="Largest weight of a user; 1 means unweighted.")] = 1,
    min_robustness: Annotated[
        float | None, typer.Option(help="Least inference robustness of a legal survivor set.")
    ] = None,
    colluders: Annotated[int, typer.Option(help="Users who may collude with the server.")] = 0,
    assignment_seed: Annotated[
        int | None, typer.Option(help="Public seed that shuffles the users of a class into subgroups.")
    ] = None,
    sharing: Annotated[str, typer.Option(help="Who holds shares: auto, complete or sparse.")] = "auto",
    fill_levels: Annotated[
        bool, typer.Option("--fill-levels", help="Raise levels as far as their rings hold, at no cost.")
    ] = False,
    plan_file: Annotated[
        Path | None, typer.Option("--plan", help="Show the plan of this TOML file instead of building one.")
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Write the plan to this TOML file.")] = None,
    compare: Annotated[
        str, typer.Option(help="Designs to show side by side instead, such as secagg,paper,perfect.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Build a plan and show what it costs and guarantees, before a single key exists."""
    from heterosag.plan import Plan

    sizes = _whole_numbers("classes", classes)
    settings: dict[str, Any] = {
        "classes": sizes,
        "levels": _whole_numbers("levels", levels) if levels else _default_levels(len(sizes)),
        "dimension": dimension,
        "value_range": _numbers("range", value_range),
        "subgroup_size": subgroup_size,
        "floor": floor,
        "weight_bound": weight_bound,
        "min_robustness": min_robustness,
        "colluders": colluders,
        "assignment_seed": assignment_seed,
        "dropout": 0.1 if dropout is None else dropout,
        "sharing": sharing,
        "fill_levels": fill_levels,
    }
    if plan_file is not None:
        _refuse_beside_plan()
        plans = [Plan.from_toml(_read(plan_file))]
    else:
        names = [name.strip() for name in compare.split(",")] if compare else [design]
        plans = [Plan.build(**settings, design=name) for name in names]
    if save is not None:
        _write(save, plans[0].to_toml())
    _show(plans, dropout, as_json=as_json, side_by_side=bool(compare))


def _default_levels(classes: int) -> list[int]:
    """The paper's levels for its five classes; one bit a value otherwise, until the user says more."""
    return [2, 6, 8, 10, 12] if classes == 5 else [2] * classes


def _show(plans: list[Plan], dropout: float | None, *, as_json: bool, side_by_side: bool) -> None:
    if as_json:
        from heterosag.report.plans import summarise

        summaries = [summarise(plan, dropout) for plan in plans]
        print(json.dumps({"plans": summaries} if side_by_side else summaries[0], indent=2))
        return
    from rich.console import Console

    from heterosag.report.terminal import compare_plans, show_plan

    Console(highlight=False).print(compare_plans(plans, dropout) if side_by_side else show_plan(plans[0], dropout))


def _refuse_beside_plan() -> None:
    """A plan file says it all: refuse flags that would silently be ignored."""
    import click

    context = click.get_current_context()
    allowed = {"plan_file", "save", "as_json", "dropout"}
    given = [
        name
        for name in context.params
        if name not in allowed and context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    ]
    if given:
        flag = {"value_range": "range"}.get(given[0], given[0]).replace("_", "-")
        _fail(f"--{flag} cannot be given with --plan: change the value in the file instead")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError("plan", f"cannot read {path}: {error}") from None


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise PlanError("save", f"cannot write {path}: {error}") from None


def _numbers(name: str, text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise PlanError(name, f"must be numbers with commas between them, not {text!r}") from None


def _whole_numbers(name: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise PlanError(name, f"must be whole numbers with commas between them, such as 5,5,5; not {text!r}") from None
