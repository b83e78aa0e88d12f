"""Every refusal of a client, written as what a malicious server (or a mistaken caller) does."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cases import each
from msgspec.structs import replace
from rounds import ROUND, World, change, small_plan

from heterosag.crypto.identity import Identity
from heterosag.errors import FaultyServerError, HeteroSagError, PlanError, UsageError, WireError
from heterosag.plan import Plan
from heterosag.protocol import Client, ClientPhase, MemoryReleaseLog, Policy, RoundId
from heterosag.protocol import messages as wire
from heterosag.protocol.encoding import Rounding


@pytest.fixture(autouse=True)
def bad_bytes_are_the_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a test here is about: bytes that do not decode came from the server."""
    step = Client._step

    def checked(self: Client, *words: Any) -> bytes:
        try:
            return step(self, *words)
        except WireError as error:
            if error.sender != "server":
                pytest.fail(f"{error.sender!r} is blamed for what the server sent: {error}")
            raise

    monkeypatch.setattr(Client, "_step", checked)


def refuses(world: World, user: Any, phase: str, message: bytes, match: str) -> None:
    """The client raises, dies, and answers nothing any more."""
    with pytest.raises(FaultyServerError, match=match):
        world.answer(phase, user, message)
    assert world.clients[user].phase is ClientPhase.DEAD
    with pytest.raises(HeteroSagError):
        world.answer(phase, user)


def roster_of(world: World) -> wire.Roster:
    return wire.decode(wire.Roster, world.waiting[0], plan=world.plan)


# --- before the round ---------------------------------------------------------------------------------------------


def test_without_identities_the_server_must_be_trusted_by_name() -> None:
    with pytest.raises(UsageError, match="trust_server=True"):
        Client(small_plan(), 0, ROUND)


def test_identity_and_directory_belong_together() -> None:
    plan = small_plan()
    identity = Identity.generate()
    directory = dict.fromkeys(plan.users, identity.public)
    with pytest.raises(UsageError, match="directory"):
        Client(plan, 0, ROUND, identity=identity)
    with pytest.raises(UsageError, match="directory"):
        Client(plan, 0, ROUND, directory=directory, trust_server=True)
    with pytest.raises(UsageError, match="no key for user 11"):
        Client(plan, 0, ROUND, identity=identity, directory=dict.fromkeys(range(11), identity.public))
    with pytest.raises(UsageError, match="not the one of the identity"):
        Client(plan, 0, ROUND, identity=Identity.generate(), directory=directory)


@each(
    "policy, field",
    [
        (Policy(min_survivors=3), "min_survivors"),
        (Policy(least_users=13), "users"),
        (Policy(least_robustness=0.9), "min_robustness"),
    ],
)
def test_a_plan_below_the_clients_policy_is_refused(policy: Policy, field: str) -> None:
    with pytest.raises(PlanError) as refusal:
        Client(small_plan(), 0, ROUND, trust_server=True, policy=policy)
    assert refusal.value.field == field


def test_a_stranger_has_no_client() -> None:
    with pytest.raises(UsageError, match="77"):
        Client(small_plan(), 77, ROUND, trust_server=True)


# --- share --------------------------------------------------------------------------------------------------------


@each(
    "other",
    [
        {"plan": small_plan(levels=[2, 6])},
        {"plan": small_plan(value_range=(-1.0, 2.0))},
        {"plan": small_plan(min_survivors=3)},
        {"plan": small_plan(colluders=1)},
        {"round_id": RoundId(session=b"other", number=3)},
        {"round_id": RoundId(session=b"test", number=4)},
        {"round_id": RoundId(session=b"test", number=3, model=b"m" * 32)},
    ],
)
def test_a_different_plan_or_round_or_model_is_another_context(other: dict[str, Any]) -> None:
    world = World(small_plan())
    world.run("advertise")
    world.clients[0] = world.make_client(0, **other)
    world.clients[0].advertise()
    refuses(world, 0, "share", world.waiting[0], "another context")


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
        ([0, 1, 2, 3, 6, 7, 8, 9], "not admissible: subgroups"),
    ],
)
def test_rosters_that_break_a_rule(chosen: list[int], match: str) -> None:
    world = World(small_plan(min_survivors=3))
    world.run("advertise")
    advertised = roster_of(world).advertised
    message = change(wire.Roster, world.waiting[0], world.plan, advertised=[advertised[i] for i in chosen])
    refuses(world, 0, "share", message, match)


