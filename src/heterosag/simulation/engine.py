"""A round in memory: the embedded engine.

`aggregate` runs clients and server in one process, over the very messages that would cross a network. `Simulation` is
what an experiment adds: dropouts, malicious users, rounding that repeats, and a round without the cryptography, which
gives the same bits for the same rounding seed.
"""

from __future__ import annotations

import logging
import math
import secrets
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import numpy.typing as npt

from heterosag.aggregation.clip_counts import Clipping, ClippingWarning
from heterosag.aggregation.clipping import with_deviations
from heterosag.aggregation.cohorts import CombinedCohorts
from heterosag.aggregation.combine import BlockSum, Combined, check_rule, combine
from heterosag.aggregation.rules import Rule, find_rule
from heterosag.choices import PhaseName, RuleName
from heterosag.crypto.identity import Identity
from heterosag.errors import UsageError
from heterosag.plan import CohortPlan, Plan, User
from heterosag.protocol.context import RoundId
from heterosag.protocol.guard import Guard
from heterosag.protocol.rounding import Rounding
from heterosag.protocol.server import Refusal
from heterosag.protocol.transitions import Phase
from heterosag.protocol.update import Update
from heterosag.simulation.exchange import Traffic, play
from heterosag.simulation.inputs import Updates, check_plan, collect, identities_of
from heterosag.simulation.workers import WorkerSettings

if TYPE_CHECKING:
    from heterosag.simulation.cohorts import CohortResult

__all__ = ["Result", "Simulation", "Traffic", "Updates", "aggregate", "collect", "identities_of"]

logger = logging.getLogger("heterosag")
logger.addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Result:
    """What a round returns.

    Args:
        aggregate: The aggregate with the names, shapes and types that the updates came with.
        combined: The same as one vector, and what it was made of.
        traffic: Bytes and seconds by phase.
        refusals: Messages that the server did not take, and why.
        rounding_error: What rounding adds to an element of the mean of everybody at most, as a root mean square; None
            where arrays have scales of their own. An aggregate that is not much larger is mostly noise.
    """

    aggregate: Any
    combined: Combined
    traffic: Traffic
    refusals: tuple[Refusal, ...] = ()
    rounding_error: float | None = None

    def __repr__(self) -> str:
        return f"<Result: {', '.join(f'{name} {value}' for name, value in self._glance().items())}>"

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in self._glance().items())
        return f"<table>{rows}</table>"

    def _glance(self) -> dict[str, str]:
        """What a person wants to know first."""
        size = float(np.sqrt(np.mean(self.vector**2)))
        error = {} if self.rounding_error is None else {"rounding error at most": f"{self.rounding_error:.2g} RMS"}
        return {
            "survivors": f"{len(self.survivors)}",
            "elements": f"{self.vector.size:,} of {size:.2g} RMS",
            **error,
            "faulty blocks": f"{len(self.faulty_blocks)}",
            "inference robustness": f"{self.combined.inference_robustness:.4g}",
            "Byzantine tolerance": f"{self.combined.byzantine_tolerance}",
        }

    @property
    def vector(self) -> npt.NDArray[np.float64]:
        """The aggregate as one vector of float64."""
        return self.combined.vector

    @property
    def survivors(self) -> tuple[User, ...]:
        """The users whose updates are in the aggregate."""
        return self.combined.survivors

    @property
    def blocks(self) -> tuple[tuple[BlockSum, ...], ...]:
        """For each segment, its decoded blocks: who, how many, their sum."""
        return self.combined.blocks

    @property
    def faulty_blocks(self) -> tuple[BlockSum, ...]:
        """The blocks that honest users cannot have made, left out by the rule."""
        return self.combined.faulty_blocks

    @property
    def faulty_users(self) -> tuple[User, ...]:
        """Users who dealt or released false shares: leave them out of the next rounds."""
        return self.combined.faulty_users

    @property
    def metrics(self) -> dict[str, float]:
        """The mean of each metric over the survivors, weighted as their updates are."""
        return self.combined.metrics

    @property
    def within_norm(self) -> float | None:
        """The noisy fraction of survivors within the clipping norm; None where the plan does not ask for it."""
        return self.combined.within_norm


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """What only a simulation has a say in.

    Args:
        dropped: Users who drop out, each with the phase before which it does (advertise, share, mask, agree, unmask).
        malicious: Users who skip the clip and wrap in the ring.
        rounding_seed: Makes the rounding reproducible.
        secure: False skips the cryptography.
        value_range: "auto" takes the range, and the scales of the plan's arrays, from everybody's updates, seen in
            plaintext, which no server can.

    Raises:
        UsageError: `dropped` is no mapping, there is no such phase, `malicious` is no list of users, `rounding_seed` no
            seed, or there is no such way to take the range.
    """

    dropped: Mapping[User, PhaseName] = field(default_factory=dict)
    malicious: Collection[User] = ()
    rounding_seed: int | None = None
    secure: bool = True
    value_range: Literal["plan", "auto"] = "plan"

    def __post_init__(self) -> None:
        if not isinstance(self.dropped, Mapping):
            raise UsageError(
                f"dropped maps users to the phase before which they drop out, like {{3: 'mask'}}, not {self.dropped!r}"
            )
        if isinstance(self.malicious, (str, bytes)) or not isinstance(self.malicious, Collection):
            raise UsageError(f"malicious is a list of users, like [3, 5], or an empty one, not {self.malicious!r}")
        seed = self.rounding_seed
        if seed is not None and not (isinstance(seed, int) and 0 <= seed < 2**64):
            raise UsageError(f"a rounding seed is an integer from 0 to 2^64-1, or None, not {seed!r}")
        if self.value_range not in ("plan", "auto"):
            raise UsageError(f"a simulation takes the range of the plan, or 'auto', not {self.value_range!r}")
        names = [phase.value for phase in Phase]
        for phase in self.dropped.values():
            if phase not in names:
                raise UsageError(f"users drop out before one of the phases {', '.join(names)}, not {phase!r}")


