"""Arrays of a model that stay positive, such as running variances, which rounding and noise may make negative."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from heterosag.errors import UsageError

__all__ = ["PositiveArrays"]

_KEPT = 0.25  # of an element of a positive array that a round leaves at least
_OF_EITHER_SIGN = ("bias", "intercept")  # whatever they begin with, training may take them below zero
_VARIANCE = re.compile(r"(?:^|_)var(?:iance)?(?:$|_)")

Vector = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PositiveArrays:
    """Which arrays of a model were positive when a run began.

    Args:
        arrays: Elements of each array, in order.
        positive: Of each, whether it was.

    Raises:
        UsageError: They are not as many.

    Example:
        >>> import numpy as np
        >>> from heterosag.aggregation.positive import PositiveArrays
        >>> before = np.array([0.3, -0.2, 1.0, 2.0])
        >>> after = np.array([-0.3, -0.9, -1.0, 1.5])
        >>> PositiveArrays.of(before, [2, 2]).hold(before, after), after.tolist()
        (1, [-0.3, -0.9, 0.25, 1.5])
    """

    arrays: tuple[int, ...]
    positive: tuple[bool, ...]

    def __post_init__(self) -> None:
        if len(self.arrays) != len(self.positive):
            raise UsageError(
                f"{len(self.arrays)} arrays, and of {len(self.positive)} it is said that they are positive"
            )

    @classmethod
    def of(cls, model: Vector, arrays: Sequence[int], names: Sequence[str] = ()) -> PositiveArrays:
        """The arrays of a model all of whose elements are above 0, but for biases, which happen to be so.

        Args:
            model: The model that a run begins with, as one vector.
            arrays: Elements of each of its arrays.
            names: The name of each, if it has one. Biases and intercepts, by the last part of their names, are left
                out, and so is an array of a single element, unless the name says that it is a variance.
        """
        ends = pairwise(accumulate(arrays, initial=0))
        known = names or [""] * len(arrays)
        return cls(
            arrays=tuple(arrays),
            positive=tuple(
                bool(np.all(model[begin:end] > 0)) and not _may_be_negative(name, end - begin)
                for name, (begin, end) in zip(known, ends, strict=True)
            ),
        )

    def hold(self, before: Vector, after: Vector) -> int:
        """Keep the arrays positive that were so.

        Args:
            before: The model before a round.
            after: The model after it, changed in place: no element of such an array falls below a quarter of what it
                was.

        Returns:
            How many elements were held.
        """
        held = 0
        for (begin, end), positive in zip(pairwise(accumulate(self.arrays, initial=0)), self.positive, strict=True):
            if positive:
                least = _KEPT * before[begin:end]
                held += int(np.count_nonzero(after[begin:end] < least))
                np.maximum(after[begin:end], least, out=after[begin:end], casting="same_kind")
        return held

    def state_dict(self) -> dict[str, Any]:
        """What a run that goes on later needs, in JSON types."""
        return {"arrays": list(self.arrays), "positive": list(self.positive)}

    @classmethod
    def from_state_dict(cls, state: Mapping[str, Any]) -> PositiveArrays:
        """The inverse of `state_dict`.

        Args:
            state: What that gave.

        Raises:
            UsageError: This is not such a state.
        """
        try:
            return cls(arrays=tuple(map(int, state["arrays"])), positive=tuple(map(bool, state["positive"])))
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            raise UsageError(f"this does not say which arrays are positive: {error}") from None


def _may_be_negative(name: str, size: int) -> bool:
    parts = [part for part in re.split(r"[./:]", name.lower()) if not part.isdigit()]  # arrays in a list have numbers
    last = parts[-1] if parts else ""
    return not _VARIANCE.search(last) and (size == 1 or any(word in last for word in _OF_EITHER_SIGN))
