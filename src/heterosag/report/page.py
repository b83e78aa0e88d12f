"""One self-contained page about one run or several: figures as SVG, tables, guarantees in words. No network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from heterosag.errors import UsageError
from heterosag.plan.design import make
from heterosag.report.figures import draw_design, draw_runs, to_svg
from heterosag.report.runs import summarise_run, summary_rows
from heterosag.report.templates import render, write
from heterosag.storage.run_log import RunRecord

__all__ = ["make_page", "write_page"]

_WIDEST_DESIGN = 40
_MOST_FAILURES = 10


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
        UsageError: A run has no round.
    """
    if not runs or any(not run.rounds for run in runs):
        raise UsageError("a report needs runs with at least one round")
    summaries = [summarise_run(run) for run in runs]
    return render(
        Path(__file__).with_name("page.html"),
        title=", ".join(run.name for run in runs),
        runs=[
            {
                "summary": summary,
                "guarantees": _guarantees(run),
                "design": _design(run),
                "errors": _errors(run),
                "cohorts": _cohorts(run),
            }
            for run, summary in zip(runs, summaries, strict=True)
        ],
        figures=draw_runs(runs),
        rows=summary_rows(summaries),
    )


def _design(run: RunRecord) -> str:
    """The coloured design, or nothing where it is too wide to read, or every cohort has its own."""
    if "subgroups" not in run.plan:
        return ""
    count = len(run.plan["subgroups"])
    if count > _WIDEST_DESIGN:
        return ""
    figure = draw_design(make(run.plan["design"], count), classes=[entry["class"] for entry in run.plan["subgroups"]])
    svg = to_svg(figure, title=f"The design {run.plan['design']}")
    return svg[svg.index("<svg") :]


def _guarantees(run: RunRecord) -> list[str]:
    """What the plan guarantees, in words."""
    plan, leak = run.plan, run.plan["leak_probability"]
    return [
        f"The server learns, of any set of subgroups, at most {1 - plan['inference_robustness']:.1%} of the segments "
        "of their sum (inference robustness "
        f"{plan['inference_robustness']:.4f}{'' if plan['inference_robustness_exact'] else ', a lower bound'}).",
        f"The median tolerates {plan['byzantine_tolerance']} faulty users wherever they are.",
        f"No sum over fewer than {plan['min_survivors']} survivors of a subgroup is unmasked; without that rule some "
        f"user's segment would be exposed in {leak['block']:.2g} of the rounds at {plan['dropout']:.0%} dropout.",
        f"A round fails for lack of survivors with probability {plan['failure_probability']:.2g}.",
        f"{plan['share_threshold']} shares rebuild a secret; {plan['agree_quorum']} users must agree on who survived.",
        *plan["notes"],
        *(f"Privacy: {line['privacy']['statement']}." for line in run.rounds[-1:] if "privacy" in line),
    ]


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
