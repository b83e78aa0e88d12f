"""Every message, its codec, its size limits.

A message is one MessagePack array: its kind, the wire version, the context it belongs to, then its fields. Decoding is
strict: exact types and lengths, no trailing bytes, one encoding only (what decodes must encode to the same bytes), and
no message longer than its plan allows. Whatever is wrong is a `WireError` with the sender.

| kind | from | context | says |
|---|---|---|---|
| Advertisement | user | c0 | both public keys, signed where identities are in use |
| Roster | server | c0 | everybody's advertisement |
| Shares | user | c1 | for each holder a sealed pair of shares, and commitments to them |
| Inbox | server | c1 | who shared, and what they sealed for and committed to towards this user |
| MaskedVector | user | c2 | the masked, packed vector, signed as masked under c2; which dealers' shares were bad |
| SurvivorSet | server | c2 | who survived, and its surviving dealers' signatures that they masked under c2 |
| Agreement | user | c2 | a signature on the survivor set |
| UnmaskRequest | server | c2 | the survivor set, with a quorum of signatures on it |
| Released | user | c2 | a share of one secret of every user whose shares the sender holds |
| NonceCommitment | user | charter | a signed commitment to a nonce, in an enrolment |
| NonceCommitments | server | charter | everybody's signed commitment, in roster order |
| NonceReveal | user | commitments | the nonce |
| NonceReveals | server | commitments | everybody's nonce, in roster order |
| CohortCommitments | server | charter | everybody's commitment, of all cohorts, in roster order |
| CohortReveals | server | commitments | everybody's nonce, and the signatures of one cohort's commitments |
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from heterosag.crypto.field import ELEMENT_SIZE
from heterosag.crypto.hashing import COMMITMENT_SIZE, DIGEST_SIZE
from heterosag.crypto.identity import SIGNATURE_SIZE
from heterosag.crypto.keys import PUBLIC_KEY_SIZE
from heterosag.crypto.seal import SEALED_SIZE
from heterosag.errors import UsageError, WireError
from heterosag.plan import CohortPlan, Plan

__all__ = [
    "PAIR_SIZE",
    "WIRE_VERSION",
    "Advertised",
    "Advertisement",
    "Agreement",
    "CohortCommitments",
    "CohortReveals",
    "Inbox",
    "MaskedVector",
    "Message",
    "NonceCommitment",
    "NonceCommitments",
    "NonceReveal",
    "NonceReveals",
    "Released",
    "Roster",
    "Shares",
    "SurvivorSet",
    "UnmaskRequest",
    "cut_rows",
    "decode",
    "encode",
    "size_limit",
    "vector_size",
]

WIRE_VERSION = 2

PAIR_SIZE = 2 * COMMITMENT_SIZE
"""Bytes of the commitments to a holder's pair of shares, the mask share's first."""

_Index = Annotated[int, Meta(ge=0, lt=2**32)]
_Digest = Annotated[bytes, Meta(min_length=DIGEST_SIZE, max_length=DIGEST_SIZE)]
_PublicKey = Annotated[bytes, Meta(min_length=PUBLIC_KEY_SIZE, max_length=PUBLIC_KEY_SIZE)]
_Commitment = Annotated[bytes, Meta(min_length=COMMITMENT_SIZE, max_length=COMMITMENT_SIZE)]
_Signature = Annotated[bytes, Meta(min_length=SIGNATURE_SIZE, max_length=SIGNATURE_SIZE)]
_MaybeSignature = Annotated[bytes, Meta(max_length=SIGNATURE_SIZE)]
_Version = Annotated[int, Meta(ge=WIRE_VERSION, le=WIRE_VERSION)]


class Message(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What every message begins with."""

    version: _Version
    context: _Digest


