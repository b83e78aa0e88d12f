"""Block sums to means to the aggregate: what is done with the sums once they are decoded.

A block that honest users cannot have made is *faulty* (blocks.py says when): the median and the trimmed mean leave
it out and the result names it; the mean raises. Metrics whose block is faulty are left out likewise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from heterosag.aggregation.rules import Rule
from heterosag.errors import FaultyBlockError, UsageError
from heterosag.plan import CohortPlan, Plan, User
from heterosag.plan.cohorts import plans_of
from heterosag.protocol.encoding import decode_blocks, decode_clip_bit, decode_metric
from heterosag.protocol.server import Decoded, DecodedBlock
from heterosag.vector.ring import Lanes

__all__ = [
    "BlockSum",
    "Combined",
    "check_blocks",
    "check_rule",
    "combine",
    "decode_segment",
    "mean_metrics",
    "within_norm",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSum:
    """One decoded block.

    Args:
        segment: The segment's index; the number of segments for the metrics' block.
        subgroups: Whose users it sums.
        survivors: How many of them survived.
        weight: Their weights together.
        clipped: How many of their elements were clipped.
        sums: The elements, in the block's ring.
        fault: Why it cannot come from honest users, None if it can.
    """

    segment: int
    subgroups: tuple[int, ...]
    survivors: int
    weight: int
    clipped: int
    sums: Lanes
    fault: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Combined:
    """The aggregate of a round, and what it was made of.

    Args:
        vector: The aggregate.
        survivors: Whose updates are in it.
        blocks: The decoded blocks of each segment.
        faulty_blocks: Those that were left out; the metrics' may be one of them.
        metrics: Means of the plan's metrics.
        inference_robustness: That of the survivors.
        byzantine_tolerance: How many faulty users the survivors' blocks tolerate.
        faulty_users: They dealt false shares: leave them out of the next rounds.
        within_norm: The fraction of survivors whose norm was within the clipping norm, with noise; None where the plan
            does not ask for it.
    """

    vector: npt.NDArray[np.float64]
    survivors: tuple[User, ...]
    blocks: tuple[tuple[BlockSum, ...], ...]
    faulty_blocks: tuple[BlockSum, ...]
    metrics: dict[str, float]
    inference_robustness: float
    byzantine_tolerance: int
    faulty_users: tuple[User, ...] = ()
    within_norm: float | None = None


def check_rule(plan: Plan | CohortPlan, rule: Rule) -> None:
    """Refuse a rule that could not outvote anything.

    Args:
        plan: The plan of the round, or its cohorts.
        rule: How the blocks of a segment become one.

    Raises:
        UsageError: The rule is robust, and every segment has one block.
    """
    if rule.leaves_out_faulty and not any(one.has_several_blocks for one in plans_of(plan)) and len(plans_of(plan)) < 2:
        raise UsageError(
            f"the rule {rule.name!r} has no effect on one block, whose sum is all that there is: use smaller subgroups "
            "(subgroup_size) and the design 'perfect', so that segments have several blocks, or the rule 'mean'"
        )


def combine(plan: Plan, decoded: Decoded, rule: Rule) -> Combined:
    """Check every block, combine the sound ones of each segment by the rule, and average the metrics.

    Args:
        plan: The plan of the round.
        decoded: What the server unmasked.
        rule: How the blocks of a segment become one.

    Returns:
        The aggregate.

    Raises:
        FaultyBlockError: Blocks are faulty that the rule cannot leave out, or no sound one is left in a segment.
    """
    blocks, faulty = check_blocks(plan, decoded, rule)
    vector = np.empty(plan.dimension)
    for index, segment in enumerate(plan.segments):
        means, weights = decode_segment(plan, blocks, index, rule)
        if not means:
            named = [(block.segment, block.subgroups) for block in blocks[index]]
            raise FaultyBlockError(named, f"no sound block is left in segment {index}", users=decoded.faulty)
        vector[segment.start : segment.stop] = rule.combine(means, weights)
    return Combined(
        vector=vector,
        survivors=decoded.survivors,
        blocks=blocks,
        faulty_blocks=faulty,
        metrics=mean_metrics(plan, decoded.metrics),
        inference_robustness=plan.inference_robustness(decoded.survivors),
        byzantine_tolerance=plan.byzantine_tolerance(decoded.survivors),
        faulty_users=decoded.faulty,
        within_norm=within_norm(plan, decoded.metrics),
    )


def check_blocks(
    plan: Plan, decoded: Decoded, rule: Rule
) -> tuple[tuple[tuple[BlockSum, ...], ...], tuple[BlockSum, ...]]:
    """The blocks of each segment, and the faulty ones of all, unless the rule cannot leave them out.

    Args:
        plan: The plan of the round.
        decoded: What the server unmasked.
        rule: How the blocks of a segment become one.

    Returns:
        The blocks of each segment, and those that are faulty; the metrics' may be one of them.

    Raises:
        FaultyBlockError: Blocks are faulty that the rule cannot leave out.
    """
    blocks = tuple(
        tuple(_describe(index, block) for block in segment) for index, segment in enumerate(decoded.segments)
    )
    faulty = tuple(block for segment in blocks for block in segment if block.fault is not None)
    if decoded.metrics is not None and decoded.metrics.fault is not None:
        faulty += (_describe(len(plan.segments), decoded.metrics),)
    if faulty and not rule.leaves_out_faulty and not rule.takes_faulty:
        raise FaultyBlockError(
            [(block.segment, block.subgroups) for block in faulty],
            f"blocks that honest users cannot make ({faulty[0].fault}), which the rule {rule.name!r} cannot leave out "
            "(median and trimmed_mean can)",
            users=decoded.faulty,
        )
    return blocks, faulty


def decode_segment(
    plan: Plan, blocks: tuple[tuple[BlockSum, ...], ...], index: int, rule: Rule
) -> tuple[list[npt.NDArray[np.float64]], list[int]]:
    """The means of a segment's blocks that the rule is to see, and their weights.

    Args:
        plan: The plan of the round.
        blocks: The blocks of each segment.
        index: Which segment.
        rule: How the blocks of a segment become one.

    Returns:
        A mean and a weight for each block, none where no sound one is left.
    """
    planned = {block.subgroups: block for block in plan.segments[index].blocks}
    sound = [block for block in blocks[index] if block.fault is None or rule.takes_faulty]
    weights = [_weight(plan, block) for block in sound]
    sums = [
        (planned[block.subgroups], block.sums, block.survivors, weight)
        for block, weight in zip(sound, weights, strict=True)
    ]
    return list(decode_blocks(plan, index, sums)) if sums else [], weights


def _weight(plan: Plan, block: BlockSum) -> int:
    """A block's weight; where a lane of a faulty one says nonsense, the nearest that so many users can have."""
    return min(max(block.weight, block.survivors), block.survivors * plan.max_weight)


