"""Attacks on training: what malicious users send instead of their update.

From the paper: `gaussian` replaces the update by noise of standard deviation 5, `sign-flip` multiplies it by -5,
`label-flip` trains on labels 9-y and multiplies by 30. And one that hides: `little` ("a little is enough", Baruch et
al. 2019) moves every parameter by a few standard deviations of the attackers' own honest updates, against their mean.
Attackers skip the clip and wrap in the ring, because masks let them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from heterosag.plan import CohortPlan, Plan
from heterosag.plan.cohorts import plans_of

__all__ = ["STRENGTHS", "choose_attackers", "flip_labels", "tamper"]

STRENGTHS = {"gaussian": 5.0, "sign-flip": 5.0, "label-flip": 30.0, "little": 1.5}


def choose_attackers(plan: Plan | CohortPlan, count: int, placement: str, rng: np.random.Generator) -> list[int]:
    """Roster indices of the attackers: spread over as many subgroups, of all cohorts, as possible, or anywhere."""
    if placement == "random":
        return sorted(int(index) for index in rng.choice(len(plan.users), count, replace=False))
    queues = [
        list(rng.permutation([plan.index(own.users[member]) for member in subgroup.members]))
        for own in plans_of(plan)
        for subgroup in own.subgroups
    ]
    order = list(rng.permutation(len(queues)))
    chosen: list[int] = []
    while len(chosen) < count:
        for subgroup in order:
            if queues[subgroup] and len(chosen) < count:
                chosen.append(int(queues[subgroup].pop()))
    return sorted(chosen)


def flip_labels(labels: npt.NDArray[np.int64], classes: int) -> npt.NDArray[np.int64]:
    """9-y for ten labels."""
    return (classes - 1) - labels


def tamper(
    attack: str, updates: npt.NDArray[np.float32], strength: float | None, rng: np.random.Generator
) -> npt.NDArray[np.float32]:
    """What attackers send, from their own honest updates (for label-flip: from those trained on flipped labels)."""
    factor = np.float32(strength or STRENGTHS[attack])
    if attack == "gaussian":
        return rng.normal(0.0, factor, updates.shape).astype(np.float32)
    if attack == "sign-flip":
        return updates * -factor
    if attack == "label-flip":
        return updates * factor
    shifted = updates.mean(axis=0) - factor * updates.std(axis=0)
    return np.broadcast_to(shifted, updates.shape).astype(np.float32)
