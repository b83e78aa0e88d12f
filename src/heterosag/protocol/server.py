"""The server of a round: collects, closes phases, unmasks. Without I/O, clock or threads.

`receive` takes one user's message, `close` ends a phase and returns what to send to whom; when to close (everybody has
answered, a timeout) is the caller's business. What each phase checks and keeps is in `server_phases`. The server keeps
one accumulator per segment and subgroup and no user's vector: a vector is validated fully, then added; after that a
user leaves the sum only with its whole subgroup.

Guarantees: the decoded sums are exactly those of the survivors' encoded vectors if these followed the protocol;
otherwise an error names the user or the pair, or the decoded block says what is wrong with it: never a silent wrong
number that a check could have caught.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from secrets import token_bytes
from typing import Any

from cryptography.hazmat.primitives.poly1305 import Poly1305

from heterosag.errors import (
    AbandonedRoundError,
    FaultyUserError,
    HeteroSagError,
    TooFewSurvivorsError,
    UsageError,
    WireError,
)
from heterosag.plan import Plan, User
from heterosag.protocol import messages as wire
from heterosag.protocol.blocks import DecodedBlock
from heterosag.protocol.cells import ParallelMap
from heterosag.protocol.context import RoundId
from heterosag.protocol.guard import Guard
from heterosag.protocol.server_phases import Advertising, Decoded, PhaseState, ServerRound, Sharing
from heterosag.protocol.survivors import make_admissible
from heterosag.protocol.transitions import SERVER_TRANSITIONS, ServerPhase, next_phase

__all__ = ["Decoded", "DecodedBlock", "Refusal", "Server"]


_MOST_REFUSALS = 8  # recorded for each user and phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A message that was refused. The message itself is not kept.

    Args:
        user: Whose it was.
        phase: In which phase it came.
        kind: The class of the error.
        problem: Why it was refused.
    """

    user: User
    phase: ServerPhase
    kind: str
    problem: str


