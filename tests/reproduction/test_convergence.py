"""The convex problem of Theorem 2: its gradients, its minimiser, and what the runs are measured against."""

import numpy as np
import pytest

pytest.importorskip("torch")


from reproduction.convergence import _WAYS, Problem, _descend

PROBLEM = Problem.draw(np.random.default_rng(0))


def test_gradients_are_those_of_the_loss() -> None:
    rng = np.random.default_rng(1)
    theta, direction = rng.normal(0, 0.3, PROBLEM.size), rng.normal(0, 1, PROBLEM.size)
    small = 1e-6
    slope = (PROBLEM.loss(theta + small * direction) - PROBLEM.loss(theta - small * direction)) / (2 * small)
    assert PROBLEM.gradients(theta).mean(axis=0) @ direction == pytest.approx(slope, rel=1e-6)


def test_sampled_gradients_are_unbiased_for_their_user() -> None:
    theta = np.random.default_rng(2).normal(0, 0.3, PROBLEM.size)
    each = PROBLEM.x.shape[1]
    one_by_one = [PROBLEM.gradients(theta, np.full((25, 1), place)) for place in range(each)]
    assert np.allclose(np.mean(one_by_one, axis=0), PROBLEM.gradients(theta))
    assert max(np.abs(some).max() for some in one_by_one) < PROBLEM.widest_gradient


def test_the_minimiser_is_one_and_the_smoothness_bounds_the_curvature() -> None:
    best = PROBLEM.minimise()
    assert np.linalg.norm(PROBLEM.gradients(best).mean(axis=0)) < 1e-6
    rng = np.random.default_rng(3)
    for _ in range(10):
        other = best + rng.normal(0, 0.5, PROBLEM.size)
        change = (PROBLEM.gradients(other) - PROBLEM.gradients(best)).mean(axis=0)
        assert np.linalg.norm(change) <= PROBLEM.smoothness * np.linalg.norm(other - best)
        assert PROBLEM.loss(other) > PROBLEM.loss(best)


def test_exact_steps_from_the_minimiser_stay_there_and_quantized_ones_do_not() -> None:
    best = PROBLEM.minimise()
    exact, coarse = (_descend(PROBLEM, best, best, _WAYS[name], 5, 0) for name in ("exact", "constant"))
    assert abs(exact.last[5]) < 1e-9
    assert exact.error == exact.sigma == 0
    assert coarse.last[5] > 1e-4
    assert 0 < coarse.error <= 1.2 * coarse.sigma
