"""Runs: who is left out, and what a record says."""

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")

from command import run_command

from heterosag.aggregation.clipping import AdaptiveRange
from heterosag.errors import UsageError
from heterosag.storage.run_log import read_run
from heterosag.training.checkpoints import read_checkpoint, write_checkpoint
from heterosag.training.config import TrainConfig
from heterosag.training.links import Links
from heterosag.training.runs import CHECKPOINT, Run


@pytest.mark.parametrize("range_rule", ["adaptive", "minmax"])
def test_training_that_diverges_is_a_dropout_and_named(range_rule: str, tmp_path: Path) -> None:
    config = TrainConfig(
        classes=(8,), levels=(16,), subgroup_size=4, rounds=2, learning_rate=1e38, local_epochs=3, secure=False,
        range_rule=range_rule,
    )  # fmt: skip
    Run(config, tmp_path / "run").train()
    lines = read_run(tmp_path / "run").rounds
    assert len(lines) == 2
    assert lines[0]["diverged"] > 0
    assert "diverged: lower learning_rate" in lines[0]["error"]["message"]


def test_updates_whose_squares_overflow_are_recorded(tmp_path: Path) -> None:
    """One step of a model that diverges: the updates are numbers, in float32 their squares are not."""
    config = TrainConfig(
        classes=(8,), levels=(16,), subgroup_size=4, rounds=1, learning_rate=1e25, local_epochs=1, batch_size=1000,
        secure=False, range_rule="minmax",
    )  # fmt: skip
    Run(config, tmp_path / "run").train()
    (line,) = read_run(tmp_path / "run").rounds
    assert (line["diverged"], line["error"]) == (0, None)
    assert 1e19 < line["aggregate_error"] < 1e30
    assert 1e19 < line["aggregate_rms"] < 1e30


def test_every_line_of_a_record_fingerprints_the_model(tmp_path: Path) -> None:
    config = TrainConfig(classes=(8,), levels=(4,), subgroup_size=4, rounds=3, secure=False)
    Run(config, tmp_path / "one").train()
    Run(config, tmp_path / "two").train()
    one, two = (read_run(tmp_path / name).rounds for name in ("one", "two"))
    assert [line["model"] for line in one] == [line["model"] for line in two]
    assert len({line["model"] for line in one}) == 3


