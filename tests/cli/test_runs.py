"""Settings of `heterosag train` from files and flags; tests/e2e/test_training.py runs it, with `heterosag report`."""

import dataclasses
from pathlib import Path

import pytest
from command import run_command as run

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
