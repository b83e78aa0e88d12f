"""What must hold at every step and after every round: exact sum or named error, and no honest user blamed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fault_simulation.ledger import BrokenInvariantError
from fault_simulation.malicious import lie_about_vector
from fault_simulation.network import Envelope
from fault_simulation.schedule import PHASES
from heterosag.aggregation.combine import combine
from heterosag.aggregation.rules import find_rule
from heterosag.crypto.seal import SEALED_SIZE
from heterosag.errors import (
    AbandonedRoundError,
    FaultyBlockError,
    FaultyUserError,
    HeteroSagError,
    TooFewSurvivorsError,
    WireError,
)
from heterosag.plan import User
from heterosag.protocol import Decoded, DecodedBlock, Server, ServerPhase, outcome
from heterosag.protocol import messages as wire
from heterosag.protocol.cells import CellLanes, empty_cells, unpack_cells
from heterosag.protocol.encoding import fill_cells
from heterosag.protocol.survivors import check_admissible
from heterosag.protocol.update import Update

if TYPE_CHECKING:
    from fault_simulation.users import Node
    from fault_simulation.world import World

__all__ = ["Checks", "Record", "measure"]

_ENDINGS = (TooFewSurvivorsError, AbandonedRoundError)
_UNTIMELY = (
    "not possible when",
    "late duplicate",
    "without having advertised",
    "keys of more than",
    "below one that",
    "was over",
)


@dataclass(slots=True, kw_only=True)
class Record:
    """What happened in one round.

    `touched` are users one of whose messages, to or from them, was changed on its way or belongs elsewhere; `relived`
    are those who restarted or ran twice, and so may advertise different keys in one round.
    """

    number: int
    server: Server
    members: dict[str, frozenset[User]] = field(default_factory=dict)
    accepted: dict[str, dict[User, bytes]] = field(default_factory=dict)
    touched: set[User] = field(default_factory=set)
    relived: set[User] = field(default_factory=set)
    lied_to: bool = False
    begun: bool = True
    model: int = 0
    end: Decoded | HeteroSagError | None = None


class Checks:
    """The invariants of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._script = world.script
        self._plan = world.script.plan

    # --- blame ------------------------------------------------------------------------------------------------------

    def user_refused(self, node: Node, envelope: Envelope, error: HeteroSagError) -> None:
        """A user whose messages are whole, and who did not restart, has nothing to say against the server."""
        self._world.trace.counts[f"refused by a user: {type(error).__name__}"] += 1
        record = self._world.records[envelope.round]
        if node.trait or node.user in record.touched or node.user in record.relived:
            return
        # What the network delays or repeats may come at the wrong moment; the client stays as it is.
        if self._script.mood != "calm" and any(words in str(error) for words in _UNTIMELY):
            return
        raise BrokenInvariantError(f"user {node.user!r} accuses an honest server: {error}")

    def server_refused(self, envelope: Envelope, error: HeteroSagError) -> None:
        """The server refuses a message in its user's name: that user is malicious, or did not send it like that."""
        self._world.trace.counts[f"refused by the server: {type(error).__name__}"] += 1
        record = self._world.records[envelope.round]
        named = error.user if isinstance(error, FaultyUserError) else getattr(error, "sender", None)
        if not isinstance(error, (FaultyUserError, WireError)) or named != envelope.user:
            raise BrokenInvariantError(f"a message of user {envelope.user!r} is refused without naming it: {error!r}")
        twice = isinstance(error, FaultyUserError) and "two different messages to advertise" in str(error)
        if not self._is_suspect(record, envelope.user) and not (twice and envelope.user in record.relived):
            raise BrokenInvariantError(f"an honest user is blamed for a message: {error}")

    def _is_suspect(self, record: Record, user: Any) -> bool:
        return user in self._script.malicious or user in record.touched

    # --- the end of a round -----------------------------------------------------------------------------------------

    def round_ended(self, record: Record) -> None:
        """Exact sum, or a named error that blames nobody honest; and what the oracle says, where it can say."""
        end = record.end
        if isinstance(end, Decoded):
            self._check_sums(record, end)
            self._check_faulty(record, end)
            self._combine(record, end)
        elif not isinstance(end, _ENDINGS):
            raise BrokenInvariantError(f"a round ends with {end!r}, which is none of its named errors") from end
        if not isinstance(end, AbandonedRoundError):
            self._check_oracle(record)
        name = "exact sum" if isinstance(end, Decoded) else type(end).__name__
        self._world.trace.counts[f"ended: {name}"] += 1

    def _check_oracle(self, record: Record) -> None:
        """Where messages were only lost, late or never sent, `outcome` says what the round must end with."""
        if record.touched or self._script.malicious:
            return
        missing: dict[User, str] = {}
        for phase in PHASES:
            accepted = record.accepted.get(phase, {})
            if any(user in missing for user in accepted):
                return  # a user that missed a phase and came back: the oracle knows no such user
            for user in record.members.get(phase, frozenset()) - accepted.keys():
                missing.setdefault(user, phase)
        drops = self._script.drops if self._script.mood in ("calm", "drops") else missing
        expected = outcome(self._plan, drops, identities=self._script.signed)
        self._world.trace.counts["held against the oracle"] += 1
        found = record.end
        if expected.error is None:
            same = isinstance(found, Decoded) and found.survivors == expected.survivors
        else:
            same = isinstance(found, TooFewSurvivorsError) and found.reason == expected.error.reason
        if not same or (self._script.mood == "calm" and len(expected.survivors) != len(self._plan.users)):
            raise BrokenInvariantError(f"the oracle says {expected}, the round ended with {found!r}")

    # --- the sums ---------------------------------------------------------------------------------------------------

    def _check_sums(self, record: Record, decoded: Decoded) -> None:
        plan = record.server.plan
        survivors = [plan.index(user) for user in decoded.survivors]
        dealers = [plan.index(user) for user in record.members["mask"]]
        try:
            check_admissible(plan, frozenset(survivors), dealers=dealers)
        except TooFewSurvivorsError as error:
            raise BrokenInvariantError(f"the survivors are no admissible set: {error}") from error
        given = {index: self._contribution(record, index) for index in survivors}
        blocks = [(place, block) for place, segment in enumerate(decoded.segments) for block in segment]
        wanted = [
            (place, block.subgroups)
            for place, segment in enumerate(plan.segments)
            for block in segment.blocks
            if any(plan.assignment[index] in block.subgroups for index in survivors)
        ]
        if [(place, block.block.subgroups) for place, block in blocks] != wanted:
            raise BrokenInvariantError("not every block with survivors is decoded, or one without is")
        if decoded.metrics is not None:
            blocks.append((len(plan.segments), decoded.metrics))
        for place, block in blocks:
            present = [index for index in survivors if plan.assignment[index] in block.block.subgroups]
            self._check_block(record, place, block, [given[index][place] for index in present], present)

    def _check_block(
        self, record: Record, place: int, block: DecodedBlock, given: list[CellLanes], present: list[int]
    ) -> None:
        modulus = 1 << block.block.bits
        elements = [sum(column) % modulus for column in zip(*(cell.elements.tolist() for cell in given), strict=True)]
        auxiliary = [sum(column) % 2**64 for column in zip(*(cell.auxiliary.tolist() for cell in given), strict=True)]
        self._world.trace.counts["blocks checked"] += 1
        if block.fault is not None and " secret" in block.fault:  # masks are left in it
            self._world.trace.counts["blocks spoiled"] += 1
            if not any(self._is_suspect(record, user) for user in self._plan.users):
                raise BrokenInvariantError(f"segment {place} is spoiled, and nobody is to blame: {block.fault}")
            return
        if block.elements.tolist() != elements or list(block.auxiliary.values()) != auxiliary:
            raise BrokenInvariantError(f"segment {place}, subgroups {block.block.subgroups}: not the exact sum")
        if block.survivors != len(present):
            raise BrokenInvariantError(f"segment {place}: {block.survivors} survivors, {len(present)} are in the sum")
        if block.fault and not any(self._is_suspect(record, self._plan.users[index]) for index in present):
            raise BrokenInvariantError(f"segment {place}: a block of honest users is called faulty: {block.fault}")

    def _check_faulty(self, record: Record, decoded: Decoded) -> None:
        """Whoever is called faulty is a suspect, or was disputed by more suspects than the plan tolerates."""
        suspects = {user for user in self._plan.users if self._is_suspect(record, user)}
        for user in decoded.faulty:
            if user not in suspects and len(suspects) <= self._plan.colluders:
                raise BrokenInvariantError(f"an honest user is blamed: {user!r}")

    def _contribution(self, record: Record, index: int) -> list[CellLanes]:
        """What a survivor put into the sums: what its client encoded, and what was changed after that."""
        plan, subgroup = record.server.plan, self._plan.assignment[index]
        accepted = wire.decode(wire.MaskedVector, record.accepted["mask"][plan.users[index]], plan=plan)
        reply, made = self._world.ledger.vectors[index, accepted.context]
        trait = self._script.malicious.get(plan.users[index], "")
        vector, clip = lie_about_vector(trait, self._world.vector(made.number, index)[: plan.dimension])
        update = Update.of(plan, vector, weight=made.weight, metrics=self._world.metrics(index))
        lanes = fill_cells(plan, subgroup, update, made.rounding, clip=clip)
        masked = wire.decode(wire.MaskedVector, reply, plan=plan)
        if accepted.vector != masked.vector:
            cells = plan.cells(subgroup)
            before, after = (list(unpack_cells(part, cells)) for part in (masked.vector, accepted.vector))
            for cell, old, new in zip(lanes, before, after, strict=True):
                np.add(cell.elements, new.elements - old.elements, out=cell.elements)
                np.add(cell.auxiliary, new.auxiliary - old.auxiliary, out=cell.auxiliary)
        return lanes

    def _combine(self, record: Record, decoded: Decoded) -> None:
        """What a caller does next: a faulty block is the only reason to have no aggregate."""
        faulty = [block for segment in decoded.segments for block in segment if block.fault is not None]
        spoilt = decoded.metrics is not None and decoded.metrics.fault is not None
        for rule in ("mean", "median"):
            try:
                combine(record.server.plan, decoded, find_rule(rule))
            except FaultyBlockError as error:
                self._world.trace.counts[f"no {rule}: {type(error).__name__}"] += 1
                if not faulty and not spoilt:
                    raise BrokenInvariantError(f"no block is faulty, but the {rule} says: {error}") from error

    # --- the server's memory ----------------------------------------------------------------------------------------

    def check_memory(self, server: Server) -> None:
        """Accumulators, and a constant for each user and each of its holders: no message, no user's vector."""
        plan = self._plan
        lanes = sum(
            cell.elements.nbytes + cell.auxiliary.nbytes
            for subgroup in range(len(plan.subgroups))
            for cell in empty_cells(plan.cells(subgroup))
        )
        users, holders = len(plan.users), plan.sharing.neighbours + 1
        row = SEALED_SIZE if server.phase is ServerPhase.SHARE else wire.PAIR_SIZE
        found = measure(server)
        self._world.trace.counts["memory measured"] += 1
        limits = {
            "arrays": lanes,
            "longest": max(80, holders * row),  # keys, digests, signatures; or what a dealer sent for all its holders
            "bytes": users * (8 * 80 + holders * (SEALED_SIZE + wire.PAIR_SIZE)),
            "refusals": users * len(PHASES) * 8,
            "words": users * len(PHASES) * 8 * 500,
        }
        for name, limit in limits.items():
            if found[name] > limit:
                raise BrokenInvariantError(f"the server keeps {found[name]} {name}, at most {limit} are needed")


