"""A round in memory: the embedded engine.

`aggregate` runs clients and server in one process, over the very messages that would cross a network. `Simulation` is
what an experiment adds: dropouts, malicious users, rounding that repeats, and a round without the cryptography, which
gives the same bits for the same rounding seed.
"""

from __future__ import annotations

import logging
import math
import operator
import secrets
import time
import warnings
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import numpy.typing as npt

from heterosag.aggregation.clipping import Clipping, ClippingWarning, with_deviations
from heterosag.aggregation.cohorts import CombinedCohorts
from heterosag.aggregation.combine import BlockSum, Combined, check_rule, combine
from heterosag.aggregation.rules import Rule, find_rule
from heterosag.choices import PhaseName, RuleName
from heterosag.crypto.identity import Identity
from heterosag.errors import UsageError
from heterosag.plan import CohortPlan, Plan, User
from heterosag.protocol import encoding
from heterosag.protocol.blocks import join_blocks
from heterosag.protocol.cells import CellLanes, empty_cells
from heterosag.protocol.context import RoundId
from heterosag.protocol.guard import Guard
from heterosag.protocol.rounding import Rounding
from heterosag.protocol.server import Decoded, Refusal, Server
from heterosag.protocol.survivors import outcome
from heterosag.protocol.transitions import Phase
from heterosag.protocol.update import Update
from heterosag.simulation.workers import Workers, WorkerSettings, assemble
from heterosag.vector.arrays import Layout

if TYPE_CHECKING:
    from heterosag.simulation.cohorts import CohortResult

__all__ = ["Result", "Simulation", "Traffic", "Updates", "aggregate", "collect", "identities_of"]

logger = logging.getLogger("heterosag")
logger.addHandler(logging.NullHandler())

Updates = Mapping[User, Any] | Sequence[Any] | npt.NDArray[np.floating[Any]]
"""Every user's update by name, a list of them in roster order, or a 2-D array with a row a user."""

ACCEPTED = (
    "updates are a mapping of user to update, a list with one update a user in roster order, or a 2-D array with one "
    "row a user; an update is an array, a torch state_dict, or a dict or list of arrays"
)
"""What `aggregate` takes, for whoever gave something else."""


