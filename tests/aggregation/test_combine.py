"""Block sums to a result: blocks that honest users cannot have made are left out or raised."""

from dataclasses import replace

import numpy as np
import pytest

from heterosag.aggregation.combine import check_rule, combine
from heterosag.aggregation.rules import RULES, Rule, find_rule
from heterosag.errors import FaultyBlockError, UsageError
from heterosag.plan import CohortPlan, Plan
from heterosag.protocol import Decoded, DecodedBlock
from heterosag.protocol.blocks import find_fault, find_metric_fault, join_blocks
from heterosag.protocol.cells import CellLanes
from heterosag.vector.ring import lane_dtype

PLAN = Plan.build(
    [18], [4], 5, value_range=1.0, ranges="single", rotate=False, subgroup_size=3, min_survivors=2, max_weight=7
)


def decoded(**tampering: int) -> Decoded:
    """Everybody sent weight 2 of 7 and level 1 of 4 everywhere, so that the mean is 7/2 of -1/3; `tampering` changes
    the first block of the first segment."""
    segments = []
    for at, segment in enumerate(PLAN.segments):
        blocks = []
        for place, block in enumerate(segment.blocks):
            values = {"count": 6, "weight": 12, "clipped": 0, "element": 6}
            if (at, place) == (0, 0):
                values |= tampering
            elements = np.full(segment.size, values.pop("element"), np.uint8)
            fault = find_fault(PLAN, block, 6, elements, values)
            blocks.append(DecodedBlock(block=block, survivors=6, elements=elements, auxiliary=values, fault=fault))
        segments.append(tuple(blocks))
    return Decoded(survivors=tuple(range(18)), segments=tuple(segments), metrics=None)


@pytest.mark.parametrize(
    ("tampering", "fault"),
    [
        ({"count": 7}, "constant lane says 7 users, 6 survived"),
        ({"count": 2**63}, "constant lane"),
        ({"weight": 5}, "total weight of 5 from 6 users"),
        ({"weight": 43}, "total weight of 43 from 6 users"),
        ({"element": 19}, "beyond what so many users can make"),
        ({"clipped": 7}, "more clipped elements"),
    ],
)
def test_impossible_blocks_are_left_out_by_robust_rules_and_raised_by_the_mean(
    tampering: dict[str, int], fault: str
) -> None:
    for rule in ("median", "trimmed_mean"):
        found = combine(PLAN, decoded(**tampering), RULES[rule])
        assert [(b.segment, b.subgroups) for b in found.faulty_blocks] == [(0, PLAN.segments[0].blocks[0].subgroups)]
        assert fault in (found.faulty_blocks[0].fault or "")
        assert np.allclose(found.vector, -7 / 6)
    with pytest.raises(FaultyBlockError, match=fault) as refusal:
        combine(PLAN, decoded(**tampering), RULES["mean"])
    assert refusal.value.blocks == ((0, PLAN.segments[0].blocks[0].subgroups),)


def spoiled(*places: int, faulty: tuple[int, ...] = ()) -> Decoded:
    """Of the first segment these blocks have masks that could not be removed, and these users are proven faulty."""
    found = decoded()
    first = tuple(
        replace(block, fault="too few shares", spoiled=True) if place in places else block
        for place, block in enumerate(found.segments[0])
    )
    return replace(found, segments=(first, *found.segments[1:]), faulty=faulty)


def member(place: int) -> int:
    """A user of a block of the first segment."""
    subgroup = PLAN.subgroups[PLAN.segments[0].blocks[place].subgroups[0]]
    return next(user for user in PLAN.users if PLAN.index(user) in subgroup.members)


def test_robust_rules_leave_out_the_blocks_of_a_user_who_is_proven_faulty() -> None:
    """A holder of shares who spoils the blocks of others must not be left to decide."""
    liable = spoiled(1, faulty=(member(0),))
    found = combine(PLAN, liable, RULES["median"])
    assert {block.subgroups for block in found.faulty_blocks if block.segment == 0} == {
        PLAN.segments[0].blocks[place].subgroups for place in (0, 1)
    }
    assert "false shares" in (found.faulty_blocks[0].fault or "")
    assert len(found.faulty_blocks) == 2 + 4, "and one in every other segment"
    for rule in ("mean", "median"):
        found = combine(PLAN, replace(decoded(), faulty=(member(0),)), RULES[rule])
        assert not found.faulty_blocks, "whose shares were not needed"
    rest = tuple(user for user in PLAN.users if user != member(0))
    gone = replace(decoded(), faulty=(member(0),), survivors=rest)
    assert not combine(PLAN, gone, RULES["median"]).faulty_blocks, "who did not survive is in no sum"


@pytest.mark.parametrize("rule", ["median", "trimmed_mean"])
def test_rules_raise_where_the_blocks_left_could_not_outvote_a_malicious_user(rule: str) -> None:
    """Nobody is proven faulty: whoever spoiled the others may be in what is left."""
    assert PLAN.byzantine_tolerance() == 1
    with pytest.raises(FaultyBlockError, match="sound blocks left in segment 0: 1, too few") as refusal:
        combine(PLAN, spoiled(0, 1), RULES["median"])
    assert len(refusal.value.blocks) == 2, "the sound one is not named"
    found = spoiled(0)
    if RULES[rule].tolerates(3):  # type: ignore[misc]
        with pytest.raises(FaultyBlockError, match="sound blocks left in segment 0: 2, too few"):
            combine(PLAN, found, RULES[rule])
    assert combine(PLAN, replace(found, faulty=(member(0),)), RULES[rule]).faulty_blocks, "its own doing"
    own = Rule(name="own", leaves_out_faulty=True, combine=RULES["median"].combine)
    assert combine(PLAN, found, own).faulty_blocks, "nothing is known of what it tolerates"


