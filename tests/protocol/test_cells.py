"""Cells as the bytes that cross the wire, and back."""

import numpy as np
from rounds import small_plan

from heterosag.plan import Plan
from heterosag.protocol import masks
from heterosag.protocol import messages as wire
from heterosag.protocol.cells import empty_cells, pack_cells, reduce_cells, unpack_cells
from heterosag.protocol.masks import Mask


def test_packing_of_cells_comes_back() -> None:
    plan = small_plan(metrics=["loss"])
    cells = plan.cells(1)
    lanes = empty_cells(cells)
    masks.apply(lanes, [Mask(bytes(32), True, tuple(range(len(cells))))])
    reduce_cells(lanes, cells)
    data = pack_cells(lanes, cells)
    assert len(data) == wire.vector_size(plan, 1)
    for before, after in zip(lanes, unpack_cells(data, cells), strict=True):
        assert np.array_equal(before.elements, after.elements)
        assert np.array_equal(before.auxiliary, after.auxiliary)


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
