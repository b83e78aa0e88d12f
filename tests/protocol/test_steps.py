"""Every refusal of a step, written as what a malicious server does."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cases import each
from cryptography.hazmat.primitives.poly1305 import Poly1305
from msgspec.structs import replace
from rounds import (
    ROUND,
    World,
    agreeing,
    change,
    change_rows,
    inbox_of,
    masking,
    refuses,
    released,
    roster_of,
    show_sharers,
    small_plan,
    survivor_set,
    total_counts,
    unmasking,
)

from heterosag.crypto import hashing
from heterosag.crypto.keys import RoundSecrets
from heterosag.errors import FaultyServerError, TooFewSurvivorsError, UsageError
from heterosag.plan import Plan
from heterosag.protocol import MemoryReleaseLog, RoundId
from heterosag.protocol import messages as wire
from heterosag.protocol.rounding import Rounding
from heterosag.protocol.steps import Masked, mask, sign_survivors
from heterosag.protocol.survivors import check_admissible
from heterosag.protocol.update import Update

# --- before the round ---------------------------------------------------------------------------------------------


def test_roster_must_show_this_users_own_keys() -> None:
    world = World(small_plan())
    world.run("advertise")
    advertised = roster_of(world).advertised
    swapped = [
        replace(advertised[0], seal_key=advertised[0].mask_key, mask_key=advertised[0].seal_key),
        *advertised[1:],
    ]
    refuses(world, 0, "share", change(wire.Roster, world.waiting[0], world.plan, advertised=swapped), "other keys")


def test_roster_must_not_show_one_key_twice() -> None:
    world = World(small_plan())
    world.run("advertise")
    advertised = roster_of(world).advertised
    copied = [*advertised[:-1], replace(advertised[-1], mask_key=advertised[3].mask_key)]
    refuses(world, 0, "share", change(wire.Roster, world.waiting[0], world.plan, advertised=copied), "equal")


@each("key", ["seal_key", "mask_key"])
def test_unusable_keys_are_not_used(key: str) -> None:
    """A low-order key that the server should have refused, as a sealing key or as a mask key."""
    world = World(small_plan())
    world.run("advertise")
    advertised = roster_of(world).advertised
    changed = replace(advertised[1], **{key: b"\x01" + bytes(31)})
    bad = change(wire.Roster, world.waiting[0], world.plan, advertised=[advertised[0], changed, *advertised[2:]])
    refuses(world, 0, "share", bad, "user 1 that cannot be used")


def test_masking_secrets_are_agreed_with_those_who_code_together_only() -> None:
    """In `multigroup` subgroups never meet, so a user has a secret with its own subgroup and nobody else."""
    for design, partners in (("perfect", 11), ("multigroup", 2)):
        world = World(small_plan(design=design))
        world.run("advertise", "share")
        state: Any = world.clients[0]._state
        assert len(state.pairs) == partners
        assert "pairs" not in repr(state)


def test_a_signed_roster_needs_identities_and_the_other_way_round() -> None:
    signed = World(small_plan(), signed=True)
    signed.run("advertise")
    advertised = roster_of(signed).advertised
    unsigned = [replace(user, signature=b"") for user in advertised]
    refuses(
        signed, 0, "share", change(wire.Roster, signed.waiting[0], signed.plan, advertised=unsigned), "not signed by"
    )
    plain = World(small_plan())
    plain.run("advertise")
    *others, last = roster_of(plain).advertised
    stamped = [*others, replace(last, signature=b"x" * 64)]
    refuses(
        plain, 0, "share", change(wire.Roster, plain.waiting[0], plain.plan, advertised=stamped), "knows no identities"
    )


def test_substituted_keys_are_not_signed_by_their_owner() -> None:
    world = World(small_plan(), signed=True)
    world.run("advertise")
    advertised = roster_of(world).advertised
    intruder = World(small_plan(), signed=True)
    intruder.run("advertise")
    swapped = [advertised[0], roster_of(intruder).advertised[1], *advertised[2:]]
    refuses(
        world,
        0,
        "share",
        change(wire.Roster, world.waiting[0], world.plan, advertised=swapped),
        "user 1 are not signed",
    )


def test_replayed_keys_of_another_round_are_not_signed_for_this_one() -> None:
    world = World(small_plan(), signed=True)
    old = world.make_client(1, round_id=RoundId(session=b"test", number=2)).advertise()
    world.run("advertise")
    advertised = roster_of(world).advertised
    replayed = wire.decode(wire.Advertisement, old, plan=world.plan).advertised
    message = change(wire.Roster, world.waiting[0], world.plan, advertised=[advertised[0], replayed, *advertised[2:]])
    refuses(world, 0, "share", message, "user 1 are not signed")


@each(
    "chosen, match",
    [
        ([*range(1, 12)], "leaves this user out"),
        ([0, 0, *range(1, 12)], "once each"),
        ([1, 0, *range(2, 12)], "once each"),
        ([0, 1, 2, 3, 4, 5], "not admissible: 6 users are left"),
        ([0, 1, 2, 3, 6, 7, 8, 9], "not admissible: subgroup"),
    ],
)
def test_rosters_that_break_a_rule(chosen: list[int], match: str) -> None:
    world = World(small_plan(min_survivors=3))
    world.run("advertise")
    advertised = roster_of(world).advertised
    message = change(wire.Roster, world.waiting[0], world.plan, advertised=[advertised[i] for i in chosen])
    refuses(world, 0, "share", message, match)


def test_on_a_sparse_graph_a_client_asks_for_holders_of_its_own_shares_alone() -> None:
    """A roster without most of user 7's holders: user 7 refuses it, a user far from it on the ring answers."""
    plan = Plan.build([40], [4], 80, value_range=1.0, subgroup_size=10, min_survivors=2, sharing="sparse")
    ring, place = plan.sharing.order, plan.sharing.order.index(7)
    far = ring[(place + 20) % 40]
    gone = [user for user in plan.sharing.holders(7) if user not in plan.sharing.holders(far)]
    shown = frozenset(range(40)) - set(gone[: plan.sharing.neighbours - plan.share_threshold + 2])
    with pytest.raises(TooFewSurvivorsError, match="holders of user 7"):
        check_admissible(plan, shown, dealers=[7])
    world = World(plan)
    world.run("advertise")
    advertised = [user for user in roster_of(world).advertised if user.user in shown]
    roster = change(wire.Roster, world.waiting[0], plan, advertised=advertised)
    shares = wire.decode(wire.Shares, world.answer("share", far, roster), plan=plan)
    assert len(shares.sealed) == 80 * len(shown.intersection(plan.sharing.holders(far)))
    refuses(world, 7, "share", roster, "not admissible")


