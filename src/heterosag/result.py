"""Block sums to means to the aggregate: what is done with the sums once they are decoded.

Every block is checked first. The constant lane must decode to the number of survivors (masks that did not cancel, or a
liar, fail here), the weight must be one that so many users can have, no element may exceed what that weight allows. A
block that fails is *faulty*: the median and the trimmed mean leave it out and the result names it; the mean raises.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from heterosag.encode import decode, decode_metric
from heterosag.errors import FaultyBlockError
from heterosag.plan import Plan, User
from heterosag.protocol.server import Decoded, DecodedBlock
from heterosag.ring import Lanes
from heterosag.robust import Rule

__all__ = ["BlockSum", "Combined", "combine"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSum:
    """One decoded block. `fault` says why it cannot come from honest users, None if it can."""

    segment: int
    subgroups: tuple[int, ...]
    survivors: int
    weight: int
    clipped: int
    sums: Lanes
    fault: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Combined:
    """The aggregate of a round, and what it was made of."""

    vector: npt.NDArray[np.float64]
    survivors: tuple[User, ...]
    blocks: tuple[tuple[BlockSum, ...], ...]
    metrics: dict[str, float]
    inference_robustness: float
    byzantine_tolerance: int

    @property
    def faulty_blocks(self) -> tuple[BlockSum, ...]:
        """The blocks that were left out."""
        return tuple(block for segment in self.blocks for block in segment if block.fault is not None)


def combine(plan: Plan, decoded: Decoded, rule: Rule) -> Combined:
    """Check every block, combine the sound ones of each segment by the rule, and average the metrics."""
    blocks = tuple(
        tuple(_examine(plan, index, block) for block in segment) for index, segment in enumerate(decoded.segments)
    )
    faulty = [block for segment in blocks for block in segment if block.fault is not None]
    if faulty and not rule.leaves_out_faulty:
        raise FaultyBlockError(
            [(block.segment, block.subgroups) for block in faulty],
            f"blocks that honest users cannot make ({faulty[0].fault}), which the rule {rule.name!r} cannot leave out",
        )
    vector = np.empty(plan.dimension)
    for index, (segment, found) in enumerate(zip(plan.segments, blocks, strict=True)):
        sound = [block for block in found if block.fault is None]
        if not sound:
            named = [(block.segment, block.subgroups) for block in found]
            raise FaultyBlockError(named, f"no sound block is left in segment {index}")
        planned = {block.subgroups: block for block in segment.blocks}
        means = [decode(plan, planned[block.subgroups], block.sums, block.weight) for block in sound]
        vector[segment.start : segment.stop] = rule.combine(means, [block.weight for block in sound])
    return Combined(
        vector=vector,
        survivors=decoded.survivors,
        blocks=blocks,
        metrics=_metrics(plan, decoded.metrics),
        inference_robustness=plan.inference_robustness(decoded.survivors),
        byzantine_tolerance=plan.byzantine_tolerance(decoded.survivors),
    )


def _examine(plan: Plan, segment: int, block: DecodedBlock) -> BlockSum:
    weight = block.auxiliary.get("weight", block.auxiliary["count"])
    fault = None
    if block.auxiliary["count"] != block.survivors:
        fault = f"its constant lane says {block.auxiliary['count']} users, {block.survivors} survived"
    elif not block.survivors <= weight <= block.survivors * plan.weight_bound:
        fault = f"a total weight of {weight} from {block.survivors} users"
    elif int(block.elements.max()) > weight * (block.block.level - 1):
        fault = "a sum beyond what its weight allows"
    elif block.auxiliary["clipped"] > block.survivors * block.elements.size:
        fault = "more clipped elements than it has"
    return BlockSum(
        segment=segment,
        subgroups=block.block.subgroups,
        survivors=block.survivors,
        weight=weight,
        clipped=block.auxiliary["clipped"],
        sums=block.elements,
        fault=fault,
    )


def _metrics(plan: Plan, block: DecodedBlock | None) -> dict[str, float]:
    """The mean of each metric over the survivors."""
    if block is None:
        return {}
    if block.auxiliary["count"] != block.survivors:
        raise FaultyBlockError(
            [(len(plan.segments), block.block.subgroups)],
            f"the constant lane of the metrics says {block.auxiliary['count']} users, {block.survivors} survived",
        )
    return {name: decode_metric(block.auxiliary[name]) / block.survivors for name in plan.metrics}
