"""Attacks that worked on version 0.1.0, each carried out against the real client and server.

The numbers are the rows of docs/threat-model.md, "Attacks that worked".
"""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rounds import ROUND, World, change, masked_signatures, released, small_plan, survivor_set

from heterosag import Plan, Policy, Simulation, aggregate
from heterosag.aggregation.combine import combine
from heterosag.aggregation.rules import find_rule
from heterosag.crypto import shamir
from heterosag.crypto.field import element_from_bytes
from heterosag.crypto.keys import mask_private_key, public_bytes
from heterosag.errors import ExposedUsersError, FaultyBlockError, FaultyServerError, PlanError
from heterosag.protocol import Client
from heterosag.protocol import messages as wire
from heterosag.protocol.context import survivors_bytes
from heterosag.protocol.steps import commit_share
from heterosag.storage.ledger_file import LedgerFile
from heterosag.storage.release_log import FileReleaseLog

# --- 3: a model with identical neurons puts one value into every segment --------------------------------------------


def test_3_one_survivor_in_a_subgroup_and_one_value_in_every_segment() -> None:
    """Block sums of pairs solve to subgroup sums, and a subgroup's only survivor was its sum: it is left out now, and a
    client that is named so refuses."""
    plan = Plan.build([16], [2**16], 60, value_range=1.0, subgroup_size=4, min_survivors=3)
    updates = np.repeat(np.linspace(-0.9, 0.9, 16)[:, None], 60, axis=1)  # what identical hidden neurons come to
    victim, others = plan.subgroups[0].members[0], plan.subgroups[0].members[1:]
    result = aggregate(plan, updates, simulate=Simulation(dropped=dict.fromkeys(others, "mask")))
    assert set(result.survivors) == set(range(16)) - set(plan.subgroups[0].members)
    world = World(plan)
    world.run("advertise", "share", "mask")
    survivors = [user for user in plan.users if user not in others]
    request = change(wire.UnmaskRequest, world.waiting[victim], plan, survivors=survivors)
    with pytest.raises(FaultyServerError, match="subgroup 0 has fewer than 3 survivors"):
        world.clients[victim].unmask(request)


# --- 4: two survivor sets, each signed by a quorum ------------------------------------------------------------------


def two_sets(world: World, victim: int, colluders: set[int]) -> dict[str, dict[int, bytes]]:
    """A malicious server splits the honest users over two survivor sets, one of them without the victim; colluders sign
    both. Returns the shares of the victim's two secrets that it comes to hold."""
    plan = world.plan
    world.run("advertise", "share", "mask")
    asked = wire.decode(wire.SurvivorSet, world.waiting[0], plan=plan)
    masked = masked_signatures(world)
    honest = [user for user in plan.users if user not in colluders]
    whole, without = list(asked.survivors), [user for user in asked.survivors if user != victim]
    half = len(honest) // 2
    found: dict[str, dict[int, bytes]] = {"self": {}, "mask": {}}
    for kind, members, survivors in (
        ("self", [victim, *[u for u in honest if u != victim][: half - 1]], whole),
        ("mask", [u for u in honest if u != victim][half - 1 :], without),
    ):
        signed = {}
        for user in members:
            message = survivor_set(plan, user, asked.context, survivors, masked)
            reply = wire.decode(wire.Agreement, world.clients[user].agree(message), plan=plan)
            signed[user] = reply.signature
        for user in colluders:
            identity = world.identities[user]  # type: ignore[index]
            signed[user] = identity.sign("survivors", asked.context, survivors_bytes(survivors))
        quorum = sorted(signed.items())[: plan.agree_quorum]
        request = wire.encode(wire.UnmaskRequest(wire.WIRE_VERSION, asked.context, survivors, quorum))
        for user in members:
            world.waiting[user] = request
            found[kind][user] = released(world, user)[1][victim]
        for user in colluders:
            state: Any = world.clients[user]._state
            found[kind][user] = state.held[victim][kind == "self"].to_bytes(32, "little")
    return found


def rebuilt(shares: dict[int, bytes], threshold: int) -> int:
    chosen = sorted(shares)[:threshold]
    weights = shamir.coefficients(tuple(user + 1 for user in chosen))
    return shamir.combine(weights, [element_from_bytes(shares[user]) for user in chosen])


