"""Which plan the nodes of a round have. An epoch lasts while nodes and model stay the same; then a new plan is made.

With identities the nodes draw together who is assigned to which subgroup (an enrolment): two trips more when an epoch
begins, and none where nothing is drawn, in one block of everybody with everybody's shares.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from logging import INFO, WARNING
from secrets import token_bytes
from typing import Any

from flwr.app import Message
from flwr.common.logger import log

from heterosag.aggregation.combine import check_rule
from heterosag.aggregation.rules import Rule
from heterosag.choices import AssignmentName
from heterosag.errors import FaultyUserError, HeteroSagError, PlanError, WireError, WithheldError
from heterosag.flower.messages import COMMIT, HELLO, REVEAL, fields_of, parts_to_fields, value
from heterosag.flower.plans import choose, choose_cohorts
from heterosag.flower.privacy import Privacy
from heterosag.flower.reports import SLOTS
from heterosag.flower.resuming import KeptPlan
from heterosag.flower.rounds import FALSE_SHARES, Work, commonest
from heterosag.plan import CohortPlan, Plan, User
from heterosag.plan.checks import MOST_USERS_WITH_METRICS
from heterosag.plan.cohorts import COHORT_SIZE, plans_of
from heterosag.plan.notes import WITHOUT_IDENTITIES
from heterosag.planner.cohorts import fit_cohorts
from heterosag.planner.noise import fit_plan
from heterosag.protocol import Decoded
from heterosag.protocol.enrolment import Charter, Enrolment
from heterosag.protocol.policy import Policy
from heterosag.protocol.transitions import Phase

__all__ = ["Epochs"]

_SHAPE = ("classes", "levels", "dimension", "users", "design", "subgroup_size", "min_survivors")
_MOST_PLANS = 32  # kept for nodes that come back: under sampling nearly every round has other nodes
_MOST_ENROLMENTS = 3  # tries, each without those who were silent in the one before

Carry = Callable[[Work, str, Mapping[int, Mapping[str, Any]]], dict[int, Message]]
"""A trip to the nodes: the round, the stage, our record by node; the replies by node."""


class Epochs:
    """Plans by the nodes that they are for, and what is known of the nodes.

    Args:
        given: A plan of the user's own, which is then the only one.
        levels: One quantizer level for each class, slowest first.
        rate_limits: The rates between the classes.
        options: What else `Plan.build` takes.
        rule: How block means are combined; for a robust one plans are to outvote malicious nodes.
        max_weight: Largest weight of a node.
        weighted_by: The metric that counts examples.
        directory: Every node's public key.
        assignment: Who assigns nodes to subgroups.
        cohort_size: Nodes that a cohort has at most.
        privacy: The target that plans have the noise of.

    `classes` has what nodes have named, `faulty` who is not asked any more, `withheld` whom no new plan has because an
    enrolment came to nothing after they had committed.
    """

    def __init__(
        self,
        *,
        given: Plan | CohortPlan | None,
        levels: Sequence[int],
        rate_limits: Sequence[float],
        options: Mapping[str, Any],
        rule: Rule,
        max_weight: int,
        weighted_by: str,
        directory: Mapping[User, bytes] | None,
        assignment: AssignmentName,
        scaled: bool,
        cohort_size: int = COHORT_SIZE,
        privacy: Privacy | None = None,
    ) -> None:
        self._given = given
        self._levels = tuple(levels)
        self._rate_limits = tuple(rate_limits)
        self._options = dict(options)
        self._rule = rule
        self._max_weight = max_weight
        self.weighted_by = weighted_by
        self._directory = directory
        self._privacy = privacy
        self._enrols = directory is not None and assignment == "enrolled"
        self._scaled = scaled
        self._cohort_size = cohort_size
        self._plans: dict[tuple[tuple[str, ...], tuple[int, ...]], Plan | CohortPlan] = {}
        self._reveals: dict[bytes, bytes] = {}
        self.classes: dict[int, int] = {}
        self.faulty: set[int] = set()
        self.withheld: set[int] = set()

    @property
    def asks_classes(self) -> bool:
        """Whether nodes name their class."""
        return self._given is None and len(self._levels) > 1

    def ask_classes(self, work: Work, carry: Carry) -> None:
        """Have nodes that are new here name their class or rate; one class needs no asking."""
        if self._given is not None:
            return
        if len(self._levels) == 1:
            self.classes |= dict.fromkeys(work.messages, 0)
            return
        new = [node for node in work.messages if node not in self.classes]
        if not new:
            return
        replies = carry(work, HELLO, {node: parts_to_fields([(0, HELLO, b"")]) for node in new})
        for node, reply in replies.items():
            try:
                self.classes[node] = self._class_of(fields_of(reply, sender=str(node)), str(node))
            except WireError as error:
                work.lose(node, HELLO, str(error))

    def plan_for(self, work: Work, arrays: tuple[int, ...], carry: Carry) -> Plan | CohortPlan:
        """The plan given, or one for these nodes: kept while nodes and model stay the same, made anew otherwise.

        The model is told by the elements of its arrays. More nodes than a cohort has are split into cohorts.
        """
        if self._given is not None:
            return self._check_given(self._given, work, sum(arrays))
        able: list[int] = []
        for node in sorted(work.messages):
            if node in self.faulty:
                work.lose(node, Phase.ADVERTISE.value, FALSE_SHARES)
            elif self._directory is not None and str(node) not in self._directory:
                work.lose(node, Phase.ADVERTISE.value, "has no key in the directory")
            elif node in self.classes:
                able.append(node)
        members, users = self._members(able)
        if (users, arrays) not in self._plans:  # in what they drew before nobody has to reveal
            for node in self.withheld.intersection(able):
                work.lose(node, COMMIT, "did not reveal what it had committed to, in an enrolment that came to nothing")
            members, users = self._members(node for node in able if node not in self.withheld)
        if not users:
            raise PlanError("classes", f"no node can take part: {commonest(work.lost)}")
        if (users, arrays) not in self._plans:
            if self._plans:
                log(INFO, "the nodes changed: a new plan, and so a new epoch, for %d nodes", len(users))
            try:
                plan = self._build(members, users, arrays)
            except PlanError as error:
                raise _explain_few(len(users), error, robust=self._rule.leaves_out_faulty) from None
            check_rule(plan, self._rule)
            if self._enrols and _is_drawn(plan):
                plan = self._enrol(work, plan, carry)
            _log_notes(note for note in plan.notes if self._directory is None or note != WITHOUT_IDENTITIES)
            self._plans[users, arrays] = plan
            if len(self._plans) > _MOST_PLANS:
                oldest = self._plans.pop(next(iter(self._plans)))
                for own in plans_of(oldest):
                    self._reveals.pop(own.frame, None)
        return self._plans[users, arrays]

    def _members(self, nodes: Iterable[int]) -> tuple[list[list[str]], tuple[str, ...]]:
        """Nodes by their class, and in that order."""
        members: list[list[str]] = [[] for _ in self._levels]
        for node in nodes:
            members[self.classes[node]].append(str(node))
        return members, tuple(user for group in members for user in group)

    def keeps(self, frame: bytes) -> bool:
        """Whether a plan of this frame is in use; one that is not will not come again."""
        plans = self._plans.values() if self._given is None else (self._given,)
        return any(own.frame == frame for plan in plans for own in plans_of(plan))

    @property
    def kept_plans(self) -> list[KeptPlan]:
        """The plans in use, to go on with in another program; those that nodes drew together are drawn anew."""
        if self._enrols:
            return []
        return [
            KeptPlan(users=list(users), arrays=list(arrays), plan=plan.encode(), cohorts=isinstance(plan, CohortPlan))
            for (users, arrays), plan in self._plans.items()
        ]

    def resume(self, plans: Mapping[tuple[tuple[str, ...], tuple[int, ...]], Plan | CohortPlan]) -> None:
        """Go on with the plans of another program, by their users and the elements of the model's arrays."""
        self._plans = {} if self._enrols else dict(plans)

    def named_classes(self, plan: Plan | CohortPlan) -> list[int]:
        """The classes in a plan, as nodes name them, the slowest of those merged; none where nobody was asked."""
        if not self.asks_classes:
            return []
        named: dict[int, int] = {}
        for own in plans_of(plan):
            for user in own.users:
                mine, said = own.subgroups[own.subgroup_of(user)].user_class, self.classes[int(user)]
                named[mine] = min(said, named.get(mine, said))
        return [named[mine] for mine in sorted(named)]

    def reveals_of(self, plan: Plan) -> bytes | None:
        """What everybody revealed in the enrolment that this plan, of a cohort or of all nodes, comes from."""
        return self._reveals.get(plan.frame)

    def leave_out(self, work: Work, found: Iterable[Decoded | HeteroSagError]) -> None:
        """Who dealt or released false shares, in whichever cohort, is neither asked nor planned for after this."""
        work.faulty = tuple(int(user) for one in found if isinstance(one, Decoded) for user in one.faulty)
        self.faulty |= set(work.faulty)
        for node in work.faulty:
            log(WARNING, "\t> node %d dealt or released false shares: it is left out of all rounds after this", node)

    def _check_given(self, given: Plan | CohortPlan, work: Work, dimension: int) -> Plan | CohortPlan:
        if {str(node) for node in work.messages} != set(map(str, given.users)):
            raise PlanError("users", "the plan given is for other nodes than those of the train messages")
        if given.dimension != dimension:
            raise PlanError("dimension", f"the plan given has {given.dimension}, the model {dimension} elements")
        return given

    def _build(
        self, members: Sequence[Sequence[str]], users: Sequence[str], arrays: tuple[int, ...]
    ) -> Plan | CohortPlan:
        together = min(len(users), self._cohort_size)
        options: dict[str, Any] = {
            "arrays": arrays if self._scaled else (),
            "max_weight": self._max_weight,
            "metrics": SLOTS if together <= MOST_USERS_WITH_METRICS else (),
            "assignment_seed": None if self._enrols else token_bytes(16),
            **self._options,
        }
        if self._privacy is not None:
            options |= {"max_weight": 1, "metrics": ()}
        if len(users) > self._cohort_size:
            return self._build_cohorts(members, sum(arrays), options)
        noisy = self._privacy is not None
        choice = choose(members, self._levels, sum(arrays), rule=self._rule, options=options, noisy=noisy)
        _log_notes(choice.notes)
        if self._privacy is None:
            return choice.plan
        arguments = choice.plan.arguments()
        return fit_plan(
            options | {name: arguments[name] for name in _SHAPE} | {"adaptive_clip": self._privacy.adaptive_clip},
            **self._privacy.target,
        )

    def _build_cohorts(self, members: Sequence[Sequence[str]], dimension: int, options: dict[str, Any]) -> CohortPlan:
        size = self._cohort_size
        arguments, notes = choose_cohorts(
            members,
            self._levels,
            dimension,
            cohort_size=size,
            rule=self._rule,
            options=options,
            noisy=self._privacy is not None,
        )
        _log_notes(notes)
        if self._privacy is None:
            return CohortPlan.build(**arguments)
        shape = options | {name: arguments[name] for name in _SHAPE} | {"adaptive_clip": self._privacy.adaptive_clip}
        return fit_cohorts(shape, cohort_size=size, **self._privacy.target)

    def _enrol(self, work: Work, plan: Plan | CohortPlan, carry: Carry) -> Plan | CohortPlan:
        """Have the nodes draw their assignment together; whoever is silent is not in the epoch.

        Nodes reveal so often in a run. If all tries came to nothing, those who committed and did not reveal are not
        asked again: a few who take turns would use the others' reveals up.
        """
        withheld: set[int] = set()
        charter = Charter(epoch=token_bytes(16), plan=plan)
        for _ in range(_MOST_ENROLMENTS):
            _warn_of_small_cohorts(charter.plan, len(self._directory or {}))
            enrolment = Enrolment(charter, directory=self._directory or {})
            opening = {
                "cohorts" if isinstance(charter.plan, CohortPlan) else "plan": charter.plan.encode(),
                "epoch": charter.epoch,
                "weighted-by": self.weighted_by,
                "classes": self.named_classes(charter.plan),
            }
            try:
                messages = dict.fromkeys(charter.plan.users, b"")
                for stage in (COMMIT, REVEAL):
                    extra = opening if stage == COMMIT else {}
                    replies = carry(
                        work,
                        stage,
                        {
                            int(user): {**parts_to_fields([(0, stage, data)]), **extra}
                            for user, data in messages.items()
                        },
                    )
                    for node, reply in replies.items():
                        self._receive(work, enrolment, stage, node, reply)
                    messages = enrolment.close()
            except WithheldError as error:
                for user in error.users:
                    work.lose(int(user), COMMIT, "was silent while the nodes drew their assignment")
                if len(error.users) == len(charter.plan.users):
                    if stage == REVEAL:  # who has revealed draws again without one of these users only
                        self.withheld.add(int(error.users[-1]))
                    raise PlanError(
                        "assignment", f"no node draws its assignment with the others: {commonest(work.lost)}"
                    ) from None
                log(WARNING, "\t%d nodes did not draw with the others: again without them", len(error.users))
                withheld |= {int(user) for user in error.users if stage == REVEAL}
                self.withheld |= withheld
                charter = charter.without(error.users, token_bytes(16))
                check_rule(charter.plan, self._rule)
                continue
            self.withheld -= withheld
            for own in plans_of(enrolment.plan):
                self._reveals[own.frame] = messages[own.users[0]]
            return enrolment.plan
        raise PlanError("assignment", f"nodes were silent in {_MOST_ENROLMENTS} enrolments: {commonest(work.lost)}")

    def _receive(self, work: Work, enrolment: Enrolment, stage: str, node: int, reply: Message) -> None:
        try:
            data = value(fields_of(reply, sender=str(node)), "message", bytes, sender=str(node))
            enrolment.receive(str(node), data)
        except (FaultyUserError, WireError) as error:
            work.lose(node, stage, str(error))

    def _class_of(self, record: Mapping[str, Any], node: str) -> int:
        named = record.get("class")
        if isinstance(named, int) and 0 <= named < len(self._levels):
            return named
        rate = record.get("rate")
        if isinstance(rate, float) and rate > 0 and self._rate_limits:
            return bisect_right(self._rate_limits, rate)
        raise WireError(
            f"names neither a class below {len(self._levels)} (heterosag-class) nor, with rate_limits, a rate "
            "(heterosag-rate) in its node config",
            sender=node,
        )


