"""The server's phases: what each refuses of users' messages, what it keeps, and what it gives when it closes."""

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from rounds import (
    World,
    change,
    change_rows,
    inbox_of,
    masked_signatures,
    masking,
    released,
    small_plan,
    total_counts,
    unmasking,
)

from heterosag.errors import FaultyUserError, TooFewSurvivorsError, WireError
from heterosag.plan import Plan
from heterosag.protocol import ServerPhase
from heterosag.protocol import messages as wire
from heterosag.protocol.survivors import make_admissible


@pytest.mark.parametrize("low", [bytes(32), b"\x01" + bytes(31)])
def test_keys_that_nobody_can_use_are_refused(low: bytes) -> None:
    world = World(small_plan())
    message = world.answer("advertise", 0)
    advertised = wire.decode(wire.Advertisement, message, plan=world.plan).advertised
    for bad in (replace(advertised, seal_key=low), replace(advertised, mask_key=low)):
        with pytest.raises(FaultyUserError, match="X25519"):
            world.server.receive(0, change(wire.Advertisement, message, world.plan, advertised=bad))


def test_a_key_can_be_advertised_once() -> None:
    world = World(small_plan())
    messages = [world.answer("advertise", user) for user in (0, 1)]
    entries = [wire.decode(wire.Advertisement, message, plan=world.plan).advertised for message in messages]
    world.server.receive(0, messages[0])
    for bad in (
        replace(entries[1], mask_key=entries[0].mask_key),
        replace(entries[1], seal_key=entries[0].mask_key),
        replace(entries[1], seal_key=entries[1].mask_key),
    ):
        with pytest.raises(FaultyUserError, match="advertised already"):
            world.server.receive(1, change(wire.Advertisement, messages[1], world.plan, advertised=bad))
    world.server.receive(1, messages[1])
    last = world.answer("advertise", 2)
    own = wire.decode(wire.Advertisement, last, plan=world.plan).advertised
    for other in entries:
        taken = replace(own, seal_key=other.seal_key)
        with pytest.raises(FaultyUserError, match="advertised already"):
            world.server.receive(2, change(wire.Advertisement, last, world.plan, advertised=taken))


def test_advertisements_are_signed_exactly_where_identities_are_in_use() -> None:
    signed, plain = World(small_plan(), signed=True), World(small_plan())
    unsigned = plain.answer("advertise", 0)
    with pytest.raises(FaultyUserError, match="signature for advertise is not valid"):
        signed.server.receive(0, unsigned)
    with pytest.raises(FaultyUserError, match="knows no identities"):
        plain.server.receive(0, signed.answer("advertise", 0))
    del signed.directory[1]
    with pytest.raises(FaultyUserError, match="no key in the directory"):
        signed.server.receive(1, signed.answer("advertise", 1))


def test_shares_go_to_exactly_the_holders() -> None:
    world = World(small_plan())
    world.run("advertise")
    message = world.answer("share", 0)
    sealed = wire.decode(wire.Shares, message, plan=world.plan).sealed
    commitments = wire.decode(wire.Shares, message, plan=world.plan).commitments
    for wrong in (sealed[1:], sealed[80:], b"", sealed + b"\0"):
        with pytest.raises(FaultyUserError, match="exactly its holders"):
            world.server.receive(0, change(wire.Shares, message, world.plan, sealed=wrong))
    for wrong in (commitments[1:], commitments[32:], b"", commitments + b"\0"):
        with pytest.raises(FaultyUserError, match="exactly its holders"):
            world.server.receive(0, change(wire.Shares, message, world.plan, commitments=wrong))
    assert world.server.receive(0, message)


