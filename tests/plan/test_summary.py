"""A plan in JSON types."""

import json

import pytest
from paper_plan import PAPER

from heterosag.errors import UsageError
from heterosag.plan import Plan
from heterosag.plan.notes import WITHOUT_IDENTITIES
from heterosag.plan.summary import summarise


def test_the_summary_is_json_and_complete() -> None:
    summary = json.loads(json.dumps(summarise(Plan.build(**PAPER), dropout=0.2)))
    assert summary["dropout"] == 0.2
    assert summary["leak_probability"]["one"] == pytest.approx(5 * 0.8 * 0.2**4)
    assert summary["subgroups"][1] == {"class": 1, "users": [5, 6, 7, 8, 9]}
    assert summary["segments"][0] == [[0, 1], [2, 4], [3]]
    assert summary["levels"][0] == [2, 8, 10]
    assert summary["bits"][0] == [4, 7, 6]
    without = summarise(Plan.build(**PAPER), identities=True)["notes"]
    assert [note for note in summary["notes"] if note not in without] == [WITHOUT_IDENTITIES]
    assert (summary["clipping_norm"], summary["noise_multiplier"], summary["honest"]) == (None, 0.0, 0)
    with pytest.raises(UsageError, match="dropout rate"):
        summarise(Plan.build(**PAPER), dropout=1.5)


def test_the_summary_of_a_plan_with_noise_says_which() -> None:
    plan = Plan.build([24], [4096], 500, design="secagg", clipping_norm=2.0, noise_multiplier=1.5)
    summary = summarise(plan)
    assert (summary["clipping_norm"], summary["noise_multiplier"]) == (2.0, 1.5)
    assert summary["honest"] == plan.honest > 0
    ((half_width,),) = summary["half_widths"]
    assert half_width == plan.noise_range(plan.segments[0], plan.segments[0].blocks[0].level).block_range != 2.0
