"""What is claimed of rounds, in one sentence: unit, neighbours, who looks, delta, and whom it does not count on."""

from __future__ import annotations

from heterosag.errors import UsageError
from heterosag.plan import Plan

__all__ = ["CALLED_PRIVATE", "state", "word_for"]

CALLED_PRIVATE = 10.0
"""Up to this epsilon the guarantee is called differential privacy, above it a noise floor."""


def word_for(epsilon: float) -> str:
    """What an epsilon is called.

    Args:
        epsilon: Against whoever sees all sums.

    Returns:
        Differential privacy, or a noise floor.

    Example:
        >>> word_for(8.0)
        'differential privacy'
    """
    return "differential privacy" if epsilon <= CALLED_PRIVATE else "a noise floor, no guarantee"


def state(
    plan: Plan,
    *,
    epsilon_server: float,
    epsilon_model: float | None,
    delta: float,
    rounds: int,
    identities: bool,
    simulated: bool = False,
) -> str:
    """The claim about rounds of a plan.

    Args:
        plan: A plan with noise.
        epsilon_server: Epsilon against whoever sees all sums.
        epsilon_model: Epsilon against whoever sees the released models only; None where the rule is not the mean.
        delta: Delta of both.
        rounds: Rounds that were charged.
        identities: Whether users sign: without, the server is trusted to follow the protocol.
        simulated: Whether noise came from a seed, or nothing was masked.

    Returns:
        One sentence.

    Raises:
        UsageError: A plan without noise.

    Example:
        >>> plan = Plan.build([40], [2], 900, design="secagg", subgroup_size=40, min_block_survivors=32,
        ...     clipping_norm=1.0, noise_multiplier=4.0)
        >>> state(plan, epsilon_server=7.9, epsilon_model=None, delta=1e-5, rounds=20, identities=True)[:39]
        'every user over 20 rounds at delta 1e-0'
    """
    if not plan.noise_multiplier:
        raise UsageError("this plan has no noise, so nothing is claimed")
    if simulated:
        return "simulated, no privacy: the noise can be repeated, or nothing was masked"
    views = [f"epsilon {epsilon_server:.2f} against whoever sees all sums ({word_for(epsilon_server)})"]
    if epsilon_model is not None:
        views.append(f"epsilon {epsilon_model:.2f} against whoever sees the models only ({word_for(epsilon_model)})")
    others = plan.min_block_survivors - plan.honest
    return (
        f"every user over {rounds} rounds at delta {delta:g}, all of its trials in all rounds against fair coins: "
        f"{', '.join(views)}; the server is {'malicious or curious' if identities else 'curious, not malicious'}, and "
        f"of the {plan.min_block_survivors} or more survivors of a block {others} may not follow the mechanism"
    )