@pytest.mark.parametrize("rule", ["median", "mean"])
def test_a_user_who_dealt_false_shares_is_left_out_afterwards(
    rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The median goes on without its subgroup, the mean loses one round; the next plan is without it, and a run that
    goes on later knows."""
    from heterosag.crypto.keys import RoundSecrets
    from heterosag.protocol.client import Client, Polynomials

    honest = Client.share

    def share(self: Client, message: bytes, **options: Any) -> bytes:
        if self.user == 30:
            options["polynomials"] = Polynomials.draw(self.plan, RoundSecrets.generate())
        return honest(self, message, **options)

    monkeypatch.setattr(Client, "share", share)
    config = TrainConfig(
        classes=(12, 20), levels=(4, 8), rule=rule, subgroup_size=4, rounds=3, train_samples=300, checkpoint_every=2
    )  # type: ignore[arg-type]

    class StopError(Exception):
        pass

    def stop(line: dict[str, Any]) -> None:
        if line["round"] == 2:
            raise StopError

    with pytest.raises(StopError):
        Run(config, tmp_path / "run").train(stop)
    run = Run.resume(tmp_path / "run")
    run.train()
    assert 30 not in run.plan.users
    first, second, third = read_run(tmp_path / "run").rounds
    assert (first["error"] is None) == (rule == "median")
    assert [line["faulty_users"] for line in (first, second, third)] == [[30], [], []]
    assert [line["participants"] for line in (first, second, third)] == [32, 31, 31]
    assert [line["survivors"] for line in (second, third)] == [31, 31]
    assert third["ledger"]["rounds"] == 1, "the same survivors twice, in an epoch of their own"


def test_a_class_of_faulty_users_only_is_not_planned_for(tmp_path: Path) -> None:
    config = TrainConfig(classes=(1, 12), levels=(4, 8), design="secagg", subgroup_size=13, train_samples=300, rounds=1)
    run = Run(config, tmp_path / "run")
    run._go_on(dataclasses.replace(run._state, faulty=(0,)))
    assert (run.plan.classes, run.plan.levels, run.plan.users) == ((12,), (8,), tuple(range(1, 13)))
    run.train()
    assert read_run(tmp_path / "run").rounds[0]["survivors"] == 12


# --- cohorts --------------------------------------------------------------------------------------------------------

SPLIT: dict[str, Any] = {
    "classes": (36,), "levels": (16,), "subgroup_size": 4, "min_survivors": 2, "rounds": 3, "secure": False,
    "train_samples": 400, "checkpoint_every": 2,
}  # fmt: skip


def test_one_cohort_trains_the_same_model_as_none(tmp_path: Path) -> None:
    options = SPLIT | {"dropout": 0.1}
    vectors = []
    for name, more in (("none", {}), ("one", {"cohort": 36})):
        run = Run(TrainConfig(**options, **more), tmp_path / name)
        run.train()
        vectors.append(run.vector.tobytes())
    assert vectors[0] == vectors[1]
    none, one = (read_run(tmp_path / name).rounds[-1] for name in ("none", "one"))
    assert one["cohort_survivors"] == [none["survivors"]]
    assert none["ledger"] == one["ledger"]
    assert "cohort_survivors" not in none


def test_a_run_of_cohorts_goes_on_as_it_began(tmp_path: Path) -> None:
    """Secure and plain rounds give one model; a resumed run has every cohort's ledger, and is the same run."""
    options = SPLIT | {"cohort": 12, "dropout": 0.05, "rule": "median"}
    whole = Run(TrainConfig(**options | {"secure": True}), tmp_path / "whole")
    whole.train()

    class StopError(Exception):
        pass

    def stop(line: dict[str, Any]) -> None:
        if line["round"] == 2:
            raise StopError

    with pytest.raises(StopError):
        Run(TrainConfig(**options), tmp_path / "part").train(stop)
    resumed = Run.resume(tmp_path / "part")
    resumed.train()
    assert resumed.vector.tobytes() == whole.vector.tobytes()
    first, second = (read_run(tmp_path / name) for name in ("whole", "part"))
    assert first.rounds[-1]["ledger"] == second.rounds[-1]["ledger"]
    assert len(first.rounds[-1]["ledger"]["cohorts"]) == 3
    assert [one["users"] for one in first.plan["cohorts"]] == [12, 12, 12]
    assert sum(first.rounds[0]["cohort_survivors"]) == first.rounds[0]["survivors"]
    assert first.rounds[0]["sent_bytes"]["mask"][0] > 0


def test_a_cohort_that_fails_is_named_and_a_round_fails_with_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(TrainConfig(**SPLIT | {"cohort": 12, "dropout": 0.35, "rounds": 8}), tmp_path / "run")
    run.train()
    lines = read_run(tmp_path / "run").rounds
    failed = [line for line in lines if line["error"] is None and line["failed_cohorts"]]
    assert failed, "some cohort fails at this dropout and seed, and not all of them"
    for line in failed:
        assert {error["kind"] for error in line["failed_cohorts"].values()} == {"TooFewSurvivorsError"}
        survivors = line["cohort_survivors"]
        assert [index for index, count in enumerate(survivors) if not count] == [*map(int, line["failed_cohorts"])]
        assert sum(survivors) == line["survivors"] > 0
    monkeypatch.setattr(Links, "drop_out", lambda _, number, epoch, users: (dict.fromkeys(users[4:], "mask"), 0))
    Run(TrainConfig(**SPLIT | {"cohort": 12, "rounds": 1}), tmp_path / "nobody").train()
    line = read_run(tmp_path / "nobody").rounds[0]
    assert line["error"]["kind"] == "FailedCohortsError"
    assert sorted(line["failed_cohorts"]) == ["0", "1", "2"]


def test_a_malicious_user_in_each_cohort_costs_the_mean_and_not_the_median(tmp_path: Path) -> None:
    hostile = SPLIT | {"cohort": 12, "attack": "gaussian", "attackers": 3, "attack_strength": 200.0, "rounds": 1}
    for rule in ("mean", "median"):
        run = Run(TrainConfig(**hostile, rule=rule), tmp_path / rule)
        assert len({run.plan.plan_of(user).subgroup_of(user) for user in run.attackers}) > 1, "spread over subgroups"
        run.attackers = [int(plan.users[0]) for plan in run.plan.plans]
        run.train()
    mean, median = (read_run(tmp_path / rule).rounds[0] for rule in ("mean", "median"))
    assert mean["error"]["kind"] == "FailedCohortsError"
    assert {error["kind"] for error in mean["failed_cohorts"].values()} == {"FaultyBlockError"}
    assert median["error"] is None
    assert median["faulty_blocks"] > 0


def test_cohorts_with_partial_participation_and_without_faulty_users(tmp_path: Path) -> None:
    run = Run(TrainConfig(**SPLIT | {"cohort": 12, "participation": 0.7, "rounds": 2}), tmp_path / "drawn")
    run.train()
    assert [line["participants"] for line in read_run(tmp_path / "drawn").rounds] == [25, 25]
    run = Run(TrainConfig(**SPLIT | {"cohort": 12}), tmp_path / "left-out")
    run._go_on(dataclasses.replace(run._state, faulty=(0, 5)))
    assert [len(plan.users) for plan in run.plan.plans] == [12, 11, 11]
    assert run.plan.users[:2] == (1, 2)
    run.close()


def test_levels_are_chosen_for_the_model_and_kept_by_who_takes_part(tmp_path: Path) -> None:
    config = TrainConfig(
        classes=(8, 8), subgroup_size=4, participation=0.75, train_samples=160, rounds=1, local_epochs=1, secure=False
    )
    assert config.levels == "auto"
    run = Run(config, tmp_path / "run")
    slow, fast = run.plan.levels
    assert 4 <= slow < fast
    run.train()
    record = read_run(tmp_path / "run")
    assert record.config["levels"] == "auto"
    assert record.plan["class_levels"] == [slow, fast]
    assert record.rounds[0]["error"] is None
    again = Run.resume(tmp_path / "run")
    again.close()
    assert again.plan.levels == (slow, fast)


def test_a_fixed_range_that_clips_much_says_so_in_the_record(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "classes": (8,), "levels": (16,), "subgroup_size": 4, "train_samples": 160, "rounds": 1, "secure": False,
        "range_rule": "fixed",
    }  # fmt: skip
    found = {}
    for half in (0.0005, 5.0):
        Run(TrainConfig(**settings, value_range=half), tmp_path / str(half)).train()
        (line,) = read_run(tmp_path / str(half)).rounds
        found[half] = line["clipping_warning"]
    assert "of elements were clipped" in found[0.0005]
    assert found[5.0] is None


# --- models that a user brings --------------------------------------------------------------------------------------

MYNETS = """
from torch import nn
from torch.nn import functional

def norm():
    return nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))

def faint():
    model = norm()
    nn.init.constant_(model[1].weight, 1e-4)
    return model

def dropout():
    return nn.Sequential(nn.Linear(64, 32), nn.Dropout(0.2), nn.ReLU(), nn.Linear(32, 10))

def wide():
    return nn.Sequential(nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))

def flat():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10))

def few():
    return nn.Linear(64, 9)

def sized(width):
    return nn.Linear(width, 10)

def nothing():
    nn.Linear(64, 10)
"""


@pytest.fixture
def mynets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "mynets.py").write_text(MYNETS)
    monkeypatch.chdir(tmp_path)
    sys.modules.pop("mynets", None)  # another test's, or a page's
    yield tmp_path
    sys.modules.pop("mynets", None)


