"""BREA with real shares: plain multi-Krum, bit for bit, up to its bound of dropouts and malicious users."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from heterosag.errors import UsageError
from reproduction import brea_commitments, field
from reproduction.brea import Brea, Step, multi_krum, plain_round, quantize, secure_round
from reproduction.field import PRIME, UndecodableError

AT_BOUND = Brea(users=14, privacy=3, adversaries=2, dropouts=3, selected=7)
assert AT_BOUND.users == 2 * 2 + 1 + max(7 + 2, 3 + 2 * 3)

Vectors = dict[int, np.ndarray]


def vectors(brea: Brea, size: int, *, attackers: int = 0) -> Vectors:
    """Users near each other but for the first few, who do not clip."""
    rng = np.random.default_rng(0)
    centre = rng.normal(0, 0.1, size)
    found = {}
    for user in range(brea.users):
        update = centre + rng.normal(0, 0.05, size) if user >= attackers else rng.normal(0, 5, size)
        found[user] = quantize(brea, update, rng, clip=user >= attackers)
    return found


def expected(brea: Brea, given: Mapping[int, Any], absent: tuple[int, ...] = ()) -> tuple[list[int], list[int]]:
    """Multi-Krum over Python's integers, written once more: selected users, and their sum."""
    rows = {user: [int(value) for value in row] for user, row in given.items() if user not in absent}

    def distance(one: int, other: int) -> int:
        return sum((a - b) ** 2 for a, b in zip(rows[one], rows[other], strict=True))

    left, chosen = sorted(rows), []
    for _ in range(brea.selected):
        count = len(left) - brea.adversaries - 2
        scores = [(sum(sorted(distance(one, other) for other in left if other != one)[:count]), one) for one in left]
        chosen.append(min(scores)[1])
        left.remove(chosen[-1])
    return chosen, [sum(column) for column in zip(*(rows[user] for user in chosen), strict=True)]


@pytest.mark.parametrize("size", [1, 7, 5000])
def test_real_shares_give_plain_multi_krum_bit_for_bit(size: int) -> None:
    given = vectors(AT_BOUND, size, attackers=2)
    chosen, total = expected(AT_BOUND, given)
    for result in (secure_round(AT_BOUND, given), plain_round(AT_BOUND, given)):
        assert list(result.selected) == chosen
        assert result.total.tolist() == total
        assert result.false_holders == ()
    if size > 1:
        assert not set(chosen) & {0, 1}, "the attackers are far from everybody"


DROPOUTS: list[dict[int, Step]] = [
    {},
    {4: "share", 5: "share", 6: "share"},
    {4: "distances", 5: "distances", 6: "distances"},
    {4: "sum", 5: "distances", 6: "share"},
]


@pytest.mark.parametrize("dropped", DROPOUTS)
def test_dropouts_and_malicious_holders_at_the_bound_change_nothing(dropped: dict[int, Step]) -> None:
    given = vectors(AT_BOUND, 60, attackers=2)
    result = secure_round(AT_BOUND, given, dropped=dropped, false_holders=[0, 13])
    chosen, total = expected(AT_BOUND, given, tuple(user for user, step in dropped.items() if step == "share"))
    assert list(result.selected) == chosen
    assert result.total.tolist() == total
    assert result.false_holders == (0, 13)
    plain = plain_round(AT_BOUND, given, dropped=dropped)
    assert plain.selected == result.selected
    assert np.array_equal(plain.distances, result.distances)


def test_beyond_the_bound_the_round_fails_and_says_so() -> None:
    given = vectors(AT_BOUND, 20)
    gone: dict[int, Step] = {4: "distances", 5: "distances", 6: "distances"}
    with pytest.raises(UndecodableError, match="more than 2 of 11 values are false"):
        secure_round(AT_BOUND, given, dropped=gone, false_holders=[0, 1, 13])
    many: dict[int, Step] = dict.fromkeys(range(8), "distances")
    with pytest.raises(UndecodableError, match="needs 7 values, not 6"):
        secure_round(AT_BOUND, given, dropped=many)


@pytest.mark.parametrize(
    "change", [{"users": 13}, {"adversaries": 3}, {"privacy": 4}, {"dropouts": 4}, {"selected": 8}]
)
def test_parameters_beyond_the_bound_are_refused(change: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=r"2A \+ 1 \+ max\(k \+ 2, D \+ 2T\)"):
        replace(AT_BOUND, **change)


@pytest.mark.parametrize("change", [{"privacy": -1}, {"selected": 0}, {"bound": 0.0}, {"scale": 0}])
def test_parameters_without_sense_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="not negative"):
        replace(AT_BOUND, **change)


