"""What a hostile sender can put into the primitives, case by case, in the manner of Wycheproof.

The cases follow the published knowledge: RFC 7748 (X25519), RFC 8032 (Ed25519), RFC 8439 (ChaCha20-Poly1305), SP
800-38A (counter mode), and Wycheproof's categories of attack on them. They go through our functions, and every case's
test id is the reason why it is there. Where a value is expected, a slow reference in this file says which.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from cases import each
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.poly1305 import Poly1305
from msgspec.structs import replace
from rounds import World, small_plan

from heterosag.crypto.field import PRIME, element_from_bytes, element_to_bytes
from heterosag.crypto.hashing import derive, digest, index_bytes
from heterosag.crypto.identity import Identity, check_identity, verify
from heterosag.crypto.keys import agree, check_public_key, pair_mask_key, public_bytes, self_mask_key
from heterosag.crypto.keystream import BLOCK_SIZE, CHUNK_SIZE, Keystream, chunk_buffer, keystream
from heterosag.crypto.seal import SEALED_SIZE, Seal
from heterosag.crypto.shamir import coefficients, combine, random_polynomial, split, split_two
from heterosag.errors import FaultyUserError, UsageError, WireError
from heterosag.protocol import messages as wire

HIGH_BIT = 1 << 255
CURVE_ORDER = 2**252 + 27742317777372353535851937790883648493
TWIST_ORDER = (2 * PRIME + 2 - 8 * CURVE_ORDER) // 4


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


# --- X25519 -------------------------------------------------------------------------------------------------------

SCALARS = {
    "the zero scalar (clamped to 2^254)": bytes(32),
    "the largest scalar": b"\xff" * 32,
    "alternating bits": b"\x55" * 32,
    "an everyday scalar": bytes(range(1, 33)),
}


def ladder(scalar: int, u: int) -> int:
    """The Montgomery ladder of RFC 7748, section 5, without clamping."""
    x2, z2, x3, z3 = 1, 0, u, 1
    for place in reversed(range(256)):
        swap = scalar >> place & 1
        if swap:
            x2, z2, x3, z3 = x3, z3, x2, z2
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        da, cb, aa, bb = d * a % PRIME, c * b % PRIME, a * a % PRIME, b * b % PRIME
        x3, z3 = (da + cb) ** 2 % PRIME, u * (da - cb) ** 2 % PRIME
        x2, z2 = aa * bb % PRIME, (aa - bb) * (aa + 121665 * (aa - bb)) % PRIME
        if swap:
            x2, z2, x3, z3 = x3, z3, x2, z2
    return x2 * pow(z2, PRIME - 2, PRIME) % PRIME


def clamped(scalar: bytes) -> int:
    number = int.from_bytes(scalar, "little")
    return number % (1 << 255) // 8 * 8 | 1 << 254


def is_on_twist(u: int) -> bool:
    return pow(u**3 + 486662 * u**2 + u, (PRIME - 1) // 2, PRIME) == PRIME - 1


EIGHT_A = 0x00B8495F16056286FDB1329CEB8D09DA6AC49FF1FAE35616AEB8413B7C7AEBE0
EIGHT_B = 0x57119FD0DD4E22D8868E1C58C45C44045BEF839C55B1D0B1248C50A3BC959C5F

LOW_ORDER = {
    "u = 0, order 2": 0,
    "u = 1, order 4": 1,
    "u = p - 1, order 4 on the twist": PRIME - 1,
    "order 8, the one": EIGHT_A,
    "order 8, the other": EIGHT_B,
    "u = p, which is 0 not reduced": PRIME,
    "u = p + 1, which is 1 not reduced": PRIME + 1,
}
LOW_ORDER |= {f"{reason}, unused bit set": u | HIGH_BIT for reason, u in LOW_ORDER.items()}


@each("scalar", SCALARS.values(), ids=SCALARS)
@cases(LOW_ORDER)
def test_a_point_of_low_order_is_refused(case: int, scalar: bytes) -> None:
    refuses(WireError, agree, X25519PrivateKey.from_private_bytes(scalar), little(case))


@cases(LOW_ORDER)
def test_a_point_of_low_order_cannot_be_advertised(case: int) -> None:
    refuses(WireError, check_public_key, little(case))


@each("size", [*range(32), *range(33, 41), 64, 65, 1 << 16])
def test_a_public_key_of_another_length_is_refused(size: int) -> None:
    key = (b"\x09" + bytes(size))[:size]
    refuses(WireError, check_public_key, key)
    refuses(WireError, agree, X25519PrivateKey.generate(), key)


VALID_U = {
    "the base point": 9,
    "u = 2, on the twist": 2,
    "u = 3, on the twist": 3,
    "u = 4, on the curve": 4,
    "u = p - 2": PRIME - 2,
    "u = p - 3": PRIME - 3,
    "u = 2^254": 1 << 254,
    "u = p - 19": PRIME - 19,
    "all limbs of 51 bits full but the lowest": (1 << 255) - (1 << 51),
    "all limbs of 64 bits full but the lowest": (1 << 255) - (1 << 64),
    "alternating 32-bit words": int("00000000ffffffff" * 4, 16),
    "order 8 plus one": EIGHT_A + 1,
    "order 8 minus one": EIGHT_B - 1,
    "a twist point with all bytes alike": int("22" * 32, 16),
}
NOT_REDUCED = {f"u = p + {rest}, which is {rest} not reduced": PRIME + rest for rest in range(2, 19)} | {
    "2p - 1 is p - 20 once the unused bit is masked, not p - 1": 2 * PRIME - 1,
    "2p is p - 19 once the unused bit is masked, not 0": 2 * PRIME,
    "2p + 1 is p - 18 once the unused bit is masked, not 1": 2 * PRIME + 1,
    "all bits set": 2**256 - 1,
}


@each("scalar", SCALARS.values(), ids=SCALARS)
@cases(VALID_U | NOT_REDUCED)
def test_a_usable_point_gives_what_the_ladder_gives(case: int, scalar: bytes) -> None:
    private = X25519PrivateKey.from_private_bytes(scalar)
    u = case % HIGH_BIT % PRIME
    assert agree(private, little(case)) == little(ladder(clamped(scalar), u))
    assert agree(private, little(case ^ HIGH_BIT)) == agree(private, little(case))
    for number in (case, case ^ HIGH_BIT):
        if number < PRIME:
            check_public_key(little(number))
        else:
            refuses(WireError, check_public_key, little(number))


def test_the_table_has_points_of_the_curve_and_of_the_twist() -> None:
    assert {is_on_twist(u) for u in VALID_U.values()} == {True, False}


EDGE_SECRETS = {
    "2, on the twist": 2,
    "9, the base point itself": 9,
    "16": 16,
    "2^36 - 1, ones in the lowest words, on the twist": 0xFFFFFFFFF,
    "one bit in the second word of 64 bits": 1 << 64,
    "the next bit, on the twist": 1 << 65,
    "one bit amid zeros": 1 << 120,
    "p - 8, nearly the prime, on the twist": PRIME - 8,
    "p - 10, on the twist": PRIME - 10,
    "p - 16": PRIME - 16,
    "alternating bits": int("55" * 32, 16),
}


@each("scalar", SCALARS.values(), ids=SCALARS)
@cases(EDGE_SECRETS)
def test_a_shared_secret_at_the_edge_is_right(case: int, scalar: bytes) -> None:
    """The key that leads to the wanted secret: the secret's point times the scalar's inverse."""
    order = TWIST_ORDER if is_on_twist(case) else CURVE_ORDER
    key = ladder(pow(clamped(scalar), -1, order), case)
    assert agree(X25519PrivateKey.from_private_bytes(scalar), little(key)) == little(case)


RFC_7748 = {
    "section 5.2, first vector": (
        "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
        "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
        "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
    ),
    "section 5.2, second vector, unused bit set": (
        "4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
        "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
        "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957",
    ),
}


@cases(RFC_7748)
def test_x25519_vectors(case: tuple[str, str, str]) -> None:
    scalar, u, secret = map(bytes.fromhex, case)
    assert agree(X25519PrivateKey.from_private_bytes(scalar), u) == secret


def test_x25519_a_thousand_times() -> None:
    """RFC 7748, section 5.2: every secret is the next scalar, every scalar the next point."""
    scalar = u = little(9)
    for turn in range(1000):
        scalar, u = agree(X25519PrivateKey.from_private_bytes(scalar), u), scalar
        if turn == 0:
            assert scalar.hex() == "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079"
    assert scalar.hex() == "684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51"


def test_our_own_public_keys_are_reduced() -> None:
    """So a key that we compare with one that we made has a single encoding."""
    for _ in range(50):
        assert int.from_bytes(public_bytes(X25519PrivateKey.generate()), "little") < PRIME


def test_two_encodings_of_one_key_give_no_equal_mask() -> None:
    """Equal bytes are not what keeps masks apart: the users' indices and the context go into every key."""
    victim, other = X25519PrivateKey.generate(), X25519PrivateKey.generate()
    copied = flipped(public_bytes(victim), 31, 7)
    shared, again = agree(other, public_bytes(victim)), agree(other, copied)
    assert shared == again
    assert pair_mask_key(shared, b"c", 0, 1) != pair_mask_key(again, b"c", 0, 2)
    sealed = Seal.of(shared, b"c", 0, 1).close(5, 6)
    refuses(WireError, Seal.of(again, b"c", 0, 2).open, sealed)


