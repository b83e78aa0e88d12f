"""A plan in JSON types: what `heterosag plan --json` prints and the records of runs keep."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from heterosag.plan import costs
from heterosag.plan.cohorts import CohortPlan, plans_of
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
    robustness = plan.robustness()
    return {
        **_describe_vector(plan),
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
        **_describe_rounds(plan, rate, identities=identities),
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
    rate = plan.plans[0].dropout if dropout is None else dropout
    robustness = plan.robustness()
    return {
        **_describe_vector(plan),
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
        **_describe_rounds(plan, rate, identities=identities),
    }


def _describe_vector(plan: Plan | CohortPlan) -> dict[str, Any]:
    """The keys that every summary begins with: whose vectors these are, and how they are coded."""
    first = plans_of(plan)[0]
    return {
        "design": first.design.name,
        "digest": plan.digest.hex(),
        "users": len(plan.users),
        "dimension": plan.dimension,
        "value_range": list(plan.value_range),
        "ranges": first.ranges,
        "rotate": first.rotate,
    }


def _describe_rounds(plan: Plan | CohortPlan, rate: float, *, identities: bool) -> dict[str, Any]:
    """The keys that every summary ends with: who must survive, what fails, and what it costs, of cohorts at worst."""
    plans = plans_of(plan)
    first, bits = plans[0], [costs.of(one) for one in plans]
    leak = plan.leak_probability(rate)
    return {
        "min_survivors": first.min_survivors,
        "min_block_survivors": first.min_block_survivors,
        "max_weight": first.max_weight,
        "colluders": plan.colluders,
        "clipping_norm": first.clipping_norm,
        "noise_multiplier": first.noise_multiplier,
        "honest": plan.honest,
        "share_threshold": min(one.share_threshold for one in plans),
        **({"neighbours": plan.sharing.neighbours} if isinstance(plan, Plan) else {}),
        "agree_quorum": min(one.agree_quorum for one in plans),
        "dropout": rate,
        "leak_probability": {name: getattr(leak, name) for name in ("one", "any", "block", "with_min_survivors")},
        "failure_probability": plan.failure_probability(rate),
        "quantization_error": plan.quantization_error(),
        "clip_bias": plan.clip_bias(),
        "upload_bits": _most([one.per_class() for one in bits]),
        "auxiliary_bits": max(one.auxiliary_bits for one in bits),
        "expansion": {
            "plaintext": _most([one.expansion() for one in bits]),
            "secagg": _most([one.against_secagg() for one in bits]),
        },
        "notes": [note for note in plan.notes if not (identities and note == WITHOUT_IDENTITIES)],
    }


def _most(found: Iterable[tuple[float, ...]]) -> list[float]:
    """Of each class what it is in the cohort where it is most."""
    return [max(one) for one in zip(*found, strict=True)]


def _half_width(plan: Plan, segment: PlannedSegment, block: PlannedBlock) -> float:
    if plan.noise_multiplier:
        return plan.noise_range(segment, block.level).block_range
    low, high = plan.range_of(block)
    return (high - low) / 2
