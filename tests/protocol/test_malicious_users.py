"""Users who lie: the round ends with the exact sum of the others, or with an error that names user, block or pair."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from rounds import World, change, change_rows, small_plan

from heterosag.aggregation.combine import combine
from heterosag.aggregation.rules import find_rule
from heterosag.crypto.seal import SEALED_SIZE
from heterosag.errors import FaultyBlockError, FaultyUserError, WireError
from heterosag.protocol import Phase
from heterosag.protocol import messages as wire

CHEAT = 4
PHASES = [phase.value for phase in Phase]


def world_of(*, signed: bool = False) -> World:
    """Updates of -1 and 1 only, the ends of the range: on every quantizer's levels, so that sums are certain."""
    world = World(small_plan(min_survivors=2), signed=signed)
    world.updates = np.random.default_rng(3).choice([-1.0, 1.0], world.updates.shape)
    return world


def run(world: World, cheat: Callable[[str, bytes], list[bytes]], *, signed: bool = False) -> list[Exception]:
    """A round in which `cheat` says what the malicious user sends in place of its answer; returns what was refused."""
    refused: list[Exception] = []
    for phase in PHASES if signed else [phase for phase in PHASES if phase != "agree"]:
        for user in world.waiting:
            sent = [world.answer(phase, user)]
            for data in cheat(phase, sent[0]) if user == CHEAT else sent:
                try:
                    world.server.receive(user, data)
                except (WireError, FaultyUserError) as error:
                    refused.append(error)
        world.waiting = world.server.close()
    return refused


def check_exact(world: World, survivors: set[int]) -> None:
    decoded = world.server.decoded
    assert set(decoded.survivors) == survivors
    for segment, found in zip(world.plan.segments, decoded.segments, strict=True):
        for block in found:
            members = [u for u in survivors if world.plan.assignment[u] in block.block.subgroups]
            values = world.updates[members, segment.start : segment.stop]
            levels = np.rint((values + 1) / 2 * (block.block.level - 1)).sum(axis=0)
            assert np.array_equal(block.elements, levels)
            assert block.fault is None


def named(error: Exception) -> Any:
    return error.sender if isinstance(error, WireError) else error.user  # type: ignore[attr-defined]


WIRE_FAULTS: dict[str, Callable[[World, str, bytes], list[bytes]]] = {
    "garbage": lambda world, phase, data: [b"\x00" * 40],
    "cut": lambda world, phase, data: [data[:-1]],
    "continued": lambda world, phase, data: [data + b"\x00"],
    "another's name": lambda world, phase, data: [_as(world, phase, data)],
}


def _as(world: World, phase: str, data: bytes) -> bytes:
    kinds = {
        "share": wire.Shares, "mask": wire.MaskedVector, "agree": wire.Agreement, "unmask": wire.Released,
    }  # fmt: skip
    if phase == "advertise":
        own = wire.decode(wire.Advertisement, data, plan=world.plan).advertised
        return change(wire.Advertisement, data, world.plan, advertised=replace(own, user=7))
    return change(kinds[phase], data, world.plan, user=7)


@pytest.mark.parametrize(
    ("phase", "signed"), [(phase, signed) for phase in PHASES for signed in (False, True) if signed or phase != "agree"]
)
@pytest.mark.parametrize("fault", WIRE_FAULTS)
def test_faults_that_the_wire_shows_blame_the_user_and_cost_nobody_else(fault: str, phase: str, signed: bool) -> None:
    world = world_of(signed=signed)

    def cheat(now: str, data: bytes) -> list[bytes]:
        return WIRE_FAULTS[fault](world, now, data) if now == phase else [data]

    refused = run(world, cheat, signed=signed)
    assert [named(error) for error in refused] == [CHEAT]
    gone = {CHEAT} if phase in ("advertise", "share", "mask") else set()
    check_exact(world, set(range(12)) - gone)


def test_shares_for_the_wrong_holders_blame_the_dealer() -> None:
    world = world_of()

    def cheat(phase: str, data: bytes) -> list[bytes]:
        if phase != "share":
            return [data]
        message = wire.decode(wire.Shares, data, plan=world.plan)
        fewer = {"sealed": message.sealed[:-SEALED_SIZE], "commitments": message.commitments[: -wire.PAIR_SIZE]}
        return [change(wire.Shares, data, world.plan, **fewer)]

    refused = run(world, cheat)
    assert [named(error) for error in refused] == [CHEAT]
    check_exact(world, set(range(12)) - {CHEAT})


@pytest.mark.parametrize("fault", ["garbled", "swapped", "commitment"])
def test_a_few_bad_shares_of_a_dealer_are_disputed_and_borne(fault: str) -> None:
    """Three holders complain; the nine others rebuild the dealer's secret."""
    world = world_of()

    def cheat(phase: str, data: bytes) -> list[bytes]:
        if phase != "share":
            return [data]
        message = wire.decode(wire.Shares, data, plan=world.plan)
        first, second, third, *_ = boxes = wire.cut_rows(message.sealed, SEALED_SIZE)
        if fault == "garbled":
            return [change(wire.Shares, data, world.plan, sealed=bytes(3 * SEALED_SIZE) + b"".join(boxes[3:]))]
        if fault == "swapped":
            swapped = b"".join([second, third, first, *boxes[3:]])
            return [change(wire.Shares, data, world.plan, sealed=swapped)]
        pairs = wire.cut_rows(message.commitments, wire.PAIR_SIZE)  # the first is the dealer's own
        false = {place: pairs[place][:16] + bytes(16) for place in (1, 2, 3)}
        return [change(wire.Shares, data, world.plan, commitments=change_rows(message.commitments, 32, false))]

    assert run(world, cheat) == []
    check_exact(world, set(range(12)))
    assert world.server.decoded.faulty == (CHEAT,), "three holders dispute it, more than may collude"


