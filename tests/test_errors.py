"""Errors go whole from process to process."""

import pickle

from heterosag.errors import (
    ExposedUsersError,
    FailedCohortsError,
    FaultyBlockError,
    FaultyUserError,
    PlanError,
    StoppedRunError,
    TooFewSurvivorsError,
    UsageError,
    WireError,
    WithheldError,
)


def test_every_error_comes_back_from_a_pickle_whole() -> None:
    for error in (
        UsageError("no"),
        PlanError("min_survivors", "too high"),
        WireError("cut off", sender="ada"),
        FaultyUserError(3, "two keys"),
        FaultyBlockError([(0, (1, 2))], "impossible"),
        TooFewSurvivorsError("min_survivors", "two left"),
        ExposedUsersError([7]),
        WithheldError([7], "nonce"),
        StoppedRunError(3, ["2 times: no"]),
    ):
        back = pickle.loads(pickle.dumps(error))
        assert type(back) is type(error)
        assert str(back) == str(error)
        assert vars(back) == vars(error)


def test_the_errors_of_all_cohorts_come_back_too() -> None:
    back = pickle.loads(pickle.dumps(FailedCohortsError({2: UsageError("no"), 1: WireError("cut off", sender="ada")})))
    assert isinstance(back, FailedCohortsError)
    assert str(back) == "all 2 cohorts failed, cohort 1 with WireError: from 'ada': cut off"
    assert [type(back.errors[index]) for index in (1, 2)] == [WireError, UsageError]
