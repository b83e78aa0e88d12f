"""HeteroSAg: secure aggregation for federated learning with heterogeneous clients.

`Plan` is what a round is built on, `aggregate` runs one in memory and gives a `Result`; `Client`, `Server` and `Policy`
are the protocol for a transport of one's own; `Ledger` counts what sums reveal over rounds; `heterosag.flower` runs on
Flower. Importing this package is cheap: all but the errors is loaded on first use.
"""

from __future__ import annotations

from importlib import import_module  # noqa: TID251 - names from a fixed table
from typing import TYPE_CHECKING, Any

from heterosag.errors import (
    AbandonedRoundError,
    BudgetError,
    ExposedUsersError,
    FailedCohortsError,
    FaultyBlockError,
    FaultyServerError,
    FaultyUserError,
    HeteroSagError,
    InfeasibleError,
    LocalFileError,
    PlanError,
    StoppedRunError,
    TooFewSurvivorsError,
    UsageError,
    WireError,
    WithheldError,
)
from heterosag.version import __version__

if TYPE_CHECKING:
    from heterosag import flower as flower
    from heterosag import ledger as ledger
    from heterosag import planner as planner
    from heterosag import privacy as privacy
    from heterosag.ledger import Ledger as Ledger
    from heterosag.plan import CohortPlan as CohortPlan
    from heterosag.plan import Plan as Plan
    from heterosag.protocol.client import Client as Client
    from heterosag.protocol.policy import Policy as Policy
    from heterosag.protocol.server import Server as Server
    from heterosag.simulation.engine import Result as Result
    from heterosag.simulation.engine import Simulation as Simulation
    from heterosag.simulation.engine import aggregate as aggregate

_HOMES = {
    "Client": "protocol.client",
    "CohortPlan": "plan",
    "Ledger": "ledger",
    "Plan": "plan",
    "Policy": "protocol.policy",
    "Result": "simulation.engine",
    "Server": "protocol.server",
    "Simulation": "simulation.engine",
    "aggregate": "simulation.engine",
}
_PACKAGES = (
    "aggregation",
    "crypto",
    "errors",
    "flower",
    "ledger",
    "plan",
    "planner",
    "privacy",
    "protocol",
    "report",
    "simulation",
    "storage",
    "training",
    "vector",
)

__all__ = [
    "Plan",
    "CohortPlan",
    "aggregate",
    "Result",
    "Simulation",
    "Client",
    "Server",
    "Policy",
    "Ledger",
    "AbandonedRoundError",
    "BudgetError",
    "ExposedUsersError",
    "FailedCohortsError",
    "FaultyBlockError",
    "FaultyServerError",
    "FaultyUserError",
    "HeteroSagError",
    "InfeasibleError",
    "LocalFileError",
    "PlanError",
    "StoppedRunError",
    "TooFewSurvivorsError",
    "UsageError",
    "WireError",
    "WithheldError",
    "__version__",
]


def load_packages() -> None:
    """Load the packages whose modules are imported by others, each before any of its modules.

    Two threads of which one loads a package and the other a module of it would wait for each other, and one of them
    would find the module half loaded. Flower's simulation loads ServerApp and ClientApp in two threads at once.
    """
    for package in ("plan", "privacy", "protocol"):
        import_module(f"{__name__}.{package}")


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        load_packages()
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    if name in _PACKAGES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_PACKAGES})
