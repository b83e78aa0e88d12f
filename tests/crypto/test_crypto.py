"""Cryptography: standard vectors, and what our thin layer adds."""

import hmac
import pickle

import numpy as np
import pytest
from cases import each
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256, Hash
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from heterosag.crypto.field import PRIME, element_from_bytes, element_to_bytes, random_element
from heterosag.crypto.hashing import COMMITMENT_SIZE, commit, derive, digest, shuffle
from heterosag.crypto.identity import Identity, verify
from heterosag.crypto.keys import (
    RoundSecrets,
    agree,
    check_public_key,
    is_canonical,
    mask_private_key,
    pair_mask_key,
    public_bytes,
    self_mask_key,
)
from heterosag.crypto.keystream import Keystream, chunk_buffer, draw_words, keystream
from heterosag.crypto.seal import SEALED_SIZE, Seal
from heterosag.crypto.shamir import coefficients, combine, random_polynomial, split, split_two
from heterosag.errors import UsageError, WireError


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


def test_x25519_of_rfc_7748() -> None:
    """Section 6.1: Alice and Bob."""
    alice = X25519PrivateKey.from_private_bytes(
        bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
    )
    bob_public = bytes.fromhex("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f")
    assert public_bytes(alice).hex() == "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    assert agree(alice, bob_public).hex() == "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"


def test_ed25519_of_rfc_8032() -> None:
    """Section 7.1, test 1, through our class: the key pair; signatures cover our labelled digest."""
    secret = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    identity = Identity.from_private_bytes(secret)
    assert identity.public.hex() == "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    expected = (
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
        "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
    )
    assert Ed25519PrivateKey.from_private_bytes(secret).sign(b"").hex() == expected
    assert identity.sign("x", b"a") == Ed25519PrivateKey.from_private_bytes(secret).sign(digest("sign/x", b"a"))


def test_hkdf_of_rfc_5869_and_ours() -> None:
    """Test case 1 of the library, then our derivation against HMAC alone."""
    info = bytes.fromhex("f0f1f2f3f4f5f6f7f8f9")
    found = HKDF(algorithm=SHA256(), length=42, salt=bytes(range(13)), info=info).derive(b"\x0b" * 22)
    assert found.hex().startswith("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf")
    listed = b"".join(len(p).to_bytes(8, "little") + p for p in (b"heterosag/1/label", b"ab", b""))
    extracted = hmac.digest(bytes(32), b"secret", "sha256")
    assert derive("label", b"secret", b"ab", b"") == hmac.digest(extracted, listed + b"\x01", "sha256")


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


