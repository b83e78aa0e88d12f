"""Masks: which keystream bytes are added to which elements.

One key per (c2, pair) and per (c2, self), each stream read once from its start: the shared cells in ascending order,
each on a block boundary; a cell's elements as little-endian lanes of its ring's width, then its auxiliary lanes of
eight bytes. Two users of one subgroup share every cell; users of two subgroups share the cells in which their subgroups
code together. The lower roster index adds, the higher subtracts, everybody adds its own mask. Sums wrap in the lanes;
packing reduces them to the ring.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from heterosag.crypto.keystream import BLOCK_SIZE, CHUNK_SIZE, Keystream, chunk_buffer
from heterosag.crypto.secret import Secret
from heterosag.plan import Plan
from heterosag.protocol.cells import PIECE_SIZE, CellLanes, ParallelMap
from heterosag.vector.ring import Lanes

__all__ = ["Mask", "apply", "apply_all", "shared_cells"]


@dataclass(frozen=True, slots=True)
class Mask(Secret):
    """A keystream key, whether it is added or taken away, and the cells (by place) that it covers."""

    key: bytes = field(repr=False)
    add: bool
    cells: tuple[int, ...]


def shared_cells(plan: Plan, mine: int, theirs: int) -> tuple[int, ...]:
    """The places of the cells that users of two subgroups code together."""
    cells = plan.cells(mine)
    return tuple(place for place, cell in enumerate(cells) if mine == theirs or theirs in cell.block.subgroups)


def apply(lanes: Sequence[CellLanes], masks: Iterable[Mask], *, parallel_map: ParallelMap = map) -> None:
    """Add every mask to the cells it covers, chunk by chunk so that a chunk stays in the cache for all of them."""
    apply_all([(lanes, masks)], parallel_map=parallel_map)


def apply_all(work: Iterable[tuple[Sequence[CellLanes], Iterable[Mask]]], *, parallel_map: ParallelMap = map) -> None:
    """`apply` for several vectors; they and the pieces of a large one are independent: `parallel_map` runs them."""
    pieces = [piece for lanes, masks in work for piece in _cut(lanes, masks)]
    for _ in parallel_map(_Piece.add, pieces):
        pass


@dataclass(frozen=True, slots=True)
class _Span:
    """Elements start..stop-1 of the cell at a place; the one that ends a cell has its auxiliary lanes too."""

    place: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class _Piece(Secret):
    """A part of a vector: the masks of each place, and where a mask's stream stands at each of its cells."""

    lanes: Sequence[CellLanes] = field(repr=False)
    spans: list[_Span]
    covering: Mapping[int, list[Mask]] = field(repr=False)
    starts: Mapping[tuple[int, ...], Mapping[int, int]] = field(repr=False)

    def add(self) -> None:
        """Open every mask's stream where the piece meets it first, and read it on from cell to cell."""
        buffer = chunk_buffer()
        streams: dict[int, tuple[Keystream, bool]] = {}
        for span in self.spans:
            cell = self.lanes[span.place]
            for mask in self.covering[span.place]:
                if id(mask) not in streams:
                    begin = self.starts[mask.cells][span.place] + span.start * cell.elements.itemsize
                    streams[id(mask)] = (Keystream(mask.key, start=begin), mask.add)
            signed = [streams[id(mask)] for mask in self.covering[span.place]]
            part = cell.elements[span.start : span.stop]
            if span.stop < cell.elements.size:
                _add_streams(part, signed, buffer)
                continue
            last = part.size % (CHUNK_SIZE // part.itemsize)  # what the last chunk has of the cell's elements
            if last * part.itemsize + cell.auxiliary.nbytes + BLOCK_SIZE <= CHUNK_SIZE:
                _add_streams(part[: part.size - last], signed, buffer)
                _add_end(cell, last, signed, buffer)
                continue
            _add_streams(part, signed, buffer)
            _add_streams(cell.auxiliary, signed, buffer)
            for stream, _ in signed:
                stream.align()


def _cut(lanes: Sequence[CellLanes], masks: Iterable[Mask]) -> list[_Piece]:
    """A vector and its masks in pieces of PIECE_SIZE elements."""
    covering: dict[int, list[Mask]] = {}
    starts: dict[tuple[int, ...], dict[int, int]] = {}
    for mask in masks:
        if mask.cells not in starts:
            starts[mask.cells] = _stream_starts(lanes, mask.cells)
        for place in mask.cells:
            covering.setdefault(place, []).append(mask)
    spans: list[list[_Span]] = [[]]
    left = PIECE_SIZE
    for place in sorted(covering):
        size, stop = lanes[place].elements.size, -1
        while stop < size:  # at least once: an empty cell has auxiliary lanes
            if not left:
                spans.append([])
                left = PIECE_SIZE
            start = max(stop, 0)
            stop = min(size, start + left)
            spans[-1].append(_Span(place, start, stop))
            left -= stop - start
        left -= left % BLOCK_SIZE  # so that a piece that begins within a cell begins at a block of the stream
    return [_Piece(lanes, part, covering, starts) for part in spans]


def _stream_starts(lanes: Sequence[CellLanes], cells: tuple[int, ...]) -> dict[int, int]:
    """For a mask of these cells, the byte of its stream at which each begins."""
    starts, at = {}, 0
    for place in cells:
        starts[place] = at
        at += lanes[place].elements.nbytes + lanes[place].auxiliary.nbytes
        at += -at % BLOCK_SIZE
    return starts


def _add_end(cell: CellLanes, last: int, streams: list[tuple[Keystream, bool]], buffer: npt.NDArray[np.uint8]) -> None:
    """The end of a cell: one read a stream for its last elements, its auxiliary lanes and the rest of the block."""
    part = cell.elements[cell.elements.size - last :]
    end = part.nbytes + cell.auxiliary.nbytes
    size = end + -(cell.elements.nbytes + cell.auxiliary.nbytes) % BLOCK_SIZE
    words, lanes = buffer[: part.nbytes].view(part.dtype), buffer[part.nbytes : end].view(np.uint64)
    for stream, add in streams:
        stream.read_into(buffer, size)
        combine = np.add if add else np.subtract
        combine(part, words, out=part)
        combine(cell.auxiliary, lanes, out=cell.auxiliary)


def _add_streams(lanes: Lanes, streams: list[tuple[Keystream, bool]], buffer: npt.NDArray[np.uint8]) -> None:
    step = CHUNK_SIZE // lanes.itemsize
    for start in range(0, lanes.size, step):
        part = lanes[start : start + step]
        words = buffer[: part.nbytes].view(part.dtype)
        for stream, add in streams:
            stream.read_into(buffer, part.nbytes)
            (np.add if add else np.subtract)(part, words, out=part)
