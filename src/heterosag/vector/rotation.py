"""The randomised Hadamard rotation of a segment: spreads large elements over all, so that few levels lose less.

A segment is cut into pieces whose lengths are powers of two, largest first (a segment of 13 elements into 8, 4 and 1).
In each piece elements get public random signs, then the orthonormal Walsh-Hadamard transform H. H is its own inverse,
so undoing is H and then the signs. Signs come from a labelled hash of the segment's place: everybody computes the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from heterosag.crypto.hashing import digest, index_bytes
from heterosag.crypto.keystream import keystream

__all__ = ["rotate", "unrotate"]


def rotate(values: npt.NDArray[np.floating[Any]], segment: int) -> npt.NDArray[np.float64]:
    """The rotated elements of a segment."""
    rotated = values.astype(np.float64) * _signs(segment, values.size)
    for start, stop in _pieces(values.size):
        _transform(rotated[start:stop])
    return rotated


def unrotate(values: npt.NDArray[np.floating[Any]], segment: int) -> npt.NDArray[np.float64]:
    """The inverse of `rotate`."""
    restored = values.astype(np.float64)
    for start, stop in _pieces(values.size):
        _transform(restored[start:stop])
    restored *= _signs(segment, values.size)
    return restored


def _pieces(size: int) -> Iterator[tuple[int, int]]:
    """Slices of falling powers of two that cover `size` elements."""
    start = 0
    for bit in range(size.bit_length() - 1, -1, -1):
        if size >> bit & 1:
            yield start, start + (1 << bit)
            start += 1 << bit


def _transform(piece: npt.NDArray[np.float64]) -> None:
    """The orthonormal Walsh-Hadamard transform, in place."""
    half = 1
    while half < piece.size:
        pairs = piece.reshape(-1, 2, half)
        lower, upper = pairs[:, 0, :].copy(), pairs[:, 1, :]
        pairs[:, 0, :] += upper
        pairs[:, 1, :] = lower - upper
        half *= 2
    piece /= np.sqrt(piece.size)


@lru_cache(maxsize=512)
def _signs(segment: int, size: int) -> npt.NDArray[np.float64]:
    """Public random signs: bits of the keystream of a labelled hash."""
    stream = np.frombuffer(keystream(digest("rotation", index_bytes(segment, size)), (size + 7) // 8), np.uint8)
    bits = np.unpackbits(stream, count=size, bitorder="little")
    return 1.0 - 2.0 * bits.astype(np.float64)
