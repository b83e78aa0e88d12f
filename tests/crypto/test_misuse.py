"""Misuse of the primitives is a usage error."""

from __future__ import annotations

from collections.abc import Callable

from hostile import CONTEXT, SHARED, STREAM_KEY, cases, refuses

from heterosag.crypto.field import PRIME
from heterosag.crypto.identity import Identity
from heterosag.crypto.keystream import BLOCK_SIZE, CHUNK_SIZE, Keystream, chunk_buffer, keystream
from heterosag.crypto.seal import Seal
from heterosag.crypto.shamir import coefficients, combine
from heterosag.errors import UsageError


def read_beyond_a_chunk() -> None:
    Keystream(STREAM_KEY).read_into(chunk_buffer(), CHUNK_SIZE + BLOCK_SIZE)


def read_backwards() -> None:
    Keystream(STREAM_KEY).read_into(chunk_buffer(), -1)


MISUSE: dict[str, Callable[[], object]] = {
    "more than a chunk: the rest of the buffer is handed out as if it were stream": read_beyond_a_chunk,
    "a negative size: the position goes back": read_backwards,
    "a stream from 2^128 blocks on": lambda: keystream(STREAM_KEY, 16, start=(1 << 128) * BLOCK_SIZE),
    "a stream over the last block starts again": lambda: keystream(STREAM_KEY, 32, start=((1 << 128) - 1) * BLOCK_SIZE),
    "an identity of 31 bytes": lambda: Identity.from_private_bytes(bytes(31)),
    "an identity of 33 bytes": lambda: Identity.from_private_bytes(bytes(33)),
    "a dealer with a negative index": lambda: Seal.of(SHARED, CONTEXT, -1, 2),
    "places that are alike modulo the prime": lambda: coefficients((1, PRIME + 1)),
    "a place that is 0 modulo the prime": lambda: coefficients((1, PRIME)),
    "fewer coefficients than shares": lambda: combine(coefficients((1,)), [1, 2]),
    "a share that is no element": lambda: combine(coefficients((1,)), [PRIME]),
    "no shares at all, which give 0": lambda: combine(coefficients(()), []),
}


@cases(MISUSE)
def test_misuse_is_a_usage_error(case: Callable[[], object]) -> None:
    refuses(UsageError, case)
