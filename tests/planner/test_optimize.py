"""The planner's proposals: requirements met, more time never worse, clashes named."""

from typing import Any

import numpy as np
import pytest
from cases import each, examples
from hypothesis import example, given
from hypothesis import strategies as st

from heterosag.errors import InfeasibleError
from heterosag.plan import Plan
from heterosag.planner import Proposal, Requirements, best, optimize, trade_off
from heterosag.planner.search import THRIFT, sizes_for

FIVE = tuple(rate for rate in (0.5, 1.0, 2.0, 4.0, 8.0) for _ in range(5))


def requirements(**changes: Any) -> Requirements:
    return Requirements(**{"rates": FIVE, "dimension": 79510, "deadline": 1.0, **changes})


def check(proposal: Proposal, given_: Requirements) -> None:
    plan = proposal.plan
    rates = [given_.rates[user] for user in proposal.order]
    assert rates == sorted(given_.rates)
    assert plan.users == proposal.order
    sizes = plan.vector_sizes()
    for place, user in enumerate(plan.users):
        bits = 8 * sizes[plan.subgroup_of(user)]
        assert bits <= given_.budget(rates[place])
    assert plan.failure_probability() <= given_.failure
    assert plan.byzantine_tolerance() >= given_.attackers
    assert plan.min_survivors == given_.min_survivors
    assert len(plan.classes) <= given_.most_classes
    assert proposal.lower_bound <= proposal.error == plan.error_bound()
    if given_.deadline is not None:
        assert max(proposal.seconds) <= given_.deadline
    assert all(relaxation.error < proposal.error for relaxation in proposal.relaxing)


def test_the_papers_plan_is_beaten_at_no_more_time_for_any_class() -> None:
    """Its own uploads as budgets: each class sends no more than with (2, 6, 8, 10, 12), and the error is less."""
    theirs = Plan.build([5] * 5, [2, 6, 8, 10, 12], 79510, value_range=1.0, subgroup_size=5)
    sent = [8 * size for size in theirs.vector_sizes()]
    rates = tuple(sent[group] / 1e6 for group in range(5) for _ in range(5))
    asked = requirements(rates=rates, failure=theirs.failure_probability())
    ours = best(asked)
    check(ours, asked)
    assert ours.error < theirs.error_bound()


@examples(40)
@given(
    st.lists(st.floats(0.2, 20.0), min_size=12, max_size=60),
    st.integers(1000, 200_000),
    st.floats(0.5, 20.0),
    st.sampled_from([0.0, 0.05, 0.2]),
    st.sampled_from([2, 3]),
    st.integers(0, 2),
    st.sampled_from([1, 7]),
)
@example([1.0] * 21 + [0.359375], 28_874, 2.25, 0.2, 3, 0, 1)  # the bound is met: it and the error differ by rounding
def test_whatever_is_asked_for_is_met_or_refused(
    rates: list[float], dimension: int, deadline: float, dropout: float, min_survivors: int, attackers: int, weight: int
) -> None:
    asked = Requirements(
        rates=tuple(rates), dimension=dimension, deadline=deadline, dropout=dropout,
        min_survivors=min_survivors, attackers=attackers, max_weight=weight,
    )  # fmt: skip
    try:
        found = best(asked)
    except InfeasibleError as error:
        check_clash(error)
        return
    check(found, asked)


def check_clash(error: InfeasibleError) -> None:
    assert len(set(error.contradiction)) == 2
    assert error.nearest is None or isinstance(error.nearest, Proposal)


@pytest.mark.long
@examples(10)
@given(st.lists(st.floats(0.2, 10.0), min_size=12, max_size=40), st.floats(0.8, 5.0), st.floats(1.0, 3.0))
def test_more_time_never_gives_more_error(rates: list[float], deadline: float, more: float) -> None:
    asked = Requirements(rates=tuple(rates), dimension=20_000, deadline=deadline, dropout=0.0, min_survivors=2)
    (_, tight), (_, loose) = trade_off(asked, [deadline, deadline * more])
    if tight is not None:
        assert loose is not None
        assert loose <= tight * (1 + THRIFT)


