"""What an app's function returns beside arrays: the numbers that become a weight and metrics.

A plan has a few slots for metrics, so that whatever an app names can be summed without planning for it: a node puts its
numbers into them in the order of their names and says the names, never the numbers. A plan that names its metrics has
those and no others.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from logging import WARNING

from flwr.app import Message, MetricRecord
from flwr.common.logger import log

from heterosag.errors import UsageError
from heterosag.plan import Plan
from heterosag.protocol.update import METRIC_LIMIT

__all__ = ["SLOTS", "TrainingError", "common_names", "find_weight", "fill_slots", "numbers_of"]

SLOTS = tuple(f"slot {place}" for place in range(8))
"""The metrics of a plan that the grid makes: as many as fit, under the names that the nodes say."""


class TrainingError(UsageError):
    """The app's function failed, or returned what cannot be aggregated."""


def numbers_of(reply: Message) -> dict[str, float]:
    """The single numbers of a reply's metric records, by name."""
    found: dict[str, float] = {}
    for record in reply.content.metric_records.values():
        if isinstance(record, MetricRecord):
            lists = sorted(name for name, number in record.items() if isinstance(number, list))
            if lists:
                log(WARNING, "these metrics are not averaged, because they are lists: %s", lists)
            found |= {
                name: number
                for name, number in record.items()
                if isinstance(number, int | float) and not isinstance(number, bool)
            }
    return found


def find_weight(plan: Plan, numbers: Mapping[str, float], weighted_by: str, unit: int) -> int:
    """A node's weight: its examples in units, at least one and at most the plan's; 1 where the plan is unweighted."""
    if plan.max_weight == 1:
        return 1
    examples = numbers.get(weighted_by)
    if examples is None:
        raise TrainingError(f"the reply's metrics have no single number {weighted_by!r}, which the server asked for")
    if not math.isfinite(examples):
        raise TrainingError(f"the number of examples is {examples}")
    weight = max(1, round(examples / unit))
    if weight > plan.max_weight:  # capped, never refused: a refusal would tell the server about the weight
        log(
            WARNING,
            "this node's weight of %d is capped at the plan's max_weight of %d: a larger max_weight or weight_unit "
            "on the SecureGrid would let it count in full",
            weight,
            plan.max_weight,
        )
    return min(weight, plan.max_weight)


def fill_slots(
    plan: Plan, numbers: Mapping[str, float], *, wanted: Sequence[str], leave_out: str
) -> tuple[dict[str, float], list[str]]:
    """The plan's metrics from what the app's function returned, and the names of those that it did return.

    A number that is not finite, or too large to sum, counts as the largest: leaving it out would tell the server.

    Args:
        plan: The plan, with slots or with names of its own.
        numbers: What the function returned.
        wanted: Names that the server wants; all of them where it wants none in particular.
        leave_out: The name of the weight.
    """
    names = sorted(name for name in numbers if name != leave_out and (not wanted or name in wanted))
    if plan.metrics == SLOTS:
        if len(names) > len(SLOTS):
            log(WARNING, "only the first %d of %d metrics are averaged: %s", len(SLOTS), len(names), names)
        names = names[: len(SLOTS)]
        places = dict(zip(SLOTS, names, strict=False))
    else:
        left_out = [name for name in names if name not in plan.metrics]
        if left_out and not plan.noise_multiplier:
            log(WARNING, "these metrics are not averaged, because the plan has no place for them: %s", left_out)
        names = [name for name in names if name in plan.metrics]
        places = {name: name for name in plan.metrics}
    filled = {}
    for metric in plan.metrics:
        name = places.get(metric)
        number = 0.0 if name is None else float(numbers.get(name, 0.0))
        if not abs(number) <= METRIC_LIMIT:  # also NaN
            log(WARNING, "the metric %r is %s: it is averaged as %d", name, number, METRIC_LIMIT)
            number = math.copysign(METRIC_LIMIT, number)
        filled[metric] = number
    return filled, names


def common_names(plan: Plan, said: Iterable[Sequence[str]], metrics: Mapping[str, float]) -> dict[str, float]:
    """The means of the metrics that every node has, in slots also at the same place, under their names.

    A node without a metric, or with another one in its slot, has added something else to that sum, so that its mean
    would be wrong: it is left out, which is logged. Where a node lacks a metric, those after it in the order of names
    are in other slots than the others have them in, and so are left out too, though every node has them.
    """
    lists = [tuple(names) for names in said]
    if not lists or not metrics:
        return {}
    names, agreeing = Counter(lists).most_common(1)[0]
    slots = plan.metrics == SLOTS
    where = dict(zip(SLOTS, names, strict=False)) if slots else {name: name for name in names if name in metrics}
    right = {
        name: metrics[slot]
        for place, (slot, name) in enumerate(where.items())
        if all(other[place : place + 1] == (name,) if slots else name in other for other in lists)
    }
    if agreeing < len(lists):
        log(
            WARNING,
            "\t%d of %d nodes name other metrics than %s: not averaged %s",
            len(lists) - agreeing,
            len(lists),
            list(names),
            [name for name in where.values() if name not in right],
        )
    return right
