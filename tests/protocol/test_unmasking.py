"""Rebuilding secrets from released shares: false shares, disputed and faulty dealers."""

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import pytest
from rounds import World, change, released, small_plan, total_counts, unmasking

from heterosag.aggregation.combine import combine
from heterosag.aggregation.rules import RULES
from heterosag.errors import FaultyBlockError, FaultyUserError, TooFewSurvivorsError
from heterosag.plan import Plan
from heterosag.protocol import messages as wire
from heterosag.protocol import outcome
from heterosag.protocol.unmasking import Rebuilt, rebuild


def rebuilt(world: World, disputes: Iterable[tuple[int, int]] = ()) -> Rebuilt:
    """What a server in its last phase rebuilds, of the shares it has been sent."""
    phase: Any = world.server._state
    return rebuild(
        world.plan,
        context=phase.masked.seal_context,
        survivors=phase.members,
        commitments=phase.masked.commitments,
        mask_keys=phase.masked.mask_keys,
        released=phase.released,
        disputes=disputes,
    )


def spoils_its_subgroup(world: World, user: int, why: str) -> None:
    """The blocks of the user's subgroup are faulty for this reason, all others are sound, and the user is named."""
    decoded, mine = world.server.decoded, world.plan.assignment[user]
    assert decoded.faulty == (user,)
    for blocks in decoded.segments:
        for block in blocks:
            assert (why in (block.fault or "")) == (mine in block.block.subgroups)
            assert (block.fault is None) == (mine not in block.block.subgroups)
    median = combine(world.plan, decoded, RULES["median"])
    assert median.faulty_users == (user,)
    assert np.isfinite(median.vector).all()
    with pytest.raises(FaultyBlockError, match=f"user {user}"):
        combine(world.plan, decoded, RULES["mean"])


@pytest.mark.parametrize("bad", [bytes(32), b"\xff" * 32])
def test_false_shares_count_as_missing_while_enough_good_ones_exist(bad: bytes) -> None:
    """Five of twelve holders lie about everything (some with numbers outside the field); seven good shares suffice."""
    world = unmasking(without=(4,))
    for user in world.waiting:
        message, shares = released(world, user)
        if user in (0, 1, 2, 3):
            message = change(wire.Released, message, world.plan, shares=bad * len(shares))
        world.server.receive(user, message)
    world.server.close()
    assert set(world.server.decoded.faulty) <= {0, 1, 2, 3}
    assert total_counts(world.server.decoded) == [11, 11, 11]
    combine(world.plan, world.server.decoded, RULES["mean"])


@pytest.mark.parametrize("bad", [bytes(32), b"\xff" * 32])
def test_too_many_false_shares_name_the_pairs(bad: bytes) -> None:
    world = unmasking()
    for user in world.waiting:
        message, shares = released(world, user)
        if user < 6:
            message = change(wire.Released, message, world.plan, shares=bad * len(shares))
        world.server.receive(user, message)
    world.server.close()
    decoded = world.server.decoded
    assert set(decoded.faulty) == set(range(6)), "those who released other shares than they were dealt"
    for blocks in decoded.segments:
        for block in blocks:
            assert "6 good shares of user " in (block.fault or "")
            assert "disputed by its holders 0, 1, 2, 3, 4, 5" in (block.fault or "")
    with pytest.raises(FaultyBlockError, match="no sound block is left"):
        combine(world.plan, decoded, RULES["median"])


def test_who_releases_what_is_no_field_element_is_faulty_though_enough_others_are_left() -> None:
    world = unmasking()
    for user in world.waiting:
        message, shares = released(world, user)
        if user == 11:
            message = change(wire.Released, message, world.plan, shares=b"\xff" * 32 * len(shares))
        world.server.receive(user, message)
    world.server.close()
    assert world.server.decoded.faulty == (11,)
    combine(world.plan, world.server.decoded, RULES["mean"])


def test_shares_are_compared_with_their_commitments_where_the_first_do_not_give_the_secret() -> None:
    """Seven of twelve are needed: a false one after them is not looked at, one among them is."""
    for user, faulty in ((11, ()), (6, (6,))):
        world = unmasking()
        for holder in world.waiting:
            message, shares = released(world, holder)
            if holder == user:
                message = change(wire.Released, message, world.plan, shares=bytes(32) * len(shares))
            world.server.receive(holder, message)
        world.server.close()
        assert world.server.decoded.faulty == faulty
        combine(world.plan, world.server.decoded, RULES["mean"])


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
    for survivor in world.waiting:
        world.server.receive(survivor, world.answer("unmask", survivor))
    found = rebuilt(world)
    assert found.missing.keys() == {4}
    assert found.secrets.keys() == set(range(12)) - {4}, "what the shares give is not its secret"
    world.server.close()
    spoils_its_subgroup(world, 4, f"user 4 dealt shares that do not give its {kind} secret")


def test_a_dealer_whose_shares_do_not_match_their_commitments_is_disputed_by_every_holder() -> None:
    """User 4 publishes false commitments: everybody complains, and no matching shares are left to rebuild from."""
    world = World(small_plan())
    world.run("advertise")
    for user in range(12):
        message = world.answer("share", user)
        if user == 4:
            pairs = wire.cut_rows(wire.decode(wire.Shares, message, plan=world.plan).commitments, wire.PAIR_SIZE)
            false = b"".join([pairs[0], *(bytes(16) + pair[16:] for pair in pairs[1:])])
            message = change(wire.Shares, message, world.plan, commitments=false)
        world.server.receive(user, message)
    world.waiting = world.server.close()
    world.run("mask", without={4})
    world.run("unmask")
    spoils_its_subgroup(world, 4, "user 4's mask secret, 7 are needed; disputed by its holders")


