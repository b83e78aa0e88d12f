"""Users' upload rates: from text, from a file, from a distribution."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from statistics import NormalDist

from heterosag.errors import UsageError
from heterosag.planner.requirements import MOST_USERS

__all__ = ["read_rates", "spread_rates"]


def read_rates(text: str) -> tuple[float, ...]:
    """Users' rates from a text, as the command line takes them.

    Args:
        text: `0.5x20,2x20` (twenty users each), `lognormal:MEDIAN:SPREAD:USERS`, or the name of a CSV file.

    Returns:
        Mb/s of each user.

    Raises:
        UsageError: The text, or a line of the file, is none of these.

    Example:
        >>> from heterosag.planner import read_rates
        >>> read_rates("0.5x2,4")
        (0.5, 0.5, 4.0)
    """
    if text.startswith("lognormal:"):
        try:
            median, spread, count = text.removeprefix("lognormal:").split(":")
            numbers = float(median), float(spread), int(count)
        except ValueError:
            raise UsageError(f"a distribution is lognormal:MEDIAN:SPREAD:USERS, not {text!r}") from None
        return spread_rates(*numbers)
    if _is_file(text):
        return _read_file(Path(text))
    parts: list[tuple[float, int]] = []
    try:
        for part in text.split(","):
            rate, _, users = part.partition("x")
            parts.append((float(rate), int(users) if users else 1))
    except ValueError:
        wanted = "rates are numbers, or numbers x users, with commas between them, or a file of them"
        raise UsageError(f"{wanted}, not {text!r}, which is no file either") from None
    for each, many in parts:
        if not 1 <= many <= MOST_USERS:
            raise UsageError(f"{each:g}x{many} in the rates names no number of users from 1 to {MOST_USERS:,}")
    return tuple(each for each, many in parts for _ in range(many))


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long for a name, or with a character that no name has
        return False


def _read_file(path: Path) -> tuple[float, ...]:
    """The last column of a CSV file; its first line may be a heading, every other one is a user."""
    try:
        rows = [row for row in csv.reader(path.read_text(encoding="utf-8").splitlines()) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    found: list[float] = []
    for number, row in enumerate(rows):
        try:
            found.append(float(row[-1]))
        except ValueError:
            if number:
                raise UsageError(f"line {number + 1} of {path} does not end with a rate: {row[-1]!r}") from None
    if not found:
        raise UsageError(f"{path} holds no rates: it has a line for each user, which ends with its rate in Mb/s")
    return tuple(found)


def spread_rates(median: float, spread: float, users: int) -> tuple[float, ...]:
    """Rates of a log-normal distribution, at evenly spaced quantiles: the same each time.

    Args:
        median: In Mb/s.
        spread: Standard deviation of the logarithm.
        users: How many.

    Returns:
        Mb/s of each user, slowest first.

    Raises:
        UsageError: No distribution has such values.
    """
    if not (median > 0 and spread >= 0 and 4 <= users <= MOST_USERS):
        raise UsageError(f"a distribution has a median above 0, a spread of at least 0 and 4 to {MOST_USERS} users")
    normal = NormalDist()
    try:
        return tuple(median * math.exp(spread * normal.inv_cdf((place + 0.5) / users)) for place in range(users))
    except OverflowError:
        raise UsageError(
            f"a spread of {spread:g} is too large: it is the standard deviation of the logarithm, 0.5 is large"
        ) from None
