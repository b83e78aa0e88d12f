"""The planner's answer: the best plan with what it costs, or which requirements clash."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from heterosag.errors import InfeasibleError, PlanError
from heterosag.plan import Plan
from heterosag.plan.costs import largest_vectors
from heterosag.plan.layout import lane_names
from heterosag.planner.requirements import LARGEST, MOST, Requirements
from heterosag.planner.search import Model, Solved, sizes_for, solve

__all__ = ["Proposal", "Relaxation", "best", "trade_off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxation:
    """What relaxing one requirement would buy.

    Args:
        what: The requirement, relaxed.
        error: The error bound of the best plan with it.
    """

    what: str
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The best plan found.

    Args:
        plan: The plan itself.
        error: Its bound on the error of the mean, rounding noise and clip bias.
        lower_bound: No plan of these subgroup sizes has less.
        seconds: How long each class's slowest user uploads its masked vector.
        bytes: How large that is.
        order: Users by rate, which are the plan's.
        binding: Which requirement costs most.
        relaxing: What relaxing each would buy.
    """

    plan: Plan
    error: float
    lower_bound: float
    seconds: tuple[float, ...]
    bytes: tuple[int, ...]
    order: tuple[int, ...]
    binding: str
    relaxing: tuple[Relaxation, ...]


def best(requirements: Requirements) -> Proposal:
    """The plan with the least error bound that meets every requirement.

    Args:
        requirements: What the plan must meet.

    Returns:
        The plan, what it costs, and what relaxing a requirement would buy.

    Raises:
        InfeasibleError: Names two requirements that contradict each other, and the nearest plan that is possible.

    Example:
        >>> from heterosag.planner import Requirements, best
        >>> found = best(Requirements(rates=(1.0,) * 12 + (4.0,) * 12, dimension=1000, deadline=0.02, value_range=0.5))
        >>> len(found.plan.users), max(found.seconds) <= 0.02
        (24, True)
    """
    order = tuple(sorted(range(len(requirements.rates)), key=lambda user: (requirements.rates[user], user)))
    rates = [requirements.rates[user] for user in order]
    solved = solve(requirements, rates)
    if solved is None:
        raise _infeasible(requirements, rates)
    return _propose(requirements, rates, order, solved)


def trade_off(requirements: Requirements, deadlines: Iterable[float]) -> list[tuple[float, float | None]]:
    """What more time buys.

    Args:
        requirements: What the plan must meet; its own deadline does not count.
        deadlines: Seconds to try.

    Returns:
        Each deadline with the least error bound, None where nothing meets it.
    """
    rates = sorted(requirements.rates)
    found: list[tuple[float, float | None]] = []
    for deadline in deadlines:
        solved = solve(replace(requirements, deadline=deadline, bits=None), rates)
        found.append((deadline, None if solved is None else solved.error))
    return found


def _propose(requirements: Requirements, rates: Sequence[float], order: tuple[int, ...], solved: Solved) -> Proposal:
    """The plan of the bits found, with what it costs and what giving way would buy."""
    plan = _build(requirements, order, solved)
    if not _keeps(plan, requirements, rates):
        careful = solve(requirements, rates, careful=True)
        if careful is None:
            raise _infeasible(requirements, rates)
        solved, plan = careful, _build(requirements, order, careful)
    firsts = [sum(plan.classes[:place]) for place in range(len(plan.classes))]
    sent = largest_vectors([plan])
    error = plan.error_bound()
    relaxing = tuple(_relax(requirements, rates, solved.error, error))
    binding = min(relaxing, key=lambda one: one.error).what if relaxing else "nothing: giving way would not help"
    return Proposal(
        plan=plan,
        error=error,
        lower_bound=min(solved.lower_bound, error),  # where both are one number, rounding may put either above
        seconds=tuple(size * 8 / (rates[first] * 1e6) for size, first in zip(sent, firsts, strict=True)),
        bytes=tuple(sent),
        order=order,
        binding=binding,
        relaxing=relaxing,
    )


def _keeps(plan: Plan, requirements: Requirements, rates: Sequence[float]) -> bool:
    """Whether every user's upload, to the last byte, is within its budget."""
    sizes = plan.vector_sizes()
    return all(8 * sizes[plan.assignment[place]] <= requirements.budget(rate) for place, rate in enumerate(rates))


