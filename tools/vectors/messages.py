"""Vectors of the wire: every kind of message as fields and bytes, and bytes that no honest sender makes."""

from __future__ import annotations

from typing import Any

import msgspec
from material import document, hashed, stream

from heterosag.plan import Plan
from heterosag.protocol import messages as wire

Document = dict[str, Any]

ARGUMENTS: Document = {
    "classes": [20],
    "levels": [16],
    "dimension": 500,
    "value_range": [-1.0, 1.0],
    "design": "secagg",
    "subgroup_size": 20,
}
KINDS = tuple(wire._DECODERS)

_CONTEXT = hashed("message context")


def fields(value: Any) -> Any:
    """A message, or a part of one, as JSON: bytes in hexadecimal."""
    if isinstance(value, (bytes, memoryview)):
        return bytes(value).hex()
    if isinstance(value, (list, tuple)):
        return [fields(part) for part in value]
    if isinstance(value, msgspec.Struct):
        return {name: fields(getattr(value, name)) for name in value.__struct_fields__}
    return value


def _advertised(user: int, *, signed: bool = False) -> wire.Advertised:
    signature = stream(64, "advertised", user) if signed else b""
    return wire.Advertised(user, hashed(user, "seal"), hashed(user, "mask"), signature)


def _dealt(*holders: int) -> tuple[bytes, bytes]:
    """Commitments and sealed pairs, a row a holder."""
    pairs = (stream(32, "commitments", holder) for holder in holders)
    return b"".join(pairs), b"".join(stream(80, "sealed pair", holder) for holder in holders)


def _messages() -> dict[str, wire.Message]:
    head = wire.WIRE_VERSION, _CONTEXT
    digests = [hashed("digest", number) for number in range(3)]
    signature = stream(64, "signature")
    short = memoryview(stream(19, "vector"))
    return {
        "advertisement, unsigned": wire.Advertisement(*head, _advertised(0)),
        "advertisement, signed": wire.Advertisement(*head, _advertised(128, signed=True)),
        "roster of two": wire.Roster(*head, [_advertised(0), _advertised(5)]),
        "roster, signed": wire.Roster(*head, [_advertised(19, signed=True)]),
        "shares for two holders": wire.Shares(*head, 3, short[:16].tobytes(), _dealt(3, 0, 19)[0], _dealt(0, 19)[1]),
        "shares for nobody": wire.Shares(*head, 2**32 - 1, short[:16].tobytes(), _dealt(3)[0], b""),
        "inbox": wire.Inbox(*head, [0, 3, 7], *_dealt(0, 3)),
        "inbox of sixteen sharers, without shares": wire.Inbox(*head, list(range(16)), b"", b""),
        "masked vector": wire.MaskedVector(*head, 4, b"", [], short),
        "masked vector, signed, with complaints": wire.MaskedVector(*head, 4, signature, [1, 19], short),
        "masked vector of 256 bytes": wire.MaskedVector(*head, 4, b"", [], memoryview(stream(256, "long vector"))),
        "survivor set": wire.SurvivorSet(*head, [2, 300], [signature, stream(64, "another signature")]),
        "survivor set of fifteen": wire.SurvivorSet(*head, list(range(15)), []),
        "agreement": wire.Agreement(*head, 65536, signature),
        "unmask request": wire.UnmaskRequest(*head, [0, 1, 2], []),
        "unmask request, signed": wire.UnmaskRequest(*head, [0, 1, 2], [(0, signature), (2, signature)]),
        "released": wire.Released(*head, 9, hashed("a share") + hashed("another share")),
        "nonce commitment": wire.NonceCommitment(*head, 1, digests[0], signature),
        "nonce commitments": wire.NonceCommitments(*head, [(digests[0], signature), (digests[1], signature)]),
        "nonce reveal": wire.NonceReveal(*head, 1, digests[2]),
        "nonce reveals": wire.NonceReveals(*head, digests),
        "commitments of cohorts": wire.CohortCommitments(*head, digests),
        "reveals of cohorts": wire.CohortReveals(*head, digests, [signature, stream(64, "another signature")]),
    }


def encoded() -> Document:
    """messages.json."""
    plan = Plan.build(**ARGUMENTS)
    found = _messages()
    cases: list[Document] = [
        {
            "name": name,
            "kind": type(message).__name__,
            "fields": fields(message),
            "bytes": wire.encode(message).hex(),
            "size_limit": wire.size_limit(plan, type(message)),
        }
        for name, message in found.items()
    ]
    must_fail: list[Document] = []
    for kind in KINDS:
        message = next(one for one in found.values() if type(one) is kind)
        must_fail += _bad_in_every_kind(kind, wire.encode(message))
    must_fail += _bad_in_one_kind(found)
    must_fail += [
        _bad(kind, "longer than the plan allows", bytes(wire.size_limit(plan, kind) + 1))
        for kind in (wire.Advertisement, wire.Agreement)
    ]
    about = (
        "Every kind of message: its fields, and its one encoding, under one plan. What is cut, extended, of another "
        "version or kind, or not encoded at its shortest must be refused."
    )
    return {**document(about, cases, must_fail), "plan": plan.encode().hex()}


def _bad(kind: type[wire.Message], name: str, data: bytes) -> Document:
    return {"name": name, "kind": kind.__name__, "bytes": data.hex(), "error": "WireError"}


