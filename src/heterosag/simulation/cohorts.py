"""A round of cohorts in memory: one cohort after another, so that memory is that of one, and one result of all."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from heterosag.aggregation.cohorts import CohortSums, CombinedCohorts, check_failures, combine_cohorts
from heterosag.aggregation.combine import check_rule
from heterosag.aggregation.rules import Rule, find_rule
from heterosag.choices import RuleName
from heterosag.crypto.identity import Identity
from heterosag.errors import HeteroSagError, UsageError
from heterosag.plan import CohortPlan, Plan, User
from heterosag.protocol.context import RoundId
from heterosag.protocol.guard import Guard
from heterosag.protocol.server import Decoded, Refusal
from heterosag.protocol.survivors import outcome
from heterosag.protocol.transitions import Phase
from heterosag.simulation.engine import Simulation, prepare
from heterosag.simulation.exchange import Traffic, play
from heterosag.simulation.inputs import NO_UPDATE, Updates, by_user, collect, weights_by_user
from heterosag.simulation.workers import WorkerSettings
from heterosag.vector.arrays import Layout

__all__ = ["CohortResult", "aggregate_cohorts"]

logger = logging.getLogger("heterosag")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CohortResult:
    """What a round of cohorts returns.

    Args:
        aggregate: The aggregate with the names, shapes and types that the updates came with.
        combined: The same as one vector, and what it was made of.
        traffic: Bytes and seconds by phase, of all cohorts together.
        refusals: Messages that the servers did not take, by the cohort's index.
    """

    aggregate: Any
    combined: CombinedCohorts
    traffic: Traffic
    refusals: dict[int, tuple[Refusal, ...]]

    def __repr__(self) -> str:
        lost = f", cohorts {sorted(self.failed)} failed" if self.failed else ""
        return (
            f"<CohortResult: {len(self.survivors)} survivors in {len(self.cohorts)} cohorts{lost}, elements "
            f"{self.vector.size:,}, Byzantine tolerance {self.combined.byzantine_tolerance}>"
        )

    @property
    def vector(self) -> npt.NDArray[np.float64]:
        """The aggregate as one vector of float64."""
        return self.combined.vector

    @property
    def survivors(self) -> tuple[User, ...]:
        """The users whose updates are in the aggregate, in roster order."""
        return self.combined.survivors

    @property
    def cohorts(self) -> tuple[CohortSums, ...]:
        """What each cohort that did not fail gave: who, their blocks, and which of these are faulty."""
        return self.combined.cohorts

    @property
    def failed(self) -> dict[int, HeteroSagError]:
        """Why each of the other cohorts failed, by its index: the aggregate is without its users."""
        return self.combined.failed

    @property
    def metrics(self) -> dict[str, float]:
        """The mean of each metric over the survivors, weighted as their updates are."""
        return self.combined.metrics

    @property
    def within_norm(self) -> float | None:
        """The noisy fraction of survivors within the clipping norm, where the plan asks for it."""
        return self.combined.within_norm


def aggregate_cohorts(
    plan: CohortPlan,
    updates: Updates,
    *,
    rule: RuleName | Rule = "mean",
    weights: Mapping[User, int] | Sequence[int] | None = None,
    metrics: Mapping[User, Mapping[str, float]] | None = None,
    identities: Mapping[User, Identity] | bool | None = None,
    round_id: RoundId | None = None,
    workers: int = 1,
    guards: Guard | Sequence[Guard] | None = None,
    simulate: Simulation | None = None,
) -> CohortResult:
    """Aggregate users' updates in one round of every cohort, in memory: what `aggregate` does with a `CohortPlan`.

    Args:
        plan: The cohorts.
        updates: As `aggregate` takes them. A mapping is asked for the updates of one cohort at a time, so it need not
            hold them all.
        rule: How block means are combined, over the blocks of all cohorts.
        weights: Each user's weight.
        metrics: Each user's values of the plan's metrics.
        identities: Sign and agree on the survivors; True makes fresh identities.
        round_id: Which round this is; each cohort's context has its own plan's digest.
        workers: Processes for the users' cryptography, and threads for the server's.
        guards: A guard for each cohort, which counts roster indices of that cohort's plan.
        simulate: What only a simulation has a say in.

    Returns:
        The aggregate over the cohorts that did not fail, and why the others did.

    Raises:
        UsageError: An update, weight, metric, identity or guard does not fit the cohorts.
        FailedCohortsError: All cohorts failed; a single one's error is raised itself.
        FaultyBlockError: No cohort has a sound block left for some elements.

    Example:
        >>> import numpy as np
        >>> from heterosag import CohortPlan, Simulation, aggregate
        >>> plan = CohortPlan.build([24], [256], 3, cohort_size=8, value_range=0.5, subgroup_size=4, min_survivors=2)
        >>> gone = dict.fromkeys(plan.plans[1].users[:6], "mask")
        >>> result = aggregate(plan, np.full((24, 3), 0.1), simulate=Simulation(dropped=gone))
        >>> len(result.survivors), sorted(result.failed)
        (16, [1])
    """
    chosen, simulate = find_rule(rule), simulate or Simulation()
    if simulate.value_range == "auto":
        raise UsageError("value_range='auto' looks at everybody's updates at once, which cohorts are not: give a range")
    round_id = round_id or RoundId(session=secrets.token_bytes(16))
    check_rule(plan, chosen)
    given, weight_of = by_user(plan, updates), weights_by_user(plan, weights)
    for user in (*given, *weight_of, *simulate.dropped, *simulate.malicious):
        plan.index(user)
    listed = _guards(plan, guards)
    keys = identities if isinstance(identities, Mapping) else bool(identities)
    traffic, refusals = Traffic(), {}
    found: list[Decoded | HeteroSagError] = []
    layout: Layout | None = None
    for index, own in enumerate(plan.plans):
        mine = set(own.users)
        here = replace(
            simulate,
            dropped={user: phase for user, phase in simulate.dropped.items() if user in mine},
            malicious=[user for user in simulate.malicious if user in mine],
        )
        cohort = _Cohort(plan=plan, own=own, simulate=here, round_id=round_id, identities=keys, workers=workers)
        theirs = {user: given[user] for user in own.users if user in given}
        gone = None if theirs or len(plan.plans) == 1 else cohort.gone()
        if gone is not None:
            found.append(gone)
            continue
        layout, settings = cohort.prepare(theirs, weight_of, metrics, layout)
        try:
            decoded, refusals[index] = cohort.play(settings, traffic, listed[index])
            found.append(decoded)
        except HeteroSagError as error:
            check_failures({index: error}, len(plan.plans) + 1)
            logger.warning("cohort %d of %d failed: %s", index, len(plan.plans), error)
            found.append(error)
    if layout is None:
        raise UsageError(NO_UPDATE)
    combined = combine_cohorts(plan, found, chosen)
    logger.info("round %d: %d of %d users survived", round_id.number, len(combined.survivors), len(plan.users))
    return CohortResult(
        aggregate=layout.restore(combined.vector), combined=combined, traffic=traffic, refusals=refusals
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cohort:
    """One cohort's round."""

    plan: CohortPlan
    own: Plan
    simulate: Simulation
    round_id: RoundId
    identities: Mapping[User, Identity] | bool
    workers: int

    @property
    def absent(self) -> dict[User, Phase]:
        return {user: Phase(phase) for user, phase in self.simulate.dropped.items()}

    def gone(self) -> HeteroSagError | None:
        """Why the cohort fails if everybody in it drops out."""
        if len(self.simulate.dropped) < len(self.own.users):
            return None
        return outcome(self.own, self.absent, identities=bool(self.identities)).error

    def prepare(
        self,
        updates: Mapping[User, Any],
        weights: Mapping[User, int],
        metrics: Mapping[User, Mapping[str, float]] | None,
        layout: Layout | None,
    ) -> tuple[Layout, WorkerSettings]:
        """The cohort's updates, checked, and rounding by the users' places in the whole roster."""
        mine = {user: weights[user] for user in self.own.users if user in weights}
        layout, inputs = collect(self.own, updates, mine, metrics, self.absent, layout)
        return layout, prepare(
            self.own,
            inputs,
            simulate=self.simulate,
            round_id=self.round_id,
            identities=self.identities,
            roster=self.plan,
        )

    def play(
        self, settings: WorkerSettings, traffic: Traffic, guard: Guard | None
    ) -> tuple[Decoded, tuple[Refusal, ...]]:
        """The round, and what crossed in it, also if it fails."""
        part = Traffic()
        try:
            return play(
                settings,
                self.absent,
                part,
                secure=self.simulate.secure,
                signed=bool(self.identities),
                workers=self.workers,
                guard=guard,
            )
        finally:
            _add(traffic, part)


def _add(total: Traffic, part: Traffic) -> None:
    for phase in part.received:
        total.received.setdefault(phase, {}).update(part.received[phase])
        total.sent.setdefault(phase, {}).update(part.sent.get(phase, {}))
        for whole, own in (
            (total.user_seconds, part.user_seconds),
            (total.server_seconds, part.server_seconds),
            (total.server_cpu_seconds, part.server_cpu_seconds),
        ):
            whole[phase] = whole.get(phase, 0.0) + own.get(phase, 0.0)


def _guards(plan: CohortPlan, guards: Guard | Sequence[Guard] | None) -> Sequence[Guard | None]:
    if guards is None:
        return [None] * len(plan.plans)
    if not isinstance(guards, Sequence) or len(guards) != len(plan.plans):
        raise UsageError(f"{len(plan.plans)} cohorts need a guard each, in their order")
    return guards
