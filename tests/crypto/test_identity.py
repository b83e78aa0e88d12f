"""Identities: Ed25519 by its vectors, and signatures that a hostile sender can make up."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from cases import each
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hostile import CURVE_ORDER, HIGH_BIT, cases, clamped, flipped, little, refuses

from heterosag.crypto.field import PRIME
from heterosag.crypto.hashing import digest
from heterosag.crypto.identity import Identity, check_identity, verify
from heterosag.errors import UsageError, WireError


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
