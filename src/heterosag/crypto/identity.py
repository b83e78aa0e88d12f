"""Ed25519 identities: who signed what, under a label and a context.

A signature covers the label of its purpose and the parts, each behind its length, so that one made for an
advertisement is never valid for a survivor set, nor one of this round for the next.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from cryptography.exceptions import InternalError, InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from heterosag.crypto.field import PRIME
from heterosag.crypto.hashing import derive, digest
from heterosag.crypto.secret import Secret
from heterosag.errors import UsageError, WireError

__all__ = ["SIGNATURE_SIZE", "Identity", "check_identity", "check_one_user_each", "verify"]

SIGNATURE_SIZE = 64
PUBLIC_KEY_SIZE = 32
_SMALL_ORDER = frozenset(
    int.from_bytes(bytes.fromhex(y), "little")
    for y in (
        "00" * 32,
        "01" + "00" * 31,
        "ec" + "ff" * 30 + "7f",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    )
)
"""The y coordinates of the eight points whose order divides the cofactor."""

_SCALAR_SIZE = 66  # of the largest NIST curve
_NIST_CURVES = ("secp256r1", "secp384r1", "secp521r1")


@dataclass(frozen=True, slots=True)
class Identity(Secret):
    """A user's long-term signing key. Not shown by repr, cannot be pickled."""

    _key: Ed25519PrivateKey = field(repr=False)

    @classmethod
    def generate(cls) -> Identity:
        """A fresh identity from the operating system's entropy."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_private_bytes(cls, data: bytes) -> Identity:
        """An identity from the 32 bytes of its private key, as a deployment provisions it.

        Args:
            data: The private key, 32 bytes.

        Returns:
            The identity.

        Raises:
            UsageError: The key has another length.
        """
        if len(data) != 32:
            raise UsageError(f"a private key has 32 bytes, not {len(data)}")
        return cls(Ed25519PrivateKey.from_private_bytes(data))

    @classmethod
    def from_key_file(cls, data: bytes) -> Identity:
        """An identity from a private key in PEM or OpenSSH form, without a passphrase.

        An Ed25519 key is the identity. From a NIST curve's key, which Flower's nodes authenticate with, an Ed25519 key
        of its own is derived: the same key file always gives the same identity, which tells nothing about the key.

        Args:
            data: The file's content.

        Returns:
            The identity.

        Raises:
            UsageError: It is no such key, or has a passphrase.
        """
        load = serialization.load_ssh_private_key if b"OPENSSH" in data else serialization.load_pem_private_key
        try:
            key = load(data, None)
        except (ValueError, TypeError, UnsupportedAlgorithm, InternalError):  # the last for a short Ed448 key
            raise UsageError("not a private key in PEM or OpenSSH form, or one with a passphrase") from None
        if isinstance(key, Ed25519PrivateKey):
            return cls(key)
        if not isinstance(key, EllipticCurvePrivateKey) or key.curve.name not in _NIST_CURVES:
            raise UsageError("an identity needs an Ed25519 key, or one of a NIST curve to derive it from")
        number = key.private_numbers().private_value
        seed = derive("identity", number.to_bytes(_SCALAR_SIZE, "big"), key.curve.name.encode())
        return cls.from_private_bytes(seed)

    def to_key_file(self) -> bytes:
        """The private key in PEM form, for a file that only its owner may read."""
        form, cipher = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        return self._key.private_bytes(serialization.Encoding.PEM, form, cipher)

    @property
    def public(self) -> bytes:
        """The 32 bytes that others pin in their directories."""
        return self._key.public_key().public_bytes_raw()

    def sign(self, label: str, *parts: bytes) -> bytes:
        """Sign the parts for the labelled purpose.

        Args:
            label: The purpose; a signature for one counts for no other.
            parts: What is signed, as a list.

        Returns:
            The signature, 64 bytes.
        """
        return self._key.sign(digest(f"sign/{label}", *parts))


def check_identity(public: bytes) -> None:
    """Refuse a public key of the wrong length, or of small order: anybody could sign for that one, zeros for instance.

    A directory is pinned by its owner, so this catches mistakes (an entry never filled in), not attacks.
    """
    if len(public) != PUBLIC_KEY_SIZE:
        raise UsageError(f"an identity's public key has {PUBLIC_KEY_SIZE} bytes, not {len(public)}")
    if (int.from_bytes(public, "little") & (2**255 - 1)) % PRIME in _SMALL_ORDER:
        raise UsageError("an identity's public key is of small order: anybody could sign for it")


def check_one_user_each(owners: Iterable[tuple[object, bytes]]) -> None:
    """Refuse public keys of which two users have the same one: its owner would count twice.

    Args:
        owners: Users and their keys.

    Raises:
        UsageError: Two users have one key.
    """
    known: dict[bytes, object] = {}
    for user, key in owners:
        if known.setdefault(key, user) != user:
            raise UsageError(f"users {known[key]!r} and {user!r} have one key, so they are one user twice")


def verify(public: bytes, signature: bytes, label: str, *parts: bytes) -> None:
    """Raise a `WireError` unless the owner of `public` signed these parts for this purpose."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, digest(f"sign/{label}", *parts))
    except (InvalidSignature, ValueError):
        raise WireError(f"a signature for {label} is not valid") from None
