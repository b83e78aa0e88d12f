"""The planner's answer: the best plan with what it costs, or which wishes clash."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from heterosag.errors import InfeasibleError, PlanError
from heterosag.plan import Plan
from heterosag.planner.requirements import Wishes
from heterosag.planner.search import Model, Solved, sizes_for, solve

__all__ = ["Proposal", "Relaxation", "best", "trade_off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxation:
    """What giving way on one wish would buy: the error bound with it."""

    what: str
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The best plan found.

    - `plan`: the plan itself; `order`: users by rate, which are the plan's.
    - `seconds`, `bytes`: of the masked vector, of each class's slowest user.
    - `error`: the plan's bound on the quantization error; no plan of these subgroup sizes has less than `lower_bound`.
    - `binding`: which wish costs most; `relaxing`: what giving way on each would buy.
    """

    plan: Plan
    error: float
    lower_bound: float
    seconds: tuple[float, ...]
    bytes: tuple[int, ...]
    order: tuple[int, ...]
    binding: str
    relaxing: tuple[Relaxation, ...]


def best(wishes: Wishes) -> Proposal:
    """The plan with the least error bound that meets every wish, or an `InfeasibleError` that says which two clash."""
    order = tuple(sorted(range(len(wishes.rates)), key=lambda user: (wishes.rates[user], user)))
    rates = [wishes.rates[user] for user in order]
    solved = solve(wishes, rates)
    if solved is None:
        raise _infeasible(wishes, rates)
    return _propose(wishes, rates, order, solved)


def trade_off(wishes: Wishes, deadlines: Iterable[float]) -> list[tuple[float, float | None]]:
    """The error bound at each deadline, None where nothing meets it."""
    rates = sorted(wishes.rates)
    found: list[tuple[float, float | None]] = []
    for deadline in deadlines:
        solved = solve(replace(wishes, deadline=deadline, bits=None), rates)
        found.append((deadline, None if solved is None else solved.error))
    return found


def _propose(wishes: Wishes, rates: Sequence[float], order: tuple[int, ...], solved: Solved) -> Proposal:
    """The plan of the bits found, with what it costs and what giving way would buy."""
    plan = _build(wishes, order, solved)
    if not _keeps(plan, wishes, rates):
        careful = solve(wishes, rates, careful=True)
        if careful is None:
            raise _infeasible(wishes, rates)
        solved, plan = careful, _build(wishes, order, careful)
    firsts = [sum(plan.classes[:place]) for place in range(len(plan.classes))]
    sent = [0] * len(plan.classes)
    for size, subgroup in zip(plan.vector_sizes(), plan.subgroups, strict=True):
        sent[subgroup.user_class] = max(sent[subgroup.user_class], size)
    error = plan.quantization_error()
    relaxing = tuple(_relax(wishes, rates, solved.error, error))
    binding = min(relaxing, key=lambda one: one.error).what if relaxing else "nothing: giving way would not help"
    return Proposal(
        plan=plan,
        error=error,
        lower_bound=solved.lower_bound,
        seconds=tuple(size * 8 / (rates[first] * 1e6) for size, first in zip(sent, firsts, strict=True)),
        bytes=tuple(sent),
        order=order,
        binding=binding,
        relaxing=relaxing,
    )


def _keeps(plan: Plan, wishes: Wishes, rates: Sequence[float]) -> bool:
    """Whether every user's upload, to the last byte, is within its budget."""
    sizes = plan.vector_sizes()
    return all(8 * sizes[plan.seats[place]] <= wishes.budget(rate) for place, rate in enumerate(rates))


