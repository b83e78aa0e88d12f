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

__all__ = [
    "OURS",
    "Holds",
    "Outcome",
    "Plot",
    "Scale",
    "Series",
    "Summary",
    "Table",
    "Trained",
    "Verdict",
    "load",
    "save",
]


class Scale(enum.StrEnum):
    """How much of the paper's sizes: `tiny` is for tests, `quick` for a quarter of an hour, `full` is all of it."""

    TINY = "tiny"
    QUICK = "quick"
    FULL = "full"


class Holds(enum.StrEnum):
    """Whether a claim came true; `NOT_JUDGED` where what was run cannot tell."""

    YES = "holds"
    PARTLY = "partly"
    NO = "fails"
    NOT_JUDGED = "not judged"

    @classmethod
    def of(cls, *parts: bool, judged: bool = True) -> Holds:
        """All, some or none of the parts of a claim, if it can be judged at all."""
        if not judged:
            return cls.NOT_JUDGED
        return cls.YES if all(parts) else cls.PARTLY if any(parts) else cls.NO


OURS = "(ours)"
"""What stands in the place of the paper's words where a claim is ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A claim, what the paper says of it (`OURS` where it is not the paper's), what was found, and the verdict."""

    claim: str
    paper: str
    found: str
    holds: Holds
    note: str = ""

    @property
    def ours(self) -> bool:
        """Whether the claim is ours, and not the paper's."""
        return self.paper == OURS


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of text."""

    name: str
    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line or row of bars of a plot; `panel` names the part of the figure that it belongs to.

    `low` and `high`, where there are some, are the ends of the interval around every point.
    """

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    panel: str = ""
    dashed: bool = False
    points: bool = False
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


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
class Trained:
    """Training runs behind an item, one a seed: how many users, training samples and rounds each of them had.

    `oldest` and `newest` are the time and the version of the first and the last run to begin, if versions name commits.
    """

    name: str
    users: int
    samples: int
    rounds: int
    seeds: int = 1
    oldest: tuple[str, str] = ("", "")
    newest: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Everything that an item found.

    `values` are the numbers that tests and other pages ask for by name, `differs` says in one line which settings are
    not the paper's.
    """

    text: tuple[str, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    tables: tuple[Table, ...] = ()
    plots: tuple[Plot, ...] = ()
    values: dict[str, float] = field(default_factory=dict)
    runs: tuple[Trained, ...] = ()
    differs: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """An outcome, and how it came about; `commit` is that of the code, if it is known and no kept runs were judged."""

    item: str
    title: str
    place: str
    command: str
    seed: int
    scale: Scale
    duration_seconds: float
    outcome: Outcome
    commit: str = ""


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
