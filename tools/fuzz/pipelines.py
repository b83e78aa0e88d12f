"""Targets for rounds in a row: trips to a user and answers to the server, edited, at any place of a taped session.

The session has a round of training, one of metrics alone and one of training again, so that riders, settling and both
kinds of rounds are met. Its keys are fresh in every process: an input takes the same way, with other bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
from fuzz.copies import copy_server
from fuzz.scripts import Script, change, promise
from rounds import small_plan

from heterosag.crypto.identity import Identity
from heterosag.errors import FaultyServerError, FaultyUserError, HeteroSagError, UsageError, WireError
from heterosag.plan import Plan
from heterosag.protocol import Client, ClientPhase, Policy, RoundId
from heterosag.protocol.pipeline import MOST_ROUNDS, ClientPipeline, Part, ServerPipeline
from heterosag.protocol.release_log import MemoryReleaseLog
from heterosag.protocol.rounding import Rounding
from heterosag.protocol.transitions import Phase

__all__ = ["pipeline_server", "pipeline_user"]

SESSION = b"fuzz"
PLAN = small_plan(metrics=("loss",))
USER = 0  # whose trips are edited
KINDS = (False, True, False)  # of the rounds: whether of metrics alone


@dataclass(kw_only=True)
class Session:
    """What user 0 was sent on each trip and what it had kept before; the server before each trip's answers."""

    signed: bool
    directory: dict[Any, bytes] | None
    identities: dict[Any, Identity]
    trips: list[list[Part]] = field(default_factory=list)
    kept: list[dict[int, bytes]] = field(default_factory=list)
    alone: list[bool] = field(default_factory=list)
    servers: list[ServerPipeline] = field(default_factory=list)
    answers: list[dict[Any, list[tuple[int, bytes]]]] = field(default_factory=list)

    def user(self, user: Any, saved: dict[int, bytes] | None = None) -> ClientPipeline:
        """A user of the session, as it was saved."""
        options: dict[str, Any] = {
            "identity": self.identities[user] if self.signed else None,
            "directory": self.directory,
            "trust_server": not self.signed,
            "policy": Policy.any_plan(),
            "release_log": MemoryReleaseLog(),
        }
        return ClientPipeline(PLAN, user, SESSION, saved=saved, **options)


def mask_with(plan: Plan, metrics_only: bool) -> Callable[[Client, Part], bytes]:
    """Settles a round and masks: what a node does with the part of the mask phase."""

    def mask(client: Client, part: Part) -> bytes:
        client.settle(plan, RoundId(session=SESSION, number=part.number, metrics_only=metrics_only))
        index = PLAN.index(client.user)
        vector = np.empty(0) if metrics_only else np.linspace(-1, 1, PLAN.dimension)
        rounding = Rounding.from_seed(1, index, 0)
        return client.mask(part.message, vector, metrics={"loss": float(index)}, rounding=rounding)

    return mask


@lru_cache(maxsize=2)
def play(signed: bool) -> Session:
    """The session, with or without identities."""
    identities: dict[Any, Identity] = {user: Identity.generate() for user in PLAN.users}
    directory = {user: one.public for user, one in identities.items()} if signed else None
    tape = Session(signed=signed, directory=directory, identities=identities)
    server, users = ServerPipeline(SESSION, directory=directory), {user: tape.user(user) for user in PLAN.users}
    for metrics_only in KINDS:
        server.begin(PLAN)
        server.settle(PLAN, metrics_only=metrics_only)
        while not server.done:
            parts = server.send()
            tape.trips.append(parts[USER])
            tape.kept.append(users[USER].save())
            tape.alone.append(metrics_only)
            tape.servers.append(copy_server(server, [PLAN, PLAN.design, map]))
            tape.answers.append({})
            for user, listed in parts.items():
                answers = users[user].answer(listed, mask_with(PLAN, metrics_only))
                tape.answers[-1][user] = [(one.number, one.message) for one in answers]
                for number, message in tape.answers[-1][user]:
                    assert server.receive(user, number, message)
            server.close()
    return tape


