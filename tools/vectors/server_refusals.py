"""Vectors of what a server must refuse in a round, each a change to one of the whole rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from material import document, hashed, identity, stream
from msgspec.structs import replace
from primitives import LOW_ORDER
from whole_rounds import play

from heterosag.crypto import hashing
from heterosag.protocol import messages as wire

Document = dict[str, Any]

_SENT: dict[str, type[wire.Message]] = {
    "advertise": wire.Advertisement,
    "share": wire.Shares,
    "mask": wire.MaskedVector,
    "agree": wire.Agreement,
    "unmask": wire.Released,
}
_LOW = bytes.fromhex(LOW_ORDER["order 8"])


def by_server() -> Document:
    """refusals_server.json."""
    must_fail = [*_bad_keys(), *_bad_members(), *_bad_vectors(), *_bad_signatures(), *_bad_releases(), *_silence()]
    about = (
        "One of the whole rounds with some messages changed (or, null, not sent), and the error the server raises. "
        "It comes on receiving the last change, on closing the phase named, or on combining the blocks by their mean."
    )
    return document(about, [], must_fail)


def sent(name: str, phase: str, user: int) -> Any:
    """What a user sent in a phase of a whole round, decoded."""
    return wire.decode(_SENT[phase], play(name).sent[phase][user], plan=play(name).setting.plan)


def fails(
    name: str,
    round_name: str,
    at: str,
    phase: str,
    error: str,
    changes: Sequence[tuple[str, int, wire.Message | bytes | None]],
) -> Document:
    """A whole round with some messages changed, and where the server refuses it."""
    written = []
    for changed_phase, user, message in changes:
        data = wire.encode(message) if isinstance(message, wire.Message) else message
        written.append({"phase": changed_phase, "user": user, "bytes": None if data is None else data.hex()})
    return {"name": name, "round": round_name, "at": at, "phase": phase, "error": error, "changes": written}


def received(
    name: str, round_name: str, phase: str, user: int, message: Any, error: str = "FaultyUserError"
) -> Document:
    """One message that the server refuses when it comes."""
    return fails(name, round_name, "receive", phase, error, [(phase, user, message)])


def _bad_keys() -> list[Document]:
    message = sent("plain", "advertise", 2)
    mine, other = message.advertised, sent("plain", "advertise", 0).advertised
    changes: dict[str, Document] = {
        "a low-order seal key": {"seal_key": _LOW},
        "a low-order mask key": {"mask_key": _LOW},
        "another user's key": {"mask_key": other.mask_key},
        "one key for both": {"mask_key": mine.seal_key},
        "in another name": {"user": 3},
        "a signature where there are no identities": {"signature": stream(64, "stamp")},
    }
    return [
        *(
            received(name, "plain", "advertise", 2, replace(message, advertised=replace(mine, **change)))
            for name, change in changes.items()
        ),
        received("of another round", "plain", "advertise", 2, replace(message, context=hashed("another context"))),
        received("cut", "plain", "advertise", 2, play("plain").sent["advertise"][2][:-1], "WireError"),
        received("a later phase's message", "plain", "advertise", 2, play("plain").sent["mask"][2], "WireError"),
    ]


def _bad_members() -> list[Document]:
    message = sent("plain", "share", 2)
    sealed, commitments = message.sealed, message.commitments
    few, many = replace(message, sealed=sealed[80:]), replace(message, sealed=sealed + sealed[:80])
    fewer = replace(message, sealed=sealed[80:], commitments=commitments[32:])
    return [
        received("a sealed pair too few", "plain", "share", 2, few),
        received("a sealed pair too many", "plain", "share", 2, many),
        received("a holder left out", "plain", "share", 2, fewer),
        received("commitments cut", "plain", "share", 2, replace(message, commitments=commitments[:-1])),
        received("shares by one who did not advertise", "plain", "share", 1, replace(message, user=1)),
        received("a vector by one who did not share", "plain", "mask", 4, replace(sent("plain", "mask", 3), user=4)),
    ]


def _bad_vectors() -> list[Document]:
    message = sent("plain", "mask", 2)
    vector = bytes(message.vector)
    trailing = vector[: 2 + 16 + 1] + bytes([vector[19] | 0x80]) + vector[20:]
    second = replace(message, vector=memoryview(vector[:-1] + bytes([vector[-1] ^ 1])))
    padded = replace(message, vector=memoryview(trailing))
    twice = [("mask", 2, message), ("mask", 2, second)]
    lie = replace(message, vector=memoryview(vector[:2] + bytes([vector[2] ^ 1]) + vector[3:]))
    return [
        received("a byte too few", "plain", "mask", 2, replace(message, vector=memoryview(vector[:-1])), "WireError"),
        received("nonzero trailing bits", "plain", "mask", 2, padded, "WireError"),
        received("complaints out of order", "plain", "mask", 2, replace(message, complaints=[5, 3]), "WireError"),
        received("a complaint about itself", "plain", "mask", 2, replace(message, complaints=[2])),
        received("a complaint about one who did not share", "plain", "mask", 2, replace(message, complaints=[4])),
        fails("two different vectors", "plain", "receive", "mask", "FaultyUserError", twice),
        fails("a false constant lane", "plain", "combine", "unmask", "FaultyBlockError", [("mask", 2, lie)]),
    ]


def _bad_signatures() -> list[Document]:
    keys, vector, vote = (sent("signed", phase, 3) for phase in ("advertise", "mask", "agree"))
    fewer = identity("signed", 3).sign("survivors", vote.context, hashing.index_bytes(0, 1, 2, 3, 5))
    unsigned = replace(keys.advertised, signature=b"")
    other = sent("signed", "mask", 0).signature
    return [
        received("keys without a signature", "signed", "advertise", 3, replace(keys, advertised=unsigned)),
        received("a vector without a signature", "signed", "mask", 3, replace(vector, signature=b"")),
        received("a vector signed by another user", "signed", "mask", 3, replace(vector, signature=other)),
        received("a signature on another survivor set", "signed", "agree", 3, replace(vote, signature=fewer)),
        received("agreement by one left out", "signed", "agree", 7, replace(vote, user=7)),
    ]


def _bad_releases() -> list[Document]:
    message, dealt = sent("plain", "unmask", 2), sent("plain", "share", 3)
    shares, place = message.shares, 32 * [0, 2, 3, 5, 6, 7, 8].index(3)
    false = shares[:place] + bytes(32) + shares[place + 32 :]
    no_element = shares[:place] + b"\xff" * 32 + shares[place + 32 :]
    missing, cut, more = shares[:place] + shares[place + 32 :], shares[:-1], shares + bytes(32)
    secret = replace(dealt, secret_commitment=hashed("wrong commitment")[:16])

    def release(name: str, shares: Any) -> Document:
        changed = replace(message, shares=shares)
        return fails(name, "plain", "combine", "unmask", "FaultyBlockError", [("unmask", 2, changed)])

    return [
        received("a share too few", "plain", "unmask", 2, replace(message, shares=missing)),
        received("a share too many", "plain", "unmask", 2, replace(message, shares=more)),
        received("a share cut", "plain", "unmask", 2, replace(message, shares=cut)),
        release("a share that does not match its commitment", false),
        release("a share that is no field element", no_element),
        fails(
            "a secret that is not the one committed",
            "plain",
            "combine",
            "unmask",
            "FaultyBlockError",
            [("share", 3, secret)],
        ),
    ]


def _silence() -> list[Document]:
    def silent(name: str, round_name: str, phase: str, *users: int) -> Document:
        return fails(name, round_name, "close", phase, "TooFewSurvivorsError", [(phase, user, None) for user in users])

    return [
        silent("too few advertise", "plain", "advertise", 0, 2, 3, 4, 5),
        silent("a subgroup too few share", "plain", "share", 5),
        silent("too few vectors", "plain", "mask", 2, 3),
        silent("too few agree", "signed", "agree", 6),
        silent("too few release", "signed", "unmask", 6),
    ]
