"""Flags that several commands share, and the plans that they describe."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heterosag.choices import DesignName, RangesName, SharingName
from heterosag.errors import PlanError, UsageError

if TYPE_CHECKING:
    from heterosag.plan import Plan
    from heterosag.vector.quantize import ValueRange

__all__ = [
    "FILES",
    "GUARANTEES",
    "PRIVACY",
    "USERS",
    "AssignmentSeed",
    "Classes",
    "Cohort",
    "Colluders",
    "Deadline",
    "Design",
    "Dimension",
    "FillLevels",
    "Json",
    "Levels",
    "MaxWeight",
    "MinBlockSurvivors",
    "MinRobustness",
    "MinSurvivors",
    "PlanFile",
    "Range",
    "Ranges",
    "Rates",
    "Rotate",
    "Save",
    "Sharing",
    "SubgroupSize",
    "build_plan",
    "flag_of",
    "given_flags",
    "load_only",
    "load_plan",
    "plan_settings",
    "read_range",
    "text_of",
]

USERS, GUARANTEES, PRIVACY, FILES = "Users and updates", "Guarantees", "Privacy", "Input and output"

Classes = Annotated[str, typer.Option(help="Users per class, slowest link first: 5,5,5,5,5.", rich_help_panel=USERS)]
Levels = Annotated[
    str,
    typer.Option(
        help="Quantizer levels per class, non-decreasing: 2,6,8,10,12; auto: as many as the rates carry in time.",
        rich_help_panel=USERS,
    ),
]
Rates = Annotated[
    str,
    typer.Option(
        help="Upload rate per class in Mb/s, for --levels auto (default: 1, doubled from class to class).",
        rich_help_panel=USERS,
    ),
]
Deadline = Annotated[
    float | None,
    typer.Option(
        help="Seconds for an upload, for --levels auto (default: what four levels take the slowest class).",
        rich_help_panel=USERS,
    ),
]
Dimension = Annotated[int, typer.Option(help="Elements of the update vector.", rich_help_panel=USERS)]
Design = Annotated[
    DesignName, typer.Option(help="Which subgroups code a segment together.", rich_help_panel=GUARANTEES)
]
SubgroupSize = Annotated[int, typer.Option(help="Users a subgroup should have at least.", rich_help_panel=GUARANTEES)]
Range = Annotated[
    str,
    typer.Option(
        "--range",
        "--value-range",
        help="Three standard deviations of a value, or the two ends: 0.1 or -1,1.",
        rich_help_panel=USERS,
    ),
]
MinSurvivors = Annotated[int, typer.Option(help="Least survivors of a subgroup.", rich_help_panel=GUARANTEES)]
MinBlockSurvivors = Annotated[
    int | None,
    typer.Option(
        help="Least survivors of a block whose sum may be unmasked (default: those of its subgroups).",
        rich_help_panel=GUARANTEES,
    ),
]
MaxWeight = Annotated[int, typer.Option(help="Largest weight of a user; 1 means unweighted.", rich_help_panel=USERS)]
MinRobustness = Annotated[
    float | None,
    typer.Option(help="Least inference robustness of an admissible survivor set.", rich_help_panel=GUARANTEES),
]
Colluders = Annotated[
    int | None,
    typer.Option(
        help="Users who may collude with the server (default: min-survivors - 2; 5% if sharing is sparse).",
        rich_help_panel=GUARANTEES,
    ),
]
AssignmentSeed = Annotated[
    int | None,
    typer.Option(help="Public seed that shuffles the users of a class into subgroups.", rich_help_panel=GUARANTEES),
]
Sharing = Annotated[SharingName, typer.Option(help="Who holds shares.", rich_help_panel=GUARANTEES)]
FillLevels = Annotated[
    bool,
    typer.Option(help="Raise levels as far as their rings hold, at no cost.", rich_help_panel=USERS),
]
Ranges = Annotated[
    RangesName,
    typer.Option(help="A range for every level, as is best for it, or a single one for all.", rich_help_panel=USERS),
]
Rotate = Annotated[
    bool, typer.Option(help="Spread every segment by a random rotation before it is quantized.", rich_help_panel=USERS)
]
Cohort = Annotated[
    int | None,
    typer.Option(
        help="Split users into cohorts of at most so many, each with a plan of its own.", rich_help_panel=GUARANTEES
    ),
]
PlanFile = Annotated[
    Path | None, typer.Option("--plan", help="Use the plan of this TOML file instead.", rich_help_panel=FILES)
]
Save = Annotated[Path | None, typer.Option(help="Write the plan to this TOML file.", rich_help_panel=FILES)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.", rich_help_panel=FILES)]

_LARGEST_RANGE = 10**9
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


# --- from flags to plans ------------------------------------------------------------------------------------------


def plan_settings(flags: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `Plan.build` from a command's flags."""
    sizes = _integers("classes", flags["classes"])
    same = ("dimension", "design", "subgroup_size", "min_survivors", "max_weight", "min_robustness")
    more = ("min_block_survivors", "colluders", "assignment_seed", "sharing", "fill_levels", "ranges", "rotate")
    return {
        **{name: flags[name] for name in (*same, *more)},
        "classes": sizes,
        **_levels(flags, len(sizes)),
        "value_range": read_range(flags["value_range"]),
        **({"dropout": flags["dropout"]} if flags.get("dropout") is not None else {}),
    }


def read_range(text: str) -> ValueRange | float:
    """Two numbers, or the half width of a range around zero."""
    ends = _numbers("range", text)
    if not all(abs(end) <= _LARGEST_RANGE for end in ends):
        raise PlanError("range", f"must be within {-_LARGEST_RANGE} and {_LARGEST_RANGE}, not {text!r}")
    return ends[0] if len(ends) == 1 else tuple(ends)  # type: ignore[return-value]


def _levels(flags: dict[str, Any], classes: int) -> dict[str, Any]:
    """The levels by number, or what they are chosen from."""
    rates = _numbers("rates", flags["rates"]) if flags["rates"] else None
    chosen = {name: value for name, value in (("rates", rates), ("deadline", flags["deadline"])) if value is not None}
    if flags["levels"] != "auto":
        return {"levels": _integers("levels", flags["levels"]), **chosen}  # refused there: they would have no effect
    return {"levels": "auto", "rates": [2.0**index for index in range(classes)], **chosen}


def build_plan(settings: dict[str, Any]) -> Plan:
    """The plan of the arguments of `Plan.build`, which is loaded only now."""
    from heterosag.plan import Plan

    return Plan.build(**settings)


def given_flags(context: typer.Context) -> list[str]:
    """The flags that stand on the command line."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]


def flag_of(name: str) -> str:
    """The flag that sets an argument of a command."""
    return "--" + {"value_range": "range", "from_run": "from"}.get(name, name).replace("_", "-")


def load_only(path: Path, *, given: list[str]) -> Plan:
    """The plan of a file, which says it all: flags that would silently be ignored beside it are refused."""
    ignored = [name for name in given if name not in _BESIDE_A_PLAN_FILE]
    if ignored:
        raise UsageError(f"{flag_of(ignored[0])} cannot be given with --plan: change the value in the file instead")
    return load_plan(path)


def load_plan(path: Path) -> Plan:
    """The plan of a TOML file."""
    from heterosag.plan import Plan

    return Plan.from_toml(text_of(path))


def text_of(path: Path) -> str:
    """The text of a file, or an error that says why it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None


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