@dataclass(slots=True, kw_only=True)
class Traffic:
    """What a round sent, and how long it took.

    Args:
        sent: Encoded bytes of each user's messages, by phase.
        received: Encoded bytes of the messages to each user, by phase.
        user_seconds: CPU seconds of all users together, by phase: what else the machine does is not counted.
        server_seconds: Seconds of the server on the clock, by phase.
        server_cpu_seconds: CPU seconds of the server, all its threads together, by phase.
    """

    sent: dict[str, dict[User, int]] = field(default_factory=dict)
    received: dict[str, dict[User, int]] = field(default_factory=dict)
    user_seconds: dict[str, float] = field(default_factory=dict)
    server_seconds: dict[str, float] = field(default_factory=dict)
    server_cpu_seconds: dict[str, float] = field(default_factory=dict)


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
        """Users who dealt false shares: leave them out of the next rounds."""
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
        UsageError: There is no such phase.
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

        return aggregate_cohorts(
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
    malicious = {plan.users[plan.index(user)] for user in simulate.malicious}
    seed = simulate.rounding_seed
    rounding = {
        user: None if seed is None else Rounding.from_seed(seed, plan.index(user), round_id.number) for user in inputs
    }
    keys = identities_of(plan, identities) if simulate.secure else None
    settings = WorkerSettings(
        plan=plan, round_id=round_id, identities=keys, inputs=inputs, rounding=rounding, malicious=malicious
    )
    traffic = Traffic()
    if simulate.secure:
        decoded, refusals = play(settings, absent, traffic, workers=workers, guard=guard)
    else:
        decoded, refusals = play_plain(settings, absent, guard, signed=bool(identities)), ()
    combined = combine(plan, decoded, chosen)
    warn_of_clipping(plan, combined)
    logger.info("round %d: %d of %d users survived", round_id.number, len(combined.survivors), len(plan.users))
    return Result(
        aggregate=layout.restore(combined.vector),
        combined=combined,
        traffic=traffic,
        refusals=refusals,
        rounding_error=rounding_error_of(plan),
    )


def rounding_error_of(plan: Plan) -> float | None:
    """The bound on the root mean square that rounding adds to an element of the mean, in the units of the updates.

    Args:
        plan: The plan of the round.

    Returns:
        The bound; None where arrays have scales of their own.
    """
    return None if plan.scales else math.sqrt(plan.quantization_error() / plan.dimension)


def play(
    settings: WorkerSettings, absent: Mapping[User, Phase], traffic: Traffic, *, workers: int, guard: Guard | None
) -> tuple[Decoded, tuple[Refusal, ...]]:
    """One plan's round with the cryptography, between users in so many processes and a server in this one.

    Args:
        settings: Plan, round and users.
        absent: Who drops out, and before which phase.
        traffic: Is told what crosses, also in a round that fails.
        workers: Processes for the users, and threads for the server.
        guard: Keeps the ledger over rounds.

    Returns:
        What the server unmasked, and the messages that it did not take.
    """
    keys = settings.identities
    directory = None if keys is None else {user: identity.public for user, identity in keys.items()}
    clients = assemble(settings, workers)
    try:
        with ThreadPoolExecutor(workers) as threads:  # started when it unmasks, long after the fork
            parallel_map = threads.map if workers > 1 else map
            server = Server(
                settings.plan, settings.round_id, directory=directory, guard=guard, parallel_map=parallel_map
            )
            decoded = _secure_round(server, clients, absent, traffic, signed=keys is not None)
    finally:
        clients.dismiss()
    return decoded, tuple(server.refusals)


def collect(
    plan: Plan,
    updates: Updates,
    weights: Mapping[User, int] | Sequence[int] | None,
    metrics: Mapping[User, Mapping[str, float]] | None,
    absent: Mapping[User, Phase],
    layout: Layout | None = None,
) -> tuple[Layout, dict[User, Update]]:
    """Everybody's update as a checked vector; users who drop out before masking need none.

    Args:
        plan: The plan of the round.
        updates: As `aggregate` takes them.
        weights: As `aggregate` takes them.
        metrics: As `aggregate` takes them.
        absent: Who drops out, and before which phase.
        layout: What the updates must look like; the first one's layout unless given.

    Returns:
        The layout of the updates, and everybody's update.

    Raises:
        UsageError: Somebody's update is missing or does not fit the plan.
    """
    given = dict(by_user(plan, updates))
    for user in (*given, *absent):
        plan.index(user)
    early = {user for user, phase in absent.items() if phase in (Phase.ADVERTISE, Phase.SHARE, Phase.MASK)}
    missing = [user for user in plan.users if user not in given and user not in early]
    if missing:
        raise UsageError(f"user {missing[0]!r} has no update: give one, or name it in dropped")
    if not given:
        raise UsageError("nobody has an update")
    layout = layout or Layout.of(next(iter(given.values())))
    if layout.dimension != plan.dimension:
        raise UsageError(
            f"the plan is for {plan.dimension} elements, the updates have {layout.dimension}: build it with "
            f"dimension={layout.dimension}"
        )
    weight_of = _weights(plan, weights)
    inputs: dict[User, Update] = {}
    for user, arrays in given.items():
        try:
            vector, weight = layout.flatten(arrays), weight_of.get(user, 1)
            inputs[user] = Update.of(plan, vector, weight=weight, metrics=(metrics or {}).get(user))
        except UsageError as error:
            raise UsageError(f"the update of user {user!r}: {error}") from None
    return layout, inputs


def warn_of_clipping(plan: Plan | CohortPlan, combined: Combined | CombinedCohorts) -> None:
    """Warn of a round in which users clipped much of their updates, whoever called `aggregate`.

    Args:
        plan: The plan of the round, or its cohorts.
        combined: What it gave.
    """
    words = None if plan.noise_multiplier else Clipping.of(plan, combined).warning  # under noise nobody counts them
    if words is not None:
        warnings.warn(words, ClippingWarning, stacklevel=3)


def check_plan(plan: Any, updates: Any) -> None:
    """Refuse what is no plan, swapped arguments among it.

    Args:
        plan: What was given as the plan.
        updates: What was given as the updates.

    Raises:
        UsageError: It is none.
    """
    if isinstance(plan, (Plan, CohortPlan)):
        return
    swapped = ": the arguments are swapped" if isinstance(updates, (Plan, CohortPlan)) else ""
    raise UsageError(f"aggregate(plan, updates) takes a Plan or a CohortPlan first, not a {_kind(plan)}{swapped}")


def by_user(plan: Plan | CohortPlan, updates: Any) -> Mapping[User, Any]:
    """Every user's update by name, whichever way they came.

    Args:
        plan: Who the users are.
        updates: As `aggregate` takes them.

    Returns:
        A mapping that came as such, or one in roster order.

    Raises:
        UsageError: They are no updates of these users; the message has the forms that are accepted.
    """
    users = plan.users
    if isinstance(updates, Mapping):
        if updates and all(isinstance(name, str) and name not in users for name in updates):
            names = ", ".join(map(repr, users[:3]))
            raise UsageError(
                f"{next(iter(updates))!r} is not a user of this plan, which has {len(users)} users: {names}, ... A "
                f"state_dict is one user's update: {ACCEPTED}"
            )
        return updates
    if isinstance(updates, (list, tuple)) and updates and not np.isscalar(updates[0]) and not _are_rows(updates):
        rows: Any = updates
    else:
        try:
            rows = np.asarray(updates)
        except (ValueError, TypeError):  # rows of unequal length
            rows = np.empty(0)
        if rows.ndim != 2:
            raise UsageError(f"{ACCEPTED}: not a {_kind(updates)}")
    if len(rows) != len(users):
        raise UsageError(f"the plan has {len(users)} users, but there are {len(rows)} updates: {ACCEPTED}")
    return dict(zip(users, rows, strict=True))


def _are_rows(updates: Sequence[Any]) -> bool:
    """Whether these are lists of plain numbers, which make an array."""
    return all(isinstance(row, (list, tuple)) and all(np.isscalar(value) for value in row) for row in updates)


def _kind(given: Any) -> str:
    """What was given, for a message."""
    shape = getattr(given, "shape", None)
    return type(given).__name__ + ("" if shape is None else f" of the shape {tuple(shape)}")


def _fit(plan: Plan, honest: Sequence[Update]) -> Plan:
    """The plan with the range and the scales that fit these updates, as they are quantized."""
    if plan.noise_multiplier:
        raise UsageError("noise is that of the plan's clipping norm, which is not taken from the updates")
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


def _weights(plan: Plan, weights: Mapping[User, int] | Sequence[int] | None) -> dict[User, int]:
    if weights is None:
        return {}
    if not isinstance(weights, Mapping):
        if len(weights) != len(plan.users):
            raise UsageError(f"{len(plan.users)} users need {len(plan.users)} weights, not {len(weights)}")
        weights = dict(zip(plan.users, weights, strict=True))
    try:
        return {plan.users[plan.index(user)]: operator.index(weight) for user, weight in weights.items()}
    except TypeError as error:
        raise UsageError(f"weights are integers: {error}") from None


def identities_of(plan: Plan, identities: Mapping[User, Identity] | bool | None) -> dict[User, Identity] | None:
    """Everybody's identity: as given, fresh ones, or none.

    Args:
        plan: The plan of the round.
        identities: Everybody's, or True for fresh ones.

    Returns:
        Everybody's identity, None without.

    Raises:
        UsageError: Somebody has none.
    """
    if identities is None or identities is False:
        return None
    if identities is True:
        return {user: Identity.generate() for user in plan.users}
    missing = [user for user in plan.users if user not in identities]
    if missing:
        raise UsageError(f"user {missing[0]!r} has no identity")
    return {user: identities[user] for user in plan.users}


def _secure_round(
    server: Server, clients: Workers, absent: Mapping[User, Phase], traffic: Traffic, *, signed: bool
) -> Decoded:
    """Drive clients and server through the phases, and count what crosses between them."""
    order = list(Phase)
    messages: dict[User, bytes] = dict.fromkeys(server.plan.users, b"")
    for phase in order if signed else [phase for phase in order if phase is not Phase.AGREE]:
        name = phase.value
        traffic.received[name] = {user: len(message) for user, message in messages.items()}
        present = {
            user: message
            for user, message in messages.items()
            if user not in absent or order.index(absent[user]) > order.index(phase)
        }
        answers = clients.answer(phase, present)
        traffic.sent[name] = {user: len(reply) for user, (reply, _) in answers.items()}
        traffic.user_seconds[name] = sum(seconds for _, seconds in answers.values())
        start, spent = time.perf_counter(), time.process_time()
        for user, (reply, _) in answers.items():
            server.receive(user, reply)
        messages = server.close()
        traffic.server_seconds[name] = time.perf_counter() - start
        traffic.server_cpu_seconds[name] = time.process_time() - spent
    return server.decoded


def play_plain(settings: WorkerSettings, absent: Mapping[User, Phase], guard: Guard | None, *, signed: bool) -> Decoded:
    """The same sums without the cryptography: the oracle says who survives, and their cells are added.

    Args:
        settings: Plan, round and users.
        absent: Who drops out, and before which phase.
        guard: Keeps the ledger over rounds.
        signed: Whether users would agree on the survivors.

    Returns:
        What the server would have unmasked.
    """
    plan, inputs = settings.plan, settings.inputs
    survivors = outcome(plan, absent, identities=signed).unwrap()
    if guard is not None:
        indices = frozenset(plan.index(user) for user in survivors)
        guard.check(indices)
        guard.note(indices)
    sums: dict[int, list[CellLanes]] = {}
    for user in survivors:
        subgroup = plan.subgroup_of(user)
        cells = encoding.fill_cells(
            plan, subgroup, inputs[user], settings.rounding[user], clip=user not in settings.malicious
        )
        totals = sums.setdefault(subgroup, empty_cells(plan.cells(subgroup)))
        for total, cell in zip(totals, cells, strict=True):
            total.elements[:] += cell.elements
            total.auxiliary[:] += cell.auxiliary
    segments, metrics = join_blocks(plan, [plan.index(user) for user in survivors], sums)
    return Decoded(survivors=survivors, segments=segments, metrics=metrics)
