"""Block sums that honest users cannot have made."""

import numpy as np
from rounds import World, change, small_plan

from heterosag.protocol import messages as wire
from heterosag.protocol.blocks import find_fault, find_metric_fault


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
