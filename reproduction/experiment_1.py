"""The settings of experiment 1, heterogeneous quantization, at three scales.

What the paper states is kept at full scale: users, partition, epochs, batch sizes, learning rates, levels, rounds. The
value range is fixed here: min-max, and beyond the paper a range by level and array.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from heterosag.training.config import TrainConfig
from reproduction.outcome import Scale
from reproduction.setting import (
    ALPHAS,
    BUDGET,
    LEVELS,
    RATES,
    SEEDS,
    SMALL_BUDGET,
    UNQUANTIZED,
    Setting,
    data_for,
    seeds_for,
)

__all__ = ["cifar_1_settings", "cifar_links", "mnist_links"]

_ADAPTIVE: dict[str, Any] = {"range_rule": "adaptive", "rotate": True}  # beyond the paper


def mnist_links(scale: Scale, users: int, seed: int, data_dir: str) -> list[Setting]:
    """Experiment 1: heterogeneous and homogeneous quantization and none, under two rules for the value range."""
    data = data_for(scale, "mnist", data_dir)
    users = users if scale is not Scale.TINY else 25
    batch = {25: 240, 100: 60}[users]
    base = TrainConfig(
        data=data,
        data_dir=data_dir,
        partition="sorted",
        classes=(users // 5,) * 5,
        levels=LEVELS,
        rates=RATES,
        design="paper",
        subgroup_size=users // 5,
        rule="mean",
        rounds=200,
        local_epochs=5,
        batch_size=batch,
        learning_rate=0.03,
        range_rule="minmax",
        rotate=False,
        fill_levels=False,
        secure=False,
        seed=seed,
        checkpoint_every=10,
    )
    if scale is Scale.QUICK:
        base = replace(base, rounds=15)
        if data == "mnist":  # a fifth of the samples in as many steps
            base = replace(base, train_samples=12_000, batch_size=batch // 5)
    if data == "digits":
        base = replace(base, batch_size=16, learning_rate=0.1)
    if scale is Scale.TINY:
        base = replace(base, rounds=3)
    found = [
        Setting(name="none", label="no quantization (32 bits)", config=replace(base, levels=(UNQUANTIZED,) * 5)),
        Setting(name="heterogeneous", label="heterogeneous 2, 6, 8, 10, 12", config=base),
        Setting(name="homogeneous", label="homogeneous K=2", config=replace(base, levels=(2,) * 5)),
        Setting(
            name="heterogeneous-adaptive", label="heterogeneous, adaptive range", config=replace(base, **_ADAPTIVE)
        ),
        Setting(
            name="homogeneous-adaptive",
            label="homogeneous K=2, adaptive range",
            config=replace(base, levels=(2,) * 5, **_ADAPTIVE),
        ),
        Setting(
            name="filled",
            label="heterogeneous, adaptive range, filled ring",
            config=replace(base, fill_levels=True, **_ADAPTIVE),
        ),
        Setting(
            name="quantile",
            label="heterogeneous, quantile range",
            config=replace(base, range_rule="quantile", value_range=0.05),
        ),
    ]
    if users == 100:
        perfect = replace(base, design="perfect", subgroup_size=5, **_ADAPTIVE)
        found.append(Setting(name="perfect", label="perfect, 20 subgroups of 5, adaptive range", config=perfect))
    judged = ("none", "heterogeneous", "homogeneous", "heterogeneous-adaptive", "homogeneous-adaptive")
    return [replace(one, seeds=seeds_for(scale)) if one.name in judged else one for one in found]


def cifar_links(scale: Scale, alpha: float, seed: int, data_dir: str) -> list[Setting]:
    """Experiment 1 on CIFAR-10: 100 users whose labels are drawn from a Dirichlet distribution."""
    base = _cifar_links(scale, alpha, seed, data_dir)
    budget = BUDGET if alpha == 1 else SMALL_BUDGET
    return _three_kinds(f"alpha-{alpha:g}", f"Dirichlet {alpha:g}", base, budget=budget)


def cifar_1_settings(scale: Scale, seed: int, data_dir: str) -> list[Setting]:
    """All of experiment 1 on CIFAR-10: three partitions, and at full scale a smaller size with three seeds."""
    alphas = ALPHAS if scale is not Scale.TINY else ALPHAS[:1]
    found = [one for alpha in alphas for one in cifar_links(scale, alpha, seed, data_dir)]
    return found + (smaller_cifar_links(seed, data_dir) if scale is Scale.FULL else [])


def smaller_cifar_links(seed: int, data_dir: str) -> list[Setting]:
    """Experiment 1 on CIFAR-10 with a quarter of the users and samples and three seeds, with either network."""
    base = _cifar_links(Scale.FULL, 1.0, seed, data_dir)
    base = replace(base, classes=(5,) * 5, subgroup_size=5, train_samples=12_500)
    padded = replace(base, model="cifar10-padded")
    panel = "Dirichlet 1, 25 users"
    kinds = _three_kinds("small", panel, base, budget=40, seeds=SEEDS)
    adaptive = [
        replace(one, name=f"{one.name}-adaptive", label=label, config=replace(one.config, **_ADAPTIVE))
        for one, label in zip(
            kinds[1:], ("heterogeneous, adaptive range", "homogeneous K=2, adaptive range"), strict=True
        )
    ]
    return [
        *kinds,
        *adaptive,
        *_three_kinds("padded", "25 users, authors' network", padded, budget=40, seeds=SEEDS),
    ]


def _cifar_links(scale: Scale, alpha: float, seed: int, data_dir: str) -> TrainConfig:
    data = data_for(scale, "cifar10", data_dir)
    users = 100 if scale is Scale.FULL else 25
    base = TrainConfig(
        data=data,
        data_dir=data_dir,
        partition="dirichlet-fedml" if scale is Scale.FULL else "dirichlet",  # needs ten samples a user
        alpha=alpha,
        classes=(users // 5,) * 5,
        levels=LEVELS,
        rates=RATES,
        design="paper",
        subgroup_size=users // 5,
        rounds=250,
        local_epochs=5,
        batch_size=0.2,
        learning_rate=0.02,
        decay_start=150,
        decay=0.02,
        range_rule="minmax",
        rotate=False,
        fill_levels=False,
        secure=False,
        seed=seed,
        checkpoint_every=5,
    )
    if scale is not Scale.FULL:
        base = replace(base, rounds=5 if scale is Scale.QUICK else 2, local_epochs=3, learning_rate=0.05)
        if data == "cifar10":
            base = replace(base, train_samples=800)
    return base


def _three_kinds(stem: str, panel: str, base: TrainConfig, *, budget: int, seeds: int = 1) -> list[Setting]:
    kinds = (
        ("none", "no quantization (32 bits)", (UNQUANTIZED,) * 5),
        ("heterogeneous", "heterogeneous 2, 6, 8, 10, 12", LEVELS),
        ("homogeneous", "homogeneous K=2", (2,) * 5),
    )
    return [
        Setting(
            name=f"{stem}-{kind}",
            label=label,
            panel=panel,
            config=replace(base, levels=levels),
            group=stem,
            seeds=seeds,
            budget=budget,
        )
        for kind, label, levels in kinds
    ]
