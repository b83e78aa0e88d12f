"""Sealing a share for its holder: ChaCha20-Poly1305 under a key of one direction.

The key is derived from the sealing pairs' Diffie-Hellman secret, the context c1, and dealer and holder in that order,
so that a seal reflected to its sender, moved to another pair or kept for another round does not open. The two kinds of
share have their own nonce and associated data.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from heterosag.crypto.field import ELEMENT_SIZE, element_from_bytes, element_to_bytes
from heterosag.crypto.hashing import derive, index_bytes
from heterosag.crypto.secret import Secret
from heterosag.errors import UsageError, WireError

__all__ = ["KINDS", "SEALED_SIZE", "Seal"]

KINDS = ("mask", "self")
SEALED_SIZE = ELEMENT_SIZE + 16
_NONCES = {"mask": bytes(12), "self": bytes(11) + b"\x01"}


@dataclass(frozen=True, slots=True)
class Seal(Secret):
    """The sealing key of one dealer towards one holder in one context; each kind is sealed once."""

    _cipher: ChaCha20Poly1305 = field(repr=False)
    _bound: bytes = field(repr=False)

    @classmethod
    def of(cls, shared: bytes, context: bytes, dealer: int, holder: int) -> Seal:
        """The seal from the sealing pairs' Diffie-Hellman secret."""
        if dealer < 0 or holder < 0:
            raise UsageError(f"dealer and holder are roster indices, not {dealer} and {holder}")
        pair = index_bytes(dealer, holder)
        return cls(ChaCha20Poly1305(derive("seal", shared, context, pair)), context + pair)

    def close(self, kind: str, share: int) -> bytes:
        """Seal a share of the given kind."""
        return self._cipher.encrypt(_nonce(kind), element_to_bytes(share), self._bound + kind.encode())

    def open(self, kind: str, sealed: bytes) -> int:
        """The share; a `WireError` for anything that this dealer did not seal for this holder, context and kind."""
        try:
            return element_from_bytes(self._cipher.decrypt(_nonce(kind), sealed, self._bound + kind.encode()))
        except InvalidTag:
            raise WireError("a sealed share does not open") from None


def _nonce(kind: str) -> bytes:
    if kind not in _NONCES:
        raise UsageError(f"shares are of the kinds {', '.join(KINDS)}, not {kind!r}")
    return _NONCES[kind]
