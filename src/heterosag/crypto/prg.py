"""The keystream: AES-256 in counter mode from a zero 128-bit big-endian counter, one key per use.

Guarantees: under one key every byte of the stream is produced from its own position only, so two readers of the same
key and range agree byte for byte, and a key that is used for one purpose yields each bit to one consumer.
"""

from __future__ import annotations

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from heterosag.errors import UsageError

__all__ = ["BLOCK_SIZE", "KEY_SIZE", "keystream"]

KEY_SIZE = 32
BLOCK_SIZE = 16


def keystream(key: bytes, size: int, *, start: int = 0) -> bytes:
    """`size` bytes of the key's stream from byte `start`, a multiple of the block size, on."""
    if len(key) != KEY_SIZE:
        raise UsageError(f"a keystream key has {KEY_SIZE} bytes, not {len(key)}")
    if start < 0 or start % BLOCK_SIZE:
        raise UsageError(f"a keystream is read from a multiple of {BLOCK_SIZE} bytes on, not from {start}")
    counter = (start // BLOCK_SIZE).to_bytes(BLOCK_SIZE, "big")
    return Cipher(AES(key), CTR(counter)).encryptor().update(bytes(size))