def _is_drawn(plan: Plan | CohortPlan) -> bool:
    """Whether there is something to draw: cohorts, subgroups or neighbours."""
    return isinstance(plan, CohortPlan) or plan.assignment_matters


def _warn_of_small_cohorts(plan: Plan | CohortPlan, known: int) -> None:
    """Nodes whose policy is the default one do not enrol in them."""
    if isinstance(plan, CohortPlan):
        least, wanted = min(len(own.users) for own in plan.plans), Policy().min_cohort_users
        if least < min(wanted, math.ceil(known * Policy().min_users)):
            log(
                WARNING,
                "\tcohorts of %d nodes: by default a node enrols in none of fewer than %d (Policy(min_cohort_users=)); "
                "with cohort_size=%d or more there are always as many",
                least,
                wanted,
                2 * wanted,
            )


def _log_notes(notes: Iterable[str]) -> None:
    for note in notes:
        log(INFO, "\tplan: %s", note)


def _explain_few(count: int, error: PlanError, *, robust: bool) -> PlanError:
    """The error, or, for so few nodes that one change leads to the next error, all that there is to change."""
    if count == 1:
        return PlanError("users", "one node can take part: the sum over one node is its update, so there must be more")
    if count > 3 or error.field == "options":
        return error
    options: dict[str, Any] = {"design": "secagg", "subgroup_size": count, "min_survivors": 2}
    if count == 2:
        options["dropout"] = 0.0
    rule = "rule='mean', " if robust else ""  # what follows has one block
    lost = "no node may be lost" if count == 2 else "one node may be lost"
    return PlanError(
        "users",
        f"{count} nodes are too few for what is asked ({error}). Add nodes (in simulation flwr run takes "
        f'--federation-config "num-supernodes=10"), or change all of this: '
        f"SecureGrid({rule}options={options!r}) on the server, and on every node mod(policy=Policy(min_survivors=2, "
        f"min_colluders=0)). Then {lost}, and whoever knows one update of a sum over two knows the other",
    )
