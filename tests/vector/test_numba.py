"""Compiled loops give the bits of the code they stand in for: as Python, and compiled where Numba is installed."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from cases import each

from heterosag.vector import _numba, ring
from heterosag.vector.quantize import quantize
from heterosag.vector.rotation import rotate, rotate_rows, unrotate

COUNT = 1003
WIDTHS = (1, 5, 8, 11, 16, 17, 20, 24, 27, 31, 32, 33, 40, 47, 56, 63)


def lanes_of(bits: int, count: int = COUNT) -> ring.Lanes:
    words = np.random.default_rng(bits).integers(0, 2**64, count, dtype=np.uint64) >> np.uint64(64 - bits)
    return words.astype(ring.lane_dtype(bits))


def use(monkeypatch: pytest.MonkeyPatch, compiled: bool) -> None:
    """Take the loops for vectors of every size, as plain Python or compiled."""
    if compiled:
        pytest.importorskip("numba", reason="Numba is not installed: only the plain loops are tested")
    monkeypatch.setattr(_numba, "WORTH", 1)
    if not compiled:
        monkeypatch.setattr(_numba, "_compile", lambda loop: loop)


@pytest.mark.parametrize("compiled", [False, True])
@each("bits", WIDTHS)
@each("count", [1, 2, 7, 8, 63, 64, 65, COUNT, 4109])
def test_packing_is_the_same(monkeypatch: pytest.MonkeyPatch, bits: int, count: int, compiled: bool) -> None:
    lanes = lanes_of(bits, count)
    packed, expected = ring.pack(lanes, bits), ~lanes + lanes
    ring.add_packed(packed, bits, sums := ~lanes)
    assert np.array_equal(sums, expected)
    with monkeypatch.context() as patched, np.errstate(over="ignore"):  # sums wrap, of which plain Python would warn
        use(patched, compiled)
        assert ring.pack(lanes, bits) == packed
        ring.add_packed(packed, bits, sums := ~lanes)
        assert np.array_equal(sums, expected)
        ring.add_packed(memoryview(b"x" + packed)[1:], bits, sums)  # at an odd place, as in a message
    assert np.array_equal(sums, expected + lanes)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("level", [2, 12, 300, 2**16, 2**31 - 1, 2**31, 2**32])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_quantizing_is_the_same(monkeypatch: pytest.MonkeyPatch, level: int, dtype: Any, compiled: bool) -> None:
    rng = np.random.default_rng(level)
    low, high = -0.7, 1.3
    values = rng.uniform(-1, 1.6, COUNT).astype(dtype)
    values[:6] = low, high, math.nextafter(high, 0), -1e30, 1e30, 0.0
    words = rng.integers(0, 2**32, COUNT, dtype=np.uint32)
    words[:3] = 0, 2**32 - 1, 2**32 - 1

    def levels() -> tuple[int, npt.NDArray[Any]]:
        out = np.zeros(COUNT, dtype=ring.lane_dtype(ring.width(3, level)))
        return quantize(values, level, (low, high), words, out=out), out

    clipped, expected = levels()
    use(monkeypatch, compiled)
    assert levels()[0] == clipped > 0
    assert np.array_equal(levels()[1], expected)


@pytest.mark.parametrize("compiled", [False, True])
@each("size", [*range(1, 17), 63, 1024, 3000, 1 << 14, 40_000, (1 << 16) + 2048])
@each("dtype", [np.float32, np.float64, np.float16, ">f4"])
def test_rotating_is_the_same(monkeypatch: pytest.MonkeyPatch, size: int, dtype: Any, compiled: bool) -> None:
    values = np.random.default_rng(size).normal(size=size if compiled else min(size, 3000)).astype(dtype)
    rotated, restored = rotate(values, 5), unrotate(values, 5)
    with monkeypatch.context() as patched:
        use(patched, compiled)
        assert np.array_equal(rotate(values, 5), rotated)
        assert np.array_equal(unrotate(values, 5), restored)


@pytest.mark.parametrize("compiled", [False, True])
def test_rows_that_cannot_be_written_or_are_apart_are_rotated_the_same(
    monkeypatch: pytest.MonkeyPatch, compiled: bool
) -> None:
    fixed = np.frombuffer(np.random.default_rng(0).normal(size=600).astype(np.float32).tobytes(), dtype=np.float32)
    apart = np.random.default_rng(1).normal(size=(300, 2))[:, 0]
    expected = rotate(fixed, 5), rotate(apart, 5)
    use(monkeypatch, compiled)
    assert np.array_equal(rotate(fixed, 5), expected[0])
    assert np.array_equal(rotate(apart, 5), expected[1])


@pytest.mark.parametrize("compiled", [False, True])
@each("rows", [3, 40])
def test_rotating_rows_together_is_the_same(monkeypatch: pytest.MonkeyPatch, rows: int, compiled: bool) -> None:
    """A few rows are rotated by a call each, many short ones together."""
    values = np.random.default_rng(rows).normal(size=(rows, 1500))
    expected = rotate_rows(values, range(rows))
    use(monkeypatch, compiled)
    assert np.array_equal(rotate_rows(values, range(rows)), expected)


def test_small_vectors_do_not_load_the_compiler() -> None:
    assert _numba.find(_numba.pack_bits, _numba.WORTH - 1) is None


def test_a_part_of_a_large_vector_is_worth_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    monkeypatch.setattr(_numba, "_compile", lambda loop: lambda *given: called.append(loop.__name__) or loop(*given))
    lanes = lanes_of(27)
    out = np.empty(ring.packed_size(COUNT, 27), dtype=np.uint8)
    for size in (None, _numba.WORTH):
        ring.pack_into(lanes, 27, out, size=size)
        ring.add_packed(out.data, 27, lanes.copy(), size=size)
    assert called == ["pack_bits", "add_planes", "add_bits"]


@pytest.fixture
def _forgotten() -> Iterator[None]:
    _numba._compile.cache_clear()
    yield
    _numba._compile.cache_clear()


@pytest.mark.usefixtures("_forgotten")
def test_without_numba_or_with_one_that_does_not_fit_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)  # importing it fails
    assert _numba.find(_numba.pack_bits, _numba.WORTH) is None


@pytest.mark.long
@pytest.mark.usefixtures("_forgotten")
def test_with_nowhere_to_keep_it_it_is_compiled_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    numba = pytest.importorskip("numba")
    njit = numba.njit

    def refuse(loop: Any, **given: Any) -> Any:
        if given.get("cache"):
            raise RuntimeError("no locator available")
        return njit(loop, **given)

    monkeypatch.setattr(numba, "njit", refuse)
    packed = np.zeros(2, dtype=np.uint8)
    found = _numba.find(_numba.pack_bits, _numba.WORTH)
    assert found is not None
    found(np.array([1, 2, 3], dtype=np.uint32), 5, ring._steps(5), packed)
    assert packed.tolist() == [1 | 2 << 5, 3 << 2]


@pytest.mark.parametrize("dtype", [np.float16, ">f4", np.longdouble])
def test_floats_that_cannot_be_compiled_for_are_left_to_numpy(monkeypatch: pytest.MonkeyPatch, dtype: Any) -> None:
    values = np.linspace(-1, 1, COUNT).astype(dtype)
    words = np.random.default_rng(0).integers(0, 2**32, COUNT, dtype=np.uint32)
    found = []
    for worth in (_numba.WORTH, 1):
        monkeypatch.setattr(_numba, "WORTH", worth)
        out = np.zeros(COUNT, dtype=np.uint8)
        quantize(values, 12, (-1.0, 1.0), words, out=out)
        found.append(out)
    assert np.array_equal(*found)
