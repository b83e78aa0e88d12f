"""The pages: made from summaries alone, as Markdown and as one self-contained HTML file; tables also as CSV.

The Markdown is an overview with every verdict, and a page for each part of the paper.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from heterosag.report.templates import render, write
from reproduction import figures
from reproduction.outcome import Holds, Outcome, Plot, Summary, Table, Verdict
from reproduction.parts import FIGURES, PARTS, Part

__all__ = ["caption", "html", "lead", "markdown", "of_part", "sizes", "took", "write_all", "write_pages"]

_TITLE = "The paper, reproduced"

_HOW = """<!-- not run: takes minutes to hours -->
```sh
# every item, with an estimate
python -m reproduction --list
# quick: all of it in a quarter of an hour
python -m reproduction all --data-dir DATA
# the paper's own sizes, resumable; a single run of them; what has 50 rounds so far
python -m reproduction experiment-1 --scale full --data-dir DATA
python -m reproduction experiment-1 --scale full --data-dir DATA --only none/seed-1
python -m reproduction experiment-1 --scale full --data-dir DATA --as-it-is --rounds 50
# without training runs that are kept as records: those behind these pages are in reproduction/records
python -m reproduction experiment-1 --scale full --data-dir DATA --records reproduction/records
```

DATA holds MNIST (the four idx files) and CIFAR-10 (its binary batches). Without it quick runs fall back to the embedded
digits and say so, and full ones end with an error that names what is missing. A run that was stopped goes on from its
last checkpoint. *Quick* keeps the shape of an experiment with fewer samples, users and rounds; each item says what was
run, and in which settings it differs from the paper."""

READING = (
    "A verdict is *holds*, *partly* (a part of the claim does, or it does only under conditions that it leaves out), "
    "*fails* (a statement about all cases fails with the first counterexample), or *not judged* (what was run cannot "
    "tell: models that nothing disturbs have to reach twice the accuracy of guessing).",
    "Test accuracy *at the end* is the mean over the last tenth of a run's rounds. Where there are several seeds it is "
    "the mean over the seeds, with the least and the largest in brackets and as a band in figures; differences are "
    "taken seed by seed. A seed decides data split, initial model, order of samples, attackers and rounding. Verdicts "
    "are judged on means. At full scale every accuracy that a verdict rests on is to have three seeds, on CIFAR-10 one "
    "at the paper's sizes and three at a smaller one; each item says how many were run. Quick runs of the "
    "experiments have one seed.",
)
"""How the pages are to be read."""


def lead(summaries: Sequence[Summary]) -> str:
    """How many claims came true: the paper's and ours apart, and only what was judged."""
    theirs, ours = _verdicts(summaries)
    own = f" Of our own {_count(_once(ours))}." if ours else ""
    return f"{len(summaries)} items. Of the paper's claims {_count(theirs)}.{own}"


def _verdicts(summaries: Sequence[Summary]) -> tuple[list[Verdict], list[Verdict]]:
    """The verdicts on the paper's claims, and those on ours."""
    verdicts = [verdict for summary in summaries for verdict in summary.outcome.verdicts]
    return [verdict for verdict in verdicts if not verdict.ours], [verdict for verdict in verdicts if verdict.ours]


