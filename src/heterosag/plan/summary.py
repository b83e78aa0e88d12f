"""A plan in JSON types: what `heterosag plan --json` prints and the records of runs keep."""

from __future__ import annotations

from typing import Any

from heterosag.plan import costs
from heterosag.plan.cohorts import CohortPlan
from heterosag.plan.dropout import LeakProbability
from heterosag.plan.layout import PlannedBlock, PlannedSegment
from heterosag.plan.notes import WITHOUT_IDENTITIES
from heterosag.plan.plan import Plan

__all__ = ["summarise", "summarise_cohorts"]


def summarise(plan: Plan, dropout: float | None = None, *, identities: bool = False) -> dict[str, Any]:
    """Everything a script wants to know of a plan, in JSON types.

    Args:
        plan: The plan.
        dropout: Replaces the plan's expected dropout rate.
        identities: Whether users sign, so that the notes need not say what is missing without.

    Returns:
        What `heterosag plan --json` prints; the keys are on the page on plans.

    Example:
        >>> from heterosag import Plan
        >>> from heterosag.plan.summary import summarise
        >>> summarise(Plan.build([12], [4], 90, value_range=1.0, subgroup_size=4))["segment_sizes"]
        [30, 30, 30]
    """
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
        "ranges": plan.ranges,
        "rotate": plan.rotate,
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
        "half_widths": [[_half_width(plan, segment, block) for block in segment.blocks] for segment in plan.segments],
        "inference_robustness": float(robustness),
        "inference_robustness_exact": robustness.exact,
        "min_robustness": plan.min_robustness,
        "byzantine_tolerance": plan.byzantine_tolerance(),
        "min_survivors": plan.min_survivors,
        "min_block_survivors": plan.min_block_survivors,
        "max_weight": plan.max_weight,
        "colluders": plan.colluders,
        "clipping_norm": plan.clipping_norm,
        "noise_multiplier": plan.noise_multiplier,
        "honest": plan.honest,
        "share_threshold": plan.share_threshold,
        "neighbours": plan.sharing.neighbours,
        "agree_quorum": plan.agree_quorum,
        "dropout": rate,
        "leak_probability": _leak(leak),
        "failure_probability": plan.failure_probability(rate),
        "quantization_error": plan.quantization_error(),
        "clip_bias": plan.clip_bias(),
        "upload_bits": list(bits.per_class()),
        "auxiliary_bits": bits.auxiliary_bits,
        "expansion": {"plaintext": list(bits.expansion()), "secagg": list(bits.against_secagg())},
        "notes": _notes(plan, identities=identities),
    }


def summarise_cohorts(plan: CohortPlan, dropout: float | None = None, *, identities: bool = False) -> dict[str, Any]:
    """Everything a script wants to know of cohorts, in JSON types.

    Args:
        plan: The cohorts.
        dropout: Replaces the plans' expected dropout rate.
        identities: As for `summarise`.

    Returns:
        What `heterosag plan --cohort --json` prints: sizes, guarantees and costs of the whole, and of each cohort under
        `cohorts`. A class sends what it sends in the cohort where that is most.

    Example:
        >>> from heterosag import CohortPlan
        >>> from heterosag.plan.summary import summarise_cohorts
        >>> found = summarise_cohorts(CohortPlan.build([200], [16], 1000, cohort_size=100, value_range=1.0))
        >>> [cohort["users"] for cohort in found["cohorts"]], found["users"]
        ([100, 100], 200)
    """
    first, bits = plan.plans[0], [costs.of(one) for one in plan.plans]
    robustness = plan.robustness()
    rate = first.dropout if dropout is None else dropout
    leak = plan.leak_probability(rate)
    return {
        "design": first.design.name,
        "digest": plan.digest.hex(),
        "users": len(plan.users),
        "dimension": plan.dimension,
        "value_range": list(plan.value_range),
        "ranges": first.ranges,
        "rotate": first.rotate,
        "cohort_size": plan.cohort_size,
        "cohorts": [
            {
                "digest": one.digest.hex(),
                "users": len(one.users),
                "classes": list(one.classes),
                "subgroups": len(one.subgroups),
                "segments": len(one.segments),
                "inference_robustness": float(one.robustness()),
                "byzantine_tolerance": one.byzantine_tolerance(),
                "failure_probability": one.failure_probability(rate),
            }
            for one in plan.plans
        ],
        "classes": list(plan.classes),
        "class_levels": list(plan.levels),
        "block_sums": sum(len(segment.blocks) for one in plan.plans for segment in one.segments),
        "inference_robustness": float(robustness),
        "inference_robustness_exact": robustness.exact,
        "byzantine_tolerance": plan.byzantine_tolerance(),
        "min_survivors": first.min_survivors,
        "min_block_survivors": first.min_block_survivors,
        "max_weight": first.max_weight,
        "colluders": plan.colluders,
        "clipping_norm": first.clipping_norm,
        "noise_multiplier": first.noise_multiplier,
        "honest": plan.honest,
        "share_threshold": min(one.share_threshold for one in plan.plans),
        "agree_quorum": min(one.agree_quorum for one in plan.plans),
        "dropout": rate,
        "leak_probability": _leak(leak),
        "failure_probability": plan.failure_probability(rate),
        "quantization_error": plan.quantization_error(),
        "clip_bias": plan.clip_bias(),
        "upload_bits": [max(sizes) for sizes in zip(*(one.per_class() for one in bits), strict=True)],
        "auxiliary_bits": max(one.auxiliary_bits for one in bits),
        "expansion": {
            "plaintext": [max(one) for one in zip(*(found.expansion() for found in bits), strict=True)],
            "secagg": [max(one) for one in zip(*(found.against_secagg() for found in bits), strict=True)],
        },
        "notes": _notes(plan, identities=identities),
    }


def _notes(plan: Plan | CohortPlan, *, identities: bool) -> list[str]:
    return [note for note in plan.notes if not (identities and note == WITHOUT_IDENTITIES)]


def _leak(leak: LeakProbability) -> dict[str, float]:
    names = ("one", "any", "block", "with_min_survivors")
    return {name: getattr(leak, name) for name in names}


def _half_width(plan: Plan, segment: PlannedSegment, block: PlannedBlock) -> float:
    if plan.noise_multiplier:
        return plan.noise_range(segment, block.level).block_range
    low, high = plan.range_of(block)
    return (high - low) / 2
