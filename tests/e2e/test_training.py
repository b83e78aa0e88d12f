"""Training runs, end to end, on small settings."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")
pytest.importorskip("safetensors")

from command import run_command as run

from heterosag.errors import UsageError
from heterosag.report.runs import summarise_run
from heterosag.storage.run_log import read_run
from heterosag.training.config import TrainConfig
from heterosag.training.runs import CHECKPOINT, Run

SMALL: dict[str, Any] = {
    "classes": (24, 24),
    "levels": (8, 16),
    "subgroup_size": 4,
    "min_survivors": 2,
    "rounds": 12,
    "local_epochs": 3,
    "learning_rate": 0.5,
    "secure": False,
}


def train(folder: Path, **changes: Any) -> Run:
    run = Run(TrainConfig(**{**SMALL, **changes}), folder)
    run.train()
    return run


def accuracy(folder: Path) -> float:
    return float(read_run(folder).rounds[-1]["accuracy"])


def test_accuracy_rises(tmp_path: Path) -> None:
    train(tmp_path / "run")
    rounds = read_run(tmp_path / "run").rounds
    assert rounds[0]["accuracy"] < 0.6
    assert rounds[-1]["accuracy"] > 0.85
    assert rounds[-1]["loss"] < rounds[0]["loss"]
    assert read_run(tmp_path / "run").end is not None


@pytest.mark.long
@pytest.mark.parametrize(
    ("attack", "attackers", "strength"),
    [
        ("gaussian", 2, None),
        pytest.param("sign-flip", 2, 200.0, marks=pytest.mark.slow),
        pytest.param("label-flip", 2, None, marks=pytest.mark.slow),
    ],
)
def test_the_median_survives_what_breaks_the_mean(
    tmp_path: Path, attack: str, attackers: int, strength: float | None
) -> None:
    """Through the ring: unclipped attackers, the same engine, FedAvg over secagg against the median."""
    hostile: dict[str, Any] = {"attack": attack, "attackers": attackers, "attack_strength": strength}
    train(tmp_path / "median", rule="median", **hostile)
    train(tmp_path / "mean", rule="unchecked_mean", design="secagg", **hostile)
    train(tmp_path / "calm", rule="median")
    assert accuracy(tmp_path / "median") > accuracy(tmp_path / "calm") - 0.06
    assert accuracy(tmp_path / "mean") < accuracy(tmp_path / "median") - 0.2


def test_a_stealthy_attack_runs(tmp_path: Path) -> None:
    train(tmp_path / "run", rule="trimmed_mean", attack="little", attackers=2, rounds=6)
    assert accuracy(tmp_path / "run") > 0.5


@pytest.mark.parametrize("identities", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_secure_and_plain_runs_give_identical_models(tmp_path: Path, identities: bool) -> None:
    options: dict[str, Any] = {
        "rounds": 3,
        "dropout": 0.1,
        "dropout_phases": ("advertise", "share", "mask", "unmask"),
        "attack": "label-flip",
        "attackers": 1,
        "rule": "median",
        "identities": identities,
    }
    plain = train(tmp_path / "plain", **options)
    secure = train(tmp_path / "secure", **{**options, "secure": True, "workers": 2})
    assert np.array_equal(plain.vector, secure.vector)
    measured = read_run(tmp_path / "secure").rounds[-1]
    assert set(measured["sent_bytes"]) == {"advertise", "share", "mask", "unmask", *(["agree"] if identities else [])}
    assert all(seconds > 0 for seconds in measured["user_seconds"].values())


def test_a_resumed_run_is_the_same_run(tmp_path: Path) -> None:
    options: dict[str, Any] = {"rounds": 6, "checkpoint_every": 2, "dropout": 0.1, "rule": "median"}
    whole = train(tmp_path / "whole", **options)

    class StopError(Exception):
        pass

    def stop(line: dict[str, Any]) -> None:
        if line["round"] == 3:
            raise StopError

    stopped = Run(TrainConfig(**{**SMALL, **options}), tmp_path / "part")
    with pytest.raises(StopError):
        stopped.train(stop)
    assert stopped.rounds_done == 3
    resumed = Run.resume(tmp_path / "part")
    assert resumed.rounds_done == 3
    resumed.train()
    assert np.array_equal(resumed.vector, whole.vector)
    keys = ("round", "accuracy", "range", "survivors", "dropped", "clipped_fraction")
    pick = [
        [{key: line[key] for key in keys} for line in read_run(tmp_path / name).rounds] for name in ("whole", "part")
    ]
    assert pick[0] == pick[1]


def test_a_checkpoint_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    train(tmp_path / "run", rounds=1)
    (tmp_path / "run" / CHECKPOINT).write_bytes(b"garbage")
    with pytest.raises(UsageError, match="cannot go on from"):
        Run.resume(tmp_path / "run")


def test_a_run_of_a_version_with_other_settings_is_not_gone_on_with(tmp_path: Path) -> None:
    train(tmp_path / "run", rounds=1)
    record = tmp_path / "run" / "record.jsonl"
    text = record.read_text(encoding="utf-8")
    assert '"train_samples": null' in text
    record.write_text(text.replace('"train_samples": null', '"train_samples": 0'), encoding="utf-8")  # as 0.1.0 has it
    with pytest.raises(UsageError, match=r"holds a run of version .*, which this version cannot go on with"):
        Run.resume(tmp_path / "run")


def test_partial_participation_draws_cohorts(tmp_path: Path) -> None:
    train(tmp_path / "run", participation=0.5, rounds=8)
    rounds = read_run(tmp_path / "run").rounds
    assert {line["participants"] for line in rounds} == {24}
    assert rounds[-1]["accuracy"] > 0.6


def test_rounds_that_fail_are_recorded_and_the_run_goes_on(tmp_path: Path) -> None:
    train(tmp_path / "run", dropout=0.45, rounds=6, min_survivors=3)
    rounds = read_run(tmp_path / "run").rounds
    failed = [line for line in rounds if line["error"] is not None]
    assert failed
    assert all(line["error"]["kind"] == "TooFewSurvivorsError" for line in failed)
    assert len(rounds) == 6


def test_fitting_levels_to_links_lowers_dropout(tmp_path: Path) -> None:
    """Remark 5: with a deadline that the slow class meets only at few levels, equal fine levels lose it."""
    links: dict[str, Any] = {
        "rates": (0.5, 5.0),
        "rate_spread": 0.1,
        "deadline": 0.05,
        "rounds": 2,
        "min_robustness": 0.0,
    }
    train(tmp_path / "fitted", levels=(2, 256), **links)
    train(tmp_path / "equal", levels=(256, 256), **links)
    missed = {name: sum(r["missed_deadline"] for r in read_run(tmp_path / name).rounds) for name in ("fitted", "equal")}
    assert missed["fitted"] < 5 < missed["equal"]


@pytest.mark.slow
def test_the_adaptive_range_follows_the_updates(tmp_path: Path) -> None:
    for first in (0.01, 1.0):
        train(tmp_path / str(first), value_range=first, rounds=30, quantile=0.99)
        rounds = read_run(tmp_path / str(first)).rounds
        assert 0.002 < rounds[-1]["clipped_fraction"] < 0.05
    fixed = train(tmp_path / "fixed", range_rule="fixed", value_range=(-0.1, 0.2), rounds=2)
    assert fixed.rounds_done == 2
    assert {tuple(line["range"]) for line in read_run(tmp_path / "fixed").rounds} == {(-0.1, 0.2)}
    train(tmp_path / "minmax", range_rule="minmax", rounds=2)
    lines = read_run(tmp_path / "minmax").rounds
    assert lines[0]["range"] != lines[1]["range"]
    assert all(line["clipped_fraction"] == 0 for line in lines)


@pytest.mark.slow
def test_malicious_users_do_not_move_the_range_far(tmp_path: Path) -> None:
    train(tmp_path / "calm", rule="median")
    train(tmp_path / "hostile", rule="median", attack="gaussian", attackers=2)
    widths = [read_run(tmp_path / name).rounds[-1]["range"][1] for name in ("calm", "hostile")]
    assert widths[1] < 1.5 * widths[0]


# --- the command ----------------------------------------------------------------------------------------------------

FLAGS = "--classes 12,12 --levels 4,16 --subgroup-size 4 --rounds 3 --no-secure --learning-rate 0.5"


def test_train_and_report_from_the_command_line(tmp_path: Path) -> None:
    out = run("train", *FLAGS.split(), "--out", "a", cwd=tmp_path).stdout
    assert "round 3/3: accuracy" in out
    assert "run: a" in out
    settings = "classes = [12, 12]\nlevels = [4, 16]\nsubgroup_size = 4\nrounds = 9\nsecure = false\n"
    (tmp_path / "config.toml").write_text(settings)
    summary = json.loads(run("train", "config.toml", "--rounds", "2", "--out", "b", "--json", cwd=tmp_path).stdout)
    assert summary["rounds"] == 2
    assert summary["finished"] is True
    assert run("train", *FLAGS.split(), "--out", "c", "--quiet", cwd=tmp_path).stdout == ""
    marked = run("train", *FLAGS.split(), "--rounds", "1", "--out", "[b]d", "--brief", cwd=tmp_path).stdout
    assert marked.endswith("\nrun: [b]d\n")
    shown = run("report", "a", "b", "-o", "page.html", cwd=tmp_path).stdout
    assert "report: page.html" in shown
    assert (tmp_path / "page.html").stat().st_size > 10_000
    both = json.loads(run("report", "a", "b", "--json", cwd=tmp_path).stdout)
    assert [entry["name"] for entry in both["runs"]] == ["a", "b"]
    assert both["runs"][0] == summarise_run(read_run(tmp_path / "a"))


def test_mistakes_of_the_command_line(tmp_path: Path) -> None:
    run("train", *FLAGS.split(), "--out", "a", cwd=tmp_path)
    for words, complaint in (
        ([*FLAGS.split(), "--out", "a"], "holds a run already"),
        (["--resume", "a", "--rounds", "9"], "give no other settings"),
        (["--resume", "nowhere"], "holds no run"),
        (["missing.toml"], "cannot read missing.toml"),
        (["--data", "imagenet", "--out", "x"], "no data set is called"),
        (["--attack", "laser"], "is not one of 'none'"),
    ):
        done = run("train", *words, cwd=tmp_path, expect=2)
        assert complaint in done.stderr
        assert "Traceback" not in done.stderr
    assert "holds no run" in run("report", "nowhere", cwd=tmp_path, expect=2).stderr


def _as_on_a_terminal() -> None:
    """A shell without job control has its background jobs, and all they start, ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.slow
