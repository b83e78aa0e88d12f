"""A round of cohorts on random updates: what it says of itself."""

from io import StringIO

import pytest

from heterosag import CohortPlan, UsageError
from heterosag.plan import Plan
from heterosag.report import rounds
from heterosag.report.cohorts import run_cohorts

PLAN = CohortPlan.build(
    [41], [16], 60, cohort_size=14, value_range=1.0, subgroup_size=4, min_survivors=2, min_robustness=0.0
)


def test_a_round_is_exact_and_has_the_keys_of_one_without_cohorts() -> None:
    summary = run_cohorts(PLAN, drop={"mask": 3, "unmask": 1}, seed=3)
    assert summary["exact"] is True
    assert (summary["cohorts"], summary["users"], summary["survivors"]) == (3, 41, 38)
    assert summary["user_ms"] == pytest.approx(1000 * sum(row["user_seconds"] for row in summary["phases"]))
    assert 0 < summary["error_rms"] <= summary["error_max"] < 0.5
    alone = rounds.run(Plan.build([12], [4], 20, value_range=1.0, subgroup_size=3), drop={"mask": 1}, secure=False)
    assert list(alone) == list(summary)
    assert alone["cohorts"] == 1


def test_malicious_users_and_failed_cohorts_are_shown() -> None:
    summary = run_cohorts(PLAN, rule="median", malicious=2, seed=1, secure=False)
    assert summary["exact"] is True
    assert {block["cohort"] for block in summary["faulty_blocks"]} <= {0, 1, 2}
    failed = run_cohorts(PLAN, malicious=1, seed=1, secure=False)
    assert len(failed["failed_cohorts"]) == 1
    assert failed["exact"] is True
    from rich.console import Console

    console = Console(width=200, record=True, file=StringIO())
    console.print(rounds.show(failed))
    text = console.export_text()
    assert "41 users in 3 cohorts" in text
    assert "failed, and has no part in the result" in text


def test_a_round_without_any_cohort_left_is_an_error() -> None:
    summary = run_cohorts(PLAN, drop={"mask": 38}, secure=False)
    assert summary["error"]["kind"] == "FailedCohortsError"
    with pytest.raises(UsageError, match="cannot hold"):
        run_cohorts(PLAN, malicious=99)


def test_sums_that_differ_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "same_sums", lambda *_: False)
    assert run_cohorts(PLAN, secure=False)["exact"] is False
