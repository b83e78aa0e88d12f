"""Admissible survivor sets, and the oracle that says who survives."""

import re

import pytest
from rounds import small_plan

from heterosag.errors import TooFewSurvivorsError, UsageError
from heterosag.plan import Plan
from heterosag.plan.design import Design
from heterosag.plan.robustness import _CutSearch
from heterosag.protocol import Phase, outcome
from heterosag.protocol.survivors import check_admissible, make_admissible, too_small


def test_admissibility_names_the_rule() -> None:
    plan = small_plan(min_survivors=3)
    check_admissible(plan, frozenset(range(12)))
    for survivors, reason in (
        (range(6), "thresholds"),
        ([0, 1, 2, 3, 6, 7, 8, 9], "min_survivors"),
    ):
        with pytest.raises(TooFewSurvivorsError) as refusal:
            check_admissible(plan, frozenset(survivors))
        assert refusal.value.reason == reason
    eight = Plan.build([16, 16], [2, 4], 70, value_range=1.0, subgroup_size=4)
    with pytest.raises(TooFewSurvivorsError) as refusal:
        check_admissible(eight, frozenset(range(8, 32)))
    assert refusal.value.reason == "robustness"
    check_admissible(eight, frozenset(range(4, 32)))


def test_every_subgroup_needs_its_least_survivors_where_there_are_several_blocks() -> None:
    survivors = frozenset({0, 1, *range(3, 12)})
    assert set(too_small(small_plan(min_survivors=3), survivors)) == {(0,)}
    assert not list(too_small(small_plan(min_survivors=3, design="secagg"), survivors))
    strict = small_plan(min_survivors=2, min_block_survivors=6)
    few = list(too_small(strict, survivors))
    assert {len(block) for block in few} == {2}
    with pytest.raises(TooFewSurvivorsError, match=re.escape(f"{list(few[0])} have fewer than 6 survivors")):
        check_admissible(strict, survivors)
    for plan in (small_plan(min_survivors=3), small_plan(min_survivors=3, min_block_survivors=6)):
        with pytest.raises(TooFewSurvivorsError, match="subgroup 0 has fewer than 3 survivors"):
            check_admissible(plan, survivors)


def test_a_block_needs_its_least_survivors_and_no_more() -> None:
    check_admissible(small_plan(min_survivors=2, min_block_survivors=6), frozenset(range(12)))
    one_block = small_plan(design="secagg", min_block_survivors=3)
    for survivors, enough in (([], True), ([4], False), ([4, 8], False), ([4, 8, 9], True)):
        assert list(too_small(one_block, survivors)) == ([] if enough else list(one_block.guarded_blocks()))


def test_the_server_leaves_out_what_it_must_and_nothing_else() -> None:
    plan = Plan.build([18], [4], 50, value_range=1.0, subgroup_size=3, min_survivors=3, min_robustness=0.3)
    alive = set(range(18)) - {1, 2, 4, 5}
    assert make_admissible(plan, alive) == frozenset(range(6, 18))
    assert make_admissible(plan, set(range(18)) - {1, 2}) == frozenset(range(3, 18))
    with pytest.raises(TooFewSurvivorsError, match="14 users are left, 6 of them in subgroups and blocks with enough"):
        make_admissible(plan, set(range(18)) - {0, 3, 6, 9})
    with pytest.raises(TooFewSurvivorsError, match=r"^3 users are left, the thresholds need 10$"):
        make_admissible(plan, set(range(3)))


def test_sparse_sharing_needs_holders_of_every_dealer() -> None:
    plan = Plan.build(
        [60],
        [4],
        100,
        value_range=1.0,
        subgroup_size=10,
        min_survivors=2,
        sharing="sparse",
        assignment_seed=1,
        dropout=0.05,
    )
    check_admissible(plan, frozenset(range(60)))
    around = set(plan.sharing.holders(7))
    few = set(sorted(around)[: plan.share_threshold - 2])
    survivors = frozenset((set(range(60)) - around) | few)
    assert len(survivors) >= plan.agree_quorum
    with pytest.raises(TooFewSurvivorsError, match="holders of user"):
        check_admissible(plan, survivors)
    with pytest.raises(TooFewSurvivorsError, match="holders of user 7's"):
        make_admissible(plan, survivors, dealers=[7])
    within_reach = [user for user in survivors if survivors.issuperset(plan.sharing.holders(user))][:1]
    assert make_admissible(plan, survivors, dealers=within_reach) == survivors
    assert outcome(plan).survivors == plan.users
    silent = outcome(plan, dict.fromkeys(around - few, "unmask"))
    assert silent.phase is Phase.UNMASK


