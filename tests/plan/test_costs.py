"""What a user sends beside its vector: the formulas say what the messages are."""

import pytest
from paper_plan import PAPER
from rounds import World, small_plan

from heterosag.choices import RangesName
from heterosag.plan import Plan, costs
from heterosag.plan.costs import beside_vector
from heterosag.protocol import messages as wire


def test_sizes_by_formula_are_those_of_the_messages() -> None:
    """With and without identities, and of a vector whose length takes more bytes."""
    check_sizes([(small_plan(), False), (small_plan(), True), (small_plan(dimension=300_000), False)])


@pytest.mark.slow
def test_sizes_by_formula_are_those_of_the_messages_of_many() -> None:
    """A sparse graph, and long indices."""
    many = Plan.build([300], [2], 600, value_range=1.0, subgroup_size=30, sharing="sparse", dropout=0.0)
    check_sizes([(many, False)])


def check_sizes(cases: list[tuple[Plan, bool]]) -> None:
    for plan, signed in cases:
        world = World(plan, signed=signed)
        for phase in beside_vector(plan, 0, identities=signed):
            replies = {user: world.answer(phase, user) for user in plan.users}
            for user in {0, 1, *range(127, len(plan.users), 43)}:
                vector = 0
                if phase == "mask":
                    vector = len(wire.decode(wire.MaskedVector, replies[user], plan=plan).vector)
                expected = beside_vector(plan, user, identities=signed)[phase]
                assert len(replies[user]) - vector == expected, (phase, user, signed)
            for user, reply in replies.items():
                world.server.receive(user, reply)
            world.waiting = world.server.close()


def test_a_user_of_96_sends_at_most_three_quarters_of_what_it_sent_in_0_1_0() -> None:
    """Shares and released shares on the complete graph: 170 bytes a holder and 36 a dealer were 206 of both."""
    plan = Plan.build([96], [12], 79_510, value_range=1.0, subgroup_size=8)
    assert plan.sharing.complete
    sent = beside_vector(plan, 0)
    before = (37 + 1 + 3 * 34 + 3 + 95 * 170) + (37 + 1 + 3 + 96 * 36)
    now = sent["share"] + sent["unmask"]
    assert now == 13_847
    assert now <= 0.75 * before


def test_uploads_are_those_of_the_stated_formula() -> None:
    """Claims: 200 rounds cost 60.4 85.9 95.4 95.4 95.4 Mb with ceil."""
    bits = costs.of(Plan.build(**PAPER))
    assert [round(200 * b / 1e6, 1) for b in bits.per_class()] == [60.4, 85.9, 95.4, 95.4, 95.4]
    homogeneous = costs.of(Plan.build(**{**PAPER, "levels": [2] * 5}))
    assert {round(200 * b / 1e6, 1) for b in homogeneous.per_class()} == {60.4}
    unquantized = costs.of(Plan.build(**{**PAPER, "levels": [2**32] * 5}))
    assert {round(200 * b / 1e6, 1) for b in unquantized.per_class()} == {569.3}


def test_expansion_against_plaintext_and_secagg() -> None:
    """Claims: 1.25x instead of 1.625x at 2^16 levels for pair blocks; 4x only in a star segment, 5x otherwise."""
    fine = Plan.build([1024], [2**16], 127, value_range=1.0, subgroup_size=8, sharing="complete")
    assert costs.of(fine).expansion() == (1.25,)
    assert costs.of(fine).against_secagg() == (20 / 26,)
    coarse = Plan.build([1016], [2], 127, value_range=1.0, subgroup_size=8, sharing="complete")
    assert len(coarse.subgroups) == 127
    assert sorted(block.bits for block in coarse.blocks_of(0)) == [4] + [5] * 126
    secagg = Plan.build([1024], [2], 127, value_range=1.0, design="secagg", sharing="complete")
    assert costs.of(secagg).expansion() == (11.0,)


@pytest.mark.parametrize("ranges", ["levels", "single"])
def test_one_sum_that_is_as_precise_has_the_least_levels_that_are(ranges: RangesName) -> None:
    plan = Plan.build([24, 24], [4, 64], 1000, value_range=0.5, subgroup_size=8, ranges=ranges)
    level, bits = costs.match_secagg(plan)

    def build(levels: int) -> Plan:
        return Plan.build([48], [levels], 1000, value_range=0.5, design="secagg", ranges=ranges)

    assert build(level).error_bound() <= plan.error_bound() < build(level - 1).error_bound()
    assert build(level).segments[0].blocks[0].bits == bits
