"""Differential privacy inside the sums: the mechanism that clients add noise by, and what it costs.

`mechanism` turns an update into noisy counts and a sum of counts into a mean; `accounting` says what rounds cost a
user, and `Accountant` adds it up. `bound` certifies the figures, `cache` keeps them on disk.
"""

from heterosag.privacy.accountant import Accountant, PrivacySpent, noise_within_budget
from heterosag.privacy.accounting import NoisyRound, NoisySegment, epsilon, noise_multiplier_for

__all__ = [
    "Accountant",
    "NoisyRound",
    "NoisySegment",
    "PrivacySpent",
    "epsilon",
    "noise_multiplier_for",
    "noise_within_budget",
]