def test_4_one_colluder_signs_two_quorums() -> None:
    """Any two quorums share an honest user though one colludes, so one of the two sets lacks signatures."""
    plan = Plan.build([11], [4], 30, value_range=1.0, subgroup_size=3)
    assert plan.colluders == 1
    world = World(plan, signed=True)
    with pytest.raises(FaultyServerError, match="6 users signed the survivor set, the plan asks for 7"):
        two_sets(world, victim=0, colluders={10})
    careless = Plan.build([11], [4], 30, value_range=1.0, subgroup_size=3, colluders=0)
    with pytest.raises(PlanError, match="0 colluders tolerated, this client's policy asks for at least 1"):
        Policy().check(careless)


def test_4_asked_for_by_name_it_works() -> None:
    """What `colluders=0` and a policy that accepts it give away: both secrets of anybody."""
    plan = Plan.build([11], [4], 30, value_range=1.0, subgroup_size=3, colluders=0)
    world = World(plan, signed=True)
    shares = two_sets(world, victim=0, colluders={10})
    state: Any = world.server._state
    mask_secret = rebuilt(shares["mask"], plan.share_threshold)
    assert public_bytes(mask_private_key(mask_secret)) == state.masked.mask_keys[0]
    self_secret = rebuilt(shares["self"], plan.share_threshold)
    masked = state.masked
    assert commit_share("secret", masked.seal_context, 0, 0, self_secret) == masked.commitments[0].secret


# --- 5: a sparse graph among few users ------------------------------------------------------------------------------


def test_5_two_holders_of_a_sparse_graph_rebuild_both_secrets() -> None:
    plan = Plan.build([36], [4], 30, value_range=1.0, subgroup_size=6, sharing="sparse", assignment_seed=1)
    assert plan.share_threshold > plan.sharing.neighbours / 2
    with pytest.raises(PlanError, match=r"36 users for shares with neighbours only, .* at least 256"):
        Policy().check(plan)
    Policy(sparse_from=36).check(plan)
    pinned = Policy.exactly(plan, ranges=(0.1, 2.0))
    pinned.check(plan.with_value_range(0.5))
    for other in (plan.with_value_range(3.0), plan.with_value_range((-0.5, 0.4))):
        with pytest.raises(PlanError, match="value_range"):
            pinned.check(other)
    with pytest.raises(PlanError, match="another one than the plan"):
        pinned.check(Plan.build([36], [4], 30, value_range=1.0, subgroup_size=6, assignment_seed=1))


# --- 6: weighted sums are a knapsack --------------------------------------------------------------------------------


def test_6_levels_of_single_users_from_a_weighted_sum() -> None:
    """A sum of weights told which users were in it; a sum of levels says only how many."""
    weights = [431, 467, 503, 541, 569, 593]
    plan = Plan.build([6], [2], 400, value_range=1.0, design="secagg", subgroup_size=6, max_weight=600)
    updates = np.random.default_rng(4).choice([-1.0, 1.0], (6, 400))
    result = aggregate(plan, updates, weights=weights)
    (block,) = result.blocks[0]
    assert block.weight == sum(weights)
    assert set(block.sums.tolist()) <= set(range(7))
    plain = Plan.build([6], [2], 400, value_range=1.0, design="secagg", subgroup_size=6)
    assert plan.segments[0].blocks[0].bits == plain.segments[0].blocks[0].bits


# --- 10: a range moved over the values ------------------------------------------------------------------------------


def test_10_a_narrow_range_moved_over_many_rounds_shows_every_value() -> None:
    """With two levels and a range of no width a sum counts how many values lie above it: no careful client masks so."""
    single: dict[str, Any] = {"ranges": "single", "rotate": False}
    plan = Plan.build([6], [2], 3, value_range=1.0, design="secagg", subgroup_size=6, arrays=[1, 2], **single)
    client = Client(plan, 0, ROUND, trust_server=True)
    with pytest.raises(PlanError, match="a half width of 1e-09"):
        client.settle(plan.with_value_range(1.0, [1e-9, 1.0]), ROUND)
    for edge in np.linspace(-1, 1, 41):
        with pytest.raises(PlanError, match="value_range"):
            client.settle(plan.with_value_range((edge, edge + 1e-9)), ROUND)
    with pytest.raises(PlanError, match="a half width of 1e-09"):
        Policy().check(plan.with_value_range(1e-9))
    with pytest.raises(PlanError, match=r"2\.5 times that of the last round"):
        Policy().check(plan.with_value_range(2.5), before=plan.array_widths)
    with pytest.raises(PlanError, match=r"0\.4 times that of the last round"):
        Policy().check(plan.with_value_range(0.4), before=plan.array_widths)
    Policy().check(plan.with_value_range(0.5), before=plan.array_widths)
    Policy().check(plan.with_value_range(2.0), before=plan.array_widths)


