"""Enrolment: how the users of an epoch find their subgroups without anybody choosing for them.

A charter says who takes part, in which classes, under which policy: a plan in listed order. Every user commits to a
nonce and signs that; when it has seen everybody's signed commitment, it reveals the nonce; the seed of the assignment
is the hash of all nonces, and every user works the plan out itself. The last to reveal could still choose between two
plans by staying silent, so a missing reveal ends the enrolment, and it starts again under a charter without whoever
withheld: choosing costs a user each time.

Guarantees: a user that finishes with a plan has seen signed commitments of every user of the charter, its own among
them, and nonces that open them; if one user is honest, nobody who committed knew the seed before. A user reveals once
per charter, claimed in its log before it answers, so two sets of commitments never see the same nonce. Told of the
charter that failed before (`after`), a user enrols again only under one with fewer users, all of them of that one. A
server that may start over a number of times, or drop users each time, still has that many seeds to choose from: whoever
runs the users says when a new epoch may begin.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from secrets import token_bytes
from typing import Any, Literal, TypeVar

import msgspec

from heterosag.crypto import hashing
from heterosag.crypto.identity import Identity, check_identity, verify
from heterosag.crypto.secret import Secret
from heterosag.errors import FaultyServerError, FaultyUserError, PlanError, UsageError, WireError, WithheldError
from heterosag.plan import Plan, User
from heterosag.protocol import messages as wire
from heterosag.protocol.client import Directory
from heterosag.protocol.policy import Policy
from heterosag.protocol.release_log import MemoryReleaseLog, ReleaseLog

__all__ = ["Charter", "Enrolment", "Enrolling"]

NONCE_SIZE = 32

T = TypeVar("T")
_Step = Literal["commit", "reveal", "finish", "done", "nothing"]
"""What comes next in an enrolment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Charter:
    """Who enrols in which epoch, and for what.

    Args:
        epoch: Bytes that no other try has.
        plan: A plan in listed order, whose users are assigned anew.
    """

    epoch: bytes
    plan: Plan

    def __post_init__(self) -> None:
        if not 1 <= len(self.epoch) <= 64:
            raise UsageError(f"an epoch is named by 1 to 64 bytes, not {len(self.epoch)}")
        if self.plan.assignment_seed is not None:
            raise PlanError("assignment_seed", "a charter's plan has none: enrolment makes it")

    @property
    def context(self) -> bytes:
        """What commitments are signed for."""
        return hashing.digest("context/charter", hashing.index_bytes(wire.WIRE_VERSION), self.plan.digest, self.epoch)

    def without(self, users: Collection[User], epoch: bytes) -> Charter:
        """The charter of the next try, without these users.

        Args:
            users: Who did not answer.
            epoch: Bytes that no other try has.

        Returns:
            The charter.

        Raises:
            PlanError: Too few are left for a plan.
        """
        arguments = self.plan.arguments()
        gone = {self.plan.users[self.plan.index(user)] for user in users}
        kept, sizes, first = [], [], 0
        for size in self.plan.classes:
            members = [user for user in self.plan.users[first : first + size] if user not in gone]
            kept += members
            sizes.append(len(members))
            first += size
        filled = [place for place, size in enumerate(sizes) if size]
        arguments |= {
            "users": kept,
            "classes": [sizes[place] for place in filled],
            "levels": [self.plan.levels[place] for place in filled],
            "min_robustness": None,
        }
        return Charter(epoch=epoch, plan=Plan.build(**arguments))

    def settle(self, commitments: bytes, nonces: Collection[bytes]) -> Plan:
        """The plan that everybody arrives at.

        Args:
            commitments: The context of everybody's commitments.
            nonces: Everybody's nonce, in roster order.

        Returns:
            The plan.
        """
        seed = hashing.digest("enrol/seed", commitments, *nonces)
        return Plan.build(**self.plan.arguments() | {"assignment_seed": seed})


def _commit(context: bytes, user: int, nonce: bytes) -> bytes:
    return hashing.digest("enrol/nonce", context, hashing.index_bytes(user), nonce)


def _commitments_context(context: bytes, commitments: Collection[bytes]) -> bytes:
    return hashing.digest("context/commitments", context, *commitments)


