"""What a client asks of a plan: strict without arguments, looser by name, each rule with the field that it names."""

import math
import re
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from heterosag.errors import PlanError, UsageError
from heterosag.plan import CohortPlan, Plan
from heterosag.protocol import Policy

CAREFUL = Plan.build([24], [16], 100, value_range=0.5, subgroup_size=6)


def build(**changes: Any) -> Plan:
    given: dict[str, Any] = {"classes": [24], "levels": [16], "dimension": 100, "value_range": 0.5, "subgroup_size": 6}
    given["ranges"] = "single"
    return Plan.build(**{**given, **changes})


@pytest.mark.parametrize(
    ("plan", "field", "found"),
    [
        (build(min_survivors=2, colluders=1), "min_survivors", "2 survivors of a subgroup,"),
        (build(design="secagg", min_survivors=2, colluders=1), "min_block_survivors", "2 survivors of a block,"),
        (build(min_robustness=0.0), "min_robustness", "0 inference robustness,"),
        (build(colluders=0), "colluders", "0 colluders"),
        (build(sharing="sparse", assignment_seed=1), "sharing", "24 users for shares with neighbours only,"),
        (build(max_weight=10_001), "max_weight", "10001,"),
        (build(value_range=(-0.5, 0.4)), "value_range", "(-0.5, 0.4) is not symmetric"),
        (build(value_range=1e-7), "value_range", "a half width of 1e-07,"),
    ],
)
def test_a_careless_plan_is_refused_and_accepted_by_name_only(plan: Plan, field: str, found: str) -> None:
    with pytest.raises(PlanError) as refusal:
        Policy().check(plan)
    assert refusal.value.field == field
    assert refusal.value.problem.startswith(found)
    Policy.any_plan().check(plan)


def test_a_careful_plan_is_accepted() -> None:
    Policy().check(CAREFUL)
    Policy().check(build(max_weight=10_000))
    Policy().check(CAREFUL, directory=range(48))
    with pytest.raises(PlanError, match="24 users, this client's policy asks for at least 25"):
        Policy().check(CAREFUL, directory=range(49))
    with pytest.raises(PlanError, match="24 users, this client's policy asks for at least 30"):
        Policy(min_users=30).check(CAREFUL, directory=range(24))
    Policy(min_users=1).check(CAREFUL, directory=range(49))  # one user, not the whole of the directory


def test_two_users_are_the_least_where_no_directory_is_known() -> None:
    pair = build(classes=[2], subgroup_size=2, min_survivors=2, colluders=0, dropout=0.0)
    Policy(min_survivors=2, min_colluders=0).check(pair)
    Policy.any_plan().check(pair, directory=range(100))
    pairs = CohortPlan.build(
        [4], [16], 100, cohort_size=2, value_range=0.5, subgroup_size=2, min_survivors=2, colluders=0, dropout=0.0
    )
    for one in pairs.plans:
        Policy.any_plan().check(one, cohorts=pairs, directory=range(100))
    with pytest.raises(PlanError, match="2 users, this client's policy asks for at least 3"):
        Policy(min_survivors=2, min_colluders=0, min_users=3).check(pair)


def cohorts_of(users: int, size: int) -> CohortPlan:
    return CohortPlan.build([users], [16], 100, cohort_size=size, value_range=0.5, subgroup_size=4)


@pytest.mark.parametrize(
    ("users", "size", "directory", "problem"),
    [
        (45, 15, 45, None),
        (45, 15, 90, None),
        (45, 15, 91, "45 users of all cohorts, this client's policy asks for at least 46"),
        (36, 12, 36, None),
        (33, 11, 33, "11 users of a cohort, this client's policy asks for at least 12"),
        (400, 8, 400, "8 users of a cohort, this client's policy asks for at least 12"),
        (16, 8, 16, None),  # as many as a plan without cohorts has to have
        (16, 8, 17, "8 users of a cohort, this client's policy asks for at least 9"),
    ],
)
def test_of_cohorts_a_fraction_is_of_all_and_each_has_a_least(
    users: int, size: int, directory: int, problem: str | None
) -> None:
    whole = cohorts_of(users, size)
    for plan in whole.plans:
        if problem is None:
            Policy().check(plan, cohorts=whole, directory=range(directory))
            continue
        with pytest.raises(PlanError, match=problem) as refusal:
            Policy().check(plan, cohorts=whole, directory=range(directory))
        assert refusal.value.field == "users"


