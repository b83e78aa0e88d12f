"""Cohorts: many users in rounds of bounded size, described by one public value.

A user's set-up grows with the users it codes with, and the server's work with their square. Beyond a cohort size users
are therefore split into cohorts, each with a plan, keys and a round of its own, and the results are combined. Users of
a class are shuffled by the public seed and dealt to the cohorts in turn, so that sizes differ by one at most, in all
and in every class. One cohort is the plan without cohorts, to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec

from heterosag.crypto import hashing
from heterosag.errors import PlanError, UsageError
from heterosag.plan.checks import User, check_classes, check_users
from heterosag.plan.design import Robustness, tolerated_blocks
from heterosag.plan.dropout import LeakProbability
from heterosag.plan.layout import ranges_between_cuts
from heterosag.plan.notes import notes_of_cohorts
from heterosag.plan.plan import Plan
from heterosag.plan.splitting import check_size, check_split, classes_of, seed_of, split
from heterosag.vector.quantize import ValueRange

__all__ = ["COHORT_SIZE", "CohortPlan", "plans_of"]

COHORT_SIZE = 512
"""Users that a cohort has at most, unless said otherwise."""

_VERSION = 1

_ALIKE = (
    "levels", "dimension", "value_range", "ranges", "arrays", "scales", "subgroup_size", "min_survivors",
    "min_block_survivors", "max_weight", "dropout", "fill_levels", "metrics", "rotate", "noise_multiplier",
    "adaptive_clip",
)  # fmt: skip
"""What all cohorts have in common, beside the design's name; the rest follows from a cohort's own users."""

_Encoded = tuple[int, int, int | bytes | None, list[int | str] | None, list[bytes]]
"""Version, cohort size, seed, names in roster order (None: 0..N-1), and the plans' canonical encodings."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CohortPlan:
    """A federation of plans: who is in which cohort, and each cohort's plan. Make one with `CohortPlan.build`.

    Args:
        users: Everybody's names in roster order, class by class.
        cohort_size: Users that a cohort has at most.
        assignment_seed: Public seed of the split; None deals users in the order in which they are listed.
        plans: Each cohort's plan.

    Raises:
        PlanError: The plans are not those of this split, or differ in what cohorts have in common.

    Guarantees: each is the least of the cohorts', unless it says otherwise. A user is hidden among its own cohort, not
    among everybody: the server learns the sums of every cohort's blocks. `colluders` and `honest` hold in each cohort.
    """

    users: tuple[User, ...]
    cohort_size: int
    assignment_seed: int | bytes | None
    plans: tuple[Plan, ...]
    notes: tuple[str, ...] = field(init=False, compare=False)
    _cohorts: dict[User, int] = field(init=False, compare=False)
    _roster: dict[User, int] = field(init=False, compare=False)

    @classmethod
    def build(
        cls,
        classes: Sequence[int],
        levels: Sequence[int] | Literal["auto"],
        dimension: int,
        *,
        cohort_size: int = COHORT_SIZE,
        users: Sequence[User] | None = None,
        assignment_seed: int | bytes | None = None,
        **arguments: Any,
    ) -> CohortPlan:
        """Split users into cohorts, and plan each one's rounds.

        Args:
            classes: Users per class, slowest link first, of all cohorts together.
            levels: Quantizer levels per class, non-decreasing; or `auto`, chosen for the largest cohort from `rates`.
            dimension: Elements of the update vector.
            cohort_size: Users that a cohort has at most.
            users: Names in class order (default 0..N-1).
            assignment_seed: Public seed that shuffles the users of a class, into cohorts and then into subgroups.
            arguments: The other arguments of `Plan.build`, for every cohort; `colluders` and `honest` are of a cohort.

        Returns:
            The plans of all cohorts as one value.

        Raises:
            PlanError: Says which value to change, and in which cohort.

        Example:
            >>> from heterosag.plan import CohortPlan
            >>> plan = CohortPlan.build([60, 63], [4, 16], 1000, cohort_size=50, value_range=0.5, assignment_seed=1)
            >>> [cohort.classes for cohort in plan.plans]
            [(20, 21), (20, 21), (20, 21)]
            >>> plan.byzantine_tolerance() > max(cohort.byzantine_tolerance() for cohort in plan.plans)
            True
        """
        sizes, given = check_classes(classes, levels)
        roster = check_users(users, sum(sizes))
        plans: list[Plan] = []
        found = split(roster, sizes, check_size(cohort_size), assignment_seed)
        if given is None:  # the same levels for all cohorts
            largest = max((own for _, own in found), key=sum)
            levels = Plan.build(largest, "auto", dimension, **arguments).levels
            arguments = {name: value for name, value in arguments.items() if name not in ("rates", "deadline")}
            if arguments.get("fill_levels") is None:
                arguments["fill_levels"] = True
        for index, (members, own) in enumerate(found):
            seed = seed_of(assignment_seed, index, len(found))
            try:
                plans.append(Plan.build(own, levels, dimension, users=members, assignment_seed=seed, **arguments))
            except PlanError as error:
                if len(found) == 1:
                    raise
                where = f"in cohort {index} of {len(found)}, which has {','.join(map(str, own))} users of the classes"
                raise PlanError(error.field, f"{where}: {error.problem}") from None
        return cls(users=roster, cohort_size=cohort_size, assignment_seed=assignment_seed, plans=tuple(plans))

    def __post_init__(self) -> None:
        check_size(self.cohort_size)
        roster = check_users(self.users, len(self.users))
        if not self.plans:
            raise PlanError("plans", "there is at least one cohort")
        _check_alike(self.plans)
        check_split(roster, self.plans, self.cohort_size, self.assignment_seed)
        values: dict[str, Any] = {
            "users": roster,
            "_cohorts": {user: index for index, plan in enumerate(self.plans) for user in plan.users},
            "_roster": {user: index for index, user in enumerate(roster)},
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "notes", tuple(notes_of_cohorts(self)))

    def with_value_range(self, value_range: ValueRange | float, scales: Sequence[float] | None = None) -> CohortPlan:
        """The same cohorts for another value range, and other scales.

        Args:
            value_range: A pair, or the half width of a range around zero.
            scales: The scale of each array (default: these plans').

        Returns:
            Every cohort's plan for this range.

        Raises:
            PlanError: `Plan.build` would refuse this range, or these scales.
        """
        return replace(self, plans=tuple(plan.with_value_range(value_range, scales) for plan in self.plans))

    def only_metrics(self) -> CohortPlan:
        """What is left of the cohorts in a round that sums metrics and no update.

        Returns:
            Cohorts whose plans have no segments.

        Raises:
            UsageError: The plans have no metrics.
        """
        return replace(self, plans=tuple(plan.only_metrics() for plan in self.plans))

    def __repr__(self) -> str:
        sizes = sorted({len(plan.users) for plan in self.plans})
        return (
            f"<CohortPlan of {len(self.users)} users in {len(self.plans)} cohorts of {' or '.join(map(str, sizes))}: "
            f"{self.dimension:,} elements, robustness {self.robustness()}, "
            f"Byzantine tolerance {self.byzantine_tolerance()}>"
        )

    # --- who and what -------------------------------------------------------------------------------------------

    @property
    def dimension(self) -> int:
        """Elements of the update vector."""
        return self.plans[0].dimension

    @property
    def classes(self) -> tuple[int, ...]:
        """Users per class, of all cohorts together."""
        return classes_of(self.plans)

    @property
    def levels(self) -> tuple[int, ...]:
        """Quantizer levels of each class."""
        return self.plans[0].levels

    @property
    def arrays(self) -> tuple[int, ...]:
        """Elements of each array that has a scale of its own."""
        return self.plans[0].arrays

    @property
    def value_range(self) -> ValueRange:
        """The range that all cohorts clip to."""
        return self.plans[0].value_range

    @property
    def scales(self) -> tuple[float, ...]:
        """The scale of each array."""
        return self.plans[0].scales

    @property
    def noise_multiplier(self) -> float:
        """The noise of all cohorts; 0 without any."""
        return self.plans[0].noise_multiplier

    @property
    def colluders(self) -> int:
        """Users of any one cohort who may collude with the server: the least over the cohorts."""
        return min(plan.colluders for plan in self.plans)

    @property
    def honest(self) -> int:
        """Fewest honest survivors of a block that noise is counted on: the least over the cohorts."""
        return min(plan.honest for plan in self.plans)

    def index(self, user: User) -> int:
        """A user's place in the roster of all cohorts.

        Args:
            user: A name in `users`.

        Returns:
            The place, from 0.

        Raises:
            UsageError: No cohort has such a user.
        """
        try:
            return self._roster[user]
        except (KeyError, TypeError):
            raise UsageError(f"{user!r} is not one of the {len(self.users)} users of these cohorts") from None

    def cohort_of(self, user: User) -> int:
        """The index of a user's cohort.

        Args:
            user: A name in `users`.

        Returns:
            An index into `plans`.

        Raises:
            UsageError: No cohort has such a user.
        """
        self.index(user)
        return self._cohorts[user]

    def plan_of(self, user: User) -> Plan:
        """The plan of a user's cohort.

        Args:
            user: A name in `users`.

        Returns:
            One of `plans`.

        Raises:
            UsageError: No cohort has such a user.
        """
        return self.plans[self.cohort_of(user)]

    # --- guarantees ---------------------------------------------------------------------------------------------

    def robustness(self) -> Robustness:
        """The least inference robustness of a cohort, and whether it is exact or a lower bound."""
        found = [plan.robustness() for plan in self.plans]
        least = min(one.value for one in found)
        return Robustness(value=least, exact=any(one.exact for one in found if one.value == least))

    def inference_robustness(self) -> float:
        """The smallest fraction of segments in which the sum of any proper set of a cohort's subgroups stays hidden."""
        return float(self.robustness())

    def byzantine_tolerance(self, survivors: Collection[User] | None = None) -> int:
        """How many faulty users, in whichever cohorts, leave the median of every element to sound blocks.

        The blocks of all cohorts vote together. Cohorts can be cut into different numbers of segments, so blocks are
        counted range by range of elements between neighbouring cuts, and the range with fewest blocks decides.

        Args:
            survivors: Names in `users`; everybody unless given. A cohort without any gives no block.

        Returns:
            A number of users.

        Raises:
            UsageError: Nobody of any cohort is left.
        """
        alive = None if survivors is None else set(survivors)
        left = []
        for plan in self.plans:
            own = [user for user in plan.users if alive is None or user in alive]
            if own:
                left.append((plan, plan.design.surviving(plan.lost_subgroups(own))))
        if not left:
            raise UsageError("nobody of any cohort is left")
        counts = [
            sum(len(blocks[at]) for (_, blocks), at in zip(left, places, strict=True))
            for _, _, places in ranges_between_cuts([plan.segments for plan, _ in left])
        ]
        fewest = min(counts, default=0)  # a round of metrics alone has no segments
        return tolerated_blocks(fewest)

    def leak_probability(self, dropout: float | None = None) -> LeakProbability:
        """Theorem 3's leak at a dropout rate: in the worst cohort for one subgroup, in any cohort for the others.

        Args:
            dropout: The fraction of users who drop out in a round; the plans' own unless given.

        Returns:
            The probabilities for one subgroup, for any, and for a block.
        """
        found = [plan.leak_probability(dropout) for plan in self.plans]
        return LeakProbability(
            one=max(leak.one for leak in found),
            any=_of_any(leak.any for leak in found),
            block=_of_any(leak.block for leak in found),
        )

    def failure_probability(self, dropout: float | None = None) -> float:
        """The probability that some cohort's round ends for lack of survivors; the others go on without it.

        Args:
            dropout: The fraction of users who drop out in a round; the plans' own unless given.

        Returns:
            The probability that one or more cohorts fail.
        """
        return _of_any(plan.failure_probability(dropout) for plan in self.plans)

    def quantization_error(self) -> float:
        """Bound on E||mean of quantized - mean||^2 over all users of all cohorts."""
        total = math.fsum(len(plan.users) ** 2 * plan.quantization_error() for plan in self.plans)
        return total / len(self.users) ** 2

    def clip_bias(self) -> float:
        """Bound on ||E mean of quantized - mean||^2: users of all cohorts may clip alike, so nothing averages out."""
        return math.fsum(len(plan.users) * plan.clip_bias() for plan in self.plans) / len(self.users)

    def error_bound(self) -> float:
        """Bound on the squared error of the mean: rounding noise and clip bias together."""
        return self.quantization_error() + self.clip_bias()

    # --- in and out ---------------------------------------------------------------------------------------------

    def arguments(self) -> dict[str, Any]:
        """The arguments of `build` that make these cohorts again; what follows from a cohort's size is left open."""
        found = [plan.arguments() for plan in self.plans]
        left_open = {"min_robustness": None, "sharing": "auto", "colluders": None}
        return found[0] | {
            **{name: value for name, value in left_open.items() if len({one[name] for one in found}) > 1},
            "classes": list(self.classes),
            "users": list(self.users),
            "assignment_seed": self.assignment_seed,
            "cohort_size": self.cohort_size,
        }

    def encode(self) -> bytes:
        """The canonical encoding: version, cohort size, seed, names, and every cohort's plan."""
        names = None if self.users == tuple(range(len(self.users))) else list(self.users)
        plans = [plan.encode() for plan in self.plans]
        return msgspec.msgpack.encode([_VERSION, self.cohort_size, self.assignment_seed, names, plans])

    @classmethod
    def decode(cls, data: bytes, *, among: Collection[User] | None = None) -> CohortPlan:
        """The cohorts of a canonical encoding.

        Args:
            data: What `encode` returned.
            among: Users that there can be: cohorts that name any others are refused before their plans are read.

        Returns:
            The cohorts.

        Raises:
            PlanError: The bytes are not the canonical encoding of cohorts, or name users that there cannot be.

        Guarantees: every plan is decoded as `Plan.decode` does, no longer than its own bytes allow, and the split is
        drawn anew from the seed: nobody can hand over another one.
        """
        try:
            version, size, seed, names, encoded = msgspec.msgpack.decode(data, type=_Encoded)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise PlanError("encoding", f"these bytes are not cohorts: {error}") from None
        if version != _VERSION:
            raise PlanError("version", f"this software reads cohorts of version {_VERSION}, not {version}")
        if among is not None:
            _check_among(among, names, len(encoded))
        plans = tuple(Plan.decode(one) for one in encoded)
        users = tuple(range(sum(len(plan.users) for plan in plans))) if names is None else tuple(names)
        found = cls(users=users, cohort_size=size, assignment_seed=seed, plans=plans)
        if found.encode() != data:
            raise PlanError("encoding", "these bytes are not the canonical encoding of the cohorts in them")
        return found

    @property
    def digest(self) -> bytes:
        """SHA-256 of the canonical encoding, labelled."""
        return hashing.digest("cohorts", self.encode())


