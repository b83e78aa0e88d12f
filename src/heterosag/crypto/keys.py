"""A user's secrets of one round, and what is derived from them.

Two X25519 pairs, so that a revealed mask key opens nothing: one derived from the shared secret sigma_mask, for pair
masks; one of its own, for sealing shares. Two shared secrets, uniform field elements: sigma_mask, which the server
rebuilds when the user drops out, and sigma_self, which it rebuilds when the user survives; never both.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from heterosag.crypto.field import PRIME, element_to_bytes, random_element
from heterosag.crypto.hashing import derive, index_bytes
from heterosag.crypto.secret import Secret
from heterosag.errors import WireError

__all__ = [
    "PUBLIC_KEY_SIZE",
    "RoundSecrets",
    "exchange_keys",
    "check_public_key",
    "is_canonical",
    "mask_private_key",
    "pair_mask_key",
    "public_bytes",
    "self_mask_key",
]

PUBLIC_KEY_SIZE = 32

_PROBE = X25519PrivateKey.from_private_bytes(bytes(range(32)))  # no secret: any scalar shows a low-order point


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSecrets(Secret):
    """Everything secret that a user draws for one round. Nothing of it is shown by repr or can be pickled."""

    mask_secret: int = field(repr=False)
    self_secret: int = field(repr=False)
    mask_key: X25519PrivateKey = field(repr=False)
    seal_key: X25519PrivateKey = field(repr=False)

    @classmethod
    def generate(cls) -> RoundSecrets:
        """Fresh secrets from the operating system's entropy."""
        mask_secret = random_element()
        return cls(
            mask_secret=mask_secret,
            self_secret=random_element(),
            mask_key=mask_private_key(mask_secret),
            seal_key=X25519PrivateKey.generate(),
        )


def mask_private_key(mask_secret: int) -> X25519PrivateKey:
    """The mask pair's private key, derived from sigma_mask: whoever rebuilds the secret has the key."""
    return X25519PrivateKey.from_private_bytes(derive("mask-private-key", element_to_bytes(mask_secret)))


def public_bytes(key: X25519PrivateKey) -> bytes:
    """The public key of a pair, 32 bytes."""
    return key.public_key().public_bytes_raw()


def exchange_keys(mine: X25519PrivateKey, theirs: bytes) -> bytes:
    """The Diffie-Hellman secret; refuses a public key of the wrong length or of low order."""
    try:
        return mine.exchange(X25519PublicKey.from_public_bytes(theirs))
    except ValueError as error:
        raise WireError(f"not a usable X25519 public key: {error}") from None


def check_public_key(key: bytes) -> None:
    """Refuse a public key that no agreement can use (low order): it would stop everybody who meets it.

    And one that is not the canonical encoding of its number: X25519 would take it for another key's twin.
    """
    if not is_canonical(key):
        raise WireError("not the canonical encoding of an X25519 public key")
    exchange_keys(_PROBE, key)


def is_canonical(key: bytes) -> bool:
    """Whether these bytes are the one encoding of their point's coordinate: below the prime, unused bit clear."""
    return int.from_bytes(key, "little") < PRIME


def pair_mask_key(shared: bytes, context: bytes, one: int, other: int) -> bytes:
    """The keystream key of two users under the context of the users who shared (c2)."""
    return derive("pair-mask", shared, context, index_bytes(min(one, other), max(one, other)))


def self_mask_key(self_secret: int, context: bytes, user: int) -> bytes:
    """The keystream key of a user's own mask under c2."""
    return derive("self-mask", element_to_bytes(self_secret), context, index_bytes(user))
