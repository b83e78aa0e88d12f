"""Enrolment: everybody arrives at the same plan, nobody chooses it, whoever lies or withholds is named."""

from dataclasses import replace
from secrets import token_bytes
from typing import Any

import msgspec
import pytest
from rounds import small_plan

from heterosag.crypto.hashing import digest
from heterosag.crypto.identity import Identity
from heterosag.errors import FaultyServerError, FaultyUserError, PlanError, UsageError, WireError, WithheldError
from heterosag.plan import CohortPlan, Plan
from heterosag.plan.splitting import split
from heterosag.protocol import Client, MemoryReleaseLog, RoundId
from heterosag.protocol import messages as wire
from heterosag.protocol.enrolment import NONCE_SIZE, Charter, Enrolling, Enrolment
from heterosag.protocol.policy import Policy

IDENTITIES = {user: Identity.generate() for user in range(12)}
DIRECTORY = {user: identity.public for user, identity in IDENTITIES.items()}
CHARTER = Charter(epoch=b"first", plan=small_plan())


def make_user(user: int, charter: Charter = CHARTER, **options: Any) -> Enrolling:
    return Enrolling(
        charter, user, **{"identity": IDENTITIES[user], "directory": DIRECTORY, "policy": Policy.any_plan(), **options}
    )


class Party:
    """All users and a server, and the messages that wait for the users."""

    def __init__(self, charter: Charter = CHARTER) -> None:
        self.server = Enrolment(charter, directory=DIRECTORY)
        self.users = {user: make_user(int(user), charter) for user in charter.plan.users}
        self.waiting: dict[Any, bytes] = {}

    def commit(self, **nonces: bytes) -> None:
        for user, one in self.users.items():
            self.server.receive(user, one.commit(nonce=nonces.get(f"of_{user}")))
        self.waiting = self.server.close()

    def reveal(self) -> None:
        for user, one in self.users.items():
            self.server.receive(user, one.reveal(self.waiting[user]))
        self.waiting = self.server.close()


def test_everybody_arrives_at_the_servers_plan() -> None:
    party = Party()
    party.commit()
    party.reveal()
    plans = {one.finish(party.waiting[user]).digest for user, one in party.users.items()}
    assert plans == {party.server.plan.digest}
    assert party.server.plan.assignment_seed is not None
    assert party.server.plan.users == CHARTER.plan.users


def test_one_nonce_changes_the_assignment() -> None:
    found = []
    for last in (b"a" * 32, b"b" * 32):
        party = Party()
        party.commit(**{f"of_{user}": bytes([user]) * 32 for user in range(11)}, of_11=last)
        party.reveal()
        found.append(party.server.plan)
    assert found[0].assignment != found[1].assignment


def test_the_plan_of_an_enrolment_aggregates() -> None:
    import numpy as np

    from heterosag import aggregate

    party = Party()
    party.commit()
    party.reveal()
    plan = party.users[3].finish(party.waiting[3])
    result = aggregate(plan, np.zeros((12, plan.dimension)), identities=True)
    assert len(result.survivors) == 12


@pytest.mark.parametrize("phase", ["commit", "reveal"])
def test_whoever_withholds_is_named_and_left_out_of_the_next_charter(phase: str) -> None:
    party = Party()
    if phase == "reveal":
        party.commit()
    for user, one in party.users.items():
        if user not in (4, 7):
            party.server.receive(user, one.commit() if phase == "commit" else one.reveal(party.waiting[user]))
    with pytest.raises(WithheldError) as caught:
        party.server.close()
    assert caught.value.users == (4, 7)
    with pytest.raises(UsageError, match="no plan"):
        _ = party.server.plan
    with pytest.raises(UsageError, match="over: failed"):
        party.server.close()
    with pytest.raises(UsageError, match="over: failed"):
        party.server.receive(0, b"")
    charter = CHARTER.without(caught.value.users, b"second")
    assert set(charter.plan.users) == set(range(12)) - {4, 7}
    assert charter.plan.classes == (5, 5)
    again = Party(charter)
    again.commit()
    again.reveal()
    assert again.users[0].finish(again.waiting[0]).digest == again.server.plan.digest


def test_a_class_that_loses_everybody_is_gone_from_the_next_charter() -> None:
    charter = CHARTER.without(range(6), b"second")
    assert charter.plan.classes == (6,)
    assert charter.plan.levels == CHARTER.plan.levels[1:]