def test_a_list_without_this_users_block_peers_is_refused_before_anything_is_encoded() -> None:
    """The attack: forty users, the victim is shown twenty-five, none of its block, and would send in the clear."""
    plan = Plan.build([40], [4], 60, value_range=1.0, subgroup_size=4, min_survivors=2)
    world = World(plan)
    world.run("advertise", "share")
    partners = {g for block in plan.blocks_of(0) for g in block.subgroups}
    assert partners == set(range(10))
    shown = [0, *range(4, 28)]
    assert len(shown) == 25
    refuses(world, 0, "mask", show_sharers(plan, 0, world.waiting[0], shown), "not admissible")


def test_a_list_that_leaves_a_subgroup_alone_in_two_segments_is_refused() -> None:
    world = masking(subgroup_size=2, classes=[8, 8], min_survivors=2)  # eight subgroups of two
    shown = [user for user in range(16) if world.plan.assignment[user] not in (1, 2)]
    refuses(world, 0, "mask", show_sharers(world.plan, 0, world.waiting[0], shown), "inference robustness")


@each(
    "sharers, match",
    [
        ([*range(1, 12)], "leaves this user out"),
        ([0, 1, 1, *range(2, 12)], "once each"),
        ([*range(12), 99], "once each"),
    ],
)
def test_lists_of_sharers_that_break_a_rule(sharers: list[int], match: str) -> None:
    world = masking()
    message = change(wire.Inbox, world.waiting[0], world.plan, sharers=sharers)
    refuses(world, 0, "mask", message, match)


