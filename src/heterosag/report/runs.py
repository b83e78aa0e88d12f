"""Training runs on a terminal: progress while they run, a summary and a comparison afterwards."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from heterosag.report.names import printable
from heterosag.storage.run_log import RunRecord

__all__ = ["compare_runs", "count_failed_cohorts", "state_results", "summarise_run", "summary_rows", "watch"]

Watcher = Callable[[dict[str, Any]], None]

_CONFIG = ("data", "design", "rule", "attack", "attackers", "secure", "classes")
_ROUNDS = (
    "accuracy", "missed_deadline", "round_seconds", "privacy.delta", "privacy.epsilon_model", "privacy.epsilon_server",
    "privacy.simulated", "privacy.honest", "privacy.clipping_norm", "privacy.error_in_clipping_norms",
)  # fmt: skip
_GOOD_ROUNDS = (
    "aggregate_error", "faulty_blocks", "inference_robustness", "refusals", "sent_bytes", "server_seconds", "survivors",
    "user_seconds",
)  # fmt: skip


@contextmanager
def watch(rounds: int, done: int = 0, *, silent: bool = False) -> Iterator[Watcher]:
    """A progress display to be called with every round's line: a bar on a terminal, plain lines elsewhere.

    Args:
        rounds: How many there will be.
        done: How many have been before.
        silent: Show nothing.

    Yields:
        A function to call with every round's line.
    """
    if silent:
        yield _say_nothing
        return
    if not sys.stdout.isatty():
        yield lambda line: print(_words(line, rounds), flush=True)
        return
    columns = (
        TextColumn("round {task.completed}/{task.total}"),
        BarColumn(),
        TextColumn("{task.fields[words]}", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(highlight=False)) as progress:
        task = progress.add_task("training", total=rounds, completed=done, words="")
        yield lambda line: progress.update(task, completed=line["round"], words=_state(line))


def _say_nothing(line: dict[str, Any]) -> None:
    del line


def _state(line: dict[str, Any]) -> str:
    accuracy = "accuracy unknown" if line["accuracy"] is None else f"accuracy {line['accuracy']:.3f}"
    if line["error"] is not None:
        return f"{accuracy}, {line['error']['kind']}: {line['error']['message']}"
    spent = f", epsilon {line['privacy']['epsilon_server']:.2f}" if "privacy" in line else ""
    failed = line.get("failed_cohorts")
    lost = f", cohort {', '.join(failed)} failed" if failed else ""
    clipped = f"; {line['clipping_warning']}" if line.get("clipping_warning") else ""
    return f"{accuracy}, {_sent(line)} a user, {line['survivors']} survivors{lost}{spent}{clipped}"


def _words(line: dict[str, Any], rounds: int) -> str:
    return f"round {line['round']}/{rounds}: {_state(line)}"


def _sent(line: dict[str, Any]) -> str:
    """kB that a user sent in a round, all phases together: from the class that sends least to that which sends most."""
    found = [_sent_by(line, index) for index in range(len(next(iter(line["sent_bytes"].values()), ())))]
    known = [f"{size / 1000:.1f}" for size in sorted(size for size in found if size is not None)]
    return f"{' to '.join(dict.fromkeys((known[0], known[-1])))} kB" if known else "0 kB"


def _sent_by(line: dict[str, Any], user_class: int) -> float | None:
    """Bytes of a user of a class in a round, None where nobody of it survived."""
    sizes = [sizes[user_class] for sizes in line["sent_bytes"].values()]
    return None if all(size is None for size in sizes) else sum(size or 0.0 for size in sizes)


def summarise_run(run: RunRecord) -> dict[str, Any]:
    """What a run came to, in JSON types.

    Args:
        run: A record; it may go on still.

    Returns:
        What `heterosag report --json` prints.

    Raises:
        UsageError: The record does not say what a summary needs.
    """
    run.require(config=_CONFIG, rounds=_ROUNDS, good_rounds=_GOOD_ROUNDS)
    good = [line for line in run.rounds if line["error"] is None]
    classes = len(run.config["classes"])
    sent = []
    for index in range(classes):
        known = [size for line in good if (size := _sent_by(line, index)) is not None]
        sent.append(sum(known) / max(len(known), 1))
    judged = [line["accuracy"] for line in run.rounds if line["accuracy"] is not None]
    measured = [line for line in good if line["aggregate_error"] is not None]
    errors = [line["aggregate_error"] for line in measured]
    relative = [line["aggregate_error"] / line["aggregate_rms"] for line in measured if line.get("aggregate_rms")]
    robustness = [line["inference_robustness"] for line in good if line["inference_robustness"] is not None]
    spent = {who: sum(sum(line[f"{who}_seconds"].values()) for line in good) for who in ("user", "server")}
    return {
        "name": printable(run.name),
        "data": run.config["data"],
        "design": run.config["design"],
        "rule": run.config["rule"],
        "attack": run.config["attack"],
        "attackers": run.config["attackers"],
        "secure": run.config["secure"],
        "engine": run.config.get("engine", "embedded"),
        "finished": run.end is not None,
        "rounds": len(run.rounds),
        "failed_rounds": len(run.rounds) - len(good),
        "cohorts": len(run.plan["cohorts"]) if "cohorts" in run.plan else 1,
        "failed_cohorts": count_failed_cohorts(run),
        "accuracy": judged[-1] if judged else None,
        "best_accuracy": max(judged, default=None),
        "mean_survivors": sum(line["survivors"] for line in good) / max(len(good), 1),
        "missed_deadline": sum(line["missed_deadline"] for line in run.rounds),
        "faulty_blocks": sum(line["faulty_blocks"] for line in good),
        "refusals": sum(line["refusals"] for line in good),
        "trips": [line["trips"] for line in run.rounds if "trips" in line] or None,
        "aggregate_error": sum(errors) / len(errors) if errors else None,
        "relative_error": sum(relative) / len(relative) if relative else None,
        "inference_robustness": min(robustness, default=None),
        "rates": run.config.get("rates"),
        "sent_bytes": sent,
        "communication_seconds": sum(line["round_seconds"] for line in run.rounds),
        "wire_bytes": sum(sum(line["wire_bytes"].values()) for line in run.rounds if "wire_bytes" in line) or None,
        "ledger": next((line["ledger"] for line in reversed(run.rounds) if line.get("ledger")), None),
        "protocol_seconds": spent,
        "privacy": next((line["privacy"] for line in reversed(run.rounds) if "privacy" in line), None),
    }


def count_failed_cohorts(run: RunRecord) -> dict[str, int]:
    """In how many rounds each cohort failed that did; its users had no part in those.

    Args:
        run: A record.

    Returns:
        Rounds by the cohort's index, as text.
    """
    found = Counter(index for line in run.rounds for index in line.get("failed_cohorts", {}))
    return {index: found[index] for index in sorted(found, key=int)}


def summary_rows(summaries: Sequence[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    """What runs are compared by: the name of a row, and a cell a run. The terminal and the page show the same.

    Args:
        summaries: What `summarise_run` returned.

    Returns:
        The rows, without those that have nothing to say of any run.
    """
    rows: list[tuple[str, Callable[[dict[str, Any]], str]]] = [
        ("accuracy at the end", lambda s: _percent(s["accuracy"])),
        ("best accuracy", lambda s: _percent(s["best_accuracy"])),
        ("communication time", _time),
        ("kB a round, slowest class first", _kilobytes),
        ("error of the aggregate", _error),
        ("design, rule", lambda s: f"{s['design']}, {s['rule']}"),
        ("attack", _attack),
        ("rounds (failed)", lambda s: f"{s['rounds']} ({s['failed_rounds']})"),
        ("survivors a round", lambda s: f"{s['mean_survivors']:.1f}"),
        ("missed the deadline", lambda s: _count(s["missed_deadline"])),
        ("faulty blocks left out", lambda s: _count(s["faulty_blocks"])),
        ("messages refused", lambda s: _count(s["refusals"])),
        ("trips of each round", _trips),
        ("inference robustness", lambda s: _number(s["inference_robustness"])),
        ("all that Flower carried", _wire),
        ("users isolated by comparing rounds, at most", _shown),
        ("cryptography: users, server", _cryptography),
    ]
    if any(summary["cohorts"] > 1 for summary in summaries):
        rows.append(("cohorts (failed)", _cohorts))
    if any(summary["privacy"] for summary in summaries):
        rows.append(("epsilon: all sums, models only", _epsilons))
        rows.append(("honest survivors of a block, clipping norm, error in clipping norms", _noise))
    shown = [(name, [cell(summary) for summary in summaries]) for name, cell in rows]
    return [(name, cells) for name, cells in shown if set(cells) != {"-"}]


def compare_runs(runs: Sequence[RunRecord], *, width: int | None = None) -> Table:
    """Runs side by side.

    Args:
        runs: Any records.
        width: Of the terminal: where all words fit, none is broken in two.

    Returns:
        A table of rich.
    """
    found = [summarise_run(run) for run in runs]
    rows = [("", *(summary["name"] for summary in found)), *((name, *cells) for name, cells in summary_rows(found))]
    columns = list(zip(*rows, strict=True))
    widths = [None] * len(columns) if width is None else _fit(columns, width - 3 * len(columns) - 1)
    table = Table()
    for cells, fit in zip(columns, widths, strict=True):
        table.add_column(Text(cells[0]), overflow="fold", width=fit)  # as text: a name may look like markup
    for row in rows[1:]:
        table.add_row(*map(Text, row))
    return table


def state_results(runs: Sequence[RunRecord]) -> str:
    """What compared runs came to, in a sentence: accuracy and communication time of each, beside the first's time.

    Args:
        runs: Records, the one that the others are compared with first.

    Returns:
        The sentence; nothing of a run alone, or of runs without accuracy or time.
    """
    found = [summarise_run(run) for run in runs]
    if len(found) < 2 or not all(one["accuracy"] is not None and one["communication_seconds"] for one in found):
        return ""
    first = found[0]["communication_seconds"]
    words = []
    for one in found:
        times = one["communication_seconds"] / first
        beside = f", {times:.1f} times as long" if times >= 1.05 else ""
        words.append(f"{one['name']} reached {one['accuracy']:.1%} in {one['communication_seconds']:.0f} s{beside}")
    return f"Test accuracy and communication time: {'; '.join(words)}."


def _fit(columns: Sequence[Sequence[str]], free: int) -> Sequence[int | None]:
    """The width of each column: at least its longest word, the narrowest first; None where all is left to rich."""
    most = [max(map(cell_len, cells)) for cells in columns]
    widths = [max(cell_len(word) for cell in cells for word in cell.split()) for cells in columns]
    if sum(most) <= free or sum(widths) > free:
        return [None] * len(columns)
    while sum(widths) < free:
        _, narrowest = min((width, at) for at, width in enumerate(widths) if width < most[at])
        widths[narrowest] += 1
    return widths


def _percent(fraction: float | None) -> str:
    return "-" if fraction is None else f"{fraction:.1%}"


def _count(number: int) -> str:
    return f"{number:,}" if number else "-"


def _several(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _kilobytes(summary: dict[str, Any]) -> str:
    sizes = [f"{size / 1000:.1f}" for size in summary["sent_bytes"]]
    return f"{sizes[0]}, all alike" if len(set(sizes)) == 1 and len(sizes) > 1 else ", ".join(sizes)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _error(summary: dict[str, Any]) -> str:
    """How far the aggregate is from the honest survivors' mean: root mean square a parameter, and over the mean's."""
    if summary["aggregate_error"] is None:
        return "-"
    error = f"{summary['aggregate_error']:.2g} RMS"
    return error if summary["relative_error"] is None else f"{error}, {summary['relative_error']:.0%} of update"


def _shown(summary: dict[str, Any]) -> str:
    """What the server could work out of an epoch's sums, if updates were the same in every round."""
    ledger = summary["ledger"]
    if ledger is None:
        return "not kept"
    if not ledger["exposed_users"] and not ledger["exposed_pairs"]:
        return "no user, no pair"
    return f"{_several(ledger['exposed_users'], 'user')}, {_several(ledger['exposed_pairs'], 'pair')}"