def _bad_in_every_kind(kind: type[wire.Message], good: bytes) -> list[Document]:
    """Every message begins with its array's header, its kind, the version, and a context of 32 bytes."""
    tag = good[1]
    count = good[0] & 0x0F
    other = good[:1] + bytes([tag % len(KINDS) + 1]) + good[2:]
    values = msgspec.msgpack.decode(good)
    found = {
        "no bytes": b"",
        "cut": good[:-1],
        "extended": good + b"\0",
        "wire version 0": good[:2] + b"\x00" + good[3:],
        "wire version 1": good[:2] + b"\x01" + good[3:],
        "another kind": other,
        "no kind": bytes([good[0] - 1]) + good[2:],
        "a field too many": bytes([good[0] + 1]) + good[1:] + b"\xc0",
        "a field too few": msgspec.msgpack.encode(values[:-1]),
        "array header not at its shortest": b"\xdc\x00" + bytes([count]) + good[1:],
        "version not at its shortest": good[:2] + b"\xcc\x02" + good[3:],
        "context behind a longer header": good[:3] + b"\xc5\x00\x20" + good[5:],
        "context of 31 bytes": good[:3] + b"\xc4\x1f" + good[6:],
        "context as text": good[:3] + b"\xd9\x20" + b"c" * 32 + good[37:],
    }
    return [_bad(kind, name, data) for name, data in found.items()]


def _bad_in_one_kind(found: dict[str, wire.Message]) -> list[Document]:
    """Fields of another type, length or encoding."""

    def values(name: str) -> list[Any]:
        decoded: list[Any] = msgspec.msgpack.decode(wire.encode(found[name]))
        return decoded

    def changed(name: str, value: Any, *path: int) -> bytes:
        whole = values(name)
        at = whole
        for step in path[:-1]:
            at = at[step]
        at[path[-1]] = value
        return msgspec.msgpack.encode(whole)

    vector = wire.encode(found["masked vector"])
    place = 37  # where the user stands in a message that begins with it
    released = wire.encode(found["released"])
    return [
        _bad(wire.Advertisement, "seal key of 31 bytes", changed("advertisement, unsigned", bytes(31), 3, 1)),
        _bad(wire.Advertisement, "mask key of 33 bytes", changed("advertisement, unsigned", bytes(33), 3, 2)),
        _bad(wire.Advertisement, "signature of 65 bytes", changed("advertisement, unsigned", bytes(65), 3, 3)),
        _bad(wire.Advertisement, "user 2^32", changed("advertisement, unsigned", 2**32, 3, 0)),
        _bad(wire.Advertisement, "user below zero", changed("advertisement, unsigned", -1, 3, 0)),
        _bad(wire.Advertisement, "user as text", changed("advertisement, unsigned", "0", 3, 0)),
        _bad(wire.Advertisement, "user as a float", changed("advertisement, unsigned", 0.0, 3, 0)),
        _bad(wire.Advertisement, "nothing advertised", changed("advertisement, unsigned", None, 3)),
        _bad(
            wire.Roster,
            "an entry without a signature",
            changed("roster of two", values("roster of two")[3][0][:3], 3, 0),
        ),
        _bad(wire.Shares, "commitment of 15 bytes", changed("shares for two holders", bytes(15), 4)),
        _bad(wire.Shares, "commitment of 32 bytes", changed("shares for two holders", bytes(32), 4)),
        _bad(wire.Shares, "sealed pairs as a list", changed("shares for two holders", [bytes(80)] * 2, 6)),
        _bad(wire.Inbox, "sharers as bytes", changed("inbox", b"\0\3\7", 3)),
        _bad(wire.MaskedVector, "user not at its shortest", vector[:place] + b"\xcc" + vector[place:]),
        _bad(wire.MaskedVector, "vector behind a longer header", _long_header(vector, 19)),
        _bad(wire.MaskedVector, "vector as numbers", changed("masked vector", [0] * 19, 6)),
        _bad(wire.MaskedVector, "vector shorter than its header says", vector[:-2]),
        _bad(wire.SurvivorSet, "signature of 63 bytes", changed("survivor set", bytes(63), 4, 0)),
        _bad(wire.SurvivorSet, "an empty signature", changed("survivor set", b"", 4, 0)),
        _bad(wire.Agreement, "an empty signature", changed("agreement", b"", 4)),
        _bad(wire.UnmaskRequest, "a signer without a signature", changed("unmask request, signed", [0], 4, 0)),
        _bad(wire.UnmaskRequest, "survivors as a map", changed("unmask request", {0: 1}, 3)),
        _bad(wire.Released, "shares as a list", changed("released", [bytes(32)] * 2, 4)),
        _bad(wire.NonceCommitment, "an empty signature", changed("nonce commitment", b"", 5)),
        _bad(wire.NonceCommitments, "a commitment alone", changed("nonce commitments", [hashed("alone")], 3, 0)),
        _bad(wire.NonceReveals, "a nonce of 33 bytes", changed("nonce reveals", bytes(33), 3, 0)),
        _bad(wire.Released, "shares behind a longer header", _long_header(released, 64)),
    ]


def _long_header(message: bytes, size: int) -> bytes:
    return message[: -size - 2] + b"\xc5" + size.to_bytes(2, "big") + message[-size:]
