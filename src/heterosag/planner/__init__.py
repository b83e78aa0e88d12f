"""From users' links to the best plan: the clustering and the levels that the paper leaves open.

`best` takes `Requirements` and gives a `Proposal`, or an `InfeasibleError` that says which two of them clash. search.py
has the theory.
"""

from heterosag.errors import InfeasibleError
from heterosag.planner.optimize import Proposal, Relaxation, best, trade_off
from heterosag.planner.rates import read_rates, spread_rates
from heterosag.planner.requirements import Requirements

__all__ = [
    "InfeasibleError",
    "Proposal",
    "Relaxation",
    "Requirements",
    "best",
    "read_rates",
    "spread_rates",
    "trade_off",
]
