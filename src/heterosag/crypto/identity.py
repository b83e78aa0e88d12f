"""Ed25519 identities: who signed what, under a label and a context.

A signature covers the label of its purpose and the parts, each behind its length, so that one made for an
advertisement is never valid for a survivor set, nor one of this round for the next.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from heterosag.crypto.labels import digest
from heterosag.crypto.secrecy import Secret
from heterosag.errors import WireError

__all__ = ["SIGNATURE_SIZE", "Identity", "verify"]

SIGNATURE_SIZE = 64


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
        """An identity from the 32 bytes of its private key, as a deployment provisions it."""
        return cls(Ed25519PrivateKey.from_private_bytes(data))

    @property
    def public(self) -> bytes:
        """The 32 bytes that others pin in their directories."""
        return self._key.public_key().public_bytes_raw()

    def sign(self, label: str, *parts: bytes) -> bytes:
        """Sign the parts for the labelled purpose."""
        return self._key.sign(digest(f"sign/{label}", *parts))


def verify(public: bytes, signature: bytes, label: str, *parts: bytes) -> None:
    """Raise a `WireError` unless the owner of `public` signed these parts for this purpose."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, digest(f"sign/{label}", *parts))
    except (InvalidSignature, ValueError):
        raise WireError(f"a signature for {label} is not valid") from None
