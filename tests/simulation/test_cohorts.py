"""Rounds of cohorts in memory: failing cohorts, malicious users, lazy updates, guards, and what is refused."""

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from heterosag import CohortPlan, Ledger, Plan, Simulation, aggregate
from heterosag.crypto.identity import Identity
from heterosag.errors import ExposedUsersError, FailedCohortsError, FaultyBlockError, TooFewSurvivorsError, UsageError
from heterosag.plan import User

WHOLE = CohortPlan.build(
    [41], [40], 60, cohort_size=14, value_range=1.0, subgroup_size=2, min_survivors=2, min_robustness=0.0,
    assignment_seed=1,
)  # fmt: skip
UPDATES = np.random.default_rng(0).uniform(-0.5, 0.5, (41, 60)).astype(np.float32)


def losing(cohort: int) -> dict[User, Any]:
    """Too many of a cohort drop out."""
    return dict.fromkeys(WHOLE.plans[cohort].users[1:], "mask")


def mean_of(users: Any) -> Any:
    return UPDATES[list(users)].astype(np.float64).mean(axis=0)


def test_the_mean_is_that_of_all_survivors() -> None:
    result = aggregate(WHOLE, UPDATES, workers=2)
    assert result.survivors == WHOLE.users
    assert np.abs(result.aggregate - mean_of(range(41))).max() < 2 / 39
    assert result.aggregate.dtype == np.float32
    assert result.traffic.sent["mask"].keys() == set(WHOLE.users)
    assert result.traffic.server_seconds["unmask"] > 0
    assert "41 survivors in 3 cohorts, elements 60" in repr(result)


@pytest.mark.parametrize("secure", [True, False])
def test_a_cohort_that_fails_costs_its_part_and_is_named(secure: bool, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="heterosag"):
        result = aggregate(WHOLE, UPDATES, simulate=Simulation(dropped=losing(1), rounding_seed=1, secure=secure))
    assert list(result.failed) == [1]
    assert isinstance(result.failed[1], TooFewSurvivorsError)
    left = sorted({*WHOLE.plans[0].users, *WHOLE.plans[2].users})
    assert list(result.survivors) == left
    assert np.abs(result.vector - mean_of(left)).max() < 2 / 39
    assert [one.cohort for one in result.cohorts] == [0, 2]
    assert "cohorts [1] failed" in repr(result)
    assert "cohort 1 of 3 failed" in caplog.text


def test_if_all_cohorts_fail_the_error_has_all_of_theirs() -> None:
    with pytest.raises(FailedCohortsError, match="all 3 cohorts failed, cohort 0 with TooFewSurvivorsError") as error:
        aggregate(WHOLE, UPDATES, simulate=Simulation(dropped=losing(0) | losing(1) | losing(2)))
    assert list(error.value.errors) == [0, 1, 2]


def test_a_cohort_of_which_nobody_is_there_needs_no_updates() -> None:
    gone: dict[User, Any] = dict.fromkeys(WHOLE.plans[2].users, "advertise")
    given = {user: UPDATES[int(user)] for user in WHOLE.users if user not in gone}
    assert list(aggregate(WHOLE, given, simulate=Simulation(dropped=gone)).failed) == [2]
    with pytest.raises(UsageError, match="has no update: give one, or name it in dropped"):
        aggregate(WHOLE, given, simulate=Simulation(dropped=dict(list(gone.items())[1:])))
    everybody: dict[User, Any] = dict.fromkeys(WHOLE.users, "share")
    with pytest.raises(
        UsageError, match="nobody has an update: give at least one, even if its user is named in dropped"
    ):
        aggregate(WHOLE, {}, simulate=Simulation(dropped=everybody))


@pytest.mark.parametrize("secure", [True, False])
def test_malicious_users_end_the_mean_of_their_cohorts_and_not_the_median(secure: bool) -> None:
    updates = UPDATES.copy()
    bad = [plan.users[0] for plan in WHOLE.plans]
    updates[[int(user) for user in bad]] = np.random.default_rng(1).uniform(-30, 30, (3, 60))
    one = Simulation(malicious=bad[:1], rounding_seed=2, secure=secure)
    result = aggregate(WHOLE, updates, simulate=one)
    assert list(result.failed) == [0]
    assert isinstance(result.failed[0], FaultyBlockError)
    left = [user for plan in WHOLE.plans[1:] for user in plan.users]
    others = aggregate(WHOLE, UPDATES, simulate=Simulation(dropped=losing(0), rounding_seed=2, secure=secure))
    assert set(result.survivors) == set(left) == set(others.survivors)
    everywhere = Simulation(malicious=bad, rounding_seed=2, secure=secure)
    with pytest.raises(FailedCohortsError):
        aggregate(WHOLE, updates, simulate=everywhere)
    robust = aggregate(WHOLE, updates, rule="median", simulate=everywhere)
    assert not robust.failed
    assert robust.combined.byzantine_tolerance >= len(bad)
    assert {one.cohort for one in robust.cohorts if one.faulty_blocks} == {0, 1, 2}
    assert np.abs(robust.vector).max() <= 0.5 + 2 / 39, "the median stays within what honest blocks have"


