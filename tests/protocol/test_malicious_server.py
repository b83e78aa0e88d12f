"""A malicious server, each case written as the attack.

The attacks that need a whole round are here; refusals of a single message are in tests/protocol/test_client.py, the
choice of the assignment in tests/protocol/test_enrolment.py. docs/threat-model.md lists them all.
"""

from typing import Any

import numpy as np
import pytest
from rounds import World, masked_signatures, released, show_sharers, survivor_set

from heterosag.crypto.field import element_from_bytes
from heterosag.crypto.keys import exchange_keys, mask_private_key, pair_mask_key, self_mask_key
from heterosag.crypto.shamir import coefficients, combine
from heterosag.errors import FaultyServerError
from heterosag.plan import Plan
from heterosag.protocol import ClientPhase, masks
from heterosag.protocol import messages as wire
from heterosag.protocol.blocks import join_blocks
from heterosag.protocol.cells import CellLanes, empty_cells, unpack_cells
from heterosag.protocol.context import survivors_bytes
from heterosag.protocol.masks import Mask
from heterosag.protocol.unmasking import remove_masks
from heterosag.vector import ring

VICTIM = 0
LEVEL = 5


def plan_of_forty() -> Plan:
    """40 users in 10 subgroups of 4: blocks of 8, least survivors 2, threshold 21."""
    options: dict[str, Any] = {"ranges": "single", "rotate": False, "min_robustness": 0.0}
    plan = Plan.build([40], [LEVEL], 45, subgroup_size=4, min_survivors=2, value_range=(-1.0, 1.0), **options)
    assert (len(plan.subgroups), plan.share_threshold, plan.agree_quorum) == (10, 21, 21)
    return plan


class SplitViews:
    """The server shows three groups of users three survivor sets, each admissible, the victim alive in all of them.

    In each, one other user of the victim's subgroup is alive, a different one each time, and two are dropped, and so is
    everybody of the other subgroup of its block in segment 0. So every one of the seven is dropped in the eyes of at
    least 21 users, who give shares of its mask secret; everybody gives a share of the victim's own mask. What is left
    of the victim's vector in that segment is the vector.
    """

    def __init__(self, *, signed: bool) -> None:
        self.plan = plan_of_forty()
        self.world = World(self.plan, signed=signed)
        grid = np.linspace(-1, 1, LEVEL)  # on the levels, so that rounding leaves no chance
        self.world.updates = np.random.default_rng(1).choice(grid, self.world.updates.shape)
        self.keys: dict[int, bytes] = {}
        self.world.run("advertise")
        roster = wire.decode(wire.Roster, self.world.waiting[VICTIM], plan=self.plan)
        self.keys = {entry.user: entry.mask_key for entry in roster.advertised}
        self.world.run("share")
        self.replies = {user: self.world.answer("mask", user) for user in self.world.waiting}
        for user, reply in self.replies.items():
            self.world.server.receive(user, reply)
        self.vector = wire.decode(wire.MaskedVector, self.replies[VICTIM], plan=self.plan)
        block = self.plan.cells(self.plan.assignment[VICTIM])[0].block
        users = (user for user, subgroup in enumerate(self.plan.assignment) if subgroup in block.subgroups)
        self.peers = [user for user in users if user != VICTIM]
        assert len(self.peers) == 7
        honest = self.world.server.close()
        self.context = self.vector.context
        kind = wire.SurvivorSet if signed else wire.UnmaskRequest
        self.honest = wire.decode(kind, honest[VICTIM], plan=self.plan)
        self.masked = masked_signatures(self.world) if signed else {}

    def asked(self, user: Any, survivors: list[int]) -> bytes:
        """What the server would send this user to sign that set."""
        return survivor_set(self.plan, user, self.context, survivors, self.masked)

    def views(self) -> dict[Any, list[int]]:
        """A survivor set for each user but the other subgroup's: it is alive in it, and six of the seven are not."""
        shown = {}
        own = [user for user in self.peers if self.plan.assignment[user] == self.plan.assignment[VICTIM]]
        for user in self.plan.users:
            if user in own or user not in self.peers:
                alive = user if user in own else own[int(user) % 3]
                shown[user] = [u for u in range(40) if u not in self.peers or u == alive]
        return shown

    def unmask(self) -> dict[int, dict[int, int]]:
        """Shares by dealer and holder, from everybody, each asked with its own view."""
        found: dict[int, dict[int, int]] = {}
        for user, survivors in self.views().items():
            request = wire.UnmaskRequest(wire.WIRE_VERSION, self.context, survivors, [])
            reply = self.world.clients[user].unmask(wire.encode(request))
            shares = wire.cut_rows(wire.decode(wire.Released, reply, plan=self.plan).shares, 32)
            for dealer, share in enumerate(shares):  # everybody holds a share of everybody's
                alive = dealer in survivors
                if (dealer == VICTIM) == alive:  # the victim's self mask, the others' mask secrets
                    found.setdefault(dealer, {})[int(user)] = element_from_bytes(share)
        return found

    def strip(self, shares: dict[int, dict[int, int]]) -> Any:
        """The victim's elements of segment 0, once its masks are taken off."""
        subgroup = self.plan.assignment[VICTIM]
        cells = self.plan.cells(subgroup)
        found = unpack_cells(self.vector.vector, cells)
        lanes = [CellLanes(cell.elements.copy(), cell.auxiliary.copy()) for cell in found]
        own = self_mask_key(self._rebuild(shares[VICTIM]), self.context, VICTIM)
        removed = [Mask(own, False, tuple(range(len(cells))))]
        for peer in self.peers:
            private = mask_private_key(self._rebuild(shares[peer]))
            key = pair_mask_key(exchange_keys(private, self.keys[VICTIM]), self.context, VICTIM, peer)
            shared = masks.shared_cells(self.plan, subgroup, self.plan.assignment[peer])
            removed.append(Mask(key, peer < VICTIM, shared))
        masks.apply(lanes, removed)
        return ring.reduce(lanes[0].elements, cells[0].bits)

    def _rebuild(self, shares: dict[int, int]) -> int:
        chosen = sorted(shares)[: self.plan.share_threshold]
        assert len(chosen) == self.plan.share_threshold
        return combine(coefficients(tuple(holder + 1 for holder in chosen)), [shares[holder] for holder in chosen])


