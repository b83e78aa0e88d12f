"""One self-contained page about one run or several: figures as SVG, tables, guarantees in words. No network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from heterosag.errors import UsageError
from heterosag.plan.design import make
from heterosag.report.figures import apply_theme, draw_design, draw_runs, to_svg
from heterosag.report.guarantees import describe_guarantees
from heterosag.report.names import printable
from heterosag.report.runs import state_results, summarise_run, summary_rows
from heterosag.report.settings import describe_classes, describe_runs, find_differences, list_settings
from heterosag.report.templates import render, write
from heterosag.report.upload import FLOAT32, split_upload
from heterosag.storage.run_log import RunRecord

__all__ = ["make_page", "write_page"]

_WIDEST_DESIGN = 40
_MOST_FAILURES = 10
_PLAN = (
    "agree_quorum", "byzantine_tolerance", "design", "dimension", "dropout", "failure_probability",
    "inference_robustness", "inference_robustness_exact", "leak_probability", "min_survivors", "notes",
    "share_threshold", "users",
)  # fmt: skip
_ROUNDS = ("aggregate_error", "inference_robustness", "participants", "survivors", "privacy.statement")


def write_page(runs: Sequence[RunRecord], path: Path) -> None:
    """Write the page of some runs.

    Args:
        runs: Records with at least one round each.
        path: The file; its folder is made.
    """
    write(path, make_page(runs))


def make_page(runs: Sequence[RunRecord]) -> str:
    """The page as HTML text.

    Args:
        runs: Records with at least one round each.

    Returns:
        A page that needs no other file.

    Raises:
        UsageError: There is no run, some have no round, or a record does not say what a page needs; the message names
            those.
    """
    empty = [str(run.folder) for run in runs if not run.rounds]
    if not runs or empty:
        without = f"; without any: {', '.join(empty)}" if empty else ""
        raise UsageError(f"a report needs runs with at least one round{without}")
    summaries = [summarise_run(run) for run in runs]
    for run in runs:
        several = "subgroups" in run.plan
        run.require(plan=[*_PLAN, *(["segments"] if several else [])], rounds=_ROUNDS)
    names = [printable(run.name) for run in runs]
    return render(
        Path(__file__).with_name("page.html"),
        title=", ".join(names),
        lead=_lead(runs),
        names=names,
        runs=[
            {
                "name": name,
                "secure": run.config["secure"],
                "classes": _classes(run),
                "deadline": f"{run.config['deadline']:g} s" if run.config.get("deadline") else "",
                "command": run.command,
                "guarantees": describe_guarantees(run),
                "notes": run.plan["notes"],
                "design": _design(run),
                "errors": _errors(run),
                "cohorts": _cohorts(run),
            }
            for name, run in zip(names, runs, strict=True)
        ],
        figures=draw_runs(runs),
        rows=summary_rows(summaries),
        ran=describe_runs(runs),
        differences=find_differences(runs),
        settings=list_settings(runs),
    )


def _design(run: RunRecord) -> str:
    """The coloured design, or nothing where it is too wide to read, or every cohort has its own."""
    if "subgroups" not in run.plan:
        return ""
    count = len(run.plan["subgroups"])
    if count > _WIDEST_DESIGN:
        return ""
    classes = [entry["class"] for entry in run.plan["subgroups"]]
    figure = draw_design(make(run.plan["design"], count), classes=classes, ink="#111111")
    return apply_theme(to_svg(figure, title=f"The design {run.plan['design']}"))


def _lead(runs: Sequence[RunRecord]) -> str:
    """What was run, in one sentence."""
    users = sorted({sum(run.config["classes"]) for run in runs})
    counted = f"{users[0]}" if len(users) == 1 else f"{users[0]} to {users[-1]}"
    what = "One run" if len(runs) == 1 else f"{len(runs)} runs"
    return f"{what} of federated training {_protection(runs)}, {counted} users. {state_results(runs)}".strip()


def _protection(runs: Sequence[RunRecord]) -> str:
    """Which of the runs were with secure aggregation; the plain engine computes the same sums in plaintext."""
    secure = sum(bool(run.config["secure"]) for run in runs)
    if secure == len(runs):
        return "with secure aggregation"
    if not secure:
        return "by the plain engine, without cryptography"
    return f"({secure} with secure aggregation, {len(runs) - secure} by the plain engine, without cryptography)"


def _classes(run: RunRecord) -> list[dict[str, str]]:
    """A row for each class: users, links and levels, and what a user of it sends."""
    float32 = FLOAT32 * run.plan["dimension"]
    rows = []
    for index, (row, parts) in enumerate(zip(describe_classes(run), split_upload(run), strict=True)):
        sent = sum(parts.values())
        took = [line["upload_seconds"][index] for line in run.rounds if len(line.get("upload_seconds", [])) > index]
        rows.append(
            row
            | {
                "sent": f"{sent / 1000:,.1f}",
                "less": f"{float32 / sent:.1f}" if sent else "-",
                "seconds": f"{sum(took) / len(took):.3g}" if any(took) else "-",
            }
        )
    return rows


def _cohorts(run: RunRecord) -> list[dict[str, str]]:
    """A row for each cohort: users, guarantees, survivors, and in which rounds it failed; none without cohorts."""
    failed = [(line["round"], index) for line in run.rounds for index in line.get("failed_cohorts", {})]
    survivors = [line["cohort_survivors"] for line in run.rounds if "cohort_survivors" in line]
    rows = []
    for index, cohort in enumerate(run.plan.get("cohorts", [])):
        mine = [one[index] for one in survivors if index < len(one)]
        lost = [str(number) for number, which in failed if which == str(index)]
        rows.append(
            {
                "cohort": str(index),
                "users": str(cohort["users"]),
                "inference_robustness": f"{cohort['inference_robustness']:.4f}",
                "byzantine_tolerance": str(cohort["byzantine_tolerance"]),
                "survivors": f"{sum(mine) / len(mine):.1f}" if mine else "-",
                "failed": ", ".join(lost[:_MOST_FAILURES]) + (", ..." if len(lost) > _MOST_FAILURES else "") or "none",
            }
        )
    return rows


def _errors(run: RunRecord) -> list[str]:
    """Rounds that failed, and cohorts, and why."""
    found = []
    for line in run.rounds:
        if line["error"]:
            found.append(f"round {line['round']}: {line['error']['kind']}: {line['error']['message']}")
        for index, error in line.get("failed_cohorts", {}).items():
            found.append(f"round {line['round']}, cohort {index}: {error['kind']}: {error['message']}")
    return found[:_MOST_FAILURES]
