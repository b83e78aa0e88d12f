"""Plans as the paper has them: a single value range for all levels, and no rotation."""

from __future__ import annotations

from typing import Any

from heterosag import Plan

__all__ = ["paper_plan"]


def paper_plan(*arguments: Any, **options: Any) -> Plan:
    """A plan of `Plan.build` with the paper's single range."""
    given: dict[str, Any] = {"ranges": "single", "rotate": False, **options}
    return Plan.build(*arguments, **given)
