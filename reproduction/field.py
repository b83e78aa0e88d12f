"""The prime field of 2^61 - 1 elements, in numpy: products of matrices, and Reed-Solomon codes against false values.

Elements are uint64 below the prime. Products of matrices go through floating point, exactly: elements are cut into
limbs of 21 bits, and a product of limbs, added up over 512 of them and three pairs, stays below 2^53.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from heterosag.errors import HeteroSagError

__all__ = [
    "ELEMENT_SIZE",
    "PRIME",
    "Elements",
    "UndecodableError",
    "Word",
    "add",
    "decode_columns",
    "decode_word",
    "distances_of",
    "from_bytes",
    "from_signed",
    "matmul",
    "powers",
    "random_elements",
    "squared_distances",
    "to_signed",
]

PRIME = 2**61 - 1
ELEMENT_SIZE = 8
"""Bytes of an element in a message."""

Elements = npt.NDArray[np.uint64]

_BITS = 61
_LIMB = 21
_LIMBS = 3
_AT_ONCE = 512  # limbs' products added up in floating point
_BLOCK = 2**18  # products of a block: beyond it linear algebra libraries start threads, which wait for each other
_MASK = np.uint64(PRIME)


class UndecodableError(HeteroSagError):
    """More values are false or missing than the code can correct."""


# --- elements -----------------------------------------------------------------------------------------------------


def from_signed(values: npt.NDArray[np.int64]) -> Elements:
    """Integers as elements, negative ones from the prime downward."""
    return np.mod(values, np.int64(PRIME)).astype(np.uint64)


def to_signed(elements: Elements) -> npt.NDArray[np.int64]:
    """The inverse, for integers of at most half the prime either way."""
    values = elements.astype(np.int64)
    return np.where(values > PRIME // 2, values - PRIME, values)


def from_bytes(data: bytes) -> Elements:
    """Elements from random bytes, eight each: within 2^-61 of uniform."""
    return _canonical(np.frombuffer(data, dtype="<u8").astype(np.uint64) & _MASK)


def random_elements(count: int) -> Elements:
    """Elements from the operating system's entropy."""
    return from_bytes(secrets.token_bytes(ELEMENT_SIZE * count))


def add(left: Elements, right: Elements) -> Elements:
    """The sum of two arrays of elements."""
    return _canonical(left + right)


def powers(points: Sequence[int], degree: int) -> Elements:
    """A row for each point: its powers from 0 to the degree."""
    return np.array([[pow(point, power, PRIME) for power in range(degree + 1)] for point in points], dtype=np.uint64)


def _fold(values: Elements) -> Elements:
    """The same residues, at most 2^61 plus seven."""
    return (values & _MASK) + (values >> np.uint64(_BITS))


def _canonical(values: Elements) -> Elements:
    folded = _fold(values)
    return np.where(folded >= _MASK, folded - _MASK, folded)


def _rotate(values: Elements, shift: int) -> Elements:
    """Times 2^shift, of values below 2^61: modulo 2^61 - 1 bits that leave at the top come back at the bottom."""
    return ((values << np.uint64(shift)) & _MASK) | (values >> np.uint64(_BITS - shift))


def _limbs(values: Elements) -> list[npt.NDArray[np.float64]]:
    low = np.uint64(2**_LIMB - 1)
    return [((values >> np.uint64(_LIMB * place)) & low).astype(np.float64) for place in range(_LIMBS)]


