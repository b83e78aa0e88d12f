"""The server's phases: what each collects, checks and keeps of users' messages, and what it gives when it closes.

Each phase is a state type of its own, which is made by the one before it. `take` validates a user's message fully and
then keeps what is needed of it; `close` ends the phase with what has arrived, and returns the next state and its
messages. `Server` is the machine around them. Vectors are added into one accumulator per segment and subgroup.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from heterosag.crypto import hashing
from heterosag.crypto.field import ELEMENT_SIZE
from heterosag.crypto.identity import verify
from heterosag.crypto.keys import check_public_key
from heterosag.crypto.seal import SEALED_SIZE
from heterosag.errors import FaultyUserError, TooFewSurvivorsError, WireError
from heterosag.plan import Plan, User
from heterosag.protocol import messages as wire
from heterosag.protocol import unmasking
from heterosag.protocol.blocks import DecodedBlock, join_blocks
from heterosag.protocol.cells import ParallelMap, add_cells, check_packed_cells, empty_cells
from heterosag.protocol.context import check_indices, roster_context, sharers_context, survivors_bytes
from heterosag.protocol.guard import Guard
from heterosag.protocol.messages import cut_rows
from heterosag.protocol.survivors import make_admissible
from heterosag.protocol.unmasking import Commitments

__all__ = [
    "Advertising",
    "Agreeing",
    "Decoded",
    "Masking",
    "PhaseState",
    "ServerRound",
    "Sharing",
    "Unmasking",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """What the server learns: who survived, and the sums of every segment's blocks.

    Args:
        survivors: Whose vectors are in the sums.
        segments: The decoded blocks of each segment.
        metrics: The block of everybody: the sums of the metrics, or of the clip bits; None where the plan has neither.
        faulty: Users who dealt or released false shares: leave them out of the next rounds. Their subgroups' blocks
            say so where their secrets could not be rebuilt.
    """

    survivors: tuple[User, ...]
    segments: tuple[tuple[DecodedBlock, ...], ...]
    metrics: DecodedBlock | None
    faulty: tuple[User, ...] = ()


Closed = tuple[str, "PhaseState | Decoded", dict[int, wire.Message]]
"""What closing a phase gives: the event of the transition table, the next state or the result, messages by index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRound:
    """What all phases know. `context` is c0; `model` is the digest of what the round trains from."""

    plan: Plan
    context: bytes
    model: bytes
    directory: Mapping[User, bytes] | None
    guard: Guard | None = None
    parallel_map: ParallelMap = map

    def verify(self, user: User, signature: bytes, label: str, *parts: bytes) -> None:
        """Refuse a user's signature that is not valid under its key in the directory."""
        try:
            verify((self.directory or {})[user], signature, label, *parts)
        except KeyError:
            raise FaultyUserError(user, "has no key in the directory") from None
        except WireError as error:
            raise FaultyUserError(user, error.problem) from None


class PhaseState(ABC):
    """A phase that collects one kind of message from its members, under its context."""

    kind: ClassVar[type[wire.Message]]

    def __init__(self, base: ServerRound, members: frozenset[int], context: bytes) -> None:
        self.base = base
        self.plan = base.plan
        self.members = members
        self.context = context

    @abstractmethod
    def take(self, user: User, index: int, message: Any) -> None:
        """Check a member's message fully, then keep what is needed of it."""

    @abstractmethod
    def close(self) -> Closed:
        """End the phase with what has arrived."""


class Advertising(PhaseState):
    """Collects everybody's public keys; gives the roster."""

    kind = wire.Advertisement

    def __init__(self, base: ServerRound) -> None:
        super().__init__(base, frozenset(range(len(base.plan.users))), base.context)
        self.advertised: dict[int, wire.Advertised] = {}
        self.keys: set[bytes] = set()

    def take(self, user: User, index: int, message: wire.Advertisement) -> None:
        """Check signature and keys: usable ones, which nobody has advertised before."""
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

    def close(self) -> Closed:
        """The roster, for everybody in it."""
        present = sorted(make_admissible(self.plan, self.advertised))
        roster = {index: self.advertised[index] for index in present}
        message = wire.Roster(wire.WIRE_VERSION, self.context, list(roster.values()))
        return "close", Sharing(self.base, roster), dict.fromkeys(roster, message)


