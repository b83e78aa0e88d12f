"""A run on Flower in the record that every engine writes, so that report and studio read it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from flwr.app import Message

from heterosag.costs import summarise
from heterosag.flower.rounds import Round
from heterosag.flower.stages import HELLO
from heterosag.plan import Plan, User
from heterosag.protocol.phases import Phase
from heterosag.records import FAILED, FORMAT, RunWriter, describe_round

__all__ = ["Recorder"]


class Recorder:
    """Writes a line a round, and one more where somebody says how good the model is after it.

    The run's own line holds the plan, so it waits for the first round that has one; rounds that failed before wait with
    it.
    """

    def __init__(self, folder: Path, rule: str, identities: bool) -> None:
        self._writer = RunWriter(folder)
        self._about = {"engine": "flower", "data": "flower", "rule": rule, "identities": identities}
        self._waiting: list[tuple[str, dict[str, Any]]] = []
        self._begun = False
        self._start = time.perf_counter()

    def note_round(self, done: Round, classes: Mapping[int, int] | None, count: int | None) -> None:
        """Write a round. `classes` are the nodes' as they named them, of `count`; else they are the plan's."""
        if not self._begun and done.plan is not None:
            self._begin(done.plan, classes, count)
        self._write("round", _line(done, classes, count))

    def note_evaluation(self, number: int, metrics: Mapping[str, Any]) -> None:
        """Write how good the model is after a round; before the first there is nothing to write it to."""
        found = {name: metrics[name] for name in ("accuracy", "loss") if _is_number(metrics.get(name))}
        if number and found:
            self._write("evaluation", {"round": number, **found})

    def note_replies(self, number: int, replies: Iterable[Message]) -> None:
        """The mean over nodes of what their evaluate functions say, weighted by their examples."""
        sums: dict[str, float] = {}
        total = 0.0
        for reply in replies:
            if reply.has_error() or not reply.metadata.message_type.startswith("evaluate"):
                continue
            metrics = {
                name: value for record in reply.content.metric_records.values() for name, value in record.items()
            }
            weight = metrics.get("num-examples")
            if isinstance(weight, int | float) and weight > 0:
                total += weight
                for name in ("accuracy", "loss"):
                    value = metrics.get(name)
                    if isinstance(value, int | float):
                        sums[name] = sums.get(name, 0.0) + weight * value
        if total:
            self.note_evaluation(number, {name: value / total for name, value in sums.items()})

    def close(self, rounds: int) -> None:
        """Write the end; what waits for a plan that never came is lost with it."""
        self._write("end", {"rounds": rounds, "seconds": time.perf_counter() - self._start})
        self._writer.close()

    def _begin(self, plan: Plan, classes: Mapping[int, int] | None, count: int | None) -> None:
        seats = _seats(plan, plan.users, classes).values()
        sizes = [sum(seat == index for seat in seats) for index in range(count or 1 + max(seats))]
        config = {
            **self._about,
            "design": plan.design.name,
            "classes": sizes,
            "attack": "unknown",
            "attackers": 0,
            "secure": True,
        }
        self._writer.write("run", {"format": FORMAT, "config": config, "plan": summarise(plan)})
        self._begun = True
        for kind, values in self._waiting:
            self._writer.write(kind, values)
        self._waiting.clear()

    def _write(self, kind: str, values: dict[str, Any]) -> None:
        if self._begun:
            self._writer.write(kind, values)
        else:
            self._waiting.append((kind, values))


def _seats(plan: Plan, users: Iterable[User], classes: Mapping[int, int] | None) -> dict[User, int]:
    """Users' classes: as they named them, or the plan's."""
    if classes is not None:
        return {user: classes[int(user)] for user in users}
    return {user: plan.subgroups[plan.subgroup_of(user)].user_class for user in users}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _line(done: Round, classes: Mapping[int, int] | None, count: int | None) -> dict[str, Any]:
    stages = [HELLO, *(phase.value for phase in Phase)]
    line: dict[str, Any] = {
        "round": done.number,
        "range": None if done.plan is None else list(done.plan.value_range),
        "participants": len(done.nodes),
        "dropped": {stage: sum(at == stage for at in done.lost_at.values()) for stage in stages},
        "lost": {str(node): why for node, why in done.lost.items()},
        "missed_deadline": 0,
        "error": None,
        **FAILED,
        "accuracy": None,
        "loss": None,
        "seconds": {"round": done.seconds},
    }
    if done.plan is None or done.combined is None:
        kind, _, message = done.error.partition(": ")
        return line | {"error": {"kind": kind, "message": message}, "round_seconds": done.seconds}
    plan = done.plan
    seats = _seats(plan, done.combined.survivors, classes)
    most = count or 1 + max(subgroup.user_class for subgroup in plan.subgroups)
    sent: dict[str, dict[User, int]] = {
        stage: {str(node): size for node, size in by.items()} for stage, by in done.received_bytes.items()
    }
    return (
        line
        | describe_round(plan, done.combined, sent, seats, most)
        | {
            "refusals": done.refusals,
            "round_seconds": done.seconds,
            "wire_bytes": {
                "up": sum(sum(by.values()) for by in done.wire_received.values()),
                "down": sum(sum(by.values()) for by in done.wire_sent.values()),
            },
            "user_seconds": {stage: sum(by.values()) for stage, by in done.node_seconds.items()},
            "server_seconds": done.server_seconds,
        }
    )
