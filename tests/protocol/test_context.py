"""The contexts: what they bind, and that a message of another one is refused."""

import re
from pathlib import Path
from typing import Any

import pytest
from cases import each
from rounds import ROUND, World, change, refuses, small_plan, total_counts

from heterosag.crypto.hashing import digest
from heterosag.errors import FaultyServerError, FaultyUserError, PlanError, UsageError
from heterosag.plan import Plan
from heterosag.protocol import ClientPhase, Policy, RoundId
from heterosag.protocol import messages as wire
from heterosag.protocol.context import roster_context, sharers_context
from heterosag.storage.release_log import FileReleaseLog

# --- before the round ---------------------------------------------------------------------------------------------


@each(
    "other",
    [
        {"plan": small_plan(levels=[2, 6])},
        {"plan": small_plan(min_survivors=3)},
        {"plan": small_plan(colluders=1)},
        {"round_id": RoundId(session=b"other", number=3)},
        {"round_id": RoundId(session=b"test", number=4)},
    ],
)
def test_a_different_plan_or_round_is_another_context(other: dict[str, Any]) -> None:
    world = World(small_plan())
    world.run("advertise")
    world.clients[0] = world.make_client(0, **other)
    world.clients[0].advertise()
    refuses(world, 0, "share", world.waiting[0], "another context")


def test_round_ids_are_checked() -> None:
    for bad, says in (
        ({"session": b""}, "session is 1 to 64 bytes long, not 0"),
        ({"session": b"x" * 65}, "session is 1 to 64 bytes long, not 65"),
        ({"session": b"x", "number": -1}, "number is at least 0 and below 2^64, not -1"),
        ({"session": b"x", "number": 2**64}, f"number is at least 0 and below 2^64, not {2**64}"),
        ({"session": b"x", "model": b"y"}, "model is a digest of 32 bytes, not of 1"),
    ):
        with pytest.raises(UsageError, match=f"^{re.escape(says)}$"):
            RoundId(**bad)  # type: ignore[arg-type]


def test_no_model_gives_a_whole_round_the_context_of_an_evaluation() -> None:
    """A server that says so to one user, and evaluation to the others, would see one mask used on two contents."""
    plan = small_plan(metrics=["loss"])
    evaluation = RoundId(session=b"x", model=b"m" * 32, metrics_only=True)
    content, name = evaluation.content(plan)
    expected = sharers_context(b"c1", content, name, [0, 1])
    for model in (b"m" * 32, digest("context/metrics", b"m" * 32), name[:32], name[-32:]):
        whole = RoundId(session=b"x", model=model).content(plan)
        assert sharers_context(b"c1", *whole, [0, 1]) != expected
    with pytest.raises(UsageError, match="model is a digest of 32 bytes, not of 39"):
        RoundId(session=b"x", model=name)


def test_a_round_is_named_in_bytes() -> None:
    for wrong, says in (
        ({"session": "monday"}, "session is bytes, not 'monday'"),
        ({"session": b"monday", "model": "x" * 32}, "model is bytes, not 'xxx"),
    ):
        with pytest.raises(UsageError, match=f"^{says}"):
            RoundId(**wrong)  # type: ignore[arg-type]


def test_messages_of_another_context_are_refused_in_every_phase() -> None:
    for phases, phase, signed in (
        (("advertise", "share"), "mask", False),
        (("advertise", "share", "mask"), "unmask", False),
        (("advertise", "share", "mask"), "agree", True),
    ):
        world, other = World(small_plan(), signed=signed), World(small_plan(), signed=signed)
        world.run(*phases)
        other.run(*phases)
        refuses(world, 0, phase, other.waiting[0], "another context")


# --- the frame, and settling range and model ------------------------------------------------------------------------

OTHER = RoundId(session=ROUND.session, number=ROUND.number, model=b"m" * 32)


def settled(world: World, plan: Plan, round_id: RoundId, *users: int) -> None:
    for user in users or world.plan.users:
        world.clients[user].settle(plan, round_id)


def test_one_frame_many_ranges() -> None:
    plan = small_plan()
    narrow = plan.with_value_range((-0.5, 0.25))
    assert narrow.frame == plan.frame
    assert narrow.digest != plan.digest
    assert ROUND.context(plan) == ROUND.context(narrow) == OTHER.context(plan)
    for other in (small_plan(dimension=41), small_plan(min_survivors=3), small_plan(levels=[2, 6])):
        assert other.frame != plan.frame


def test_another_model_or_range_is_another_c2() -> None:
    plan = small_plan()
    c1 = roster_context(ROUND.context(plan), [])
    contexts = {
        sharers_context(c1, which, model, range(12))
        for which in (plan, plan.with_value_range(0.5))
        for model in (bytes(32), b"m" * 32)
    }
    assert len(contexts) == 4


