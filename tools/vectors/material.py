"""What the test vectors are made from: secrets and numbers that are hashes of their names, and how a file is written.

Nothing here is random, so that a rerun gives the same bytes. Never use a value of these files for anything but tests.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from heterosag.crypto.field import PRIME, element_to_bytes
from heterosag.crypto.identity import Identity
from heterosag.crypto.keys import RoundSecrets, mask_private_key
from heterosag.protocol.messages import WIRE_VERSION

FORMAT = 1
_WIDE = 116  # characters of a line of scalars; a longer hexadecimal string stands alone


def hashed(*name: object) -> bytes:
    """32 bytes that stand for something secret or random, from its name."""
    return sha256(b"heterosag test vectors/" + "/".join(map(str, name)).encode()).digest()


def stream(size: int, *name: object) -> bytes:
    """Any number of such bytes."""
    blocks = (hashed(*name, "block", number) for number in range(-(-size // 32)))
    return b"".join(blocks)[:size]


def element(*name: object) -> int:
    """A field element from its name."""
    return int.from_bytes(hashed(*name), "little") % PRIME


def whole(below: int, *name: object) -> int:
    """An integer from its name."""
    return int.from_bytes(hashed(*name), "little") % below


def fraction(low: float, high: float, *name: object) -> float:
    """A number of few digits between two others, from its name."""
    return round(low + (high - low) * whole(2**32, *name) / 2**32, 4)


def polynomial(constant: int, threshold: int, *name: object) -> list[int]:
    """The coefficients of a sharing polynomial, constant first."""
    return [constant, *(element(*name, "coefficient", power) for power in range(1, threshold))]


def round_secrets(*name: object) -> RoundSecrets:
    """A user's secrets of one round."""
    mask_secret = element(*name, "sigma_mask")
    return RoundSecrets(
        mask_secret=mask_secret,
        self_secret=element(*name, "sigma_self"),
        mask_key=mask_private_key(mask_secret),
        seal_key=X25519PrivateKey.from_private_bytes(hashed(*name, "seal private key")),
    )


def identity(*name: object) -> Identity:
    """A user's signing key."""
    return Identity.from_private_bytes(hashed(*name, "identity"))


def elements_hex(elements: Iterable[int]) -> list[str]:
    """Field elements as they are written."""
    return [element_to_bytes(one).hex() for one in elements]


def document(about: str, cases: Sequence[dict[str, Any]], must_fail: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """A file of vectors."""
    return {
        "about": about,
        "cases": list(cases),
        "format": FORMAT,
        "must_fail": list(must_fail),
        "wire_version": WIRE_VERSION,
    }


def render(value: Any, indent: int = 0) -> str:
    """JSON with sorted keys, where what fits stands in one line."""
    line = json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)
    if not isinstance(value, (dict, list)) or not value or (indent and len(line) + indent <= _WIDE):
        return line
    pad = " " * (indent + 1)
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {render(value[key], indent + 1)}" for key in sorted(value)]
        return "{\n" + ",\n".join(pad + part for part in parts) + "\n" + " " * indent + "}"
    if all(isinstance(part, (int, float)) for part in value):
        return "[\n" + _filled(value, pad) + "\n" + " " * indent + "]"
    return "[\n" + ",\n".join(pad + render(part, indent + 1) for part in value) + "\n" + " " * indent + "]"


def _filled(numbers: Sequence[float], pad: str) -> str:
    """Many numbers, as many a line as fit."""
    lines, current = [], pad
    for place, number in enumerate(numbers):
        word = json.dumps(number) + ("," if place < len(numbers) - 1 else "")
        if len(current) + len(word) > _WIDE and current.strip():
            lines.append(current.rstrip())
            current = pad
        current += word + " "
    return "\n".join([*lines, current.rstrip()])
