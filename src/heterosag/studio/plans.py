"""The Plan tab: from the page's form to a plan, and from a plan to what the page shows of it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any, get_args

from heterosag import planner
from heterosag.choices import DesignName, RangesName
from heterosag.errors import PlanError
from heterosag.plan import Plan, costs
from heterosag.plan.assignment import count_subgroups
from heterosag.plan.design import paper
from heterosag.plan.summary import summarise
from heterosag.studio.forms import Form
from heterosag.studio.private import EPSILONS, PrivateChoice, choose_private, describe_private, trace_epsilon

__all__ = [
    "MOST_ELEMENTS",
    "MOST_SUBGROUPS",
    "MOST_USERS",
    "Choice",
    "choose",
    "choose_point",
    "describe",
    "name_curves",
    "spread_points",
    "trace",
]

MOST_USERS = 10_000
MOST_SUBGROUPS = 64
MOST_ELEMENTS = 10**9

_SLOWEST, _FASTEST = 1e-3, 1e5  # Mb/s
_LONGEST = 1e6  # seconds
_CURVE = 18  # points
_LIKELY_FAILURE = 0.01  # from here on the page warns


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


# --- from the form to a plan --------------------------------------------------------------------------------------


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
    classes = form.whole_numbers("classes", "24,24,24,24", most=MOST_USERS)
    levels = form.whole_numbers("levels", "2,6,8,12", most=2**32)
    size = form.whole("subgroup_size", 8, 1, MOST_USERS)
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
        colluders=form.whole("colluders", requirements.min_survivors - 2, 0, MOST_USERS),
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
        dimension=form.whole("dimension", 79_510, 1, MOST_ELEMENTS),
        deadline=None if in_bits else form.number("deadline", 0.8, 1e-6, _LONGEST),
        bits=form.whole("bits", 800_000, 1, 10**12) if in_bits else None,
        dropout=form.number("dropout", 0.1, 0.0, 0.49),
        corrupt=form.number("corrupt", 0.0, 0.0, 0.49),
        attackers=form.whole("attackers", 2, 0, MOST_USERS),
        min_survivors=form.whole("min_survivors", 3, 2, MOST_USERS),
        value_range=(-half_width, half_width),
        ranges=form.choice("ranges", get_args(RangesName)),
        max_weight=form.whole("max_weight", 1, 1, 10**6),
        most_classes=form.whole("most_classes", 6, 1, 20),
        most_subgroups=form.whole("most_subgroups", most_subgroups, 2, MOST_SUBGROUPS),
    )


def _rates(form: Form) -> list[float]:
    """Everybody's upload rate: listed, or the quantiles of a distribution, the same for the same form."""
    kind = form.choice("rates_kind", ("log-even", "even", "lognormal", "list"))
    if kind == "list":
        return form.numbers("rates", "1 x 24, 2 x 24, 4 x 24, 8 x 24", least=_SLOWEST, most=_FASTEST, count=MOST_USERS)
    users = form.whole("users", 96, 4, MOST_USERS)
    places = [(index + 0.5) / users for index in range(users)]
    if kind == "lognormal":
        middle, spread = form.number("median", 4.0, _SLOWEST, _FASTEST), form.number("spread", 0.7, 0.0, 3.0)
        found = [middle * math.exp(spread * NormalDist().inv_cdf(place)) for place in places]
    else:
        slow, fast = form.number("slowest", 1.0, _SLOWEST, _FASTEST), form.number("fastest", 20.0, _SLOWEST, _FASTEST)
        if fast < slow:
            raise PlanError("fastest", f"is below the slowest rate of {slow:g} Mb/s: swap them")
        found = [slow + (fast - slow) * place if kind == "even" else slow * (fast / slow) ** place for place in places]
    return [float(f"{min(max(rate, _SLOWEST), _FASTEST):.4g}") for rate in found]


# --- from a plan to the page --------------------------------------------------------------------------------------


def describe(choice: Choice) -> dict[str, Any]:
    """Everything the Plan tab shows, in JSON types."""
    plan, proposal = choice.plan, choice.proposal
    summary = summarise(plan)
    return {
        "design": summary["design"],
        "digest": summary["digest"],
        "users": summary["users"],
        "dimension": summary["dimension"],
        "min_survivors": plan.min_survivors,
        "error": plan.error_bound(),
        "subgroups": [
            {"class": subgroup.user_class, "users": len(subgroup.members), "who": _span(subgroup.members)}
            for subgroup in plan.subgroups
        ],
        "segments": _segments(plan),
        "classes": _classes(choice),
        "deadline": choice.requirements.deadline,
        "attackers": {"wanted": choice.requirements.attackers, "tolerated": summary["byzantine_tolerance"]},
        "problem": choice.problem,
        "privacy": None if choice.private is None else describe_private(choice.private),
        "guarantees": list(_guarantees(plan, summary)),
        "warnings": list(_warnings(choice, summary)),
        "notes": summary["notes"],
        "proposal": None
        if proposal is None
        else {
            "lower_bound": proposal.lower_bound,
            "binding": proposal.binding,
            "relaxing": [{"what": one.what, "error": one.error} for one in proposal.relaxing],
        },
        "exports": _exports(plan)
        | ({} if choice.private is None else {"command": describe_private(choice.private)["command"]}),
    }