def pipeline_user(data: bytes) -> None:
    """A trip to a user with its parts edited, dropped, doubled, of other rounds, phases and trips, and masked under
    another range: each part is answered or refused alone, and never is more than one vector outstanding."""
    script = Script(data)
    tape = play(bool(script.below(2)))
    at = script.below(len(tape.trips))
    parts = [_edit_part(tape, part, script) for part in tape.trips[at]]
    parts += [
        _edit_part(tape, tape.trips[script.below(len(tape.trips))][0], script) for _ in range(script.below(4) - 2)
    ]
    plan = PLAN.with_value_range((1.0, 0.5, 2.0)[script.below(3)])
    user = tape.user(USER, tape.kept[at])
    try:
        answers = user.answer(parts, mask_with(plan, tape.alone[at] != (script.below(8) == 7)))
    except FaultyServerError:
        assert user.save() == tape.kept[at], "a trip that was refused whole has changed the user"
        return
    lowest = min(part.number for part in parts)
    for answer in answers:
        promise(not isinstance(answer.error, UsageError), f"a fault of the server shown as misuse: {answer.error}")
        ahead = answer.number > lowest and answer.phase not in (Phase.ADVERTISE, Phase.SHARE)
        assert answer.error is not None or not ahead, "a vector or shares given out ahead of the round"
    saved = user.save()
    assert len(saved) <= MOST_ROUNDS
    restored = tape.user(USER, saved)
    outstanding = [one for one in restored._clients.values() if one.phase in (ClientPhase.MASKED, ClientPhase.AGREED)]
    assert len(outstanding) <= 1, "two vectors are outstanding"


def _edit_part(tape: Session, part: Part, script: Script) -> Part:
    """The part with another round, phase or message, or as it is."""
    kind = script.below(8)
    number, phase, message = part.number, part.phase, part.message
    if kind == 0:
        number = (0, 1, 2, 3, 4, 2**63, 2**64 - 1, 2**64)[script.below(8)]
    elif kind == 1:
        phase = list(Phase)[script.below(len(Phase))]
    elif kind == 2:
        other = tape.trips[script.below(len(tape.trips))]
        message = other[script.below(len(other))].message
    elif kind == 3 and message:
        message = change(message, script)
    return Part(number=number, phase=phase, message=message)


def pipeline_server(data: bytes) -> None:
    """Answers to a trip, edited, of other rounds or of other trips: taken or refused by name, then a result or an error
    of the documented tree."""
    script = Script(data)
    tape = play(bool(script.below(2)))
    at = script.below(len(tape.trips))
    server, honest = copy_server(tape.servers[at], [PLAN, PLAN.design, map]), tape.answers[at]
    malicious = {script.below(len(PLAN.users)) for _ in range(1 + script.below(3))}
    for user, answers in honest.items():
        for number, message in answers:
            if user not in malicious:
                assert server.receive(user, number, message), "an honest answer was refused"
                continue
            _send_edited(server, tape, user, number, message, script)
    try:
        server.close()
    except HeteroSagError as error:
        promise(type(error) is not UsageError, "a fault of others shown as misuse")


def _send_edited(server: ServerPipeline, tape: Session, user: Any, number: int, message: bytes, script: Script) -> None:
    kind = script.below(6)
    if kind == 0:
        number += script.below(5) - 2
    elif kind == 1:
        other = tape.answers[script.below(len(tape.answers))][user]
        message = other[script.below(len(other))][1]
    elif kind == 2:
        message = msgspec.msgpack.encode(msgspec.msgpack.decode(message)[:-1])
    elif kind < 5:
        message = change(message, script)
    try:
        server.receive(user, number, message)
    except WireError as error:
        promise(error.sender == user, "the sender is not named")
    except FaultyUserError as error:
        promise(error.user == user, "another user is blamed")
