"""The settings of the items that train, at three scales: the paper's two experiments, and BREA beside the second."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from heterosag.training.config import Attack, TrainConfig
from reproduction.baselines import Scheme, brea_for
from reproduction.experiment_1 import cifar_1_settings, cifar_links, mnist_links
from reproduction.experiment_2 import attackers_of, cifar_2_settings, cifar_byzantine, mnist_byzantine, under_attack
from reproduction.outcome import Scale
from reproduction.setting import ALPHAS, ATTACKS, LEVELS, RATES, UNQUANTIZED, Setting, data_for

__all__ = [
    "ALPHAS",
    "ATTACKS",
    "EXPERIMENTS",
    "LEVELS",
    "RATES",
    "UNQUANTIZED",
    "Setting",
    "beside_brea",
    "cifar_byzantine",
    "cifar_links",
    "data_for",
    "mnist_byzantine",
    "mnist_links",
]


def beside_brea(scale: Scale, seed: int, data_dir: str) -> list[Setting]:
    """Experiment 2 with as many users as BREA can have: HeteroSAg and BREA on the same data under the same attacks.

    As many users attack as HeteroSAg tolerates, and under label-flip also as many as BREA does. BREA's runs come first.
    """
    data = data_for(scale, "mnist", data_dir)
    users = 40 if scale is Scale.FULL else 20
    base = TrainConfig(
        data=data,
        data_dir=data_dir,
        classes=(users,),
        levels=(12,),
        design="paper-composite",
        subgroup_size=4,
        rule="median",
        rounds={Scale.TINY: 4, Scale.QUICK: 10, Scale.FULL: 60}[scale],
        local_epochs=1,
        batch_size=40,
        learning_rate=0.06,
        value_range=0.05,
        fill_levels=False,
        secure=False,
        seed=seed,
        checkpoint_every=10,
    )
    if scale is Scale.QUICK and data == "mnist":
        base = replace(base, train_samples=12_000, batch_size=16)
    if data == "digits":
        base = replace(base, batch_size=8, learning_rate=0.3, local_epochs=3)
    few = attackers_of(base)
    many = brea_for(users).adversaries
    cases: list[tuple[str, Attack, int, str]] = [("none", "none", few, "no attack")]
    cases += [(attack, attack, few, f"{attack}, {few} of {users}") for attack in ATTACKS]
    cases.append(("many", "label-flip", many, f"label-flip, {many} of {users}"))
    schemes: list[tuple[str, Scheme, str]] = [
        ("brea", "brea", "BREA, multi-Krum"),
        ("median", "ring", "HeteroSAg, median"),
    ]
    return [
        Setting(
            name=f"{name}-{kind}",
            label=label,
            config=under_attack(base, attack, count),
            panel=panel,
            scheme=scheme,
        )
        for kind, scheme, label in schemes
        for name, attack, count, panel in cases
    ]


EXPERIMENTS: dict[str, Callable[[Scale, int, str], list[Setting]]] = {
    "experiment-1": lambda scale, seed, data_dir: mnist_links(scale, 25, seed, data_dir),
    "experiment-1-n100": lambda scale, seed, data_dir: mnist_links(scale, 100, seed, data_dir),
    "experiment-1-cifar": cifar_1_settings,
    "experiment-2": mnist_byzantine,
    "experiment-2-cifar": cifar_2_settings,
}
"""The settings of the experiments, by scale, seed and the folder of data."""
