"""What a client asks of a plan before it takes part."""

from __future__ import annotations

from dataclasses import dataclass

from heterosag.errors import PlanError
from heterosag.plan import Plan

__all__ = ["Policy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a client asks of a plan before it takes part.

    Args:
        min_survivors: Least survivors of a block whose sum may be unmasked.
        least_users: Least users of the plan.
        least_robustness: Least inference robustness of an admissible survivor set.

    Example:
        >>> from heterosag import Plan, PlanError, Policy
        >>> plan = Plan.build([8], [16], 10, value_range=0.5, subgroup_size=4)
        >>> Policy(min_survivors=3).check(plan)
        >>> try:
        ...     Policy(least_users=100).check(plan)
        ... except PlanError as error:
        ...     print(error)
        users: 8 is below this client's policy of at least 100
    """

    min_survivors: int = 2
    least_users: int = 2
    least_robustness: float = 0.0

    def check(self, plan: Plan) -> None:
        """Refuse a plan below this policy."""
        for name, value, least in (
            ("min_survivors", plan.min_survivors, self.min_survivors),
            ("users", len(plan.users), self.least_users),
            ("min_robustness", plan.min_robustness, self.least_robustness),
        ):
            if value < least:
                raise PlanError(name, f"{value:g} is below this client's policy of at least {least:g}")
