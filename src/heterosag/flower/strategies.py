"""Which strategies work behind a `SecureGrid`, where there is one reply: the aggregate of all nodes.

A strategy that is known to need every client's own reply is refused. One with code of its own for replies cannot be
judged from outside: it runs, and the log says what that code will see.
"""

from __future__ import annotations

from collections.abc import Iterator
from logging import WARNING
from typing import Any

from flwr.common.logger import log
from flwr.serverapp.strategy.strategy_utils import aggregate_metricrecords

from heterosag.errors import UsageError

__all__ = ["check_strategy", "weight_of"]

_NEED_EACH_REPLY = (
    "Krum",
    "MultiKrum",
    "Bulyan",
    "FedMedian",
    "FedTrimmedAvg",
    "QFedAvg",
    "FedXgbBagging",
    "FedXgbCyclic",
    "DifferentialPrivacyServerSideFixedClipping",
    "DifferentialPrivacyServerSideAdaptiveClipping",
    "DifferentialPrivacyClientSideAdaptiveClipping",
)
_SEES_REPLIES = ("aggregate_train", "aggregate_evaluate", "_check_and_log_replies")
_AGGREGATES = ("train_metrics_aggr_fn", "evaluate_metrics_aggr_fn")


def check_strategy(strategy: Any, *, private: bool) -> None:
    """Refuse a strategy that looks at each client's reply; warn of code of its own that sees the one there is.

    Args:
        strategy: The strategy, with those that it wraps.
        private: Whether the grid adds noise by itself.

    Raises:
        UsageError: It needs what secure aggregation hides.
    """
    for one in _unwrap(strategy):
        for kind in type(one).__mro__:
            if kind.__module__.startswith("flwr."):
                _refuse(kind.__name__, private)
        for name in _own_code(one):
            log(
                WARNING,
                "%s has code of its own in %s: behind a SecureGrid it sees one reply, the aggregate of all nodes, so "
                "whatever it does with single replies (filters, counts, weights by node) has no effect",
                type(one).__name__,
                name,
            )


def weight_of(strategy: Any) -> str | None:
    """The metric that a strategy weights replies by, None if it names none."""
    names = (getattr(one, "weighted_by_key", None) for one in _unwrap(strategy))
    return next((name for name in names if isinstance(name, str)), None)


def _unwrap(strategy: Any) -> Iterator[Any]:
    while strategy is not None:
        yield strategy
        strategy = getattr(strategy, "strategy", None)


def _refuse(name: str, private: bool) -> None:
    if private and name.startswith("DifferentialPrivacy"):
        raise UsageError(f"{name} would add noise to what is private already: use the strategy inside it")
    if name in _NEED_EACH_REPLY:
        raise UsageError(
            f"{name} needs every client's own reply, which secure aggregation hides: use FedAvg, FedAdam "
            "or FedProx, and set rule='median' or rule='trimmed_mean' on the SecureGrid"
        )


def _own_code(strategy: Any) -> list[str]:
    """The names of what a strategy does with replies in code that is not Flower's."""
    methods = ((name, getattr(strategy, name, None)) for name in _SEES_REPLIES)
    own = [name for name, method in methods if method is not None and not method.__module__.startswith("flwr.")]
    usual = aggregate_metricrecords
    return own + [name for name in _AGGREGATES if getattr(strategy, name, usual) is not usual]
