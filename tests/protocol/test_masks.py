"""Masks: layout, one use of every keystream bit, uniformity, and cancelling."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from cases import each
from rounds import World, small_plan

from heterosag.crypto.keystream import CHUNK_SIZE, Keystream, chunk_buffer, keystream
from heterosag.errors import UsageError
from heterosag.plan import Plan
from heterosag.protocol import encoding as encode
from heterosag.protocol import masks
from heterosag.protocol import messages as wire
from heterosag.protocol.cells import CellLanes, ParallelMap, empty_cells, unpack_cells
from heterosag.protocol.encoding import fill_cells
from heterosag.protocol.masks import Mask
from heterosag.protocol.rounding import Rounding
from heterosag.protocol.update import Update
from heterosag.simulation.workers import all_cores
from heterosag.vector import ring, rotation


def test_layout_of_a_mask_is_the_specifications() -> None:
    """Cells in order, each on a 16-byte boundary: lanes of the ring's width, then auxiliary lanes of eight bytes."""
    plan = Plan.build([6, 6], [2, 300], 41, value_range=1.0, subgroup_size=3, min_survivors=2)
    cells = plan.cells(2)
    assert {ring.lane_dtype(cell.bits).itemsize for cell in cells} == {1, 2}
    key = bytes(range(32))
    covered = (0, 2)
    lanes = empty_cells(cells)
    masks.apply(lanes, [Mask(key, True, covered)])
    at = 0
    for place, (cell, content) in enumerate(zip(cells, lanes, strict=True)):
        if place not in covered:
            assert not content.elements.any()
            continue
        at += -at % 16
        size = cell.size * content.elements.dtype.itemsize
        stream = keystream(key, at + size + 16)[at:]
        assert content.elements.tobytes() == stream[:size]
        assert content.auxiliary.tobytes() == stream[size : size + 16]
        at += size + 16


