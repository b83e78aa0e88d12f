"""Messages: one encoding each, strict and bounded decoding, errors that name the sender."""

from typing import Any

import msgspec
import pytest
from cases import each
from fuzz.enrolments import tape
from msgspec.structs import replace
from rounds import World, small_plan

from heterosag.errors import UsageError, WireError
from heterosag.plan import CohortPlan, Plan
from heterosag.protocol import messages as wire


def messages() -> dict[type[wire.Message], bytes]:
    """One real message of every kind."""
    world = World(small_plan(), signed=True)
    found: dict[type[wire.Message], bytes] = {}
    kinds = [
        ("advertise", wire.Advertisement, wire.Roster),
        ("share", wire.Shares, wire.Inbox),
        ("mask", wire.MaskedVector, wire.SurvivorSet),
        ("agree", wire.Agreement, wire.UnmaskRequest),
        ("unmask", wire.Released, None),
    ]
    for phase, sent, received in kinds:
        found[sent] = world.answer(phase, 0)
        world.run(phase)
        if received is not None:
            found[received] = world.waiting[0]
    return found | tape().by_kind()


PLAN = small_plan()
MESSAGES = messages()


@each("kind", MESSAGES)
def test_messages_come_back_and_have_one_encoding(kind: type[wire.Message]) -> None:
    data = MESSAGES[kind]
    assert wire.encode(wire.decode(kind, data, plan=PLAN)) == data
    assert len(data) <= wire.size_limit(PLAN, kind)


@each("kind", MESSAGES)
def test_limits_are_those_of_the_largest_message(kind: type[wire.Message]) -> None:
    """Everybody takes part here, so a message is near its limit: the slack is a few bytes a user."""
    assert wire.size_limit(PLAN, kind) - len(MESSAGES[kind]) < 200 + 10 * len(PLAN.users)


@each("kind", MESSAGES)
def test_every_truncation_and_extension_is_refused(kind: type[wire.Message]) -> None:
    data = MESSAGES[kind]
    for cut in [*range(min(len(data), 150)), len(data) - 1]:
        with pytest.raises(WireError, match="from 'x'"):
            wire.decode(kind, data[:cut], plan=PLAN, sender="x")
    for more in (b"\0", b"\xc0", data):
        with pytest.raises(WireError):
            wire.decode(kind, data + more, plan=PLAN, sender="x")


@each("kind", MESSAGES)
def test_another_kind_is_refused(kind: type[wire.Message]) -> None:
    for other, data in MESSAGES.items():
        if other is not kind:
            with pytest.raises(WireError):
                wire.decode(kind, data, plan=PLAN)


@each("kind", MESSAGES)
def test_another_version_or_context_length_is_refused(kind: type[wire.Message]) -> None:
    fields = msgspec.msgpack.decode(MESSAGES[kind])
    for place, value in ((1, 0), (1, 1), (1, 3), (1, "2"), (2, bytes(31)), (2, bytes(33)), (0, 99)):
        changed = [*fields]
        changed[place] = value
        with pytest.raises(WireError):
            wire.decode(kind, msgspec.msgpack.encode(changed), plan=PLAN)
    with pytest.raises(WireError):
        wire.decode(kind, msgspec.msgpack.encode([*fields, 1]), plan=PLAN)


def test_numbers_in_a_longer_form_are_not_canonical() -> None:
    data = MESSAGES[wire.Agreement]
    assert data[:3] == b"\x95\x07\x02"
    with pytest.raises(WireError, match="canonical") as caught:
        wire.decode(wire.Agreement, data[:2] + b"\xcc\x02" + data[3:], plan=PLAN, sender="x")
    assert caught.value.sender == "x"


@each("kind", MESSAGES)
def test_huge_messages_and_lengths_are_refused_unread(kind: type[wire.Message]) -> None:
    with pytest.raises(WireError, match="at most"):
        wire.decode(kind, bytes(10_000_000), plan=PLAN)
    for bomb in (b"\xdd\xff\xff\xff\xff", b"\x95\x07\x02\xc6\xff\xff\xff\xff", b"\x91" * 2000):
        with pytest.raises(WireError):
            wire.decode(kind, bomb, plan=PLAN)