def test_garbled_bytes_change_nothing() -> None:
    world = World(small_plan())
    world.run("advertise")
    for bad in (b"", b"garbage", world.waiting[0][:-1], world.waiting[0] + b"\0"):
        with pytest.raises(WireError, match="server"):
            world.answer("share", 0, bad)
    assert world.clients[0].phase is ClientPhase.ADVERTISED
    world.answer("share", 0)


# --- mask ---------------------------------------------------------------------------------------------------------


def masking(**changes: Any) -> World:
    world = World(small_plan(**changes))
    world.run("advertise", "share")
    return world


def inbox_of(world: World, user: int = 0) -> wire.Inbox:
    return wire.decode(wire.Inbox, world.waiting[user], plan=world.plan)


def test_a_list_without_this_users_block_peers_is_refused_before_anything_is_encoded() -> None:
    """The attack: forty users, the victim is shown twenty-five, none of its block, and would send in the clear."""
    plan = Plan.build([40], [4], 60, value_range=1.0, subgroup_size=4, min_survivors=2)
    world = World(plan)
    world.run("advertise", "share")
    inbox = inbox_of(world)
    partners = {g for block in plan.blocks_of(0) for g in block.subgroups}
    assert partners == set(range(10))
    shown = [0, *range(4, 28)]
    assert len(shown) == 25
    message = change(
        wire.Inbox,
        world.waiting[0],
        plan,
        sharers=shown,
        shares=[shares for shares in inbox.shares if shares.user in shown],
    )
    refuses(world, 0, "mask", message, "not admissible")


def test_a_list_that_leaves_a_subgroup_alone_in_two_segments_is_refused() -> None:
    world = masking(subgroup_size=2, classes=[8, 8], min_survivors=2)  # eight subgroups of two
    inbox = inbox_of(world)
    shown = [user for user in range(16) if world.plan.assignment[user] not in (1, 2)]
    message = change(
        wire.Inbox,
        world.waiting[0],
        world.plan,
        sharers=shown,
        shares=[shares for shares in inbox.shares if shares.user in shown],
    )
    refuses(world, 0, "mask", message, "inference robustness")


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


def test_shares_of_strangers_or_twice_are_refused() -> None:
    world = masking()
    shares = inbox_of(world).shares
    for wrong in ([shares[0], *shares], [replace(shares[0], user=0), *shares[1:]], shares[::-1]):
        world = masking()
        message = change(wire.Inbox, world.waiting[0], world.plan, shares=wrong)
        refuses(world, 0, "mask", message, "no dealers")


@each("fault", ["missing", "garbled", "swapped", "reflected", "commitment", "old"])
def test_bad_shares_become_complaints_that_name_the_dealer(fault: str) -> None:
    world = masking()
    shares = list(inbox_of(world).shares)
    assert shares[0].user == 1
    if fault == "missing":
        shares = shares[1:]
    elif fault == "garbled":
        shares[0] = replace(shares[0], self_share=bytes(48))
    elif fault == "swapped":
        shares[0] = replace(shares[0], mask_share=shares[0].self_share, self_share=shares[0].mask_share)
    elif fault == "reflected":
        mine = inbox_of(world, 1).shares[0]
        assert mine.user == 0
        shares[0] = replace(mine, user=1)
    elif fault == "commitment":
        shares[0] = replace(shares[0], mask_commitment=bytes(32))
    else:
        shares[0] = replace(inbox_of(masking()).shares[0], user=1)
    message = change(wire.Inbox, world.waiting[0], world.plan, shares=shares)
    vector = wire.decode(wire.MaskedVector, world.answer("mask", 0, message), plan=world.plan)
    assert vector.complaints == [1]