class Advertised(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One user's public keys, and its signature over them and c0 (empty without identities)."""

    user: _Index
    seal_key: _PublicKey
    mask_key: _PublicKey
    signature: _MaybeSignature


class Advertisement(Message, frozen=True, tag=1):
    """Phase advertise, user to server."""

    advertised: Advertised


class Roster(Message, frozen=True, tag=2):
    """Phase share, server to user: everybody who advertised, in roster order."""

    advertised: list[Advertised]


class Shares(Message, frozen=True, tag=3):
    """Phase share, user to server, everything in roster order: nobody is named twice.

    `sealed` has a row of SEALED_SIZE for each holder in the roster. `commitments` has two of COMMITMENT_SIZE, to the
    mask share and to the self share, first for the dealer's own and then for each holder's. `secret_commitment` is to
    the whole sigma_self.
    """

    user: _Index
    secret_commitment: _Commitment
    commitments: bytes
    sealed: bytes


class Inbox(Message, frozen=True, tag=4):
    """Phase mask, server to user: everybody who shared, and from each of its dealers among them a row of both."""

    sharers: list[_Index]
    commitments: bytes
    sealed: bytes


class MaskedVector(Message, frozen=True, tag=5):
    """Phase mask, user to server. `complaints` names dealers whose share was missing or did not match.

    With identities the user signs that it masked under this context, so that nobody can be taken for a survivor of a
    list of sharers that it was never shown.
    """

    user: _Index
    signature: _MaybeSignature
    complaints: list[_Index]
    vector: memoryview


class SurvivorSet(Message, frozen=True, tag=6):
    """Phase agree, server to user: who survived, and proof that those whose shares the user holds masked under c2.

    `signatures` has one for each of them, in roster order; the user's own is not among them.
    """

    survivors: list[_Index]
    signatures: list[_Signature]


class Agreement(Message, frozen=True, tag=7):
    """Phase agree, user to server: a signature over c2 and the survivor set."""

    user: _Index
    signature: _Signature


class UnmaskRequest(Message, frozen=True, tag=8):
    """Phase unmask, server to user: the survivor set only; who dropped the client works out itself.

    `signatures` are those of exactly `agree_quorum` survivors, whichever the server chose; none without identities.
    """

    survivors: list[_Index]
    signatures: list[tuple[_Index, _Signature]]


class Released(Message, frozen=True, tag=9):
    """Phase unmask, user to server: for each dealer one share, of sigma_self if it survived, else of sigma_mask.

    `shares` has 32 bytes for each sharer whose shares the user holds and did not complain about, itself among them.
    """

    user: _Index
    shares: bytes


class NonceCommitment(Message, frozen=True, tag=10):
    """Enrolment, user to server: a commitment to its nonce, signed for the charter."""

    user: _Index
    commitment: _Digest
    signature: _Signature


class NonceCommitments(Message, frozen=True, tag=11):
    """Enrolment, server to user: the commitment and signature of every user of the charter."""

    commitments: list[tuple[_Digest, _Signature]]


class NonceReveal(Message, frozen=True, tag=12):
    """Enrolment, user to server: the nonce that it committed to."""

    user: _Index
    nonce: _Digest


class NonceReveals(Message, frozen=True, tag=13):
    """Enrolment, server to user: the nonce of every user of the charter."""

    nonces: list[_Digest]


class CohortCommitments(Message, frozen=True, tag=14):
    """Enrolment of cohorts, server to user: the commitment of every user of all cohorts."""

    commitments: list[_Digest]


class CohortReveals(Message, frozen=True, tag=15):
    """Enrolment of cohorts, server to user: every user's nonce, and the signatures of the user's own cohort."""

    nonces: list[_Digest]
    signatures: list[_Signature]


M = TypeVar("M", bound=Message)

_ENCODER = msgspec.msgpack.Encoder()
_DECODERS: dict[type[Message], msgspec.msgpack.Decoder[Any]] = {
    kind: msgspec.msgpack.Decoder(kind)
    for kind in (
        Advertisement,
        Roster,
        Shares,
        Inbox,
        MaskedVector,
        SurvivorSet,
        Agreement,
        UnmaskRequest,
        Released,
        NonceCommitment,
        NonceCommitments,
        NonceReveal,
        NonceReveals,
        CohortCommitments,
        CohortReveals,
    )
}


def encode(message: Message) -> bytes:
    """The one encoding of a message."""
    return _ENCODER.encode(message)


def decode(kind: type[M], data: bytes, *, plan: Plan | CohortPlan, sender: int | str | None = None) -> M:
    """The message of the expected kind, or a `WireError` that names the sender."""
    limit = size_limit(plan, kind)
    if len(data) > limit:
        raise WireError(f"{kind.__name__} of {len(data)} bytes, at most {limit} are allowed", sender=sender)
    try:
        message: M = _DECODERS[kind].decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise WireError(f"not a {kind.__name__}: {error}", sender=sender) from None
    if not _is_canonical(message, data):
        raise WireError(f"not the canonical encoding of a {kind.__name__}", sender=sender)
    return message


def _is_canonical(message: Message, data: bytes) -> bool:
    """Whether a decoded message encodes to the same bytes; a vector, a view into them, is not copied for that."""
    if not isinstance(message, MaskedVector):
        return _ENCODER.encode(message) == data
    size = len(message.vector)
    head = _ENCODER.encode(replace(message, vector=memoryview(b"")))[: -len(_bin_header(0))] + _bin_header(size)
    return len(head) + size == len(data) and data.startswith(head)


def _bin_header(size: int) -> bytes:
    """How MessagePack announces so many bytes, at its shortest."""
    for code, width in ((b"\xc4", 1), (b"\xc5", 2), (b"\xc6", 4)):
        if size < 1 << (8 * width):
            return code + size.to_bytes(width, "big")
    raise UsageError(f"a vector of {size} bytes is too long for one message")


def cut_rows(data: bytes, size: int) -> list[bytes]:
    """Rows of one size that a message has back to back."""
    return [data[start : start + size] for start in range(0, len(data), size)]


def vector_size(plan: Plan, subgroup: int) -> int:
    """Bytes of a packed vector of this subgroup: every segment's elements, then its auxiliary lanes."""
    return plan.vector_sizes()[subgroup]


def size_limit(plan: Plan | CohortPlan, kind: type[Message]) -> int:
    """The most bytes a message of this kind may have under a plan, or in an enrolment of cohorts: its fields at their
    largest."""
    if isinstance(plan, CohortPlan):
        largest = max(plan.plans, key=lambda one: len(one.users))
        more = len(plan.users) - len(largest.users) if kind in (CohortCommitments, CohortReveals) else 0
        return size_limit(largest, kind) + more * (DIGEST_SIZE + 2)
    index, head, users, neighbours = 5, 64, len(plan.users), plan.sharing.neighbours
    advertised = 1 + index + 2 * (PUBLIC_KEY_SIZE + 2) + SIGNATURE_SIZE + 2
    sealed = SEALED_SIZE + PAIR_SIZE
    signed = 1 + index + SIGNATURE_SIZE + 2
    if kind is MaskedVector:
        return head + 2 * index + SIGNATURE_SIZE + 2 + users * index + max(plan.vector_sizes()) + 5
    return (
        head
        + {
            Advertisement: advertised,
            Roster: index + users * advertised,
            Shares: 3 * index + 3 * COMMITMENT_SIZE + 2 + neighbours * sealed,
            Inbox: 3 * index + users * index + neighbours * sealed,
            SurvivorSet: 2 * index + users * index + neighbours * (SIGNATURE_SIZE + 2),
            Agreement: signed,
            UnmaskRequest: 2 * index + users * index + plan.agree_quorum * signed,
            Released: 2 * index + (neighbours + 1) * ELEMENT_SIZE,
            NonceCommitment: index + (DIGEST_SIZE + 2) + (SIGNATURE_SIZE + 2),
            NonceCommitments: index + users * (1 + (DIGEST_SIZE + 2) + (SIGNATURE_SIZE + 2)),
            NonceReveal: index + DIGEST_SIZE + 2,
            NonceReveals: index + users * (DIGEST_SIZE + 2),
            CohortCommitments: index + users * (DIGEST_SIZE + 2),
            CohortReveals: 2 * index + users * (DIGEST_SIZE + 2) + users * (SIGNATURE_SIZE + 2),
        }[kind]
    )