def test_vectors_that_do_not_fit_are_refused() -> None:
    given = vectors(AT_BOUND, 5)
    with pytest.raises(UsageError, match=r"users \[3\] have no vector"):
        plain_round(AT_BOUND, {user: row for user, row in given.items() if user != 3})
    with pytest.raises(UsageError, match="everybody has dropped out"):
        plain_round(AT_BOUND, {}, dropped=dict.fromkeys(range(14), "share"))
    with pytest.raises(UsageError, match=r"equally long, not \[4, 5\]"):
        secure_round(AT_BOUND, {**given, 2: given[2][:4]})
    with pytest.raises(UsageError, match="beyond the field"):
        replace(AT_BOUND, bound=2.0**21).check_dimension(1000)
    AT_BOUND.check_dimension(79_510)


def test_shares_are_fresh_in_every_round_and_hold_the_vector() -> None:
    """The same vector, dealt twice, has no share in common: its polynomials are drawn anew."""
    from reproduction.brea import _User

    vector = vectors(AT_BOUND, 40)[5]
    one, two = (_User(AT_BOUND, vector).deal(0, 40) for _ in range(2))
    assert not (one == two).any()
    secret, wrong = field.decode_columns(range(1, 15), one, AT_BOUND.privacy)
    assert wrong == ()
    assert np.array_equal(field.to_signed(secret), vector)


def test_rounding_has_no_bias_and_honest_users_clip() -> None:
    rng = np.random.default_rng(0)
    update = np.full(40_000, 0.1003)
    rounded = quantize(AT_BOUND, update, rng)
    assert set(rounded.tolist()) == {102, 103}
    assert rounded.mean() / AT_BOUND.scale == pytest.approx(0.1003, abs=2e-5)
    assert quantize(AT_BOUND, np.array([7.0, -7.0]), rng).tolist() == [512, -512]
    assert quantize(AT_BOUND, np.array([7.0, -7.0, 1e30]), rng, clip=False).tolist() == [7168, -7168, 2**52]


def test_multi_krum_takes_the_nearest_one_after_another() -> None:
    places = [0, 1, 2, 3, 50]
    table = [[(a - b) ** 2 for b in places] for a in places]
    assert multi_krum(table, 1, 1) == [1], "of equal sums the first"
    assert 4 not in multi_krum(table, 1, 4)
    assert sorted(multi_krum(table, 1, 9)) == [0, 1, 2, 3, 4]


def test_bytes_are_those_of_whole_vectors_for_everybody() -> None:
    size = 60
    result = secure_round(AT_BOUND, vectors(AT_BOUND, size), dropped={6: "sum"})
    sent = result.traffic.sent
    assert sent["share"][0] == 13 * size * 8
    assert sent["distances"][0] == 14 * 13 // 2 * 8
    assert sent["sum"][0] == size * 8
    assert 6 not in sent["sum"]
    assert set(result.traffic.user_seconds) == {"share", "distances", "sum"}
    assert set(result.traffic.server_seconds) == {"distances", "sum"}
    assert np.allclose(result.mean(AT_BOUND), result.total / 1024 / 7)


def test_a_vector_outside_the_range_can_look_near() -> None:
    """Nothing in BREA bounds an element: one whose square is small in the field is far away and seems near.

    Where most users have the same value, as a parameter that hardly moves any more has after rounding, a malicious user
    adds 2^31 there. Its square is 2 in the field, so that multi-Krum selects the user, and the sum is off by 2^31.
    """
    given = vectors(AT_BOUND, 50)
    for row in given.values():
        row[7] = 0
    honest = plain_round(AT_BOUND, given)
    nearest = honest.selected[0]
    given[nearest] = given[nearest].copy()
    given[nearest][7] = 2**31
    result = secure_round(AT_BOUND, given)
    assert nearest in result.selected
    assert result.mean(AT_BOUND)[7] > 1e5


# --- commitments --------------------------------------------------------------------------------------------------


def test_the_group_of_the_commitments_has_the_order_of_the_field() -> None:
    modulus = brea_commitments.MODULUS
    assert modulus.bit_length() == 2048 == 8 * brea_commitments.COMMITMENT_SIZE
    assert pow(brea_commitments.GENERATOR, PRIME, modulus) == 1 != brea_commitments.GENERATOR
    odd, twos = modulus - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in (2, 3, 5, 7, 11, 13):  # Miller and Rabin
        values = [pow(base, odd * 2**power, modulus) for power in range(twos)]
        assert values[0] == 1 or modulus - 1 in values


def test_false_shares_do_not_agree_with_commitments() -> None:
    coefficients = field.random_elements(6).reshape(3, 2)
    commitments = brea_commitments.commit(coefficients)
    for point in (1, 9):
        share = field.matmul(field.powers([point], 2), coefficients)[0]
        assert brea_commitments.agrees(point, share, commitments)
        assert not brea_commitments.agrees(point + 1, share, commitments)
        share[1] = (int(share[1]) + 1) % PRIME
        assert not brea_commitments.agrees(point, share, commitments)


def test_what_commitments_cost_is_in_proportion() -> None:
    cost = brea_commitments.measure(6, 1, 1000, elements=1)
    assert cost.sent_bytes == 1000 * 2 * 256
    assert cost.measured_elements == 1
    assert cost.commit_seconds > 0
    assert cost.check_seconds > 0