def test_a_second_vector_is_refused_and_a_repeated_one_gets_the_same_bytes() -> None:
    world = masking()
    client, message, update = world.clients[0], world.waiting[0], world.updates[0]
    first = client.mask(message, update)
    assert client.mask(message, update) == first
    with pytest.raises(UsageError, match="masks only one"):
        client.mask(message, update + 0.001)
    with pytest.raises(UsageError, match="masks only one"):
        client.mask(message, update, metrics={"x": 1.0})
    assert client.phase is ClientPhase.MASKED


def test_a_bad_vector_changes_nothing() -> None:
    world = masking()
    with pytest.raises(UsageError, match="NaN"):
        world.clients[0].mask(world.waiting[0], np.full(40, np.nan))
    assert world.clients[0].phase is ClientPhase.SHARED
    world.answer("mask", 0)


# --- agree and unmask ---------------------------------------------------------------------------------------------


def agreeing(**changes: Any) -> World:
    world = World(small_plan(**changes), signed=True)
    world.run("advertise", "share", "mask")
    return world


def unmasking(*, signed: bool = False, **changes: Any) -> World:
    world = World(small_plan(**changes), signed=signed)
    world.run("advertise", "share", "mask", *(["agree"] if signed else []))
    return world


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


def test_two_survivor_sets_are_not_signed_across_a_restart() -> None:
    """The log outlives the client: a second client in the same context signs nothing else."""
    log = MemoryReleaseLog()
    log.claim(b"c", "sign", b"set")
    log.claim(b"c", "sign", b"set")
    log.claim(b"c", "unmask", b"other")
    log.claim(b"d", "sign", b"other")
    with pytest.raises(FaultyServerError, match="second time"):
        log.claim(b"c", "sign", b"other")


@each("phase, claimed", [("mask", "mask"), ("agree", "sign"), ("unmask", "unmask")])
def test_what_is_released_is_claimed_first(phase: str, claimed: str) -> None:
    class Refusing:
        def claim(self, context: bytes, kind: str, value: bytes) -> None:
            if kind == claimed:
                raise FaultyServerError(f"cannot persist {kind}")

    world = World(small_plan(), signed=phase == "agree", release_log=Refusing())
    world.run("advertise", "share", *(["mask"] if phase != "mask" else []))
    refuses(world, 0, phase, world.waiting[0], "cannot persist")


def test_a_second_different_request_to_unmask_is_refused_and_the_same_one_repeated() -> None:
    world = unmasking()
    first = world.answer("unmask", 0)
    assert world.answer("unmask", 0) == first
    message = change(wire.UnmaskRequest, world.waiting[0], world.plan, survivors=list(range(11)))
    with pytest.raises(FaultyServerError, match="second, different"):
        world.answer("unmask", 0, message)
    assert world.clients[0].phase is ClientPhase.RELEASED


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
        (lambda s: [s[0], s[0], *s[1:]], "one twice"),
        (lambda s: [(0, s[1][1]), *s[1:]], "user 0 did not sign"),
        (lambda s: [*s[:-1], (11, bytes(64))], "user 11 did not sign"),
        (lambda s: [*s, (13, s[0][1])], "strangers"),
    ]
    for tamper, match in cases:
        world = unmasking(signed=True)
        message = change(wire.UnmaskRequest, world.waiting[0], world.plan, signatures=tamper(signatures_of(world)))
        refuses(world, 0, "unmask", message, match)


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


