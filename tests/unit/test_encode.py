"""An update's way into the rings and back, and the rounding key."""

import numpy as np
import pytest

from heterosag import ring
from heterosag.encode import Rounding, decode, encode
from heterosag.errors import UsageError
from heterosag.plan import Plan


def plan_of(weight_bound: int = 1) -> Plan:
    return Plan.build([6, 6, 9], [2, 5, 12], 1003, subgroup_size=3, weight_bound=weight_bound)


@pytest.mark.parametrize("weight_bound", [1, 20])
def test_block_means_of_all_users_are_the_mean_of_the_updates(weight_bound: int) -> None:
    """The whole way without masks: encode everybody, add in the ring, decode each block."""
    plan = plan_of(weight_bound)
    rng = np.random.default_rng(1)
    updates = rng.uniform(-1, 1, size=(21, plan.dimension))
    weights = [int(w) for w in rng.integers(1, weight_bound, 21, endpoint=True)]
    encoded = [
        list(encode(plan, plan.subgroup_of(u), updates[u], Rounding.from_seed(5, u), weight=weights[u]))
        for u in range(21)
    ]
    for at, segment in enumerate(plan.segments):
        for block in segment.blocks:
            users = [u for u in range(21) if plan.subgroup_of(u) in block.subgroups]
            total = np.zeros(segment.size, dtype=ring.lane_dtype(block.bits))
            for u in users:
                total += encoded[u][at].lanes
            exact = sum(encoded[u][at].lanes.astype(object) for u in users)
            assert np.array_equal(ring.reduce(total, block.bits).astype(object), exact), "a ring overflowed"
            weight = sum(encoded[u][at].auxiliary.get("weight", 1) for u in users)
            mean = decode(plan, block, total, weight)
            part = slice(segment.start, segment.stop)
            expected = np.average(updates[users, part], axis=0, weights=[weights[u] for u in users])
            step = 2 / (block.level - 1)
            assert np.abs(mean - expected).max() < step
            assert abs((mean - expected).mean()) < 5 * step / np.sqrt(segment.size)


def test_auxiliary_lanes() -> None:
    vector = np.zeros(1003)
    vector[0] = 3.0
    segments = list(encode(plan_of(9), 0, vector, Rounding.from_system(), weight=4))
    assert segments[0].auxiliary == {"count": 1, "weight": 4, "clipped": 1}
    assert segments[1].auxiliary == {"count": 1, "weight": 4, "clipped": 0}
    assert next(encode(plan_of(), 0, vector, Rounding.from_system())).auxiliary == {"count": 1, "clipped": 1}


def test_bad_vectors_and_weights_are_refused_at_once() -> None:
    plan = plan_of()
    rounding = Rounding.from_system()
    with pytest.raises(UsageError, match="1003 elements"):
        encode(plan, 0, np.zeros(1002), rounding)
    with pytest.raises(UsageError, match="NaN"):
        encode(plan, 0, np.full(1003, np.nan), rounding)
    with pytest.raises(UsageError, match="vector of floats"):
        encode(plan, 0, np.zeros(1003, dtype=np.int64), rounding)  # type: ignore[arg-type]
    for weight in (0, 2, True, 1.0):
        with pytest.raises(UsageError, match="whole weights"):
            encode(plan, 0, np.zeros(1003), rounding, weight=weight)  # type: ignore[arg-type]


def test_every_element_has_its_own_word_wherever_reading_starts() -> None:
    rounding = Rounding.from_seed(1, 2, 3)
    whole = rounding.words(0, 100)
    for start in (0, 1, 2, 3, 4, 7, 50):
        assert np.array_equal(rounding.words(start, 30), whole[start : start + 30])


def test_rounding_keys_differ_and_are_hidden() -> None:
    keys = [Rounding.from_seed(s, u, r) for s in (0, 1) for u in (0, 1) for r in (0, 1)] + [Rounding.from_system()]
    assert len({key.words(0, 8).tobytes() for key in keys}) == len(keys)
    assert repr(keys[0]) == "Rounding()"
    with pytest.raises(UsageError, match="2\\^64"):
        Rounding.from_seed(-1, 0)