def test_after_a_failure_only_a_smaller_charter_is_accepted() -> None:
    fewer = CHARTER.without([4], b"second")
    make_user(0, fewer, after=CHARTER)
    for other in (CHARTER, Charter(epoch=b"again", plan=CHARTER.plan)):
        with pytest.raises(FaultyServerError, match="fewer users"):
            make_user(0, other, after=CHARTER)
    with pytest.raises(FaultyServerError, match="fewer users"):
        make_user(0, CHARTER.without([5], b"third"), after=fewer)


def test_charters_are_checked() -> None:
    with pytest.raises(UsageError, match="1 to 64 bytes"):
        Charter(epoch=b"", plan=small_plan())
    with pytest.raises(UsageError, match="1 to 64 bytes"):
        Charter(epoch=bytes(65), plan=small_plan())
    with pytest.raises(PlanError, match="assignment_seed"):
        Charter(epoch=b"x", plan=small_plan(assignment_seed=3))
    with pytest.raises(UsageError, match="not a user"):
        make_user(0, Charter(epoch=b"x", plan=small_plan(users=list("abcdefghijkl"))))
    with pytest.raises(FaultyServerError, match="directory does not know"):
        make_user(0, directory={0: DIRECTORY[0]})
    with pytest.raises(UsageError, match="not the one of the identity"):
        make_user(0, identity=IDENTITIES[1])
    with pytest.raises(PlanError, match="min_survivors"):
        make_user(0, policy=Policy(min_survivors=3))
    with pytest.raises(FaultyServerError, match="another level"):
        make_user(0, level=5)
    make_user(0, level=2)
    with pytest.raises(UsageError, match="no key for user"):
        Enrolment(CHARTER, directory={})
    with pytest.raises(UsageError, match="32 bytes"):
        make_user(0).commit(nonce=b"short")


def test_contexts_name_the_charter() -> None:
    others = [
        Charter(epoch=b"other", plan=small_plan()),
        Charter(epoch=b"first", plan=small_plan(min_survivors=3)),
        Charter(epoch=b"first", plan=small_plan(levels=[2, 6])),
    ]
    assert len({CHARTER.context, *(other.context for other in others)}) == 4


# --- a malicious server ----------------------------------------------------------------------------------------------


def commitments_of(data: bytes) -> list[tuple[bytes, bytes]]:
    return wire.decode(wire.NonceCommitments, data, plan=CHARTER.plan).commitments


def show(listed: list[tuple[bytes, bytes]], context: bytes | None = None) -> bytes:
    return wire.encode(wire.NonceCommitments(wire.WIRE_VERSION, context or CHARTER.context, listed))


def swapped(listed: list[Any], one: int, other: int) -> list[Any]:
    listed[one], listed[other] = listed[other], listed[one]
    return listed


@pytest.mark.parametrize(
    ("words", "lie"),
    [
        ("user 5 is not signed by it", lambda listed: [*listed[:5], (b"c" * 32, listed[5][1]), *listed[6:]]),
        ("user 4 is not signed by it", lambda listed: swapped(listed, 4, 5)),
        ("11 users are shown", lambda listed: listed[:-1]),
    ],
)
def test_a_server_that_makes_up_or_swaps_commitments_gets_no_nonce(words: str, lie: Any) -> None:
    party = Party()
    party.commit()
    with pytest.raises(FaultyServerError, match=words):
        party.users[0].reveal(show(lie(commitments_of(party.waiting[0]))))
    with pytest.raises(FaultyServerError, match="nothing is next"):
        party.users[0].reveal(party.waiting[0])


def test_commitments_of_another_charter_or_too_many_get_no_nonce() -> None:
    party = Party()
    party.commit()
    listed = commitments_of(party.waiting[0])
    with pytest.raises(FaultyServerError, match="another enrolment"):
        party.users[0].reveal(show(listed, bytes(32)))
    with pytest.raises(WireError, match="at most"):
        party.users[1].reveal(show([*listed, listed[0]]))


def test_a_server_that_shows_an_old_commitment_of_this_user_gets_no_nonce() -> None:
    party = Party()
    party.commit()
    victim = make_user(0)
    victim.commit()
    with pytest.raises(FaultyServerError, match="another one for this user"):
        victim.reveal(party.waiting[0])


def test_a_nonce_is_revealed_to_one_set_of_commitments_across_restarts() -> None:
    """Otherwise a server could learn a nonce, have a friend commit anew, and choose the assignment."""
    log, nonce = MemoryReleaseLog(), b"n" * 32
    party = Party()
    party.commit(of_0=nonce)
    honest = commitments_of(party.waiting[0])
    first = make_user(0, release_log=log)
    first.commit(nonce=nonce)
    first.reveal(party.waiting[0])
    reborn = make_user(0, release_log=log)
    reborn.commit(nonce=nonce)
    friend = make_user(5)
    anew = wire.decode(wire.NonceCommitment, friend.commit(), plan=CHARTER.plan)
    with pytest.raises(FaultyServerError, match="second time"):
        reborn.reveal(show([*honest[:5], (anew.commitment, anew.signature), *honest[6:]]))
    with pytest.raises(FaultyServerError, match="second time"):
        make_user(0, release_log=log).commit()  # another nonce for the same charter


