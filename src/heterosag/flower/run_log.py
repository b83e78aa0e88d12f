"""A run on Flower in the record that every engine writes, so that report and studio read it."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Iterable, Mapping
from itertools import count
from logging import INFO, WARNING
from pathlib import Path
from typing import Any

from flwr.app import Message
from flwr.common.logger import log

from heterosag.errors import UsageError
from heterosag.flower.messages import STAGES
from heterosag.flower.rounds import TOO_LATE, Round
from heterosag.plan import CohortPlan, Plan, User
from heterosag.plan.cohorts import plans_of
from heterosag.plan.summary import summarise, summarise_cohorts
from heterosag.storage.run_log import FAILED, RunWriter, describe_round

__all__ = ["Recorder"]

_JUDGED = ("accuracy", "loss")


class Recorder:
    """Writes a line a round, and one more where somebody says how good the model is after it.

    The run's own line holds the plan, so the record begins with the first round that has one; rounds that failed before
    wait for it, and without it there is no record.

    Args:
        runs: The folder in which the run gets one of its own. A relative one begins where this program runs, which
            under `flwr run` is where the SuperLink was started.
        run: What the run's folder is called; where that is taken, a number comes after it.
        rule: How block means are combined.
        weighted_by: The metric that weights what nodes say of the model.
        identities: Whether nodes sign.

    Raises:
        UsageError: There is something else than a folder at that place.
    """

    def __init__(self, runs: str | Path, run: str, rule: str, weighted_by: str, *, identities: bool) -> None:
        asked = Path(runs).expanduser()
        self._runs, self._relative = asked.absolute(), not asked.is_absolute()
        if self._runs.exists() and not self._runs.is_dir():
            raise UsageError(f"record is a folder for records, and {self._runs} is something else")
        self._run = run
        self._rule = rule
        self._identities = identities
        self.weighted_by = weighted_by
        self.folder: Path | None = None
        self._writer: RunWriter | None = None
        self._waiting: list[tuple[str, dict[str, Any]]] = []
        self._start = time.perf_counter()

    def note_round(self, done: Round, classes: Mapping[int, int] | None, count: int | None) -> None:
        """Write a round. `classes` are the nodes' as they named them, of `count`; else they are the plan's."""
        if self._writer is None and done.plan is not None:
            self._begin(done.plan, classes, count)
        self._write("round", _line(done, classes, count))

    def note_evaluation(self, number: int, metrics: Mapping[str, Any]) -> None:
        """Write how good the model is after a round; before the first there is nothing to write it to."""
        found = {name: metrics[name] for name in _JUDGED if _is_number(metrics.get(name))}
        if number and found:
            self._write("evaluation", {"round": number, **found})

    def note_replies(self, number: int, replies: Iterable[Message]) -> None:
        """For each metric the mean of what nodes' evaluate functions say of it, weighted by their examples."""
        sums, weights = dict.fromkeys(_JUDGED, 0.0), dict.fromkeys(_JUDGED, 0.0)
        for reply in replies:
            if reply.has_error() or not reply.metadata.message_type.startswith("evaluate"):
                continue
            said = {name: value for found in reply.content.metric_records.values() for name, value in found.items()}
            weight: Any = said.get(self.weighted_by)
            for name in _JUDGED:
                value: Any = said.get(name)
                if _is_number(weight) and weight > 0 and _is_number(value):
                    sums[name] += weight * value
                    weights[name] += weight
        self.note_evaluation(number, {name: sums[name] / weights[name] for name in _JUDGED if weights[name]})

    def close(self, rounds: int) -> None:
        """Write the end."""
        if self._writer is None:
            log(WARNING, "no round had a plan, so there is no record in %s", self._runs)
            return
        self._write("end", {"rounds": rounds, "seconds": time.perf_counter() - self._start})
        self._writer.close()
        log(INFO, "the run's record: heterosag report %s", shlex.quote(str(self.folder)))

    def stop(self) -> None:
        """Write nothing more; the record stays as it is."""
        if self._writer is not None:
            self._writer.close()

    def _begin(self, plan: Plan | CohortPlan, classes: Mapping[int, int] | None, count: int | None) -> None:
        user_classes = _user_classes(plan, plan.users, classes).values()
        sizes = [
            sum(user_class == index for user_class in user_classes) for index in range(count or 1 + max(user_classes))
        ]
        config = {
            "engine": "flower",
            "data": "flower",
            "design": plans_of(plan)[0].design.name,
            "rule": self._rule,
            "classes": sizes,
            "attack": "unknown",
            "attackers": 0,
            "secure": True,
            "identities": self._identities,
        }
        self.folder = self._make_folder()
        self._writer = RunWriter(self.folder)
        signed = self._identities
        found = (
            summarise_cohorts(plan, identities=signed)
            if isinstance(plan, CohortPlan)
            else summarise(plan, identities=signed)
        )
        self._writer.begin(config, found)
        for kind, values in self._waiting:
            self._writer.write(kind, values)
        self._waiting.clear()

    def _make_folder(self) -> Path:
        """A folder for this run that no other has, also if two begin at once."""
        self._runs.mkdir(parents=True, exist_ok=True)
        for number in count(1):
            folder = self._runs / (self._run if number == 1 else f"{self._run}-{number}")
            try:
                folder.mkdir()
                break
            except FileExistsError:
                continue
        why = " (a relative path, which begins where the SuperLink was started)" if self._relative else ""
        log(INFO, "\trecord: %s%s", folder, why)
        return folder

    def _write(self, kind: str, values: dict[str, Any]) -> None:
        if self._writer is None:
            self._waiting.append((kind, values))
        else:
            self._writer.write(kind, values)


