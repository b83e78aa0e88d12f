"""The server of a round: collects, closes phases, unmasks. Without I/O, clock or threads.

`receive` takes one user's message, `close` ends a phase and returns what to send to whom; when to close (everybody has
answered, a timeout) is the caller's business. Each phase has a state type of its own. The server keeps one accumulator
per segment and subgroup and no user's vector: a vector is validated fully, then added; after that a user leaves the sum
only with its whole subgroup.

Guarantees: the decoded sums are exactly those of the survivors' encoded vectors if these followed the protocol;
otherwise an error names the user or the pair, or the decoded block says what is wrong with it: never a silent wrong
number that a check could have caught.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from secrets import token_bytes
from typing import Any, ClassVar

from cryptography.hazmat.primitives.poly1305 import Poly1305

from heterosag.crypto import hashing
from heterosag.crypto.field import ELEMENT_SIZE
from heterosag.crypto.identity import verify
from heterosag.crypto.keys import check_public_key
from heterosag.crypto.seal import SEALED_SIZE
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
from heterosag.protocol import unmasking
from heterosag.protocol.blocks import DecodedBlock, join_blocks
from heterosag.protocol.cells import ParallelMap, add_cells, check_packed_cells, empty_cells
from heterosag.protocol.context import RoundId, check_indices, roster_context, sharers_context, survivors_bytes
from heterosag.protocol.guard import Guard
from heterosag.protocol.messages import cut_rows
from heterosag.protocol.survivors import make_admissible
from heterosag.protocol.transitions import SERVER_TRANSITIONS, ServerPhase, next_phase
from heterosag.protocol.unmasking import Commitments

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """What the server learns: who survived, and the sums of every segment's blocks.

    Args:
        survivors: Whose vectors are in the sums.
        segments: The decoded blocks of each segment.
        metrics: The block of everybody: the sums of the metrics, or of the clip bits; None where the plan has neither.
        faulty: Users who dealt false shares: leave them out of the next rounds. Their subgroups' blocks say so where
            their secrets could not be rebuilt.
    """

    survivors: tuple[User, ...]
    segments: tuple[tuple[DecodedBlock, ...], ...]
    metrics: DecodedBlock | None
    faulty: tuple[User, ...] = ()


# --- one state a phase --------------------------------------------------------------------------------------------

_Closed = tuple[str, "_State | Decoded", dict[int, wire.Message]]
"""What closing a phase gives: the event of the transition table, the next state or the result, messages by index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Round:
    """What all phases know. `context` is c0; `model` is the digest of what the round trains from."""

    plan: Plan
    context: bytes
    model: bytes
    directory: Mapping[User, bytes] | None
    guard: Guard | None = None
    parallel_map: ParallelMap = map

    def verify(self, user: User, signature: bytes, label: str, *parts: bytes) -> None:
        try:
            verify((self.directory or {})[user], signature, label, *parts)
        except KeyError:
            raise FaultyUserError(user, "has no key in the directory") from None
        except WireError as error:
            raise FaultyUserError(user, error.problem) from None


class _State(ABC):
    """A phase that collects one kind of message from its members, under its context."""

    kind: ClassVar[type[wire.Message]]

    def __init__(self, base: _Round, members: frozenset[int], context: bytes) -> None:
        self.base = base
        self.plan = base.plan
        self.members = members
        self.context = context

    @abstractmethod
    def take(self, user: User, index: int, message: Any) -> None:
        """Check a member's message fully, then keep what is needed of it."""

    @abstractmethod
    def close(self) -> _Closed:
        """End the phase with what has arrived."""


class _Advertising(_State):
    kind = wire.Advertisement

    def __init__(self, base: _Round) -> None:
        super().__init__(base, frozenset(range(len(base.plan.users))), base.context)
        self.advertised: dict[int, wire.Advertised] = {}
        self.keys: set[bytes] = set()

    def take(self, user: User, index: int, message: wire.Advertisement) -> None:
        advertised = message.advertised
        keys = {advertised.seal_key, advertised.mask_key}
        if self.base.directory is not None:
            parts = (self.context, hashing.index_bytes(index), advertised.seal_key, advertised.mask_key)
            self.base.verify(user, advertised.signature, "advertise", *parts)
        elif advertised.signature:
            raise FaultyUserError(user, "signed its keys, but this server knows no identities")
        for key in keys:
            try:
                check_public_key(key)
            except WireError as error:
                raise FaultyUserError(user, error.problem) from None
        if len(keys) < 2 or keys & self.keys:
            raise FaultyUserError(user, "advertised a key that is advertised already")
        self.keys |= keys
        self.advertised[index] = advertised

    def close(self) -> _Closed:
        present = sorted(make_admissible(self.plan, self.advertised))
        roster = {index: self.advertised[index] for index in present}
        message = wire.Roster(wire.WIRE_VERSION, self.context, list(roster.values()))
        return "close", _Sharing(self.base, roster), dict.fromkeys(roster, message)


