"""The server: late, duplicate and conflicting messages, faulty users, and what a round ends with."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rounds import (
    ROUND,
    World,
    small_plan,
    total_counts,
    unmasking,
)

from heterosag.errors import (
    AbandonedRoundError,
    ExposedUsersError,
    FaultyUserError,
    TooFewSurvivorsError,
    UsageError,
    WireError,
)
from heterosag.ledger import Ledger
from heterosag.plan import Plan
from heterosag.protocol import Client, Policy, RoundId, Server, ServerPhase
from heterosag.protocol import messages as wire
from heterosag.protocol.survivors import make_admissible

PHASES = ("advertise", "share", "mask", "unmask")


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


@pytest.mark.parametrize("phase", PHASES)
def test_a_message_of_no_or_one_byte_is_refused(phase: str) -> None:
    world = World(small_plan())
    world.run(*PHASES[: PHASES.index(phase)])
    for data in (b"", b"\x94"):
        with pytest.raises(WireError):
            world.server.receive(0, data)


def test_a_message_to_everybody_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A roster grows with the users, so that encoding it for each of them would take the square of their number."""
    world, encoded, encode = World(small_plan()), [], wire.encode
    for user in world.plan.users:
        world.server.receive(user, world.answer("advertise", user))

    def counted(message: wire.Message) -> bytes:
        encoded.append(type(message))
        return encode(message)

    monkeypatch.setattr(wire, "encode", counted)
    assert len(world.server.close()) == 12
    assert encoded == [wire.Roster]


def test_the_given_map_runs_the_pieces_of_unmasking() -> None:
    calls: list[int] = []

    def counted(function: Callable[[Any], Any], pieces: Iterable[Any]) -> Iterator[Any]:
        work = list(pieces)
        calls.append(len(work))
        return map(function, work)

    world = World(small_plan())
    world.server = Server(world.plan, ROUND, parallel_map=counted)
    world.run("advertise", "share", "mask")
    assert calls == []
    world.run("unmask")
    assert calls == [len(world.plan.subgroups)]
    assert total_counts(world.server.decoded) == [12, 12, 12]


def test_a_server_knows_the_whole_plan_and_what_is_masked_of_it() -> None:
    plan, alone = small_plan(metrics=["loss"]), replace(ROUND, metrics_only=True)
    server = Server(plan, alone)
    assert server.whole is plan
    assert server.plan.dimension == 0
    moved = plan.with_value_range(0.5)
    server.settle(moved, ROUND)
    assert server.whole is moved
    assert server.plan is moved


@pytest.mark.parametrize("settled", [None, False, True])
@pytest.mark.parametrize("opened", [False, True])
def test_a_guard_ends_a_round_unless_metrics_alone_are_summed(opened: bool, settled: bool | None) -> None:
    """What the round was settled with counts, or what it was opened with if it never was."""
    plan = small_plan(metrics=["loss"], min_robustness=0.0)
    ledger = Ledger(plan, sets_below=2)
    ledger.note(frozenset(range(12)))
    world, first = World(plan), replace(ROUND, metrics_only=opened)
    world.server = Server(plan, first, guard=ledger)
    world.clients = {user: world.make_client(user, round_id=first) for user in plan.users}
    world.run("advertise")
    if settled is not None:
        second = replace(ROUND, metrics_only=settled)
        world.server.settle(plan, second)
        for client in world.clients.values():
            client.settle(plan, second)
    world.run("share")
    alone = opened if settled is None else settled
    for user in range(11):  # the last one drops out
        update = np.empty(0) if alone else world.updates[user]
        reply = world.clients[user].mask(world.waiting[user], update, metrics={"loss": 1.0})
        world.server.receive(user, reply)
    if alone:
        assert set(world.server.close()) == set(range(11))
    else:
        with pytest.raises(ExposedUsersError, match=r"\[11\]"):
            world.server.close()
        assert world.server.phase is ServerPhase.FAILED
    assert ledger.rounds == 1


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


# --- limits, to the number --------------------------------------------------------------------------------------------


def test_refusals_say_who_and_why() -> None:
    world = World(small_plan())
    with pytest.raises(WireError) as caught:
        world.server.receive(3, b"nonsense")
    (refusal,) = world.server.refusals
    assert (refusal.user, refusal.kind, refusal.problem) == (3, "WireError", str(caught.value))
    assert str(world.server.abandon()) == "the server gave the round up"
    assert str(World(small_plan()).server.abandon("power cut")) == "power cut"


def advertised_by(plan: Plan, users: Iterable[int]) -> Server:
    this_round = RoundId(session=b"ready", number=1)
    server = Server(plan, this_round)
    for user in users:
        server.receive(user, Client(plan, user, this_round, trust_server=True, policy=Policy.any_plan()).advertise())
    return server


def test_a_set_up_is_ready_if_it_tolerates_all_the_losses_that_the_plan_expects() -> None:
    """More losses than subgroups are taken in turn: 29 less 9 are below the threshold of 21, 30 less 9 are not."""
    plan = Plan.build([40], [4], 20, value_range=1.0, design="secagg", dropout=0.3)
    assert (len(plan.subgroups), plan.agree_quorum) == (8, 21)
    assert not advertised_by(plan, range(29)).is_ready()
    assert advertised_by(plan, range(30)).is_ready()


def test_expected_losses_are_taken_from_the_smallest_subgroups() -> None:
    """Two of ten are lost: two subgroups of two users would leave, too many for the quorum; one of a lone user may."""
    plan = small_plan(dropout=0.2)
    assert (plan.agree_quorum, plan.min_survivors, plan.assignment[:6]) == (7, 2, (0, 0, 0, 1, 1, 1))
    assert not advertised_by(plan, [1, 2, 4, 5, *range(6, 12)]).is_ready()
    assert advertised_by(plan, range(2, 12)).is_ready()


def test_a_set_up_is_not_ready_if_it_is_admissible_only_without_somebody() -> None:
    """On a sparse graph a user with too few holders spoils the set, though without it the set would be admissible."""
    plan = Plan.build(
        [64], [4], 20, value_range=1.0, subgroup_size=4, sharing="sparse", min_survivors=2, min_robustness=0.0,
        dropout=0.02,
    )  # fmt: skip
    order, holders = plan.sharing.order, plan.sharing.neighbours
    place = order.index(13)
    gone = {order[(place + step) % 64] for step in (-2, -1, 1, 2)}
    assert (holders, plan.share_threshold, gone <= set(plan.sharing.holders(13))) == (6, 4, True)
    present = sorted(set(range(64)) - gone, key=lambda user: (plan.assignment[user] != plan.assignment[13], user == 13))
    make_admissible(plan, set(present) - {13})
    server = advertised_by(plan, present)
    assert not server.is_ready()
    with pytest.raises(TooFewSurvivorsError, match="holders of user 13"):
        server.close()
