"""With 2^32 levels an aggregate is the mean in floating point, within the rounding."""

import pytest

pytest.importorskip("torch")

from reproduction.no_quantization import largest_difference


def test_the_aggregate_is_the_mean_within_a_quantization_interval() -> None:
    off, unit = largest_difference(300, 0)
    assert 0 < off <= unit
    assert unit == pytest.approx(2 / (2**32 - 1))
