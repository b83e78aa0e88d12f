"""What a user sends beside its vector: the formulas say what the messages are."""

from rounds import World, small_plan

from heterosag.plan import Plan
from heterosag.plan.costs import beside_vector
from heterosag.protocol import messages as wire


def test_sizes_by_formula_are_those_of_the_messages() -> None:
    """Complete and sparse graphs, short and long indices, with and without identities."""
    many = Plan.build([300], [2], 600, value_range=1.0, subgroup_size=30, sharing="sparse", dropout=0.0)
    large = small_plan(dimension=300_000)
    cases = [(small_plan(), False), (small_plan(), True), (large, False), (many, False)]
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
