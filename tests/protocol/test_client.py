"""Every refusal of a client, written as what a malicious server (or a mistaken caller) does."""

import pickle
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from cases import each
from rounds import ROUND, World, agreeing, change, inbox_of, masking, small_plan, unmasking

from heterosag.crypto.hashing import digest
from heterosag.crypto.identity import Identity
from heterosag.errors import BudgetError, FaultyServerError, PlanError, UsageError, WireError
from heterosag.plan import Plan, User
from heterosag.protocol import Client, ClientPhase, MemoryReleaseLog, Policy, Server
from heterosag.protocol import messages as wire
from heterosag.protocol.rounding import Rounding
from heterosag.protocol.update import Update

# --- before the round ---------------------------------------------------------------------------------------------


LOOSE = Policy.any_plan()


def test_without_identities_the_server_must_be_trusted_by_name() -> None:
    with pytest.raises(UsageError, match="trust_server=True"):
        Client(small_plan(), 0, ROUND, policy=LOOSE)


def test_identity_and_directory_belong_together() -> None:
    plan = small_plan()
    identity = Identity.generate()
    directory = {user: Identity.generate().public for user in plan.users} | {0: identity.public}
    with pytest.raises(UsageError, match="directory"):
        Client(plan, 0, ROUND, identity=identity, policy=LOOSE)
    with pytest.raises(UsageError, match="directory"):
        Client(plan, 0, ROUND, directory=directory, trust_server=True, policy=LOOSE)
    with pytest.raises(UsageError, match="no key for user 11"):
        Client(plan, 0, ROUND, identity=identity, directory=dict.fromkeys(range(11), identity.public), policy=LOOSE)
    with pytest.raises(UsageError, match="not the one of the identity"):
        Client(plan, 0, ROUND, identity=Identity.generate(), directory=directory, policy=LOOSE)
    with pytest.raises(UsageError, match="users 3 and 4 have one key, so they are one user twice"):
        Client(plan, 0, ROUND, identity=identity, directory=directory | {4: directory[3]}, policy=LOOSE)


@each(
    "policy, field",
    [
        (Policy(min_survivors=3), "min_survivors"),
        (Policy(min_survivors=2, min_users=13), "users"),
        (Policy(min_survivors=2, min_robustness=0.9), "min_robustness"),
    ],
)
def test_a_plan_below_the_clients_policy_is_refused(policy: Policy, field: str) -> None:
    with pytest.raises(PlanError) as refusal:
        Client(small_plan(), 0, ROUND, trust_server=True, policy=policy)
    assert refusal.value.field == field


def test_a_plan_has_at_least_half_of_the_directory() -> None:
    plan, policy, identity = small_plan(), replace(LOOSE, min_users=0.5), Identity.generate()
    known: dict[User, bytes] = {user: Identity.generate().public for user in range(24)} | {0: identity.public}
    Client(plan, 0, ROUND, identity=identity, directory=known, policy=policy)
    with pytest.raises(PlanError) as refusal:
        Client(plan, 0, ROUND, identity=identity, directory=known | {24: identity.public}, policy=policy)
    assert refusal.value.field == "users"


def test_the_value_range_is_held_to_the_policy_as_soon_as_it_is_known() -> None:
    plan, policy = small_plan(value_range=(-0.5, 1.0)), replace(LOOSE, symmetric_range=True)
    with pytest.raises(PlanError) as refusal:
        Client(plan, 0, ROUND, trust_server=True, policy=policy)
    assert refusal.value.field == "value_range"
    client = Client(plan, 0, ROUND, trust_server=True, policy=policy, settled=False)
    with pytest.raises(PlanError) as refusal:
        client.settle(plan, ROUND)
    assert refusal.value.field == "value_range"
    client.settle(plan.with_value_range(1.0), ROUND)


class Spent:
    """A budget that is spent."""

    def check(self, plan: Plan, policy: Policy) -> None:
        raise BudgetError(1.0, 1.0, 1e-5)

    charge = check


def test_a_spent_budget_refuses_rounds_with_noise_only() -> None:
    Client(small_plan(), 0, ROUND, trust_server=True, policy=LOOSE, budget=Spent()).advertise()
    noise = {"design": "secagg", "subgroup_size": 12, "min_block_survivors": 10, "noise_multiplier": 4.0}
    noisy = Plan.build([12], [2], 900, clipping_norm=0.5, **noise)  # type: ignore[arg-type]
    with pytest.raises(BudgetError):
        Client(noisy, 0, ROUND, trust_server=True, policy=LOOSE, budget=Spent()).advertise()


def test_a_stranger_has_no_client() -> None:
    with pytest.raises(UsageError, match="77"):
        Client(small_plan(), 77, ROUND, trust_server=True, policy=Policy.any_plan())


