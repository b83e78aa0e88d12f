"""Options of a grid that cannot work are refused when it is made, by name."""

from typing import Any

import numpy as np
import pytest
from flower_nodes import LocalGrid

from heterosag.aggregation.rules import RULES, trimmed_mean
from heterosag.errors import PlanError, UsageError
from heterosag.flower import Privacy, SecureGrid


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"levels": 16}, "levels"),
        ({"levels": []}, "levels"),
        ({"levels": [1]}, "levels"),
        ({"levels": [16.0]}, "levels"),
        ({"max_weight": 0}, "max_weight"),
        ({"max_weight": True}, "max_weight"),
        ({"weight_unit": 0}, "weight_unit"),
        ({"hide_sets_below": -1}, "hide_sets_below"),
        ({"stop_after": -1}, "stop_after"),
        ({"stop_after": None}, "stop_after"),
        ({"value_range": 0}, "value_range"),
        ({"adapt_range": False}, "value_range"),
        ({"weighted_by": ""}, "weighted_by"),
        ({"metrics": "loss"}, "metrics"),
        ({"metrics": [1]}, "metrics"),
        ({"exclude": "*.bias"}, "exclude"),
        ({"tied": ["a", "b"]}, "tied"),
        ({"tied": {"a": 1}}, "tied"),
        ({"assignment": "drawn"}, "assignment"),
        ({"directory": {"7": b"short"}}, "directory"),
        ({"directory": {"seven": bytes(32)}}, "directory"),
        ({"options": {"subgroupsize": 3}}, "options"),
    ],
)
def test_an_option_that_cannot_work_is_named(options: dict[str, Any], named: str) -> None:
    with pytest.raises(PlanError) as refusal:
        SecureGrid(LocalGrid([]), **options)
    assert refusal.value.field == named


@pytest.mark.parametrize(
    ("name", "value", "instead"),
    [
        ("noise_multiplier", 4.0, "privacy=Privacy("),
        ("clipping_norm", 1.0, "privacy=Privacy(clipping_norm="),
        ("adaptive_clip", True, "privacy=Privacy(adaptive_clip="),
        ("honest", 5, "min_block_survivors"),
        ("rates", [1.0], "rate_limits"),
        ("deadline", 2.0, "timeouts"),
        ("value_range", 1.0, "arguments of the grid itself"),
    ],
)
def test_what_the_grid_decides_is_no_option(name: str, value: Any, instead: str) -> None:
    for privacy in (None, Privacy(clipping_norm=1.0, target_epsilon=8.0, rounds=2)):
        with pytest.raises(PlanError, match=name) as refusal:
            SecureGrid(LocalGrid([]), options={name: value}, privacy=privacy)
        assert refusal.value.field == "options"
        assert instead in str(refusal.value)


@pytest.mark.parametrize("timeouts", [0, -1.0, True, "soon", {"mask": 0}, {"masks": 3.0}])
def test_timeouts_are_seconds_of_stages(timeouts: Any) -> None:
    with pytest.raises(UsageError, match="timeouts are"):
        SecureGrid(LocalGrid([]), timeouts=timeouts)


@pytest.mark.parametrize("rule", ["mode", None, RULES["median"], trimmed_mean(0.4)])
def test_a_rule_is_one_of_the_names(rule: Any) -> None:
    """A rule object could not be written into the run's record."""
    with pytest.raises(UsageError, match=r"rule is one of the names mean, .*median"):
        SecureGrid(LocalGrid([]), rule=rule)


def test_what_can_work_is_taken() -> None:
    SecureGrid(
        LocalGrid([]), levels=(4, 16), timeouts={"mask": 3}, metrics=("loss",), directory={"7": bytes(32)}, stop_after=0
    )
    SecureGrid(LocalGrid([]), timeouts=2.5)
    SecureGrid(LocalGrid([]), levels=list(np.array([4, 16])), max_weight=np.int64(8))