@each("phases", [(), ("advertise",), ("advertise", "share")])
def test_range_and_model_may_come_after_keys_and_shares(phases: tuple[str, ...]) -> None:
    world = World(small_plan())
    narrow = world.plan.with_value_range(0.25)
    world.run(*phases)
    if "share" not in phases:
        world.server.settle(narrow, OTHER)
        settled(world, narrow, OTHER)
    else:  # the server's share phase is closed: it was settled with what it was made with
        with pytest.raises(UsageError, match="before its share phase closes"):
            world.server.settle(narrow, OTHER)
        settled(world, world.plan, ROUND)
    world.updates /= 8
    world.run(*[phase for phase in ("advertise", "share", "mask", "unmask") if phase not in phases])
    assert total_counts(world.server.decoded) == [12, 12, 12]
    assert all(block.fault is None for segment in world.server.decoded.segments for block in segment)


def test_the_policy_is_asked_again_when_settled() -> None:
    class Picky(Policy):
        def check(self, plan: Plan, **known: Any) -> None:
            if plan.value_range[1] > 1:
                raise PlanError("value_range", "too wide")

    world = World(small_plan(), policy=Picky())
    world.run("advertise")
    client = world.clients[0]
    before = client.save()
    with pytest.raises(PlanError, match="too wide"):
        client.settle(world.plan.with_value_range(2.0), OTHER)
    assert client.save() == before
    assert client.plan == world.plan


def test_only_the_range_and_the_model_are_settled() -> None:
    world = World(small_plan())
    world.run("advertise")
    later = RoundId(session=ROUND.session, number=ROUND.number + 1)
    for plan, round_id in ((small_plan(dimension=41), ROUND), (world.plan, later)):
        with pytest.raises(FaultyServerError, match="another round or plan"):
            world.clients[0].settle(plan, round_id)
        with pytest.raises(UsageError, match="another round or plan"):
            world.server.settle(plan, round_id)
    world.run("share", "mask", "unmask")
    assert total_counts(world.server.decoded) == [12, 12, 12]


@each("signed", [False, True])
def test_a_user_who_masked_another_model_is_no_survivor(signed: bool) -> None:
    """The attack: the victim alone gets another model, and is then named a survivor with everybody else."""
    world = World(small_plan(), signed=signed)
    world.run("advertise", "share")
    world.clients[0].settle(world.plan, OTHER)
    with pytest.raises(FaultyUserError, match="another context"):
        world.server.receive(0, world.answer("mask", 0))
    inbox = dict(world.waiting)
    for user in range(1, 12):
        world.server.receive(user, world.answer("mask", user, inbox[user]))
    world.waiting = world.server.close()
    kind = wire.SurvivorSet if signed else wire.UnmaskRequest
    phase = "agree" if signed else "unmask"
    with_victim = change(kind, world.waiting[1], world.plan, survivors=list(range(12)))
    if signed:
        message = wire.decode(wire.SurvivorSet, world.waiting[1], plan=world.plan)
        signatures = [message.signatures[0], *message.signatures]
        with_victim = change(kind, with_victim, world.plan, signatures=signatures)
        refuses(world, 1, phase, with_victim, "did not mask under this list of sharers")
    with pytest.raises(FaultyServerError, match="another context"):
        world.answer(phase, 0, with_victim)
    assert world.clients[0].phase is ClientPhase.DEAD


def test_the_same_inbox_with_another_model_is_refused(tmp_path: Path) -> None:
    """Two vectors under one set-up would show their difference: in memory, and across a restart too."""
    world = World(small_plan())
    world.clients[0] = world.make_client(0, release_log=FileReleaseLog(tmp_path))
    world.run("advertise", "share")
    saved = world.clients[0].save()
    world.answer("mask", 0)
    with pytest.raises(FaultyServerError, match="masked under"):
        world.clients[0].settle(world.plan, OTHER)
    again = world.make_client(0, saved=saved, release_log=FileReleaseLog(tmp_path))
    again.settle(world.plan.with_value_range(0.5), OTHER)
    with pytest.raises(FaultyServerError, match="asked a second time"):
        again.mask(world.waiting[0], world.updates[0])
    masked = world.clients[0].save()
    other = world.make_client(0, saved=masked, round_id=OTHER, release_log=FileReleaseLog(tmp_path))
    with pytest.raises(FaultyServerError, match="masked under"):
        other.settle(world.plan, OTHER)


def test_a_number_is_set_up_once(tmp_path: Path) -> None:
    """Whatever model and range it is to have: fresh shares under other keys are refused by the log."""
    world = World(small_plan())
    log = FileReleaseLog(tmp_path)
    world.clients[0] = world.make_client(0, release_log=log)
    world.run("advertise", "share")
    second = World(small_plan(value_range=0.25))
    second.clients[0] = second.make_client(0, release_log=log, round_id=OTHER)
    second.run("advertise", without=())
    with pytest.raises(FaultyServerError, match="asked a second time"):
        second.answer("share", 0)
