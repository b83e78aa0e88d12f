"""Which arrays of a model are aggregated, by rules that server and nodes apply alike.

- Arrays of integers and booleans are left out: a mean of counters or masks is none, and one counter would widen the
  range of all other elements. They stay as the server's model has them. An app that wants one averaged makes it a
  float.
- Arrays whose name fits a pattern of `exclude` are left out, and stay likewise.
- Of arrays that are `tied`, such as an embedding and the output layer that shares it, the first goes, and what comes
  back is put under both names. Which arrays are tied, the names say: equal values prove nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import numpy.typing as npt

from heterosag.errors import UsageError
from heterosag.vector.arrays import Layout

__all__ = ["Selection", "pairs_of"]

Arrays = Mapping[str, npt.NDArray[Any]]


def pairs_of(tied: Sequence[str]) -> dict[str, str]:
    """Pairs of names from the flat list that a record carries: each second name is tied to the one before it."""
    if len(tied) % 2:
        raise UsageError("tied arrays come in pairs of names")
    return dict(zip(tied[1::2], tied[::2], strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The arrays of a model that are aggregated.

    Args:
        model: The arrays that everybody begins with.
        exclude: Patterns of names that are left out.
        tied: By name, the array that it is tied to.

    Raises:
        UsageError: A pattern or a tie fits no array, or nothing is left.
    """

    model: Arrays
    exclude: Iterable[str] = ()
    tied: Mapping[str, str]

    def __post_init__(self) -> None:
        for pattern in self.exclude:
            if not any(fnmatchcase(name, pattern) for name in self.model):
                raise UsageError(f"exclude has {pattern!r}, which no array of the model fits: {list(self.model)}")
        for name, other in self.tied.items():
            if {name, other} - self.model.keys() or name == other or other in self.tied:
                raise UsageError(
                    f"{name!r} cannot be tied to {other!r}: both are arrays of the model, the second is free"
                )
            if self.model[name].shape != self.model[other].shape or self.model[name].dtype != self.model[other].dtype:
                raise UsageError(f"{name!r} cannot be tied to {other!r}: their shapes or types differ")
        if not self.names:
            raise UsageError("no array of the model is left to aggregate: all are integers, excluded or tied")

    @property
    def names(self) -> list[str]:
        """The names of what goes, in the model's order."""
        return [
            name
            for name, array in self.model.items()
            if array.dtype.kind not in "iub"
            and name not in self.tied
            and not any(fnmatchcase(name, pattern) for pattern in self.exclude)
        ]

    @property
    def left_out(self) -> list[str]:
        """The names of arrays that stay as the server's model has them."""
        gone = set(self.names)
        return [name for name in self.model if name not in gone and self.tied.get(name) not in gone]

    @property
    def layout(self) -> Layout:
        """Where each array that goes is in the vector."""
        return Layout.of(self._chosen(self.model))

    def update(self, after: Arrays) -> npt.NDArray[Any]:
        """What training changed, as one vector.

        Args:
            after: All arrays of the model, after training.

        Raises:
            UsageError: Arrays are missing, unknown or of other shapes, or tied ones have come apart.
        """
        if after.keys() != self.model.keys():
            missing, extra = sorted(self.model.keys() - after.keys()), sorted(after.keys() - self.model.keys())
            raise UsageError(f"this update's arrays differ from the model's: missing {missing}, unknown {extra}")
        for name, other in self.tied.items():
            if not np.array_equal(after[name], after[other], equal_nan=True):
                raise UsageError(f"arrays {name!r} and {other!r} are tied, but training has made them differ")
        layout = self.layout
        return np.asarray(layout.flatten(self._chosen(after)) - layout.flatten(self._chosen(self.model)))

    @property
    def vector(self) -> npt.NDArray[np.float64]:
        """What goes of the model, as one vector."""
        return self.layout.flatten(self._chosen(self.model)).astype(np.float64)

    def restore(self, vector: npt.NDArray[np.float64]) -> dict[str, npt.NDArray[Any]]:
        """The model from such a vector: tied arrays have the same values, what does not go is as it was."""
        changed: dict[str, npt.NDArray[Any]] = self.layout.restore(vector)
        return {name: changed.get(self.tied.get(name, name), array) for name, array in self.model.items()}

    def _chosen(self, arrays: Arrays) -> dict[str, npt.NDArray[Any]]:
        return {name: arrays[name] for name in self.names}
