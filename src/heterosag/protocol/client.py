"""The client of a round: a user's side of the protocol as a machine without I/O, clock or threads.

It takes the steps of steps.py in order: it answers an identical message with the identical reply, refuses a different
one for a step it has taken, and dies, forgetting its secrets, on a message that only a malicious server sends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from heterosag.crypto.hashing import digest
from heterosag.crypto.identity import Identity, check_identity, check_one_user_each
from heterosag.crypto.keys import RoundSecrets
from heterosag.crypto.secret import Secret
from heterosag.errors import ExposedUsersError, FaultyServerError, HeteroSagError, UsageError, WireError
from heterosag.plan import Plan, User
from heterosag.protocol import client_state, steps
from heterosag.protocol.budget import Budget
from heterosag.protocol.cells import ParallelMap
from heterosag.protocol.context import RoundId
from heterosag.protocol.guard import Guard
from heterosag.protocol.policy import Policy
from heterosag.protocol.release_log import MemoryReleaseLog, ReleaseLog, RoundReleaseLog
from heterosag.protocol.rounding import Rounding
from heterosag.protocol.steps import Advertised, Fresh, Masked, Polynomials, Shared
from heterosag.protocol.transitions import CLIENT_TRANSITIONS, ClientPhase, Phase
from heterosag.protocol.update import Update, checksum

__all__ = ["Client", "Directory", "Polynomials"]

Directory = Mapping[User, bytes]
"""Every user's Ed25519 public key, pinned by the client itself, never taken from the server."""


