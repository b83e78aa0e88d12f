"""The client mod: a node's side of the protocol around the app's own train and evaluate functions.

A node may run in a new process for every message, so its clients (one for each round whose secrets it still needs, at
most two) are saved in the run's Context between trips. A round is erased with the node's last answer in it or with its
first refusal, and when a later round is the lowest that a trip names. Because Flower saves the Context only after a
reply is sent, and may run two messages at once, "shared, masked and released once" rests on a release log on the node's
disk instead.

Guarantees: a message without our record is refused, so that an update or a metric never leaves in plaintext because the
server forgot its side; each part of a trip is answered or refused alone, and a refusal erases its round's secrets, but
for a message to mask that may be a replayed one; an error tells the server a fixed text.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from logging import ERROR
from pathlib import Path
from typing import Any, get_args

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable, Mod
from flwr.common.constant import ErrorCode
from flwr.common.logger import log

from heterosag.choices import AssignmentName, EvaluationName
from heterosag.crypto.identity import Identity
from heterosag.errors import (
    BudgetError,
    ExposedUsersError,
    FaultyServerError,
    HeteroSagError,
    LocalFileError,
    PlanError,
    UsageError,
    WireError,
)
from heterosag.flower.enrolment import NodeEnrolment, erase_enrolment
from heterosag.flower.kept import Kept, in_simulation
from heterosag.flower.masking import Masking
from heterosag.flower.messages import (
    COMMIT,
    HELLO,
    RECORD,
    REVEAL,
    SAYS_MORE,
    TERMS,
    carried,
    is_evaluate,
    is_train,
    parts_to_fields,
    record_of,
    run_config_digest,
    run_digest,
    value,
    values,
)
from heterosag.flower.reports import TrainingError
from heterosag.plan import Plan, User
from heterosag.protocol.pipeline import ClientPipeline, Part
from heterosag.protocol.policy import Policy
from heterosag.protocol.transitions import Phase
from heterosag.storage.identities import load_directory, load_identity

__all__ = ["mod"]

_SECONDS_DIGITS = 2
"""What a node says of its time is no finer than this: enough for a report, too coarse for a clock on its secrets."""

_OPENING = ("plan", "session", *TERMS)
_PHASES = {phase.value for phase in Phase}
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def mod(
    *,
    identity: Identity | None = None,
    directory: Mapping[str, bytes] | None = None,
    trust_server: bool = False,
    policy: Policy | None = None,
    assignment: AssignmentName = "enrolled",
    evaluate: EvaluationName = "secure",
    release_log: str | Path | None = None,
    class_of: Callable[[Context], int] | None = None,
    weighted_by: Sequence[str] = ("num-examples",),
    hide_sets_below: int = 0,
) -> Mod:
    """A mod for `ClientApp(mods=[...])` that aggregates what the app trains securely.

    Args:
        identity: This node's identity. Left out, it is read from the file that the node config names as `heterosag-key`
            (an Ed25519 key, or the key of the SuperNode's own authentication).
        directory: Everybody's public keys by node id, pinned by you. Left out, they are read from the file that the
            node config names as `heterosag-directory` (JSON: node ids and public keys in hex).
        trust_server: Say True to run without identities.
        policy: What this node asks of a plan. A `max_epsilon` is counted over all runs under the identity, or without
            one under the name that the node config gives as `heterosag-name`.
        assignment: Who assigns nodes to subgroups, with identities: `enrolled`, the nodes draw it together, or
            `server`.
        evaluate: What becomes of evaluate messages: `secure` (metrics are summed over everybody, once between two
            rounds of training), `off`, or `plaintext` (the server sees every node's metrics, and must ask for them:
            `SecureGrid(plaintext_evaluation=True)`).
        release_log: A folder that outlives the node (default: HETEROSAG_RELEASES, or .local/state/heterosag in the home
            folder; in Flower's simulation none, unless `hide_sets_below` needs one).
        class_of: The node's class from its Context; without it the class or upload rate is read from its node config,
            `heterosag-class` (0 is the slowest) or `heterosag-rate` (Mb/s).
        weighted_by: Names of the train function's metrics that the server may take as this node's weight.
        hide_sets_below: Refuse rounds of training that, with those before, would reveal the sum of fewer users than
            this; evaluations are not counted.

    Returns:
        The mod.
    """
    node = _Node(
        identity=identity,
        directory=None if directory is None else {str(node): key for node, key in directory.items()},
        trust_server=trust_server,
        policy=policy or Policy(),
        assignment=_choice("assignment", assignment, get_args(AssignmentName)),
        evaluate=_choice("evaluate", evaluate, get_args(EvaluationName)),
        class_of=class_of,
        weighted_by=frozenset(weighted_by),
        kept=Kept(None if release_log is None else Path(release_log), hide_sets_below),
    )

    def aggregate_securely(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        if is_evaluate(message) and record_of(message) is None and node.evaluate == "plaintext":
            return call_next(message, context)
        began, training = time.perf_counter(), 0.0

        def timed(to_train: Message, own: Context) -> Message:
            nonlocal training
            start = time.perf_counter()
            try:
                return call_next(to_train, own)
            finally:
                training += time.perf_counter() - start

        try:
            fields = node.answer(message, context, timed)
            errors = fields.get("errors", [])
            if errors and all(errors):
                return Message(Error(code=ErrorCode.MOD_FAILED_PRECONDITION, reason=errors[0]), reply_to=message)
            fields["seconds"] = round(max(time.perf_counter() - began - training, 0.0), _SECONDS_DIGITS)
            return Message(RecordDict({RECORD: carried(fields)}), reply_to=message)
        except HeteroSagError as error:
            _erase(context)
            return Message(Error(code=ErrorCode.MOD_FAILED_PRECONDITION, reason=_tell(error)), reply_to=message)
        except BaseException:
            _erase(context)
            raise

    return aggregate_securely


_TOLD: dict[type[HeteroSagError], str] = {
    LocalFileError: "a file that this node needs cannot be used",
    PlanError: "the plan is below this node's policy",
    FaultyServerError: "this node must not answer the server's message",
    WireError: "the server's message does not decode",
    BudgetError: "this node's privacy budget does not allow this round",
    ExposedUsersError: "this round would, with those before, expose a small set of users",
    TrainingError: "the app's function failed, or returned what cannot be aggregated",
    UsageError: "this node cannot take part as it is set up",
}
"""What the server is told of an error: a fixed text, since the error itself may hold private numbers."""


def _tell(error: HeteroSagError) -> str:
    """The fixed text of an error for the server; what it says itself is this node's own business, and in its log."""
    log(ERROR, "%s: %s", type(error).__name__, error)
    kind = next((kind for kind in _TOLD if isinstance(error, kind)), HeteroSagError)
    return f"{kind.__name__}: {_TOLD.get(kind, 'an error')}{SAYS_MORE}"


def _erase(context: Context) -> None:
    context.state.pop(RECORD, None)
    erase_enrolment(context)


def _choice(name: str, chosen: Any, known: Sequence[str]) -> Any:
    if chosen not in known:
        raise UsageError(f"{name} is one of {', '.join(known)}, not {chosen!r}")
    return chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """What a node knows for good."""

    identity: Identity | None
    directory: dict[User, bytes] | None
    trust_server: bool
    policy: Policy
    assignment: AssignmentName
    evaluate: EvaluationName
    class_of: Callable[[Context], int] | None
    weighted_by: frozenset[str]
    kept: Kept

    def answer(self, message: Message, context: Context, call_next: ClientAppCallable) -> dict[str, Any]:
        """The fields of this node's reply to a trip."""
        record = record_of(message)
        if record is None or not (is_train(message) or is_evaluate(message)):
            raise FaultyServerError(
                "asked for something in plaintext: this node has the heterosag mod, so its server must use SecureGrid"
            )
        if message.metadata.run_id != context.run_id:  # the app sees both, and its node binds one
            raise FaultyServerError(
                f"a message of run {message.metadata.run_id} in the Context of run {context.run_id}"
            )
        parts = _parts_of(record)
        stage = parts[0][1]
        if stage == HELLO:
            return self._link(context)
        if stage == COMMIT:
            check = partial(self._check_opening, context, opening=record)
            return {"message": self._enrolment(context).commit(record, check)}
        if stage == REVEAL:
            return {"message": self._enrolment(context).reveal(parts[0][2])}
        unknown = [stage for _, stage, _ in parts if stage not in _PHASES]
        if unknown:
            raise FaultyServerError(f"no stage is called {unknown[0]!r}")
        chosen = [Part(number=number, phase=Phase(stage), message=data) for number, stage, data in parts]
        return self._answer_rounds(message, context, call_next, record, chosen)

    # --- rounds -----------------------------------------------------------------------------------------------------

    def _answer_rounds(
        self,
        message: Message,
        context: Context,
        call_next: ClientAppCallable,
        record: ConfigRecord,
        parts: list[Part],
    ) -> dict[str, Any]:
        """Answer each part of a trip, and keep the clients that are still needed."""
        kept: dict[str, Any] = dict(context.state.config_records.get(RECORD) or {})
        if any(part.phase is Phase.ADVERTISE for part in parts):
            opening = {name: record[name] for name in _OPENING if name in record}
            if {name: kept.get(name) for name in opening} != opening:  # another session, plan or terms: forget all
                kept = opening
        if not kept:
            raise FaultyServerError(f"asked to {parts[0].phase.value} without having advertised in this round")
        plan = Plan.decode(value(kept, "plan", bytes, sender="server"))
        self._check_opening(context, plan, kept)
        if "reveals" in record:
            self._enrolment(context).finish(plan, value(record, "reveals", bytes, sender="server"))
        self._check_assignment(context, plan)
        session = value(kept, "session", bytes, sender="server")
        rounds, clients = kept.get("rounds", []), kept.get("clients", [])
        saved: dict[int, bytes] = dict(zip(rounds, clients, strict=True))
        pipeline = ClientPipeline(plan, str(context.node_id), session, saved=saved, **self._options(context, plan))
        opened = {name: kept[name] for name in _OPENING if name in kept}
        masking = Masking(
            message=message,
            context=context,
            call_next=call_next,
            opening=opened,
            plan=plan,
            evaluate=self.evaluate,
            policy=self.policy,
            kept=self.kept,
        )
        context.state.pop(RECORD, None)  # not the app's business
        answers = pipeline.answer(parts, masking.mask)
        saved = pipeline.save()
        context.state[RECORD] = ConfigRecord(opened | {"rounds": list(saved), "clients": list(saved.values())})
        return {
            **parts_to_fields((one.number, one.phase.value, one.message) for one in answers),
            "errors": ["" if one.error is None else _tell(one.error) for one in answers],
            "run": run_digest(context),
            "run-config": run_config_digest(context.run_config),
            "evaluate": self.evaluate,
            "metrics": masking.names,
        }

    def _check_opening(self, context: Context, plan: Plan, opening: Mapping[str, Any]) -> None:
        """Refuse a plan or terms that this node does not take part under."""
        user = str(context.node_id)
        if user not in plan.users:
            raise FaultyServerError("the plan does not have this node among its users")
        named = self._link(context).get("class")
        classes = values(opening, "classes", int, sender="server") if "classes" in opening else []
        if named is not None and classes:  # the server asked: these are the classes, as nodes name them, in the plan's
            mine = plan.subgroups[plan.subgroup_of(user)].user_class
            if mine >= len(classes) or classes[mine] > named:  # a slower one sends no more bits than its own
                raise FaultyServerError(f"the plan puts this node into a faster class than {named}, which it named")
        weighted_by = value(opening, "weighted-by", str, sender="server")
        if plan.max_weight > 1 and weighted_by not in self.weighted_by:
            raise FaultyServerError(f"asked for {weighted_by!r} as its weight, which this node does not allow")
        self.kept.memory(context).check_epoch(self.policy, plan)

    def _check_assignment(self, context: Context, plan: Plan) -> None:
        """With identities, refuse subgroups or neighbours that the nodes did not draw together."""
        if self._identity(context)[0] is None or not plan.assignment_matters or self.assignment == "server":
            return
        if self.policy.frame is None and not self.kept.memory(context).has_enrolled(plan):
            raise FaultyServerError(
                "the server has assigned the nodes to subgroups by itself; this node takes part in what the nodes drew "
                "together, in a plan that its policy pins, or if mod(assignment='server') allows it"
            )

    def _options(self, context: Context, plan: Plan) -> dict[str, Any]:
        """What every client of this node is made with."""
        identity, directory = self._identity(context)
        return {
            "identity": identity,
            "directory": directory,
            "trust_server": self.trust_server,
            "policy": self.policy.for_enrolled(plan) if self.kept.memory(context).is_cohort(plan) else self.policy,
            "release_log": self.kept.release_log(context),
            "guard": self.kept.guard(context, plan),
            "budget": self.kept.budget(context, self._owner(context, identity)) if plan.noise_multiplier else None,
        }

    def _owner(self, context: Context, identity: Identity | None) -> str:
        """Whose privacy budget is charged: the identity's, or that of the name that the node config gives."""
        if identity is not None:
            return f"key-{identity.public.hex()}"
        name = context.node_config.get("heterosag-name")
        if name is None:
            if self.policy.max_epsilon is not None and not in_simulation():
                raise UsageError(
                    "this node's policy has max_epsilon, and its id changes when it registers anew: give it an "
                    "identity, or a name of its own in its node config (heterosag-name)"
                )
            return str(context.node_id)
        if not _NAME.fullmatch(str(name)):
            raise UsageError(f"heterosag-name in the node config is 1 to 64 letters, digits, _ and -, not {name!r}")
        return f"name-{name}"

    def _enrolment(self, context: Context) -> NodeEnrolment:
        return NodeEnrolment(context=context, identify=self._identity, policy=self.policy, kept=self.kept)

    # --- who this node is -------------------------------------------------------------------------------------------

    def _identity(self, context: Context) -> tuple[Identity | None, dict[User, bytes] | None]:
        """Who this node is and whom it knows: as the app says, or from the files that the node config names."""
        identity, directory = self.identity, self.directory
        key, known = context.node_config.get("heterosag-key"), context.node_config.get("heterosag-directory")
        if identity is None and key is not None:
            identity = load_identity(Path(str(key)))
        if directory is None and known is not None:
            directory = load_directory(Path(str(known)))
        return identity, directory

    def _link(self, context: Context) -> dict[str, Any]:
        """What this node says of its link: its class, or its rate, or nothing."""
        config = context.node_config
        if self.class_of is not None:
            return {"class": int(self.class_of(context))}
        for name, kind in (("heterosag-class", int), ("heterosag-rate", float)):
            if name in config:
                try:
                    return {name.removeprefix("heterosag-"): kind(config[name])}
                except ValueError:
                    what = "a class's number, 0 for the slowest" if kind is int else "a rate in Mb/s"
                    raise UsageError(f"{name} in the node config is {what}, not {config[name]!r}") from None
        return {}


def _parts_of(record: ConfigRecord) -> list[tuple[int, str, bytes]]:
    """The parts of a trip as the server sent them; how many there may be, the pipeline says."""
    rounds = values(record, "rounds", int, sender="server")
    stages = values(record, "stages", str, sender="server")
    messages = values(record, "messages", bytes, sender="server")
    if not len(rounds) == len(stages) == len(messages) > 0:
        raise WireError("rounds, stages and messages of a trip are lists of one length", sender="server")
    return list(zip(rounds, stages, messages, strict=True))
