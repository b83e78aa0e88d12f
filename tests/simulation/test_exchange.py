"""The messages of a round in memory: who drops out when, what crosses, and the same sums without cryptography."""

import numpy as np
import pytest
from aggregated import UPDATES, plan_of

from heterosag import Simulation, aggregate
from heterosag.plan import Plan
from heterosag.protocol import messages as wire


@pytest.mark.parametrize("signed", [False, True])
def test_dropouts_at_every_phase(signed: bool) -> None:
    dropped = {0: "advertise", 4: "share", 8: "mask", 12: "agree", 13: "unmask"}
    result = aggregate(plan_of(), UPDATES, simulate=Simulation(dropped=dropped, rounding_seed=1), identities=signed)
    assert set(result.survivors) == set(range(16)) - {0, 4, 8}
    assert np.abs(result.vector - UPDATES[list(result.survivors)].mean(axis=0)).max() < 2 / 15
    sent = result.traffic.sent
    assert 0 not in sent["advertise"]
    assert 4 in sent["advertise"]
    assert 4 not in sent["share"]
    assert 8 not in sent["mask"]
    assert 12 not in sent["unmask"]
    assert ("agree" in sent) == signed


def test_traffic_counts_real_bytes_and_time() -> None:
    plan = plan_of()
    result = aggregate(plan, UPDATES)
    traffic = result.traffic
    assert list(traffic.sent) == ["advertise", "share", "mask", "unmask"]
    assert all(len(by_user) == 16 for by_user in traffic.sent.values())
    for user in plan.users:
        size = wire.vector_size(plan, plan.subgroup_of(user))
        assert size < traffic.sent["mask"][user] < size + 64
    assert all(seconds > 0 for seconds in (*traffic.user_seconds.values(), *traffic.server_seconds.values()))
    assert traffic.received["advertise"] == dict.fromkeys(range(16), 0)
    assert all(size > 0 for size in traffic.received["unmask"].values())


@pytest.mark.parametrize(
    "design", ["perfect", *(pytest.param(one, marks=pytest.mark.long) for one in ("paper", "secagg", "multigroup"))]
)
def test_many_users_on_a_sparse_sharing_graph(design: str) -> None:
    plan = Plan.build(
        [110],
        [4],
        50,
        design=design,
        value_range=1.0,
        subgroup_size=10,
        min_survivors=2,
        sharing="sparse",
        assignment_seed=4,
        dropout=0.05,
    )
    updates = np.random.default_rng(0).uniform(-1, 1, (110, 50))
    result = aggregate(plan, updates, simulate=Simulation(dropped={3: "mask", 50: "unmask"}, rounding_seed=1))
    assert plan.sharing.neighbours < 60
    assert len(result.traffic.sent["share"]) == 110
    plain = aggregate(
        plan, updates, simulate=Simulation(dropped={3: "mask", 50: "unmask"}, rounding_seed=1, secure=False)
    )
    assert np.array_equal(result.vector, plain.vector)
