"""Who attacks, and what attackers send."""

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")


from heterosag.plan import Plan
from heterosag.training import attacks


def test_attackers_are_spread_or_random() -> None:
    plan = Plan.build([96], [4], 100, value_range=1.0, subgroup_size=8)
    rng = np.random.default_rng(0)
    spread = attacks.choose_attackers(plan, 12, "spread", rng)
    assert len({plan.assignment[user] for user in spread}) == 12
    assert len(attacks.choose_attackers(plan, 30, "spread", rng)) == 30
    anywhere = attacks.choose_attackers(plan, 12, "random", rng)
    assert len(set(anywhere)) == 12
    assert attacks.choose_attackers(plan, 0, "spread", rng) == []


def test_what_attackers_send() -> None:
    honest = np.random.default_rng(0).normal(1.0, 0.1, (5, 4000)).astype(np.float32)
    rng = np.random.default_rng(1)
    assert np.array_equal(attacks.tamper("sign-flip", honest, 0.0, rng), honest * np.float32(-5))
    assert np.array_equal(attacks.tamper("label-flip", honest, 0.0, rng), honest * np.float32(30))
    noise = attacks.tamper("gaussian", honest, 2.0, rng)
    assert noise.std() == pytest.approx(2.0, rel=0.05)
    hidden = attacks.tamper("little", honest, 1.0, rng)
    assert np.allclose(hidden[0], honest.mean(axis=0) - honest.std(axis=0))
    assert np.array_equal(hidden[0], hidden[4])
    assert attacks.flip_labels(np.array([0, 3, 9]), 10).tolist() == [9, 6, 0]
