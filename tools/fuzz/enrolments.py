"""Targets for an enrolment: a taped one whose nonces are derived from labels, and bytes to either side of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rounds import small_plan

from heterosag.crypto.hashing import digest
from heterosag.crypto.identity import Identity
from heterosag.errors import FaultyServerError, FaultyUserError, WireError
from heterosag.protocol import messages as wire
from heterosag.protocol.enrolment import Charter, Enrolling, Enrolment
from heterosag.protocol.policy import Policy

__all__ = ["enrolment_server", "enrolment_user", "tape"]

CHARTER = Charter(epoch=b"fuzz", plan=small_plan())
IDENTITIES = [Identity.from_private_bytes(digest("fuzz/identity", bytes([user]))) for user in CHARTER.plan.users]
DIRECTORY: dict[Any, bytes] = {user: identity.public for user, identity in enumerate(IDENTITIES)}


@dataclass(kw_only=True)
class Tape:
    """One message of each kind."""

    committed: dict[int, bytes]
    commitments: bytes
    revealed: dict[int, bytes]
    reveals: bytes

    def by_kind(self) -> dict[type[wire.Message], bytes]:
        return {
            wire.NonceCommitment: self.committed[0],
            wire.NonceCommitments: self.commitments,
            wire.NonceReveal: self.revealed[0],
            wire.NonceReveals: self.reveals,
            **self._of_cohorts(),
        }

    def _of_cohorts(self) -> dict[type[wire.Message], bytes]:
        """What an enrolment of cohorts would show of the same commitments and nonces."""
        shown = wire.decode(wire.NonceCommitments, self.commitments, plan=CHARTER.plan)
        nonces = wire.decode(wire.NonceReveals, self.reveals, plan=CHARTER.plan)
        commitments, signatures = ([pair[at] for pair in shown.commitments] for at in (0, 1))
        head, later = (wire.WIRE_VERSION, shown.context), (wire.WIRE_VERSION, nonces.context)
        return {
            wire.CohortCommitments: wire.encode(wire.CohortCommitments(*head, commitments)),
            wire.CohortReveals: wire.encode(wire.CohortReveals(*later, nonces.nonces, signatures)),
        }


def _user(user: int) -> Enrolling:
    return Enrolling(CHARTER, user, identity=IDENTITIES[user], directory=DIRECTORY, policy=Policy.any_plan())


def _commit(one: Enrolling) -> bytes:
    return one.commit(nonce=digest("fuzz/nonce", bytes([int(one.user)])))


@lru_cache(maxsize=1)
def tape() -> Tape:
    """A whole enrolment."""
    server = Enrolment(CHARTER, directory=DIRECTORY)
    users = {user: _user(user) for user in range(len(IDENTITIES))}
    committed = {user: _commit(one) for user, one in users.items()}
    for user, message in committed.items():
        server.receive(user, message)
    commitments = server.close()[0]
    revealed = {user: one.reveal(commitments) for user, one in users.items()}
    for user, message in revealed.items():
        server.receive(user, message)
    return Tape(committed=committed, commitments=commitments, revealed=revealed, reveals=server.close()[0])


def enrolment_server(data: bytes) -> None:
    """Any bytes from a user to a server that collects commitments, or nonces."""
    known = tape()
    server = Enrolment(CHARTER, directory=DIRECTORY)
    if data[:1] > b"\x7f":
        for user, message in known.committed.items():
            server.receive(user, message)
        server.close()
    try:
        server.receive(3, data[1:])
    except (WireError, FaultyUserError) as error:
        _promise((error.sender if isinstance(error, WireError) else error.user) == 3, "the sender is not named")
        return
    assert data[1:] in (known.committed[3], known.revealed[3]), "a message that the user did not sign was taken"


def enrolment_user(data: bytes) -> None:
    """Any bytes from the server to a user that waits for commitments, or for nonces."""
    known, one = tape(), _user(0)
    _commit(one)
    late = data[:1] > b"\x7f"
    if late:
        one.reveal(known.commitments)
    try:
        (one.finish if late else one.reveal)(data[1:])
    except WireError as error:
        _promise(error.sender == "server", "the sender is not named")
        return
    except FaultyServerError:
        assert one._nonce is None, "a nonce outlives the server's lie"
        return
    assert data[1:] == (known.reveals if late else known.commitments), "another list was taken for the honest one"


def _promise(kept: bool, words: str) -> None:
    if not kept:
        raise AssertionError(words)
