"""BREA's check of shares: commitments to every coefficient of every element's polynomial (Feldman 1987).

A dealer publishes g^a for each coefficient a, in a group whose order is the field's prime; a holder at point x accepts
a share s if g^s is the product of the commitments to the power of 1, x, x^2, ... That is T + 1 exponentiations for each
element and each dealer. At the sizes of a model it takes hours a user, so rounds leave it out, and what it costs is
measured on a few elements and multiplied.

The commitments bind the dealer and hide little: a rounded element is one of a few thousand values, which anybody can
try until the commitment to its constant fits.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from reproduction import field
from reproduction.field import PRIME, Elements

__all__ = ["COMMITMENT_SIZE", "GENERATOR", "MODULUS", "Cost", "agrees", "commit", "measure"]

MODULUS = PRIME * (2**1987 + 3352) + 1
"""A prime of 2048 bits; its group has a subgroup of the field's order."""

GENERATOR = pow(2, (MODULUS - 1) // PRIME, MODULUS)
COMMITMENT_SIZE = 256
"""Bytes of a commitment."""

Commitments = list[list[int]]
"""For each element the commitments to its coefficients, from the constant on."""


def commit(coefficients: Elements) -> Commitments:
    """The commitments to the columns of a table: a row a power, a column an element."""
    return [[pow(GENERATOR, int(value), MODULUS) for value in column] for column in coefficients.T]


def agrees(point: int, share: Elements, commitments: Commitments) -> bool:
    """Whether a share (an element of the field for each element of the vector) is what its dealer is bound to."""
    for value, bound in zip(share, commitments, strict=True):
        expected = 1
        for power, commitment in enumerate(bound):
            expected = expected * pow(commitment, pow(point, power, PRIME), MODULUS) % MODULUS
        if pow(GENERATOR, int(value), MODULUS) != expected:
            return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What verification costs a user, extrapolated from a few elements to a whole vector."""

    commit_seconds: float
    check_seconds: float
    sent_bytes: int
    measured_elements: int


def measure(users: int, privacy: int, dimension: int, *, elements: int = 4) -> Cost:
    """CPU seconds of commitments to and of a check of a few elements; everything is in proportion to their number."""
    coefficients = field.random_elements((privacy + 1) * elements).reshape(privacy + 1, elements)
    began = time.process_time()
    commitments = commit(coefficients)
    committed = time.process_time()
    share = field.matmul(field.powers([users], privacy), coefficients)[0]
    agrees(users, share, commitments)
    checked = time.process_time()
    factor = dimension / elements
    return Cost(
        commit_seconds=(committed - began) * factor,
        check_seconds=(checked - committed) * factor * (users - 1),
        sent_bytes=dimension * (privacy + 1) * COMMITMENT_SIZE,
        measured_elements=elements,
    )
