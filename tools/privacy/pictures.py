"""What a curious server makes of its sums under noise: the attacks of `reproduction/inversion.py` on blocks of eight.

The clipping norm is the median norm of the updates. Without noise the sums are as fine as they can be.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from heterosag.plan import Plan
from heterosag.plan.noise import least_level
from heterosag.privacy import epsilon, noise_multiplier_for
from heterosag.privacy.accounting import gaussian_noise_multiplier_for
from heterosag.protocol.encoding import decode
from heterosag.simulation.engine import Simulation, aggregate
from reproduction import inversion

__all__ = ["NOISES", "invert"]

NOISES = ("no noise", "noise multiplier 0.3", "epsilon 8 in one round", "epsilon 8 in 20 rounds")
"""What is added to every block's sum."""

DELTA = 1e-5
SUBGROUPS, SIZE = 6, 4
COLLUDERS = 1

_FLOOR = 0.3
_MUCH = 100.0


def invert(noise: str, draws: int, seed: int) -> dict[str, Any]:
    """Both attacks on every subgroup, over some draws of pictures: what is shown, and who is told apart."""
    average = inversion.average_picture()
    scores: list[float] = []
    areas: list[float] = []
    plan = None
    users = SUBGROUPS * SIZE
    for draw in range(draws):
        pictures, updates = inversion.draw_samples(1000 * seed + draw, users)
        if noise == "no noise":
            views = inversion.view_subgroups("perfect", updates[:users], SIZE, seed)
        else:
            norm = float(np.median(np.linalg.norm(updates, axis=1)))
            plan = _plan(noise, updates.shape[1], norm) if plan is None else plan.with_value_range(norm)
            views = _views(plan, updates[:users], 1000 * seed + draw)
        scores += [inversion.best_guess(pictures[user], average, views[user // SIZE])[0] for user in range(users)]
        members = [updates[group * SIZE : (group + 1) * SIZE] for group in range(SUBGROUPS)]
        areas += [inversion.membership(view, own, updates[users:]) for view, own in zip(views, members, strict=True)]
    return {
        "shown": float(np.mean(np.array(scores) > inversion.SHOWS)),
        "mean_correlation": float(np.mean(scores)),
        "membership": float(np.mean(areas)),
        "noise_multiplier": None if plan is None else plan.noise_multiplier,
        "epsilon_of_one_round": None if plan is None else epsilon(plan, rounds=1, delta=DELTA),
    }


def _plan(noise: str, dimension: int, norm: float) -> Plan:
    """Six subgroups of four, every two of which meet; everybody survives, one user of a block may collude."""
    rounds = 1 if noise == "epsilon 8 in one round" else 20
    target: dict[str, float] = {"target_epsilon": 8.0, "target_delta": DELTA}
    wanted = _FLOOR if noise == "noise multiplier 0.3" else gaussian_noise_multiplier_for(**target, rounds=rounds)
    level = max(2, least_level(wanted, 2 * SIZE - COLLUDERS, dimension // (SUBGROUPS - 1)))

    def build(multiplier: float) -> Plan:
        return Plan.build(
            [SUBGROUPS * SIZE],
            [level],
            dimension,
            design="perfect",
            subgroup_size=SIZE,
            min_survivors=2,
            min_block_survivors=2 * SIZE,
            colluders=COLLUDERS,
            clipping_norm=norm,
            noise_multiplier=multiplier,
        )

    if noise == "noise multiplier 0.3":
        return build(_FLOOR)
    return build(noise_multiplier_for(build(_MUCH), **target, rounds=rounds))


def _views(plan: Plan, updates: npt.NDArray[np.float32], seed: int) -> list[npt.NDArray[np.float64]]:
    """For each subgroup, in every segment the decoded mean of the block that it is in."""
    result = aggregate(plan, updates, simulate=Simulation(secure=False, rounding_seed=seed))
    views = [np.zeros(plan.dimension) for _ in range(SUBGROUPS)]
    for index, (segment, blocks) in enumerate(zip(plan.segments, result.blocks, strict=True)):
        planned = {block.subgroups: block for block in segment.blocks}
        for block in blocks:
            mean = decode(plan, planned[block.subgroups], block.sums, block.survivors, block.weight, segment=index)
            for subgroup in block.subgroups:
                views[subgroup][segment.start : segment.stop] = mean
    return views
