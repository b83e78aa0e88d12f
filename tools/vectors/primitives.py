"""Vectors of the cryptographic steps: labels, keys, signatures, seals, shares."""

from __future__ import annotations

from typing import Any

from material import document, element, elements_hex, hashed, identity, polynomial, stream

from heterosag.crypto import hashing, shamir
from heterosag.crypto.field import PRIME, element_to_bytes
from heterosag.crypto.keys import exchange_keys, mask_private_key, pair_mask_key, public_bytes, self_mask_key
from heterosag.crypto.seal import Seal
from heterosag.protocol.context import survivors_bytes

Document = dict[str, Any]

C1, C2 = hashed("context c1"), hashed("context c2")

_ORDER_8 = "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"
LOW_ORDER = {
    "zero": bytes(32).hex(),
    "one": (b"\x01" + bytes(31)).hex(),
    "order 8": _ORDER_8,
    "order 8, the other": "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    "minus one": element_to_bytes(PRIME - 1).hex(),
    "the prime, not reduced": PRIME.to_bytes(32, "little").hex(),
    "the prime and one, not reduced": (PRIME + 1).to_bytes(32, "little").hex(),
}


def labelled() -> Document:
    """hashing.json."""
    lists = [[], [b""], [b"", b""], [b"abc"], [b"a", b"bc"], [b"ab", b"c"], [stream(100, "long part")]]
    cases: list[Document] = [
        {
            "function": "digest",
            "label": "example",
            "parts": [part.hex() for part in parts],
            "result": hashing.digest("example", *parts).hex(),
        }
        for parts in lists
    ]
    secret = hashed("input key material")
    for label, parts in (("example", []), ("example", [b"abc"]), ("other", [b"abc"]), ("example", [b"a", b"bc"])):
        derived = hashing.derive(label, secret, *parts).hex()
        hexed = [part.hex() for part in parts]
        cases.append({"function": "derive", "label": label, "parts": hexed, "secret": secret.hex(), "result": derived})
    cases += [
        {"function": "index_bytes", "numbers": numbers, "result": hashing.index_bytes(*numbers).hex()}
        for numbers in ([0], [1, 258], [2**32, 2**64 - 1], [])
    ]
    for kind, dealer, holder in (("mask", 0, 3), ("self", 0, 3), ("mask", 3, 0), ("secret", 5, 5)):
        value = element_to_bytes(element("committed", kind))
        cases.append(
            {
                "function": "commit",
                "kind": kind,
                "context": C1.hex(),
                "dealer": dealer,
                "holder": holder,
                "value": value.hex(),
                "result": hashing.commit(kind, C1, dealer, holder, value).hex(),
            }
        )
    about = (
        "Labelled SHA-256 and HKDF-SHA256 over lists of parts, each behind its length. "
        "Also eight-byte numbers, and the commitments made of them."
    )
    return document(about, cases)


def keys() -> Document:
    """keys.json."""
    people = [(3, "anna"), (10, "ben")]
    cases: list[Document] = []
    private, public = {}, {}
    for index, name in people:
        mask_secret, self_secret = element(name, "sigma_mask"), element(name, "sigma_self")
        private[index] = mask_private_key(mask_secret)
        public[index] = public_bytes(private[index])
        cases.append(
            {
                "function": "mask_private_key",
                "mask_secret": element_to_bytes(mask_secret).hex(),
                "private": private[index].private_bytes_raw().hex(),
                "public": public[index].hex(),
            }
        )
        cases.append(
            {
                "function": "self_mask_key",
                "self_secret": element_to_bytes(self_secret).hex(),
                "context": C2.hex(),
                "user": index,
                "key": self_mask_key(self_secret, C2, index).hex(),
            }
        )
    for (mine, _), (other, _) in ((people[0], people[1]), (people[1], people[0])):
        shared = exchange_keys(private[mine], public[other])
        cases.append(
            {
                "function": "pair_mask_key",
                "private": private[mine].private_bytes_raw().hex(),
                "public": public[other].hex(),
                "shared": shared.hex(),
                "context": C2.hex(),
                "user": mine,
                "other": other,
                "adds": mine < other,
                "key": pair_mask_key(shared, C2, mine, other).hex(),
            }
        )
    must_fail = [
        {"name": f"low order: {name}", "step": "agree", "bytes": key, "error": "WireError"}
        for name, key in LOW_ORDER.items()
    ]
    must_fail += [
        {"name": f"{size} bytes", "step": "agree", "bytes": bytes(range(1, size + 1)).hex(), "error": "WireError"}
        for size in (0, 31, 33)
    ]
    twin = public[10][:31] + bytes([public[10][31] ^ 0x80])
    for name, key in (("the unused bit set", twin), ("not reduced", (2**255 - 10).to_bytes(32, "little"))):
        must_fail.append({"name": name, "step": "agree", "bytes": key.hex(), "error": "WireError"})
    about = (
        "From the shared secrets to the mask key pair, the agreement and the keystream keys. "
        "A public key of low order, of another length than 32 bytes, or not canonical must be refused."
    )
    return document(about, cases, must_fail)


