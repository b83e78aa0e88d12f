"""A round of cohorts for people to look at: what `heterosag round --cohort` runs and checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from heterosag.choices import RuleName
from heterosag.errors import HeteroSagError, UsageError
from heterosag.plan import CohortPlan, User
from heterosag.report.rounds import ATTACK, COMMON, OWN, conclude, describe, draw_faults, is_exact
from heterosag.simulation.engine import Simulation, aggregate

__all__ = ["run_cohorts"]


class _Updates(Mapping[User, npt.NDArray[np.float32]]):
    """Every user's update, around a common vector and filling the range, drawn when it is asked for: ten thousand users
    have more of them than a machine has memory."""

    def __init__(self, plan: CohortPlan, seed: int, malicious: frozenset[User]) -> None:
        self._plan, self._seed, self.malicious = plan, seed, malicious
        self._known = frozenset(plan.users)
        low, high = plan.value_range
        self._middle, self._half = (low + high) / 2, (high - low) / 2
        self._common = np.random.default_rng([seed, 0]).standard_normal(plan.dimension, dtype=np.float32)
        self._common *= COMMON

    def __getitem__(self, user: User) -> npt.NDArray[np.float32]:
        rng = np.random.default_rng([self._seed, 1, self._plan.index(user)])
        own = rng.standard_normal(self._plan.dimension, dtype=np.float32)
        own *= OWN
        own += self._common
        own *= self._half
        own += self._middle
        return own * np.float32(ATTACK) if user in self.malicious else own

    def __contains__(self, user: object) -> bool:
        return user in self._known

    def __iter__(self) -> Iterator[User]:
        return iter(self._plan.users)

    def __len__(self) -> int:
        return len(self._plan.users)


def run_cohorts(
    plan: CohortPlan,
    *,
    rule: RuleName = "mean",
    drop: Mapping[str, int] | None = None,
    malicious: int = 0,
    identities: bool = False,
    seed: int = 0,
    secure: bool = True,
    workers: int = 1,
) -> dict[str, Any]:
    """Run one round of all cohorts on random updates and say, in JSON types, what it took and whether it is exact."""
    rng = np.random.default_rng(seed)
    dropped, cheating = draw_faults(plan, drop or {}, malicious, rng)
    simulation = Simulation(dropped=dropped, malicious=cheating, rounding_seed=seed, secure=secure)
    updates = _Updates(plan, seed, frozenset(cheating))
    summary = describe(plan, plan.plans[0].design.name, simulation, rule=rule, identities=identities)
    try:
        result = aggregate(
            plan, updates, rule=rule, identities=identities, simulate=simulation, workers=workers if secure else 1
        )
    except UsageError:
        raise
    except HeteroSagError as error:
        return summary | {"error": {"kind": type(error).__name__, "message": str(error)}}
    honest = _Updates(plan, seed, frozenset())
    truth = np.zeros(plan.dimension)
    counted = [user for user in result.survivors if user not in updates.malicious]
    for user in counted:
        truth += honest[user]
    truth /= len(counted)
    exact = is_exact(plan, result, updates, rule, simulation)
    return summary | conclude(plan, result, truth, exact=exact)
