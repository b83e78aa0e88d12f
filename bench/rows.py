"""What a benchmark row is, and how the two sides of a ratio are timed.

Both sides are measured in turn in the same run, so that load hits both. What one thread does is timed by the process's
CPU seconds, which a busy machine disturbs least; what waits, or uses several cores, by the clock on the wall.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Clock = Callable[[], float]
CPU: Clock = time.process_time
WALL: Clock = time.perf_counter


@dataclass(frozen=True, kw_only=True)
class Row:
    """A ratio of medians, its least and greatest over the repeats, and the goal it is held against.

    `better` says which side of the goal is the good one. A row without a goal is only reported.
    """

    name: str
    ratio: float
    low: float
    high: float
    repeats: int
    goal: float | None
    better: Literal["lower", "higher"]

    @classmethod
    def of(
        cls,
        name: str,
        subject: Sequence[float],
        measure: Sequence[float] | float,
        *,
        goal: float | None = None,
        better: Literal["lower", "higher"] = "lower",
    ) -> Row:
        """`subject` over `measure`, both one value a repeat; or over a budget, the same for all."""
        against = [measure] * len(subject) if isinstance(measure, (int, float)) else list(measure)
        each = [one / other for one, other in zip(subject, against, strict=True)]
        return cls(
            name=name,
            ratio=statistics.median(subject) / statistics.median(against),
            low=min(each),
            high=max(each),
            repeats=len(each),
            goal=goal,
            better=better,
        )

    @property
    def met(self) -> bool:
        if self.goal is None:
            return True
        return self.ratio <= self.goal if self.better == "lower" else self.ratio >= self.goal

    def worse_than(self, before: float) -> float:
        """By which factor this ratio is worse than the one before; below 1 if it is better."""
        return self.ratio / before if self.better == "lower" else before / self.ratio

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def seconds(action: Callable[[], object], clock: Clock = WALL) -> float:
    """Time of one call."""
    start = clock()
    action()
    return clock() - start


def in_turn(*actions: Callable[[], object], repeats: int = 7, clock: Clock = WALL) -> list[list[float]]:
    """For each action the times of some calls, all actions in turn; first calls do not count."""
    rounds = [[seconds(action, clock) for action in actions] for _ in range(repeats + 1)][1:]
    return [list(times) for times in zip(*rounds, strict=True)]


def log_slope(x: Sequence[float], y: Sequence[float]) -> float:
    """The slope of a straight line through the points on logarithmic axes."""
    import numpy as np

    return float(np.polyfit(np.log(x), np.log(y), 1)[0])