def test_nonces_must_open_their_commitments() -> None:
    party = Party()
    party.commit()
    party.reveal()
    shown = wire.decode(wire.NonceReveals, party.waiting[0], plan=CHARTER.plan)
    for words, nonces in (
        ("user 5 is not the one", [*shown.nonces[:5], b"x" * 32, *shown.nonces[6:]]),
        ("user 0 is not the one", swapped(list(shown.nonces), 0, 1)),
        ("11 users are shown", shown.nonces[:-1]),
    ):
        message = wire.encode(wire.NonceReveals(wire.WIRE_VERSION, shown.context, nonces))
        victim = party.users.pop(len(party.users) - 1)
        with pytest.raises(FaultyServerError, match=words):
            victim.finish(message)
    other = wire.encode(wire.NonceReveals(wire.WIRE_VERSION, CHARTER.context, shown.nonces))
    with pytest.raises(FaultyServerError, match="another enrolment"):
        party.users[0].finish(other)


def test_steps_out_of_order_are_refused() -> None:
    one = make_user(0)
    with pytest.raises(FaultyServerError, match="commit is next"):
        one.reveal(b"")
    one.commit()
    with pytest.raises(FaultyServerError, match="reveal is next"):
        one.commit()
    with pytest.raises(FaultyServerError, match="reveal is next"):
        one.finish(b"")
    with pytest.raises(WireError, match="server"):
        one.reveal(b"garbage")
    assert "reveal next" in repr(one)


# --- malicious users --------------------------------------------------------------------------------------------------


def test_malicious_users_are_named() -> None:
    party = Party()
    own = party.users[0].commit()
    assert party.server.receive(0, own)
    assert not party.server.receive(0, own)
    with pytest.raises(FaultyUserError, match="two different"):
        party.server.receive(0, make_user(0).commit())
    with pytest.raises(FaultyUserError, match="in the name of"):
        party.server.receive(1, own)
    with pytest.raises(FaultyUserError, match="another enrolment"):
        party.server.receive(2, make_user(2, Charter(epoch=b"other", plan=CHARTER.plan)).commit())
    forged = wire.NonceCommitment(wire.WIRE_VERSION, CHARTER.context, 3, b"c" * 32, bytes(64))
    with pytest.raises(FaultyUserError, match="signature"):
        party.server.receive(3, wire.encode(forged))
    with pytest.raises(WireError) as caught:
        party.server.receive(4, b"\x00")
    assert caught.value.sender == 4
    for user in range(1, 12):
        party.server.receive(user, party.users[user].commit())
    waiting = party.server.close()
    shown = wire.decode(wire.NonceReveal, party.users[0].reveal(waiting[0]), plan=CHARTER.plan)
    false = wire.NonceReveal(wire.WIRE_VERSION, shown.context, 0, b"f" * 32)
    with pytest.raises(FaultyUserError, match="another nonce"):
        party.server.receive(0, wire.encode(false))
    assert party.server.receive(0, wire.encode(shown))
    assert not party.server.receive(0, wire.encode(shown))


def test_secrets_do_not_show() -> None:
    import pickle

    one = make_user(0)
    one.commit(nonce=b"secret-nonce-secret-nonce-secret")
    assert "secret-nonce" not in repr(one) + str(vars(one))
    with pytest.raises(Exception, match=r"pickle|secret"):
        pickle.dumps(one)


def test_a_plan_can_be_charter_again_only_without_its_seed() -> None:
    party = Party()
    party.commit()
    party.reveal()
    assert isinstance(party.server.plan, Plan)
    with pytest.raises(PlanError, match="enrolment makes it"):
        Charter(epoch=b"x", plan=party.server.plan)


# --- what is said, to whom, and what is claimed first -----------------------------------------------------------------


class Claims:
    """A release log that can be read."""

    def __init__(self) -> None:
        self.made: list[tuple[bytes, str, bytes]] = []

    def claim(self, context: bytes, kind: str, value: bytes) -> None:
        self.made.append((context, kind, value))


