"""The keystream: AES-256 in counter mode from a zero 128-bit big-endian counter, one key per use.

Guarantees: under one key every byte of the stream is produced from its own position only, so two readers of the same
key agree byte for byte, and a stream object hands each byte out once.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from heterosag.errors import UsageError

__all__ = [
    "BLOCK_SIZE",
    "CHUNK_SIZE",
    "CHUNK_WORDS",
    "KEY_SIZE",
    "Keystream",
    "chunk_buffer",
    "draw_words",
    "keystream",
]

KEY_SIZE = 32
BLOCK_SIZE = 16
CHUNK_SIZE = 1 << 18
"""Bytes produced at a time: the chunk and what it is added to stay in the second-level cache."""

_WORD_SIZE = 4

CHUNK_WORDS = CHUNK_SIZE // _WORD_SIZE
"""32-bit words of a chunk."""

_END = BLOCK_SIZE << 128

_FROM_ZERO = CTR(bytes(BLOCK_SIZE))
_ZEROS = memoryview(bytes(CHUNK_SIZE))


class Keystream:
    """A key's stream, read onward from its start or from a later block, each byte once. The key is not kept."""

    __slots__ = ("_encrypt", "position")

    def __init__(self, key: bytes, *, start: int = 0) -> None:
        self._encrypt = _encryptor(key, _block(start))
        self.position = start

    def read_into(self, buffer: npt.NDArray[np.uint8], size: int) -> npt.NDArray[np.uint8]:
        """The next `size` bytes, at most a chunk, in the front of a buffer with a block to spare."""
        if not 0 <= size <= CHUNK_SIZE:
            raise UsageError(f"a stream is read {CHUNK_SIZE} bytes at a time at most, not {size}")
        self._encrypt.update_into(_ZEROS[:size], buffer.data)
        self.position += size
        return buffer[:size]

    def align(self) -> None:
        """Skip to the next block boundary."""
        rest = -self.position % BLOCK_SIZE
        if rest:
            self._encrypt.update(bytes(rest))
            self.position += rest


def chunk_buffer() -> npt.NDArray[np.uint8]:
    """A buffer that `Keystream.read_into` can fill with a whole chunk."""
    return np.empty(CHUNK_SIZE + BLOCK_SIZE, dtype=np.uint8)


def draw_words(key: bytes, start: int, stop: int, *, together: int = 1) -> Iterator[npt.NDArray[np.uint32]]:
    """Words start..stop-1 of the key's stream, 32 bits each, little-endian: a chunk at a time in one buffer.

    A chunk holds whole groups of `together` words, counted from `start`, which are not more than a chunk holds.
    """
    size = CHUNK_WORDS // together * together
    skipped = start * _WORD_SIZE % BLOCK_SIZE
    stream = Keystream(key, start=start * _WORD_SIZE - skipped)
    buffer = chunk_buffer()
    stream.read_into(buffer, skipped)
    for begin in range(start, stop, size):
        yield stream.read_into(buffer, (min(stop, begin + size) - begin) * _WORD_SIZE).view("<u4")


def keystream(key: bytes, size: int, *, start: int = 0) -> bytes:
    """`size` bytes of the key's stream from byte `start`, a multiple of the block size, on."""
    block = _block(start)
    if start + size > _END:
        raise UsageError("a keystream ends where its counter would start again")
    return _encryptor(key, block).update(bytes(size))


def _block(start: int) -> int:
    if start < 0 or start % BLOCK_SIZE:
        raise UsageError(f"a keystream is read from a multiple of {BLOCK_SIZE} bytes on, not from {start}")
    return start // BLOCK_SIZE


def _encryptor(key: bytes, block: int) -> CipherContext:
    if len(key) != KEY_SIZE:
        raise UsageError(f"a keystream key has {KEY_SIZE} bytes, not {len(key)}")
    mode = CTR(block.to_bytes(BLOCK_SIZE, "big")) if block else _FROM_ZERO
    return Cipher(AES(key), mode).encryptor()