@each("more", [77, 0, -1, -3])
@each("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_chunks_join_without_a_seam(dtype: type, more: int) -> None:
    """Elements, auxiliary lanes and the next cell, whether or not the last chunk holds all that ends a cell."""
    count = 2 * CHUNK_SIZE // np.dtype(dtype).itemsize + more
    cells = [CellLanes(np.zeros(size, dtype=dtype), np.zeros(3, dtype=np.uint64)) for size in (count, 5)]
    key, at = bytes(32), 0
    masks.apply(cells, [Mask(key, True, (0, 1))])
    stream = keystream(key, 2 * CHUNK_SIZE + 4096)
    for cell in cells:
        end = at + cell.elements.nbytes
        assert cell.elements.tobytes() == stream[at:end]
        assert cell.auxiliary.tobytes() == stream[end : end + 24]
        at = end + 24 + -(end + 24) % 16
    masks.apply(cells, [Mask(key, False, (0, 1))])
    assert not any(part.any() for cell in cells for part in (cell.elements, cell.auxiliary))


def test_users_of_one_subgroup_share_every_cell_and_of_two_one() -> None:
    plan = Plan.build([40], [4], 60, value_range=1.0, subgroup_size=4, min_survivors=2)
    assert masks.shared_cells(plan, 3, 3) == tuple(range(9))
    assert all(len(masks.shared_cells(plan, 3, other)) == 1 for other in range(10) if other != 3)
    assert {masks.shared_cells(plan, 3, other) for other in range(10) if other != 3} == {(i,) for i in range(9)}
    groups = Plan.build([40], [4], 60, design="multigroup", value_range=1.0, subgroup_size=4, min_survivors=2)
    assert masks.shared_cells(groups, 3, 4) == ()
    metrics = Plan.build(
        [40], [4], 60, design="multigroup", value_range=1.0, subgroup_size=4, min_survivors=2, metrics=["loss"]
    )
    assert masks.shared_cells(metrics, 3, 4) == (1,)


def test_no_keystream_bit_masks_two_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Record every range read of every key by every user of two rounds: each key is read by at most two users (a
    pair) or one (self), each in one ascending pass without overlap, and no key returns in another round."""
    reads: dict[bytes, list[list[tuple[int, int]]]] = defaultdict(list)

    class Recorder(Keystream):
        def __init__(self, key: bytes, *, start: int = 0) -> None:
            super().__init__(key, start=start)
            self.ranges: list[tuple[int, int]] = []
            reads[key].append(self.ranges)

        def read_into(self, buffer: npt.NDArray[np.uint8], size: int) -> npt.NDArray[np.uint8]:
            self.ranges.append((self.position, self.position + size))
            return super().read_into(buffer, size)

    monkeypatch.setattr(masks, "Keystream", Recorder)
    keys_of_rounds = []
    for _ in range(2):
        reads.clear()
        world = World(small_plan(metrics=[]))
        world.run("advertise", "share", "mask")
        keys_of_rounds.append(set(reads))
        assert len(reads) == 12 + 12 * 11 // 2
        assert sorted(len(users) for users in reads.values()) == [1] * 12 + [2] * 66
        for users in reads.values():
            for ranges in users:
                ends = [end for _, end in ranges]
                assert all(start >= end for (start, _), end in zip(ranges[1:], ends, strict=False))
            assert all(ranges == users[0] for ranges in users)
    assert keys_of_rounds[0].isdisjoint(keys_of_rounds[1])


def masked_elements(world: World, user: int) -> list[npt.NDArray[Any]]:
    message = wire.decode(wire.MaskedVector, world.answer("mask", user), plan=world.plan)
    return [cell.elements for cell in unpack_cells(message.vector, world.plan.cells(world.plan.assignment[user]))]


@each("value", [-1.0, 0.3, 1.0])
def test_a_masked_vector_is_uniform_whatever_the_input(value: float) -> None:
    """Chi-square over the ring's elements, with a constant input: no value stands out."""
    plan = Plan.build([6, 6], [2, 5], 30_000, value_range=1.0, subgroup_size=3, min_survivors=2)
    world = World(plan)
    world.updates = np.full((12, plan.dimension), value)
    world.run("advertise", "share")
    for elements, block in zip(masked_elements(world, 3), plan.blocks_of(plan.assignment[3]), strict=True):
        size = 2**block.bits
        counts = np.bincount(elements, minlength=size)
        expected = elements.size / size
        chi_square = float(((counts - expected) ** 2 / expected).sum())
        assert chi_square < size + 6 * np.sqrt(2 * size)


def test_masked_vectors_of_two_inputs_and_rounds_are_uncorrelated() -> None:
    plan = Plan.build([6, 6], [2, 5], 30_000, value_range=1.0, subgroup_size=3, min_survivors=2)
    found = []
    for seed in range(2):
        world = World(plan)
        world.updates = np.random.default_rng(0).uniform(-1, 1, world.updates.shape)
        world.run("advertise", "share")
        found.append([part.astype(float) for part in masked_elements(world, seed * 0)])
    for first, second in zip(*found, strict=True):
        assert abs(np.corrcoef(first, second)[0, 1]) < 5 / np.sqrt(first.size)
    levels = [np.floor((world.updates[0][s.start : s.stop] + 1) * 2) for s in plan.segments]
    for masked, plain in zip(found[1], levels, strict=True):
        assert abs(np.corrcoef(masked, plain)[0, 1]) < 5 / np.sqrt(masked.size)


def test_seals_and_shares_of_two_rounds_pairs_and_kinds_never_coincide() -> None:
    seen: set[bytes] = set()
    count = 0
    for _ in range(2):
        world = World(small_plan())
        world.run("advertise")
        for user in range(12):
            message = wire.decode(wire.Shares, world.answer("share", user), plan=world.plan)
            seen.add(message.secret_commitment)
            seen.update(wire.cut_rows(message.commitments, 16))
            for box in wire.cut_rows(message.sealed, 80):
                seen.update((box[:32], box[32:64], box[64:]))
            count += 1 + 2 * 12 + 3 * 11
    assert len(seen) == count


def test_a_mask_key_is_not_shown() -> None:
    assert "key" not in repr(Mask(b"k" * 32, True, (0,)))


@pytest.mark.parametrize("rotated", [False, True])
@pytest.mark.parametrize("piece", [16, 48, 64, 4096])
@pytest.mark.parametrize("design", ["secagg", "perfect"])
def test_pieces_and_threads_change_no_byte(
    monkeypatch: pytest.MonkeyPatch, piece: int, design: str, rotated: bool
) -> None:
    """However a vector is cut and whoever runs the pieces: the same levels, the same masks."""
    monkeypatch.setattr(rotation, "LONGEST", 128)  # pieces are multiples of it
    piece *= 8 if rotated else 1
    options: dict[str, Any] = {"rotate": rotated, "arrays": [400, 601], "scales": [2.0, 0.3]}
    plan = Plan.build(
        [6, 6],
        [2, 300],
        1001,
        design=design,
        value_range=1.0,
        subgroup_size=3,
        min_survivors=2,
        metrics=["loss"],
        **options,
    )
    update = Update.of(plan, np.linspace(-1.2, 1.2, 1001), metrics={"loss": 1.0})
    rounding = Rounding.from_seed(1, 2)
    everything = tuple(range(len(plan.cells(0))))
    found = [Mask(bytes([number]) * 32, number % 2 == 0, everything) for number in range(3)]
    found += [Mask(bytes([9 + place]) * 32, True, (place,)) for place in everything]

    def masked(parallel_map: ParallelMap) -> list[bytes]:
        lanes = fill_cells(plan, 0, update, rounding, parallel_map=parallel_map)
        other = empty_cells(plan.cells(1))
        masks.apply(lanes, found, parallel_map=parallel_map)
        masks.apply_all([(lanes, found[:2]), (other, found[:1])], parallel_map=parallel_map)
        return [part.tobytes() for cell in (*lanes, *other) for part in (cell.elements, cell.auxiliary)]

    whole = masked(map)
    monkeypatch.setattr(masks, "PIECE_SIZE", piece)
    monkeypatch.setattr(encode, "PIECE_SIZE", piece)
    monkeypatch.setattr(encode, "_PREPARED_SIZE", piece)
    assert masked(map) == whole
    assert masked(all_cores()) == whole


def test_a_piece_is_no_larger_than_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masks, "PIECE_SIZE", 64)
    plan = small_plan(dimension=1000)
    lanes = empty_cells(plan.cells(0))
    pieces = masks._cut(lanes, [Mask(bytes(32), True, tuple(range(len(lanes))))])
    sizes = [sum(span.stop - span.start for span in piece.spans) for piece in pieces]
    assert max(sizes) <= 64
    assert sum(sizes) == 1000
    assert "covering" not in repr(pieces[0])


def test_the_given_map_runs_every_piece_and_none_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masks, "PIECE_SIZE", 64)
    lanes = [CellLanes(np.zeros(size, dtype=np.uint8), np.zeros(2, dtype=np.uint64)) for size in (128, 160)]
    given: list[Any] = []

    def recorded(function: Callable[[Any], Any], pieces: Iterable[Any]) -> Iterator[Any]:
        given.extend(pieces)
        return map(function, given)

    masks.apply(lanes, [Mask(bytes(32), True, (0, 1))], parallel_map=recorded)
    assert len(given) == 5  # of 288 elements, and the last one has 32
    assert lanes[1].elements.any()


def test_a_stream_can_be_entered_at_any_block() -> None:
    key, buffer = bytes(range(32)), chunk_buffer()
    whole = keystream(key, 4096)
    for start in (0, 16, 1024, 4080):
        stream = Keystream(key, start=start)
        assert bytes(stream.read_into(buffer, 16)) == whole[start : start + 16]
        assert stream.position == start + 16
    with pytest.raises(UsageError, match="multiple of 16"):
        Keystream(key, start=8)
    with pytest.raises(UsageError, match="multiple of 16"):
        Keystream(key, start=-16)
