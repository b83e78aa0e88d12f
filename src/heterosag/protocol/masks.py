"""Masks: which keystream bytes are added to which elements.

One key per (c2, pair) and per (c2, self), each stream read once from its start: the shared cells in ascending order,
each on a block boundary; a cell's elements as little-endian lanes of its ring's width, then its auxiliary lanes of
eight bytes. Two users of one subgroup share every cell; users of two subgroups share the cells in which their subgroups
code together. The lower roster index adds, the higher subtracts, everybody adds its own mask. Sums wrap in the lanes,
and are reduced to the ring once at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from heterosag import ring
from heterosag.crypto.prg import CHUNK_SIZE, Keystream, chunk_buffer
from heterosag.crypto.secrecy import Secret
from heterosag.encode import CellLanes
from heterosag.plan import Cell, Plan
from heterosag.ring import Lanes

__all__ = ["Mask", "apply", "check_bytes", "empty", "from_bytes", "reduce", "shared_cells", "to_bytes"]


@dataclass(frozen=True, slots=True)
class Mask(Secret):
    """A keystream key, whether it is added or taken away, and the cells (by place) that it covers."""

    key: bytes = field(repr=False)
    add: bool
    cells: tuple[int, ...]


def empty(cells: Sequence[Cell]) -> list[CellLanes]:
    """Zeroed lanes for each cell."""
    return [
        CellLanes(
            np.zeros(cell.size, dtype=ring.lane_dtype(cell.bits)),
            np.zeros(len(cell.lanes), dtype=np.uint64),
        )
        for cell in cells
    ]


def shared_cells(plan: Plan, mine: int, theirs: int) -> tuple[int, ...]:
    """The places of the cells that users of two subgroups code together."""
    cells = plan.cells(mine)
    return tuple(place for place, cell in enumerate(cells) if mine == theirs or theirs in cell.block.subgroups)


def apply(lanes: Sequence[CellLanes], masks: Iterable[Mask]) -> None:
    """Add every mask to the cells it covers, chunk by chunk so that a chunk stays in the cache for all of them."""
    covering: dict[int, list[tuple[Keystream, bool]]] = {}
    for mask in masks:
        signed = (Keystream(mask.key), mask.add)
        for place in mask.cells:
            covering.setdefault(place, []).append(signed)
    buffer = chunk_buffer()
    for place in sorted(covering):
        cell = lanes[place]
        for part in (cell.elements, cell.auxiliary):
            _add_streams(part, covering[place], buffer)
        for stream, _ in covering[place]:
            stream.align()


def _add_streams(lanes: Lanes, streams: list[tuple[Keystream, bool]], buffer: npt.NDArray[np.uint8]) -> None:
    width = lanes.dtype.itemsize
    step = CHUNK_SIZE // width
    for start in range(0, lanes.size, step):
        part = lanes[start : start + step]
        for stream, add in streams:
            words = stream.read_into(buffer, part.size * width).view(lanes.dtype)
            (np.add if add else np.subtract)(part, words, out=part)


def reduce(lanes: Sequence[CellLanes], cells: Sequence[Cell]) -> None:
    """Reduce every cell's elements to its ring, in place."""
    for content, cell in zip(lanes, cells, strict=True):
        ring.reduce(content.elements, cell.bits)


def to_bytes(lanes: Sequence[CellLanes], cells: Sequence[Cell]) -> bytes:
    """The cells as they cross the wire: elements packed at exactly their ring's bits, then the auxiliary lanes."""
    return b"".join(
        part
        for content, cell in zip(lanes, cells, strict=True)
        for part in (ring.pack(content.elements, cell.bits), content.auxiliary.astype("<u8").tobytes())
    )


def check_bytes(data: memoryview, cells: Sequence[Cell]) -> None:
    """Refuse bytes that `to_bytes` does not make, without unpacking them; the caller has checked the length."""
    for packed, _, cell in _parts(data, cells):
        ring.check_packed(packed, cell.bits, cell.size)


def from_bytes(data: memoryview, cells: Sequence[Cell]) -> Iterator[CellLanes]:
    """The inverse of `to_bytes`, a cell at a time."""
    for packed, tail, cell in _parts(data, cells):
        yield CellLanes(ring.unpack(packed, cell.bits, cell.size), np.frombuffer(tail, dtype="<u8"))


def _parts(data: memoryview, cells: Sequence[Cell]) -> Iterator[tuple[memoryview, memoryview, Cell]]:
    at = 0
    for cell in cells:
        packed, tail = ring.packed_size(cell.size, cell.bits), 8 * len(cell.lanes)
        yield data[at : at + packed], data[at + packed : at + packed + tail], cell
        at += packed + tail
