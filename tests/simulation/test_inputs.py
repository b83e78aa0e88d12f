"""What users bring to a round in memory: every accepted form, and clear errors for the others."""

from typing import Any

import numpy as np
import pytest
from aggregated import UPDATES, plan_of
from cases import each

from heterosag import Simulation, aggregate
from heterosag.errors import UsageError
from heterosag.plan import CohortPlan, Plan
from heterosag.protocol import Identity


def test_users_who_drop_out_before_masking_need_no_update() -> None:
    updates = {i: UPDATES[i] for i in range(16) if i not in (2, 9)}
    result = aggregate(plan_of(), updates, simulate=Simulation(dropped={2: "mask", 9: "advertise"}))
    assert len(result.survivors) == 14
    with pytest.raises(UsageError, match="user 2 has no update"):
        aggregate(plan_of(), updates, simulate=Simulation(dropped={2: "unmask", 9: "advertise"}))


def test_identities_may_be_brought_along() -> None:
    identities = {i: Identity.generate() for i in range(16)}
    assert len(aggregate(plan_of(), UPDATES, identities=identities).survivors) == 16
    del identities[5]
    with pytest.raises(UsageError, match="user 5 has no identity"):
        aggregate(plan_of(), UPDATES, identities=identities)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"updates": UPDATES[:15]}, "16 users, but there are 15 updates"),
        ({"updates": UPDATES[:, :29]}, "for 30 elements, the updates have 29"),
        ({"updates": {}}, "has no update"),
        ({"updates": {99: UPDATES[0]}}, "99 is not a user"),
        ({"simulate": lambda: Simulation(dropped={99: "mask"})}, "99 is not a user"),
        ({"simulate": lambda: Simulation(dropped={1: "lunch"})}, "before one of the phases"),
        ({"rule": "krum"}, "no rule is called"),
        ({"weights": [1] * 15}, "16 weights"),
        ({"weights": {99: 1}}, "99 is not a user"),
        ({"weights": {0: 2}}, "integer weights from 1 to 1"),
        ({"metrics": {0: {"loss": 1.0}}}, "sums the metrics"),
        ({"simulate": lambda: Simulation(malicious=[99])}, "99 is not a user"),
        ({"simulate": lambda: Simulation(rounding_seed=-1)}, "rounding seed"),
    ],
)
def test_bad_input_gets_a_clear_error(change: dict[str, Any], match: str) -> None:
    arguments = {"updates": UPDATES, "simulate": Simulation, **change}
    with pytest.raises(UsageError, match=match):
        aggregate(plan_of(), arguments.pop("updates"), simulate=arguments.pop("simulate")(), **arguments)


NO_NAMES = "metrics map users to their values by name"


@each(
    "change, match",
    [
        ({"metrics": [{"loss": 1.0}] * 16}, f"{NO_NAMES}, like .*, not a list"),
        ({"metrics": []}, f"{NO_NAMES}, like .*, not a list"),
        ({"metrics": "loss"}, f"{NO_NAMES}, like .*, not a str"),
        ({"metrics": {3: 1.0}}, r"the metrics of user 3 are values by name, like .*, not 1\.0"),
        ({"weights": 5}, "weights are a mapping of user to integer, or a list .*, not a int"),
        ({"weights": "abc"}, "16 weights, not 3"),
        ({"rule": []}, r"no rule is called \[\]"),
        ({"rule": None}, "no rule is called None"),
    ],
)
def test_an_argument_of_another_type_is_named_with_what_it_takes(change: dict[str, Any], match: str) -> None:
    cohorts = CohortPlan.build([16], [4], 30, cohort_size=8, value_range=1.0, subgroup_size=4)
    for plan in (plan_of(metrics=("loss",)), cohorts):
        with pytest.raises(UsageError, match=match):
            aggregate(plan, UPDATES, **change)