def plans_of(plan: Plan | CohortPlan) -> tuple[Plan, ...]:
    """The plan of each cohort; a plan without cohorts is the only one.

    Args:
        plan: A plan, or cohorts.

    Returns:
        One plan or more.
    """
    return plan.plans if isinstance(plan, CohortPlan) else (plan,)


def _check_among(among: Collection[User], names: list[int | str] | None, cohorts: int) -> None:
    strangers = [name for name in names or (0,) if name not in among]  # without names: users 0, 1, ...
    if strangers:
        raise PlanError("users", f"user {strangers[0]!r} is not known here: is it missing from the directory?")
    if cohorts > len(among):
        raise PlanError("users", f"{cohorts} cohorts are more than there are users")


def _check_alike(plans: tuple[Plan, ...]) -> None:
    first = plans[0]
    for index, plan in enumerate(plans):
        for name in _ALIKE:
            if getattr(plan, name) != getattr(first, name):
                raise PlanError(name, f"cohort {index} has another one than cohort 0")
        if plan.noise_multiplier and plan.honest != first.honest:
            raise PlanError("honest", f"cohort {index} counts on other numbers of honest survivors than cohort 0")
        if plan.design.name != first.design.name:
            raise PlanError("design", f"cohort {index} has another one than cohort 0")


def _of_any(chances: Iterable[float]) -> float:
    """The probability that one or more of independent events happen."""
    none = math.fsum(math.log1p(-chance) if chance < 1 else -math.inf for chance in chances)
    return -math.expm1(none)
