"""The configuration of a training run."""

import math
import shlex
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")


from cases import each

from heterosag.errors import PlanError, UsageError
from heterosag.training.config import TrainConfig, fields_of


def test_configuration_comes_back_from_toml_and_dict() -> None:
    config = TrainConfig(
        classes=(3, 4), levels=(2, 4), rates=(1.0, 2.5), secure=False, dropout=0.1, dropout_phases=("share", "mask")
    )
    assert TrainConfig.from_toml(config.to_toml()) == config
    assert TrainConfig.from_dict(config.to_dict()) == config
    assert TrainConfig.from_dict({"classes": "3, 4", "levels": "2,4", "batch_size": 8}).classes == (3, 4)
    assert config.users == 7
    assert set(fields_of()) == set(config.to_dict())


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"colour": 1}, "no setting is called 'colour'"),
        ({"rounds": 0}, "rounds must be at least 1"),
        ({"rounds": 1.5}, "rounds must be an integer"),
        ({"rounds": "many"}, "rounds must be an integer"),
        ({"secure": "yes"}, "secure must be a switch"),
        ({"partition": "fair"}, "partition must be one of iid, sorted, dirichlet, dirichlet-fedml"),
        ({"attack": "laser"}, "attack must be one of"),
        ({"attack": "gaussian"}, "needs attackers"),
        ({"attack": "gaussian", "attackers": 97}, "more than the 96 users"),
        ({"dropout": 1.0}, "below 1"),
        ({"seed": -1}, "seed cannot be negative"),
        ({"dropout": -0.1}, "cannot be negative"),
        ({"participation": 0}, "above 0 and at most 1"),
        ({"quantile": 1.0}, "between 0 and 1"),
        ({"batch_size": 2.5}, "integer, or a fraction"),
        ({"learning_rate": 0}, "above 0"),
        ({"levels": [2]}, "4 classes need 4 levels"),
        ({"rates": [1.0, 2.0]}, "one for each of the 4 classes"),
        ({"rates": [0.0]}, "positive rate"),
        ({"dropout_phases": ["lunch"]}, "dropout_phases must be a list of one of advertise"),
        ({"classes": ["a"]}, "classes must be a list of integers"),
        ({"value_range": "wide"}, "value_range must be a number or a list of numbers"),
        ({"value_range": [1.0, 0.5]}, "two finite numbers in rising order"),
        ({"range_rule": "fixed"}, "needs a value_range"),
        ({"deadline": 0}, "above 0, or left out for none"),
        ({"learning_rate": math.inf}, "learning_rate must be at most 1e"),
        ({"batch_size": math.inf}, "batch_size must be at most 1,000,000, not inf"),
        ({"rates": [math.inf]}, "rates must be at most 1,000,000, not inf"),
        ({"attack_strength": math.nan, "attack": "gaussian", "attackers": 2}, "above 0, or left out for none"),
    ],
)
def test_settings_that_make_no_sense(values: dict[str, Any], match: str) -> None:
    with pytest.raises((UsageError, PlanError), match=match):
        TrainConfig.from_dict(values)


NUMBERS = {name: str(kind) for name, kind in fields_of().items() if "int" in str(kind) or "float" in str(kind)}
REAL, WHOLE = (math.inf, -math.inf, math.nan, 1e300, -1e300), (10**20, -(10**20))