def test_outcome_says_who_survives_or_why_not() -> None:
    plan = small_plan()
    assert outcome(plan).unwrap() == tuple(range(12))
    late = outcome(plan, {0: "share", 3: Phase.MASK, 6: "unmask"})
    assert late.survivors == (1, 2, *range(4, 12))
    alone = outcome(plan, {0: "share", 1: Phase.MASK})
    assert alone.survivors == (*range(3, 12),), "one left of a subgroup is left out"
    failed = outcome(plan, dict.fromkeys(range(6), "unmask"))
    assert failed.phase is Phase.UNMASK
    assert str(failed.error) == "6 users hold shares of user 0, 7 are needed"
    with pytest.raises(TooFewSurvivorsError):
        failed.unwrap()
    unsigned = outcome(plan, dict.fromkeys(range(5), "agree"))
    assert unsigned.survivors == tuple(range(12))
    assert outcome(plan, dict.fromkeys(range(6), "agree")).phase is Phase.UNMASK, "nobody signs unless told"
    signed = outcome(plan, dict.fromkeys(range(6), "agree"), identities=True)
    assert signed.phase is Phase.AGREE
    assert str(signed.error) == "6 users sign the survivor set, 7 are needed"
    with pytest.raises(UsageError, match="before one of the phases advertise, share, mask, agree, unmask, not 'lunch'"):
        outcome(plan, {0: "lunch"})


def test_robustness_is_worked_out_where_the_quick_bounds_do_not_decide() -> None:
    plan = Plan.build(
        [24], [4], 200, value_range=1.0, subgroup_size=2, min_survivors=2, min_robustness=0.6, dropout=0.0
    )
    lost = frozenset({0, 1})
    assert len(lost) > plan.design.tolerated_losses(0.6)
    check_admissible(plan, frozenset(user for user in range(24) if plan.assignment[user] not in lost))


def test_one_roster_costs_one_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that is told of one lost subgroup worked out the robustness without each of them: 69 took 17 seconds."""
    plan = Plan.build([135], [4], 45, value_range=1.0, design="paper-composite", subgroup_size=3, dropout=0.0)
    searched = []
    run = _CutSearch.run

    def count(self: _CutSearch) -> bool:
        searched.append(self)
        return run(self)

    monkeypatch.setattr(_CutSearch, "run", count)
    check_admissible(plan, frozenset(user for user in range(135) if plan.assignment[user] != 7))
    assert len(searched) == 1


def test_a_quick_bound_that_is_just_what_is_asked_for_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """With eight subgroups the loss of any one costs nothing, and a plan asks for all there is unless told."""
    plan = Plan.build([32], [4], 700, value_range=1.0, subgroup_size=4, min_survivors=2, dropout=0.0)
    assert float(plan.design.robustness_at_least({3})) == plan.min_robustness
    monkeypatch.setattr(Design, "robustness", lambda *_: pytest.fail("the exact value may take seconds"))
    check_admissible(plan, frozenset(user for user in range(32) if plan.assignment[user] != 3))


@pytest.mark.parametrize(("asked", "admissible"), [(4 / 7, False), (3 / 7, True)])
def test_robustness_at_the_very_value_asked_for(asked: float, admissible: bool) -> None:
    """Without subgroups 0, 1 and 3 of eight the quick bound says at most 4/7, and the value is 3/7: a plan that asks
    for 4/7 must not be content with the bound, one that asks for 3/7 must be content with the value."""
    plan = Plan.build(
        [32],
        [4],
        700,
        value_range=1.0,
        subgroup_size=4,
        min_survivors=2,
        min_robustness=asked,
        sharing="complete",
        dropout=0.0,
    )
    left = frozenset(user for user in range(32) if plan.assignment[user] not in {0, 1, 3})
    assert len(plan.subgroups) == 8
    if admissible:
        check_admissible(plan, left)
        return
    with pytest.raises(
        TooFewSurvivorsError, match=r"the inference robustness is only 0.4286, the plan asks for 0.5714"
    ):
        check_admissible(plan, left)


def test_what_the_quick_bound_rules_out_is_told_as_a_bound() -> None:
    plan = Plan.build(
        [32], [4], 700, value_range=1.0, subgroup_size=4, min_survivors=2, sharing="complete", dropout=0.0
    )
    left = frozenset(user for user in range(32) if plan.assignment[user] not in {0, 1, 3})
    with pytest.raises(
        TooFewSurvivorsError, match=r"the inference robustness is at most 0.5714, the plan asks for 0.857"
    ):
        check_admissible(plan, left)


def test_exactly_what_is_asked_for_is_enough() -> None:
    """Where no quick bound decides: without subgroups 0 and 1 of seven the robustness is 4/7, and 4/7 is asked for."""
    plan = Plan.build(
        [28],
        [4],
        700,
        value_range=1.0,
        subgroup_size=4,
        min_survivors=2,
        min_robustness=4 / 7,
        sharing="complete",
        dropout=0.0,
    )
    assert len(plan.subgroups) == 7
    assert plan.design.tolerated_losses(4 / 7) < 2
    check_admissible(plan, frozenset(user for user in range(28) if plan.assignment[user] not in {0, 1}))


def test_the_oracle_says_that_thresholds_were_not_reached() -> None:
    plan = small_plan()
    for dropped, identities in ((dict.fromkeys(range(6), "agree"), True), (dict.fromkeys(range(6), "unmask"), False)):
        found = outcome(plan, dropped, identities=identities)
        assert found.error is not None
        assert found.error.reason == "thresholds"
