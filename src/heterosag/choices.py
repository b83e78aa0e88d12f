"""The closed choices by their names, as types that a checker follows: light, so that the command line can show them."""

from __future__ import annotations

from typing import Literal

__all__ = [
    "AssignmentName",
    "DesignName",
    "EvaluationName",
    "PhaseName",
    "RangesName",
    "RuleName",
    "SharingName",
    "View",
]

DesignName = Literal["perfect", "paper", "paper-composite", "secagg", "multigroup"]
"""Which subgroups code a segment together."""

SharingName = Literal["auto", "complete", "sparse"]
"""Who holds shares: everybody, neighbours only, or whichever fits the number of users."""

RangesName = Literal["levels", "single"]
"""How wide a block's range is: as is best for its levels, or the same for all."""

RuleName = Literal["mean", "median", "trimmed_mean", "unchecked_mean"]
"""How block means are combined."""

PhaseName = Literal["advertise", "share", "mask", "agree", "unmask"]
"""What a user sends."""

AssignmentName = Literal["enrolled", "server"]
"""Who assigns users to subgroups: they draw it together, or the server does."""

EvaluationName = Literal["secure", "off", "plaintext"]
"""What becomes of the metrics of an evaluation: summed over everybody, refused, or sent by each node."""

View = Literal["server", "model"]
"""Who looks: whoever sees all sums of blocks, or whoever sees the released models only."""
