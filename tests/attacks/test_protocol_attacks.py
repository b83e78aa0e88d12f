"""Attacks that worked on version 0.1.0, each carried out against the real client and server.

The numbers are the rows of docs/threat-model.md, "Attacks that worked".
"""

from __future__ import annotations

import itertools
import multiprocessing
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rounds import ROUND, World, small_plan

from heterosag import Plan, Policy, Simulation, aggregate
from heterosag.crypto import shamir
from heterosag.crypto.field import element_from_bytes
from heterosag.crypto.keys import mask_private_key, public_bytes
from heterosag.errors import ExposedUsersError, FaultyUserError
from heterosag.protocol import Client, RoundId
from heterosag.protocol import messages as wire
from heterosag.protocol.context import survivors_bytes
from heterosag.protocol.steps import commit_share
from heterosag.storage.ledger_file import LedgerFile
from heterosag.storage.release_log import FileReleaseLog

# --- 3: a model with identical neurons puts one value into every segment --------------------------------------------


def test_3_one_survivor_in_a_subgroup_and_one_value_in_every_segment() -> None:
    """Block sums of pairs solve to subgroup sums, and a subgroup's only survivor is its sum."""
    plan = Plan.build([16], [2**16], 60, value_range=1.0, subgroup_size=4, min_survivors=3)
    secret = np.linspace(-0.9, 0.9, 16)
    updates = np.repeat(secret[:, None], 60, axis=1)  # what identical hidden neurons come to
    victim, others = plan.subgroups[0].members[0], plan.subgroups[0].members[1:]
    result = aggregate(plan, updates, simulate=Simulation(dropped=dict.fromkeys(others, "mask")))
    assert victim in result.survivors
    rows, sums = [], []
    for blocks in result.blocks:
        for block in blocks:
            rows.append([float(subgroup in block.subgroups) for subgroup in range(4)])
            sums.append(float(block.sums[0]) / (2**16 - 1) * 2 - block.survivors)
    solved = np.linalg.lstsq(np.array(rows), np.array(sums), rcond=None)[0]
    assert solved[0] == pytest.approx(secret[victim], abs=1e-3)


# --- 4: two survivor sets, each signed by a quorum ------------------------------------------------------------------


def two_sets(world: World, victim: int, colluders: set[int]) -> dict[str, dict[int, bytes]]:
    """A malicious server splits the honest users over two survivor sets, one of them without the victim; colluders sign
    both. Returns the shares of the victim's two secrets that it comes to hold."""
    plan = world.plan
    world.run("advertise", "share", "mask")
    asked = wire.decode(wire.SurvivorSet, world.waiting[0], plan=plan)
    honest = [user for user in plan.users if user not in colluders]
    whole, without = list(asked.survivors), [user for user in asked.survivors if user != victim]
    half = len(honest) // 2
    found: dict[str, dict[int, bytes]] = {"self": {}, "mask": {}}
    for kind, members, survivors in (
        ("self", [victim, *[u for u in honest if u != victim][: half - 1]], whole),
        ("mask", [u for u in honest if u != victim][half - 1 :], without),
    ):
        signatures = [asked.signatures[whole.index(user)] for user in survivors]
        message = wire.encode(wire.SurvivorSet(wire.WIRE_VERSION, asked.context, survivors, signatures))
        signed = {}
        for user in members:
            reply = wire.decode(wire.Agreement, world.clients[user].agree(message), plan=plan)
            signed[user] = reply.signature
        for user in colluders:
            identity = world.identities[user]  # type: ignore[index]
            signed[user] = identity.sign("survivors", asked.context, survivors_bytes(survivors))
        request = wire.encode(wire.UnmaskRequest(wire.WIRE_VERSION, asked.context, survivors, sorted(signed.items())))
        for user in members:
            released = wire.decode(wire.Released, world.clients[user].unmask(request), plan=plan)
            found[kind][user] = dict(released.shares)[victim]
        for user in colluders:
            state: Any = world.clients[user]._state
            found[kind][user] = state.held[victim][kind == "self"].to_bytes(32, "little")
    return found


def rebuilt(shares: dict[int, bytes], threshold: int) -> int:
    chosen = sorted(shares)[:threshold]
    weights = shamir.coefficients(tuple(user + 1 for user in chosen))
    return shamir.combine(weights, [element_from_bytes(shares[user]) for user in chosen])


def test_4_one_colluder_signs_two_quorums() -> None:
    plan = Plan.build([11], [4], 30, value_range=1.0, subgroup_size=3)
    world = World(plan, signed=True)
    shares = two_sets(world, victim=0, colluders={10})
    keys = {user.user: user.mask_key for user in _roster(world)}
    mask_secret = rebuilt(shares["mask"], plan.share_threshold)
    assert public_bytes(mask_private_key(mask_secret)) == keys[0]
    self_secret = rebuilt(shares["self"], plan.share_threshold)
    published = world.server._state.masked.commitments[0].secret  # type: ignore[union-attr]
    context = world.server._state.masked.seal_context  # type: ignore[union-attr]
    assert commit_share("secret", context, 0, 0, self_secret) == published


def _roster(world: World) -> list[Any]:
    state: Any = world.server._state
    return [type("Entry", (), {"user": user, "mask_key": key}) for user, key in state.masked.mask_keys.items()]


