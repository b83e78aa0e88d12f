"""An update's way into the rings and back, and the rounding key."""

import pickle
from typing import Any

import numpy as np
import pytest

from heterosag.errors import UsageError
from heterosag.plan import Plan
from heterosag.plan.noise import noise_range
from heterosag.privacy.mechanism import norm_factor, thresholds, word_starts
from heterosag.protocol import encoding
from heterosag.protocol.encoding import decode, decode_clip_bit, decode_metric, fill_cells
from heterosag.protocol.rounding import Rounding
from heterosag.protocol.update import METRIC_LIMIT, Update
from heterosag.vector import _numba, ring
from heterosag.vector.rotation import LONGEST, rotate


def plan_of(max_weight: int = 1) -> Plan:
    single: dict[str, Any] = {"ranges": "single", "rotate": False}
    return Plan.build([6, 6, 9], [2, 5, 12], 1003, value_range=1.0, subgroup_size=3, max_weight=max_weight, **single)


@pytest.mark.parametrize("max_weight", [1, 20])
def test_block_means_of_all_users_are_the_mean_of_the_updates(max_weight: int) -> None:
    """The whole way without masks: encode everybody, add in the ring, decode each block."""
    plan = plan_of(max_weight)
    rng = np.random.default_rng(1)
    updates = rng.uniform(-1, 1, size=(21, plan.dimension))
    weights = [int(w) for w in rng.integers(1, max_weight, 21, endpoint=True)]
    encoded = [
        fill_cells(plan, plan.subgroup_of(u), Update.of(plan, updates[u], weight=weights[u]), Rounding.from_seed(5, u))
        for u in range(21)
    ]
    for at, segment in enumerate(plan.segments):
        for block in segment.blocks:
            users = [u for u in range(21) if plan.subgroup_of(u) in block.subgroups]
            total = np.zeros(segment.size, dtype=ring.lane_dtype(block.bits))
            for u in users:
                total += encoded[u][at].elements
            exact = sum(encoded[u][at].elements.astype(object) for u in users)
            assert np.array_equal(ring.reduce(total, block.bits).astype(object), exact), "a ring overflowed"
            weight = sum(weights[u] for u in users)
            mean = decode(plan, block, total, len(users), weight)
            part = slice(segment.start, segment.stop)
            expected = np.average(updates[users, part], axis=0, weights=[weights[u] for u in users])
            step = 2 / (block.level - 1) * len(users) * max_weight / weight
            assert np.abs(mean - expected).max() < step
            assert abs((mean - expected).mean()) < 5 * step / np.sqrt(segment.size)


def test_the_factor_that_clips_an_update_does_not_show() -> None:
    """It is the update's exact norm, of which noise is there to hide all but a noisy bit."""
    plan = noisy_plan()
    noise = encoding._Noise.of(plan, 0, Update.of(plan, np.full(plan.dimension, 0.5)))
    assert noise.factor is not None
    assert noise.factor < 1
    assert str(noise.factor)[:4] not in repr(noise)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(noise)


THREE_ARRAYS: dict[str, Any] = {"arrays": [400, 200, 403], "scales": [0.25, 8.0, 2.0]}
LARGE: dict[str, Any] = {"design": "secagg", "dimension": 2 * LONGEST + 77}  # two pieces if rotated


def fine_plan(**change: Any) -> Plan:
    given: dict[str, Any] = {"classes": [12], "levels": [1 << 20], "dimension": 1003, "subgroup_size": 3}
    return Plan.build(**given | {"value_range": 1.0, "ranges": "single"} | change)


@pytest.mark.parametrize("rotate", [False, True])
@pytest.mark.parametrize("change", [{}, {"max_weight": 2}, THREE_ARRAYS, THREE_ARRAYS | {"max_weight": 2}, LARGE])
def test_the_cells_of_one_user_decode_to_its_update(change: dict[str, Any], rotate: bool) -> None:
    plan = fine_plan(rotate=rotate, **change)
    vector = np.random.default_rng(4).uniform(-0.1, 0.1, plan.dimension)
    filled = fill_cells(plan, 1, Update.of(plan, vector), Rounding.from_seed(5, 1))
    for cell, lanes in zip(plan.cells(1), filled, strict=True):
        mean = decode(plan, cell.block, lanes.elements, 1, 1, segment=cell.segment)
        assert np.abs(mean - vector[cell.start : cell.stop]).max() < 1e-3