def test_a_dealer_whose_shares_nobody_can_use_is_disputed_with_every_holder() -> None:
    world = world_of()

    def cheat(phase: str, data: bytes) -> list[bytes]:
        if phase != "share":
            return [data]
        sealed = wire.decode(wire.Shares, data, plan=world.plan).sealed
        return [change(wire.Shares, data, world.plan, sealed=bytes(len(sealed)))]

    run(world, cheat)
    decoded, mine = world.server.decoded, world.plan.assignment[CHEAT]
    assert decoded.faulty == (CHEAT,)
    for blocks in decoded.segments:
        assert [block.fault is not None for block in blocks] == [mine in block.block.subgroups for block in blocks]


def test_nonzero_trailing_bits_blame_the_user() -> None:
    world = World(small_plan(min_survivors=2, dimension=41))
    world.updates = np.random.default_rng(3).choice([-1.0, 1.0], world.updates.shape)
    cell = world.plan.cells(world.plan.assignment[CHEAT])[0]
    packed = -(-cell.size * cell.bits // 8)
    assert cell.size * cell.bits % 8

    def cheat(phase: str, data: bytes) -> list[bytes]:
        if phase != "mask":
            return [data]
        vector = bytearray(wire.decode(wire.MaskedVector, data, plan=world.plan).vector)
        vector[packed - 1] |= 0x80
        return [change(wire.MaskedVector, data, world.plan, vector=memoryview(bytes(vector)))]

    refused = run(world, cheat)
    assert [named(error) for error in refused] == [CHEAT]
    check_exact(world, set(range(12)) - {CHEAT})


def test_masks_that_do_not_cancel_name_the_block() -> None:
    """The malicious user masks with keys of its own: its blocks are noise, which the constant lane shows."""
    world = world_of()

    def cheat(phase: str, data: bytes) -> list[bytes]:
        if phase != "mask":
            return [data]
        vector = bytearray(wire.decode(wire.MaskedVector, data, plan=world.plan).vector)
        for at in _auxiliary(world):
            vector[at] ^= 1
        return [change(wire.MaskedVector, data, world.plan, vector=memoryview(bytes(vector)))]

    assert run(world, cheat) == []
    subgroup = world.plan.assignment[CHEAT]
    with pytest.raises(FaultyBlockError) as caught:
        combine(world.plan, world.server.decoded, find_rule("mean"))
    assert {segment for segment, _ in caught.value.blocks} == {0, 1, 2}
    assert all(subgroup in subgroups for _, subgroups in caught.value.blocks)
    sound = combine(world.plan, world.server.decoded, find_rule("median"))
    assert len(sound.faulty_blocks) == 3


def _auxiliary(world: World) -> list[int]:
    """Where each cell's constant lane begins in the packed vector."""
    places, at = [], 0
    for cell in world.plan.cells(world.plan.assignment[CHEAT]):
        at += -(-cell.size * cell.bits // 8)
        places.append(at)
        at += 8 * len(cell.lanes)
    return places


def test_of_two_vectors_the_first_counts() -> None:
    world = world_of()

    def cheat(phase: str, data: bytes) -> list[bytes]:
        if phase != "mask":
            return [data]
        changed = bytearray(wire.decode(wire.MaskedVector, data, plan=world.plan).vector)
        changed[0] ^= 1
        return [data, change(wire.MaskedVector, data, world.plan, vector=memoryview(bytes(changed))), data]

    refused = run(world, cheat)
    assert [named(error) for error in refused] == [CHEAT]
    check_exact(world, set(range(12)))


def test_a_flood_is_refused_and_not_kept() -> None:
    world = world_of()

    def cheat(phase: str, data: bytes) -> list[bytes]:
        return [data, *(b"\x00" * 200 + number.to_bytes(4, "big") for number in range(2000))]

    refused = run(world, cheat)
    assert len(refused) == 4 * 2000
    assert len(world.server.refusals) <= 8 * 4
    check_exact(world, set(range(12)))


@pytest.mark.parametrize("fault", ["wrong", "missing"])
def test_bad_shares_at_the_end_count_as_missing(fault: str) -> None:
    world = world_of()

    def cheat(phase: str, data: bytes) -> list[bytes]:
        if phase != "unmask":
            return [data]
        count = len(wire.decode(wire.Released, data, plan=world.plan).shares) // 32
        kept = b"" if fault == "missing" else (b"\x05" + bytes(31)) * count
        return [change(wire.Released, data, world.plan, shares=kept)]

    assert [named(error) for error in run(world, cheat)] == ([CHEAT] if fault == "missing" else [])
    check_exact(world, set(range(12)))
