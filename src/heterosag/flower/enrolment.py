"""A node's part in an enrolment: it draws the assignment to subgroups together with the other nodes of an epoch.

What it must remember of the enrolment is in the run's Context from one message to the next. For which charters it has
revealed and not finished is in its memory of the run.

Guarantees: a node that has revealed and not finished enrols again only without one of those users for each time. That
bounds the seeds of which nodes never learn. A server may also finish an enrolment whose seed it does not like, and then
begin another epoch of all users: among how many seeds it chooses is in the end bounded by `Policy.max_epochs` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from flwr.app import ConfigRecord, Context

from heterosag.crypto.identity import Identity
from heterosag.errors import FaultyServerError, UsageError
from heterosag.flower.kept import Kept
from heterosag.flower.messages import value
from heterosag.plan import CohortPlan, Plan, User
from heterosag.protocol.enrolment import Charter, Enrolling
from heterosag.protocol.policy import Policy

__all__ = ["NodeEnrolment", "erase_enrolment"]

_RECORD = "heterosag.enrolment"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEnrolment:
    """The steps of an enrolment on a node.

    Args:
        context: The run's Context.
        identify: Who the node is and whom it knows, by the Context.
        policy: What the node asks of a plan, and how often in a run it enrols.
        kept: Where the node keeps its release log and its memory of the run.
    """

    context: Context
    identify: Callable[[Context], tuple[Identity | None, dict[User, bytes] | None]]
    policy: Policy
    kept: Kept

    def commit(self, record: Mapping[str, Any], check: Callable[[Plan], None]) -> bytes:
        """Commit to a nonce for the assignment of a charter's users.

        Args:
            record: The server's record, with the charter.
            check: Refuses a plan that the node does not take part under.

        Returns:
            The commitment.
        """
        charter = {name: record[name] for name in ("plan", "cohorts", "epoch") if name in record}
        chartered, options = self._chartered(charter)
        enrolling, plan = Enrolling(chartered, str(self.context.node_id), **options), chartered.plan
        self.kept.memory(self.context).check_enrolment(self.policy, chartered.context, plan.users)
        check(plan.plan_of(str(self.context.node_id)) if isinstance(plan, CohortPlan) else plan)
        message = enrolling.commit()
        self._save(charter, enrolling)
        return message

    def reveal(self, message: bytes) -> bytes:
        """Reveal the nonce to everybody's commitments: so often in a run, and once for a charter."""
        kept, chartered, enrolling = self._resume()
        self.kept.memory(self.context).note_enrolment(self.policy, chartered.context, chartered.plan.users)
        reply = enrolling.reveal(message)
        self._save(kept, enrolling)
        return reply

    def finish(self, plan: Plan, message: bytes) -> None:
        """Work out the plan that everybody's nonces make; it must be the one that the server opens a round with."""
        if self.kept.memory(self.context).has_enrolled(plan):
            return
        _, chartered, enrolling = self._resume()
        drawn = enrolling.finish(message)
        if drawn.frame != plan.frame:
            raise FaultyServerError("the plan is another one than the nodes drew together")
        self.kept.memory(self.context).note_enrolled(drawn, cohort=isinstance(chartered.plan, CohortPlan))
        erase_enrolment(self.context)

    def _save(self, charter: Mapping[str, Any], enrolling: Enrolling) -> None:
        self.context.state[_RECORD] = ConfigRecord({**charter, "saved": enrolling.save()})

    def _resume(self) -> tuple[dict[str, Any], Charter, Enrolling]:
        kept = dict(self.context.state.config_records.get(_RECORD) or {})
        if not kept:
            raise FaultyServerError("asked to go on with an enrolment that this node has not begun")
        saved = value(kept, "saved", bytes, sender="context")
        chartered, options = self._chartered(kept)
        return kept, chartered, Enrolling.restore(saved, chartered, str(self.context.node_id), **options)

    def _chartered(self, fields: Mapping[str, Any]) -> tuple[Charter, dict[str, Any]]:
        """The charter of a record, and what this node enrols with."""
        identity, directory = self.identify(self.context)
        if identity is None or directory is None:
            raise UsageError("nodes draw their assignment together with identities only")
        return _charter(fields, directory), {
            "identity": identity,
            "directory": directory,
            "policy": self.policy,
            "release_log": self.kept.release_log(self.context),
        }


def erase_enrolment(context: Context) -> None:
    """Erase what a Context keeps of an enrolment."""
    context.state.pop(_RECORD, None)


def _charter(fields: Mapping[str, Any], directory: Collection[User]) -> Charter:
    """The charter of a record, for a plan or for cohorts of users whom the directory knows."""
    plan: Plan | CohortPlan
    if "cohorts" in fields:
        plan = CohortPlan.decode(value(fields, "cohorts", bytes, sender="server"), among=directory)
    else:
        plan = Plan.decode(value(fields, "plan", bytes, sender="server"))
    return Charter(epoch=value(fields, "epoch", bytes, sender="server"), plan=plan)