# --- a user ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Nonce(Secret):
    """What a user keeps between commit and reveal."""

    value: bytes = field(repr=False)


class _Saved(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An `Enrolling` between two messages."""

    context: bytes
    user: int
    expected: _Step
    nonce: bytes | None
    commitments: list[bytes]
    answered: tuple[bytes, bytes] | None

    def __repr__(self) -> str:
        return "<a saved enrolment>"


class Enrolling(Secret):
    """One user in one enrolment: `commit`, `reveal`, `finish`. Without I/O, as a client is.

    Args:
        charter: Who enrols, and for what.
        user: This user.
        identity: As for a `Client`.
        directory: As for a `Client`.
        policy: As for a `Client`.
        release_log: As for a `Client`; the nonce is revealed once per charter.
        after: The charter of an enrolment that failed before; a new one must have fewer of its users.
        level: The quantizer level of this user's class; a charter that says otherwise is refused.
    """

    def __init__(
        self,
        charter: Charter,
        user: User,
        *,
        identity: Identity,
        directory: Directory,
        policy: Policy | None = None,
        release_log: ReleaseLog | None = None,
        after: Charter | None = None,
        level: int | None = None,
    ) -> None:
        plan = charter.plan
        (policy or Policy()).check(plan, directory=directory, settled=False)  # the range: with every round's client
        index = plan.index(user)
        strangers = [other for other in plan.users if other not in directory]
        if strangers:
            raise FaultyServerError(f"the charter names {strangers[0]!r}, whom this user's directory does not know")
        if directory[user] != identity.public:
            raise UsageError(f"the directory's key of {user!r} is not the one of the identity given")
        if after is not None and not set(plan.users) < set(after.plan.users):
            raise FaultyServerError("after a failed enrolment the next charter has fewer users, all of the one before")
        if level is not None and plan.levels[plan.subgroups[plan.assignment[index]].user_class] != level:
            raise FaultyServerError(f"the charter puts this user into a class of another level than {level}")
        self.user = user
        self._charter = charter
        self._index = index
        self._identity = identity
        self._directory = [bytes(directory[other]) for other in plan.users]
        for public in self._directory:
            check_identity(public)
        self._log = release_log or MemoryReleaseLog()
        self._nonce: _Nonce | None = None
        self._commitments: tuple[bytes, ...] = ()
        self._expected: _Step = "commit"
        self._answered: dict[str, tuple[bytes, Any]] = {}

    def save(self) -> bytes:
        """This enrolment as bytes, the nonce in plaintext: for a program that ends between messages.

        Whoever uses it gives a release log that outlives the program, and erases the bytes afterwards.
        """
        nonce = None if self._nonce is None else self._nonce.value
        saved = _Saved(
            context=self._charter.context,
            user=self._index,
            expected=self._expected,
            nonce=nonce,
            commitments=list(self._commitments),
            answered=self._answered.get("reveal"),
        )
        return msgspec.msgpack.encode(saved)

    @classmethod
    def restore(cls, saved: bytes, charter: Charter, user: User, **options: Any) -> Enrolling:
        """An enrolment that goes on where a saved one stopped.

        Args:
            saved: What `save` returned.
            charter: The charter, as the saved one had it.
            user: The user, likewise.
            options: What else `Enrolling` takes, likewise.

        Raises:
            UsageError: The bytes were cut or changed, or belong to another charter or user.

        Returns:
            The enrolment.
        """
        enrolling = cls(charter, user, **options)
        try:
            known = msgspec.msgpack.decode(saved, type=_Saved)
        except msgspec.MsgspecError as error:
            raise UsageError(f"this is not a saved enrolment: {error}") from None
        if (known.context, known.user) != (charter.context, enrolling._index):
            raise UsageError("this saved enrolment belongs to another charter or user")
        enrolling._expected = known.expected
        enrolling._nonce = None if known.nonce is None else _Nonce(known.nonce)
        enrolling._commitments = tuple(known.commitments)
        if known.answered is not None:
            enrolling._answered["reveal"] = known.answered
        return enrolling

    def commit(self, *, nonce: bytes | None = None) -> bytes:
        """A signed commitment to a nonce.

        Args:
            nonce: For test vectors; it comes from the system's entropy unless given.

        Returns:
            The commitment.

        Raises:
            UsageError: A nonce of another length was given.
        """
        drawn = token_bytes(NONCE_SIZE) if nonce is None else nonce
        if len(drawn) != NONCE_SIZE:
            raise UsageError(f"a nonce has {NONCE_SIZE} bytes, not {len(drawn)}")
        return self._answer("commit", "reveal", lambda: self._commit(drawn))

    def reveal(self, message: bytes) -> bytes:
        """Check everybody's signed commitment, then reveal the nonce, once.

        Args:
            message: Everybody's commitments.

        Returns:
            The nonce.
        """
        return self._answer("reveal", "finish", lambda: self._reveal(message), message)

    def finish(self, message: bytes) -> Plan:
        """Check everybody's nonce, and work out the plan.

        Args:
            message: Everybody's nonces.

        Returns:
            The plan that they give.
        """
        return self._answer("finish", "done", lambda: self._finish(message), message)

    def _commit(self, nonce: bytes) -> bytes:
        context = self._charter.context
        commitment = _commit(context, self._index, nonce)
        self._log.claim(context, "commit", commitment)
        signature = self._identity.sign("commit", context, hashing.index_bytes(self._index), commitment)
        self._nonce = _Nonce(nonce)
        own = wire.NonceCommitment(wire.WIRE_VERSION, context, self._index, commitment, signature)
        return wire.encode(own)

    def _reveal(self, message: bytes) -> bytes:
        charter, plan = self._charter, self._charter.plan
        found = wire.decode(wire.NonceCommitments, message, plan=plan, sender="server")
        self._check(found.context, charter.context, len(found.commitments))
        nonce = self._nonce
        for index, (commitment, signature) in enumerate(found.commitments):
            parts = (charter.context, hashing.index_bytes(index), commitment)
            try:
                verify(self._directory[index], signature, "commit", *parts)
            except WireError:
                name = plan.users[index]
                raise FaultyServerError(f"the commitment shown for user {name!r} is not signed by it") from None
        commitments = tuple(commitment for commitment, _ in found.commitments)
        if nonce is None or commitments[self._index] != _commit(charter.context, self._index, nonce.value):
            raise FaultyServerError("the commitments show another one for this user than it made")
        context = _commitments_context(charter.context, commitments)
        self._log.claim(charter.context, "reveal", context)
        self._commitments = commitments
        return wire.encode(wire.NonceReveal(wire.WIRE_VERSION, context, self._index, nonce.value))

    def _finish(self, message: bytes) -> Plan:
        charter, plan = self._charter, self._charter.plan
        found = wire.decode(wire.NonceReveals, message, plan=plan, sender="server")
        context = _commitments_context(charter.context, self._commitments)
        self._check(found.context, context, len(found.nonces))
        for index, (nonce, commitment) in enumerate(zip(found.nonces, self._commitments, strict=True)):
            if _commit(charter.context, index, nonce) != commitment:
                raise FaultyServerError(
                    f"the nonce shown for user {plan.users[index]!r} is not the one it committed to"
                )
        self._nonce = None
        return charter.settle(context, found.nonces)

    def _check(self, theirs: bytes, ours: bytes, count: int) -> None:
        if theirs != ours:
            raise FaultyServerError("the server's message belongs to another enrolment: charter or commitments differ")
        if count != len(self._charter.plan.users):
            raise FaultyServerError(f"{count} users are shown, the charter has {len(self._charter.plan.users)}")

    def _answer(self, step: _Step, after: _Step, answer: Callable[[], T], message: bytes | None = None) -> T:
        """Take a step, or answer the same message alike; a malicious server ends this, and the nonce is forgotten."""
        if message is not None and self._answered.get(step, (None,))[0] == message:
            again: T = self._answered[step][1]
            return again
        if self._expected != step:
            raise FaultyServerError(f"asked to {step}, when {self._expected} is next")
        try:
            reply = answer()
        except FaultyServerError:
            self._nonce, self._expected = None, "nothing"
            self._answered.clear()
            raise
        self._expected = after
        if message is not None:
            self._answered[step] = (message, reply)
        return reply

    def __repr__(self) -> str:
        return f"<Enrolling of {self.user!r}, {self._expected} next>"


# --- the server -----------------------------------------------------------------------------------------------------


class Enrolment:
    """The server's side: `receive` users' messages, `close` a phase. When to close is the caller's business.

    Args:
        charter: Who enrols, and for what.
        directory: Everybody's public key.
    """

    def __init__(self, charter: Charter, *, directory: Mapping[User, bytes]) -> None:
        missing = [user for user in charter.plan.users if user not in directory]
        if missing:
            raise UsageError(f"the directory has no key for user {missing[0]!r} of the charter")
        self.charter = charter
        self._directory = directory
        self._context = charter.context
        self._commitments: dict[int, tuple[bytes, bytes]] = {}
        self._nonces: dict[int, bytes] = {}
        self._phase = "commit"
        self._plan: Plan | None = None

    @property
    def plan(self) -> Plan:
        """The plan, once everybody has revealed."""
        if self._plan is None:
            raise UsageError(f"the enrolment has no plan: it is in the phase {self._phase!r}")
        return self._plan

    def receive(self, user: User, data: bytes) -> None:
        """Take a user's message; an identical duplicate changes nothing.

        Args:
            user: Who sent it, as the transport knows.
            data: The message.

        Raises:
            FaultyUserError: No honest user sends this; it names the user.
            UsageError: The enrolment is over.
        """
        plan, index = self.charter.plan, self.charter.plan.index(user)
        if self._phase == "commit":
            own = wire.decode(wire.NonceCommitment, data, plan=plan, sender=user)
            self._check(user, index, own.user, own.context)
            try:
                parts = (self._context, hashing.index_bytes(index), own.commitment)
                verify(self._directory[user], own.signature, "commit", *parts)
            except WireError as error:
                raise FaultyUserError(user, error.problem) from None
            self._keep(self._commitments, user, index, (own.commitment, own.signature))
        elif self._phase == "reveal":
            shown = wire.decode(wire.NonceReveal, data, plan=plan, sender=user)
            self._check(user, index, shown.user, shown.context)
            if _commit(self.charter.context, index, shown.nonce) != self._commitments[index][0]:
                raise FaultyUserError(user, "revealed another nonce than it committed to")
            self._keep(self._nonces, user, index, shown.nonce)
        else:
            raise UsageError(f"the enrolment is over: {self._phase}")

    def close(self) -> dict[User, bytes]:
        """End the phase.

        Returns:
            What everybody gets next.

        Raises:
            WithheldError: It names who did not answer.
            UsageError: The enrolment is over.
        """
        plan = self.charter.plan
        if self._phase == "commit":
            self._everybody(self._commitments, "commitment")
            listed = [self._commitments[index] for index in range(len(plan.users))]
            message = wire.encode(wire.NonceCommitments(wire.WIRE_VERSION, self._context, listed))
            self._context = _commitments_context(self._context, [commitment for commitment, _ in listed])
            self._phase = "reveal"
        elif self._phase == "reveal":
            self._everybody(self._nonces, "nonce")
            nonces = [self._nonces[index] for index in range(len(plan.users))]
            message = wire.encode(wire.NonceReveals(wire.WIRE_VERSION, self._context, nonces))
            self._plan = self.charter.settle(self._context, nonces)
            self._phase = "done"
        else:
            raise UsageError(f"the enrolment is over: {self._phase}")
        return dict.fromkeys(plan.users, message)

    def _everybody(self, found: Mapping[int, Any], what: str) -> None:
        missing = [user for index, user in enumerate(self.charter.plan.users) if index not in found]
        if missing:
            self._phase = "failed"
            raise WithheldError(missing, what)

    def _check(self, user: User, index: int, claimed: int, context: bytes) -> None:
        if claimed != index:
            raise FaultyUserError(user, f"sent a message in the name of roster index {claimed}")
        if context != self._context:
            raise FaultyUserError(user, "sent a message of another enrolment: its charter or commitments differ")

    @staticmethod
    def _keep(kept: dict[int, Any], user: User, index: int, value: Any) -> None:
        if kept.setdefault(index, value) != value:
            raise FaultyUserError(user, "sent two different messages of one kind")
