"""The whole error tree. Each error says what it proves about whom.

Every error of this package is a `HeteroSagError`, so one `except` catches them all. The first question after
an error is whose fault it is, and the tree answers that: `UsageError` and `PlanError` blame the caller,
`WireError` blames the bytes of a named sender.
"""

from __future__ import annotations

__all__ = ["HeteroSagError", "PlanError", "UsageError", "WireError"]


class HeteroSagError(Exception):
    """Base of every error that this package raises on purpose."""


class UsageError(HeteroSagError, ValueError):
    """Local misuse: an argument that the called function cannot take. Proves nothing about other parties."""


class PlanError(HeteroSagError, ValueError):
    """A plan that must not be used. `field` names the value to change."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class WireError(HeteroSagError):
    """Bytes that no honest sender produces. `sender` is who they came from, where that is known."""

    def __init__(self, problem: str, *, sender: int | str | None = None) -> None:
        origin = "" if sender is None else f"from {sender!r}: "
        super().__init__(f"{origin}{problem}")
        self.problem = problem
        self.sender = sender
