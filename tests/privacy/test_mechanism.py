"""The mechanism: counts have the distribution that privacy is stated about, and variants that break it are found out.

Keys are fixed, so a test passes or fails for what the code is. Each check is a function of the implementation: ours
passes, and every deliberately broken one fails the check that is about it.
"""

from __future__ import annotations

import math
import tracemalloc
import warnings
from collections.abc import Callable
from fractions import Fraction
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from cases import each, examples
from hypothesis import given
from hypothesis import strategies as st

from heterosag.crypto import keystream
from heterosag.errors import UsageError
from heterosag.plan.noise import noise_range
from heterosag.privacy import mechanism
from heterosag.privacy.mechanism import count_trials, decode_mean, norm_factor, thresholds, word_starts
from heterosag.vector import _numba

Counts = npt.NDArray[np.uint8]
Encode = Callable[[npt.NDArray[Any], int, bytes], Counts]
"""A user's counts: the update, trials, key. The clipping norm is 1, and there are 4 honest users."""

NORM, HONEST, SIZE = 1.0, 4, 40_000


def key(*name: object) -> bytes:
    return sha256(repr(name).encode()).digest()


def multiplier(trials: int) -> float:
    """So little noise that theta is as large as it may be: what is wrong with probabilities shows best."""
    return 16 * math.sqrt(HONEST / trials / SIZE)


def ranges(trials: int) -> dict[str, float]:
    found = noise_range(multiplier(trials), NORM, HONEST, trials, SIZE)
    assert found.theta == pytest.approx(0.125)
    return {"block_range": found.block_range, "theta": found.theta}


def encode(vector: npt.NDArray[Any], trials: int, key: bytes) -> Counts:
    out = np.empty(vector.size, dtype=np.uint8)
    factor = norm_factor(vector, NORM)
    count_trials(vector, factor, trials=trials, key=key, first_word=0, out=out, **ranges(trials))
    return out


def chi_square(found: npt.NDArray[Any], trials: int, probability: float) -> float:
    """How many standard deviations the counts' chi-square is from that of their binomial distribution."""
    expected = [
        found.size * math.comb(trials, q) * probability**q * (1 - probability) ** (trials - q)
        for q in range(trials + 1)
    ]
    seen = np.bincount(found, minlength=trials + 1)
    assert seen.size == trials + 1
    kept = [(float(s), e) for s, e in zip(seen, expected, strict=True) if e >= 20]
    rest = found.size - sum(s for s, _ in kept), found.size - sum(e for _, e in kept)
    pairs = [*kept, rest] if rest[1] >= 20 else kept
    statistic = sum((s - e) ** 2 / e for s, e in pairs)
    freedom = len(pairs) - 1
    return (statistic - freedom) / math.sqrt(2 * freedom)


# --- checks -------------------------------------------------------------------------------------------------------


def of_one_value(value: float) -> npt.NDArray[np.float64]:
    """The same value everywhere, as a part of the largest that is within the norm."""
    return np.full(SIZE, value / math.sqrt(SIZE))


def check_distribution(encode: Encode) -> None:
    """Counts are binomial, with the probability of their threshold."""
    for trials in (1, 4, 15):
        for value in (-0.8, 0.0, 0.3, 0.99):
            vector = of_one_value(value)
            probability = float(thresholds(vector[:1], 1.0, **ranges(trials))[0]) / 2**32
            if value:
                assert abs(probability - 0.5) > 0.009
            found = encode(vector, trials, key("distribution", trials, value))
            assert abs(chi_square(found, trials, probability)) < 5


