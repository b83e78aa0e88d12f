"""Replies with metrics in plaintext: whatever nodes send, a strategy can average what it sees."""

import math
from typing import Any

import pytest

pytest.importorskip("flwr")

from flwr.app import Error, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg
from hypothesis import given, settings
from hypothesis import strategies as st

from heterosag.flower.plaintext import check_replies, error_reply

GOOD = {"num-examples": 4, "accuracy": 0.5, "by class": [0.25, 0.75]}


def asked(count: int) -> list[Message]:
    messages = [Message(RecordDict(), dst_node_id=7 + place, message_type="evaluate") for place in range(count)]
    for place, message in enumerate(messages):
        message.metadata.__dict__["_message_id"] = f"message-{place}"
    return messages


def content_of(*records: dict[str, Any]) -> RecordDict:
    return RecordDict({f"metrics{place}": MetricRecord(one) for place, one in enumerate(records)})


def checked(contents: list[RecordDict | Error], **options: Any) -> list[Message]:
    messages = asked(len(contents))
    replies = [Message(content, reply_to=message) for content, message in zip(contents, messages, strict=True)]
    return check_replies(messages, replies[::-1], **{"weighted_by": "num-examples", "heaviest": 100, **options})


def metrics_of(reply: Message) -> dict[str, Any]:
    (found,) = reply.content.metric_records.values()
    return dict(found)


def averaged(replies: list[Message]) -> dict[str, Any] | None:
    found = FedAvg().aggregate_evaluate(1, replies)
    return None if found is None else dict(found)


def test_sound_replies_are_averaged_as_flower_does() -> None:
    replies = checked([content_of(GOOD), content_of({**GOOD, "num-examples": 12, "accuracy": 1.0})])
    assert [reply.metadata.src_node_id for reply in replies] == [7, 8]
    assert [set(reply.content) for reply in replies] == [{"metrics0"}] * 2
    assert averaged(replies) == {"accuracy": pytest.approx(0.875), "by class": pytest.approx([0.25, 0.75])}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (content_of(), "one MetricRecord, not 0"),
        (content_of(GOOD, GOOD), "one MetricRecord, not 2"),
        (content_of({"num-examples": 4, "acc": 0.5}), "not those of the others"),
        (content_of({**GOOD, "by class": [0.25]}), "not those of the others"),
        (content_of({**GOOD, "by class": 0.25}), "not those of the others"),
        (content_of({"accuracy": 0.5, "by class": [0.25, 0.75]}), "no number 'num-examples' above 0"),
        (content_of({**GOOD, "num-examples": [4]}), "no number 'num-examples' above 0"),
        (content_of({**GOOD, "num-examples": 0}), "no number 'num-examples' above 0"),
        (content_of({**GOOD, "num-examples": -4}), "no number 'num-examples' above 0"),
        (content_of({**GOOD, "num-examples": math.nan}), "not all within"),
        (content_of({**GOOD, "accuracy": math.nan}), "not all within"),
        (content_of({**GOOD, "accuracy": math.inf}), "not all within"),
        (content_of({**GOOD, "accuracy": 10**400}), "not all within"),
        (content_of({**GOOD, "by class": [0.25, math.nan]}), "not all within"),
    ],
)
@pytest.mark.parametrize("place", [0, 2])
def test_a_reply_that_cannot_be_averaged_with_the_others_is_an_error(content: RecordDict, why: str, place: int) -> None:
    contents: list[RecordDict | Error] = [content_of(GOOD), content_of(GOOD)]
    contents.insert(place, content)
    replies = checked(contents)
    assert [reply.has_error() for reply in replies] == [at == place for at in range(3)]
    assert why in str(replies[place].error.reason)
    assert averaged(replies) == {"accuracy": pytest.approx(0.5), "by class": pytest.approx([0.25, 0.75])}


def test_a_heavy_weight_is_capped_and_without_weights_nodes_count_alike() -> None:
    contents: list[RecordDict | Error] = [content_of(GOOD), content_of({**GOOD, "num-examples": 10**15})]
    assert [metrics_of(reply)["num-examples"] for reply in checked(contents)] == [4, 100]
    assert [metrics_of(reply)["num-examples"] for reply in checked(contents, heaviest=None)] == [1, 1]


def test_the_names_of_the_means_count_and_others_are_left_out() -> None:
    (message,) = asked(1)
    beside = Message(RecordDict({"metrics": MetricRecord({"num-examples": 9, "accuracy": 0.5})}), reply_to=message)
    replies = checked([content_of(GOOD), content_of(GOOD), content_of({"num-examples": 4})], beside=beside)
    assert [reply.has_error() for reply in replies] == [False, False, True]
    assert [set(reply.content) for reply in replies[:2]] == [{"metrics"}] * 2
    assert metrics_of(replies[0]) == {"num-examples": 4, "accuracy": 0.5}
    assert averaged([*replies, beside]) == {"accuracy": pytest.approx(0.5)}
    failed = checked([content_of(GOOD)], beside=error_reply("no", message))
    assert metrics_of(failed[0]) == GOOD


def test_what_a_node_calls_its_record_and_sends_beside_it_is_not_seen() -> None:
    odd = RecordDict({"mine": MetricRecord(GOOD)})
    replies = checked([odd, content_of(GOOD), content_of(GOOD)])
    assert [set(reply.content) for reply in replies] == [{"metrics0"}] * 3
    assert averaged(replies) is not None


def test_the_words_of_a_nodes_error_are_cut() -> None:
    (reply,) = checked([Error(code=2, reason="\x1b[2J" + "A" * 10_000)])
    assert reply.error.reason.isprintable()
    assert len(reply.error.reason) == 300
    assert checked([Error(code=2)])[0].error.reason == "an error without a reason"


def test_replies_to_something_else_are_no_replies() -> None:
    (first,) = asked(1)
    stranger = asked(2)[1]
    replies = [Message(content_of(GOOD), reply_to=stranger)]
    assert check_replies([first], replies, weighted_by="num-examples", heaviest=None) == []


numbers = st.one_of(st.integers(-(2**70), 2**70), st.floats(), st.lists(st.floats(), max_size=2))
names = st.sampled_from(["num-examples", "accuracy", "loss"])


@settings(max_examples=100)
@given(st.lists(st.lists(st.dictionaries(names, numbers), max_size=2), max_size=4))
def test_no_replies_make_a_strategy_raise(said: list[list[dict[str, Any]]]) -> None:
    found = averaged(checked([content_of(*records) for records in said]))
    flat = [x for value in (found or {}).values() for x in (value if isinstance(value, list) else [value])]
    assert all(math.isfinite(number) for number in flat)
