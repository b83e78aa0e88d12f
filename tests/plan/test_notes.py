"""What a plan says about itself that its numbers do not."""

from typing import Any

from paper_plan import PAPER

from heterosag.plan import Plan


def test_notes_name_what_the_paper_got_wrong() -> None:
    composite = Plan.build([4] * 75, [2] * 75, 1000, design="paper-composite", value_range=1.0, subgroup_size=4)
    assert any("Theorem 1 of the paper claims a robustness of 0.9867 here; it is 0.6667" in n for n in composite.notes)
    assert any("0.24" in note and "Theorem 3" in note for note in composite.notes)
    assert not any("Theorem 1" in note for note in Plan.build(**PAPER).notes)
    two = Plan.build([10], [2], 100, design="paper", value_range=1.0, subgroup_size=5)
    assert any("claims a robustness of 0 here; it is 0.5" in note for note in two.notes)


def test_listed_order_is_noted_where_anything_depends_on_it() -> None:
    options: dict[str, Any] = {"value_range": 1.0, "subgroup_size": 4}
    for design, said in (("perfect", True), ("secagg", False)):
        plan = Plan.build([12], [4], 90, design=design, **options)
        assert any("listed order" in note for note in plan.notes) == said


def test_notes_say_where_least_survivors_and_quorum_disagree() -> None:
    base: dict[str, Any] = {"classes": [24], "levels": [4], "dimension": 100, "value_range": 1.0, "subgroup_size": 6}
    assert not any("colluders" in note for note in Plan.build(**base).notes)
    more = Plan.build(**base, colluders=3)
    assert any("not all 3: min_survivors=5 would" in note for note in more.notes)
    fewer = Plan.build(**base, min_survivors=4, colluders=1)
    assert any(
        "tolerates 1 colluders, fewer than the 2" in note and "colluders=2 would" in note for note in fewer.notes
    )


def test_a_sparse_plan_claims_no_more_colluders_than_its_quorum_tolerates() -> None:
    base: dict[str, Any] = {"classes": [400], "levels": [4], "dimension": 100, "value_range": 1.0, "subgroup_size": 8}
    for given, tolerated in ((None, 20), (1, 1)):
        plan = Plan.build(**base, sharing="sparse", colluders=given, assignment_seed=b"x")
        assert any(f"dropout and {tolerated} colluders" in note for note in plan.notes)


def test_a_subgroup_size_that_cannot_be_met_is_a_note() -> None:
    met = Plan.build([16, 16], [4, 4], 30, value_range=0.5, subgroup_size=8)
    missed = Plan.build([16, 5], [4, 4], 30, value_range=0.5, subgroup_size=8)
    assert not any("cannot be met" in note for note in met.notes)
    (note,) = [note for note in missed.notes if "cannot be met" in note]
    assert note == "subgroup_size=8 cannot be met in class 1: of its 5 users the smallest subgroup has 5"
    whole = Plan.build([16, 5], [4, 4], 30, value_range=0.5, subgroup_size=8, design="secagg")
    assert not any("cannot be met" in note for note in whole.notes)
