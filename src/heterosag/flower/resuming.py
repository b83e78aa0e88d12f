"""What a grid needs to go on in another program: its range, who is left out, its plans and ledgers, its budget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from heterosag.errors import UsageError
from heterosag.plan import CohortPlan, Plan

__all__ = ["GridState", "KeptPlan"]

_VERSION = 1
_NodeId = Annotated[str, msgspec.Meta(pattern="^[0-9]{1,20}$")]


class KeptPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A plan in use, for these users and a model of so many elements in each array; `cohorts` says if it is several."""

    users: list[str]
    arrays: list[int]
    plan: bytes
    cohorts: bool = False

    def decode(self) -> Plan | CohortPlan:
        """The plan itself."""
        return (CohortPlan if self.cohorts else Plan).decode(self.plan)


class GridState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The state; node ids are text, ledgers are survivor sets by the hex name of their epoch."""

    version: Annotated[int, msgspec.Meta(ge=_VERSION, le=_VERSION)] = _VERSION
    range: dict[str, Any] | None
    faulty: list[_NodeId]
    plans: list[KeptPlan]
    ledgers: dict[str, list[list[Annotated[int, msgspec.Meta(ge=0)]]]]
    budget: dict[str, Any] | None

    def to_dict(self) -> dict[str, Any]:
        """The state in JSON types."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found

    @classmethod
    def of(cls, values: Any) -> GridState:
        """The state that `to_dict` wrote, or a mapping like it; anything else is a UsageError."""
        values = dict(values) if isinstance(values, Mapping) else values
        try:
            return msgspec.convert(values, cls)
        except msgspec.MsgspecError as error:
            raise UsageError(f"this is no state of a SecureGrid: {error}") from None
