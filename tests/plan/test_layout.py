"""Segments and blocks: their sizes, levels and bits."""

from paper_plan import PAPER

from heterosag.plan import Plan, costs
from heterosag.plan.layout import ranges_between_cuts


def test_level_of_a_block_is_the_slower_classes() -> None:
    plan = Plan.build(**PAPER)
    for segment in plan.segments:
        for block in segment.blocks:
            assert block.level == plan.levels[min(plan.subgroups[g].user_class for g in block.subgroups)]
            assert 2**block.bits > block.users * (block.level - 1) >= 2 ** (block.bits - 1)


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


def test_ranges_are_those_between_neighbouring_cuts() -> None:
    three = Plan.build([9], [4], 12, value_range=1.0, subgroup_size=3, min_survivors=2)
    five = Plan.build([15], [4], 12, value_range=1.0, subgroup_size=3, min_survivors=2)
    found = list(ranges_between_cuts([three.segments, five.segments]))
    assert found[0] == (0, 3, (0, 0))
    assert [stop for _, stop, _ in found] == sorted(
        {segment.stop for plan in (three, five) for segment in plan.segments}
    )
    for start, stop, places in found:
        for plan, at in zip((three, five), places, strict=True):
            assert plan.segments[at].start <= start < stop <= plan.segments[at].stop
    assert list(ranges_between_cuts([])) == []
