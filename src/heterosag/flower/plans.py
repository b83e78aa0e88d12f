"""The plan that a grid makes by itself: what the classes and the rule ask for, and no more than the nodes tolerate.

One class and the mean ask for no blocks: one block of everybody reveals least and survives most. Several classes ask
for subgroups that code at their own level, a robust rule for so many blocks that malicious nodes are outvoted. Of plans
that survive any one lost node and fail in at most 1% of rounds, the best is taken; where there is none, classes are
merged into slower ones, or a robust rule is refused, and the log says what to change.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heterosag.aggregation.rules import Rule
from heterosag.errors import PlanError
from heterosag.plan import Plan
from heterosag.plan.assignment import surrounded_probability
from heterosag.planner.noise import count_on
from heterosag.protocol.policy import Policy

__all__ = ["Choice", "choose", "choose_cohorts"]

MOST_FAILURES = 0.01
"""Of rounds, at the dropout that the plan expects: what a plan that is made without being asked for may have."""

_MOST_FAILURES_OF_A_RULE = 0.1  # where nothing better outvotes a malicious node: said in the log
_NEAR = 1.1  # of the least error
_MOST_SUBGROUPS = 32
_TOLD = {"design", "subgroup_size"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A plan, the nodes' classes that each of its classes has, and what the log says of it."""

    plan: Plan
    classes: tuple[tuple[int, ...], ...]
    notes: tuple[str, ...]


def choose(
    members: Sequence[Sequence[str]],
    levels: Sequence[int],
    dimension: int,
    *,
    rule: Rule,
    options: Mapping[str, Any],
    cohorts: int = 1,
    noisy: bool = False,
) -> Choice:
    """The plan for nodes of these classes.

    Args:
        members: The nodes of each class, slowest first; a class may have none.
        levels: The level of each class.
        dimension: Elements of the model.
        rule: How block means are combined; a robust one is to outvote malicious nodes.
        options: What else `Plan.build` takes; a design or a subgroup size is taken as told.
        cohorts: How many of these there are, among which nodes are drawn too.
        noisy: Whether noise follows, which has to be of honest survivors in every block.

    Returns:
        The plan and what is to say of it.

    Raises:
        PlanError: No plan can be built, or none on which a robust rule outvotes one malicious node.
    """
    classes: list[tuple[int, ...]] = [(index,) for index, nodes in enumerate(members) if nodes]
    if set(options) & _TOLD:
        plan = _build(members, levels, dimension, classes, options)
        return Choice(plan=plan, classes=tuple(classes), notes=_notes(plan, rule))
    merged: list[str] = []
    robust = rule.leaves_out_faulty
    while len(classes) > 1 or robust:
        candidates = list(_candidates(members, levels, dimension, classes, options, cohorts))
        if noisy:
            candidates = [plan for plan in candidates if _carries_noise(plan)]
        best = _outvoting(candidates, rule) if robust else _most_robust(candidates)
        if best is not None:
            who = "a robust rule asks" if robust else f"{len(classes)} classes ask"
            notes = (*merged, f"{len(best.subgroups)} subgroups, for which {who}", *_notes(best, rule))
            return Choice(plan=best, classes=tuple(classes), notes=notes)
        if len(classes) == 1:
            raise _no_robust_plan(sum(map(len, members)))
        merged.append(_merge(members, classes))
    plan = _build(members, levels, dimension, classes, {**options, "design": "secagg"})
    why = "" if merged else "one class and the mean ask for no more; "
    return Choice(
        plan=plan,
        classes=tuple(classes),
        notes=(*merged, f"one block of everybody: {why}it reveals least", *_notes(plan, rule)),
    )


