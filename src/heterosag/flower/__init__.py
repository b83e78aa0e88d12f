"""HeteroSAg on Flower: `mod()` for the ClientApp, `SecureGrid` for the ServerApp::

    app = ClientApp(mods=[heterosag.flower.mod(trust_server=True)])
    heterosag.flower.SecureGrid(grid, levels=[16]).start(strategy, ...)

The train function, its arrays and its metrics stay as they are. Needs the `flower` extra.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from heterosag import load_packages
from heterosag.errors import StoppedRunError, UsageError

if TYPE_CHECKING:
    from heterosag.flower.grid import SecureGrid
    from heterosag.flower.node import mod
    from heterosag.flower.privacy import Privacy

__all__ = ["Privacy", "SecureGrid", "StoppedRunError", "mod"]

_HOME = {
    "Privacy": "heterosag.flower.privacy",
    "SecureGrid": "heterosag.flower.grid",
    "mod": "heterosag.flower.node",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: TID251 - names from a fixed table

    try:
        import flwr.app  # noqa: F401
    except ImportError:
        raise UsageError("Flower is not installed: pip install 'heterosag[flower]'") from None
    load_packages()
    return getattr(import_module(_HOME[name]), name)
