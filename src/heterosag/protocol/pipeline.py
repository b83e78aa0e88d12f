"""Rounds in a row: the next round's keys and shares travel on this round's messages.

A round by itself takes four trips to the users and back (five with identities). Advertising and sharing need neither
the model nor the update, so they can ride ahead: a steady round then takes two trips, mask and unmask (three with
identities). Each round keeps a client and a server of its own, with fresh secrets and everything bound to its number; a
trip carries up to three *parts*, each a message of one round.

==================================== ================================ ==================================
trip of round r                      with identities                  without
==================================== ================================ ==================================
share, of a round not prepared                                        advertise r+1
mask                                 advertise r+1                    advertise r+1, where it is missing
agree                                advertise r+1, where missing
unmask                               share r+1                        share r+1, advertise r+2
==================================== ================================ ==================================

A set-up is used if it is of the same frame and ready: everybody has shared, or those who have would still be admissible
if as many of them dropped out as the plan expects. Otherwise it is thrown away, its numbers are never used again, and
the round takes all trips.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heterosag.crypto.hashing import DIGEST_SIZE
from heterosag.crypto.secret import Secret
from heterosag.errors import FaultyServerError, HeteroSagError, UsageError, WireError
from heterosag.plan import Plan, User
from heterosag.protocol.cells import ParallelMap
from heterosag.protocol.client import Client
from heterosag.protocol.context import RoundId
from heterosag.protocol.guard import Guard
from heterosag.protocol.server import Decoded, Server
from heterosag.protocol.transitions import Phase, ServerPhase

__all__ = ["Answer", "ClientPipeline", "Part", "ServerPipeline"]

MOST_ROUNDS = 2
"""Rounds whose secrets a client keeps at once."""

MOST_PARTS = 3
"""Parts of one trip to one user."""

_SETUP = (Phase.ADVERTISE, Phase.SHARE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A message of one round on a trip.

    Args:
        number: The round's number.
        phase: The phase that it opens or answers.
        message: The message itself.
    """

    number: int
    phase: Phase
    message: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A user's answer to a part, or why it refused it.

    Args:
        number: The round's number.
        phase: The phase of the part.
        message: The answer; empty where it was refused.
        error: Why it was refused, None if it was not.
    """

    number: int
    phase: Phase
    message: bytes = b""
    error: HeteroSagError | None = None


class ServerPipeline:
    """The server's side of rounds in a row: `begin`, then `send`, `receive` and `close` a trip until it is `done`.

    Args:
        session: 1 to 64 bytes that no other run has.
        directory: Users' public keys, where identities are in use.
        prepare: Whether rounds are set up ahead.
        parallel_map: As for `Server`.

    `server` is the round's own machine, `number` its number, `trips` how many it has taken.

    Example:
        >>> from heterosag import Plan
        >>> from heterosag.protocol.pipeline import ServerPipeline
        >>> rounds = ServerPipeline(b"training of Monday")
        >>> rounds.begin(Plan.build([8], [16], 10, value_range=0.5, subgroup_size=4))
        False
        >>> sorted(rounds.send())[:3], rounds.phase.value, rounds.trips
        ([0, 1, 2], 'advertise', 1)
    """

    def __init__(
        self,
        session: bytes,
        *,
        directory: Mapping[User, bytes] | None = None,
        prepare: bool = True,
        parallel_map: ParallelMap = map,
    ) -> None:
        self.session = session
        self.prepare = prepare
        self.trips = 0
        self._directory = directory
        self._parallel_map = parallel_map
        self._guard: Guard | None = None
        self._last = 0
        self._numbers: dict[Server, int] = {}
        self._now: Server | None = None
        self._ahead: list[Server] = []
        self._messages: dict[User, bytes] = {}

    # --- a round --------------------------------------------------------------------------------------------------

    def begin(self, plan: Plan, *, guard: Guard | None = None) -> bool:
        """Begin a round, on the set-up ahead if it fits and is ready; `settle` then gives it its range and model.

        Args:
            plan: The plan of the round.
            guard: As for `Server`; the same one for all rounds of an epoch.

        Returns:
            Whether the round was prepared: it then begins with the mask phase.
        """
        self.trips, self._messages, self._guard = 0, {}, guard
        ahead = self._ahead.pop(0) if self._ahead else None
        prepared = (
            ahead is not None
            and ahead.plan.frame == plan.frame
            and ahead.phase is ServerPhase.SHARE
            and ahead.is_ready()
        )
        if ahead is None or not prepared:
            self.discard()
            ahead = self._open(plan)
            self._messages = dict.fromkeys(plan.users, b"")
        self._now = ahead
        self._numbers = {server: number for server, number in self._numbers.items() if number >= self.number}
        return prepared

    def settle(self, plan: Plan, *, model: bytes = bytes(DIGEST_SIZE), metrics_only: bool = False) -> None:
        """Give the round its value range and model: a prepared one at once, another before its share phase closes.

        Args:
            plan: The plan with the round's value range.
            model: As in `RoundId`.
            metrics_only: As in `RoundId`.
        """
        round_id = RoundId(session=self.session, number=self.number, model=model, metrics_only=metrics_only)
        self.server.settle(plan, round_id)
        if not self._messages:  # a round that was prepared
            self._messages = self.server.close()

    def discard(self) -> None:
        """Throw away what was set up ahead; its numbers are not used again."""
        self._ahead.clear()

    def send(self) -> dict[User, list[Part]]:
        """What this trip carries to each user.

        Returns:
            The parts for each user.

        Raises:
            UsageError: A prepared round is not settled yet.
        """
        server = self.server
        if not self._messages:
            raise UsageError("a round that was prepared is settled before anything is sent")
        self.trips += 1
        parts = {user: [self._part(server, message)] for user, message in self._messages.items()}
        for rider, messages in self._riders() if self.prepare else ():
            for user, message in messages.items():
                parts.setdefault(user, []).append(self._part(rider, message))
        return parts

    def receive(self, user: User, number: int, message: bytes) -> bool:
        """Take a user's answer to a part, as `Server.receive` does.

        Args:
            user: Who sent it.
            number: The number of the part's round.
            message: The answer.

        Returns:
            As `Server.receive`; False too where the round is gone.
        """
        for server in (self.server, *self._ahead):
            if self._numbers[server] == number:
                return server.receive(user, message)
        return False

    def close(self) -> None:
        """End the trip with what has arrived.

        Raises what `Server.close` raises. After a round that failed before unmasking nothing ahead is used.
        """
        server = self.server
        unmasking = server.phase is ServerPhase.UNMASK
        try:
            self._messages = server.close()
        except HeteroSagError:
            if not unmasking:
                self.discard()
            raise

    @property
    def server(self) -> Server:
        """The machine of the round."""
        if self._now is None:
            raise UsageError("no round has begun")
        return self._now

    @property
    def number(self) -> int:
        """The round's number in the session."""
        return self._numbers[self.server]

    @property
    def phase(self) -> Phase:
        """The phase of the round that this trip is for."""
        return Phase(self.server.phase.value)

    @property
    def done(self) -> bool:
        """Whether the round has its result."""
        return self.server.phase is ServerPhase.DONE

    @property
    def decoded(self) -> Decoded:
        """The decoded sums, once the round is done."""
        return self.server.decoded

    # --- what rides -----------------------------------------------------------------------------------------------

    def _riders(self) -> Iterable[tuple[Server, dict[User, bytes]]]:
        phase, signed = self.phase, self._directory is not None
        if phase is Phase.UNMASK:
            first = self._ahead[0] if self._ahead else None
            if first is None or first.phase is not ServerPhase.ADVERTISE or not first.is_ready():
                return
            yield first, first.close()
            if not signed:
                yield self._advertise(1)
        elif phase is Phase.MASK or phase is (Phase.AGREE if signed else Phase.SHARE):
            yield self._advertise(0)

    def _advertise(self, place: int) -> tuple[Server, dict[User, bytes]]:
        """The set-up at a place ahead, opened if it is not yet, and an empty message to whoever has not advertised."""
        if len(self._ahead) == place:
            self._ahead.append(self._open(self.server.whole))
        return self._ahead[place], dict.fromkeys(self._ahead[place].waiting_for, b"")

    def _open(self, plan: Plan) -> Server:
        self._last += 1
        round_id = RoundId(session=self.session, number=self._last)
        server = Server(plan, round_id, directory=self._directory, guard=self._guard, parallel_map=self._parallel_map)
        self._numbers[server] = self._last
        return server

    def _part(self, server: Server, message: bytes) -> Part:
        return Part(number=self._numbers[server], phase=Phase(server.phase.value), message=message)


