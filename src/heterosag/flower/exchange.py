"""A round's trips on Flower: what the pipeline has for each node goes out, and each node's answers come back to it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from logging import INFO
from secrets import token_bytes
from typing import Any, get_args

from flwr.app import Message
from flwr.common.logger import log

from heterosag.aggregation.cohorts import CombinedCohorts, check_failures, combine_cohorts
from heterosag.aggregation.combine import Combined, combine
from heterosag.aggregation.rules import Rule
from heterosag.choices import EvaluationName
from heterosag.errors import FailedCohortsError, FaultyUserError, HeteroSagError, UsageError, WireError
from heterosag.flower.epochs import Epochs
from heterosag.flower.messages import fields_of, parts_to_fields, record_of, round_digest, values
from heterosag.flower.rounds import FALSE_SHARES, Work, add_to
from heterosag.flower.trips import Trips
from heterosag.ledger import Ledger, epoch_of
from heterosag.plan import CohortPlan, Plan, User
from heterosag.plan.cohorts import plans_of
from heterosag.protocol import Decoded
from heterosag.protocol.pipeline import ServerPipeline
from heterosag.protocol.transitions import Phase
from heterosag.simulation.workers import all_cores

__all__ = ["Exchange", "combine_found"]

_ORDER = list(Phase)
_PHASES = {phase.value for phase in Phase}
_MOST_LEDGERS = 32  # where they refuse nothing, and only say what was shown
_MODES: tuple[EvaluationName, ...] = get_args(EvaluationName)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trip:
    """A cohort's part of a trip: for which phase, which nodes were asked for it, and what came back from whom."""

    phase: Phase
    asked: frozenset[int]
    replies: dict[int, Message]


@dataclass(slots=True, kw_only=True)
class _Cohort:
    """A cohort's rounds in a row: a pipeline with a session of its own, and the run as its nodes see it.

    The other fields are of the round: its plan, what it is about, the trip before, and why it failed if it did.
    """

    pipeline: ServerPipeline
    seen: bytes = bytes(32)
    plan: Plan | None = None
    model: bytes = b""
    trip: _Trip | None = None
    error: HeteroSagError | None = None

    @property
    def own(self) -> Plan:
        """The plan of the round."""
        if self.plan is None:
            raise UsageError("no round has begun")
        return self.plan

    @property
    def open(self) -> bool:
        """Whether the cohort's round goes on."""
        return self.error is None and not self.pipeline.done