def test_the_unchecked_mean_takes_what_comes() -> None:
    for tampering in ({"count": 7}, {"weight": 5}, {"weight": 43}, {"element": 19}):
        found = combine(PLAN, decoded(**tampering), RULES["unchecked_mean"])
        assert len(found.faulty_blocks) == 1
        assert found.vector[1:].tolist() == pytest.approx([-7 / 6] * 4)


def test_possible_extremes_are_not_faulty() -> None:
    for tampering in ({"weight": 42}, {"weight": 6}, {"element": 18}, {"clipped": 6}):
        assert not combine(PLAN, decoded(**tampering), RULES["mean"]).faulty_blocks


def secagg_block(count: int) -> tuple[Plan, DecodedBlock]:
    plan = Plan.build([6], [4], 5, design="secagg", value_range=1.0, subgroup_size=3, metrics=["loss"])
    block, elements, auxiliary = plan.segments[0].blocks[0], np.zeros(5, np.uint8), {"count": count, "clipped": 0}
    fault = find_fault(plan, block, 6, elements, auxiliary)
    return plan, DecodedBlock(block=block, survivors=6, elements=elements, auxiliary=auxiliary, fault=fault)


def test_a_segment_without_a_sound_block_raises() -> None:
    plan, block = secagg_block(count=5)
    bad = Decoded(survivors=tuple(range(6)), segments=((block,),), metrics=None)
    with pytest.raises(FaultyBlockError, match="no sound block is left in segment 0"):
        combine(plan, bad, RULES["median"])


@pytest.mark.parametrize(
    ("auxiliary", "fault"),
    [
        ({"count": 9, "loss": 0}, "constant lane says 9 users, 6 survived"),
        ({"count": 6, "loss": 2**62}, "a metric beyond its limit"),
        ({"count": 6, "loss": 2**63 + 5}, "a metric beyond its limit"),
    ],
)
def test_false_metrics_are_left_out_by_robust_rules_and_raised_by_the_mean(
    auxiliary: dict[str, int], fault: str
) -> None:
    plan, block = secagg_block(count=6)
    found = find_metric_fault(plan, 6, auxiliary)
    metrics = DecodedBlock(
        block=block.block, survivors=6, elements=np.zeros(0, np.uint8), auxiliary=auxiliary, fault=found
    )
    bad = Decoded(survivors=tuple(range(6)), segments=((block,),), metrics=metrics)
    result = combine(plan, bad, RULES["median"])
    assert result.metrics == {}
    assert [(b.segment, b.fault) for b in result.faulty_blocks] == [(1, metrics.fault)]
    assert fault in (metrics.fault or "")
    with pytest.raises(FaultyBlockError, match=fault):
        combine(plan, bad, RULES["mean"])
    assert find_metric_fault(plan, 6, {"count": 6, "loss": 2**64 - 6 * 2**48}) is None


@pytest.mark.parametrize(("bits", "within"), [(0, -1.5), (48, 0.5), (60, 1.0), (96, 2.5), (97, None)])
def test_clip_bits_are_decoded_unless_users_cannot_have_made_their_sum(bits: int, within: float | None) -> None:
    """Six users of 16 trials each."""
    noise = {"clipping_norm": 1.0, "noise_multiplier": 9.0, "min_block_survivors": 6}
    plan = Plan.build([6], [64], 5, design="secagg", subgroup_size=6, adaptive_clip=True, **noise)  # type: ignore[arg-type]
    update, bit = plan.cells(0)
    sums = [
        CellLanes(np.zeros(5, dtype=lane_dtype(update.bits)), np.array([6], dtype=np.uint64)),
        CellLanes(np.array([bits], dtype=lane_dtype(bit.bits)), np.array([6], dtype=np.uint64)),
    ]
    segments, everybody = join_blocks(plan, range(6), {0: sums})
    found = combine(plan, Decoded(survivors=tuple(range(6)), segments=segments, metrics=everybody), RULES["median"])
    assert found.within_norm == (None if within is None else pytest.approx(within))
    assert found.metrics == {}
    assert [block.segment for block in found.faulty_blocks] == ([1] if within is None else [])


def test_a_robust_rule_on_one_block_is_refused() -> None:
    one = Plan.build([8], [4], 30, value_range=0.5, subgroup_size=8)
    several = Plan.build([16], [4], 30, value_range=0.5, subgroup_size=4)
    for name in ("median", "trimmed_mean"):
        check_rule(several, find_rule(name))
        with pytest.raises(UsageError, match=f"the rule '{name}' has no effect on one block"):
            check_rule(one, find_rule(name))
    check_rule(one, find_rule("mean"))
    cohorts = CohortPlan.build([24], [4], 30, cohort_size=8, value_range=0.5, subgroup_size=8)
    check_rule(cohorts, find_rule("median"))