def check_elements_are_independent(encode: Encode) -> None:
    """No element says anything about another one, near or far."""
    for trials in (1, 3):
        found = encode(of_one_value(0.5), trials, key("elements", trials)).astype(float)
        for apart in (1, 2, 3, 4, 15, 4096, SIZE // trials, SIZE // 2):
            if apart < SIZE:
                one, other = found[:-apart], found[apart:]
                assert abs(np.corrcoef(one, other)[0, 1]) < 5 / math.sqrt(one.size)


def check_rounds_are_independent(encode: Encode) -> None:
    """What is sent in one round says nothing about the noise of another."""
    one, other = (encode(of_one_value(0.5), 4, key("round", number)).astype(float) for number in (1, 2))
    assert abs(np.corrcoef(one, other)[0, 1]) < 5 / math.sqrt(SIZE)


def check_what_is_not_finite(encode: Encode) -> None:
    """It sends fair coins everywhere, as if it were zero."""
    for bad in (math.nan, math.inf, -math.inf):
        vector = of_one_value(0.8)
        vector[17] = bad
        found = encode(vector, 4, key("not finite", bad))
        assert abs(chi_square(found, 4, 0.5)) < 5


def check_mean(encode: Encode) -> None:
    """Sums decode to the mean of the users' values, within five standard deviations; the noise is as planned."""
    draw = np.random.default_rng(1)
    users, trials = 8, 3
    updates = draw.normal(size=(users, SIZE))
    updates *= 0.9 / np.linalg.norm(updates, axis=1)[:, None]
    sums = sum(encode(update, trials, key("mean", user)).astype(np.int64) for user, update in enumerate(updates))
    found = decode_mean(sums, users, trials, ranges(trials)["block_range"])
    deviation = multiplier(trials) * NORM * math.sqrt(users / HONEST) / users  # z c is that of 4 users in their sum
    error = found - updates.mean(axis=0)
    assert abs(error.mean()) < 5 * deviation / math.sqrt(SIZE)
    assert abs(np.dot(error, updates[0])) < 5 * deviation * float(np.linalg.norm(updates[0]))
    assert error.std() == pytest.approx(deviation, rel=5 / math.sqrt(2 * SIZE))


CHECKS = [
    check_distribution,
    check_elements_are_independent,
    check_rounds_are_independent,
    check_what_is_not_finite,
    check_mean,
]


@pytest.mark.parametrize("check", CHECKS)
def test_the_mechanism_is_as_it_must_be(check: Callable[[Encode], None]) -> None:
    check(encode)


# --- broken variants ----------------------------------------------------------------------------------------------


def without_noise(vector: npt.NDArray[Any], trials: int, key: bytes) -> Counts:
    chances = thresholds(vector, norm_factor(vector, NORM), **ranges(trials)) / 2**32
    return np.rint(chances * trials).astype(np.uint8)


def of_one_word(vector: npt.NDArray[Any], trials: int, key: bytes) -> Counts:
    """All trials of an element from the same word."""
    return encode_with(vector, trials, key, lambda words: np.repeat(words[::trials], trials))


def of_overlapping_words(vector: npt.NDArray[Any], trials: int, key: bytes) -> Counts:
    """The words of element i begin at i, as they do where there is one trial."""
    every = np.arange(vector.size)[:, None] + np.arange(trials)
    return encode_with(vector, trials, key, lambda words: words[every].reshape(-1))


def encode_with(vector: npt.NDArray[Any], trials: int, key: bytes, change: Callable[[Any], Any]) -> Counts:
    words = np.frombuffer(keystream.keystream(key, 4 * trials * vector.size), dtype="<u4")
    limits = thresholds(vector, norm_factor(vector, NORM), **ranges(trials))
    counted: Counts = (change(words).reshape(-1, trials) < limits[:, None]).sum(axis=1).astype(np.uint8)
    return counted


def with_a_reused_key(vector: npt.NDArray[Any], trials: int, _: bytes) -> Counts:
    return encode(vector, trials, key("always this one"))


def refusing_what_is_not_finite(vector: npt.NDArray[Any], trials: int, key: bytes) -> Counts:
    assert np.isfinite(vector).all(), "refused"
    return encode(vector, trials, key)


def with_zeros_in_place_of_what_is_not_finite(vector: npt.NDArray[Any], trials: int, key: bytes) -> Counts:
    return encode(np.nan_to_num(vector, nan=0.0, posinf=0.0, neginf=0.0), trials, key)


def in_too_narrow_a_range(vector: npt.NDArray[Any], trials: int, key: bytes) -> Counts:
    out = np.empty(vector.size, dtype=np.uint8)
    given_ = ranges(trials) | {"block_range": ranges(trials)["block_range"] / 1.3}
    count_trials(vector, norm_factor(vector, NORM), trials=trials, key=key, first_word=0, out=out, **given_)
    return out


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (without_noise, check_distribution),
        (without_noise, check_mean),
        (of_one_word, check_distribution),
        (of_one_word, check_mean),
        (of_overlapping_words, check_elements_are_independent),
        (with_a_reused_key, check_rounds_are_independent),
        (refusing_what_is_not_finite, check_what_is_not_finite),
        (with_zeros_in_place_of_what_is_not_finite, check_what_is_not_finite),
        (in_too_narrow_a_range, check_distribution),
    ],
)
def test_a_broken_variant_fails_the_check_that_is_about_it(broken: Encode, check: Callable[[Encode], None]) -> None:
    with pytest.raises(AssertionError):
        check(broken)


