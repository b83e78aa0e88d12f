"""Sealed shares: ChaCha20-Poly1305 by its vectors, and what must not open."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cases import each
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.poly1305 import Poly1305
from hostile import CONTEXT, NOT_ELEMENTS, PAIR, SHARED, cases, flipped, little, make_seal, refuses

from heterosag.crypto.field import PRIME, element_to_bytes
from heterosag.crypto.hashing import derive, index_bytes
from heterosag.crypto.seal import SEALED_SIZE, Seal
from heterosag.errors import WireError


def test_chacha20_poly1305_of_rfc_8439() -> None:
    """Section 2.8.2."""
    text = (
        b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, "
        b"sunscreen would be it."
    )
    cipher = ChaCha20Poly1305(bytes(range(0x80, 0xA0)))
    sealed = cipher.encrypt(bytes.fromhex("070000004041424344454647"), text, bytes.fromhex("50515253c0c1c2c3c4c5c6c7"))
    assert sealed.hex().startswith("d31a8d34648e60db7b86afbc53ef7ec2")
    assert sealed.hex().endswith("1ae10b594f09e26a7e902ecbd0600691")


def test_a_seal_opens_for_its_direction_and_context_only() -> None:
    shared = bytes(range(32))
    seal = Seal.of(shared, b"c" * 32, 1, 2)
    sealed = seal.close(12345, 678)
    assert len(sealed) == SEALED_SIZE
    assert Seal.of(shared, b"c" * 32, 1, 2).open(sealed) == (12345, 678)
    wrong = [
        (Seal.of(shared, b"c" * 32, 2, 1), sealed),  # reflected
        (Seal.of(shared, b"c" * 32, 1, 3), sealed),  # moved
        (Seal.of(shared, b"d" * 32, 1, 2), sealed),  # of another round
        (Seal.of(bytes(32), b"c" * 32, 1, 2), sealed),  # of another pair of keys
        (seal, sealed[32:64] + sealed[:32] + sealed[64:]),  # its halves swapped
        (seal, sealed[:-1] + bytes([sealed[-1] ^ 1])),  # changed
        (seal, b""),
    ]
    for other, data in wrong:
        with pytest.raises(WireError, match="does not open"):
            other.open(data)


PLAINTEXT = b"".join(map(element_to_bytes, PAIR))


def seal_raw(plaintext: bytes) -> bytes:
    """What a dealer seals who has the right key and ignores what a share is."""
    key = derive("seal", SHARED, CONTEXT, index_bytes(1, 2))
    return ChaCha20Poly1305(key).encrypt(bytes(12), plaintext, CONTEXT + index_bytes(1, 2))


def test_a_seal_is_the_construction_of_rfc_8439() -> None:
    """Section 2.8 put together from the stream cipher and the authenticator alone."""
    key = derive("seal", SHARED, CONTEXT, index_bytes(1, 2))
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), None).encryptor()
    one_time = stream.update(bytes(64))[:32]
    hidden = stream.update(PLAINTEXT)
    bound = CONTEXT + index_bytes(1, 2)
    padded = bound + bytes(-len(bound) % 16) + hidden + bytes(-len(hidden) % 16)
    tag = Poly1305.generate_tag(one_time, padded + index_bytes(len(bound), len(hidden)))
    assert make_seal().close(*PAIR) == hidden + tag
    assert make_seal().open(hidden + tag) == PAIR


@each("place", range(SEALED_SIZE))
def test_a_flipped_byte_of_ciphertext_or_tag_does_not_open(place: int) -> None:
    sealed = make_seal().close(*PAIR)
    for bit in range(8):
        refuses(WireError, make_seal().open, flipped(sealed, place, bit))


@each("size", range(SEALED_SIZE))
def test_a_truncated_seal_does_not_open(size: int) -> None:
    sealed = make_seal().close(*PAIR)
    refuses(WireError, make_seal().open, sealed[:size])
    refuses(WireError, make_seal().open, sealed[SEALED_SIZE - size :])


CHANGED: dict[str, Callable[[bytes], bytes]] = {
    "a zero byte appended": lambda sealed: sealed + b"\x00",
    "a zero byte in front": lambda sealed: b"\x00" + sealed,
    "a zero byte between ciphertext and tag": lambda sealed: sealed[:-16] + b"\x00" + sealed[-16:],
    "a block between ciphertext and tag": lambda sealed: sealed[:-16] + bytes(16) + sealed[-16:],
    "twice": lambda sealed: sealed * 2,
    "the tag twice": lambda sealed: sealed + sealed[-16:],
    "the tag first": lambda sealed: sealed[-16:] + sealed[:-16],
    "tag all zero": lambda sealed: sealed[:-16] + bytes(16),
    "tag all ones": lambda sealed: sealed[:-16] + b"\xff" * 16,
    "tag inverted": lambda sealed: sealed[:-16] + bytes(byte ^ 0xFF for byte in sealed[-16:]),
    "tag with every highest bit flipped": lambda sealed: sealed[:-16] + bytes(byte ^ 0x80 for byte in sealed[-16:]),
    "tag in reverse order": lambda sealed: sealed[:-16] + sealed[:-17:-1],
    "the tag of the shares swapped": lambda sealed: sealed[:-16] + make_seal().close(*PAIR[::-1])[-16:],
    "ciphertext of the shares swapped": lambda sealed: make_seal().close(*PAIR[::-1])[:-16] + sealed[-16:],
    "ciphertext all zero": lambda sealed: bytes(64) + sealed[-16:],
    "ciphertext halves swapped": lambda sealed: sealed[32:64] + sealed[:32] + sealed[64:],
    "all zero": lambda sealed: bytes(len(sealed)),
    "the shares in plaintext": lambda sealed: PLAINTEXT + sealed[-16:],
}


@cases(CHANGED)
def test_a_changed_seal_does_not_open(case: Callable[[bytes], bytes]) -> None:
    refuses(WireError, make_seal().open, case(make_seal().close(*PAIR)))


ELSEWHERE: dict[str, Seal] = {
    "reflected to its dealer": Seal.of(SHARED, CONTEXT, 2, 1),
    "another holder": Seal.of(SHARED, CONTEXT, 1, 3),
    "another dealer": Seal.of(SHARED, CONTEXT, 3, 2),
    "dealer and holder with the bytes of their indices shifted": Seal.of(SHARED, CONTEXT, 1 << 8, 2),
    "another context": Seal.of(SHARED, b"d" * 32, 1, 2),
    "a context with one bit flipped": Seal.of(SHARED, flipped(CONTEXT, 31), 1, 2),
    "a shorter context": Seal.of(SHARED, CONTEXT[:-1], 1, 2),
    "a context that takes bytes of the dealer's index": Seal.of(SHARED, CONTEXT + b"\x01", 0, 2),
    "no context": Seal.of(SHARED, b"", 1, 2),
    "another secret of the pair": Seal.of(flipped(SHARED, 0), CONTEXT, 1, 2),
    "the zero secret of a low-order key": Seal.of(bytes(32), CONTEXT, 1, 2),
}


@cases(ELSEWHERE)
def test_a_seal_does_not_open_elsewhere(case: Seal) -> None:
    refuses(WireError, case.open, make_seal().close(*PAIR))


@cases(NOT_ELEMENTS)
def test_a_well_sealed_plaintext_that_is_no_pair_of_shares_is_refused(case: bytes) -> None:
    """A malicious dealer has the key and can seal anything."""
    for plaintext in (case + little(5), little(5) + case, case[:32]):
        if len(case) == 32 or len(plaintext) != 64:
            refuses(WireError, make_seal().open, seal_raw(plaintext))


@cases({"0": 0, "1": 1, "p - 1": PRIME - 1, "2^254": 1 << 254})
def test_the_elements_at_the_edges_are_sealed_and_opened(case: int) -> None:
    for pair in ((case, 7), (7, case)):
        plaintext = b"".join(map(little, pair))
        assert make_seal().open(seal_raw(plaintext)) == pair
        assert make_seal().close(*pair) == seal_raw(plaintext)
