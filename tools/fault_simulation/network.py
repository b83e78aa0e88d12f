"""The network: it loses, duplicates, delays, reorders and corrupts messages, and delivers them to the wrong place.

It also plays a malicious server to one user: it changes the sets of users in what the server sends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from msgspec.structs import replace as change

from fault_simulation.schedule import SESSION, Clock, Script, Trace
from heterosag.crypto.seal import SEALED_SIZE
from heterosag.plan import Plan, User
from heterosag.protocol import messages as wire

__all__ = ["Envelope", "Network"]

_DOWN: dict[str, type[wire.Message]] = {
    "share": wire.Roster,
    "mask": wire.Inbox,
    "agree": wire.SurvivorSet,
    "unmask": wire.UnmaskRequest,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """A message on its way between the server and a user. `touched`: not what was sent, or not where it belongs.

    `model` says which value range and model a message to mask settles its round with, where rounds run in a row.
    """

    round: int
    phase: str
    user: User
    up: bool
    data: bytes
    touched: bool = False
    model: int = 0

    def __str__(self) -> str:
        return f"{self.phase} of round {self.round} {'from' if self.up else 'to'} {self.user}"


class Network:
    """Takes envelopes from both ends and delivers them, more or less, to `deliver`; those of one trip together."""

    def __init__(self, script: Script, clock: Clock, trace: Trace, deliver: Callable[..., None]) -> None:
        self._script = script
        self._rates = script.rates
        self._draw = script.draw
        self._clock = clock
        self._trace = trace
        self._deliver = deliver
        self._seen: list[Envelope] = []

    def send(self, *trip: Envelope) -> None:
        """Put the messages of a trip, one or several, on their way."""
        rates, chance = self._rates, self._draw.random
        user, what = trip[0].user, " and ".join(map(str, trip))
        if rates.splice or rates.misroute or rates.replay:
            self._seen += trip
        if rates.lose and chance() < rates.lose:
            self._trace.fault("lost", user, what)
            return
        copies = 1
        if rates.duplicate and chance() < rates.duplicate:
            copies += self._draw.randint(1, 2)
            self._trace.fault("duplicated", user, what)
        for _ in range(copies):
            self._carry(*map(self._disturb, trip))
        if rates.misroute and chance() < rates.misroute:
            self._misroute(trip[0])
        if rates.join and self._script.pipelined and not trip[0].up and chance() < rates.join:
            self._join(self._draw.choice(trip))

    def replay(self, user: User, number: int) -> None:
        """A malicious server sends a user everything of a round again, in order, perhaps changed."""
        again = {old: None for old in self._seen if (old.user, old.up, old.round) == (user, False, number)}
        self._trace.fault("replayed", user, f"round {number}, {len(again)} messages")
        for place, envelope in enumerate(again):
            self._clock.after(place + 1, self._deliver, self._disturb(envelope))

    def _carry(self, *trip: Envelope) -> None:
        delay = self._draw.randint(1, 30)  # copies and messages overtake each other
        if self._rates.delay and self._draw.random() < self._rates.delay:
            delay += self._draw.randint(60, 600)
            self._trace.fault("delayed", trip[0].user, " and ".join(map(str, trip)))
        self._clock.after(delay, self._deliver, *trip)

    def _disturb(self, envelope: Envelope) -> Envelope:
        rates, chance = self._rates, self._draw.random
        if rates.corrupt and envelope.data and chance() < rates.corrupt:
            self._trace.fault("corrupted", envelope.user, str(envelope))
            return replace(envelope, data=self._corrupt(envelope.data), touched=True)
        if rates.splice and chance() < rates.splice:
            other = self._draw.choice(self._seen)
            if other.data != envelope.data:
                self._trace.fault("spliced", envelope.user, f"{other} into {envelope}")
                return replace(envelope, data=other.data, touched=True)
        if rates.tamper and not envelope.up and envelope.phase in _DOWN and chance() < rates.tamper:
            changed = self._tamper(envelope)
            if changed != envelope:
                self._trace.fault("tampered", envelope.user, str(envelope))
                return replace(changed, touched=True)
        return envelope

    def _misroute(self, envelope: Envelope) -> None:
        """A reply or request of one round turns up in another, in the same phase or in a later one."""
        place = envelope.user, envelope.up
        others = [old for old in self._seen if (old.user, old.up) == place and old.round != envelope.round]
        if others:
            old = self._draw.choice(others)
            self._trace.fault("misrouted", envelope.user, f"{old} to round {envelope.round}")
            self._carry(replace(old, round=envelope.round, touched=True))

    def _join(self, envelope: Envelope) -> None:
        """A malicious server sends a user messages of several rounds of a session in one trip, in any phases."""
        place, session = (envelope.user, False), envelope.round // SESSION
        others = [old for old in self._seen if (old.user, old.up) == place and old.round // SESSION == session]
        others = [old for old in others if old.round != envelope.round]
        if others:
            trip = [envelope, *self._draw.sample(others, min(len(others), self._draw.randint(1, 2)))]
            self._trace.fault("joined", envelope.user, " and ".join(map(str, trip)))
            self._carry(*(replace(one, touched=True) for one in trip))

    def _corrupt(self, data: bytes) -> bytes:
        draw = self._draw
        where = draw.randrange(len(data))
        how = draw.randrange(6)
        if how == 0:
            return data[:where]
        if how == 1:
            return data + draw.randbytes(draw.randint(1, 4))
        if how == 2:
            return data[:where] + draw.randbytes(8) + data[where + 8 :]
        return data[:where] + bytes([data[where] ^ 1 << draw.randrange(8)]) + data[where + 1 :]

    def _tamper(self, envelope: Envelope) -> Envelope:
        """Another set of users in the server's message, whose signatures stay where they fit; or another model."""
        if self._script.pipelined and envelope.phase == "mask" and self._draw.random() < 0.3:
            return replace(envelope, model=envelope.model + 1)
        message = wire.decode(_DOWN[envelope.phase], envelope.data, plan=self._script.plan)
        user = self._script.plan.index(envelope.user)
        data = wire.encode(_change_set(message, user, self._script.plan, self._draw.random(), self._draw))
        return replace(envelope, data=data)


