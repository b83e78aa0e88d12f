"""The world of one schedule: a server that crashes, users that crash, and a network between them.

`simulate(seed)` runs a schedule to its end and says what it came to. The same seed gives the same events and the same
bytes: keys, polynomials, vectors and rounding are drawn from it too.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

from fault_simulation.invariants import Checks, Record
from fault_simulation.ledger import BrokenInvariantError, Ledger
from fault_simulation.malicious import TRAITS
from fault_simulation.network import Envelope, Network
from fault_simulation.schedule import Clock, Script, Trace
from fault_simulation.users import Node
from heterosag.crypto.identity import verify
from heterosag.errors import FaultyUserError, HeteroSagError, WireError
from heterosag.plan import User
from heterosag.protocol import Identity, RoundId, Server
from heterosag.protocol.transitions import ServerPhase

__all__ = ["Report", "World", "simulate", "simulate_all"]

Floats = npt.NDArray[np.floating[Any]]

_MEASURED = 16  # one schedule in so many has the server's memory measured at every phase


class World:
    """Everything of one schedule. Tests put broken users or a broken server into it."""

    def __init__(self, script: Script, *, node: type[Node] = Node, server: type[Server] = Server) -> None:
        self.script = script
        self.clock = Clock()
        self.trace = Trace(self.clock)
        self.network = Network(script, self.clock, self.trace, self.deliver)
        self.identities = _identities(script.plan.users) if script.signed else None
        self.directory = None if self.identities is None else {u: i.public for u, i in self.identities.items()}
        self.vectors = np.random.default_rng(abs(script.seed)).uniform(
            -1.2, 1.2, (script.rounds + 1, len(script.plan.users), script.plan.dimension)
        )
        self.ledger = Ledger(self)
        self.checks = Checks(self)
        self.records: dict[int, Record] = {}
        self.nodes = {user: node(self, user) for user in script.plan.users}
        self.number = 0
        self._server = server
        self._begun = 0
        self._pending: dict[User, tuple[Envelope, ...]] = {}

    def run(self) -> None:
        """From the first round to the last message."""
        script = self.script
        self.trace.note(
            "world",
            f"seed {script.seed}: {script.mood}, plan {script.place}, {script.rounds} rounds, "
            f"{'with' if script.signed else 'without'} identities, malicious users {script.malicious or 'none'}",
        )
        self._start_round()
        self.clock.run()
        for record in self.records.values():
            if record.begun and record.end is None:
                raise BrokenInvariantError(f"round {record.number} has no end")

    def vector(self, number: int, index: int) -> Floats:
        """A user's vector in a round."""
        vector: Floats = self.vectors[number % len(self.vectors), index]
        return vector

    def metrics(self, index: int) -> dict[str, float]:
        """A user's values of the plan's metrics."""
        return {name: index / 8 - place for place, name in enumerate(self.script.plan.metrics)}

    def round_id(self, number: int) -> RoundId:
        """Rounds of one session: a number is never used again, also not after a restart."""
        return RoundId(session=b"simulated", number=number)

    def relive(self, user: User) -> None:
        """A user starts again, or twice: in this round it may not be what it was."""
        self.records[self.number].relived.add(user)

    def deliver(self, *trip: Envelope) -> None:
        """The messages of a trip reach their end of the network."""
        for envelope in trip:
            record = self.records[envelope.round]
            if envelope.touched:
                record.touched.add(envelope.user)
                record.lied_to |= not envelope.up
            self.trace.note("server" if envelope.up else envelope.user, f"gets {envelope}", envelope.data)
            if envelope.up:
                self._receive(record, envelope)
        if not trip[0].up:
            self.nodes[trip[0].user].receive(*trip)

    # --- the server -------------------------------------------------------------------------------------------------

    def _start_round(self) -> None:
        self.number = self._begun = self._begun + 1
        server = self._server(self.script.plan, self.round_id(self.number), directory=self.directory)
        record = self.records[self.number] = Record(number=self.number, server=server)
        self.trace.note("server", f"starts round {self.number}")
        self._plan_crashes()
        self._open(record, dict.fromkeys(self.script.plan.users, b""))

    def _plan_crashes(self) -> None:
        rates, draw = self.script.rates, self.script.draw
        for node in self.nodes.values():
            if rates.crash and draw.random() < rates.crash:
                self.clock.after(draw.randint(0, 250), node.crash, "at some time")
            if rates.twin and draw.random() < rates.twin:
                self.clock.after(draw.randint(0, 200), node.start_twin)

    def _open(self, record: Record, messages: dict[User, bytes]) -> None:
        """A phase begins: its messages go out, its timers start."""
        phase = record.server.phase.value
        self._pending = self._trips(record, messages)
        for trip in self._pending.values():
            if self._crashes(record, f"while it sends the messages of {phase}"):
                return
            self.network.send(*trip)
        timeout = self.script.timeout
        if self.script.retries:
            self.clock.after(timeout // 2, self._ask_again, record, phase)
        self.clock.after(timeout, self._close, record, phase)

    def _trips(self, record: Record, messages: dict[User, bytes]) -> dict[User, tuple[Envelope, ...]]:
        """What goes to each user in this phase."""
        phase = record.server.phase.value
        self._note_phase(record, list(messages.values()))
        return {
            user: (Envelope(round=record.number, phase=phase, user=user, up=False, data=data),)
            for user, data in messages.items()
        }

    def _note_phase(self, record: Record, messages: list[bytes]) -> None:
        phase = record.server.phase.value
        record.members.setdefault(phase, record.server.waiting_for)
        record.accepted.setdefault(phase, {})
        self.ledger.asked(phase, messages)

    def _ask_again(self, record: Record, phase: str) -> None:
        if record.end is None and record.server.phase.value == phase:
            for user in sorted(self._pending, key=self.script.plan.index):
                trip = self._pending[user]
                if any(user in self.records[envelope.round].server.waiting_for for envelope in trip):
                    self.network.send(*trip)

    def _receive(self, record: Record, envelope: Envelope) -> None:
        server, over = record.server, record.end is not None
        if not over and self._crashes(record, f"before it takes {envelope}"):
            return
        phase = server.phase.value
        try:
            counts = self._take(record, envelope)
        except (FaultyUserError, WireError) as error:
            self.trace.note("server", f"refuses {envelope}: {type(error).__name__}: {error}")
            self.checks.server_refused(envelope, error)
            counts = False
        if counts and (over or envelope.user in record.accepted[phase]):
            raise BrokenInvariantError(f"{envelope} counts though it is late or a second one")
        if counts:
            record.accepted[phase][envelope.user] = envelope.data
            over = self._crashes(record, f"after it took {envelope}") or record.number != self.number
            if not over and self.script.eager and not server.waiting_for:
                self.clock.after(1, self._close, record, phase)

    def _take(self, record: Record, envelope: Envelope) -> bool:
        return record.server.receive(envelope.user, envelope.data)

    def _close(self, record: Record, phase: str) -> None:
        server = record.server
        if record.end is not None or server.phase.value != phase:
            return
        self._measure(server)
        try:
            messages = self._close_phase(record)
        except HeteroSagError as error:
            self._end(record, error)
            return
        self._measure(server)
        self.trace.note("server", f"closes {phase}")
        if server.phase is ServerPhase.DONE:
            self._end(record, None)
        elif not self._crashes(record, f"after it closed {phase}"):
            self._open(record, messages)

    def _close_phase(self, record: Record) -> dict[User, bytes]:
        return record.server.close()

    def _crashes(self, record: Record, when: str) -> bool:
        """Whether the server crashes now. A restarted one knows its rounds by number only, and gives them up."""
        rates = self.script.rates
        if not rates.crash_server or self.script.draw.random() >= rates.crash_server:
            return False
        self.trace.fault("server crashed", "server", when)
        self._end(record, record.server.abandon("the server was restarted"))
        return True

    def _end(self, record: Record, error: HeteroSagError | None) -> None:
        record.end = record.server.decoded if error is None else error
        self.trace.note("server", f"ends round {record.number}: {error!r}" if error else "has the sums")
        if error is not None and record.server.phase is not ServerPhase.FAILED:
            raise BrokenInvariantError("a round that ended with an error is not over")
        self.checks.round_ended(record)
        if self._begun < self.script.rounds:
            self.clock.after(self.script.draw.randint(1, 60), self._start_round)

    def _measure(self, server: Server) -> None:
        if self.script.seed % _MEASURED == 0:
            self.checks.check_memory(server)


@cache
def _identities(users: tuple[User, ...]) -> dict[User, Identity]:
    """Long-term keys, the same in all worlds with these users."""
    return {user: Identity.from_private_bytes(bytes([place + 1] * 32)) for place, user in enumerate(users)}


_verify_once = lru_cache(maxsize=1 << 12)(verify)


@contextmanager
def _shared_verification() -> Iterator[None]:
    """Everybody in the world checks the same signatures: each is verified once, a false one every time."""
    with (
        patch("heterosag.protocol.steps.verify", _verify_once),
        patch("heterosag.protocol.server_phases.verify", _verify_once),
    ):
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a schedule came to. `failure` is empty if every invariant held; `trace` is kept for failures and replays."""

    seed: int
    mood: str
    counts: Counter[str]
    faults: Counter[str]
    digest: int
    failure: str
    trace: tuple[str, ...]


def simulate(seed: int, *, keep_trace: bool = False, kind: type[World] = World, **broken: Any) -> Report:
    """Run the schedule of a seed; what goes wrong, of whatever kind, is in the report with the trace.

    `broken` are users and servers that tests put into the world instead of the real ones.
    """
    world = kind(Script.of(seed, TRAITS, pipelined=kind is not World), **broken)
    failure = ""
    try:
        with _shared_verification():
            world.run()
    except BrokenInvariantError as error:
        failure = str(error)
    except Exception:  # any other error is a defect, and belongs into the report with its seed
        failure = traceback.format_exc()
    keep = keep_trace or failure
    return Report(
        seed=seed,
        mood=world.script.mood,
        counts=world.trace.counts,
        faults=world.trace.faults,
        digest=world.trace.digest() if keep else 0,
        failure=failure,
        trace=tuple(world.trace.lines()) if keep else (),
    )


def simulate_all(seeds: range, kind: type[World]) -> list[Report]:
    """The schedules of several seeds."""
    return [simulate(seed, kind=kind) for seed in seeds]
