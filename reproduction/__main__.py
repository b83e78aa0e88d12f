"""`python -m reproduction`: the paper's examples, theorems, tables and figures, each claim judged."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from heterosag.errors import HeteroSagError

__all__ = ["main"]

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def reproduce(
    items: Annotated[list[str] | None, typer.Argument(help="Items of the paper, or all; see --list.")] = None,
    show_list: Annotated[bool, typer.Option("--list", help="Name every item, with an estimate.")] = False,
    scale: Annotated[str, typer.Option(help="quick (all within a quarter of an hour) or full (the paper's sizes).")] = (
        "quick"
    ),
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for records, summaries, figures, tables, page.")] = (
        Path("runs/reproduction")
    ),
    data_dir: Annotated[str, typer.Option(help="Folder of MNIST and CIFAR-10 (or set HETEROSAG_DATA).")] = "",
    seed: Annotated[int, typer.Option(help="Seed of everything random but the secrets.")] = 0,
    workers: Annotated[int, typer.Option(help="Processes for the users' cryptography.")] = 2,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RUN", help="Only train runs SETTING/seed-N that begin so, and judge nothing; repeatable."
        ),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="Rounds of every run that has so many, instead of its budget.")
    ] = None,
    as_it_is: Annotated[
        bool, typer.Option("--as-it-is", help="Train nothing: judge the runs that have the rounds wanted.")
    ] = False,
    records: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Take runs from its records instead of training them, and add those trained."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Re-create the paper's examples, theorems, tables and figures, and judge each claim."""
    from reproduction import command

    if show_list:
        command.show_items(as_json=as_json)
    elif not items:
        _fail("name items of the paper, or all; python -m reproduction --list shows them")
    else:
        command.run(
            items,
            scale=scale,
            out=out,
            data_dir=data_dir,
            seed=seed,
            workers=workers,
            as_json=as_json,
            only=only or (),
            as_it_is=as_it_is,
            rounds=rounds,
            records=records,
        )


def main() -> None:
    """Run the command; an error of ours is one line on standard error and exit code 2."""
    try:
        typer.main.get_command(app)(prog_name="python -m reproduction")
    except HeteroSagError as error:
        _fail(str(error))


def _fail(problem: str) -> None:
    print(f"reproduction: {problem}", file=sys.stderr)
    raise SystemExit(2)


if __name__ == "__main__":
    main()
