"""One user's quantized vector: every segment by its block's quantizer, without bias, within Lemma 1's variance."""

import numpy as np
import pytest

pytest.importorskip("torch")


from reproduction.plans import paper_plan
from reproduction.quantization import _error_of_users, _variance_bound, quantize_user

PLAN = paper_plan([5] * 5, [2, 6, 8, 10, 12], 50, value_range=1.0, design="paper", subgroup_size=5)


def test_a_segment_takes_the_levels_of_its_block() -> None:
    rng = np.random.default_rng(0)
    values = rng.uniform(-1, 1, 50)
    user = 24  # of the class with 12 levels
    coded = quantize_user(PLAN, user, values, rng)
    for segment, block in zip(PLAN.segments, PLAN.blocks_of(PLAN.subgroup_of(user)), strict=True):
        places = (coded[segment.start : segment.stop] + 1) * (block.level - 1) / 2
        assert np.allclose(places, np.round(places))
        assert np.abs(coded - values)[segment.start : segment.stop].max() <= 2 / (block.level - 1) + 1e-12


def test_the_bound_is_reached_halfway_between_two_levels_and_a_biased_user_is_seen() -> None:
    rng = np.random.default_rng(1)
    coarse = paper_plan([5] * 5, [2] * 5, 50, value_range=1.0, design="paper", subgroup_size=5)
    error, bias = _error_of_users(coarse, np.zeros((25, 50)), rng, 100)
    assert abs(error - 1) < 1e-9
    assert bias < 2
    assert _variance_bound(coarse, 0) == 50.0
    outside = np.full((25, 50), 3.0) + rng.uniform(-5, 0, (25, 50))  # clipped to the range, so that it is biased
    assert _error_of_users(coarse, outside, rng, 100)[1] > 10