class _Sharing(_State):
    kind = wire.Shares

    def __init__(self, base: _Round, roster: dict[int, wire.Advertised]) -> None:
        super().__init__(base, frozenset(roster), roster_context(base.context, list(roster.values())))
        self.mask_keys = {index: entry.mask_key for index, entry in roster.items()}
        self.shares: dict[int, wire.Shares] = {}

    def take(self, user: User, index: int, message: wire.Shares) -> None:
        count = len(self._holders(index))
        if len(message.sealed) != SEALED_SIZE * count or len(message.commitments) != wire.PAIR_SIZE * (count + 1):
            raise FaultyUserError(user, "did not share with exactly its holders")
        self.shares[index] = message

    def _holders(self, dealer: int) -> list[int]:
        """Who in the roster holds a dealer's shares: a place in its message each."""
        return [holder for holder in self.plan.sharing.holders(dealer) if holder in self.members]

    def close(self) -> _Closed:
        sharers = sorted(make_admissible(self.plan, self.shares))
        sealed: dict[int, list[bytes]] = {index: [] for index in sharers}
        pairs: dict[int, list[bytes]] = {index: [] for index in sharers}
        commitments: dict[int, Commitments] = {}
        for dealer in sharers:
            message, holders = self.shares[dealer], self._holders(dealer)
            commitments[dealer] = Commitments.of(message, holders)
            boxes, committed = cut_rows(message.sealed, SEALED_SIZE), cut_rows(message.commitments, wire.PAIR_SIZE)
            for holder, box, pair in zip(holders, boxes, committed[1:], strict=True):
                if holder in sealed:
                    sealed[holder].append(box)
                    pairs[holder].append(pair)
        messages: dict[int, wire.Message] = {
            index: wire.Inbox(wire.WIRE_VERSION, self.context, sharers, b"".join(pairs[index]), b"".join(boxes))
            for index, boxes in sealed.items()
        }
        return "close", _Masking(self.base, self.context, self.mask_keys, commitments), messages


class _Masking(_State):
    kind = wire.MaskedVector

    def __init__(
        self, base: _Round, seal_context: bytes, mask_keys: dict[int, bytes], commitments: dict[int, Commitments]
    ) -> None:
        context = sharers_context(seal_context, base.plan, base.model, sorted(commitments))
        super().__init__(base, frozenset(commitments), context)
        self.seal_context = seal_context
        self.mask_keys = mask_keys
        self.commitments = commitments
        self.arrived: set[int] = set()
        self.signatures: dict[int, bytes] = {}
        self.disputes: set[tuple[int, int]] = set()
        occupied = {self.plan.assignment[index] for index in self.members}
        self.sums = {subgroup: empty_cells(self.plan.cells(subgroup)) for subgroup in occupied}

    def take(self, user: User, index: int, message: wire.MaskedVector) -> None:
        if self.base.directory is not None:
            self.base.verify(user, message.signature, "masked", self.context, hashing.index_bytes(index))
        elif message.signature:
            raise FaultyUserError(user, "signed its vector, but this server knows no identities")
        check_indices(message.complaints, len(self.plan.users), "complaints", sender=user)
        if not self.members.intersection(self.plan.sharing.holders(index)).issuperset(message.complaints):
            raise FaultyUserError(user, "complained about users who are no dealers of it")
        subgroup = self.plan.assignment[index]
        size = wire.vector_size(self.plan, subgroup)
        if len(message.vector) != size:
            raise WireError(f"a masked vector of {len(message.vector)} bytes, not {size}", sender=user)
        try:
            check_packed_cells(message.vector, self.plan.cells(subgroup))
        except WireError as error:
            raise WireError(error.problem, sender=user) from None
        add_cells(message.vector, self.plan.cells(subgroup), self.sums[subgroup])
        self.arrived.add(index)
        self.signatures[index] = message.signature
        self.disputes.update((dealer, index) for dealer in message.complaints)

    def close(self) -> _Closed:
        alive = make_admissible(self.plan, self.arrived, dealers=self.members)
        survivors = sorted(alive)
        if self.base.guard is not None:
            self.base.guard.check(alive)
        kept = {self.plan.assignment[index] for index in survivors}
        self.sums = {subgroup: sums for subgroup, sums in self.sums.items() if subgroup in kept}
        if self.base.directory is None:
            request = wire.UnmaskRequest(wire.WIRE_VERSION, self.context, survivors, [])
            return "close, without identities", _Unmasking(self, survivors), dict.fromkeys(survivors, request)
        asked: dict[int, wire.Message] = {}
        for index in survivors:
            dealers = [dealer for dealer in self.plan.sharing.holders(index) if dealer in alive]
            signatures = [self.signatures[dealer] for dealer in dealers]
            asked[index] = wire.SurvivorSet(wire.WIRE_VERSION, self.context, survivors, signatures)
        return "close", _Agreeing(self, survivors), asked


