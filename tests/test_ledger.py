"""The ledger: against brute force over all sets, as a guard of client and server, and over programs that end."""

import json
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from cases import examples
from hypothesis import given
from hypothesis import strategies as st
from rounds import World, small_plan

from heterosag import CohortPlan, Plan, Simulation, aggregate
from heterosag.errors import ExposedUsersError, UsageError
from heterosag.ledger import LARGEST, History, Ledger, _draw_prime, _is_prime, epoch_of, summarise_ledgers
from heterosag.protocol import ClientPhase


def in_row_space(rows: list[list[int]], wanted: list[int]) -> bool:
    """Plain Gaussian elimination over the rationals: the slow truth."""
    basis: list[list[Fraction]] = []

    def reduce(vector: list[Fraction]) -> list[Fraction]:
        for row in basis:
            lead = next(place for place, value in enumerate(row) if value)
            if vector[lead]:
                factor = vector[lead] / row[lead]
                vector = [a - factor * b for a, b in zip(vector, row, strict=True)]
        return vector

    for row in rows:
        rest = reduce([Fraction(value) for value in row])
        if any(rest):
            basis.append(rest)
    return not any(reduce([Fraction(value) for value in wanted]))


def brute_force(plan: Plan, rounds: list[frozenset[int]], below: int) -> dict[frozenset[int], set[int]]:
    """Every minimal set of fewer than `below` users whose indicator is in a block's row space, with its segments."""
    found: dict[frozenset[int], set[int]] = {}
    for at, segment in enumerate(plan.segments):
        for block in segment.blocks:
            users = [user for user, subgroup in enumerate(plan.assignment) if subgroup in block.subgroups]
            rows = [[int(user in survivors) for user in users] for survivors in rounds]
            shown: list[frozenset[int]] = []
            for size in range(1, below):
                for chosen in combinations(users, size):
                    wanted = frozenset(chosen)
                    if any(part < wanted for part in shown):
                        continue
                    if in_row_space(rows, [int(user in wanted) for user in users]):
                        shown.append(wanted)
            for one in shown:
                found.setdefault(one, set()).add(at)
    return found


PLANS = [
    small_plan(),
    small_plan(design="multigroup"),
    small_plan(design="secagg"),
    Plan.build([10], [4], 12, value_range=1.0, subgroup_size=2, min_survivors=2),
]


@examples(15)
@given(st.sampled_from(PLANS), st.lists(st.frozensets(st.integers(0, 9), min_size=1), min_size=1, max_size=8))
def test_the_shown_sets_are_those_of_brute_force(plan: Plan, gone: list[frozenset[int]]) -> None:
    rounds = [frozenset(range(len(plan.users))) - lost for lost in gone]
    ledger = Ledger(plan)
    for survivors in rounds:
        ledger.note(survivors)
    for below in range(1, LARGEST + 1):
        expected = brute_force(plan, rounds, below)
        found = {frozenset(one.users): set(one.segments) for one in ledger.exposures(below=below)}
        assert found == expected


def test_one_user_missing_once_is_shown() -> None:
    """A block with everybody in one round and without user 5 in the next: the difference is user 5."""
    plan = small_plan(design="secagg")
    ledger = Ledger(plan)
    everyone = frozenset(range(12))
    ledger.note(everyone)
    assert ledger.exposures() == ()
    ledger.note(everyone - {5})
    (shown,) = ledger.exposures()
    assert shown.users == (5,)
    assert shown.segments == (0,)
    summary = ledger.summary()
    assert summary["exposed_users"] == 1
    assert summary["smallest_set_at_most"] == 1
    assert summary["rounds"] == 2


def test_the_same_survivors_again_teach_nothing() -> None:
    ledger = Ledger(small_plan())
    for _ in range(5):
        ledger.note(frozenset(range(12)))
    assert ledger.exposures(below=LARGEST) == ()
    assert ledger.summary()["sums"] == 6
    assert ledger.summary()["smallest_set_at_most"] == 6
    assert ledger.rounds == 1


