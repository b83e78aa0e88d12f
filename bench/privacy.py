"""Noise against the quantizer it replaces, in the same run; and the accountant against its budget."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np

from bench.masking import only_numpy
from bench.rows import CPU, Row, in_turn
from heterosag.plan import Plan
from heterosag.privacy import NoisyRound, NoisySegment, epsilon
from heterosag.protocol import masks
from heterosag.protocol.cells import pack_cells
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
    """The whole step of a plan without noise and of one with it, both rotated."""
    shape: dict[str, Any] = {"design": "secagg", "subgroup_size": USERS}
    plain = Plan.build([USERS], [level], ELEMENTS, **shape, value_range=1.0, rotate=True)
    noise: dict[str, Any] = {"clipping_norm": 1.0, "noise_multiplier": 3.0, "min_block_survivors": 12}
    private = Plan.build([USERS], [level], ELEMENTS, **shape, **noise)
    vector = np.random.default_rng(0).uniform(-1, 1, ELEMENTS).astype(np.float32)
    keys = [secrets.token_bytes(32) for _ in range(USERS)]

    def step(plan: Plan) -> Callable[[], memoryview]:
        cells, update = plan.cells(0), Update.of(plan, vector)
        found = [Mask(key, bool(i % 2), tuple(range(len(cells)))) for i, key in enumerate(keys)]

        def encode_mask_and_pack() -> memoryview:
            lanes = fill_cells(plan, 0, update, Rounding.from_system())
            masks.apply(lanes, found)
            return pack_cells(lanes, cells)

        return encode_mask_and_pack

    return step(plain), step(private)


def _epsilon() -> float:
    segment = NoisySegment(size=20_000, trials=1, everywhere=HONEST)
    noisy = NoisyRound(noise_multiplier=4.5, honest=HONEST, segments=(segment,))
    with tempfile.TemporaryDirectory() as nothing, mock.patch.dict(os.environ, XDG_CACHE_HOME=nothing):
        return epsilon(noisy, rounds=20, delta=1e-5)
