"""The randomised Hadamard rotation of a segment: spreads large elements over all, so that few levels lose less.

A segment is cut into pieces whose lengths are powers of two, largest first and none longer than 2^16 (a segment of 13
elements into 8, 4 and 1). In each piece elements get public random signs, then the orthonormal Walsh-Hadamard transform
H. H is its own inverse, so undoing is H and then the signs. Signs come from a labelled hash of the segment's place:
everybody computes the same. What is needed beside the segment itself is a few pieces, however long it is.

H is log2(n) rounds of sums and differences of elements that are 1, 2, 4, ... apart. A piece is seen as a matrix: first
the rounds between its columns, then those between its rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from heterosag.crypto.hashing import digest, index_bytes
from heterosag.crypto.keystream import keystream
from heterosag.errors import UsageError
from heterosag.vector import _numba

__all__ = ["LONGEST", "rotate", "rotate_rows", "unrotate", "unrotate_rows"]

LONGEST = 1 << 16
"""Elements of the longest piece."""

_LONG = 1 << 10  # elements of a row from which it is worth a call of the compiled loop
_FEW = 32  # rows that are worth a call each however short they are

Rows = npt.NDArray[np.float64]
Signs = npt.NDArray[np.int8]


def rotate(values: npt.NDArray[np.floating[Any]], segment: int) -> npt.NDArray[np.float64]:
    """The rotated elements of a segment."""
    rotated: npt.NDArray[np.float64] = rotate_rows(values[None], [segment])[0]
    return rotated


def unrotate(values: npt.NDArray[np.floating[Any]], segment: int) -> npt.NDArray[np.float64]:
    """The inverse of `rotate`."""
    restored = values.astype(np.float64)
    unrotate_rows(restored[None], [segment])
    return restored


def rotate_rows(
    rows: npt.NDArray[np.floating[Any]],
    segments: Sequence[int],
    *,
    start: int = 0,
    size: int | None = None,
    dimension: int = 0,
    out: Rows | None = None,
) -> Rows:
    """Segments of equal size, a row each, rotated: small ones cost less together.

    Args:
        rows: The elements of the segments, or a part of them, from one multiple of `LONGEST` on to another or to the
            end.
        segments: Which segments they are of.
        start: Where in their segments the rows begin.
        size: Elements of a whole segment (default: those of a row).
        dimension: Elements of the vector that is rotated part by part (default: those of the rows); it decides whether
            a compiled loop is worth it, never what comes out.
        out: Gets the rotated rows, and may be the rows themselves (default: a new array).

    Returns:
        The rotated rows.

    Raises:
        UsageError: `out` cannot hold them.
    """
    size = size or rows.shape[1]
    rotated: Rows = np.empty(rows.shape) if out is None else out
    if rotated.shape != rows.shape or rotated.dtype.str != np.dtype(np.float64).str:
        raise UsageError(f"rotated rows of shape {rows.shape} need float64, not {rotated.dtype} of {rotated.shape}")
    for at in range(0, rows.shape[1], LONGEST):
        part = slice(at, at + LONGEST)
        signs = _signs_of(segments, size, start + at, rows[:, part].shape[1])
        _transform(rows[:, part], signs, rotated[:, part], dimension or rows.size)
    return rotated


def unrotate_rows(rows: Rows, segments: Sequence[int], *, dimension: int = 0) -> None:
    """The inverse of `rotate_rows`, of whole segments, in place."""
    for at in range(0, rows.shape[1], LONGEST):
        part = rows[:, at : at + LONGEST]
        _transform(part, np.ones(part.shape, dtype=np.int8), part, dimension or rows.size)
        part *= _signs_of(segments, rows.shape[1], at, part.shape[1])


def _transform(rows: npt.NDArray[np.floating[Any]], signs: Signs, out: Rows, dimension: int) -> None:
    """Signs and the transform of every piece of rows that are at most as long as the longest piece."""
    compiled = _numba.find(_numba.hadamard, dimension) if rows.dtype in _numba.FLOATS else None
    if compiled is not None and (rows.shape[1] >= _LONG or len(rows) <= _FEW):
        for values, own, rotated in zip(rows, signs, out, strict=True):
            compiled(values, own, rotated)
        return
    start = 0
    for bit in range(rows.shape[1].bit_length() - 1, -1, -1):
        length = 1 << bit
        if not rows.shape[1] & length:
            continue
        piece = slice(start, start + length)
        for at in range(0, len(rows), LONGEST // length):
            together = slice(at, at + LONGEST // length)
            out[together, piece] = _transform_together(rows[together, piece], signs[together, piece], 1 << bit // 2)
        start += length


def _transform_together(piece: npt.NDArray[np.floating[Any]], signs: Signs, width: int) -> Rows:
    """Signs and the transform of every row, each seen as a matrix so wide."""
    count, length = piece.shape
    cube = (piece.astype(np.float64, copy=False) * signs * (1 / math.sqrt(length))).reshape(count, -1, width)
    columns = np.ascontiguousarray(cube.transpose(2, 1, 0))
    _add_and_subtract(columns.reshape(width, -1))
    lines = np.ascontiguousarray(columns.transpose(1, 2, 0))
    _add_and_subtract(lines.reshape(length // width, -1))
    return lines.transpose(1, 0, 2).reshape(count, length)


def _add_and_subtract(block: Rows) -> None:
    """The rounds of sums and differences between the rows of a block, in place."""
    height, width = block.shape
    half = 1
    while half < height:
        pairs = block.reshape(-1, 2, half * width)
        differences = pairs[:, 0] - pairs[:, 1]
        pairs[:, 0] += pairs[:, 1]
        pairs[:, 1] = differences
        half *= 2


def _signs_of(segments: Sequence[int], size: int, start: int, count: int) -> Signs:
    """The signs of elements start .. start+count-1 of each segment, a row each."""
    bits = b"".join(_sign_bits(segment, size, start, count) for segment in segments)
    rows = np.frombuffer(bits, dtype=np.uint8).reshape(len(segments), -1)
    signs = np.unpackbits(rows, axis=1, count=count, bitorder="little").view(np.int8)
    signs *= -2
    signs += 1
    return signs


@lru_cache(maxsize=1024)
def _sign_bits(segment: int, size: int, start: int, count: int) -> bytes:
    """Public random bits: of the keystream of a labelled hash."""
    return keystream(digest("rotation", index_bytes(segment, size)), (count + 7) // 8, start=start // 8)