def choose_cohorts(
    members: Sequence[Sequence[str]],
    levels: Sequence[int],
    dimension: int,
    *,
    cohort_size: int,
    rule: Rule,
    options: Mapping[str, Any],
    noisy: bool = False,
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The plan for the nodes of one cohort, carried over to all of them.

    Args:
        members: The nodes of each class, slowest first, more of them than a cohort has.
        levels: The level of each class.
        dimension: Elements of the model.
        cohort_size: Nodes that a cohort has at most.
        rule: How block means are combined; a robust one is to outvote malicious nodes in every cohort by itself.
        options: What else `Plan.build` takes.
        noisy: Whether noise follows.

    Returns:
        What `CohortPlan.build` takes, and what is to say of it.

    Raises:
        PlanError: No plan can be built for the smallest cohort.
    """
    count = -(-sum(map(len, members)) // cohort_size)
    classes: list[tuple[int, ...]] = [(index,) for index, nodes in enumerate(members) if nodes]
    notes = []
    while len(classes) > 1 and min(_size(members, merged) for merged in classes) < count:
        notes.append(_merge(members, classes, f"{count} cohorts need some of every class"))
    grouped = [[user for index in merged for user in members[index]] for merged in classes]
    slowest = [levels[merged[0]] for merged in classes]
    part = [group[: len(group) // count] for group in grouped]
    choice = choose(part, slowest, dimension, rule=rule, options=options, cohorts=count, noisy=noisy)
    whole = [[user for index in merged for user in grouped[index]] for merged in choice.classes]
    arguments = choice.plan.arguments() | {
        "classes": [len(group) for group in whole],
        "users": [user for group in whole for user in group],
        "assignment_seed": options.get("assignment_seed"),
        "min_robustness": options.get("min_robustness"),
        "cohort_size": cohort_size,
    }
    return arguments, (*notes, *(f"of a cohort: {note}" for note in choice.notes))


def survives_one_loss(plan: Plan) -> bool:
    """Whether a round ends well whichever single node is silent."""
    left = len(plan.users) - 1
    blocks = all(len(subgroup.members) > plan.min_survivors for subgroup in plan.subgroups)
    alone = blocks if plan.has_several_blocks else left >= plan.min_block_survivors
    return alone and left >= plan.agree_quorum and (not plan.sharing.complete or left >= plan.share_threshold)


def _carries_noise(plan: Plan) -> bool:
    """Whether every block has two subgroups or more, and of the survivors that it is asked for half are honest."""
    colluders, least = count_on(plan)
    return not plan.design.has_star and least >= 2 * colluders


def _most_robust(plans: Iterable[Plan]) -> Plan | None:
    """Of plans with nearly the least error the one whose sums tell least of a single subgroup."""
    safe = [plan for plan in plans if plan.has_several_blocks and _is_safe(plan)]
    least = min((plan.quantization_error() for plan in safe), default=0.0)
    near = [plan for plan in safe if plan.quantization_error() <= _NEAR * least]
    return max(near, key=lambda plan: (plan.inference_robustness(), -plan.failure_probability()), default=None)


def _outvoted(plan: Plan, rule: Rule) -> int:
    """How many malicious nodes the rule outvotes wherever they are; the median, if the rule does not say."""
    if rule.tolerates is None:
        return plan.byzantine_tolerance()
    return rule.tolerates(min(map(len, plan.design.segments)))


def _outvoting(plans: Iterable[Plan], rule: Rule) -> Plan | None:
    """The plan on which a robust rule outvotes most malicious nodes, one at least."""
    usable = (plan for plan in plans if survives_one_loss(plan) and _outvoted(plan, rule))
    rated = [(_outvoted(plan, rule), -plan.failure_probability(), plan) for plan in usable]
    safe = [one for one in rated if -one[1] <= MOST_FAILURES]
    if safe:
        return max(safe, key=lambda one: one[:2])[2]
    rare = [one for one in rated if -one[1] <= _MOST_FAILURES_OF_A_RULE]
    return max(rare, key=lambda one: one[1])[2] if rare else None


def _no_robust_plan(nodes: int) -> PlanError:
    return PlanError(
        "rule",
        f"no plan for {nodes} nodes survives one lost node and outvotes one malicious one: take some 24 nodes or more, "
        "or rule='mean'; with options={'min_survivors': 2}, which nodes must allow by name "
        "(mod(policy=Policy(min_survivors=2, min_colluders=0))), some 18 do; a plan of your own (plan=..., or a "
        "subgroup_size among the options) is taken as it is, if it has several blocks",
    )


def _is_safe(plan: Plan) -> bool:
    return survives_one_loss(plan) and plan.failure_probability() <= MOST_FAILURES


def _candidates(
    members: Sequence[Sequence[str]],
    levels: Sequence[int],
    dimension: int,
    classes: Sequence[tuple[int, ...]],
    options: Mapping[str, Any],
    cohorts: int,
) -> Iterator[Plan]:
    """Plans with more and more subgroups, of both designs that hide single subgroups."""
    users, seen = sum(map(len, members)), set()
    for subgroups in range(2, min(_MOST_SUBGROUPS, users // 2) + 1):
        size = round(users / subgroups)
        for design in ("perfect", "paper"):
            try:
                told = {**options, "design": design, "subgroup_size": size}
                plan = _build(members, levels, dimension, classes, told)
                while (
                    "min_survivors" not in options and (least := _least_survivors(plan, cohorts)) > plan.min_survivors
                ):
                    plan = _build(members, levels, dimension, classes, {**told, "min_survivors": least})
            except PlanError:
                continue
            sizes = (plan.design.name, *(len(subgroup.members) for subgroup in plan.subgroups))
            if sizes not in seen:
                seen.add(sizes)
                yield plan


def _least_survivors(plan: Plan, cohorts: int) -> int:
    """How many survivors of a subgroup hide each from colluders among them, as often as a node asks by default.

    Other cohorts may have a user more of each class than this one, and with neighbours a colluder more.
    """
    sizes: dict[int, list[int]] = {}
    for subgroup in plan.subgroups:
        sizes.setdefault(subgroup.user_class, []).append(len(subgroup.members))
    colluders = plan.colluders
    if cohorts > 1:
        sizes = {mine: [max(own) + 1, *(own * cohorts)[1:]] for mine, own in sizes.items()}
        colluders = cohorts * (colluders + (not plan.sharing.complete))
    most = Policy().max_surrounded
    return next(
        least
        for least in itertools.count(plan.min_survivors)
        if all(surrounded_probability(own, colluders, least - 1) <= most for own in sizes.values())
    )


def _build(
    members: Sequence[Sequence[str]],
    levels: Sequence[int],
    dimension: int,
    classes: Sequence[tuple[int, ...]],
    options: Mapping[str, Any],
) -> Plan:
    grouped = [[user for index in merged for user in members[index]] for merged in classes]
    users = tuple(user for group in grouped for user in group)
    try:
        return Plan.build(
            [len(group) for group in grouped],
            [levels[merged[0]] for merged in classes],
            dimension,
            users=users,
            **{"value_range": 1.0, "fill_levels": True, **options},
        )
    except TypeError as error:
        raise PlanError("options", f"goes to Plan.build, which does not know all of it: {error}") from None


def _size(members: Sequence[Sequence[str]], merged: Iterable[int]) -> int:
    return sum(len(members[index]) for index in merged)


def _merge(
    members: Sequence[Sequence[str]],
    classes: list[tuple[int, ...]],
    why: str = "apart, some subgroup would be lost too often",
) -> str:
    """Merge the smallest class into the next slower one (the slowest takes the next faster one in); what to say."""
    sizes = [_size(members, merged) for merged in classes]
    smallest = sizes.index(min(sizes))
    into = max(smallest - 1, 0)
    faster = classes.pop(into + 1)
    classes[into] += faster
    return (
        f"class {_named(faster)} ({sizes[into + 1]} nodes) codes at the level of class {classes[into][0]} "
        f"({sizes[into]} nodes): {why}; more nodes would let it keep its own"
    )


def _named(classes: Iterable[int]) -> str:
    return " and ".join(map(str, classes))


def _notes(plan: Plan, rule: Rule) -> tuple[str, ...]:
    """How often it fails, and what a robust rule tolerates."""
    failures = plan.failure_probability()
    lost = "survives any one lost node" if survives_one_loss(plan) else "does NOT survive every single lost node"
    notes = [f"fails in {failures:.2g} of rounds at {plan.dropout:.0%} dropout and {lost}"]
    if failures > MOST_FAILURES or not survives_one_loss(plan):
        notes.append(
            f"more nodes, or larger subgroups (options={{'subgroup_size': ...}}, or fewer classes), would bring it "
            f"to {MOST_FAILURES:.0%} or less"
        )
    if rule.leaves_out_faulty:
        who = "the rule outvotes" if rule.tolerates else "the median would outvote"
        outvoted = _outvoted(plan, rule)
        notes.append(f"{who} {outvoted} malicious {'node' if outvoted == 1 else 'nodes'}")
    return tuple(notes)