def measure(server: Server) -> dict[str, int]:
    """What a server keeps: bytes of its arrays, the longest byte string, all of them, and its refusals' words."""
    found = {"arrays": 0, "longest": 0, "bytes": 0, "refusals": len(server.refusals), "words": 0}
    for thing in _walk(server, {id(server.plan)}):
        if isinstance(thing, np.ndarray):
            found["arrays"] += thing.nbytes if thing.base is None else memoryview(thing.base).nbytes
        elif isinstance(thing, (bytes, bytearray, memoryview)):
            size = len(thing) if isinstance(thing, bytes) else memoryview(thing).obj.__sizeof__()
            found["longest"] = max(found["longest"], size)
            found["bytes"] += size
        elif isinstance(thing, str):
            found["words"] += len(thing)
    return found


def _walk(thing: Any, seen: set[int]) -> Iterator[Any]:
    """A thing and everything it keeps alive, each once, without the plan and without classes."""
    waiting = [thing]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, (type, int, float)) or thing is None:
            continue
        seen.add(id(thing))
        yield thing
        if isinstance(thing, dict):
            waiting += [*thing.keys(), *thing.values()]
        elif isinstance(thing, (list, tuple, set, frozenset)):
            waiting += thing
        elif not isinstance(thing, (bytes, bytearray, memoryview, str, np.ndarray)):
            names = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
            waiting += [getattr(thing, name, None) for name in names]
            waiting.append(getattr(thing, "__dict__", None))
