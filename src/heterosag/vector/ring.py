"""Vectors over Z_{2^b} and their exact-width packing.

A block of s users whose quantizer has K levels sums to at most s*(K-1), whatever their weights, so it works in Z_{2^b}
with b = bit_length(s*(K-1)): the same bits on the wire as the paper's R = s*(K-1)+1 (eq. 4), and masks that are exactly
uniform without rejection.

In memory an element is a *lane*, an unsigned integer of 1, 2, 4 or 8 bytes, the smallest that holds b bits.
On the wire a vector is packed in *planes*. First the whole bytes of its elements, lowest first, in pieces of 8, 4, 2
and 1 bytes, each size at most once: 27 bits have three whole bytes, so there are the lower two of every element, and
then the third of every element. Last the b mod 8 bits that are left of every element, back to back: element i has bits
i*r .. (i+1)*r - 1 of a little-endian bit string, r = b mod 8. So everything is read and written as whole arrays. Unused
trailing bits of the last byte are zero, and `unpack` refuses anything else, so that a vector has exactly one encoding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from heterosag.errors import UsageError, WireError
from heterosag.vector import _numba

__all__ = [
    "MAX_BITS",
    "Lanes",
    "add_packed",
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

_GROUP = 8  # elements: eight of r bits are r whole bytes
_WORD = 64
_CHUNK = 1 << 17  # elements, whole groups: intermediate lanes stay in the cache, and calls cost less than the work
_WIDE = 16  # bits; in narrower rings, and where lanes are as wide as the ring, whole arrays are added as fast
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
    """Pack elements mod 2^bits in planes: exactly `packed_size` bytes."""
    out = np.empty(packed_size(lanes.size, bits), dtype=np.uint8)
    pack_into(lanes, bits, out)
    return out.tobytes()


def pack_into(lanes: Lanes, bits: int, out: npt.NDArray[np.uint8], *, size: int | None = None) -> None:
    """`pack` into bytes that are there already.

    What an element has above `bits` bits is dropped: planes and `_steps` have no place for it. `size` is that of the
    whole of which this vector is a part; it decides whether a compiled loop is worth it, never
    what comes out.
    """
    dtype = lane_dtype(bits)
    if lanes.ndim != 1 or lanes.dtype.kind != "u":
        raise UsageError(f"pack wants a one-dimensional unsigned array, not {lanes.ndim}-d {lanes.dtype}")
    lanes = np.ascontiguousarray(lanes, dtype=dtype)
    compiled = _numba.find(_numba.pack_bits, size or lanes.size)
    buffer = np.empty(min(lanes.size, _CHUNK), dtype=dtype)
    for start in range(0, lanes.size, _CHUNK):
        values = lanes[start : start + _CHUNK]
        for plane, held in _planes_of(out, bits, lanes.size, start, values.size):
            if not held:
                if compiled is not None:
                    compiled(values, bits % 8, _steps(bits % 8), plane)
                else:
                    plane[:] = _pack_bits(values, bits % 8)[: plane.size]
                continue
            plane.view(f"<u{held}")[:] = values  # its lowest bytes
            if held < dtype.itemsize:
                values = np.right_shift(values, np.uint8(8 * held), out=buffer[: values.size])


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
    out = np.empty(count, dtype=lane_dtype(bits))
    for part, values in _read(data, bits, count):
        out[part] = values
    return out


def add_packed(data: bytes | bytearray | memoryview, bits: int, total: Lanes, *, size: int | None = None) -> None:
    """Add a packed vector to lanes, in place; sums wrap in the lanes. Refuses first what `check_packed` refuses.

    `size` as for `pack_into`.
    """
    whole = _numba.find(_numba.add_planes, size or total.size)
    rest = _numba.find(_numba.add_bits, size or total.size)
    if whole is not None and rest is not None and bits > _WIDE and bits % 32:
        packed = np.frombuffer(data, dtype=np.uint8, count=check_packed(data, bits, total.size))
        whole(packed, bits, total)
        if bits % 8:
            rest(packed[bits // 8 * total.size :], bits - bits % 8, bits % 8, _steps(bits % 8), total)
        return
    for part, values in _read(data, bits, total.size):
        np.add(total[part], values, out=total[part])


def _read(data: bytes | bytearray | memoryview, bits: int, count: int) -> Iterator[tuple[slice, Lanes]]:
    """A packed vector's elements, a chunk at a time in one buffer: which they are, and their lanes."""
    packed = np.frombuffer(data, dtype=np.uint8, count=check_packed(data, bits, count))
    buffer = np.empty(min(count, _CHUNK), dtype=lane_dtype(bits))
    for start in range(0, count, _CHUNK):
        values = buffer[: min(_CHUNK, count - start)]
        planes = list(_planes_of(packed, bits, count, start, values.size))
        for place, (plane, held) in enumerate(reversed(planes)):  # the highest bits first
            found = plane.view(f"<u{held}") if held else _unpack_bits(plane, bits % 8, values.size)
            if not place:
                values[:] = found
                continue
            np.left_shift(values, np.uint8(8 * held), out=values)
            np.bitwise_or(values, found, out=values)
        yield slice(start, start + values.size), values