def _cohorts(summary: dict[str, Any]) -> str:
    failed = ", ".join(f"cohort {index} {times}x" for index, times in summary["failed_cohorts"].items())
    return f"{summary['cohorts']} ({failed or 'none'})"


def _attack(summary: dict[str, Any]) -> str:
    if summary["attack"] == "unknown":  # nobody told the engine
        return "not known"
    return f"{summary['attack']}, {_several(summary['attackers'], 'user')}" if summary["attackers"] else "none"


def _trips(summary: dict[str, Any]) -> str:
    """How often messages went to the nodes and back, round by round; rounds after the first that are alike, once."""
    trips = summary["trips"]
    if trips is None:
        return "-"
    first, *others = trips
    if len(others) > 1 and len(set(others)) == 1:
        return f"{first}, then {others[0]}"
    return ", ".join(map(str, trips))


def _wire(summary: dict[str, Any]) -> str:
    return "-" if summary["wire_bytes"] is None else f"{summary['wire_bytes'] / 1e6:.2f} MB"


def _time(summary: dict[str, Any]) -> str:
    """The seconds, and whether nobody gave the rates that they follow from, or they include training."""
    assumed = " at the default rates" if summary["rates"] == [] else ""
    measured = ", measured with training" if summary["engine"] == "flower" else ""
    return f"{summary['communication_seconds']:.1f} s{assumed}{measured}"


def _epsilons(summary: dict[str, Any]) -> str:
    """Both numbers, or why there are none."""
    spent = summary["privacy"]
    if spent is None:
        return "no noise"
    if spent["simulated"]:
        return "simulated, no privacy"
    model = "-" if spent["epsilon_model"] is None else f"{spent['epsilon_model']:.2f}"
    return f"{spent['epsilon_server']:.2f}, {model} at delta {spent['delta']:g}"


def _noise(summary: dict[str, Any]) -> str:
    """What the noise of the last round was counted on, and how far it put the mean off."""
    spent = summary["privacy"]
    if spent is None:
        return "no noise"
    return f"{spent['honest']}, {spent['clipping_norm']:.3g}, {spent['error_in_clipping_norms']:.2g}"


def _cryptography(summary: dict[str, Any]) -> str:
    spent = summary["protocol_seconds"]
    return f"{spent['user']:.1f} s, {spent['server']:.1f} s" if summary["secure"] else "none (plain engine)"
