"""A plan as settings of a training run: `heterosag train --plan plan.toml`. Knows no torch, like the settings."""

from __future__ import annotations

from typing import Any

from heterosag.errors import UsageError
from heterosag.plan import Plan

__all__ = ["PLANNED", "check_dimension", "settings_of"]

PLANNED = (
    *("classes", "levels", "design", "subgroup_size", "min_survivors", "min_robustness", "colluders", "sharing"),
    *("fill_levels", "rotate"),
)
"""The settings that a plan decides."""


def settings_of(plan: Plan) -> dict[str, Any]:
    """What a plan decides of a training run; its users are numbered class by class.

    The value range is not among it: training starts from the model, and follows the updates.

    Args:
        plan: The plan, such as one that `heterosag optimize --save` wrote.

    Returns:
        Settings by name.

    Raises:
        UsageError: The plan has what training on one machine does not do.

    Example:
        >>> from heterosag import Plan
        >>> from heterosag.training.plan_settings import settings_of
        >>> settings_of(Plan.build([8, 8], [4, 16], 3610, value_range=0.5, subgroup_size=4))["levels"]
        [4, 16]
    """
    if plan.noise_multiplier:
        raise UsageError("this plan has noise, which training plans by itself: give --epsilon instead of --plan")
    if plan.max_weight > 1 or plan.metrics:
        raise UsageError("training counts users alike and sums no metrics: plan with a max_weight of 1 and no metrics")
    arguments = plan.arguments()
    found = {name: arguments[name] for name in PLANNED}
    if plan.min_robustness == plan.inference_robustness():
        found["min_robustness"] = None  # the plan's own, also without users who are left out later
    if plan.ranges == "single":
        found["range_rule"] = "quantile"
    return found | {"classes": list(plan.classes), "levels": list(plan.levels)}


def check_dimension(plan: Plan, model: str, parameters: int) -> None:
    """Refuse a plan for another model.

    Args:
        plan: The plan.
        model: The model's name.
        parameters: How many it has.

    Raises:
        UsageError: The plan has another dimension.
    """
    if plan.dimension != parameters:
        raise UsageError(
            f"the plan is for {plan.dimension:,} elements, the model {model!r} has {parameters:,}: plan with "
            f"--dimension {parameters}, or give the --model that it is for"
        )
