"""A setting of the paper's experiments, and what several of them share.

Quick runs have fewer samples and rounds than the paper, and on CIFAR-10 fewer users, other epochs and a larger step, so
that anything is learned at all.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from heterosag.training.config import Attack, TrainConfig
from reproduction.baselines import Scheme
from reproduction.outcome import Scale

__all__ = [
    "ALPHAS",
    "ATTACKS",
    "BUDGET",
    "LEVELS",
    "RATES",
    "SEEDS",
    "SMALL_BUDGET",
    "UNQUANTIZED",
    "Setting",
    "data_for",
    "seeds_for",
]

LEVELS = (2, 6, 8, 10, 12)
UNQUANTIZED = 2**32  # the paper's reading of no quantization: 32 bits an element
ALPHAS = (0.7, 1.0, 10.0)
ATTACKS: tuple[Attack, ...] = ("gaussian", "sign-flip", "label-flip")
SEEDS = 3
"""Of every setting whose accuracy a verdict rests on; on CIFAR-10 at full size one, and so many at a smaller size."""

RATES = (1.0, 2.0, 2.0, 2.0, 2.0)  # Mb/s: group 0 has 1, the others "more than 2"
BUDGET = 100  # rounds on CIFAR-10 at full size, of what matters most
SMALL_BUDGET = 30  # and of the rest


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A run of an experiment: its folder's name, its name in a legend, the panel it belongs to, its configuration.

    `scheme` says how updates are combined: in the ring, as HeteroSAg does, or in another way (see baselines.py). Only
    settings of a `group` are compared with each other. A setting runs with so many `seeds`, from the configuration's
    on; `budget` is how many of its rounds are run unless more are asked for (None: all of them).
    """

    name: str
    label: str
    config: TrainConfig
    panel: str = ""
    scheme: Scheme = "ring"
    group: str = ""
    seeds: int = 1
    budget: int | None = None

    def config_of(self, number: int) -> TrainConfig:
        """The configuration with a later seed."""
        return replace(self.config, seed=self.config.seed + number)


def data_for(scale: Scale, wanted: str, data_dir: str) -> str:
    """The paper's data set where its files are; the embedded digits in tests, and in quick runs without files."""
    if scale is Scale.TINY or (scale is Scale.QUICK and not (data_dir or os.environ.get("HETEROSAG_DATA"))):
        return "digits"
    return wanted


def seeds_for(scale: Scale) -> int:
    """Seeds of a setting whose accuracy a verdict rests on."""
    return SEEDS if scale is Scale.FULL else 1
