"""What reproducing an item gives: verdicts, tables and plots as plain data.

An item's summary is one JSON file, and the pages and figures are made from these files alone: a number that stands on a
page stands in a summary, with the command, seed, scale and duration that gave it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from heterosag.errors import UsageError

__all__ = ["Holds", "Outcome", "Plot", "Scale", "Series", "Summary", "Table", "Verdict", "load", "save"]


class Scale(enum.StrEnum):
    """How much of the paper's sizes: `tiny` is for tests, `quick` for a quarter of an hour, `full` is all of it."""

    TINY = "tiny"
    QUICK = "quick"
    FULL = "full"


class Holds(enum.StrEnum):
    """Whether a claim came true."""

    YES = "holds"
    PARTLY = "partly"
    NO = "fails"

    @classmethod
    def of(cls, *parts: bool) -> Holds:
        """All, some or none of the parts of a claim."""
        return cls.YES if all(parts) else cls.PARTLY if any(parts) else cls.NO


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A claim, what the paper says of it, what was found, and whether it holds."""

    claim: str
    paper: str
    found: str
    holds: Holds
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of text."""

    name: str
    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line or row of bars of a plot; `panel` names the part of the figure that it belongs to."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    panel: str = ""
    dashed: bool = False
    points: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A figure as data.

    Kinds: lines; bars (x are places, `ticks` their names); matrix (`grid` holds the colour of each cell, `texts` what
    stands in it); heat (`grid` holds values); pictures (a row of `grid` is a square picture, `ticks` the captions).
    """

    name: str
    title: str
    kind: str
    x_label: str = ""
    y_label: str = ""
    series: tuple[Series, ...] = ()
    ticks: tuple[str, ...] = ()
    grid: tuple[tuple[float, ...], ...] = ()
    texts: tuple[tuple[str, ...], ...] = ()
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Everything that an item found. `values` are the numbers that tests and other pages ask for by name."""

    text: tuple[str, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    tables: tuple[Table, ...] = ()
    plots: tuple[Plot, ...] = ()
    values: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """An outcome, and how it came about."""

    item: str
    title: str
    place: str
    command: str
    seed: int
    scale: Scale
    duration_seconds: float
    outcome: Outcome


def save(summary: Summary, folder: Path) -> Path:
    """Write a summary; gives its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{summary.item}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(summary), indent=1) + b"\n")
    return path


def load(path: Path) -> Summary:
    """Read a summary."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Summary)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"{path} is not a summary of this program: {error}") from None