def dependent_rows(users: int, prime: int) -> list[frozenset[int]]:
    """As many survivor sets as users, of full rank over the rationals, all orthogonal to one vector modulo the prime.

    That vector has the powers of two first, so that every choice among the other users can be made up to zero.
    """
    rng = np.random.default_rng(3)
    low = prime.bit_length()
    others = [int(value) for value in rng.integers(1, prime, size=users - low)]
    another, basis, found = 2**61 - 1, [], []
    for choice in range(1 << len(others)):
        missing = -sum(value for place, value in enumerate(others) if choice >> place & 1) % prime
        bits = missing | choice << low
        row = [bits >> place & 1 for place in range(users)]
        members = frozenset(place for place, bit in enumerate(row) if bit)
        if 2 * len(members) <= users:
            continue
        for lead, other in basis:
            row = [(a - row[lead] * b) % another for a, b in zip(row, other, strict=True)]
        lead = next((place for place, value in enumerate(row) if value), None)
        if lead is not None:  # independent modulo another prime, so independent over the rationals
            inverse = pow(row[lead], -1, another)
            basis.append((lead, [value * inverse % another for value in row]))
            found.append(members)
        if len(found) == users:
            return found
    raise AssertionError("too few choices")


@pytest.mark.long
def test_survivor_sets_that_are_dependent_modulo_a_known_prime_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that knows the ledger's prime learns every user's value while the ledger says that none is exposed."""
    users, known = 46, 2**31 - 1
    plan = Plan.build([users], [4], 10, design="secagg", subgroup_size=users, value_range=1.0)
    chosen = dependent_rows(users, known)

    def everything(prime: int | None) -> tuple[Ledger, History]:
        with monkeypatch.context() as patch:
            if prime is not None:
                patch.setattr("heterosag.ledger._draw_prime", lambda: prime)
            return Ledger(plan, sets_below=4), History(sets_below=4)

    ledger, history = everything(known)
    for survivors in chosen:  # with the prime in the open nothing is refused
        ledger.check(survivors)
        ledger.note(survivors)
        history.check(plan, survivors)
        history.note(plan, survivors)
    assert ledger.exposures(below=4) == ()
    ledger, history = everything(None)
    for survivors in chosen[:-1]:
        ledger.note(survivors)
        history.note(plan, survivors)
    for again in (ledger, Ledger.from_rounds(plan, ledger.to_rounds(), sets_below=4)):
        with pytest.raises(ExposedUsersError):
            again.check(chosen[-1])
        again.note(chosen[-1])
        assert len(again.exposures(below=4)) == users
    for over_epochs in (history, History.from_dict(history.to_dict(), sets_below=4)):
        with pytest.raises(ExposedUsersError):
            over_epochs.check(plan, chosen[-1])


def test_every_ledger_draws_a_prime_of_its_own() -> None:
    small = [number for number in range(9, 3000, 2) if all(number % by for by in range(3, number, 2))]
    assert [number for number in range(9, 3000, 2) if _is_prime(number)] == small
    drawn = [_draw_prime() for _ in range(20)]
    assert len(set(drawn)) > 1
    for prime in drawn:
        assert 2**30 < prime < 2**31
        assert all(prime % by for by in range(3, 46341, 2))


def test_a_lost_subgroup_shows_its_partner_but_nobody_alone() -> None:
    plan = small_plan()
    ledger = Ledger(plan)
    ledger.note(frozenset(range(12)))
    ledger.note(frozenset(user for user in range(12) if plan.assignment[user] != 0))
    assert ledger.exposures(below=3) == ()
    assert {len(one.users) for one in ledger.exposures(below=4)} == {3}


def test_as_a_guard_it_refuses_what_would_newly_show_a_small_set() -> None:
    ledger = Ledger(small_plan(), sets_below=3)
    everyone = frozenset(range(12))
    ledger.check(everyone)
    ledger.note(everyone)
    for lost, words in (({5}, r"\[5\]"), ({4, 5}, r"\[4, 5\]"), ({0, 7}, r"\[0\]")):
        with pytest.raises(ExposedUsersError, match=words) as caught:
            ledger.check(everyone - lost)
        assert set(caught.value.users) <= lost
    assert ledger.rounds == 1
    ledger.note(everyone - {5})
    ledger.check(everyone - {5})  # shown already: nothing new
    off = Ledger(small_plan())
    off.note(everyone)
    off.check(everyone - {5})


def test_a_server_with_a_ledger_ends_the_round_before_it_asks() -> None:
    plan = small_plan(min_robustness=0.0)
    ledger = Ledger(plan, sets_below=2)
    updates = np.zeros((12, plan.dimension))
    for secure in (True, False):
        aggregate(plan, updates, guard=ledger, simulate=Simulation(secure=secure))
        assert ledger.rounds == 1
        with pytest.raises(ExposedUsersError, match=r"\[3\]"):
            aggregate(plan, updates, guard=ledger, simulate=Simulation(dropped={3: "mask"}, secure=secure))


@pytest.mark.parametrize("signed", [False, True])
def test_a_client_with_a_ledger_neither_signs_nor_releases(signed: bool) -> None:
    plan = small_plan()
    ledgers = {user: Ledger(plan, sets_below=2) for user in plan.users}
    world = World(plan, signed=signed)
    world.clients = {user: world.make_client(user, guard=ledgers[user]) for user in plan.users}
    phases = ["advertise", "share", "mask", *(["agree"] if signed else [])]
    world.run(*phases, "unmask")
    assert {ledger.rounds for ledger in ledgers.values()} == {1}
    again = World(plan, signed=signed)
    again.clients = {user: again.make_client(user, guard=ledgers[user]) for user in plan.users}
    again.run("advertise", "share")
    again.run("mask", without=[3])
    for user in again.waiting:
        with pytest.raises(ExposedUsersError):
            again.answer("agree" if signed else "unmask", user)
        assert again.clients[user].phase is ClientPhase.DEAD
    assert {ledger.rounds for ledger in ledgers.values()} == {1}


def test_the_server_notes_a_round_as_soon_as_it_asks() -> None:
    plan = small_plan()
    ledger = Ledger(plan)
    from rounds import ROUND

    from heterosag.protocol import Server

    world = World(plan)
    world.server = Server(plan, ROUND, guard=ledger)
    world.run("advertise", "share", "mask")
    assert ledger.rounds == 1


def test_a_ledger_is_kept_over_programs() -> None:
    plan = small_plan()
    ledger = Ledger(plan)
    ledger.note(frozenset(range(12)))
    ledger.note(frozenset(range(11)))
    again = Ledger.from_rounds(plan, ledger.to_rounds(), sets_below=2)
    assert again.exposures() == ledger.exposures() != ()
    for rounds in ([[12]], [["a"]], [[-1]]):
        with pytest.raises(UsageError, match="roster indices"):
            Ledger.from_rounds(plan, rounds)  # type: ignore[arg-type]


def test_an_epoch_is_who_sits_where_and_codes_what_with_whom() -> None:
    plan = small_plan()
    assert epoch_of(plan) == epoch_of(plan.with_value_range((-3.0, 2.0)))
    same = [small_plan(min_survivors=3), small_plan(levels=[2, 7]), small_plan(min_robustness=0.0)]
    assert {epoch_of(plan), *map(epoch_of, same)} == {epoch_of(plan)}  # cosmetics begin no new ledger
    others = [small_plan(assignment_seed=1), small_plan(dimension=41), small_plan(subgroup_size=6)]
    assert len({epoch_of(plan), *map(epoch_of, others)}) == 4


def test_sizes_that_are_not_searched_are_named() -> None:
    with pytest.raises(UsageError, match="sets_below"):
        Ledger(small_plan(), sets_below=LARGEST + 1)
    with pytest.raises(UsageError, match=r"^below is from 1 to 4, not 5$"):
        Ledger(small_plan()).exposures(below=LARGEST + 1)
    assert Ledger(small_plan()).summary()["smallest_set_at_most"] is None


# --- over epochs ----------------------------------------------------------------------------------------------------


def shuffled(seed: int, size: int = 3) -> Plan:
    return Plan.build([12], [4], 30, value_range=1.0, subgroup_size=size, min_survivors=2,
                      assignment_seed=seed)  # fmt: skip


def test_a_history_agrees_with_the_rank_of_all_sums() -> None:
    """Straight from linear algebra over the rationals, element range by element range."""
    rng = np.random.default_rng(5)
    history = History(sets_below=2)
    known: dict[int, list[list[int]]] = {element: [] for element in range(30)}
    for number in range(14):
        plan = shuffled(number, size=int(rng.choice([3, 4])))
        survivors = frozenset(int(user) for user in rng.choice(12, 11, replace=False))
        sums = {
            element: [
                [int(user in survivors and plan.assignment[user] in block.subgroups) for user in range(12)]
                for block in segment.blocks
            ]
            for segment in plan.segments
            for element in range(segment.start, segment.stop)
        }
        exposed = any(
            is_shown(known[element] + sums[element], user) and not is_shown(known[element], user)
            for element in (0, 7, 15, 29)
            for user in range(12)
        )
        everywhere = any(
            is_shown(known[element] + sums[element], user) and not is_shown(known[element], user)
            for element in range(30)
            for user in range(12)
        )
        assert exposed <= everywhere
        if everywhere:
            with pytest.raises(ExposedUsersError, match=r"A new epoch does not help.* hide_sets_below turns it on"):
                history.check(plan, survivors)
            continue
        history.check(plan, survivors)
        history.note(plan, survivors)
        history = History.from_dict(json.loads(json.dumps(history.to_dict())), sets_below=2)
        for element in range(30):
            known[element] += sums[element]


def is_shown(rows: list[list[int]], user: int) -> bool:
    if not rows:
        return False
    alone = [int(other == user) for other in range(12)]
    return np.linalg.matrix_rank(np.array([*rows, alone])) == np.linalg.matrix_rank(np.array(rows))


def test_a_history_keeps_no_more_sums_than_users_and_learns_new_ones() -> None:
    history = History(sets_below=0)
    for seed in range(40):
        history.note(shuffled(seed), frozenset(range(12)))
    more = Plan.build([4], [4], 30, value_range=1.0, subgroup_size=2, min_survivors=2, users=["a", "b", 3, 7])
    history.note(more, frozenset(range(4)))
    written = history.to_dict()
    assert written["users"] == [*range(12), "a", "b"]
    assert max(len(seen) for _, _, seen in written["ranges"]) <= 14
    assert History.from_dict(written, sets_below=0).to_dict() == written
    with pytest.raises(UsageError, match="over its users"):
        History.from_dict({"users": [1], "ranges": [[0, 3, ["2"]]]}, sets_below=2)
    with pytest.raises(UsageError, match="sets_below"):
        History(sets_below=9)


def test_ledgers_of_cohorts_add_up_and_one_is_itself() -> None:
    whole = CohortPlan.build([24], [4], 30, cohort_size=12, value_range=1.0, subgroup_size=4)
    first, second = (Ledger(plan) for plan in whole.plans)
    assert summarise_ledgers([first]) == first.summary()
    assert summarise_ledgers([first, second])["smallest_set_at_most"] is None
    first.note(frozenset(range(12)))
    first.note(frozenset(range(11)))
    second.note(frozenset(range(12)))
    found = summarise_ledgers([first, second])
    assert found["cohorts"] == [first.summary(), second.summary()]
    assert (found["rounds"], found["exposed_users"], found["smallest_set_at_most"]) == (2, 1, 1)
    for name in ("sums", "segments", "exposed_segments"):
        assert found[name] == first.summary()[name] + second.summary()[name]