def test_an_interrupt_is_clean_and_the_run_goes_on(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "heterosag", "train", *FLAGS.split(), "--rounds", "400", "--out", "a"]
    process = subprocess.Popen(
        words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ},
        preexec_fn=_as_on_a_terminal,
    )  # fmt: skip
    record = tmp_path / "a" / "record.jsonl"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (record.exists() and record.read_text().count("\n") > 3):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "go on with: heterosag train --resume a" in stderr
    assert "Traceback" not in stderr
    done = len(read_run(tmp_path / "a").rounds)
    assert 3 <= done < 400
    again = Run.resume(tmp_path / "a")
    assert again.rounds_done in (done - 1, done)  # the signal may come between a round's line and its checkpoint
    again.close()
    assert len(read_run(tmp_path / "a").rounds) == again.rounds_done


def test_an_edited_configuration_is_not_passed_over(tmp_path: Path) -> None:
    words = ("train", "--rounds", "1", "--no-secure", "--out", "runs/a")
    run(*words, cwd=tmp_path)
    config = tmp_path / "runs" / "a" / "config.toml"
    config.write_text(config.read_text(encoding="utf-8").replace("seed = 0", "seed = 1"), encoding="utf-8")
    assert "is not what this run began with" in run("train", "--resume", "runs/a", cwd=tmp_path, expect=2).stderr
