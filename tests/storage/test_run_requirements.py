"""What a run's record says of its users, as requirements."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from heterosag.errors import UsageError
from heterosag.storage.run_log import RunRecord
from heterosag.storage.run_requirements import learn_requirements

PLAN = {"dimension": 1000, "min_survivors": 2, "value_range": [-0.5, 0.5], "max_weight": 3, "failure_probability": 0.02}


def record(*lines: dict[str, Any]) -> RunRecord:
    return RunRecord(folder=Path("run"), config={"classes": [4, 4]}, plan=PLAN, rounds=lines, end=None)


def line(seconds: list[float], **changes: Any) -> dict[str, Any]:
    return {
        "error": None, "upload_seconds": seconds, "sent_bytes": {"keys": [125_000, 125_000], "vector": [0, 125_000]},
        "dropped": {"share": 1, "mask": 1}, "participants": 8, **changes,
    }  # fmt: skip


def test_rates_deadline_and_dropout_are_those_of_the_rounds() -> None:
    found = learn_requirements(record(line([1.0, 0.5]), line([2.0, 0.5]), line([4.0, 0.5])))
    assert found.rates == (0.5,) * 4 + (4.0,) * 4, "a megabit over the median of 1, 2 and 4 s, two over half a second"
    assert found.deadline == 2.0
    assert found.dropout == 0.25
    assert (found.dimension, found.min_survivors, found.max_weight, found.failure) == (1000, 2, 3, 0.02)
    assert found.value_range == (-0.5, 0.5)
    changed = learn_requirements(record(line([1.0, 0.5])), bits=9000, attackers=1)
    assert (changed.deadline, changed.bits, changed.attackers) == (None, 9000, 1)


def test_a_record_that_tells_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="no uploads to learn rates from"):
        learn_requirements(record(line([1.0, 1.0], error="too few survivors"), line([0.0, 0.0])))
    with pytest.raises(UsageError, match="nobody of class 1 survived"):
        learn_requirements(record(line([1.0, 0.0])))
    for name in ("dropped", "participants", "upload_seconds", "sent_bytes"):
        lacking = {key: value for key, value in line([1.0, 0.5]).items() if key != name}
        with pytest.raises(UsageError, match=f"round 1 does not say {name}"):
            learn_requirements(record(lacking))
    with pytest.raises(UsageError, match="its plan does not say max_weight"):
        learn_requirements(replace(record(), plan={name: PLAN[name] for name in PLAN if name != "max_weight"}))