class _Agreeing(_State):
    kind = wire.Agreement

    def __init__(self, masked: _Masking, survivors: list[int]) -> None:
        super().__init__(masked.base, frozenset(survivors), masked.context)
        self.masked = masked
        self.survivors = survivors
        self.signatures: dict[int, bytes] = {}

    def take(self, user: User, index: int, message: wire.Agreement) -> None:
        survivors = survivors_bytes(self.survivors)
        self.base.verify(user, message.signature, "survivors", self.context, survivors)
        self.signatures[index] = message.signature

    def close(self) -> _Closed:
        if len(self.signatures) < self.plan.agree_quorum:
            problem = f"{len(self.signatures)} users signed the survivor set, {self.plan.agree_quorum} are needed"
            raise TooFewSurvivorsError("thresholds", problem)
        signed = sorted(self.signatures.items())[: self.plan.agree_quorum]
        request = wire.UnmaskRequest(wire.WIRE_VERSION, self.context, self.survivors, signed)
        return "close", _Unmasking(self.masked, self.survivors), dict.fromkeys(self.survivors, request)


class _Unmasking(_State):
    kind = wire.Released

    def __init__(self, masked: _Masking, survivors: list[int]) -> None:
        super().__init__(masked.base, frozenset(survivors), masked.context)
        self.masked = masked
        self.survivors = survivors
        if self.base.guard is not None:
            self.base.guard.note(self.members)  # whoever gets the answers may decode, whatever becomes of the round
        self.released: dict[int, dict[int, bytes]] = {}

    def take(self, user: User, index: int, message: wire.Released) -> None:
        masked = self.masked
        dealers = sorted(masked.members & {*self.plan.sharing.holders(index), index})
        held = [dealer for dealer in dealers if (dealer, index) not in masked.disputes]
        if len(message.shares) != ELEMENT_SIZE * len(held):
            raise FaultyUserError(user, "did not release one share of each user whose shares it holds")
        self.released[index] = dict(zip(held, cut_rows(message.shares, ELEMENT_SIZE), strict=True))

    def close(self) -> _Closed:
        masked = self.masked
        rebuilt = unmasking.rebuild(
            self.plan,
            context=masked.seal_context,
            survivors=self.members,
            commitments=masked.commitments,
            mask_keys=masked.mask_keys,
            released=self.released,
            disputes=masked.disputes,
        )
        unmasking.remove_masks(
            self.plan,
            context=self.context,
            survivors=self.survivors,
            secrets=rebuilt.secrets,
            mask_keys=masked.mask_keys,
            sums=masked.sums,
            parallel_map=self.base.parallel_map,
        )
        segments, metrics = join_blocks(self.plan, self.survivors, masked.sums, rebuilt.missing)
        names = tuple(self.plan.users[index] for index in self.survivors)
        faulty = tuple(self.plan.users[index] for index in sorted(rebuilt.faulty))
        return "close", Decoded(survivors=names, segments=segments, metrics=metrics, faulty=faulty), {}


# --- the machine --------------------------------------------------------------------------------------------------


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
        base = _Round(
            plan=content,
            context=round_id.context(plan),
            model=model,
            directory=directory,
            guard=None if round_id.metrics_only else guard,
            parallel_map=parallel_map,
        )
        self._state: _State | Decoded | None = _Advertising(base)
        self._seen: dict[int, bytes] = {}
        self._seal = token_bytes(32)  # known to nobody, so nobody makes two messages look alike
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
        members = self._state.members if isinstance(self._state, _State) else frozenset()
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
        if not isinstance(state, _Advertising | _Sharing):
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
        if not isinstance(state, _State) or self._is_late(data):
            return False
        received = Poly1305.generate_tag(
            self._seal, data
        )  # tells a repetition from another message, quicker than a hash
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
        if not isinstance(state, _State):
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
        if isinstance(self._state, _State):
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

    def _check_origin(self, state: _State, user: User, index: int, message: Any) -> None:
        claimed = message.advertised.user if isinstance(message, wire.Advertisement) else message.user
        if claimed != index:
            raise FaultyUserError(user, f"sent a message in the name of roster index {claimed}")
        if index not in state.members:
            raise FaultyUserError(user, f"has no part in the phase {self.phase.value}")
        if message.context != state.context:
            raise FaultyUserError(user, "sent a message of another context: its plan, round, model or roster differs")