def test_without_the_agree_phase_split_views_give_a_users_segment_away() -> None:
    """What trusting the server means: the attack works, to the last element."""
    attack = SplitViews(signed=False)
    shown = attack.strip(attack.unmask())
    start, stop = attack.plan.segments[0].start, attack.plan.segments[0].stop
    truth = np.rint((attack.world.updates[VICTIM][start:stop] + 1) * (LEVEL - 1) / 2)
    assert np.array_equal(shown, truth)


def test_with_the_agree_phase_split_views_give_nothing() -> None:
    """Every user signs the one view it sees; no view finds a quorum, and nobody releases anything."""
    attack = SplitViews(signed=True)
    signatures: dict[tuple[int, ...], dict[int, bytes]] = {}
    for user, survivors in attack.views().items():
        reply = attack.world.clients[user].agree(attack.asked(user, survivors))
        signed = wire.decode(wire.Agreement, reply, plan=attack.plan)
        signatures.setdefault(tuple(survivors), {})[int(user)] = signed.signature
    assert max(map(len, signatures.values())) < attack.plan.agree_quorum
    for user, survivors in attack.views().items():
        given = sorted(signatures[tuple(survivors)].items())
        request = wire.UnmaskRequest(wire.WIRE_VERSION, attack.context, survivors, given)
        with pytest.raises(FaultyServerError, match="the plan asks for 21"):
            attack.world.clients[user].unmask(wire.encode(request))
        assert attack.world.clients[user].phase is ClientPhase.DEAD


