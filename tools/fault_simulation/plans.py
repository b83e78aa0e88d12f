"""The plans of the simulated world: small, of every design, built once a process."""

from __future__ import annotations

import random
from copy import copy
from functools import cache
from typing import Any

from heterosag.plan import Plan
from heterosag.plan.sharing import sparse_graph

__all__ = ["PLANS", "choose_plan", "find_plan"]

_SMALL: dict[str, Any] = {"value_range": 1.0, "min_survivors": 2, "dimension": 11, "dropout": 0.05}
_LOSSY: dict[str, Any] = {**_SMALL, "min_robustness": 0.0}
_SPARSE: dict[str, Any] = {**_LOSSY, "sparse": (4, 3)}

# How often, then what Plan.build is given; `sparse` is neighbours and threshold of a ring, which the plan itself
# would only choose for many more users.
PLANS: tuple[tuple[int, dict[str, Any]], ...] = (
    (9, {**_SMALL, "classes": [4], "levels": [4], "subgroup_size": 2}),
    (9, {**_SMALL, "classes": [4], "levels": [3], "subgroup_size": 2, "design": "secagg", "metrics": ["loss"]}),
    (9, {**_SMALL, "classes": [2, 2], "levels": [2, 6], "subgroup_size": 2, "max_weight": 5}),
    (9, {**_LOSSY, "classes": [4], "levels": [9], "subgroup_size": 2, "design": "multigroup", "dimension": 1}),
    (6, {**_SMALL, "classes": [5], "levels": [70_000], "subgroup_size": 2, "users": ["a", "b", "c", "d", "e"]}),
    (6, {**_LOSSY, "classes": [6], "levels": [5], "subgroup_size": 2, "metrics": ["loss", "accuracy"]}),
    (6, {**_LOSSY, "classes": [3, 3], "levels": [2, 50], "subgroup_size": 3, "min_survivors": 3, "assignment_seed": 4}),
    (6, {**_LOSSY, "classes": [6], "levels": [4], "subgroup_size": 2, "design": "paper", "dimension": 20}),
    (5, {**_LOSSY, "classes": [6], "levels": [4], "subgroup_size": 3, "design": "multigroup", "max_weight": 3}),
    (5, {**_LOSSY, "classes": [6], "levels": [4], "subgroup_size": 3, "design": "secagg", "colluders": 1}),
    (4, {**_SPARSE, "classes": [6], "levels": [4], "subgroup_size": 3}),
    (3, {**_LOSSY, "classes": [3, 4], "levels": [3, 9], "subgroup_size": 3, "fill_levels": True, "rotate": True}),
    (3, {**_SMALL, "classes": [8], "levels": [4], "subgroup_size": 2, "dimension": 30}),
    (3, {**_LOSSY, "classes": [8], "levels": [2], "subgroup_size": 4, "metrics": ["loss"], "min_survivors": 3}),
    (3, {**_LOSSY, "classes": [8], "levels": [6], "subgroup_size": 4, "min_survivors": 3, "max_weight": 9}),
    (3, {**_SPARSE, "classes": [8], "levels": [4], "subgroup_size": 2}),
    (2, {**_LOSSY, "classes": [8], "levels": [6], "subgroup_size": 2, "design": "paper-composite"}),
    (2, {**_LOSSY, "classes": [3, 6], "levels": [2, 7], "subgroup_size": 3, "design": "paper", "min_survivors": 3}),
    (2, {**_SPARSE, "classes": [9], "levels": [4], "subgroup_size": 3, "assignment_seed": 2, "max_weight": 2}),
    (1, {**_LOSSY, "classes": [12], "levels": [3], "subgroup_size": 3, "metrics": ["loss"], "min_survivors": 3}),
    (1, {**_SPARSE, "classes": [12], "levels": [5], "subgroup_size": 3, "sparse": (6, 4)}),
    (1, {**_LOSSY, "classes": [8, 8], "levels": [2, 8], "subgroup_size": 4, "min_survivors": 3, "dimension": 40}),
)


@cache
def find_plan(place: int) -> Plan:
    """The plan at a place of the table."""
    requirements = dict(PLANS[place][1])
    ring = requirements.pop("sparse", None)
    plan = Plan.build(**requirements)
    if ring is None:
        return plan
    order = list(range(len(plan.users)))
    random.Random(place).shuffle(order)
    changed = copy(plan)  # no arguments make this one: it is changed behind the plan's back
    object.__setattr__(changed, "sharing", sparse_graph(order, *ring))
    object.__setattr__(changed, "_digest", [])
    return changed


def choose_plan(draw: random.Random) -> int:
    """A place in the table; small plans come more often, so that a schedule is quick."""
    return draw.choices(range(len(PLANS)), weights=[weight for weight, _ in PLANS])[0]
