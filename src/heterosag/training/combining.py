"""What a round of training hands to secure aggregation, or to whatever stands in for it, and what it gets back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from heterosag.choices import PhaseName
from heterosag.plan import CohortPlan, Plan, User
from heterosag.simulation.cohorts import CohortResult
from heterosag.simulation.engine import Result
from heterosag.training.epochs import Epoch

__all__ = ["Gathered", "Summed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """What the users of a round send: an update from everybody who has one, and who drops out or is malicious.

    Args:
        number: The round's.
        epoch: Whose plan and ledgers it is run with.
        plan: The epoch's plan with the round's range.
        updates: Everybody's update.
        dropped: Who drops out, and before which phase.
        malicious: Users whose updates are not clipped.
    """

    number: int
    epoch: Epoch
    plan: Plan | CohortPlan
    updates: Mapping[User, npt.NDArray[np.float32]]
    dropped: Mapping[User, PhaseName]
    malicious: Sequence[User]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summed:
    """What became of it: the model's step, whose updates are in it, and what the record says of the round.

    Args:
        vector: The step.
        survivors: The users in it.
        line: What the record says of the round beyond what every round says.
        result: What secure aggregation gave, if that is what was used: ranges follow it.
    """

    vector: npt.NDArray[np.float64]
    survivors: tuple[User, ...]
    line: dict[str, Any]
    result: Result | CohortResult | None = None