def test_signatures_on_one_view_open_no_other() -> None:
    """All sign the honest set; the server then asks one user to unmask another, with those signatures."""
    attack = SplitViews(signed=True)
    for user in attack.plan.users:
        asked = attack.asked(user, attack.honest.survivors)
        attack.world.server.receive(user, attack.world.clients[user].agree(asked))
    honest = wire.decode(wire.UnmaskRequest, attack.world.server.close()[VICTIM], plan=attack.plan)
    other = attack.views()[5]
    request = wire.UnmaskRequest(
        wire.WIRE_VERSION, attack.context, other, [entry for entry in honest.signatures if entry[0] in other]
    )
    with pytest.raises(FaultyServerError, match="another survivor set"):
        attack.world.clients[5].unmask(wire.encode(request))


def test_subgroups_lost_one_after_another_are_signed_once() -> None:
    """Each set is admissible by itself; the difference of their sums would be the sum of one subgroup."""
    attack = SplitViews(signed=True)
    client = attack.world.clients[VICTIM]
    gone = [subgroup for subgroup in range(10) if subgroup != attack.plan.assignment[VICTIM]]
    for lost in (gone[:1], gone[:2]):
        survivors = [user for user in range(40) if attack.plan.assignment[user] not in lost]
        asked = attack.asked(VICTIM, survivors)
        if len(lost) == 1:
            client.agree(asked)
            continue
        with pytest.raises(FaultyServerError, match="second, different message"):
            client.agree(asked)


def test_a_forged_quorum_is_no_quorum() -> None:
    """Signatures repeated, by strangers, or on another set do not count."""
    attack = SplitViews(signed=True)
    survivors = list(attack.honest.survivors)
    signed = attack.world.identities
    assert signed is not None
    attack.world.clients[VICTIM].agree(attack.asked(VICTIM, survivors))
    wrong = survivors_bytes(survivors[:-1])
    forged = [(user, signed[user].sign("survivors", attack.context, wrong)) for user in range(21)]
    request = wire.UnmaskRequest(wire.WIRE_VERSION, attack.context, survivors, forged)
    with pytest.raises(FaultyServerError, match="did not sign this survivor set"):
        attack.world.clients[VICTIM].unmask(wire.encode(request))


def test_another_version_is_refused_by_everybody() -> None:
    """There is no older version to fall back to, and a message that claims one is not read."""
    world = World(plan_of_forty())
    world.run("advertise")
    message = bytearray(world.waiting[VICTIM])
    assert message[2] == wire.WIRE_VERSION
    message[2] = 0
    with pytest.raises(Exception, match="not a Roster"):
        world.clients[VICTIM].share(bytes(message))
    assert world.clients[VICTIM].phase is ClientPhase.ADVERTISED


class MaskedElsewhere:
    """On a sparse graph the victim is shown another list of sharers, and is then named a survivor of everybody else's.

    Forty users, each holding shares of six others. Those who hold none of the victim's see no signature of it.
    """

    def __init__(self) -> None:
        options: dict[str, Any] = {"ranges": "single", "rotate": False, "sharing": "sparse", "assignment_seed": 3}
        self.plan = Plan.build([40], [LEVEL], 60, value_range=1.0, subgroup_size=10, dropout=0.05, **options)
        assert (self.plan.sharing.neighbours, self.plan.share_threshold, self.plan.agree_quorum) == (6, 4, 22)
        self.world = World(self.plan, signed=True)
        grid = np.linspace(-1, 1, LEVEL)
        self.world.updates = np.random.default_rng(1).choice(grid, self.world.updates.shape)
        self.world.run("advertise")
        roster = wire.decode(wire.Roster, self.world.waiting[VICTIM], plan=self.plan)
        self.mask_keys = {entry.user: entry.mask_key for entry in roster.advertised}
        self.world.run("share")
        self.secrets: dict[int, Any] = {int(user): one._state.secrets for user, one in self.world.clients.items()}  # type: ignore[union-attr]
        near = set(self.plan.sharing.holders(VICTIM))
        strangers = [user for user in self.plan.users if user != VICTIM and user not in near]
        subgroup = self.plan.assignment[VICTIM]
        elsewhere = [user for user in strangers if self.plan.assignment[user] != subgroup]
        self.dropped = set(elsewhere[:2])
        split = self._without(elsewhere[2])
        self.survivors = [user for user in range(40) if user not in self.dropped]
        self.vectors = {
            user: wire.decode(wire.MaskedVector, self._mask(user, split), plan=self.plan) for user in self.survivors
        }
        self.context = self.vectors[self.survivors[-1]].context
        assert self.vectors[VICTIM].context != self.context

    def _mask(self, user: int, split: bytes) -> bytes:
        return self.world.answer("mask", user, split if user == VICTIM else None)

    def _without(self, gone: int) -> bytes:
        """The victim's inbox with a list of sharers that lacks one user."""
        sharers = [user for user in range(40) if user != gone]
        return show_sharers(self.plan, VICTIM, self.world.waiting[VICTIM], sharers)

    def sign(self) -> dict[int, bytes]:
        """Who signs a set with the victim in it, shown the victim's signature for the other list."""
        masked = {user: message.signature for user, message in self.vectors.items()}
        found = {}
        for user in self.survivors:
            asked = survivor_set(self.plan, user, self.context, self.survivors, masked)
            if user == VICTIM or VICTIM in self.plan.sharing.holders(user):
                match = "another context" if user == VICTIM else f"user {VICTIM} did not mask"
                with pytest.raises(FaultyServerError, match=match):
                    self.world.clients[user].agree(asked)
                continue
            reply = self.world.clients[user].agree(asked)
            found[user] = wire.decode(wire.Agreement, reply, plan=self.plan).signature
        return found


