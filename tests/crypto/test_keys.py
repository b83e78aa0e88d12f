"""Keys of a round: X25519 by its vectors, and every point that a hostile sender can put there."""

from __future__ import annotations

import pytest
from cases import each
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hostile import CURVE_ORDER, HIGH_BIT, cases, clamped, flipped, little, refuses
from msgspec.structs import replace
from rounds import World, small_plan

from heterosag.crypto.field import PRIME
from heterosag.crypto.keys import (
    RoundSecrets,
    check_public_key,
    exchange_keys,
    is_canonical,
    mask_private_key,
    pair_mask_key,
    public_bytes,
    self_mask_key,
)
from heterosag.crypto.seal import Seal
from heterosag.errors import FaultyUserError, WireError
from heterosag.protocol import messages as wire


def test_x25519_of_rfc_7748() -> None:
    """Section 6.1: Alice and Bob."""
    alice = X25519PrivateKey.from_private_bytes(
        bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
    )
    bob_public = bytes.fromhex("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f")
    assert public_bytes(alice).hex() == "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    assert exchange_keys(alice, bob_public).hex() == "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"


LOW_ORDER_KEYS = [
    bytes(32),
    b"\x01" + bytes(31),
    bytes.fromhex("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
]


@each("key", [*LOW_ORDER_KEYS, b"short", bytes(33)])
def test_public_keys_of_low_order_or_wrong_length_are_refused(key: bytes) -> None:
    with pytest.raises(WireError, match="X25519"):
        exchange_keys(X25519PrivateKey.generate(), key)
    with pytest.raises(WireError, match="X25519"):
        check_public_key(key)


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


TWIST_ORDER = (2 * PRIME + 2 - 8 * CURVE_ORDER) // 4


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
    refuses(WireError, exchange_keys, X25519PrivateKey.from_private_bytes(scalar), little(case))


@cases(LOW_ORDER)
def test_a_point_of_low_order_cannot_be_advertised(case: int) -> None:
    refuses(WireError, check_public_key, little(case))


@each("size", [*range(32), *range(33, 41), 64, 65, 1 << 16])
def test_a_public_key_of_another_length_is_refused(size: int) -> None:
    key = (b"\x09" + bytes(size))[:size]
    refuses(WireError, check_public_key, key)
    refuses(WireError, exchange_keys, X25519PrivateKey.generate(), key)


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
    assert exchange_keys(private, little(case)) == little(ladder(clamped(scalar), u))
    assert exchange_keys(private, little(case ^ HIGH_BIT)) == exchange_keys(private, little(case))
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
    assert exchange_keys(X25519PrivateKey.from_private_bytes(scalar), little(key)) == little(case)


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
    assert exchange_keys(X25519PrivateKey.from_private_bytes(scalar), u) == secret


def test_x25519_a_thousand_times() -> None:
    """RFC 7748, section 5.2: every secret is the next scalar, every scalar the next point."""
    scalar = u = little(9)
    for turn in range(1000):
        scalar, u = exchange_keys(X25519PrivateKey.from_private_bytes(scalar), u), scalar
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
    shared, again = exchange_keys(other, public_bytes(victim)), exchange_keys(other, copied)
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