def _planes_of(
    packed: npt.NDArray[np.uint8], bits: int, count: int, start: int, size: int
) -> Iterator[tuple[npt.NDArray[np.uint8], int]]:
    """The bytes of elements start..start+size-1 in each plane of a vector, and how many bytes an element has there.

    The last plane, where an element has fewer than eight bits, comes with 0.
    """
    at = 0
    for width in _widths(bits):
        yield packed[at + start * width : at + (start + size) * width], width
        at += count * width
    if bits % 8:
        yield packed[at + start * (bits % 8) // 8 : at + packed_size(start + size, bits % 8)], 0


@lru_cache
def _widths(bits: int) -> tuple[int, ...]:
    """Bytes that an element has in each plane of whole bytes."""
    return tuple(width for width in (8, 4, 2, 1) if bits // 8 & width)


def pack_all(vectors: Sequence[Lanes], bits: int) -> list[bytes]:
    """`pack` of each vector, in one go: for many small ones, which cost more in calls than in work."""
    dtype = lane_dtype(bits)
    if any(vector.dtype != dtype for vector in vectors):
        raise UsageError(f"elements of {bits} bits are packed together from lanes of {dtype}")
    starts = _group_starts([vector.size for vector in vectors])
    joined = np.zeros(starts[-1], dtype=dtype)
    for vector, start in zip(vectors, starts, strict=False):
        joined[start : start + vector.size] = vector
    packed = np.frombuffer(pack(joined, bits), dtype=np.uint8)
    return [
        b"".join(plane.data for plane, _ in _planes_of(packed, bits, joined.size, start, vector.size))
        for vector, start in zip(vectors, starts, strict=False)
    ]


def unpack_all(parts: Sequence[memoryview], bits: int, counts: Sequence[int]) -> list[Lanes]:
    """`unpack` of each part, in one go; refuses what `check_packed` refuses."""
    starts = _group_starts(counts)
    joined = np.zeros(packed_size(starts[-1], bits), dtype=np.uint8)
    for data, count, start in zip(parts, counts, starts, strict=False):
        packed = np.frombuffer(data, dtype=np.uint8, count=check_packed(data, bits, count))
        theirs = _planes_of(packed, bits, count, 0, count)
        for (target, _), (plane, _) in zip(_planes_of(joined, bits, starts[-1], start, count), theirs, strict=True):
            target[:] = plane
    lanes = unpack(joined.data, bits, starts[-1])
    return [lanes[start : start + count] for count, start in zip(counts, starts, strict=False)]


def _group_starts(counts: Sequence[int]) -> list[int]:
    """At which element each vector starts when all are padded to whole groups; last, the number of elements."""
    starts = [0]
    for count in counts:
        starts.append(starts[-1] + count + -count % _GROUP)
    return starts


def _pack_bits(values: Lanes, bits: int) -> npt.NDArray[np.uint8]:
    """Elements of fewer than eight bits back to back, with zeros up to whole words."""
    words = np.zeros(-(-values.size // _WORD) * _GROUP, dtype="<u8")
    words.view(np.uint8)[: values.size] = values
    groups = _squeeze(words, bits).reshape(-1, _GROUP)  # eight elements in each word's lowest `bits` bytes
    out = np.zeros((len(groups), bits), dtype="<u8")
    for place in range(_GROUP):
        word, shift = divmod(_GROUP * bits * place, _WORD)
        out[:, word] |= groups[:, place] << np.uint64(shift)
        if shift + _GROUP * bits > _WORD:
            out[:, word + 1] |= groups[:, place] >> np.uint64(_WORD - shift)
    return out.reshape(-1).view(np.uint8)


def _unpack_bits(packed: npt.NDArray[np.uint8], bits: int, count: int) -> npt.NDArray[np.uint8]:
    """The inverse: every group's bytes in a word of their own, with some of the next group's above them; spread."""
    groups = -(-count // _GROUP)
    padded = np.zeros(groups * bits + _WORD // 8, dtype=np.uint8)
    padded[: packed.size] = packed
    words = np.ndarray((groups,), dtype="<u8", buffer=padded.data, strides=(bits,)).copy()
    return _spread(words, bits).view(np.uint8)[:count]


@lru_cache
def _steps(bits: int) -> npt.NDArray[np.uint64]:
    """For fields of `bits` bits in bytes: masks of the lower and upper halves, and how far upper ones move down.

    A row each for pairs of bytes, of 16-bit and of 32-bit fields: three steps bring eight elements together in a word.
    """
    found = []
    for half in (8, 16, 32):
        wide = bits * half // 8
        lower = sum(((1 << wide) - 1) << at for at in range(0, _WORD, 2 * half))
        found.append((lower, lower << wide, half - wide))
    return np.array(found, dtype=np.uint64)


def _squeeze(words: npt.NDArray[np.uint64], bits: int) -> npt.NDArray[np.uint64]:
    """Words of eight bytes with `bits` bits each: the fields moved together to the low end, in place."""
    kept = np.empty_like(words)
    for lower, upper, shift in _steps(bits):
        np.bitwise_and(words, lower, out=kept)
        np.right_shift(words, shift, out=words)
        np.bitwise_and(words, upper, out=words)
        np.bitwise_or(words, kept, out=words)
    return words


def _spread(words: npt.NDArray[np.uint64], bits: int) -> npt.NDArray[np.uint64]:
    """The inverse of `_squeeze`, in place; what is above the fields is dropped."""
    kept = np.empty_like(words)
    for lower, upper, shift in reversed(_steps(bits)):
        np.bitwise_and(words, upper, out=kept)
        np.left_shift(kept, shift, out=kept)
        np.bitwise_and(words, lower, out=words)
        np.bitwise_or(words, kept, out=words)
    return words


def _check_bits(bits: int) -> None:
    if not 1 <= bits <= MAX_BITS + 1:
        raise UsageError(f"a ring has 1 to {MAX_BITS} bits (auxiliary lanes {MAX_BITS + 1}), not {bits}")
