"""Lines of a record: what runs of every version write is read, and what no run writes is refused by name."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from cases import each

from heterosag.storage.run_lines import check_line
from heterosag.storage.run_log import read_run

FORMATS = Path(__file__).parents[1] / "formats"
HEAD: dict[str, Any] = {"kind": "run", "config": {}, "plan": {}}


@each("number", [1, 2])
def test_every_kept_line_is_one_that_a_run_writes(number: int) -> None:
    run = read_run(FORMATS / f"run-{number}")
    check_line(HEAD | {"config": run.config, "plan": run.plan, "started": run.started})
    for line in run.rounds:
        check_line(line)
    assert run.end is not None
    check_line(run.end)


def test_what_nobody_reads_may_be_anything() -> None:
    check_line({"kind": "note", "round": "first"})
    check_line({"kind": "round", "round": 1, "own": [[["x"]]]})
    check_line(HEAD | {"config": {"own": [1, "x", None, True]}, "plan": {"own": {"x": [[]]}}})


def test_a_setting_is_as_large_as_it_was_given() -> None:
    largest = 1.7e308
    check_line(HEAD | {"config": {"deadline": largest, "rounds": 10**30, "rates": [largest], "classes": [8]}})


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ({"kind": "run", "plan": {}}, "missing required field `config`"),
        (HEAD | {"config": []}, r"got `array` - at `\$\.config`"),
        (HEAD | {"config": {"own": {}}}, "got `object`"),
        (HEAD | {"config": {"own": [[1]]}}, "got `array`"),
        (HEAD | {"config": {"rounds": math.nan}}, r"at `\$\.config\.rounds`"),
        (HEAD | {"config": {"classes": [10**9]}}, r"at `\$\.config\.classes\[0\]`"),
        (HEAD | {"config": {"classes": [4, 4, 4], "rates": [1.0, 2.0]}}, "2 rates for 3 classes"),
        (HEAD | {"plan": {"segments": []}}, r"at `\$\.plan\.segments`"),
        (HEAD | {"plan": {"segments": [[[2]]], "subgroups": [{"class": 0, "users": [1]}] * 2}}, "other subgroups than"),
        (HEAD | {"started": "yesterday"}, "Invalid isoformat string: 'yesterday'"),
        (HEAD | {"started": "2026-01-01T00:00:00"}, "a time without its zone"),
        (HEAD | {"started": 5}, r"at `\$\.started`"),
        ({"kind": "round"}, "missing required field `round`"),
        ({"kind": "round", "round": "1"}, r"at `\$\.round`"),
        ({"kind": "round", "round": 1, "accuracy": 10**400}, r"at `\$\.accuracy`"),
        ({"kind": "round", "round": 1, "loss": math.inf}, r"at `\$\.loss`"),
        ({"kind": "round", "round": 1, "error": "late"}, r"at `\$\.error`"),
        ({"kind": "round", "round": 1, "failed_cohorts": {"x": {"kind": "a", "message": "b"}}}, "matching regex"),
        ({"kind": "round", "round": 1, "sent_bytes": {"share": [1.0], "mask": [1.0, 2.0]}}, "not as many sizes"),
        ({"kind": "evaluation", "round": [1]}, r"at `\$\.round`"),
        ({"kind": "end", "seconds": "long"}, r"at `\$\.seconds`"),
    ],
)
def test_what_no_run_writes_is_refused(line: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        check_line(line)