class ClientPipeline(Secret):
    """A user's side of rounds in a row: a client for each round whose secrets it still needs, at most two.

    Args:
        plan: The plan of the epoch; the range of each round comes with its model, when it is settled.
        user: Which of its users this is.
        session: The session of the rounds.
        saved: What `save` returned in a program before.
        options: What else `Client` takes.

    Guarantees: only keys and shares are answered ahead of the lowest round that a trip names; rounds below it are
    forgotten, and so is a round that was refused or released; and no round is opened below one that is kept. So two
    vectors are never outstanding. Nor is a round opened at or below one that was forgotten: a number is set up once.
    Across restarts that takes a `release_log` which outlives the program, since `save` keeps what is still open. A
    message to mask that does not decode, or comes again after agree, is refused and changes nothing, so that whoever
    replays a trip ends nobody's round. A value range that is further from that of the last update masked than the
    policy's `max_range_change` is refused when the round is settled; after a restart the first is compared with none.
    """

    def __init__(
        self, plan: Plan, user: User, session: bytes, *, saved: Mapping[int, bytes] | None = None, **options: Any
    ) -> None:
        self._plan = plan
        self._user = user
        self._session = session
        self._options = options
        self._forgotten = -1  # the highest of such rounds
        self._before: Plan | None = None  # that of the last round with an update
        self._clients = {
            number: Client.restore(data, plan, user, self._round_id(number), settled=False, **options)
            for number, data in (saved or {}).items()
        }

    def answer(self, parts: Sequence[Part], mask: Callable[[Client, Part], bytes]) -> list[Answer]:
        """Answer the parts of a trip, each alone: one that is refused leaves the others.

        Args:
            parts: What the trip carries to this user.
            mask: Answers the part of the mask phase: settles the client, trains, and masks.

        Returns:
            An answer for each part, in the order of their rounds.

        Raises:
            FaultyServerError: The trip names no round, too many, one twice, or one that cannot be.
        """
        numbers = [part.number for part in parts]
        if not 0 < len(parts) <= MOST_PARTS or len(set(numbers)) != len(numbers):
            raise FaultyServerError(f"a trip has one to {MOST_PARTS} parts, each of another round")
        if not all(0 <= number < 2**64 for number in numbers):
            raise FaultyServerError("a round's number is from 0 to 2^64-1")
        lowest = min(numbers)
        for number in [kept for kept in self._clients if kept < lowest]:
            self._forget(number)
        answers = []
        for part in sorted(parts, key=lambda part: part.number):
            try:
                message = self._answer(part, part.number == lowest, mask)
                answers.append(Answer(number=part.number, phase=part.phase, message=message))
            except HeteroSagError as error:
                if not (part.phase is Phase.MASK and isinstance(error, WireError)):
                    self._forget(part.number)  # otherwise the client is unchanged, and a replayed trip ends no round
                answers.append(Answer(number=part.number, phase=part.phase, error=error))
        return answers

    def save(self) -> dict[int, bytes]:
        """The clients as bytes, by round, secrets in plaintext: see `Client.save`."""
        return {number: client.save() for number, client in self._clients.items()}

    def _answer(self, part: Part, lowest: bool, mask: Callable[[Client, Part], bytes]) -> bytes:
        if not lowest and part.phase not in _SETUP:
            raise FaultyServerError(f"asked to {part.phase.value} ahead of another round: only keys and shares are")
        client = self._clients.get(part.number)
        if client is None:
            if part.phase is not Phase.ADVERTISE:
                raise FaultyServerError(f"asked to {part.phase.value} without having advertised in this round")
            if part.number < max(self._clients, default=0):
                raise FaultyServerError("asked for keys of a round below one that this user is in")
            if part.number <= self._forgotten:
                raise FaultyServerError(f"asked for keys of round {part.number} after round {self._forgotten} was over")
            if len(self._clients) == MOST_ROUNDS:
                raise FaultyServerError(f"asked for keys of more than {MOST_ROUNDS} rounds at once")
            client = Client(self._plan, self._user, self._round_id(part.number), settled=False, **self._options)
            self._clients[part.number] = client
        if part.phase is Phase.MASK:
            client.before = self._before
            reply = mask(client, part)
            if client.plan.segments:  # not a round of metrics alone
                self._before = client.plan
            return reply
        reply = client.answer(part.phase, part.message)
        if part.phase is Phase.UNMASK:
            self._forget(part.number)
        return reply

    def _forget(self, number: int) -> None:
        """Let a round go, if it was open, and never open it again."""
        if self._clients.pop(number, None) is not None:
            self._forgotten = max(self._forgotten, number)

    def _round_id(self, number: int) -> RoundId:
        return RoundId(session=self._session, number=number)

    def __repr__(self) -> str:
        return f"<ClientPipeline of {self._user!r}, rounds {sorted(self._clients)}>"