# --- the inbox, before there is a vector --------------------------------------------------------------------------


def test_an_inbox_is_checked_before_there_is_a_vector() -> None:
    world = masking()
    client, message = world.clients[0], world.waiting[0]
    client.check_inbox(message)
    with pytest.raises(WireError):
        client.check_inbox(b"garbage")
    assert client.phase is ClientPhase.SHARED
    world.run("mask")
    assert client.phase is ClientPhase.MASKED
    with pytest.raises(FaultyServerError, match="not possible when masked"):
        client.check_inbox(message)


@each("field", ["sharers", "context", "sealed"])
def test_an_inbox_that_only_a_malicious_server_sends_is_the_end_before_there_is_a_vector(field: str) -> None:
    world = masking()
    inbox = inbox_of(world)
    changed: dict[str, Any] = {"sharers": inbox.sharers[1:], "context": bytes(32), "sealed": inbox.sealed[:-1]}
    message = change(wire.Inbox, world.waiting[0], world.plan, **{field: changed[field]})
    with pytest.raises(FaultyServerError):
        world.clients[0].check_inbox(message)
    assert world.clients[0].phase is ClientPhase.DEAD


def test_an_inbox_is_not_checked_before_its_turn() -> None:
    client = Client(small_plan(), 0, ROUND, trust_server=True, policy=LOOSE)
    client.advertise()
    with pytest.raises(FaultyServerError, match="not possible when advertised"):
        client.check_inbox(b"")
    unsettled = Client(small_plan(), 0, ROUND, trust_server=True, policy=LOOSE, settled=False)
    with pytest.raises(UsageError, match="settle comes before mask"):
        unsettled.check_inbox(b"")


# --- share --------------------------------------------------------------------------------------------------------


def test_a_repeated_roster_gets_the_same_shares_after_the_range_and_the_model_are_settled() -> None:
    world = World(small_plan())
    world.run("advertise")
    first = world.answer("share", 0)
    world.clients[0].settle(world.plan.with_value_range(0.5), replace(ROUND, model=b"m" * 32))
    assert world.answer("share", 0) == first


def test_garbled_bytes_change_nothing() -> None:
    world = World(small_plan())
    world.run("advertise")
    for bad in (b"", b"garbage", world.waiting[0][:-1], world.waiting[0] + b"\0"):
        with pytest.raises(WireError, match="server"):
            world.answer("share", 0, bad)
    assert world.clients[0].phase is ClientPhase.ADVERTISED
    world.answer("share", 0)


# --- mask ---------------------------------------------------------------------------------------------------------


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


def masks(world: World) -> Callable[..., bytes]:
    """What user 0 replies to its inbox, each time as if it were the first, and with the same rounding."""
    saved = world.clients[0].save()

    def mask(*update: Any, **options: Any) -> bytes:
        client: Client = world.make_client(0, saved=saved, release_log=MemoryReleaseLog())
        return client.mask(world.waiting[0], *update, rounding=Rounding.from_seed(1, 0), **options)

    return mask


def test_a_checked_update_stands_for_vector_weight_and_metrics() -> None:
    world = masking(metrics=["loss"], max_weight=9)
    mask, given = masks(world), {"weight": 3, "metrics": {"loss": 0.25}}
    update = Update.of(world.plan, world.updates[0], **given)  # type: ignore[arg-type]
    assert mask(update) == mask(world.updates[0], **given) != mask(world.updates[0], **given | {"weight": 4})


def test_pieces_go_through_the_map_that_was_given_and_come_out_alike() -> None:
    world = masking()
    mask, found = masks(world), []

    def watched(function: Callable[[Any], Any], pieces: Iterable[Any]) -> list[Any]:
        found.append([function(piece) for piece in pieces])
        return found[-1]

    assert mask(world.updates[0], parallel_map=watched) == mask(world.updates[0])
    assert len(found) > 1, "both what is quantized and what is masked"


def test_a_bad_vector_changes_nothing() -> None:
    world = masking()
    with pytest.raises(UsageError, match="NaN"):
        world.clients[0].mask(world.waiting[0], np.full(40, np.nan))
    assert world.clients[0].phase is ClientPhase.SHARED
    world.answer("mask", 0)


# --- agree and unmask ---------------------------------------------------------------------------------------------


def test_a_second_different_request_to_unmask_is_refused_and_the_same_one_repeated() -> None:
    world = unmasking()
    first = world.answer("unmask", 0)
    assert world.answer("unmask", 0) == first
    message = change(wire.UnmaskRequest, world.waiting[0], world.plan, survivors=list(range(11)))
    with pytest.raises(FaultyServerError, match="second, different"):
        world.answer("unmask", 0, message)
    assert world.clients[0].phase is ClientPhase.RELEASED


