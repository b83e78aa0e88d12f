"""Evaluate messages: metrics summed over everybody in a round of their own, or as each node says that it answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from logging import INFO, WARNING
from typing import Any

from flwr.app import Message, MetricRecord, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid

from heterosag.aggregation.cohorts import CombinedCohorts
from heterosag.aggregation.combine import Combined
from heterosag.aggregation.rules import Rule
from heterosag.errors import FaultyBlockError, FaultyServerError, HeteroSagError, UsageError
from heterosag.flower.epochs import Epochs
from heterosag.flower.exchange import Exchange, combine_found
from heterosag.flower.messages import round_digest
from heterosag.flower.plaintext import check_replies, error_reply
from heterosag.flower.rounds import TOO_LATE, Round, Work
from heterosag.plan import CohortPlan, Plan
from heterosag.plan.cohorts import plans_of
from heterosag.protocol import Decoded

__all__ = ["Evaluations"]

_MOST_FAILURES = 3  # in a row, by every node's own function: one poisoned model must not end evaluation

Metrics = Callable[[Work, Plan, int, Combined | CombinedCohorts], MetricRecord]
"""What a strategy learns of a round: from the round, its plan, its sum of weights and what was decoded."""


class Evaluations:
    """Answers a strategy's evaluate messages.

    Args:
        grid: What carries messages to nodes that answer in plaintext.
        exchange: What runs secure rounds.
        epochs: Where nodes that deal or release false shares are left out.
        rule: How block means are combined.
        metrics: What a strategy learns of a round.
        weight_unit: Examples that make a weight of one.
        private: Whether there is noise in the sums, beside which exact ones may not be shown.
        plaintext: Whether nodes that evaluate in plaintext are asked.

    `done` is a `Round` for each secure evaluation so far. `plan` and `train_type` are those of the last round of
    training; None before the first.
    """

    def __init__(
        self,
        grid: Grid,
        exchange: Exchange,
        epochs: Epochs,
        *,
        rule: Rule,
        metrics: Metrics,
        weight_unit: int,
        private: bool,
        plaintext: bool,
    ) -> None:
        self._grid, self._exchange, self._epochs = grid, exchange, epochs
        self._rule, self._metrics, self._private = rule, metrics, private
        self._weight_unit, self._plaintext = weight_unit, plaintext
        self._logged: set[str] = set()
        self._failures = 0
        self._why_none = ""
        self.done: list[Round] = []
        self.plan: Plan | CohortPlan | None = None
        self.train_type = ""

    def answer(self, messages: list[Message], timeout: float | None) -> tuple[list[Message], Message | None]:
        """Send evaluate messages as the nodes say that they answer them.

        Args:
            messages: The strategy's messages.
            timeout: Seconds that the strategy gives it.

        Returns:
            The nodes' own replies, in plaintext or refused; and the one with the means of the others, None where all
            have said otherwise. Their names and numbers are such that a strategy can average them, whatever a node
            sent.
        """
        by_mode: dict[str, list[Message]] = {"secure": [], "off": [], "plaintext": []}
        for message in messages:
            by_mode[self._exchange.evaluates.get(message.metadata.dst_node_id, "secure")].append(message)
        plain, refused, secure = by_mode["plaintext"], by_mode["off"], by_mode["secure"]
        if refused:
            self._log_once("evaluation is off on %d of %d nodes: they are not asked", len(refused), len(messages))
        replies = [error_reply("evaluation is off on this node", message) for message in refused]
        if plain and not self._plaintext:
            why = "they are not asked without SecureGrid(plaintext_evaluation=True)"
            self._log_once(f"%d of %d nodes evaluate in plaintext: {why}", len(plain), len(messages))
            replies += [error_reply("evaluation is in plaintext on this node", message) for message in plain]
            plain = []
        means = self._answer_securely(secure, timeout) if secure else None
        return [*self._ask_in_plaintext(plain, timeout, means), *replies], means

    def _ask_in_plaintext(self, messages: list[Message], timeout: float | None, means: Message | None) -> list[Message]:
        """The replies of nodes that say that they evaluate in plaintext, but for those whose metrics are in the sum."""
        if means is not None and not means.has_error():
            counted = set(self.done[-1].survivors)
            messages = [message for message in messages if message.metadata.dst_node_id not in counted]
        if not messages:
            return []
        most = 1 if self.plan is None else plans_of(self.plan)[0].max_weight
        return check_replies(
            messages,
            list(self._grid.send_and_receive(messages, timeout=timeout)),
            weighted_by=self._epochs.weighted_by,
            heaviest=most * self._weight_unit if most > 1 else None,
            beside=means,
        )

    def _log_once(self, line: str, *numbers: int) -> None:
        if line not in self._logged:
            log(INFO, line, *numbers)
            self._logged.add(line)

    def _answer_securely(self, messages: list[Message], timeout: float | None) -> Message:
        """One reply with the means of the metrics over everybody in the plan of the round before."""
        if self._private and not self._why_none:
            self._why_none = "under privacy there is no secure evaluation, whose sums would be exact"
            log(INFO, self._why_none)
        if self._why_none:
            return error_reply(self._why_none, messages[0])
        began, number = time.perf_counter(), len(self.done) + 1
        work = self._begin(messages[0], number)
        try:
            plan, weight, combined = self._run(work, messages, timeout)
        except HeteroSagError as error:
            reason = work.reason(error)
            log(WARNING, "secure evaluation %d failed: %s", number, reason)
            self.done.append(work.finish(time.perf_counter() - began, error=reason))
            self._failures = self._failures + 1 if self._nobody_can(work) else 0
            if self._failures == _MOST_FAILURES:
                self._why_none = (
                    f"no node could evaluate in {_MOST_FAILURES} evaluations, so none is asked again: {reason}"
                )
            return error_reply(reason, messages[0])
        metrics = self._metrics(work, plan, weight, combined)
        self.done.append(work.finish(time.perf_counter() - began, survivors=combined.survivors, combined=combined))
        alive, asked_nodes, trips = len(combined.survivors), len(work.messages), work.trips
        log(INFO, "secure evaluation %d: %d of %d nodes, %d trips", number, alive, asked_nodes, trips)
        return Message(RecordDict({"metrics": metrics}), reply_to=messages[0])

    def _nobody_can(self, work: Work) -> bool:
        """Whether no node may have what it takes to evaluate: none ever did, and nothing else explains it.

        A message that was late, and a node that refuses because it has not trained since, say nothing of the next time.
        """
        if not work.messages or work.messages.keys() != work.lost.keys() or any(not done.error for done in self.done):
            return False
        return not any(why.endswith(TOO_LATE) or FaultyServerError.__name__ in why for why in work.lost.values())

    def _begin(self, message: Message, number: int) -> Work:
        """An evaluation of everybody in the plan, whomever the strategy asked."""
        users = [] if self.plan is None else [int(user) for user in self.plan.users]
        about: dict[str, Any] = {"message_type": message.metadata.message_type, "group_id": message.metadata.group_id}
        everybody = {node: Message(message.content, dst_node_id=node, **about) for node in users}
        return Work(number=number, messages=everybody, message_type=self.train_type)

    def _run(
        self, work: Work, messages: list[Message], timeout: float | None
    ) -> tuple[Plan, int, Combined | CombinedCohorts]:
        """The plan, of one cohort where there are several, the weights of all nodes, and the means."""
        if self.plan is None:
            raise UsageError("nothing was trained yet: nodes evaluate together after a round of training")
        if len({round_digest(message, {}, b"") for message in messages}) != 1:
            raise UsageError("a secure evaluation needs one model and one configuration for all nodes")
        found = self._exchange.run(work, self.plan, timeout, metrics_only=True)
        self._epochs.leave_out(work, found)
        combined = combine_found(work, self.plan.only_metrics(), found, self._rule)
        plan = plans_of(self.plan)[0]
        if not combined.metrics:
            everybody_in = tuple(range(len(plan.subgroups)))
            problem = "the sum of metrics is one that honest nodes cannot have made"
            raise FaultyBlockError([(len(plan.segments), everybody_in)], problem)
        sums = [one.metrics for one in found if isinstance(one, Decoded)]
        weight = sum(block.weight for block in sums if block is not None and block.fault is None)
        return plan, weight, combined