def _change_set(message: Any, user: int, plan: Plan, how: float, draw: Any) -> Any:
    if isinstance(message, wire.Roster):
        if how < 0.7:
            return message  # another roster ends a client's round early: mostly spare it for the later phases
        gone = draw.randrange(len(message.advertised))
        return change(message, advertised=message.advertised[:gone] + message.advertised[gone + 1 :])
    if isinstance(message, wire.Inbox):
        gone = draw.choice(message.sharers)
        listed = [sharer for sharer in message.sharers if sharer != gone]
        dealers = [dealer for dealer in plan.sharing.holders(user) if dealer in message.sharers]
        if how < 0.3 or gone not in dealers:
            return change(message, sharers=listed)
        place = dealers.index(gone)
        rows = {
            name: getattr(message, name)[: place * size] + getattr(message, name)[(place + 1) * size :]
            for name, size in (("sealed", SEALED_SIZE), ("commitments", wire.PAIR_SIZE))
        }
        return change(message, sharers=listed, **rows)
    survivors = set(message.survivors)
    survivors ^= {draw.randrange(len(plan.users))}
    listed = sorted(survivors)
    if isinstance(message, wire.SurvivorSet):
        dealers = [dealer for dealer in plan.sharing.holders(user) if dealer in message.survivors]
        known = dict(zip(dealers, message.signatures, strict=True))
        return change(message, survivors=listed, signatures=[known[one] for one in listed if one in known])
    signatures = [(signer, signature) for signer, signature in message.signatures if signer in survivors]
    return change(message, survivors=listed, signatures=signatures)
