"""The guarantees on the Plan tab: each number, what it means, what the paper claims, and whether the claim holds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from heterosag.plan import Plan
from heterosag.plan.design import paper, tolerated_subgroups

__all__ = ["list_guarantees"]


def list_guarantees(plan: Plan, summary: dict[str, Any]) -> Iterator[dict[str, Any]]:
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
    claimed = tolerated_subgroups(count)
    yield _guarantee(
        "Attackers the median tolerates",
        str(tolerates),
        f"With {tolerates} malicious users, wherever they are, honest blocks are the majority in every segment.",
        f"ceil(Z/4) - 1 = {claimed} for Z = {count} subgroups" if paired else None,
        claimed == tolerates if paired else None,
    )
    yield _guarantee(
        "A lone survivor is exposed",
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
        f"What least survivors cost: how often too few survive at {plan.dropout:.0%} dropout.",
    )
    if plan.noise_multiplier:
        yield _guarantee(
            "Noise",
            _rms(plan, plan.quantization_error()),
            "Expected distance between the mean that is released and that of the clipped updates, at most: root mean "
            "square a parameter.",
        )
    else:
        yield from _rounding(plan)
    yield _guarantee(
        "Shares that rebuild a secret",
        str(plan.share_threshold),
        f"Fewer than {plan.share_threshold} colluding holders learn nothing of a user's secrets; "
        f"{plan.agree_quorum} users must agree on who survived.",
    )


def _rounding(plan: Plan) -> Iterator[dict[str, Any]]:
    yield _guarantee(
        "Rounding noise",
        _rms(plan, plan.quantization_error()),
        "Expected distance between the mean of the quantized and of the clipped updates, at most: root mean square a "
        "parameter.",
        "Lemma 2, summed over this plan's own blocks and their ranges",
        True,
    )
    yield _guarantee(
        "Bias of clipping",
        _rms(plan, plan.clip_bias()),
        "Distance between the mean of the clipped and of the true updates, at most, if three standard deviations of "
        "their elements fill the value range: root mean square a parameter. Few levels want narrow ranges, which clip "
        "more.",
    )


def _rms(plan: Plan, squared: float) -> str:
    """A squared distance between vectors as the root mean square of their elements."""
    return f"{math.sqrt(squared / plan.dimension):.3g}"


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
