"""The rotation: orthonormal, undone exactly, and what it does to quantization at two levels."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from heterosag import Simulation, aggregate
from heterosag.errors import UsageError
from heterosag.plan import Plan
from heterosag.protocol.encoding import fill_cells
from heterosag.protocol.update import Update
from heterosag.vector.rotation import LONGEST, rotate, rotate_rows, unrotate, unrotate_rows


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 13, 100, 1023, 1024, 15902, LONGEST + 100])
def test_rotation_keeps_lengths_and_is_undone(size: int) -> None:
    values = np.random.default_rng(size).normal(size=size)
    rotated = rotate(values, 3)
    assert np.linalg.norm(rotated) == pytest.approx(np.linalg.norm(values))
    assert np.abs(unrotate(rotated, 3) - values).max() <= 1e-6 * np.abs(values).max()
    if size > 8:
        assert not np.allclose(rotated, rotate(values, 4))


def test_a_spike_is_spread_over_its_piece() -> None:
    values = np.zeros(1024)
    values[17] = 1.0
    assert np.allclose(np.abs(rotate(values, 0)), 1 / 32)


def test_no_piece_is_longer_than_the_longest() -> None:
    values = np.zeros(2 * LONGEST)
    values[17] = 1.0
    rotated = rotate(values, 0)
    assert np.allclose(np.abs(rotated[:LONGEST]), LONGEST**-0.5)
    assert not rotated[LONGEST:].any()


@pytest.mark.parametrize("size", [13, 700])
def test_segments_are_rotated_together_as_they_are_alone(size: int) -> None:
    rows = np.random.default_rng(0).normal(size=(200, size))
    together = rotate_rows(rows, range(200))
    assert np.array_equal(together, np.stack([rotate(row, segment) for segment, row in enumerate(rows)]))
    unrotate_rows(together, range(200))
    assert np.allclose(together, rows)


def test_a_part_of_a_segment_is_rotated_as_in_the_whole() -> None:
    values = np.random.default_rng(0).normal(size=3 * LONGEST + 77)
    part = rotate_rows(values[None, LONGEST:], [4], start=LONGEST, size=values.size)
    assert np.array_equal(part[0], rotate(values, 4)[LONGEST:])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_rows_may_be_rotated_where_they_are(dtype: type) -> None:
    values = np.random.default_rng(0).normal(size=(3, 700)).astype(dtype)
    before, there = values.copy(), values.astype(np.float64)
    rotated = rotate_rows(values, range(3))
    assert rotated.dtype == np.float64
    assert np.array_equal(values, before)
    assert rotate_rows(there, range(3), out=there) is there
    assert np.array_equal(there, rotated)


@pytest.mark.parametrize("out", [np.empty((3, 699)), np.empty((2, 700)), np.empty((3, 700), dtype=np.float32)])
def test_rows_are_rotated_only_into_what_holds_them(out: np.ndarray) -> None:
    with pytest.raises(UsageError, match="need float64"):
        rotate_rows(np.zeros((3, 700)), range(3), out=out)


@pytest.mark.slow
def test_a_large_update_is_rotated_and_quantized_within_bounded_memory() -> None:
    """Beside the lanes that it fills a user needs some pieces, however large its update is."""
    peaks = []
    for elements in (2**21, 2**21, 2**22):  # the first time what is compiled on first use is loaded too
        plan = Plan.build([6], [16], elements, design="secagg", value_range=4.0, subgroup_size=6, rotate=True)
        update = Update.of(plan, np.zeros(elements, dtype=np.float32))
        tracemalloc.start()
        filled = fill_cells(plan, 0, update)
        peaks.append(tracemalloc.get_traced_memory()[1] - filled[0].elements.nbytes)
        tracemalloc.stop()
    signs = 2**22 // 8  # are kept for the next time, a bit each
    assert peaks[2] - signs < 1.1 * peaks[1] < 4e6


def test_rounds_with_rotation_give_the_mean_and_the_same_bits_secure_and_plain() -> None:
    plan = Plan.build([12, 12], [256, 1024], 333, subgroup_size=4, value_range=(-2.0, 2.0), rotate=True)
    updates = np.random.default_rng(0).normal(0, 0.3, (24, 333))
    for rule in ("mean", "median"):
        secure = aggregate(plan, updates, rule=rule, simulate=Simulation(rounding_seed=1, dropped={4: "mask"}))
        plain = aggregate(
            plan, updates, rule=rule, simulate=Simulation(rounding_seed=1, dropped={4: "mask"}, secure=False)
        )
        assert np.array_equal(secure.vector, plain.vector)
    alive = [user for user in range(24) if user != 4]
    mean = aggregate(plan, updates, simulate=Simulation(rounding_seed=1, dropped={4: "mask"}))
    assert np.abs(mean.vector - updates[alive].mean(axis=0)).max() < 4 / 255
    assert plan == Plan.build([12, 12], [256, 1024], 333, subgroup_size=4, value_range=(-2.0, 2.0))
    assert plan.digest != replace(plan, rotate=False).digest
    assert Plan.from_toml(plan.to_toml()) == plan


def test_rotation_lowers_the_error_of_two_levels_for_uneven_updates() -> None:
    """Updates with few large elements: the range must hold them, and two levels are coarse everywhere else."""
    rng = np.random.default_rng(0)
    updates = rng.normal(0, 0.01, (24, 4096)) + (rng.random((24, 4096)) < 0.002) * rng.normal(0, 1.0, (24, 4096))
    errors = {}
    for turned in (False, True):
        widest = float(np.abs(np.stack([rotate(u, 0) for u in updates]) if turned else updates).max())
        plan = Plan.build(
            [24], [2], 4096, design="secagg", subgroup_size=4, value_range=widest, ranges="single", rotate=turned
        )
        result = aggregate(plan, updates, simulate=Simulation(rounding_seed=3, secure=False))
        errors[turned] = float(np.mean((result.vector - updates.mean(axis=0)) ** 2))
    assert errors[True] < errors[False] / 20
