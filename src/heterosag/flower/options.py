"""The options of a `SecureGrid`, checked when it is made: what cannot work is refused before a node is asked."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

import numpy as np

from heterosag.aggregation.combine import check_rule
from heterosag.aggregation.rules import RULES, find_rule
from heterosag.choices import AssignmentName
from heterosag.errors import PlanError, UsageError
from heterosag.flower.messages import STAGES
from heterosag.flower.privacy import Privacy
from heterosag.plan import CohortPlan, Plan

__all__ = ["check_options"]

_KEY_BYTES = 32
_OWN_OPTIONS = {"classes", "levels", "dimension", "users", "max_weight", "metrics", "value_range", "arrays", "scales"}
_DECIDED = {
    "noise_multiplier": "privacy=Privacy(...), from which its noise follows",
    "clipping_norm": "privacy=Privacy(clipping_norm=...)",
    "adaptive_clip": "privacy=Privacy(adaptive_clip=...)",
    "honest": "min_block_survivors and colluders, from which it follows",
    "rates": "levels, and rate_limits for nodes that name their rate",
    "deadline": "levels that are in time (heterosag optimize finds them), and timeouts",
}
"""What the grid decides itself of what `Plan.build` takes, and what to say instead."""


def check_options(
    *,
    plan: Plan | CohortPlan | None,
    privacy: Privacy | None,
    value_range: Any,
    levels: Any,
    rate_limits: Any,
    rule: Any,
    max_weight: Any,
    weight_unit: Any,
    weighted_by: Any,
    metrics: Any,
    exclude: Any,
    tied: Any,
    directory: Mapping[Any, Any] | None,
    assignment: Any,
    cohort_size: Any,
    timeouts: Any,
    options: Mapping[str, Any] | None,
    hide_sets_below: Any,
    stop_after: Any,
) -> None:
    """Refuse an option that has the wrong type or a value that no round could be run with; the error names it."""
    if not isinstance(levels, Sequence) or not levels or not all(_is_whole(level, 2) for level in levels):
        raise PlanError("levels", f"is a list with one number from 2 on for each class, slowest first, not {levels!r}")
    if not isinstance(rule, str) or rule not in RULES:
        raise UsageError(f"rule is one of the names {', '.join(RULES)}, not {rule!r}")
    for name, value, least in (
        ("max_weight", max_weight, 1), ("weight_unit", weight_unit, 1), ("hide_sets_below", hide_sets_below, 0),
        ("stop_after", stop_after, 0), ("cohort_size", cohort_size, 4),
    ):  # fmt: skip
        if not _is_whole(value, least):
            raise PlanError(name, f"is an integer from {least} on, not {value!r}")
    if not isinstance(weighted_by, str) or not weighted_by:
        raise PlanError("weighted_by", f"is the name of a metric, not {weighted_by!r}")
    for name, value in (("metrics", metrics), ("exclude", exclude)):
        if isinstance(value, str) or not all(isinstance(one, str) for one in value):
            raise PlanError(name, f"is a list of names, not {value!r}")
    if tied is not None and not (isinstance(tied, Mapping) and all(isinstance(one, str) for one in tied.values())):
        raise PlanError("tied", f"has for the name of an array the one it is tied to, not {tied!r}")
    if assignment not in get_args(AssignmentName):
        raise PlanError("assignment", f"is 'enrolled' or 'server', not {assignment!r}")
    for node, key in (directory or {}).items():
        if not str(node).isdigit() or not isinstance(key, bytes) or len(key) != _KEY_BYTES:
            raise PlanError("directory", f"has node ids and public keys of {_KEY_BYTES} bytes: see {node!r}")
    unknown = set(options or {}) - set(inspect.signature(Plan.build).parameters)
    if unknown:
        raise PlanError("options", f"goes to Plan.build, which does not know {sorted(unknown)}")
    for name, instead in _DECIDED.items():
        if name in (options or {}):
            raise PlanError("options", f"{name} is what the grid decides itself: give {instead}")
    if set(options or {}) & _OWN_OPTIONS:
        raise PlanError("options", f"{sorted(set(options or {}) & _OWN_OPTIONS)} are arguments of the grid itself")
    _check_timeouts(timeouts)
    enrols = directory is not None and assignment == "enrolled"
    if enrols and "assignment_seed" in (options or {}):
        raise PlanError("options", "an assignment_seed assigns nodes by the server: say assignment='server'")
    if privacy is not None and (plan is not None or value_range is not None or metrics):
        raise PlanError("privacy", "the grid plans noise itself, without a plan, value_range or metrics of your own")
    if plan is not None:
        if plan.noise_multiplier:
            raise PlanError("noise_multiplier", "the grid plans noise itself: give privacy=Privacy(...) and no plan")
        if max_weight != 1 or options or metrics:
            raise PlanError("plan", "a plan given has its own max_weight, metrics and options: leave them out here")
        check_rule(plan, find_rule(rule))
        return
    if len(rate_limits) not in (0, len(levels) - 1) or list(rate_limits) != sorted(set(rate_limits)):
        raise PlanError("rate_limits", f"{len(levels)} classes have {len(levels) - 1} rising limits between them")
    if enrols and len({int(level) for level in levels}) < len(levels):
        raise PlanError(
            "levels",
            f"{[int(level) for level in levels]!r} has two classes of one level, which nodes refuse where they draw "
            "their assignment: make them one class, or say assignment='server', which the nodes must allow",
        )


def _check_timeouts(timeouts: Any) -> None:
    seconds: Iterable[Any] = ()
    if isinstance(timeouts, Mapping):
        if set(timeouts) - set(STAGES):
            raise UsageError(f"timeouts are for the stages {', '.join(sorted(STAGES))}, not {sorted(timeouts)}")
        seconds = timeouts.values()
    elif timeouts is not None:
        seconds = [timeouts]
    for value in seconds:
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise UsageError(f"timeouts are seconds above 0, not {value!r}")


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= least)
