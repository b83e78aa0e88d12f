"""GF(2^255-19): the field of the shared secrets, and its elements as bytes.

A user's two shared secrets are uniform elements of this field, drawn as numbers below the prime. (32 random bytes
exceed the prime half the time, and clamped X25519 scalars are not uniform among its elements: neither would do.)
"""

from __future__ import annotations

import secrets

from heterosag.errors import UsageError, WireError

__all__ = ["ELEMENT_SIZE", "PRIME", "element_from_bytes", "element_to_bytes", "random_element"]

PRIME = 2**255 - 19
ELEMENT_SIZE = 32


def random_element() -> int:
    """A uniform element from the operating system's entropy."""
    return secrets.randbelow(PRIME)


def element_to_bytes(element: int) -> bytes:
    """The one encoding of an element: 32 little-endian bytes of a number below the prime."""
    if not 0 <= element < PRIME:
        raise UsageError("not an element of the field")
    return element.to_bytes(ELEMENT_SIZE, "little")


def element_from_bytes(data: bytes) -> int:
    """The inverse; refuses a wrong length and numbers that are not below the prime."""
    element = int.from_bytes(data, "little")
    if len(data) != ELEMENT_SIZE or element >= PRIME:
        raise WireError("not the encoding of a field element")
    return element
