"""What the record of a run says of its privacy after a round, whichever engine ran it."""

from __future__ import annotations

from typing import Any

from heterosag.plan import CohortPlan, Plan
from heterosag.plan.cohorts import plans_of
from heterosag.privacy.statement import state

__all__ = ["describe_privacy"]


def describe_privacy(
    plan: Plan | CohortPlan,
    *,
    epsilon_server: float,
    epsilon_model: float | None,
    delta: float,
    rounds: int,
    identities: bool,
    simulated: bool = False,
) -> dict[str, Any]:
    """What a line says of the privacy of all rounds so far.

    Args:
        plan: The plan of the round, or its cohorts, whose noise and honest survivors are alike.
        epsilon_server: Epsilon against whoever sees all sums.
        epsilon_model: Epsilon against whoever sees the released models only; None where the rule is not the mean.
        delta: Delta of both.
        rounds: Rounds that were charged.
        identities: Whether users sign.
        simulated: Whether noise came from a seed, or nothing was masked.

    Returns:
        What was spent and claimed, in JSON types.

    Raises:
        UsageError: A plan without noise.
    """
    one = plans_of(plan)[0]
    return {
        "epsilon_server": epsilon_server,
        "epsilon_model": epsilon_model,
        "delta": delta,
        "honest": plan.honest,
        "clipping_norm": one.clipping_norm,
        "noise_multiplier": plan.noise_multiplier,
        "error_in_clipping_norms": plan.quantization_error() ** 0.5 / plan.value_range[1],
        "simulated": simulated,
        "statement": state(
            one,
            epsilon_server=epsilon_server,
            epsilon_model=epsilon_model,
            delta=delta,
            rounds=rounds,
            identities=identities,
            simulated=simulated,
        ),
    }