def test_clipped_values_are_counted_wherever_in_a_large_cell_they_are() -> None:
    plan = fine_plan(rotate=False, **LARGE)
    vector = np.zeros(plan.dimension)
    vector[[0, 1, LONGEST, -1]] = 3.0
    [cell] = fill_cells(plan, 0, Update.of(plan, vector))
    assert dict(zip(plan.lanes, cell.auxiliary.tolist(), strict=True))["clipped"] == 4


def test_what_is_rotated_or_counted_goes_in_shorter_pieces() -> None:
    """It is converted before, and stays in the cache; a vector that goes as it is has no need of it."""
    assert len(pieces_of(fine_plan(rotate=False, **LARGE))) == 1
    assert len(pieces_of(fine_plan(**LARGE))) == 2
    assert len(pieces_of(noisy_plan(min_block_survivors=12, **LARGE))) == 2


@pytest.mark.parametrize("rotate", [True, False])
@pytest.mark.parametrize("scales", [(0.3, 1.7), None])
def test_an_update_in_float32_is_prepared_in_float64(scales: tuple[float, float] | None, rotate: bool) -> None:
    """Scaled and weighted as its copy in float64, which many levels would tell apart."""
    changes: dict[str, Any] = {"max_weight": 7, "rotate": rotate}
    if scales is not None:
        changes |= {"arrays": (300, 100), "scales": scales}
    plan = Plan.build([6], [2**28], 400, design="secagg", value_range=4.0, subgroup_size=6, **changes)
    narrow = np.random.default_rng(0).normal(size=400).astype(np.float32)
    for weight in (3, 7):
        [one], [other] = (
            fill_cells(plan, 0, Update.of(plan, vector, weight), Rounding.from_seed(1, 1))
            for vector in (narrow, narrow.astype(np.float64))
        )
        assert np.array_equal(one.elements, other.elements)


@pytest.mark.parametrize("rotate", [True, False])
def test_what_overflows_while_it_is_prepared_is_refused(rotate: bool) -> None:
    """Elements are looked at once, when the update is made; again only where scales could carry them to infinity."""
    plan = Plan.build(
        [6],
        [16],
        64,
        design="secagg",
        value_range=4.0,
        subgroup_size=6,
        arrays=(60, 4),
        scales=(1.0, 1e-15),
        rotate=rotate,
    )
    with np.errstate(all="raise"):
        for large in (1e200, 1e285):
            [content] = fill_cells(plan, 0, Update.of(plan, np.full(64, large)))
            assert content.elements.max() <= 15
            assert content.auxiliary[1] > 50
        with pytest.raises(UsageError, match="NaN or infinite"):
            fill_cells(plan, 0, Update.of(plan, np.full(64, 1e300)))
        fill_cells(plan, 0, Update.of(plan, np.full(64, 1e-310)))


@pytest.mark.parametrize(("size", "pieces"), [(1, 1), (2, 3), (3, 3), (4, 6)])
def test_small_cells_go_together_and_large_ones_are_cut(
    monkeypatch: pytest.MonkeyPatch, size: int, pieces: int
) -> None:
    """Three cells of equal size in pieces of three elements, with the same lanes as in one piece."""
    plan = fine_plan(rotate=False, dimension=3 * size)
    update = Update.of(plan, np.linspace(-1.5, 1.5, plan.dimension))
    whole = fill_cells(plan, 0, update, Rounding.from_seed(5, 1))
    monkeypatch.setattr(encoding, "PIECE_SIZE", 3)
    assert len(pieces_of(plan)) == pieces
    for one, other in zip(whole, fill_cells(plan, 0, update, Rounding.from_seed(5, 1)), strict=True):
        assert np.array_equal(one.elements, other.elements)
        assert np.array_equal(one.auxiliary, other.auxiliary)


