"""Vectors of what a client must refuse in a round, each a change to one of the whole rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from material import document, hashed, identity, round_secrets, stream
from msgspec.structs import replace
from primitives import LOW_ORDER
from whole_rounds import Played, play

from heterosag.crypto import hashing, keys
from heterosag.crypto.seal import SEALED_SIZE, Seal
from heterosag.protocol import messages as wire

Document = dict[str, Any]

_STEPS = {"advertise": 0, "share": 1, "mask": 2, "agree": 3, "unmask": 4}
_KINDS: dict[str, type[wire.Message]] = {
    "share": wire.Roster,
    "mask": wire.Inbox,
    "agree": wire.SurvivorSet,
    "unmask": wire.UnmaskRequest,
}
_LOW = bytes.fromhex(LOW_ORDER["order 8"])


class Case:
    """One user of a played round before one step, and the ways to spoil what it is asked there."""

    def __init__(self, name: str, step: str, user: int) -> None:
        self.played: Played = play(name)
        self.plan = self.played.setting.plan
        self.name, self.step, self.user = name, step, user
        self.good = self.played.asked[step][user]
        self.message: Any = wire.decode(_KINDS[step], self.good, plan=self.plan)

    def refuses(self, name: str, *messages: bytes, error: str = "FaultyServerError", **more: Any) -> Document:
        """The client answers all messages but the last, which it refuses."""
        phases = self.played.setting.phases
        return {
            "name": name,
            "round": self.name,
            "user": self.user,
            "after": list(phases[: phases.index(self.step)]),
            "step": self.step,
            "messages": [message.hex() for message in messages],
            "error": error,
            "client_is": "dead" if error == "FaultyServerError" else _client_is(self.step),
            **more,
        }

    def changed(self, **fields: Any) -> bytes:
        """What the server asks, with fields replaced."""
        return wire.encode(replace(self.message, **fields))


def _client_is(step: str) -> str:
    return ["fresh", "advertised", "shared", "masked", "agreed"][_STEPS[step]]


def by_client() -> Document:
    """refusals_client.json."""
    must_fail = [
        *_rosters(Case("plain", "share", 0)),
        *_signed_rosters(Case("signed", "share", 0)),
        *_inboxes(Case("plain", "mask", 0)),
        *_survivor_sets(Case("signed", "agree", 0)),
        *_requests(Case("plain", "unmask", 2), Case("signed", "unmask", 0)),
        *_second_messages(),
    ]
    cases = _complaints(Case("plain", "mask", 0))
    about = (
        "Messages of a malicious or mistaken server to a client of one of the whole rounds, and the error each ends "
        "in. The cases are spoilt shares, which a client answers with a complaint that names their dealer."
    )
    return document(about, cases, must_fail)


def _rosters(case: Case) -> list[Document]:
    users = list(case.message.advertised)
    mine, other, last = users[0], users[1], users[-1]
    swapped = replace(mine, seal_key=mine.mask_key, mask_key=mine.seal_key)
    stamped = [replace(user, signature=stream(64, "stamp")) for user in users]

    def with_users(chosen: Sequence[wire.Advertised]) -> bytes:
        return case.changed(advertised=list(chosen))

    refuses = case.refuses
    unseen = replace(last, user=9)
    return [
        refuses("roster cut", case.good[:-1], error="WireError"),
        refuses("roster extended", case.good + b"\0", error="WireError"),
        refuses("roster of another round", case.changed(context=hashed("another context"))),
        refuses("roster with this user's keys swapped", with_users([swapped, *users[1:]])),
        refuses("roster with a key twice", with_users([*users[:-1], replace(last, mask_key=other.mask_key)])),
        refuses("roster with a low-order seal key", with_users([mine, replace(other, seal_key=_LOW), *users[2:]])),
        refuses("roster without this user", with_users(users[1:])),
        refuses("roster with a user twice", with_users([mine, *users])),
        refuses("roster out of order", with_users([mine, *users[:0:-1]])),
        refuses("roster with a stranger", with_users([*users, unseen])),
        refuses("roster below the thresholds", with_users(users[:4])),
        refuses("roster with too few survivors of a block", with_users([mine, *users[2:]])),
        refuses("roster without a whole subgroup, below the robustness", with_users(users[:5])),
        refuses("roster signed, where the client knows no identities", with_users(stamped)),
    ]


def _signed_rosters(case: Case) -> list[Document]:
    users = list(case.message.advertised)
    name = "signed"
    context = case.message.context
    taken = replace(users[3], mask_key=hashed("substituted"), signature=b"")
    parts = context, hashing.index_bytes(3), taken.seal_key, taken.mask_key
    by_another = replace(taken, signature=identity("an intruder").sign("advertise", *parts))
    old = hashed("an older round"), hashing.index_bytes(3), users[3].seal_key, users[3].mask_key
    replayed = replace(users[3], signature=identity(name, 3).sign("advertise", *old))
    purpose = identity(name, 3).sign("survivors", context, *parts[1:2], users[3].seal_key, users[3].mask_key)

    def with_third(user: wire.Advertised) -> bytes:
        return case.changed(advertised=[*users[:3], user, *users[4:]])

    return [
        case.refuses("keys without a signature", with_third(replace(users[3], signature=b""))),
        case.refuses("keys signed by another identity", with_third(by_another)),
        case.refuses("keys signed for another round", with_third(replayed)),
        case.refuses("keys signed for another purpose", with_third(replace(users[3], signature=purpose))),
        case.refuses("signatures of two users swapped", with_third(replace(users[3], signature=users[4].signature))),
    ]


def _inboxes(case: Case) -> list[Document]:
    sharers, sealed, commitments = list(case.message.sharers), case.message.sealed, case.message.commitments

    def only(chosen: list[int]) -> bytes:
        return only_of(case, chosen)

    return [
        case.refuses("inbox of another context", case.changed(context=hashed("another context"))),
        case.refuses("sharers without this user", case.changed(sharers=sharers[1:])),
        case.refuses("sharers with a user twice", case.changed(sharers=[sharers[0], *sharers])),
        case.refuses("sharers with a stranger", case.changed(sharers=[*sharers, 9])),
        case.refuses("sharers with a user who did not advertise", case.changed(sharers=sorted([*sharers, 1]))),
        case.refuses("sharers below the thresholds", only(sharers[:4])),
        case.refuses("sharers with too few survivors of a block", only([0, *sharers[2:]])),
        case.refuses("sharers that leave this user's block peers out", only([0, 5, 6, 7, 8])),
        case.refuses("a sealed pair too many", case.changed(sealed=sealed + sealed[:SEALED_SIZE])),
        case.refuses("a sealed pair too few", case.changed(sealed=sealed[SEALED_SIZE:])),
        case.refuses("sealed pairs cut", case.changed(sealed=sealed[:-1])),
        case.refuses("commitments too many", case.changed(commitments=commitments + commitments[: wire.PAIR_SIZE])),
        case.refuses("commitments too few", case.changed(commitments=commitments[wire.PAIR_SIZE :])),
        case.refuses("fewer sharers than sealed pairs", case.changed(sharers=[*sharers[:-1]])),
        case.refuses("an update that is not finite", case.good, error="UsageError", update="nan"),
    ]


def _rows(case: Case) -> dict[int, tuple[bytes, bytes]]:
    """What each dealer sent the user of an inbox: commitments and a sealed pair."""
    pairs = wire.cut_rows(case.message.commitments, wire.PAIR_SIZE)
    boxes = wire.cut_rows(case.message.sealed, SEALED_SIZE)
    held = case.plan.sharing.holders(case.user)  # whoever holds one's shares is one's dealer
    dealers = [user for user in case.message.sharers if user in held]
    return dict(zip(dealers, zip(pairs, boxes, strict=True), strict=True))


def _with_rows(case: Case, rows: dict[int, tuple[bytes, bytes]], **more: Any) -> bytes:
    pairs, boxes = zip(*rows.values(), strict=True)
    return case.changed(commitments=b"".join(pairs), sealed=b"".join(boxes), **more)


def only_of(case: Case, chosen: list[int]) -> bytes:
    """An inbox of these sharers, with the rows of those among them who dealt."""
    return _with_rows(case, {dealer: row for dealer, row in _rows(case).items() if dealer in chosen}, sharers=chosen)


def _complaints(case: Case) -> list[Document]:
    """Spoilt shares of dealer 2, once of 3 too: no refusal, the client masks and names the dealer."""
    rows = _rows(case)
    pair, box = rows[2]
    wrong = hashed("wrong commitment")[:16]
    spoilt: dict[str, dict[int, tuple[bytes, bytes]]] = {
        "bad tag": {2: (pair, box[:-1] + bytes([box[-1] ^ 1]))},
        "bad ciphertext": {2: (pair, bytes([box[0] ^ 1]) + box[1:])},
        "halves swapped": {2: (pair, box[32:64] + box[:32] + box[64:])},
        "reflected": {2: _rows(Case(case.name, "mask", 2))[0]},
        "for another holder": {2: _rows(Case(case.name, "mask", 3))[2]},
        "wrong commitment to the mask share": {2: (wrong + pair[16:], box)},
        "wrong commitment to the self share": {2: (pair[:16] + wrong, box)},
        "commitments swapped": {2: (pair[16:] + pair[:16], box)},
        "another share than committed": {2: (pair, _resealed(case, box))},
        "two dealers in each other's place": {2: rows[3], 3: rows[2]},
    }
    good = wire.decode(wire.MaskedVector, case.played.sent["mask"][0], plan=case.plan)
    return [
        {
            "name": name,
            "round": case.name,
            "user": case.user,
            "after": ["advertise", "share"],
            "step": "mask",
            "messages": [_with_rows(case, rows | changes).hex()],
            "answer": wire.encode(replace(good, complaints=sorted(changes))).hex(),
        }
        for name, changes in spoilt.items()
    ]


def _resealed(case: Case, box: bytes) -> bytes:
    """Dealer 2 seals another mask share for user 0 than it committed to."""
    mine, theirs = round_secrets("plain", 2), round_secrets("plain", 0)
    shared = keys.exchange_keys(mine.seal_key, keys.public_bytes(theirs.seal_key))
    seal = Seal.of(shared, case.message.context, 2, 0)
    return seal.close(1, seal.open(box)[1])


def _survivor_sets(case: Case) -> list[Document]:
    survivors, signatures = list(case.message.survivors), list(case.message.signatures)
    context = case.message.context

    dealers = [user for user in survivors if user != case.user]

    def only(chosen: list[int]) -> bytes:
        kept = dict(zip(dealers, signatures, strict=True))
        filler = stream(64, "no signature")
        others = [user for user in chosen if user != case.user]
        return case.changed(survivors=chosen, signatures=[kept.get(user, filler) for user in others])

    elsewhere = identity("signed", 3).sign("masked", hashed("another list of sharers"), hashing.index_bytes(3))
    agreed = identity("signed", 3).sign("survivors", context, hashing.index_bytes(3))
    place = dealers.index(3)

    def with_third(signature: bytes) -> bytes:
        return case.changed(signatures=[*signatures[:place], signature, *signatures[place + 1 :]])

    return [
        case.refuses("survivor set cut", case.good[:-1], error="WireError"),
        case.refuses("survivor set of another context", case.changed(context=hashed("another context"))),
        case.refuses("survivor set without this user", only(survivors[1:])),
        case.refuses("survivor set with a user twice", only([0, *survivors])),
        case.refuses("survivor set with a stranger", only([*survivors, 8])),
        case.refuses("survivor set below the thresholds", only(survivors[:4])),
        case.refuses("survivor set with too few survivors of a subgroup", only(survivors[:5])),
        case.refuses("survivor set with one that did not mask", only([*range(8)])),
        case.refuses("a signature missing", case.changed(signatures=signatures[:-1])),
        case.refuses("a signature too many", case.changed(signatures=[*signatures, signatures[0]])),
        case.refuses("one masked under another list of sharers", with_third(elsewhere)),
        case.refuses("a signature for another purpose", with_third(agreed)),
        case.refuses("a signature of another user", with_third(signatures[0])),
    ]


def _requests(plain: Case, signed: Case) -> list[Document]:
    survivors, votes = list(signed.message.survivors), list(signed.message.signatures)
    context = signed.message.context
    outsider = (7, identity("signed", 7).sign("survivors", context, hashing.index_bytes(*survivors)))
    late = (2, identity("signed", 2).sign("survivors", context, hashing.index_bytes(*survivors)))
    fewer = hashing.index_bytes(*survivors[:-1])
    other = [(user, identity("signed", user).sign("survivors", context, fewer)) for user, _ in votes]
    plain_set = list(plain.message.survivors)
    return [
        plain.refuses("request of another context", plain.changed(context=hashed("another context"))),
        plain.refuses("request that names this user as dropped", plain.changed(survivors=[0, 3, 5, 6, 7])),
        plain.refuses("request with a user twice", plain.changed(survivors=[0, *plain_set])),
        plain.refuses("request with one who did not share", plain.changed(survivors=sorted([*plain_set, 4]))),
        plain.refuses("request below the thresholds", plain.changed(survivors=[0, 2, 3, 5])),
        plain.refuses("request with too few survivors of a block", plain.changed(survivors=[2, 3, 5, 6, 7])),
        signed.refuses("another set than the one signed", signed.changed(survivors=[0, 1, 2, 3, 4, 7])),
        signed.refuses("fewer signatures than the quorum", signed.changed(signatures=votes[:-1])),
        signed.refuses("more signatures than the quorum", signed.changed(signatures=sorted([*votes, late]))),
        signed.refuses("one signature twice", signed.changed(signatures=[votes[0], *votes[:-1]])),
        signed.refuses("a signature of an outsider", signed.changed(signatures=[*votes[:-1], outsider])),
        signed.refuses("signatures on another set", signed.changed(signatures=other)),
        signed.refuses("signatures out of order", signed.changed(signatures=votes[::-1])),
    ]


def _second_messages() -> list[Document]:
    """What a client does once, and the second message that asks for something else."""
    plain, signed = play("plain"), play("signed")
    roster, inbox = Case("plain", "share", 0), Case("plain", "mask", 0)
    agree, unmask = Case("signed", "agree", 0), Case("plain", "unmask", 2)
    smaller = only_of(inbox, [0, 2, 3, 5, 6, 7])
    less = agree.changed(survivors=[0, 1, 2, 3], signatures=agree.message.signatures[:3])
    fewer = unmask.changed(survivors=[*unmask.message.survivors, 8])
    shorter = roster.changed(advertised=roster.message.advertised[:-1])
    everybody = agree.changed(survivors=list(range(8)), signatures=_masked_by_everybody(agree))
    early = signed.asked["unmask"][0].hex()
    return [
        roster.refuses("a second, different roster", roster.good, shorter),
        inbox.refuses("a second, different list of sharers", inbox.good, smaller),
        agree.refuses("a second, different survivor set", agree.good, less),
        unmask.refuses("a second, different request", unmask.good, fewer, client_is="released"),
        inbox.refuses("another list of sharers after a restart", smaller, first=[["mask", inbox.good.hex()]]),
        inbox.refuses("another update after a restart", inbox.good, first=[["mask", inbox.good.hex()]], update="zeros"),
        inbox.refuses("another update", inbox.good, inbox.good, error="UsageError", update="zeros", client_is="masked"),
        {
            **agree.refuses("a late duplicate, whose answer is forgotten", signed.asked["mask"][0], error="WireError"),
            "step": "mask",
            "after": ["advertise", "share", "mask", "agree"],
            "client_is": "agreed",
        },
        agree.refuses("another survivor set after a restart", everybody, first=[["agree", agree.good.hex()]]),
        unmask.refuses("another request after a restart", fewer, first=[["unmask", unmask.good.hex()]]),
        {
            **agree.refuses("asked to unmask before agreeing", b""),
            "step": "unmask",
            "messages": [early],
            "client_is": "masked",
        },
        {
            **roster.refuses("asked to mask before sharing", b""),
            "step": "mask",
            "messages": [plain.asked["mask"][0].hex()],
            "client_is": "advertised",
        },
    ]


def _masked_by_everybody(case: Case) -> list[bytes]:
    """Signatures as if the late vector had come in time: a set that a client would sign, had it not signed another."""
    context, others = case.message.context, [user for user in range(8) if user != case.user]
    return [identity("signed", user).sign("masked", context, hashing.index_bytes(user)) for user in others]
