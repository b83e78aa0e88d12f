"""The randomness of rounding."""

import numpy as np
import pytest

from heterosag.errors import UsageError
from heterosag.protocol.rounding import Rounding


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