def pieces_of(plan: Plan) -> list[Any]:
    """What is quantized apart from one another of a vector."""
    found: list[Any] = []

    def note(function: Any, pieces: Any) -> Any:
        for piece in pieces:
            found.append(piece)
            yield function(piece)

    fill_cells(plan, 0, Update.of(plan, np.zeros(plan.dimension)), parallel_map=note)
    return found


@pytest.mark.parametrize("noise", [False, True])
def test_a_loop_is_worth_compiling_by_the_size_of_the_whole_vector(
    monkeypatch: pytest.MonkeyPatch, noise: bool
) -> None:
    """The small segments of a large vector would not be, each on its own."""
    asked: list[int] = []
    monkeypatch.setattr(_numba, "find", lambda _, elements: asked.append(elements))
    plan = noisy_plan() if noise else fine_plan()
    [*_, lanes] = fill_cells(plan, 3, Update.of(plan, np.ones(plan.dimension)))
    [*_, cell] = plan.cells(3)
    decode(plan, cell.block, lanes.elements, 1, 1, segment=cell.segment)
    assert min(asked) == plan.dimension


def test_lanes_hold_no_memory_beside_their_elements() -> None:
    plan = plan_of()
    for subgroup in range(len(plan.subgroups)):
        elements = [cell.elements for cell in fill_cells(plan, subgroup, Update.of(plan, np.zeros(1003)))]
        held = {id(part.base): part.base for part in elements}
        assert sum(part.nbytes for part in held.values() if part is not None) == sum(part.nbytes for part in elements)


def test_auxiliary_lanes() -> None:
    vector = np.zeros(1003)
    vector[0] = 3.0
    weighted = fill_cells(plan_of(9), 0, Update.of(plan_of(9), vector, weight=4))
    assert weighted[0].auxiliary.tolist() == [1, 4, 1]
    assert weighted[1].auxiliary.tolist() == [1, 4, 0]
    assert fill_cells(plan_of(), 0, Update.of(plan_of(), vector))[0].auxiliary.tolist() == [1, 1]


def test_metrics_go_into_one_more_cell() -> None:
    plan = Plan.build([6, 6], [2, 4], 10, value_range=1.0, subgroup_size=3, metrics=["loss", "accuracy"])
    update = Update.of(plan, np.zeros(10), metrics={"accuracy": 0.75, "loss": -1.5})
    cells = fill_cells(plan, 1, update)
    assert len(cells) == len(plan.segments) + 1
    assert cells[-1].elements.size == 0
    assert cells[-1].auxiliary[0] == 1
    assert [decode_metric(plan, int(lane), 1) for lane in cells[-1].auxiliary[1:]] == [-1.5, 0.75]
    for bad in ({}, {"loss": 1.0}, {"loss": 1.0, "accuracy": float("nan")}, {"loss": 2.0**25, "accuracy": 0.0}):
        with pytest.raises(UsageError, match="metric"):
            Update.of(plan, np.zeros(10), metrics=bad)


def test_a_sum_of_metrics_is_one_that_users_can_have_made() -> None:
    """A mean lies within the limit of a metric, and one more for the rounding of each user's part."""
    plan = Plan.build([12], [2], 10, value_range=1.0, subgroup_size=3, metrics=["loss"])
    one, most = 2**24, (METRIC_LIMIT + 1) * 2**24
    for sign in (1, -1):
        assert decode_metric(plan, sign * most % 2**64, 1) == sign * (METRIC_LIMIT + 1)
        assert decode_metric(plan, sign * (most + 1) % 2**64, 1) is None
        assert decode_metric(plan, sign * (most + one) % 2**64, 1) is None
    assert decode_metric(plan, 2**63, 2**15) == -METRIC_LIMIT  # so many users with the least metric: it is negative


