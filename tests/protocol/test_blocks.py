"""Block sums that honest users cannot have made."""

import numpy as np
import pytest
from rounds import World, change, small_plan

from heterosag.plan import Plan
from heterosag.protocol import messages as wire
from heterosag.protocol.blocks import DecodedBlock, find_fault, find_metric_fault, join_blocks
from heterosag.protocol.cells import CellLanes, empty_cells


def honest_sums(plan: Plan) -> dict[int, list[CellLanes]]:
    """What the server has of each subgroup if everybody sent the lowest level of everything, and weighs one."""
    sums = {}
    for place, subgroup in enumerate(plan.subgroups):
        sums[place] = empty_cells(plan.cells(place))
        for content, cell in zip(sums[place], plan.cells(place), strict=True):
            content.auxiliary[:] = [len(subgroup.members) * (lane in ("count", "weight")) for lane in cell.lanes]
    return sums


def joined(plan: Plan, missing: dict[int, str] | None = None) -> list[DecodedBlock]:
    """All blocks of a round with everybody, that of the metrics last."""
    segments, everybody = join_blocks(plan, range(len(plan.users)), honest_sums(plan), missing)
    return [*(block for segment in segments for block in segment), *([] if everybody is None else [everybody])]


def test_a_tampered_constant_lane_is_seen_in_the_decoded_block() -> None:
    """Whoever takes the sums from the server itself sees the fault too."""
    world = World(small_plan())
    world.run("advertise", "share")
    for user in world.waiting:
        message = world.answer("mask", user)
        if user == 3:
            vector = bytearray(wire.decode(wire.MaskedVector, message, plan=world.plan).vector)
            first = len(vector) - wire.vector_size(world.plan, 1) + (14 * 3 + 7) // 8
            vector[first] ^= 1  # the lowest bit of the first segment's constant lane
            message = change(wire.MaskedVector, message, world.plan, vector=bytes(vector))
        world.server.receive(user, message)
    world.waiting = world.server.close()
    world.run("unmask")
    faults = {block.block.subgroups: block.fault for block in world.server.decoded.segments[0]}
    (spoilt,) = (subgroups for subgroups, fault in faults.items() if fault)
    assert world.plan.assignment[3] in spoilt
    assert "constant lane" in (faults[spoilt] or "")


def test_sums_are_possible_up_to_their_very_limit() -> None:
    plan = small_plan()
    block = plan.segments[0].blocks[0]
    sound = {"count": 5, "clipped": 0}

    def fault(most: int, **lanes: int) -> str | None:
        elements = np.array([0, most, 1], dtype=np.uint8)
        return find_fault(plan, block, 5, elements, {**sound, **lanes})

    limit = 5 * (block.level - 1)
    assert fault(limit) is None
    assert fault(limit + 1) == "a sum beyond what so many users can make"
    assert fault(limit, clipped=15) is None
    assert fault(limit, clipped=16) == "more clipped elements than it has"
    assert fault(limit, count=6) == "its constant lane says 6 users, 5 survived"
    assert fault(limit, weight=6) == "a total weight of 6 from 5 users", "nobody weighs more than one here"


def test_a_false_metric_is_seen_in_the_decoded_block() -> None:
    plan = small_plan(metrics=["loss"])
    assert find_metric_fault(plan, 5, {"count": 5, "loss": 0}) is None
    assert find_metric_fault(plan, 5, {"count": 4, "loss": 0}) == "its constant lane says 4 users, 5 survived"
    assert find_metric_fault(plan, 5, {"count": 5, "loss": 1 << 62}) == "a metric beyond its limit"
    world = World(plan)
    for phase in ("advertise", "share"):
        world.run(phase)
    for user in world.waiting:
        update = world.updates[plan.index(user)]
        world.server.receive(user, world.clients[user].mask(world.waiting[user], update, metrics={"loss": 1.0}))
    next(iter(world.server._state.sums.values()))[-1].auxiliary[1:2] += np.uint64(1 << 62)  # type: ignore[union-attr]
    world.waiting = world.server.close()
    world.run("unmask")
    assert world.server.decoded.metrics is not None
    assert world.server.decoded.metrics.fault == "a metric beyond its limit"


def test_masks_of_a_user_whose_secrets_are_missing_spoil_its_blocks_and_that_of_everybody() -> None:
    plan = small_plan(metrics=["loss"])
    found = joined(plan, {3: "too few shares of user 3"})
    spoilt = [plan.assignment[3] in block.block.subgroups for block in found]
    assert {*spoilt} == {True, False}
    assert [block.spoiled for block in found] == spoilt
    assert [block.fault for block in found] == ["too few shares of user 3" if hit else None for hit in spoilt]
    assert found[-1].spoiled


def test_nothing_is_spoiled_where_no_secret_is_missing() -> None:
    found = joined(small_plan(metrics=["loss"]))
    assert {(block.fault, block.spoiled) for block in found} == {(None, False)}
    assert found[-1].survivors == 12


def test_a_plan_of_one_subgroup_has_a_block_of_metrics_too() -> None:
    plan = small_plan(classes=[12], levels=[5], subgroup_size=12, metrics=["loss"])
    assert len(plan.subgroups) == 1
    segment, metrics = joined(plan)
    assert segment.auxiliary == {"count": 12, "clipped": 0}
    assert metrics.auxiliary == {"count": 12, "loss": 0}


def test_sums_with_the_lanes_of_another_plan_are_not_joined() -> None:
    plan = small_plan()
    with pytest.raises(ValueError, match="argument 2 is longer"):
        join_blocks(plan, range(12), honest_sums(small_plan(max_weight=9)))
