"""Who is in which cohort: users of a class, shuffled by the public seed, are dealt to the cohorts in turn.

Sizes differ by one at most, in all and in every class. One cohort has everybody in roster order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heterosag.crypto import hashing
from heterosag.errors import PlanError
from heterosag.plan.assignment import deal
from heterosag.plan.checks import User, seed_bytes
from heterosag.plan.plan import Plan

__all__ = ["check_size", "check_split", "classes_of", "seed_of", "split"]


def check_size(cohort_size: Any) -> int:
    """A cohort size that can be one, or a `PlanError`."""
    if isinstance(cohort_size, bool) or not isinstance(cohort_size, int) or not 2 <= cohort_size < 2**63:
        raise PlanError("cohort_size", f"must be an integer of at least 2, not {cohort_size!r}")
    return cohort_size


def split(
    roster: tuple[User, ...], classes: Sequence[int], cohort_size: int, seed: int | bytes | None
) -> list[tuple[tuple[User, ...], tuple[int, ...]]]:
    """Each cohort's users in roster order, and how many of them each class has."""
    public = seed_bytes(seed)
    count = -(-len(roster) // cohort_size)
    for index, users in enumerate(classes):
        if users < count:
            raise PlanError(
                f"classes[{index}]",
                f"{users} users are too few for {count} cohorts, each of which needs some of every class: use a "
                f"cohort_size of at least {-(-len(roster) // users)}, or merge the class with its neighbour",
            )
    members, sizes = deal(classes, count, None if count == 1 else public)
    return [(tuple(roster[user] for user in own), size) for own, size in zip(members, sizes, strict=True)]


def seed_of(seed: int | bytes | None, cohort: int, count: int) -> int | bytes | None:
    """The public seed of a cohort's subgroups: one cohort has the seed of the whole, several have one each."""
    public = seed_bytes(seed)
    if public is None or count == 1:
        return seed
    return hashing.digest("cohorts/seed", public, hashing.index_bytes(cohort))


def check_split(
    roster: tuple[User, ...], plans: Sequence[Plan], cohort_size: int, assignment_seed: int | bytes | None
) -> None:
    """Refuse plans whose users are not those that the seed assigns to them."""
    classes = classes_of(plans)
    if sum(classes) != len(roster):
        raise PlanError("users", f"the cohorts hold {sum(classes)} users, but {len(roster)} are named")
    found = split(roster, classes, cohort_size, assignment_seed)
    if len(found) != len(plans):
        raise PlanError("plans", f"{len(roster)} users make {len(found)} cohorts of this size, not {len(plans)}")
    for index, ((members, own), plan) in enumerate(zip(found, plans, strict=True)):
        seed = seed_of(assignment_seed, index, len(plans))
        if (plan.users, plan.classes, plan.assignment_seed) != (members, own, seed):
            raise PlanError("plans", f"the users of cohort {index} are not those whom the seed assigns to it")


def classes_of(plans: Sequence[Plan]) -> tuple[int, ...]:
    """Users per class, of all plans together."""
    return tuple(sum(sizes) for sizes in zip(*(plan.classes for plan in plans), strict=True))