# --- 11: one dealer of false shares ---------------------------------------------------------------------------------


def test_11_one_dealer_of_false_shares_ended_the_round_under_every_rule() -> None:
    """It costs its own subgroup now: the median goes on without those blocks, and the mean says whose they are."""
    plan = Plan.build([24], [16], 60, value_range=1.0, subgroup_size=3)
    world = World(plan)
    world.run("advertise")
    dealer: Client = world.clients[5]
    from heterosag.crypto.keys import RoundSecrets
    from heterosag.protocol.steps import Polynomials

    wrong = Polynomials.draw(plan, RoundSecrets.generate())
    for user in world.waiting:
        reply = dealer.share(world.waiting[5], polynomials=wrong) if user == 5 else world.answer("share", user)
        world.server.receive(user, reply)
    world.waiting = world.server.close()
    world.run("mask")
    for user in world.waiting:
        world.server.receive(user, world.answer("unmask", user))
    world.server.close()
    decoded = world.server.decoded
    assert decoded.faulty == (5,)
    assert all(
        (block.fault is not None) == (plan.assignment[5] in block.block.subgroups)
        for blocks in decoded.segments
        for block in blocks
    )
    median = combine(plan, decoded, find_rule("median"))
    assert np.abs(median.vector - world.updates.mean(axis=0)).mean() < 0.5
    with pytest.raises(FaultyBlockError, match="user 5 dealt shares that do not give its self secret"):
        combine(plan, decoded, find_rule("mean"))


# --- 14: two programs and one ledger --------------------------------------------------------------------------------


def _release(folder: Path, users: list[int], start: Any, done: Any) -> None:
    plan = small_plan()
    ledger = LedgerFile(folder, plan, sets_below=2)
    start.wait(20)
    try:
        ledger.check(frozenset(users))
        time.sleep(0.02 * len(users))
        ledger.note(frozenset(users))
        done.put("released")
    except ExposedUsersError:
        done.put("refused")


def test_14_two_runs_at_once_raced_the_ledger(tmp_path: Path) -> None:
    """Everybody, and everybody but one: together they show that one, and each run alone sees nothing wrong. Whichever
    notes its set first is the only one that goes on."""
    context = multiprocessing.get_context("fork")
    start, done = context.Barrier(2), context.Queue()
    both = [
        context.Process(target=_release, args=(tmp_path, users, start, done))
        for users in (list(range(12)), list(range(11)))
    ]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert sorted(done.get(timeout=20) for _ in both) == ["refused", "released"]


# --- 15: an identical claim of very many users ----------------------------------------------------------------------


def test_15_an_identical_claim_above_131072_users_was_refused(tmp_path: Path) -> None:
    log = FileReleaseLog(tmp_path)
    survivors = survivors_bytes(range(131_073))
    log.claim(ROUND.context(small_plan()), "unmask", survivors)
    log.claim(ROUND.context(small_plan()), "unmask", survivors)
    for other in (survivors[:-8], survivors + bytes(8)):
        with pytest.raises(FaultyServerError, match="asked a second time"):
            log.claim(ROUND.context(small_plan()), "unmask", other)


# --- 9: users assigned anew in every round --------------------------------------------------------------------------


def test_9_new_assignments_every_round_defeated_the_ledger(tmp_path: Path) -> None:
    """Each round was an epoch of its own with a ledger of its own, and the sums solve to every user. A user's history
    goes over epochs: it refuses before anybody alone is shown."""
    everybody = frozenset(range(12))
    rows: list[list[float]] = []
    refused = 0
    for seed in range(16):
        plan = Plan.build([12], [4], 30, value_range=1.0, subgroup_size=3, assignment_seed=seed)
        ledger = LedgerFile(tmp_path, plan, sets_below=2)
        try:
            ledger.check(everybody)
        except ExposedUsersError:
            refused += 1
            continue
        ledger.note(everybody)
        rows += [[float(own in block.subgroups) for own in plan.assignment] for block in plan.segments[0].blocks]
    assert refused > 0
    for user in range(12):  # nobody's indicator is in the span of the sums
        alone = np.eye(12)[user]
        assert np.linalg.matrix_rank(np.array([*rows, alone])) > np.linalg.matrix_rank(np.array(rows))
