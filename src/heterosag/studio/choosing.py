"""From the page's form to a plan: the best for its requirements, or the one given by hand."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import get_args

from heterosag import planner
from heterosag.choices import DesignName, RangesName
from heterosag.errors import PlanError
from heterosag.plan import Plan
from heterosag.plan.assignment import count_subgroups
from heterosag.plan.checks import default_colluders
from heterosag.studio.forms import Form
from heterosag.studio.private import PrivateChoice, choose_private

__all__ = ["MOST_ELEMENTS", "MOST_SUBGROUPS", "MOST_USERS", "Choice", "choose"]

MOST_USERS = 10_000
MOST_SUBGROUPS = 64
MOST_ELEMENTS = 10**9

_SLOWEST, _FASTEST = 1e-3, 1e5  # Mb/s
_LONGEST = 1e6  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A plan, the requirements it is judged by, and where the planner made it, its proposal.

    rates: Mb/s of the slowest user of each class. problem: why this is only the nearest plan to the requirements.
    private: what is known of a plan with noise.
    """

    plan: Plan
    requirements: planner.Requirements
    rates: tuple[float, ...]
    proposal: planner.Proposal | None
    problem: str | None = None
    private: PrivateChoice | None = None


def choose(form: Form) -> Choice:
    """The plan that a form asks for: the best for its requirements, or the one given by hand."""
    return _choose(form.key())


@lru_cache(maxsize=64)
def _choose(key: str) -> Choice:
    """Kept for a while: the tabs ask for the same plan again and again."""
    form = Form(json.loads(key))
    return _by_hand(form) if form.choice("mode", ("requirements", "hand")) == "hand" else _by_requirements(form)


def _by_requirements(form: Form) -> Choice:
    requirements = _requirements(form, tuple(_rates(form)))
    if form.choice("privacy", ("off", "budget")) == "budget":
        private = choose_private(form, requirements)
        plan, slowest = private.proposal.plan, (min(requirements.rates),)
        problem = private.problem
        return Choice(
            plan=plan, requirements=requirements, rates=slowest, proposal=None, problem=problem, private=private
        )
    problem = None
    try:
        proposal = planner.best(requirements)
    except planner.InfeasibleError as error:
        if not isinstance(error.nearest, planner.Proposal):
            raise
        proposal, problem = error.nearest, str(error)
    firsts = [sum(proposal.plan.classes[:at]) for at in range(len(proposal.plan.classes))]
    rates = tuple(requirements.rates[proposal.order[first]] for first in firsts)
    return Choice(plan=proposal.plan, requirements=requirements, rates=rates, proposal=proposal, problem=problem)


def _by_hand(form: Form) -> Choice:
    classes = form.integers("classes", "24,24,24,24", most=MOST_USERS)
    levels = form.integers("levels", "2,6,8,12", most=2**32)
    size = form.integer("subgroup_size", 8, 1, MOST_USERS)
    if sum(classes) > MOST_USERS:
        raise PlanError("classes", f"this page plans for at most {MOST_USERS:,} users, not {sum(classes):,}")
    count = sum(count_subgroups(classes, size))
    if count > MOST_SUBGROUPS:
        problem = f"makes {count} subgroups; this page shows at most {MOST_SUBGROUPS}: raise it"
        raise PlanError("subgroup_size", problem)
    rates = form.numbers("class_rates", "1,2,4,8", least=_SLOWEST, most=_FASTEST, count=len(classes))
    if len(rates) != len(classes):
        raise PlanError("class_rates", f"{len(classes)} classes need {len(classes)} rates, not {len(rates)}")
    everybody = tuple(rate for rate, users in zip(rates, classes, strict=True) for _ in range(users))
    requirements = _requirements(form, everybody, MOST_SUBGROUPS)
    plan = Plan.build(
        classes,
        levels,
        requirements.dimension,
        design=form.choice("design", get_args(DesignName)),
        value_range=requirements.value_range,
        subgroup_size=size,
        min_survivors=requirements.min_survivors,
        max_weight=requirements.max_weight,
        colluders=max(
            form.integer("colluders", requirements.min_survivors - 2, 0, MOST_USERS),
            default_colluders(sum(classes), requirements.min_survivors),
        ),
        dropout=requirements.dropout,
        fill_levels=form.flag("fill_levels"),
        ranges=requirements.ranges,
    )
    return Choice(plan=plan, requirements=requirements, rates=tuple(rates), proposal=None)


def _requirements(form: Form, rates: tuple[float, ...], most_subgroups: int = 16) -> planner.Requirements:
    in_bits = form.choice("limit", ("deadline", "bits")) == "bits"
    half_width = form.number("value_range", 1.0, 1e-9, 1e9)
    return planner.Requirements(
        rates=rates,
        dimension=form.integer("dimension", 79_510, 1, MOST_ELEMENTS),
        deadline=None if in_bits else form.number("deadline", 0.4, 1e-6, _LONGEST),
        bits=form.integer("bits", 800_000, 1, 10**12) if in_bits else None,
        dropout=form.number("dropout", 0.1, 0.0, 0.49),
        corrupt=form.number("corrupt", 0.0, 0.0, 0.49),
        attackers=form.integer("attackers", 2, 0, MOST_USERS),
        min_survivors=form.integer("min_survivors", 3, 2, MOST_USERS),
        value_range=(-half_width, half_width),
        ranges=form.choice("ranges", get_args(RangesName)),
        max_weight=form.integer("max_weight", 1, 1, 10**6),
        most_classes=form.integer("most_classes", 6, 1, 20),
        most_subgroups=form.integer("most_subgroups", most_subgroups, 2, MOST_SUBGROUPS),
    )


def _rates(form: Form) -> list[float]:
    """Everybody's upload rate: listed, or the quantiles of a distribution, the same for the same form."""
    kind = form.choice("rates_kind", ("log-even", "even", "lognormal", "list"))
    if kind == "list":
        return form.numbers("rates", "1 x 24, 2 x 24, 4 x 24, 8 x 24", least=_SLOWEST, most=_FASTEST, count=MOST_USERS)
    users = form.integer("users", 96, 4, MOST_USERS)
    if kind == "lognormal":
        median, spread = form.number("median", 4.0, _SLOWEST, _FASTEST), form.number("spread", 0.7, 0.0, 3.0)
        found = [*planner.spread_rates(median, spread, users)]
    else:
        slow, fast = form.number("slowest", 1.0, _SLOWEST, _FASTEST), form.number("fastest", 20.0, _SLOWEST, _FASTEST)
        if fast < slow:
            raise PlanError("fastest", f"is below the slowest rate of {slow:g} Mb/s: swap them")
        places = [(index + 0.5) / users for index in range(users)]
        found = [slow + (fast - slow) * place if kind == "even" else slow * (fast / slow) ** place for place in places]
    return [float(f"{min(max(rate, _SLOWEST), _FASTEST):.4g}") for rate in found]