def test_sharers_must_have_been_in_the_roster() -> None:
    world = World(small_plan())
    world.run("advertise", without={11})
    world.run("share")
    message = change(wire.Inbox, world.waiting[0], world.plan, sharers=list(range(12)))
    refuses(world, 0, "mask", message, "did not take part")


@each("field, row", [("sealed", 80), ("commitments", 32)])
def test_an_inbox_has_one_row_from_each_dealer(field: str, row: int) -> None:
    good = getattr(inbox_of(masking()), field)
    assert len(good) == 11 * row
    for wrong in (good[row:], good[:-1], good + good[:row], b""):
        world = masking()
        message = change(wire.Inbox, world.waiting[0], world.plan, **{field: wrong})
        refuses(world, 0, "mask", message, "one pair of shares and its commitments from each dealer")


@each("fault", ["garbled", "swapped", "reflected", "moved", "mask commitment", "self commitment", "old"])
def test_bad_shares_become_complaints_that_name_the_dealer(fault: str) -> None:
    world = masking()
    inbox = inbox_of(world)
    box, pair = inbox.sealed[:80], inbox.commitments[:32]  # of dealer 1
    if fault == "garbled":
        box = bytes(80)
    elif fault == "swapped":
        box = box[32:64] + box[:32] + box[64:]
    elif fault == "reflected":
        box, pair = inbox_of(world, 1).sealed[:80], inbox_of(world, 1).commitments[:32]  # of dealer 0
    elif fault == "moved":
        box, pair = inbox_of(world, 2).sealed[80:160], inbox_of(world, 2).commitments[32:64]  # dealer 1's for user 2
    elif fault == "mask commitment":
        pair = bytes(16) + pair[16:]
    elif fault == "self commitment":
        pair = pair[:16] + bytes(16)
    else:
        box, pair = inbox_of(masking()).sealed[:80], inbox_of(masking()).commitments[:32]
    spoiled = {
        "sealed": change_rows(inbox.sealed, 80, {0: box}),
        "commitments": change_rows(inbox.commitments, 32, {0: pair}),
    }
    message = change(wire.Inbox, world.waiting[0], world.plan, **spoiled)
    vector = wire.decode(wire.MaskedVector, world.answer("mask", 0, message), plan=world.plan)
    assert vector.complaints == [1]


def test_elements_beyond_the_range_are_clipped_unless_told_otherwise() -> None:
    world = masking()
    state: Any = world.clients[0]._state
    update = Update.of(world.plan, np.full(world.plan.dimension, 3.0))

    def masked(**options: Any) -> bytes:
        rounding = Rounding.from_seed(1, 0)
        return mask(state, world.waiting[0], update, MemoryReleaseLog(), rounding=rounding, **options)[1]

    assert masked() == masked(clip=True) != masked(clip=False)


SETS = [
    ([*range(1, 12)], "leaves this user out"),
    ([0, 0, *range(1, 12)], "once each"),
    ([*range(12), 12], "once each"),
    ([0, 1, 2, 3, 4, 5], "not admissible: 6 users are left"),
    ([0, 1, 2, 3, 6, 7, 8, 9], "not admissible"),
]


@each("survivors, match", SETS)
def test_survivor_sets_that_must_not_be_signed(survivors: list[int], match: str) -> None:
    world = agreeing(min_survivors=3)
    message = change(wire.SurvivorSet, world.waiting[0], world.plan, survivors=survivors)
    refuses(world, 0, "agree", message, match)


