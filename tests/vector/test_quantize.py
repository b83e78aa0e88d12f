"""The quantizer: unbiased, bounded variance (Lemma 1), within its levels."""

import numpy as np
import pytest
from cases import each

from heterosag.errors import UsageError
from heterosag.vector.quantize import check_range, dequantize, quantize, step


def random_words(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 2**32, count, dtype=np.uint32)


def levels_of(values: np.ndarray, level: int, value_range: tuple[float, float], words: np.ndarray) -> np.ndarray:
    out = np.zeros(values.size, dtype=np.uint64)
    quantize(values, level, value_range, words, out=out)
    return out


@each("level", [2, 3, 12, 50, 62, 2**16])
@each("value_range", [(-1.0, 1.0), (-0.3, 0.7), (0.1, 0.2)])
def test_unbiased_with_the_variance_of_lemma_1(level: int, value_range: tuple[float, float]) -> None:
    """One value many times: the mean within 5 standard errors, the variance (T(l+1)-x)(x-T(l)) within 5%."""
    count = 400_000
    low, high = value_range
    delta = step(value_range, level)
    place = (0.37 * (level - 1)) // 1 + 0.3  # three tenths of the way between two levels
    x = low + place * delta
    assert low <= x <= high
    levels = levels_of(np.full(count, x), level, value_range, random_words(count))
    values = low + delta * levels.astype(float)
    expected_variance = 0.3 * 0.7 * delta**2
    assert expected_variance <= delta**2 / 4
    assert abs(values.mean() - x) < 5 * np.sqrt(expected_variance / count)
    assert values.var() == pytest.approx(expected_variance, rel=0.05)


@each("level", [2, 3, 7, 12, 50, 62, 2**16, 2**31, 2**32])
@each("value_range", [(-1.0, 1.0), (-0.1, 0.3), (1e-9, 3e-9), (-1e30, 1e30)])
@each("word", [0, 1, 2**31, 2**32 - 1])
def test_ends_of_the_range_stay_within_the_levels(level: int, value_range: tuple[float, float], word: int) -> None:
    low, high = value_range
    ends = np.array([low, high, np.nextafter(high, low), np.nextafter(low, high), low - 1e300, high + 1e300])
    levels = levels_of(ends, level, value_range, np.full(ends.size, word, dtype=np.uint32))
    assert levels.max() <= level - 1
    assert levels[0] == 0 == levels[4]
    assert levels[1] == level - 1 == levels[5]


def test_clipped_values_are_counted() -> None:
    out = np.zeros(5, dtype=np.uint8)
    values = np.array([-1.0, 1.0, 1.0001, -7.0, 0.0])
    assert quantize(values, 4, (-1.0, 1.0), random_words(5), out=out) == 2
    assert out[2] == 3
    assert out[3] == 0


@each("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_refused_before_anything_is_written(bad: float) -> None:
    out = np.full(3, 9, dtype=np.uint8)
    with pytest.raises(UsageError, match="1 of 3 values are NaN or infinite, the first at place 1"):
        quantize(np.array([0.0, bad, 0.0]), 4, (-1.0, 1.0), random_words(3), out=out)
    assert out.tolist() == [9, 9, 9]


@each("dtype", [np.float16, np.float32, np.float64])
def test_computed_in_float64_whatever_comes_in(dtype: type) -> None:
    values = np.linspace(-1, 1, 70_000).astype(dtype)
    words = random_words(values.size)
    assert np.array_equal(
        levels_of(values, 50, (-1.0, 1.0), words), levels_of(values.astype(np.float64), 50, (-1.0, 1.0), words)
    )


def test_dequantize_gives_the_mean() -> None:
    sums = np.array([0, 6, 3], dtype=np.uint8)
    assert dequantize(sums, 2, 4, (-1.0, 2.0)).tolist() == [-1.0, 2.0, 0.5]
    with pytest.raises(UsageError, match="positive"):
        dequantize(sums, 0, 4, (-1.0, 2.0))


def test_lengths_must_agree() -> None:
    with pytest.raises(UsageError, match="one equal length"):
        quantize(np.zeros(3), 4, (-1.0, 1.0), random_words(2), out=np.zeros(3, dtype=np.uint8))


@each("bad", [(1.0, 1.0), (2.0, 1.0), (0.0, np.inf), (np.nan, 1.0), (1.0,), "ab", None, (-1.5e308, 1.5e308)])
def test_bad_ranges(bad: object) -> None:
    with pytest.raises(UsageError, match="value range"):
        check_range(bad)  # type: ignore[arg-type]


def test_what_float64_cannot_hold_is_refused_as_infinite() -> None:
    values = np.array([0.0, 1e300], dtype=np.longdouble)
    values[1] *= values[1]
    with pytest.raises(UsageError, match="1 of 2 values are NaN or infinite, the first at place 1"):
        quantize(values, 4, (-1.0, 1.0), random_words(2), out=np.zeros(2, dtype=np.uint8))


def test_a_range_beyond_a_type_has_every_value_outside() -> None:
    with np.errstate(all="raise"):
        values = np.zeros(3, dtype=np.float32)
        assert quantize(values, 4, (1e39, 2e39), random_words(3), out=np.zeros(3, dtype=np.uint8)) == 3