@pytest.mark.slow
def test_ten_thousand_users_of_all_speeds() -> None:
    rng = np.random.default_rng(0)
    asked = Requirements(rates=tuple(rng.lognormal(1.0, 0.5, 10_000)), dimension=1_000_000, deadline=30.0, attackers=5)
    found = best(asked)
    check(found, asked)
    assert found.error < 10 * found.lower_bound
    assert len(found.plan.classes) > 1


def test_corrupt_users_take_larger_subgroups() -> None:
    honest = best(requirements(rates=(2.0,) * 400, deadline=0.4))
    careful = best(requirements(rates=(2.0,) * 400, deadline=0.4, corrupt=0.25))
    assert careful.plan.subgroup_size > honest.plan.subgroup_size
    assert careful.error > honest.error
    assert careful.plan.colluders == 100
    assert careful.plan.agree_quorum == 251
    assert any(relaxation.what == "half the corrupt users" for relaxation in careful.relaxing)


def test_bits_instead_of_a_deadline() -> None:
    asked = requirements(deadline=None, bits=400_000)
    found = best(asked)
    check(found, asked)
    assert max(found.bytes) * 8 <= 400_000
    assert found.binding == "a quarter more bits"


def test_a_range_is_a_half_width_or_a_pair() -> None:
    given: dict[str, Any] = {"rates": (1.0,) * 12 + (4.0,) * 12, "dimension": 1000, "deadline": 0.02}
    half, pair = (best(Requirements(**given, value_range=one)) for one in (0.5, (-0.5, 0.5)))
    assert (half.plan, half.error) == (pair.plan, pair.error)


def test_levels_fill_their_rings() -> None:
    plan = best(requirements()).plan
    for segment in plan.segments:
        for block in segment.blocks:
            assert block.level == ((1 << block.bits) - 1) // block.users + 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"deadline": 0.01}, ("deadline of 0.01 s", "slowest upload")),
        ({"deadline": None, "bits": 1000}, ("1000 bits", "two levels")),
        ({"attackers": 9}, ("9 attackers", "dropout")),
        ({"corrupt": 0.3}, ("30% corrupt", "only 25 users")),
        ({"rates": (1.0,) * 6, "dropout": 0.45}, ("45% dropout", "min_survivors")),
    ],
)
def test_clashes_are_named_with_the_nearest_plan(changes: dict[str, Any], words: tuple[str, str]) -> None:
    with pytest.raises(InfeasibleError, match="contradict") as caught:
        best(requirements(**changes))
    for word, found in zip(words, caught.value.contradiction, strict=True):
        assert word in found
    assert caught.value.nearest is not None
    assert caught.value.nearest.error > 0


def test_attackers_beyond_all_designs_are_refused_without_trying_every_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each number takes a search through all subgroup sizes; the median of 128 subgroups tolerates 31."""
    asked = requirements(rates=(1.0,) * 2000, attackers=1999, deadline=100.0)
    tried: list[int] = []

    def sizes(less: Requirements) -> list[int]:
        tried.append(less.attackers)
        return sizes_for(less)

    monkeypatch.setattr(optimize, "sizes_for", sizes)
    with pytest.raises(InfeasibleError, match="1999 attackers"):
        best(asked)
    assert len(tried) < 40


@each(
    "changes, words",
    [
        ({"rates": (1e-9,) * 25, "dimension": 10**12}, "the slowest upload of 1e-09 Mb/s"),
        ({"deadline": None, "bits": 1000, "dimension": 2**63 - 1}, "two levels for everybody"),
    ],
)
def test_where_no_limit_is_long_enough_there_is_no_nearest_plan(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InfeasibleError, match=f"{words} .* an update of fewer elements") as caught:
        best(requirements(**changes))
    assert caught.value.nearest is None


@each("limits", [{"deadline": 1e9}, {"deadline": None, "bits": 2**63 - 1}])
def test_no_more_time_is_proposed_than_there_may_be(limits: dict[str, Any]) -> None:
    assert not [one for one in best(requirements(**limits)).relaxing if "quarter" in one.what]


def test_the_trade_off_says_where_nothing_is_possible() -> None:
    found = trade_off(requirements(), [0.01, 1.0, 2.0])
    assert found[0] == (0.01, None)
    assert found[1][1] > found[2][1]  # type: ignore[operator]
