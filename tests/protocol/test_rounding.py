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


def test_a_seed_without_a_round_is_that_of_round_zero() -> None:
    assert np.array_equal(Rounding.from_seed(1, 2).words(0, 8), Rounding.from_seed(1, 2, 0).words(0, 8))


def test_words_have_32_bits_however_many_they_are() -> None:
    rounding = Rounding.from_seed(1, 2, 3)
    assert [rounding.words(5, count).dtype for count in (0, 1, 30)] == [np.uint32] * 3


@pytest.mark.parametrize("place", range(3))
def test_seed_user_and_round_have_64_bits(place: int) -> None:
    def rounding(part: int) -> Rounding:
        return Rounding.from_seed(*[part if at == place else 7 for at in range(3)])

    keys = [rounding(part) for part in (0, 128, 2**64 - 1)]
    assert len({key.words(0, 8).tobytes() for key in keys}) == len(keys)
    for bad in (-1, 2**64, 1.5, "a", None):
        with pytest.raises(UsageError, match="2\\^64"):
            rounding(bad)  # type: ignore[arg-type]