@overload
def aggregate(
    plan: Plan,
    updates: Updates,
    *,
    rule: RuleName | Rule = "mean",
    weights: Mapping[User, int] | Sequence[int] | None = None,
    metrics: Mapping[User, Mapping[str, float]] | None = None,
    identities: Mapping[User, Identity] | bool | None = None,
    round_id: RoundId | None = None,
    workers: int = 1,
    guard: Guard | None = None,
    simulate: Simulation | None = None,
) -> Result: ...


@overload
def aggregate(
    plan: CohortPlan,
    updates: Updates,
    *,
    rule: RuleName | Rule = "mean",
    weights: Mapping[User, int] | Sequence[int] | None = None,
    metrics: Mapping[User, Mapping[str, float]] | None = None,
    identities: Mapping[User, Identity] | bool | None = None,
    round_id: RoundId | None = None,
    workers: int = 1,
    guard: Sequence[Guard] | None = None,
    simulate: Simulation | None = None,
) -> CohortResult: ...


@overload
def aggregate(
    plan: Plan | CohortPlan,
    updates: Updates,
    *,
    rule: RuleName | Rule = "mean",
    weights: Mapping[User, int] | Sequence[int] | None = None,
    metrics: Mapping[User, Mapping[str, float]] | None = None,
    identities: Mapping[User, Identity] | bool | None = None,
    round_id: RoundId | None = None,
    workers: int = 1,
    guard: Guard | Sequence[Guard] | None = None,
    simulate: Simulation | None = None,
) -> Result | CohortResult: ...


def aggregate(
    plan: Plan | CohortPlan,
    updates: Updates,
    *,
    rule: RuleName | Rule = "mean",
    weights: Mapping[User, int] | Sequence[int] | None = None,
    metrics: Mapping[User, Mapping[str, float]] | None = None,
    identities: Mapping[User, Identity] | bool | None = None,
    round_id: RoundId | None = None,
    workers: int = 1,
    guard: Guard | Sequence[Guard] | None = None,
    simulate: Simulation | None = None,
) -> Result | CohortResult:
    """Aggregate users' updates in one round, in memory.

    Args:
        plan: Who takes part, and how; cohorts run one after another, so that memory is that of one.
        updates: A mapping of user to vector, array, torch state_dict, or dict or list of arrays; a list of these in
            roster order; or a 2-D array, one row a user in roster order.
        rule: How block means are combined: mean, median, trimmed_mean, or a `heterosag.aggregation.rules.Rule`.
        weights: Each user's weight, an integer up to the plan's `max_weight`.
        metrics: Each user's values of the plan's metrics.
        identities: Sign and agree on the survivors; True makes fresh identities.
        round_id: Which round this is; a session of its own unless given.
        workers: Processes for the users' cryptography, and threads for the server's.
        guard: Keeps the ledger over rounds, and may refuse one: a `heterosag.Ledger`; of cohorts one for each.
        simulate: What only a simulation has a say in: dropouts, malicious users, seeds, no cryptography.

    Returns:
        The aggregate as the updates came, who survived, and what the server saw; of cohorts also which failed.

    Raises:
        UsageError: An update, weight, metric or identity does not fit the plan.
        TooFewSurvivorsError: Too many users dropped out.
        FaultyBlockError: The rule cannot leave out a sum that honest users cannot have made.
        FailedCohortsError: Every one of several cohorts failed, each with an error of its own.

    Guarantees: the aggregate is that of the exact integer sums of the survivors' quantized vectors, or a named error.

    Example:
        >>> import numpy as np
        >>> from heterosag import Plan, Simulation, aggregate
        >>> plan = Plan.build([8], [256], 3, value_range=0.5, subgroup_size=4)
        >>> result = aggregate(plan, np.full((8, 3), 0.1), simulate=Simulation(dropped={5: "mask"}, rounding_seed=1))
        >>> len(result.survivors)
        7
        >>> bool(np.all(abs(result.aggregate - 0.1) < 0.01))
        True
    """
    check_plan(plan, updates)
    if isinstance(plan, CohortPlan):
        from heterosag.simulation.cohorts import aggregate_cohorts

        found = aggregate_cohorts(
            plan,
            updates,
            rule=rule,
            weights=weights,
            metrics=metrics,
            identities=identities,
            round_id=round_id,
            workers=workers,
            guards=guard,
            simulate=simulate,
        )
        _warn_of_clipping(plan, found.combined)
        return found
    if isinstance(guard, Sequence):
        raise UsageError("one plan has one guard, not several: those are for the cohorts of a CohortPlan")
    chosen = find_rule(rule)
    check_rule(plan, chosen)
    simulate = simulate or Simulation()
    round_id = round_id or RoundId(session=secrets.token_bytes(16))
    absent = {user: Phase(phase) for user, phase in simulate.dropped.items()}
    layout, inputs = collect(plan, updates, weights, metrics, absent)
    if simulate.value_range == "auto":
        plan = _fit(plan, [update for user, update in inputs.items() if user not in set(simulate.malicious)])
    settings = prepare(plan, inputs, simulate=simulate, round_id=round_id, identities=identities, roster=plan)
    traffic = Traffic()
    decoded, refusals = play(
        settings,
        absent,
        traffic,
        secure=simulate.secure,
        signed=bool(identities),
        workers=workers,
        guard=guard,
    )
    combined = combine(plan, decoded, chosen)
    _warn_of_clipping(plan, combined)
    logger.info("round %d: %d of %d users survived", round_id.number, len(combined.survivors), len(plan.users))
    return Result(
        aggregate=layout.restore(combined.vector),
        combined=combined,
        traffic=traffic,
        refusals=refusals,
        rounding_error=rounding_error_of(plan),
    )


