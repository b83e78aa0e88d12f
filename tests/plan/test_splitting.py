"""The split of users into cohorts, by itself."""

import pytest

from heterosag.errors import PlanError
from heterosag.plan import Plan
from heterosag.plan.splitting import check_size, check_split, classes_of, seed_of, split

ROSTER = tuple(f"user {index}" for index in range(11))


def test_listed_users_are_dealt_in_turn_and_sizes_differ_by_one() -> None:
    found = split(ROSTER, [5, 6], 4, None)
    assert [sizes for _, sizes in found] == [(2, 2), (2, 2), (1, 2)]
    assert found[0][0] == ("user 0", "user 3", "user 6", "user 9")
    assert sorted(user for users, _ in found for user in users) == sorted(ROSTER)


def test_a_seed_shuffles_inside_a_class_and_one_cohort_stays_in_order() -> None:
    first, again, other = (split(ROSTER, [5, 6], 4, seed) for seed in (1, 1, 2))
    assert first == again != other
    assert all({user for user in users if user in ROSTER[:5]} == set(users[: sizes[0]]) for users, sizes in first)
    assert split(ROSTER, [5, 6], 11, 1) == [(ROSTER, (5, 6))]


def test_several_cohorts_have_seeds_of_their_own() -> None:
    assert seed_of(7, 0, 1) == 7
    assert seed_of(None, 1, 3) is None
    assert len({seed_of(7, 0, 3), seed_of(7, 1, 3), seed_of(8, 0, 3)}) == 3


def test_what_cannot_be_is_refused() -> None:
    for size in (1, True, "12", 2**63):
        with pytest.raises(PlanError, match="at least 2"):
            check_size(size)
    with pytest.raises(PlanError, match="use a cohort_size of at least 11"):
        split(ROSTER, [1, 10], 4, None)
    plan = Plan.build([8], [4], 20, value_range=1.0, subgroup_size=4)
    assert classes_of([plan, plan]) == (16,)
    check_split(tuple(range(8)), [plan], 8, None)
    with pytest.raises(PlanError, match="hold 8 users, but 7 are named"):
        check_split(tuple(range(7)), [plan], 8, None)