@each(
    "kind, path, value",
    [
        (wire.Advertisement, (3, 1), bytes(31)),
        (wire.Advertisement, (3, 2), bytes(33)),
        (wire.Advertisement, (3, 3), bytes(65)),
        (wire.Advertisement, (3, 0), -1),
        (wire.Advertisement, (3, 0), 2**32),
        (wire.Shares, (4,), bytes(15)),
        (wire.Shares, (5,), [bytes(32)]),
        (wire.Shares, (6,), "text"),
        (wire.Inbox, (4,), [bytes(32)]),
        (wire.Inbox, (5,), None),
        (wire.Inbox, (3, 0), "0"),
        (wire.Agreement, (4,), bytes(63)),
        (wire.UnmaskRequest, (4, 0, 1), bytes(63)),
        (wire.Released, (4,), [bytes(32)]),
        (wire.Released, (4,), "text"),
        (wire.MaskedVector, (5,), "text"),
    ],
)
def test_fields_of_the_wrong_length_or_type(kind: type[wire.Message], path: tuple[int, ...], value: Any) -> None:
    fields = msgspec.msgpack.decode(MESSAGES[kind])
    target = fields
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    with pytest.raises(WireError):
        wire.decode(kind, msgspec.msgpack.encode(fields), plan=PLAN)


def test_bytes_on_the_wire_are_those_of_the_packed_vector() -> None:
    """The masked vector's message is its packed bytes, its signature, and less than 64 bytes around them."""
    message = wire.decode(wire.MaskedVector, MESSAGES[wire.MaskedVector], plan=PLAN)
    assert len(message.vector) == wire.vector_size(PLAN, 0)
    bits = [block.bits for block in PLAN.blocks_of(0)]
    sizes = [segment.size for segment in PLAN.segments]
    assert len(message.vector) == sum((b * n + 7) // 8 + 16 for b, n in zip(bits, sizes, strict=True))
    assert len(MESSAGES[wire.MaskedVector]) - len(message.vector) - len(message.signature) < 64


def test_a_vector_too_long_for_messagepack_is_named() -> None:
    with pytest.raises(UsageError, match="too long for one message"):
        wire._bin_header(1 << 32)


@each("size", [0, 255, 256, 65_535, 65_536])
def test_a_vector_of_every_length_has_one_encoding(size: int) -> None:
    """MessagePack has one, two or four bytes for a length: only the fewest that hold it are taken."""
    plan = small_plan(dimension=200_000)
    message = wire.MaskedVector(wire.WIRE_VERSION, bytes(32), 0, b"", [], memoryview(bytes(size)))
    data = wire.encode(message)
    assert wire.encode(wire.decode(wire.MaskedVector, data, plan=plan)) == data
    head = wire.encode(replace(message, vector=memoryview(b"")))[:-2]
    for code, width in ((b"\xc4", 1), (b"\xc5", 2), (b"\xc6", 4)):
        longer = head + code + (size % (1 << 8 * width)).to_bytes(width, "big") + bytes(size)
        if longer != data:
            with pytest.raises(WireError):
                wire.decode(wire.MaskedVector, longer, plan=plan)


def test_a_vector_behind_numbers_of_another_form_is_not_canonical() -> None:
    """300 as a signed number of 16 bits takes as many bytes as the unsigned one that we write."""
    plan = Plan.build([304], [4], 1000, value_range=1.0, subgroup_size=8, sharing="sparse")
    message = wire.MaskedVector(
        version=wire.WIRE_VERSION,
        context=bytes(32),
        user=300,
        signature=b"",
        complaints=[],
        vector=memoryview(bytes(300)),
    )
    data = wire.encode(message)
    assert wire.decode(wire.MaskedVector, data, plan=plan).user == 300
    unsigned, signed = b"\xcd\x01\x2c", b"\xd1\x01\x2c"
    assert data.count(unsigned) == 1
    with pytest.raises(WireError, match="canonical"):
        wire.decode(wire.MaskedVector, data.replace(unsigned, signed), plan=plan)


def test_the_limit_of_cohorts_is_that_of_a_plan_with_everybody() -> None:
    """Every user of all cohorts is listed by one digest, whichever cohort the message is for."""
    options: dict[str, Any] = {"value_range": 1.0, "subgroup_size": 2, "min_survivors": 2}
    cohorts = CohortPlan.build([12], [4], 20, cohort_size=4, **options)
    whole = Plan.build([12], [4], 20, **options)
    assert wire.size_limit(cohorts, wire.CohortCommitments) == wire.size_limit(whole, wire.CohortCommitments)


def test_the_limit_itself_is_allowed() -> None:
    plan = Plan.build([16], [4], 100, value_range=1.0, subgroup_size=4)
    limit = wire.size_limit(plan, wire.Agreement)
    with pytest.raises(WireError, match="not a Agreement"):
        wire.decode(wire.Agreement, b"\xc1" * limit, plan=plan)
    with pytest.raises(WireError, match="bytes, at most"):
        wire.decode(wire.Agreement, b"\xc1" * (limit + 1), plan=plan)