def test_on_a_sparse_graph_nothing_of_a_user_who_masked_elsewhere_is_released() -> None:
    """Whoever holds its shares refuses to sign; a quorum of the others may sign, and holds none of them."""
    attack = MaskedElsewhere()
    signed = attack.sign()
    refusing = set(attack.survivors) - signed.keys()
    assert refusing == {VICTIM, *attack.plan.sharing.holders(VICTIM)}
    assert len(signed) >= attack.plan.agree_quorum
    quorum = sorted(signed.items())[: attack.plan.agree_quorum]
    request = wire.encode(wire.UnmaskRequest(wire.WIRE_VERSION, attack.context, attack.survivors, quorum))
    for user in signed:
        attack.world.waiting[user] = request
        assert VICTIM not in released(attack.world, user)[1]


def test_on_a_sparse_graph_blocks_with_a_user_who_masked_elsewhere_stay_masked() -> None:
    """Even if the server had every other secret that the set entitles it to: masks with the victim do not cancel."""
    attack = MaskedElsewhere()
    plan, own = attack.plan, attack.plan.assignment[VICTIM]
    others = [user for user in attack.survivors if user != VICTIM]
    sums = {subgroup: empty_cells(plan.cells(subgroup)) for subgroup in range(len(plan.subgroups))}
    for user in others:
        subgroup = plan.assignment[user]
        for total, cell in zip(
            sums[subgroup], unpack_cells(attack.vectors[user].vector, plan.cells(subgroup)), strict=True
        ):
            np.add(total.elements, cell.elements, out=total.elements)
            np.add(total.auxiliary, cell.auxiliary, out=total.auxiliary)
    known = {user: attack.secrets[user].self_secret for user in others}
    known |= {user: attack.secrets[user].mask_secret for user in attack.dropped}
    remove_masks(plan, context=attack.context, survivors=others, secrets=known, mask_keys=attack.mask_keys, sums=sums)
    segments, _ = join_blocks(plan, others, sums)
    read = 0
    for segment, blocks in zip(plan.segments, segments, strict=True):
        for block in blocks:
            members = [user for user in others if plan.assignment[user] in block.block.subgroups]
            values = attack.world.updates[members, segment.start : segment.stop]
            truth = np.rint((values + 1) / 2 * (block.block.level - 1)).sum(axis=0)
            masked = own in block.block.subgroups
            assert (block.fault is not None) == masked
            assert np.array_equal(block.elements, truth) != masked
            read += not masked
    assert read == 3, "one block of each segment has nothing to do with the victim"
