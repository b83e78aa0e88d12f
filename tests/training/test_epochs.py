"""Epochs of a run: a plan or cohorts, with ledgers that come back."""

import pytest

pytest.importorskip("torch")

from heterosag.errors import UsageError
from heterosag.plan import CohortPlan, Plan
from heterosag.training.config import TrainConfig
from heterosag.training.epochs import Epoch, build_plan


def config_of(**changes: object) -> TrainConfig:
    return TrainConfig(classes=(24,), levels=(4,), subgroup_size=4, min_survivors=2, **changes)  # type: ignore[arg-type]


def test_settings_ask_for_a_plan_or_for_cohorts() -> None:
    alone, split = build_plan(config_of(), [60]), build_plan(config_of(cohort=12), [60])
    assert isinstance(alone, Plan)
    assert isinstance(split, CohortPlan)
    assert [len(plan.users) for plan in split.plans] == [12, 12]
    one, many = Epoch(config_of(), alone), Epoch(config_of(cohort=12), split)
    assert one.guard is one.ledgers[0]
    assert many.guard is many.ledgers
    assert one.plan_of(3) is alone
    assert 3 in many.plan_of(3).users


def test_ledgers_come_back_by_cohort() -> None:
    config = config_of(cohort=12, hide_sets_below=2)
    epoch = Epoch(config, build_plan(config, [60]))
    epoch.ledgers[1].note(frozenset(range(12)))
    epoch.ledgers[1].note(frozenset(range(10)))
    arrays = epoch.to_arrays()
    assert {name: rows.shape for name, rows in arrays.items()} == {"ledger-0": (0, 12), "ledger-1": (2, 12)}
    again = Epoch(config, epoch.plan)
    again.load(arrays)
    assert again.summary() == epoch.summary()
    assert [one["rounds"] for one in again.summary()["cohorts"]] == [0, 2]
    with pytest.raises(KeyError):
        again.load({"ledger": arrays["ledger-0"]})
    with pytest.raises(UsageError, match="roster indices"):
        again.load({name: rows.repeat(2, axis=1) for name, rows in arrays.items()})


def test_the_next_epoch_has_the_users_that_are_left() -> None:
    config = config_of(cohort=12)
    epoch = Epoch(config, build_plan(config, [60])).without([list(range(2, 24))])
    assert [len(plan.users) for plan in epoch.plan.plans] == [11, 11]
    assert epoch.plan.assignment_seed == config.seed