def _segments(plan: Plan) -> list[dict[str, Any]]:
    return [
        {
            "start": segment.start,
            "size": segment.size,
            "blocks": [
                {
                    "subgroups": list(block.subgroups),
                    "users": block.users,
                    "level": block.level,
                    "bits": block.bits,
                    "range": list(plan.range_of(block)),
                }
                for block in segment.blocks
            ],
        }
        for segment in plan.segments
    ]


def _classes(choice: Choice) -> list[dict[str, Any]]:
    """A class as the page's bars show it: bytes of its largest upload, seconds of its slowest user."""
    plan, expansion = choice.plan, costs.of(choice.plan).expansion()
    sizes = [0] * len(plan.classes)
    for size, subgroup in zip(plan.vector_sizes(), plan.subgroups, strict=True):
        sizes[subgroup.user_class] = max(sizes[subgroup.user_class], size)
    return [
        {
            "users": users,
            "level": plan.levels[index],
            "rate": choice.rates[index],
            "bytes": sizes[index],
            "plaintext_bytes": sizes[index] / expansion[index],
            "seconds": sizes[index] * 8 / (choice.rates[index] * 1e6),
        }
        for index, users in enumerate(plan.classes)
    ]


def _span(members: tuple[int, ...]) -> str:
    """Who is assigned to a subgroup, by place on the roster."""
    whole = members[-1] - members[0] == len(members) - 1
    return f"users {members[0]} to {members[-1]}" if whole and len(members) > 1 else f"users {_some(members)}"


def _some(members: tuple[int, ...]) -> str:
    return ", ".join(map(str, members[:12])) + (", ..." if len(members) > 12 else "")


