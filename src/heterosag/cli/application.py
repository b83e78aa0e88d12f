"""The program: its commands in the order of use, their help, and how an error ends it.

Everything goes through typer: newer versions carry a copy of click, so click itself is not to be imported here.
"""

from __future__ import annotations

import inspect
import sys
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from heterosag import __version__
from heterosag.errors import HeteroSagError

__all__ = ["EXAMPLES", "Command", "app", "fail", "main"]

_ORDER = ("train", "optimize", "plan", "round", "report", "studio", "identity", "directory")  # as one uses them

EXAMPLES = {
    "train": (
        "heterosag train",
        "heterosag train --rule median --attack label-flip --attackers 2 --dropout 0.1",
        "heterosag train --plan p.toml --rounds 30 --out runs/mine",
    ),
    "optimize": (
        "heterosag optimize --rates 0.5x20,2x40,8x36 --deadline 1",
        "heterosag optimize --rates l.csv --deadline 2 --dimension 3610 --save p.toml",
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

_Misuse: type[Exception] = typer.BadParameter.__mro__[1]  # click's UsageError, of the click that typer uses


class _Commands(TyperGroup):
    """The commands in the order in which one uses them."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command; for one that there is not, what was meant, once: typer 0.20 says it, and click 8.5 too."""
        try:
            return super().resolve_command(ctx, args)
        except _Misuse as error:
            said: Any = error
            if getattr(said, "possibilities", None):
                said.message = said.message.partition(" Did you mean ")[0]
            raise

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for name in _ORDER if name in super(_Commands, self).list_commands(ctx)]


app = typer.Typer(
    cls=_Commands,
    help="Secure aggregation for federated learning on heterogeneous clients.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def main() -> None:
    """Run the command line; an error of ours, or a process of ours that ended, is one line on standard error and
    exit code 2."""
    try:
        typer.main.get_command(app)(prog_name="heterosag")
    except (HeteroSagError, ChildProcessError) as error:
        fail(str(error))
    except BrokenPipeError:
        sys.stderr.close()
        raise SystemExit(1) from None


class Command(TyperCommand):
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
        """The help without escapes."""
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


def fail(problem: str) -> NoReturn:
    """End the program with one line on standard error and exit code 2."""
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