def test_commitment_and_reveal_are_claimed_under_the_charter() -> None:
    log = Claims()
    party = Party()
    party.users[0] = make_user(0, release_log=log)
    party.commit()
    shown = commitments_of(party.waiting[0])
    party.reveal()
    context = wire.decode(wire.NonceReveals, party.waiting[0], plan=CHARTER.plan).context
    assert log.made == [(CHARTER.context, "commit", shown[0][0]), (CHARTER.context, "reveal", context)]
    assert party.users[0].user == 0
    plan = party.users[0].finish(party.waiting[0])
    assert party.users[0].finish(party.waiting[0]) is plan  # the same message again, the same answer
    with pytest.raises(FaultyServerError, match="when done is next"):
        party.users[0].finish(b"another")
    with pytest.raises(UsageError, match="over: done"):
        party.server.close()


def test_whoever_is_malicious_is_named_in_every_error() -> None:
    party = Party()
    other = Charter(epoch=b"other", plan=CHARTER.plan)
    forged = wire.NonceCommitment(wire.WIRE_VERSION, CHARTER.context, 3, b"c" * 32, bytes(64))
    party.server.receive(3, party.users[3].commit())
    for message in (make_user(2).commit(), make_user(3, other).commit(), wire.encode(forged), make_user(3).commit()):
        with pytest.raises(FaultyUserError) as caught:
            party.server.receive(3, message)
        assert caught.value.user == 3
    for user in set(range(12)) - {3}:
        party.server.receive(user, party.users[user].commit())
    waiting = party.server.close()
    revealed = {user: one.reveal(waiting[user]) for user, one in party.users.items()}
    context = wire.decode(wire.NonceReveal, revealed[3], plan=CHARTER.plan).context
    party.server.receive(3, revealed[3])
    false = wire.encode(wire.NonceReveal(wire.WIRE_VERSION, context, 3, b"f" * 32))
    late = wire.encode(wire.NonceReveal(wire.WIRE_VERSION, CHARTER.context, 3, b"f" * 32))
    for message in (revealed[2], false, late):
        with pytest.raises(FaultyUserError) as caught:
            party.server.receive(3, message)
        assert caught.value.user == 3
    with pytest.raises(WireError) as bad:
        party.server.receive(3, b"")
    assert bad.value.sender == 3
    with pytest.raises(WireError) as bad:
        party.users[0].finish(b"")
    assert bad.value.sender == "server"


@pytest.mark.parametrize(("phase", "what"), [("commit", "gave no commitment"), ("reveal", "gave no nonce")])
def test_what_was_withheld_is_named(phase: str, what: str) -> None:
    party = Party()
    if phase == "reveal":
        party.commit()
    with pytest.raises(WithheldError, match=what):
        party.server.close()


def test_an_epoch_has_a_name_of_up_to_64_bytes_and_a_nonce_32() -> None:
    assert Charter(epoch=bytes(64), plan=CHARTER.plan).epoch == bytes(64)
    found = {wire.decode(wire.NonceCommitment, make_user(0).commit(), plan=CHARTER.plan).commitment for _ in range(3)}
    assert len(found) == 3
    assert len(token_bytes(NONCE_SIZE)) == 32


def test_three_classes_keep_their_order_without_some_users() -> None:
    plan = Plan.build([4, 4, 4], [2, 3, 5], 40, value_range=1.0, subgroup_size=2, min_survivors=2)
    fewer = Charter(epoch=b"x", plan=plan).without([1, 9], b"y").plan
    assert fewer.users == (0, 2, 3, 4, 5, 6, 7, 8, 10, 11)
    assert fewer.classes == (3, 4, 3)


def test_an_identical_message_gets_the_identical_answer() -> None:
    party = Party()
    party.commit()
    shown = party.waiting[party.server.charter.plan.users[0]]
    one = party.users[party.server.charter.plan.users[0]]
    first = one.reveal(shown)
    assert one.reveal(shown) == first
    with pytest.raises(WireError, match="from 'server'"):
        make_committed().reveal(b"\x93junk")


def make_committed() -> Enrolling:
    user = make_user(1)
    user.commit()
    return user


def test_an_enrolment_goes_on_in_another_program() -> None:
    """Saved and restored between any two messages, it arrives at the same plan."""
    party, log = Party(), MemoryReleaseLog()
    options: dict[str, Any] = {
        "identity": IDENTITIES[0], "directory": DIRECTORY, "policy": Policy.any_plan(), "release_log": log,
    }  # fmt: skip
    party.users[0] = Enrolling.restore(Enrolling(CHARTER, 0, **options).save(), CHARTER, 0, **options)
    party.commit()
    party.users[0] = Enrolling.restore(party.users[0].save(), CHARTER, 0, **options)
    commitments = party.waiting[0]
    party.reveal()
    saved = party.users[0].save()
    again = Enrolling.restore(saved, CHARTER, 0, **options)
    assert again.reveal(commitments)  # the same message, the same answer
    assert again.finish(party.waiting[0]).digest == party.server.plan.digest
    done = Enrolling.restore(again.save(), CHARTER, 0, **options)
    assert done.reveal(commitments) == again.reveal(commitments)
    with pytest.raises(FaultyServerError, match="done is next"):
        done.commit()


