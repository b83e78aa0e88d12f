"""The field of BREA: exact products, and codes that correct up to their bound and no further."""

import itertools

import numpy as np
import pytest

from reproduction import field
from reproduction.field import PRIME, Elements, UndecodableError


def elements(rng: np.random.Generator, *shape: int) -> Elements:
    return rng.integers(0, PRIME, shape, dtype=np.uint64)


@pytest.mark.parametrize(("rows", "inner", "columns"), [(3, 5, 4), (2, 512, 2), (1, 513, 3), (40, 3, 700)])
def test_products_are_those_of_integers(rows: int, inner: int, columns: int) -> None:
    rng = np.random.default_rng(0)
    left, right = elements(rng, rows, inner), elements(rng, inner, columns)
    left[0], right[:, 0] = PRIME - 1, PRIME - 1  # the largest sums of limbs
    expected = (left.astype(object) @ right.astype(object)) % PRIME
    assert (field.matmul(left, right).astype(object) == expected).all()


def test_distances_are_those_of_integers_and_wrap_beyond_the_prime() -> None:
    rows = np.array([[0, 0], [3, -4], [2**31, 0], [-(2**60), 1]])
    exact = [[sum((int(a) - int(b)) ** 2 for a, b in zip(one, other, strict=True)) for other in rows] for one in rows]
    found = field.squared_distances(field.from_signed(rows)).tolist()
    assert found == [[value % PRIME for value in row] for row in exact]
    assert found[0][1] == 25
    assert found[0][2] == 2, "2^62 is 2 in the field"


def test_integers_go_in_and_out_of_the_field() -> None:
    values = np.array([0, 1, -1, 2**52, -(2**52), PRIME // 2, -(PRIME // 2)])
    assert field.to_signed(field.from_signed(values)).tolist() == values.tolist()
    assert int(field.from_bytes(b"\xff" * 8)[0]) == 0, "the prime itself is zero"
    drawn = field.random_elements(1000)
    assert drawn.max() < PRIME
    assert len(set(drawn.tolist())) == 1000


def polynomial(rng: np.random.Generator, degree: int, points: range) -> tuple[list[int], list[int]]:
    coefficients = [int(value) for value in elements(rng, degree + 1)]
    values = [sum(c * pow(x, power, PRIME) for power, c in enumerate(coefficients)) % PRIME for x in points]
    return coefficients, values


@pytest.mark.parametrize(("count", "degree"), [(1, 0), (5, 4), (7, 2), (12, 5), (13, 0)])
def test_words_are_decoded_up_to_half_of_what_is_left(count: int, degree: int) -> None:
    rng = np.random.default_rng(count)
    points = range(1, count + 1)
    most = (count - degree - 1) // 2
    for false in range(most + 1):
        coefficients, values = polynomial(rng, degree, points)
        places = sorted(int(place) for place in rng.choice(count, false, replace=False))
        for place in places:
            values[place] = (values[place] + 1 + int(rng.integers(PRIME - 1))) % PRIME
        word = field.decode_word(points, values, degree)
        assert word.coefficients == tuple(coefficients)
        assert word.false_places == tuple(places)


def test_one_false_value_more_is_noticed() -> None:
    rng = np.random.default_rng(0)
    points = range(1, 13)
    _, values = polynomial(rng, 5, points)
    with pytest.raises(UndecodableError, match="more than 3 of 12 values are false"):
        field.decode_word(points, [*(int(value) for value in elements(rng, 4)), *values[4:]], 5)
    with pytest.raises(UndecodableError, match="needs 6 values, not 5"):
        field.decode_word(points[:5], values[:5], 5)
    assert field.decode_word(points, [0] * 12, 5).coefficients == ()


def test_columns_are_decoded_although_each_false_row_is_false_elsewhere() -> None:
    rng = np.random.default_rng(0)
    points, degree = range(1, 10), 2
    coefficients = elements(rng, degree + 1, 50)
    table = field.matmul(field.powers(points, degree), coefficients)
    for place, column in itertools.product((1, 4, 7), (3, 20)):
        table[place, column + place] += 1
    table[7] %= PRIME
    found, wrong = field.decode_columns(points, table, degree)
    assert wrong == (1, 4, 7)
    assert np.array_equal(found, coefficients[0])