def test_a_malicious_user_wraps_in_the_ring() -> None:
    plan = Plan.build([6, 6], [2, 4], 10, value_range=1.0, ranges="single", rotate=False, subgroup_size=3)
    vector = np.array([-3.0, 5.0] + [0.0] * 8)
    cells = fill_cells(plan, 0, Update.of(plan, vector), clip=False)
    block = plan.blocks_of(0)[0]
    assert cells[0].elements[0] == 2**block.bits - 1  # level -1
    assert cells[0].elements[1] == 3
    assert cells[0].auxiliary[1] == 2
    huge = fill_cells(plan, 0, Update.of(plan, np.full(10, 1e300)), clip=False)
    assert all(cell.elements.max() < 2**block.bits for cell, block in zip(huge, plan.blocks_of(0), strict=True))


def test_at_equal_bits_scaling_before_rounding_has_the_smaller_error() -> None:
    """Against weights multiplied in after rounding, whose ring holds max_weight times the levels: the variance of the
    weighted mean is n over the sum of squared weights of that, so never larger; at equal levels it is max_weight^2
    times as large."""
    from heterosag.vector.quantize import dequantize, quantize

    rng = np.random.default_rng(8)
    users, most, level, size = 6, 10, 5, 40_000
    weights = rng.integers(1, most, users, endpoint=True)
    values = rng.uniform(-1, 1, (users, size))
    truth = np.average(values, axis=0, weights=weights)

    def rounded(row: np.ndarray, levels: int) -> np.ndarray:
        out = np.empty(size, dtype=np.uint64)
        quantize(row, levels, (-1.0, 1.0), rng.integers(0, 2**32, size, dtype=np.uint32), out=out)
        return dequantize(out, 1, levels, (-1.0, 1.0))

    after = sum(w * rounded(row, level) for w, row in zip(weights, values, strict=True)) / weights.sum()
    finer = most * (level - 1) + 1  # what the bits of weights would have held
    found = {}
    for levels in (level, finer):
        scaled = [rounded(row * w / most, levels) for w, row in zip(weights, values, strict=True)]
        found[levels] = np.var(sum(scaled) * most / weights.sum() - truth)
    before = np.var(after - truth)
    expected = users / float(weights @ weights)
    assert found[finer] / before == pytest.approx(expected, rel=0.1)
    assert found[finer] < before
    assert found[level] / before == pytest.approx(expected * most**2, rel=0.1)


# --- noise --------------------------------------------------------------------------------------------------------


def noisy_plan(**change: object) -> Plan:
    given: dict[str, object] = {"classes": [8, 8], "levels": [2, 16], "dimension": 3001, "subgroup_size": 4}
    given |= {"clipping_norm": 0.5, "noise_multiplier": 3.0, "min_block_survivors": 6, "honest": 4}
    return Plan.build(**given | change)  # type: ignore[arg-type]


def test_noisy_counts_are_those_of_the_mechanism_segment_by_segment() -> None:
    """Scaled to the norm, rotated, in the range of its block, and with words of its own for every trial."""
    plan, rounding = noisy_plan(), Rounding.from_seed(7, 1)
    vector = np.random.default_rng(2).normal(size=plan.dimension).astype(np.float32)
    factor = norm_factor(vector, 0.5)
    for subgroup in (0, 3):
        cells = plan.cells(subgroup)
        trials = [cell.block.level - 1 for cell in cells]
        assert subgroup == 0 or len(set(trials)) == 2
        filled = fill_cells(plan, subgroup, Update.of(plan, vector), rounding)
        starts = word_starts([cell.size for cell in cells], trials)
        for cell, found, start, count in zip(cells, filled, starts, trials, strict=True):
            part = rotate(vector[cell.start : cell.stop].astype(np.float64) * factor, cell.segment)
            ranges = noise_range(3.0, 0.5, 4, count, cell.size)
            limits = thresholds(part, 1.0, block_range=ranges.block_range, theta=ranges.theta)
            words = rounding.words(start, cell.size * count).reshape(-1, count)
            assert np.array_equal(found.elements, (words < limits[:, None]).sum(axis=1))
            assert found.auxiliary.tolist() == [1]


