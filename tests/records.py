"""Records of runs that nobody trained, for whatever shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from heterosag.plan import CohortPlan, Plan
from heterosag.plan.summary import summarise, summarise_cohorts
from heterosag.storage.run_log import RunRecord, RunWriter, read_run

CONFIG: dict[str, Any] = {
    "data": "digits", "design": "perfect", "rule": "median", "attack": "none", "attackers": 0, "secure": True,
    "classes": [12, 12], "rounds": 6,
}  # fmt: skip


def begin_run(folder: Path) -> RunWriter:
    plan = Plan.build([12, 12], [2, 8], 1000, value_range=1.0, subgroup_size=4)
    writer = RunWriter(folder)
    writer.begin(CONFIG, summarise(plan), command="heterosag train --classes=12,12")
    return writer


def write_round(writer: RunWriter, number: int, accuracy: float, **more: Any) -> None:
    line = {
        "round": number, "participants": 24, "error": None, "survivors": 24 - number % 3, "refusals": number % 2,
        "missed_deadline": 0, "faulty_blocks": 0, "inference_robustness": 0.8, "aggregate_error": 0.1,
        "sent_bytes": {"share": [4000.0, 4000.0], "mask": [1900.0, 2300.0]}, "round_seconds": 0.5,
        "user_seconds": {}, "server_seconds": {}, "accuracy": accuracy,
    }  # fmt: skip
    writer.write("round", line | more)


def write_run(folder: Path, rounds: int) -> RunRecord:
    """A finished run whose accuracy rises by a tenth a round."""
    writer = begin_run(folder)
    for number in range(1, rounds + 1):
        write_round(writer, number, 0.1 * number)
    writer.write("end", {"rounds": rounds, "seconds": 1.0})
    writer.close()
    return read_run(folder)


def write_cohorts(folder: Path) -> RunRecord:
    """A run of three cohorts: the second fails in the second round, it and the third in the last."""
    plan = CohortPlan.build([18, 18], [2, 8], 1000, cohort_size=12, value_range=1.0, subgroup_size=3, min_survivors=2)
    writer = RunWriter(folder)
    writer.begin(CONFIG | {"classes": [18, 18]}, summarise_cohorts(plan))
    write_round(writer, 1, 0.1)
    error = {"kind": "TooFewSurvivorsError", "message": "too few <b>survivors</b>"}
    for number, failed in ((2, ["1"]), (3, ["1", "2"])):
        survivors = [0 if str(index) in failed else 12 for index in range(3)]
        more = {"survivors": sum(survivors), "cohort_survivors": survivors}
        write_round(writer, number, 0.1 * number, **more, failed_cohorts=dict.fromkeys(failed, error))
    writer.close()
    return read_run(folder)