def signatures() -> Document:
    """signatures.json."""
    signer = identity("signer")
    c0 = hashed("context c0")
    purposes = {
        "advertise": [c0, hashing.index_bytes(4), hashed("seal key"), hashed("mask key")],
        "masked": [C2, hashing.index_bytes(4)],
        "survivors": [C2, survivors_bytes([0, 2, 3, 4, 7])],
    }
    cases = [
        {
            "label": label,
            "parts": [part.hex() for part in parts],
            "private": hashed("signer", "identity").hex(),
            "public": signer.public.hex(),
            "signed": hashing.digest(f"sign/{label}", *parts).hex(),
            "signature": signer.sign(label, *parts).hex(),
        }
        for label, parts in purposes.items()
    ]
    base = {name: cases[1][name] for name in ("label", "parts", "public", "signature")}
    signature = bytes.fromhex(base["signature"])
    changes: dict[str, Document] = {
        "another label": {"label": "survivors"},
        "another user": {"parts": [C2.hex(), hashing.index_bytes(5).hex()]},
        "another context": {"parts": [C1.hex(), hashing.index_bytes(4).hex()]},
        "parts joined": {"parts": [(C2 + hashing.index_bytes(4)).hex()]},
        "another key": {"public": identity("somebody else").public.hex()},
        "a changed bit": {"signature": (signature[:-1] + bytes([signature[-1] ^ 1])).hex()},
        "cut": {"signature": signature[:-1].hex()},
        "empty": {"signature": ""},
        "S not reduced": {"signature": _unreduced(signature).hex()},
        "a key of 31 bytes": {"public": signer.public[:-1].hex()},
    }
    must_fail = [{"name": name, **base, **change, "error": "WireError"} for name, change in changes.items()]
    about = (
        "Ed25519 over the labelled digest of the parts, for each of the three things a user signs. "
        "A signature for another label, part, key or of another form must be refused."
    )
    return document(about, cases, must_fail)


def _unreduced(signature: bytes) -> bytes:
    """The same signature with S + L instead of S, which RFC 8032 forbids."""
    order = 2**252 + 27742317777372353535851937790883648493
    return signature[:32] + (int.from_bytes(signature[32:], "little") + order).to_bytes(32, "little")