def _build(requirements: Requirements, order: tuple[int, ...], solved: Solved) -> Plan:
    """The plan: a class is a run of subgroups of one width, and levels fill their rings."""
    users = len(order)
    model = Model(users=users, size=solved.size, subgroups=users // solved.size, requirements=requirements)
    starts = [*model.starts(), users]
    widths = sorted(set(solved.bits))
    classes = [
        sum(starts[place + 1] - starts[place] for place, width in enumerate(solved.bits) if width == one)
        for one in widths
    ]
    return Plan.build(
        classes,
        [model.level(width) for width in widths],
        requirements.dimension,
        users=list(order),
        subgroup_size=solved.size,
        min_survivors=requirements.min_survivors,
        value_range=requirements.value_range,
        ranges=requirements.ranges,
        max_weight=requirements.max_weight,
        dropout=requirements.dropout,
        colluders=requirements.colluders,
        fill_levels=True,
    )


def _relax(requirements: Requirements, rates: Sequence[float], modelled: float, error: float) -> Iterable[Relaxation]:
    """What each requirement costs: the error if it were a little less, where that is less by more than a hundredth."""
    changes: dict[str, dict[str, Any]] = {}
    if requirements.deadline is not None and 1.25 * requirements.deadline <= LARGEST:
        changes["a deadline a quarter longer"] = {"deadline": 1.25 * requirements.deadline}
    if requirements.bits is not None and 1.25 * requirements.bits <= MOST:
        changes["a quarter more bits"] = {"bits": math.ceil(1.25 * requirements.bits)}
    if requirements.dropout > 0:
        changes["half the dropout"] = {"dropout": requirements.dropout / 2}
    if requirements.corrupt > 0:
        changes["half the corrupt users"] = {"corrupt": requirements.corrupt / 2}
    if requirements.attackers > 0:
        changes["one attacker fewer"] = {"attackers": requirements.attackers - 1}
    if requirements.min_survivors > 2:
        changes["one survivor of a subgroup fewer"] = {"min_survivors": requirements.min_survivors - 1}
    if len(rates) > 4 * requirements.most_subgroups:
        changes["twice the subgroups"] = {"most_subgroups": min(2 * requirements.most_subgroups, 1000)}
    for what, change in changes.items():
        solved = solve(replace(requirements, **change), rates, sizes=2)
        if solved is not None and solved.error < 0.99 * modelled:
            yield Relaxation(what=what, error=error * solved.error / modelled)


def _infeasible(requirements: Requirements, rates: Sequence[float]) -> InfeasibleError:
    """Which two requirements clash, and the nearest plan."""
    if not sizes_for(requirements):
        return _clash(requirements)
    slowest = f"the slowest upload of {rates[0]:g} Mb/s" if requirements.bits is None else "two levels for everybody"
    needed = min(_fewest_bits(requirements, size, rates) for size in sizes_for(requirements))
    if requirements.bits is not None:
        limit, bits = f"an upload of {requirements.bits} bits", math.ceil(needed)
        easier = None if bits > MOST else replace(requirements, bits=bits)
    else:
        limit, seconds = f"a deadline of {requirements.deadline:g} s", needed / (rates[0] * 1e6) * 1.0001
        easier = None if seconds > LARGEST else replace(requirements, deadline=seconds)
    if easier is None:
        return InfeasibleError((limit, slowest), None, "an update of fewer elements")
    return InfeasibleError((limit, slowest), _answer(easier), _words(easier))


def _fewest_bits(requirements: Requirements, size: int, rates: Sequence[float]) -> float:
    """Bits of the smallest upload of the slowest subgroup: two levels everywhere."""
    model = Model(users=len(rates), size=size, subgroups=len(rates) // size, requirements=requirements)
    lanes = len(lane_names(weighted=requirements.max_weight > 1, noise=False))
    return model.segments * (64 * lanes + 7) + model.elements * (model.spends(0, model.fewest) + 1)


def _clash(requirements: Requirements) -> InfeasibleError:
    """No subgroup size is left: name the two requirements of which giving up one would leave some."""
    pairs: list[tuple[str, str, dict[str, Any]]] = [
        (
            f"{requirements.attackers} attackers",
            f"{requirements.dropout:.0%} dropout at min_survivors={requirements.min_survivors}",
            {"attackers": 0},
        ),
        (f"{requirements.corrupt:.0%} corrupt users", f"only {len(requirements.rates)} users", {"corrupt": 0.0}),
        (
            f"{requirements.dropout:.0%} dropout",
            f"min_survivors={requirements.min_survivors} in every block",
            {"dropout": 0.0},
        ),
        (
            f"{requirements.attackers} attackers",
            f"{requirements.corrupt:.0%} corrupt users",
            {"attackers": 0, "corrupt": 0.0},
        ),
    ]
    for one, other, change in pairs:
        easier = replace(requirements, **change)
        if easier != requirements and sizes_for(easier):
            easier = _tighten(requirements, easier)
            return InfeasibleError((one, other), _answer(easier), _words(easier))
    return InfeasibleError(
        (f"only {len(requirements.rates)} users", f"min_survivors={requirements.min_survivors}"), None, "more users"
    )


def _tighten(requirements: Requirements, easier: Requirements) -> Requirements:
    """As many attackers as are possible, if they were what was given up."""
    most = -(-requirements.most_subgroups // 4) - 1  # the median of so many subgroups tolerates no more
    for attackers in range(min(requirements.attackers - 1, most), easier.attackers, -1):
        if sizes_for(replace(easier, attackers=attackers)):
            return replace(easier, attackers=attackers)
    return easier


def _answer(requirements: Requirements) -> Proposal | None:
    try:
        return best(requirements)
    except (InfeasibleError, PlanError):
        return None


def _words(requirements: Requirements) -> str:
    limit = (
        f"{requirements.bits} bits" if requirements.bits is not None else f"a deadline of {requirements.deadline:.4g} s"
    )
    return (
        f"{limit}, {requirements.attackers} attackers, {requirements.corrupt:.0%} corrupt, "
        f"{requirements.dropout:.0%} dropout, min_survivors {requirements.min_survivors}"
    )
