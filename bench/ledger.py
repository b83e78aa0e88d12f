"""What a node's own ledger costs after a long run: its file, and one more round."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from bench.rows import CPU, Row, in_turn
from heterosag import Plan
from heterosag.errors import ExposedUsersError
from heterosag.storage.ledger_file import LedgerFile

ROUNDS, USERS, EPOCHS = 1000, 100, 8  # as many epochs as a policy lets a node join
SECONDS, BYTES = 1.0, 64_000  # budgets: a trip on a deployment takes eight and more


def rows() -> Iterator[Row]:
    """A tenth of the users drops out of every round, and rounds that would expose one or two users are refused."""
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(ROUNDS):
            seed = number * EPOCHS // ROUNDS
            plan = Plan.build([USERS], [4], 1000, value_range=1.0, subgroup_size=10, assignment_seed=seed)
            survivors = frozenset(user for user in range(USERS) if rng.random() >= 0.1)
            _take_part(Path(folder), plan, survivors)

        def once_more() -> None:
            _take_part(Path(folder), plan, frozenset(user for user in range(USERS) if rng.random() >= 0.1))

        after = f"ledger of a node after {ROUNDS:,} rounds of {USERS} users"
        spent = in_turn(once_more, clock=CPU)[0]
        yield Row.of(f"{after}, one more round / budget of {SECONDS:.0f} s", spent, SECONDS, goal=1.0)
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
        yield Row.of(f"{after}, its file / budget of {BYTES / 1000:.0f} kB", [size], BYTES, goal=1.0)


def _take_part(folder: Path, plan: Plan, survivors: frozenset[int]) -> None:
    """What a node does in a round, each time in a program of its own."""
    ledger = LedgerFile(folder, plan, sets_below=3)
    with suppress(ExposedUsersError):
        ledger.check(survivors)
        ledger.note(survivors)