def test_vectors_are_validated_fully_before_they_count() -> None:
    world = World(small_plan())
    world.run("advertise", "share")
    message = world.answer("mask", 0)
    vector = wire.decode(wire.MaskedVector, message, plan=world.plan)
    assert (14 * 3) % 8, "the first segment's elements leave trailing bits"
    size = (14 * 3 + 7) // 8
    trailing = bytearray(vector.vector)
    packed = bytes(vector.vector)
    trailing[size - 1] |= 0x80
    last = bytearray(vector.vector)
    last[-17] |= 0x80  # the third segment's last packed byte, before its two auxiliary lanes
    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"vector": bytes(last)}, WireError, "from 0: the . unused trailing bits"),
        ({"vector": packed[:-1]}, WireError, "bytes, not"),
        ({"vector": packed + b"\0"}, WireError, "bytes, not"),
        ({"vector": bytes(trailing)}, WireError, "trailing bits"),
        ({"complaints": [0]}, FaultyUserError, "no dealers"),
        ({"complaints": [3, 2]}, WireError, "from 0: complaints must name known users once each"),
        ({"complaints": [99]}, WireError, "once each"),
    ]
    before = [cell.elements.copy() for cell in world.server._state.sums[0]]
    for fields, error, match in cases:
        with pytest.raises(error, match=match):
            world.server.receive(0, change(wire.MaskedVector, message, world.plan, **fields))
    assert all(np.array_equal(a, b.elements) for a, b in zip(before, world.server._state.sums[0], strict=True))
    world.server.receive(0, message)
    assert len(world.server.refusals) == len(cases)


def test_signatures_on_another_set_are_refused() -> None:
    world = World(small_plan(), signed=True)
    world.run("advertise", "share", "mask")
    message = world.answer("agree", 0)
    bad = change(wire.Agreement, message, world.plan, signature=bytes(64))
    with pytest.raises(FaultyUserError, match="survivors is not valid"):
        world.server.receive(0, bad)


def test_too_few_signatures_end_the_round() -> None:
    world = World(small_plan(), signed=True)
    world.run("advertise", "share", "mask")
    with pytest.raises(TooFewSurvivorsError, match="6 users signed"):
        world.run("agree", without=range(6))
    assert world.server.phase is ServerPhase.FAILED
    assert not world.server.waiting_for


def test_released_shares_must_be_the_senders_to_release() -> None:
    world = unmasking()
    message, shares = released(world, 0)
    joined = b"".join(shares.values())
    assert len(joined) == 12 * 32
    for wrong in (b"", joined[32:], joined[1:], joined + b"\0", bytes(32 * 12 + 1)):
        with pytest.raises(FaultyUserError, match="one share of each user whose shares it holds"):
            world.server.receive(0, change(wire.Released, message, world.plan, shares=wrong))
    partial = World(small_plan())
    partial.run("advertise")
    partial.run("share", without={11})
    partial.run("mask")
    message, shares = released(partial, 0)
    one_more = b"".join(shares.values()) + bytes(32)
    with pytest.raises(FaultyUserError, match="one share of each user whose shares it holds"):
        partial.server.receive(0, change(wire.Released, message, partial.plan, shares=one_more))


def test_a_holder_releases_no_share_of_a_dealer_it_complained_about() -> None:
    """The places of released shares follow from who complained about whom."""
    world = masking()
    sealed = inbox_of(world).sealed
    spoiled = change(wire.Inbox, world.waiting[0], world.plan, sealed=change_rows(sealed, 80, {3: bytes(80)}))
    world.waiting[0] = spoiled  # of its dealers 1, 2, 3, 4, ...: the fourth
    world.run("mask")
    message, shares = released(world, 0)
    assert sorted(shares) == [0, 1, 2, 3, *range(5, 12)]
    one_more = b"".join(shares.values()) + bytes(32)
    with pytest.raises(FaultyUserError, match="one share of each user whose shares it holds"):
        world.server.receive(0, change(wire.Released, message, world.plan, shares=one_more))
    assert world.server.receive(0, message)
    world.run("unmask")
    assert world.server.decoded.survivors == tuple(range(12))


