"""The server: late, duplicate and conflicting messages, faulty users, and what a round ends with."""

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from rounds import World, change, small_plan

from heterosag.aggregation.combine import combine
from heterosag.aggregation.rules import RULES
from heterosag.errors import (
    AbandonedRoundError,
    DisputedShareError,
    FaultyUserError,
    TooFewSurvivorsError,
    UsageError,
    WireError,
)
from heterosag.plan import Plan
from heterosag.protocol import Decoded, Server, ServerPhase, outcome
from heterosag.protocol import messages as wire
from heterosag.protocol.unmasking import find_fault, find_metric_fault

PHASES = ("advertise", "share", "mask", "unmask")


@pytest.fixture(autouse=True)
def every_refusal_names_the_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a test here is about: an error of `receive` blames the user whose message it was."""
    receive = Server.receive

    def checked(self: Server, user: Any, data: bytes) -> bool:
        try:
            return receive(self, user, data)
        except (FaultyUserError, WireError) as error:
            blamed = error.user if isinstance(error, FaultyUserError) else error.sender
            if blamed != user:
                pytest.fail(f"{user!r} sent it, {blamed!r} is blamed: {error}")
            raise

    monkeypatch.setattr(Server, "receive", checked)


def total_counts(decoded: Decoded) -> list[int]:
    return [sum(block.auxiliary["count"] for block in segment) for segment in decoded.segments]


def test_a_round_without_faults() -> None:
    world = World(small_plan())
    world.run(*PHASES)
    assert world.server.phase is ServerPhase.DONE
    assert world.server.decoded.survivors == tuple(range(12))
    assert total_counts(world.server.decoded) == [12, 12, 12]
    with pytest.raises(UsageError, match="over: done"):
        world.server.close()


def test_late_messages_are_ignored_and_identical_ones_idempotent() -> None:
    world = World(small_plan())
    first = {user: world.answer("advertise", user) for user in world.plan.users}
    for user, message in first.items():
        assert world.server.receive(user, message)
        assert not world.server.receive(user, message)
    world.waiting = world.server.close()
    assert not world.server.receive(0, first[0])
    world.run("share", "mask", "unmask")
    assert not world.server.receive(0, first[0])
    assert not world.server.refusals


def test_a_delayed_vector_counts_as_dropped() -> None:
    world = World(small_plan())
    world.run("advertise", "share")
    late = world.answer("mask", 5)
    world.run("mask", without={5})
    assert not world.server.receive(5, late)
    world.run("unmask")
    assert 5 not in world.server.decoded.survivors


@pytest.mark.parametrize("phase", PHASES)
def test_a_different_duplicate_is_refused_and_recorded(phase: str) -> None:
    world = World(small_plan())
    world.run(*PHASES[: PHASES.index(phase)])
    world.server.receive(0, world.answer(phase, 0))
    second = World(small_plan())
    second.run(*PHASES[: PHASES.index(phase)])
    with pytest.raises(FaultyUserError, match="two different messages") as refusal:
        world.server.receive(0, second.answer(phase, 0))
    assert refusal.value.user == 0
    assert [(r.user, r.phase.value) for r in world.server.refusals] == [(0, phase)]
    for user in range(1, 12):
        world.server.receive(user, world.answer(phase, user))
    world.waiting = world.server.close()
    world.run(*PHASES[PHASES.index(phase) + 1 :])
    assert world.server.decoded.survivors == tuple(range(12))


def test_a_message_in_another_name_or_context_or_by_an_outsider_is_refused() -> None:
    world, other = World(small_plan()), World(small_plan())
    with pytest.raises(FaultyUserError, match="name of roster index 1"):
        world.server.receive(0, world.answer("advertise", 1))
    world.run("advertise", without={11})
    other.run("advertise")
    with pytest.raises(FaultyUserError, match="another context"):
        world.server.receive(0, other.answer("share", 0))
    with pytest.raises(FaultyUserError, match="no part in the phase share"):
        world.server.receive(11, other.answer("share", 11))
    with pytest.raises(UsageError, match="77"):
        world.server.receive(77, b"")
    assert [refusal.user for refusal in world.server.refusals] == [0, 0, 11]


def test_a_message_of_a_later_phase_is_refused() -> None:
    world, ahead = World(small_plan()), World(small_plan())
    ahead.run("advertise")
    with pytest.raises(WireError, match=r"Advertisement of \d+ bytes"):
        world.server.receive(0, ahead.answer("share", 0))
    short = wire.encode(wire.Agreement(wire.WIRE_VERSION, bytes(32), 0, bytes(64)))
    with pytest.raises(WireError, match="not a Advertisement"):
        world.server.receive(0, short)


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
    shares = wire.decode(wire.Shares, message, plan=world.plan).shares
    for wrong in (shares[1:], shares[::-1], [*shares, shares[0]], [replace(shares[0], user=0), *shares[1:]]):
        with pytest.raises(FaultyUserError, match="exactly its holders"):
            world.server.receive(0, change(wire.Shares, message, world.plan, shares=wrong))
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


def released(world: World, user: int) -> tuple[bytes, list[tuple[int, bytes]]]:
    message = world.answer("unmask", user)
    return message, wire.decode(wire.Released, message, plan=world.plan).shares


def unmasking(*, without: tuple[int, ...] = ()) -> World:
    world = World(small_plan())
    world.run("advertise", "share")
    world.run("mask", without=without)
    return world


def test_released_shares_must_be_the_senders_to_release() -> None:
    world = unmasking()
    message, shares = released(world, 0)
    for wrong, error in (
        ([shares[0], shares[0]], WireError),
        (shares[::-1], WireError),
        ([(99, bytes(32))], WireError),
    ):
        with pytest.raises(error, match="from 0: released shares must name known users once each"):
            world.server.receive(0, change(wire.Released, message, world.plan, shares=wrong))
    partial = World(small_plan())
    partial.run("advertise")
    partial.run("share", without={11})
    partial.run("mask")
    message, shares = released(partial, 0)
    with pytest.raises(FaultyUserError, match="cannot hold"):
        partial.server.receive(0, change(wire.Released, message, partial.plan, shares=[*shares, (11, bytes(32))]))


@pytest.mark.parametrize("bad", [bytes(32), b"\xff" * 32])
def test_false_shares_count_as_missing_while_enough_good_ones_exist(bad: bytes) -> None:
    """Five of twelve holders lie about everything (some with numbers outside the field); seven good shares suffice."""
    world = unmasking(without=(4,))
    for user in world.waiting:
        message, shares = released(world, user)
        if user in (0, 1, 2, 3):
            message = change(wire.Released, message, world.plan, shares=[(dealer, bad) for dealer, _ in shares])
        world.server.receive(user, message)
    world.server.close()
    assert total_counts(world.server.decoded) == [11, 11, 11]
    combine(world.plan, world.server.decoded, RULES["mean"])


def test_too_many_false_shares_name_the_pairs() -> None:
    world = unmasking()
    for user in world.waiting:
        message, shares = released(world, user)
        if user < 6:
            message = change(wire.Released, message, world.plan, shares=[(dealer, bytes(32)) for dealer, _ in shares])
        world.server.receive(user, message)
    with pytest.raises(DisputedShareError, match="6 good shares of user 0's self secret, 7 are needed") as dispute:
        world.server.close()
    assert dispute.value.pairs == tuple((0, holder) for holder in range(6))
    assert world.server.phase is ServerPhase.FAILED


def test_too_few_answers_end_the_round() -> None:
    world = unmasking()
    with pytest.raises(TooFewSurvivorsError, match="6 good shares of user 0"):
        world.run("unmask", without=range(6))


@pytest.mark.parametrize("kind", ["mask", "self"])
def test_a_dealer_whose_shares_give_another_secret_is_to_blame(kind: str) -> None:
    """User 4 shares and commits to something else than its secrets; it drops out, or survives."""
    from heterosag.protocol.client import Polynomials

    world = World(small_plan())
    world.run("advertise")
    false = Polynomials(mask=[1] * 7, self=[2] * 7)
    world.server.receive(4, world.clients[4].share(world.waiting[4], polynomials=false))
    for user in range(12):
        if user != 4:
            world.server.receive(user, world.answer("share", user))
    world.waiting = world.server.close()
    world.run("mask", without={4} if kind == "mask" else set())
    with pytest.raises(FaultyUserError, match=f"do not give its {kind} secret") as blame:
        world.run("unmask")
    assert blame.value.user == 4


def test_a_dealer_whose_shares_do_not_match_their_commitments_is_disputed_by_every_holder() -> None:
    """User 4 publishes false commitments: everybody complains, and no matching shares are left to rebuild from."""
    world = World(small_plan())
    world.run("advertise")
    for user in range(12):
        message = world.answer("share", user)
        if user == 4:
            shares = wire.decode(wire.Shares, message, plan=world.plan).shares
            shares = [replace(entry, mask_commitment=bytes(32)) for entry in shares]
            message = change(wire.Shares, message, world.plan, shares=shares)
        world.server.receive(user, message)
    world.waiting = world.server.close()
    world.run("mask", without={4})
    with pytest.raises(DisputedShareError, match="user 4's mask secret") as dispute:
        world.run("unmask")
    assert {dealer for dealer, _ in dispute.value.pairs} == {4}
    assert len(dispute.value.pairs) == 11


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


def test_an_abandoned_round_is_over_by_name() -> None:
    world = unmasking()
    assert isinstance(world.server.abandon("restarted"), AbandonedRoundError)
    assert world.server.phase is ServerPhase.FAILED
    assert not world.server.receive(0, world.answer("unmask", 0))
    with pytest.raises(UsageError, match="over: failed"):
        world.server.close()
    with pytest.raises(UsageError, match="no result"):
        _ = world.server.decoded
    done = World(small_plan())
    done.run(*PHASES)
    done.server.abandon()
    assert done.server.phase is ServerPhase.DONE


def test_waiting_for_names_who_may_still_answer() -> None:
    world = World(small_plan())
    assert world.server.waiting_for == frozenset(range(12))
    world.server.receive(3, world.answer("advertise", 3))
    assert 3 not in world.server.waiting_for


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


def test_refused_messages_are_not_kept_and_not_counted_without_end() -> None:
    import gc
    import sys

    world = World(small_plan())
    junk = bytes(100) + b"junk"
    before = sys.getrefcount(junk)
    for _ in range(50):
        with pytest.raises(WireError):
            world.server.receive(0, junk)
    gc.collect()
    assert sys.getrefcount(junk) == before
    assert len(world.server.refusals) == 8
    assert world.server.refusals[0].kind == "WireError"


def test_a_tampered_constant_lane_is_seen_in_the_decoded_block() -> None:
    """Whoever takes the sums from the server itself sees the fault too."""
    world = World(small_plan())
    world.run("advertise", "share")
    for user in world.waiting:
        message = world.answer("mask", user)
        if user == 3:
            vector = bytearray(wire.decode(wire.MaskedVector, message, plan=world.plan).vector)
            first = len(vector) - wire.vector_size(world.plan, 1) + (14 * 3 + 7) // 8
            vector[first] ^= 1  # the lowest bit of the first segment's constant lane
            message = change(wire.MaskedVector, message, world.plan, vector=bytes(vector))
        world.server.receive(user, message)
    world.waiting = world.server.close()
    world.run("unmask")
    faults = {block.block.subgroups: block.fault for block in world.server.decoded.segments[0]}
    (spoilt,) = (subgroups for subgroups, fault in faults.items() if fault)
    assert world.plan.assignment[3] in spoilt
    assert "constant lane" in (faults[spoilt] or "")


# --- limits, to the number --------------------------------------------------------------------------------------------


def test_sums_are_possible_up_to_their_very_limit() -> None:
    plan = small_plan()
    block = plan.segments[0].blocks[0]
    sound = {"count": 5, "clipped": 0}

    def fault(most: int, **lanes: int) -> str | None:
        elements = np.array([0, most, 1], dtype=np.uint8)
        return find_fault(plan, block, 5, elements, {**sound, **lanes})

    limit = 5 * (block.level - 1)
    assert fault(limit) is None
    assert fault(limit + 1) == "a sum beyond what its weight allows"
    assert fault(limit, clipped=15) is None
    assert fault(limit, clipped=16) == "more clipped elements than it has"
    assert fault(limit, count=6) == "its constant lane says 6 users, 5 survived"


def test_a_false_metric_is_seen_in_the_decoded_block() -> None:
    plan = small_plan(metrics=["loss"])
    assert find_metric_fault(plan, 5, {"count": 5, "loss": 0}) is None
    assert find_metric_fault(plan, 5, {"count": 4, "loss": 0}) == "its constant lane says 4 users, 5 survived"
    assert find_metric_fault(plan, 5, {"count": 5, "loss": 1 << 62}) == "a metric beyond its limit"
    world = World(plan)
    for phase in ("advertise", "share"):
        world.run(phase)
    for user in world.waiting:
        update = world.updates[plan.index(user)]
        world.server.receive(user, world.clients[user].mask(world.waiting[user], update, metrics={"loss": 1.0}))
    next(iter(world.server._state.sums.values()))[-1].auxiliary[1:2] += np.uint64(1 << 62)  # type: ignore[union-attr]
    world.waiting = world.server.close()
    world.run("unmask")
    assert world.server.decoded.metrics is not None
    assert world.server.decoded.metrics.fault == "a metric beyond its limit"


def test_a_vanished_users_secret_must_stay_within_reach_on_a_sparse_graph() -> None:
    """Every survivor has holders enough; a user who shared and dropped out has not."""
    plan = Plan.build(
        [40], [4], 80, value_range=1.0, subgroup_size=5, min_survivors=2, sharing="sparse", min_robustness=0.0
    )
    holders = plan.sharing.holders(7)
    lost = {7, *holders[: len(holders) - plan.share_threshold + 1]}
    world = World(plan)
    world.run("advertise", "share")
    with pytest.raises(TooFewSurvivorsError, match="holders of user 7"):
        world.run("mask", without=lost)
    found = outcome(plan, dict.fromkeys(lost, "mask"))
    assert found.error is not None
    assert "holders of user 7" in str(found.error)


def test_refusals_say_who_and_why() -> None:
    world = World(small_plan())
    with pytest.raises(WireError) as caught:
        world.server.receive(3, b"nonsense")
    (refusal,) = world.server.refusals
    assert (refusal.user, refusal.kind, refusal.problem) == (3, "WireError", str(caught.value))
    assert str(world.server.abandon()) == "the server gave the round up"
    assert str(World(small_plan()).server.abandon("power cut")) == "power cut"
