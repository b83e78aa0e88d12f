"""Requirements that make no sense are refused, and what follows from those that do."""

import math
from typing import Any

import pytest
from cases import each

from heterosag.errors import UsageError
from heterosag.plan import Plan
from heterosag.planner import Requirements, best

BASE: dict[str, Any] = {"rates": (1.0,) * 20, "dimension": 1000, "deadline": 2.0}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"rates": (1.0,) * 3}, "a plan is for 4 to 100000 users, not 3"),
        ({"rates": (1.0, 0.0, 1.0, 1.0)}, r"rates\[1\] is a finite number of Mb/s above 0, not 0\.0"),
        ({"rates": (math.nan,) * 9}, r"rates\[0\] is a finite number of Mb/s above 0, not nan"),
        ({"deadline": None}, "give a deadline in seconds or the bits that an upload may have, one of the two"),
        ({"bits": 5}, "one of the two"),
        ({"deadline": -1.0}, r"deadline is a finite number above 0, not -1\.0"),
        ({"deadline": math.inf}, "deadline is a finite number above 0, not inf"),
        ({"deadline": None, "bits": 0}, "bits is a finite number above 0, not 0"),
        ({"dropout": 0.5}, r"dropout is a fraction of users, at least 0 and below one half, not 0\.5"),
        ({"corrupt": -0.1}, r"corrupt is a fraction of users, at least 0 and below one half, not -0\.1"),
        ({"attackers": -1}, "attackers is at least 0, not -1"),
        ({"dimension": 0}, "dimension is at least 1, not 0"),
        ({"min_survivors": 1}, "min_survivors is at least 2, not 1"),
        ({"max_weight": 0}, "max_weight is at least 1, not 0"),
        ({"most_classes": 0}, "most_classes is at least 1, not 0"),
        ({"most_subgroups": 1}, "most_subgroups is from 2 to 1000, not 1"),
        ({"most_subgroups": 1001}, "most_subgroups is from 2 to 1000, not 1001"),
        ({"failure": 0.0}, r"failure is a probability above 0 and below 1, not 0\.0"),
        ({"privacy_bits": 0}, "privacy_bits is at least 1, not 0"),
    ],
)
def test_nonsense_is_refused_by_its_name(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=f"{says}$"):
        Requirements(**{**BASE, **changes})


@each(
    "changes, says",
    [
        ({"rates": (1.0, 1e10, 1.0, 1.0)}, r"rates\[1\] is at most 1000000000 Mb/s, not 10000000000\.0"),
        ({"deadline": 1e300}, r"deadline is at most 1000000000, not 1e\+300"),
        ({"deadline": None, "bits": 10**400}, r"bits is at most 9223372036854775807, not 10+"),
        ({"value_range": 1e154}, r"value_range is within -1000000000 and 1000000000, not 1e\+154"),
        ({"dimension": 10**400}, r"dimension is at most 9223372036854775807, not 10+"),
        ({"max_weight": 2**63}, "max_weight is at most 9223372036854775807, not 9223372036854775808"),
        ({"attackers": 21}, "attackers is at most 20, not 21"),
    ],
)
def test_more_than_any_computation_takes_is_refused_by_its_name(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=f"{says}$"):
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
