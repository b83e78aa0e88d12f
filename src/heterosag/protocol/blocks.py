"""The sums that the server learns: a block's survivors added up, and why honest users cannot have made a sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from heterosag.plan import Plan, PlannedBlock
from heterosag.protocol.cells import CellLanes
from heterosag.protocol.encoding import decode_metric
from heterosag.vector import ring
from heterosag.vector.ring import Lanes

__all__ = ["DecodedBlock", "find_fault", "find_metric_fault", "join_blocks"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedBlock:
    """The sum of a block's survivors.

    Args:
        block: The block, as it was planned.
        survivors: How many there are.
        elements: The sums, in the block's ring.
        auxiliary: The sums of the auxiliary lanes, by name.
        fault: Why honest users cannot have made it, None if they can. A faulty block's numbers mean nothing.
        spoiled: Whether it is faulty because masks could not be removed, which is not always its users' doing.
    """

    block: PlannedBlock
    survivors: int
    elements: Lanes
    auxiliary: dict[str, int]
    fault: str | None
    spoiled: bool = False

    @property
    def weight(self) -> int:
        """The sum of the survivors' weights."""
        return self.auxiliary.get("weight", self.auxiliary["count"])


def find_fault(
    plan: Plan, block: PlannedBlock, survivors: int, elements: Lanes, auxiliary: Mapping[str, int]
) -> str | None:
    """Why honest users cannot have made a block of a segment.

    The constant lane must decode to the number of survivors (masks that did not cancel, or a malicious user, fail
    here), the weight must be one that so many users can have, no element may exceed what they can make.
    """
    fault = _find_count_fault(plan, survivors, auxiliary)
    if fault is not None:
        return fault
    if int(elements.max()) > survivors * (block.level - 1):
        return "a sum beyond what so many users can make"
    if auxiliary.get("clipped", 0) > survivors * elements.size:
        return "more clipped elements than it has"
    return None


def find_metric_fault(plan: Plan, survivors: int, auxiliary: Mapping[str, int]) -> str | None:
    """Why honest users cannot have made the block of metrics."""
    fault = _find_count_fault(plan, survivors, auxiliary)
    if fault is not None:
        return fault
    weight = auxiliary.get("weight", survivors)
    if any(decode_metric(plan, auxiliary[name], weight) is None for name in plan.metrics):
        return "a metric beyond its limit"
    return None


def _find_count_fault(plan: Plan, survivors: int, auxiliary: Mapping[str, int]) -> str | None:
    weight = auxiliary.get("weight", auxiliary["count"])
    if auxiliary["count"] != survivors:
        return f"its constant lane says {auxiliary['count']} users, {survivors} survived"
    if not survivors <= weight <= survivors * plan.max_weight:
        return f"a total weight of {weight} from {survivors} users"
    return None


def join_blocks(
    plan: Plan, survivors: Sequence[int], sums: dict[int, list[CellLanes]], missing: Mapping[int, str] | None = None
) -> tuple[tuple[tuple[DecodedBlock, ...], ...], DecodedBlock | None]:
    """Add up the subgroups of every block with survivors, in place of the first one's accumulator.

    The block of everybody is apart: the metrics, or the clip bits. `missing` says of users why their secrets could not
    be rebuilt: masks are left in the blocks of their subgroups, and in that of everybody.
    """
    spoiled = {plan.assignment[user]: why for user, why in (missing or {}).items()}
    alive = dict.fromkeys(sums, 0)
    for user in survivors:
        alive[plan.assignment[user]] += 1

    def join(place: int, block: PlannedBlock, lanes: tuple[str, ...]) -> DecodedBlock | None:
        present = [subgroup for subgroup in block.subgroups if alive.get(subgroup)]
        if not present:
            return None
        total = sums[present[0]][place]
        for other in present[1:]:
            np.add(total.elements, sums[other][place].elements, out=total.elements)
            np.add(total.auxiliary, sums[other][place].auxiliary, out=total.auxiliary)
        survived = sum(alive[subgroup] for subgroup in present)
        elements = ring.reduce(total.elements, block.bits)
        auxiliary = dict(zip(lanes, total.auxiliary.tolist(), strict=True))
        fault = next((spoiled[subgroup] for subgroup in block.subgroups if subgroup in spoiled), None)
        masked = fault is not None
        if masked:
            pass  # what is left of masks decides nothing
        elif place < len(plan.segments) or plan.adaptive_clip:
            fault = find_fault(plan, block, survived, elements, auxiliary)
        else:
            fault = find_metric_fault(plan, survived, auxiliary)
        return DecodedBlock(
            block=block, survivors=survived, elements=elements, auxiliary=auxiliary, fault=fault, spoiled=masked
        )

    segments = tuple(
        tuple(found for block in segment.blocks if (found := join(place, block, plan.lanes)) is not None)
        for place, segment in enumerate(plan.segments)
    )
    everybody = None
    if plan.metrics or plan.adaptive_clip:
        last = plan.cells(0)[-1]
        everybody = join(len(plan.segments), last.block, last.lanes)
    return segments, everybody