@each(
    "change, match",
    [
        ({"malicious": None}, r"malicious is a list of users, like \[3, 5\], or an empty one, not None"),
        ({"malicious": 5}, "malicious is a list of users, like .*, not 5"),
        ({"malicious": "ada"}, "malicious is a list of users, like .*, not 'ada'"),
        ({"rounding_seed": 1.5}, r"a rounding seed is an integer from 0 to 2\^64-1, or None, not 1\.5"),
        ({"rounding_seed": "a"}, "a rounding seed is an integer .*, not 'a'"),
        ({"rounding_seed": 2**64}, "a rounding seed is an integer .*, not 18446744073709551616"),
    ],
)
def test_a_simulation_of_another_type_is_named_with_what_it_takes(change: dict[str, Any], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        Simulation(**change)


def test_nobody_is_left_with_an_update() -> None:
    with pytest.raises(
        UsageError, match="nobody has an update: give at least one, even if its user is named in dropped"
    ):
        aggregate(plan_of(), {}, simulate=Simulation(dropped=dict.fromkeys(range(16), "mask")))


def test_weights_are_whole_numbers_of_any_kind() -> None:
    plan = plan_of(max_weight=10)
    assert aggregate(plan, UPDATES, weights=np.full(16, 3), simulate=Simulation(secure=False)).blocks[0][0].weight == 24
    assert (
        aggregate(plan, UPDATES, weights={0: np.int64(3)}, simulate=Simulation(secure=False)).blocks[0][0].weight == 10
    )
    for bad in ([1.9] * 16, {0: 1.5}):
        with pytest.raises(UsageError, match="integers"):
            aggregate(plan, UPDATES, weights=bad)  # type: ignore[arg-type]


def test_a_list_has_the_updates_in_roster_order() -> None:
    plan, simulate = plan_of(), Simulation(secure=False, rounding_seed=1)
    listed = [{"w": row[:24].reshape(4, 6), "b": row[24:]} for row in UPDATES]
    found = aggregate(plan, listed, simulate=simulate)
    by_name = aggregate(plan, dict(zip(plan.users, listed, strict=True)), simulate=simulate)
    rows = aggregate(plan, UPDATES.tolist(), simulate=simulate)
    assert found.aggregate["w"].shape == (4, 6)
    assert np.array_equal(found.vector, by_name.vector)
    assert np.array_equal(found.vector, rows.aggregate)
    pairs = aggregate(plan, tuple([row[:24], row[24:]] for row in UPDATES), simulate=simulate)
    assert [array.shape for array in pairs.aggregate] == [(24,), (6,)]


@pytest.mark.parametrize(
    ("updates", "words"),
    [
        (UPDATES[0], "not a ndarray of the shape"),
        (UPDATES.reshape(16, 5, 6), "not a ndarray of the shape"),
        ([{"w": row} for row in UPDATES[:3]], "there are 3 updates"),
        ([[1.0, 2.0], [1.0]], "not a list"),
        ([], "not a list"),
        ("updates", "not a str"),
        (None, "not a NoneType"),
        ({"weight": UPDATES[0], "bias": UPDATES[0]}, "A state_dict is one user's update"),
    ],
)
def test_what_are_no_updates_gets_an_error_with_the_accepted_forms(updates: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        aggregate(plan_of(), updates)
    assert "a list with one update a user in roster order, or a 2-D array" in str(caught.value)


def test_swapped_arguments_are_named() -> None:
    with pytest.raises(UsageError, match="the arguments are swapped"):
        aggregate(UPDATES, plan_of())  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="takes a Plan or a CohortPlan first, not a str"):
        aggregate("plan", UPDATES)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda update: update[:-1], "user 3: array .* expected is"),
        (lambda update: update * np.nan, "user 3: 6 of 6 values are NaN or infinite"),
    ],
)
def test_a_bad_update_is_named_by_its_user(spoil: Any, complaint: str) -> None:
    plan = Plan.build([12], [4], 6, value_range=1.0, subgroup_size=3)
    updates = {user: np.zeros(6) for user in plan.users}
    updates[3] = spoil(updates[3])
    with pytest.raises(UsageError, match=f"the update of {complaint}"):
        aggregate(plan, updates)
