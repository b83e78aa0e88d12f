"""The options of a `SecureGrid`, checked when it is made: what cannot work is refused before a node is asked."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from logging import INFO, WARNING
from typing import Any

import numpy as np
from flwr.common.logger import log

from heterosag.aggregation.rules import RULES
from heterosag.errors import PlanError, UsageError
from heterosag.flower.messages import COMMIT, HELLO, REVEAL
from heterosag.plan import CohortPlan, Plan
from heterosag.protocol.transitions import Phase

__all__ = ["check_options", "check_private"]

_STAGES = {HELLO, COMMIT, REVEAL, *(phase.value for phase in Phase)}
_KEY_BYTES = 32


def check_options(
    *,
    levels: Any,
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
    if assignment not in ("enrolled", "server"):
        raise PlanError("assignment", f"is 'enrolled' or 'server', not {assignment!r}")
    for node, key in (directory or {}).items():
        if not str(node).isdigit() or not isinstance(key, bytes) or len(key) != _KEY_BYTES:
            raise PlanError("directory", f"has node ids and public keys of {_KEY_BYTES} bytes: see {node!r}")
    unknown = set(options or {}) - set(inspect.signature(Plan.build).parameters)
    if unknown:
        raise PlanError("options", f"goes to Plan.build, which does not know {sorted(unknown)}")
    _check_timeouts(timeouts)


def check_private(plan: Plan | CohortPlan | None, value_range: Any, metrics: Sequence[str], max_weight: int) -> None:
    """Refuse what contradicts noise, and say what is off."""
    if plan is not None or value_range is not None or metrics:
        raise PlanError("privacy", "the grid plans noise itself, without a plan, value_range or metrics of your own")
    if max_weight > 1:
        log(WARNING, "weights are off under privacy: every node counts alike")
    log(INFO, "under privacy nodes count alike, and no metrics or secure evaluations: their sums would be exact")


def _check_timeouts(timeouts: Any) -> None:
    seconds: Iterable[Any] = ()
    if isinstance(timeouts, Mapping):
        if set(timeouts) - _STAGES:
            raise UsageError(f"timeouts are for the stages {', '.join(sorted(_STAGES))}, not {sorted(timeouts)}")
        seconds = timeouts.values()
    elif timeouts is not None:
        seconds = [timeouts]
    for value in seconds:
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise UsageError(f"timeouts are seconds above 0, not {value!r}")


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= least)
