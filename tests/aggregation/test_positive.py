"""Arrays that were positive when a run began stay so, and a run that goes on later knows which they are."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from heterosag.aggregation.positive import PositiveArrays
from heterosag.errors import UsageError

MODEL = np.concatenate([np.full(3, 0.8), [0.5, -0.1], np.full(2, 4.0), [0.0]]).astype(np.float32)
SIZES = [3, 2, 2, 1]


def test_elements_of_positive_arrays_keep_a_quarter() -> None:
    found = PositiveArrays.of(MODEL, SIZES)
    assert found.positive == (True, False, True, False)
    after = np.array([0.7, -0.3, 0.1, -5.0, -5.0, 9.0, 1.0, -5.0], dtype=np.float32)
    assert found.hold(MODEL, after) == 2
    assert after.tolist() == pytest.approx([0.7, 0.2, 0.2, -5.0, -5.0, 9.0, 1.0, -5.0])
    assert found.hold(MODEL, after) == 0


def test_a_bias_that_happens_to_be_positive_may_become_negative() -> None:
    model, after = np.full(6, 0.5), np.full(6, -0.5)
    names = ["norm.weight", "norm.bias", "head.running_var", "intercept_", "1"]
    found = PositiveArrays.of(model, [2, 1, 1, 1, 1], names)
    assert found.positive == (True, False, True, False, False)
    assert found.hold(model, after) == 3
    assert after.tolist() == [0.125, 0.125, -0.5, 0.125, -0.5, -0.5]
    assert PositiveArrays.of(model, [5, 1]).positive == (True, False)
    held = {"unbiased_var": True, "debias/bn/moving_variance:0": True, "bn/beta_bias": False, "bias.weight": True}
    held |= {"invariant_bias": False, "biases.0": False, "weights.0": True}
    assert PositiveArrays.of(np.ones(14), [2] * 7, list(held)).positive == tuple(held.values())


def test_a_state_comes_back_as_it_was() -> None:
    found = PositiveArrays.of(MODEL, SIZES)
    assert PositiveArrays.from_state_dict(json.loads(json.dumps(found.state_dict()))) == found


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        None,
        {"arrays": ["x"], "positive": [True]},
        {"arrays": [3], "positive": []},
        {"arrays": [float("inf")], "positive": [True]},
    ],
)
def test_what_is_no_state_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError):
        PositiveArrays.from_state_dict(wrong)
