"""Noise against the quantizer it replaces, in the same run; and the accountant against its budget."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from unittest import mock

import numpy as np

from bench.masking import only_numpy
from bench.rows import CPU, Row, in_turn
from heterosag.plan import Plan
from heterosag.plan.noise import noise_range
from heterosag.privacy import NoisyRound, NoisySegment, epsilon
from heterosag.privacy.mechanism import count_trials, norm_factor
from heterosag.protocol import masks
from heterosag.protocol.cells import empty_cells, pack_cells, reduce_cells
from heterosag.protocol.encoding import fill_cells
from heterosag.protocol.masks import Mask
from heterosag.protocol.rounding import Rounding
from heterosag.protocol.update import Update

ELEMENTS = 1_000_000
USERS = 16
HONEST = 1000
BUDGET = 3.0  # seconds


def rows() -> Iterator[Row]:
    """The user's step at two and at sixteen levels, and the epsilon of a large block."""
    for level, goal in ((2, 3.0), (16, 8.0)):
        quantized, noisy = _steps(level)
        name = f"noise, mask and pack, {level} levels / quantize, mask and pack"
        yield Row.of(name, *in_turn(noisy, quantized, repeats=15, clock=CPU), goal=goal)
        with only_numpy():
            yield Row.of(f"{name}, without Numba", *in_turn(noisy, quantized, repeats=5, clock=CPU))
    name = f"epsilon of two levels and {HONEST:,} honest survivors, nothing known / budget of {BUDGET:.0f} s"
    yield Row.of(name, in_turn(_epsilon, repeats=3, clock=CPU)[0], BUDGET, goal=1.0)


def _steps(level: int) -> tuple[Callable[[], memoryview], Callable[[], memoryview]]:
    plan = Plan.build([USERS], [level], ELEMENTS, design="secagg", value_range=1.0, subgroup_size=USERS)
    cells = plan.cells(0)
    found = [Mask(secrets.token_bytes(32), bool(i % 2), tuple(range(len(cells)))) for i in range(USERS)]
    vector = np.random.default_rng(0).uniform(-1, 1, ELEMENTS).astype(np.float32)
    update = Update.of(plan, vector)
    ranges = noise_range(3.0, 1.0, 12, level - 1, ELEMENTS)

    def quantized() -> memoryview:
        lanes = fill_cells(plan, 0, update, Rounding.from_system())
        masks.apply(lanes, found)
        reduce_cells(lanes, cells)
        return pack_cells(lanes, cells)

    def noisy() -> memoryview:
        lanes = empty_cells(cells)
        count_trials(
            vector,
            norm_factor(vector, 1.0),
            block_range=ranges.block_range,
            theta=ranges.theta,
            trials=level - 1,
            key=secrets.token_bytes(32),
            first_word=0,
            out=lanes[0].elements,
        )
        masks.apply(lanes, found)
        reduce_cells(lanes, cells)
        return pack_cells(lanes, cells)

    return quantized, noisy


def _epsilon() -> float:
    segment = NoisySegment(size=20_000, trials=1, everywhere=HONEST)
    noisy = NoisyRound(noise_multiplier=4.5, honest=HONEST, segments=(segment,))
    with tempfile.TemporaryDirectory() as nothing, mock.patch.dict(os.environ, XDG_CACHE_HOME=nothing):
        return epsilon(noisy, rounds=20, delta=1e-5)
