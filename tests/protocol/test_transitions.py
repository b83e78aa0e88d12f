"""The transition tables."""

import pytest

from heterosag.errors import UsageError
from heterosag.protocol import ClientPhase, ServerPhase
from heterosag.protocol.transitions import CLIENT_TRANSITIONS, SERVER_TRANSITIONS, diagram, next_phase


def test_tables_lead_somewhere_and_end() -> None:
    for table, start, ends in (
        (CLIENT_TRANSITIONS, ClientPhase.FRESH, {ClientPhase.RELEASED, ClientPhase.DEAD}),
        (SERVER_TRANSITIONS, ServerPhase.ADVERTISE, {ServerPhase.DONE, ServerPhase.FAILED}),
    ):
        reached, todo = {start}, [start]
        while todo:
            current = todo.pop()
            after = {target for (source, _), target in table.items() if source is current}
            assert bool(after) == (current not in ends)
            todo.extend(after - reached)
            reached |= after
        assert reached == set(type(start))


def test_impossible_transitions_are_named() -> None:
    with pytest.raises(UsageError, match="'close' is not possible in the phase 'done'"):
        next_phase(SERVER_TRANSITIONS, ServerPhase.DONE, "close")


def test_the_diagram_names_every_phase() -> None:
    text = diagram()
    lines = text.splitlines()
    assert lines[0] == "stateDiagram-v2"
    assert [line for line in lines if not line.startswith("    ")][1:] == [
        "  state client {",
        "  }",
        "  state server {",
        "  }",
    ]
    assert len(lines) == 5 + len(CLIENT_TRANSITIONS) + len(SERVER_TRANSITIONS)
    assert all(f"client_{phase.value}" in text for phase in ClientPhase)
    assert all(f"server_{phase.value}" in text for phase in ServerPhase)