def test_each_secret_is_released_for_one_side_only() -> None:
    """Of every dealer one share: the mask share of the dropped, the self share of the survivors, its own too."""
    world = World(small_plan())
    world.run("advertise", "share")
    world.run("mask", without={4})
    held = world.clients[0]._state.held
    released = dict(wire.decode(wire.Released, world.answer("unmask", 0), plan=world.plan).shares)
    assert released.keys() == set(range(12))
    for dealer, data in released.items():
        mask_share, self_share = held[dealer]
        assert int.from_bytes(data, "little") == (mask_share if dealer == 4 else self_share)
        assert mask_share != self_share


def test_a_client_without_identity_cannot_sign() -> None:
    world = unmasking()
    context = wire.decode(wire.UnmaskRequest, world.waiting[0], plan=world.plan).context
    message = wire.SurvivorSet(wire.WIRE_VERSION, context, list(range(12)), [])
    with pytest.raises(UsageError, match="no identity to sign"):
        world.clients[0].agree(wire.encode(message))


def test_steps_out_of_order_are_refused() -> None:
    world = World(small_plan())
    with pytest.raises(FaultyServerError, match="not possible when fresh"):
        world.clients[0].share(b"")
    first = world.clients[0].advertise()
    assert world.clients[0].advertise() == first
    with pytest.raises(FaultyServerError, match="not possible when advertised"):
        world.clients[0].unmask(b"")


def test_a_client_shows_and_pickles_nothing() -> None:
    world = masking()
    client = world.clients[0]
    assert repr(client) == "<Client of 0, shared>"
    secrets = client._state.secrets
    text = repr(client._state)
    assert str(secrets.self_secret) not in text
    assert str(secrets.mask_secret) not in text
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(client)


def test_secrets_are_forgotten_once_masked() -> None:
    world = masking()
    world.answer("mask", 0)
    assert not hasattr(world.clients[0]._state, "secrets")


def test_round_ids_are_checked() -> None:
    for bad in (
        {"session": b""},
        {"session": b"x" * 65},
        {"session": b"x", "number": -1},
        {"session": b"x", "model": b"y"},
    ):
        with pytest.raises(UsageError, match="session"):
            RoundId(**bad)


# --- the split list of sharers --------------------------------------------------------------------------------------


def split_sharers() -> tuple[World, bytes, list[int], wire.Inbox]:
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
    inbox = inbox_of(world)
    split = change(
        wire.Inbox, world.waiting[0], plan, sharers=shown, shares=[s for s in inbox.shares if s.user in shown]
    )
    return world, split, survivors, inbox


def test_a_user_who_masked_under_another_list_is_no_survivor() -> None:
    world, split, survivors, _ = split_sharers()
    plan = world.plan
    victim = wire.decode(wire.MaskedVector, world.answer("mask", 0, split), plan=plan)
    vectors = {u: wire.decode(wire.MaskedVector, world.answer("mask", u), plan=plan) for u in range(1, 24)}
    context = vectors[1].context
    assert victim.context != context
    forged = [(vectors[u] if u else victim).signature for u in survivors]
    request = wire.encode(wire.SurvivorSet(wire.WIRE_VERSION, context, survivors, forged))
    for user in survivors[1:]:
        refuses(world, user, "agree", request, "user 0 did not mask under this list of sharers")