def test_a_saved_enrolment_is_refused_where_it_does_not_belong() -> None:
    options: dict[str, Any] = {"identity": IDENTITIES[0], "directory": DIRECTORY, "policy": Policy.any_plan()}
    one = Enrolling(CHARTER, 0, **options)
    one.commit()
    saved = one.save()
    with pytest.raises(UsageError, match="another charter or user"):
        Enrolling.restore(saved, Charter(epoch=b"second", plan=small_plan()), 0, **options)
    with pytest.raises(UsageError, match="another charter or user"):
        make_user(1).restore(saved, CHARTER, 1, **options | {"identity": IDENTITIES[1]})
    for damaged in (saved[:-1], b"", saved + b"x"):
        with pytest.raises(UsageError, match="not a saved enrolment"):
            Enrolling.restore(damaged, CHARTER, 0, **options)


def saved_before(step: str) -> bytes:
    """User 0 before a step, or ended by a malicious server in the reveal or the finish."""
    party = Party()
    if step != "commit":
        party.commit()
    if step in ("finish", "done", "ended late"):
        party.reveal()
    if step == "done":
        party.users[0].finish(party.waiting[0])
    if step.startswith("ended"):
        name, other = ("reveal", Party()) if step == "ended early" else ("finish", Party())
        other.commit()
        if name == "finish":
            other.reveal()
        with pytest.raises(FaultyServerError):
            getattr(party.users[0], name)(other.waiting[0])
    return party.users[0].save()


def restore(saved: bytes) -> Enrolling:
    options: dict[str, Any] = {"identity": IDENTITIES[0], "directory": DIRECTORY, "policy": Policy.any_plan()}
    return Enrolling.restore(saved, CHARTER, 0, **options)


STEPS = ["commit", "reveal", "finish", "done", "ended early", "ended late"]


@pytest.mark.parametrize("step", STEPS)
def test_a_saved_enrolment_of_which_any_byte_was_changed_is_refused(step: str) -> None:
    """It was taken, and the server blamed for commitments that did not show the user's own."""
    saved = saved_before(step)
    assert restore(saved).save() == saved
    for place in range(len(saved)):
        changed = bytearray(saved)
        changed[place] ^= 1
        with pytest.raises(UsageError, match="not a saved enrolment: it was cut or changed"):
            restore(bytes(changed))


FORGED: list[tuple[str, dict[int, Any]]] = [
    ("commit", {3: bytes(32)}),
    ("commit", {4: [bytes(32)] * 12}),
    ("commit", {5: [b"", b""]}),
    ("reveal", {3: None}),
    ("reveal", {3: b"x"}),
    ("reveal", {3: bytes(33)}),
    ("reveal", {2: "commit"}),
    ("reveal", {2: "finish"}),
    ("finish", {3: bytes(32)}),  # not what it committed to
    ("finish", {3: None}),
    ("finish", {2: "reveal"}),
    ("finish", {2: "done"}),
    ("finish", {4: []}),
    ("finish", {4: [bytes(32)] * 11}),
    ("finish", {4: [bytes(31)] * 12}),
    ("finish", {5: None}),
    ("done", {3: bytes(32)}),
    ("done", {2: "nothing"}),
    ("ended late", {3: bytes(32)}),
]
"""What other states have in a field, in place of this one's own: step, nonce, commitments, answer."""


@pytest.mark.parametrize(("step", "fields"), FORGED)
def test_a_saved_enrolment_whose_step_does_not_fit_the_rest_is_refused(step: str, fields: dict[int, Any]) -> None:
    body = msgspec.msgpack.decode(saved_before(step)[32:])
    for place, value in fields.items():
        assert body[place] != value
        body[place] = value
    changed = msgspec.msgpack.encode(body)
    with pytest.raises(UsageError, match="with what does not fit it"):
        restore(digest("saved-enrolment", changed) + changed)


def test_a_saved_enrolment_has_one_encoding() -> None:
    body = saved_before("reveal")[32:]
    place = body.index(CHARTER.context) + 32
    assert body[place : place + 1] == b"\0", "the user"
    longer = body[:place] + b"\xcc\0" + body[place + 1 :]
    for changed, words in ((longer, "the one encoding"), (body[:1], "not a saved enrolment"), (b"\xc0", "Expected")):
        with pytest.raises(UsageError, match=words):
            restore(digest("saved-enrolment", changed) + changed)


