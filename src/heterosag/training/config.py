"""One frozen configuration drives the command, the run and its record.

Every field is a key of the TOML file and a flag of `heterosag train` (underscores become dashes). This module knows
neither torch nor data, so that the command line can show its help quickly.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import tomllib
from dataclasses import dataclass, field
from typing import Any, get_type_hints

from heterosag.errors import PlanError, UsageError

__all__ = ["TrainConfig", "fields_of"]

PARTITIONS = ("iid", "sorted", "dirichlet")
ATTACKS = ("none", "gaussian", "sign-flip", "label-flip", "little")
PLACEMENTS = ("spread", "random")
RANGES = ("fixed", "minmax", "adaptive")
PHASES = ("advertise", "share", "mask", "agree", "unmask")


def _setting(default: Any, help_text: str) -> Any:
    return field(default=default, metadata={"help": help_text})


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """A training run, all of it."""

    data: str = _setting("digits", "digits, mnist, fashion-mnist, cifar10, or openml:NAME")
    data_dir: str = _setting("", "folder of the data files (or set HETEROSAG_DATA)")
    partition: str = _setting("iid", "how data is split over users: iid, sorted (by label) or dirichlet")
    train_samples: int = _setting(0, "train on only so many samples, drawn from all; 0: all of them")
    alpha: float = _setting(1.0, "concentration of the Dirichlet partition; small means unlike users")
    model: str = _setting("auto", "auto, digits, mnist, cifar10, or package.module:factory of a torch.nn.Module")

    classes: tuple[int, ...] = _setting((24, 24, 24, 24), "users per class, slowest link first")
    levels: tuple[int, ...] = _setting((2, 6, 8, 12), "quantizer levels per class")
    rates: tuple[float, ...] = _setting((1.0,), "upload rate per class in Mb/s (one value: the same for all)")
    download_rates: tuple[float, ...] = _setting((), "download rate per class in Mb/s (default: the upload rates)")
    rate_spread: float = _setting(0.0, "spread of rates inside a class (standard deviation of the logarithm)")
    deadline: float = _setting(0.0, "seconds after which an upload counts as dropped; 0 means none")
    design: str = _setting("perfect", "perfect, paper, paper-composite, secagg or multigroup")
    subgroup_size: int = _setting(8, "users a subgroup should have at least")
    min_survivors: int = _setting(3, "least survivors of a block whose sum may be unmasked")
    min_robustness: float = _setting(
        -1.0, "least inference robustness of an admissible survivor set; -1: the plan's own"
    )
    hide_sets_below: int = _setting(0, "refuse rounds that, with those before, show fewer users than this; 0: none")
    sharing: str = _setting("auto", "who holds shares: auto (neighbours beyond 256 users), complete or sparse")
    fill_levels: bool = _setting(False, "raise levels as far as their rings hold, at no cost")
    rule: str = _setting("mean", "how block means are combined: mean, median or trimmed_mean")

    rounds: int = _setting(20, "rounds of training")
    local_epochs: int = _setting(1, "passes over a user's data in a round")
    batch_size: float = _setting(16.0, "samples a step, or below 1 the share of a user's data")
    learning_rate: float = _setting(0.1, "step size of local training")
    decay_start: int = _setting(0, "round from which the learning rate falls; 0: never")
    decay: float = _setting(0.0, "the learning rate falls as 1 / (1 + decay * round)")
    participation: float = _setting(1.0, "share of the users, class by class, that takes part in a round")
    dropout: float = _setting(0.0, "probability that a user drops out in a round")
    dropout_phases: tuple[str, ...] = _setting(("mask",), "phases before which users drop out, equally likely")

    attack: str = _setting("none", "none, gaussian, sign-flip, label-flip or little")
    attackers: int = _setting(0, "how many users attack")
    attack_strength: float = _setting(0.0, "the attack's factor or standard deviation; 0: the paper's")
    placement: str = _setting("spread", "attackers spread one a subgroup, or random")

    range_rule: str = _setting("adaptive", "how the value range is set: fixed, minmax (in plaintext) or adaptive")
    value_range: float = _setting(0.2, "half width of the (first) value range")
    quantile: float = _setting(0.999, "share of elements that the adaptive range should hold")

    rotate: bool = _setting(False, "spread segments by a randomised Hadamard rotation before quantizing")

    secure: bool = _setting(True, "real cryptography, or the plain engine with the same bits")
    identities: bool = _setting(False, "sign keys and agree on survivor sets")
    workers: int = _setting(1, "processes for the users' cryptography")
    seed: int = _setting(0, "seed of data split, initial model, training, dropouts and rounding; never of a secret")
    checkpoint_every: int = _setting(5, "rounds between checkpoints")

    def __post_init__(self) -> None:
        for name, allowed in (
            ("partition", PARTITIONS),
            ("attack", ATTACKS),
            ("placement", PLACEMENTS),
            ("range_rule", RANGES),
        ):
            if getattr(self, name) not in allowed:
                raise UsageError(f"{name} must be one of {', '.join(allowed)}, not {getattr(self, name)!r}")
        for name in ("rounds", "local_epochs", "checkpoint_every", "subgroup_size", "min_survivors", "workers"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(self, name)!r}")
        for name in ("alpha", "learning_rate", "value_range", "batch_size"):
            if not getattr(self, name) > 0:
                raise UsageError(f"{name} must be above 0, not {getattr(self, name)!r}")
        for name in (
            "seed",
            "dropout",
            "deadline",
            "decay",
            "decay_start",
            "attackers",
            "attack_strength",
            "rate_spread",
            "train_samples",
        ):
            if not getattr(self, name) >= 0:
                raise UsageError(f"{name} cannot be negative, as {getattr(self, name)!r} is")
        self._check_relations()

    def _check_relations(self) -> None:
        if not 0 < self.participation <= 1:
            raise UsageError(f"participation is a share above 0 and at most 1, not {self.participation!r}")
        if not 0 <= self.dropout < 1:
            raise UsageError(f"dropout is a probability below 1, not {self.dropout!r}")
        if not 0 < self.quantile < 1:
            raise UsageError(f"quantile is a share between 0 and 1, not {self.quantile!r}")
        if self.batch_size > 1 and self.batch_size != int(self.batch_size):
            raise UsageError(f"batch_size is an integer, or a share below 1, not {self.batch_size!r}")
        if len(self.levels) != len(self.classes):
            raise PlanError(
                "levels", f"{len(self.classes)} classes need {len(self.classes)} levels, not {len(self.levels)}"
            )
        for name in ("rates", "download_rates"):
            rates = getattr(self, name)
            if ((rates or name == "rates") and len(rates) not in (1, len(self.classes))) or any(r <= 0 for r in rates):
                raise UsageError(f"{name} takes one positive rate, or one for each of the {len(self.classes)} classes")
        if not self.dropout_phases or set(self.dropout_phases) - set(PHASES):
            raise UsageError(f"dropout_phases are among {', '.join(PHASES)}, not {', '.join(self.dropout_phases)}")
        if self.attackers > self.users:
            raise UsageError(f"{self.attackers} attackers are more than the {self.users} users")
        if self.attack != "none" and not self.attackers:
            raise UsageError(f"the attack {self.attack!r} needs attackers: say how many")

    @property
    def users(self) -> int:
        """Users in all classes."""
        return sum(self.classes)

    def rate_of(self, user_class: int, *, download: bool = False) -> float:
        """A class's rate in Mb/s."""
        rates = (self.download_rates or self.rates) if download else self.rates
        return rates[user_class] if len(rates) > 1 else rates[0]

    def learning_rate_at(self, number: int) -> float:
        """The step size of a round (counted from 1)."""
        falling = self.decay > 0 and number > self.decay_start
        return self.learning_rate / (1 + self.decay * number) if falling else self.learning_rate

    def to_dict(self) -> dict[str, Any]:
        """All settings in JSON types."""
        values = dataclasses.asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def to_toml(self) -> str:
        """All settings as TOML."""
        return "".join(f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in self.to_dict().items())

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TrainConfig:
        """Settings by name; what is not named keeps its default."""
        kinds = fields_of(cls)
        unknown = sorted(values.keys() - kinds.keys())
        if unknown:
            near = difflib.get_close_matches(unknown[0], kinds, n=1)
            hint = f": did you mean {near[0]!r}?" if near else f"; there are {', '.join(kinds)}"
            raise UsageError(f"no setting is called {unknown[0]!r}{hint}")
        return cls(**{name: _convert(name, value, kinds[name]) for name, value in values.items()})

    @classmethod
    def from_toml(cls, text: str) -> TrainConfig:
        """Settings from TOML."""
        try:
            return cls.from_dict(tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise UsageError(f"the configuration is not valid TOML: {error}") from None


def fields_of(cls: type[TrainConfig] = TrainConfig) -> dict[str, Any]:
    """Names and types of the settings."""
    kinds = get_type_hints(cls)
    return {setting.name: kinds[setting.name] for setting in dataclasses.fields(cls)}


def _convert(name: str, value: Any, kind: Any) -> Any:
    """A value from TOML or a flag's text in the type of its field."""
    try:
        if kind in (str, bool):
            if not isinstance(value, kind):
                raise TypeError
            return value
        if kind in (int, float):
            if isinstance(value, bool) or (kind is int and value != int(value)):
                raise TypeError
            return kind(value)
        item = kind.__args__[0]
        parts = [part for part in value.split(",") if part.strip()] if isinstance(value, str) else value
        return tuple(item(part) if not isinstance(part, str) else item(part.strip()) for part in parts)
    except (TypeError, ValueError):
        inner = getattr(kind, "__args__", None)
        wanted = f"list of {inner[0].__name__}" if inner else kind.__name__
        raise UsageError(f"{name} must be a {wanted}, not {value!r}") from None