def test_noisy_counts_do_not_depend_on_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    large = noisy_plan(min_block_survivors=12, **LARGE)
    for plan, size in ((noisy_plan(), 1001), (large, LONGEST)):
        update = Update.of(plan, np.random.default_rng(2).normal(size=plan.dimension))
        monkeypatch.setattr(encoding, "_PREPARED_SIZE", plan.dimension)
        whole = fill_cells(plan, 3, update, Rounding.from_seed(7, 1))
        monkeypatch.setattr(encoding, "_PREPARED_SIZE", size)
        pieces = fill_cells(plan, 3, update, Rounding.from_seed(7, 1), parallel_map=backwards)
        for one, other in zip(whole, pieces, strict=True):
            assert np.array_equal(one.elements, other.elements)


def backwards(function: Any, pieces: Any) -> Any:
    return [function(piece) for piece in reversed(list(pieces))]


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_an_update_of_a_narrow_type_is_scaled_to_its_norm_as_a_wide_one(dtype: type[np.floating[Any]]) -> None:
    """The factor of a huge update is zero in its own type."""
    plan = noisy_plan(clipping_norm=1e-6)
    signs = np.random.default_rng(2).choice([-1, 1], plan.dimension)
    vector = (signs * (float(np.finfo(dtype).max) / 2)).astype(dtype)
    narrow, wide = (
        fill_cells(plan, 3, Update.of(plan, values), Rounding.from_seed(7, 1))
        for values in (vector, vector.astype(np.float64))
    )
    for one, other in zip(narrow, wide, strict=True):
        assert np.array_equal(one.elements, other.elements)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_an_update_that_is_not_finite_sends_fair_coins_under_noise(bad: float) -> None:
    plan = noisy_plan()
    vector = np.full(plan.dimension, 0.1)
    vector[5] = bad
    zeros = fill_cells(plan, 3, Update.of(plan, np.zeros(plan.dimension)), Rounding.from_seed(7, 1))
    found = fill_cells(plan, 3, Update.of(plan, vector), Rounding.from_seed(7, 1))
    for one, other in zip(found, zeros, strict=True):
        assert np.array_equal(one.elements, other.elements)
    with pytest.raises(UsageError, match="NaN or infinite"):
        Update.of(plan_of(), np.full(1003, bad))


def test_the_clip_bit_is_a_coordinate_of_its_own_with_words_of_its_own() -> None:
    """A trial's probability is 5/8 within the norm, 3/8 beyond it and one half where the update is not finite."""
    plan, rounding = noisy_plan(adaptive_clip=True), Rounding.from_seed(7, 1)
    plain = noisy_plan()
    cells = plan.cells(3)
    start = word_starts([cell.size for cell in cells], [cell.block.level - 1 for cell in cells])[-1]
    words = rounding.words(start, 16)
    for value, limit in ((0.4, 5), (0.6, 3), (np.nan, 4)):
        vector = np.zeros(plan.dimension)
        vector[0] = value
        *segments, bit = fill_cells(plan, 3, Update.of(plan, vector), rounding)
        assert bit.elements.tolist() == [np.count_nonzero(words < limit * 2**29)]
        assert bit.auxiliary.tolist() == [1]
        for one, other in zip(segments, fill_cells(plain, 3, Update.of(plain, vector), rounding), strict=True):
            assert np.array_equal(one.elements, other.elements)
    unclipped = fill_cells(plan, 3, Update.of(plan, np.full(plan.dimension, 9.0)), rounding, clip=False)
    assert unclipped[-1].elements.tolist() == [np.count_nonzero(words < 3 * 2**29)]


def test_clip_bits_decode_to_the_fraction_within_the_norm() -> None:
    plan, total, users = noisy_plan(adaptive_clip=True), np.zeros(1, dtype=np.uint32), 400
    for user in range(users):
        vector = np.full(plan.dimension, 0.0 if user % 4 else 1.0)
        total += fill_cells(plan, 0, Update.of(plan, vector), Rounding.from_seed(5, user))[-1].elements
    assert decode_clip_bit(total, users) == pytest.approx(0.75, abs=5 * 0.5 / np.sqrt(users))


