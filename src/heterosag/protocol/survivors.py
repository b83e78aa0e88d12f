"""Which survivor sets are admissible, how the server makes one, and the oracle: what a round of honest users ends with.

A set is admissible when it reaches the thresholds, every subgroup has no survivor or at least `min_survivors` wherever
a segment has several blocks, every block none or at least `min_block_survivors`, and the robustness computed from the
survivors is at least the plan's `min_robustness`. Clients apply the rule to the roster, to the list of users who shared
and to the survivor set; the server makes all three admissible by leaving out whole subgroups. A subgroup or block with
too few can only become admissible by losing everybody, so what the server leaves out is forced.

The oracle is a pure function of plan and dropouts, without keys or messages. Tests hold the machines against it, the
plain engine uses it to know who survives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from heterosag.errors import TooFewSurvivorsError, UsageError
from heterosag.plan import Plan, User
from heterosag.protocol.transitions import Phase

__all__ = ["Outcome", "check_admissible", "make_admissible", "outcome", "too_small"]

_ORDER = list(Phase)


def too_small(plan: Plan, survivors: Iterable[int]) -> Iterator[tuple[int, ...]]:
    """The subgroups and the blocks (as tuples of subgroups) that have some survivors, but too few."""
    alive = Counter(plan.assignment[user] for user in survivors)
    if plan.has_several_blocks:
        for subgroup in sorted(alive):
            if alive[subgroup] < plan.min_survivors:
                yield (subgroup,)
    if min(alive.values(), default=0) >= plan.min_block_survivors:
        return
    for block in plan.guarded_blocks():
        if 0 < sum(alive[subgroup] for subgroup in block) < plan.min_block_survivors:
            yield block


def check_admissible(
    plan: Plan, survivors: frozenset[int], *, dealers: Iterable[int] | None = None, alive: int | None = None
) -> None:
    """Raise a `TooFewSurvivorsError` that names the rule unless the set (of roster indices) is admissible.

    `dealers` are the users whose secrets must be rebuilt from these survivors, the survivors themselves unless given.
    `alive` is how many there were before whole subgroups were left out.
    """
    needed = max(plan.agree_quorum, plan.share_threshold if plan.sharing.complete else 0)
    if len(survivors) < needed:
        left = f"{len(survivors)} users are left,"
        if alive is not None and alive > len(survivors):
            left = f"{alive} users are left, {len(survivors)} of them in subgroups and blocks with enough survivors;"
        raise TooFewSurvivorsError("thresholds", f"{left} the thresholds need {needed}")
    few = next(too_small(plan, survivors), None)
    if few is not None:
        one = len(few) == 1 and plan.has_several_blocks
        least = plan.min_survivors if one else plan.min_block_survivors
        who = f"subgroup {few[0]} has" if one else f"subgroups {list(few)} have"
        raise TooFewSurvivorsError("min_survivors", f"{who} fewer than {least} survivors")
    _check_robustness(plan, frozenset(range(len(plan.subgroups))) - {plan.assignment[user] for user in survivors})
    if not plan.sharing.complete:
        _check_holders(plan, survivors, survivors if dealers is None else dealers)


def _check_robustness(plan: Plan, lost: frozenset[int]) -> None:
    """By quick bounds first: the exact value may take seconds, and mostly one of the bounds decides.

    The server chooses who is lost, so never more than one exact value is computed, and that within a budget.
    """
    if float(plan.design.robustness_at_least(lost)) >= plan.min_robustness:
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


def make_admissible(plan: Plan, alive: Iterable[int], *, dealers: Iterable[int] | None = None) -> frozenset[int]:
    """The largest admissible part of `alive` that leaves out whole subgroups, or a `TooFewSurvivorsError`."""
    left = everybody = frozenset(alive)
    while True:
        dropped = {subgroup for block in too_small(plan, left) for subgroup in block}
        if not dropped:
            break
        left = frozenset(user for user in left if plan.assignment[user] not in dropped)
    check_admissible(plan, left, dealers=dealers, alive=len(everybody))
    return left


# --- the oracle -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Either the survivors whose exact sum the round returns, or the error it ends with.

    Args:
        survivors: The users; nobody where the round fails.
        error: Why it fails, None if it does not.
        phase: The phase it ends in, None if it does not fail.
    """

    survivors: tuple[User, ...] = ()
    error: TooFewSurvivorsError | None = None
    phase: Phase | None = None

    def unwrap(self) -> tuple[User, ...]:
        """The survivors, or the error raised.

        Returns:
            The survivors.

        Raises:
            TooFewSurvivorsError: The round fails.
        """
        if self.error is not None:
            raise self.error
        return self.survivors


def outcome(plan: Plan, dropped: Mapping[User, Phase | str] | None = None, *, identities: bool = False) -> Outcome:
    """What a round ends with when each user in `dropped` drops out before sending that phase's message.

    Args:
        plan: The plan.
        dropped: The phase before which each of these users drops out.
        identities: Whether users sign, so that the round has the agree phase.

    Returns:
        How the round ends.

    Raises:
        UsageError: There is no such user or phase.

    Example:
        >>> from heterosag import Plan
        >>> from heterosag.protocol import outcome
        >>> plan = Plan.build([12], [4], 100, value_range=1.0, subgroup_size=3, min_survivors=2)
        >>> outcome(plan, {0: "mask", 7: "share"}).survivors
        (1, 2, 3, 4, 5, 6, 8, 9, 10, 11)
    """
    gone: dict[int, int] = {}
    for user, phase in (dropped or {}).items():
        try:
            gone[plan.index(user)] = _ORDER.index(Phase(phase))
        except ValueError:
            names = ", ".join(known.value for known in Phase)
            raise UsageError(f"users drop out before one of the phases {names}, not {phase!r}") from None

    def sending(phase: Phase, among: frozenset[int]) -> frozenset[int]:
        return frozenset(index for index in among if gone.get(index, len(_ORDER)) > _ORDER.index(phase))

    everyone = frozenset(range(len(plan.users)))
    phase = Phase.ADVERTISE
    try:
        roster = make_admissible(plan, sending(phase, everyone))
        phase = Phase.SHARE
        sharers = make_admissible(plan, sending(phase, roster))
        phase = Phase.MASK
        survivors = make_admissible(plan, sending(phase, sharers), dealers=sharers)
        if identities:
            phase = Phase.AGREE
            _enough(len(sending(phase, survivors)), plan.agree_quorum, "sign the survivor set")
        phase = Phase.UNMASK
        answering = sending(phase, survivors)
        for dealer in sorted(sharers):
            holders = answering.intersection(plan.sharing.holders(dealer)) | (answering & {dealer})
            _enough(len(holders), plan.share_threshold, f"hold shares of user {plan.users[dealer]!r}")
    except TooFewSurvivorsError as error:
        return Outcome(error=error, phase=phase)
    return Outcome(survivors=tuple(plan.users[index] for index in sorted(survivors)))


def _enough(found: int, needed: int, what: str) -> None:
    if found < needed:
        raise TooFewSurvivorsError("thresholds", f"{found} users {what}, {needed} are needed")