@each(
    "name, value", [(name, value) for name, kind in NUMBERS.items() for value in (REAL if "float" in kind else WHOLE)]
)
def test_every_number_is_finite_and_within_a_limit(name: str, value: float) -> None:
    """As early as the settings are read: in the middle of a run most of these ended in a traceback."""
    if name in ("levels", "min_robustness") and value < 0:
        return  # refused with the plan, which says what they may be
    several = "tuple" in NUMBERS[name] and name != "value_range"
    with pytest.raises((UsageError, PlanError), match=name.replace("_", ".")):
        TrainConfig.from_dict({name: [value] * 4 if several else value})


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"classes": []}, "at least one user each"),
        ({"classes": [0, 8, 8, 8]}, r"at least one user each, not \[0, 8, 8, 8\]"),
        ({"classes": [10**6] * 4}, "at most 1,000,000 users together, not 4,000,000"),
        ({"learning_rate": math.inf}, "learning_rate must be at most 1e.38, not inf"),
        ({"epsilon": 1e300}, "epsilon must be at most 1,000, not 1e"),
        ({"rates": [1e-9]}, "rates are at least 1e-06 Mb/s, not 1e-09"),
        ({"value_range": [-1e10, 1.0]}, "within -1,000,000,000 and 1,000,000,000"),
    ],
)
def test_a_limit_is_named_with_the_value(values: dict[str, Any], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        TrainConfig.from_dict(values)


@each("text, match", [("a = " + "[" * 100_000, "not valid TOML"), ("seed = " + "9" * 5000, "not valid TOML")])
def test_a_text_that_no_parser_takes_is_refused(text: str, match: str) -> None:
    with pytest.raises(UsageError, match=match):
        TrainConfig.from_toml(text)


def test_keys_of_many_parts_are_refused_before_they_are_followed() -> None:
    """A library that takes quadratic time for them took 16 seconds for 40 kB."""
    with pytest.raises(UsageError, match="a configuration has plain names of values"):
        TrainConfig.from_toml("a." * 1_000_000 + "b = 1")


def test_neither_command_nor_file_of_a_run_names_what_the_command_would_refuse() -> None:
    """A file's `workers` beside `--no-secure`: both gave a command that ended with an error."""
    config = TrainConfig(secure=False, workers=2, alpha=0.3)
    assert config.to_command() == "heterosag train --no-secure"
    again = TrainConfig.from_toml(config.to_toml())
    assert again == TrainConfig(secure=False)
    assert again.without_effect(TrainConfig.named_in(config.to_toml())) == []


def test_settings_are_values_by_name() -> None:
    with pytest.raises(UsageError, match="settings are values by name, not a list"):
        TrainConfig.from_dict([])  # type: ignore[arg-type]


def test_learning_rate_falls_when_it_should() -> None:
    config = TrainConfig(learning_rate=0.02, decay_start=150, decay=0.02)
    assert config.learning_rate_at(150) == 0.02
    assert config.learning_rate_at(200) == pytest.approx(0.02 / 5)
    assert TrainConfig(learning_rate=0.1).learning_rate_at(1000) == 0.1


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"classes": [12, 12], "levels": [4, 16], "rates": [1.0, 8.0], "secure": False, "fill_levels": True},
        {"value_range": [-0.5, 0.5], "range_rule": "fixed", "data_dir": "a folder/data", "seed": 3},
        {"epsilon": 8.0, "clip": 0.5, "cohort": 50, "dropout": 0.1, "dropout_phases": ["share", "mask"]},
    ],
)
def test_the_command_repeats_the_run(values: dict[str, Any]) -> None:
    config = TrainConfig.from_dict(values)
    program, command, *flags = shlex.split(config.to_command())
    assert (program, command) == ("heterosag", "train")
    found: dict[str, Any] = {}
    for word in flags:
        name, given, value = word.removeprefix("--").partition("=")
        name = name.replace("-", "_")
        found[name.removeprefix("no_")] = value if given else not name.startswith("no_")
    assert TrainConfig.from_dict(found) == config


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"alpha": 0.3}, "alpha"),
        ({"dropout_phases": ("share",)}, "dropout_phases"),
        ({"decay_start": 5}, "decay_start"),
        ({"attackers": 2}, "attackers"),
        ({"attack": "little", "attackers": 1}, "attack"),
        ({"attack_strength": 2.0}, "attack_strength"),
        ({"placement": "random"}, "placement"),
        ({"quantile": 0.9}, "quantile"),
        ({"scale_arrays": False, "range_rule": "quantile"}, "scale_arrays"),
        ({"scale_arrays": False, "epsilon": 8.0}, "scale_arrays"),
        ({"rotate": False, "epsilon": 8.0}, "rotate"),
        ({"value_range": 0.3, "range_rule": "minmax"}, "value_range"),
        ({"delta": 1e-6}, "delta"),
        ({"clip": 2.0}, "clip"),
        ({"workers": 2, "secure": False}, "workers"),
    ],
)
def test_settings_without_effect_are_named(settings: dict[str, Any], name: str) -> None:
    (found,) = TrainConfig(**settings).without_effect(settings)
    assert found.startswith(f"{name} has no effect ")
    assert TrainConfig(**settings).without_effect([]) == []


def test_all_usual_settings_together_have_an_effect_or_are_not_named() -> None:
    config = TrainConfig()
    assert config.without_effect(config.to_dict()) == []
    together = {"alpha": 0.3, "partition": "dirichlet", "attack": "little", "attackers": 2, "attack_strength": 2.0}
    together |= {"rotate": False, "scale_arrays": False}
    assert TrainConfig(**together).without_effect(together) == []  # type: ignore[arg-type]


def test_levels_are_chosen_or_numbers() -> None:
    assert TrainConfig.from_dict({"levels": "auto"}).levels == "auto"
    assert TrainConfig.from_dict({"levels": "2,4,8,16"}).levels == (2, 4, 8, 16)
    assert TrainConfig.from_toml(TrainConfig().to_toml()) == TrainConfig()
    with pytest.raises(UsageError, match="levels must be a list of integers or one of auto"):
        TrainConfig.from_dict({"levels": "many"})


def test_numbers_may_be_numpys() -> None:
    own = TrainConfig(levels=(2, 4, 8, 16), dropout=0.25, seed=3)
    same = TrainConfig(levels=tuple(np.array([2, 4, 8, 16])), dropout=np.float64(0.25), seed=np.int32(3))
    assert same == own
    assert same.to_toml() == own.to_toml()


def test_rates_double_from_class_to_class_unless_given() -> None:
    assert [TrainConfig().rate_of(index) for index in range(4)] == [1.0, 2.0, 4.0, 8.0]
    assert TrainConfig(rates=(3.0,)).rate_of(2) == 3.0
    assert TrainConfig(download_rates=(9.0,)).rate_of(1, download=True) == 9.0
