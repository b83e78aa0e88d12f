"""The pages: made from summaries alone, as Markdown and as one self-contained HTML file; tables also as CSV."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from heterosag.report.templates import render, write
from reproduction import figures
from reproduction.outcome import Holds, Summary, Table, Verdict

__all__ = ["html", "lead", "markdown", "sizes", "write_all"]


_HOW = """<!-- not run: takes minutes to hours -->
```sh
python -m reproduction --list                                # every item, with an estimate
python -m reproduction all --data-dir DATA                   # quick: all of it in a quarter of an hour
python -m reproduction experiment-1 --scale full --data-dir DATA   # the paper's own sizes, resumable
```

DATA holds MNIST (the four idx files) and CIFAR-10 (its binary batches). Without it quick runs fall back to the embedded
digits and say so, and full ones end with an error that names what is missing. A run that was stopped goes on from its
last checkpoint. *Quick* keeps the shape of an experiment with fewer samples, users and rounds; each item below says
what was run."""


def lead(summaries: Sequence[Summary]) -> str:
    """How many claims came true: the paper's and ours apart, and only what was judged."""
    verdicts = [verdict for summary in summaries for verdict in summary.outcome.verdicts]
    ours = [verdict for verdict in verdicts if verdict.ours]
    theirs = [verdict for verdict in verdicts if not verdict.ours]
    own = f" Of our own {_count(ours)}." if ours else ""
    return f"{len(summaries)} items. Of the paper's claims {_count(theirs)}.{own}"


def _count(verdicts: Sequence[Verdict]) -> str:
    count = Counter(verdict.holds for verdict in verdicts)
    judged = count.total() - count[Holds.NOT_JUDGED]
    return (
        f"{judged} were judged: {count[Holds.YES]} hold, {count[Holds.PARTLY]} hold partly, {count[Holds.NO]} fail"
        + (f"; {count[Holds.NOT_JUDGED]} could not be judged" if count[Holds.NOT_JUDGED] else "")
    )


def sizes(summary: Summary) -> str:
    """The runs behind an item, with their users, samples, rounds and seeds; empty where nothing was trained."""
    kinds = Counter((run.users, run.samples, run.rounds, run.seeds) for run in summary.outcome.runs)
    words = [
        f"{count} settings of {users} users, {samples:,} samples, {rounds} rounds, "
        + (f"{seeds} seeds" if seeds > 1 else "one seed")
        for (users, samples, rounds, seeds), count in kinds.items()
    ]
    return f"Training runs: {'; '.join(words)}." if words else ""


def markdown(summaries: Sequence[Summary], pictures: str = "figures") -> str:
    """The page as Markdown, its figures in the folder `pictures`."""
    parts = [
        "# The paper, reproduced",
        "`python -m reproduction` re-creates the evaluation of the HeteroSAg paper and says of each claim whether it "
        "holds. Every number below comes from the summaries beside this page.",
        _HOW,
        lead(summaries),
        "## Verdicts",
        _markdown_table(
            ("item", "claim", "paper", "found", "verdict"),
            [
                (
                    f"[{summary.item}](#{_anchor(summary.title)})",
                    verdict.claim,
                    verdict.paper,
                    verdict.found + (f" ({verdict.note})" if verdict.note else ""),
                    f"**{verdict.holds.value}**",
                )
                for summary in summaries
                for verdict in summary.outcome.verdicts
            ],
        ),
    ]
    for summary in summaries:
        parts.append(f"## {summary.title}")
        parts.append(
            f"{summary.place}. `{summary.command}`, seed {summary.seed}, scale {summary.scale.value}, "
            f"{summary.duration_seconds:.0f} s."
        )
        parts += [sizes(summary)] if summary.outcome.runs else []
        parts += summary.outcome.text
        parts += [f"![{plot.title}]({pictures}/{summary.item}-{plot.name}.svg)" for plot in summary.outcome.plots]
        for table in summary.outcome.tables:
            parts += [f"**{table.title}**", _markdown_table(table.head, table.rows)]
    return "\n\n".join(parts) + "\n"


def _anchor(title: str) -> str:
    """The anchor that Markdown viewers give a heading."""
    kept = "".join(character for character in title.lower() if character.isalnum() or character in " -_")
    return kept.replace(" ", "-")


def _markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def html(summaries: Sequence[Summary]) -> str:
    """The page as one HTML file."""
    drawn = {}
    for summary in summaries:
        pairs = [(plot.title, figures.svg(plot)) for plot in summary.outcome.plots]
        drawn[summary.item] = [(title, text[text.index("<svg") :]) for title, text in pairs]
    template = Path(__file__).with_name("page.html")
    return render(template, summaries=summaries, figures=drawn, lead=lead(summaries), sizes=sizes)


def _csv(table: Table) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([table.head, *table.rows])
    return out.getvalue()


def write_all(summaries: Sequence[Summary], folder: Path) -> Path:
    """Write pages, figures (SVG, PNG) and tables (Markdown, CSV) into a folder; gives the HTML page's path."""
    for summary in summaries:
        for plot in summary.outcome.plots:
            place = folder / "figures" / f"{summary.item}-{plot.name}"
            write(place.with_name(place.name + ".svg"), figures.svg(plot))
            place.with_name(place.name + ".png").write_bytes(figures.png(plot))
        for table in summary.outcome.tables:
            place = folder / "tables" / f"{summary.item}-{table.name}"
            write(place.with_name(place.name + ".csv"), _csv(table))
            write(place.with_name(place.name + ".md"), _markdown_table(table.head, table.rows) + "\n")
    write(folder / "reproduction.md", markdown(summaries))
    page = folder / "reproduction.html"
    write(page, html(summaries))
    return page
