"""The best width of a range: by levels and by the users averaged."""

import numpy as np
import pytest
from cases import each

from heterosag.plan.ranges import best_width, clip_bias, clipped_fraction, deviations, rounding_noise

TABLE = {
    2: ((1.32, 0.19), (1.70, 0.089), (1.98, 0.048)),
    3: ((1.84, 0.066), (2.22, 0.026), (2.48, 0.013)),
    4: ((2.10, 0.036), (2.46, 0.014), (2.72, 0.007)),
    8: ((2.60, 0.009), (2.92, 0.004), (3.16, 0.002)),
    16: ((3.00, 0.003), (3.30, 0.001), (3.52, 0.0004)),
}


@each("level", sorted(TABLE))
def test_widths_and_what_they_clip(level: int) -> None:
    for users, (half_width, clipped) in zip((12, 40, 100), TABLE[level], strict=True):
        width = best_width(level, users)
        assert deviations(width) == pytest.approx(half_width, abs=0.03)
        assert clipped_fraction(width) == pytest.approx(clipped, rel=0.3)


def test_more_levels_and_more_users_want_wider_ranges() -> None:
    widths = [[best_width(level, users) for level in (2, 3, 4, 16, 256, 2**16, 2**32)] for users in (2, 12, 100, 2**20)]
    assert all(sorted(set(row)) == row for row in widths)
    assert all(sorted(set(column)) == list(column) for column in zip(*widths, strict=True))
    assert widths[-1][-1] < 16 * 64  # the search's end is never the answer


@each("level", [2, 3, 16])
@each("users", [5, 60])
def test_the_best_width_has_the_least_error(level: int, users: int) -> None:
    def error(width: int) -> float:
        return clip_bias(width) + rounding_noise(level, width) / users

    width = best_width(level, users)
    assert min(range(32, 512), key=error) in (width - 1, width)


@each("level", [2, 3, 5, 16])
def test_bias_and_noise_are_those_of_a_clipped_and_rounded_gaussian(level: int) -> None:
    width = best_width(level, 12)
    h = deviations(width)
    x = np.random.default_rng(level).normal(size=400_000)
    held = np.clip(x, -h, h)
    assert np.mean(np.abs(x) > h) == pytest.approx(clipped_fraction(width), rel=0.05)
    assert np.mean((x - held) ** 2) == pytest.approx(clip_bias(width), rel=0.1)
    step = 2 * h / (level - 1)
    place = (held + h) / step
    below = place - np.floor(place)
    variance = float(np.mean(below * (1 - below))) * step**2
    assert variance == pytest.approx(rounding_noise(level, width), rel=0.15)  # step^2/6 is of a flat density
