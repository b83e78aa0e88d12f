"""Hostile input to the primitives, case by case in the manner of Wycheproof: what tests/crypto has in common.

The cases follow the published knowledge: RFC 7748 (X25519), RFC 8032 (Ed25519), RFC 8439 (ChaCha20-Poly1305), SP
800-38A (counter mode), and Wycheproof's categories of attack on them. They go through our functions, and every case's
name is the reason why it is there. Where a value is expected, a slow reference in the test's file says which.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cases import each

from heterosag.crypto.field import PRIME
from heterosag.crypto.seal import Seal

HIGH_BIT = 1 << 255


CURVE_ORDER = 2**252 + 27742317777372353535851937790883648493


def cases(table: dict[str, Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Every row of a table, named by its reason. A row of several values is one tuple, given as `case`."""
    return each("case", table.values(), ids=table)


def refuses(error: type[Exception], act: Callable[..., object], *arguments: object) -> None:
    """The call raises exactly this error, not one of its children or parents."""
    with pytest.raises(error) as caught:
        act(*arguments)
    assert caught.type is error


def little(number: int) -> bytes:
    return number.to_bytes(32, "little")


def flipped(data: bytes, place: int, bit: int = 0) -> bytes:
    return data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]


def clamped(scalar: bytes) -> int:
    number = int.from_bytes(scalar, "little")
    return number % (1 << 255) // 8 * 8 | 1 << 254


SHARED, CONTEXT, PAIR = bytes(range(32)), b"c" * 32, (PRIME - 12345, PRIME // 3)


def make_seal() -> Seal:
    return Seal.of(SHARED, CONTEXT, 1, 2)


NOT_ELEMENTS = {f"p + {rest}": little(PRIME + rest) for rest in range(19)} | {
    "2^255": little(1 << 255),
    "2^255 + 1, an element with the unused bit set": little((1 << 255) + 1),
    "p with the unused bit set": little(PRIME | HIGH_BIT),
    "2p": little(2 * PRIME),
    "2^256 - 1": b"\xff" * 32,
}
NOT_ELEMENTS |= {f"{size} zero bytes": bytes(size) for size in (*range(32), *range(33, 41), 64, 1024)}
NOT_ELEMENTS |= {"an element and a byte more": little(5) + b"\x00"}


STREAM_KEY = bytes(range(0x60, 0x80))
