"""Labels and the keystream."""

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256, Hash

from heterosag.crypto.labels import digest, shuffle
from heterosag.crypto.prg import keystream
from heterosag.errors import UsageError


def test_digest_is_sha256_of_length_prefixed_parts() -> None:
    state = Hash(SHA256())
    for part in (b"heterosag/1/x", b"ab", b""):
        state.update(len(part).to_bytes(8, "little") + part)
    assert digest("x", b"ab", b"") == state.finalize()


def test_no_two_lists_hash_alike() -> None:
    lists = [(b"ab", b"c"), (b"a", b"bc"), (b"abc",), (b"abc", b""), ()]
    assert len({digest("x", *parts) for parts in lists} | {digest("y", *parts) for parts in lists}) == 10


def test_shuffle_is_a_reproducible_order() -> None:
    assert shuffle("x", b"seed", 5) == shuffle("x", b"seed", 5)
    assert sorted(shuffle("x", b"seed", 1000)) == list(range(1000))
    assert shuffle("x", b"seed", 1000) != shuffle("y", b"seed", 1000) != shuffle("y", b"other", 1000)
    assert shuffle("x", b"", 0) == []
    with pytest.raises(UsageError, match="cannot shuffle"):
        shuffle("x", b"", 2**64)


def test_every_order_is_equally_likely() -> None:
    counts: dict[tuple[int, ...], int] = {}
    for seed in range(6000):
        order = tuple(shuffle("x", seed.to_bytes(4, "big"), 3))
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 6
    assert all(abs(count - 1000) < 5 * 1000**0.5 for count in counts.values())


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