def test_a_saved_enrolment_does_not_print_its_nonce() -> None:
    from heterosag.protocol.enrolment import _Saved

    saved = _Saved(context=b"c", user=0, expected="reveal", nonce=b"secret-nonce", commitments=[], answered=None)
    assert "secret" not in repr(saved)
    assert repr(saved).startswith("<")
    assert "enrolment" in repr(saved)


def test_a_rolled_back_enrolment_does_not_reveal_to_other_commitments() -> None:
    log = MemoryReleaseLog()
    options: dict[str, Any] = {
        "identity": IDENTITIES[0], "directory": DIRECTORY, "policy": Policy.any_plan(), "release_log": log,
    }  # fmt: skip
    party = Party()
    party.users[0] = Enrolling(CHARTER, 0, **options)
    party.commit()
    saved, commitments = party.users[0].save(), party.waiting[0]
    party.users[0].reveal(commitments)
    listed = wire.decode(wire.NonceCommitments, commitments, plan=CHARTER.plan)
    other = make_user(1)
    changed = wire.decode(wire.NonceCommitment, other.commit(), plan=CHARTER.plan)
    pairs = [*listed.commitments[:1], (changed.commitment, changed.signature), *listed.commitments[2:]]
    shown = wire.encode(wire.NonceCommitments(listed.version, listed.context, pairs))
    with pytest.raises(FaultyServerError, match="a second time"):
        Enrolling.restore(saved, CHARTER, 0, **options).reveal(shown)


def test_a_server_cannot_put_a_victim_into_a_class_with_its_colluders() -> None:
    """Users are drawn within their class: a class of the victim and two colluders leaves nothing to draw."""
    options: dict[str, Any] = {"value_range": 1.0, "subgroup_size": 3, "colluders": 2}
    two = Charter(epoch=b"first", plan=Plan.build([3, 9], [16, 16], 40, **options))
    with pytest.raises(FaultyServerError, match="two classes of one level"):
        make_user(5, two)
    few = Charter(epoch=b"first", plan=Plan.build([3, 9], [15, 16], 40, **options))
    with pytest.raises(PlanError, match="in its class of 3 users"):
        make_user(0, few, policy=Policy())
    make_user(5, few, policy=Policy())


# --- cohorts --------------------------------------------------------------------------------------------------------

COHORTS = Charter(
    epoch=b"cohorts",
    plan=CohortPlan.build([6, 6], [4, 8], 20, cohort_size=4, value_range=1.0, subgroup_size=2, min_survivors=2),
)


def whole_of(party: Party) -> CohortPlan:
    assert isinstance(party.server.plan, CohortPlan)
    return party.server.plan


def revealed() -> Party:
    party = Party(COHORTS)
    party.commit()
    party.reveal()
    return party


def test_users_of_cohorts_draw_the_split_and_end_with_the_plan_of_their_own() -> None:
    party = revealed()
    plan = whole_of(party)
    assert [len(one.users) for one in plan.plans] == [4, 4, 4]
    assert plan.assignment_seed is not None
    for user, one in party.users.items():
        assert one.finish(party.waiting[user]) == plan.plan_of(user)
    assert len(set(party.waiting.values())) == 3, "each cohort gets the signatures of its own users"
    again = whole_of(revealed())
    assert again.assignment_seed != plan.assignment_seed
    assert plan.classes == again.classes == (6, 6)


def test_a_user_of_a_cohort_checks_the_signatures_of_its_own_cohort_only() -> None:
    party = revealed()
    plan = whole_of(party)
    own, other = plan.plans[0].users, plan.plans[1].users
    found = wire.decode(wire.CohortReveals, party.waiting[own[0]], plan=COHORTS.plan)

    def signed_by(users: Any, **changes: Any) -> bytes:
        signatures = [party.server._commitments[plan.index(user)][1] for user in users]
        return wire.encode(msgspec.structs.replace(found, **{"signatures": signatures, **changes}))

    assert signed_by(own) == party.waiting[own[0]]
    for wrong, words in (
        (signed_by([*own[:3], other[0]]), f"shown for user {own[3]} is not signed by it"),
        (signed_by(own[:3]), "3 signatures are shown, this user's cohort has 4"),
        (signed_by(own, nonces=found.nonces[:-1]), "11 users are shown"),
        (signed_by(own, nonces=[*found.nonces[:-1], bytes(32)]), "shown for user 11 is not the one it committed to"),
        (signed_by(own, context=bytes(32)), "another enrolment"),
    ):
        with pytest.raises(FaultyServerError, match=words):
            restored(party, own[0]).finish(wrong)
    with pytest.raises(WireError) as caught:
        restored(party, own[0]).finish(b"")
    assert caught.value.sender == "server"


