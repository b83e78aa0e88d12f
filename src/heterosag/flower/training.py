"""A secure round of training: from a strategy's train messages to the one reply that holds the aggregate."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from glob import escape
from logging import INFO, WARNING
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Message, MetricRecord, RecordDict
from flwr.common.logger import log

from heterosag.aggregation.cohorts import CombinedCohorts, blocks_by_plan
from heterosag.aggregation.combine import BlockSum, Combined
from heterosag.aggregation.rules import Rule
from heterosag.errors import UsageError
from heterosag.flower.epochs import Epochs
from heterosag.flower.exchange import Exchange, combine_found
from heterosag.flower.messages import arrays_of, round_digest, to_record
from heterosag.flower.privacy import GridBudget
from heterosag.flower.ranges import Ranges
from heterosag.flower.reports import common_names
from heterosag.flower.rounds import Work
from heterosag.flower.selection import Selection
from heterosag.flower.trips import Trips
from heterosag.plan import Plan
from heterosag.plan.cohorts import plans_of
from heterosag.protocol.transitions import Phase

__all__ = ["Training"]


class Training:
    """Runs the rounds of training of a grid.

    Args:
        trips: What carries messages to the nodes and back.
        exchange: What runs secure rounds.
        epochs: Which plan the nodes of a round have.
        ranges: The ranges of the rounds.
        budget: What rounds with noise have cost, where there is any.
        rule: How block means are combined.
        weight_unit: Examples that make a weight of one.
        exclude: Patterns of the names of arrays that are not aggregated.
        tied: By name, the array whose values it shares.
    """

    def __init__(
        self,
        trips: Trips,
        exchange: Exchange,
        epochs: Epochs,
        ranges: Ranges,
        *,
        budget: GridBudget | None,
        rule: Rule,
        weight_unit: int,
        exclude: Sequence[str],
        tied: Mapping[str, str],
    ) -> None:
        self._trips, self._exchange, self._epochs, self._ranges = trips, exchange, epochs, ranges
        self._budget, self._rule, self._weight_unit = budget, rule, weight_unit
        self._exclude, self._tied = tuple(exclude), dict(tied)
        self._integers: set[str] = set()
        self._no_metrics_logged = self._left_out_logged = False

    def run(self, work: Work, timeout: float | None) -> tuple[RecordDict, Combined | CombinedCohorts]:
        """Train, aggregate, and follow the range.

        Args:
            work: The round, with the strategy's train messages.
            timeout: Seconds that the strategy gives each trip.

        Returns:
            What the strategy's one reply holds, the new model and metrics; and what was decoded.

        Raises:
            HeteroSagError: The round has no result.
        """
        name, arrays = _one_model(work.messages.values())
        exclude = [*self._exclude, *self._integers_of(arrays)]
        self._exchange.terms["exclude"] = exclude
        selection = Selection(model=arrays, exclude=exclude, tied=self._tied)
        if selection.left_out and not self._left_out_logged:
            log(INFO, "\tarrays that are not aggregated, and stay as they are: %s", selection.left_out)
            self._left_out_logged = True
        before = _finite_vector(selection)

        def carry(work: Work, stage: str, fields: Mapping[int, Mapping[str, Any]]) -> dict[int, Message]:
            return self._trips.carry(work, stage, fields, timeout)

        self._epochs.ask_classes(work, carry)
        plan = self._epochs.plan_for(work, selection.layout.sizes, carry)
        nodes = [str(node) for node in work.messages]
        plan = self._ranges.settle(plan, before, nodes, selection.layout.sizes, selection.layout.names)
        if not plans_of(plan)[0].metrics and self._budget is None and not self._no_metrics_logged:
            log(
                WARNING,
                "no metrics are averaged: the plan has no place for them (Plan.build(metrics=...), fewer nodes)",
            )
            self._no_metrics_logged = True
        if self._budget is not None:
            work.privacy = self._budget.charge(plan)
        self._exchange.prepare_for(work.messages)
        found = self._exchange.run(work, plan, timeout)
        began = time.perf_counter()
        self._epochs.leave_out(work, found)
        combined = combine_found(work, plan, found, self._rule)
        work.server_seconds[Phase.UNMASK.value] += time.perf_counter() - began
        self._ranges.describe(plan, combined)
        vector = self._ranges.follow(plan, combined, before)
        parts = blocks_by_plan(plan, combined)
        weight = sum(min(_sound_weight(segment) for segment in blocks) for _, blocks in parts)
        model = to_record(selection.restore(vector))
        metrics = self.metrics_of(work, plans_of(plan)[0], weight, combined)
        return RecordDict({name: model, "metrics": metrics}), combined

    def _integers_of(self, arrays: Mapping[str, npt.NDArray[Any]]) -> list[str]:
        """What has been an array of integers, as patterns: FedAdam and its like make floats of all arrays."""
        self._integers |= {name for name, array in arrays.items() if array.dtype.kind in "iub"}
        return [escape(name) for name in arrays if name in self._integers]

    def metrics_of(self, work: Work, plan: Plan, weight: int, combined: Combined | CombinedCohorts) -> MetricRecord:
        """What the strategy learns beside the model: the sum of weights, and the means of metrics."""
        said = [work.metric_names[int(user)] for user in combined.survivors if int(user) in work.metric_names]
        unit = self._weight_unit if plan.max_weight > 1 else 1
        return MetricRecord({**common_names(plan, said, combined.metrics), self._epochs.weighted_by: weight * unit})


def _one_model(messages: Iterable[Message]) -> tuple[str, dict[str, npt.NDArray[Any]]]:
    """The model of the train messages, whose whole content must be one and the same."""
    listed = list({id(message.content): message for message in messages}.values())
    if len({round_digest(message, {}, b"") for message in listed}) != 1:
        raise UsageError(
            "a secure round needs one model and one configuration for all nodes: these train messages differ"
        )
    return arrays_of(listed[0].content, "a train message")


def _finite_vector(selection: Selection) -> npt.NDArray[np.float64]:
    """What goes of the model, as one vector: where it is not finite no node's update is, and noise would hide that."""
    vector = selection.vector
    if np.isfinite(vector).all():
        return vector
    parts = {slot.name: vector[slot.offset : slot.offset + slot.size] for slot in selection.layout.slots}
    wrong = [str(name) for name, part in parts.items() if not np.isfinite(part).all()]
    raise UsageError(
        f"the model is not finite in {wrong}, so no update would be finite: exclude arrays that are not finite on "
        f"purpose, such as masks, with SecureGrid(exclude={[escape(name) for name in wrong]}), or start from a finite "
        "model"
    )


def _sound_weight(blocks: Sequence[BlockSum]) -> int:
    """The summed weight of a segment's sound blocks."""
    return sum(block.weight for block in blocks if block.fault is None)
