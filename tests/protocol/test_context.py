"""The contexts: what they bind, and that a message of another one is refused."""

from typing import Any

import pytest
from cases import each
from rounds import World, refuses, small_plan

from heterosag.errors import UsageError
from heterosag.protocol import RoundId

# --- before the round ---------------------------------------------------------------------------------------------


@each(
    "other",
    [
        {"plan": small_plan(levels=[2, 6])},
        {"plan": small_plan(value_range=(-1.0, 2.0))},
        {"plan": small_plan(min_survivors=3)},
        {"plan": small_plan(colluders=1)},
        {"round_id": RoundId(session=b"other", number=3)},
        {"round_id": RoundId(session=b"test", number=4)},
        {"round_id": RoundId(session=b"test", number=3, model=b"m" * 32)},
    ],
)
def test_a_different_plan_or_round_or_model_is_another_context(other: dict[str, Any]) -> None:
    world = World(small_plan())
    world.run("advertise")
    world.clients[0] = world.make_client(0, **other)
    world.clients[0].advertise()
    refuses(world, 0, "share", world.waiting[0], "another context")


def test_round_ids_are_checked() -> None:
    for bad in (
        {"session": b""},
        {"session": b"x" * 65},
        {"session": b"x", "number": -1},
        {"session": b"x", "model": b"y"},
    ):
        with pytest.raises(UsageError, match="session"):
            RoundId(**bad)


def test_a_round_is_named_in_bytes() -> None:
    for wrong in ({"session": "monday"}, {"session": b"monday", "model": "x" * 32}):
        with pytest.raises(UsageError, match="are bytes, not"):
            RoundId(**wrong)  # type: ignore[arg-type]


def test_messages_of_another_context_are_refused_in_every_phase() -> None:
    for phases, phase, signed in (
        (("advertise", "share"), "mask", False),
        (("advertise", "share", "mask"), "unmask", False),
        (("advertise", "share", "mask"), "agree", True),
    ):
        world, other = World(small_plan(), signed=signed), World(small_plan(), signed=signed)
        world.run(*phases)
        other.run(*phases)
        refuses(world, 0, phase, other.waiting[0], "another context")
