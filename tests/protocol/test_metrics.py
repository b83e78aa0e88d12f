"""Metrics: summed over everybody, weighted as updates are, alone or beside an update."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from rounds import ROUND, World, small_plan

from heterosag.aggregation.combine import combine
from heterosag.aggregation.rules import find_rule
from heterosag.errors import FaultyServerError, FaultyUserError, UsageError
from heterosag.plan import Plan
from heterosag.protocol import Client, Server

ALONE = replace(ROUND, metrics_only=True)


def evaluate(plan: Plan, *, signed: bool = False, without: tuple[int, ...] = ()) -> tuple[Server, list[int]]:
    """A round of metrics alone; also the bytes of each masked vector."""
    world = World(plan, signed=signed)
    world.server = Server(plan, ALONE, directory=world.directory)
    world.clients = {user: world.make_client(user, round_id=ALONE) for user in plan.users}
    sizes = []
    for phase in ("advertise", "share", "mask", *(["agree"] if signed else []), "unmask"):
        for place, (user, message) in enumerate(world.waiting.items()):
            if phase == "mask":
                if user in without:
                    continue
                weight = 1 + place % plan.max_weight
                reply = world.clients[user].mask(message, np.empty(0), weight=weight, metrics={"loss": float(place)})
                sizes.append(len(reply))
            else:
                reply = world.clients[user].answer(phase, message)
            world.server.receive(user, reply)
        world.waiting = world.server.close()
    return world.server, sizes


@pytest.mark.parametrize("signed", [False, True])
def test_metrics_are_summed_without_an_update(signed: bool) -> None:
    plan = small_plan(metrics=["loss"], dimension=4000)
    server, sizes = evaluate(plan, signed=signed, without=(2,))
    found = combine(plan.only_metrics(), server.decoded, find_rule("median"))
    alive = [place for place in range(12) if place != 2]
    assert found.metrics["loss"] == pytest.approx(sum(alive) / len(alive))
    assert found.vector.size == 0
    assert len(found.survivors) == 11
    assert max(sizes) < 200


def test_metrics_are_weighted_as_updates_are() -> None:
    plan = small_plan(metrics=["loss"], max_weight=3)
    server, _ = evaluate(plan)
    weights = [1 + place % 3 for place in range(12)]
    expected = np.average(np.arange(12), weights=weights)
    assert combine(plan.only_metrics(), server.decoded, find_rule("mean")).metrics["loss"] == pytest.approx(expected)
    assert server.decoded.metrics is not None
    assert server.decoded.metrics.weight == sum(weights)


def test_a_round_of_metrics_has_the_frame_of_its_plan_and_the_same_admissible_sets() -> None:
    plan = small_plan(metrics=["loss"])
    alone = plan.only_metrics()
    assert alone.frame == plan.frame
    assert alone.digest == plan.digest
    assert alone.guarded_blocks() == plan.guarded_blocks()
    assert alone.has_several_blocks
    assert ALONE.context(plan) == ROUND.context(plan)
    with pytest.raises(UsageError, match="no metrics"):
        small_plan().only_metrics()


def test_who_masks_metrics_alone_and_who_masks_an_update_cannot_be_combined() -> None:
    """Both have the number and the frame of one round: what is masked is bound before it is."""
    world = World(small_plan(metrics=["loss"]))
    world.run("advertise", "share")
    lone: Client = world.clients[0]
    lone.settle(world.plan, ALONE)
    reply = lone.mask(world.waiting[0], np.empty(0), metrics={"loss": 1.0})
    with pytest.raises(FaultyUserError, match="another context"):
        world.server.receive(0, reply)
    with pytest.raises(FaultyServerError, match="masked under"):
        lone.settle(world.plan, ROUND)
    world.clients[1].settle(world.plan, ALONE)
    with pytest.raises(UsageError, match="0 elements"):
        world.clients[1].mask(world.waiting[1], np.zeros(world.plan.dimension), metrics={"loss": 1.0})