def test_a_number_is_of_each_cohort_and_other_cohorts_say_nothing_of_a_plan() -> None:
    whole = cohorts_of(45, 15)
    Policy(min_users=15).check(whole.plans[0], cohorts=whole, directory=range(45))
    with pytest.raises(PlanError, match="15 users, this client's policy asks for at least 16"):
        Policy(min_users=16).check(whole.plans[0], cohorts=whole, directory=range(45))
    Policy(min_cohort_users=9).check(cohorts_of(27, 9).plans[0], cohorts=cohorts_of(27, 9), directory=range(27))
    Policy().check(whole.plans[0], cohorts=whole)  # nobody is known
    with pytest.raises(UsageError, match="none of the cohorts'"):
        Policy().check(cohorts_of(48, 16).plans[0], cohorts=whole, directory=range(45))


def test_without_its_cohorts_a_plan_is_compared_with_the_whole_directory() -> None:
    """A server says of any plan that it is one of cohorts: what a client takes for enrolled, it has drawn itself."""
    own, other = cohorts_of(45, 15).plans[:2]
    strict = Policy(max_half_width=0.6, min_cohort_users=2)
    with pytest.raises(PlanError, match="15 users, this client's policy asks for at least 23"):
        strict.check(own, directory=range(45))
    enrolled = strict.for_enrolled(own)
    enrolled.check(own.with_value_range(0.25), directory=range(45))
    with pytest.raises(PlanError, match="another one than the plan"):
        enrolled.check(other, directory=range(45))
    with pytest.raises(PlanError, match=r"a half width of 0\.7"):
        enrolled.check(own.with_value_range(0.7), directory=range(45))


def test_any_plan_limits_neither_ranges_nor_the_length_of_a_run() -> None:
    policy = Policy.any_plan()
    for now, before in ((1e300, 1e-300), (1e-300, 1e300)):  # even where the ratio is no finite number above zero
        policy.check_change([(100, now)], [(100, before)])
    assert min(policy.max_rounds_of_a_model, policy.max_epochs) > 1_000_000


def test_thresholds_of_half_or_less_are_refused() -> None:
    """No plan that this software builds has them; a policy does not rely on that."""
    weak = build()
    object.__setattr__(weak, "agree_quorum", 12)
    with pytest.raises(PlanError, match="no more than half of the users"):
        Policy().check(weak)
    low = build()
    object.__setattr__(low, "sharing", replace(low.sharing, threshold=11))
    with pytest.raises(PlanError, match="11 of 24 holders' shares") as refusal:
        Policy().check(low)
    assert refusal.value.field == "sharing"
    for plan in (weak, low):
        Policy.any_plan().check(plan)


def test_exactly_one_plan_whatever_its_range() -> None:
    pinned = Policy.exactly(build(min_survivors=2, colluders=0), ranges=(0.1, 1.0))
    pinned.check(build(min_survivors=2, colluders=0, value_range=1.0))
    with pytest.raises(PlanError, match="another one than the plan"):
        pinned.check(CAREFUL)
    with pytest.raises(PlanError, match=r"a half width of 2, .* accepts 0\.1 to 1"):
        pinned.check(build(min_survivors=2, colluders=0, value_range=2.0))


def test_a_range_may_change_by_so_much_a_round() -> None:
    policy = Policy()
    policy.check_change([(100, 1.0)], [(100, 0.5)])
    for far, times in ((0.45, "2.22"), (2.2, "0.455")):
        with pytest.raises(PlanError, match=r"times that of the last round .* a factor of 2") as refusal:
            policy.check_change([(100, 1.0)], [(100, far)])
        assert refusal.value.field == "value_range"
        assert refusal.value.problem.startswith(f"{times} times")


def test_the_range_of_an_element_is_compared_however_arrays_are_cut() -> None:
    """Another number of arrays with the same least and greatest range moved one of them a million times."""
    two = build(arrays=[40, 60], scales=[1e-3, 1e3], value_range=1.0)
    three = build(arrays=[40, 30, 30], scales=[1e3, 1e-3, 1e-3], value_range=1.0)
    for now, before, times in ((three, two, r"1e\+06"), (two, three, "1e-06")):
        with pytest.raises(PlanError, match=f"{times} times that of the last round"):
            Policy().check(now, before=before.array_widths)
    cut = build(arrays=[40, 30, 30], scales=[2e-3, 5e2, 2e3], value_range=1.0)
    Policy().check(cut, before=two.array_widths)
    Policy().check(two, before=cut.array_widths)
    moved = build(arrays=[41, 59], scales=[1e-3, 1e3], value_range=1.0)  # of element 40 alone
    with pytest.raises(PlanError, match="1e-06 times"):
        Policy().check(moved, before=two.array_widths)