class Lazy(Mapping[User, Any]):
    """Makes an update when it is asked for, and remembers how many were asked for."""

    def __init__(self) -> None:
        self.asked: list[User] = []

    def __getitem__(self, user: User) -> Any:
        self.asked.append(user)
        return UPDATES[int(user)]

    def __contains__(self, user: object) -> bool:
        return user in WHOLE.users

    def __iter__(self) -> Iterator[User]:
        return iter(WHOLE.users)

    def __len__(self) -> int:
        return len(WHOLE.users)


def test_updates_are_asked_for_cohort_by_cohort() -> None:
    lazy = Lazy()
    simulation = Simulation(rounding_seed=4)
    result = aggregate(WHOLE, lazy, simulate=simulation)
    assert lazy.asked == [user for plan in WHOLE.plans for user in plan.users]
    assert np.array_equal(result.vector, aggregate(WHOLE, UPDATES, simulate=simulation).vector)


def test_users_of_all_cohorts_round_each_in_their_own_way() -> None:
    """Their place in the whole roster, not in the cohort's, decides."""
    same = np.full((41, 60), 0.013)
    result = aggregate(WHOLE, same, simulate=Simulation(rounding_seed=5, secure=False))
    first, second = (
        np.concatenate([s.sums for s in segment]) for segment in (one.blocks[0] for one in result.cohorts[:2])
    )
    assert first.tolist() != second.tolist()


def test_every_cohort_has_a_guard_and_a_ledger_of_its_own() -> None:
    whole = CohortPlan.build([24], [40], 60, cohort_size=12, value_range=1.0, subgroup_size=4, min_survivors=2)
    ledgers = [Ledger(plan, sets_below=2) for plan in whole.plans]
    gone: dict[User, Any] = {whole.plans[1].users[0]: "mask"}
    assert not aggregate(whole, UPDATES[:24], guard=ledgers).failed
    result = aggregate(whole, UPDATES[:24], guard=ledgers, simulate=Simulation(dropped=gone))
    assert list(result.failed) == [1], "the difference of two sums would be one user's"
    assert isinstance(result.failed[1], ExposedUsersError)
    wrong: Any
    for wrong in (ledgers[:1], ledgers[0]):
        with pytest.raises(UsageError, match="a guard each"):
            aggregate(whole, UPDATES[:24], guard=wrong)
    wrong = ledgers
    with pytest.raises(UsageError, match="one plan has one guard"):
        aggregate(whole.plans[0], UPDATES, guard=wrong)


def test_identities_may_be_given() -> None:
    keys = {user: Identity.generate() for user in WHOLE.users}
    assert "agree" in aggregate(WHOLE, UPDATES, identities=keys).traffic.sent
    del keys[3]
    with pytest.raises(UsageError, match="user 3 has no identity"):
        aggregate(WHOLE, UPDATES, identities=keys)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(UsageError, match="value_range='auto'"):
        aggregate(WHOLE, UPDATES, simulate=Simulation(value_range="auto"))
    with pytest.raises(UsageError, match="the plan has 41 users, but there are 7 updates"):
        aggregate(WHOLE, UPDATES[:7])
    with pytest.raises(UsageError, match="not a ndarray of the shape"):
        aggregate(WHOLE, UPDATES[0])
    with pytest.raises(UsageError, match="41 users need 41 weights, not 2"):
        aggregate(WHOLE, UPDATES, weights=[1, 2])
    with pytest.raises(UsageError, match="not one of the 41 users"):
        aggregate(WHOLE, UPDATES, simulate=Simulation(malicious=["x"]))
    with pytest.raises(UsageError, match="for 60 elements"):
        aggregate(WHOLE, UPDATES[:, :5])
    given: dict[User, Any] = {user: UPDATES[int(user)] for user in WHOLE.users}
    with pytest.raises(UsageError, match="this update is a list"):
        aggregate(WHOLE, given | {WHOLE.plans[2].users[0]: [UPDATES[0]]})


def test_one_plan_is_as_before() -> None:
    plan = Plan.build([8], [256], 3, value_range=0.5, subgroup_size=4)
    assert len(aggregate(plan, np.full((8, 3), 0.1)).survivors) == 8