class Watch:
    """A guard that refuses nothing and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, frozenset[int]]] = []

    def check(self, survivors: frozenset[int]) -> None:
        self.asked.append(("check", survivors))

    def note(self, survivors: frozenset[int]) -> None:
        self.asked.append(("note", survivors))


@each("signed", [False, True])
def test_a_guard_sees_every_survivor_set_that_is_signed_or_released(signed: bool) -> None:
    world, guard = World(small_plan(), signed=signed), Watch()
    world.clients[0] = world.make_client(0, guard=guard)
    world.run("advertise", "share")
    world.run("mask", without=[5])
    assert guard.asked == []
    alive = frozenset(range(12)) - {5}
    for phase in ["agree", "unmask"] if signed else ["unmask"]:
        guard.asked.clear()
        world.run(phase)
        assert guard.asked == [("check", alive), ("note", alive)]


def test_a_guard_does_not_count_a_round_of_metrics_alone() -> None:
    """They are summed over everybody: no block's sum is learned."""
    plan, guard, alone = small_plan(metrics=["loss"]), Watch(), replace(ROUND, metrics_only=True)
    world = World(plan, signed=True)
    world.server = Server(plan, alone, directory=world.directory)
    world.clients = {user: world.make_client(user, round_id=alone, guard=guard) for user in plan.users}
    world.run("advertise", "share")
    for user, message in world.waiting.items():
        world.server.receive(user, world.clients[user].mask(message, np.empty(0), metrics={"loss": 1.0}))
    world.waiting = world.server.close()
    world.run("agree", "unmask")
    assert world.server.decoded.metrics is not None
    assert guard.asked == []


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


# --- the split list of sharers --------------------------------------------------------------------------------------


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


@each("changed", [{"plan": small_plan(value_range=0.5)}, {"round_id": replace(ROUND, model=b"m" * 32)}])
def test_an_inbox_with_another_range_or_model_is_no_late_duplicate(changed: dict[str, Any]) -> None:
    world = World(small_plan())
    inbox = world.run("advertise", "share")[0]
    world.run("mask")
    world.answer("unmask", 0)
    saved = world.clients[0].save()
    with pytest.raises(WireError, match="late duplicate"):
        world.make_client(0, saved=saved).mask(inbox, world.updates[0])
    with pytest.raises(FaultyServerError, match="second, different message"):
        world.make_client(0, saved=saved, **changed).mask(inbox, world.updates[0])


def test_a_saved_client_knows_messages_by_digests_that_do_not_change_with_the_program() -> None:
    """A client that is restored by a newer program would take a repeated message for another one."""
    world = World(small_plan())
    known, roster = {"advertise": digest("client-message", b"")}, world.run("advertise")[0]
    known["share"], inbox = digest("client-message", roster), world.run("share")[0]
    known["mask"] = digest("client-message", inbox, world.plan.digest, ROUND.model)
    world.run("mask")
    body = msgspec.msgpack.decode(world.clients[0].save()[32:])
    assert {name: answered for name, (answered, _) in body["replies"].items()} == known


def test_nothing_that_holds_a_secret_can_be_pickled() -> None:
    from heterosag.protocol.client import Polynomials
    from heterosag.protocol.masks import Mask
    from heterosag.protocol.rounding import Rounding

    for thing in (Polynomials(mask=[1], self=[2]), Mask(bytes(32), True, ()), Rounding.from_system()):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(thing)


@each("phase", ["agree", "unmask"])
def test_bad_bytes_name_the_server_in_every_phase(phase: str) -> None:
    world = agreeing() if phase == "agree" else unmasking(signed=True)
    with pytest.raises(WireError) as caught:
        world.answer(phase, 0, b"\x00")
    assert caught.value.sender == "server"


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


def test_only_a_malicious_user_wraps() -> None:
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
                again = world.make_client(0, saved=saved, release_log=MemoryReleaseLog())
                vector = np.full(world.plan.dimension, value)
                reply = again.mask(world.waiting[0], vector, rounding=Rounding.from_seed(1, 0), clip=chosen)
                lanes.append(bytes(wire.decode(wire.MaskedVector, reply, plan=world.plan).vector))
            found[value, clip] = lanes[0] == lanes[1]
    assert found == {(0.5, True): True, (0.5, False): True, (3.0, True): True, (3.0, False): False}


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
    with pytest.raises(UsageError, match="weights from 1 to 1, not 2"):
        client.answer("mask", world.waiting[0], world.updates[0], weight=2)
    assert client.answer("mask", world.waiting[0], world.updates[0], weight=1)