def test_a_range_does_not_change_by_way_of_weights() -> None:
    """An update of weight w is held to the range times W / w: with another W, and the same range, that jumps."""
    narrow, wide = (build(value_range=1e-3, max_weight=most) for most in (10, 10_000))
    for now, before, times in ((wide, narrow, "1e\\+03"), (narrow, wide, "0.001")):
        with pytest.raises(PlanError, match=f"max_weight is {times} times") as refusal:
            Policy().check(now, before=before)
        assert refusal.value.field == "max_weight"
    made_up = build(
        value_range=1.0, max_weight=10
    )  # the product is the same, but not for whoever has the largest weight
    with pytest.raises(PlanError, match=r"1e\+03 times"):
        Policy().check(made_up, before=wide)
    Policy().check(build(value_range=2e-3, max_weight=10), before=narrow)
    Policy().check(build(value_range=1e-3, max_weight=20), before=narrow)


def test_a_range_does_not_change_by_way_of_levels() -> None:
    """With two levels a block's range is much narrower than with many, for the same value range."""

    def with_levels(*levels: int, **options: Any) -> Plan:
        return Plan.build([12] * len(levels), list(levels), 300, value_range=1.0, subgroup_size=3, **options)

    few, many, both = with_levels(2), with_levels(65536), with_levels(2, 65536)
    for now, before in ((few, many), (many, few), (few, with_levels(2, ranges="single", rotate=False))):
        with pytest.raises(PlanError, match=r"blocks have a width \d\S* times that of the last round") as refusal:
            Policy().check(now, before=before)
        assert refusal.value.field == "levels"
    for now, before in ((both, few), (few, both), (both, many), (both, both), (with_levels(4), with_levels(8))):
        Policy().check(now, before=before)  # users with other levels come and go
    Policy(max_range_change=1.0).check(both, before=both)


@pytest.mark.parametrize(("half", "scale"), [(8e307, 2.0**64), (1e-305, 2.0**-64)])
def test_a_half_width_is_a_positive_number(half: float, scale: float) -> None:
    """Infinity could not be kept in a node's memory, and nothing can be divided by zero."""
    plan = build(value_range=half, ranges="single", arrays=[50, 50], scales=[1.0, scale])
    with pytest.raises(
        PlanError, match=r"of (inf|0), times the scale of its array, is not a positive, finite number: plan"
    ):
        Policy.any_plan().check(plan)


@pytest.mark.parametrize(
    ("level", "half", "scale"), [(65536, 1.7e308 * 2.0**-64, 2.0**64), (2, 0.75 * 2.0**-1010, 2.0**-64)]
)
def test_so_is_that_of_a_block_that_is_wider_or_narrower_than_the_range(level: int, half: float, scale: float) -> None:
    plan = build(levels=[level], ranges="levels", value_range=half, arrays=[50, 50], scales=[1.0, scale])
    assert all(0 < width < math.inf for width in plan.half_widths)
    with pytest.raises(
        PlanError, match=r"of (inf|0), times the scale of its array, is not a positive, finite number: plan"
    ) as refusal:
        Policy.any_plan().check(plan)
    assert refusal.value.field == "value_range"


def test_a_round_of_metrics_alone_is_held_to_the_range_of_its_plan() -> None:
    plan = build(metrics=["loss"]).only_metrics()
    Policy(min_half_width=0.5, max_half_width=0.5).check(plan)
    for narrow in (Policy(min_half_width=0.6), Policy(max_half_width=0.4)):
        with pytest.raises(PlanError, match=r"a half width of 0\.5,"):
            narrow.check(plan)


def test_ranges_of_an_update_with_other_elements_are_compared_each_with_each() -> None:
    plan = build(arrays=[80, 20], scales=[1.0, 2.0], value_range=0.5)
    Policy().check(plan, before=[(99, 1.0)])
    Policy().check(plan, before=[(50, 0.5), (49, 1.0)])
    with pytest.raises(PlanError, match=r"2\.5 times"):
        Policy().check(plan, before=[(50, 0.4), (49, 1.0)])
    with pytest.raises(PlanError, match=r"0\.25 times"):
        Policy().check(plan, before=[(50, 0.5), (49, 2.0)])


