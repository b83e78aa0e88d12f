"""Users' links in a run: how fast each is, who drops out or misses the deadline, and how long messages take on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from heterosag.choices import PhaseName
from heterosag.plan import User
from heterosag.plan.costs import beside_vector
from heterosag.simulation.cohorts import CohortResult
from heterosag.simulation.engine import Result
from heterosag.storage.run_log import describe_round
from heterosag.training.config import TrainConfig
from heterosag.training.epochs import Epoch, generator, users_by_class

__all__ = ["Links"]

_FLOAT_SIZE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """The links of a run's users. Make them with `Links.of`.

    Args:
        config: The run's settings.
        class_of: The class of each user.
        factors: By how much each user's link is faster than those of its class.
    """

    config: TrainConfig
    class_of: Mapping[int, int]
    factors: npt.NDArray[np.float64]

    @classmethod
    def of(cls, config: TrainConfig) -> Links:
        """The links that a run's settings describe.

        Args:
            config: The run's settings.

        Returns:
            Everybody's.
        """
        class_of = {user: index for index, group in enumerate(users_by_class(config)) for user in group}
        factors = np.ones(config.users)
        if config.rate_spread:
            factors = np.exp(generator(config, "rates").normal(0.0, config.rate_spread, config.users))
        return cls(config=config, class_of=class_of, factors=factors)

    def rate(self, user: int, *, download: bool = False) -> float:
        """How fast a user's link is.

        Args:
            user: Its number.
            download: From the server, instead of to it.

        Returns:
            Mb/s.
        """
        return self.config.rate_of(self.class_of[user], download=download) * float(self.factors[user])

    def drop_out(self, number: int, epoch: Epoch, members: Sequence[int]) -> tuple[dict[User, PhaseName], int]:
        """Who drops out before which phase, and how many of them because their upload misses the deadline.

        Args:
            number: The round's.
            epoch: Whose plan says how large a vector is.
            members: The users of the round.

        Returns:
            Both.
        """
        rng = generator(self.config, "dropout", number)
        dropped: dict[User, PhaseName] = {}
        missed = 0
        for user in members:
            chance, which = rng.random(), rng.integers(len(self.config.dropout_phases))
            if chance < self.config.dropout:
                dropped[user] = self.config.dropout_phases[int(which)]
            elif self.config.deadline:
                seconds = _vector_size(epoch, user) * 8 / (self.rate(user) * 1e6)
                if seconds > self.config.deadline:
                    dropped[user] = "mask"
                    missed += 1
        return dropped, missed

    def describe(self, epoch: Epoch, result: Result | CohortResult) -> dict[str, Any]:
        """The measured part of a round's line: what crossed, and how long that takes on these links.

        Args:
            epoch: Whose plan the round was run with.
            result: What it gave.

        Returns:
            The part, in JSON types.
        """
        plan = epoch.plan
        sent = result.traffic.sent or _planned_bytes(epoch, result.survivors, identities=self.config.identities)
        upload, download = (
            {user: sum(by.get(user, 0) for by in table.values()) for user in result.survivors}
            for table in (sent, result.traffic.received)
        )
        class_of = {user: self.class_of[int(user)] for user in result.survivors}
        model = plan.dimension * _FLOAT_SIZE
        up = {user: upload[user] * 8 / (self.rate(int(user)) * 1e6) for user in result.survivors}
        down = {
            user: (download[user] + model) * 8 / (self.rate(int(user), download=True) * 1e6)
            for user in result.survivors
        }
        classes = range(len(self.config.classes))
        return {
            **describe_round(plan, result.combined, sent, class_of, len(classes)),
            "refusals": _count_refusals(result),
            "upload_seconds": [max((up[u] for u in up if class_of[u] == index), default=0.0) for index in classes],
            "round_seconds": max(up[user] + down[user] for user in up),
            "user_seconds": result.traffic.user_seconds,
            "server_seconds": result.traffic.server_seconds,
        }


def _count_refusals(result: Result | CohortResult) -> int:
    if isinstance(result, CohortResult):
        return sum(map(len, result.refusals.values()))
    return len(result.refusals)


def _vector_size(epoch: Epoch, user: User) -> int:
    """Bytes of a user's vector, packed."""
    plan = epoch.plan_of(user)
    return plan.vector_sizes()[plan.subgroup_of(user)]


def _planned_bytes(epoch: Epoch, survivors: Sequence[User], *, identities: bool) -> dict[str, dict[User, int]]:
    """Bytes that each survivor would send in each phase, by formula: the plain engine moves none."""
    sent: dict[str, dict[User, int]] = {}
    for user in survivors:
        plan = epoch.plan_of(user)
        for phase, size in beside_vector(plan, plan.index(user), identities=identities).items():
            vector = _vector_size(epoch, user) if phase == "mask" else 0
            sent.setdefault(phase, {})[user] = size + vector
    return sent
