"""A plan as settings of a training run, and the run itself."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")
pytest.importorskip("safetensors")

from command import run_command as run
from command import training_command

from heterosag.errors import UsageError
from heterosag.plan import Plan
from heterosag.storage.run_log import read_run
from heterosag.training.config import TrainConfig
from heterosag.training.epochs import build_plan
from heterosag.training.models import count_parameters
from heterosag.training.plan_settings import check_dimension, settings_of


def planned(**changes: Any) -> Plan:
    arguments: dict[str, Any] = {"value_range": 0.5, "subgroup_size": 6, "min_survivors": 2, "colluders": 1, **changes}
    return Plan.build([12, 12], [4, 16], arguments.pop("dimension", 3610), **arguments)


def test_a_plan_comes_back_from_its_settings() -> None:
    plan = planned(fill_levels=True, sharing="complete")
    again = build_plan(TrainConfig.from_dict(settings_of(plan)), [3610])
    assert isinstance(again, Plan)
    for name in ("classes", "levels", "design", "subgroup_size", "min_survivors", "colluders", "fill_levels"):
        assert getattr(again, name) == getattr(plan, name)
    assert again.share_threshold == plan.share_threshold
    assert again.vector_sizes() == plan.vector_sizes()


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (planned(max_weight=5), "counts users alike"),
        (planned(metrics=["loss"]), "sums no metrics"),
        (
            planned(value_range=None, clipping_norm=1.0, noise_multiplier=30.0, colluders=0, honest=2),
            "give --epsilon instead",
        ),
    ],
)
def test_what_training_does_not_do_is_refused(plan: Plan, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        settings_of(plan)


def test_a_plan_for_another_model_is_refused() -> None:
    check_dimension(planned(), "digits", count_parameters("auto", "digits"))
    with pytest.raises(UsageError, match="plan with --dimension 3610"):
        check_dimension(planned(dimension=100), "digits", count_parameters("auto", "digits"))


def test_from_an_optimised_plan_to_a_run(tmp_path: Path) -> None:
    file, folder = str(tmp_path / "plan.toml"), tmp_path / "run"
    words = "optimize --rates 0.5x12,2x12 --deadline 0.06 --dimension 3610 --save"
    shown = run(*words.split(), file).stdout
    command = training_command(shown)
    assert command == ["train", "--plan", file, "--rates", "0.5,2"]
    found = json.loads(run(*command, "--rounds", "1", "--no-secure", "--out", str(folder), "--json").stdout)
    assert found["rounds"] == 1
    plan = Plan.from_toml(Path(file).read_text(encoding="utf-8"))
    record = read_run(folder)
    assert record.plan["class_levels"] == list(plan.levels)
    assert record.plan["classes"] == list(plan.classes)
    refused = run("train", "--plan", file, "--levels", "2,2", expect=2)
    assert "--levels cannot be given with --plan" in refused.stderr


def test_from_a_private_plan_to_a_run(tmp_path: Path) -> None:
    words = "optimize --epsilon 8 --rounds 2 --users 40 --dimension 3610 --corrupt 0.1 --dropout 0.05"
    proposed = json.loads(run(*words.split(), "--json").stdout)
    command = training_command(run(*words.split()).stdout)
    folder = tmp_path / "run"
    run(*command, "--no-secure", "--quiet", "--out", str(folder))
    record = read_run(folder)
    assert record.config["dropout"] == 0.05
    assert len(record.rounds) == 2
    for name in ("share_threshold", "min_block_survivors", "classes", "class_levels"):
        assert record.plan[name] == proposed["plan"][name], name
    assert record.plan["noise_multiplier"] == pytest.approx(proposed["noise_multiplier"], rel=1e-4)
    spent = record.rounds[-1]["privacy"]
    assert spent["epsilon_server"] == pytest.approx(proposed["epsilon_server"], rel=0.01)
