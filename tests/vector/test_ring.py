"""Packing and ring widths."""

import numpy as np
import pytest
from cases import each

from heterosag.errors import UsageError, WireError
from heterosag.vector import _numba, ring


@each(
    "users, level, bits",
    [
        (10, 2, 4),
        (5, 2, 3),
        (16, 12, 8),
        (16, 2**16, 20),
        (2**10, 2, 11),
        (2**10, 2**16, 26),
        (1, 2, 1),
    ],
)
def test_width_is_the_papers_bits(users: int, level: int, bits: int) -> None:
    assert ring.width(users, level) == bits
    assert bits == int(np.ceil(np.log2(users * (level - 1) + 1)))


def reference(values: list[int], bits: int) -> bytes:
    """The packing by its words: the elements' whole bytes in pieces of 8, 4, 2 and 1, then a big number of the rest."""
    packed, below = b"", 0
    for width in (8, 4, 2, 1):
        if bits // 8 & width:
            packed += b"".join((value >> below).to_bytes(8, "little")[:width] for value in values)
            below += 8 * width
    rest = bits - below
    number = sum((value >> below) << (index * rest) for index, value in enumerate(values))
    return packed + number.to_bytes((len(values) * rest + 7) // 8, "little")


@each("bits", range(1, 65))
def test_packing_is_in_planes_at_every_width_and_length(bits: int) -> None:
    rng = np.random.default_rng(bits)
    for count in [*range(34), 63, 64, 65, 257]:
        values = [int(v) & ((1 << bits) - 1) for v in rng.integers(0, 2**64, count, dtype=np.uint64)]
        lanes = np.array(values, dtype=ring.lane_dtype(bits))
        data = ring.pack(lanes, bits)
        assert data == reference(values, bits)
        assert len(data) == ring.packed_size(count, bits)
        back = ring.unpack(data, bits, count)
        assert back.dtype == lanes.dtype
        assert back.tolist() == values
        total = lanes[::-1].copy()
        ring.add_packed(data, bits, total)
        assert np.array_equal(total, lanes[::-1] + lanes)


@pytest.mark.long
@each("bits", [1, 5, 12, 27, 33, 63])
def test_packing_of_many_chunks(bits: int) -> None:
    count = ring._CHUNK * 2 + 13
    lanes = ring.reduce(np.random.default_rng(0).integers(0, 2**63, count, dtype=np.uint64), bits)
    lanes = lanes.astype(ring.lane_dtype(bits))
    packed = ring.pack(lanes, bits)
    assert np.array_equal(ring.unpack(packed, bits, count), lanes)
    total = lanes.copy()
    ring.add_packed(packed, bits, total)
    assert np.array_equal(total, lanes + lanes)


def test_adding_wraps_in_the_lanes() -> None:
    total = np.array([2**32 - 1, 5], dtype=np.uint32)
    ring.add_packed(ring.pack(np.array([3, 4], dtype=np.uint32), 27), 27, total)
    assert total.tolist() == [2, 9]


def test_the_planes_of_27_bits() -> None:
    """Two lower bytes of each element, the third of each, then three bits of each."""
    elements = np.array([0x5_A1_B2C3, 0x2_11_2233, 0x7_FF_FFFF], dtype=np.uint32)
    planes = bytes.fromhex("c3b23322ffffa111ff") + (5 | 2 << 3 | 7 << 6).to_bytes(2, "little")
    assert ring.pack(elements, 27) == planes


def test_lane_types() -> None:
    assert [ring.lane_dtype(bits).itemsize for bits in (1, 8, 9, 16, 17, 32, 33, 63)] == [1, 1, 2, 2, 4, 4, 8, 8]
    for bits in (0, 65):
        with pytest.raises(UsageError, match="1 to 63 bits"):
            ring.lane_dtype(bits)


def test_reduce_wraps_in_place() -> None:
    lanes = np.array([255, 8, 7], dtype=np.uint8)
    assert ring.reduce(lanes, 3) is lanes
    assert lanes.tolist() == [7, 0, 7]
    assert ring.reduce(np.array([255], dtype=np.uint8), 8).tolist() == [255]


def test_packing_reduces_to_the_ring() -> None:
    """What stands above the ring's bits in a lane never reaches the wire, compiled or not."""
    for bits in range(1, ring.MAX_BITS + 1):
        dtype = ring.lane_dtype(bits)
        lanes = np.random.default_rng(bits).integers(0, np.iinfo(dtype).max, 3_001, dtype=dtype, endpoint=True)
        reduced = ring.reduce(lanes.copy(), bits)
        for size in (1, 1 << 30):
            out = np.empty(ring.packed_size(lanes.size, bits), dtype=np.uint8)
            ring.pack_into(lanes, bits, out, size=size)
            assert np.array_equal(ring.unpack(out.data, bits, lanes.size), reduced), (bits, size)
        assert ring.pack_all([lanes, lanes[:5]], bits) == [ring.pack(reduced, bits), ring.pack(reduced[:5], bits)]


def test_pack_refuses_what_is_no_vector_of_lanes() -> None:
    with pytest.raises(UsageError, match="one-dimensional unsigned"):
        ring.pack(np.zeros(3, dtype=np.int8), 3)  # type: ignore[arg-type]


def test_unpack_is_strict() -> None:
    data = ring.pack(np.array([1, 2, 3], dtype=np.uint8), 5)
    for wrong in (data[:-1], data + b"\0", b""):
        with pytest.raises(WireError, match="takes 2 bytes"):
            ring.unpack(wrong, 5, 3)
    with pytest.raises(WireError, match="trailing bits"):
        ring.unpack(bytes([data[0], data[1] | 0x80]), 5, 3)


@each("worth", [1, 1 << 62])
def test_what_is_refused_is_not_added(worth: int) -> None:
    before, _numba.WORTH = _numba.WORTH, worth
    try:
        total = np.zeros(3, dtype=np.uint32)
        data = ring.pack(np.array([1, 2, 3], dtype=np.uint32), 27)
        for wrong, match in ((data[:-1], "takes 11 bytes"), (data[:-1] + b"\x80", "trailing bits")):
            with pytest.raises(WireError, match=match):
                ring.add_packed(wrong, 27, total)
        assert not total.any()
    finally:
        _numba.WORTH = before


@each("bits", [1, 3, 7, 8, 11, 16, 33, 63])
def test_many_vectors_pack_together_as_each_alone(bits: int) -> None:
    rng = np.random.default_rng(bits)
    counts = [0, 1, 7, 8, 9, 1000, 3]
    vectors = [rng.integers(0, 1 << bits, count, dtype=np.uint64).astype(ring.lane_dtype(bits)) for count in counts]
    packed = ring.pack_all(vectors, bits)
    assert [bytes(data) for data in packed] == [ring.pack(vector, bits) for vector in vectors]
    for vector, back in zip(vectors, ring.unpack_all(packed, bits, counts), strict=True):
        assert np.array_equal(vector, back)
        assert back.dtype == vector.dtype


def test_packing_together_refuses_what_packing_alone_refuses() -> None:
    good = np.array([1, 2, 3], dtype=np.uint8)
    with pytest.raises(UsageError, match="lanes of uint8"):
        ring.pack_all([good, np.array([256], dtype=np.uint16)], 3)
    data = ring.pack(good, 5)
    with pytest.raises(WireError, match="trailing bits"):
        ring.unpack_all([memoryview(data), memoryview(bytes([data[0], data[1] | 0x80]))], 5, [3, 3])
    with pytest.raises(WireError, match="takes 2 bytes"):
        ring.unpack_all([memoryview(data), memoryview(data[:1])], 5, [3, 3])