def test_variants_differ_from_ours_in_nothing_else() -> None:
    """What only rearranges words is ours when it leaves them alone."""
    vector = of_one_value(0.5)
    assert np.array_equal(encode_with(vector, 4, key("same"), lambda words: words), encode(vector, 4, key("same")))


# --- norms --------------------------------------------------------------------------------------------------------


elements = st.one_of(
    st.floats(-1e-3, 1e-3), st.floats(-10, 10), st.floats(allow_nan=False, allow_infinity=False), st.just(0.0)
)


@examples(200)
@given(st.lists(elements, min_size=1, max_size=40), st.sampled_from((1e-20, 0.1, 1.0, 1e20)))
def test_what_privacy_is_stated_about_is_within_the_norm(values: list[float], norm: float) -> None:
    """In exact arithmetic, about the integers: the sum of (v / 2^32)^2 is at most c^2 / 4R^2."""
    vector = np.array(values)
    found = noise_range(2.0, norm, 4, 16, vector.size)
    limits = thresholds(vector, norm_factor(vector, norm), block_range=found.block_range, theta=found.theta)
    moved = [Fraction(int(limit) - 2**31, 2**32) for limit in limits]
    assert sum(v**2 for v in moved) <= (Fraction(norm) / (2 * Fraction(found.block_range))) ** 2
    assert max(abs(v) for v in moved) <= Fraction(found.theta)
    for value, v in zip(values, moved, strict=True):
        assert value * v >= 0


def test_an_update_within_the_norm_is_not_scaled() -> None:
    assert norm_factor(np.array([0.3, -0.4]), 0.51) == 1.0
    assert norm_factor(np.array([0.3, -0.4]), 0.5) == pytest.approx(1 - 2**-20, rel=1e-12)
    assert norm_factor(np.array([3.0, -4.0]), 0.5) == pytest.approx(0.1, rel=1e-5)


@each(
    "values, factor",
    [
        ([], 1.0),
        ([0.0, 0.0], 1.0),
        ([1e300, 1e300], 1e-300 / math.sqrt(2)),
        ([1.7e308, 1.7e308, 1.7e308], 1 / (1.7e308 * math.sqrt(3))),
        ([1e-310, 0.0], 1.0),
        ([1e-160] * 3, 1.0),
    ],
)
def test_norms_that_leave_the_range_of_a_float(values: list[float], factor: float) -> None:
    assert norm_factor(np.array(values), 1.0) == pytest.approx(factor, rel=1e-5, abs=3e-308)


def test_a_factor_that_a_float_cannot_hold_well_is_zero() -> None:
    assert norm_factor(np.array([1e300]), 1e-20) == 0.0
    smallest = np.array([2.0**600]), 2.0**-422 / (1 - 2.0**-20)
    assert norm_factor(*smallest) == 2.0**-1022
    assert norm_factor(2 * smallest[0], smallest[1]) == 0.0


@each("bad", [math.nan, math.inf, -math.inf])
def test_a_norm_that_is_not_finite_is_none(bad: float) -> None:
    for dtype in (np.float16, np.float32, np.float64):
        assert norm_factor(np.array([1.0, bad, 2.0], dtype=dtype), 1.0) is None


