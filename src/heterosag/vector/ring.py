"""Vectors over Z_{2^b} and their exact-width packing.

A block of s users whose quantizer has K levels and whose weights are at most W sums to at most s*W*(K-1), so it
works in Z_{2^b} with b = bit_length(s*W*(K-1)): the same bits on the wire as the paper's R = s*(K-1)+1 (eq. 4),
and masks that are exactly uniform without rejection.

In memory an element is a *lane*, an unsigned integer of 1, 2, 4 or 8 bytes, the smallest that holds b bits.
On the wire elements are packed back to back: element i occupies bits i*b .. (i+1)*b - 1 of a little-endian bit
string. Eight elements fill exactly b bytes, which is the unit both directions work in. Unused trailing bits of the
last byte are zero, and `unpack` refuses anything else, so that a vector has exactly one encoding.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from heterosag.errors import UsageError, WireError
from heterosag.vector import _numba

__all__ = [
    "MAX_BITS",
    "Lanes",
    "check_packed",
    "lane_dtype",
    "pack",
    "pack_all",
    "pack_into",
    "packed_size",
    "reduce",
    "unpack",
    "unpack_all",
    "width",
]

MAX_BITS = 63
"""Widest ring: a sum fits a signed 64-bit integer, so decoding never needs a wider type."""

Lanes = npt.NDArray[np.unsignedinteger[Any]]

_GROUP = 8  # elements: eight of b bits are b whole bytes
_WORD = 64
_CHUNK_GROUPS = 16384  # keeps the intermediate words inside the second-level cache
_LANE_DTYPES = ((8, np.dtype("<u1")), (16, np.dtype("<u2")), (32, np.dtype("<u4")), (64, np.dtype("<u8")))


def width(users: int, level: int) -> int:
    """Bits of the ring in which `users` users of one block add up without overflow."""
    return (users * (level - 1)).bit_length()


def lane_dtype(bits: int) -> np.dtype[np.unsignedinteger[Any]]:
    """The smallest little-endian unsigned type that holds `bits` bits."""
    _check_bits(bits)
    return next(dtype for size, dtype in _LANE_DTYPES if bits <= size)


def reduce(lanes: Lanes, bits: int) -> Lanes:
    """`lanes` mod 2^bits, in place."""
    if bits < lanes.dtype.itemsize * 8:
        np.bitwise_and(lanes, lanes.dtype.type((1 << bits) - 1), out=lanes)
    return lanes


def packed_size(count: int, bits: int) -> int:
    """Bytes that `count` elements of `bits` bits take on the wire."""
    return (count * bits + 7) // 8


def pack(lanes: Lanes, bits: int) -> bytes:
    """Pack elements, each below 2^bits, into a little-endian bit string of exactly `packed_size` bytes."""
    out = np.empty(packed_size(lanes.size, bits), dtype=np.uint8)
    pack_into(lanes, bits, out)
    return out.tobytes()


def pack_into(lanes: Lanes, bits: int, out: npt.NDArray[np.uint8]) -> None:
    """`pack` into bytes that are there already."""
    dtype = lane_dtype(bits)
    if lanes.ndim != 1 or lanes.dtype.kind != "u":
        raise UsageError(f"pack wants a one-dimensional unsigned array, not {lanes.ndim}-d {lanes.dtype}")
    if bits < lanes.dtype.itemsize * 8 and lanes.size and int(lanes.max()) >> bits:
        raise UsageError(f"an element does not fit in {bits} bits: reduce the vector first")
    lanes = np.ascontiguousarray(lanes, dtype=dtype)
    if bits == dtype.itemsize * 8:
        out[:] = lanes.view(np.uint8)
        return
    if (compiled := _numba.find(_numba.pack_words, lanes.size)) is not None:
        words = np.empty(-(-lanes.size * bits // _WORD), dtype="<u8")
        compiled(lanes, bits, words)
        out[:] = words.view(np.uint8)[: out.size]
        return
    whole = lanes.size // _GROUP
    rows = out[: whole * bits].reshape(whole, bits)
    groups = lanes[: whole * _GROUP].reshape(whole, _GROUP)
    for start in range(0, whole, _CHUNK_GROUPS):
        stop = min(start + _CHUNK_GROUPS, whole)
        _copy_rows(rows[start:stop], _pack_groups(groups[start:stop], bits), bits)
    if lanes.size % _GROUP:
        tail = np.zeros((1, _GROUP), dtype=dtype)
        tail[0, : lanes.size % _GROUP] = lanes[whole * _GROUP :]
        out[whole * bits :] = _pack_groups(tail, bits).reshape(-1)[: out.size - whole * bits]


def check_packed(data: bytes | bytearray | memoryview, bits: int, count: int) -> int:
    """The size of a packed vector, after refusing a wrong length and nonzero trailing bits."""
    size = packed_size(count, bits)
    if len(data) != size:
        raise WireError(f"a vector of {count} elements of {bits} bits takes {size} bytes, not {len(data)}")
    trailing = size * 8 - count * bits
    if trailing and data[size - 1] >> (8 - trailing):
        raise WireError(f"the {trailing} unused trailing bits of a packed vector are not zero")
    return size


def unpack(data: bytes | bytearray | memoryview, bits: int, count: int) -> Lanes:
    """The inverse of `pack`; refuses what `check_packed` refuses."""
    dtype = lane_dtype(bits)
    size = check_packed(data, bits, count)
    if bits == dtype.itemsize * 8:
        return np.frombuffer(data, dtype=dtype).copy()
    if (compiled := _numba.find(_numba.unpack_words, count)) is not None:
        words = np.zeros(size // 8 + 1, dtype="<u8")
        words.view(np.uint8)[:size] = np.frombuffer(data, dtype=np.uint8)
        lanes = np.empty(count, dtype=dtype)
        compiled(words, bits, lanes)
        return lanes
    rows = -(-count // _GROUP)
    padded = np.zeros(rows * bits, dtype=np.uint8)
    padded[:size] = np.frombuffer(data, dtype=np.uint8)
    groups = padded.reshape(rows, bits)
    out = np.empty((rows, _GROUP), dtype=dtype)
    for start in range(0, rows, _CHUNK_GROUPS):
        stop = min(start + _CHUNK_GROUPS, rows)
        out[start:stop] = _unpack_groups(groups[start:stop], bits, dtype)
    return out.reshape(-1)[:count]


def pack_all(vectors: Sequence[Lanes], bits: int) -> list[memoryview]:
    """`pack` of each vector, in one go: for many small ones, which cost more in calls than in work."""
    dtype = lane_dtype(bits)
    if any(vector.dtype != dtype for vector in vectors):
        raise UsageError(f"elements of {bits} bits are packed together from lanes of {dtype}")
    starts = _group_starts([vector.size for vector in vectors])
    joined = np.zeros(starts[-1] * _GROUP, dtype=dtype)
    for vector, start in zip(vectors, starts, strict=False):
        joined[start * _GROUP : start * _GROUP + vector.size] = vector
    packed = memoryview(pack(joined, bits))
    return [
        packed[start * bits : start * bits + packed_size(vector.size, bits)]
        for vector, start in zip(vectors, starts, strict=False)
    ]


def unpack_all(parts: Sequence[memoryview], bits: int, counts: Sequence[int]) -> list[Lanes]:
    """`unpack` of each part, in one go; refuses what `check_packed` refuses."""
    starts = _group_starts(counts)
    joined = np.zeros(starts[-1] * bits, dtype=np.uint8)
    for data, count, start in zip(parts, counts, starts, strict=False):
        size = check_packed(data, bits, count)
        joined[start * bits : start * bits + size] = data
    lanes = unpack(joined.data, bits, starts[-1] * _GROUP)
    return [lanes[start * _GROUP : start * _GROUP + count] for count, start in zip(counts, starts, strict=False)]


def _group_starts(counts: Sequence[int]) -> list[int]:
    """In which group each vector starts when all are padded to whole groups; last, the number of groups."""
    starts = [0]
    for count in counts:
        starts.append(starts[-1] - (-count // _GROUP))
    return starts


def _pack_groups(groups: Lanes, bits: int) -> npt.NDArray[np.uint8]:
    """Rows of eight elements to rows of words whose first `bits` bytes hold them."""
    if bits < 8:
        return _squeeze(groups.view("<u8"), bits).view(np.uint8).reshape(-1, 8)
    words = np.zeros((len(groups), -(-_GROUP * bits // _WORD)), dtype="<u8")
    for element in range(_GROUP):
        word, shift = divmod(element * bits, _WORD)
        value = groups[:, element].astype(np.uint64)
        words[:, word] |= value << np.uint64(shift)
        if shift + bits > _WORD:
            words[:, word + 1] |= value >> np.uint64(_WORD - shift)
    return words.view(np.uint8)


def _copy_rows(target: npt.NDArray[np.uint8], source: npt.NDArray[np.uint8], width: int) -> None:
    """Copy the first `width` bytes of every row, in pieces of eight, four, two and one bytes: a row is too short for
    NumPy to copy it well."""
    at = 0
    while at < width:
        piece = next(size for size in (8, 4, 2, 1) if at + size <= width)
        _column(target, at, piece)[:] = _column(source, at, piece)
        at += piece


def _column(rows: npt.NDArray[np.uint8], at: int, size: int) -> npt.NDArray[np.unsignedinteger[Any]]:
    """Bytes at..at+size-1 of every row as one (unaligned) number each."""
    return np.ndarray((len(rows),), dtype=f"<u{size}", buffer=rows.data, offset=at, strides=(rows.strides[0],))


def _unpack_groups(groups: npt.NDArray[np.uint8], bits: int, dtype: np.dtype[np.unsignedinteger[Any]]) -> Lanes:
    """Rows of `bits` bytes back to rows of eight elements."""
    words = np.zeros((len(groups), -(-_GROUP * bits // _WORD)), dtype="<u8")
    _copy_rows(words.view(np.uint8), groups, bits)
    if bits < 8:
        return _spread(words, bits).view(np.uint8).reshape(-1, _GROUP)
    out = np.empty((len(groups), _GROUP), dtype=dtype)
    mask = np.uint64((1 << bits) - 1)
    for element in range(_GROUP):
        word, shift = divmod(element * bits, _WORD)
        value = words[:, word] >> np.uint64(shift)
        if shift + bits > _WORD:
            value |= words[:, word + 1] << np.uint64(_WORD - shift)
        out[:, element] = value & mask
    return out


@lru_cache
def _steps(bits: int) -> list[tuple[np.uint64, np.uint64, np.uint64]]:
    """For fields of `bits` bits in bytes: masks of the lower and upper halves, and how far upper ones move down.

    Pairs of bytes, then of 16-bit and 32-bit fields, so that three steps bring eight elements together in a word.
    """
    found = []
    for half in (8, 16, 32):
        wide = bits * half // 8
        lower = sum(((1 << wide) - 1) << at for at in range(0, _WORD, 2 * half))
        found.append((np.uint64(lower), np.uint64(lower << wide), np.uint64(half - wide)))
    return found


def _squeeze(words: npt.NDArray[np.uint64], bits: int) -> npt.NDArray[np.uint64]:
    """Words of eight bytes with `bits` bits each: the fields moved together to the low end."""
    out, kept = words.copy(), np.empty_like(words)
    for lower, upper, shift in _steps(bits):
        np.bitwise_and(out, lower, out=kept)
        np.right_shift(out, shift, out=out)
        np.bitwise_and(out, upper, out=out)
        np.bitwise_or(out, kept, out=out)
    return out


def _spread(words: npt.NDArray[np.uint64], bits: int) -> npt.NDArray[np.uint64]:
    """The inverse of `_squeeze`."""
    for lower, upper, shift in reversed(_steps(bits)):
        words = (words & lower) | ((words & upper) << shift)
    return words


def _check_bits(bits: int) -> None:
    if not 1 <= bits <= MAX_BITS + 1:
        raise UsageError(f"a ring has 1 to {MAX_BITS} bits (auxiliary lanes {MAX_BITS + 1}), not {bits}")
