"""The whole mechanism under attack: a canary in many simulated rounds, and what an attacker tells from the sums.

The attacker knows the canary's update and everybody else's, sees the block's sums, and projects them onto the update. A
threshold on the projection gives a lower bound of epsilon at the accounted delta that holds with high confidence. It
must be at most what the accountant says, and at least a third of it: a bound that nothing comes near would hide errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from heterosag.plan import Plan
from heterosag.privacy import epsilon
from heterosag.protocol.cells import CellLanes
from heterosag.protocol.encoding import decode, fill_cells
from heterosag.protocol.rounding import Rounding
from heterosag.protocol.update import Update
from heterosag.vector.rotation import rotate

DELTA, ROUNDS, SIZE, USERS = 0.01, 2000, 1024, 4
SURE = 3.5  # standard deviations; keys are fixed, so that the test does not depend on luck

Encode = Callable[[Plan, Update, Rounding], list[CellLanes]]


def plan_of() -> Plan:
    return Plan.build(
        [USERS], [2], SIZE, design="secagg", subgroup_size=USERS, min_block_survivors=USERS, clipping_norm=1.0,
        noise_multiplier=1.0, colluders=1,
    )  # fmt: skip


def encode(plan: Plan, update: Update, rounding: Rounding) -> list[CellLanes]:
    return fill_cells(plan, 0, update, rounding)


def canary() -> npt.NDArray[np.float64]:
    """A whole clipping norm, spread over all elements: no element is clipped."""
    signs = np.where(np.random.default_rng(3).random(SIZE) < 0.5, -1.0, 1.0)
    return signs / math.sqrt(SIZE)


def observe(encode: Encode, rounds: int, *, present: bool) -> npt.NDArray[np.float64]:
    """What the attacker sees in each round: the projection of the sum of honest users, and exact lanes beside it.

    One of the four colludes, so that its counts are taken off; the others but the canary send zeros.
    """
    plan, wanted = plan_of(), canary()
    zeros = Update.of(plan, np.zeros(SIZE))
    mine = Update.of(plan, wanted if present else np.full(SIZE, np.nan))  # what is not a number is fair coins
    seen = np.empty(rounds)
    for number in range(rounds):
        total: Any = 0
        exact = 0
        for user in range(plan.honest):
            [cell] = encode(plan, mine if user == 0 else zeros, Rounding.from_seed(11 + present, user, number))
            total = total + cell.elements.astype(np.int64)
            exact += int(cell.auxiliary[1:].sum())
        mean = decode(plan, plan.segments[0].blocks[0], total, plan.honest, plan.honest)
        seen[number] = float(mean @ wanted) + exact
    return seen


def lower_bound(encode: Encode, rounds: int = ROUNDS) -> float:
    """Epsilon that the attacker proves: for the best of some thresholds."""
    with_canary, without = observe(encode, rounds, present=True), observe(encode, rounds, present=False)
    best = 0.0
    for threshold in np.quantile(np.concatenate([with_canary, without]), np.linspace(0.02, 0.98, 49)):
        for hits, misses in (
            (with_canary > threshold, without > threshold),
            (without < threshold, with_canary < threshold),
        ):
            least = hits.mean() - SURE * math.sqrt(hits.mean() * (1 - hits.mean()) / rounds)
            most = misses.mean() + SURE * math.sqrt(max(misses.mean(), 1 / rounds) / rounds)
            if least > DELTA:
                best = max(best, math.log((least - DELTA) / most))
    return best


@pytest.mark.slow
def test_an_attacker_proves_no_more_than_is_accounted_and_a_third_of_it() -> None:
    accounted = epsilon(plan_of(), rounds=1, delta=DELTA)
    assert accounted / 3 <= lower_bound(encode) <= accounted


def without_noise(plan: Plan, update: Update, rounding: Rounding) -> list[CellLanes]:
    """The likelier side of every coin."""
    [cell] = fill_cells(plan, 0, update, rounding)
    values = rotate(np.nan_to_num(update.vector), 0)
    return [CellLanes((values > 0).astype(cell.elements.dtype), cell.auxiliary)]


def with_a_reused_key(plan: Plan, update: Update, rounding: Rounding) -> list[CellLanes]:
    return fill_cells(plan, 0, update, Rounding.from_seed(5, 5, 5))


def with_an_exact_lane(plan: Plan, update: Update, rounding: Rounding) -> list[CellLanes]:
    """How many elements were clipped, summed exactly: here, as an attacker would arrange it, of the canary alone."""
    [cell] = fill_cells(plan, 0, update, rounding)
    clipped = int(np.count_nonzero(np.nan_to_num(update.vector)))
    return [CellLanes(cell.elements, np.array([*cell.auxiliary, clipped], dtype=np.uint64))]


@pytest.mark.slow
@pytest.mark.parametrize("broken", [without_noise, with_a_reused_key, with_an_exact_lane])
def test_the_audit_finds_a_broken_mechanism(broken: Encode) -> None:
    assert lower_bound(broken, ROUNDS // 4) > epsilon(plan_of(), rounds=1, delta=DELTA)


def test_a_plan_with_noise_sends_no_exact_lane_but_the_count() -> None:
    [cell] = encode(plan_of(), Update.of(plan_of(), canary()), Rounding.from_system())
    assert cell.auxiliary.tolist() == [1]
