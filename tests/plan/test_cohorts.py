"""Cohorts: the split, what all cohorts together guarantee, and their encoding."""

import tracemalloc
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from cases import each, examples
from hypothesis import given
from hypothesis import strategies as st

from heterosag.errors import PlanError, UsageError
from heterosag.plan import CohortPlan, Plan
from heterosag.plan.cohorts import COHORT_SIZE, plans_of
from heterosag.plan.summary import summarise_cohorts

SMALL: dict[str, Any] = {
    "classes": [20, 25],
    "levels": [3, 6],
    "dimension": 40,
    "value_range": 1.0,
    "subgroup_size": 3,
    "min_survivors": 2,
}


def build(**changed: Any) -> CohortPlan:
    return CohortPlan.build(**(SMALL | {"cohort_size": 15, "assignment_seed": 7} | changed))


@pytest.mark.parametrize("seed", [None, 5, b"seed"])
@pytest.mark.parametrize("users", [None, [f"u{i}" for i in range(45)]])
def test_one_cohort_is_the_plan_without_cohorts(seed: Any, users: Any) -> None:
    whole = CohortPlan.build(**SMALL, assignment_seed=seed, users=users)
    alone = Plan.build(**SMALL, assignment_seed=seed, users=users)
    assert whole.plans == (alone,)
    assert whole.plans[0].digest == alone.digest
    assert whole.notes == alone.notes
    assert (whole.colluders, whole.honest) == (alone.colluders, alone.honest)
    assert whole.robustness() == alone.robustness()
    assert whole.byzantine_tolerance() == alone.byzantine_tolerance()
    assert whole.failure_probability(0.2) == pytest.approx(alone.failure_probability(0.2))
    assert whole.quantization_error() == pytest.approx(alone.quantization_error())
    assert whole.leak_probability(0.2).any == pytest.approx(alone.leak_probability(0.2).any)