def _user_classes(plan: Plan | CohortPlan, users: Iterable[User], classes: Mapping[int, int] | None) -> dict[User, int]:
    """Users' classes: as they named them, or the plan's."""
    if classes is not None:
        return {user: classes[int(user)] for user in users}
    wanted = set(users)
    return {
        user: own.subgroups[own.subgroup_of(user)].user_class
        for own in plans_of(plan)
        for user in own.users
        if user in wanted
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _line(done: Round, classes: Mapping[int, int] | None, count: int | None) -> dict[str, Any]:
    """What is known of a round, and, of one that ended well, what it came to."""
    kind, _, message = done.error.partition(": ")
    line: dict[str, Any] = FAILED | {
        "round": done.number,
        "range": None if done.plan is None else list(done.plan.value_range),
        "participants": len(done.nodes),
        "dropped": {stage: sum(at == stage for at in done.lost_at.values()) for stage in STAGES},
        "lost": {str(node): why for node, why in done.lost.items()},
        "missed_deadline": sum(why.endswith(TOO_LATE) for why in done.lost.values()),
        "faulty_users": [str(node) for node in done.faulty],
        "error": {"kind": kind, "message": message} if done.error else None,
        "accuracy": None,
        "loss": None,
        "refusals": done.refusals,
        "trips": done.trips,
        "ledger": done.ledger,
        "round_seconds": done.seconds,
        "seconds": {"round": done.seconds},
        "wire_bytes": {"up": _total(done.wire_received), "down": _total(done.wire_sent)},
        "wire_bytes_by_trip": {
            trip: {"up": sum(done.wire_received.get(trip, {}).values()), "down": sum(sent.values())}
            for trip, sent in done.wire_sent.items()
        },
        "user_seconds": {stage: sum(by.values()) for stage, by in done.node_seconds.items()},
        "server_seconds": done.server_seconds,
    }
    if done.privacy is not None:
        line["privacy"] = done.privacy
    if done.failed_cohorts:
        parts = {index: why.partition(": ") for index, why in sorted(done.failed_cohorts.items())}
        line["failed_cohorts"] = {str(at): {"kind": kind, "message": said} for at, (kind, _, said) in parts.items()}
    if done.plan is None or done.combined is None:
        return line
    most = count or len(done.plan.classes)
    sent: dict[str, dict[User, int]] = {
        stage: {str(node): size for node, size in by.items()} for stage, by in done.received_bytes.items()
    }
    user_classes = _user_classes(done.plan, done.combined.survivors, classes)
    return line | describe_round(done.plan, done.combined, sent, user_classes, most)


def _total(sizes: Mapping[str, Mapping[int, int]]) -> int:
    return sum(sum(by.values()) for by in sizes.values())
