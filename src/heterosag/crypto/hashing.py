"""Labelled hashing and derivation: every hash and key of the protocol says what it is for.

The input of a hash is a list of byte strings, each behind its length in eight little-endian bytes, the label first.
So no two lists hash alike unless they are equal, and a hash made for one purpose is never valid for another.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from struct import Struct

from cryptography.hazmat.primitives.hashes import SHA256, Hash
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from heterosag.errors import UsageError

__all__ = ["COMMITMENT_SIZE", "DIGEST_SIZE", "commit", "derive", "digest", "index_bytes", "shuffle"]

DIGEST_SIZE = 32
COMMITMENT_SIZE = 16

_PREFIX = b"heterosag/1/"
_WORD_SPAN = 1 << 64
_SHA256 = SHA256()


def index_bytes(*numbers: int) -> bytes:
    """Roster indices and other small numbers as eight little-endian bytes each."""
    return _numbers(len(numbers)).pack(*numbers)


@lru_cache(maxsize=64)
def _numbers(count: int) -> Struct:
    return Struct(f"<{count}Q")


def digest(label: str, *parts: bytes) -> bytes:
    """SHA-256 over the label and the parts, each behind its length."""
    state = _begun(label).copy()
    if len(parts) == 1:  # a whole message, perhaps: without a copy of it
        state.update(_length(len(parts[0])))
        state.update(parts[0])
    else:
        state.update(_listed(*parts))
    return state.finalize()


@lru_cache(maxsize=256)
def _begun(label: str) -> Hash:
    """A hash that has taken its label: copying it is quicker than beginning one."""
    state = Hash(_SHA256)
    state.update(_head(label))
    return state


def derive(label: str, secret: bytes, *parts: bytes) -> bytes:
    """A 32-byte key by HKDF-SHA256, without salt, its info the labelled list of parts."""
    return HKDF(algorithm=_SHA256, length=DIGEST_SIZE, salt=None, info=_head(label) + _listed(*parts)).derive(secret)


def commit(kind: str, context: bytes, dealer: int, holder: int, value: bytes) -> bytes:
    """A hash commitment to a share (or, holder = dealer, to a whole secret) bound to where it belongs.

    Guarantees: whoever was dealt a value finds no other one for its commitment (a second preimage, 2^128 hashes);
    hiding because every value committed to is uniform on 2^255 elements. The dealer itself could find two values with
    one commitment (2^64 hashes, once the round's keys are known), and gains nothing by it: see docs/protocol.md.
    """
    return digest(f"commit/{kind}", context, index_bytes(dealer, holder), value)[:COMMITMENT_SIZE]


def _listed(*parts: bytes) -> bytes:
    listed: list[bytes] = []
    for part in parts:
        listed += _length(len(part)), part
    return b"".join(listed)


@lru_cache(maxsize=256)
def _length(size: int) -> bytes:
    return size.to_bytes(8, "little")


@lru_cache(maxsize=256)
def _head(label: str) -> bytes:
    name = _PREFIX + label.encode("ascii")
    return _length(len(name)) + name


def shuffle(label: str, seed: bytes, count: int) -> list[int]:
    """The numbers 0..count-1 in an order that everyone computes alike from a public seed.

    Fisher-Yates from the top: place i swaps with a place drawn from 0..i. Draws take 64-bit little-endian words
    from digest(label, seed, counter), four a digest, and refuse a word that would favour some place.
    Guarantees: every order is equally likely for a uniform seed. Nothing secret is derived here.
    """
    if count >= _WORD_SPAN:
        raise UsageError(f"cannot shuffle {count} places")
    words = _words(label, seed)
    order = list(range(count))
    for top in range(count - 1, 0, -1):
        span = top + 1
        limit = _WORD_SPAN - _WORD_SPAN % span
        word = next(word for word in words if word < limit)
        chosen = word % span
        order[top], order[chosen] = order[chosen], order[top]
    return order


def _words(label: str, seed: bytes) -> Iterator[int]:
    counter = 0
    while True:
        block = digest(label, seed, index_bytes(counter))
        for start in range(0, DIGEST_SIZE, 8):
            yield int.from_bytes(block[start : start + 8], "little")
        counter += 1