def test_width_times_scale_is_bounded_for_every_array() -> None:
    """A scale is as good as a range to a server that wants to see values of one array."""
    plan = build(arrays=[80, 20], scales=[1.0, 4.0], value_range=0.5)
    Policy(min_half_width=0.5, max_half_width=2.0).check(plan)
    for narrow in ({"min_half_width": 0.6}, {"max_half_width": 1.9}):
        with pytest.raises(PlanError, match="half width"):
            Policy(**narrow).check(plan)
    fine = build(arrays=[80, 20], scales=[0.25, 1.0], value_range=0.5)
    Policy(min_half_width=0.125, max_half_width=0.5).check(fine)
    with pytest.raises(PlanError, match=r"a half width of 0\.125,"):
        Policy(min_half_width=0.2).check(fine)
    levels = build(levels=[2], ranges="levels")  # three standard deviations are wider than what two levels want
    with pytest.raises(PlanError, match="half width"):
        Policy(min_half_width=0.3).check(levels)
    Policy().check(plan, before=[(80, 0.25), (20, 1.0)])
    with pytest.raises(PlanError, match=r"2\.5 times"):
        Policy().check(plan, before=[(80, 0.5), (20, 0.8)])


# --- drawing an assignment ----------------------------------------------------------------------------------------


def test_a_class_in_which_colluders_may_be_all_that_a_subgroup_has_is_refused() -> None:
    """Who is in which class is the server's word: three users in one of their own are not drawn at all."""
    alone = build(classes=[3, 21], levels=[15, 16], subgroup_size=3, colluders=2)
    with pytest.raises(
        PlanError,
        match=r"if 2 in its class of 3 users collude, 2 of them .* probability 1,.*: plan with a larger min_survivors",
    ) as refusal:
        Policy().check_draw(alone, 1)
    assert refusal.value.field == "classes"
    with pytest.raises(PlanError, match="if 2 in its class of 3 users collude"):  # however many the plan tolerates
        Policy().check_draw(build(classes=[3, 21], levels=[15, 16], subgroup_size=3, colluders=9), 1)
    Policy().check_draw(alone, 5)
    Policy.any_plan().check_draw(alone, 1)


@pytest.mark.parametrize(
    ("changes", "probability"),
    [
        ({"subgroup_size": 3, "colluders": 2}, 1 / 253),  # both of the two others, of 23
        ({"subgroup_size": 8, "colluders": 2}, 21 / 253),  # two of seven
        ({"subgroup_size": 8, "colluders": 9}, 214_698 / 245_157),  # any two of nine
        ({"subgroup_size": 8, "colluders": 3, "min_survivors": 4}, 35 / 1771),  # three of seven
        ({"subgroup_size": 3, "colluders": 1}, 0.0),  # and one is not enough
        ({"classes": [8, 16], "levels": [4, 16], "subgroup_size": 4, "colluders": 2}, 3 / 21),  # of its own class
        ({"classes": [4, 20], "levels": [4, 16], "subgroup_size": 4, "colluders": 9}, 1.0),  # one subgroup
    ],
)
def test_the_probability_counts_colluders_of_the_users_own_class(changes: dict[str, Any], probability: float) -> None:
    plan = build(**changes)
    Policy(max_surrounded=probability).check_draw(plan, 0)
    if probability:
        with pytest.raises(PlanError):
            Policy(max_surrounded=0.999 * probability).check_draw(plan, 0)


def test_one_block_of_everybody_is_not_drawn() -> None:
    Policy(max_surrounded=0.0).check_draw(build(design="secagg", colluders=9), 0)


def test_of_cohorts_those_of_all_may_be_in_the_users_own_subgroup() -> None:
    cohorts = CohortPlan.build(
        [12, 12], [4, 16], 30, cohort_size=12, value_range=1.0, subgroup_size=3, colluders=2, design="multigroup"
    )
    found = (math.comb(4, 2) * math.comb(7, 0)) / math.comb(11, 2)  # both others of its three, of four among eleven
    Policy(max_surrounded=found).check_draw(cohorts, 0)
    with pytest.raises(PlanError, match="if 4 in its class of 12 users collude, 2 of them"):
        Policy(max_surrounded=0.999 * found).check_draw(cohorts, 0)


@pytest.mark.parametrize("value", [-1, math.nan, -math.inf, np.float32("nan")])
@pytest.mark.parametrize(
    "name", [field.name for field in fields(Policy) if field.name not in ("frame", "symmetric_range")]
)
def test_what_would_switch_a_check_off_without_its_name_is_refused(name: str, value: float) -> None:
    with pytest.raises(UsageError, match=re.escape(f"{name} of a policy is a number from 0 on, not {value!r}")):
        Policy(**{name: value})
