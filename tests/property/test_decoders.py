"""Every decoder against hostile bytes: the corpus, mutations of valid messages, a short fuzz, bounds on work and space.

What must hold of each input is in tools/fuzz/targets.py; `make fuzz` runs the same targets for longer and guided by
coverage.
"""

import random
import tracemalloc
from collections.abc import Callable
from contextlib import suppress

import msgspec
import pytest
from cases import THOROUGH, each, examples
from fuzz.__main__ import CORPUS, HUGE, mutate, read_corpus, seeds
from fuzz.scripts import DEEP, Script, change
from fuzz.targets import KINDS, PLAN, SENT, TARGETS, limited_work, other_plans, play
from hypothesis import given
from hypothesis import strategies as st

from heterosag.errors import PlanError, UsageError, WireError
from heterosag.plan import Plan
from heterosag.protocol import messages as wire

# How many inputs each target gets in the short fuzz, by what one costs.
SHORT_FUZZ = {
    **{f"wire_{name}": 1000 for name in KINDS},
    "plan_bytes": 1500,
    "plan_changed": 600,
    "plan_toml": 1000,
    "saved_client": 1500,
    "saved_client_changed": 600,
    "ring_vector": 2000,
    "masked_vector": 600,
    "server_raw": 800,
    "server_changed": 600,
    "server_closing": 200,
    "client_raw": 800,
    "client_changed": 300,
    "enrolment_server": 800,
    "enrolment_user": 300,
    "pipeline_server": 100,
    "pipeline_user": 100,
    "flower_server": 3,
    "flower_node": 60,
    "directory_file": 400,
    "key_file": 1500,
}


def messages(kind: type[wire.Message]) -> list[bytes]:
    """Valid messages of a kind, with identities and without."""
    name = next(name for name, known in KINDS.items() if known is kind)
    return [data for label, data in read_corpus(f"wire_{name}").items() if label in ("signed", "plain")]


@each("target", TARGETS)
def test_the_corpus_breaks_no_promise(target: str) -> None:
    for name, data in read_corpus(target).items():
        try:
            TARGETS[target](data)
        except Exception as error:
            error.add_note(f"the input: {name}")
            raise


def test_what_is_committed_is_only_what_cannot_be_made() -> None:
    made = seeds()
    assert made.keys() == TARGETS.keys()
    committed = list(CORPUS.glob("*/*"))
    assert committed
    assert all(path.name not in made[path.parent.name] for path in committed)


def test_empty_scripts_leave_a_message_as_it_is() -> None:
    """So that the targets with scripts do get valid messages through."""
    for signed in (False, True):
        tape = play(signed)
        for phase in tape.phases:
            assert change(tape.answered[phase][0], Script(b"")) == tape.answered[phase][0]
            assert tape.server(phase).receive(0, tape.answered[phase][0])
    assert tape.answered.keys() == SENT.keys()