def test_a_malicious_user_counts_for_four_in_the_clip_bit() -> None:
    """An honest one's 16 trials come to 10 on average within the norm and to 6 beyond it; it can send 16 or 0."""
    honest, one = 6 * 80, 16  # none of 80 within the norm
    assert decode_clip_bit(np.array([honest + 10 * 20]), 100) == pytest.approx(0.2)
    assert decode_clip_bit(np.array([honest + one * 20]), 100) == pytest.approx(0.5)  # a fifth outvote all others


def test_no_update_is_refused_under_noise_for_what_a_program_does_about_tiny_numbers() -> None:
    plan = noisy_plan()
    vector = np.full(plan.dimension, 1e-310)
    vector[0] = 1e10
    with np.errstate(all="raise"):
        fill_cells(plan, 0, Update.of(plan, vector))


def test_a_huge_update_under_noise_is_scaled_before_it_is_rotated() -> None:
    plan = noisy_plan()
    filled = fill_cells(plan, 0, Update.of(plan, np.full(plan.dimension, 3e305)), Rounding.from_seed(7, 1))
    small = fill_cells(plan, 0, Update.of(plan, np.full(plan.dimension, 1.0)), Rounding.from_seed(7, 1))
    for one, other in zip(filled, small, strict=True):
        assert np.count_nonzero(one.elements != other.elements) <= 1


def test_block_means_under_noise_are_those_of_the_updates_and_noise() -> None:
    plan = noisy_plan(noise_multiplier=2.0, dimension=6000)
    draw = np.random.default_rng(3)
    updates = draw.normal(size=(16, plan.dimension))
    updates *= 0.4 / np.linalg.norm(updates, axis=1)[:, None]
    encoded = [
        fill_cells(plan, plan.subgroup_of(u), Update.of(plan, updates[u]), Rounding.from_seed(9, u)) for u in range(16)
    ]
    for at, segment in enumerate(plan.segments):
        for block in segment.blocks:
            users = [u for u in range(16) if plan.subgroup_of(u) in block.subgroups]
            total = sum(encoded[u][at].elements.astype(np.int64) for u in users)
            error = decode(plan, block, total, len(users), len(users), segment=at)
            error -= updates[users, segment.start : segment.stop].mean(axis=0)
            deviation = 2.0 * 0.5 / np.sqrt(4 * len(users))  # z c / sqrt(h) of one user
            assert abs(error.mean()) < 5 * deviation / np.sqrt(error.size)
            assert error.std() == pytest.approx(deviation, rel=5 / np.sqrt(2 * error.size))


def test_a_malicious_user_under_noise_sends_what_it_likes_in_the_range_of_its_block() -> None:
    plan = noisy_plan()
    vector = np.full(plan.dimension, 30.0)
    cell = plan.cells(0)[0]
    [filled, *_] = fill_cells(plan, 0, Update.of(plan, vector), Rounding.from_seed(7, 1), clip=False)
    wide = plan.noise_range(plan.segments[0], cell.block.level).block_range
    expected = (rotate(vector[: cell.stop], 0) + wide) / (2 * wide) * (cell.block.level - 1)
    apart = (filled.elements.astype(float) - expected) % 2**cell.bits
    assert np.minimum(apart, 2**cell.bits - apart).max() <= 1.0


def test_a_metric_at_its_limit_is_possible_however_large_weights_may_be() -> None:
    """With a weight far below the largest, what rounding adds to a user's part is large in its mean."""
    plan = Plan.build([6], [16], 6, subgroup_size=3, value_range=1.0, max_weight=5 * 2**29, metrics=["loss"])
    update = Update.of(plan, np.zeros(6), metrics={"loss": float(METRIC_LIMIT)})
    lane = int(fill_cells(plan, 0, update, Rounding.from_seed(0, 0))[-1].auxiliary[-1])
    found = decode_metric(plan, lane, 1)
    assert found == pytest.approx(METRIC_LIMIT, rel=1e-5)
    assert decode_metric(plan, 2 * lane, 1) is None
