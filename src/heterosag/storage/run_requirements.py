"""What a run has shown of its users, as the requirements of a better plan."""

from __future__ import annotations

import statistics
from typing import Any

from heterosag.errors import UsageError
from heterosag.planner import Requirements
from heterosag.storage.run_log import RunRecord

__all__ = ["learn_requirements"]

_PLAN = ("dimension", "failure_probability", "max_weight", "min_survivors", "value_range")


def learn_requirements(run: RunRecord, **changes: Any) -> Requirements:
    """What a run has shown of its users: rates and dropout, and the deadline that it kept.

    A class's rate is that of its slowest survivor: what it sent over the seconds that took, the median over the rounds.

    Args:
        run: A record.
        changes: Requirements that take the place of the run's.

    Returns:
        The requirements.

    Raises:
        UsageError: The record does not say enough.
    """
    run.require(config=["classes"], plan=_PLAN, rounds=["dropped", "participants", "upload_seconds"])
    run.require(good_rounds=["sent_bytes"])
    good = [line for line in run.rounds if line["error"] is None and any(line["upload_seconds"])]
    if not good:
        raise UsageError(f"the record of {run.name} has no uploads to learn rates from")
    rates: list[float] = []
    slowest = 0.0
    for index, users in enumerate(run.config["classes"]):
        seen = [
            (sum(sizes[index] or 0.0 for sizes in line["sent_bytes"].values()) * 8e-6, line["upload_seconds"][index])
            for line in good
            if line["upload_seconds"][index] > 0
        ]
        if not seen:
            raise UsageError(f"nobody of class {index} survived a round of {run.name}: nothing is known of its rate")
        rates += [statistics.median(sent / seconds for sent, seconds in seen)] * users
        slowest = max(slowest, statistics.median(seconds for _, seconds in seen))
    gone = sum(sum(line["dropped"].values()) for line in run.rounds)
    asked = sum(line["participants"] for line in run.rounds)
    known = {
        "rates": tuple(rates),
        "dimension": run.plan["dimension"],
        "deadline": run.config.get("deadline") or slowest,
        "dropout": min(gone / max(asked, 1), 0.45),
        "min_survivors": run.plan["min_survivors"],
        "value_range": tuple(run.plan["value_range"]),
        "ranges": run.plan.get("ranges", "single"),
        "max_weight": run.plan["max_weight"],
        "failure": max(run.plan["failure_probability"], 0.01),
    }
    if changes.get("bits") is not None:
        known["deadline"] = None
    return Requirements(**known | changes)
