"""Block sums to means to the aggregate: what is done with the sums once they are decoded.

A block that honest users cannot have made is *faulty* (blocks.py says when): the median and the trimmed mean leave
it out and the result names it; the mean raises. Metrics whose block is faulty are left out likewise.

A malicious holder of shares can make blocks of others faulty, so that its own is one of few that are left. Where masks
could not be removed, robust rules therefore also leave out every block with a user who is proven faulty, and raise
where those that are left could not outvote as many malicious users as the survivors' blocks tolerate, less those that a
faulty block each accounts for.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
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
    "check_left",
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
        fault: Why it is left out: it cannot come from honest users, or has one who is proven faulty. None if sound.
        spoiled: Whether that is because masks could not be removed, and none of its users is proven faulty.
    """

    segment: int
    subgroups: tuple[int, ...]
    survivors: int
    weight: int
    clipped: int
    sums: Lanes
    fault: str | None
    spoiled: bool = False


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
        faulty_users: They dealt or released false shares: leave them out of the next rounds.
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
        FaultyBlockError: Blocks are faulty that the rule cannot leave out, or too few sound ones are left in a segment.
    """
    blocks, faulty = check_blocks(plan, decoded, rule)
    tolerance = plan.byzantine_tolerance(decoded.survivors)
    vector = np.empty(plan.dimension)
    for index, segment in enumerate(plan.segments):
        check_left(blocks[index], rule, tolerance, f"in segment {index}", decoded.faulty)
        means, weights = decode_segment(plan, blocks, index, rule)
        vector[segment.start : segment.stop] = rule.combine(means, weights)
    return Combined(
        vector=vector,
        survivors=decoded.survivors,
        blocks=blocks,
        faulty_blocks=faulty,
        metrics=mean_metrics(plan, decoded.metrics),
        inference_robustness=plan.inference_robustness(decoded.survivors),
        byzantine_tolerance=tolerance,
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
    proven = {plan.subgroup_of(user) for user in decoded.faulty}
    left_out: set[int] = set()
    if rule.leaves_out_faulty and any(block.spoiled for segment in decoded.segments for block in segment):
        left_out = {plan.subgroup_of(user) for user in set(decoded.faulty) & set(decoded.survivors)}
    blocks = tuple(
        tuple(_describe(index, block, proven, left_out) for block in segment)
        for index, segment in enumerate(decoded.segments)
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


def check_left(
    blocks: Sequence[BlockSum], rule: Rule, tolerance: int, where: str, faulty_users: Sequence[User]
) -> None:
    """Refuse to go on where too many of the blocks that meet are faulty.

    Args:
        blocks: The blocks of a segment, of all cohorts together.
        rule: How they become one.
        tolerance: How many faulty users the survivors' blocks tolerate.
        where: What the error calls the place.
        faulty_users: Who is proven faulty, for the error.

    Raises:
        FaultyBlockError: None is sound, or those that are could not outvote the malicious users that there may be.
    """
    if rule.takes_faulty:
        return
    left = sum(block.fault is None for block in blocks)
    problem = f"no sound block is left {where}"
    if left and rule.tolerates is not None:
        known = sum(block.fault is not None and not block.spoiled for block in blocks)  # a malicious user in each
        if rule.tolerates(left) >= min(tolerance, rule.tolerates(len(blocks))) - known:
            return
        problem = f"sound blocks left {where}: {left}, too few for {rule.name!r} to outvote malicious users"
    elif left:
        return
    unsound = [(block.segment, block.subgroups) for block in blocks if block.fault is not None]
    raise FaultyBlockError(unsound, problem, users=faulty_users)


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


def _describe(
    segment: int, block: DecodedBlock, proven: Collection[int] = (), left_out: Collection[int] = ()
) -> BlockSum:
    """A block; subgroups with a user who is proven faulty, and those that are left out since such a user survived."""
    fault = block.fault
    if fault is None and any(subgroup in left_out for subgroup in block.block.subgroups):
        fault = "it has a user who released or dealt false shares"
    return BlockSum(
        segment=segment,
        subgroups=block.block.subgroups,
        survivors=block.survivors,
        weight=block.weight,
        clipped=block.auxiliary.get("clipped", 0),
        sums=block.elements,
        fault=fault,
        spoiled=block.spoiled and not any(subgroup in proven for subgroup in block.block.subgroups),
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
