"""HeteroSAg: secure aggregation for federated learning on devices that are not all alike.

Importing this package is cheap; what it offers is loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from heterosag.embedded import Result as Result
    from heterosag.embedded import aggregate as aggregate
    from heterosag.errors import HeteroSagError as HeteroSagError
    from heterosag.errors import PlanError as PlanError
    from heterosag.errors import UsageError as UsageError
    from heterosag.errors import WireError as WireError
    from heterosag.plan import Plan as Plan

_HOMES = {
    "HeteroSagError": "errors",
    "Result": "embedded",
    "aggregate": "embedded",
    "Plan": "plan",
    "PlanError": "errors",
    "UsageError": "errors",
    "WireError": "errors",
}
_ROOMS = (
    "embedded",
    "errors",
    "plan",
    "protocol",
    "result",
    "robust",
    "vector",
)

__all__ = [
    "HeteroSagError",
    "Plan",
    "PlanError",
    "Result",
    "UsageError",
    "WireError",
    "__version__",
    "aggregate",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    if name in _ROOMS:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_ROOMS})
