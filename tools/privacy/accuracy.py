"""Accuracy within a privacy budget: runs of the library by blocks, and a trusted server that adds Gaussian noise.

Nothing is masked and the noise comes from a seed, so that a run can be made again; its distribution is the real one.
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from heterosag.privacy.accounting import gaussian_noise_multiplier_for
from heterosag.storage.run_log import read_run
from heterosag.training import local as users
from heterosag.training import models
from heterosag.training.config import TrainConfig
from heterosag.training.data import DataSet
from heterosag.training.local import LocalTraining, Work
from heterosag.training.runs import Run, split

__all__ = ["BLOCKS", "DELTA", "SETTINGS", "Setting", "measure"]

DELTA = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Who trains what: the same for all blocks and budgets."""

    users: int
    model: str
    parameters: int
    local_epochs: int
    batch_size: float
    learning_rate: float
    clip: float
    rounds: int = 20
    dropout: float = 0.1
    train_samples: int | None = None

    def config(self, data: str, blocks: str, epsilon: float | None, seed: int) -> TrainConfig:
        """The run of the library."""
        size = {"one block": self.users, "six subgroups": self.users // 6, "blocks of 16": 8}[blocks]
        return TrainConfig(
            data=data,
            model=self.model,
            train_samples=self.train_samples,
            classes=(self.users,),
            levels=(4,),
            fill_levels=False,
            design="secagg" if blocks == "one block" else "perfect",
            subgroup_size=size,
            rounds=self.rounds,
            local_epochs=self.local_epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            dropout=self.dropout,
            epsilon=epsilon,
            delta=DELTA,
            clip=self.clip,
            secure=False,
            seed=seed,
            checkpoint_every=self.rounds,
        )


SETTINGS = {
    "digits": Setting(
        users=96, model="auto", parameters=3610, local_epochs=2, batch_size=16, learning_rate=0.5, clip=1.0
    ),
    "mnist": Setting(
        users=240,
        model="softmax:regression",
        parameters=7850,
        local_epochs=1,
        batch_size=50,
        learning_rate=1.0,
        clip=1.0,
    ),
}

BLOCKS = ("one block", "six subgroups", "blocks of 16", "trusted server")
"""What a user hides in; the last is the reference, a server that sees every update and adds the noise itself."""


def measure(data_set: DataSet, setting: Setting, blocks: str, epsilon: float | None, seed: int) -> dict[str, Any]:
    """One run: its accuracy at the end, the error of its mean in clipping norms, and how many rounds failed."""
    if blocks == "trusted server":
        return _measure_trusted(data_set, setting, epsilon, seed)
    with tempfile.TemporaryDirectory() as folder:
        Run(setting.config(data_set.name, blocks, epsilon, seed), Path(folder) / "run", data_set=data_set).train()
        rounds = read_run(Path(folder) / "run").rounds
    spent = rounds[-1].get("privacy")
    return {
        "accuracy": rounds[-1]["accuracy"],
        "error_in_clipping_norms": None if spent is None else spent["error_in_clipping_norms"],
        "noise_multiplier": None if spent is None else spent["noise_multiplier"],
        "honest": None if spent is None else spent["honest"],
        "epsilon_server": None if spent is None else spent["epsilon_server"],
        "failed_rounds": sum(one["error"] is not None for one in rounds),
    }


def _measure_trusted(data_set: DataSet, setting: Setting, epsilon: float | None, seed: int) -> dict[str, Any]:
    """Federated averaging: every survivor's update, clipped, their sum with Gaussian noise, divided by their number."""
    config = setting.config(data_set.name, "one block", epsilon, seed)
    thinned, parts = split(config, data_set)
    model = models.build(config.model, config.data, seed)
    vector = users.flatten(model)
    training = LocalTraining(
        epochs=config.local_epochs, batch_size=config.batch_size, learning_rate=config.learning_rate_at(0)
    )
    noise = 0.0
    if epsilon is not None:
        noise = gaussian_noise_multiplier_for(target_epsilon=epsilon, target_delta=DELTA, rounds=setting.rounds)
    for number in range(setting.rounds):
        draw = np.random.default_rng([seed, 100, number])
        present = np.flatnonzero(draw.random(setting.users) >= setting.dropout)
        rngs = [np.random.default_rng([seed, 101, number, user]) for user in present]
        work = Work(data=thinned, parts=[parts[user] for user in present], training=training, rngs=rngs)
        updates = users.train(model, work).astype(np.float64)
        if epsilon is not None:
            updates *= np.minimum(1.0, setting.clip / np.linalg.norm(updates, axis=1))[:, None]
        total = updates.sum(axis=0) + noise * setting.clip * draw.standard_normal(vector.size)
        vector = (vector + total / len(present)).astype(np.float32)
        users.load_vector(model, vector)
    error = noise * math.sqrt(vector.size) / (setting.users * (1 - setting.dropout))
    return {
        "accuracy": users.evaluate(model, thinned).accuracy,
        "error_in_clipping_norms": None if epsilon is None else error,
        "noise_multiplier": None if epsilon is None else noise,
        "honest": None,
        "epsilon_server": epsilon,
        "failed_rounds": 0,
    }
