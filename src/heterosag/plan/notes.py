"""What a plan does not give, and where the paper claims more than is true for it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from heterosag.plan import sharing

if TYPE_CHECKING:
    from heterosag.plan.cohorts import CohortPlan
    from heterosag.plan.plan import Plan

__all__ = ["WITHOUT_IDENTITIES", "notes_of", "notes_of_cohorts"]

WITHOUT_IDENTITIES = (
    "without identities there is no protection against a malicious server (split views, substituted keys, Sybils)"
)
"""The note that does not hold where identities are in use, which is not the plan's to know."""


def notes_of(plan: Plan, adjusted: str | None, *, weighted: bool = False) -> Iterator[str]:
    """What is to be said of a plan; `adjusted` is what its subgroups had to be changed for, `weighted` whether weights
    were asked for."""
    if adjusted:
        yield adjusted
    yield from _size_notes(plan)
    if plan.noise_multiplier:
        yield from _noise_notes(plan, weighted)
    yield from _paper_notes(plan)
    if plan.assignment_seed is None and plan.assignment_matters:
        yield "users are assigned in listed order: whoever lists them is trusted not to place accomplices"
    if not plan.sharing.complete:
        yield (
            f"secrets are shared with {plan.sharing.neighbours} neighbours, {plan.share_threshold} of whom rebuild "
            f"one: 2^-{sharing.PRIVACY_BITS} privacy, 2^-{sharing.FAILURE_BITS} failure at "
            f"{plan.dropout:.0%} dropout and {plan.colluders} colluders"
        )
    if plan.colluders > plan.min_survivors - 2:
        yield (
            f"a subgroup with {plan.min_survivors} survivors tolerates {plan.min_survivors - 2} colluders, not all "
            f"{plan.colluders}: min_survivors={plan.colluders + 2} would"
        )
    elif plan.colluders < plan.min_survivors - 2:
        yield (
            f"the quorum tolerates {plan.colluders} colluders, fewer than the {plan.min_survivors - 2} that a "
            f"subgroup with {plan.min_survivors} survivors does: colluders={plan.min_survivors - 2} would"
        )
    if plan.max_weight > 1 and plan.has_several_blocks:
        yield "weights are in use: the sum of weights of every subgroup becomes known to the server"
    if not plan.fill_levels:
        raised = _filled(plan)
        if any(more > level for more, level in zip(raised, plan.levels, strict=True)):
            yield (
                f"the rings have bits to spare: levels up to {','.join(map(str, raised))} cost the same bits "
                "(fill_levels raises each block's)"
            )
    yield WITHOUT_IDENTITIES
    yield "hiding is computational: it rests on X25519, AES, ChaCha20-Poly1305 and SHA-256"


def _size_notes(plan: Plan) -> Iterator[str]:
    """Subgroups that are smaller than was asked for."""
    if plan.design.name == "secagg":  # one block of everybody, whatever its subgroups
        return
    smallest = {subgroup.user_class: len(subgroup.members) for subgroup in plan.subgroups}  # its last one
    for index, users in enumerate(plan.classes):
        least = smallest[index]
        if least < plan.subgroup_size:
            yield (
                f"subgroup_size={plan.subgroup_size} cannot be met in class {index}: of its {users} users the smallest "
                f"subgroup has {least}"
            )


def _noise_notes(plan: Plan, weighted: bool) -> Iterator[str]:
    error = plan.noise_multiplier * math.sqrt(plan.dimension / (plan.honest * len(plan.users)))
    yield (
        f"noise is counted on {plan.honest} honest survivors of every block; privacy.epsilon says what it is worth. "
        f"The mean over all users is off by {error:.3g} clipping norms: beyond 3 much of the accuracy is lost"
    )
    if weighted:
        yield "weights are off under noise: every user counts alike"


def _filled(plan: Plan) -> list[int]:
    """For each class the level its own blocks could have at the same bits (its least, over the blocks at its level)."""
    own: dict[int, int] = {}
    for segment in plan.segments:
        for block in segment.blocks:
            slowest = min(plan.subgroups[g].user_class for g in block.subgroups)
            level = ((1 << block.bits) - 1) // block.users + 1
            own[slowest] = min(level, own.get(slowest, level))
    return [own.get(user_class, level) for user_class, level in enumerate(plan.levels)]


def _paper_notes(plan: Plan) -> Iterator[str]:
    """Where the paper claims more than holds for this very plan."""
    subgroups = len(plan.subgroups)
    true = plan.robustness()
    if plan.design.name.startswith("paper"):
        claimed = (subgroups - 1) / subgroups if subgroups % 2 else (subgroups - 2) / subgroups
        if abs(claimed - float(true)) > 1e-12:
            yield f"Theorem 1 of the paper claims a robustness of {claimed:.4g} here; it is {true}"
    if plan.design.name == "multigroup" and subgroups > 1:
        yield "the server learns every subgroup's whole sum: this design is a strawman for comparison"
    if plan.design.name != "secagg" and subgroups > 1:
        leak = plan.leak_probability()
        if leak.any > 2 * leak.one:
            yield (
                f"at {plan.dropout:.0%} dropout a single survivor is left in one subgroup with probability "
                f"{leak.one:.2g} (Theorem 3 of the paper), in any of the {subgroups} with {leak.any:.2g}: that is why "
                "every subgroup needs its least survivors"
            )
        if not plan.byzantine_tolerance():
            yield f"{subgroups} subgroups are too few for the median to tolerate even one faulty user"
    if plan.design.name == "secagg":
        yield "one block of everybody at the slowest class's level: no robust rule can be used"


def notes_of_cohorts(whole: CohortPlan) -> Iterator[str]:
    """What cohorts mean for privacy and robustness, then what the plan of the smallest cohort says."""
    smallest = min(whole.plans, key=lambda plan: len(plan.users))
    if len(whole.plans) > 1:
        yield (
            f"{len(whole.users)} users are split into {len(whole.plans)} cohorts: the server learns the sums of every "
            f"cohort, so a user is hidden among the {len(smallest.users)} users of its own, not among all. Up to "
            f"{whole.colluders} users of any one cohort may collude with the server"
        )
        if whole.assignment_seed is None:
            yield "users are dealt to cohorts in listed order: whoever lists them is trusted not to place accomplices"
        else:
            yield (
                "whoever chooses the seed can try many of them, and so choose who is together: against a malicious "
                "server the split must be drawn when it is known who takes part, by a seed that nobody could foresee"
            )
    yield from smallest.notes
