"""Noise for a plan that is given otherwise: as much as its target needs, and blocks that fail seldom enough."""

from __future__ import annotations

from typing import Any

import pytest

from heterosag.plan import Plan
from heterosag.plan.design import make
from heterosag.plan.dropout import failure_probability
from heterosag.planner.noise import fit_noise, least_block_survivors
from heterosag.privacy import NoisyRound, epsilon


def test_least_block_survivors_are_the_most_that_fail_seldom_enough() -> None:
    for design, sizes in ((make("secagg", 1), [40]), (make("perfect", 6), [20] * 6)):
        given: dict[str, Any] = {"dropout": 0.1, "min_survivors": 3}
        least = least_block_survivors(design, sizes, **given, needed=21, failure=0.01)

        def fails(count: int, design: Any = design, sizes: Any = sizes) -> float:
            return failure_probability(
                design, sizes, 0.1, min_survivors=3, min_block_survivors=count, needed=21, losses=0
            )

        assert fails(least) <= 0.01 < fails(least + 1)


def test_a_plan_given_otherwise_gets_the_noise_of_its_target() -> None:
    given: dict[str, Any] = {"classes": [24, 24], "levels": [2, 2], "dimension": 9000, "subgroup_size": 8}
    given |= {"clipping_norm": 0.5, "min_survivors": 4, "min_block_survivors": 12, "colluders": 1}
    target: dict[str, Any] = {"target_epsilon": 8.0, "target_delta": 1e-5, "rounds": 20}
    server = fit_noise(given, **target)
    model = fit_noise(given, **target, view="model", survivors=40)
    assert epsilon(server, rounds=20, delta=1e-5) <= 8.0
    assert model.noise_multiplier < server.noise_multiplier
    found = epsilon(NoisyRound.of(model, survivors=40), rounds=20, delta=1e-5, view="model")
    assert found == pytest.approx(8.0, rel=0.01)
    assert Plan.decode(server.encode()) == server
