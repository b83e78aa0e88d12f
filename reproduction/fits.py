"""Least-squares fits with intervals: the slope of a line, the exponent of a power, and a floor below a/J.

An interval is the fitted value with two standard errors of the regression on either side. The error contains the noise
of the measurements and what the fitted curve does not follow; two of them are about 95%.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from heterosag.errors import UsageError

__all__ = ["Estimate", "fit_floor", "fit_line", "fit_power"]

_WIDTH = 2.0  # standard errors on either side


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A fitted number and its standard error."""

    value: float
    error: float

    @property
    def low(self) -> float:
        """The lower end of its interval."""
        return self.value - _WIDTH * self.error

    @property
    def high(self) -> float:
        """The upper end of its interval."""
        return self.value + _WIDTH * self.error

    def contains(self, number: float) -> bool:
        """Whether a number is in the interval."""
        return self.low <= number <= self.high

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


def fit_power(x: Sequence[float], y: Sequence[float]) -> Estimate:
    """The exponent b of y = a x^b: the slope of the logarithms.

    Args:
        x: Sizes, at least three points and two different sizes.
        y: What was measured there.

    Returns:
        The exponent with its standard error.

    Raises:
        UsageError: Too few points, or something that has no logarithm.

    Example:
        >>> from reproduction.fits import fit_power
        >>> fit_power([1, 2, 4, 8], [3, 12, 48, 192]).contains(2)
        True
    """
    if min(*x, *y) <= 0:
        raise UsageError("an exponent is fitted to positive numbers")
    return fit_line(np.log(x).tolist(), np.log(y).tolist())[1]


def fit_line(x: Sequence[float], y: Sequence[float]) -> tuple[Estimate, Estimate]:
    """The constant and the slope of y = a + b x.

    Args:
        x: Sizes, at least three points and two different sizes.
        y: What was measured there.

    Returns:
        Constant and slope with their standard errors.

    Raises:
        UsageError: Too few points.

    Example:
        >>> from reproduction.fits import fit_line
        >>> constant, slope = fit_line([1, 2, 3], [5, 7, 9])
        >>> round(constant.value, 6), round(slope.value, 6)
        (3.0, 2.0)
    """
    return _solve(np.stack([np.ones(len(x)), np.asarray(x, dtype=np.float64)], axis=1), y)


def fit_floor(rounds: Sequence[float], excess: Sequence[float]) -> tuple[Estimate, Estimate]:
    """a and b of excess = a/J + b.

    Every point counts by its own size, since an excess falls over orders of magnitude and the first would be all that
    the fit sees.

    Args:
        rounds: Numbers of rounds J, at least three points and two different ones.
        excess: What is left after so many.

    Returns:
        a and b with their standard errors.

    Raises:
        UsageError: Too few points, or an excess that is not positive.

    Example:
        >>> from reproduction.fits import fit_floor
        >>> a, b = fit_floor([1, 2, 4, 8], [10.5, 5.5, 3.0, 1.75])
        >>> round(a.value, 6), round(b.value, 6)
        (10.0, 0.5)
    """
    if min(excess) <= 0:
        raise UsageError("a floor is fitted to a positive excess")
    weights = 1 / np.asarray(excess, dtype=np.float64)
    table = np.stack([1 / np.asarray(rounds, dtype=np.float64), np.ones(len(rounds))], axis=1)
    return _solve(table * weights[:, None], np.ones(len(rounds)).tolist())


def _solve(table: npt.NDArray[np.float64], y: Sequence[float]) -> tuple[Estimate, Estimate]:
    """Two coefficients by least squares, with their standard errors."""
    count = len(table)
    if count < 3 or np.linalg.matrix_rank(table) < 2:
        raise UsageError("a fit of two numbers needs three points or more, at two different places at least")
    wanted = np.asarray(y, dtype=np.float64)
    found = np.linalg.lstsq(table, wanted, rcond=None)[0]
    left = wanted - table @ found
    variance = float(left @ left) / (count - 2)
    errors = np.sqrt(variance * np.diag(np.linalg.inv(table.T @ table)))
    first, second = (
        Estimate(value=float(value), error=float(error)) for value, error in zip(found, errors, strict=True)
    )
    return first, second
