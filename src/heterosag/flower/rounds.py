"""A secure round on Flower: what it was, and what it is while it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from itertools import islice
from logging import WARNING
from typing import Any, TypeVar

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.logger import log

from heterosag.aggregation.cohorts import CombinedCohorts
from heterosag.aggregation.combine import Combined
from heterosag.errors import HeteroSagError, UsageError
from heterosag.flower.messages import STAGES
from heterosag.ledger import Ledger, summarise_ledgers
from heterosag.plan import CohortPlan, Plan

__all__ = ["ALL_LOST", "FALSE_SHARES", "TOO_LATE", "Round", "Work", "add_to", "commonest", "printable", "wire_size"]

TOO_LATE = "no reply in time"
FALSE_SHARES = "dealt or released false shares in a round before"
ALL_LOST = " (all nodes were lost"  # begins what is said of the nodes behind the reason of a round
_LONGEST_REASON = 300  # characters: a node chooses the words, which go into logs and the run's record

Sizes = dict[str, dict[int, int]]
"""Bytes by stage and node."""

_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What a secure round was: who was asked, who survived, what was lost and why.

    - `nodes`, `survivors`: node ids of those asked, and of those in the sum.
    - `lost`, `lost_at`: by node id, why and at which stage a node was lost.
    - `faulty`: node ids of those who dealt or released false shares; they are left out of the rounds after.
    - `error`: why the round failed, empty if it did not.
    - `plan`, `combined`: the plan, and the decoded blocks with what was made of them (None if it came to none); of
      more nodes than a cohort has, a `CohortPlan` and the blocks of all cohorts.
    - `failed_cohorts`: by the index of a cohort that failed, why; its nodes have no part in the result.
    - `ledger`: what the sums of the epoch so far show together.
    - `privacy`: what the rounds so far have cost a node, where there is noise.
    - `refusals`: messages that the server refused.
    - `trips`: how often messages went to the nodes and back for it, an enrolment and the asking for classes included.
    - `sent_bytes`, `received_bytes`: the protocol's messages, by phase and node, as the server sees them; those of the
      next round's set-up, which ride on this one's trips, among them.
    - `wire_sent`, `wire_received`: all the objects that Flower carries (the plan, the model, its own records), by trip
      and node; counted for a run with a record, or where `wire_bytes` asks for it.
    - `node_seconds`: what nodes say they spent on the protocol (training left out); `server_seconds`: what the server
      did; `trip_seconds`: by stage, from the messages' leaving to the last reply; `seconds`: the whole round.

    Of a stage that is repeated, as an enrolment is without nodes that were silent, bytes and seconds add up.
    """

    number: int
    nodes: tuple[int, ...]
    survivors: tuple[int, ...] = ()
    lost: dict[int, str] = field(default_factory=dict)
    lost_at: dict[int, str] = field(default_factory=dict)
    faulty: tuple[int, ...] = ()
    error: str = ""
    plan: Plan | CohortPlan | None = None
    combined: Combined | CombinedCohorts | None = None
    failed_cohorts: dict[int, str] = field(default_factory=dict)
    ledger: dict[str, Any] | None = None
    privacy: dict[str, Any] | None = None
    refusals: int = 0
    trips: int = 0
    sent_bytes: Sizes = field(default_factory=dict)
    received_bytes: Sizes = field(default_factory=dict)
    wire_sent: Sizes = field(default_factory=dict)
    wire_received: Sizes = field(default_factory=dict)
    node_seconds: dict[str, dict[int, float]] = field(default_factory=dict)
    server_seconds: dict[str, float] = field(default_factory=dict)
    trip_seconds: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(slots=True, kw_only=True)
