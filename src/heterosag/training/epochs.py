"""The epochs of a run: who takes part, its plan, or its cohorts' plans, and a ledger for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from heterosag.ledger import Ledger, summarise_ledgers
from heterosag.plan import CohortPlan, Plan, User
from heterosag.plan.cohorts import plans_of
from heterosag.training.config import TrainConfig
from heterosag.training.privacy import private_plan

__all__ = ["Epoch", "build_plan", "draw_members", "generator", "users_by_class"]

_PURPOSES = ("partition", "attackers", "participation", "batches", "dropout", "attack", "rates", "samples")


def build_plan(config: TrainConfig, arrays: Sequence[int]) -> Plan | CohortPlan:
    """The plan of all users, or their cohorts if the settings ask for some.

    With a privacy budget and partial participation it is of as many users as take part in a round.

    Args:
        config: The run's settings.
        arrays: The elements of each of the model's arrays.

    Returns:
        The plan.
    """
    arguments: dict[str, Any] = {
        "classes": config.classes,
        "levels": config.levels,
        "dimension": sum(arrays),
        "design": config.design,
        "subgroup_size": config.subgroup_size,
        "min_survivors": config.min_survivors,
        "min_robustness": config.min_robustness,
        "colluders": config.colluders,
        "dropout": config.dropout,
        "assignment_seed": config.seed,
        "fill_levels": config.fill_levels,
        "rotate": config.rotate and config.range_rule != "minmax",  # whose range holds the values as they are
        "sharing": config.sharing,
    }
    if config.levels == "auto":
        rates = [config.rate_of(index) for index in range(len(config.classes))]
        arguments |= {"rates": rates, "deadline": config.deadline}
    if config.epsilon is not None:
        drawn = [draw_members(config, number) for number in range(1, config.rounds + 1)]
        sizes = [len(group) for group in drawn[0]]
        return private_plan(config, arguments | {"classes": sizes}, rounds=_most_rounds(drawn))
    scaled = arrays if config.range_rule == "adaptive" and config.scale_arrays else ()
    return _build(config, arguments | {"value_range": config.first_range, "ranges": config.ranges, "arrays": scaled})


def users_by_class(config: TrainConfig) -> list[range]:
    """All users of each class, whether they take part or not.

    Args:
        config: The run's settings.

    Returns:
        Their numbers, in order.
    """
    return [range(*ends) for ends in pairwise(accumulate(config.classes, initial=0))]


def draw_members(config: TrainConfig, number: int) -> list[list[int]]:
    """Who takes part in a round, class by class: everybody, or as many of each as the settings say.

    Args:
        config: The run's settings.
        number: The round's number, from 1.

    Returns:
        The users of each class, in order.
    """
    classes = users_by_class(config)
    if config.participation == 1:
        return [list(group) for group in classes]
    rng = generator(config, "participation", number)
    members = []
    for group in classes:
        count = max(1, round(config.participation * len(group)))
        members.append(sorted(int(group[index]) for index in rng.choice(len(group), count, replace=False)))
    return members


def _most_rounds(drawn: Sequence[Sequence[Sequence[int]]]) -> int:
    """The rounds of whoever takes part most often."""
    return max(Counter(user for groups in drawn for group in groups for user in group).values())


def generator(config: TrainConfig, purpose: str, number: int = 0, user: int = 0) -> np.random.Generator:
    """The generator of a purpose in a round, of a user: the same in a run that goes on later."""
    return np.random.default_rng([config.seed, _PURPOSES.index(purpose), number, user])


def _build(config: TrainConfig, arguments: Mapping[str, Any]) -> Plan | CohortPlan:
    if config.cohort is None:
        return Plan.build(**arguments)
    return CohortPlan.build(**arguments, cohort_size=config.cohort)


class Epoch:
    """A plan of a run and what the server has learned of its users, cohort by cohort.

    Args:
        config: The run's settings.
        plan: The plan, or the cohorts.
        levels: Of each class of the settings, also of those that have nobody in this plan (default: the plan's).

    `ledgers` has one for each cohort, or the only one.
    """

    def __init__(self, config: TrainConfig, plan: Plan | CohortPlan, *, levels: Sequence[int] | None = None) -> None:
        self.config = config
        self.plan = plan
        self.levels = plan.levels if levels is None else levels
        self.ledgers = [Ledger(one, sets_below=config.hide_sets_below or 0) for one in plans_of(plan)]

    @property
    def guard(self) -> Any:
        """What `aggregate` takes as guard: the ledger, or one for each cohort."""
        return self.ledgers if isinstance(self.plan, CohortPlan) else self.ledgers[0]

    def plan_of(self, user: User) -> Plan:
        """The plan of a user's cohort, or the only one."""
        return self.plan.plan_of(user) if isinstance(self.plan, CohortPlan) else self.plan

    def without(self, members: Sequence[Sequence[int]]) -> Epoch:
        """The next epoch, of some of the users, class by class; a class without any is not in it."""
        kept = [(level, group) for level, group in zip(self.levels, members, strict=True) if group]
        arguments = self.plan.arguments() | {
            "classes": [len(group) for _, group in kept],
            "levels": [level for level, _ in kept],
            "users": [user for _, group in kept for user in group],
            "min_robustness": self.config.min_robustness,
        }
        return Epoch(self.config, type(self.plan).build(**arguments), levels=self.levels)

    def summary(self) -> dict[str, Any]:
        """The ledgers in JSON types."""
        return summarise_ledgers(self.ledgers)

    def to_arrays(self) -> dict[str, npt.NDArray[np.uint8]]:
        """The survivor sets that each ledger has noted: a row a round, a column a user of the cohort."""
        return dict(zip(self._names, map(_rows, self.ledgers), strict=True))

    def load(self, found: Mapping[str, npt.NDArray[Any]]) -> None:
        """Take up the survivor sets of a checkpoint; a `KeyError` or a `UsageError` says that they do not fit."""
        rounds = [[np.flatnonzero(row).tolist() for row in found[name]] for name in self._names]
        below = self.config.hide_sets_below or 0
        plans = plans_of(self.plan)
        self.ledgers = [
            Ledger.from_rounds(plan, own, sets_below=below) for plan, own in zip(plans, rounds, strict=True)
        ]

    @property
    def _names(self) -> list[str]:
        if isinstance(self.plan, Plan):
            return ["ledger"]
        return [f"ledger-{index}" for index in range(len(self.ledgers))]


def _rows(ledger: Ledger) -> npt.NDArray[np.uint8]:
    rows = np.zeros((ledger.rounds, len(ledger.plan.users)), dtype=np.uint8)
    for row, survivors in zip(rows, ledger.to_rounds(), strict=True):
        row[survivors] = 1
    return rows
