"""Malicious users: each runs the real client and breaks the protocol in one way."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
from msgspec.structs import replace

from heterosag.crypto.field import ELEMENT_SIZE, PRIME
from heterosag.crypto.hashing import COMMITMENT_SIZE
from heterosag.crypto.seal import SEALED_SIZE
from heterosag.plan import Plan
from heterosag.protocol import messages as wire
from heterosag.protocol.client import Polynomials

__all__ = ["TRAITS", "lie", "lie_about_shares", "lie_about_vector"]


def lie_about_vector(trait: str, vector: np.ndarray) -> tuple[np.ndarray, bool]:
    """The vector a user masks, and whether it clips: a wild one goes far beyond the range and wraps."""
    return (vector * 40.0, False) if trait == "wild vector" else (vector, True)


def lie_about_shares(trait: str, polynomials: Polynomials, draw: random.Random) -> Polynomials:
    """What a user deals: with a wrong polynomial the shares match their commitments, but give another secret."""
    if trait == "wrong mask polynomial":
        return Polynomials(mask=[draw.randrange(PRIME), *polynomials.mask[1:]], self=polynomials.self)
    if trait == "wrong self polynomial":
        return Polynomials(mask=polynomials.mask, self=[draw.randrange(PRIME), *polynomials.self[1:]])
    return polynomials


def lie(trait: str, phase: str, reply: bytes, plan: Plan, draw: random.Random) -> list[bytes]:
    """What a user sends instead of its client's reply, one or several messages."""
    at, change = _LIES.get(trait, ("", _keep))
    if at not in (phase, "any"):
        return [reply]
    kind = _UP[phase]
    found = change(wire.decode(kind, reply, plan=plan), draw)
    return [data if isinstance(data, bytes) else wire.encode(data) for data in found]


_UP: dict[str, type[wire.Message]] = {
    "advertise": wire.Advertisement,
    "share": wire.Shares,
    "mask": wire.MaskedVector,
    "agree": wire.Agreement,
    "unmask": wire.Released,
}


def _keep(message: Any, draw: random.Random) -> list[Any]:
    return [message]


def _another_vector(message: wire.MaskedVector, draw: random.Random) -> wire.MaskedVector:
    vector = bytearray(message.vector)
    vector[draw.randrange(len(vector))] ^= 1 << draw.randrange(8)
    return replace(message, vector=memoryview(bytes(vector)))


def _garble_vector(message: wire.MaskedVector, draw: random.Random) -> list[Any]:
    return [_another_vector(message, draw)]


def _send_two_vectors(message: wire.MaskedVector, draw: random.Random) -> list[Any]:
    return [message, _another_vector(message, draw)]


def _change_rows(data: bytes, size: int, draw: random.Random) -> bytes:
    """Other bytes in about half of the rows."""
    return b"".join(draw.randbytes(size) if draw.random() < 0.5 else row for row in wire.cut_rows(data, size))


def _spoil_seals(message: wire.Shares, draw: random.Random) -> list[Any]:
    return [replace(message, sealed=_change_rows(message.sealed, SEALED_SIZE, draw))]


def _spoil_commitments(message: wire.Shares, draw: random.Random) -> list[Any]:
    own, holders = message.commitments[: wire.PAIR_SIZE], message.commitments[wire.PAIR_SIZE :]
    return [replace(message, commitments=own + _change_rows(holders, wire.PAIR_SIZE, draw))]


def _spoil_secret(message: wire.Shares, draw: random.Random) -> list[Any]:
    false = message.commitments[:COMMITMENT_SIZE] + draw.randbytes(COMMITMENT_SIZE)
    commitments = false + message.commitments[wire.PAIR_SIZE :]
    return [replace(message, secret_commitment=draw.randbytes(COMMITMENT_SIZE), commitments=commitments)]


def _spoil_release(message: wire.Released, draw: random.Random) -> list[Any]:
    return [replace(message, shares=draw.randbytes(len(message.shares)))]


def _shorten_release(message: wire.Released, draw: random.Random) -> list[Any]:
    kept = [row for row in wire.cut_rows(message.shares, ELEMENT_SIZE) if draw.random() < 0.5]
    return [replace(message, shares=b"".join(kept))]


def _complain(message: wire.MaskedVector, draw: random.Random) -> list[Any]:
    return [replace(message, complaints=[draw.randrange(4)])]


def _pretend(message: Any, draw: random.Random) -> list[Any]:
    other = draw.randrange(4)
    if isinstance(message, wire.Advertisement):
        return [replace(message, advertised=replace(message.advertised, user=other))]
    return [replace(message, user=other)]


def _forge(message: Any, draw: random.Random) -> list[Any]:
    if isinstance(message, wire.Advertisement):
        return [replace(message, advertised=replace(message.advertised, signature=draw.randbytes(64)))]
    return [replace(message, signature=draw.randbytes(64)) if hasattr(message, "signature") else message]


def _weaken_key(message: wire.Advertisement, draw: random.Random) -> list[Any]:
    return [replace(message, advertised=replace(message.advertised, seal_key=bytes(32)))]


def _flood(message: Any, draw: random.Random) -> list[Any]:
    return [draw.randbytes(draw.randint(0, 300)) for _ in range(20)] + [message]


_LIES: dict[str, tuple[str, Callable[[Any, random.Random], list[Any]]]] = {
    "garbled vector": ("mask", _garble_vector),
    "two vectors": ("mask", _send_two_vectors),
    "false complaint": ("mask", _complain),
    "bad seals": ("share", _spoil_seals),
    "wrong commitments": ("share", _spoil_commitments),
    "wrong secret commitment": ("share", _spoil_secret),
    "bad release": ("unmask", _spoil_release),
    "short release": ("unmask", _shorten_release),
    "another's name": ("any", _pretend),
    "forged signatures": ("any", _forge),
    "weak key": ("advertise", _weaken_key),
    "flood": ("any", _flood),
}

TRAITS = ("wild vector", "wrong mask polynomial", "wrong self polynomial", *_LIES)
"""The ways to lie."""