class Work:
    """A round while it runs. Trips without the strategy's content go as `message_type`; `gone` nodes are not asked."""

    number: int
    messages: dict[int, Message]
    message_type: str
    plan: Plan | CohortPlan | None = None
    ledgers: Sequence[Ledger] = ()
    failed_cohorts: dict[int, str] = field(default_factory=dict)
    privacy: dict[str, Any] | None = None
    refusals: int = 0
    trips: int = 0
    gone: set[int] = field(default_factory=set)
    metric_names: dict[int, list[str]] = field(default_factory=dict)
    faulty: tuple[int, ...] = ()
    lost: dict[int, str] = field(default_factory=dict)
    lost_at: dict[int, str] = field(default_factory=dict)
    sent_bytes: Sizes = field(default_factory=dict)
    received_bytes: Sizes = field(default_factory=dict)
    wire_sent: Sizes = field(default_factory=dict)
    wire_received: Sizes = field(default_factory=dict)
    node_seconds: dict[str, dict[int, float]] = field(default_factory=dict)
    server_seconds: dict[str, float] = field(default_factory=dict)
    trip_seconds: dict[str, float] = field(default_factory=dict)

    def lose(self, node: int, stage: str, reason: str) -> None:
        """Note why a node is lost, in a line of printable characters and bounded length; the first reason stands.

        Args:
            node: The node.
            stage: What it was asked for, never what it says that it answered.
            reason: Why, in words that may be the node's own.

        Raises:
            UsageError: There is no such stage.
        """
        if stage not in STAGES:
            raise UsageError("a node is lost at a stage that it was asked for")
        self.lost.setdefault(node, printable(f"at {stage}: ", reason))
        self.lost_at.setdefault(node, stage)

    def reason(self, error: HeteroSagError) -> str:
        """Why the round failed, with what most nodes were lost for where all of them were."""
        reason = f"{type(error).__name__}: {error}"
        if self.lost and len(self.lost) == len(self.messages):
            reason += f"{ALL_LOST}, most {commonest(self.lost)})"
        return reason

    def note_failures(self, failed: Mapping[int, HeteroSagError]) -> None:
        """Note and log why cohorts failed, each once."""
        for index, error in failed.items():
            if index not in self.failed_cohorts:
                log(WARNING, "\tcohort %d failed, and has no part in the result: %s", index, error)
                self.failed_cohorts[index] = f"{type(error).__name__}: {error}"

    def note_seconds(self, stage: str, node: int, record: ConfigRecord | None, most: float) -> None:
        """Keep what a node says it spent on a stage, if it is a duration; at most what the stage took."""
        said = None if record is None else record.get("seconds")
        if isinstance(said, float) and said >= 0:
            add_to(self.node_seconds, stage, node, min(said, most))

    def finish(
        self,
        seconds: float,
        *,
        survivors: Iterable[Any] = (),
        combined: Combined | CombinedCohorts | None = None,
        error: str = "",
    ) -> Round:
        """The round as it ended: what was noted on the way, and these."""
        noted = {one.name: getattr(self, one.name) for one in fields(Round) if one.name in self.__slots__}
        return Round(
            **noted,
            ledger=summarise_ledgers(self.ledgers) if self.ledgers else None,
            nodes=tuple(self.messages),
            survivors=tuple(int(user) for user in survivors),
            combined=combined,
            error=error,
            seconds=seconds,
        )


def printable(before: str, said: str) -> str:
    """A line for logs and records: what comes before, and the printable characters of the last line that a node said.

    Args:
        before: Our own words.
        said: The node's, as many and of whatever characters it likes.

    Returns:
        Both, in at most 300 characters.
    """
    lines = said.strip().splitlines()
    last = lines[-1].strip() if lines else ""  # of a traceback, what it ends with
    return before + "".join(islice(filter(str.isprintable, last), _LONGEST_REASON - len(before)))


def add_to(totals: dict[str, dict[int, _Number]], stage: str, node: int, number: _Number) -> None:
    """Add a number of bytes or seconds to what a node has at a stage."""
    by_node = totals.setdefault(stage, {})
    by_node[node] = by_node.get(node, 0) + number


def wire_size(message: Message) -> int:
    """Bytes of all the objects that Flower carries for a message, to within some tens of bytes.

    Bytes in its records are counted without being serialised: Flower hashes an object whenever its parent is
    serialised, which for masked vectors would take as long as the rest of a round.

    Args:
        message: The message, with content or an error.

    Returns:
        Its bytes.
    """
    lean, counted = copy(message), 0
    if message.has_content():
        lean.content = RecordDict(dict(message.content))
        for name, record in message.content.config_records.items():
            emptied: dict[str, Any] = {}
            for key, value in record.items():
                emptied[key], size = _emptied(value)
                counted += size
            lean.content[name] = ConfigRecord(emptied)
    return counted + _deflated_size(lean)


def _emptied(value: Any) -> tuple[Any, int]:
    """A record's value without its bytes, and how many they are."""
    if isinstance(value, bytes):
        return b"", len(value)
    if isinstance(value, list) and value and isinstance(value[0], bytes):
        return [b""] * len(value), sum(map(len, value))
    return value, 0


def _deflated_size(item: Any) -> int:
    return len(item.deflate()) + sum(_deflated_size(child) for child in (item.children or {}).values())


def commonest(lost: Mapping[int, str]) -> str:
    """The reason most nodes were lost for; where none is known they may not have the mod."""
    found = Counter(lost.values()).most_common(1)
    return (
        found[0][0] if found else "no node named its class (heterosag-class in the node config): do they have the mod?"
    )
