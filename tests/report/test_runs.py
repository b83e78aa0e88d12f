"""Runs on a terminal: what they came to, side by side, and line by line while they run."""

from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from records import begin_run, write_cohorts, write_round, write_run
from rich.console import Console

from heterosag.report.runs import compare_runs, state_results, summarise_run, summary_rows, watch
from heterosag.storage.run_log import RunRecord, read_run

ISOLATED = "users isolated by comparing rounds, at most"


def test_a_summary_counts_what_the_rounds_say(tmp_path: Path) -> None:
    found = summarise_run(write_run(tmp_path / "one", 3))
    assert (found["name"], found["rounds"], found["failed_rounds"], found["finished"]) == ("one", 3, 0, True)
    assert found["accuracy"] == found["best_accuracy"] == pytest.approx(0.3)
    assert found["mean_survivors"] == pytest.approx((23 + 22 + 24) / 3)
    assert found["refusals"] == 2
    assert found["sent_bytes"] == [5900.0, 6300.0]


def test_a_run_that_failed_or_goes_on_is_summarised_too(tmp_path: Path) -> None:
    writer = begin_run(tmp_path / "one")
    write_round(writer, 1, 0.5)
    good = read_run(tmp_path / "one").rounds[0]
    writer.write("round", {**good, "round": 2, "error": {"kind": "AbortedError", "message": "too few"}, "survivors": 0})
    writer.close()
    found = summarise_run(read_run(tmp_path / "one"))
    assert (found["rounds"], found["failed_rounds"], found["finished"], found["mean_survivors"]) == (2, 1, False, 23)


@pytest.mark.parametrize(
    ("changes", "row", "cell"),
    [
        ({"trips": [4, 2, 2, 2]}, "trips of each round", "4, then 2"),
        ({"trips": [4, 2, 3]}, "trips of each round", "4, 2, 3"),
        ({"trips": None}, "trips of each round", "-"),
        ({"attack": "flip", "attackers": 3}, "attack", "flip, 3 users"),
        ({"attack": "flip", "attackers": 1}, "attack", "flip, 1 user"),
        ({"attack": "unknown"}, "attack", "not known"),
        ({"ledger": {"exposed_users": 1, "exposed_pairs": 0}}, ISOLATED, "1 user, 0 pairs"),
        ({"ledger": {"exposed_users": 2, "exposed_pairs": 1}}, ISOLATED, "2 users, 1 pair"),
        ({"accuracy": None}, "accuracy at the end", "-"),
        ({"wire_bytes": 2_500_000}, "all that Flower carried", "2.50 MB"),
        ({"engine": "flower"}, "communication time", "1.5 s, measured with training"),
        ({"rates": []}, "communication time", "1.5 s at the default rates"),
        ({"rates": [1.0, 2.0]}, "communication time", "1.5 s"),
        ({"relative_error": 0.25}, "error of the aggregate", "0.1 RMS, 25% of update"),
        ({"aggregate_error": None}, "error of the aggregate", "-"),
        ({"sent_bytes": [5900.0, 5900.0]}, "kB a round, slowest class first", "5.9, all alike"),
        ({"faulty_blocks": 3}, "faulty blocks left out", "3"),
        ({"secure": False}, "cryptography: users, server", "none (plain engine)"),
    ],
)
def test_rows_say_it_in_words(changes: dict[str, Any], row: str, cell: str, tmp_path: Path) -> None:
    summary = summarise_run(write_run(tmp_path / "one", 3))
    with_trips = {**summary, "trips": [4]}
    assert dict(summary_rows([with_trips, {**summary, **changes}]))[row][1] == cell


def test_rows_with_nothing_to_say_of_any_run_are_left_out(tmp_path: Path) -> None:
    summary = summarise_run(write_run(tmp_path / "one", 3))
    assert "trips of each round" not in dict(summary_rows([summary, summary]))
    assert "trips of each round" in dict(summary_rows([summary, {**summary, "trips": [4]}]))


def test_a_table_of_four_runs_fits_a_terminal_of_80_columns_and_cuts_nothing(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, 2) for name in ("heterosag", "one-level", "16-bits", "fedavg")]
    runs[3] = replace(runs[3], config=runs[3].config | {"design": "secagg", "rule": "unchecked_mean"})
    lines = show(runs, 80)
    assert max(map(len, lines)) == 80
    assert not any("…" in line for line in lines)
    words = {word for line in lines for word in line.split()}
    assert {"unchecked_mean", "communication", "heterosag", "robustness"} <= words