def _build(wishes: Wishes, order: tuple[int, ...], solved: Solved) -> Plan:
    """The plan: a class is a run of subgroups of one width, and levels fill their rings."""
    users = len(order)
    model = Model(users=users, size=solved.size, subgroups=users // solved.size, wishes=wishes)
    starts = [*model.starts(), users]
    widths = sorted(set(solved.bits))
    classes = [
        sum(starts[place + 1] - starts[place] for place, width in enumerate(solved.bits) if width == one)
        for one in widths
    ]
    return Plan.build(
        classes,
        [model.level(width) for width in widths],
        wishes.dimension,
        users=list(order),
        subgroup_size=solved.size,
        floor=wishes.floor,
        value_range=wishes.value_range,
        weight_bound=wishes.weight_bound,
        dropout=wishes.dropout,
        colluders=wishes.colluders,
        fill_levels=True,
    )


def _relax(wishes: Wishes, rates: Sequence[float], modelled: float, error: float) -> Iterable[Relaxation]:
    """What each wish costs: the error if it were a little less, where that is less by more than a hundredth."""
    changes: dict[str, dict[str, Any]] = {}
    if wishes.deadline is not None:
        changes["a deadline a quarter longer"] = {"deadline": 1.25 * wishes.deadline}
    if wishes.bits is not None:
        changes["a quarter more bits"] = {"bits": math.ceil(1.25 * wishes.bits)}
    if wishes.dropout > 0:
        changes["half the dropout"] = {"dropout": wishes.dropout / 2}
    if wishes.corrupt > 0:
        changes["half the corrupt users"] = {"corrupt": wishes.corrupt / 2}
    if wishes.attackers > 0:
        changes["one attacker fewer"] = {"attackers": wishes.attackers - 1}
    if wishes.floor > 2:
        changes["a floor one lower"] = {"floor": wishes.floor - 1}
    if len(rates) > 4 * wishes.most_subgroups:
        changes["twice the subgroups"] = {"most_subgroups": min(2 * wishes.most_subgroups, 1000)}
    for what, change in changes.items():
        solved = solve(replace(wishes, **change), rates, sizes=2)
        if solved is not None and solved.error < 0.99 * modelled:
            yield Relaxation(what=what, error=error * solved.error / modelled)


def _infeasible(wishes: Wishes, rates: Sequence[float]) -> InfeasibleError:
    """Which two wishes clash, and the nearest plan."""
    if not sizes_for(wishes):
        return _clash(wishes)
    slowest = f"the slowest upload of {rates[0]:g} Mb/s" if wishes.bits is None else "two levels for everybody"
    needed = min(_fewest_bits(wishes, size, rates) for size in sizes_for(wishes))
    if wishes.bits is not None:
        wider = replace(wishes, bits=math.ceil(needed))
        return InfeasibleError((f"an upload of {wishes.bits} bits", slowest), _answer(wider), _words(wider))
    longer = replace(wishes, deadline=needed / (rates[0] * 1e6) * 1.0001)
    return InfeasibleError((f"a deadline of {wishes.deadline:g} s", slowest), _answer(longer), _words(longer))


def _fewest_bits(wishes: Wishes, size: int, rates: Sequence[float]) -> float:
    """Bits of the smallest upload of the slowest subgroup: two levels everywhere."""
    model = Model(users=len(rates), size=size, subgroups=len(rates) // size, wishes=wishes)
    lanes = 3 if wishes.weight_bound > 1 else 2
    return model.segments * (64 * lanes + 7) + model.elements * (model.spends(0, model.fewest) + 1)


def _clash(wishes: Wishes) -> InfeasibleError:
    """No subgroup size is left: name the two wishes of which giving up one would leave some."""
    pairs: list[tuple[str, str, dict[str, Any]]] = [
        (
            f"{wishes.attackers} attackers",
            f"{wishes.dropout:.0%} dropout at a floor of {wishes.floor}",
            {"attackers": 0},
        ),
        (f"{wishes.corrupt:.0%} corrupt users", f"only {len(wishes.rates)} users", {"corrupt": 0.0}),
        (f"{wishes.dropout:.0%} dropout", f"a floor of {wishes.floor} in every block", {"dropout": 0.0}),
        (f"{wishes.attackers} attackers", f"{wishes.corrupt:.0%} corrupt users", {"attackers": 0, "corrupt": 0.0}),
    ]
    for one, other, change in pairs:
        easier = replace(wishes, **change)
        if easier != wishes and sizes_for(easier):
            easier = _tighten(wishes, easier)
            return InfeasibleError((one, other), _answer(easier), _words(easier))
    return InfeasibleError((f"only {len(wishes.rates)} users", f"a floor of {wishes.floor}"), None, "more users")


def _tighten(wishes: Wishes, easier: Wishes) -> Wishes:
    """As many attackers as there is room for, if they were what was given up."""
    for attackers in range(wishes.attackers - 1, easier.attackers, -1):
        if sizes_for(replace(easier, attackers=attackers)):
            return replace(easier, attackers=attackers)
    return easier


def _answer(wishes: Wishes) -> Proposal | None:
    try:
        return best(wishes)
    except (InfeasibleError, PlanError):
        return None


def _words(wishes: Wishes) -> str:
    limit = f"{wishes.bits} bits" if wishes.bits is not None else f"a deadline of {wishes.deadline:.4g} s"
    return (
        f"{limit}, {wishes.attackers} attackers, {wishes.corrupt:.0%} corrupt, {wishes.dropout:.0%} dropout, floor "
        f"{wishes.floor}"
    )