def _describe(segment: int, block: DecodedBlock) -> BlockSum:
    return BlockSum(
        segment=segment,
        subgroups=block.block.subgroups,
        survivors=block.survivors,
        weight=block.weight,
        clipped=block.auxiliary.get("clipped", 0),
        sums=block.elements,
        fault=block.fault,
    )


def mean_metrics(plan: Plan, block: DecodedBlock | None) -> dict[str, float]:
    """The mean of each metric over the survivors, weighted as their updates are.

    Args:
        plan: The plan of the round.
        block: The metrics' block, if there is one.

    Returns:
        The means by name; none where the block is faulty.
    """
    if block is None or block.fault is not None:
        return {}
    means = {name: decode_metric(plan, block.auxiliary[name], block.weight) for name in plan.metrics}
    return {name: mean for name, mean in means.items() if mean is not None}


def within_norm(plan: Plan, block: DecodedBlock | None) -> float | None:
    """The fraction of survivors whose norm was within the clipping norm, with noise.

    Args:
        plan: The plan of the round.
        block: The block of everybody, if there is one.

    Returns:
        A number about 0 to 1, which noise may carry beyond; None where the plan does not ask for it, or the block is
        faulty.
    """
    if not plan.adaptive_clip or block is None or block.fault is not None:
        return None
    return decode_clip_bit(block.elements, block.survivors)
