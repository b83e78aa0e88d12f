"""Every step of ours against Flower's SecAgg+, and against our own `secagg` design: one round each, in turn.

The peer runs through its own client mod and its own workflow (peer.py), ours through `Client` and `Server`, whole
messages either way. Seconds are CPU seconds of one process. Both lose a tenth of the users between share and mask.

Our plans have the defaults, and our clients the default policy, but for one thing: it refuses neighbours as holders of
shares among so few users, which the peer takes, so on the sparse graph the clients allow that by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from bench import peer
from bench.round import Cost, play
from bench.rows import Row
from heterosag.choices import DesignName
from heterosag.plan import Plan
from heterosag.protocol import Policy

Graph = Literal["complete", "sparse"]

DROPOUT = 0.1
COARSE, FINE = 12, 1 << 22
"""Levels: as a slow link would have, and as fine as the peer's quantizer."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """So many users and elements, who shares with whom, and how often it is run."""

    users: int
    dimension: int
    graph: Graph
    repeats: int

    @property
    def lost(self) -> int:
        return max(1, round(DROPOUT * self.users))

    @property
    def neighbours(self) -> int | None:
        """The peer's, as shared among its documents: an odd number of about twice the logarithm; None: everybody."""
        few = 2 * math.ceil(math.log2(self.users)) + 1
        return few if self.graph == "sparse" and few < self.users else None

    @property
    def policy(self) -> Policy:
        """That of our clients: the default, which takes neighbours among so few users only if it is told to."""
        return Policy(sparse_from=self.users) if self.graph == "sparse" else Policy()

    def plan(self, level: int, half: float, design: DesignName = "perfect") -> Plan:
        """Ours: subgroups of about eight, at least three of them; of ten users they have three or four.

        As fine as the peer there is one range for all and nothing is rotated, as with the peer: at so many levels that
        would buy nothing.
        """
        size = max(3, min(8, self.users // 3))
        return Plan.build(
            [self.users],
            [level],
            self.dimension,
            design=design,
            subgroup_size=self.users if design == "secagg" else size,
            value_range=(-half, half),
            sharing=self.graph,
            dropout=DROPOUT,
            rotate=level != FINE,
            ranges="single" if level == FINE else "levels",
        )


SHORT = (
    Case(users=10, dimension=79_510, graph="complete", repeats=3),
    Case(users=25, dimension=79_510, graph="complete", repeats=3),
    Case(users=25, dimension=79_510, graph="sparse", repeats=3),
)
FULL = tuple(
    Case(users=users, dimension=dimension, graph=graph, repeats=1 if users == 100 and graph == "complete" else 3)
    for users in (10, 25, 100)
    for dimension in (79_510, 1_000_000)
    for graph in ("complete", "sparse")
    if not (users == 10 and graph == "sparse")  # nine neighbours are everybody
)
LARGE = tuple(case for case in FULL if (case.users, case.dimension) == (100, 1_000_000))

_STEPS: dict[str, Callable[[Cost], float]] = {
    "user's share step": lambda cost: cost.user_seconds["share"],
    "user's mask step": lambda cost: cost.user_seconds["mask"],
    "user's unmask step": lambda cost: cost.user_seconds["unmask"],
    "server's unmask step": lambda cost: cost.server_seconds["unmask"],
    "server, all steps": lambda cost: cost.server,
    "bytes up": lambda cost: cost.sent,
    "error of the mean": lambda cost: cost.error,
}
_FINE_GOALS: dict[Graph, dict[str, float]] = {
    "complete": {"user's mask step": 25, "server, all steps": 300},
    "sparse": {"user's mask step": 6, "server, all steps": 15},
}
"""At the peer's own precision: like for like."""

_GOALS: dict[Graph, dict[str, float]] = {
    "complete": {
        "user's share step": 140,
        "user's mask step": 50,
        "server's unmask step": 800,
        "bytes up": 6,
    },
    "sparse": {"user's share step": 7, "user's mask step": 12, "server's unmask step": 50, "bytes up": 6},
}


def rows(cases: tuple[Case, ...] = SHORT) -> Iterator[Row]:
    """For each case and step: the peer's cost over ours; goals at 100 users and a million elements."""
    for case in cases:
        found = measure(case)
        what = f"{case.users} users, {case.dimension:,} elements, {case.graph} graph"
        large = (case.users, case.dimension) == (100, 1_000_000)
        goals = {"coarse": _GOALS[case.graph], "fine": _FINE_GOALS[case.graph]} if large else {}
        for side in ("coarse", "fine", "signed"):
            ours = {"coarse": "ours at 12 levels", "fine": "ours as fine as it", "signed": "ours with identities"}[side]
            for name, of in _STEPS.items():
                theirs, mine = [of(cost) for cost in found["peer"]], [of(cost) for cost in found[side]]
                goal = goals.get(side, {}).get(name)
                yield Row.of(f"{name}: SecAgg+ / {ours} ({what})", theirs, mine, goal=goal, better="higher")
        for name in ("user's share step", "user's mask step", "server's unmask step", "bytes up"):
            of = _STEPS[name]
            block, mine = [of(cost) for cost in found["secagg"]], [of(cost) for cost in found["coarse"]]
            yield Row.of(f"{name}: our secagg / ours at 12 levels ({what})", block, mine, better="higher")


MEASURED: list[dict[str, Any]] = []
"""What was measured so far, absolute: for the page's table."""


def measure(case: Case) -> dict[str, list[Cost]]:
    """The peer and four of ours, in turn. A first small round of each warms up what is made on first use."""
    updates = np.random.default_rng(0).normal(0, 0.02, (case.users, case.dimension)).astype(np.float32)
    half = float(np.abs(updates).max())
    _warm_up(half)
    sides: dict[str, Callable[[], Cost]] = {
        "peer": lambda: peer.run(updates, case.lost, half, neighbours=case.neighbours),
        "coarse": lambda: play(case.plan(COARSE, half), updates, case.lost, policy=case.policy),
        "fine": lambda: play(case.plan(FINE, half), updates, case.lost, policy=case.policy),
        "signed": lambda: play(case.plan(COARSE, half), updates, case.lost, policy=case.policy, identities=True),
        "secagg": lambda: play(case.plan(COARSE, half, "secagg"), updates, case.lost, policy=case.policy),
    }
    found: dict[str, list[Cost]] = {side: [] for side in sides}
    for _ in range(case.repeats):
        for side, run in sides.items():
            found[side].append(run())
    MEASURED.append(
        {"users": case.users, "dimension": case.dimension, "graph": case.graph, "repeats": case.repeats}
        | {"neighbours": case.neighbours}
        | {
            side: {name: float(np.median([of(cost) for cost in costs])) for name, of in _STEPS.items()}
            for side, costs in found.items()
        }
    )
    return found


def _warm_up(half: float) -> None:
    small: npt.NDArray[np.float32] = np.zeros((6, 300_000), dtype=np.float32)
    case = Case(users=6, dimension=300_000, graph="complete", repeats=1)
    peer.run(small, 1, half)
    for level in (COARSE, FINE):
        play(case.plan(level, half), small, 1)
