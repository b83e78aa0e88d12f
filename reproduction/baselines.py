"""Training runs whose updates are combined in another way than HeteroSAg's: for comparison only.

- `float`: the same blocks and rule in floating point, without quantizer, ring or masks. What differs between this and
  the ring is what the ring does to attackers, who wrap in it, and to sums, which it shows to be impossible.
- `unfiltered`: the median over all blocks of the ring, those with impossible sums too.
- `naive`: the median over the users' own updates, in plaintext.
- `brea`: multi-Krum by BREA; with `secure` on real shares, otherwise on the plain path with the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from heterosag.aggregation.rules import RULES, Rule
from heterosag.choices import RuleName
from heterosag.errors import TooFewSurvivorsError, UsageError
from heterosag.plan import CohortPlan, Plan, User
from heterosag.protocol.survivors import outcome
from heterosag.protocol.transitions import Phase
from heterosag.storage.run_log import FAILED
from heterosag.training.combining import Gathered, Summed
from heterosag.training.runs import Run
from reproduction import brea
from reproduction.brea import Brea, Step
from reproduction.field import ELEMENT_SIZE, UndecodableError

__all__ = ["SCHEMES", "BreaRun", "FloatRun", "NaiveRun", "Scheme", "UnfilteredRun", "brea_for", "combine_blocks"]

Scheme = Literal["ring", "float", "unfiltered", "naive", "brea"]

_FLOAT_SIZE = 4
_BEFORE: dict[str, Step] = {
    Phase.ADVERTISE.value: "share",
    Phase.SHARE.value: "share",
    Phase.MASK.value: "share",
    Phase.AGREE.value: "distances",
    Phase.UNMASK.value: "sum",
}
"""Where a user who drops out of HeteroSAg before a phase drops out of BREA: its update is in a round or is not."""

UNFILTERED = Rule(name="unfiltered_median", leaves_out_faulty=False, takes_faulty=True, combine=RULES["median"].combine)


class UnfilteredRun(Run):
    """The median over all blocks, whether honest users can have made them or not."""

    @property
    def rule(self) -> RuleName | Rule:
        """The median of a server that does not look for impossible sums."""
        return UNFILTERED


def combine_blocks(plan: Plan, updates: Mapping[User, npt.NDArray[Any]], rule: Rule) -> npt.NDArray[np.float64]:
    """A rule over the means of every block's users, in floating point.

    Args:
        plan: Whose segments and blocks.
        updates: Those of the users who are in the sums.
        rule: Combines the means of a segment's blocks; blocks that nobody is left of are not among them.

    Returns:
        The combined vector.
    """
    vector = np.empty(plan.dimension)
    members: dict[int, list[npt.NDArray[Any]]] = {subgroup: [] for subgroup in range(len(plan.subgroups))}
    for user, update in updates.items():
        members[plan.subgroup_of(user)].append(update)
    for segment in plan.segments:
        here = slice(segment.start, segment.stop)
        blocks = [
            [update[here] for subgroup in block.subgroups for update in members[subgroup]] for block in segment.blocks
        ]
        present = [block for block in blocks if block]
        means = [np.stack(block).astype(np.float64).mean(axis=0) for block in present]
        vector[here] = rule.combine(means, [len(block) for block in present])
    return vector


class FloatRun(Run):
    """Blocks and rule in floating point; attackers are not bounded by anything."""

    def combine(self, gathered: Gathered) -> Summed:
        """The rule over the means of the survivors of every block."""
        plan, survivors = _plan(gathered), _survivors(gathered)
        present = {user: gathered.updates[user] for user in survivors}
        vector = combine_blocks(plan, present, RULES[self.config.rule])
        return _summed(vector, survivors, {"mask": plan.dimension * _FLOAT_SIZE})


class NaiveRun(Run):
    """The median over the users' updates, which the server sees one by one."""

    def combine(self, gathered: Gathered) -> Summed:
        """The median of every coordinate."""
        survivors = _survivors(gathered)
        vector = np.median(np.stack([gathered.updates[user] for user in survivors]), axis=0).astype(np.float64)
        return _summed(vector, survivors, {"mask": vector.size * _FLOAT_SIZE})


class BreaRun(Run):
    """Multi-Krum over shared vectors; malicious users also send something false instead of what they compute."""

    def combine(self, gathered: Gathered) -> Summed:
        """The mean of the users whom multi-Krum selects."""
        setting = brea_for(self.config.users)
        absent: dict[int, Step] = {int(user): _BEFORE[phase] for user, phase in gathered.dropped.items()}
        vectors = {
            int(user): brea.quantize(
                setting,
                update,
                np.random.default_rng([self.config.seed, gathered.number, int(user)]),
                clip=user not in set(gathered.malicious),
            )
            for user, update in gathered.updates.items()
        }
        try:
            if self.config.secure:
                found = brea.secure_round(
                    setting, vectors, dropped=absent, false_holders=[int(user) for user in gathered.malicious]
                )
            else:
                found = brea.plain_round(setting, vectors, dropped=absent)
        except UndecodableError as error:
            raise TooFewSurvivorsError("dropouts", str(error)) from None
        vector = found.mean(setting)
        pairs = setting.users * (setting.users - 1) // 2
        sizes = {"share": (setting.users - 1) * vector.size, "distances": pairs, "sum": vector.size}
        sent = {step: count * ELEMENT_SIZE for step, count in sizes.items()}
        seconds = {
            "user_seconds": found.traffic.user_seconds,
            "server_seconds": found.traffic.server_seconds,
        }
        return _summed(vector, tuple(sorted(found.selected)), sent, seconds)


def brea_for(users: int) -> Brea:
    """Parameters for so many users: privacy against a third, a tenth dropping out, and as many adversaries as fit."""
    privacy, dropouts = users // 3, users // 10
    adversaries = (users - 1 - dropouts - 2 * privacy) // 2
    return Brea(
        users=users,
        privacy=privacy,
        adversaries=adversaries,
        dropouts=dropouts,
        selected=users - 2 * adversaries - 3,
    )


def _survivors(gathered: Gathered) -> tuple[User, ...]:
    absent = {user: Phase(phase) for user, phase in gathered.dropped.items()}
    return outcome(_plan(gathered), absent, identities=False).unwrap()


def _plan(gathered: Gathered) -> Plan:
    if isinstance(gathered.plan, CohortPlan):
        raise UsageError("baselines have one plan for all users: leave cohort out")
    return gathered.plan


def _summed(
    vector: npt.NDArray[np.float64],
    survivors: tuple[User, ...],
    sent: Mapping[str, float],
    extra: Mapping[str, Any] | None = None,
) -> Summed:
    line = FAILED | {
        "survivors": len(survivors),
        "clipped_fraction": 0.0,
        "sent_bytes": {step: [size] for step, size in sent.items()},
        **(extra or {}),
    }
    return Summed(vector=vector, survivors=survivors, line=line)


SCHEMES: dict[Scheme, type[Run]] = {
    "ring": Run,
    "float": FloatRun,
    "unfiltered": UnfilteredRun,
    "naive": NaiveRun,
    "brea": BreaRun,
}
"""The runs by the name of their scheme; `ring` is HeteroSAg itself."""
