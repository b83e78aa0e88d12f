"""`heterosag train`, `heterosag report` and `heterosag studio`: training runs, and what they came to."""

from __future__ import annotations

import dataclasses
import inspect
import json
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from heterosag.cli.application import Command, app
from heterosag.cli.options import FILES, Json, load_plan, text_of
from heterosag.cli.output import need_extra
from heterosag.errors import UsageError
from heterosag.training.config import TrainConfig, fields_of

if TYPE_CHECKING:
    from heterosag.plan import Plan

__all__ = ["report", "studio", "train"]


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


@app.command(cls=Command, short_help="Train a model over many users, on this machine.")
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
        Path | None, typer.Option(help="Folder of the run [runs/DATA-DESIGN-RULE-SEED]", rich_help_panel=FILES)
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the run in this folder.", rich_help_panel=FILES)
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing while it runs.", rich_help_panel=FILES)] = False,
    brief: Annotated[
        bool, typer.Option("--brief", help="Print progress, but no table at the end.", rich_help_panel=FILES)
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON summary for scripts.", rich_help_panel=FILES)
    ] = False,
    **flags: Any,
) -> None:
    """Train a model over many users with secure aggregation between them, on this machine."""
    given = {name: value for name, value in flags.items() if value is not None}
    if resume is not None and (given or config or out or plan_file):
        raise UsageError("--resume goes on with a run as it was configured: give no other settings with it")
    planned = None if plan_file is None else load_plan(plan_file)
    chosen = _training_settings(config, given, planned)
    need_extra("torch", "training")
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
        again = f"heterosag train --resume {shlex.quote(str(folder))}"
        print(
            f"heterosag: stopped after round {run.rounds_done}; go on with: {again}",
            file=sys.stderr,
        )
        raise SystemExit(130) from None
    record = read_run(folder)
    if as_json:
        print(json.dumps({"run": str(folder), **summarise_run(record)}, indent=2))
    elif not quiet:
        from rich.console import Console
        from rich.text import Text

        from heterosag.report.names import printable

        console = Console(highlight=False)
        if not brief:
            console.print(compare_runs([record], width=console.width))
        for words in filter(None, [_privacy_of(record.rounds), (record.end or {}).get("budget")]):
            console.print(Text(words))
        print(f"run: {printable(folder)}")
    errors = [line["error"]["message"] for line in record.rounds if line["error"] is not None]
    if errors and len(errors) == len(record.rounds):
        raise UsageError(f"no round of the run in {folder} succeeded; the last one ended so: {errors[-1]}")


def _training_settings(config: Path | None, given: dict[str, Any], planned: Plan | None) -> TrainConfig:
    """The settings of a file, of a plan, which overrides it, and of flags; what has no effect is refused."""
    named = {} if config is None else TrainConfig.named_in(text_of(config))
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


@app.command(cls=Command, short_help="Compare runs: a table, and a page with figures.")
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, or folders that have runs in them.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("report.html"),
    as_json: Json = False,
) -> None:
    """Compare runs: a table here, and one self-contained page with figures."""
    from heterosag.report.names import printable
    from heterosag.report.page import write_page
    from heterosag.report.runs import compare_runs, state_results, summarise_run
    from heterosag.storage.run_log import find_runs, read_run

    found = [read_run(folder) for named in runs for folder in find_runs(named)]
    begun = [run for run in found if run.rounds]
    write_page(begun or found, out)  # which refuses runs without a round, by name
    if len(begun) < len(found):
        empty = ", ".join(printable(run.folder) for run in found if not run.rounds)
        print(f"heterosag: left out, because no round is recorded: {empty}", file=sys.stderr)
    if as_json:
        print(json.dumps({"report": str(out), "runs": [summarise_run(run) for run in begun]}, indent=2))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    console.print(compare_runs(begun, width=console.width))
    if stated := state_results(begun):
        console.print(Text(stated))
    print(f"report: {printable(out)}")


@app.command(cls=Command, short_help="Serve a page to choose plans and watch runs.")
def studio(
    runs: Annotated[Path, typer.Argument(help="Folder whose runs are shown.")] = Path("runs"),
    port: Annotated[int, typer.Option(help="Port on this machine.")] = 8642,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Serve a page on this machine to choose a plan by looking at it, and to watch runs."""
    need_extra("uvicorn", "studio")
    from heterosag.studio.serve import serve

    if runs == Path("runs"):
        runs.mkdir(exist_ok=True)  # where training puts runs by itself
    serve(runs, port=port, open_page=open_page)