def test_a_key_advertised_twice_is_noticed_in_any_encoding() -> None:
    world = World(small_plan())
    first, second = world.plan.users[:2]
    message = world.answer("advertise", first)
    world.server.receive(first, message)
    taken = wire.decode(wire.Advertisement, message, plan=world.plan).advertised.mask_key
    answer = wire.decode(wire.Advertisement, world.answer("advertise", second), plan=world.plan)
    copied = replace(answer.advertised, mask_key=flipped(taken, 31, 7))
    with pytest.raises(FaultyUserError, match="canonical"):
        world.server.receive(second, wire.encode(replace(answer, advertised=copied)))


# --- ChaCha20-Poly1305, as it seals shares ------------------------------------------------------------------------

SHARED, CONTEXT, PAIR = bytes(range(32)), b"c" * 32, (PRIME - 12345, PRIME // 3)
PLAINTEXT = b"".join(map(element_to_bytes, PAIR))


def make_seal() -> Seal:
    return Seal.of(SHARED, CONTEXT, 1, 2)


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


NOT_ELEMENTS = {f"p + {rest}": little(PRIME + rest) for rest in range(19)} | {
    "2^255": little(1 << 255),
    "2^255 + 1, an element with the unused bit set": little((1 << 255) + 1),
    "p with the unused bit set": little(PRIME | HIGH_BIT),
    "2p": little(2 * PRIME),
    "2^256 - 1": b"\xff" * 32,
}
NOT_ELEMENTS |= {f"{size} zero bytes": bytes(size) for size in (*range(32), *range(33, 41), 64, 1024)}
NOT_ELEMENTS |= {"an element and a byte more": little(5) + b"\x00"}


@cases(NOT_ELEMENTS)
def test_what_is_no_field_element_is_refused(case: bytes) -> None:
    refuses(WireError, element_from_bytes, case)


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


NO_ELEMENTS = {"-1": -1, "p": PRIME, "p + 1": PRIME + 1, "2^255": 1 << 255, "2^256": 1 << 256, "-p": -PRIME}


@cases(NO_ELEMENTS)
def test_a_number_that_is_no_element_is_not_encoded(case: int) -> None:
    refuses(UsageError, element_to_bytes, case)
    refuses(UsageError, make_seal().close, case, 7)
    refuses(UsageError, make_seal().close, 7, case)
    refuses(UsageError, self_mask_key, case, CONTEXT, 1)
    refuses(UsageError, random_polynomial, case, 2)


# --- Ed25519 ------------------------------------------------------------------------------------------------------

SEED = bytes(range(32))
SIGNED = ("survivors", b"context", b"set")

_D = -121665 * pow(121666, -1, PRIME) % PRIME
_ROOT = pow(2, (PRIME - 1) // 4, PRIME)
Point = tuple[int, int]


class Parts(NamedTuple):
    """A signature's two halves."""

    r: bytes
    s: int

    def joined(self) -> bytes:
        return self.r + little(self.s)


def add(one: Point, other: Point) -> Point:
    """Edwards addition, RFC 8032, section 5.1.4, in plain coordinates."""
    (x1, y1), (x2, y2) = one, other
    product = _D * x1 * x2 * y1 * y2 % PRIME
    x = (x1 * y2 + x2 * y1) * pow(1 + product, -1, PRIME) % PRIME
    return x, (y1 * y2 + x1 * x2) * pow(1 - product, -1, PRIME) % PRIME


def encode(point: Point) -> int:
    x, y = point
    return y | (x & 1) << 255


def decode(y: int, sign: int) -> Point:
    square = (y * y - 1) * pow(_D * y * y + 1, -1, PRIME) % PRIME
    x = pow(square, (PRIME + 3) // 8, PRIME)
    if x * x % PRIME != square:
        x = x * _ROOT % PRIME
    return (PRIME - x if x & 1 != sign and x else x), y


def secret_scalar(seed: bytes) -> int:
    return clamped(hashlib.sha512(seed).digest()[:32])


def challenge(r: bytes, public: bytes, *signed: Any) -> int:
    label, *parts = signed
    hashed = hashlib.sha512(r + public + digest(f"sign/{label}", *parts)).digest()
    return int.from_bytes(hashed, "little") % CURVE_ORDER


def signed_parts() -> tuple[Identity, Parts]:
    identity = Identity.from_private_bytes(SEED)
    label, *parts = SIGNED
    signature = identity.sign(label, *parts)
    return identity, Parts(signature[:32], int.from_bytes(signature[32:], "little"))


RFC_8032 = {
    "section 7.1, test 1": (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
    ),
    "section 7.1, test 2": (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
    ),
    "section 7.1, test 3": (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
    ),
}


@cases(RFC_8032)
def test_ed25519_key_pairs(case: tuple[str, str]) -> None:
    seed, public = map(bytes.fromhex, case)
    identity = Identity.from_private_bytes(seed)
    assert identity.public == public
    assert identity.sign("x", b"a") == Identity.from_private_bytes(seed).sign("x", b"a")
    verify(public, identity.sign("x", b"a"), "x", b"a")


MALLEABLE: dict[str, Callable[[int], int]] = {
    f"s + {times} L, the same modulo the order": lambda s, times=times: s + times * CURVE_ORDER
    for times in range(1, 15)
}
MALLEABLE |= {
    "-s": lambda s: CURVE_ORDER - s,
    "s = 0": lambda s: 0,
    "s = 1": lambda s: 1,
    "s = L - 1": lambda s: CURVE_ORDER - 1,
    "s = L, which is 0": lambda s: CURVE_ORDER,
    "s = L + 1": lambda s: CURVE_ORDER + 1,
    "s = 2^252": lambda s: 1 << 252,
    "s = p": lambda s: PRIME,
    "s = 2^256 - 1": lambda s: 2**256 - 1,
    "bit 253 set": lambda s: s | 1 << 253,
    "bit 254 set": lambda s: s | 1 << 254,
    "bit 255 set": lambda s: s | 1 << 255,
}


@cases(MALLEABLE)
def test_another_s_is_refused(case: Callable[[int], int]) -> None:
    identity, parts = signed_parts()
    refuses(WireError, verify, identity.public, Parts(parts.r, case(parts.s)).joined(), *SIGNED)


FOREIGN_R = {
    "R = 0": little(0),
    "R the neutral element": little(1),
    "R = p - 1, order 2": little(PRIME - 1),
    "R = p, not reduced": little(PRIME),
    "R = p + 1, the neutral element not reduced": little(PRIME + 1),
    "R the neutral element with a sign": little(1 | HIGH_BIT),
    "R = 2, not on the curve": little(2),
    "R all ones": b"\xff" * 32,
    "R the public key": Identity.from_private_bytes(SEED).public,
    "R of another message": Identity.from_private_bytes(SEED).sign("survivors", b"other")[:32],
}


@cases(FOREIGN_R)
def test_another_r_is_refused(case: bytes) -> None:
    identity, parts = signed_parts()
    for s in (parts.s, 0):
        refuses(WireError, verify, identity.public, Parts(case, s).joined(), *SIGNED)


@cases(
    {
        "R = p + 1, the neutral element not reduced": PRIME + 1,
        "R = 1 with a sign, though x = 0 has none": 1 | HIGH_BIT,
        "R = p + 1 with a sign": (PRIME + 1) | HIGH_BIT,
    }
)
def test_the_owner_cannot_sign_with_an_r_of_another_encoding(case: int) -> None:
    """With nonce 0 the owner's R is the neutral element. Encoded as it must be it holds, in no other way."""
    identity, _ = signed_parts()
    for encoded, holds in ((1, True), (case, False)):
        r = little(encoded)
        s = challenge(r, identity.public, *SIGNED) * secret_scalar(SEED) % CURVE_ORDER
        if holds:
            verify(identity.public, Parts(r, s).joined(), *SIGNED)
        else:
            refuses(WireError, verify, identity.public, Parts(r, s).joined(), *SIGNED)


@each("place", range(64))
def test_a_flipped_byte_of_a_signature_is_refused(place: int) -> None:
    identity, parts = signed_parts()
    for bit in range(8):
        refuses(WireError, verify, identity.public, flipped(parts.joined(), place, bit), *SIGNED)


@each("place", range(32))
def test_a_flipped_byte_of_a_public_key_is_refused(place: int) -> None:
    identity, parts = signed_parts()
    for bit in range(8):
        refuses(WireError, verify, flipped(identity.public, place, bit), parts.joined(), *SIGNED)


@each("size", [*range(64), *range(65, 73), 128, 1 << 16])
def test_a_signature_of_another_length_is_refused(size: int) -> None:
    identity, parts = signed_parts()
    refuses(WireError, verify, identity.public, (parts.joined() + bytes(size))[:size], *SIGNED)


@each("size", [*range(32), *range(33, 41), 64, 1 << 16])
def test_an_identity_of_another_length_is_refused(size: int) -> None:
    identity, parts = signed_parts()
    refuses(WireError, verify, (identity.public + bytes(size))[:size], parts.joined(), *SIGNED)


MADE_UP = {
    "all zero": bytes(64),
    "all ones": b"\xff" * 64,
    "halves swapped": signed_parts()[1].joined()[32:] + signed_parts()[1].joined()[:32],
    "R and R": signed_parts()[1].r * 2,
    "of another identity": Identity.from_private_bytes(bytes(32)).sign("survivors", b"context", b"set"),
    "in reverse order": signed_parts()[1].joined()[::-1],
}


@cases(MADE_UP)
def test_a_made_up_signature_is_refused(case: bytes) -> None:
    refuses(WireError, verify, signed_parts()[0].public, case, *SIGNED)


OTHER_MEANING: dict[str, tuple[str | bytes, ...]] = {
    "another label": ("advertise", b"context", b"set"),
    "a label that takes the next part": ("survivorscontext", b"set"),
    "an empty label": ("", b"context", b"set"),
    "another context": ("survivors", b"contexu", b"set"),
    "another set": ("survivors", b"context", b"seu"),
    "parts swapped": ("survivors", b"set", b"context"),
    "parts joined": ("survivors", b"contextset"),
    "parts cut elsewhere": ("survivors", b"contexts", b"et"),
    "a part left out": ("survivors", b"context"),
    "no parts": ("survivors",),
    "an empty part more": ("survivors", b"context", b"set", b""),
    "an empty part in front": ("survivors", b"", b"context", b"set"),
    "a zero byte more": ("survivors", b"context", b"set\x00"),
}


@cases(OTHER_MEANING)
def test_a_signature_does_not_hold_for_something_else(case: tuple[Any, ...]) -> None:
    identity, parts = signed_parts()
    verify(identity.public, parts.joined(), *SIGNED)
    refuses(WireError, verify, identity.public, parts.joined(), *case)


# y of the points of order 8: d y^4 + 2 y^2 - 1 = 0
EIGHT_Y = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
SMALL_ORDER = {
    "the neutral element": 1,
    "order 2": PRIME - 1,
    "order 4": 0,
    "order 4, the other sign": HIGH_BIT,
    "order 8, first": EIGHT_Y,
    "order 8, second": EIGHT_Y | HIGH_BIT,
    "order 8, third": PRIME - EIGHT_Y,
    "order 8, fourth": (PRIME - EIGHT_Y) | HIGH_BIT,
    "the neutral element with a sign": 1 | HIGH_BIT,
    "order 2 with a sign": (PRIME - 1) | HIGH_BIT,
    "the neutral element not reduced": PRIME + 1,
    "the neutral element not reduced, with a sign": (PRIME + 1) | HIGH_BIT,
    "order 4 not reduced": PRIME,
    "order 4 not reduced, the other sign": PRIME | HIGH_BIT,
}


@cases(SMALL_ORDER)
def test_a_key_of_small_order_is_anybodys(case: int) -> None:
    """`cryptography` takes such keys, and who pins one pins a key that everybody can sign for: R and s = 0 will do.

    That gives an attacker nothing over others: directories are pinned, an honest user's key comes from `Identity`,
    and a user who registers such a key has done no more than publish its own private key. A directory refuses it all
    the same: it may be an entry that was never filled in.
    """
    public = little(case)
    refuses(UsageError, check_identity, public)
    torsion = (encode(decode(y % HIGH_BIT % PRIME, y >> 255)) for y in list(SMALL_ORDER.values())[:8])
    candidates = [little(y) for y in torsion]

    def holds(r: bytes, message: bytes) -> bool:
        try:
            verify(public, r + bytes(32), "survivors", message)
        except WireError:
            return False
        return True

    assert any(holds(r, bytes([number])) for number in range(64) for r in candidates)


@cases(SMALL_ORDER)
def test_a_point_of_small_order_signs_nothing_for_an_honest_key(case: int) -> None:
    identity, parts = signed_parts()
    refuses(WireError, verify, identity.public, little(case) + bytes(32), *SIGNED)
    refuses(WireError, verify, identity.public, little(case) + little(parts.s), *SIGNED)
    refuses(WireError, verify, little(case), parts.joined(), *SIGNED)


def test_the_table_of_small_orders_is_right() -> None:
    for number in SMALL_ORDER.values():
        point = decode(number % HIGH_BIT % PRIME, number >> 255)
        for _ in range(3):
            point = add(point, point)
        assert point == (0, 1)
    assert len({decode(number % HIGH_BIT % PRIME, number >> 255) for number in SMALL_ORDER.values()}) == 8


@cases({"y = 2": 2, "y = 7": 7, "y = p + 2, not reduced": PRIME + 2, "y = 2 with a sign": 2 | HIGH_BIT})
def test_a_key_that_is_no_point_is_refused(case: int) -> None:
    refuses(WireError, verify, little(case), signed_parts()[1].joined(), *SIGNED)
    refuses(WireError, verify, little(case), little(1) + bytes(32), *SIGNED)


# --- Shamir's shares ----------------------------------------------------------------------------------------------

BAD_PLACES = {
    "the same place twice": (1, 1),
    "the same place at both ends": (1, 2, 3, 1),
    "place 0, where the secret is": (0,),
    "place 0 among others": (1, 0, 2),
    "a negative place": (1, -1),
    "all places alike": (7,) * 5,
}


@cases(BAD_PLACES)
def test_bad_places_have_no_coefficients(case: tuple[int, ...]) -> None:
    refuses(UsageError, coefficients, case)


@cases({"0, where the secret is": 0, "-1": -1, "2^20": 1 << 20, "p": PRIME, "p + 1": PRIME + 1, "-p": -PRIME})
def test_no_share_is_taken_at_a_bad_place(case: int) -> None:
    refuses(UsageError, split, [1, 2], [case])
    refuses(UsageError, split, [1, 2], [1, case])
    refuses(UsageError, split_two, [1, 2], [3, 4], [case])


@cases({"0": 0, "-1": -1})
def test_no_secret_is_shared_with_a_threshold_of(case: int) -> None:
    refuses(UsageError, random_polynomial, 1, case)


THRESHOLD, PLACES = 4, (1, 2, 3, 5, 8, 13, 1000, (1 << 20) - 1)
EDGE_ELEMENTS = {"0": 0, "1": 1, "p - 1": PRIME - 1, "2^254": 1 << 254}


def shares_of(secret: int) -> dict[int, int]:
    return dict(zip(PLACES, split(random_polynomial(secret, THRESHOLD), PLACES), strict=True))


def joined(shares: dict[int, int]) -> int:
    return combine(coefficients(tuple(shares)), list(shares.values()))


@cases(EDGE_ELEMENTS)
def test_more_shares_than_needed_agree(case: int) -> None:
    shares = shares_of(case)
    for count in range(THRESHOLD, len(PLACES) + 1):
        assert joined({place: shares[place] for place in PLACES[:count]}) == case
        assert joined({place: shares[place] for place in PLACES[::-1][:count]}) == case


ALTERED: dict[str, Callable[[int], int]] = {
    "one more": lambda share: (share + 1) % PRIME,
    "one less": lambda share: (share - 1) % PRIME,
    "one bit": lambda share: (share ^ 1 << 200) % PRIME,
    "negated": lambda share: PRIME - share,
    "zero": lambda share: 0,
    "doubled": lambda share: 2 * share % PRIME,
}


@each("count", [THRESHOLD, len(PLACES)])
@cases(ALTERED)
def test_one_altered_share_changes_the_secret(case: Callable[[int], int], count: int) -> None:
    secret = 987654321
    shares = {place: share for place, share in shares_of(secret).items() if place in PLACES[:count]}
    for place, share in shares.items():
        assert joined({**shares, place: case(share)}) != secret


@cases(EDGE_ELEMENTS)
def test_a_holder_can_shift_the_secret_by_what_it_likes(case: int) -> None:
    """Why a rebuilt secret is compared with what its dealer published: shares alone show no forgery."""
    shares = shares_of(5)
    chosen = {place: shares[place] for place in PLACES[:THRESHOLD]}
    weight = coefficients(tuple(chosen))[0]
    first = PLACES[0]
    chosen[first] = (chosen[first] + (case - 5) * pow(weight, -1, PRIME)) % PRIME
    assert joined(chosen) == case


def test_shares_at_swapped_places_give_another_secret() -> None:
    shares = shares_of(5)
    one, two, three, four = PLACES[:4]
    assert joined({one: shares[two], two: shares[one], three: shares[three], four: shares[four]}) != 5


@cases({"all coefficients 0": [0] * 14, "all p - 1": [PRIME - 1] * 14, "a secret alone": [PRIME - 1]})
def test_polynomials_at_the_edge(case: list[int]) -> None:
    places = [1, 2, (1 << 20) - 1]
    expected = [sum(c * pow(x, i, PRIME) for i, c in enumerate(case)) % PRIME for x in places]
    assert split(case, places) == expected
    assert split_two(case, case[::-1], places)[0][0] == expected[0]


# --- AES-256 in counter mode --------------------------------------------------------------------------------------

STREAM_KEY = bytes(range(0x60, 0x80))

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


# --- misuse that does not yet say so ------------------------------------------------------------------------------


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
