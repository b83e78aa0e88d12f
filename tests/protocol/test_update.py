"""An update is checked once, on its way in."""

import itertools
import pickle
from typing import Any

import numpy as np
import pytest
from cases import each
from rounds import World, small_plan

from heterosag.errors import UsageError
from heterosag.plan import Plan
from heterosag.protocol.update import METRIC_LIMIT, Update, checksum


def test_bad_vectors_and_weights_are_refused_at_once() -> None:
    plan = Plan.build([12], [4], 1003, value_range=1.0, subgroup_size=3)
    with pytest.raises(UsageError, match="1003 elements"):
        Update.of(plan, np.zeros(1002))
    with pytest.raises(UsageError, match="NaN"):
        Update.of(plan, np.full(1003, np.nan))
    with pytest.raises(UsageError, match="vector of floats"):
        Update.of(plan, np.zeros(1003, dtype=np.int64))  # type: ignore[arg-type]
    for weight in (0, 2, True, 1.0, "2"):
        with pytest.raises(UsageError, match="integer weights") as refusal:
            Update.of(plan, np.zeros(1003), weight=weight)  # type: ignore[arg-type]
        advice = ": build it with a larger max_weight" if weight == 2 else ""
        assert str(refusal.value).endswith(f"from 1 to 1, not {weight!r}{advice}")


def test_a_metric_is_as_large_as_its_limit_and_no_larger() -> None:
    plan = small_plan(metrics=["loss"])
    for value in (METRIC_LIMIT, -METRIC_LIMIT, 0.5):
        assert Update.of(plan, np.zeros(40), metrics={"loss": value}).metrics == {"loss": value}
    for value in (METRIC_LIMIT + 1, -METRIC_LIMIT - 1, np.inf, np.nan):
        with pytest.raises(UsageError, match=f"metric 'loss' must lie within {METRIC_LIMIT} of zero"):
            Update.of(plan, np.zeros(40), metrics={"loss": value})


def test_an_update_knows_its_least_and_greatest_element() -> None:
    plan = Plan.build([12], [4], 3, value_range=1.0, subgroup_size=3)
    assert Update.of(plan, np.array([0.5, -0.25, 0.0])).extent == (-0.25, 0.5)


def test_an_update_does_not_show() -> None:
    plan = small_plan(metrics=["loss"], max_weight=9)
    update = Update.of(plan, np.zeros(plan.dimension), 3, {"loss": 0.25})
    assert repr(update) == "Update()"
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(update)


def test_an_update_of_another_plan_is_refused_by_the_client() -> None:
    world = World(small_plan(metrics=[]))
    world.run("advertise", "share")
    for other in ({"dimension": 41}, {"metrics": ["loss"]}, {"max_weight": 9}):
        plan = small_plan(**other)
        update = Update.of(plan, np.zeros(plan.dimension), plan.max_weight, dict.fromkeys(plan.metrics, 0.0))
        with pytest.raises(UsageError, match="checked against another plan"):
            world.clients[0].mask(world.waiting[0], update)
    good = Update.of(world.plan, world.updates[0])
    world.server.receive(0, world.clients[0].mask(world.waiting[0], good))


def test_an_update_for_a_plan_with_noise_is_refused_by_one_without() -> None:
    """Nobody has looked at its elements, which need not be finite."""
    plan = Plan.build([12], [4], 3, value_range=1.0, subgroup_size=3)
    noisy = Plan.build([12], [64], 3, clipping_norm=1.0, noise_multiplier=1.0, subgroup_size=3)
    update = Update.of(noisy, np.array([np.nan, 3.0, 0.0]))
    update.check_fits(noisy)
    with pytest.raises(UsageError, match="another plan"):
        update.check_fits(plan)
    Update.of(plan, np.zeros(3)).check_fits(noisy)


def test_the_checksum_notices_any_change() -> None:
    vector = np.arange(20_000, dtype=np.float32)
    before = checksum(vector, 1, {})
    assert checksum(vector.copy(), 1, {}) == before
    for place in (0, 7777, 19_999):
        other = vector.copy()
        other[place] += 1
        assert checksum(other, 1, {}) != before
    assert checksum(vector, 2, {}) != before
    assert checksum(vector, 1, {"loss": 0.0}) != before


@each("size", [0, 1, 9, 4095, 4096, 8191, 20_003])
@each("dtype", [np.float16, np.float32, np.float64])
def test_the_checksum_adds_up_all_words_whatever_the_shape(size: int, dtype: type[np.floating[Any]]) -> None:
    vector = np.arange(size).astype(dtype)
    content = vector.tobytes()
    total, *_ = checksum(vector, 1, {})
    whole = len(content) // 8 * 8
    assert total == sum(np.frombuffer(content[:whole], np.uint64).tolist()) % 2**64
    assert checksum(vector.reshape(1, -1), 1, {}) == checksum(vector.reshape(-1, 1), 1, {}) == checksum(vector, 1, {})


def test_the_checksum_notices_any_two_elements_of_a_small_vector_that_change_places() -> None:
    vector = np.arange(1.0, 10.0)
    for one, other in itertools.combinations(range(9), 2):
        swapped = vector.copy()
        swapped[[one, other]] = vector[[other, one]]
        assert checksum(swapped, 1, {}) != checksum(vector, 1, {})
