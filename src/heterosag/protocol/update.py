"""What a user brings to a round: its update, checked once against the plan on its way in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from heterosag.crypto.hashing import digest
from heterosag.crypto.secret import Secret
from heterosag.errors import UsageError
from heterosag.plan import Plan
from heterosag.vector.quantize import check_finite

__all__ = ["METRIC_LIMIT", "Update", "checksum"]

METRIC_LIMIT = 2**24
"""Largest magnitude of a metric."""

_SAMPLES = 4096  # elements of a vector that its checksum keeps


@dataclass(frozen=True, slots=True, kw_only=True)
class Update(Secret):
    """A vector, its weight and its metrics as a plan takes them. Made by `Update.of`, which checks them.

    It is what masks are for, so it neither prints nor pickles.

    Args:
        vector: The elements, as they were given: not copied, so they must not change until they are masked.
        weight: A positive integer.
        metrics: The plan's metrics, by name.
        extent: The least and the greatest element; None under noise, where elements are not looked at.
    """

    vector: npt.NDArray[np.floating[Any]] = field(repr=False)
    weight: int = field(repr=False)
    metrics: dict[str, float] = field(repr=False)
    extent: tuple[float, float] | None = field(repr=False)

    @classmethod
    def of(
        cls,
        plan: Plan,
        vector: npt.NDArray[np.floating[Any]],
        weight: int = 1,
        metrics: Mapping[str, float] | None = None,
    ) -> Update:
        """An update, checked before anything is encoded.

        Args:
            plan: The plan that it is for.
            vector: It has the plan's dimension.
            weight: An integer from 1 to the plan's `max_weight`.
            metrics: The plan's metrics, by name.

        Returns:
            The update.

        Raises:
            UsageError: It does not fit the plan; the message says why.

        Example:
            >>> import numpy as np
            >>> from heterosag import Plan
            >>> from heterosag.protocol.update import Update
            >>> plan = Plan.build([12], [4], 3, value_range=1.0, subgroup_size=3)
            >>> Update.of(plan, np.array([0.5, -0.25, 0.0])).extent
            (-0.25, 0.5)
        """
        if vector.shape != (plan.dimension,):
            raise UsageError(
                f"the plan is for vectors of {plan.dimension} elements, this one has the shape {vector.shape}"
            )
        if vector.dtype.kind != "f":
            raise UsageError(f"an update is a vector of floats, not of {vector.dtype}")
        if isinstance(weight, bool) or not isinstance(weight, int) or not 1 <= weight <= plan.max_weight:
            above = isinstance(weight, int) and weight > plan.max_weight
            hint = ": build it with a larger max_weight" if above else ""
            raise UsageError(f"this plan takes integer weights from 1 to {plan.max_weight}, not {weight!r}{hint}")
        extent = None if plan.noise_multiplier else check_finite(vector)  # refusing it would tell something of it
        values = dict(metrics or {})
        if values.keys() != set(plan.metrics):
            raise UsageError(
                f"this plan sums the metrics {list(plan.metrics)}, not {sorted(values)}: build it with the metrics "
                "you give"
            )
        for name, value in values.items():
            if not abs(value) <= METRIC_LIMIT:  # also refuses NaN
                raise UsageError(f"metric {name!r} must lie within {METRIC_LIMIT} of zero, not {value!r}")
        return cls(vector=vector, weight=weight, metrics=values, extent=extent)

    def check_fits(self, plan: Plan) -> None:
        """Refuse an update that was checked against a plan of another shape.

        Args:
            plan: The plan of the round.

        Raises:
            UsageError: The update was checked against a plan of another shape.
        """
        if (
            self.vector.size != plan.dimension
            or self.weight > plan.max_weight
            or set(self.metrics) != set(plan.metrics)
            or (self.extent is None and not plan.noise_multiplier)
        ):
            raise UsageError("this update was checked against another plan")


def checksum(
    vector: npt.NDArray[Any], weight: int, metrics: Mapping[str, float]
) -> tuple[int, bytes, int, dict[str, float]]:
    """Tells updates apart that a program mixes up by mistake, far faster than a hash of all: everything added up, and
    a hash of some of it. Nothing of the vector is kept.

    Args:
        vector: The elements.
        weight: The weight.
        metrics: The metrics.

    Returns:
        The sum of its words, a digest of some of them, the weight and the metrics.
    """
    content = np.ascontiguousarray(vector).reshape(-1).view(np.uint8)
    whole = content.size - content.size % 8
    words = content[:whole].view(np.uint64)
    kept = words[:: words.size // _SAMPLES + 1].tobytes() + content[whole:].tobytes()
    return int(np.add.reduce(words)), digest("vector-sample", kept), weight, dict(metrics)