def _guarantees(plan: Plan, summary: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Each guarantee: its number, what it means, what the paper claims, and whether the claim holds here."""
    count, leak = len(plan.subgroups), plan.leak_probability()
    paired = plan.design.name not in ("secagg", "multigroup")
    robustness = plan.robustness()
    claim, holds = _robustness_claim(count) if paired and count > 1 else (None, None)
    yield _guarantee(
        "Inference robustness",
        str(robustness),
        f"Of the sum of any proper set of subgroups the server learns at most {1 - float(robustness):.1%} of the "
        "segments.",
        claim,
        holds,
    )
    tolerates = plan.byzantine_tolerance()
    claimed = max(0, -(-count // 4) - 1)
    yield _guarantee(
        "Attackers the median tolerates",
        str(tolerates),
        f"With {tolerates} malicious users, wherever they are, sound blocks are the majority in every segment.",
        f"ceil(Z/4) - 1 = {claimed} for Z = {count} subgroups" if paired else None,
        claimed == tolerates if paired else None,
    )
    yield _guarantee(
        "A lone survivor shows",
        f"{leak.with_min_survivors:.2g}",
        f"No sum over fewer than {plan.min_survivors} survivors of a subgroup is unmasked. Without that rule a user's "
        f"segment would be exposed in {leak.block:.2g} of the rounds at {plan.dropout:.0%} dropout.",
        f"Theorem 3: {leak.one:.2g}, which counts one subgroup; for any of {count} it is {leak.any:.2g}"
        if plan.design.name != "secagg"
        else None,
        leak.any <= 2 * leak.one if plan.design.name != "secagg" else None,
    )
    yield _guarantee(
        "A round fails",
        f"{summary['failure_probability']:.2g}",
        f"The price of least survivors: how often too few survive at {plan.dropout:.0%} dropout.",
    )
    if plan.noise_multiplier:
        yield _guarantee(
            "Noise",
            f"{summary['quantization_error']:.4g}",
            "Expected squared distance between the mean that is released and that of the clipped updates, at most.",
        )
    else:
        yield from _rounding(summary)
    yield _guarantee(
        "Shares that rebuild a secret",
        str(plan.share_threshold),
        f"Fewer than {plan.share_threshold} colluding holders learn nothing of a user's secrets; "
        f"{plan.agree_quorum} users must agree on who survived.",
    )


def _rounding(summary: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield _guarantee(
        "Rounding noise",
        f"{summary['quantization_error']:.4g}",
        "Expected squared distance between the mean of the quantized and of the clipped updates, at most.",
        "Lemma 2, summed over this plan's own blocks and their ranges",
        True,
    )
    yield _guarantee(
        "Bias of clipping",
        f"{summary['clip_bias']:.4g}",
        "Squared distance between the mean of the clipped and of the true updates, at most, if three standard "
        "deviations of their elements fill the value range. Few levels want narrow ranges, which clip more.",
    )


def _guarantee(
    name: str, value: str, words: str, claim: str | None = None, holds: bool | None = None
) -> dict[str, Any]:
    return {"name": name, "value": value, "words": words, "claim": claim, "holds": holds}


@lru_cache(maxsize=128)
def _robustness_claim(count: int) -> tuple[str, bool]:
    """What Theorem 1 says of so many subgroups, and whether it is true of the paper's own design."""
    claimed = (count - (1 if count % 2 else 2)) / count
    true = paper(count).robustness()
    holds = abs(claimed - float(true)) < 1e-12
    words = "and it has it" if holds else f"which truly has {true}"
    return f"Theorem 1: {claimed:.4g} for the paper's design on {count} subgroups, {words}", holds


def _warnings(choice: Choice, summary: dict[str, Any]) -> Iterator[str]:
    """What speaks against the plan, as far as the form's own requirements go."""
    plan, requirements = choice.plan, choice.requirements
    tolerates = summary["byzantine_tolerance"]
    if tolerates < requirements.attackers:
        yield f"The median tolerates {tolerates} attackers, not the {requirements.attackers} you want to tolerate."
    if summary["failure_probability"] > _LIKELY_FAILURE:
        yield f"{summary['failure_probability']:.1%} of the rounds fail for lack of survivors."
    if float(plan.robustness()) == 0 and len(plan.subgroups) > 1:
        yield "The server learns some set of subgroups' whole sum."
    rows = _classes(choice)
    late = [index for index, row in enumerate(rows) if row["seconds"] > (requirements.deadline or math.inf)]
    large = [index for index, row in enumerate(rows) if row["bytes"] * 8 > (requirements.bits or math.inf)]
    if late:
        most = max(rows[index]["seconds"] for index in late)
        limit = requirements.deadline
        yield f"{_named(late)} up to {most:.3g} s for the upload, more than the deadline of {limit:g} s."
    if large:
        most = max(rows[index]["bytes"] * 8 for index in large)
        yield f"{_named(large)} up to {most:,} bits for the upload, more than the {requirements.bits:,} allowed."


def _named(classes: list[int]) -> str:
    listed = ", ".join(map(str, classes))
    return f"Class {listed} needs" if len(classes) == 1 else f"Classes {listed} need"


# --- the trade-off ------------------------------------------------------------------------------------------------


def name_curves(choice: Choice) -> list[str]:
    """The curves that are drawn: one of error against deadline, or of error against epsilon one for some blocks."""
    if choice.private is None:
        return [""]
    named = {1: "one block"}
    return [named.get(one.subgroups, f"{one.subgroups} subgroups") for one in choice.private.curves]


def spread_points(choice: Choice) -> list[float]:
    """Deadlines around the plan's own, for the curve; or epsilons."""
    if choice.private is not None:
        return list(EPSILONS)
    middle = choose_point(choice)[0]
    return [float(f"{middle * 0.4 * 12.5 ** (at / (_CURVE - 1)):.3g}") for at in range(_CURVE)]


def trace(choice: Choice, curve: int, at: float) -> tuple[float, float | None]:
    """The planner's error bound at one deadline; or the error of the mean at one epsilon."""
    if choice.private is not None:
        return trace_epsilon(choice.private, choice.private.curves[curve], at)
    return planner.trade_off(choice.requirements, [at])[0]


def choose_point(choice: Choice) -> tuple[float, float]:
    """Where the plan stands: the deadline it was made for, or the seconds that it takes, and its error bound.

    Of a plan with noise its budget, and the error of the mean in clipping norms.
    """
    if choice.private is not None:
        return choice.private.requirements.epsilon, choice.private.proposal.error
    met = choice.requirements.deadline if choice.proposal is not None and choice.problem is None else None
    return met or max(row["seconds"] for row in _classes(choice)), choice.plan.error_bound()


# --- taking it away -----------------------------------------------------------------------------------------------


def _exports(plan: Plan) -> dict[str, str]:
    """The plan as a file, as a command and as Python."""
    low, high = plan.value_range
    flags = {
        "classes": _commas(plan.classes),
        "levels": _commas(plan.levels),
        "dimension": plan.dimension,
        "design": plan.design.name,
        "subgroup-size": plan.subgroup_size,
        "range": f"{low!r},{high!r}",
        "min-survivors": plan.min_survivors,
        "dropout": plan.dropout,
        "max-weight": plan.max_weight,
        "colluders": plan.colluders,
    }
    words = " \\\n  ".join(f"--{name}={value}" for name, value in flags.items())
    filled = "" if plan.fill_levels else " \\\n  --no-fill-levels"
    filled += " \\\n  --ranges=single" if plan.ranges == "single" else ""
    given = plan.arguments()
    ordered = "# users are numbered by their rate, slowest first\n" if given["users"] is not None else ""
    arguments = "".join(f"    {name}={value!r},\n" for name, value in given.items() if value not in (None, []))
    return {
        "toml": plan.to_toml(),
        "command": f"{ordered}heterosag plan \\\n  {words}{filled}\n",
        "python": f"from heterosag import Plan\n\nplan = Plan.build(\n{arguments})\nprint(plan.digest.hex())\n",
    }


def _commas(values: tuple[int, ...]) -> str:
    return ",".join(map(str, values))
