"""Charters: who enrols in which epoch, for which plan or cohorts, and what everybody's nonces make of it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from heterosag.crypto import hashing
from heterosag.errors import PlanError, UsageError
from heterosag.plan import CohortPlan, Plan, User
from heterosag.plan.cohorts import plans_of
from heterosag.protocol import messages as wire

__all__ = ["Charter", "commit_to", "commitments_context"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Charter:
    """Who enrols in which epoch, and for what.

    Args:
        epoch: Bytes that no other try has.
        plan: A plan in listed order, whose users are assigned anew; or several cohorts, likewise.
    """

    epoch: bytes
    plan: Plan | CohortPlan

    def __post_init__(self) -> None:
        if not 1 <= len(self.epoch) <= 64:
            raise UsageError(f"an epoch is named by 1 to 64 bytes, not {len(self.epoch)}")
        if self.plan.assignment_seed is not None:
            raise PlanError("assignment_seed", "a charter's plan has none: enrolment makes it")
        if isinstance(self.plan, CohortPlan) and len(self.plan.plans) == 1:
            raise PlanError("plan", "one cohort is a plan: give that")

    @property
    def context(self) -> bytes:
        """What commitments are signed for."""
        return hashing.digest("context/charter", hashing.index_bytes(wire.WIRE_VERSION), self.plan.digest, self.epoch)

    def without(self, users: Collection[User], epoch: bytes) -> Charter:
        """The charter of the next try, without these users.

        Args:
            users: Who did not answer.
            epoch: Bytes that no other try has.

        Returns:
            The charter.

        Raises:
            PlanError: Too few are left for a plan.
        """
        gone = {self.plan.users[self.plan.index(user)] for user in users}
        kept, sizes, first = [], [], 0
        for size in self.plan.classes:
            members = [user for user in self.plan.users[first : first + size] if user not in gone]
            kept += members
            sizes.append(len(members))
            first += size
        filled = [place for place, size in enumerate(sizes) if size]
        found = self._build(
            users=kept,
            classes=[sizes[place] for place in filled],
            levels=[self.plan.levels[place] for place in filled],
            min_robustness=None,
        )
        alone = isinstance(found, CohortPlan) and len(found.plans) == 1
        return Charter(epoch=epoch, plan=plans_of(found)[0] if alone else found)

    def settle(self, commitments: bytes, nonces: Collection[bytes]) -> Plan | CohortPlan:
        """The plan that everybody arrives at, or all cohorts.

        Args:
            commitments: The context of everybody's commitments.
            nonces: Everybody's nonce, in roster order.

        Returns:
            The plan, or the cohorts.
        """
        return self._build(assignment_seed=hashing.digest("enrol/seed", commitments, *nonces))

    def _build(self, **changes: Any) -> Plan | CohortPlan:
        return type(self.plan).build(**self.plan.arguments() | changes)


def commit_to(context: bytes, user: int, nonce: bytes) -> bytes:
    """The commitment of a user, by its roster index, to its nonce."""
    return hashing.digest("enrol/nonce", context, hashing.index_bytes(user), nonce)


def commitments_context(context: bytes, commitments: Collection[bytes]) -> bytes:
    """What nonces are revealed under: everybody's commitments to a charter."""
    return hashing.digest("context/commitments", context, *commitments)