BROUGHT: dict[str, Any] = {
    "classes": (12,), "levels": (64,), "subgroup_size": 4, "train_samples": 600, "rounds": 8, "secure": False,
    "learning_rate": 0.2,
}  # fmt: skip


@pytest.mark.parametrize(("model", "learning_rate"), [("norm", 0.05), ("dropout", 0.2)])
@pytest.mark.parametrize("range_rule", ["adaptive", pytest.param("quantile", marks=pytest.mark.long)])
def test_ordinary_models_learn_and_are_evaluated(
    model: str, learning_rate: float, range_rule: Any, mynets: Path
) -> None:
    """Dropout draws while users train and not while the model is judged; statistics of batch norms are aggregated.

    The learning rates are such that accuracy rises steadily: at 0.2 batch norms make it jump by twenty points between
    rounds, and last digits, which differ between processors, decide where a round ends.
    """
    steady = BROUGHT | {"rounds": 12, "learning_rate": learning_rate}
    config = TrainConfig(**steady, model=f"mynets:{model}", range_rule=range_rule)
    run = Run(config, mynets / "run")
    run.train()
    lines = read_run(mynets / "run").rounds
    assert lines[-1]["accuracy"] > 0.85
    assert lines[-1]["loss"] < 0.8
    if model == "norm":
        assert run.plan.dimension == 65 * 32 + 2 * 32 + 33 * 10 + 2 * 32
        assert float(run.model[1].running_var.min()) > 0
        assert float(run.model[1].running_mean.abs().max()) > 0.05