def restored(party: Party, user: Any) -> Enrolling:
    """The user before it finishes, again and again: a server that is caught ends an enrolment."""
    options = {"identity": IDENTITIES[user], "directory": DIRECTORY, "policy": Policy.any_plan()}
    return Enrolling.restore(party.users[user].save(), COHORTS, user, **options)


def test_nobody_reveals_to_commitments_of_cohorts_without_its_own() -> None:
    party = Party(COHORTS)
    party.commit()
    shown = wire.decode(wire.CohortCommitments, party.waiting[0], plan=COHORTS.plan)
    for wrong, words in (
        ([*shown.commitments[:5], bytes(32), *shown.commitments[6:]], "another one for this user"),
        (shown.commitments[:-1], "11 users are shown"),
    ):
        message = wire.encode(msgspec.structs.replace(shown, commitments=wrong))
        with pytest.raises(FaultyServerError, match=words):
            restored(party, 5).reveal(message)
    listed = [(commitment, bytes(64)) for commitment in shown.commitments]
    with pytest.raises(WireError) as caught:
        restored(party, 5).reveal(wire.encode(wire.NonceCommitments(wire.WIRE_VERSION, COHORTS.context, listed)))
    assert caught.value.sender == "server"


def test_whoever_withholds_is_left_out_of_the_next_charter_of_cohorts() -> None:
    party = Party(COHORTS)
    party.commit()
    for user in range(11):
        party.server.receive(user, party.users[user].reveal(party.waiting[user]))
    with pytest.raises(WithheldError) as caught:
        party.server.close()
    charter = COHORTS.without(caught.value.users, b"second")
    assert isinstance(charter.plan, CohortPlan)
    assert [len(one.users) for one in charter.plan.plans] == [4, 4, 3]
    make_user(3, charter, after=COHORTS)
    few = COHORTS.without([0, 1, 2, 6, 7, 8, 9, 10], b"third")
    assert isinstance(few.plan, Plan), "one cohort is a plan"
    assert few.plan.users == (3, 4, 5, 11)


def test_a_charter_of_cohorts_is_checked_like_a_plan() -> None:
    level = COHORTS.plan.levels[0]
    make_user(2, COHORTS, level=level)
    with pytest.raises(FaultyServerError, match="another level"):
        make_user(9, COHORTS, level=level)
    with pytest.raises(PlanError, match="this client's policy"):
        make_user(2, COHORTS, policy=Policy(min_survivors=5))
    alone = CohortPlan.build([8], [4], 20, cohort_size=8, value_range=1.0, subgroup_size=4)
    with pytest.raises(PlanError, match="one cohort is a plan"):
        Charter(epoch=b"x", plan=alone)


@pytest.mark.parametrize(("charter", "fraction", "most"), [(CHARTER, 0.5, 24), (COHORTS, 0.25, 48)])
def test_a_plan_or_all_cohorts_have_the_fraction_of_the_directory_asked_for(
    charter: Charter, fraction: float, most: int
) -> None:
    policy = replace(Policy.any_plan(), min_users=fraction)
    known = DIRECTORY | dict.fromkeys(range(12, most), DIRECTORY[11])
    make_user(0, charter, policy=policy, directory=known)
    with pytest.raises(PlanError) as caught:
        make_user(0, charter, policy=policy, directory=known | {most: DIRECTORY[11]})
    assert caught.value.field == "users"


def test_a_user_with_the_default_policy_enrols_in_three_cohorts_and_takes_part_in_its_own() -> None:
    plan = CohortPlan.build([36], [4], 30, cohort_size=12, value_range=1.0, subgroup_size=6)
    charter = Charter(epoch=b"three", plan=plan)
    identities = {user: Identity.generate() for user in plan.users}
    directory = {user: one.public for user, one in identities.items()}
    server = Enrolment(charter, directory=directory)
    users = {user: Enrolling(charter, user, identity=identities[user], directory=directory) for user in plan.users}
    for user, one in users.items():
        server.receive(user, one.commit())
    shown = server.close()
    for user, one in users.items():
        server.receive(user, one.reveal(shown[user]))
    shown = server.close()
    own = users[7].finish(shown[7])
    assert len(own.users) == 12
    options: dict[str, Any] = {"identity": identities[7], "directory": directory}
    this_round = RoundId(session=b"of a cohort", number=0)
    assert Client(own, 7, this_round, policy=Policy().for_enrolled(own), **options).answer("advertise", b"")
    with pytest.raises(PlanError, match="12 users, this client's policy asks for at least 18"):
        Client(own, 7, this_round, **options)