def test_a_table_that_is_too_wide_breaks_words_and_one_that_is_not_stays_as_it_is(tmp_path: Path) -> None:
    run = write_run(tmp_path / "one", 2)
    assert max(map(len, show([run] * 4, 60))) <= 60
    assert show([run], 200) == show([run], 100)


def show(runs: Sequence[RunRecord], width: int) -> list[str]:
    console = Console(width=width, file=StringIO())
    console.print(compare_runs(runs, width=width))
    return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def test_runs_stand_side_by_side(tmp_path: Path) -> None:
    table = compare_runs([write_run(tmp_path / "one", 3), write_run(tmp_path / "two", 2)])
    assert [str(column.header) for column in table.columns] == ["", "one", "two"]


def test_a_name_is_shown_as_it_is_written_and_never_as_markup(tmp_path: Path) -> None:
    run = write_run(tmp_path / "one", 2)
    names = ("[red]x", "[bold]", ":smile:", "one\x1b[31m")
    lines = show([replace(run, folder=Path(name)) for name in names], 200)
    assert [cell.strip() for cell in lines[1].split("┃")[2:-1]] == ["[red]x", "[bold]", ":smile:", "one\ufffd[31m"]


def test_progress_on_a_terminal_is_text_and_never_markup(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (line,) = write_run(tmp_path / "one", 1).rounds
    out = StringIO()
    monkeypatch.setattr(out, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setenv("COLUMNS", "200")
    with watch(1) as tell:
        tell(line | {"clipping_warning": "[/a] is clipped"})
    assert "[/a] is clipped" in out.getvalue()


def test_whoever_watches_without_a_terminal_gets_a_line_a_round(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rounds = write_run(tmp_path / "one", 2).rounds
    with watch(2) as tell:
        for line in rounds:
            tell(line)
    assert capsys.readouterr().out.count("\n") == 2
    with watch(2, silent=True) as tell:
        tell(rounds[0])
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "")


def test_cohorts_that_failed_are_counted_and_shown(tmp_path: Path) -> None:
    run = write_cohorts(tmp_path / "run")
    found = summarise_run(run)
    assert (found["cohorts"], found["failed_cohorts"]) == (3, {"1": 2, "2": 1})
    rows = dict(summary_rows([found, summarise_run(write_run(tmp_path / "other", 1))]))
    assert rows["cohorts (failed)"] == ["3 (cohort 1 2x, cohort 2 1x)", "1 (none)"]
    assert "cohorts (failed)" not in dict(summary_rows([summarise_run(write_run(tmp_path / "third", 1))]))
    with watch(3) as progress:
        progress(run.rounds[1])


def test_progress_names_a_cohort_that_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with watch(3) as progress:
        for line in write_cohorts(tmp_path / "run").rounds:
            progress(line)
    first, second, _ = capsys.readouterr().out.splitlines()
    assert "failed" not in first
    assert "24 survivors, cohort 1 failed" in second


def test_compared_runs_are_stated_beside_the_first(tmp_path: Path) -> None:
    runs = []
    for name, accuracy, seconds in (("ours", 0.931, 10.0), ("fine", 0.932, 27.0), ("quick", 0.5, 9.0)):
        run = write_run(tmp_path / name, 2)
        lines = [line | {"accuracy": accuracy, "round_seconds": seconds / len(run.rounds)} for line in run.rounds]
        runs.append(replace(run, rounds=tuple(lines)))
    assert state_results(runs) == (
        "Test accuracy and communication time: ours reached 93.1% in 10 s; fine reached 93.2% in 27 s, 2.7 times as "
        "long; quick reached 50.0% in 9 s."
    )
    assert state_results(runs[:1]) == ""
    unjudged = replace(runs[1], rounds=tuple(line | {"accuracy": None} for line in runs[1].rounds))
    assert state_results([runs[0], unjudged]) == ""


def test_a_round_without_an_error_of_its_aggregate_has_no_relative_one(tmp_path: Path) -> None:
    run = write_run(tmp_path / "one", 2)
    first, second = run.rounds
    odd = {"aggregate_error": None, "aggregate_rms": 0.2, "inference_robustness": None}
    found = summarise_run(replace(run, rounds=(first | odd, second | {"aggregate_rms": 0.2})))
    assert (found["aggregate_error"], found["relative_error"]) == (0.1, 0.5)
    assert found["inference_robustness"] == 0.8