class Client(Secret):
    """One user in one round. Feed it the server's messages in order; send what it returns.

    Args:
        plan: The plan of the round.
        user: Which of its users this is.
        round_id: Which round this is, of which session, on which model.
        identity: This user's signing key.
        directory: Everybody's public keys, as this user pinned them.
        trust_server: True to go without identities, trusting the server to follow the protocol.
        policy: What this user asks of a plan; one below it is refused here.
        release_log: Remembers what was shared, masked, signed and released, so that it is done once; give one that
            outlives the program (`heterosag.storage.release_log.FileReleaseLog`) where a client may be restarted.
        guard: Refuses survivor sets because of rounds before, such as a `heterosag.ledger.Ledger` that is kept from
            round to round; it learns of the rounds in which this client is asked to sign or to release. A round of
            metrics alone, which are summed over everybody, is not counted.
        budget: Remembers what rounds with noise have cost this user, and refuses the one beyond its policy; give one
            that outlives the program (`heterosag.storage.budget.FileBudget`).
        settled: False where the round's value range and model are not known yet: nothing is masked before `settle`.

    `before` is the plan of the last round that this user masked an update in, if it is known: `settle` refuses a value
    range that is too far from it, as the policy's `max_range_change` says. `ClientPipeline` keeps it.

    Raises:
        UsageError: Neither an identity with a directory nor `trust_server` was given, or they do not fit the plan; or
            the policy has a `max_epsilon` and there is no budget.
        PlanError: The plan is below the policy.

    Guarantees: a message that only a malicious server sends raises `FaultyServerError`, and the client is dead: it has
    forgotten its secrets. One that merely comes out of order raises it too and changes nothing; bytes that do not
    decode raise `WireError` and change nothing, unless the step is taken: then they are a second, different message. An
    identical message gets the identical answer. With noise, no masked vector is given out before its round is charged
    to the budget, and `BudgetError` is raised instead of the vector beyond it.

    Example:
        >>> from heterosag import Client, Plan, Server
        >>> from heterosag.protocol import RoundId
        >>> plan = Plan.build([8], [16], 10, value_range=0.5, subgroup_size=4)
        >>> this_round = RoundId(session=b"training of Monday", number=1)
        >>> server = Server(plan, this_round)
        >>> client = Client(plan, 0, this_round, trust_server=True)
        >>> server.receive(0, client.answer("advertise", b""))
        True
        >>> client
        <Client of 0, advertised>
    """

    def __init__(
        self,
        plan: Plan,
        user: User,
        round_id: RoundId,
        *,
        identity: Identity | None = None,
        directory: Directory | None = None,
        trust_server: bool = False,
        policy: Policy | None = None,
        release_log: ReleaseLog | None = None,
        guard: Guard | None = None,
        budget: Budget | None = None,
        settled: bool = True,
    ) -> None:
        (policy or Policy()).check(plan, directory=directory, settled=settled)
        if (identity is None) != (directory is None):
            raise UsageError("an identity needs the directory of everybody's public keys, and the other way round")
        if identity is None and not trust_server:
            raise UsageError(
                "without identities nothing protects against a malicious server: give identity and directory, or "
                "say trust_server=True"
            )
        known = None if directory is None else _directory(plan, directory)
        index = plan.index(user)
        if identity is not None and known is not None and known[index] != identity.public:
            raise UsageError(f"the directory's key of {user!r} is not the one of the identity given")
        self.user = user
        self.before: Plan | None = None
        self.phase = ClientPhase.FRESH
        context = round_id.context(plan)
        self._log = release_log or MemoryReleaseLog()
        if isinstance(self._log, RoundReleaseLog):
            self._log = self._log.of_round(round_id.session, round_id.number, context)
        self._guard = guard
        self._settled = settled
        self._policy = policy or Policy()
        self._budget = budget if plan.noise_multiplier else None
        if self._policy.max_epsilon is not None and budget is None:
            raise UsageError(
                "a policy with max_epsilon counts over rounds: give a budget that outlives them, such as a FileBudget"
            )
        self._directory = directory
        content, model = round_id.content(plan)
        self._base = Fresh(
            plan=content,
            user=index,
            context=context,
            model=model,
            identity=identity,
            directory=known,
        )
        self._state: Fresh | Advertised | Shared | Masked | None = self._base
        self._replies: client_state.Replies = {}
        self._masked: tuple[Any, ...] | None = None  # a checksum against mistakes of this user's own program

    def save(self) -> bytes:
        """This client as bytes, secrets in plaintext: for a program that ends between messages.

        Whoever uses it gives a release log that outlives the program, and erases the bytes after the round.
        """
        return client_state.save(self._base, self._state, self.phase.value, self._replies)

    @classmethod
    def restore(cls, saved: bytes, plan: Plan, user: User, round_id: RoundId, **options: Any) -> Client:
        """A client that goes on where a saved one stopped.

        Args:
            saved: What `save` returned.
            plan: The plan of the round, as the saved client had it.
            user: The user, likewise.
            round_id: The round, likewise.
            options: What else `Client` takes, likewise.

        Returns:
            The client, in the phase that the saved one was in.

        Raises:
            UsageError: The bytes were cut or changed, or belong to another plan, user or round.
        """
        client = cls(plan, user, round_id, **options)
        client._base, client._state, client.phase, client._replies = client_state.load(saved, client._base, plan)
        client._settled |= isinstance(client._state, Masked)
        return client

    def settle(self, plan: Plan, round_id: RoundId) -> None:
        """Take the round's value range and model, before anything is masked: they may come after its keys and shares.

        Args:
            plan: The plan of the round, another in nothing but the value range.
            round_id: The round itself, with the model.

        Raises:
            PlanError: The plan with this range is below the policy; the client is unchanged.
            FaultyServerError: The vector is masked already under another range or model, or this is another round or
                another plan; the client is unchanged.
        """
        if round_id.context(plan) != self._base.context:
            raise FaultyServerError("this is another round or plan: only the value range and the model may change")
        content, model = round_id.content(plan)
        if self._settled and (plan.digest, model) == (self._base.plan.digest, self._base.model):
            return
        if self.phase not in (ClientPhase.FRESH, ClientPhase.ADVERTISED, ClientPhase.SHARED):
            raise FaultyServerError("another value range or model than the one that this client masked under")
        before = None if round_id.metrics_only else self.before
        self._policy.check(plan, directory=self._directory, before=before)
        base = replace(self._base, plan=content, model=model)
        if isinstance(self._state, Advertised | Shared):
            self._state = replace(self._state, base=base)
        else:
            self._state = base
        self._base = base
        self._settled = True

    @property
    def plan(self) -> Plan:
        """The plan of the round."""
        return self._base.plan

    def answer(
        self,
        phase: Phase | str,
        message: bytes,
        vector: npt.NDArray[np.floating[Any]] | Update | None = None,
        **update: Any,
    ) -> bytes:
        """This user's reply in any phase: what a transport calls when a message arrives.

        Args:
            phase: The phase that the server's message asks for; the transport says it beside the message.
            message: The server's message; what it holds in the advertise phase does not matter.
            vector: The update, in the mask phase.
            update: What else `mask` takes: weight, metrics, rounding.

        Returns:
            The message to send back.

        Raises:
            UsageError: There is no such phase, or the mask phase was given no vector.
            FaultyServerError, WireError: As the step itself raises them.
        """
        names = [known.value for known in Phase]
        if phase not in names and phase not in list(Phase):
            raise UsageError(f"the phases are {', '.join(names)}, not {phase!r}")
        chosen = Phase(phase)
        if chosen is Phase.ADVERTISE:
            return self.advertise()
        if chosen is Phase.MASK:
            if vector is None:
                raise UsageError("the mask phase needs the update: give its vector")
            return self.mask(message, vector, **update)
        steps = {Phase.SHARE: self.share, Phase.AGREE: self.agree, Phase.UNMASK: self.unmask}
        return steps[chosen](message)

    def advertise(self, *, secrets: RoundSecrets | None = None) -> bytes:
        """Phase 0: this round's public keys, signed with an identity.

        Args:
            secrets: For test vectors; they come from the system's entropy unless given.

        Returns:
            The advertisement.
        """

        def step(state: Any) -> tuple[Any, bytes]:
            if self._budget is not None:
                self._budget.check(self.plan, self._policy)
            return steps.advertise(state, secrets or RoundSecrets.generate())

        return self._step("advertise", b"", step)

    def share(self, message: bytes, *, polynomials: Polynomials | None = None) -> bytes:
        """Phase 1: answer the roster with shares of this user's secrets, each sealed for its holder.

        Args:
            message: The roster.
            polynomials: For test vectors.

        Returns:
            The sealed shares.
        """

        def step(state: Any) -> tuple[Any, bytes]:
            drawn = polynomials or Polynomials.draw(state.base.plan, state.secrets)
            return steps.share(state, message, drawn, self._log)

        return self._step("share", message, step)

    def check_inbox(self, message: bytes) -> None:
        """Check the inbox and the budget before there is a vector: for a user who trains between the two.

        Whoever trains first and refuses the message afterwards tells the server whether training failed, of any model
        that it chooses and as often as it likes.

        Args:
            message: The inbox.

        Raises:
            FaultyServerError, WireError, BudgetError: What `mask` would raise for this message, with what it does to
                this client. One that has masked already refuses, where `mask` repeats its answer.
            UsageError: The round is not settled.
        """
        if not self._settled:
            raise UsageError("the round's value range and model are not known yet: settle comes before mask")
        self._reply_before("mask", message)  # raises for a second message, and for a late duplicate
        if self.phase is not ClientPhase.SHARED or not isinstance(self._state, Shared):
            raise FaultyServerError(f"asked to mask, which is not possible when {self.phase.value}")
        try:
            steps.check_inbox(self._state, message)
        except FaultyServerError:
            self._die()
            raise
        if self._budget is not None:
            self._budget.check(self.plan, self._policy)

    def mask(
        self,
        message: bytes,
        vector: npt.NDArray[np.floating[Any]] | Update,
        *,
        weight: int = 1,
        metrics: Mapping[str, float] | None = None,
        rounding: Rounding | None = None,
        clip: bool = True,
        parallel_map: ParallelMap = map,
    ) -> bytes:
        """Phase 2: answer the inbox with the masked vector. One vector a round.

        Args:
            message: The inbox.
            vector: It has the plan's dimension. An `Update`, which was checked when it was made, stands for weight and
                metrics too.
            weight: An integer from 1 to the plan's `max_weight`.
            metrics: The plan's metrics, by name.
            rounding: For simulations and test vectors; a deployment gives none.
            clip: False to play a malicious user; a deployment leaves it.
            parallel_map: Runs the pieces of a large vector: `heterosag.simulation.workers.all_cores()` for every core.

        Returns:
            The masked vector.

        Raises:
            UsageError: The update does not fit the plan, another one was masked before, or the round is not settled.
        """

        if self._policy.max_epsilon is not None and (rounding is not None or not clip):
            raise UsageError("noise from a given key, or none, has no privacy: this client's policy asks for epsilon")
        if not self._settled:
            raise UsageError("the round's value range and model are not known yet: settle comes before mask")
        if isinstance(vector, Update):
            vector.check_fits(self.plan)
            given = (vector.vector, vector.weight, vector.metrics)
        else:
            given = (vector, weight, dict(metrics or {}))
        fingerprint = checksum(*given)
        if self._masked is not None and self._masked != fingerprint:
            raise UsageError("this client has masked another vector in this round, and masks only one")

        def step(state: Any) -> tuple[Any, bytes]:
            update = vector if isinstance(vector, Update) else Update.of(self.plan, *given)
            if self._budget is not None:
                self._budget.check(self.plan, self._policy)
            after, reply = steps.mask(
                state, message, update, self._log, rounding=rounding, clip=clip, parallel_map=parallel_map
            )
            if self._budget is not None:
                try:
                    self._budget.charge(self.plan, self._policy)
                except HeteroSagError:  # the vector is claimed by now, and another one would have other noise
                    self._die()
                    raise
            return after, reply

        reply = self._step("mask", message, step)
        self._masked = fingerprint
        return reply

    def agree(self, message: bytes) -> bytes:
        """Phase 3, with identities only: sign the survivor set, once.

        Args:
            message: The survivor set.

        Returns:
            The signature.

        Raises:
            FaultyServerError: Only a malicious server sends this, or asks a client without identities for it.
        """
        if self._base.identity is None:
            raise FaultyServerError("asked to agree on survivors, which only users with identities do")
        guard = self._counted()
        reply = self._step("agree", message, lambda state: steps.sign_survivors(state, message, self._log, guard))
        self._forget_vector()
        return reply

    def unmask(self, message: bytes) -> bytes:
        """Phase 4: release one share of every dealer, of sigma_self if it survived and of sigma_mask if not, once.

        Args:
            message: The survivors, signed by a quorum where there are identities.

        Returns:
            The shares.
        """
        masked = isinstance(self._state, Masked) and self._state.base.identity is None
        event = "unmask, without identities" if masked and self.phase is ClientPhase.MASKED else "unmask"
        guard = self._counted()
        reply = self._step(event, message, lambda state: (None, steps.release(state, message, self._log, guard)))
        self._forget_vector()
        return reply

    def _counted(self) -> Guard | None:
        """The guard, where the round shows sums of blocks."""
        return self._guard if self.plan.segments else None

    def _forget_vector(self) -> None:
        """Once the server has gone on, the masked vector is not sent again: keep only what it answered."""
        self._replies |= {name: (answered, None) for name, (answered, _) in self._replies.items() if name == "mask"}

    def _answering(self, name: str, message: bytes) -> bytes:
        """What tells one message from another; for the mask step with the range and the model of the round."""
        settled = (self._base.plan.digest, self._base.model) if name == "mask" else ()
        return digest("client-message", message, *settled)

    def _reply_before(self, name: str, message: bytes) -> bytes | None:
        """What this client replied to this message; None if it has not taken the step."""
        if name not in self._replies:
            return None
        before, known = self._replies[name]
        if before != self._answering(name, message):
            self._die()
            raise FaultyServerError(f"the server sent a second, different message to {name}")
        if known is None:
            raise WireError(f"a late duplicate of the message to {name}", sender="server")
        return known

    def _step(self, event: str, message: bytes, step: Callable[[Any], tuple[Any, bytes]]) -> bytes:
        name = event.partition(",")[0]
        known = self._reply_before(name, message)
        if known is not None:
            return known
        if (self.phase, event) not in CLIENT_TRANSITIONS:
            raise FaultyServerError(f"asked to {name}, which is not possible when {self.phase.value}")
        after = CLIENT_TRANSITIONS[self.phase, event]
        try:
            self._state, reply = step(self._state)
        except (FaultyServerError, ExposedUsersError):
            self._die()
            raise
        self.phase = after
        self._replies[name] = (self._answering(name, message), reply)
        return reply

    def _die(self) -> None:
        """Forget every secret; what was released stays released, nothing more will be."""
        self._state = self._masked = None
        if self.phase is not ClientPhase.RELEASED:
            self.phase = ClientPhase.DEAD
            self._replies.clear()

    def __repr__(self) -> str:
        return f"<Client of {self.user!r}, {self.phase.value}>"


def _directory(plan: Plan, directory: Directory) -> dict[int, bytes]:
    missing = [user for user in plan.users if user not in directory]
    if missing:
        raise UsageError(f"the directory has no key for user {missing[0]!r} of the plan")
    for user in plan.users:
        check_identity(bytes(directory[user]))
    check_one_user_each((user, bytes(directory[user])) for user in plan.users)
    return {index: bytes(directory[user]) for index, user in enumerate(plan.users)}