@each("signed", [False, True])
@each("survivors, match", SETS)
def test_survivor_sets_that_must_not_be_unmasked(signed: bool, survivors: list[int], match: str) -> None:
    world = unmasking(signed=signed, min_survivors=3)
    message = change(wire.UnmaskRequest, world.waiting[0], world.plan, survivors=survivors)
    refuses(world, 0, "unmask", message, match)


def test_survivors_must_have_shared() -> None:
    world = World(small_plan())
    world.run("advertise")
    world.run("share", without={11})
    world.run("mask")
    message = change(wire.UnmaskRequest, world.waiting[0], world.plan, survivors=list(range(12)))
    refuses(world, 0, "unmask", message, "did not take part")


def test_two_survivor_sets_are_not_signed() -> None:
    world = agreeing()
    world.answer("agree", 0)
    message = change(wire.SurvivorSet, world.waiting[0], world.plan, survivors=list(range(11)))
    refuses(world, 0, "agree", message, "second, different")


@each("phase, claimed", [("mask", "mask"), ("agree", "sign"), ("unmask", "unmask")])
def test_what_is_released_is_claimed_first(phase: str, claimed: str) -> None:
    class Refusing:
        def claim(self, context: bytes, kind: str, value: bytes) -> None:
            if kind == claimed:
                raise FaultyServerError(f"cannot persist {kind}")

    world = World(small_plan(), signed=phase == "agree", release_log=Refusing())
    world.run("advertise", "share", *(["mask"] if phase != "mask" else []))
    refuses(world, 0, phase, world.waiting[0], "cannot persist")


def test_with_identities_nothing_is_released_before_agreeing() -> None:
    world = agreeing()
    survivors = wire.decode(wire.SurvivorSet, world.waiting[0], plan=world.plan).survivors
    request = wire.UnmaskRequest(
        wire.WIRE_VERSION, wire.decode(wire.SurvivorSet, world.waiting[0], plan=world.plan).context, survivors, []
    )
    with pytest.raises(FaultyServerError, match="not possible when masked"):
        world.clients[0].unmask(wire.encode(request))


def test_another_set_than_the_signed_one_is_not_unmasked() -> None:
    world = unmasking(signed=True)
    message = change(wire.UnmaskRequest, world.waiting[0], world.plan, survivors=list(range(11)))
    refuses(world, 0, "unmask", message, "than the one this client signed")


def test_signatures_must_be_enough_distinct_members_valid() -> None:
    def signatures_of(world: World) -> list[tuple[int, bytes]]:
        return wire.decode(wire.UnmaskRequest, world.waiting[0], plan=world.plan).signatures

    cases = [
        (lambda s: s[:6], "6 users signed the survivor set, the plan asks for 7"),
        (lambda s: [*s, (11, s[0][1])], "8 users signed the survivor set, the plan asks for 7"),
        (lambda s: [s[0], s[0], *s[2:]], "one twice"),
        (lambda s: [(0, s[1][1]), *s[1:]], "user 0 did not sign"),
        (lambda s: [*s[:-1], (11, bytes(64))], "user 11 did not sign"),
        (lambda s: [*s[:-1], (13, s[0][1])], "strangers"),
    ]
    for tamper, match in cases:
        world = unmasking(signed=True)
        message = change(wire.UnmaskRequest, world.waiting[0], world.plan, signatures=tamper(signatures_of(world)))
        refuses(world, 0, "unmask", message, match)


def test_a_quorum_may_be_all_survivors() -> None:
    world = World(small_plan(colluders=4, dropout=0.0), signed=True)
    world.run("advertise", "share")
    world.run("mask", without={0, 3, 6})
    world.run("agree")
    request = wire.decode(wire.UnmaskRequest, world.waiting[1], plan=world.plan)
    assert [user for user, _ in request.signatures] == request.survivors
    world.run("unmask")
    assert total_counts(world.server.decoded) == [9, 9, 9]


