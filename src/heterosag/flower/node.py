"""The client mod: a node's side of the protocol around the user's own train function.

A node may run in a new process for every message, so the client is saved in the run's Context between stages. It is
erased with the node's last answer of a round or its first failure, at the latest when the next round opens. Because
Flower saves the Context only after a reply is sent, and may run two messages at once, "shared, masked and released
once" rests on a release log on the node's disk instead.

Guarantees: a train message without our stages is refused, so that an update never leaves in plaintext because the
server forgot its side; every stage that fails answers with an error that says why and erases the round's secrets.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from logging import ERROR, WARNING
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp.typing import ClientAppCallable, Mod
from flwr.common.constant import ErrorCode
from flwr.common.logger import log

from heterosag.crypto.identity import Identity
from heterosag.errors import (
    ExposedUsersError,
    FaultyServerError,
    HeteroSagError,
    LocalFileError,
    PlanError,
    UsageError,
    WireError,
)
from heterosag.flower.messages import (
    HELLO,
    RECORD,
    SURROUNDINGS,
    TERMS,
    arrays_of,
    is_train,
    record_of,
    round_digest,
    run_config_digest,
    surroundings_of,
    value,
)
from heterosag.plan import Plan, User
from heterosag.protocol import Client, RoundId
from heterosag.protocol.policy import Policy
from heterosag.protocol.transitions import Phase
from heterosag.simulation.workers import all_cores
from heterosag.storage.identities import load_directory, load_identity
from heterosag.storage.ledger_file import LedgerFile
from heterosag.storage.release_log import FileReleaseLog
from heterosag.storage.run_file import RunFile
from heterosag.vector.arrays import Layout

__all__ = ["mod"]

_SECONDS_DIGITS = 2
"""What a node says of its time is no finer than this: enough for a report, too coarse for a clock on its secrets."""

_ROUND = ("plan", "session", "round", *TERMS)


class TrainingError(UsageError):
    """The train function failed, or returned what cannot be aggregated."""


def mod(
    *,
    identity: Identity | None = None,
    directory: Mapping[str, bytes] | None = None,
    trust_server: bool = False,
    policy: Policy | None = None,
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
        policy: What this node asks of a plan.
        release_log: A folder that outlives the node (default: HETEROSAG_RELEASES, or .local/state/heterosag in the home
            folder).
        class_of: The node's class from its Context; without it the class or upload rate is read from its node config,
            `heterosag-class` (0 is the slowest) or `heterosag-rate` (Mb/s).
        weighted_by: Names of the train function's metrics that the server may take as this node's weight.
        hide_sets_below: Refuse rounds that, with those before, would show the sum of fewer users than this.
    """
    node = _Node(
        identity=identity,
        directory=None if directory is None else {str(node): key for node, key in directory.items()},
        trust_server=trust_server,
        policy=policy,
        class_of=class_of,
        weighted_by=frozenset(weighted_by),
        hide_sets_below=hide_sets_below,
        releases=Path(release_log or os.environ.get("HETEROSAG_RELEASES") or Path.home() / ".local/state/heterosag"),
    )

    def aggregate_securely(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        if not is_train(message):
            return call_next(message, context)
        began, training = time.perf_counter(), 0.0

        def train(to_train: Message, own: Context) -> Message:
            nonlocal training
            start = time.perf_counter()
            try:
                return call_next(to_train, own)
            finally:
                training += time.perf_counter() - start

        try:
            reply = node.answer(message, context, train)
            record = reply.content.config_records[RECORD]
            record["seconds"] = round(max(time.perf_counter() - began - training, 0.0), _SECONDS_DIGITS)
            return reply
        except HeteroSagError as error:
            _erase(context)
            log(ERROR, "%s: %s", type(error).__name__, error)  # what it says may be this node's own business
            return Message(Error(code=ErrorCode.MOD_FAILED_PRECONDITION, reason=_told(error)), reply_to=message)
        except Exception as error:  # whatever the app raised: its words are this node's own business too
            _erase(context)
            log(ERROR, "%s: %s", type(error).__name__, error)
            told = _told(TrainingError(""))
            return Message(Error(code=ErrorCode.MOD_FAILED_PRECONDITION, reason=told), reply_to=message)
        except BaseException:
            _erase(context)
            raise

    return aggregate_securely


_TOLD: dict[type[HeteroSagError], str] = {
    LocalFileError: "a file that this node needs cannot be used",
    PlanError: "the plan is below this node's policy",
    FaultyServerError: "this node must not answer the server's message",
    WireError: "the server's message does not decode",
    ExposedUsersError: "this round would, with those before, expose a small set of users",
    TrainingError: "the train function failed, or returned what cannot be aggregated",
    UsageError: "this node cannot take part as it is set up",
}
"""What the server is told of an error: a fixed text, since the error itself may hold private numbers."""


def _told(error: HeteroSagError) -> str:
    kind = next((kind for kind in _TOLD if isinstance(error, kind)), HeteroSagError)
    return f"{kind.__name__}: {_TOLD.get(kind, 'an error')}; the node's own log says more"


def _erase(context: Context) -> None:
    context.state.pop(RECORD, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """What a node knows for good."""

    identity: Identity | None
    directory: dict[User, bytes] | None
    trust_server: bool
    policy: Policy | None
    class_of: Callable[[Context], int] | None
    weighted_by: frozenset[str]
    hide_sets_below: int
    releases: Path

    def answer(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """This node's reply to a stage."""
        record = record_of(message)
        if record is None:
            raise FaultyServerError(
                "asked to train in plaintext: this node has the heterosag mod, so its server must use SecureGrid"
            )
        stage = value(record, "stage", str, sender="server")
        if stage == HELLO:
            return _reply(message, self._link(context))
        if stage not in {phase.value for phase in Phase}:
            raise FaultyServerError(f"no stage is called {stage!r}")
        phase = Phase(stage)
        if phase is Phase.ADVERTISE:
            return self._advertise(message, context, record)
        kept = context.state.config_records.get(RECORD)
        if kept is None:
            raise FaultyServerError(f"asked to {stage} without having advertised in this round")
        client = self._client(context, kept, saved=value(kept, "client", bytes, sender="context"))
        data = value(record, "message", bytes, sender="server")
        if phase is Phase.MASK:
            reply = self._mask(client, data, message, context, call_next, kept)
        else:
            reply = client.answer(phase, data)
        if phase is Phase.UNMASK:
            _erase(context)
        else:
            context.state[RECORD] = ConfigRecord({**kept, "client": client.save()})
        return _reply(message, {"message": reply})

    def _advertise(self, message: Message, context: Context, record: ConfigRecord) -> Message:
        """Phase 0: forget any round before, check the plan, draw keys."""
        _erase(context)
        kept = ConfigRecord({name: record[name] for name in _ROUND if name in record})
        client = self._client(context, kept)
        reply = client.advertise()
        context.state[RECORD] = ConfigRecord({**kept, "client": client.save()})
        seen = surroundings_of(message, context.run_id, context.run_config)
        config = run_config_digest(context.run_config)
        return _reply(message, {"message": reply, SURROUNDINGS: seen, "run-config": config})

    def _client(self, context: Context, kept: Mapping[str, Any], *, saved: bytes | None = None) -> Client:
        """The client of the round, fresh or as it was saved."""
        round_id = _round_id(kept)
        plan = Plan.decode(value(kept, "plan", bytes, sender="server"))
        user = str(context.node_id)
        if user not in plan.users:
            raise FaultyServerError("the plan does not have this node among its users")
        named, classes = self._link(context).get("class"), list(kept.get("classes", ()))
        if named is not None and classes:  # the server asked: these are the classes, as nodes name them, in the plan's
            mine = plan.subgroups[plan.subgroup_of(user)].user_class
            if mine >= len(classes) or classes[mine] != named:
                raise FaultyServerError(f"the plan puts this node into another class than {named}, which it named")
        weighted_by = value(kept, "weighted-by", str, sender="server")
        if plan.max_weight > 1 and weighted_by not in self.weighted_by:
            raise FaultyServerError(f"asked for {weighted_by!r} as its weight, which this node does not allow")
        RunFile(self.releases / user, context.run_id).check(self.policy or Policy(), plan, round_id)
        identity, directory = self._identity(context)
        options: dict[str, Any] = {
            "identity": identity,
            "directory": directory,
            "trust_server": self.trust_server,
            "policy": self.policy,
            "release_log": FileReleaseLog(self.releases / user),
            "guard": self._ledger(plan, user),
        }
        if saved is not None:
            return Client.restore(saved, plan, user, round_id, **options)
        return Client(plan, user, round_id, **options)

    def _ledger(self, plan: Plan, user: str) -> LedgerFile | None:
        return LedgerFile(self.releases / user, plan, sets_below=self.hide_sets_below) if self.hide_sets_below else None

    def _mask(
        self,
        client: Client,
        data: bytes,
        message: Message,
        context: Context,
        call_next: ClientAppCallable,
        kept: Mapping[str, Any],
    ) -> bytes:
        """Phase 2: train on the model that the round is about, then mask what training changed.

        The round is settled with what this node's train function will see, by its own eyes: a node that sees anything
        else than the others masks under another context, and cannot be combined with them.
        """
        plan = client.plan
        record = message.content[RECORD]
        del message.content[RECORD]
        _, before = arrays_of(message.content, "a train message")
        seen = surroundings_of(message, context.run_id, context.run_config)
        model = round_digest(message.content, kept, seen)
        if model != value(record, "model", bytes, sender="server"):
            raise FaultyServerError(
                "the model, its configuration, the run's configuration, the message's type or its group is not what "
                "the server says everybody sees"
            )
        client.settle(plan, replace(_round_id(kept), model=model))
        RunFile(self.releases / str(context.node_id), context.run_id).note(plan, _round_id(kept))
        state = dict(context.state.config_records)
        trained = call_next(message, context)
        if trained.has_error():
            raise TrainingError(f"the train function failed: {trained.error.reason}")
        context.state[RECORD] = state[RECORD]  # whatever the train function did to the state
        _, after = arrays_of(trained.content, "a train reply")
        layout = Layout.of(before)
        vector = np.asarray(layout.flatten(after) - layout.flatten(before))
        metrics = _metrics_of(trained)
        weight = self._weight(plan, metrics, kept)
        wanted = {name: float(_known(metrics, name)) for name in plan.metrics}
        return client.mask(data, vector, weight=weight, metrics=wanted, parallel_map=all_cores())

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

    @staticmethod
    def _weight(plan: Plan, metrics: Mapping[str, Any], kept: Mapping[str, Any]) -> int:
        """This node's weight: its examples in units, at least one; 1 where the plan is unweighted."""
        if plan.max_weight == 1:
            return 1
        unit: int = value(kept, "weight-unit", int, sender="server")
        if unit < 1:
            raise FaultyServerError(f"a weight is counted in units of at least one example, not {unit}")
        examples = _known(metrics, value(kept, "weighted-by", str, sender="server"))
        if not math.isfinite(examples):
            raise TrainingError(f"the number of examples is {examples}")
        weight = max(1, round(examples / unit))
        if weight > plan.max_weight:  # capped, never refused: a refusal would tell the server about the weight
            log(
                WARNING,
                "this node's weight of %d is capped at the plan's max_weight of %d: a larger max_weight or weight_unit "
                "on the SecureGrid would let it count in full",
                weight,
                plan.max_weight,
            )
        return min(weight, plan.max_weight)


def _round_id(kept: Mapping[str, Any]) -> RoundId:
    """The round that was opened; its model comes when it is settled."""
    session = value(kept, "session", bytes, sender="server")
    return RoundId(session=session, number=value(kept, "round", int, sender="server"))


def _metrics_of(message: Message) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for record in message.content.metric_records.values():
        if isinstance(record, MetricRecord):
            found |= dict(record)
    return found


def _known(metrics: Mapping[str, Any], name: str) -> float:
    found = metrics.get(name)
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise TrainingError(f"the train function's metrics have no single number {name!r}, which the server asked for")
    return found


def _reply(message: Message, fields: Mapping[str, Any]) -> Message:
    return Message(RecordDict({RECORD: ConfigRecord(dict(fields))}), reply_to=message)
