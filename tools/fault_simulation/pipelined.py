"""The same world with rounds in a row: a server's and users' pipelines, whose trips carry parts of several rounds.

What is set up ahead is a round of the world too, with a record of its own, whether it is begun later or thrown away. A
server that crashes starts a new session; a user that is asked for keys of another session forgets the one before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

from fault_simulation.invariants import Record
from fault_simulation.ledger import BrokenInvariantError
from fault_simulation.network import Envelope
from fault_simulation.schedule import SESSION, Script
from fault_simulation.users import Node, Program, Reply, draw_secrets
from fault_simulation.world import World
from heterosag.crypto.keys import RoundSecrets
from heterosag.errors import HeteroSagError
from heterosag.plan import Plan, User
from heterosag.protocol import Client, RoundId, Server
from heterosag.protocol.client import Polynomials
from heterosag.protocol.pipeline import ClientPipeline, Part, ServerPipeline
from heterosag.protocol.transitions import Phase

__all__ = ["PipelinedNode", "PipelinedProgram", "PipelinedWorld"]

_MODELS = 3  # value ranges and models that rounds of training are settled with
_EVALUATED = 4  # from this on models are of rounds of metrics alone
_KEPT = 2  # rounds that a user keeps
_SERVED = 3  # rounds that a server keeps


class SeededClient(Client):
    """A client whose secrets come from the seed, whoever makes it."""

    def __init__(self, *args: Any, program: PipelinedProgram, **options: Any) -> None:
        super().__init__(*args, **options)
        self._program = program

    def advertise(self, *, secrets: RoundSecrets | None = None) -> bytes:
        return super().advertise(secrets=secrets or draw_secrets(self._program.node.world))

    def share(self, message: bytes, *, polynomials: Polynomials | None = None) -> bytes:
        return super().share(message, polynomials=polynomials or self._program.deal(self))


class PipelinedProgram(Program):
    """One run of a user's program: it goes on with the rounds on its disk, or begins with the first keys asked for."""

    pipeline: type[ClientPipeline] = ClientPipeline

    def __init__(self, node: Node, life: int) -> None:
        super().__init__(node, life)
        self._rounds: ClientPipeline | None = None
        self._session = 0
        if node.disk.saved:
            self._begin(min(node.disk.saved) // SESSION, node.disk.saved)

    def joins(self, trip: tuple[Envelope, ...]) -> bool:
        """Keys of another session begin that one; its other messages are of no use."""
        session = trip[0].round // SESSION
        if self._rounds is None or session != self._session:
            if all(envelope.phase != "advertise" for envelope in trip):
                return False
            if session < self._session:  # a late trip of a session that is over
                self.node.world.relive(self.node.user)
            self._begin(session, {})
        return True

    def answer(self, trip: tuple[Envelope, ...]) -> list[Reply]:
        """Answers to the parts of a trip; what is kept after it is checked."""
        assert self._rounds is not None
        envelopes = {envelope.round % SESSION: envelope for envelope in trip}
        parts = [Part(number=e.round % SESSION, phase=Phase(e.phase), message=e.data) for e in trip]
        clients = dict(self._rounds._clients)

        def mask(client: Client, part: Part) -> bytes:
            return self._mask_lowest(client, envelopes[part.number], min(envelopes))

        answers = self._rounds.answer(parts, mask)
        self._check_kept([one.number for one in answers if one.phase is Phase.UNMASK])
        clients |= self._rounds._clients
        return [(clients.get(one.number), envelopes[one.number], one.error or one.message) for one in answers]

    def save(self, trip: tuple[Envelope, ...]) -> None:
        """Write all rounds that are kept to the disk."""
        assert self._rounds is not None
        saved = self._rounds.save().items()
        self.node.disk.saved = {self._session * SESSION + number: data for number, data in saved}

    def _begin(self, session: int, saved: dict[int, bytes]) -> None:
        node, self._session = self.node, session
        kept = {number % SESSION: data for number, data in saved.items()}
        bytes_of = node.world.round_id(session * SESSION).session
        options = {**node.options(), "program": self}
        self._rounds = self.pipeline(node.world.script.plan, node.user, bytes_of, saved=kept, **options)
        node.world.trace.note(node.user, f"goes on with session {session}: {self._rounds!r}")

    def _mask_lowest(self, client: Client, envelope: Envelope, lowest: int) -> bytes:
        world = self.node.world
        client.settle(*world.settlement(envelope.round, envelope.model))
        reply = self.mask(client, envelope)
        if envelope.round % SESSION != lowest or "mask" not in world.records[envelope.round].members:
            raise BrokenInvariantError(f"user {self.node.user!r} masks in a round ahead")
        return reply

    def _check_kept(self, ended: list[int]) -> None:
        assert self._rounds is not None
        kept = self._rounds._clients
        if len(kept) > _KEPT or kept.keys() & ended:
            raise BrokenInvariantError(f"user {self.node.user!r} keeps rounds {sorted(kept)}, {ended} ended")


class PipelinedNode(Node):
    """A user whose rounds run in a row."""

    program = PipelinedProgram


class PipelinedWorld(World):
    """A world of rounds in a row. Tests put a broken pipeline into it."""

    def __init__(
        self,
        script: Script,
        *,
        node: type[Node] = PipelinedNode,
        server: type[Server] = Server,
        pipeline: type[ServerPipeline] = ServerPipeline,
    ) -> None:
        super().__init__(script, node=node, server=server)
        self._pipeline = pipeline
        self._session = 0
        self._rounds: ServerPipeline | None = None
        self._prepared = False
        self._plans = {model: script.plan.with_value_range(1 + model / 4) for model in range(_EVALUATED + 2)}

    def run(self) -> None:
        """From the first round to the last message, with users and servers of this world in every pipeline."""
        module = "heterosag.protocol.pipeline"
        with patch(f"{module}.Client", SeededClient), patch(f"{module}.Server", self._server):
            super().run()

    def round_id(self, number: int) -> RoundId:
        """A session's rounds; a crashed server starts another session."""
        return RoundId(session=b"simulated %d" % (number // SESSION), number=number % SESSION)

    def settlement(self, number: int, model: int) -> tuple[Plan, RoundId]:
        """The value range and the model of a round."""
        alone = model >= _EVALUATED
        return self._plans[model], replace(self.round_id(number), model=bytes([model] * 32), metrics_only=alone)

    def relive(self, user: User) -> None:
        """A user starts again, or twice: in no round so far, set up ahead or over, it may be what it was."""
        for record in self.records.values():
            record.relived.add(user)

    # --- the server -------------------------------------------------------------------------------------------------

    def _start_round(self) -> None:
        if self._rounds is None:
            self._session += 1
            session = self.round_id(self._session * SESSION).session
            self._rounds = self._pipeline(session, directory=self.directory, prepare=self.script.prepare)
        rounds, draw, ahead = self._rounds, self.script.draw, bool(self._rounds._ahead)
        if ahead and draw.random() < self.script.rates.discard:
            self.trace.fault("set-up thrown away", "server")
            rounds.discard()
        model = _EVALUATED if self.script.plan.metrics and draw.random() < 0.3 else draw.randrange(_MODELS)
        plan, _ = self.settlement(0, model)
        self._prepared = rounds.begin(plan)
        self._begun += 1
        self.number = self._session * SESSION + rounds.number
        if not self._prepared and self.number in self.records:
            raise BrokenInvariantError(f"the server uses number {self.number} again")
        record = self._record(rounds.number)
        record.begun, record.model = True, model
        rounds.settle(plan, model=bytes([model] * 32), metrics_only=model >= _EVALUATED)
        if len(rounds._numbers) > _SERVED:
            raise BrokenInvariantError(f"the server keeps {len(rounds._numbers)} rounds")
        how = "prepared" if self._prepared else "set-up not used" if ahead else "nothing set up"
        self.trace.counts[f"begun: {how}"] += 1
        if model >= _EVALUATED:
            self.trace.counts["begun: of metrics alone"] += 1
        self.trace.note("server", f"begins round {self.number}, {how}")
        self._plan_crashes()
        self._open(record, {})

    def _record(self, number: int) -> Record:
        """The record of a round of this session, begun or ahead."""
        assert self._rounds is not None
        server = next(server for server, known in self._rounds._numbers.items() if known == number)
        key = self._session * SESSION + number
        return self.records.setdefault(key, Record(number=key, server=server, begun=False))

    def _trips(self, record: Record, messages: dict[User, bytes]) -> dict[User, tuple[Envelope, ...]]:
        assert self._rounds is not None
        trips: dict[User, tuple[Envelope, ...]] = {}
        sent: dict[int, list[bytes]] = {}
        for user, parts in self._rounds.send().items():
            for part in parts:
                sent.setdefault(part.number, []).append(part.message)
            trips[user] = tuple(self._envelope(user, part) for part in parts)
        for number, data in sent.items():
            self._note_phase(self._record(number), data)
        return trips

    def _envelope(self, user: User, part: Part) -> Envelope:
        record = self._record(part.number)
        return Envelope(
            round=record.number, phase=part.phase.value, user=user, up=False, data=part.message, model=record.model
        )

    def _take(self, record: Record, envelope: Envelope) -> bool:
        session, number = divmod(record.number, SESSION)
        if self._rounds is None or session != self._session:
            return False
        return self._rounds.receive(envelope.user, number, envelope.data)

    def _close_phase(self, record: Record) -> dict[User, bytes]:
        assert self._rounds is not None
        self._rounds.close()
        return {}

    def _crashes(self, record: Record, when: str) -> bool:
        """With the server, its session and everything that is set up ahead are gone."""
        now = self.records[self.number]
        if now.end is not None or not super()._crashes(now, when):
            return False
        self._rounds = None
        return True

    def _end(self, record: Record, error: HeteroSagError | None) -> None:
        assert self._rounds is not None
        if error is None:
            trips = (2 if self._prepared else 4) + self.script.signed
            if self._rounds.trips != trips:
                raise BrokenInvariantError(f"round {record.number} took {self._rounds.trips} trips, not {trips}")
        first = record.number % SESSION == 1
        if self.script.mood == "calm" and self.script.prepare and not first and not self._prepared:
            raise BrokenInvariantError(f"round {record.number} was not prepared, though everybody answered")
        super()._end(record, error)

    def _measure(self, server: Server) -> None:
        assert self._rounds is not None
        for one in (server, *self._rounds._ahead):
            super()._measure(one)
