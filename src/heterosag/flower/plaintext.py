"""Metrics that nodes send in plaintext: what a strategy sees of them, where node and grid allow it by name.

A strategy of Flower's averages the replies that it gets, and ends the run where their names differ; and a weight that
one node chose could make its metrics the mean. So a strategy gets replies that are made here, of the numbers that can
be averaged with the others' and of nothing else, and an error reply for every other.

Guarantees: the replies that are no errors have one metric record each, all with the same name, the same keys and lists
of the same lengths; their numbers are finite, and their weights above 0 and at most what a node of the plan weighs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from flwr.app import Error, Message, MetricRecord, RecordDict
from flwr.common.constant import ErrorCode

from heterosag.errors import WireError
from heterosag.flower.rounds import printable

__all__ = ["check_replies", "error_reply"]

_LARGEST = 1e100  # of a number, so that weighted sums of such are finite

_Number = int | float
_Numbers = Mapping[str, _Number | list[int] | list[float]]
_Shape = frozenset[tuple[str, int | None]]
"""Names, with the length of those that are lists."""


def check_replies(
    asked: Sequence[Message],
    replies: Sequence[Message],
    *,
    weighted_by: str,
    heaviest: int | None,
    beside: Message | None = None,
) -> list[Message]:
    """What a strategy may see of nodes' own replies.

    Args:
        asked: The messages that were sent.
        replies: What came back.
        weighted_by: The metric that a strategy weights by.
        heaviest: The most that a node may weigh, to which larger weights are capped; None where nodes count alike.
        beside: The reply with the means of the other nodes, whose names then count; else those of most replies do.

    Returns:
        A reply to each message that was answered, with metrics or with an error. Names that the others do not have are
        left out.
    """
    answers = {reply.metadata.reply_to_message_id: reply for reply in reversed(replies)}
    found: list[tuple[Message, _Numbers | WireError]] = []
    for message in asked:
        if message.metadata.message_id in answers:
            try:
                numbers = _read(answers[message.metadata.message_id], weighted_by, heaviest)
            except WireError as error:
                found.append((message, error))
            else:
                found.append((message, numbers))
    shapes = Counter(_shape(numbers) for _, numbers in found if not isinstance(numbers, WireError))
    name = "metrics"
    if beside is not None and beside.has_content():
        wanted = _shape(beside.content.metric_records[name])
    elif shapes:
        wanted = shapes.most_common(1)[0][0]
        name = _commonest_name(list(answers.values()))
    else:
        wanted = frozenset()
    return [_reply(message, numbers, name, wanted) for message, numbers in found]


def error_reply(reason: str, message: Message) -> Message:
    """A reply that says why there are no metrics; a strategy logs it and leaves it out."""
    return Message(Error(code=ErrorCode.UNKNOWN, reason=reason), reply_to=message)


def _read(reply: Message, weighted_by: str, heaviest: int | None) -> _Numbers:
    """The numbers of a node's reply, with the weight that it has among the others."""
    if not reply.has_content():
        raise WireError(printable("", reply.error.reason or "an error without a reason"))
    records = list(reply.content.metric_records.values())
    if len(records) != 1 or not isinstance(records[0], MetricRecord):
        raise WireError(f"an evaluation in plaintext has one MetricRecord, not {len(records)}")
    numbers = dict(records[0])
    if not all(_is_sound(one) for value in numbers.values() for one in (value if isinstance(value, list) else [value])):
        raise WireError(f"its metrics are not all within {_LARGEST:g} of zero")
    weight = numbers.get(weighted_by)
    if weight is None or isinstance(weight, list) or weight <= 0:
        raise WireError(f"its metrics have no number {weighted_by!r} above 0")
    numbers[weighted_by] = 1 if heaviest is None else min(weight, heaviest)
    return numbers


def _is_sound(number: _Number) -> bool:
    return not isinstance(number, bool) and abs(number) <= _LARGEST  # not true of NaN


def _shape(numbers: _Numbers) -> _Shape:
    return frozenset((name, len(value) if isinstance(value, list) else None) for name, value in numbers.items())


def _commonest_name(replies: Sequence[Message]) -> str:
    """What most of the replies call their metric record."""
    names = Counter(name for reply in replies if reply.has_content() for name in reply.content.metric_records)
    return names.most_common(1)[0][0]


def _reply(message: Message, numbers: _Numbers | WireError, name: str, wanted: _Shape) -> Message:
    """A reply in the names that all have."""
    if isinstance(numbers, WireError):
        return error_reply(numbers.problem, message)
    if not wanted <= _shape(numbers):
        return error_reply("its metrics are not those of the others", message)
    kept = {key: numbers[key] for key, _ in sorted(wanted, key=lambda one: one[0])}
    return Message(RecordDict({name: MetricRecord(kept)}), reply_to=message)