@pytest.mark.parametrize(
    "changes",
    [
        {"range_rule": "adaptive"},
        {"range_rule": "quantile"},
        {"range_rule": "minmax"},
        {"design": "secagg", "epsilon": 50.0},
    ],
)
def test_arrays_that_were_positive_stay_so_with_every_range(changes: dict[str, Any], mynets: Path) -> None:
    """The weights of a batch norm that begins with next to nothing: a single round would make some of them negative."""
    config = TrainConfig(**BROUGHT | {"rounds": 2} | changes, model="mynets:faint")
    run = Run(config, mynets / "run")
    first = run.model[1].weight.detach().clone()
    run.train()
    lines = read_run(mynets / "run").rounds
    assert lines[0]["held_positive"] > 0
    assert bool((run.model[1].weight >= first / 17).all())
    assert float(run.model[1].running_var.min()) > 0


@pytest.mark.parametrize("batch_size", [16.0, 49.0, 1.0])
def test_a_batch_of_one_sample_does_not_end_a_run_with_batch_norms(batch_size: float, mynets: Path) -> None:
    """Fifty samples a user: the last batch of 49 has one."""
    config = TrainConfig(**BROUGHT | {"rounds": 1}, model="mynets:norm", batch_size=batch_size, local_epochs=1)
    Run(config, mynets / "run").train()
    (line,) = read_run(mynets / "run").rounds
    assert line["error"] is None
    assert line["aggregate_rms"] > 0


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("wide", "must take 64 inputs"),
        ("flat", "nn.Unflatten"),
        ("few", "must have 10 outputs"),
        ("sized", "without arguments"),
        ("nothing", "must return the model"),
    ],
)
def test_a_model_that_does_not_fit_is_refused_before_there_is_a_folder(model: str, said: str, mynets: Path) -> None:
    with pytest.raises(UsageError, match=said):
        Run(TrainConfig(**BROUGHT, model=f"mynets:{model}"), mynets / "run")
    done = run_command("train", "--model", f"mynets:{model}", "--out", "run", cwd=mynets, expect=2)
    assert done.stderr.startswith("heterosag: ")
    assert "Traceback" not in done.stderr
    assert not (mynets / "run").exists()


