"""A round's trips on Flower: what the pipeline has for each node goes out, and each node's answers come back to it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from logging import INFO
from secrets import token_bytes
from typing import Any

from flwr.app import Message
from flwr.common.logger import log

from heterosag.errors import FaultyUserError, WireError
from heterosag.flower.epochs import Epochs
from heterosag.flower.messages import fields_of, parts_to_fields, record_of, round_digest, values
from heterosag.flower.rounds import Work
from heterosag.flower.trips import Trips
from heterosag.ledger import Ledger, epoch_of
from heterosag.plan import Plan, User
from heterosag.protocol import Decoded
from heterosag.protocol.pipeline import ServerPipeline
from heterosag.protocol.transitions import Phase
from heterosag.simulation.workers import all_cores

__all__ = ["Exchange"]

_PHASES = {phase.value for phase in Phase}
_MOST_LEDGERS = 32  # where they refuse nothing, and only say what was shown
_MODES = ("secure", "off", "plaintext")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trip:
    """A trip that was made: for which phase, which nodes were asked for it, and what came back from whom."""

    phase: Phase
    asked: frozenset[int]
    replies: dict[int, Message]


class Exchange:
    """Runs rounds one after another, on what was set up ahead where that can be used.

    Args:
        trips: What carries messages.
        epochs: Whose plan has which reveals and classes.
        directory: Every node's public key.
        run_config: The digest of the run configuration that nodes must see, if it is known.
        terms: What the server says of its rounds.
        hide_sets_below: End rounds that would show the sum of fewer users than this.
        prepare: Whether rounds are set up ahead.

    `evaluates` is what nodes say of evaluate messages, by node.
    """

    def __init__(
        self,
        trips: Trips,
        epochs: Epochs,
        *,
        directory: Mapping[User, bytes] | None,
        run_config: bytes | None,
        terms: Mapping[str, Any],
        hide_sets_below: int,
        prepare: bool,
    ) -> None:
        self._trips = trips
        self._epochs = epochs
        self._run_config = run_config
        self.terms = dict(terms)
        self._hide_sets_below = hide_sets_below
        self._prepare = prepare
        self._pipeline = ServerPipeline(token_bytes(16), directory=directory, parallel_map=all_cores())
        self._ledgers: dict[bytes, Ledger] = {}
        self._resumed: dict[str, list[list[int]]] = {}
        self._cohort: frozenset[int] | None = None
        self._opened: set[tuple[int, bytes]] = set()
        self._seen: bytes = bytes(32)
        self._seen_logged = False
        self.evaluates: dict[int, str] = {}

    def prepare_for(self, nodes: Iterable[int]) -> None:
        """Set up ahead if the nodes are those of the round before: others would have another plan."""
        cohort = frozenset(nodes)
        self._pipeline.prepare = self._prepare and self._cohort in (None, cohort)
        self._cohort = cohort

    def run(self, work: Work, plan: Plan, timeout: float | None, *, metrics_only: bool = False) -> Decoded:
        """A round's trips, on what was set up ahead where that can be used."""
        work.plan = plan
        self._opened = {(node, frame) for node, frame in self._opened if self._epochs.keeps(frame)}
        if not metrics_only:
            work.ledger = self._ledger_of(plan)
            if not self._hide_sets_below and len(self._ledgers) > _MOST_LEDGERS:
                del self._ledgers[next(iter(self._ledgers))]
        pipeline, trip, model = self._pipeline, None, b""
        about = next(iter(work.messages.values()))
        terms = {**self.terms, "classes": self._epochs.named_classes(plan)}
        if pipeline.begin(plan, guard=self._ledgers.get(epoch_of(plan))):
            model = round_digest(about, terms, self._seen)
            pipeline.settle(plan, model=model, metrics_only=metrics_only)
        while not pipeline.done:
            phase = pipeline.phase
            trip = self._make_trip(work, plan, terms, model, timeout, after=trip)
            began = time.perf_counter()
            if phase is Phase.ADVERTISE:
                self._seen = self._same_run(trip) or self._seen
                model = round_digest(about, terms, self._seen)
                pipeline.settle(plan, model=model, metrics_only=metrics_only)
            for node, reply in trip.replies.items():
                self._receive(work, plan, node, reply)
            work.refusals = len(pipeline.server.refusals)
            pipeline.close()
            work.server_seconds[phase.value] = time.perf_counter() - began
        return pipeline.decoded

    def _ledger_of(self, plan: Plan) -> Ledger:
        epoch = epoch_of(plan)
        if epoch not in self._ledgers:
            before = self._resumed.pop(epoch.hex(), [])
            self._ledgers[epoch] = Ledger.from_rounds(plan, before, sets_below=self._hide_sets_below)
        return self._ledgers[epoch]

    @property
    def ledgers(self) -> dict[str, list[list[int]]]:
        """The survivor sets of every epoch, to go on with in another program."""
        return self._resumed | {epoch.hex(): ledger.to_rounds() for epoch, ledger in self._ledgers.items()}

    @ledgers.setter
    def ledgers(self, known: Mapping[str, list[list[int]]]) -> None:
        self._ledgers, self._resumed = {}, dict(known)

    def _make_trip(
        self,
        work: Work,
        plan: Plan,
        terms: Mapping[str, Any],
        model: bytes,
        timeout: float | None,
        *,
        after: _Trip | None,
    ) -> _Trip:
        """Send what the pipeline has for each node, and collect the replies."""
        phase, parts = self._pipeline.phase, self._pipeline.send()
        opening = {"plan": plan.with_value_range(1.0, scales=()).encode(), "session": self._pipeline.session, **terms}
        mask = {"range": list(plan.value_range), "scales": list(plan.scales), "model": model}
        reveals = self._epochs.reveals_of(plan)
        fields: dict[int, dict[str, Any]] = {}
        asked: set[int] = set()
        for user, listed in parts.items():
            node = int(user)
            fields[node] = parts_to_fields((part.number, part.phase.value, part.message) for part in listed)
            if any(part.phase is Phase.ADVERTISE for part in listed):
                fields[node] |= opening
                if reveals is not None and (node, plan.frame) not in self._opened:
                    fields[node]["reveals"] = reveals
            if listed[0].number == self._pipeline.number:
                asked.add(node)
                fields[node] |= mask if phase is Phase.MASK else {}
            for part in listed:
                work.sent_bytes.setdefault(part.phase.value, {})[node] = len(part.message)
        if after is not None:
            for node in after.replies.keys() & after.asked - asked:
                work.lose(node, after.phase.value, "left out, so that the others are an admissible set")
        elif phase is not Phase.ADVERTISE:
            for node in {int(user) for user in plan.users} - asked:
                work.lose(node, Phase.SHARE.value, "was not set up when the round began")
        content = asked if phase is Phase.MASK else ()
        replies = self._trips.carry(work, phase.value, fields, timeout, with_content=content)
        return _Trip(phase=phase, asked=frozenset(asked), replies=replies)

    def _same_run(self, trip: _Trip) -> bytes | None:
        """The run as most of these nodes see it, of those that see the run configuration which is expected."""
        fitting = [seen for reply in trip.replies.values() if (seen := self._run_of(reply)) is not None]
        if not fitting:
            return None  # nobody can take part: the server says so when it closes the phase
        chosen, count = Counter(fitting).most_common(1)[0]
        if self._run_config is None and not self._seen_logged:
            log(INFO, "\trun configuration: as %d of %d nodes see it", count, len(trip.replies))
            self._seen_logged = True
        return chosen

    def _run_of(self, reply: Message) -> bytes | None:
        """The run as a node says that it sees it."""
        record = dict(record_of(reply) or {})
        seen = record.get("run")
        return seen if isinstance(seen, bytes) and self._run_config in (None, record.get("run-config")) else None

    def _receive(self, work: Work, plan: Plan, node: int, reply: Message) -> None:
        """Give the machines a node's answers; what they refuse of this round is a lost node with a reason.

        A node that sees another run configuration could not be combined with the others, so its keys are not taken.
        """
        sender, current = str(node), self._pipeline.number
        try:
            fields = fields_of(reply, sender=sender)
            rounds = values(fields, "rounds", int, sender=sender)
            stages = values(fields, "stages", str, sender=sender)
            messages = values(fields, "messages", bytes, sender=sender)
            errors = values(fields, "errors", str, sender=sender)
            answers = list(zip(rounds, stages, messages, errors, strict=True))
        except (WireError, ValueError) as error:
            work.lose(node, self._pipeline.phase.value, str(error))
            return
        mode, names = fields.get("evaluate"), fields.get("metrics")
        if mode in _MODES:
            self.evaluates[node] = mode
        if self._pipeline.phase is Phase.MASK and isinstance(names, list):
            work.metric_names[node] = [name for name in names if isinstance(name, str)]
        for number, stage, message, refusal in answers:
            ahead = number != current
            if refusal or stage not in _PHASES:
                problem = refusal or f"answered no stage that there is: {stage!r}"
            elif stage == Phase.ADVERTISE.value and self._run_of(reply) != self._seen:
                problem = "sees another run configuration than the others"
            else:
                problem = self._take(work, node, number, stage, message)
                if stage == Phase.ADVERTISE.value and not problem:
                    self._opened.add((node, plan.frame))
            if problem and not ahead:
                work.lose(node, stage, problem)

    def _take(self, work: Work, node: int, number: int, stage: str, message: bytes) -> str:
        """Give a machine one answer; why it refused it, empty if it did not."""
        work.received_bytes.setdefault(stage, {})[node] = len(message)
        try:
            self._pipeline.receive(str(node), number, message)
        except (FaultyUserError, WireError) as error:
            return str(error)
        return ""
