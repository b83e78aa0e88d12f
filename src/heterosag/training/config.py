"""The settings of a training run: each is a flag of `heterosag train`, a key of its TOML file, and in its record.

In a flag underscores become dashes. This module knows neither torch nor data, so that the command line shows its help
quickly.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import shlex
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
import numpy as np

from heterosag.choices import DesignName, PhaseName, RangesName, RuleName, SharingName, View
from heterosag.errors import PlanError, UsageError
from heterosag.plan.codec import check_toml
from heterosag.vector.quantize import MAX_LEVEL, ValueRange, check_range

__all__ = ["TrainConfig", "fields_of"]

Partition = Literal["iid", "sorted", "dirichlet", "dirichlet-fedml"]
Attack = Literal["none", "gaussian", "sign-flip", "label-flip", "little"]
Placement = Literal["spread", "random"]
RangeRule = Literal["fixed", "minmax", "quantile", "adaptive"]

_LEARNING_RATE, _LEARNING_RATES = 0.1, {"digits": 0.6}  # unless told: in general, and as measured for a data set

_MILLION = 10**6
_LARGEST = 10**9
_MOST = {
    **dict.fromkeys(("classes", "subgroup_size", "min_survivors", "min_block_survivors", "cohort"), _MILLION),
    **dict.fromkeys(("colluders", "attackers", "hide_sets_below"), _MILLION),
    **dict.fromkeys(("rounds", "local_epochs", "decay_start", "checkpoint_every"), _MILLION),
    **dict.fromkeys(("alpha", "rates", "download_rates", "batch_size", "decay"), _MILLION),
    **dict.fromkeys(("train_samples", "deadline", "attack_strength", "clip"), _LARGEST),
    **dict.fromkeys(("epsilon", "workers"), 1000),
    "learning_rate": 1e38,  # what float32 holds
    "levels": MAX_LEVEL,
    "min_robustness": 1,
    "rate_spread": 10,
    "seed": 2**63 - 1,
}
"""What no sensible run exceeds, and nothing overflows at; `value_range` is checked apart, fractions are fractions."""

_SLOWEST = 1e-6  # Mb/s

FIRST_RANGE = 0.2
"""Half width of the single range that a run starts with unless it is told."""


def _settings(group: str) -> Callable[[Any, str], Any]:
    """Makes the fields of a group, each with its help."""
    return lambda default, help_text: field(default=default, metadata={"help": help_text, "group": group})


_data = _settings("Data and model")
_plan = _settings("Users and plan")
_training = _settings("Training")
_attacks = _settings("Malicious users")
_ranges = _settings("Value range")
_privacy = _settings("Privacy")
_running = _settings("How it runs")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """A training run, all of it."""

    data: str = _data("digits", "digits, mnist, fashion-mnist, cifar10, or openml:NAME")
    data_dir: str = _data("", "folder of the data files (or set HETEROSAG_DATA)")
    partition: Partition = _data(
        "iid", "how data is split over users; sorted: by label; dirichlet-fedml: as FedML draws it"
    )
    train_samples: int | None = _data(None, "train on only so many samples, drawn from all (default: all of them)")
    alpha: float = _data(1.0, "concentration of the Dirichlet partitions; small means unlike users")
    model: str = _data(
        "auto",
        "auto, digits, digits-large, mnist, cifar10, cifar10-padded, or package.module:factory of a torch.nn.Module",
    )

    classes: tuple[int, ...] = _plan((24, 24, 24, 24), "users per class, slowest link first")
    levels: tuple[int, ...] | Literal["auto"] = _plan(
        "auto", "quantizer levels per class; auto: as many as the rates carry until the deadline"
    )
    rates: tuple[float, ...] = _plan(
        (), "upload rate per class in Mb/s, or one for all (default: 1, doubled from class to class)"
    )
    download_rates: tuple[float, ...] = _plan((), "download rate per class in Mb/s (default: the upload rates)")
    rate_spread: float = _plan(0.0, "spread of rates inside a class (standard deviation of the logarithm)")
    deadline: float | None = _plan(
        None,
        "seconds for the upload of a masked vector, after which its user counts as dropped; levels auto keep it "
        "(default: never; auto then takes the time of the slowest class at four levels, or at sixteen if rates are "
        "alike)",
    )
    design: DesignName = _plan("perfect", "which subgroups code a segment together")
    subgroup_size: int = _plan(8, "users a subgroup should have at least")
    min_survivors: int = _plan(3, "least survivors of a subgroup")
    min_robustness: float | None = _plan(
        None, "least inference robustness of an admissible survivor set (default: the plan's own)"
    )
    colluders: int | None = _plan(
        None,
        "users who may collude with the server (default: min_survivors - 2, and at least 5% of the users if sharing "
        "is sparse)",
    )
    hide_sets_below: int | None = _plan(
        None, "refuse rounds that, with those before, reveal the sum of fewer users than this (default: none)"
    )
    cohort: int | None = _plan(
        None, "split users into cohorts of at most so many, each with a plan and a round of its own (default: one)"
    )
    sharing: SharingName = _plan("auto", "who holds shares; auto: neighbours only beyond 256 users")
    fill_levels: bool = _plan(True, "raise levels as far as their rings hold, at no cost")
    rule: RuleName = _plan("mean", "how block means are combined")

    rounds: int = _training(20, "rounds of training")
    local_epochs: int = _training(3, "passes over a user's data in a round")
    batch_size: float = _training(16.0, "samples a step, or below 1 the fraction of a user's data")
    learning_rate: float | None = _training(
        None, "step size of local training (default: 0.6 for digits, 0.1 for other data)"
    )
    decay_start: int = _training(0, "round after which the learning rate falls")
    decay: float = _training(0.0, "the learning rate falls as 1 / (1 + decay * round)")
    participation: float = _training(1.0, "fraction of the users, class by class, that takes part in a round")
    dropout: float = _training(0.0, "probability that a user drops out in a round")
    dropout_phases: tuple[PhaseName, ...] = _training(("mask",), "phases before which users drop out, equally likely")

    attack: Attack = _attacks("none", "what malicious users send")
    attackers: int = _attacks(0, "how many users attack")
    attack_strength: float | None = _attacks(
        None, "the attack's factor or standard deviation (default: the paper's; little: 1.5)"
    )
    placement: Placement = _attacks("spread", "where attackers are: spread one a subgroup, or random")

    range_rule: RangeRule = _ranges(
        "adaptive",
        "adaptive: by level and array, following the updates; the others have a single range: fixed, following a "
        "quantile, or minmax, which sees updates in plaintext",
    )
    value_range: float | ValueRange | None = _ranges(
        None, "half width, or least and largest value, of the (first) range (default: from the model)"
    )
    quantile: float = _ranges(0.999, "fraction of elements that a range of the rule quantile should hold")
    scale_arrays: bool = _ranges(True, "give every array of the model a scale of its own (rule adaptive)")
    rotate: bool = _ranges(
        True, "spread segments by a randomised Hadamard rotation before quantizing (not under the rule minmax)"
    )

    epsilon: float | None = _privacy(None, "privacy budget of every user over all rounds (default: no noise)")
    delta: float = _privacy(1e-5, "delta of that epsilon")
    clip: float = _privacy(1.0, "largest norm of an update under a privacy budget")
    adaptive_clip: bool = _privacy(
        False, "let the clipping norm follow the median norm of the updates, which takes some of the budget"
    )
    view: View = _privacy("server", "whom epsilon is against: whoever sees all sums, or the released models only")
    min_block_survivors: int | None = _privacy(
        None, "least survivors of a block, whose noise counts (default: as many as fail in a hundredth of the rounds)"
    )

    secure: bool = _running(True, "real cryptography, or the plain engine with the same bits")
    identities: bool = _running(False, "sign keys and agree on survivor sets")
    workers: int = _running(1, "processes for the users' cryptography")
    seed: int = _running(0, "seed of data split, initial model, training, dropouts and rounding; never of a secret")
    checkpoint_every: int = _running(5, "rounds between checkpoints")

    def __post_init__(self) -> None:
        for name, kind in fields_of(type(self)).items():
            object.__setattr__(self, name, _without_numpy(getattr(self, name)))
            _convert(name, getattr(self, name), kind)
        for name in ("rounds", "local_epochs", "checkpoint_every", "subgroup_size", "min_survivors", "workers"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(self, name)!r}")
        for name in ("alpha", "batch_size"):
            if not getattr(self, name) > 0:
                raise UsageError(f"{name} must be above 0, not {getattr(self, name)!r}")
        for name in (
            "seed",
            "dropout",
            "decay",
            "decay_start",
            "attackers",
            "rate_spread",
            "colluders",
        ):
            if getattr(self, name) is not None and not getattr(self, name) >= 0:
                raise UsageError(f"{name} cannot be negative, as {getattr(self, name)!r} is")
        optional = (
            "train_samples",
            "deadline",
            "hide_sets_below",
            "cohort",
            "attack_strength",
            "learning_rate",
            "epsilon",
            "min_block_survivors",
        )
        for name in optional:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError(f"{name} is above 0, or left out for none, not {value!r}")
        self._check_limits()
        self._check_relations()

    def _check_limits(self) -> None:
        """Refuse what is infinite or no number, or too large for any run."""
        for name, most in _MOST.items():
            value = getattr(self, name)
            if value is None or isinstance(value, str):
                continue
            for one in value if isinstance(value, tuple) else (value,):
                if not one <= most:
                    raise UsageError(f"{name} must be at most {most:,}, not {one!r}")
        if not self.classes or min(self.classes) < 1:
            raise UsageError(f"classes are of at least one user each, not {list(self.classes)!r}")
        if self.users > _MILLION:
            raise UsageError(f"classes have at most {_MILLION:,} users together, not {self.users:,}")

    def _check_relations(self) -> None:
        if not 0 < self.participation <= 1:
            raise UsageError(f"participation is a fraction above 0 and at most 1, not {self.participation!r}")
        if not 0 <= self.dropout < 1:
            raise UsageError(f"dropout is a probability below 1, not {self.dropout!r}")
        if not 0 < self.quantile < 1:
            raise UsageError(f"quantile is a fraction between 0 and 1, not {self.quantile!r}")
        if self.batch_size > 1 and self.batch_size != int(self.batch_size):
            raise UsageError(f"batch_size is an integer, or a fraction below 1, not {self.batch_size!r}")
        if self.levels != "auto" and len(self.levels) != len(self.classes):
            raise PlanError(
                "levels", f"{len(self.classes)} classes need {len(self.classes)} levels, not {len(self.levels)}"
            )
        for name in ("rates", "download_rates"):
            rates = getattr(self, name)
            if (rates and len(rates) not in (1, len(self.classes))) or any(r <= 0 for r in rates):
                raise UsageError(f"{name} takes one positive rate, or one for each of the {len(self.classes)} classes")
            if any(rate < _SLOWEST for rate in rates):
                raise UsageError(f"{name} are at least {_SLOWEST:g} Mb/s, not {min(rates)!r}")
        if not self.dropout_phases:
            raise UsageError("dropout_phases needs at least one phase")
        if self.value_range is None and self.range_rule == "fixed":
            raise UsageError("range_rule fixed needs a value_range, such as 0.2")
        if not all(abs(end) <= _LARGEST for end in self.first_range):
            raise UsageError(f"value_range is within {-_LARGEST:,} and {_LARGEST:,}, not {self.value_range!r}")
        if self.attackers > self.users:
            raise UsageError(f"{self.attackers} attackers are more than the {self.users} users")
        if self.attack != "none" and not self.attackers:
            raise UsageError(f"the attack {self.attack!r} needs attackers: say how many")
        self._check_privacy()

    def _check_privacy(self) -> None:
        if not 0 < self.delta < 1:
            raise UsageError(f"delta is a probability above 0 and below 1, not {self.delta!r}")
        if not self.clip > 0:
            raise UsageError(f"clip is above 0, not {self.clip!r}")
        if self.epsilon is None:
            if self.min_block_survivors is not None or self.view == "model" or self.adaptive_clip:
                raise UsageError(
                    "min_block_survivors, view and adaptive_clip are about a privacy budget: give epsilon too"
                )
            return
        if self.range_rule != "adaptive" or self.value_range is not None:
            raise UsageError("with epsilon the range follows from the noise: leave range_rule and value_range out")
        if self.view == "model" and self.rule != "mean":
            raise UsageError(f"view model is about the mean; what the rule {self.rule!r} releases is not bounded by it")

    def without_effect(self, given: Iterable[str]) -> list[str]:
        """Settings other than the usual that somebody gave and that change nothing, each with what it goes with.

        Args:
            given: Their names.

        Returns:
            A sentence for each.

        Example:
            >>> from heterosag.training.config import TrainConfig
            >>> TrainConfig(alpha=0.5).without_effect(["alpha"])
            ['alpha has no effect without a Dirichlet partition']
        """
        idle = self._idle()
        return [f"{name} has no effect {idle[name]}" for name in given if name in idle]

    def _idle(self) -> dict[str, str]:
        """Settings other than the usual that change nothing here, and why not."""
        no_attack, private = self.attack == "none", self.epsilon is not None
        whether = {
            "alpha": (not self.partition.startswith("dirichlet"), "without a Dirichlet partition"),
            "dropout_phases": (not self.dropout, "without dropout"),
            "decay_start": (not self.decay, "without decay"),
            "attackers": (no_attack and self.attackers > 0, "without an attack, such as label-flip"),
            "attack": (self.attack == "little" and self.attackers == 1, "with one attacker: `little` needs two"),
            "attack_strength": (no_attack, "without an attack"),
            "placement": (no_attack, "without an attack"),
            "quantile": (self.range_rule != "quantile", "unless range_rule is quantile"),
            "scale_arrays": (
                private or self.range_rule != "adaptive",
                "with epsilon" if private else "unless range_rule is adaptive",
            ),
            "value_range": (self.range_rule == "minmax", "where range_rule is minmax"),
            "rotate": (private, "with epsilon, whose noise needs rotated segments"),
            "delta": (not private, "without epsilon"),
            "clip": (not private, "without epsilon"),
            "workers": (not self.secure and self.workers > 1, "without the cryptography"),
        }
        usual = {setting.name: setting.default for setting in dataclasses.fields(self)}
        return {name: why for name, (idle, why) in whether.items() if idle and getattr(self, name) != usual[name]}

    @property
    def users(self) -> int:
        """Users in all classes."""
        return sum(self.classes)

    @property
    def ranges(self) -> RangesName:
        """Whether levels have ranges of their own: not under the rules for a single one."""
        return "levels" if self.range_rule == "adaptive" else "single"

    @property
    def first_range(self) -> ValueRange:
        """The range of the first round, where it does not come from the model."""
        return check_range(FIRST_RANGE if self.value_range is None else self.value_range)

    def rate_of(self, user_class: int, *, download: bool = False) -> float:
        """A class's rate in Mb/s.

        Args:
            user_class: The class.
            download: Its download's, not its upload's.

        Returns:
            Mb/s.
        """
        rates = (self.download_rates or self.rates) if download else self.rates
        if not rates:
            return 2.0**user_class
        return rates[user_class] if len(rates) > 1 else rates[0]

    def learning_rate_at(self, number: int) -> float:
        """The step size of a round.

        Args:
            number: The round's number, from 1.

        Returns:
            The step size.
        """
        first = _LEARNING_RATES.get(self.data, _LEARNING_RATE) if self.learning_rate is None else self.learning_rate
        falling = self.decay > 0 and number > self.decay_start
        return first / (1 + self.decay * number) if falling else first

    def to_dict(self) -> dict[str, Any]:
        """All settings in JSON types."""
        values = dataclasses.asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def to_toml(self) -> str:
        """All settings as TOML, but those that change nothing here."""
        idle = self._idle()
        told = {name: value for name, value in self.to_dict().items() if name not in idle}
        given = {name: value for name, value in told.items() if value is not None}  # TOML has no null
        return "".join(f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in given.items())

    def to_command(self) -> str:
        """The command that repeats this run: `heterosag train` with every setting that changes something.

        Example:
            >>> from heterosag.training.config import TrainConfig
            >>> TrainConfig(classes=(12, 12), levels=(4, 16), secure=False).to_command()
            'heterosag train --classes=12,12 --levels=4,16 --no-secure'
        """
        words, idle = ["heterosag", "train"], self._idle()
        for setting in dataclasses.fields(self):
            value, flag = getattr(self, setting.name), setting.name.replace("_", "-")
            if value == setting.default or setting.name in idle:
                continue
            if isinstance(value, bool):
                words.append(f"--{flag}" if value else f"--no-{flag}")
            else:
                shown = ",".join(map(str, value)) if isinstance(value, tuple) else value
                words.append(shlex.quote(f"--{flag}={shown}"))
        return " ".join(words)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TrainConfig:
        """Settings by name.

        Args:
            values: What is not named keeps its default.

        Returns:
            The configuration.

        Raises:
            UsageError: There is no such setting, or a value makes no sense.
        """
        if not isinstance(values, dict):
            raise UsageError(f"settings are values by name, not a {type(values).__name__}")
        kinds = fields_of(cls)
        unknown = sorted(values.keys() - kinds.keys())
        if unknown:
            near = difflib.get_close_matches(unknown[0], kinds, n=1)
            hint = f": did you mean {near[0]!r}?" if near else f"; there are {', '.join(kinds)}"
            raise UsageError(f"no setting is called {unknown[0]!r}{hint}")
        return cls(**{name: _convert(name, value, kinds[name]) for name, value in values.items()})

    @classmethod
    def from_toml(cls, text: str) -> TrainConfig:
        """Settings from TOML.

        Args:
            text: A line a setting.

        Returns:
            The configuration.

        Raises:
            UsageError: It is no TOML, there is no such setting, or a value makes no sense.

        Example:
            >>> from heterosag.training.config import TrainConfig
            >>> TrainConfig.from_toml("rounds = 3").rounds
            3
        """
        return cls.from_dict(cls.named_in(text))

    @staticmethod
    def named_in(text: str) -> dict[str, Any]:
        """What a TOML text names, before any of it is checked.

        Args:
            text: A line a setting.

        Returns:
            Values by name.

        Raises:
            UsageError: It is no TOML.
        """
        try:
            check_toml(text, "a configuration")
            return tomllib.loads(text)
        except PlanError as error:
            raise UsageError(error.problem) from None
        except ValueError as error:  # a number of thousands of digits is a plain ValueError
            raise UsageError(f"the configuration is not valid TOML: {error}") from None
        except RecursionError:
            raise UsageError("the configuration is not valid TOML: it nests deeper than settings do") from None


def fields_of(cls: type[TrainConfig] = TrainConfig) -> dict[str, Any]:
    """Names and types of the settings."""
    kinds = get_type_hints(cls)
    return {setting.name: kinds[setting.name] for setting in dataclasses.fields(cls)}


def _without_numpy(value: Any) -> Any:
    """NumPy's numbers as Python's, in tuples and lists too."""
    if isinstance(value, (tuple, list)):
        return type(value)(_without_numpy(one) for one in value)
    return value.item() if isinstance(value, np.generic) else value


def _convert(name: str, value: Any, kind: Any) -> Any:
    """A value from TOML or a flag's text in the type of its field."""
    if isinstance(value, str) and "tuple" in str(kind) and value != "auto":
        parts = [part.strip() for part in value.split(",") if part.strip()]
        value = parts[0] if len(parts) == 1 and float in get_args(kind) else parts
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError:
        raise UsageError(f"{name} must be {_describe(kind)}, not {value!r}") from None


def _describe(kind: Any) -> str:
    """A type as a person calls it."""
    kinds = get_args(kind)
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(kinds)
    if get_origin(kind) is tuple:
        return f"a list of {_NAMES[kinds[0]]}s" if kinds[0] in _NAMES else f"a list of {_describe(kinds[0])}"
    if kinds:
        return " or ".join(_describe(one) for one in kinds if one is not NoneType)
    return f"a {_NAMES[kind]}" if kind is not int else "an integer"


_NAMES = {int: "integer", float: "number", str: "text", bool: "switch (true or false)"}