class Server:
    """One round on the server: `receive` users' messages, `close` a phase, send what it returns.

    Args:
        plan: The plan of the round.
        round_id: Which round this is, of which session, on which model.
        directory: Users' public keys, where identities are in use.
        guard: Ends a round before anything is asked for if, with rounds before, it would reveal the sum of too few
            users. Metrics are summed over everybody, so a round of metrics alone is not counted.
        parallel_map: Runs the pieces of unmasking: `heterosag.simulation.workers.all_cores()` for every core.

    `phase` says what it is waiting for, `refusals` which messages were refused and why, `decoded` what it has learned;
    `plan` is what is masked of the `whole` plan: all of it, or the metrics alone.
    """

    def __init__(
        self,
        plan: Plan,
        round_id: RoundId,
        *,
        directory: Mapping[User, bytes] | None = None,
        guard: Guard | None = None,
        parallel_map: ParallelMap = map,
    ) -> None:
        content, model = round_id.content(plan)
        self.whole = plan
        self.plan = content
        self.phase = ServerPhase.ADVERTISE
        self.refusals: list[Refusal] = []
        self._guard = guard
        base = ServerRound(
            plan=content,
            context=round_id.context(plan),
            model=model,
            directory=directory,
            guard=None if round_id.metrics_only else guard,
            parallel_map=parallel_map,
        )
        self._state: PhaseState | Decoded | None = Advertising(base)
        self._seen: dict[int, bytes] = {}
        self._tag_key = token_bytes(32)  # known to nobody, so nobody makes two messages look alike
        self._closed: list[type[wire.Message]] = []

    @property
    def decoded(self) -> Decoded:
        """The decoded sums, once the round is done."""
        if not isinstance(self._state, Decoded):
            raise UsageError(f"the round has no result: it is in the phase {self.phase.value!r}")
        return self._state

    @property
    def waiting_for(self) -> frozenset[User]:
        """Who may still answer in this phase."""
        members = self._state.members if isinstance(self._state, PhaseState) else frozenset()
        return frozenset(self.plan.users[index] for index in members - self._seen.keys())

    def settle(self, plan: Plan, round_id: RoundId) -> None:
        """Give the round its value range and its model, before its share phase closes.

        Args:
            plan: The plan of the round, another in nothing but the value range.
            round_id: The round itself, with the model.

        Raises:
            UsageError: The share phase is closed, or this is another round or another plan.
        """
        state = self._state
        if not isinstance(state, Advertising | Sharing):
            raise UsageError("a round is settled before its share phase closes")
        if round_id.context(plan) != state.base.context:
            raise UsageError("this is another round or plan: only the value range and the model may change")
        content, model = round_id.content(plan)
        self.whole, self.plan = plan, content
        state.plan = content
        guard = None if round_id.metrics_only else self._guard
        state.base = dataclasses.replace(state.base, plan=content, model=model, guard=guard)

    def is_ready(self) -> bool:
        """Whether everybody has answered, or what has arrived stays admissible if as many drop out as the plan expects.

        They are taken from the smallest subgroups, one from each in turn, where losses cost most.
        """
        if len(self._seen) == len(self.plan.users):
            return True
        arrived: dict[int, list[int]] = {}
        for index in self._seen:
            arrived.setdefault(self.plan.assignment[index], []).append(index)
        by_turn = sorted(
            (turn, len(members), index) for members in arrived.values() for turn, index in enumerate(reversed(members))
        )
        lost = {index for _, _, index in by_turn[: round(self.plan.dropout * len(self._seen))]}
        try:
            for present in (self._seen.keys(), self._seen.keys() - lost):  # on a sparse graph fewer may be admissible
                make_admissible(self.plan, present)
        except TooFewSurvivorsError:
            return False
        return True

    def receive(self, user: User, data: bytes) -> bool:
        """Take a user's message.

        A message that no honest user sends is recorded in `refusals` and changes nothing else.

        Args:
            user: Who sent it, as the transport knows.
            data: The message.

        Returns:
            True if it counts now, False if it is late or an identical duplicate.

        Raises:
            FaultyUserError: No honest user sends this; it names the user.
            WireError: These bytes are no message of this phase; it names the sender.
        """
        index = self.plan.index(user)
        state = self._state
        if not isinstance(state, PhaseState) or self._is_late(data):
            return False
        # A tag tells a repetition from another message, and is quicker than a hash.
        received = Poly1305.generate_tag(self._tag_key, data)
        try:
            if index in self._seen:
                if self._seen[index] == received:
                    return False
                raise FaultyUserError(user, f"sent two different messages to {self.phase.value}")
            message = wire.decode(state.kind, data, plan=self.plan, sender=user)
            self._check_origin(state, user, index, message)
            state.take(user, index, message)
        except (FaultyUserError, WireError) as error:
            self._record(user, error)
            raise
        self._seen[index] = received
        return True

    def _record(self, user: User, error: FaultyUserError | WireError) -> None:
        """Keep the words of a refusal, a few for each user and phase: an error object would keep the message alive."""
        if sum(1 for seen in self.refusals if (seen.user, seen.phase) == (user, self.phase)) < _MOST_REFUSALS:
            kind, problem = type(error).__name__, str(error)
            self.refusals.append(Refusal(user=user, phase=self.phase, kind=kind, problem=problem))

    def close(self) -> dict[User, bytes]:
        """End the phase with what has arrived.

        Returns:
            The next messages by user; none when the round is done.

        Raises:
            TooFewSurvivorsError: No admissible set of users is left. The round has failed.
            UsageError: The round is over.
        """
        state = self._state
        if not isinstance(state, PhaseState):
            raise UsageError(f"the round is over: {self.phase.value}")
        try:
            event, after, messages = state.close()
        except HeteroSagError:
            self._fail()
            raise
        self.phase = next_phase(SERVER_TRANSITIONS, self.phase, event)
        self._closed.append(state.kind)
        self._state, self._seen = after, {}
        return self._encode(messages)

    def abandon(self, why: str = "the server gave the round up") -> AbandonedRoundError:
        """Give the round up; a restarted server does the same to every round it knows of.

        Args:
            why: The reason that users are told.

        Returns:
            What to raise.
        """
        if isinstance(self._state, PhaseState):
            self._fail()
        return AbandonedRoundError(why)

    def _fail(self) -> None:
        self._state = None
        self.phase = next_phase(SERVER_TRANSITIONS, self.phase, "fail")

    def _encode(self, messages: dict[int, wire.Message]) -> dict[User, bytes]:
        """Encode each distinct message once: most phases send everybody the same."""
        known: dict[int, bytes] = {}
        for message in messages.values():
            if id(message) not in known:
                known[id(message)] = wire.encode(message)
        return {self.plan.users[index]: known[id(message)] for index, message in messages.items()}

    def _is_late(self, data: bytes) -> bool:
        """Whether this is a message of a phase that is closed; its kind is the second byte."""
        return len(data) > 1 and data[1] in {kind.__struct_config__.tag for kind in self._closed}

    def _check_origin(self, state: PhaseState, user: User, index: int, message: Any) -> None:
        claimed = message.advertised.user if isinstance(message, wire.Advertisement) else message.user
        if claimed != index:
            raise FaultyUserError(user, f"sent a message in the name of roster index {claimed}")
        if index not in state.members:
            raise FaultyUserError(user, f"has no part in the phase {self.phase.value}")
        if message.context != state.context:
            raise FaultyUserError(user, "sent a message of another context: its plan, round, model or roster differs")