def matmul(left: Elements, right: Elements) -> Elements:
    """The product of two matrices of elements, in blocks that stay in the cache."""
    rows, inner = left.shape
    wide = min(right.shape[1], max(64, _BLOCK // (rows * min(inner, _AT_ONCE))))
    deep = max(1, min(inner, _AT_ONCE, _BLOCK // (rows * wide)))
    found = np.zeros((rows, right.shape[1]), dtype=np.uint64)
    limbs = [_limbs(left[:, start : start + deep]) for start in range(0, inner, deep)]
    for column in range(0, right.shape[1], wide):
        here = slice(column, column + wide)
        total = found[:, here]
        for start, ours in zip(range(0, inner, deep), limbs, strict=True):
            total = _add_product(total, ours, _limbs(right[start : start + deep, here]))
        found[:, here] = _canonical(total)
    return found


def _add_product(
    total: Elements, ours: list[npt.NDArray[np.float64]], theirs: list[npt.NDArray[np.float64]]
) -> Elements:
    for place in range(2 * _LIMBS - 1):
        pairs = [(one, place - one) for one in range(_LIMBS) if 0 <= place - one < _LIMBS]
        exact = sum((ours[one] @ theirs[other] for one, other in pairs), np.zeros(()))
        total = _fold(total + _rotate(exact.astype(np.uint64), _LIMB * place % _BITS))
    return total


def squared_distances(rows: Elements) -> Elements:
    """The squared distance of every two rows, in the field."""
    return distances_of(matmul(rows, rows.T))


def distances_of(products: Elements) -> Elements:
    """Squared distances from the products of every two rows."""
    own = np.diagonal(products)
    return _canonical(own[:, None] + own[None, :] + np.uint64(2) * (_MASK - products))


# --- Reed-Solomon codes -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """A decoded word: the polynomial's coefficients, and the places whose values were not its own."""

    coefficients: tuple[int, ...]
    false_places: tuple[int, ...]


def decode_word(points: Sequence[int], values: Sequence[int], degree: int) -> Word:
    """The polynomial of at most this degree through all values but (n - degree - 1) / 2 of them (Gao 2003).

    Raises:
        UndecodableError: No polynomial is that near.
    """
    most = (len(points) - degree - 1) // 2
    if most < 0:
        raise UndecodableError(f"a polynomial of degree {degree} needs {degree + 1} values, not {len(points)}")
    above, below = [1], _interpolate(points, values)
    for point in points:
        above = _multiply(above, [-point % PRIME, 1])
    factor_above, factor_below = [], [1]
    while len(below) - 1 > degree + most:
        quotient, rest = _divide(above, below)
        above, below = below, rest
        factor_above, factor_below = factor_below, _subtract(factor_above, _multiply(quotient, factor_below))
    found, rest = _divide(below, factor_below)
    if rest or len(found) - 1 > degree:
        raise UndecodableError(f"more than {most} of {len(points)} values are false")
    wrong = [place for place, point in enumerate(points) if _evaluate(found, point) != values[place]]
    return Word(coefficients=tuple(found), false_places=tuple(wrong))


def decode_columns(points: Sequence[int], table: Elements, degree: int) -> tuple[Elements, tuple[int, ...]]:
    """The value at 0 of each column's polynomial, where a few rows may be false in any columns; and which rows are.

    One word, a random combination of the columns that whoever made the table could not foresee, finds every false row
    except with probability 2^-61; the others are interpolated.
    """
    chances = random_elements(table.shape[1])[:, None]
    combined = [int(value) for value in matmul(table, chances)[:, 0]]
    wrong = decode_word(points, combined, degree).false_places
    sound = [place for place in range(len(points)) if place not in set(wrong)][: degree + 1]
    weights = _weights_at_zero([points[place] for place in sound])
    return matmul(np.array([weights], dtype=np.uint64), table[sound])[0], wrong


def _weights_at_zero(points: Sequence[int]) -> list[int]:
    found = []
    for point in points:
        above = below = 1
        for other in points:
            if other != point:
                above = above * other % PRIME
                below = below * (other - point) % PRIME
        found.append(above * pow(below, -1, PRIME) % PRIME)
    return found


# --- polynomials: lists of coefficients from the constant on, the last of them not zero ---------------------------


def _interpolate(points: Sequence[int], values: Sequence[int]) -> list[int]:
    """Through all values, by Newton's divided differences."""
    differences = list(values)
    for step in range(1, len(points)):
        for place in range(len(points) - 1, step - 1, -1):
            below = pow(points[place] - points[place - step], -1, PRIME)
            differences[place] = (differences[place] - differences[place - 1]) * below % PRIME
    found: list[int] = []
    for point, difference in zip(reversed(points), reversed(differences), strict=True):
        found = _subtract(_multiply(found, [-point % PRIME, 1]), [-difference % PRIME])
    return found


def _evaluate(polynomial: Sequence[int], point: int) -> int:
    value = 0
    for coefficient in reversed(polynomial):
        value = (value * point + coefficient) % PRIME
    return value


def _trim(polynomial: list[int]) -> list[int]:
    while polynomial and not polynomial[-1]:
        polynomial.pop()
    return polynomial


def _subtract(left: Sequence[int], right: Sequence[int]) -> list[int]:
    size = max(len(left), len(right))
    padded = ([*side, *[0] * (size - len(side))] for side in (left, right))
    return _trim([(one - other) % PRIME for one, other in zip(*padded, strict=True)])


def _multiply(left: Sequence[int], right: Sequence[int]) -> list[int]:
    if not left or not right:
        return []
    found = [0] * (len(left) + len(right) - 1)
    for place, one in enumerate(left):
        for other_place, other in enumerate(right):
            found[place + other_place] += one * other
    return _trim([value % PRIME for value in found])


def _divide(above: Sequence[int], below: Sequence[int]) -> tuple[list[int], list[int]]:
    rest = list(above)
    quotient = [0] * max(0, len(above) - len(below) + 1)
    lead = pow(below[-1], -1, PRIME)
    for place in range(len(quotient) - 1, -1, -1):
        factor = rest[place + len(below) - 1] * lead % PRIME
        quotient[place] = factor
        for step, coefficient in enumerate(below):
            rest[place + step] = (rest[place + step] - factor * coefficient) % PRIME
    return _trim(quotient), _trim(rest)
