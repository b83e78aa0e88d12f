"""Users of the simulated world: programs that crash and restart around a disk.

A disk keeps the release log, always written through, and saved clients, which may be older than what was sent. A
restarted program goes on from its disk. Where the whole disk is lost the user comes back as a new one, with other keys,
or stays away for the round. Sometimes two programs of one user run at once on one disk.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fault_simulation.malicious import lie, lie_about_shares, lie_about_vector
from fault_simulation.network import Envelope
from fault_simulation.schedule import PHASES
from heterosag.crypto.field import PRIME
from heterosag.crypto.keys import RoundSecrets, mask_private_key
from heterosag.errors import FaultyServerError, HeteroSagError
from heterosag.plan import User
from heterosag.protocol import Client, Policy
from heterosag.protocol.client import Polynomials
from heterosag.protocol.rounding import Rounding
from heterosag.protocol.steps import Advertised

if TYPE_CHECKING:
    from fault_simulation.world import World

__all__ = ["Disk", "Node", "Program", "Reply", "draw_secrets"]

_CRASH_POINTS = (
    "before the step",
    "after the claim",
    "after sending, unsaved",
    "after saving, unsent",
    "after sending",
)


class PowerCut(Exception):  # noqa: N818 - not an error of anybody's
    """The power went while a step was under way."""


class Disk:
    """What outlives a program: claims, written through, and the clients that were saved."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.claims: dict[tuple[bytes, str], bytes] = {}
        self.saved: dict[int, bytes] = {}
        self.cut_after_claim = False

    def claim(self, context: bytes, kind: str, value: bytes) -> None:
        """Keep the first value of each context and kind; refuse another one."""
        if self.claims.setdefault((context, kind), value) != value:
            raise FaultyServerError(f"asked a second time, for something else, to {kind} under one context")
        if self.cut_after_claim:
            raise PowerCut


@dataclass(frozen=True, slots=True)
class Contribution:
    """What a masked vector was made from, beside its user's values of the round."""

    number: int
    weight: int
    rounding: Rounding


Reply = tuple[Client | None, Envelope, bytes | HeteroSagError]
"""Which client answered what, and its reply or why it refused."""


class Program:
    """One run of a user's program: it holds a client for each round it has seen."""

    def __init__(self, node: Node, life: int) -> None:
        self.node = node
        self.life = life
        self.clients: dict[int, Client] = {}

    def joins(self, trip: tuple[Envelope, ...]) -> bool:
        """Whether it has what it takes to answer."""
        return self.find_client(trip[0]) is not None

    def answer(self, trip: tuple[Envelope, ...]) -> list[Reply]:
        """Replies to what came, each with the client that made it."""
        (envelope,) = trip
        client = self.clients[envelope.round]
        return [(client, envelope, self.step(client, envelope))]

    def save(self, trip: tuple[Envelope, ...]) -> None:
        """Write to the disk what has changed."""
        number = trip[0].round
        self.node.disk.saved[number] = self.clients[number].save()

    def find_client(self, envelope: Envelope) -> Client | None:
        """The client of the round: this program's, the saved one, or for an invitation a fresh one."""
        number = envelope.round
        if number in self.clients:
            return self.clients[number]
        saved = self.node.disk.saved.get(number)
        if saved is None and envelope.phase != "advertise":
            return None
        client = self.node.make_client(number, saved)
        if saved is not None:
            self.node.world.trace.note(self.node.user, f"goes on with round {number} as {client.phase.value}")
        self.clients[number] = client
        return client

    def step(self, client: Client, envelope: Envelope) -> bytes:
        """Answer the server's message with the real client."""
        world, phase = self.node.world, envelope.phase
        if phase == "advertise":
            return client.advertise(secrets=draw_secrets(world))
        if phase == "share":
            return client.share(envelope.data, polynomials=self.deal(client))
        if phase == "mask":
            return self.mask(client, envelope)
        return client.agree(envelope.data) if phase == "agree" else client.unmask(envelope.data)

    def deal(self, client: Client) -> Polynomials | None:
        """The polynomials that share a client's secrets, if it has not shared yet."""
        state = client._state
        if not isinstance(state, Advertised):
            return None
        world, threshold = self.node.world, self.node.world.script.plan.share_threshold
        draw = world.script.secrets

        def polynomial(secret: int) -> list[int]:
            return [secret, *(draw.randrange(PRIME) for _ in range(threshold - 1))]

        secrets = state.secrets
        polynomials = Polynomials(mask=polynomial(secrets.mask_secret), self=polynomial(secrets.self_secret))
        polynomials = lie_about_shares(self.node.trait, polynomials, draw)
        world.ledger.deal(self.node.index, polynomials)
        return polynomials

    def mask(self, client: Client, envelope: Envelope) -> bytes:
        """This user's vector of the round, masked."""
        world, node, number = self.node.world, self.node, envelope.round
        script = world.script
        variant = 0 if script.same_rounding else self.life
        made = Contribution(
            number=number,
            weight=1 + (node.index + number) % script.plan.max_weight,
            rounding=Rounding.from_seed(script.seed % 2**64, node.index, number << 16 | variant),
        )
        vector, clip = lie_about_vector(node.trait, world.vector(number, node.index)[: client.plan.dimension])
        reply = client.mask(
            envelope.data,
            vector,
            weight=made.weight,
            metrics=world.metrics(node.index),
            rounding=made.rounding,
            clip=clip,
        )
        world.ledger.remember_vector(node.index, reply, made)
        return reply