def prepare(
    plan: Plan,
    inputs: Mapping[User, Update],
    *,
    simulate: Simulation,
    round_id: RoundId,
    identities: Mapping[User, Identity] | bool | None,
    roster: Plan | CohortPlan,
) -> WorkerSettings:
    """What the users of one plan's round are run with.

    Args:
        plan: The plan of the round.
        inputs: Everybody's update.
        simulate: What only a simulation has a say in.
        round_id: Which round this is.
        identities: Everybody's, or True for fresh ones.
        roster: Whose roster has the places that rounding is seeded by: the plan's, or that of all cohorts.

    Returns:
        The settings.

    Raises:
        UsageError: An identity is missing, or a malicious user is none of the plan's.
    """
    malicious = {plan.users[plan.index(user)] for user in simulate.malicious}
    seed, number = simulate.rounding_seed, round_id.number
    rounding = {user: None if seed is None else Rounding.from_seed(seed, roster.index(user), number) for user in inputs}
    keys = identities_of(plan, identities) if simulate.secure else None
    return WorkerSettings(
        plan=plan, round_id=round_id, identities=keys, inputs=inputs, rounding=rounding, malicious=malicious
    )


def rounding_error_of(plan: Plan) -> float | None:
    """The bound on the root mean square that rounding adds to an element of the mean, in the units of the updates.

    Args:
        plan: The plan of the round.

    Returns:
        The bound; None where arrays have scales of their own.
    """
    return None if plan.scales else math.sqrt(plan.quantization_error() / plan.dimension)


def _warn_of_clipping(plan: Plan | CohortPlan, combined: Combined | CombinedCohorts) -> None:
    """Warn whoever called `aggregate`, which alone may call this, if users clipped much of their updates."""
    words = None if plan.noise_multiplier else Clipping.of(plan, combined).warning  # under noise nobody counts them
    if words is not None:
        warnings.warn(words, ClippingWarning, stacklevel=3)


def _fit(plan: Plan, honest: Sequence[Update]) -> Plan:
    """The plan with the range and the scales that fit these updates, as they are quantized."""
    if plan.noise_multiplier:
        raise UsageError(
            "noise is that of the plan's clipping norm, which is not taken from the updates: leave value_range='auto' "
            "out"
        )
    squares = np.zeros(plan.dimension)
    for update in honest:
        squares += (update.vector.astype(np.float64) * (update.weight / plan.max_weight)) ** 2
    squares /= max(len(honest), 1)
    ends = [0, *accumulate(plan.arrays or (plan.dimension,))]
    found = [math.sqrt(squares[begin:end].mean()) for begin, end in pairwise(ends)]
    largest = max(found)
    if not largest:
        return plan  # nothing moved: any range will do
    fitted = with_deviations(plan, [deviation or largest for deviation in found])
    logger.warning(
        "the value range %.4g is taken from the updates of %d users in plaintext, which only a simulation can see",
        fitted.value_range[1],
        len(honest),
    )
    return fitted
