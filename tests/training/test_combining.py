"""What a round hands over and gets back: a run may combine its updates in another way."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from heterosag.training.combining import Gathered, Summed
from heterosag.training.config import TrainConfig
from heterosag.training.runs import Run


class FirstUserRun(Run):
    """The first user's update, whatever the others send."""

    seen: Gathered

    def combine(self, gathered: Gathered) -> Summed:
        self.seen = gathered
        line = super().combine(gathered).line
        return Summed(vector=gathered.updates[0].astype(np.float64), survivors=(0,), line=line)


def test_a_subclass_steers_the_model_and_ranges_stay_where_nothing_was_aggregated(tmp_path: Path) -> None:
    config = TrainConfig(classes=(8,), levels=(4,), subgroup_size=4, train_samples=80, rounds=1, secure=False)
    run = FirstUserRun(config, tmp_path / "run")
    before, ranges = run.vector.copy(), run._state.range.state_dict()
    run.train()
    assert np.array_equal(run.vector, (before + run.seen.updates[0].astype(np.float64)).astype(np.float32))
    assert run._state.range.state_dict() == ranges
    assert (run.seen.number, set(run.seen.updates), list(run.seen.malicious)) == (1, set(range(8)), [])
