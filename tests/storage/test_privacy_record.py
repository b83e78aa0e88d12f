"""What a record says of privacy: of one plan and of cohorts alike, and never of a plan without noise."""

import pytest

from heterosag.errors import UsageError
from heterosag.plan import CohortPlan, Plan
from heterosag.privacy.statement import state
from heterosag.storage.privacy_record import describe_privacy

NOISY = {
    "design": "secagg", "subgroup_size": 40, "min_block_survivors": 32, "clipping_norm": 0.5, "noise_multiplier": 4.0,
}  # fmt: skip
SPENT = {"epsilon_server": 7.5, "epsilon_model": None, "delta": 1e-5, "rounds": 20, "identities": True}


def test_a_line_has_what_was_spent_and_what_is_claimed() -> None:
    plan = Plan.build([40], [2], 900, **NOISY)
    line = describe_privacy(plan, **SPENT)
    assert {name: line[name] for name in ("epsilon_server", "epsilon_model", "delta")} == {
        "epsilon_server": 7.5, "epsilon_model": None, "delta": 1e-5,
    }  # fmt: skip
    assert (line["honest"], line["clipping_norm"], line["noise_multiplier"]) == (plan.honest, 0.5, 4.0)
    assert line["error_in_clipping_norms"] == pytest.approx(4.0 * (900 / (plan.honest * 40)) ** 0.5)
    assert line["statement"] == state(plan, **SPENT)
    simulated = describe_privacy(plan, **SPENT, simulated=True)
    assert (line["simulated"], simulated["simulated"]) == (False, True)
    assert simulated["statement"] == state(plan, **SPENT, simulated=True) != line["statement"]


def test_cohorts_are_claimed_as_one_of_them_with_the_error_of_all() -> None:
    cohorts = CohortPlan.build([80], [2], 900, cohort_size=40, assignment_seed=1, **NOISY)
    line, one = describe_privacy(cohorts, **SPENT), describe_privacy(cohorts.plans[0], **SPENT)
    assert line["error_in_clipping_norms"] == pytest.approx(one["error_in_clipping_norms"] / 2**0.5)
    del line["error_in_clipping_norms"], one["error_in_clipping_norms"]
    assert line == one


def test_a_plan_without_noise_has_nothing_to_say() -> None:
    with pytest.raises(UsageError):
        describe_privacy(Plan.build([12], [4], 30, value_range=1.0, subgroup_size=3), **SPENT)
