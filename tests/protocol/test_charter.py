"""Charters: what commitments and seeds are bound to."""

import pytest
from rounds import small_plan

from heterosag.errors import PlanError, UsageError
from heterosag.plan import CohortPlan
from heterosag.protocol.charter import Charter, commit_to, commitments_context

PLAN = small_plan()
COHORTS = CohortPlan.build([12], [4], 20, cohort_size=6, value_range=1.0, subgroup_size=2, min_survivors=2)


def test_contexts_differ_by_epoch_plan_and_cohorts() -> None:
    charters = [Charter(epoch=epoch, plan=plan) for epoch in (b"a", b"b") for plan in (PLAN, COHORTS, COHORTS.plans[0])]
    assert len({charter.context for charter in charters}) == 6


def test_the_seed_is_that_of_all_commitments_and_nonces() -> None:
    charter = Charter(epoch=b"a", plan=COHORTS)
    nonces = [bytes([user]) * 32 for user in range(12)]
    commitments = [commit_to(charter.context, user, nonce) for user, nonce in enumerate(nonces)]
    assert len(set(commitments)) == 12
    context = commitments_context(charter.context, commitments)
    plan = charter.settle(context, nonces)
    assert isinstance(plan, CohortPlan)
    assert plan == charter.settle(context, nonces)
    assert plan.assignment_seed != charter.settle(context, [*nonces[:-1], bytes(32)]).assignment_seed
    assert plan.assignment_seed != charter.settle(bytes(32), nonces).assignment_seed
    assert {name: plan.arguments()[name] for name in ("classes", "users", "cohort_size", "sharing")} == {
        name: COHORTS.arguments()[name] for name in ("classes", "users", "cohort_size", "sharing")
    }


def test_what_cannot_be_a_charter_is_refused() -> None:
    with pytest.raises(UsageError, match="1 to 64 bytes"):
        Charter(epoch=b"", plan=PLAN)
    with pytest.raises(PlanError, match="enrolment makes it"):
        Charter(epoch=b"a", plan=CohortPlan.build(**COHORTS.arguments() | {"assignment_seed": 3}))
