"""The sharing graph and the finder's known values."""

import math
from itertools import accumulate

import pytest
from cases import each, examples
from hypothesis import given
from hypothesis import strategies as st

from heterosag.errors import PlanError, UsageError
from heterosag.plan import Plan, sharing
from heterosag.plan.checks import MOST_USERS
from heterosag.plan.sharing import complete_graph, find_neighbours, majority, sparse_graph


@each(
    "users, corrupt, dropped, malicious, expected",
    [
        (1000, 0.05, 0.33, False, (228, 115)),
        (1000, 0.05, 0.33, True, (398, 223)),
        (1000, 0.33, 0.33, False, (286, 150)),
        (1000, 0.33, 0.05, False, (78, 60)),
        (100, 0.05, 0.33, False, (68, 35)),
        (1_000_000, 0.05, 0.1, False, (52, 27)),
    ],
)
def test_finder_gives_the_known_values(
    users: int, corrupt: float, dropped: float, malicious: bool, expected: tuple[int, int]
) -> None:
    assert find_neighbours(users, corrupt, dropped, malicious_server=malicious) == expected


def test_finder_says_what_cannot_be() -> None:
    with pytest.raises(UsageError, match="expect fewer of them"):
        find_neighbours(10, 0.4, 0.4)
    with pytest.raises(UsageError, match="no sharing graph for"):
        find_neighbours(100, 0.6, 0.5)


def neighbours_by_trial(users: int, corrupt: float, dropped: float, least: int, malicious_server: bool) -> object:
    """What `find_neighbours` must find, by trying one k after the other with exact tails; None where none does."""

    def ways(marked: int, drawn: int) -> list[int]:
        return [math.comb(marked, i) * math.comb(users - marked, drawn - i) for i in range(drawn + 1)]

    malicious, gone, bad = (math.floor(share * users + 1e-9) for share in (corrupt, dropped, corrupt + dropped))
    for k in range(2, users, 2):
        total = math.comb(users, k)
        tails = list(accumulate(reversed(ways(malicious, k))))  # entry j: at least k - j corrupt
        t1 = k - sum(1 for tail in tails if tail * users << 41 <= total)
        t = max(math.ceil((t1 + k - 1.25) / 2) + 1 if malicious_server else t1 + 1, k // 2 + 1, least)
        connected = users * (users - k - 1) * math.comb(bad, k) << 41 < 2 * total
        if t <= k and connected and sum(ways(users - gone, k)[:t]) * users << 20 < total:
            return k, t
    return None


def found(users: int, corrupt: float, dropped: float, least: int, malicious_server: bool) -> object:
    try:
        return find_neighbours(users, corrupt, dropped, min_threshold=least, malicious_server=malicious_server)
    except UsageError:
        return None


@given(
    st.integers(3, 120),
    st.sampled_from([0, 0.05, 0.1, 0.2, 0.33]) | st.floats(0, 0.99),
    st.sampled_from([0, 0.1, 0.33, 0.4, 0.45, 0.5]) | st.floats(0, 0.6),
    st.integers(1, 120),
    st.booleans(),
)
@examples(60)
def test_finder_finds_what_trying_one_after_the_other_does(
    users: int, corrupt: float, dropped: float, least: int, malicious_server: bool
) -> None:
    if corrupt + dropped < 1:
        wanted = neighbours_by_trial(users, corrupt, dropped, least, malicious_server)
        assert found(users, corrupt, dropped, least, malicious_server) == wanted


@each(
    "users, corrupt, dropped, least, malicious",
    [(100, 0.05, 0.33, 1, False), (120, 0.1, 0.1, 13, True), (90, 0.2, 0.2, 19, False), (60, 0.3, 0.4, 1, False)],
)
def test_what_few_bits_do_not_decide_is_compared_exactly(
    users: int, corrupt: float, dropped: float, least: int, malicious: bool
) -> None:
    wanted = neighbours_by_trial(users, corrupt, dropped, least, malicious)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharing, "_PRECISION", 40)
        assert found(users, corrupt, dropped, least, malicious) == wanted


@each("users", [257, 2000, MOST_USERS])
@each("corrupt", [0, 0.01, 0.05, 0.3, 0.9])
@each("dropped", [0, 0.1, 0.33, 0.45, 0.4999, 0.75])
def test_finder_takes_few_sums_for_any_plan(users: int, corrupt: float, dropped: float) -> None:
    """Everybody builds the plan of a server anew before it is believed, so no plan may take long to refuse."""
    sums = 0
    is_rarer = sharing._is_rarer

    def counted(*asked: int) -> bool:
        nonlocal sums
        sums += 1
        return is_rarer(*asked)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharing, "_is_rarer", counted)
        colluders = int(corrupt * users)
        found(users, max(0.05, colluders / users), dropped, colluders + 1, False)
    assert sums <= 80


def test_a_sparse_threshold_is_above_the_colluders() -> None:
    """Whoever chose the ring's order: no more of them can be neighbours of one user than a secret needs."""
    assert find_neighbours(1000, 0.05, 0.1)[1] < 50
    for users, colluders in ((257, None), (512, None), (1000, None), (300, 40)):
        built = {"subgroup_size": users // 4, "colluders": colluders, "sharing": "sparse", "assignment_seed": 1}
        plan = Plan.build([users], [4], 20, value_range=1.0, **built)
        assert plan.share_threshold > plan.colluders >= 0.05 * users - 1
        assert plan.share_threshold > plan.sharing.neighbours / 2
    with pytest.raises(PlanError, match="sharing graph"):
        Plan.build(
            [300], [4], 20, value_range=1.0, subgroup_size=75, colluders=290, sharing="sparse", assignment_seed=1
        )


def test_complete_graph() -> None:
    graph = complete_graph(5, colluders=1)
    assert graph.complete
    assert graph.holders(2) == (0, 1, 3, 4)
    assert graph.threshold == majority(5, 1) == 4


def test_sparse_graph_is_regular_and_symmetric() -> None:
    order = [3, 0, 4, 1, 5, 2, 6]
    graph = sparse_graph(order, neighbours=4, threshold=3)
    holders = {user: graph.holders(user) for user in range(7)}
    assert all(len(set(held)) == 4 and user not in held for user, held in holders.items())
    assert all(user in holders[other] for user, held in holders.items() for other in held)
    assert holders[3] == (0, 2, 4, 6)


@each("order, neighbours", [([0, 1, 2, 3], 3), ([0, 1, 2], 4), ([0, 0, 1, 2, 3], 2)])
def test_sparse_graph_refuses_nonsense(order: list[int], neighbours: int) -> None:
    with pytest.raises(UsageError, match="even number of neighbours"):
        sparse_graph(order, neighbours=neighbours, threshold=2)


def test_sharing_graph_is_complete_for_few_and_sparse_for_many() -> None:
    assert Plan.build([256], [2], 1000, value_range=1.0, subgroup_size=8).sharing.complete
    plan = Plan.build([1000], [2], 1000, value_range=1.0, subgroup_size=10)
    assert not plan.sharing.complete
    assert 2 < plan.share_threshold < plan.sharing.neighbours < 100
    assert any("neighbours" in note for note in plan.notes)
    assert plan.colluders == 50
    assert plan.agree_quorum == 526
    assert plan.share_threshold > plan.sharing.neighbours / 2
