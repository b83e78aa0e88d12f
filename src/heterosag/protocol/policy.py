"""What a client asks of a plan before it takes part.

`Policy()` refuses what no careful user would accept; what is looser is asked for by name.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate

import numpy as np

from heterosag.errors import PlanError, UsageError
from heterosag.plan import CohortPlan, Plan, User
from heterosag.plan.assignment import surrounded_probability
from heterosag.plan.cohorts import plans_of
from heterosag.privacy import Accountant
from heterosag.privacy.accounting import check_delta

__all__ = ["Policy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a client asks of a plan before it takes part.

    Args:
        min_survivors: Least survivors of a subgroup.
        min_users: Least users of the plan: a number, or below 1 the fraction of the directory. Of cohorts that users
            draw together a fraction is counted over all of them, a number in each.
        min_cohort_users: Least users of each cohort, or as many as a plan without cohorts has to have, if that is
            fewer; where `min_users` is a fraction.
        min_robustness: Least inference robustness of an admissible survivor set (default: that of the plan's design
            without losses).
        min_threshold: Least fraction of a secret's holders who must give their shares before it is rebuilt.
        min_colluders: Least users whom the plan tolerates to collude with the server.
        sparse_from: Least users of a plan whose secrets are shared with neighbours only.
        max_weight: Largest weight that a user may have.
        symmetric_range: Whether the value range must be symmetric around zero, so that it cannot be moved over values.
        min_half_width: Least half width of a block's range, times the scale of any array.
        max_half_width: Greatest half width of a block's range, times the scale of any array.
        max_range_change: Greatest factor by which the range, times the scale of any array, may change from one round of
            an epoch to the next; on Flower from one round of a run to the next that a node takes part in. So much, too,
            may the range times `max_weight` change, and the width of blocks that follows from their levels.
        max_rounds_of_a_model: Most rounds of a run in which a node trains from the same model: a round that failed is
            tried again with it.
        max_epochs: Most epochs, each with users assigned anew, that a node joins in a run, and most enrolments; a plan
            of one block is no epoch.
        max_surrounded: Greatest probability that a draw puts so many colluders into this user's subgroup that they
            make `min_survivors` with it, if as many collude as the plan tolerates and all of them are in its class.
        max_epsilon: Privacy budget over all rounds, against whoever sees all sums; plans without noise are then
            refused, and a client needs a `budget`. None: no limit.
        delta: Probability with which the guarantee of that epsilon may fail.
        frame: The digest of the one plan that is accepted, whatever its value range: see `exactly`.

    Example:
        >>> from heterosag import Plan, PlanError, Policy
        >>> plan = Plan.build([8], [16], 10, value_range=0.5, subgroup_size=4)
        >>> Policy().check(plan)
        >>> try:
        ...     Policy(min_users=100).check(plan)
        ... except PlanError as error:
        ...     print(error)
        users: 8 users, this client's policy asks for at least 100
    """

    min_survivors: int = 3
    min_users: float = 0.5
    min_cohort_users: int = 12
    min_robustness: float | None = None
    min_threshold: float = 0.5
    min_colluders: int = 1
    sparse_from: int = 256
    max_weight: int = 10_000
    symmetric_range: bool = True
    min_half_width: float = 1e-6
    max_half_width: float = math.inf
    max_range_change: float = 2.0
    max_rounds_of_a_model: int = 8
    max_epochs: int = 8
    max_surrounded: float = 0.1
    max_epsilon: float | None = None
    delta: float = 1e-5
    frame: bytes | None = None

    def __post_init__(self) -> None:
        """Refuse what makes no sense, before anything is promised on it: NaN would switch a check off."""
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int | float | np.floating) and not value >= 0:
                raise UsageError(f"{field.name} of a policy is a number from 0 on, not {value!r}")
        if self.max_epsilon is not None:
            Accountant.filter(max_epsilon=self.max_epsilon, target_delta=self.delta)
        else:
            check_delta(self.delta)

    @classmethod
    def any_plan(cls) -> Policy:
        """A policy for a program that made the plan itself, such as a simulation.

        Returns:
            One that asks for nothing.
        """
        return cls(
            min_survivors=2,
            min_users=2,
            min_cohort_users=2,
            min_robustness=0.0,
            min_threshold=0.0,
            min_colluders=0,
            sparse_from=0,
            max_weight=2**63 - 1,
            symmetric_range=False,
            min_half_width=0.0,
            max_range_change=math.inf,
            max_rounds_of_a_model=2**63 - 1,
            max_epochs=2**63 - 1,
            max_surrounded=1.0,
        )

    @classmethod
    def exactly(cls, plan: Plan, *, ranges: tuple[float, float]) -> Policy:
        """Accepts this plan only, such as the one that its users enrolled for, with another value range and scales.

        Args:
            plan: The plan.
            ranges: Least and greatest half width that a block's range, times the scale of any array, may have.

        Returns:
            The policy.
        """
        return cls(frame=plan.frame, min_half_width=ranges[0], max_half_width=ranges[1])

    def for_enrolled(self, plan: Plan) -> Policy:
        """This policy in the rounds of a plan that this client has enrolled for, with another value range and scales.

        The client of a round sees its own cohort only, and `min_users` is of all: enrolment has compared those. Give it
        what `Enrolling.finish` returned and nothing that a server names: what it is given passes for compared.

        Args:
            plan: The plan, of this client's own cohort.

        Returns:
            A policy that accepts no other plan, and is as strict as this one with ranges and budget.

        Example:
            >>> from heterosag import CohortPlan, Plan, PlanError, Policy
            >>> plans = CohortPlan.build([60], [16], 10, cohort_size=20, value_range=0.5, subgroup_size=4).plans
            >>> Policy().for_enrolled(plans[0]).check(plans[0], directory=range(60))
            >>> for policy in (Policy(), Policy().for_enrolled(plans[0])):
            ...     try:
            ...         policy.check(plans[1], directory=range(60))
            ...     except PlanError as error:
            ...         print(error)
            users: 20 users, this client's policy asks for at least 30
            plan: is another one than the plan that this client's policy accepts
        """
        return replace(self, frame=plan.frame)

    def check(
        self,
        plan: Plan,
        *,
        cohorts: CohortPlan | None = None,
        directory: Collection[User] | None = None,
        before: Plan | Sequence[tuple[int, float]] | None = None,
        settled: bool = True,
    ) -> None:
        """Refuse a plan below this policy.

        Args:
            plan: The plan, with the value range of the round.
            cohorts: All cohorts, where this client enrols in them and the plan is that of one.
            directory: Everybody whom this user knows, where identities are in use.
            before: The plan of the round before, where there was one; of its `array_widths` alone the levels and
                weights are not compared.
            settled: False where the round's value range is not known yet; it is then checked another time.

        Raises:
            PlanError: Says what the policy asks for.
            UsageError: The plan is not one of the cohorts'.
        """
        if settled:
            self._check_range(plan, before)
        if self.max_epsilon is not None and not plan.noise_multiplier:
            raise PlanError(
                "noise_multiplier",
                f"no noise, this client's policy asks for some: it stays within epsilon {self.max_epsilon:g}",
            )
        if self.frame is not None:
            if plan.frame != self.frame:
                raise PlanError("plan", "is another one than the plan that this client's policy accepts")
            return
        if plan.has_several_blocks:
            self._ask("min_survivors", plan.min_survivors, self.min_survivors, "survivors of a subgroup")
        else:
            self._ask("min_block_survivors", plan.min_block_survivors, self.min_survivors, "survivors of a block")
        self._check_users(plan, cohorts, directory)
        robustness = plan.inference_robustness() if self.min_robustness is None else self.min_robustness
        self._ask("min_robustness", plan.min_robustness, robustness, "inference robustness")
        holders = plan.sharing.neighbours + plan.sharing.complete
        self._ask("sharing", plan.share_threshold, self.min_threshold * holders, f"of {holders} holders' shares")
        self._ask("colluders", plan.colluders, self.min_colluders, "colluders tolerated")
        if not plan.sharing.complete:
            self._ask("sharing", len(plan.users), self.sparse_from, "users for shares with neighbours only")
        if self.min_threshold and 2 * plan.agree_quorum <= len(plan.users):
            raise PlanError("colluders", "a survivor set is agreed on by no more than half of the users")
        if plan.max_weight > self.max_weight:
            raise PlanError(
                "max_weight", f"{plan.max_weight}, this client's policy accepts weights up to {self.max_weight}"
            )

    def check_draw(self, plan: Plan | CohortPlan, user: User) -> None:
        """Refuse to draw an assignment in which enough colluders may be in this user's subgroup.

        Users are drawn within their class, and who is in which class is the server's word: a class of few users is as
        good as an assignment that it chose. Of cohorts the split is drawn too, so as many collude as all of them
        tolerate, and they may be in any.

        Args:
            plan: The plan whose users are assigned, or were, or all cohorts.
            user: This user.

        Raises:
            PlanError: The probability is above `max_surrounded`.
        """
        own = plan.plan_of(user) if isinstance(plan, CohortPlan) else plan
        if not own.has_several_blocks:
            return
        mine = own.subgroups[own.subgroup_of(user)].user_class
        every = [subgroup for one in plans_of(plan) for subgroup in one.subgroups]
        sizes = [len(subgroup.members) for subgroup in every if subgroup.user_class == mine]
        enough, colluders = own.min_survivors - 1, min(sum(one.colluders for one in plans_of(plan)), sum(sizes) - 1)
        found = surrounded_probability(sizes, colluders, enough)
        if found > self.max_surrounded * (1 + 1e-9):
            raise PlanError(
                "classes",
                f"if {colluders} in its class of {sum(sizes)} users collude, {enough} of them are in this client's "
                f"subgroup with probability {found:.2g}, and with them alone it would be unmasked; its policy accepts "
                f"{self.max_surrounded:g}: plan with a larger min_survivors, or with smaller subgroups",
            )

    def _check_users(self, plan: Plan, cohorts: CohortPlan | None, directory: Collection[User] | None) -> None:
        """A server that could name any cohorts would put a client among as few users as it likes: each has a least."""
        if cohorts is not None and cohorts.plan_of(plan.users[0]) != plan:  # which is quick, for millions of users too
            raise UsageError("the plan is none of the cohorts'")
        wanted = self.min_users
        if wanted < 1:
            wanted = 2 if directory is None else math.ceil(wanted * len(directory))
            if cohorts is not None:
                self._ask("users", len(cohorts.users), wanted, "users of all cohorts")
                self._ask("users", len(plan.users), min(wanted, self.min_cohort_users), "users of a cohort")
                return
        self._ask("users", len(plan.users), wanted, "users")

    def _ask(self, field: str, found: float, least: float, what: str) -> None:
        if found < least:
            raise PlanError(field, f"{found:g} {what}, this client's policy asks for at least {least:g}")

    def _check_range(self, plan: Plan, before: Plan | Sequence[tuple[int, float]] | None) -> None:
        low, high = plan.value_range
        if self.symmetric_range and low != -high:
            raise PlanError(
                "value_range",
                f"({low:g}, {high:g}) is not symmetric around zero, which this client's policy asks for: a range that "
                "can be moved shows values over many rounds",
            )
        ends = [plan.range_of(block) for segment in plan.segments for block in segment.blocks]
        halves = [(end[1] - end[0]) / 2 for end in ends] or [(high - low) / 2]
        scales = plan.scales or (1.0,)
        for half in (*plan.half_widths, min(halves) * min(scales), max(halves) * max(scales)):
            if not 0 < half < math.inf:
                raise PlanError(
                    "value_range",
                    f"a half width of {half:g}, times the scale of its array, is not a positive, finite number: plan "
                    "with another range, or other scales",
                )
        for half in (min(halves) * min(scales), max(halves) * max(scales)):
            if not self.min_half_width <= half <= self.max_half_width:
                raise PlanError(
                    "value_range",
                    f"a half width of {half:g}, this client's policy accepts {self.min_half_width:g} to "
                    f"{self.max_half_width:g}",
                )
        if isinstance(before, Plan):
            factors = plan.width_factors, before.width_factors
            self.check_change(plan.array_widths, before.array_widths, factors=factors)
        elif before is not None:
            self.check_change(plan.array_widths, before)

    def check_change(
        self,
        array_widths: Sequence[tuple[int, float]],
        before: Sequence[tuple[int, float]],
        *,
        same_elements: bool = True,
        factors: tuple[tuple[float, float, int], tuple[float, float, int]] | None = None,
    ) -> None:
        """Refuse half widths that are too far from those of the round before in the same epoch.

        Those of every element are compared, however the arrays are cut. If an update has other elements, or another
        number of them, nothing says which are the same, so each is compared with each.

        With a weight below `max_weight` an update is held to more than the range, in proportion to `max_weight`, so the
        range times that must not change too much either. Nor must the width of blocks over that of the range, which
        follows from levels and users. As an element may be in any block, it is refused only if every block is too much
        wider, or too much narrower, than every block before.

        Args:
            array_widths: The `array_widths` of the plan of the round.
            before: Those of the round before.
            same_elements: False where the elements are not the same, or not in the same order.
            factors: The `width_factors` of the plan of the round, and of the round before, where they are known.

        Raises:
            PlanError: Says what the policy accepts.
        """
        weights = 1.0
        if factors is not None:
            (low, high, weight), (low_before, high_before, weight_before) = factors
            weights = weight / weight_before
            self._check_ratio("levels", "blocks have a width ", max(low / high_before, 1.0))
            self._check_ratio("levels", "blocks have a width ", min(high / low_before, 1.0))
        for now, then in _compared(array_widths, before, same_elements):
            self._check_ratio("value_range", "", now / then)
            self._check_ratio("max_weight", "the range times max_weight is ", now / then * weights)

    def _check_ratio(self, field: str, what: str, ratio: float) -> None:
        most = self.max_range_change * (1 + 1e-9)
        if not 1 / most <= ratio <= most:
            raise PlanError(
                field,
                f"{what}{ratio:.3g} times that of the last round that this client masked in, its policy accepts a "
                f"factor of {self.max_range_change:g}: Policy(max_range_change=...) accepts more",
            )


def _compared(
    now: Sequence[tuple[int, float]], before: Sequence[tuple[int, float]], same_elements: bool
) -> Iterator[tuple[float, float]]:
    """The half widths that one element may have had in both rounds."""
    ends, ends_before = (list(accumulate(size for size, _ in widths)) for widths in (now, before))
    if not same_elements or ends[-1] != ends_before[-1]:
        halves, halves_before = ([half for _, half in widths] for widths in (now, before))
        yield min(halves), max(halves_before)
        yield max(halves), min(halves_before)
        return
    for end in sorted({*ends, *ends_before}):
        yield now[bisect_left(ends, end)][1], before[bisect_left(ends_before, end)][1]
