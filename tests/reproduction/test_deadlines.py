"""Uploads that miss a deadline: by arithmetic on the plan, for every deadline."""

import numpy as np
import pytest

pytest.importorskip("torch")


from reproduction.deadlines import _DEADLINES, _bits, _Curves, _equal_upload, missing

FACTORS = np.ones((1, 3, 12))


def test_who_misses_a_deadline_is_whose_bits_take_longer() -> None:
    levels = (12, 12, 12)
    bits = _bits(levels)
    slow = bits[0] / 0.3e6
    assert missing(levels, slow * 1.001, FACTORS) == 0
    assert missing(levels, slow * 0.999, FACTORS) == pytest.approx(1 / 3)
    assert missing(levels, 1e-6, FACTORS) == 1
    assert missing(levels, slow * 0.999, 1.01 * FACTORS) == 0


def test_fitted_levels_lose_only_against_one_level_of_the_same_upload() -> None:
    level = _equal_upload()
    fitted, uniform = sum(_bits((2, 4, 12))), sum(_bits((level,) * 3))
    assert abs(uniform - fitted) <= min(abs(sum(_bits((level + d,) * 3)) - fitted) for d in (-1, 1))
    assert all(a <= b for a, b in zip(_bits((2, 4, 12)), _bits((12, 12, 12)), strict=True))
    curves = _Curves.draw(0)
    fewer, more = curves.compare("same")
    assert fewer
    assert not more
    fewer, more = curves.compare("equal")
    assert fewer
    assert more
    assert max(more) < min(fewer), "short deadlines are lost by the fast links"
    for fractions in curves.fractions.values():
        assert fractions == sorted(fractions, reverse=True)
        assert len(fractions) == len(_DEADLINES)
