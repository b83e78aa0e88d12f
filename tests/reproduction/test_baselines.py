"""Runs that combine updates in another way: each does what it says, and leaves a record like any run."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from heterosag.errors import TooFewSurvivorsError, UsageError
from heterosag.plan import CohortPlan, Plan
from heterosag.storage.run_log import read_run
from heterosag.training.combining import Gathered
from heterosag.training.config import TrainConfig
from heterosag.training.epochs import Epoch
from heterosag.training.runs import Run
from reproduction import brea
from reproduction.baselines import SCHEMES, BreaRun, FloatRun, NaiveRun, UnfilteredRun, brea_for

SMALL: dict[str, Any] = {
    "classes": (20,),
    "levels": (16,),
    "design": "perfect",
    "subgroup_size": 4,
    "rounds": 2,
    "train_samples": 200,
    "secure": False,
    "rule": "median",
}


def gathered(
    run: Run, *, attackers: int = 0, dropped: dict[Any, Any] | None = None, plan: Plan | CohortPlan | None = None
) -> Gathered:
    rng = np.random.default_rng(1)
    updates = rng.normal(0, 0.01, (20, run.plan.dimension)).astype(np.float32)
    updates[:attackers] *= 1000
    plan = plan or run.plan
    return Gathered(
        number=1,
        epoch=Epoch(run.config, run.plan),
        plan=plan.with_value_range(0.1),
        updates=dict(enumerate(updates)),
        dropped=dropped or {},
        malicious=list(range(attackers)),
    )


def make(kind: type[Run], folder: Path, **changes: Any) -> Run:
    run = kind(TrainConfig(**{**SMALL, **changes}), folder / "run")
    run.close()
    return run


def test_floats_in_one_block_are_the_mean_of_everybody(tmp_path: Path) -> None:
    run = make(FloatRun, tmp_path, design="secagg", rule="unchecked_mean")
    given = gathered(run, dropped={3: "mask"})
    rows = [update for user, update in given.updates.items() if user != 3]
    summed = run.combine(given)
    assert np.allclose(summed.vector, np.mean(rows, axis=0), atol=1e-7)
    assert summed.survivors == tuple(user for user in range(20) if user != 3)


def test_floats_take_the_median_over_the_blocks_of_the_plan(tmp_path: Path) -> None:
    run = make(FloatRun, tmp_path)
    given = gathered(run)
    found = run.combine(given).vector
    for segment in run.plan.segments:
        means = [
            np.mean([given.updates[u] for u in range(20) if run.plan.subgroup_of(u) in block.subgroups], axis=0)
            for block in segment.blocks
        ]
        here = slice(segment.start, segment.stop)
        assert np.allclose(found[here], np.median(means, axis=0)[here], atol=1e-7)


def test_the_ring_without_attackers_is_near_the_floats(tmp_path: Path) -> None:
    one, two = make(Run, tmp_path / "a", levels=(4096,)), make(FloatRun, tmp_path / "b")
    assert np.abs(one.combine(gathered(one)).vector - two.combine(gathered(two)).vector).max() < 1e-4


def test_the_unfiltered_median_keeps_blocks_with_impossible_sums(tmp_path: Path) -> None:
    """With one attacker the filter leaves out its block; without it, it stays among the three and is outvoted."""
    filtered, unfiltered = make(Run, tmp_path / "a"), make(UnfilteredRun, tmp_path / "b")
    given = gathered(filtered, attackers=1)
    one, two = filtered.combine(given), unfiltered.combine(gathered(unfiltered, attackers=1))
    assert one.line["faulty_blocks"] == two.line["faulty_blocks"] > 0
    assert not np.allclose(one.vector, two.vector)
    assert np.abs(two.vector).max() <= 0.1
    quiet = filtered.combine(gathered(filtered)), unfiltered.combine(gathered(unfiltered))
    assert np.array_equal(quiet[0].vector, quiet[1].vector)


def test_the_naive_median_is_that_of_the_users(tmp_path: Path) -> None:
    run = make(NaiveRun, tmp_path)
    given = gathered(run, attackers=3)
    assert np.allclose(run.combine(given).vector, np.median(list(given.updates.values()), axis=0))


def test_brea_selects_and_averages_whom_multi_krum_selects(tmp_path: Path) -> None:
    run = make(BreaRun, tmp_path, train_samples=100)
    given = gathered(run, attackers=2, dropped={7: "mask", 8: "unmask"})
    summed = run.combine(given)
    setting = brea_for(20)
    assert len(summed.survivors) == setting.selected
    assert not {0, 1, 7} & set(summed.survivors)
    mean = np.mean([given.updates[user] for user in summed.survivors], axis=0)
    assert np.abs(summed.vector - mean).max() < 1 / setting.scale
    assert sum(sizes[0] for sizes in summed.line["sent_bytes"].values()) == 8 * (20 * run.plan.dimension + 190)


def test_brea_with_real_shares_leaves_the_same_model(tmp_path: Path) -> None:
    changes = {"attack": "sign-flip", "attackers": 2, "dropout": 0.05}
    for name, secure in (("plain", False), ("secure", True)):
        BreaRun(TrainConfig(**{**SMALL, **changes, "secure": secure}), tmp_path / name).train()
    plain, secure = (read_run(tmp_path / name).rounds for name in ("plain", "secure"))
    assert [line["model"] for line in plain] == [line["model"] for line in secure]
    assert len({line["model"] for line in plain}) == 2
    assert plain[0]["user_seconds"] == {}
    assert set(secure[0]["user_seconds"]) == {"share", "distances", "sum"}


def test_more_dropouts_than_brea_corrects_fail_the_round_not_the_run(tmp_path: Path) -> None:
    run = make(BreaRun, tmp_path, secure=True)
    with pytest.raises(TooFewSurvivorsError, match="needs 13 values"):
        run.combine(gathered(run, dropped=dict.fromkeys(range(9), "agree")))


@pytest.mark.parametrize("scheme", ["float", "unfiltered", "naive", "brea"])
def test_every_baseline_trains_and_resumes(scheme: Any, tmp_path: Path) -> None:
    kind = SCHEMES[scheme]
    config = TrainConfig(**{**SMALL, "checkpoint_every": 1, "train_samples": None, "learning_rate": 0.3})
    kind(config, tmp_path / "whole").train()

    def stop(line: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kind(config, tmp_path / "cut").train(stop)
    kind.resume(tmp_path / "cut").train()
    whole, cut = (read_run(tmp_path / name).rounds for name in ("whole", "cut"))
    assert [line["model"] for line in whole] == [line["model"] for line in cut]
    assert all(line["error"] is None for line in whole)
    assert whole[1]["loss"] < whole[0]["loss"]


@pytest.mark.parametrize("users", [14, 20, 40, 100, 137])
def test_breas_parameters_use_its_bound_up(users: int) -> None:
    setting = brea_for(users)
    assert setting.privacy == users // 3
    with pytest.raises(Exception, match="users, not"):
        brea.Brea(
            users=users,
            privacy=setting.privacy,
            adversaries=setting.adversaries + 1,
            dropouts=setting.dropouts,
            selected=1,
        )
    assert 2 * setting.adversaries + 1 + setting.selected + 2 == users


def test_a_baseline_of_blocks_has_one_plan_for_all_users(tmp_path: Path) -> None:
    run = make(FloatRun, tmp_path)
    cohorts = CohortPlan.build([20], [16], run.plan.dimension, cohort_size=10, subgroup_size=5, value_range=0.1)
    with pytest.raises(UsageError, match="leave cohort out"):
        run.combine(gathered(run, plan=cohorts))