@each(
    "vector, finite",
    [
        (np.array([1e300, 1.0]), True),
        (np.array([math.inf, 1.0]), False),
        (np.array([0x7FF0000000000001], dtype=np.uint64).view(np.float64), False),  # NaN that signal
        (np.array([0x7F800001], dtype=np.uint32).view(np.float32), False),
        (np.array([0x7C01], dtype=np.uint16).view(np.float16), False),
    ],
)
def test_no_update_is_refused_for_its_norm_where_warnings_are_errors(vector: npt.NDArray[Any], finite: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (norm_factor(vector, 1.0) is not None) == finite


@each("dtype", [np.float16, np.float32, np.float64])
def test_norms_of_narrow_floats_are_as_precise_as_those_of_wide_ones(dtype: Any) -> None:
    """The margin below the clipping norm is smaller than what a half-precision square loses."""
    for value in (0.1, 1e-4, 300.0):
        vector = np.full(900, value, dtype=dtype)
        norm = 30 * float(vector[0])
        assert norm_factor(vector, norm / 2) == pytest.approx((1 - 2**-20) / 2, rel=1e-12)


def test_norms_of_many_pieces() -> None:
    vector = np.full(200_001, 0.5, dtype=np.float32)
    assert norm_factor(vector, 1.0) == pytest.approx(1 / (0.5 * math.sqrt(vector.size)), rel=1e-5)


# --- thresholds and words -----------------------------------------------------------------------------------------


def test_thresholds_are_rounded_towards_zero_and_clamped() -> None:
    word = 2.0**-30  # of 2R = 4: one word
    values = np.array([0.0, word, 1.9 * word, -word, -1.9 * word, 0.4999, 0.6, -0.6, 1e300, -1e300])
    found = thresholds(values, 1.0, block_range=2.0, theta=0.125).astype(np.int64) - 2**31
    assert found.tolist() == [0, 1, 1, -1, -1, int(0.4999 * 2**30), 2**29, -(2**29), 2**29, -(2**29)]
    assert (thresholds(values, None, block_range=2.0, theta=0.125) == 2**31).all()
    assert thresholds(values, 1.0, block_range=2.0, theta=0.125).dtype == np.uint32
    assert thresholds(np.array([9.0]), 1.0, block_range=2.0, theta=0.1)[0] - 2**31 == math.floor(0.1 * 2**32)


def test_no_arithmetic_is_done_on_what_is_not_finite() -> None:
    """What an invalid operation makes of it depends on the processor."""
    bad, out = np.array([math.nan, math.inf, -math.inf, 1.0]), np.empty(4, dtype=np.uint8)
    ranges_: dict[str, Any] = {"block_range": 2.0, "theta": 0.125}
    with np.errstate(all="raise"):
        assert (thresholds(bad, None, **ranges_) == 2**31).all()
        count_trials(bad, None, trials=3, key=key("not finite"), first_word=0, out=out, **ranges_)
    words = np.frombuffer(keystream.keystream(key("not finite"), 48), dtype="<u4").reshape(4, 3)
    assert np.array_equal(out, (words < 2**31).sum(axis=1))


def test_no_update_is_refused_for_what_a_program_does_about_tiny_numbers() -> None:
    with np.errstate(all="raise"):
        assert norm_factor(np.array([1e-170, 1.0]), 1.0) == pytest.approx(1.0)
        assert thresholds(np.array([1e-310]), 1e-10, block_range=1.0, theta=0.1)[0] == 2**31


def test_a_word_counts_when_it_is_below_its_threshold() -> None:
    values = np.array([0.25, -0.25, 0.0])
    limits = thresholds(values, 1.0, block_range=2.0, theta=0.125)
    words = np.array([[limit - 1, limit, 0, 2**32 - 1] for limit in limits.tolist()], dtype=np.uint32).reshape(-1)
    out = np.empty(3, dtype=np.uint8)
    mechanism._count_below(values, 2.0**30, 2.0**29, words, 4, out)
    assert out.tolist() == [2, 2, 2]


def test_segments_of_all_trials_have_words_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where many trials come before few, which the place of an element alone would let overlap."""
    sizes, trials = [100, 50, 0, 70, 3], [15, 1, 7, 3, 200]
    used: list[int] = []
    real = keystream.draw_words

    def recorded(key: bytes, start: int, stop: int, *, together: int = 1) -> Any:
        used.extend(range(start, stop))
        return real(key, start, stop, together=together)

    monkeypatch.setattr(mechanism, "draw_words", recorded)
    for start, size, count in zip(word_starts(sizes, trials), sizes, trials, strict=True):
        out = np.empty(size, dtype=np.uint16)
        fixed = {"block_range": 4.0, "theta": 0.1, "key": key("segments")}
        count_trials(np.zeros(size), 1.0, trials=count, first_word=start, out=out, **fixed)
    assert len(used) == sum(size * count for size, count in zip(sizes, trials, strict=True))
    assert len(set(used)) == len(used)


def test_segments_without_a_number_of_trials_have_no_words() -> None:
    for sizes, trials in (([10, 20], [3]), ([10], [3, 1])):
        with pytest.raises(ValueError, match="argument 2"):
            word_starts(sizes, trials)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pieces_and_compiled_loops_give_the_same_counts(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    vector = np.random.default_rng(3).normal(0, 0.02, 30_000).astype(dtype)
    vector[:4] = 7.0, -7.0, np.finfo(dtype).max, 0.0
    for trials in (1, 3, 40):
        fixed = {"block_range": 0.3, "theta": 0.12, "trials": trials, "key": key("pieces")}
        whole, pieces, compiled = (np.empty(vector.size, dtype=np.uint8) for _ in range(3))
        monkeypatch.setattr(_numba, "WORTH", 1 << 62)
        count_trials(vector, 0.9, first_word=6, out=whole, **fixed)
        for start in range(0, vector.size, 7001):
            part = slice(start, start + 7001)
            count_trials(vector[part], 0.9, first_word=6 + start * trials, out=pieces[part], **fixed)
        monkeypatch.setattr(_numba, "WORTH", 1)
        count_trials(vector, 0.9, first_word=6, out=compiled, **fixed)
        assert np.array_equal(whole, pieces)
        assert np.array_equal(whole, compiled)
        nothing = np.full(vector.size, math.nan, dtype=dtype), np.zeros(vector.size, dtype=dtype)
        count_trials(nothing[0], None, first_word=6, out=pieces, **fixed)
        count_trials(nothing[1], 1.0, first_word=6, out=whole, **fixed)
        assert np.array_equal(whole, pieces)


@each(
    "dtype, factor, size, compiled",
    [
        (np.float32, 0.9, None, True),
        (np.float64, 0.9, None, True),
        (np.float16, 0.9, None, False),  # which Numba does not know
        (np.float16, None, None, True),  # zeros in its place, which it does
        (np.float64, 0.9, 19, False),
        (np.float64, 0.9, 21, True),
    ],
)
def test_a_loop_is_compiled_for_as_many_words_as_make_it_worthwhile(
    dtype: Any, factor: float | None, size: int | None, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []

    def compile_(loop: Callable[..., None]) -> Callable[..., None]:
        def run(values: npt.NDArray[Any], *rest: Any) -> None:
            ran.append(values.size)
            loop(values, *rest)

        return run

    monkeypatch.setattr(_numba, "_compile", compile_)
    monkeypatch.setattr(_numba, "WORTH", 60)
    out = np.empty(20, dtype=np.uint8)
    fixed: dict[str, Any] = {"block_range": 4.0, "theta": 0.1, "trials": 3, "key": key("compiled"), "first_word": 0}
    count_trials(np.full(20, 0.1, dtype=dtype), factor, out=out, size=size, **fixed)
    assert ran == ([20] if compiled else [])


def test_a_half_precision_update_is_counted_like_its_values() -> None:
    vector = np.random.default_rng(4).normal(0, 0.05, 1000).astype(np.float16)
    assert np.array_equal(encode(vector, 3, key("half")), encode(vector.astype(np.float64), 3, key("half")))


def test_a_large_vector_takes_little_memory() -> None:
    vector, out = np.zeros(300_000, dtype=np.float32), np.empty(300_000, dtype=np.uint8)
    fixed = {"block_range": 4.0, "theta": 0.1, "trials": 15, "key": key("memory"), "first_word": 0, "out": out}
    count_trials(vector[:100], 1.0, **{**fixed, "out": out[:100]})
    tracemalloc.start()
    norm_factor(vector, 1.0)
    count_trials(vector, 1.0, size=1, **fixed)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20  # all words would take 18 MB


@each(
    "change, problem",
    [
        ({"out": np.empty(3, dtype=np.uint8)}, "one equal length"),
        ({"values": np.zeros((2, 2))}, "one equal length"),
        ({"trials": 0}, "trials"),
        ({"trials": 256}, "cannot be counted in uint8"),
        ({"trials": 1 << 16, "out": np.empty(4, dtype=np.uint32)}, "trials"),
        ({"theta": 0.0}, "theta"),
        ({"theta": 0.2}, "theta"),
        ({"block_range": 0.0}, "range"),
        ({"block_range": math.nan}, "range"),
        ({"key": b"short"}, "32 bytes"),
    ],
)
def test_what_has_no_meaning_is_refused(change: dict[str, Any], problem: str) -> None:
    given_ = {
        "values": np.zeros(4),
        "factor": 1.0,
        "block_range": 4.0,
        "theta": 0.1,
        "trials": 3,
        "key": key("refused"),
        "first_word": 0,
        "out": np.empty(4, dtype=np.uint8),
    } | change
    with pytest.raises(UsageError, match=problem):
        count_trials(given_.pop("values"), given_.pop("factor"), **given_)


@each("dtype, trials", [(np.uint8, 255), (np.uint16, 2**16 - 1), (np.uint32, 2**16 - 1)])
def test_as_many_trials_as_can_be_counted_are_allowed(dtype: Any, trials: int) -> None:
    out = np.empty(2, dtype=dtype)
    fixed: dict[str, Any] = {"block_range": 4.0, "theta": 0.1, "key": key("many"), "first_word": 0}
    count_trials(np.zeros(2), 1.0, trials=trials, out=out, **fixed)
    assert (abs(out / trials - 0.5) < 2.5 / math.sqrt(trials)).all()  # five standard deviations


def test_sums_without_users_are_refused() -> None:
    for survivors, trials in ((0, 1), (1, 0)):
        with pytest.raises(UsageError, match="positive number"):
            decode_mean(np.zeros(3), survivors, trials, 1.0)
