"""The contents of cells as lanes, and as the bytes that cross the wire."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from heterosag.crypto.secret import Secret
from heterosag.plan import Cell
from heterosag.vector import ring
from heterosag.vector.ring import Lanes

__all__ = [
    "PIECE_SIZE",
    "CellLanes",
    "ParallelMap",
    "add_cells",
    "check_packed_cells",
    "empty_cells",
    "pack_cells",
    "unpack_cells",
]

PIECE_SIZE = 1 << 20
"""Elements of a piece of a large vector: pieces are encoded and masked apart from one another."""

ParallelMap = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
"""Runs a function over independent pieces: `map` itself, or that of a pool of threads."""

_SMALL = 1 << 14
"""Elements of a cell that is packed together with others of its ring: a call of its own costs as much as the work."""


@dataclass(frozen=True, slots=True)
class CellLanes(Secret):
    """The contents of one cell: elements in lanes of their ring, auxiliary lanes of 64 bits. Changed in place.

    Before they are masked they are a user's update, so they are a secret wherever they are.
    """

    elements: Lanes = field(repr=False)
    auxiliary: npt.NDArray[np.uint64] = field(repr=False)


def empty_cells(cells: Sequence[Cell]) -> list[CellLanes]:
    """Zeroed lanes for each cell; zeros are written, since memory that is read first is mapped twice."""
    return [
        CellLanes(
            np.full(cell.size, 0, dtype=ring.lane_dtype(cell.bits)),
            np.zeros(len(cell.lanes), dtype=np.uint64),
        )
        for cell in cells
    ]


def pack_cells(lanes: Sequence[CellLanes], cells: Sequence[Cell]) -> memoryview:
    """The cells as they cross the wire: elements mod their ring, packed at exactly its bits, then auxiliary lanes."""
    packed: dict[int, bytes] = {}
    for bits, places in _small_cells(cells).items():
        together = ring.pack_all([lanes[place].elements for place in places], bits)
        packed.update(zip(places, together, strict=True))
    sizes, whole = [ring.packed_size(cell.size, cell.bits) for cell in cells], sum(cell.size for cell in cells)
    out = np.empty(sum(sizes) + sum(content.auxiliary.nbytes for content in lanes), dtype=np.uint8)
    at = 0
    for place, (content, cell, size) in enumerate(zip(lanes, cells, sizes, strict=True)):
        if place in packed:
            out[at : at + size] = np.frombuffer(packed[place], dtype=np.uint8)
        else:
            ring.pack_into(content.elements, cell.bits, out[at : at + size], size=whole)
        at += size
        out[at : at + content.auxiliary.nbytes] = content.auxiliary.astype("<u8", copy=False).view(np.uint8)
        at += content.auxiliary.nbytes
    return out.data


def check_packed_cells(data: memoryview, cells: Sequence[Cell]) -> None:
    """Refuse bytes that `pack_cells` does not make, without unpacking them; the caller has checked the length."""
    for packed, _, cell in _parts(data, cells):
        ring.check_packed(packed, cell.bits, cell.size)


def add_cells(data: memoryview, cells: Sequence[Cell], totals: Sequence[CellLanes]) -> None:
    """Add packed cells to lanes in place, where sums wrap; the caller has checked them by `check_packed_cells`."""
    parts, size = list(_parts(data, cells)), sum(cell.size for cell in cells)
    small = _unpack_small(parts)
    for place, (packed, tail, cell) in enumerate(parts):
        total = totals[place]
        if place in small:
            np.add(total.elements, small[place], out=total.elements)
        else:
            ring.add_packed(packed, cell.bits, total.elements, size=size)
        np.add(total.auxiliary, np.frombuffer(tail, dtype="<u8"), out=total.auxiliary)


def unpack_cells(data: memoryview, cells: Sequence[Cell]) -> Iterator[CellLanes]:
    """The inverse of `pack_cells`, a cell at a time."""
    parts = list(_parts(data, cells))
    small = _unpack_small(parts)
    for place, (packed, tail, cell) in enumerate(parts):
        elements = small[place] if place in small else ring.unpack(packed, cell.bits, cell.size)
        yield CellLanes(elements, np.frombuffer(tail, dtype="<u8"))


def _unpack_small(parts: Sequence[tuple[memoryview, memoryview, Cell]]) -> dict[int, Lanes]:
    """The elements of the cells that are packed together, by place."""
    cells = [cell for _, _, cell in parts]
    found: dict[int, Lanes] = {}
    for bits, places in _small_cells(cells).items():
        together = ring.unpack_all([parts[place][0] for place in places], bits, [cells[place].size for place in places])
        found.update(zip(places, together, strict=True))
    return found


def _small_cells(cells: Sequence[Cell]) -> dict[int, list[int]]:
    """The places of the cells that are packed together, by the bits of their ring."""
    found: dict[int, list[int]] = {}
    for place, cell in enumerate(cells):
        if cell.size <= _SMALL:
            found.setdefault(cell.bits, []).append(place)
    return found


def _parts(data: memoryview, cells: Sequence[Cell]) -> Iterator[tuple[memoryview, memoryview, Cell]]:
    at, data = 0, memoryview(data)
    for cell in cells:
        packed, tail = ring.packed_size(cell.size, cell.bits), 8 * len(cell.lanes)
        yield data[at : at + packed], data[at + packed : at + packed + tail], cell
        at += packed + tail
