"""The phases of a round, and every admissible transition of client and server in one table each.

The table is what the machines follow and what ARCHITECTURE.md's diagram is drawn from. A state is a type of its own in
steps.py and server_phases.py, so that a step taken in the wrong order is a type error there and a named error at run
time.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar

from heterosag.errors import UsageError

__all__ = [
    "CLIENT_TRANSITIONS",
    "SERVER_TRANSITIONS",
    "ClientPhase",
    "Phase",
    "ServerPhase",
    "diagram",
    "next_phase",
]


class Phase(Enum):
    """What a user sends, in order. `agree` happens only with identities."""

    ADVERTISE = "advertise"
    SHARE = "share"
    MASK = "mask"
    AGREE = "agree"
    UNMASK = "unmask"


class ClientPhase(Enum):
    """Where a client stands: named by what it has done last."""

    FRESH = "fresh"
    ADVERTISED = "advertised"
    SHARED = "shared"
    MASKED = "masked"
    AGREED = "agreed"
    RELEASED = "released"
    DEAD = "dead"


class ServerPhase(Enum):
    """Where the server stands: named by what it is waiting for."""

    ADVERTISE = "advertise"
    SHARE = "share"
    MASK = "mask"
    AGREE = "agree"
    UNMASK = "unmask"
    DONE = "done"
    FAILED = "failed"


CLIENT_TRANSITIONS: dict[tuple[ClientPhase, str], ClientPhase] = {
    (ClientPhase.FRESH, "advertise"): ClientPhase.ADVERTISED,
    (ClientPhase.ADVERTISED, "share"): ClientPhase.SHARED,
    (ClientPhase.SHARED, "mask"): ClientPhase.MASKED,
    (ClientPhase.MASKED, "agree"): ClientPhase.AGREED,
    (ClientPhase.MASKED, "unmask, without identities"): ClientPhase.RELEASED,
    (ClientPhase.AGREED, "unmask"): ClientPhase.RELEASED,
    (ClientPhase.ADVERTISED, "refuse"): ClientPhase.DEAD,
    (ClientPhase.SHARED, "refuse"): ClientPhase.DEAD,
    (ClientPhase.MASKED, "refuse"): ClientPhase.DEAD,
    (ClientPhase.AGREED, "refuse"): ClientPhase.DEAD,
}

SERVER_TRANSITIONS: dict[tuple[ServerPhase, str], ServerPhase] = {
    (ServerPhase.ADVERTISE, "close"): ServerPhase.SHARE,
    (ServerPhase.SHARE, "close"): ServerPhase.MASK,
    (ServerPhase.MASK, "close"): ServerPhase.AGREE,
    (ServerPhase.MASK, "close, without identities"): ServerPhase.UNMASK,
    (ServerPhase.AGREE, "close"): ServerPhase.UNMASK,
    (ServerPhase.UNMASK, "close"): ServerPhase.DONE,
    **{
        (phase, "fail"): ServerPhase.FAILED
        for phase in (
            ServerPhase.ADVERTISE,
            ServerPhase.SHARE,
            ServerPhase.MASK,
            ServerPhase.AGREE,
            ServerPhase.UNMASK,
        )
    },
}


P = TypeVar("P", bound=Enum)


def next_phase(table: Mapping[tuple[P, str], P], current: P, event: str) -> P:
    """The phase after an event; a `UsageError` where the table has none."""
    try:
        return table[current, event]
    except KeyError:
        raise UsageError(f"{event!r} is not possible in the phase {current.value!r}") from None


def diagram() -> str:
    """Both tables as a Mermaid state diagram."""
    lines = ["stateDiagram-v2"]
    tables: dict[str, Mapping[tuple[Any, str], Any]] = {"client": CLIENT_TRANSITIONS, "server": SERVER_TRANSITIONS}
    for name, table in tables.items():
        lines.append(f"  state {name} {{")
        for (before, event), after in table.items():
            lines.append(f"    {name}_{before.value} --> {name}_{after.value}: {event}")
        lines.append("  }")
    return "\n".join(lines)
