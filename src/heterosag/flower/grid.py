"""The server's side: a Grid that turns a strategy's train messages into a secure round.

`SecureGrid(grid, ...).start(strategy, ...)` works with any strategy that averages replies: the strategy sends its train
messages, the grid runs the stages of the protocol with the nodes and gives back one reply that holds the aggregate, as
if one client had trained it. Evaluate and query messages pass through. A round that fails gives back an error reply, so
that the strategy logs it and goes on with the next round.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from logging import INFO, WARNING
from pathlib import Path
from secrets import token_bytes
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.common.constant import ErrorCode
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from heterosag.aggregation.clipping import clipped_share, follow
from heterosag.aggregation.combine import BlockSum, Combined, combine
from heterosag.aggregation.rules import find_rule
from heterosag.choices import RuleName
from heterosag.errors import FaultyUserError, HeteroSagError, PlanError, UsageError, WireError
from heterosag.flower.messages import (
    HELLO,
    RECORD,
    SURROUNDINGS,
    arrays_of,
    body_of,
    is_train,
    record_of,
    round_digest,
    run_config_digest,
    to_record,
)
from heterosag.flower.rounds import TOO_LATE, Round, Work, wire_size
from heterosag.flower.run_log import Recorder
from heterosag.ledger import Ledger, epoch_of
from heterosag.plan import Plan, User
from heterosag.protocol import RoundId, Server
from heterosag.protocol.transitions import Phase
from heterosag.simulation.workers import all_cores
from heterosag.vector.arrays import Layout
from heterosag.vector.quantize import ValueRange, check_range

__all__ = ["Round", "SecureGrid"]

_NEED_EACH_REPLY = (
    "Krum",
    "MultiKrum",
    "Bulyan",
    "FedMedian",
    "FedTrimmedAvg",
    "QFedAvg",
    "FedXgbBagging",
    "FedXgbCyclic",
    "DifferentialPrivacyServerSideFixedClipping",
    "DifferentialPrivacyServerSideAdaptiveClipping",
    "DifferentialPrivacyClientSideAdaptiveClipping",
)
_FIRST_RANGE = 0.1
_STAGES = {HELLO, *(phase.value for phase in Phase)}
_OWN_OPTIONS = {"classes", "levels", "dimension", "users", "max_weight", "metrics", "value_range"}


class SecureGrid(Grid):
    """A Grid whose train messages are aggregated securely.

    Args:
        grid: The grid that the ServerApp was given.
        plan: The plan of all nodes of a train message, users by node id as text. Leave it out and the grid plans: nodes
            name their class or rate in their first message.
        levels: One quantizer level for each class, slowest first.
        rate_limits: The rates in Mb/s between the classes, for nodes that name a rate.
        rule: How block means are combined (mean, median, trimmed_mean).
        value_range: The (first) range of an update's elements: a half width, or a pair (default: the plan's, or an
            automatic start).
        adapt_range: Whether the range then follows the updates.
        quantile: The share of elements that it should hold if it does.
        max_weight: Largest weight of a node; 1 means unweighted. Weights cost no bits.
        weight_unit: Examples that make a weight of one.
        weighted_by: The name of the train function's metric that counts examples.
        metrics: Names that are averaged over everybody, securely; all others are dropped.
        directory: Every node's public key, which turns identities on.
        run_config: The run's configuration, `context.run_config`, as every node must see it (default: as most nodes
            see it, which is logged).
        timeouts: Seconds for each stage, by its name, or one number.
        options: Anything else that `Plan.build` takes.
        record: A folder for the run's record, which `heterosag report` reads; `recorded` puts your evaluation into it,
            and `close` ends it.
        hide_sets_below: End rounds that, with those before in the same epoch, would show the sum of fewer users than
            this.

    `rounds` is a `Round` for each round so far.
    """

    def __init__(
        self,
        grid: Grid,
        *,
        plan: Plan | None = None,
        levels: Sequence[int] = (16,),
        rate_limits: Sequence[float] = (),
        rule: RuleName = "mean",
        value_range: ValueRange | float | None = None,
        adapt_range: bool = True,
        quantile: float = 0.999,
        max_weight: int = 1,
        weight_unit: int = 1,
        weighted_by: str = "num-examples",
        metrics: Sequence[str] = (),
        directory: Mapping[str, bytes] | None = None,
        run_config: Mapping[str, Any] | None = None,
        timeouts: float | Mapping[str, float] | None = None,
        options: Mapping[str, Any] | None = None,
        record: str | Path | None = None,
        hide_sets_below: int = 0,
    ) -> None:
        if not isinstance(levels, Sequence):
            raise PlanError("levels", f"is a list with one number a class, slowest first, like [{levels!r}]")
        if plan is None and (
            len(rate_limits) not in (0, len(levels) - 1) or list(rate_limits) != sorted(set(rate_limits))
        ):
            raise PlanError("rate_limits", f"{len(levels)} classes have {len(levels) - 1} rising limits between them")
        if value_range is None:
            value_range = _FIRST_RANGE if plan is None else max(map(abs, plan.value_range))
        try:
            self._fixed = check_range(value_range)
        except UsageError as error:
            raise PlanError("value_range", str(error)) from None
        if weight_unit < 1:
            raise PlanError("max_weight", f"weight_unit is at least 1, not {weight_unit!r}")
        if not 0 < quantile < 1:
            raise PlanError("value_range", f"quantile is a share between 0 and 1, not {quantile!r}")
        if isinstance(timeouts, Mapping) and set(timeouts) - _STAGES:
            raise UsageError(f"timeouts are for the stages {', '.join(sorted(_STAGES))}, not {sorted(timeouts)}")
        if plan is not None and (max_weight != 1 or metrics or options):
            raise PlanError("plan", "a plan given has its own max_weight, metrics and options: leave them out here")
        if set(options or {}) & _OWN_OPTIONS:
            raise PlanError("options", f"{sorted(set(options or {}) & _OWN_OPTIONS)} are arguments of the grid itself")
        self._grid = grid
        self._given = plan
        self._levels = tuple(levels)
        self._rate_limits = tuple(rate_limits)
        self._rule = find_rule(rule)
        self._recorder = None if record is None else Recorder(Path(record), rule, weighted_by)
        self._half_width = max(map(abs, self._fixed))
        self._quantile = quantile if adapt_range else None
        self._weighting = (max_weight, weight_unit, weighted_by)
        self._metrics = tuple(metrics)
        self._directory: dict[User, bytes] | None = _directory(directory)
        self._run_config = None if run_config is None else run_config_digest(run_config)
        self._timeouts = timeouts
        self._options = dict(options or {})
        self._session = token_bytes(16)
        self._hide_sets_below = hide_sets_below
        self._ledgers: dict[bytes, Ledger] = {}
        self._classes: dict[int, int] = {}
        self._plans: dict[tuple[tuple[str, ...], int], Plan] = {}
        self._checked = False
        self._seen_logged = False
        self._faulty: set[int] = set()
        self.rounds: list[Round] = []

    # --- what passes through ------------------------------------------------------------------------------------

    def set_run(self, run: Any) -> None:
        """Set the run, on the grid inside."""
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        """The run of the grid inside."""
        return self._grid.run

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        """A message of the grid inside."""
        return self._grid.create_message(*args, **kwargs)

    def get_node_ids(self) -> Iterable[int]:
        """The nodes of the grid inside."""
        return self._grid.get_node_ids()

    def get_nodes(self) -> Iterable[Any]:
        """The nodes of the grid inside."""
        return self._grid.get_nodes()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Push messages that need no secure round; train messages are refused."""
        listed = list(messages)
        if any(is_train(message) for message in listed):
            raise UsageError("train messages need a secure round: use send_and_receive on the SecureGrid")
        return self._grid.push_messages(listed)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Pull replies from the grid inside."""
        return self._grid.pull_messages(message_ids)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """A secure round for train messages, one reply for all of them; other messages pass through."""
        listed = list(messages)
        if not any(is_train(message) for message in listed):
            replies = list(self._grid.send_and_receive(listed, timeout=timeout))
            if self._recorder is not None:
                self._recorder.note_replies(len(self.rounds), replies)
            return replies
        if not all(is_train(message) for message in listed):
            raise UsageError("train messages cannot be mixed with others in one call")
        if not self._checked:
            log(
                WARNING,
                "which strategy this is was not checked: use SecureGrid.start(strategy, ...)",
            )
            self._checked = True
        return [self._secure(listed, timeout)]

    def start(
        self,
        strategy: Strategy,
        initial_arrays: ArrayRecord,
        *,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
        **options: Any,
    ) -> Result:
        """Run a strategy on this grid: `strategy.start(grid=grid, ...)`, securely.

        Args:
            strategy: Any strategy that averages replies, such as FedAvg, FedAdam or FedProx.
            initial_arrays: The first model.
            evaluate_fn: The server's own evaluation, whose accuracy and loss also go into the record.
            options: What else `strategy.start` takes: num_rounds, timeout, train_config, evaluate_config.

        Returns:
            What `strategy.start` returns. The record is closed.

        Raises:
            UsageError: The strategy needs every client's own reply, which secure aggregation hides.
        """
        _refuse_strategy(strategy)
        self._checked = True
        if evaluate_fn is not None:
            evaluate_fn = self.recorded(evaluate_fn)
        try:
            return strategy.start(grid=self, initial_arrays=initial_arrays, evaluate_fn=evaluate_fn, **options)
        finally:
            self.close()

    # --- the record ---------------------------------------------------------------------------------------------

    def recorded(self, evaluate: Callable[[int, Any], Any]) -> Callable[[int, Any], Any]:
        """The same `evaluate_fn`, whose accuracy and loss go into the record beside the round that they judge."""

        def evaluate_and_note(number: int, arrays: Any) -> Any:
            found = evaluate(number, arrays)
            if self._recorder is not None and found is not None and number:  # 0 judges the model before any round
                self._recorder.note_evaluation(len(self.rounds), found)
            return found

        return evaluate_and_note

    def close(self) -> None:
        """End the record; the grid stays open, and rounds after this are not recorded."""
        if self._recorder is not None:
            self._recorder.close(len(self.rounds))
            self._recorder = None

    def _keep(self, done: Round) -> None:
        self.rounds.append(done)
        if self._recorder is not None:
            known = self._given is None and len(self._levels) > 1
            try:
                self._recorder.note_round(done, self._classes if known else None, len(self._levels) if known else None)
            except OSError as error:  # a full disk must not cost a round that went well
                log(WARNING, "the record ends here: %s", error)
                self._recorder.stop()
                self._recorder = None

    # --- a round ------------------------------------------------------------------------------------------------

    def _secure(self, messages: list[Message], timeout: float | None) -> Message:
        number, began = len(self.rounds) + 1, time.perf_counter()
        work = Work(number=number, messages={message.metadata.dst_node_id: message for message in messages})
        try:
            content, combined = self._aggregate(work, timeout)
        except HeteroSagError as error:
            reason = f"{type(error).__name__}: {error}"
            if len(work.lost) == len(messages):
                reason += f" (all nodes were lost, most {_commonest(work.lost)})"
            log(WARNING, "secure round %d failed: %s", number, reason)
            for node, why in work.lost.items():
                log(WARNING, "\t> node %d was lost: %s", node, why)
            self._keep(work.finish(time.perf_counter() - began, error=reason))
            return Message(Error(code=ErrorCode.UNKNOWN, reason=reason), reply_to=messages[0])
        seconds = time.perf_counter() - began
        self._keep(work.finish(seconds, survivors=combined.survivors, combined=combined))
        alive = len(combined.survivors)
        log(INFO, "secure round %d: %d of %d nodes survived, %.1f s", number, alive, len(messages), seconds)
        for node, why in work.lost.items():
            log(INFO, "\t> node %d was lost: %s", node, why)
        return Message(content, reply_to=messages[0])

    def _aggregate(self, work: Work, timeout: float | None) -> tuple[RecordDict, Combined]:
        name, arrays = _one_model(work.messages.values())
        layout = Layout.of(arrays)
        self._ask_classes(work, timeout)
        plan = self._plan_for(work, layout.dimension)
        work.plan = plan
        bound, unit, weighted_by = plan.max_weight, self._weighting[1], self._weighting[2]
        terms = {
            "weighted-by": weighted_by,
            "weight-unit": unit,
            "classes": self._named_classes(work),
        }
        content = next(iter(work.messages.values())).content
        round_id = RoundId(session=self._session, number=work.number)
        work.ledger = self._ledgers.setdefault(epoch_of(plan), Ledger(plan, sets_below=self._hide_sets_below))
        server = Server(plan, round_id, directory=self._directory, guard=work.ledger, parallel_map=all_cores())
        opening = {
            "plan": plan.encode(),
            "session": round_id.session,
            "round": round_id.number,
            **terms,
        }
        outgoing: dict[Any, bytes] = dict.fromkeys(plan.users, b"")
        for phase in Phase:
            if phase is Phase.AGREE and self._directory is None:
                continue
            extra = opening if phase is Phase.ADVERTISE else {"model": round_id.model} if phase is Phase.MASK else {}
            replies = self._stage(work, phase.value, outgoing, extra, timeout)
            began = time.perf_counter()
            if phase is Phase.ADVERTISE:
                replies, seen = self._same_surroundings(work, replies)
                round_id = replace(round_id, model=round_digest(content, terms, seen))
                server.settle(plan, round_id)
            for node, reply in replies.items():
                self._receive(work, server, node, reply, phase)
            work.refusals = len(server.refusals)
            outgoing = server.close()
            work.server_seconds[phase.value] = time.perf_counter() - began
            if phase is not Phase.UNMASK:
                for node in replies.keys() - {int(user) for user in outgoing}:
                    work.lose(node, phase.value, "left out, so that the others are an admissible set")
        began = time.perf_counter()
        for user in server.decoded.faulty:
            self._faulty.add(int(user))
            log(WARNING, "\t> node %s dealt false shares: it is left out of the rounds after this one", user)
        work.faulty = tuple(int(user) for user in server.decoded.faulty)
        combined = combine(plan, server.decoded, self._rule)
        work.server_seconds[Phase.UNMASK.value] += time.perf_counter() - began
        self._follow(plan, combined)
        vector = layout.flatten(arrays).astype(np.float64) + combined.vector
        weight = min(_sound_weight(segment) for segment in combined.blocks) * (unit if bound > 1 else 1)
        metrics: dict[str, Any] = {weighted_by: weight, **combined.metrics}
        model = to_record(layout.restore(vector, round_integers=True))
        return RecordDict({name: model, "metrics": MetricRecord(metrics)}), combined

    def _same_surroundings(self, work: Work, replies: dict[int, Message]) -> tuple[dict[int, Message], bytes]:
        """The replies of nodes whose train functions see the same beside the message's content, and its digest.

        A node that sees another run configuration, message type, group or run could not be combined with the others.
        """
        named = {node: dict(record_of(reply) or {}) for node, reply in replies.items()}
        fitting = [
            seen
            for record in named.values()
            if isinstance(seen := record.get(SURROUNDINGS), bytes)
            and self._run_config in (None, record.get("run-config"))
        ]
        if not fitting:
            return replies, bytes(32)  # nobody can take part: the server says so when it closes the phase
        chosen = Counter(fitting).most_common(1)[0][0]
        if self._run_config is None and not self._seen_logged:
            log(INFO, "\trun configuration: as %d of %d nodes see it", fitting.count(chosen), len(replies))
            self._seen_logged = True
        kept = {}
        for node, reply in replies.items():
            if named[node].get(SURROUNDINGS) == chosen:
                kept[node] = reply
            else:
                work.lose(node, Phase.ADVERTISE.value, "sees another run configuration, message type or group")
        return kept, chosen

    def _receive(self, work: Work, server: Server, node: int, reply: Message, phase: Phase) -> None:
        """Give the server a node's reply; what it refuses is a lost node with a reason."""
        try:
            data = body_of(reply, sender=str(node))
            work.received_bytes.setdefault(phase.value, {})[node] = len(data)
            server.receive(str(node), data)
        except (FaultyUserError, WireError) as error:
            work.lose(node, phase.value, str(error))
            return

    def _stage(
        self, work: Work, stage: str, outgoing: Mapping[Any, bytes], extra: Mapping[str, Any], timeout: float | None
    ) -> dict[int, Message]:
        """Send a stage to its nodes and collect what comes back in time; the others are lost, with the reason."""
        sent: dict[int, Message] = {}
        for user, data in outgoing.items():
            node = int(user)
            original = work.messages[node]
            record = ConfigRecord({"stage": stage, "message": data, **extra})
            beside = original.content if stage == Phase.MASK.value else {}
            sent[node] = Message(
                RecordDict({**dict(beside), RECORD: record}),
                dst_node_id=node,
                message_type=original.metadata.message_type,
                group_id=original.metadata.group_id,
            )
            work.sent_bytes.setdefault(stage, {})[node] = len(data)
            if self._recorder is not None:
                work.wire_sent.setdefault(stage, {})[node] = wire_size(sent[node])
        log(INFO, "\t%s: asking %d nodes", stage, len(sent))
        began = time.perf_counter()
        replies = list(self._grid.send_and_receive(list(sent.values()), timeout=self._timeout(stage, timeout)))
        elapsed = time.perf_counter() - began
        by_message = {message.metadata.message_id: node for node, message in sent.items()}
        found: dict[int, Message] = {}
        for reply in replies:
            node_id = by_message.get(reply.metadata.reply_to_message_id)
            if node_id is None:
                continue  # a reply to something else, or too late
            if reply.has_error():
                work.lose(node_id, stage, reply.error.reason or "an error without a reason")
            else:
                found[node_id] = reply
                if self._recorder is not None:
                    work.wire_received.setdefault(stage, {})[node_id] = wire_size(reply)
                work.note_seconds(stage, node_id, record_of(reply), elapsed)
        for node in sent.keys() - found.keys() - work.lost.keys():
            work.lose(node, stage, TOO_LATE)
        return {node: found[node] for node in sent if node in found}

    def _timeout(self, stage: str, whole: float | None) -> float | None:
        if isinstance(self._timeouts, Mapping):
            return self._timeouts.get(stage, whole)
        return whole if self._timeouts is None else float(self._timeouts)

    # --- plans --------------------------------------------------------------------------------------------------

    def _ask_classes(self, work: Work, timeout: float | None) -> None:
        """Have nodes that are new here name their class or rate; one class needs no asking."""
        if self._given is not None:
            return
        if len(self._levels) == 1:
            self._classes |= dict.fromkeys(work.messages, 0)
            return
        new = [node for node in work.messages if node not in self._classes]
        if not new:
            return
        replies = self._stage(work, HELLO, {str(node): b"" for node in new}, {}, timeout)
        for node, reply in replies.items():
            try:
                self._classes[node] = self._class_of(record_of(reply) or {}, str(node))
            except WireError as error:
                work.lose(node, HELLO, str(error))

    def _class_of(self, record: Mapping[str, Any], node: str) -> int:
        named = record.get("class")
        if isinstance(named, int) and 0 <= named < len(self._levels):
            return named
        rate = record.get("rate")
        if isinstance(rate, float) and rate > 0 and self._rate_limits:
            return bisect_right(self._rate_limits, rate)
        raise WireError(
            f"names neither a class below {len(self._levels)} (heterosag-class) nor, with rate_limits, a rate "
            "(heterosag-rate) in its node config",
            sender=node,
        )

    def _plan_for(self, work: Work, dimension: int) -> Plan:
        """The plan given, or one for these nodes: kept while nodes and model stay the same, made anew otherwise."""
        span = self._fixed if self._quantile is None else (-self._half_width, self._half_width)
        if self._given is not None:
            if {str(node) for node in work.messages} != set(map(str, self._given.users)):
                raise PlanError("users", "the plan given is for other nodes than those of the train messages")
            if self._given.dimension != dimension:
                raise PlanError(
                    "dimension", f"the plan given has {self._given.dimension}, the model {dimension} elements"
                )
            return self._given.with_value_range(span)
        members: list[list[str]] = [[] for _ in self._levels]
        for node in sorted(work.messages):
            if node in self._faulty:
                work.lose(node, Phase.ADVERTISE.value, "dealt false shares in a round before")
            elif self._directory is not None and str(node) not in self._directory:
                work.lose(node, Phase.ADVERTISE.value, "has no key in the directory")
            elif node in self._classes:
                members[self._classes[node]].append(str(node))
        users = tuple(user for group in members for user in group)
        if not users:
            raise PlanError("classes", f"no node can take part: {_commonest(work.lost)}")
        if (users, dimension) not in self._plans:
            kept = [(len(group), level) for group, level in zip(members, self._levels, strict=True) if group]
            requirements = {
                "value_range": span,
                "subgroup_size": min(8, max(len(users) // 4, 3)),
                "max_weight": self._weighting[0],
                "metrics": self._metrics,
                "assignment_seed": token_bytes(16),
                **self._options,
            }
            if self._plans:
                log(INFO, "the nodes changed: a new plan, and so a new epoch, for %d nodes", len(users))
            sizes, levels = [count for count, _ in kept], [level for _, level in kept]
            try:
                plan = Plan.build(sizes, levels, dimension, users=users, **requirements)
            except TypeError as error:
                raise PlanError("options", f"goes to Plan.build, which does not know all of it: {error}") from None
            for note in plan.notes:
                log(INFO, "\tplan: %s", note)
            self._plans[users, dimension] = plan
        return self._plans[users, dimension].with_value_range(span)

    def _named_classes(self, work: Work) -> list[int]:
        """The classes in the plan, as nodes name them: those that have nodes; none where nobody was asked."""
        if self._given is not None or len(self._levels) == 1:
            return []
        return sorted({self._classes[node] for node in work.messages if node in self._classes})

    def _follow(self, plan: Plan, combined: Combined) -> None:
        if self._quantile is not None:
            self._half_width = follow(self._half_width, clipped_share(plan, combined), self._quantile)


def _one_model(messages: Iterable[Message]) -> tuple[str, dict[str, npt.NDArray[Any]]]:
    """The model of the train messages, whose whole content must be one and the same."""
    contents = {id(message.content): message.content for message in messages}
    if len({round_digest(content, {}, b"") for content in contents.values()}) != 1:
        raise UsageError(
            "a secure round needs one model and one configuration for all nodes: these train messages differ"
        )
    return arrays_of(next(iter(contents.values())), "a train message")


def _sound_weight(blocks: Sequence[BlockSum]) -> int:
    """The summed weight of a segment's sound blocks."""
    return sum(block.weight for block in blocks if block.fault is None)


def _directory(given: Mapping[str, bytes] | None) -> dict[User, bytes] | None:
    return None if given is None else {str(node): key for node, key in given.items()}


def _refuse_strategy(strategy: Any) -> None:
    """Refuse a strategy that looks at each client's reply: behind this grid there is only the aggregate."""
    inner = getattr(strategy, "strategy", None)
    if inner is not None:
        _refuse_strategy(inner)
    for kind in type(strategy).__mro__:
        if kind.__name__ in _NEED_EACH_REPLY and kind.__module__.startswith("flwr."):
            raise UsageError(
                f"{kind.__name__} needs every client's own reply, which secure aggregation hides: use FedAvg, FedAdam "
                "or FedProx, and set rule='median' or rule='trimmed_mean' on the SecureGrid"
            )


def _commonest(lost: Mapping[int, str]) -> str:
    """The reason most nodes were lost for; where none is known they may not have the mod."""
    found = Counter(lost.values()).most_common(1)
    return (
        found[0][0] if found else "no node named its class (heterosag-class in the node config): do they have the mod?"
    )
