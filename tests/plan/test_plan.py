"""The plan: what it holds, what it states, what it refuses, and its encodings."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cases import each

import heterosag
from heterosag.errors import PlanError, UsageError
from heterosag.plan import Plan, costs
from heterosag.plan.costs import summarise

PAPER: dict[str, Any] = {"classes": [5] * 5, "levels": [2, 6, 8, 10, 12], "dimension": 79510, "value_range": 1.0}


def test_the_papers_first_experiment() -> None:
    plan = heterosag.Plan.build(
        classes=[5, 5, 5, 5, 5],
        levels=[2, 6, 8, 10, 12],
        dimension=79510,
        design="perfect",
        value_range=(-1.0, 1.0),
        subgroup_size=5,
        min_survivors=3,
        max_weight=1,
        min_robustness=None,
        colluders=0,
        users=None,
        assignment_seed=None,
    )
    assert plan.users == tuple(range(25))
    assert [subgroup.members for subgroup in plan.subgroups] == [tuple(range(5 * g, 5 * g + 5)) for g in range(5)]
    assert plan.inference_robustness() == 0.8
    assert plan.byzantine_tolerance() == 1
    assert plan.min_robustness == 0.8
    assert plan.share_threshold == plan.agree_quorum == 13
    assert [segment.size for segment in plan.segments] == [15902] * 5


def test_uploads_are_those_of_the_stated_formula() -> None:
    """Claims: 200 rounds cost 60.4 85.9 95.4 95.4 95.4 Mb with ceil."""
    bits = costs.of(Plan.build(**PAPER))
    assert [round(200 * b / 1e6, 1) for b in bits.per_class()] == [60.4, 85.9, 95.4, 95.4, 95.4]
    homogeneous = costs.of(Plan.build(**{**PAPER, "levels": [2] * 5}))
    assert {round(200 * b / 1e6, 1) for b in homogeneous.per_class()} == {60.4}
    unquantized = costs.of(Plan.build(**{**PAPER, "levels": [2**32] * 5}))
    assert {round(200 * b / 1e6, 1) for b in unquantized.per_class()} == {569.3}


def test_expansion_against_clear_and_secagg() -> None:
    """Claims: 1.25x instead of 1.625x at 2^16 levels for pair blocks; 4x only in a star segment, 5x otherwise."""
    fine = Plan.build([1024], [2**16], 127, value_range=1.0, subgroup_size=8, sharing="complete")
    assert costs.of(fine).expansion() == (1.25,)
    assert costs.of(fine).against_secagg() == (20 / 26,)
    coarse = Plan.build([1016], [2], 127, value_range=1.0, subgroup_size=8, sharing="complete")
    assert len(coarse.subgroups) == 127
    assert sorted(block.bits for block in coarse.blocks_of(0)) == [4] + [5] * 126
    secagg = Plan.build([1024], [2], 127, value_range=1.0, design="secagg", sharing="complete")
    assert costs.of(secagg).expansion() == (11.0,)


def test_level_of_a_block_is_the_slower_classes() -> None:
    plan = Plan.build(**PAPER)
    for segment in plan.segments:
        for block in segment.blocks:
            assert block.level == plan.levels[min(plan.subgroups[g].user_class for g in block.subgroups)]
            assert 2**block.bits > block.users * (block.level - 1) >= 2 ** (block.bits - 1)


def theorem_2(levels: list[int], users: int, dimension: int, low: float, high: float) -> float:
    """sigma^2 of Theorem 2, as printed (for one subgroup a class)."""
    groups = len(levels)
    total = sum((2 * (groups - g) - 1) / (k - 1) ** 2 for g, k in enumerate(levels))
    return (high - low) ** 2 / (4 * users**2) * dimension / groups * (users / groups) * total


def test_quantization_error_is_theorem_2() -> None:
    plan = Plan.build(**{**PAPER, "value_range": (-0.5, 2.0)})
    assert plan.quantization_error() == pytest.approx(theorem_2([2, 6, 8, 10, 12], 25, 79510, -0.5, 2.0))


@each("counts", [(1, 2, 2), (2, 1, 2), (3, 3, 1), (1, 1, 5)])
def test_quantization_error_is_lemma_2(counts: tuple[int, ...]) -> None:
    levels, size, dimension = [2, 4, 9], 4, 700
    z = sum(counts)
    plan = Plan.build(
        [size * c for c in counts],
        levels,
        dimension - dimension % z,
        design="paper-composite",
        value_range=1.0,
        subgroup_size=size,
    )
    users = size * z
    total = sum(
        sum(2 * (z - sum(counts[:g]) - j) - 1 for j in range(counts[g])) / (levels[g] - 1) ** 2 for g in range(3)
    )
    expected = 4 / (4 * users**2) * plan.dimension / z * size * total
    assert plan.quantization_error() == pytest.approx(expected)


@each("parts", [1, 2, 3, 7])
def test_proposition_1_more_subgroups_do_not_change_the_error(parts: int) -> None:
    """Algorithm 1 with every class cut into the same number of subgroups."""
    size = 84 // parts
    plan = Plan.build([84] * 3, [2, 5, 9], 2520, design="paper-composite", value_range=1.0, subgroup_size=size)
    assert len(plan.subgroups) == 3 * parts
    assert plan.quantization_error() == pytest.approx(theorem_2([2, 5, 9], 252, 2520, -1.0, 1.0))


def test_weights_cost_no_bits_and_no_error_when_all_are_the_largest() -> None:
    plan = Plan.build([12], [4], 60, value_range=1.0, subgroup_size=3, max_weight=10)
    plain = Plan.build([12], [4], 60, value_range=1.0, subgroup_size=3)
    assert plan.quantization_error() == plain.quantization_error()
    assert [block.bits for block in plan.blocks_of(0)] == [block.bits for block in plain.blocks_of(0)]
    with pytest.raises(PlanError, match="must contain zero"):
        Plan.build([12], [4], 60, value_range=(0.1, 1.0), subgroup_size=3, max_weight=10)


def test_subgroups_of_a_class_differ_by_one_at_most() -> None:
    plan = Plan.build([11, 17, 5], [2, 4, 8], 1000, value_range=1.0, subgroup_size=5)
    assert [(s.user_class, len(s.members)) for s in plan.subgroups] == [(0, 6), (0, 5), (1, 6), (1, 6), (1, 5), (2, 5)]
    assert sorted(i for s in plan.subgroups for i in s.members) == list(range(33))


def test_a_number_without_perfect_design_is_reached_inside_a_class() -> None:
    plan = Plan.build([140, 140], [2, 4], 10_000, value_range=1.0, subgroup_size=10)
    assert len(plan.subgroups) == 29
    assert "28 subgroups; 29 were reached by splitting" in plan.notes[0]
    merged = Plan.build([130, 140], [2, 4], 10_000, value_range=1.0, subgroup_size=10)
    assert len(merged.subgroups) == 26
    assert "27 subgroups; 26 were reached by merging" in merged.notes[0]


def test_no_neighbour_fits() -> None:
    with pytest.raises(PlanError, match="29 or 26"):
        Plan.build([3] * 28, [2] * 28, 10_000, value_range=1.0, subgroup_size=3)


def test_segments_are_as_even_as_possible() -> None:
    plan = Plan.build([40], [2], 23, value_range=1.0, subgroup_size=5)
    sizes = [segment.size for segment in plan.segments]
    assert sum(sizes) == 23
    assert max(sizes) - min(sizes) == 1
    assert plan.segments[-1].stop == 23


def test_fill_levels_costs_no_bits() -> None:
    plain, filled = Plan.build(**PAPER), Plan.build(**PAPER, fill_levels=True)
    assert costs.of(plain).upload_bits == costs.of(filled).upload_bits
    assert filled.quantization_error() < plain.quantization_error()
    for segment in filled.segments:
        for block in segment.blocks:
            assert block.users * (block.level - 1) < 2**block.bits <= block.users * block.level


def test_survivors_decide_about_robustness() -> None:
    plan = Plan.build([32], [4], 700, value_range=1.0, subgroup_size=4)  # eight subgroups, seven segments, no star
    everyone = set(plan.users)
    assert plan.inference_robustness(everyone) == plan.inference_robustness() == 6 / 7
    assert plan.inference_robustness(everyone - {0, 1, 2}) == 6 / 7
    assert plan.inference_robustness(everyone - set(range(4))) == 6 / 7
    assert plan.inference_robustness(everyone - set(range(8))) == 5 / 7
    assert plan.lost_subgroups(everyone - set(range(4))) == {0}
    assert plan.byzantine_tolerance(everyone - set(range(24))) == 0
    with pytest.raises(UsageError, match="77 is not a user"):
        plan.inference_robustness({77})


def test_named_users_and_seeded_assignment() -> None:
    names = [f"phone-{i}" for i in range(20)]
    plan = Plan.build([10, 10], [2, 4], 500, value_range=1.0, subgroup_size=5, users=names, assignment_seed=7)
    assert plan.index("phone-3") == 3
    for subgroup in plan.subgroups:
        assert all((member < 10) == (subgroup.user_class == 0) for member in subgroup.members)
    again = Plan.build([10, 10], [2, 4], 500, value_range=1.0, subgroup_size=5, users=names, assignment_seed=7)
    other = Plan.build([10, 10], [2, 4], 500, value_range=1.0, subgroup_size=5, users=names, assignment_seed=8)
    assert plan == again
    assert plan.subgroups != other.subgroups
    listed = Plan.build([10, 10], [2, 4], 500, value_range=1.0, subgroup_size=5, users=names)
    assert any("listed order" in note for note in listed.notes)
    assert not any("listed order" in note for note in plan.notes)
    assert plan.subgroup_of("phone-19") in (2, 3)


def test_sharing_graph_is_complete_for_few_and_sparse_for_many() -> None:
    assert Plan.build([256], [2], 1000, value_range=1.0, subgroup_size=8).sharing.complete
    plan = Plan.build([1000], [2], 1000, value_range=1.0, subgroup_size=10)
    assert not plan.sharing.complete
    assert 2 < plan.share_threshold < plan.sharing.neighbours < 100
    assert any("neighbours" in note for note in plan.notes)
    assert plan.colluders == 50
    assert plan.agree_quorum == 526
    assert plan.share_threshold > plan.sharing.neighbours / 2


@each(
    "change, field",
    [
        ({"classes": []}, "classes"),
        ({"classes": [5, 0, 5, 5, 5]}, "classes[1]"),
        ({"classes": "55555"}, "classes"),
        ({"levels": [2, 6, 8, 10]}, "levels"),
        ({"levels": [2, 6, 8, 10, 9]}, "levels[4]"),
        ({"levels": [1, 6, 8, 10, 12]}, "levels[0]"),
        ({"levels": [2, 6, 8, 10, 2**33]}, "levels[4]"),
        ({"dimension": 4}, "dimension"),
        ({"dimension": 0}, "dimension"),
        ({"dimension": 7.5}, "dimension"),
        ({"design": "best"}, "design"),
        ({"design": "paper", "classes": [5] * 6, "levels": [2] * 6}, "design"),
        ({"value_range": (1.0, -1.0)}, "value_range"),
        ({"value_range": (0.0, float("inf"))}, "value_range"),
        ({"subgroup_size": 0}, "subgroup_size"),
        ({"min_survivors": 6}, "min_survivors"),
        ({"min_survivors": 1}, "min_survivors"),
        ({"min_survivors": "3"}, "min_survivors"),
        ({"min_survivors": None}, "min_survivors"),
        ({"classes": [1, 1], "levels": [2, 2]}, "min_survivors"),
        ({"max_weight": 0}, "max_weight"),
        ({"max_weight": 2**62}, "max_weight"),
        ({"min_robustness": 0.9}, "min_robustness"),
        ({"min_robustness": -0.1}, "min_robustness"),
        ({"colluders": -1}, "colluders"),
        ({"colluders": 25}, "colluders"),
        ({"colluders": 22}, "dropout"),
        ({"dropout": 0.5}, "dropout"),
        ({"dropout": 1.0}, "dropout"),
        ({"users": range(24)}, "users"),
        ({"users": [0] * 25}, "users"),
        ({"users": [*range(24), -1]}, "users"),
        ({"users": [*range(24), "a\nb"]}, "users"),
        ({"users": [*range(24), 1.5]}, "users"),
        ({"assignment_seed": -1}, "assignment_seed"),
        ({"assignment_seed": b""}, "assignment_seed"),
        ({"sharing": "ring"}, "sharing"),
        ({"users": 5}, "users"),
        ({"users": "abcde"}, "users"),
        ({"design": [1]}, "design"),
        ({"classes": [2**40], "levels": [2]}, "classes"),
        ({"value_range": (0.0, 1e-303), "levels": [2**20] * 5}, "value_range"),
        ({"value_range": (0.0, 1e-310)}, "value_range"),
        ({"metrics": "loss"}, "metrics"),
        ({"metrics": ["loss", "loss"]}, "metrics"),
        ({"metrics": ["count"]}, "metrics"),
        ({"metrics": [""]}, "metrics"),
        ({"metrics": ["loss"], "classes": [2**15], "levels": [2], "subgroup_size": 2**10}, "metrics"),
    ],
)
def test_nonsense_is_refused_by_name(change: dict[str, Any], field: str) -> None:
    with pytest.raises(PlanError) as refusal:
        Plan.build(**{**PAPER, **change})
    assert refusal.value.field == field
    assert str(refusal.value).startswith(f"{field}: ")


@each(
    "change, remedy",
    [
        ({"min_survivors": 6}, {"min_survivors": 5}),
        ({"levels": [2, 6, 8, 10, 9]}, {"levels": [2, 6, 8, 10, 10]}),
        ({"min_robustness": 0.9}, {"min_robustness": 0.8}),
        ({"dropout": 0.5}, {"dropout": 0.44}),
        ({"design": "paper", "classes": [5] * 6, "levels": [2] * 6}, {"design": "paper-composite"}),
    ],
)
def test_the_refusal_names_a_value_that_works(change: dict[str, Any], remedy: dict[str, Any]) -> None:
    with pytest.raises(PlanError) as refusal:
        Plan.build(**{**PAPER, **change})
    (value,) = remedy.values()
    assert str(value[-1] if isinstance(value, list) else value) in str(refusal.value)
    Plan.build(**{**PAPER, **change, **remedy})


def test_every_subgroup_has_its_least_survivors_where_there_are_several_blocks() -> None:
    base: dict[str, Any] = {"classes": [8], "levels": [2], "dimension": 100, "value_range": 1.0, "subgroup_size": 2}
    with pytest.raises(PlanError, match="the 2 users of subgroup 0"):
        Plan.build(**base, min_survivors=3)
    assert Plan.build(**base, min_survivors=2).min_block_survivors == 2
    assert Plan.build(**base, min_survivors=2, min_block_survivors=4).min_block_survivors == 4
    with pytest.raises(PlanError, match="the 4 users of the smallest block") as refusal:
        Plan.build(**base, min_survivors=2, min_block_survivors=5)
    assert refusal.value.field == "min_block_survivors"
    assert Plan.build(**base, design="secagg", min_survivors=3).min_block_survivors == 3


def test_colluders_are_what_the_least_survivors_hide_from_unless_said() -> None:
    base: dict[str, Any] = {"classes": [40], "levels": [2], "dimension": 100, "value_range": 1.0, "subgroup_size": 8}
    assert Plan.build(**base).colluders == 1
    assert Plan.build(**base, min_survivors=5).colluders == 3
    assert Plan.build(**base, colluders=0).agree_quorum == 21
    assert Plan.build(**{**base, "classes": [41]}).agree_quorum == 22


def test_notes_name_what_the_paper_got_wrong() -> None:
    composite = Plan.build([4] * 75, [2] * 75, 1000, design="paper-composite", value_range=1.0, subgroup_size=4)
    assert any("Theorem 1 of the paper claims a robustness of 0.9867 here; it is 0.6667" in n for n in composite.notes)
    assert any("0.24" in note and "Theorem 3" in note for note in composite.notes)
    assert not any("Theorem 1" in note for note in Plan.build(**PAPER).notes)
    two = Plan.build([10], [2], 100, design="paper", value_range=1.0, subgroup_size=5)
    assert any("claims a robustness of 0 here; it is 0.5" in note for note in two.notes)


def test_notes_say_where_least_survivors_and_quorum_disagree() -> None:
    base: dict[str, Any] = {"classes": [24], "levels": [4], "dimension": 100, "value_range": 1.0, "subgroup_size": 6}
    assert not any("colluders" in note for note in Plan.build(**base).notes)
    more = Plan.build(**base, colluders=3)
    assert any("not all 3: min_survivors=5 would" in note for note in more.notes)
    fewer = Plan.build(**base, min_survivors=4, colluders=1)
    assert any(
        "tolerates 1 colluders, fewer than the 2" in note and "colluders=2 would" in note for note in fewer.notes
    )


PLANS: list[dict[str, Any]] = [
    PAPER,
    {
        "classes": [10, 11],
        "levels": [2, 4],
        "dimension": 77,
        "value_range": 1.0,
        "users": [f"u{i}é" for i in range(21)],
    },
    {
        "classes": [30],
        "levels": [2**32],
        "dimension": 10**9,
        "value_range": 1.0,
        "assignment_seed": b"\x00\xff" * 16,
        "fill_levels": True,
    },
    {
        "classes": [16],
        "levels": [3],
        "dimension": 50,
        "value_range": 1.0,
        "design": "multigroup",
        "max_weight": 9,
        "subgroup_size": 4,
    },
    {
        "classes": [400],
        "levels": [5],
        "dimension": 999,
        "value_range": 1.0,
        "subgroup_size": 20,
        "assignment_seed": 3,
        "colluders": 9,
    },
    {
        "classes": [6],
        "levels": [2],
        "dimension": 1,
        "design": "secagg",
        "min_robustness": 0.25,
        "value_range": (0, 1e-7),
    },
]


@each("requirements", PLANS)
def test_toml_and_canonical_encoding_come_back(requirements: dict[str, Any]) -> None:
    plan = Plan.build(**requirements)
    assert Plan.from_toml(plan.to_toml()) == plan
    decoded = Plan.decode(plan.encode())
    assert decoded == plan
    assert decoded.digest == plan.digest
    assert decoded.notes == plan.notes
    assert len(plan.digest) == 32


def test_every_value_changes_the_digest() -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"levels": [2, 6, 8, 10, 13]},
        {"dimension": 79511},
        {"design": "multigroup"},
        {"value_range": (-1.0, 1.5)},
        {"min_survivors": 2},
        {"max_weight": 2},
        {"min_robustness": 0.5},
        {"colluders": 0},
        {"min_block_survivors": 4},
        {"users": range(1, 26)},
        {"assignment_seed": 0},
        {"assignment_seed": 1},
        {"dropout": 0.2},
        {"fill_levels": True},
    ]
    digests = {Plan.build(**{**PAPER, **change}).digest for change in changes}
    assert len(digests) == len(changes)


def test_a_hand_written_toml_needs_no_digest_and_an_edited_one_is_noticed() -> None:
    text = "classes = [5, 5]\nlevels = [2, 4]\ndimension = 100\nvalue_range = 1.0\n"
    plan = Plan.from_toml(text)
    assert plan == Plan.build([5, 5], [2, 4], 100, value_range=1.0)
    with pytest.raises(PlanError, match="delete it"):
        Plan.from_toml(plan.to_toml().replace("dimension = 100", "dimension = 101"))


@each(
    "text, field",
    [
        ("classes = [", "toml"),
        ("classes = [5]\nlevels = [2]\n", "dimension"),
        ("classes = [5]\nlevels = [2]\ndimension = 9\nvalue_range = [-1.0, 1.0]\ncolour = 1\n", "colour"),
        ("version = 1\n", "version"),
        (
            'classes = [5]\nlevels = [2]\ndimension = 9\nvalue_range = [-1.0, 1.0]\nassignment_seed = "xyz"\n',
            "assignment_seed",
        ),
    ],
)
def test_bad_toml(text: str, field: str) -> None:
    with pytest.raises(PlanError) as refusal:
        Plan.from_toml(text)
    assert refusal.value.field == field


def test_decode_refuses_anything_that_build_would_not_make() -> None:
    import msgspec

    data = Plan.build(**PAPER).encode()
    version, recipe, structure = msgspec.msgpack.decode(data)
    structure[1][0][1] = [0, 1, 2, 3, 5]
    for bad in (
        b"",
        data[:-1],
        data + b"\0",
        msgspec.msgpack.encode([version, recipe, structure]),
        msgspec.msgpack.encode([1, recipe, structure]),
        msgspec.msgpack.encode([version, recipe[:-1], structure]),
        msgspec.msgpack.encode([version, ["x"] * len(recipe), structure]),
        b"\x91" * 100_000,
    ):
        with pytest.raises(PlanError):
            Plan.decode(bad)


def test_the_summary_is_json_and_complete() -> None:
    import json

    summary = json.loads(json.dumps(summarise(Plan.build(**PAPER), dropout=0.2)))
    assert summary["dropout"] == 0.2
    assert summary["leak_probability"]["one"] == pytest.approx(5 * 0.8 * 0.2**4)
    assert summary["subgroups"][1] == {"class": 1, "users": [5, 6, 7, 8, 9]}
    assert summary["segments"][0] == [[0, 1], [2, 4], [3]]
    assert summary["levels"][0] == [2, 8, 10]
    assert summary["bits"][0] == [4, 7, 6]
    with pytest.raises(UsageError, match="dropout rate"):
        summarise(Plan.build(**PAPER), dropout=1.5)


def test_another_value_range_makes_the_plan_that_build_would() -> None:
    plan = Plan.build(**PAPER, assignment_seed=3)
    moved = plan.with_value_range((-0.25, 0.5))
    assert moved == Plan.build(**{**PAPER, "value_range": (-0.25, 0.5)}, assignment_seed=3)
    assert moved.digest == Plan.build(**{**PAPER, "value_range": (-0.25, 0.5)}, assignment_seed=3).digest
    assert moved.digest != plan.digest
    with pytest.raises(PlanError, match="value_range"):
        plan.with_value_range((1.0, 0.0))


def test_a_replaced_value_builds_the_plan_anew() -> None:
    """Parties bind the digest, so no field of a plan may be changed behind it."""
    plan = Plan.build(**PAPER)
    assert plan.digest, plan.vector_sizes()  # known, and not to be kept
    looser = replace(plan, min_survivors=2)
    kept = {"min_robustness": plan.min_robustness, "min_block_survivors": 3, "colluders": 1}
    assert looser == Plan.build(**PAPER, min_survivors=2, **kept)
    assert looser.digest not in (b"", plan.digest)
    weighted = replace(plan, max_weight=4)
    assert weighted.vector_sizes() == Plan.build(**PAPER, max_weight=4).vector_sizes() > plan.vector_sizes()  # a lane
    assert replace(plan) == plan
    assert replace(plan).digest == plan.digest
    with pytest.raises(PlanError, match="min_survivors"):
        replace(plan, min_survivors=6)
    with pytest.raises(ValueError, match="init=False"):
        replace(plan, agree_quorum=1)


def test_a_range_is_refused_alike_however_it_is_given() -> None:
    plan = Plan.build(**PAPER)
    for narrow in ((0, 5e-324), (0.0, 1e-308)):
        with pytest.raises(PlanError, match="too narrow") as first:
            Plan.build(**{**PAPER, "value_range": narrow})
        with pytest.raises(PlanError, match="too narrow") as second:
            plan.with_value_range(narrow)
        assert str(first.value) == str(second.value)


def test_one_number_is_the_half_width_of_a_range_around_zero() -> None:
    plan = Plan.build(**{**PAPER, "value_range": 0.25})
    assert plan.value_range == (-0.25, 0.25)
    assert plan == Plan.build(**PAPER).with_value_range(np.float32(0.25))
    assert Plan.from_toml(plan.to_toml()).digest == plan.digest
    for wrong in (0, -1.0, float("nan"), True, "1", None):
        with pytest.raises(PlanError, match="value range"):
            plan.with_value_range(wrong)  # type: ignore[arg-type]


def test_a_plan_needs_a_range() -> None:
    with pytest.raises(PlanError, match="value_range: must be given"):
        Plan.build([5], [2], 9)
    with pytest.raises(PlanError, match="value_range"):
        Plan.from_toml("classes = [5]\nlevels = [2]\ndimension = 9\n")


def test_a_plan_is_shown_at_a_glance() -> None:
    plan = Plan.build(**PAPER)
    assert repr(plan) == (
        "<Plan of 25 users in 5 subgroups, perfect design: 79,510 elements, levels 2,6,8,10,12, robustness 0.8, "
        "Byzantine tolerance 1>"
    )
    shown = plan._repr_html_()
    assert shown.count("<tr>") == 1 + 5 + 4 + 5
    assert shown.count("<td>*</td>") == 5  # a star a segment
    assert shown.count("background: hsl(0 60% 80%)") == 2 * 4, "subgroup 0 codes with one other in four segments"


def test_a_design_with_several_blocks_in_any_segment_protects_subgroups() -> None:
    """The paper's design of two subgroups codes one segment together and leaves both alone in the other."""
    plan = Plan.build([8], [2], 100, design="paper", value_range=1.0, subgroup_size=4)
    assert [len(segment.blocks) for segment in plan.segments] == [1, 2]
    assert plan.has_several_blocks
    with pytest.raises(PlanError, match="users of subgroup"):
        Plan.build([5], [2], 100, design="paper", value_range=1.0, subgroup_size=2)