def test_each_secret_is_released_for_one_side_only() -> None:
    """Of every dealer one share: the mask share of the dropped, the self share of the survivors, its own too."""
    world = World(small_plan())
    world.run("advertise", "share")
    world.run("mask", without={4})
    held = world.clients[0]._state.held
    _, shares = released(world, 0)
    assert shares.keys() == set(range(12))
    for dealer, data in shares.items():
        mask_share, self_share = held[dealer]
        assert int.from_bytes(data, "little") == (mask_share if dealer == 4 else self_share)
        assert mask_share != self_share


def test_a_client_without_identity_cannot_sign() -> None:
    world = unmasking()
    context = wire.decode(wire.UnmaskRequest, world.waiting[0], plan=world.plan).context
    message = wire.SurvivorSet(wire.WIRE_VERSION, context, list(range(12)), [])
    client = world.clients[0]
    with pytest.raises(FaultyServerError, match="only users with identities"):
        client.agree(wire.encode(message))
    assert isinstance(client._state, Masked)
    with pytest.raises(UsageError, match="no identity to sign"):
        sign_survivors(client._state, wire.encode(message), MemoryReleaseLog())


def split_sharers() -> tuple[World, bytes, list[int]]:
    """The attack: the victim masks with peers whom everybody else will take for dropped.

    Twenty-four users, four subgroups of six. The victim (0) is shown an admissible list of other sharers than everybody
    else, and masks under its own context. The survivor set shown to the others is admissible and holds the victim, but
    none of the peers it masked with in two of three segments: their released shares would strip its masks there.
    """
    plan = Plan.build([24], [16], 60, value_range=1.0, subgroup_size=6)
    world = World(plan, signed=True)
    world.run("advertise", "share")
    groups = [list(subgroup.members) for subgroup in plan.subgroups]
    shown = sorted({0, *groups[0][1:3], *groups[1][:3], *groups[2][:3], *groups[3][:5]})
    survivors = sorted(set(plan.users) - set(shown) | {0, *groups[3][:2]})
    return world, show_sharers(plan, 0, world.waiting[0], shown), survivors


def test_a_user_who_masked_under_another_list_is_no_survivor() -> None:
    world, split, survivors = split_sharers()
    plan = world.plan
    victim = wire.decode(wire.MaskedVector, world.answer("mask", 0, split), plan=plan)
    vectors = {u: wire.decode(wire.MaskedVector, world.answer("mask", u), plan=plan) for u in range(1, 24)}
    context = vectors[1].context
    assert victim.context != context
    forged = {u: (vectors[u] if u else victim).signature for u in survivors}
    for user in survivors[1:]:
        request = survivor_set(plan, user, context, survivors, forged)
        refuses(world, user, "agree", request, "user 0 did not mask under this list of sharers")


def test_every_surviving_dealers_signature_is_asked_for() -> None:
    cases: list[tuple[Callable[[list[bytes]], list[bytes]], str]] = [
        (lambda signatures: signatures[:-1], "one signature for each"),
        (lambda signatures: [*signatures, signatures[0]], "one signature for each"),
        (lambda _: [], "one signature for each"),
        (lambda signatures: [*signatures[:-1], bytes(64)], "user 11 did not mask"),
        (lambda signatures: [signatures[1], signatures[0], *signatures[2:]], "user 1 did not mask"),
    ]
    for tamper, match in cases:
        world = agreeing()
        signatures = wire.decode(wire.SurvivorSet, world.waiting[0], plan=world.plan).signatures
        bad = change(wire.SurvivorSet, world.waiting[0], world.plan, signatures=tamper(signatures))
        refuses(world, 0, "agree", bad, match)


def test_a_round_is_shared_once_across_restarts() -> None:
    """Same round, same log, a fresh client with other keys: the log refuses before anything is shared or masked."""
    log = MemoryReleaseLog()
    for first in (True, False):
        world = World(small_plan())
        world.clients[0] = world.make_client(0, release_log=log)
        world.run("advertise")
        if first:
            world.answer("share", 0)
            continue
        with pytest.raises(FaultyServerError, match="asked a second time, for something else, to share"):
            world.answer("share", 0)