def sealed() -> Document:
    """seal.json."""
    shared = hashed("sealing agreement")
    cases = []
    for dealer, holder in ((2, 7), (7, 2)):
        pair = element("sealed share", "mask"), element("sealed share", "self")
        cases.append(
            {
                "shared": shared.hex(),
                "context": C1.hex(),
                "dealer": dealer,
                "holder": holder,
                "key": hashing.derive("seal", shared, C1, hashing.index_bytes(dealer, holder)).hex(),
                "associated": (C1 + hashing.index_bytes(dealer, holder)).hex(),
                "nonce": bytes(12).hex(),
                "mask_share": element_to_bytes(pair[0]).hex(),
                "self_share": element_to_bytes(pair[1]).hex(),
                "sealed": Seal.of(shared, C1, dealer, holder).close(*pair).hex(),
            }
        )
    base = {name: cases[0][name] for name in ("shared", "context", "dealer", "holder", "sealed")}
    good = bytes.fromhex(str(base["sealed"]))
    no_element = PRIME.to_bytes(32, "little")
    changes: dict[str, Document] = {
        "bad tag": {"sealed": (good[:-1] + bytes([good[-1] ^ 1])).hex()},
        "bad ciphertext": {"sealed": (bytes([good[0] ^ 1]) + good[1:]).hex()},
        "cut": {"sealed": good[:-1].hex()},
        "empty": {"sealed": ""},
        "halves of the ciphertext swapped": {"sealed": (good[32:64] + good[:32] + good[64:]).hex()},
        "the other direction": {"dealer": 7, "holder": 2},
        "another context": {"context": C2.hex()},
        "another agreement": {"shared": hashed("another agreement").hex()},
        "a mask share that is no field element": {"sealed": _seal_bytes(shared, no_element + bytes(32)).hex()},
        "a self share that is no field element": {"sealed": _seal_bytes(shared, bytes(32) + no_element).hex()},
        "one share alone": {"sealed": _seal_bytes(shared, bytes(32)).hex()},
        "a self share of 31 bytes": {"sealed": _seal_bytes(shared, bytes(63)).hex()},
        "a byte too many": {"sealed": _seal_bytes(shared, bytes(65)).hex()},
    }
    must_fail = [{"name": name, **base, **change, "error": "WireError"} for name, change in changes.items()]
    about = (
        "A pair of shares sealed for its holder by ChaCha20-Poly1305 under a key of one dealer, holder and context. "
        "What was sealed for another place, or is no field element inside, must not open."
    )
    return document(about, cases, must_fail)


def _seal_bytes(shared: bytes, plain: bytes) -> bytes:
    """Bytes that are no pair of shares, sealed as user 2 would seal one for user 7."""
    seal = Seal.of(shared, C1, 2, 7)
    return seal._cipher.encrypt(bytes(12), plain, C1 + hashing.index_bytes(2, 7))


def shared() -> Document:
    """shamir.json."""
    cases = []
    for threshold, places in ((1, [1, 2]), (2, [1, 2, 3]), (3, [1, 4, 6, 20]), (14, [*range(1, 16), 1048575])):
        coefficients = polynomial(element("shared", threshold), threshold, "sharing", threshold)
        shares = shamir.split(coefficients, places)
        chosen = places[-threshold:]
        cases.append(
            {
                "secret": element_to_bytes(coefficients[0]).hex(),
                "threshold": threshold,
                "polynomial": elements_hex(coefficients),
                "places": places,
                "shares": elements_hex(shares),
                "rebuilt_from": chosen,
                "coefficients": elements_hex(shamir.coefficients(tuple(chosen))),
            }
        )
    top = [PRIME - 1] * 3
    cases.append(
        {
            "secret": element_to_bytes(PRIME - 1).hex(),
            "threshold": 3,
            "polynomial": elements_hex(top),
            "places": [1, 2, 3],
            "shares": elements_hex(shamir.split(top, [1, 2, 3])),
            "rebuilt_from": [3, 1, 2],
            "coefficients": elements_hex(shamir.coefficients((3, 1, 2))),
        }
    )
    must_fail: list[Document] = [
        {"name": "the prime", "step": "element", "bytes": PRIME.to_bytes(32, "little").hex(), "error": "WireError"},
        {"name": "all ones", "step": "element", "bytes": "ff" * 32, "error": "WireError"},
        {"name": "31 bytes", "step": "element", "bytes": "00" * 31, "error": "WireError"},
        {"name": "33 bytes", "step": "element", "bytes": "00" * 33, "error": "WireError"},
        {"name": "place 0", "step": "split", "places": [0], "error": "UsageError"},
        {"name": "place 2^20", "step": "split", "places": [2**20], "error": "UsageError"},
        {"name": "a place twice", "step": "coefficients", "places": [2, 2], "error": "UsageError"},
        {"name": "place 0 to rebuild", "step": "coefficients", "places": [0, 1], "error": "UsageError"},
    ]
    about = (
        "Shamir shares over GF(2^255-19): the polynomial's values at roster index + 1, and the secret rebuilt at 0. "
        "Only 32 little-endian bytes below the prime are a field element."
    )
    return document(about, cases, must_fail)
