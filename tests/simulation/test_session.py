"""Rounds in a row in memory: as exact as one by itself, in fewer trips."""

from __future__ import annotations

import numpy as np
import pytest
from rounds import small_plan

from heterosag import Ledger, Simulation, aggregate
from heterosag.errors import TooFewSurvivorsError, UsageError
from heterosag.protocol import RoundId
from heterosag.simulation.session import Session

UPDATES = np.random.default_rng(3).uniform(-1, 1, (12, 40))


@pytest.mark.parametrize("signed", [False, True])
def test_every_round_has_the_bits_of_one_by_itself(signed: bool) -> None:
    session = Session(small_plan(), identities=signed)
    for number in range(3):
        found = session.aggregate(UPDATES, simulate=Simulation(rounding_seed=5, malicious=[2]), rule="median")
        round_id = RoundId(session=b"alone", number=number)
        alone = aggregate(
            small_plan(),
            UPDATES,
            rule="median",
            round_id=round_id,
            simulate=Simulation(rounding_seed=5, malicious=[2], secure=False),
        )
        assert np.array_equal(found.vector, alone.vector)
    assert session.trips == ([5, 3, 3] if signed else [4, 2, 2])


def test_without_preparing_every_round_takes_all_trips() -> None:
    session = Session(small_plan(), prepare=False)
    for _ in range(2):
        session.aggregate(UPDATES)
    assert session.trips == [4, 4]


def test_whoever_drops_out_late_misses_the_next_set_up() -> None:
    session = Session(small_plan())
    first = session.aggregate(UPDATES, simulate=Simulation(dropped={3: "unmask"}))
    assert len(first.survivors) == 12
    assert 3 not in first.traffic.sent["unmask"]
    assert 3 not in session.aggregate(UPDATES).survivors
    assert 3 in session.aggregate(UPDATES).survivors
    assert session.trips == [4, 2, 2]


def test_weights_metrics_and_the_ledger_go_along() -> None:
    plan = small_plan(max_weight=3, metrics=["loss"])
    session, ledger = Session(plan), Ledger(plan)
    metrics = {user: {"loss": float(user)} for user in plan.users}
    dropped = Simulation(dropped={0: "mask"})
    result = session.aggregate(UPDATES, weights=[1, 2, 3] * 4, metrics=metrics, guard=ledger)
    session.aggregate(UPDATES, weights=[1, 2, 3] * 4, metrics=metrics, guard=ledger, simulate=dropped)
    assert result.metrics["loss"] == pytest.approx(np.average(np.arange(12), weights=[1, 2, 3] * 4))
    assert ledger.summary()["rounds"] == 2


def test_a_round_that_fails_costs_its_trips_and_no_more() -> None:
    session = Session(small_plan())
    with pytest.raises(TooFewSurvivorsError):
        session.aggregate(UPDATES, simulate=Simulation(dropped=dict.fromkeys(range(9), "mask")))
    assert len(session.aggregate(UPDATES).survivors) == 12
    assert session.trips == [3, 4]


def test_the_plain_engine_has_no_trips() -> None:
    with pytest.raises(UsageError, match="secure=False"):
        Session(small_plan()).aggregate(UPDATES, simulate=Simulation(secure=False))
