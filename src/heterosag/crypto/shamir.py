"""Shamir's secret sharing over GF(2^255-19).

A secret is the value at 0 of a uniform polynomial of degree t-1; the share of a holder is its value at x, the holder's
roster index + 1. Any t shares give the secret by Lagrange interpolation, t-1 say nothing. Reconstruction of many
secrets from the same holders shares its coefficients.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from functools import lru_cache

from heterosag.crypto.field import PRIME
from heterosag.errors import UsageError

__all__ = ["coefficients", "combine", "random_polynomial", "split", "split_two"]

_SMALL_X = 1 << 20
_LAZY = 12  # Horner steps between reductions: a number of 255 bits grows by the 20 bits of x a step, and by one
_HALF = 512  # bits: more than 255 + 12 * 20 + 1
_LOWER = (1 << _HALF) - 1


def random_polynomial(secret: int, threshold: int) -> list[int]:
    """The coefficients, constant first, of a uniform polynomial with the given value at 0."""
    if threshold < 1 or not 0 <= secret < PRIME:
        raise UsageError("a secret is a field element and takes at least one share to rebuild")
    return [secret, *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]


def split(polynomial: Sequence[int], xs: Iterable[int]) -> list[int]:
    """The polynomial's values at `xs`: one share each."""
    return [first for first, _ in split_two(polynomial, [0] * len(polynomial), xs)]


def split_two(first: Sequence[int], second: Sequence[int], xs: Iterable[int]) -> list[tuple[int, int]]:
    """The values of two polynomials of one degree at `xs`.

    Horner's rule on both at once: their coefficients lie in the two halves of one number, far enough apart that the
    lower one does not reach the upper before the next reduction.
    """
    joined = [a | b << _HALF for a, b in zip(first[::-1], second[::-1], strict=True)]
    shares = []
    for x in xs:
        if not 0 < x < _SMALL_X:
            raise UsageError(f"a share is taken at 1..{_SMALL_X - 1}, not at {x}")
        value = 0
        for start in range(0, len(joined), _LAZY):
            for pair in joined[start : start + _LAZY]:
                value = value * x + pair
            value = (value & _LOWER) % PRIME | (value >> _HALF) % PRIME << _HALF
        shares.append((value & _LOWER, value >> _HALF))
    return shares


@lru_cache(maxsize=4096)
def coefficients(xs: tuple[int, ...]) -> tuple[int, ...]:
    """The Lagrange coefficients at 0 for shares taken at `xs`."""
    if not xs or len(set(xs)) != len(xs) or not all(0 < x < PRIME for x in xs):
        raise UsageError("shares are taken at distinct positive places")
    result = []
    for x in xs:
        above, below = 1, 1
        for other in xs:
            if other != x:
                above = above * other % PRIME
                below = below * (other - x) % PRIME
        result.append(above * pow(below, -1, PRIME) % PRIME)
    return tuple(result)


def combine(weights: Sequence[int], shares: Sequence[int]) -> int:
    """The secret, from the coefficients of the places and the shares taken there, in the same order."""
    if len(weights) != len(shares) or not all(0 <= share < PRIME for share in shares):
        raise UsageError("a secret is rebuilt from one field element a place")
    return sum(weight * share for weight, share in zip(weights, shares, strict=True)) % PRIME