@examples(60)
@given(
    classes=st.lists(st.integers(9, 40), min_size=1, max_size=4),
    size=st.integers(9, 60),
    seed=st.none() | st.integers(0, 99) | st.binary(min_size=1, max_size=64),
)
def test_cohorts_have_nearly_equal_sizes_and_class_mixes(
    classes: list[int], size: int, seed: int | bytes | None
) -> None:
    arguments: dict[str, Any] = {"cohort_size": size, "assignment_seed": seed, "value_range": 1.0, "design": "secagg"}
    if min(classes) < -(-sum(classes) // size):
        with pytest.raises(PlanError, match="too few for"):
            CohortPlan.build(classes, [4] * len(classes), 50, **arguments)
        return
    whole = CohortPlan.build(classes, [4] * len(classes), 50, **arguments)
    assert len(whole.plans) == -(-sum(classes) // size)
    assert sorted(user for plan in whole.plans for user in plan.users) == list(range(sum(classes)))
    assert whole.classes == tuple(classes)
    totals = [len(plan.users) for plan in whole.plans]
    assert max(totals) - min(totals) <= 1
    assert max(totals) <= size
    ends = [sum(classes[: index + 1]) for index in range(len(classes))]
    for index in range(len(classes)):
        mix = [plan.classes[index] for plan in whole.plans]
        assert max(mix) - min(mix) <= 1
        for plan in whole.plans:
            first = sum(plan.classes[:index])
            own = plan.users[first : first + plan.classes[index]]
            assert all(ends[index] - classes[index] <= int(user) < ends[index] for user in own)
    assert CohortPlan.decode(whole.encode()) == whole


def test_the_seed_draws_the_split_and_every_cohort_has_a_seed_of_its_own() -> None:
    first, again, other = build(), build(), build(assignment_seed=8)
    assert first == again
    assert first.digest == again.digest
    assert first.digest != other.digest
    assert {plan.users for plan in first.plans} != {plan.users for plan in other.plans}
    assert len({plan.assignment_seed for plan in first.plans}) == len(first.plans)
    listed = build(assignment_seed=None)
    assert listed.plans[0].users[:3] == (0, 3, 6)
    assert any("listed order" in note for note in listed.notes)
    assert any("hidden among the 15 users" in note for note in first.notes)


def test_users_are_found_in_their_cohort() -> None:
    whole = build()
    assert all(user in whole.plan_of(user).users for user in whole.users)
    assert plans_of(whole) == whole.plans
    assert plans_of(whole.plans[0]) == whole.plans[:1]
    assert all(user in whole.plans[whole.cohort_of(user)].users for user in whole.users)
    assert whole.index(44) == 44
    with pytest.raises(UsageError, match="not one of the 45 users"):
        whole.cohort_of("nobody")
    with pytest.raises(UsageError, match="not one of the 45 users"):
        whole.index([])  # type: ignore[arg-type]


def test_a_large_number_of_users_is_split_by_default() -> None:
    whole = CohortPlan.build([1100], [4], 50, value_range=1.0, subgroup_size=40)
    assert [len(plan.users) for plan in whole.plans] == [367, 367, 366]
    assert max(len(plan.users) for plan in whole.plans) <= COHORT_SIZE
    assert "<CohortPlan of 1100 users in 3 cohorts of 366 or 367" in repr(whole)


# --- guarantees -----------------------------------------------------------------------------------------------------


def test_guarantees_are_the_least_of_the_cohorts() -> None:
    options: dict[str, Any] = {"value_range": 1.0, "ranges": "single", "subgroup_size": 2, "min_survivors": 2}
    whole = CohortPlan.build([41], [6], 60, cohort_size=14, assignment_seed=1, **options)
    robust = [plan.inference_robustness() for plan in whole.plans]
    assert len({len(plan.segments) for plan in whole.plans}) > 1, "cohorts with different numbers of segments"
    assert whole.inference_robustness() == min(robust)
    assert whole.robustness().exact
    fails = [plan.failure_probability(0.3) for plan in whole.plans]
    assert whole.failure_probability(0.3) == pytest.approx(1 - (1 - fails[0]) * (1 - fails[1]) * (1 - fails[2]))
    leaks = [plan.leak_probability(0.3) for plan in whole.plans]
    assert whole.leak_probability(0.3).one == max(leak.one for leak in leaks)
    assert max(leak.any for leak in leaks) < whole.leak_probability(0.3).any < sum(leak.any for leak in leaks)
    alone = Plan.build([41], [6], 60, **options)
    assert whole.quantization_error() == pytest.approx(alone.quantization_error(), rel=0.05)


def test_the_clip_bias_of_cohorts_does_not_average_out() -> None:
    whole = build()
    biases = [plan.clip_bias() for plan in whole.plans]
    assert 0 < min(biases) <= whole.clip_bias() <= max(biases)
    assert whole.error_bound() == whole.quantization_error() + whole.clip_bias()
    assert whole.quantization_error() < min(plan.quantization_error() for plan in whole.plans)


def test_a_cohort_that_surely_fails_makes_a_failure_sure() -> None:
    assert build(subgroup_size=7, min_survivors=7).failure_probability(0.999999) == pytest.approx(1.0)


def test_the_tolerance_counts_the_blocks_of_all_cohorts_range_by_range() -> None:
    whole = CohortPlan.build([41], [6], 60, cohort_size=14, value_range=1.0, subgroup_size=2, min_survivors=2)
    counts = []
    for element in range(60):
        blocks = 0
        for plan in whole.plans:
            segment = next(segment for segment in plan.segments if segment.start <= element < segment.stop)
            blocks += len(segment.blocks)
        counts.append(blocks)
    assert whole.byzantine_tolerance() == -(-min(counts) // 2) - 1
    first = whole.plans[0]
    assert whole.byzantine_tolerance(first.users) == first.byzantine_tolerance()
    assert whole.byzantine_tolerance([*whole.plans[0].users, *whole.plans[1].users]) < whole.byzantine_tolerance()
    few = first.users[3:]
    assert whole.byzantine_tolerance(few) == first.byzantine_tolerance(few)
    with pytest.raises(UsageError, match="nobody"):
        whole.byzantine_tolerance([])


def test_a_summary_has_sizes_costs_and_what_the_server_sees() -> None:
    whole = build()
    found = summarise_cohorts(whole, 0.2)
    assert [one["users"] for one in found["cohorts"]] == [15, 15, 15]
    assert found["digest"] == whole.digest.hex()
    assert found["block_sums"] == sum(len(s.blocks) for plan in whole.plans for s in plan.segments)
    assert len(found["upload_bits"]) == 2
    assert found["failure_probability"] == whole.failure_probability(0.2)


def test_another_value_range_is_that_of_every_cohort() -> None:
    whole = build().with_value_range(0.25)
    assert whole == build(value_range=0.25)
    assert whole.value_range == (-0.25, 0.25)
    scaled = build(arrays=[10, 30]).with_value_range(0.25, [1.0, 2.0])
    assert all(plan.scales == (1.0, 2.0) for plan in scaled.plans)
    assert CohortPlan.decode(scaled.encode()) == scaled
    one, two, three = scaled.plans
    with pytest.raises(PlanError, match="scales: cohort 2 has another one"):
        replace(scaled, plans=(one, two, three.with_value_range(0.25, [1.0, 3.0])))


def test_cohorts_have_levels_arrays_and_noise_in_common() -> None:
    whole = build(arrays=[10, 30])
    assert (whole.levels, whole.arrays, whole.scales) == (whole.plans[2].levels, (10, 30), ())
    assert whole.noise_multiplier == 0
    noisy: dict[str, Any] = {"clipping_norm": 1.0, "noise_multiplier": 4.0, "min_block_survivors": 14}
    found = CohortPlan.build([45], [2], 900, cohort_size=15, design="secagg", subgroup_size=15, **noisy)
    assert (found.noise_multiplier, found.honest) == (4.0, 13)
    one, two, three = found.plans
    other = Plan.build(**three.arguments() | {"honest": 12})
    with pytest.raises(PlanError, match="honest: cohort 2 counts on other numbers"):
        replace(found, plans=(one, two, other))


def test_a_round_of_metrics_alone_has_no_segments() -> None:
    only = build(metrics=["loss"]).only_metrics()
    assert [len(plan.segments) for plan in only.plans] == [0, 0, 0]
    assert only.byzantine_tolerance() == 0
    with pytest.raises(UsageError, match="no metrics to sum"):
        build().only_metrics()


# --- refusals -------------------------------------------------------------------------------------------------------


@each(
    "changed, field, words",
    [
        ({"cohort_size": 1}, "cohort_size", "at least 2"),
        ({"cohort_size": True}, "cohort_size", "at least 2"),
        ({"cohort_size": 2.5}, "cohort_size", "at least 2"),
        ({"cohort_size": 2}, "classes[0]", "20 users are too few for 23 cohorts"),
        ({"min_survivors": 9}, "min_survivors", "in cohort 0 of 3"),
        ({"dimension": 2}, "dimension", "in cohort 0 of 3"),
        ({"users": [1, 2]}, "users", "hold 45 users"),
        ({"assignment_seed": -1}, "assignment_seed", "must be None"),
        ({"cohort_size": 99, "dimension": 3}, "dimension", "3 elements"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(changed: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(PlanError) as error:
        build(**changed)
    assert error.value.field == field
    assert words in error.value.problem


def test_plans_that_are_not_those_of_the_split_are_refused() -> None:
    whole = build()
    one, two, three = whole.plans
    for plans, field in (
        ((), "plans"),
        ((one, two), "users"),
        ((two, one, three), "plans"),
        ((one, two, three.with_value_range(0.5)), "value_range"),
        ((one, two, replace(three, assignment_seed=3)), "plans"),
        ((one, two, replace(three, design="multigroup", min_robustness=0.0)), "design"),
    ):
        with pytest.raises(PlanError) as error:
            replace(whole, plans=plans)
        assert error.value.field == field
    with pytest.raises(PlanError, match="make 2 cohorts"):
        replace(whole, cohort_size=30)
    with pytest.raises(PlanError, match="not those whom the seed"):
        replace(whole, assignment_seed=8)


def test_the_arguments_make_the_cohorts_again() -> None:
    for whole in (build(), build(min_robustness=0.5), build(users=[f"u{i}" for i in range(45)], assignment_seed=None)):
        assert CohortPlan.build(**whole.arguments()) == whole
    unlike = CohortPlan.build([41], [6], 60, cohort_size=14, value_range=1.0, subgroup_size=2, min_survivors=2)
    assert len({plan.min_robustness for plan in unlike.plans}) > 1
    assert CohortPlan.build(**unlike.arguments()) == unlike


# --- encoding -------------------------------------------------------------------------------------------------------


@each(
    "changed", [{}, {"assignment_seed": None}, {"assignment_seed": b"x" * 64}, {"users": [f"é{i}" for i in range(45)]}]
)
def test_the_encoding_comes_back(changed: dict[str, Any]) -> None:
    whole = build(**changed)
    back = CohortPlan.decode(whole.encode())
    assert back == whole
    assert back.digest == whole.digest
    assert back.users == whole.users


def test_other_bytes_are_refused() -> None:
    data = build().encode()
    version, size, seed, names, plans = msgspec.msgpack.decode(data)
    again = msgspec.msgpack.encode
    with pytest.raises(PlanError, match="version 1, not 2"):
        CohortPlan.decode(again([2, size, seed, names, plans]))
    for wrong in (
        b"",
        data[:-1],
        data + b"\x00",
        again([version, size, seed, names]),
        again([version, size, seed, list(range(45)), plans]),
        again([version, size, seed, names, plans[::-1]]),
        again([version, size, seed, names, [*plans, plans[0]]]),
        again([version, size + 1, -1, names, plans]),
        again([version, 2**63, seed, names, plans]),
        b"\x95\xcc" + data[1:],  # the version in two bytes: not canonical
    ):
        with pytest.raises(PlanError):
            CohortPlan.decode(wrong)


def test_cohorts_of_strangers_are_refused_before_their_plans_are_read() -> None:
    users = [f"user {place}" for place in range(sum(build().classes))]
    whole = build(users=users)
    assert CohortPlan.decode(whole.encode(), among=[*users, "another"]) == whole
    version, size, seed, names, plans = msgspec.msgpack.decode(whole.encode())
    nothing = msgspec.msgpack.encode([version, size, seed, names, [b"no plan"] * len(plans)])
    with pytest.raises(PlanError, match="users: user 'user 7' is not known here"):
        CohortPlan.decode(nothing, among=[one for one in users if one != "user 7"])
    many = msgspec.msgpack.encode([version, size, seed, None, [b"no plan"] * 46])
    with pytest.raises(PlanError, match="46 cohorts are more than there are users"):
        CohortPlan.decode(many, among=range(45))
    with pytest.raises(PlanError, match="users: user 0 is not known here"):
        CohortPlan.decode(many, among=users)


@examples(150)
@given(data=st.data())
def test_edited_bytes_are_refused_or_encode_to_themselves(data: st.DataObject) -> None:
    encoded = bytearray(build().encode())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(encoded) - 1))
        encoded[place] = data.draw(st.integers(0, 255))
    try:
        found = CohortPlan.decode(bytes(encoded))
    except PlanError:
        return
    assert found.encode() == bytes(encoded)


@each("header", [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff"])
def test_announced_elements_take_no_memory(header: bytes) -> None:
    encoded = build().encode()
    for place in range(0, 300, 7):
        tracemalloc.start()
        with pytest.raises(PlanError):
            CohortPlan.decode(encoded[:place] + header)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most < 1_000_000