LOW_ORDER = [
    bytes(32),
    b"\x01" + bytes(31),
    bytes.fromhex("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
]


@each("key", [*LOW_ORDER, b"short", bytes(33)])
def test_public_keys_of_low_order_or_wrong_length_are_refused(key: bytes) -> None:
    with pytest.raises(WireError, match="X25519"):
        agree(X25519PrivateKey.generate(), key)
    with pytest.raises(WireError, match="X25519"):
        check_public_key(key)


def test_a_signature_is_for_one_purpose_and_one_list_of_parts() -> None:
    identity = Identity.generate()
    signature = identity.sign("survivors", b"c", b"set")
    verify(identity.public, signature, "survivors", b"c", b"set")
    for label, parts in (("advertise", (b"c", b"set")), ("survivors", (b"c", b"other")), ("survivors", (b"cs", b"et"))):
        with pytest.raises(WireError, match="not valid"):
            verify(identity.public, signature, label, *parts)
    with pytest.raises(WireError, match="not valid"):
        verify(Identity.generate().public, signature, "survivors", b"c", b"set")
    with pytest.raises(WireError, match="not valid"):
        verify(b"short", signature, "survivors", b"c", b"set")


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


def test_field_elements_have_one_encoding() -> None:
    for element in (0, 1, PRIME - 1):
        assert element_from_bytes(element_to_bytes(element)) == element
    for bad in (PRIME, 2**255 - 1, 2**256 - 1):
        with pytest.raises(WireError, match="field element"):
            element_from_bytes(bad.to_bytes(32, "little"))
    for data in (bytes(31), bytes(33)):
        with pytest.raises(WireError, match="field element"):
            element_from_bytes(data)
    with pytest.raises(UsageError, match="field"):
        element_to_bytes(PRIME)


@each("threshold, holders", [(1, 1), (2, 3), (5, 9), (13, 25)])
def test_any_t_shares_give_the_secret_and_fewer_do_not(threshold: int, holders: int) -> None:
    secret = random_element()
    places = list(range(1, holders + 1))
    shares = dict(zip(places, split(random_polynomial(secret, threshold), places), strict=True))
    for chosen in (places[:threshold], places[-threshold:], places[::-1][:threshold]):
        assert combine(coefficients(tuple(chosen)), [shares[x] for x in chosen]) == secret
    if threshold > 1:
        short = places[: threshold - 1]
        assert combine(coefficients(tuple(short)), [shares[x] for x in short]) != secret


def test_shares_are_the_polynomial_evaluated() -> None:
    polynomial = [random_element() for _ in range(40)]
    for x in (1, 2, 999, 2**20 - 1):
        expected = sum(c * pow(x, i, PRIME) for i, c in enumerate(polynomial)) % PRIME
        assert split(polynomial, [x]) == [expected]
    other = [PRIME - 1] * 40
    for x in (1, 301, 2**20 - 1):
        assert split_two(polynomial, other, [x]) == [(split(polynomial, [x])[0], split(other, [x])[0])]
        assert split_two(other, polynomial, [x]) == [(split(other, [x])[0], split(polynomial, [x])[0])]


def test_shamir_refuses_nonsense() -> None:
    with pytest.raises(UsageError, match="at least one share"):
        random_polynomial(1, 0)
    with pytest.raises(UsageError, match="field element"):
        random_polynomial(PRIME, 2)
    for x in (0, -1, 2**20):
        with pytest.raises(UsageError, match="taken at"):
            split([1, 2], [x])
    for places in ((1, 1), (0, 1)):
        with pytest.raises(UsageError, match="distinct positive"):
            coefficients(places)


def test_commitments_are_bound_to_their_place() -> None:
    base = ("mask", b"c" * 32, 1, 2, b"v" * 32)
    others = [
        ("self", *base[1:]),
        ("mask", b"d" * 32, 1, 2, b"v" * 32),
        ("mask", b"c" * 32, 2, 2, b"v" * 32),
        ("mask", b"c" * 32, 1, 3, b"v" * 32),
        ("mask", b"c" * 32, 1, 2, b"w" * 32),
    ]
    assert commit(*base) not in {commit(*other) for other in others}
    assert len(commit(*base)) == COMMITMENT_SIZE == 16


def test_secrets_do_not_show() -> None:
    secrets = RoundSecrets.generate()
    identity = Identity.generate()
    seal = Seal.of(bytes(32), bytes(32), 0, 1)
    assert repr(secrets) == "RoundSecrets()"
    assert repr(identity) == "Identity()"
    assert repr(seal) == "Seal()"
    for thing in (secrets, identity):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(thing)


def test_mask_keys_come_from_their_secret_and_differ_everywhere() -> None:
    secrets = RoundSecrets.generate()
    assert public_bytes(mask_private_key(secrets.mask_secret)) == public_bytes(secrets.mask_key)
    c, d = b"c" * 32, b"d" * 32
    keys = [
        pair_mask_key(bytes(32), c, 1, 2),
        pair_mask_key(bytes(32), c, 1, 3),
        pair_mask_key(bytes(32), d, 1, 2),
        pair_mask_key(b"\x01" * 32, c, 1, 2),
        self_mask_key(5, c, 1),
        self_mask_key(5, c, 2),
        self_mask_key(5, d, 1),
        self_mask_key(6, c, 1),
    ]
    assert len(set(keys)) == len(keys)
    assert pair_mask_key(bytes(32), c, 2, 1) == keys[0]


def test_the_prime_itself_is_no_key() -> None:
    """It would be another encoding of zero."""
    assert is_canonical((PRIME - 1).to_bytes(32, "little"))
    assert not is_canonical(PRIME.to_bytes(32, "little"))
