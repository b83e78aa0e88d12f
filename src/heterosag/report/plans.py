"""A plan's structure, guarantees and costs as plain data: what `heterosag plan --json` prints."""

from __future__ import annotations

from typing import Any

from heterosag import costs
from heterosag.plan import Plan

__all__ = ["chance", "summarise"]

_NOISE = 1e-12  # probabilities are computed in float64, and below this say nothing


def chance(probability: float) -> str:
    """A probability for people: two digits, and no digits where it is too small to be told from rounding."""
    return f"below {_NOISE:.0e}" if 0 < probability < _NOISE else f"{probability:.2g}"


def summarise(plan: Plan, dropout: float | None = None) -> dict[str, Any]:
    """Everything a script wants to know of a plan, in JSON types. `dropout` replaces the plan's expected rate."""
    rate = plan.dropout if dropout is None else dropout
    leak = plan.leak_probability(rate)
    robustness = plan.robustness()
    bits = costs.of(plan)
    return {
        "design": plan.design.name,
        "digest": plan.digest.hex(),
        "users": len(plan.users),
        "dimension": plan.dimension,
        "value_range": list(plan.value_range),
        "classes": list(plan.classes),
        "class_levels": list(plan.levels),
        "subgroups": [
            {"class": subgroup.user_class, "users": [plan.users[index] for index in subgroup.members]}
            for subgroup in plan.subgroups
        ],
        "segments": [[list(block.subgroups) for block in segment.blocks] for segment in plan.segments],
        "segment_sizes": [segment.size for segment in plan.segments],
        "levels": [[block.level for block in segment.blocks] for segment in plan.segments],
        "bits": [[block.bits for block in segment.blocks] for segment in plan.segments],
        "inference_robustness": float(robustness),
        "inference_robustness_exact": robustness.exact,
        "min_robustness": plan.min_robustness,
        "byzantine_tolerance": plan.byzantine_tolerance(),
        "floor": plan.floor,
        "weight_bound": plan.weight_bound,
        "colluders": plan.colluders,
        "share_threshold": plan.share_threshold,
        "neighbours": plan.sharing.neighbours,
        "agree_quorum": plan.agree_quorum,
        "dropout": rate,
        "leak_probability": {
            "one": leak.one,
            "any": leak.any,
            "block": leak.block,
            "with_floor": leak.with_floor,
        },
        "failure_probability": plan.failure_probability(rate),
        "quantization_error": plan.quantization_error(),
        "upload_bits": list(bits.per_class()),
        "auxiliary_bits": bits.auxiliary_bits,
        "expansion": {"clear": list(bits.expansion()), "secagg": list(bits.against_secagg())},
        "notes": list(plan.notes),
    }