def test_a_dropped_users_secret_must_stay_within_reach_on_a_sparse_graph() -> None:
    """Every survivor has holders enough; a user who shared and dropped out has not."""
    plan = Plan.build(
        [40], [4], 80, value_range=1.0, subgroup_size=10, min_survivors=2, sharing="sparse", min_robustness=0.0
    )
    ring, place = plan.sharing.order, plan.sharing.order.index(7)
    half, few = plan.sharing.neighbours // 2, plan.sharing.neighbours - plan.share_threshold + 1
    far = [step for pair in zip(range(half, 0, -1), range(-half, 0), strict=True) for step in pair][:few]
    lost = {7, *(ring[(place + step) % 40] for step in far)}  # its farthest neighbours: others lose fewer of theirs
    world = World(plan)
    world.run("advertise", "share")
    with pytest.raises(TooFewSurvivorsError, match="holders of user 7"):
        world.run("mask", without=lost)
    found = outcome(plan, dict.fromkeys(lost, "mask"))
    assert found.error is not None
    assert "holders of user 7" in str(found.error)


def test_two_users_who_complain_about_everybody_frame_nobody() -> None:
    world = World(small_plan(colluders=1))
    world.run("advertise", "share")
    for user in world.waiting:
        message = world.answer("mask", user)
        if user in (3, 7):
            everybody = [other for other in range(12) if other != user]
            message = change(wire.MaskedVector, message, world.plan, complaints=everybody)
        world.server.receive(user, message)
    world.waiting = world.server.close()
    for user in world.waiting:
        message, shares = released(world, user)
        if user in (3, 7):
            with pytest.raises(FaultyUserError, match="one share of each user whose shares it holds"):
                world.server.receive(user, message)
            message = change(wire.Released, message, world.plan, shares=shares[user])  # it keeps to what it said
        world.server.receive(user, message)
    world.server.close()
    assert world.server.decoded.faulty == (3, 7)
    combine(world.plan, world.server.decoded, RULES["mean"])


def dealing_falsely(plan: Plan, dealers: Collection[int], holders: Collection[int]) -> World:
    """A round in which these dealers publish a false commitment for the shares of these holders, who complain."""
    world = World(plan)
    world.run("advertise")
    for user in world.waiting:
        message = world.answer("share", user)
        if user in dealers:
            own, *pairs = wire.cut_rows(wire.decode(wire.Shares, message, plan=plan).commitments, wire.PAIR_SIZE)
            listed = [holder for holder in plan.sharing.holders(user) if holder in world.clients]
            false = [
                bytes(wire.PAIR_SIZE) if holder in holders else pair for holder, pair in zip(listed, pairs, strict=True)
            ]
            message = change(wire.Shares, message, plan, commitments=b"".join([own, *false]))
        world.server.receive(user, message)
    world.waiting = world.server.close()
    world.run("mask", "unmask")
    return world


def test_dealers_about_whom_everybody_complains_frame_nobody() -> None:
    """Two of 36 users deal nothing but false shares, so that everybody complains about more of them than may
    collude: they alone are faulty."""
    plan = Plan.build([36], [4], 60, value_range=1.0, subgroup_size=3)
    assert (plan.colluders, plan.byzantine_tolerance()) == (1, 2)
    world = dealing_falsely(plan, {5, 30}, range(36))
    assert world.server.decoded.faulty == (5, 30)
    median = combine(plan, world.server.decoded, RULES["median"])
    assert median.faulty_users == (5, 30)


def test_as_many_malicious_users_as_are_tolerated_frame_nobody() -> None:
    """Two dealers who single out one holder, or two holders who complain about one dealer: nobody can tell who is
    right, the secrets are rebuilt all the same, and nobody is left out."""
    plan = Plan.build([36], [4], 60, value_range=1.0, subgroup_size=3)
    world = dealing_falsely(plan, {5, 30}, {7})
    assert world.server.decoded.faulty == ()
    combine(plan, world.server.decoded, RULES["mean"])
    world = World(plan)
    world.run("advertise", "share")
    for user in world.waiting:
        message = world.answer("mask", user)
        if user in (5, 30):
            message = change(wire.MaskedVector, message, plan, complaints=[7])
        world.server.receive(user, message)
    world.waiting = world.server.close()
    for user in world.waiting:
        message = world.answer("unmask", user)
        if user in (5, 30):  # they keep to what they said
            rows = wire.cut_rows(wire.decode(wire.Released, message, plan=plan).shares, 32)
            message = change(wire.Released, message, plan, shares=b"".join([*rows[:7], *rows[8:]]))
        world.server.receive(user, message)
    world.server.close()
    assert world.server.decoded.faulty == ()
    combine(plan, world.server.decoded, RULES["mean"])


def test_disputes_as_a_dealer_and_as_a_holder_are_counted_apart() -> None:
    """Two malicious users can deal falsely to an honest one and complain about it too: that is no more than two."""
    world = unmasking(colluders=2)
    for user in world.waiting:
        world.server.receive(user, world.answer("unmask", user))
    assert max(world.plan.colluders, world.plan.byzantine_tolerance()) == 2
    framed = [(7, 5), (7, 10), (5, 7), (10, 7)]
    for disputes, faulty in (
        (framed, set()),
        ([*framed, (7, 1)], {7}),
        ([*framed, (1, 7)], {7}),
        ([(dealer, holder) for dealer in (1, 2, 3) for holder in (7, 8, 9)], {1, 2, 3}),  # of equals the dealers
    ):
        assert rebuilt(world, disputes).faulty == faulty
