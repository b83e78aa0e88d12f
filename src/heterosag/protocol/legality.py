"""Which survivor sets are legal, and how the server makes one.

A set is legal when it reaches the thresholds, every block of every segment has no survivor or at least the floor, and
the robustness computed from the survivors is at least the plan's `min_robustness`. Clients apply the rule to the list
of users who shared and to the survivor set; the server makes both legal by leaving out whole subgroups. A block below
the floor can only become legal by losing everybody, so what the server leaves out is forced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from heterosag.errors import TooFewSurvivorsError
from heterosag.plan import Plan

__all__ = ["check_legal", "illegal_subgroups", "make_legal"]


def illegal_subgroups(plan: Plan, survivors: Iterable[int]) -> Iterator[tuple[int, ...]]:
    """The blocks, as tuples of subgroups, whose survivors are fewer than the floor but not none."""
    alive = Counter(plan.seats[user] for user in survivors)
    if len(alive) == len(plan.subgroups) and min(alive.values()) >= plan.floor:
        return
    for block in plan.guarded_blocks():
        if 0 < sum(alive[subgroup] for subgroup in block) < plan.floor:
            yield block


def check_legal(plan: Plan, survivors: frozenset[int], *, dealers: Iterable[int] | None = None) -> None:
    """Raise a `TooFewSurvivorsError` that names the rule unless the set (of roster indices) is legal.

    `dealers` are the users whose secrets must be rebuilt from these survivors, the survivors themselves unless given.
    """
    needed = max(plan.agree_quorum, plan.share_threshold if plan.sharing.complete else 0)
    if len(survivors) < needed:
        raise TooFewSurvivorsError("thresholds", f"{len(survivors)} users are left, the thresholds need {needed}")
    block = next(illegal_subgroups(plan, survivors), None)
    if block is not None:
        raise TooFewSurvivorsError("floor", f"subgroups {list(block)} have fewer than {plan.floor} survivors")
    _check_robustness(plan, frozenset(range(len(plan.subgroups))) - {plan.seats[user] for user in survivors})
    if not plan.sharing.complete:
        _check_holders(plan, survivors, survivors if dealers is None else dealers)


def _check_robustness(plan: Plan, lost: frozenset[int]) -> None:
    """By quick bounds first: the exact value may take seconds, and mostly one of the bounds decides."""
    if len(lost) <= plan.design.tolerated_losses(plan.min_robustness):
        return
    found = float(plan.design.robustness_at_most(lost))
    word = "at most"
    if found >= plan.min_robustness:
        found, word = float(plan.design.robustness(lost)), "only"
    if found < plan.min_robustness:
        raise TooFewSurvivorsError(
            "robustness",
            f"without subgroups {sorted(lost)} the inference robustness is {word} {found:.4g}, the plan asks for "
            f"{plan.min_robustness:.4g}",
        )


def _check_holders(plan: Plan, survivors: frozenset[int], dealers: Iterable[int]) -> None:
    for dealer in dealers:
        holders = survivors.intersection(plan.sharing.holders(dealer)) | (survivors & {dealer})
        if len(holders) < plan.share_threshold:
            raise TooFewSurvivorsError(
                "thresholds",
                f"{len(holders)} holders of user {plan.users[dealer]!r}'s shares are left, {plan.share_threshold} are "
                "needed",
            )


def make_legal(plan: Plan, alive: Iterable[int], *, dealers: Iterable[int] | None = None) -> frozenset[int]:
    """The largest legal part of `alive` that leaves out whole subgroups, or a `TooFewSurvivorsError`."""
    left = frozenset(alive)
    while True:
        dropped = {subgroup for block in illegal_subgroups(plan, left) for subgroup in block}
        if not dropped:
            break
        left = frozenset(user for user in left if plan.seats[user] not in dropped)
    check_legal(plan, left, dealers=dealers)
    return left