def test_blocks_whose_masks_cannot_be_removed_are_spoiled_and_say_whose_secret_is_missing() -> None:
    world = World(small_plan())
    world.run("advertise")
    for user in world.plan.users:
        message = world.answer("share", user)
        if user == 4:
            sealed = bytes(len(wire.decode(wire.Shares, message, plan=world.plan).sealed))
            message = change(wire.Shares, message, world.plan, sealed=sealed)
        world.server.receive(user, message)
    world.waiting = world.server.close()
    world.run("mask", "unmask")
    mine = world.plan.assignment[4]
    for block in (block for blocks in world.server.decoded.segments for block in blocks):
        assert block.spoiled == (mine in block.block.subgroups)
        assert ("user 4's self secret" in (block.fault or "")) == block.spoiled


def test_shares_are_not_asked_for_if_a_users_masks_could_not_be_removed() -> None:
    """On a sparse graph who shared and dropped out needs holders too, though every survivor has enough of them."""
    plan = Plan.build(
        [40], [4], 60, value_range=1.0, subgroup_size=10, sharing="sparse", dropout=0.05, assignment_seed=3
    )
    assert (plan.sharing.neighbours, plan.share_threshold) == (6, 4)
    gone = set(plan.sharing.order[:4])
    make_admissible(plan, set(range(40)) - gone)
    world = World(plan)
    world.run("advertise", "share")
    with pytest.raises(TooFewSurvivorsError, match="3 holders of user"):
        world.run("mask", without=gone)
    assert world.server.phase is ServerPhase.FAILED


def test_a_whole_subgroup_can_leave_after_its_vectors_arrived() -> None:
    """Subgroups 0 and 1 keep one survivor each, fewer than the floor together: both leave, the rest is exact."""
    world = World(
        small_plan(classes=[9, 9], min_survivors=3, dimension=60, min_robustness=0.3)
    )  # six subgroups of three
    world.run("advertise", "share")
    world.run("mask", without={1, 2, 4, 5})
    assert set(world.waiting) == set(range(6, 18))
    world.run("unmask")
    assert world.server.decoded.survivors == tuple(range(6, 18))
    assert total_counts(world.server.decoded) == [12] * 5


def test_memory_is_one_accumulator_a_segment_and_subgroup() -> None:
    world = World(small_plan())
    world.run("advertise", "share", "mask")
    sums = world.server._state.masked.sums
    lanes = sum(cell.elements.size for cells in sums.values() for cell in cells)
    assert lanes == len(world.plan.subgroups) * world.plan.dimension


def test_vectors_are_signed_exactly_where_identities_are_in_use() -> None:
    signed, plain = World(small_plan(), signed=True), World(small_plan())
    for world in (signed, plain):
        world.run("advertise", "share")
    with pytest.raises(FaultyUserError, match="signature for masked is not valid"):
        signed.server.receive(0, change(wire.MaskedVector, signed.answer("mask", 0), signed.plan, signature=b""))
    with pytest.raises(FaultyUserError, match="knows no identities"):
        plain.server.receive(0, change(wire.MaskedVector, plain.answer("mask", 0), plain.plan, signature=bytes(64)))


def test_each_user_gets_the_signatures_it_needs_and_no_more() -> None:
    """On a sparse graph those of its own dealers that they masked; then those of a quorum on the survivor set."""
    plan = Plan.build(
        [40], [4], 60, value_range=1.0, subgroup_size=10, sharing="sparse", dropout=0.05, assignment_seed=3
    )
    world = World(plan, signed=True)
    world.run("advertise", "share")
    world.run("mask", without={4})
    masked = masked_signatures(world)
    for user, message in world.waiting.items():
        shown = wire.decode(wire.SurvivorSet, message, plan=plan)
        assert shown.survivors == [other for other in range(40) if other != 4]
        assert shown.signatures == [masked[dealer] for dealer in plan.sharing.holders(user) if dealer != 4]
    world.run("agree", without={0})
    (message,) = set(world.waiting.values())
    request = wire.decode(wire.UnmaskRequest, message, plan=plan)
    assert [user for user, _ in request.signatures] == [1, 2, 3, *range(5, 24)]
    assert len(request.signatures) == plan.agree_quorum
    world.run("unmask", without={0})
    assert len(world.server.decoded.survivors) == 39