@each("target", TARGETS)
def test_a_short_fuzz_breaks_no_promise(target: str) -> None:
    pool, chance = list(read_corpus(target).values()), random.Random(target)
    for _ in range(SHORT_FUZZ[target] // (1 if THOROUGH else 4)):
        data = mutate(chance, pool)
        try:
            TARGETS[target](data)
        except Exception as error:
            error.add_note(f"the input: {data[:2000]!r}{'...' if len(data) > 2000 else ''}")
            raise


def test_the_short_fuzz_is_not_too_short() -> None:
    assert SHORT_FUZZ.keys() == TARGETS.keys()
    assert sum(SHORT_FUZZ.values()) >= 20_000


# --- mutations of valid messages ------------------------------------------------------------------------------------


@st.composite
def mutations(draw: st.DrawFn, kind: type[wire.Message]) -> bytes:
    """A valid message, changed in one of the ways that decoders get wrong."""
    data = draw(st.sampled_from(messages(kind)))
    place = draw(st.integers(0, len(data)))
    rest = data[place + draw(st.integers(0, 5)) :]
    return draw(
        st.one_of(
            st.just(data[:place]),
            st.binary(min_size=1, max_size=40).map(lambda more: data + more),
            st.integers(0, 8 * len(data) - 1).map(lambda bit: _flip(data, bit)),
            st.sets(st.integers(0, 8 * len(data) - 1), max_size=9).map(lambda bits: _flip(data, *bits)),
            st.sampled_from(messages(draw(st.sampled_from([*KINDS.values()])))).map(
                lambda other: data[:place] + other[place:]
            ),
            st.sampled_from(HUGE).map(lambda header: data[:place] + header + rest),
            st.integers(0, 255).map(lambda tag: data[:1] + bytes([tag]) + data[2:]),
            st.sampled_from((1, 2, 500, 990, 1000, DEEP)).map(lambda depth: data[:place] + b"\x91" * depth + rest),
        )
    )


def _flip(data: bytes, *bits: int) -> bytes:
    changed = bytearray(data)
    for bit in bits:
        changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize("name", KINDS)
@given(st.data())
@examples(60)
def test_mutations_decode_to_themselves_or_name_the_sender(name: str, data: st.DataObject) -> None:
    TARGETS[f"wire_{name}"](data.draw(mutations(KINDS[name])))


@pytest.mark.parametrize("phase", SENT)
@given(st.data())
@examples(25)
def test_mutations_do_not_change_a_server_that_refuses_them(phase: str, data: st.DataObject) -> None:
    place = play(True).phases.index(phase)
    TARGETS["server_raw"](bytes([1, place, 0]) + data.draw(mutations(SENT[phase])))


@pytest.mark.parametrize(
    ("place", "kind"), [(0, wire.Roster), (1, wire.Inbox), (2, wire.SurvivorSet), (3, wire.UnmaskRequest)]
)
@given(st.data())
@examples(25)
def test_clients_release_nothing_for_mutations(place: int, kind: type[wire.Message], data: st.DataObject) -> None:
    TARGETS["client_raw"](bytes([1, place]) + data.draw(mutations(kind)))


@pytest.mark.parametrize("target", [name for name in TARGETS if name.endswith(("_changed", "_closing"))])
@given(script=st.binary(max_size=40))
@examples(40)
def test_edits_of_valid_messages_break_no_promise(target: str, script: bytes) -> None:
    TARGETS[target](script)


@each("name", KINDS)
def test_ten_thousand_lists_in_each_other_are_refused(name: str) -> None:
    """Also under a plan so large that the size limit lets them through to the decoder."""
    plan = Plan.build(
        classes=[1000], levels=[2], dimension=100_000, value_range=1.0, design="secagg", sharing="complete"
    )
    for start in (0, 1, 2, 3, 37, 38, 40):
        data = messages(KINDS[name])[0][:start] + b"\x91" * DEEP
        with pytest.raises(WireError) as caught:
            wire.decode(KINDS[name], data, plan=plan, sender=7)
        assert caught.value.sender == 7


# --- bounds: memory in bytes, time in calls -------------------------------------------------------------------------


def peak_memory(call: Callable[[], object]) -> int:
    """Bytes allocated at the highest point of a call, which may refuse."""
    tracemalloc.start()
    try:
        with suppress(WireError, PlanError, UsageError):
            call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@each("header", HUGE[:4], ids=["list", "map", "bytes", "text"])
@each("name", KINDS)
def test_announced_elements_take_no_memory(name: str, header: bytes) -> None:
    """At every byte of a valid message a header says that 2^32-1 elements follow."""
    data = messages(KINDS[name])[0]
    for place in range(min(len(data), 150)):
        hostile = data[:place] + header
        assert peak_memory(lambda hostile=hostile: wire.decode(KINDS[name], hostile, plan=PLAN)) < 1_000_000


@each("header", HUGE[:4], ids=["list", "map", "bytes", "text"])
def test_announced_elements_take_no_memory_in_plans_and_saved_clients(header: bytes) -> None:
    from heterosag.crypto.hashing import digest

    plan, saved = other_plans()[0], play(False).saved["mask"][32:]
    tape = play(False)
    for place in range(150):
        body = saved[:place] + header
        assert peak_memory(lambda place=place: Plan.decode(plan[:place] + header)) < 1_000_000
        assert peak_memory(lambda body=body: tape.client(saved=digest("saved-client", body) + body)) < 1_000_000


@each("name", KINDS)
def test_decoding_takes_a_few_calls_whatever_arrives(name: str) -> None:
    """The loops run in the decoder, over bytes that are there: the longest message allowed takes no more calls."""
    kind, chance = KINDS[name], random.Random(name)
    limit = wire.size_limit(PLAN, kind)
    for data in [*messages(kind), bytes(limit), b"\x90" * limit, b"\x91" * limit, bytes(10_000_000)]:
        for hostile in (data, mutate(chance, [data])):
            with limited_work(200):
                TARGETS[f"wire_{name}"](hostile)


@each("bomb", [name for name in read_corpus("plan_bytes") if name.startswith("bomb")])
def test_short_arguments_of_a_huge_plan_are_refused_before_it_is_built(bomb: str) -> None:
    data = read_corpus("plan_bytes")[bomb]
    assert len(data) < 300
    with limited_work(20_000), pytest.raises(PlanError):
        Plan.decode(data)


def test_arguments_nested_as_deep_as_the_decoder_goes_are_refused() -> None:
    """Just below the depth at which decoding stops, whoever shows or compares the value goes deeper than that."""
    version, arguments, structure = msgspec.msgpack.decode(other_plans()[0])
    parts = [msgspec.msgpack.encode(value) for value in arguments]
    for place in range(len(parts)):
        for depth in range(900, 1000):
            nested = [*parts[:place], b"\x91" * depth + b"\x01", *parts[place + 1 :]]
            data = bytes([0x93, version, 0xDC, 0, len(parts)]) + b"".join(nested) + msgspec.msgpack.encode(structure)
            with pytest.raises(PlanError):
                Plan.decode(data)
