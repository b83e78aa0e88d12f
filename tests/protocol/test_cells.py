"""Cells as the bytes that cross the wire, and back: added as they are read, large ones and small ones alike."""

import pickle

import numpy as np
import pytest
from rounds import small_plan

from heterosag.errors import WireError
from heterosag.plan import Plan
from heterosag.protocol import masks
from heterosag.protocol import messages as wire
from heterosag.protocol.cells import (
    CellLanes,
    add_cells,
    check_packed_cells,
    empty_cells,
    pack_cells,
    unpack_cells,
)
from heterosag.protocol.masks import Mask
from heterosag.vector import ring


def plans() -> list[Plan]:
    """Small cells that are packed together, of several rings, with metrics; and large ones that are added alone."""
    return [
        small_plan(metrics=["loss"]),
        small_plan(levels=[200, 2**22]),
        small_plan(dimension=60_000, levels=[5, 2**22]),
    ]


def drawn(plan: Plan, subgroup: int, seed: int) -> list[CellLanes]:
    rng = np.random.default_rng(seed)
    found = empty_cells(plan.cells(subgroup))
    for content, cell in zip(found, plan.cells(subgroup), strict=True):
        content.elements[:] = rng.integers(0, 1 << cell.bits, cell.size, dtype=np.uint64)
        content.auxiliary[:] = rng.integers(0, 2**64, len(cell.lanes), dtype=np.uint64)
    return found


def test_what_is_not_yet_masked_does_not_show() -> None:
    """Its elements are a user's update, level by level: they stood in every traceback with local variables."""
    cells = drawn(small_plan(metrics=["loss"]), 0, 1)
    assert {repr(cell) for cell in cells} == {"CellLanes()"}
    for thing in (cells, cells[0]):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(thing)


def test_packed_cells_are_added_as_they_would_be_unpacked() -> None:
    for plan in plans():
        for subgroup in range(len(plan.subgroups)):
            cells, total, expected = plan.cells(subgroup), drawn(plan, subgroup, 1), drawn(plan, subgroup, 1)
            data = memoryview(b"x" + bytes(pack_cells(drawn(plan, subgroup, 2), cells)))[1:]
            add_cells(data, cells, total)
            for content, added, found in zip(expected, unpack_cells(data, cells), total, strict=True):
                assert np.array_equal(found.elements, content.elements + added.elements)
                assert np.array_equal(found.auxiliary, content.auxiliary + added.auxiliary)


def test_cells_with_bits_to_spare_are_refused_unread() -> None:
    plan = small_plan(dimension=41)
    cells = plan.cells(0)
    data = bytearray(pack_cells(drawn(plan, 0, 3), cells))
    size = ring.packed_size(cells[0].size, cells[0].bits)
    assert cells[0].size * cells[0].bits % 8
    data[size - 1] |= 0x80
    with pytest.raises(WireError, match="trailing bits"):
        check_packed_cells(memoryview(bytes(data)), cells)


def test_packing_of_cells_comes_back() -> None:
    plan = small_plan(metrics=["loss"])
    cells = plan.cells(1)
    lanes = empty_cells(cells)
    masks.apply(lanes, [Mask(bytes(32), True, tuple(range(len(cells))))])
    data = pack_cells(lanes, cells)
    assert len(data) == wire.vector_size(plan, 1)
    for before, after, cell in zip(lanes, unpack_cells(data, cells), cells, strict=True):
        assert np.array_equal(before.elements % (1 << cell.bits), after.elements)
        assert np.array_equal(before.auxiliary, after.auxiliary)


@pytest.mark.parametrize("dimension", [40, 60_000])
def test_lanes_that_are_not_those_of_the_cells_are_not_packed(dimension: int) -> None:
    """The bytes of what no cell describes would be whatever the memory held before."""
    plan = small_plan(dimension=dimension)
    cells, lanes = plan.cells(0), drawn(plan, 0, 3)
    with pytest.raises(ValueError, match="shorter"):
        pack_cells([*lanes, lanes[0]], cells)


def test_large_and_small_cells_cross_the_wire_alike() -> None:
    """Cells beyond a size are packed one by one, the others together."""
    plan = Plan.build(
        [4], [5], 20_000, value_range=1.0, subgroup_size=2, design="multigroup", min_survivors=2, metrics=["loss"]
    )
    cells = plan.cells(0)
    assert {cell.size for cell in cells} == {20_000, 0}
    lanes = empty_cells(cells)
    lanes[0].elements[:] = np.arange(20_000) % 8
    found = list(unpack_cells(memoryview(pack_cells(lanes, cells)), cells))
    assert all(np.array_equal(a.elements, b.elements) for a, b in zip(lanes, found, strict=True))
