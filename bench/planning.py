"""The planner against its budget."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bench.rows import CPU, Row, in_turn
from heterosag.planner import Requirements, best

BUDGET = 2.0  # seconds


def rows() -> Iterator[Row]:
    """Ten thousand users of all speeds, up to ten classes."""
    rates = tuple(np.random.default_rng(0).lognormal(1.0, 0.5, 10_000))
    requirements = Requirements(rates=rates, dimension=1_000_000, deadline=30.0, attackers=5)
    name = f"plan for 10,000 users / budget of {BUDGET:.0f} s"
    yield Row.of(name, in_turn(lambda: best(requirements), repeats=3, clock=CPU)[0], BUDGET, goal=1.0)