def test_every_survivors_signature_is_asked_for() -> None:
    cases: list[tuple[Callable[[list[bytes]], list[bytes]], str]] = [
        (lambda signatures: signatures[:-1], "one signature for each"),
        (lambda _: [], "one signature for each"),
        (lambda signatures: [*signatures[:-1], bytes(64)], "user 11 did not mask"),
        (lambda signatures: [signatures[1], signatures[0], *signatures[2:]], "user 0 did not mask"),
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


def test_what_has_been_released_is_forgotten() -> None:
    world = World(small_plan())
    client = world.clients[0]
    inbox = world.run("advertise", "share")[0]
    world.run("mask")
    world.answer("unmask", 0)
    assert client._state is None
    with pytest.raises(WireError, match="late duplicate"):
        client.mask(inbox, world.updates[0])
    assert client.phase is ClientPhase.RELEASED


def test_nothing_that_holds_a_secret_can_be_pickled() -> None:
    from heterosag.protocol.client import Polynomials
    from heterosag.protocol.encoding import Rounding
    from heterosag.protocol.masks import Mask

    for thing in (Polynomials(mask=[1], self=[2]), Mask(bytes(32), True, ()), Rounding.from_system()):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(thing)


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

    def claim(self, context: bytes, kind: str, value: bytes) -> None:
        self.made.append((context, kind))


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


@each("phase", ["agree", "unmask"])
def test_bad_bytes_name_the_server_in_every_phase(phase: str) -> None:
    world = agreeing() if phase == "agree" else unmasking(signed=True)
    with pytest.raises(WireError) as caught:
        world.answer(phase, 0, b"\x00")
    assert caught.value.sender == "server"


def test_only_a_fresh_client_takes_a_saved_ones_place() -> None:
    world = masking()
    saved = world.clients[0].save()
    with pytest.raises(UsageError, match="only a fresh client"):
        world.clients[0].restore(saved)


@each("phase", ["share", "mask", "agree", "unmask"])
def test_bytes_that_do_not_decode_change_nothing(phase: str) -> None:
    world = World(small_plan(), signed=True)
    phases = ("advertise", "share", "mask", "agree", "unmask")
    world.run(*phases[: phases.index(phase)])
    before = world.clients[0].phase
    with pytest.raises(WireError, match="from 'server'"):
        world.answer(phase, 0, b"\x93junk")
    assert world.clients[0].phase is before
    world.run(*phases[phases.index(phase) :])


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


def test_only_a_liar_wraps() -> None:
    """With one rounding and one set of secrets nothing but the clip differs, and only for values beyond the range."""
    found = {}
    for value in (0.5, 3.0):
        for clip in (True, False):
            world = World(small_plan())
            world.run("advertise", "share")
            client = world.clients[0]
            saved = client.save()
            lanes = []
            for chosen in (True, clip):
                again = world.make_client(0, release_log=MemoryReleaseLog())
                again.restore(saved)
                vector = np.full(world.plan.dimension, value)
                reply = again.mask(world.waiting[0], vector, rounding=Rounding.from_seed(1, 0), clip=chosen)
                lanes.append(bytes(wire.decode(wire.MaskedVector, reply, plan=world.plan).vector))
            found[value, clip] = lanes[0] == lanes[1]
    assert found == {(0.5, True): True, (0.5, False): True, (3.0, True): True, (3.0, False): False}


def test_a_round_is_named_in_bytes() -> None:
    for wrong in ({"session": "monday"}, {"session": b"monday", "model": "x" * 32}):
        with pytest.raises(UsageError, match="are bytes, not"):
            RoundId(**wrong)  # type: ignore[arg-type]


def test_a_client_keeps_nothing_of_the_vector() -> None:
    world = World(small_plan())
    world.run("advertise", "share", "mask")
    vector = np.asarray(world.updates[0])
    kept = repr(world.clients[0]._masked).encode()
    assert vector.tobytes()[:16] not in b"".join(
        part for part in world.clients[0]._masked or () if isinstance(part, bytes)
    )
    assert kept
    world.clients[0]._die()
    assert world.clients[0]._masked is None


def test_a_phase_is_answered_by_its_name_or_refused() -> None:
    world = World(small_plan())
    client = world.clients[0]
    assert client.plan is world.plan
    with pytest.raises(UsageError, match="the phases are advertise, share, mask, agree, unmask, not 'lunch'"):
        client.answer("lunch", b"")
    world.run("advertise", "share")
    with pytest.raises(UsageError, match="needs the update"):
        client.answer("mask", world.waiting[0])
    assert client.answer("mask", world.waiting[0], world.updates[0], weight=1)