def _once(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Claims that several items check, each with its worst verdict."""
    order = (Holds.NOT_JUDGED, Holds.YES, Holds.PARTLY, Holds.NO)
    return list({one.claim: one for one in sorted(verdicts, key=lambda one: order.index(one.holds))}.values())


def _count(verdicts: Sequence[Verdict]) -> str:
    count = Counter(verdict.holds for verdict in verdicts)
    judged = count.total() - count[Holds.NOT_JUDGED]
    kinds = ((Holds.YES, "hold", ""), (Holds.PARTLY, "hold", " partly"), (Holds.NO, "fail", ""))
    return (
        f"{judged} {'was' if judged == 1 else 'were'} judged: "
        + ", ".join(f"{count[kind]} {verb}{'s' * (count[kind] == 1)}{how}" for kind, verb, how in kinds)
        + (f"; {count[Holds.NOT_JUDGED]} could not be judged" if count[Holds.NOT_JUDGED] else "")
    )


def sizes(outcome: Outcome) -> str:
    """The runs behind an item, with their users, samples, rounds and seeds; empty where nothing was trained."""
    kinds = Counter((run.users, run.samples, run.rounds, run.seeds) for run in outcome.runs)
    words = [
        f"{count} setting{'s' if count > 1 else ''} of {users} users, {samples:,} samples, "
        f"{rounds} round{'s' if rounds > 1 else ''}, " + (f"{seeds} seeds" if seeds > 1 else "one seed")
        for (users, samples, rounds, seeds), count in kinds.items()
    ]
    return f"{'; '.join(words)}.{_commits(outcome)}" if words else ""


def _commits(outcome: Outcome) -> str:
    """Between which commits the runs of an item were trained, if all of them name theirs."""
    begun = [time for run in outcome.runs for time in (run.oldest, run.newest)]
    if not all(version for _, version in begun):
        return ""
    first, last = (f"{version} ({time[:10]})" for time, version in (min(begun), max(begun)))
    return f" Trained on the commits of {first} to {last}; the records of the runs name each."


def took(summary: Summary) -> str:
    """How long an item took, or of one that was judged from records its training, and the commit if that is known."""
    of_training = " of training" if "--records" in summary.command else ""
    commit = f", commit {summary.commit}" if summary.commit else ""
    return f"{summary.duration_seconds:,.0f} s{of_training}{commit}"


def caption(item: str, plot: Plot) -> str:
    """What stands below a figure: the paper's figure that it stands beside, and what a band is."""
    beside = FIGURES.get(f"{item}-{plot.name}")
    band = "; bands are the least and the largest of the seeds" if any(one.low for one in plot.series) else ""
    return f"{plot.title} ({f'{beside} of the paper' if beside else 'not in the paper'}{band})"


def of_part(part: Part, summaries: Sequence[Summary]) -> list[Summary]:
    """The summaries of a part's items, in the part's order."""
    known = {summary.item: summary for summary in summaries}
    return [known[item] for item in part.items if item in known]


def markdown(summaries: Sequence[Summary], pictures: str = "figures") -> dict[str, str]:
    """The pages as Markdown by their paths: the overview and a page a part; figures are in the folder `pictures`."""
    shown = [(part, found) for part in PARTS if (found := of_part(part, summaries))]
    pages = {"reproduction.md": _overview(summaries, shown)}
    for part, found in shown:
        pages[f"reproduction/{part.name}.md"] = _page(part, found, f"../{pictures}")
    return {path: "\n\n".join(paragraphs) + "\n" for path, paragraphs in pages.items()}


def _overview(summaries: Sequence[Summary], shown: Sequence[tuple[Part, list[Summary]]]) -> list[str]:
    rows = []
    for part, found in shown:
        theirs, ours = (Counter(verdict.holds for verdict in kind) for kind in _verdicts(found))
        counts = [str(theirs[kind] or "") for kind in Holds]
        rows.append((f"[{part.title}](reproduction/{part.name}.md)", part.place, *counts, _own(ours)))
    parts = [
        f"# {_TITLE}",
        "`python -m reproduction` re-creates the evaluation of the HeteroSAg paper and says of each claim whether it "
        "holds. Every number comes from the summaries beside these pages.",
        lead(summaries),
        _markdown_table(("part", "in the paper", *(kind.value for kind in Holds), "our own claims"), rows),
        _HOW,
        *READING,
        "## Verdicts",
        "What was found, and how it was judged, stands on the page of each part.",
    ]
    for part, found in shown:
        parts.append(f"### {part.title}")
        lines = [
            (
                f"**{verdict.holds.value}**",
                verdict.claim,
                verdict.paper,
                f"[{summary.item}](reproduction/{part.name}.md#{_anchor(summary.title)})",
            )
            for summary in found
            for verdict in summary.outcome.verdicts
        ]
        parts.append(_markdown_table(("verdict", "claim", "the paper says", "item"), lines))
    return parts


def _own(count: Counter[Holds]) -> str:
    return ", ".join(f"{count[kind]} {kind.value}" for kind in Holds if count[kind])


def _page(part: Part, found: Sequence[Summary], pictures: str) -> list[str]:
    """A part's page, item by item."""
    lines = [
        f"# {part.title}",
        f"{part.place} of the paper. Of its claims {_count(_verdicts(found)[0])}. "
        f"[{_TITLE}](../reproduction.md) says how verdicts and figures are to be read.",
    ]
    for summary in found:
        outcome = summary.outcome
        lines.append(f"## {summary.title}")
        lines.append(
            f"{summary.place}. `{summary.command}`, seed {summary.seed}, scale {summary.scale.value}, {took(summary)}."
        )
        lines += [f"**Differs from the paper:** {outcome.differs}"] if outcome.differs else []
        lines += [f"**Training runs:** {sizes(outcome)}"] if outcome.runs else []
        if outcome.verdicts:
            lines.append(
                _markdown_table(
                    ("verdict", "claim", "the paper says", "found"),
                    [
                        (
                            f"**{verdict.holds.value}**",
                            verdict.claim,
                            verdict.paper,
                            verdict.found + (f" ({verdict.note})" if verdict.note else ""),
                        )
                        for verdict in outcome.verdicts
                    ],
                )
            )
        lines += outcome.text
        for plot in outcome.plots:
            words = caption(summary.item, plot)
            lines += [f"![{words}]({pictures}/{summary.item}-{plot.name}.svg)", f"*{words}.*"]
        for table in outcome.tables:
            lines += [f"**{table.title}**", _markdown_table(table.head, table.rows)]
    return lines


def _anchor(title: str) -> str:
    """The anchor that Markdown viewers give a heading."""
    kept = "".join(character for character in title.lower() if character.isalnum() or character in " -_")
    return kept.replace(" ", "-")


def _markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def html(summaries: Sequence[Summary]) -> str:
    """The pages as one HTML file."""
    drawn = {}
    for summary in summaries:
        pairs = [(caption(summary.item, plot), figures.svg(plot)) for plot in summary.outcome.plots]
        drawn[summary.item] = [(words, text[text.index("<svg") :]) for words, text in pairs]
    shown = [(part, found) for part in PARTS if (found := of_part(part, summaries))]
    template = Path(__file__).with_name("page.html")
    return render(template, parts=shown, figures=drawn, lead=lead(summaries), sizes=sizes, took=took, reading=READING)


def _csv(table: Table) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([table.head, *table.rows])
    return out.getvalue()


def write_pages(summaries: Sequence[Summary], folder: Path, pictures: str = "figures") -> None:
    """Write the Markdown pages into a folder; those of parts that have no item any more are removed."""
    pages = markdown(summaries, pictures)
    for old in (folder / "reproduction").glob("*.md"):
        if f"reproduction/{old.name}" not in pages:
            old.unlink()
    for path, text in pages.items():
        write(folder / path, text)


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
    write_pages(summaries, folder)
    page = folder / "reproduction.html"
    write(page, html(summaries))
    return page
