"""What a benchmark row is, and how the two sides of a ratio are timed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class Row:
    """A ratio and the goal it is held against; `better` says which side of the goal is the good one.

    A row without a goal is only reported: it is printed, and not written to latest.json.
    """

    name: str
    ratio: float
    goal: float | None
    better: Literal["lower", "higher"]

    @property
    def met(self) -> bool:
        if self.goal is None:
            return True
        return self.ratio <= self.goal if self.better == "lower" else self.ratio >= self.goal

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def seconds(action: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def median_seconds(action: Callable[[], object], *, repeats: int = 7) -> float:
    """Median wall time over some calls, the first not counted: for budgets, which are checked as ratios too."""
    return statistics.median([seconds(action) for _ in range(repeats + 1)][1:])


def ratio(subject: Callable[[], object], measure: Callable[[], object], *, repeats: int = 7) -> float:
    """Median time of `subject` over `measure`, called in turn so that noise hits both; first calls do not count."""
    pairs = [(seconds(subject), seconds(measure)) for _ in range(repeats + 1)][1:]
    return statistics.median(a for a, _ in pairs) / statistics.median(b for _, b in pairs)
