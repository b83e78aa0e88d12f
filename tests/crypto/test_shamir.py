"""Shamir's shares: any t give the secret, and what false ones do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cases import each
from hostile import cases, refuses

from heterosag.crypto.field import PRIME, random_element
from heterosag.crypto.shamir import coefficients, combine, random_polynomial, split, split_two
from heterosag.errors import UsageError


@each("threshold, holders", [(1, 1), (2, 3), (5, 9), (13, 25)])
def test_any_t_shares_give_the_secret_and_fewer_do_not(threshold: int, holders: int) -> None:
    secret = random_element()
    places = list(range(1, holders + 1))
    shares = dict(zip(places, split(random_polynomial(secret, threshold), places), strict=True))
    for chosen in (places[:threshold], places[-threshold:], places[::-1][:threshold]):
        assert combine(coefficients(tuple(chosen)), [shares[x] for x in chosen]) == secret
    if threshold > 1:
        short = places[: threshold - 1]
        assert combine(coefficients(tuple(short)), [shares[x] for x in short]) != secret


def test_shares_are_the_polynomial_evaluated() -> None:
    polynomial = [random_element() for _ in range(40)]
    for x in (1, 2, 999, 2**20 - 1):
        expected = sum(c * pow(x, i, PRIME) for i, c in enumerate(polynomial)) % PRIME
        assert split(polynomial, [x]) == [expected]
    other = [PRIME - 1] * 40
    for x in (1, 301, 2**20 - 1):
        assert split_two(polynomial, other, [x]) == [(split(polynomial, [x])[0], split(other, [x])[0])]
        assert split_two(other, polynomial, [x]) == [(split(other, [x])[0], split(polynomial, [x])[0])]


def test_shamir_refuses_nonsense() -> None:
    with pytest.raises(UsageError, match="at least one share"):
        random_polynomial(1, 0)
    with pytest.raises(UsageError, match="field element"):
        random_polynomial(PRIME, 2)
    for x in (0, -1, 2**20):
        with pytest.raises(UsageError, match="taken at"):
            split([1, 2], [x])
    for places in ((1, 1), (0, 1)):
        with pytest.raises(UsageError, match="distinct positive"):
            coefficients(places)


BAD_PLACES = {
    "the same place twice": (1, 1),
    "the same place at both ends": (1, 2, 3, 1),
    "place 0, where the secret is": (0,),
    "place 0 among others": (1, 0, 2),
    "a negative place": (1, -1),
    "all places alike": (7,) * 5,
}


@cases(BAD_PLACES)
def test_bad_places_have_no_coefficients(case: tuple[int, ...]) -> None:
    refuses(UsageError, coefficients, case)


@cases({"0, where the secret is": 0, "-1": -1, "2^20": 1 << 20, "p": PRIME, "p + 1": PRIME + 1, "-p": -PRIME})
def test_no_share_is_taken_at_a_bad_place(case: int) -> None:
    refuses(UsageError, split, [1, 2], [case])
    refuses(UsageError, split, [1, 2], [1, case])
    refuses(UsageError, split_two, [1, 2], [3, 4], [case])


@cases({"0": 0, "-1": -1})
def test_no_secret_is_shared_with_a_threshold_of(case: int) -> None:
    refuses(UsageError, random_polynomial, 1, case)


@cases({"the first is longer": ([1, 2, 3], [4, 5]), "the second is longer": ([1, 2], [3, 4, 5])})
def test_two_polynomials_of_different_degree_are_not_split(case: tuple[list[int], list[int]]) -> None:
    """The constant coefficient, which is the secret, would be the one left out."""
    refuses(ValueError, split_two, *case, [1, 2])


THRESHOLD, PLACES = 4, (1, 2, 3, 5, 8, 13, 1000, (1 << 20) - 1)


EDGE_ELEMENTS = {"0": 0, "1": 1, "p - 1": PRIME - 1, "2^254": 1 << 254}


def shares_of(secret: int) -> dict[int, int]:
    return dict(zip(PLACES, split(random_polynomial(secret, THRESHOLD), PLACES), strict=True))


def joined(shares: dict[int, int]) -> int:
    return combine(coefficients(tuple(shares)), list(shares.values()))


@cases(EDGE_ELEMENTS)
def test_more_shares_than_needed_agree(case: int) -> None:
    shares = shares_of(case)
    for count in range(THRESHOLD, len(PLACES) + 1):
        assert joined({place: shares[place] for place in PLACES[:count]}) == case
        assert joined({place: shares[place] for place in PLACES[::-1][:count]}) == case


ALTERED: dict[str, Callable[[int], int]] = {
    "one more": lambda share: (share + 1) % PRIME,
    "one less": lambda share: (share - 1) % PRIME,
    "one bit": lambda share: (share ^ 1 << 200) % PRIME,
    "negated": lambda share: PRIME - share,
    "zero": lambda share: 0,
    "doubled": lambda share: 2 * share % PRIME,
}


@each("count", [THRESHOLD, len(PLACES)])
@cases(ALTERED)
def test_one_altered_share_changes_the_secret(case: Callable[[int], int], count: int) -> None:
    secret = 987654321
    shares = {place: share for place, share in shares_of(secret).items() if place in PLACES[:count]}
    for place, share in shares.items():
        assert joined({**shares, place: case(share)}) != secret


@cases(EDGE_ELEMENTS)
def test_a_holder_can_shift_the_secret_by_what_it_likes(case: int) -> None:
    """Why a rebuilt secret is compared with what its dealer published: shares alone show no forgery."""
    shares = shares_of(5)
    chosen = {place: shares[place] for place in PLACES[:THRESHOLD]}
    weight = coefficients(tuple(chosen))[0]
    first = PLACES[0]
    chosen[first] = (chosen[first] + (case - 5) * pow(weight, -1, PRIME)) % PRIME
    assert joined(chosen) == case


def test_shares_at_swapped_places_give_another_secret() -> None:
    shares = shares_of(5)
    one, two, three, four = PLACES[:4]
    assert joined({one: shares[two], two: shares[one], three: shares[three], four: shares[four]}) != 5


@cases({"all coefficients 0": [0] * 14, "all p - 1": [PRIME - 1] * 14, "a secret alone": [PRIME - 1]})
def test_polynomials_at_the_edge(case: list[int]) -> None:
    places = [1, 2, (1 << 20) - 1]
    expected = [sum(c * pow(x, i, PRIME) for i, c in enumerate(case)) % PRIME for x in places]
    assert split(case, places) == expected
    assert split_two(case, case[::-1], places)[0][0] == expected[0]