def test_a_key_in_another_encoding_is_refused() -> None:
    """The unused bit makes other bytes of the same key: two users would have one key without looking equal."""
    world = World(small_plan())
    world.run("advertise")
    advertised = roster_of(world).advertised
    key = advertised[2].mask_key
    twin = replace(advertised[3], mask_key=key[:31] + bytes([key[31] ^ 0x80]))
    message = change(wire.Roster, world.waiting[0], world.plan, advertised=[*advertised[:3], twin, *advertised[4:]])
    refuses(world, 0, "share", message, "one encoding")


def test_a_signed_survivor_set_needs_identities() -> None:
    world = unmasking()
    message = change(wire.UnmaskRequest, world.waiting[0], world.plan, signatures=[(0, bytes(64))])
    refuses(world, 0, "unmask", message, "knows no identities")


class Claims:
    """A release log that can be read."""

    def __init__(self) -> None:
        self.made: list[tuple[bytes, str]] = []
        self.values: dict[str, bytes] = {}

    def claim(self, context: bytes, kind: str, value: bytes) -> None:
        self.made.append((context, kind))
        self.values[kind] = value


@each("signed", [False, True])
def test_claims_are_made_under_the_context_they_are_for(signed: bool) -> None:
    """Sharing and masking once a round (c0), signing and releasing once a list of sharers (c2)."""
    log = Claims()
    world = World(small_plan(), signed=signed)
    world.clients[0] = world.make_client(0, release_log=log)
    world.run("advertise", "share")
    masked = wire.decode(wire.MaskedVector, world.answer("mask", 0), plan=world.plan).context
    world.run("mask", *(["agree"] if signed else []), "unmask")
    first = ROUND.context(world.plan)
    later = [(masked, "sign")] if signed else []
    assert log.made == [(first, "share"), (first, "mask"), *later, (masked, "unmask")]


def test_claims_have_the_values_that_the_wire_format_says() -> None:
    """A log outlives programs: one that claims another value for the same bytes refuses to repeat them."""
    log, secrets, sent = Claims(), RoundSecrets.generate(), {}
    world = World(small_plan(), signed=True)
    world.clients[0] = world.make_client(0, release_log=log)
    world.clients[0].advertise(secrets=secrets)
    world.run("advertise")
    for phase in ("share", "mask", "agree", "unmask"):
        sent[phase] = world.answer(phase, 0)
        world.run(phase, without={5} if phase == "mask" else ())
    context = wire.decode(wire.MaskedVector, sent["mask"], plan=world.plan).context
    key = hashing.derive("masked-vector", secrets.seal_key.private_bytes_raw(), context)
    survivors = hashing.index_bytes(0, 1, 2, 3, 4, *range(6, 12))
    assert log.values == {
        "share": hashing.digest("sealed-shares", sent["share"]),
        "mask": Poly1305.generate_tag(key, sent["mask"]),
        "sign": survivors,
        "unmask": survivors,
    }


@each(
    "phase, kind, field, words",
    [
        ("share", wire.Roster, "advertised", "^the roster leaves this user out"),
        ("mask", wire.Inbox, "sharers", "^the list of users who shared leaves this user out"),
        ("agree", wire.SurvivorSet, "survivors", "^the survivor set leaves this user out"),
        ("unmask", wire.UnmaskRequest, "survivors", "^the survivor set leaves this user out"),
    ],
)
def test_a_refused_set_is_called_by_its_name(phase: str, kind: Any, field: str, words: str) -> None:
    world = World(small_plan(), signed=True)
    phases = ("advertise", "share", "mask", "agree", "unmask")
    world.run(*phases[: phases.index(phase)])
    shown = getattr(wire.decode(kind, world.waiting[0], plan=world.plan), field)
    refuses(world, 0, phase, change(kind, world.waiting[0], world.plan, **{field: shown[1:]}), words)
    name = words.removesuffix("leaves this user out")
    other = change(kind, world.waiting[1], world.plan, **{field: shown[::-1]})
    refuses(world, 1, phase, other, f"{name}must name known users once each")