def test_a_run_that_goes_on_is_not_resumed_beside_itself(tmp_path: Path) -> None:
    config = TrainConfig(
        classes=(8,), levels=(16,), subgroup_size=4, train_samples=80, rounds=3, local_epochs=1, secure=False,
        checkpoint_every=1,
    )  # fmt: skip
    refused = []

    def resume(line: dict[str, Any]) -> None:
        with pytest.raises(UsageError, match="is being written by another program"):
            Run.resume(tmp_path / "run")
        refused.append(line["round"])

    Run(config, tmp_path / "run").train(resume)
    assert refused == [1, 2, 3]
    assert [line["round"] for line in read_run(tmp_path / "run").rounds] == [1, 2, 3]
    assert read_run(tmp_path / "run").end is not None
    Run.resume(tmp_path / "run").close()


@pytest.mark.parametrize("idle", [{"attackers": 2}, {"alpha": 0.5}, {"clip": 2.0}])
def test_a_run_with_a_setting_that_changes_nothing_goes_on(idle: dict[str, Any], tmp_path: Path) -> None:
    """`config.toml` leaves it out, the record has it."""
    config = TrainConfig(classes=(8,), levels=(16,), subgroup_size=4, train_samples=80, rounds=1, secure=False, **idle)
    Run(config, tmp_path).train()
    Run.resume(tmp_path).close()


def test_a_run_that_cannot_go_on_is_free_for_others(tmp_path: Path) -> None:
    config = TrainConfig(classes=(8,), levels=(16,), subgroup_size=4, train_samples=80, rounds=1, secure=False)
    Run(config, tmp_path / "run").train()
    checkpoint = tmp_path / "run" / CHECKPOINT
    kept = checkpoint.read_bytes()
    checkpoint.write_bytes(kept[:100])
    with pytest.raises(UsageError, match="cannot go on from"):
        Run.resume(tmp_path / "run")
    assert read_run(tmp_path / "run").end is not None, "nothing was cut"
    checkpoint.write_bytes(kept)
    Run.resume(tmp_path / "run").close()


@pytest.mark.parametrize("name", ["config.toml", CHECKPOINT, "privacy"])
def test_nobody_elses_files_are_written_over(name: str, tmp_path: Path) -> None:
    """`heterosag train config.toml --out .` would replace the settings that it was given."""
    config = TrainConfig(classes=(8,), levels=(16,), subgroup_size=4, train_samples=80, rounds=1, secure=False)
    own = tmp_path / name
    own.write_text("# three weeks of work\nrounds = 1\n", encoding="utf-8")
    with pytest.raises(UsageError, match=f"holds {name} already, which this run would write over: choose another"):
        Run(config, tmp_path)
    assert own.read_text(encoding="utf-8").startswith("# three weeks of work")
    assert [path.name for path in tmp_path.iterdir()] == [name]
    own.rename(tmp_path / "before.toml")
    Run(config, tmp_path).train()
    assert read_run(tmp_path).end is not None


def test_a_checkpoint_of_another_run_and_settings_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    settings = TrainConfig(classes=(8,), levels=(16,), subgroup_size=4, train_samples=80, rounds=1, secure=False)
    Run(settings, tmp_path).train()
    checkpoint, config = tmp_path / CHECKPOINT, tmp_path / "config.toml"
    state, ledgers = read_checkpoint(checkpoint)
    (size,) = state.vector.shape
    rests = {name: ledgers[name] for name in ("ledger",)}
    other = AdaptiveRange.start(state.vector, (size - 10, 10))
    for changed, problem in (
        (dataclasses.replace(state, faulty=(3, 8)), r"the run has no users \[8\]"),
        (dataclasses.replace(state, range=other), "a model of other arrays"),
    ):
        write_checkpoint(checkpoint, changed, rests)
        with pytest.raises(UsageError, match=problem):
            Run.resume(tmp_path)
    write_checkpoint(checkpoint, state, rests)
    for data, problem in ((b"\xff", "cannot read"), (b"a = " + b"[" * 100_000, "nests deeper")):
        config.write_bytes(data)
        with pytest.raises(UsageError, match=problem):
            Run.resume(tmp_path)
    config.unlink()
    config.mkdir()
    with pytest.raises(UsageError, match="cannot read"):
        Run.resume(tmp_path)
    config.rmdir()
    Run.resume(tmp_path).close()
