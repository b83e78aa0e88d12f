"""The mask phase on a node: the app's function is run on what everybody sees, and what it returns is masked.

Guarantees: the app's function is run only if the node has worked out itself that it sees what the server says everybody
sees, only on ranges and models that its policy allows, and only when nothing is left to refuse but what the function
does: the phase, the inbox and the budget are checked before, and the model is counted. What the function returns leaves
the node masked, but for the names of metrics; the words of its errors do not leave the node. Under noise not even that
it failed does: noise goes in the place of its update, and is charged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from logging import ERROR
from traceback import format_exc, format_exception_only
from typing import Any

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp.typing import ClientAppCallable
from flwr.common.logger import log

from heterosag.choices import EvaluationName
from heterosag.errors import FaultyServerError, HeteroSagError, WireError
from heterosag.flower.kept import Kept
from heterosag.flower.messages import (
    RECORD,
    arrays_of,
    is_evaluate,
    model_digest,
    round_digest,
    run_digest,
    value,
    values,
)
from heterosag.flower.reports import TrainingError, fill_slots, find_weight, numbers_of
from heterosag.flower.selection import Selection, pairs_of
from heterosag.plan import Plan
from heterosag.protocol import Client, RoundId
from heterosag.protocol.pipeline import Part
from heterosag.protocol.policy import Policy
from heterosag.protocol.transitions import ClientPhase
from heterosag.protocol.update import Update
from heterosag.simulation.workers import all_cores

__all__ = ["Masking"]


@dataclass(slots=True, kw_only=True)
class Masking:
    """The part of a trip that runs the app's function, and masks what it returns.

    Args:
        message: The trip's message.
        context: The run's Context.
        call_next: The app's function.
        opening: What the server opened the round with: session, plan and terms.
        plan: The plan among that.
        evaluate: What becomes of evaluate messages on this node.
        policy: What this node asks of ranges and models.
        kept: What this node keeps.

    `names` are those of the metrics that the function returned.
    """

    message: Message
    context: Context
    call_next: ClientAppCallable
    opening: Mapping[str, Any]
    plan: Plan
    evaluate: EvaluationName
    policy: Policy
    kept: Kept
    names: list[str] = field(default_factory=list)

    def mask(self, client: Client, part: Part) -> bytes:
        """Phase 2: settle the round with what the app's function will see, run it, and mask what it returns.

        The node looks at that by itself: one that sees anything else than the others masks under another context, and
        cannot be combined with them.
        """
        record = self.message.content.config_records[RECORD]
        del self.message.content[RECORD]
        evaluating = is_evaluate(self.message)
        if evaluating and self.evaluate != "secure":
            raise FaultyServerError(f"asked to evaluate, which is {self.evaluate!r} on this node")
        model = round_digest(self.message, self.opening, run_digest(self.context))
        if model != value(record, "model", bytes, sender="server"):
            raise FaultyServerError(
                "the model, its configuration, the run's configuration, its series, the message's type or its group is "
                "not what the server says everybody sees"
            )
        plan = self._settle(client, part.number, record, model, evaluating)
        if client.phase is ClientPhase.MASKED:  # the same message again: the same answer, and nothing is trained
            return client.mask(part.message, np.zeros(client.plan.dimension))
        terms = self._open(evaluating)
        client.check_inbox(part.message)
        memory = self.kept.memory(self.context)
        if terms.selection is None:
            memory.note_evaluation()
        else:
            digest = model_digest(self.message.content)
            memory.note_round(self.policy, plan, digest, terms.selection.names, weight_unit=max(1, terms.unit))
        return self._run_and_mask(client, part.message, terms)

    def _settle(self, client: Client, number: int, record: Mapping[str, Any], model: bytes, evaluating: bool) -> Plan:
        ends, scales = (values(record, name, float, sender="server", may_be_empty=True) for name in ("range", "scales"))
        if len(ends) != 2:
            raise WireError("a value range has two ends", sender="server")
        plan = self.plan.with_value_range((ends[0], ends[1]), scales)
        session = value(self.opening, "session", bytes, sender="server")
        client.settle(plan, RoundId(session=session, number=number, model=model, metrics_only=evaluating))
        return plan

    def _open(self, evaluating: bool) -> _Terms:
        """What the round's terms say of the function's reply, checked before the function is run."""
        unit = value(self.opening, "weight-unit", int, sender="server")
        if self.plan.max_weight > 1 and unit < 1:
            raise FaultyServerError(f"a weight is counted in units of at least one example, not {unit}")
        exclude, tied, wanted = (
            values(self.opening, name, str, sender="server", may_be_empty=True)
            for name in ("exclude", "tied", "metrics")
        )
        selection = None
        if not evaluating:
            model = arrays_of(self.message.content, "a train message")[1]
            selection = Selection(model=model, exclude=exclude, tied=pairs_of(tied))
            size = sum(selection.layout.sizes)
            if size != self.plan.dimension:
                raise FaultyServerError(f"a model of {size} elements under a plan of {self.plan.dimension}")
        weighted_by = value(self.opening, "weighted-by", str, sender="server")
        return _Terms(selection=selection, wanted=wanted, weighted_by=weighted_by, unit=unit)

    def _run_and_mask(self, client: Client, inbox: bytes, terms: _Terms) -> bytes:
        names: list[str] = []
        try:
            update, names = self._run(client.plan, terms)
        except TrainingError as error:
            if not self.plan.noise_multiplier:
                raise
            log(ERROR, "noise goes in the place of this node's update: %s", error)
            update = Update.of(client.plan, np.full(client.plan.dimension, np.nan), 1, {})
        with np.errstate(all="ignore"):  # the app may have made numpy raise, which would tell what the update holds
            masked = client.mask(inbox, update, parallel_map=all_cores())
        self.names += names
        return masked

    def _run(self, plan: Plan, terms: _Terms) -> tuple[Update, list[str]]:
        """The update that the app's function returns, and the names of its metrics.

        Raises:
            TrainingError: It failed, was cancelled, ended the program, or returned what cannot be aggregated, whatever
                that is.
        """
        try:
            reply = self.call_next(self.message, self.context)
            with np.errstate(all="ignore"):
                return self._read(reply, plan, terms)
        except HeteroSagError as error:
            raise TrainingError(str(error)) from None
        except KeyboardInterrupt:  # whoever runs the node ends it
            raise
        except BaseException as error:  # whatever it is depends on the data: the server is not to tell apart
            log(ERROR, "the app's function failed:\n%s", format_exc())
            what = "".join(format_exception_only(error)).strip()
            raise TrainingError(f"the app's function failed, or returned what cannot be read: {what}") from None

    def _read(self, reply: Message, plan: Plan, terms: _Terms) -> tuple[Update, list[str]]:
        if reply.has_error():
            raise TrainingError(f"the app's function failed: {reply.error.reason}")
        numbers = numbers_of(reply)
        metrics, names = fill_slots(plan, numbers, wanted=terms.wanted, leave_out=terms.weighted_by)
        weight = find_weight(plan, numbers, terms.weighted_by, terms.unit)
        vector = np.empty(0)
        if terms.selection is not None:
            vector = terms.selection.update(arrays_of(reply.content, "a train reply")[1])
        return Update.of(plan, vector, weight, metrics), names


@dataclass(frozen=True, slots=True, kw_only=True)
class _Terms:
    """What the app's function is run for: `selection` of a round of training, and what its numbers mean."""

    selection: Selection | None
    wanted: list[str]
    weighted_by: str
    unit: int