def test_a_server_cannot_put_a_user_into_a_cohort_of_few() -> None:
    """Or else it would name the whole directory, in cohorts of four, to whoever takes half of it at least."""
    plan = CohortPlan.build([36], [4], 30, cohort_size=4, value_range=1.0, subgroup_size=4)
    identities = {user: Identity.generate() for user in plan.users}
    directory = {user: one.public for user, one in identities.items()}
    with pytest.raises(PlanError, match="4 users of a cohort, this client's policy asks for at least 12"):
        Enrolling(Charter(epoch=b"nine", plan=plan), 0, identity=identities[0], directory=directory)


def test_users_whom_nobody_knows_are_refused_before_their_cohorts_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server could name millions of them, and each cohort takes its time."""
    monkeypatch.setattr(Policy, "check", lambda *_, **__: pytest.fail("a plan of strangers was looked at"))
    with pytest.raises(FaultyServerError, match="names 3, whom this user's directory does not know"):
        make_user(0, COHORTS, directory={user: key for user, key in DIRECTORY.items() if user != 3})


@pytest.mark.parametrize("charter", [CHARTER, COHORTS])
def test_the_range_is_left_to_the_client_of_every_round(charter: Charter) -> None:
    party, narrow = Party(charter), replace(Policy.any_plan(), max_half_width=0.5)
    party.users[0] = make_user(0, charter, policy=narrow)
    party.commit()
    party.reveal()
    plan = party.users[0].finish(party.waiting[0])
    with pytest.raises(PlanError) as caught:
        narrow.check(plan)
    assert caught.value.field == "value_range"


def two_cohorts(colluders: tuple[int, int]) -> Charter:
    split_up = split(tuple(range(12)), (12,), 6, None)
    options: dict[str, Any] = {"value_range": 1.0, "design": "multigroup", "subgroup_size": 3}
    plans = [
        Plan.build(own, [16], 40, users=users, colluders=count, **options)
        for (users, own), count in zip(split_up, colluders, strict=True)
    ]
    plan = CohortPlan(users=tuple(range(12)), cohort_size=6, assignment_seed=None, plans=tuple(plans))
    return Charter(epoch=b"cohorts", plan=plan)


def test_colluders_of_all_cohorts_may_be_in_any() -> None:
    """A server that names many small cohorts gets the same users past no bound that holds for one plan of them."""
    policy = Policy(min_users=2, max_surrounded=0.1)
    make_user(0, two_cohorts((1, 1)), policy=policy)
    with pytest.raises(PlanError, match=r"if 4 in its class of 12 users collude, 2 .* with probability 0\.11"):
        make_user(0, two_cohorts((2, 2)), policy=policy)
    make_user(0, two_cohorts((2, 2)), policy=replace(policy, max_surrounded=0.11))


@pytest.mark.parametrize(
    ("colluders", "policy", "words"),
    [  # left open, as the cohorts differ
        ((2, 3), Policy(min_users=2, min_colluders=2, max_surrounded=1.0), "1 colluders tolerated"),
        ((0, 1), Policy(min_users=2, min_colluders=0, max_surrounded=0.01), "if 2 in its class of 12 users collude"),
    ],
)
def test_the_cohort_that_was_drawn_is_checked_too(colluders: tuple[int, int], policy: Policy, words: str) -> None:
    party = Party(two_cohorts(colluders))
    party.users[0] = make_user(0, party.server.charter, policy=policy)
    party.commit()
    party.reveal()
    with pytest.raises(PlanError, match=words):
        party.users[0].finish(party.waiting[0])
    with pytest.raises(FaultyServerError, match="nothing is next"):
        party.users[0].finish(party.waiting[0])


def test_messages_of_cohorts_have_limits() -> None:
    party = revealed()
    for kind, size in ((wire.CohortCommitments, 12 * 34), (wire.CohortReveals, 12 * 34 + 4 * 66)):
        assert size < wire.size_limit(COHORTS.plan, kind) < size + 100
        with pytest.raises(WireError, match="bytes, at most"):
            wire.decode(kind, bytes(wire.size_limit(COHORTS.plan, kind) + 1), plan=COHORTS.plan)
    assert len(party.waiting[0]) <= wire.size_limit(COHORTS.plan, wire.CohortReveals)
    one = COHORTS.plan.plans[0] if isinstance(COHORTS.plan, CohortPlan) else COHORTS.plan
    assert wire.size_limit(COHORTS.plan, wire.NonceReveal) == wire.size_limit(one, wire.NonceReveal)