class Sharing(PhaseState):
    """Collects sealed shares and their commitments; gives every holder its own."""

    kind = wire.Shares

    def __init__(self, base: ServerRound, roster: dict[int, wire.Advertised]) -> None:
        super().__init__(base, frozenset(roster), roster_context(base.context, list(roster.values())))
        self.mask_keys = {index: entry.mask_key for index, entry in roster.items()}
        self.shares: dict[int, wire.Shares] = {}

    def take(self, user: User, index: int, message: wire.Shares) -> None:
        """Check that there is a pair of shares, and a commitment, for each holder in the roster."""
        count = len(self._holders(index))
        if len(message.sealed) != SEALED_SIZE * count or len(message.commitments) != wire.PAIR_SIZE * (count + 1):
            raise FaultyUserError(user, "did not share with exactly its holders")
        self.shares[index] = message

    def _holders(self, dealer: int) -> list[int]:
        """Who in the roster holds a dealer's shares: a place in its message each."""
        return [holder for holder in self.plan.sharing.holders(dealer) if holder in self.members]

    def close(self) -> Closed:
        """For each sharer the shares that were sealed for it, and their commitments."""
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
        return "close", Masking(self.base, self.context, self.mask_keys, commitments), messages


class Masking(PhaseState):
    """Adds masked vectors into the sums of their subgroups; gives the survivor set, or asks for shares at once."""

    kind = wire.MaskedVector

    def __init__(
        self, base: ServerRound, seal_context: bytes, mask_keys: dict[int, bytes], commitments: dict[int, Commitments]
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
        """Check signature, complaints and packed vector; then add the vector."""
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

    def close(self) -> Closed:
        """The survivor set to sign; without identities, the request for shares."""
        alive = make_admissible(self.plan, self.arrived, dealers=self.members)
        survivors = sorted(alive)
        if self.base.guard is not None:
            self.base.guard.check(alive)
        kept = {self.plan.assignment[index] for index in survivors}
        self.sums = {subgroup: sums for subgroup, sums in self.sums.items() if subgroup in kept}
        if self.base.directory is None:
            request = wire.UnmaskRequest(wire.WIRE_VERSION, self.context, survivors, [])
            return "close, without identities", Unmasking(self, survivors), dict.fromkeys(survivors, request)
        asked: dict[int, wire.Message] = {}
        for index in survivors:
            dealers = [dealer for dealer in self.plan.sharing.holders(index) if dealer in alive]
            signatures = [self.signatures[dealer] for dealer in dealers]
            asked[index] = wire.SurvivorSet(wire.WIRE_VERSION, self.context, survivors, signatures)
        return "close", Agreeing(self, survivors), asked


class Agreeing(PhaseState):
    """Collects signatures on the survivor set; asks for shares with a quorum of them."""

    kind = wire.Agreement

    def __init__(self, masked: Masking, survivors: list[int]) -> None:
        super().__init__(masked.base, frozenset(survivors), masked.context)
        self.masked = masked
        self.survivors = survivors
        self.signatures: dict[int, bytes] = {}

    def take(self, user: User, index: int, message: wire.Agreement) -> None:
        """Check the signature on the survivor set."""
        survivors = survivors_bytes(self.survivors)
        self.base.verify(user, message.signature, "survivors", self.context, survivors)
        self.signatures[index] = message.signature

    def close(self) -> Closed:
        """The request for shares, with a quorum's signatures; fewer end the round."""
        if len(self.signatures) < self.plan.agree_quorum:
            problem = f"{len(self.signatures)} users signed the survivor set, {self.plan.agree_quorum} are needed"
            raise TooFewSurvivorsError("thresholds", problem)
        signed = sorted(self.signatures.items())[: self.plan.agree_quorum]
        request = wire.UnmaskRequest(wire.WIRE_VERSION, self.context, self.survivors, signed)
        return "close", Unmasking(self.masked, self.survivors), dict.fromkeys(self.survivors, request)


class Unmasking(PhaseState):
    """Collects released shares; gives the decoded sums."""

    kind = wire.Released

    def __init__(self, masked: Masking, survivors: list[int]) -> None:
        super().__init__(masked.base, frozenset(survivors), masked.context)
        self.masked = masked
        self.survivors = survivors
        if self.base.guard is not None:
            self.base.guard.note(self.members)  # whoever gets the answers may decode, whatever becomes of the round
        self.released: dict[int, dict[int, bytes]] = {}

    def take(self, user: User, index: int, message: wire.Released) -> None:
        """Check that there is one share of each user whose shares the sender holds undisputed."""
        masked = self.masked
        dealers = sorted(masked.members & {*self.plan.sharing.holders(index), index})
        held = [dealer for dealer in dealers if (dealer, index) not in masked.disputes]
        if len(message.shares) != ELEMENT_SIZE * len(held):
            raise FaultyUserError(user, "did not release one share of each user whose shares it holds")
        self.released[index] = dict(zip(held, cut_rows(message.shares, ELEMENT_SIZE), strict=True))

    def close(self) -> Closed:
        """Rebuild the secrets, remove the masks and join the blocks."""
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
