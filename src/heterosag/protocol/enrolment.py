"""Enrolment: how the users of an epoch find their subgroups without anybody choosing for them.

A charter says who takes part, in which classes, with which thresholds: a plan in listed order. Every user commits to a
nonce and signs that; when it has seen everybody's signed commitment, it reveals the nonce; the seed of the assignment
is the hash of all nonces, and every user works the plan out itself. The last to reveal could still choose between two
plans by staying silent, so a missing reveal ends the enrolment, and it starts again under a charter without whoever
withheld: choosing costs a user each time.

The users of several cohorts draw the split and all subgroups with one seed. Everybody's commitments and nonces are
hashed into it, but which signatures count is known only afterwards: a user reveals to bare commitments, works the split
out, and then checks the signatures of its own cohort only. A server that showed a user commitments which others never
made gains nothing unless nobody of that user's cohort, which nobody could foresee, is among those others; and a user
reveals once, so it can try as often as there are sets of users without anybody in common.

Users are drawn within their class, and who is in which class is the charter's word. So two classes of one level are
refused, and so is a class in which enough of the plan's colluders may be in this user's subgroup (`max_surrounded`).

Guarantees: a user that finishes with a plan has seen signed commitments of every user of the plan, its own among
them, and nonces that open them; if one user is honest, nobody who committed knew the seed before. A user reveals once
per charter, claimed in its log before it answers, so two sets of commitments never see the same nonce. Told of the
charter that failed before (`after`), a user enrols again only under one with fewer users, all of them of that one. A
server that may start over a number of times, or drop users each time, still has that many seeds to choose from: whoever
runs the users says when a new epoch may begin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from secrets import token_bytes
from typing import Any, Literal, TypeVar

import msgspec

from heterosag.crypto import hashing
from heterosag.crypto.identity import Identity, check_identity, check_one_user_each, verify
from heterosag.crypto.secret import Secret
from heterosag.errors import FaultyServerError, FaultyUserError, PlanError, UsageError, WireError, WithheldError
from heterosag.plan import CohortPlan, Plan, User
from heterosag.plan.cohorts import plans_of
from heterosag.protocol import messages as wire
from heterosag.protocol.charter import Charter, commit_to, commitments_context
from heterosag.protocol.client import Directory
from heterosag.protocol.policy import Policy
from heterosag.protocol.release_log import MemoryReleaseLog, ReleaseLog

__all__ = ["Charter", "Enrolling", "Enrolment"]

NONCE_SIZE = 32

T = TypeVar("T")
_Step = Literal["commit", "reveal", "finish", "done", "nothing"]
"""What comes next in an enrolment."""


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
        plan, index = charter.plan, charter.plan.index(user)
        self._policy = policy or Policy()
        strangers = [other for other in plan.users if other not in directory]
        if strangers:  # first: what follows takes time in proportion to the users
            raise FaultyServerError(f"the charter names {strangers[0]!r}, whom this user's directory does not know")
        cohorts = plan if isinstance(plan, CohortPlan) else None
        for one in plans_of(plan):  # it may be in any of them; the range: with every round's client
            self._policy.check(one, cohorts=cohorts, directory=directory, settled=False)
        if len(set(plan.levels)) < len(plan.levels):
            raise FaultyServerError("the charter has two classes of one level, which only choose who is with whom")
        if directory[user] != identity.public:
            raise UsageError(f"the directory's key of {user!r} is not the one of the identity given")
        self._policy.check_draw(plan, user)
        if after is not None and not set(plan.users) < set(after.plan.users):
            raise FaultyServerError("after a failed enrolment the next charter has fewer users, all of the one before")
        if level is not None and plan.levels[_class_of(plan, user)] != level:
            raise FaultyServerError(f"the charter puts this user into a class of another level than {level}")
        self.user = user
        self._charter = charter
        self._index = index
        self._identity = identity
        self._known = frozenset(directory)
        self._directory = [bytes(directory[other]) for other in plan.users]
        for public in self._directory:
            check_identity(public)
        check_one_user_each(zip(plan.users, self._directory, strict=True))
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
        body = msgspec.msgpack.encode(saved)
        return hashing.digest("saved-enrolment", body) + body

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
        check, body = saved[: hashing.DIGEST_SIZE], saved[hashing.DIGEST_SIZE :]
        try:
            if check != hashing.digest("saved-enrolment", body):
                raise UsageError("this is not a saved enrolment: it was cut or changed")
            known = msgspec.msgpack.decode(body, type=_Saved)
        except msgspec.MsgspecError as error:
            raise UsageError(f"this is not a saved enrolment: {error}") from None
        if (known.context, known.user) != (charter.context, enrolling._index):
            raise UsageError("this saved enrolment belongs to another charter or user")
        if not _fits(known, charter):
            raise UsageError(f"this is not a saved enrolment: {known.expected} is next, with what does not fit it")
        enrolling._expected = known.expected
        enrolling._nonce = None if known.nonce is None else _Nonce(known.nonce)
        enrolling._commitments = tuple(known.commitments)
        if known.answered is not None:
            enrolling._answered["reveal"] = known.answered
        if enrolling.save() != saved:
            raise UsageError("this is not a saved enrolment: not the one encoding of its state")
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
        """Check everybody's signed commitment (of cohorts: that one's own is there), then reveal the nonce, once.

        Args:
            message: Everybody's commitments.

        Returns:
            The nonce.
        """
        return self._answer("reveal", "finish", lambda: self._reveal(message), message)

    def finish(self, message: bytes) -> Plan:
        """Check everybody's nonce, and work out the plan; of cohorts check the signatures of one's own.

        Args:
            message: Everybody's nonces.

        Returns:
            The plan that they give, of this user's own cohort where there are several.
        """
        return self._answer("finish", "done", lambda: self._finish(message), message)

    def _commit(self, nonce: bytes) -> bytes:
        context = self._charter.context
        commitment = commit_to(context, self._index, nonce)
        self._log.claim(context, "commit", commitment)
        signature = self._identity.sign("commit", context, hashing.index_bytes(self._index), commitment)
        self._nonce = _Nonce(nonce)
        own = wire.NonceCommitment(wire.WIRE_VERSION, context, self._index, commitment, signature)
        return wire.encode(own)

    def _reveal(self, message: bytes) -> bytes:
        charter, nonce = self._charter, self._nonce
        commitments = self._read_commitments(message)
        if nonce is None or commitments[self._index] != commit_to(charter.context, self._index, nonce.value):
            raise FaultyServerError("the commitments show another one for this user than it made")
        context = commitments_context(charter.context, commitments)
        self._log.claim(charter.context, "reveal", context)
        self._commitments = commitments
        return wire.encode(wire.NonceReveal(wire.WIRE_VERSION, context, self._index, nonce.value))

    def _read_commitments(self, message: bytes) -> tuple[bytes, ...]:
        """Everybody's commitment; of a plan with everybody's signature, of cohorts the signatures come at the end."""
        plan, context = self._charter.plan, self._charter.context
        if isinstance(plan, CohortPlan):
            shown = wire.decode(wire.CohortCommitments, message, plan=plan, sender="server")
            self._check(shown.context, context, len(shown.commitments))
            return tuple(shown.commitments)
        found = wire.decode(wire.NonceCommitments, message, plan=plan, sender="server")
        self._check(found.context, context, len(found.commitments))
        for index, (commitment, signature) in enumerate(found.commitments):
            self._verify(index, commitment, signature)
        return tuple(commitment for commitment, _ in found.commitments)

    def _verify(self, index: int, commitment: bytes, signature: bytes) -> None:
        try:
            parts = (self._charter.context, hashing.index_bytes(index), commitment)
            verify(self._directory[index], signature, "commit", *parts)
        except WireError:
            name = self._charter.plan.users[index]
            raise FaultyServerError(f"the commitment shown for user {name!r} is not signed by it") from None

    def _finish(self, message: bytes) -> Plan:
        charter = self._charter
        found: wire.NonceReveals | wire.CohortReveals
        if isinstance(charter.plan, CohortPlan):
            found = wire.decode(wire.CohortReveals, message, plan=charter.plan, sender="server")
        else:
            found = wire.decode(wire.NonceReveals, message, plan=charter.plan, sender="server")
        context = commitments_context(charter.context, self._commitments)
        self._check(found.context, context, len(found.nonces))
        for index, (nonce, commitment) in enumerate(zip(found.nonces, self._commitments, strict=True)):
            if commit_to(charter.context, index, nonce) != commitment:
                name = charter.plan.users[index]
                raise FaultyServerError(f"the nonce shown for user {name!r} is not the one it committed to")
        plan = charter.settle(context, found.nonces)
        if isinstance(plan, CohortPlan):
            plan = self._check_cohort(plan, found.signatures if isinstance(found, wire.CohortReveals) else [])
        self._nonce = None
        return plan

    def _check_cohort(self, plan: CohortPlan, signatures: Sequence[bytes]) -> Plan:
        """This user's cohort, if everybody in it signed the commitment shown for it."""
        own = plan.plan_of(self.user)
        if len(signatures) != len(own.users):
            raise FaultyServerError(f"{len(signatures)} signatures are shown, this user's cohort has {len(own.users)}")
        for user, signature in zip(own.users, signatures, strict=True):
            index = plan.index(user)
            self._verify(index, self._commitments[index], signature)
        self._policy.check(own, cohorts=plan, directory=self._known, settled=False)
        self._policy.check_draw(plan, self.user)  # again: cohorts that differed have got their defaults
        return own

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
        except (FaultyServerError, PlanError):
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
        self._plan: Plan | CohortPlan | None = None

    @property
    def plan(self) -> Plan | CohortPlan:
        """The plan, or the cohorts, once everybody has revealed."""
        if self._plan is None:
            raise UsageError(f"the enrolment has no plan: it is in the phase {self._phase!r}")
        return self._plan

    def receive(self, user: User, data: bytes) -> bool:
        """Take a user's message.

        Args:
            user: Who sent it, as the transport knows.
            data: The message.

        Returns:
            True if it counts now, False if it is an identical duplicate.

        Raises:
            FaultyUserError: No honest user sends this; it names the user.
            WireError: These bytes are no message of this phase; it names the sender.
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
            return self._keep(self._commitments, user, index, (own.commitment, own.signature))
        if self._phase == "reveal":
            shown = wire.decode(wire.NonceReveal, data, plan=plan, sender=user)
            self._check(user, index, shown.user, shown.context)
            if commit_to(self.charter.context, index, shown.nonce) != self._commitments[index][0]:
                raise FaultyUserError(user, "revealed another nonce than it committed to")
            return self._keep(self._nonces, user, index, shown.nonce)
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
            message = self._show(listed)
            self._context = commitments_context(self._context, [commitment for commitment, _ in listed])
            self._phase = "reveal"
        elif self._phase == "reveal":
            self._everybody(self._nonces, "nonce")
            nonces = [self._nonces[index] for index in range(len(plan.users))]
            self._plan = self.charter.settle(self._context, nonces)
            self._phase = "done"
            if isinstance(self._plan, CohortPlan):
                return self._show_cohorts(self._plan, nonces)
            message = wire.encode(wire.NonceReveals(wire.WIRE_VERSION, self._context, nonces))
        else:
            raise UsageError(f"the enrolment is over: {self._phase}")
        return dict.fromkeys(plan.users, message)

    def _show(self, listed: list[tuple[bytes, bytes]]) -> bytes:
        """Everybody's commitments, of a plan with their signatures."""
        if isinstance(self.charter.plan, Plan):
            return wire.encode(wire.NonceCommitments(wire.WIRE_VERSION, self._context, listed))
        commitments = [commitment for commitment, _ in listed]
        return wire.encode(wire.CohortCommitments(wire.WIRE_VERSION, self._context, commitments))

    def _show_cohorts(self, plan: CohortPlan, nonces: list[bytes]) -> dict[User, bytes]:
        """Everybody's nonces, to each cohort with the signatures of its own users."""
        found: dict[User, bytes] = {}
        for own in plan.plans:
            signatures = [self._commitments[plan.index(user)][1] for user in own.users]
            message = wire.encode(wire.CohortReveals(wire.WIRE_VERSION, self._context, nonces, signatures))
            found |= dict.fromkeys(own.users, message)
        return found

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
    def _keep(kept: dict[int, Any], user: User, index: int, value: Any) -> bool:
        known = index in kept
        if kept.setdefault(index, value) != value:
            raise FaultyUserError(user, "sent two different messages of one kind")
        return not known


