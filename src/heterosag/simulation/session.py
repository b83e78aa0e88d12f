"""Rounds in a row in memory: the next round's keys and shares ride on this round's messages.

`aggregate` in engine.py runs one round by itself; a `Session` keeps users and server from round to round, so that a
steady round takes two trips instead of four (three instead of five with identities), as on Flower.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from heterosag.aggregation.combine import check_rule, combine
from heterosag.aggregation.rules import Rule, find_rule
from heterosag.choices import RuleName
from heterosag.crypto.identity import Identity
from heterosag.errors import UsageError
from heterosag.plan import Plan, User
from heterosag.protocol.client import Client
from heterosag.protocol.context import RoundId
from heterosag.protocol.guard import Guard
from heterosag.protocol.pipeline import ClientPipeline, Part, ServerPipeline
from heterosag.protocol.policy import Policy
from heterosag.protocol.rounding import Rounding
from heterosag.protocol.transitions import Phase
from heterosag.protocol.update import Update
from heterosag.simulation.engine import Result, Simulation, rounding_error_of
from heterosag.simulation.exchange import Traffic
from heterosag.simulation.inputs import Updates, collect, directory_of, identities_of

__all__ = ["Session"]

_ORDER = list(Phase)


class Session:
    """Rounds of one plan, one after another, in memory.

    Args:
        plan: Who takes part, and how.
        identities: Sign and agree on the survivors; True makes fresh identities.
        prepare: Whether rounds are set up ahead.

    `trips` says how often messages went to the users and back, round by round.

    Example:
        >>> import numpy as np
        >>> from heterosag import Plan
        >>> from heterosag.simulation.session import Session
        >>> session = Session(Plan.build([8], [256], 3, value_range=0.5, subgroup_size=4))
        >>> for _ in range(3):
        ...     result = session.aggregate(np.full((8, 3), 0.1))
        >>> session.trips
        [4, 2, 2]
    """

    def __init__(
        self, plan: Plan, *, identities: Mapping[User, Identity] | bool | None = None, prepare: bool = True
    ) -> None:
        keys = identities_of(plan, identities)
        directory = directory_of(keys)
        session = secrets.token_bytes(16)
        self._plan = plan
        self._session = session
        self._server = ServerPipeline(session, directory=directory, prepare=prepare)
        self._users = {
            user: ClientPipeline(
                plan,
                user,
                session,
                identity=None if keys is None else keys[user],
                directory=directory,
                trust_server=keys is None,
                policy=Policy.any_plan(),  # the caller made the plan
            )
            for user in plan.users
        }
        self.trips: list[int] = []

    def aggregate(
        self,
        updates: Updates,
        *,
        rule: RuleName | Rule = "mean",
        weights: Mapping[User, int] | Sequence[int] | None = None,
        metrics: Mapping[User, Mapping[str, float]] | None = None,
        guard: Guard | None = None,
        simulate: Simulation | None = None,
    ) -> Result:
        """Aggregate users' updates in the next round.

        Args:
            updates: As for `heterosag.aggregate`.
            rule: How block means are combined.
            weights: Each user's weight.
            metrics: Each user's values of the plan's metrics.
            guard: Keeps the ledger over rounds; the same one in all of them.
            simulate: Dropouts, malicious users and rounding. A user who drops out before a phase misses the trips from
                there to the end of the round, and with them what they carry of the next.

        Returns:
            The aggregate as the updates came, who survived, and what the server saw.

        Raises:
            UsageError: An update does not fit the plan, or the cryptography was to be skipped.
            TooFewSurvivorsError: Too many users dropped out.
            FaultyBlockError: The rule cannot leave out a sum that honest users cannot have made.
        """
        chosen, simulate = find_rule(rule), simulate or Simulation()
        if not simulate.secure:
            raise UsageError("rounds in a row are about keys and shares: secure=False is for heterosag.aggregate")
        check_rule(self._plan, chosen)
        absent = {user: Phase(phase) for user, phase in simulate.dropped.items()}
        layout, inputs = collect(self._plan, updates, weights, metrics, absent)
        self._server.begin(self._plan, guard=guard)
        self._server.settle(self._plan)
        traffic = Traffic()
        mask = self._masking(inputs, simulate.malicious, simulate.rounding_seed)
        try:
            while not self._server.done:
                self._trip(absent, mask, traffic)
        finally:
            self.trips.append(self._server.trips)
        combined = combine(self._plan, self._server.decoded, chosen)
        refusals = tuple(self._server.server.refusals)
        return Result(
            aggregate=layout.restore(combined.vector),
            combined=combined,
            traffic=traffic,
            refusals=refusals,
            rounding_error=rounding_error_of(self._plan),
        )

    def _masking(
        self, inputs: Mapping[User, Update], malicious: Collection[User], seed: int | None
    ) -> Callable[[Client, Part], bytes]:
        plan, number = self._plan, len(self.trips)

        def mask(client: Client, part: Part) -> bytes:
            user = client.user
            rounding = None if seed is None else Rounding.from_seed(seed, plan.index(user), number)
            client.settle(plan, RoundId(session=self._session, number=part.number))
            return client.mask(part.message, inputs[user], rounding=rounding, clip=user not in malicious)

        return mask

    def _trip(self, absent: Mapping[User, Phase], mask: Callable[[Client, Part], bytes], traffic: Traffic) -> None:
        """One trip: every present user's answers, and what crossed counted by phase."""
        server, phase = self._server, self._server.phase
        spent = served = cpu = 0.0
        for user, parts in server.send().items():
            for part in parts:
                traffic.received.setdefault(part.phase.value, {})[user] = len(part.message)
            if user in absent and _ORDER.index(absent[user]) <= _ORDER.index(phase):
                continue
            start = time.process_time()
            answers = self._users[user].answer(parts, mask)
            spent += time.process_time() - start
            answered, before = time.perf_counter(), time.process_time()
            for answer in answers:
                if answer.error is None:
                    traffic.sent.setdefault(answer.phase.value, {})[user] = len(answer.message)
                    server.receive(user, answer.number, answer.message)
            served += time.perf_counter() - answered
            cpu += time.process_time() - before
        start, before = time.perf_counter(), time.process_time()
        server.close()
        traffic.server_cpu_seconds[phase.value] = cpu + time.process_time() - before
        traffic.user_seconds[phase.value] = spent
        traffic.server_seconds[phase.value] = served + time.perf_counter() - start
