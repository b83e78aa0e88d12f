"""Settings of `heterosag train` from files and flags; tests/e2e/test_training.py runs it, with `heterosag report`."""

import dataclasses
import json
from pathlib import Path

import pytest
from command import run_command as run
from records import write_run

from heterosag.training.config import TrainConfig


def test_every_setting_is_a_flag() -> None:
    flags = run("train", "--help").stdout.replace(",", " ").split()
    for setting in dataclasses.fields(TrainConfig):
        named = f"--{setting.name.replace('_', '-')}"
        assert any(flag == named or flag.startswith(f"{named}/") for flag in flags), named


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--resume runs/x --rounds 3", "--resume goes on with a run as it was configured"),
        ("--resume runs/x --out runs/y", "--resume goes on with a run as it was configured"),
        ("nowhere.toml", "cannot read nowhere.toml"),
        ("--plan nowhere.toml", "cannot read nowhere.toml"),
        ("--attackers 2", "leave it out"),
    ],
)
def test_settings_that_are_missing_or_have_no_effect_are_refused(words: str, complaint: str, tmp_path: Path) -> None:
    done = run("train", *words.split(), cwd=tmp_path, expect=2)
    assert complaint in done.stderr
    assert done.stderr.startswith("heterosag: ")
    assert not list(tmp_path.iterdir())


def test_a_report_of_no_run_says_so(tmp_path: Path) -> None:
    done = run("report", str(tmp_path), cwd=tmp_path, expect=2)
    assert "holds no run" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_report_leaves_out_runs_without_a_round_and_names_them(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name, rounds in (("good", 2), ("crashed", 0), ("stopped", 0)):
        write_run(tmp_path / "runs" / name, rounds)
    done = run("report", "runs", "--json", cwd=tmp_path)
    left_out = f"{Path('runs/crashed')}, {Path('runs/stopped')}"
    assert done.stderr == f"heterosag: left out, because no round is recorded: {left_out}\n"
    assert [one["name"] for one in json.loads(done.stdout)["runs"]] == ["good"]
    shown = run("report", "runs", cwd=tmp_path).stdout
    assert "good" in shown
    assert "crashed" not in shown
    assert "crashed" not in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_report_prints_names_and_paths_as_they_are_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    write_run(tmp_path / "[red]one", 1)
    for page in ("[b].html", "page[red].html"):
        shown = run("report", "[red]one", "--out", page, cwd=tmp_path).stdout
        assert "[red]one" in shown
        assert shown.endswith(f"\nreport: {page}\n")
        assert (tmp_path / page).exists()


def test_a_report_of_runs_without_a_round_is_refused_and_names_them(tmp_path: Path) -> None:
    for name in ("crashed", "stopped"):
        write_run(tmp_path / "runs" / name, 0)
    done = run("report", "runs", cwd=tmp_path, expect=2)
    left_out = f"{Path('runs/crashed')}, {Path('runs/stopped')}"
    assert done.stderr == f"heterosag: a report needs runs with at least one round; without any: {left_out}\n"
    assert not (tmp_path / "report.html").exists()


def test_a_run_in_which_no_round_succeeds_ends_with_its_error(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    words = ["train", "--classes", "8", "--levels", "16", "--subgroup-size", "4", "--rounds", "2", "--no-secure"]
    words += ["--learning-rate", "1e38"]
    done = run(*words, "--out", str(tmp_path / "run"), expect=2)
    assert "round 1/2: accuracy 0." in done.stdout
    assert "diverged: lower learning_rate" in done.stdout
    assert "heterosag: no round of the run in " in done.stderr
    assert "diverged: lower learning_rate" in done.stderr
