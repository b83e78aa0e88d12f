"""Users' links: rates around those of their class, deadlines, and bytes by formula where none cross."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")

from heterosag.storage.run_log import read_run
from heterosag.training.config import TrainConfig
from heterosag.training.links import Links
from heterosag.training.runs import Run


def test_rates_are_those_of_the_class_and_spread_around_them() -> None:
    even = Links.of(TrainConfig(classes=(200, 200), rates=(1.0, 4.0), levels=(4, 16)))
    assert [even.rate(user) for user in (0, 199, 200, 399)] == [1.0, 1.0, 4.0, 4.0]
    spread = Links.of(TrainConfig(classes=(200, 200), rates=(1.0, 4.0), levels=(4, 16), rate_spread=0.5))
    logs = np.log([spread.rate(user) / even.rate(user) for user in range(400)])
    assert logs.std() == pytest.approx(0.5, rel=0.2)
    assert abs(logs.mean()) < 0.1


def test_the_plain_engine_counts_the_bytes_that_the_cryptography_sends(tmp_path: Path) -> None:
    lines = {}
    for secure in (True, False):
        config = TrainConfig(
            classes=(8, 8), levels=(4, 16), subgroup_size=4, train_samples=160, rounds=1, local_epochs=1, secure=secure
        )
        Run(config, tmp_path / str(secure)).train()
        (lines[secure],) = read_run(tmp_path / str(secure)).rounds
    assert lines[True]["sent_bytes"] == lines[False]["sent_bytes"]
    assert lines[True]["upload_seconds"] == lines[False]["upload_seconds"]
    assert lines[True]["aggregate_rms"] > 0


def test_a_deadline_is_for_the_masked_vector_alone(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "classes": (12,), "levels": (16,), "rates": (0.1,), "subgroup_size": 4, "train_samples": 120, "rounds": 1,
        "local_epochs": 1, "secure": False,
    }  # fmt: skip
    run = Run(TrainConfig(**settings), tmp_path / "none")
    run.train()
    vector = max(run.plan.vector_sizes()) * 8 / 0.1e6  # type: ignore[union-attr]
    found = {}
    for part in (1.01, 0.9):
        Run(TrainConfig(**settings, deadline=part * vector), tmp_path / str(part)).train()
        (found[part],) = read_run(tmp_path / str(part)).rounds
    assert found[1.01]["upload_seconds"][0] > 1.01 * vector, "all messages take longer than the deadline"
    assert found[1.01]["missed_deadline"] == 0
    assert found[0.9]["missed_deadline"] == 12
