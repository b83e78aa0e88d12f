"""Rules over block means, and what makes a block faulty."""

import math

import numpy as np
import pytest

from heterosag.aggregation.rules import RULES, Rule, find_rule, trimmed_mean
from heterosag.errors import UsageError

MEANS = [np.array([1.0, 5.0]), np.array([2.0, -100.0]), np.array([3.0, 7.0]), np.array([100.0, 6.0])]


def test_rules() -> None:
    assert RULES["mean"].combine(MEANS, [1, 1, 1, 1]).tolist() == [26.5, -20.5]
    assert RULES["mean"].combine(MEANS[:2], [3, 1]).tolist() == [1.25, -21.25]
    assert RULES["median"].combine(MEANS, [1, 1, 1, 9]).tolist() == [2.5, 5.5]
    assert RULES["trimmed_mean"].combine(MEANS, [1, 1, 1, 9]).tolist() == [2.5, 5.5]
    assert trimmed_mean(0.0).combine(MEANS, [1, 1, 1, 1]).tolist() == [26.5, -20.5]
    assert trimmed_mean(0.1).combine(MEANS[:3], [1, 1, 1]).tolist() == [2.0, 5.0]
    assert RULES["trimmed_mean"].combine(MEANS[:2], [1, 1]).tolist() == [1.5, -47.5]


def test_rules_say_how_many_malicious_blocks_they_tolerate() -> None:
    median, trimmed = RULES["median"].tolerates, RULES["trimmed_mean"].tolerates
    assert median is not None
    assert trimmed is not None
    assert [median(blocks) for blocks in range(1, 10)] == [0, 0, 1, 1, 2, 2, 3, 3, 4]
    assert [trimmed(blocks) for blocks in range(1, 10)] == [0, 0, 1, 1, 1, 1, 1, 2, 2]
    assert RULES["mean"].tolerates is RULES["unchecked_mean"].tolerates is None


@pytest.mark.parametrize("rule", [RULES["median"], RULES["trimmed_mean"], trimmed_mean(0.4)])
def test_so_many_malicious_blocks_are_outvoted_and_one_more_is_not(rule: Rule) -> None:
    assert rule.tolerates is not None
    for blocks in range(1, 16):
        tolerated = rule.tolerates(blocks)
        for malicious in (tolerated, tolerated + 1):
            means = [np.array([1e9])] * malicious + [np.array([1.0])] * (blocks - malicious)
            held = rule.combine(means[:blocks], [1] * blocks)[0] == 1.0
            assert held == (malicious == tolerated), (blocks, malicious)


def test_rules_are_found_by_name_or_given() -> None:
    assert find_rule("median") is RULES["median"]
    mine = Rule(name="first", leaves_out_faulty=True, combine=lambda means, weights: means[0])
    assert find_rule(mine) is mine
    with pytest.raises(UsageError, match="choose one of mean, unchecked_mean, median, trimmed_mean"):
        find_rule("krum")
    for unhashable in ([], {}):
        with pytest.raises(UsageError, match="no rule is called"):
            find_rule(unhashable)  # type: ignore[arg-type]
    for share in (-0.1, 0.5, math.nan, "a", None):
        with pytest.raises(UsageError, match="below one half"):
            trimmed_mean(share)  # type: ignore[arg-type]
