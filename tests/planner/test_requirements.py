"""Requirements that make no sense are refused, and what follows from those that do."""

import math
from typing import Any

import pytest

from heterosag.errors import UsageError
from heterosag.plan import Plan
from heterosag.planner import Requirements, best

BASE: dict[str, Any] = {"rates": (1.0,) * 20, "dimension": 1000, "deadline": 2.0}


@pytest.mark.parametrize(
    "changes",
    [
        {"rates": (1.0,) * 3}, {"rates": (0.0,) * 9}, {"rates": (math.nan,) * 9}, {"deadline": None},
        {"bits": 5}, {"deadline": -1.0}, {"deadline": math.inf}, {"dropout": 0.5}, {"corrupt": -0.1},
        {"attackers": -1}, {"dimension": 0}, {"min_survivors": 1}, {"most_subgroups": 1}, {"failure": 0.0},
    ],
)  # fmt: skip
def test_nonsense_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Requirements(**{**BASE, **changes})


def test_colluders_are_the_corrupt_users_or_what_the_least_survivors_hide_from() -> None:
    assert Requirements(**BASE).colluders == 1
    assert Requirements(**BASE, corrupt=0.21).colluders == 5
    assert Requirements(**BASE, corrupt=0.05, min_survivors=6).colluders == 4


def test_a_budget_is_a_rate_for_the_deadline_or_the_bits_themselves() -> None:
    assert Requirements(**BASE).budget(0.5) == 1e6
    assert Requirements(**{**BASE, "deadline": None, "bits": 300}).budget(0.5) == 300


def test_where_sharing_is_sparse_as_many_collude_as_a_plan_counts_unless_told() -> None:
    many: dict[str, Any] = {**BASE, "rates": (1.0,) * 300}
    assert Requirements(**many).colluders == Plan.build([300], [4], 1000, value_range=1.0).colluders == 15
    assert Requirements(**many, corrupt=0.1).colluders == 30
    assert best(Requirements(**many)).plan.colluders == 15
