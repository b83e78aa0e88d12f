"""Keystreams: AES-256 in counter mode, by its vectors and at its edges."""

from __future__ import annotations

import numpy as np
import pytest
from cases import each
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hostile import STREAM_KEY, cases, refuses

from heterosag.crypto.keystream import BLOCK_SIZE, CHUNK_SIZE, Keystream, chunk_buffer, draw_words, keystream
from heterosag.errors import UsageError


def test_keystream_is_nists_aes_256_ctr() -> None:
    """SP 800-38A, F.5.5: the first counter block is not zero there, so position ours by decrypting to it."""
    key = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    zero_counter = (
        Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(bytes(15) + b"\x00" + bytes(15) + b"\x01")
    )
    assert keystream(key, 32) == zero_counter
    # F.5.5 block 1: counter f0f1..ff encrypts to 0bdf7df1591716335e9a8b15c860c502
    counter = int.from_bytes(bytes.fromhex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"), "big")
    assert keystream(key, 16, start=counter * 16).hex() == "0bdf7df1591716335e9a8b15c860c502"


def test_keystream_can_be_read_from_any_block() -> None:
    key = bytes(range(32))
    whole = keystream(key, 1000)
    assert keystream(key, 100, start=320) == whole[320:420]
    with pytest.raises(UsageError, match="multiple of 16"):
        keystream(key, 1, start=8)
    with pytest.raises(UsageError, match="32 bytes"):
        keystream(b"short", 1)


def test_words_are_those_of_the_keystream_in_whole_groups() -> None:
    key = bytes(range(32))
    whole = np.frombuffer(keystream(key, 4 * 300_000), dtype="<u4")
    for start, stop, together in ((0, 300_000, 1), (5, 250_000, 7), (3, 140_003, 15), (8, 8, 1), (0, 131_070, 65_535)):
        parts = [part.copy() for part in draw_words(key, start, stop, together=together)]
        assert all(part.size % together == 0 for part in parts[:-1])
        assert np.array_equal(np.concatenate([np.empty(0, np.uint32), *parts]), whole[start:stop])


def test_a_stream_is_the_keystream_read_once() -> None:
    key = bytes(range(32))
    stream, buffer = Keystream(key), chunk_buffer()
    parts = [stream.read_into(buffer, size).tobytes() for size in (5, 100, 0, 1)]
    assert b"".join(parts) == keystream(key, 106)
    stream.align()
    assert stream.position == 112
    assert stream.read_into(buffer, 16).tobytes() == keystream(key, 16, start=112)


FIRST_BLOCKS = {
    "from the start": 0,
    "over 2^8 blocks": (1 << 8) - 2,
    "over 2^16 blocks": (1 << 16) - 2,
    "over 2^31 blocks, a signed word": (1 << 31) - 2,
    "over 2^32 blocks, a word": (1 << 32) - 2,
    "over 2^63 blocks, a signed double word": (1 << 63) - 2,
    "over 2^64 blocks, a double word": (1 << 64) - 2,
    "over 2^96 blocks, a nonce of GCM": (1 << 96) - 2,
    "over 2^127 blocks": (1 << 127) - 2,
    "the last blocks of all": (1 << 128) - 5,
}


@cases(FIRST_BLOCKS)
def test_the_counter_carries_over_all_its_bits(case: int) -> None:
    counters = b"".join((case + step).to_bytes(BLOCK_SIZE, "big") for step in range(5))
    expected = Cipher(algorithms.AES(STREAM_KEY), modes.ECB()).encryptor().update(counters)
    assert keystream(STREAM_KEY, 5 * BLOCK_SIZE, start=case * BLOCK_SIZE) == expected
    assert keystream(STREAM_KEY, 37, start=case * BLOCK_SIZE) == expected[:37]


@each("size", [*range(32), *range(33, 41), 48, 64])
def test_a_key_of_another_size_gives_no_stream(size: int) -> None:
    """Also those of AES-128 and AES-192: a short key must not be a weaker mask."""
    refuses(UsageError, keystream, bytes(size), 16)
    refuses(UsageError, Keystream, bytes(size))


@cases({"negative": -16, "within a block": 8, "one byte on": 1, "one byte before a block": 15, "minus one": -1})
def test_a_stream_does_not_start_at(case: int) -> None:
    refuses(UsageError, lambda: keystream(STREAM_KEY, 16, start=case))


def test_a_full_chunk_is_read_and_nothing_of_it_is_left_unmasked() -> None:
    buffer = chunk_buffer()
    buffer[:] = 0
    stream = Keystream(STREAM_KEY)
    first = stream.read_into(buffer, CHUNK_SIZE).tobytes()
    second = stream.read_into(buffer, CHUNK_SIZE).tobytes()
    assert first + second == keystream(STREAM_KEY, 2 * CHUNK_SIZE)