def draw_secrets(world: World) -> RoundSecrets:
    """A user's secrets of a round, from the seed."""
    draw = world.script.secrets
    mask_secret = draw.randrange(PRIME)
    return RoundSecrets(
        mask_secret=mask_secret,
        self_secret=draw.randrange(PRIME),
        mask_key=mask_private_key(mask_secret),
        seal_key=X25519PrivateKey.from_private_bytes(draw.randbytes(32)),
    )


class Node:
    """A user: its disk, and the programs that run on it now."""

    program: type[Program] = Program

    def __init__(self, world: World, user: User) -> None:
        self.world = world
        self.user = user
        self.index = world.script.plan.index(user)
        self.trait = world.script.malicious.get(user, "")
        self.disk = Disk(0)
        self.programs = [self.program(self, 0)]
        self.away_in: int | None = None
        self._lives = 0
        rates = world.script.rates
        self._may_restart = bool(rates.crash or rates.crash_step or rates.twin)

    def make_client(self, number: int, saved: bytes | None = None) -> Client:
        """A client, fresh or as it was saved, whose claims go to this user's disk."""
        world = self.world
        which = (world.script.plan, self.user, world.round_id(number))
        options = self.options()
        return Client(*which, **options) if saved is None else Client.restore(saved, *which, **options)

    def options(self) -> dict[str, Any]:
        """What every client of this user is made with."""
        identity = None if self.world.identities is None else self.world.identities[self.user]
        return {
            "identity": identity,
            "directory": self.world.directory,
            "trust_server": identity is None,
            "policy": Policy.any_plan(),
            "release_log": self.log(),
        }

    def log(self) -> Disk:
        """Where a client claims what it gives out."""
        return self.disk

    # --- messages ---------------------------------------------------------------------------------------------------

    def receive(self, *trip: Envelope) -> None:
        """A trip arrives: every program that runs takes it."""
        if not self.programs:
            self.world.trace.note(self.user, f"is down, misses {trip[0]}")
        if self.away_in in [envelope.round for envelope in trip]:
            return
        for envelope in trip if len(self.programs) > 1 else ():
            self.world.records[envelope.round].relived.add(self.user)
        trip = tuple(envelope for envelope in trip if not self._drops_out(envelope))
        for program in list(self.programs) if trip else ():
            if program in self.programs and program.joins(trip):
                self._answer(program, trip)

    def _drops_out(self, envelope: Envelope) -> bool:
        dropped = self.world.script.drops.get(self.user)
        if dropped is None or PHASES.index(envelope.phase) < PHASES.index(dropped):
            return False
        self.world.trace.fault("dropped", self.user, f"before {envelope}")
        return True

    def _answer(self, program: Program, trip: tuple[Envelope, ...]) -> None:
        world, draw, rates = self.world, self.world.script.draw, self.world.script.rates
        point = draw.choice(_CRASH_POINTS) if rates.crash_step and draw.random() < rates.crash_step else ""
        if point == "before the step":
            self.crash(point)
            return
        self.disk.cut_after_claim = point == "after the claim"
        try:
            replies = program.answer(trip)
        except PowerCut:
            self.crash(point)
            return
        except HeteroSagError as error:
            replies = [(None, trip[0], error)]
        finally:
            self.disk.cut_after_claim = False
        for _, envelope, reply in replies:
            if isinstance(reply, HeteroSagError):
                world.trace.note(self.user, f"refuses {envelope}: {type(reply).__name__}: {reply}")
                world.checks.user_refused(self, envelope, reply)
        answered = [(client, one, reply) for client, one, reply in replies if client and isinstance(reply, bytes)]
        if not answered:
            return
        stale = rates.stale_save and draw.random() < rates.stale_save
        if self._may_restart and not stale and point != "after sending, unsaved":
            program.save(trip)
        if point != "after saving, unsent":
            self._send(answered)
        if point:
            self.crash(point)

    def _send(self, answered: list[tuple[Client, Envelope, bytes]]) -> None:
        world = self.world
        trips: list[list[Envelope]] = []  # one, unless this user sends several messages for one
        for client, envelope, reply in answered:
            world.ledger.sent(self, client, envelope, reply)
            messages = [reply]
            if self.trait:
                messages = lie(self.trait, envelope.phase, reply, world.script.plan, world.script.draw)
                if messages != [reply]:
                    world.trace.fault("lied", self.user, f"({self.trait}) in {envelope.phase}")
            for place, data in enumerate(messages):
                world.trace.note(self.user, f"sends {envelope.phase}", data)
                if place == len(trips):
                    trips.append([])
                trips[place].append(replace(envelope, up=True, data=data, touched=False, model=0))
        for trip in trips:
            world.network.send(*trip)

    # --- crashes ----------------------------------------------------------------------------------------------------

    def crash(self, why: str) -> None:
        """Every program of this user ends; one starts again later."""
        if not self.programs:
            return
        self.world.trace.fault("user crashed", self.user, why)
        self.programs.clear()
        self.world.clock.after(self.world.script.draw.randint(1, 120), self.restart)

    def restart(self) -> None:
        """Start again from the disk, or, where that is lost, as a new user or not before the next round."""
        world, draw = self.world, self.world.script.draw
        world.relive(self.user)
        if draw.random() < world.script.rates.lose_disk:
            self.disk = Disk(self.disk.number + 1)
            self.away_in = world.number if draw.random() < 0.5 else None
            world.trace.fault("disk lost", self.user, "" if self.away_in is None else "stays away for this round")
        self._lives += 1
        self.programs = [self.program(self, self._lives)]
        world.trace.note(self.user, "starts again")
        self._ask_again()

    def start_twin(self) -> None:
        """A second program of this user on the same disk."""
        if len(self.programs) == 1:
            self.world.trace.fault("two programs", self.user)
            self.world.relive(self.user)
            self._lives += 1
            self.programs.append(self.program(self, self._lives))
            self._ask_again()

    def _ask_again(self) -> None:
        world = self.world
        if world.script.rates.replay and world.script.draw.random() < world.script.rates.replay:
            world.network.replay(self.user, world.number)
