"""The oracle: what a round of honest users must end with, given who vanishes when.

A pure function of plan and dropouts, without keys or messages. Tests hold the machines against it, the plain engine
uses it to know who survives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from heterosag.errors import TooFewSurvivorsError, UsageError
from heterosag.plan import Plan, User
from heterosag.protocol.legality import make_legal
from heterosag.protocol.phases import Phase

__all__ = ["Outcome", "outcome"]

_ORDER = list(Phase)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Either the survivors whose exact sum the round returns, or the error it ends with and the phase it ends in."""

    survivors: tuple[User, ...] = ()
    error: TooFewSurvivorsError | None = None
    phase: Phase | None = None

    def unwrap(self) -> tuple[User, ...]:
        """The survivors, or the error raised."""
        if self.error is not None:
            raise self.error
        return self.survivors


def outcome(plan: Plan, dropped: Mapping[User, Phase | str] | None = None, *, identities: bool = False) -> Outcome:
    """What a round ends with when each user in `dropped` vanishes before sending that phase's message."""
    gone: dict[int, int] = {}
    for user, phase in (dropped or {}).items():
        try:
            gone[plan.index(user)] = _ORDER.index(Phase(phase))
        except ValueError:
            names = ", ".join(known.value for known in Phase)
            raise UsageError(f"users vanish before one of the phases {names}, not {phase!r}") from None

    def sending(phase: Phase, among: frozenset[int]) -> frozenset[int]:
        return frozenset(index for index in among if gone.get(index, len(_ORDER)) > _ORDER.index(phase))

    everyone = frozenset(range(len(plan.users)))
    phase = Phase.ADVERTISE
    try:
        roster = make_legal(plan, sending(phase, everyone))
        phase = Phase.SHARE
        sharers = make_legal(plan, sending(phase, roster))
        phase = Phase.MASK
        survivors = make_legal(plan, sending(phase, sharers), dealers=sharers)
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