class Exchange:
    """Runs rounds one after another, on what was set up ahead where that can be used.

    Every cohort has a pipeline of its own. A trip carries the phase of those that are furthest behind: cohorts whose
    set-up ahead was not ready advertise and share while the others wait, and from then on all go together.

    Args:
        trips: What carries messages.
        epochs: Whose plan has which reveals and classes.
        directory: Every node's public key.
        run_config: The digest of the run configuration that nodes must see, if it is known.
        terms: What the server says of its rounds.
        hide_sets_below: End rounds that would reveal the sum of fewer users than this.
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
        self._may_prepare = prepare
        self._directory = directory
        self._cohorts: list[_Cohort] = []
        self._ledgers: dict[bytes, Ledger] = {}
        self._resumed: dict[str, list[list[int]]] = {}
        self._nodes: frozenset[int] | None = None
        self._prepares_now = prepare
        self._opened: set[tuple[int, bytes]] = set()
        self._seen_logged = False
        self._barred: set[int] = set()
        self.evaluates: dict[int, str] = {}

    def prepare_for(self, nodes: Iterable[int]) -> None:
        """Set up ahead if the nodes are those of the round before: others would have another plan."""
        chosen = frozenset(nodes)
        self._prepares_now = self._may_prepare and self._nodes in (None, chosen)
        self._nodes = chosen

    def run(
        self, work: Work, plan: Plan | CohortPlan, timeout: float | None, *, metrics_only: bool = False
    ) -> list[Decoded | HeteroSagError]:
        """A round's trips: of each cohort what was decoded, or why it failed; without cohorts an error is raised."""
        plans = plans_of(plan)
        work.plan = plan
        self._opened = {(node, frame) for node, frame in self._opened if self._epochs.keeps(frame)}
        if not metrics_only:
            work.ledgers = [self._ledger_of(own) for own in plans]
            while not self._hide_sets_below and len(self._ledgers) > _MOST_LEDGERS * len(plans):
                del self._ledgers[next(iter(self._ledgers))]
        about = next(iter(work.messages.values()))
        terms = {**self.terms, "classes": self._epochs.named_classes(plan)}
        cohorts = [self._cohort(index) for index in range(len(plans))]
        self._bar(work, plans, cohorts)
        for cohort, own in zip(cohorts, plans, strict=True):
            cohort.plan, cohort.trip, cohort.error, cohort.model = own, None, None, b""
            if cohort.pipeline.begin(own, guard=self._ledgers.get(epoch_of(own))):
                cohort.model = round_digest(about, terms, cohort.seen)
                cohort.pipeline.settle(own, model=cohort.model, metrics_only=metrics_only)
        while any(cohort.open for cohort in cohorts):
            phase = min((cohort.pipeline.phase for cohort in cohorts if cohort.open), key=_ORDER.index)
            now = [cohort for cohort in cohorts if cohort.open and cohort.pipeline.phase is phase]
            self._make_trip(work, now, phase, terms, timeout)
            began = time.perf_counter()
            for cohort in now:
                if phase is Phase.ADVERTISE:
                    cohort.seen = self._same_run(cohort) or cohort.seen
                    cohort.model = round_digest(about, terms, cohort.seen)
                    cohort.pipeline.settle(cohort.own, model=cohort.model, metrics_only=metrics_only)
                self._close(work, cohort)
            work.server_seconds[phase.value] = work.server_seconds.get(phase.value, 0.0) + time.perf_counter() - began
            work.refusals = sum(len(cohort.pipeline.server.refusals) for cohort in cohorts)
        failed = {index: cohort.error for index, cohort in enumerate(cohorts) if cohort.error is not None}
        if len(cohorts) > 1:
            work.note_failures(failed)
        check_failures(failed, len(cohorts))
        return [cohort.error or cohort.pipeline.decoded for cohort in cohorts]

    def _cohort(self, index: int) -> _Cohort:
        """The cohort at a place; its pipeline goes on from round to round, whichever nodes are in it."""
        if index == len(self._cohorts):
            pipeline = ServerPipeline(token_bytes(16), directory=self._directory, parallel_map=all_cores())
            self._cohorts.append(_Cohort(pipeline=pipeline))
        self._cohorts[index].pipeline.prepare = self._prepares_now
        return self._cohorts[index]

    def _bar(self, work: Work, plans: Sequence[Plan], cohorts: Sequence[_Cohort]) -> None:
        """Do not ask nodes with false shares in a round before, of a plan that has them still; nor use their set-up."""
        barred = self._epochs.faulty & {int(user) for plan in plans for user in plan.users}
        for node in barred:
            work.gone.add(node)
            work.lose(node, Phase.ADVERTISE.value, FALSE_SHARES)
        if not barred <= self._barred:
            for cohort in cohorts:
                cohort.pipeline.discard()
        self._barred = barred

    def _close(self, work: Work, cohort: _Cohort) -> None:
        """Give a cohort's machine what came back, and end its phase; if it fails, the others go on."""
        for node, reply in ({} if cohort.trip is None else cohort.trip.replies).items():
            self._receive(work, cohort, node, reply)
        try:
            cohort.pipeline.close()
        except HeteroSagError as error:
            cohort.error = error

    def _ledger_of(self, plan: Plan) -> Ledger:
        epoch = epoch_of(plan)
        if epoch not in self._ledgers:
            before = self._resumed.get(epoch.hex(), [])
            self._ledgers[epoch] = Ledger.from_rounds(plan, before, sets_below=self._hide_sets_below)
            self._resumed.pop(epoch.hex(), None)  # only now: impossible rounds are refused again
        return self._ledgers[epoch]

    @property
    def ledgers(self) -> dict[str, list[list[int]]]:
        """The survivor sets of every epoch, to go on with in another program."""
        return self._resumed | {epoch.hex(): ledger.to_rounds() for epoch, ledger in self._ledgers.items()}

    @ledgers.setter
    def ledgers(self, known: Mapping[str, list[list[int]]]) -> None:
        self._ledgers, self._resumed = {}, dict(known)

    def _make_trip(
        self, work: Work, cohorts: Sequence[_Cohort], phase: Phase, terms: Mapping[str, Any], timeout: float | None
    ) -> None:
        """Send what the cohorts' pipelines have for each node, all in one trip, and collect the replies."""
        fields: dict[int, dict[str, Any]] = {}
        asked = [self._fill(work, cohort, phase, terms, fields) for cohort in cohorts]
        content = frozenset().union(*asked) if phase is Phase.MASK else frozenset()
        replies = self._trips.carry(work, phase.value, fields, timeout, with_content=content)
        for cohort, nodes in zip(cohorts, asked, strict=True):
            mine = {int(user) for user in cohort.own.users}
            own = {node: reply for node, reply in replies.items() if node in mine}
            cohort.trip = _Trip(phase=phase, asked=nodes, replies=own)

    def _fill(
        self, work: Work, cohort: _Cohort, phase: Phase, terms: Mapping[str, Any], fields: dict[int, dict[str, Any]]
    ) -> frozenset[int]:
        """Put what a cohort's pipeline has for each of its nodes into the trip; who is asked for this phase."""
        pipeline, plan, after = cohort.pipeline, cohort.own, cohort.trip
        parts = pipeline.send()
        opening = {"plan": plan.with_value_range(1.0, scales=()).encode(), "session": pipeline.session, **terms}
        mask = {"range": list(plan.value_range), "scales": list(plan.scales), "model": cohort.model}
        reveals = self._epochs.reveals_of(plan)
        asked: set[int] = set()
        for user, listed in parts.items():
            node = int(user)
            fields[node] = parts_to_fields((part.number, part.phase.value, part.message) for part in listed)
            if any(part.phase is Phase.ADVERTISE for part in listed):
                fields[node] |= opening
                if reveals is not None and (node, plan.frame) not in self._opened:
                    fields[node]["reveals"] = reveals
            if listed[0].number == pipeline.number:
                asked.add(node)
                fields[node] |= mask if phase is Phase.MASK else {}
            for part in listed:
                add_to(work.sent_bytes, part.phase.value, node, len(part.message))
        if after is not None:
            for node in after.replies.keys() & after.asked - asked:
                work.lose(node, after.phase.value, "left out, so that the others are an admissible set")
        elif phase is not Phase.ADVERTISE:
            for node in {int(user) for user in plan.users} - asked:
                work.lose(node, Phase.SHARE.value, "was not set up when the round began")
        return frozenset(asked)

    def _same_run(self, cohort: _Cohort) -> bytes | None:
        """The run as most nodes of a cohort see it, of those that see the run configuration which is expected."""
        replies = {} if cohort.trip is None else cohort.trip.replies
        fitting = [seen for reply in replies.values() if (seen := self._run_of(reply)) is not None]
        if not fitting:
            return None  # nobody can take part: the server says so when it closes the phase
        chosen, count = Counter(fitting).most_common(1)[0]
        if self._run_config is None and not self._seen_logged:
            log(INFO, "\trun configuration: as %d of %d nodes see it", count, len(replies))
            self._seen_logged = True
        return chosen

    def _run_of(self, reply: Message) -> bytes | None:
        """The run as a node says that it sees it."""
        record = dict(record_of(reply) or {})
        seen = record.get("run")
        return seen if isinstance(seen, bytes) and self._run_config in (None, record.get("run-config")) else None

    def _receive(self, work: Work, cohort: _Cohort, node: int, reply: Message) -> None:
        """Give the machines a node's answers; what they refuse of this round is a lost node with a reason.

        A node that sees another run configuration could not be combined with the others, so its keys are not taken.
        """
        sender, pipeline = str(node), cohort.pipeline
        try:
            fields = fields_of(reply, sender=sender)
            rounds = values(fields, "rounds", int, sender=sender)
            stages = values(fields, "stages", str, sender=sender)
            messages = values(fields, "messages", bytes, sender=sender)
            errors = values(fields, "errors", str, sender=sender)
            answers = list(zip(rounds, stages, messages, errors, strict=True))
        except (WireError, ValueError) as error:
            work.lose(node, pipeline.phase.value, str(error))
            return
        mode, names = fields.get("evaluate"), fields.get("metrics")
        if isinstance(mode, str) and mode in _MODES:
            self.evaluates[node] = mode
        if pipeline.phase is Phase.MASK and isinstance(names, list):
            work.metric_names[node] = [name for name in names if isinstance(name, str)]
        for number, stage, message, refusal in answers:
            ahead = number != pipeline.number
            if refusal or stage not in _PHASES:
                problem = refusal or "answered no stage that there is"
            elif stage == Phase.ADVERTISE.value and self._run_of(reply) != cohort.seen:
                problem = "sees another run configuration than the others"
            else:
                problem = _take(work, pipeline, node, number, stage, message)
                if stage == Phase.ADVERTISE.value and not problem:
                    self._opened.add((node, cohort.own.frame))
            if problem and not ahead:
                work.lose(node, pipeline.phase.value, problem)


def combine_found(
    work: Work, plan: Plan | CohortPlan, found: Sequence[Decoded | HeteroSagError], rule: Rule
) -> Combined | CombinedCohorts:
    """The blocks of the plan, or of all cohorts, by the rule; cohorts whose blocks it cannot take fail here."""
    if isinstance(plan, Plan):
        return combine(plan, next(one for one in found if isinstance(one, Decoded)), rule)
    try:
        combined = combine_cohorts(plan, found, rule)
    except FailedCohortsError as error:
        work.note_failures(error.errors)
        raise
    work.note_failures(combined.failed)
    return combined


def _take(work: Work, pipeline: ServerPipeline, node: int, number: int, stage: str, message: bytes) -> str:
    """Give a machine one answer; why it refused it, empty if it did not."""
    add_to(work.received_bytes, stage, node, len(message))
    try:
        pipeline.receive(str(node), number, message)
    except (FaultyUserError, WireError) as error:
        return str(error)
    return ""
