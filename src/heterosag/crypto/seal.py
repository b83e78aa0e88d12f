"""Sealing a pair of shares for its holder: ChaCha20-Poly1305 under a key of one direction.

The key is derived from the sealing pairs' Diffie-Hellman secret, the context c1, and dealer and holder in that order,
so that a seal reflected to its sender, moved to another pair or kept for another round does not open. A key seals once:
both shares together, the mask share first.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from heterosag.crypto.field import ELEMENT_SIZE, element_from_bytes, element_to_bytes
from heterosag.crypto.hashing import derive, index_bytes
from heterosag.crypto.secret import Secret
from heterosag.errors import UsageError, WireError

__all__ = ["SEALED_SIZE", "Seal"]

SEALED_SIZE = 2 * ELEMENT_SIZE + 16
_NONCE = bytes(12)


@dataclass(frozen=True, slots=True)
class Seal(Secret):
    """The sealing key of one dealer towards one holder in one context, which seals one pair of shares."""

    _cipher: ChaCha20Poly1305 = field(repr=False)
    _bound: bytes = field(repr=False)

    @classmethod
    def of(cls, shared: bytes, context: bytes, dealer: int, holder: int) -> Seal:
        """The seal from the sealing pairs' Diffie-Hellman secret."""
        if dealer < 0 or holder < 0:
            raise UsageError(f"dealer and holder are roster indices, not {dealer} and {holder}")
        pair = index_bytes(dealer, holder)
        return cls(ChaCha20Poly1305(derive("seal", shared, context, pair)), context + pair)

    def close(self, mask_share: int, self_share: int) -> bytes:
        """Seal the shares of both secrets."""
        return self._cipher.encrypt(_NONCE, element_to_bytes(mask_share) + element_to_bytes(self_share), self._bound)

    def open(self, sealed: bytes) -> tuple[int, int]:
        """Both shares; a `WireError` for anything that this dealer did not seal for this holder and context."""
        try:
            pair = self._cipher.decrypt(_NONCE, sealed, self._bound)
        except InvalidTag:
            raise WireError("a sealed pair of shares does not open") from None
        return element_from_bytes(pair[:ELEMENT_SIZE]), element_from_bytes(pair[ELEMENT_SIZE:])