# --- 5: a sparse graph among few users ------------------------------------------------------------------------------


def test_5_two_holders_of_a_sparse_graph_rebuild_both_secrets() -> None:
    plan = Plan.build([36], [4], 30, value_range=1.0, subgroup_size=6, sharing="sparse", assignment_seed=1)
    Policy().check(plan)
    world = World(plan)
    world.run("advertise", "share", "mask")
    state: Any = world.clients[plan.sharing.holders(0)[0]]._state
    other: Any = world.clients[plan.sharing.holders(0)[1]]._state
    assert plan.share_threshold == 2
    for kind in (0, 1):
        shares = {one.base.user: one.held[0][kind].to_bytes(32, "little") for one in (state, other)}
        secret = rebuilt(shares, 2)
        if kind == 0:
            masked: Any = world.server._state
            assert public_bytes(mask_private_key(secret)) == masked.masked.mask_keys[0]


# --- 6: weighted sums are a knapsack --------------------------------------------------------------------------------


def test_6_levels_of_single_users_from_a_weighted_sum() -> None:
    weights = [431, 467, 503, 541, 569, 593]
    plan = Plan.build([6], [2], 400, value_range=1.0, design="secagg", subgroup_size=6, max_weight=600)
    updates = np.random.default_rng(4).choice([-1.0, 1.0], (6, 400))
    result = aggregate(plan, updates, weights=weights)
    (block,) = result.blocks[0]
    known = {
        sum(w for w, bit in zip(weights, bits, strict=True) if bit): bits
        for bits in itertools.product((0, 1), repeat=6)
    }
    found = np.array([known[int(total)] for total in block.sums]).T
    assert (found == (updates > 0)).mean() > 0.95


# --- 10: a range moved over the values ------------------------------------------------------------------------------


def test_10_a_narrow_range_moved_over_many_rounds_shows_every_value() -> None:
    """With two levels and a range of no width a sum counts how many values lie above it."""
    secret = np.array([-0.42, 0.13, 0.31, 0.77])
    updates = np.repeat(secret[:, None], 3, axis=1)
    edges = np.linspace(-1, 1, 41)
    above = []
    for number, edge in enumerate(edges):
        plan = Plan.build([4], [2], 3, value_range=(edge, edge + 1e-9), design="secagg", subgroup_size=4)
        Policy().check(plan)
        result = aggregate(plan, updates, round_id=RoundId(session=b"moved", number=number))
        above.append(int(result.blocks[0][0].sums[0]))
    found = [edges[max(at for at, count in enumerate(above) if count >= rank)] for rank in range(4, 0, -1)]
    assert np.abs(np.array(found) - secret).max() < 0.06


# --- 11: one dealer of false shares ---------------------------------------------------------------------------------


def test_11_one_dealer_of_false_shares_ends_the_round_under_every_rule() -> None:
    plan = Plan.build([24], [16], 60, value_range=1.0, subgroup_size=3)
    world = World(plan)
    world.run("advertise")
    liar: Client = world.clients[5]
    from heterosag.crypto.keys import RoundSecrets
    from heterosag.protocol.steps import Polynomials

    wrong = Polynomials.draw(plan, RoundSecrets.generate())
    for user in world.waiting:
        reply = liar.share(world.waiting[5], polynomials=wrong) if user == 5 else world.answer("share", user)
        world.server.receive(user, reply)
    world.waiting = world.server.close()
    world.run("mask")
    for user in world.waiting:
        world.server.receive(user, world.answer("unmask", user))
    with pytest.raises(FaultyUserError):
        world.server.close()


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


def test_14_two_runs_at_once_race_the_ledger(tmp_path: Path) -> None:
    """Everybody, and everybody but one: together they show that one, and each run alone sees nothing wrong."""
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
    assert sorted(done.get(timeout=20) for _ in both) == ["released", "released"]


# --- 15: an identical claim of very many users ----------------------------------------------------------------------


def test_15_an_identical_claim_above_131072_users_is_refused(tmp_path: Path) -> None:
    from heterosag.errors import FaultyServerError

    log = FileReleaseLog(tmp_path)
    survivors = survivors_bytes(range(131_073))
    log.claim(ROUND.context(small_plan()), "unmask", survivors)
    with pytest.raises(FaultyServerError):
        log.claim(ROUND.context(small_plan()), "unmask", survivors)


# --- 9: users assigned anew in every round ---------------------------------------------------------------------------------------


def test_9_new_assignments_every_round_defeat_the_ledger(tmp_path: Path) -> None:
    """Each round is an epoch of its own with a ledger of its own: nothing is refused, and the sums solve to every user."""
    rows = []
    for seed in range(16):
        plan = Plan.build([12], [4], 30, value_range=1.0, subgroup_size=3, assignment_seed=seed)
        ledger = LedgerFile(tmp_path, plan, sets_below=2)
        everybody = frozenset(range(12))
        ledger.check(everybody)
        ledger.note(everybody)
        rows += [[float(own in block.subgroups) for own in plan.assignment] for block in plan.segments[0].blocks]
    assert np.linalg.matrix_rank(np.array(rows)) == 12