_KEPT: dict[_Step, tuple[bool, bool, bool]] = {
    "commit": (False, False, False),
    "reveal": (True, False, False),
    "finish": (True, True, True),
    "done": (False, True, True),
}
"""By what comes next, whether a nonce is kept, everybody's commitments, and the answer to them."""


def _fits(saved: _Saved, charter: Charter) -> bool:
    """Whether what was saved is what is kept before that step. One that a malicious server has ended has no nonce."""
    seen = bool(saved.commitments)
    if seen and [len(one) for one in saved.commitments] != [hashing.DIGEST_SIZE] * len(charter.plan.users):
        return False
    if saved.expected == "nothing":
        return saved.nonce is None and saved.answered is None
    if (saved.nonce is not None, seen, saved.answered is not None) != _KEPT[saved.expected]:
        return False
    if saved.nonce is None:
        return True
    own = commit_to(charter.context, saved.user, saved.nonce)
    return len(saved.nonce) == NONCE_SIZE and (not seen or saved.commitments[saved.user] == own)


def _class_of(plan: Plan | CohortPlan, user: User) -> int:
    """The class of a user; in whichever cohort it is, that is the same."""
    own = plan.plan_of(user) if isinstance(plan, CohortPlan) else plan
    return own.subgroups[own.subgroup_of(user)].user_class
