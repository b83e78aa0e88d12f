"""The settings of the paper's two experiments, at three scales.

What the paper states is kept at full scale: users, partition, epochs, batch sizes, learning rates, levels, rounds of
experiment 1. What it leaves open is fixed here: 200 rounds for experiment 2 on MNIST, as its authors' code has, 12
levels there, the value range (one for all that follows a quantile; in experiment 1 min-max, and beyond the paper a
range by level and array), and "subtracts 9 from its labels" read as 9-y.
Sign-flip is the update times -5, as the text says; the authors' code sends noise instead, times -5 on MNIST, which is
the Gaussian attack, and times -1 on CIFAR-10, which is a setting of its own (`sign-flip-noise`). Quick runs have fewer
samples and rounds, and on CIFAR-10 fewer users, other epochs and a larger step, so that anything is learned at all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from heterosag.training.config import Attack, TrainConfig
from reproduction.baselines import Scheme, brea_for
from reproduction.outcome import Scale

__all__ = [
    "ALPHAS",
    "ATTACKS",
    "EXPERIMENTS",
    "LEVELS",
    "Setting",
    "beside_brea",
    "cifar_1_settings",
    "cifar_2_settings",
    "cifar_byzantine",
    "cifar_links",
    "mnist_byzantine",
    "mnist_links",
]

LEVELS = (2, 6, 8, 10, 12)
UNQUANTIZED = 2**32  # the paper's reading of no quantization: 32 bits an element
ALPHAS = (0.7, 1.0, 10.0)
ATTACKS: tuple[Attack, ...] = ("gaussian", "sign-flip", "label-flip")
SEEDS = 3
"""Of every setting whose accuracy a verdict rests on; on CIFAR-10 at full size one, and so many at a smaller size."""

RATES = (1.0, 2.0, 2.0, 2.0, 2.0)  # Mb/s: group 0 has 1, the others "more than 2"
_BUDGET = 100  # rounds on CIFAR-10 at full size, of what matters most
_SMALL_BUDGET = 30  # and of the rest


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


def _seeds(scale: Scale) -> int:
    """Seeds of a setting whose accuracy a verdict rests on."""
    return SEEDS if scale is Scale.FULL else 1


# --- experiment 1 -------------------------------------------------------------------------------------------------


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
    adaptive: dict[str, Any] = {"range_rule": "adaptive", "rotate": True}
    found = [
        Setting(name="none", label="no quantization (32 bits)", config=replace(base, levels=(UNQUANTIZED,) * 5)),
        Setting(name="heterogeneous", label="heterogeneous 2, 6, 8, 10, 12", config=base),
        Setting(name="homogeneous", label="homogeneous K=2", config=replace(base, levels=(2,) * 5)),
        Setting(name="heterogeneous-adaptive", label="heterogeneous, adaptive range", config=replace(base, **adaptive)),
        Setting(
            name="homogeneous-adaptive",
            label="homogeneous K=2, adaptive range",
            config=replace(base, levels=(2,) * 5, **adaptive),
        ),
        Setting(
            name="filled",
            label="heterogeneous, adaptive, levels raised to fill the ring",
            config=replace(base, fill_levels=True, **adaptive),
        ),
        Setting(
            name="quantile",
            label="heterogeneous, one range that follows a quantile",
            config=replace(base, range_rule="quantile", value_range=0.05),
        ),
    ]
    if users == 100:
        perfect = replace(base, design="perfect", subgroup_size=5, **adaptive)
        found.append(Setting(name="perfect", label="perfect, 20 subgroups of 5, adaptive range", config=perfect))
    judged = ("none", "heterogeneous", "homogeneous", "heterogeneous-adaptive", "homogeneous-adaptive")
    return [replace(one, seeds=_seeds(scale)) if one.name in judged else one for one in found]


def cifar_links(scale: Scale, alpha: float, seed: int, data_dir: str) -> list[Setting]:
    """Experiment 1 on CIFAR-10: 100 users whose labels are drawn from a Dirichlet distribution."""
    base = _cifar_links(scale, alpha, seed, data_dir)
    budget = _BUDGET if alpha == 1 else _SMALL_BUDGET
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
    return [
        *_three_kinds("small", panel, base, budget=40, seeds=SEEDS),
        *_three_kinds("padded", f"{panel}, the network of the authors' code", padded, budget=40, seeds=SEEDS),
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


# --- experiment 2 -------------------------------------------------------------------------------------------------


def _byzantine(base: TrainConfig, attack: Attack, attackers: int, strength: float | None = None) -> TrainConfig:
    count = attackers if attack != "none" else 0
    return replace(base, attack=attack, attackers=count, attack_strength=strength)


def _fedavg(config: TrainConfig) -> TrainConfig:
    """The baseline: one block of everybody and the mean, through the same ring and engine."""
    return replace(config, design="secagg", rule="unchecked_mean")


def _in_floats(config: TrainConfig) -> TrainConfig:
    """Without a ring there is no range to adapt."""
    return replace(config, range_rule="fixed", value_range=1.0)


def _variants(attack: str, config: TrainConfig, panel: str, scale: Scale) -> list[Setting]:
    """The same without the ring, without the filter of impossible sums, and with a server that sees every update.

    Quick runs have them of FedAvg, and without the filter under Gaussian noise, which it removes.
    """
    kinds: list[tuple[str, str, TrainConfig, Scheme]] = [
        ("fedavg-float", "FedAvg in floats", _in_floats(_fedavg(config)), "float")
    ]
    if attack == "gaussian" or (attack != "none" and scale is not Scale.QUICK):
        kinds.append(("median-unfiltered", "HeteroSAg, unfiltered median", config, "unfiltered"))
    if scale is not Scale.QUICK:
        kinds.append(("median-float", "the median of its blocks in floats", _in_floats(config), "float"))
        kinds.append(("naive", "the median of plaintext updates", _in_floats(config), "naive"))
    return [
        Setting(name=f"{attack}-{kind}", label=label, config=variant, panel=panel, scheme=scheme)
        for kind, label, variant, scheme in kinds
    ]


_JUDGED = ("median", "fedavg", "fedavg-float", "median-unfiltered", "perfect")


def mnist_byzantine(scale: Scale, seed: int, data_dir: str) -> list[Setting]:
    """Experiment 2: 300 users, 75 subgroups of four, 18 attackers, the median against federated averaging."""
    data = data_for(scale, "mnist", data_dir)
    users = 300 if scale is not Scale.TINY else 60
    base = TrainConfig(
        data=data,
        data_dir=data_dir,
        partition="iid",
        classes=(users,),
        levels=(12,),
        design="paper-composite",
        subgroup_size=4,
        rule="median",
        rounds=200,
        local_epochs=1,
        batch_size=40,
        learning_rate=0.06,
        range_rule="quantile",
        rotate=False,
        value_range=0.05,
        secure=False,
        seed=seed,
        checkpoint_every=10,
    )
    if scale is Scale.QUICK:
        base = replace(base, rounds=10)
        if data == "mnist":  # a fifth of the samples in as many steps
            base = replace(base, train_samples=12_000, batch_size=8)
    if data == "digits":
        base = replace(base, batch_size=8, learning_rate=0.3, local_epochs=3)
    if scale is Scale.TINY:
        base = replace(base, rounds=6)
    attackers = _attackers(base)
    found = []
    attacks: tuple[Attack, ...] = ("none", *ATTACKS)
    for attack in attacks:
        config = _byzantine(base, attack, attackers)
        panel = "no attack" if attack == "none" else attack
        found.append(Setting(name=f"{attack}-median", label="HeteroSAg, median", config=config, panel=panel))
        found.append(Setting(name=f"{attack}-fedavg", label="FedAvg over SecAg", config=_fedavg(config), panel=panel))
        if attack != "none":
            better = replace(config, design="perfect")
            found.append(Setting(name=f"{attack}-perfect", label="perfect, median", config=better, panel=panel))
        found += _variants(attack, config, panel, scale)
    strengths: list[tuple[Attack, float]] = [("sign-flip", 10.0), ("sign-flip", 15.0), ("gaussian", 1.0)]
    for attack, strength in strengths:
        weaker = _fedavg(_byzantine(base, attack, attackers, strength=strength))
        label = f"FedAvg, {attack} {strength:g}"
        name = f"{attack}-{strength:g}-fedavg"
        found.append(Setting(name=name, label=label, config=weaker, panel="strengths"))
        if attack == "gaussian":
            floats = Setting(
                name=f"{name}-float",
                label=f"{label}, in floats",
                config=_in_floats(weaker),
                panel="strengths",
                scheme="float",
            )
            found.append(floats)
    strong = _byzantine(base, "sign-flip", attackers, strength=20.0)
    twenty = "sign-flip, 20 times"
    found.append(Setting(name="strong-median", label="HeteroSAg, median", config=strong, panel=twenty))
    found.append(Setting(name="strong-fedavg", label="FedAvg over SecAg", config=_fedavg(strong), panel=twenty))
    judged = tuple(f"{attack}-{kind}" for attack in attacks for kind in _JUDGED)
    return [replace(one, seeds=_seeds(scale)) if one.name in judged else one for one in found]


def cifar_byzantine(scale: Scale, alpha: float | None, seed: int, data_dir: str) -> list[Setting]:
    """Experiment 2 on CIFAR-10: IID (alpha None) under three attacks, or Dirichlet under two.

    The authors' code sends noise where the paper has sign-flip, which is one more attack (`sign-flip-noise`).
    """
    base = _cifar_byzantine(scale, alpha, seed, data_dir)
    where = "IID" if alpha is None else f"Dirichlet {alpha:g}"
    stem = "iid" if alpha is None else f"alpha-{alpha:g}"
    attacks = ATTACKS if alpha is None else ATTACKS[:2]
    budget = _BUDGET if alpha is None else _SMALL_BUDGET
    cases = _cases(attacks, noise=alpha is None or scale is not Scale.QUICK)
    found = _attacked(stem, where, base, cases)
    if alpha is None and scale is Scale.FULL:
        found += [replace(one, group="iid-float") for one in _in_floats_too(stem, where, base, cases)]
    return [replace(one, budget=budget) for one in found]


def cifar_2_settings(scale: Scale, seed: int, data_dir: str) -> list[Setting]:
    """All of experiment 2 on CIFAR-10: IID and three partitions, and at full scale a smaller size with three seeds."""
    alphas = ALPHAS if scale is not Scale.TINY else ALPHAS[:1]
    cases: tuple[float | None, ...] = (None, *alphas)
    found = [one for alpha in cases for one in cifar_byzantine(scale, alpha, seed, data_dir)]
    return found + (smaller_cifar_byzantine(seed, data_dir) if scale is Scale.FULL else [])


def smaller_cifar_byzantine(seed: int, data_dir: str) -> list[Setting]:
    """Experiment 2 on CIFAR-10, IID, with a fifth of the users and samples and three seeds, and without ring or filter.

    The network of the authors' code has the same runs without attack and with theirs.
    """
    base = _cifar_byzantine(Scale.FULL, None, seed, data_dir)
    base = replace(base, classes=(60,), train_samples=10_000)
    where = "IID, 60 users"
    cases = _cases(ATTACKS, noise=True)
    found = _attacked("small", where, base, cases)
    found += _in_floats_too("small", where, base, cases)
    found += _unfiltered_too("small", where, base, cases)
    padded = replace(base, model="cifar10-padded")
    theirs = _cases(ATTACKS[1:2], noise=True)
    found += _attacked("padded", f"{where}, the network of the authors' code", padded, theirs)
    return [replace(one, seeds=SEEDS, budget=_BUDGET) for one in found]


def _cifar_byzantine(scale: Scale, alpha: float | None, seed: int, data_dir: str) -> TrainConfig:
    data = data_for(scale, "cifar10", data_dir)
    users = 300 if scale is Scale.FULL else 60
    base = TrainConfig(
        data=data,
        data_dir=data_dir,
        partition="iid" if alpha is None else "dirichlet-fedml" if scale is Scale.FULL else "dirichlet",
        alpha=alpha or 1.0,
        classes=(users,),
        levels=(12,),
        design="paper-composite",
        subgroup_size=4,
        rule="median",
        rounds=300,
        local_epochs=1 if alpha is None else 4,
        batch_size=40 if alpha is None else 0.2,
        learning_rate=0.06 if alpha is None else 0.02,
        range_rule="quantile",
        rotate=False,
        value_range=0.05,
        secure=False,
        seed=seed,
        checkpoint_every=5,
    )
    if scale is not Scale.FULL:
        base = replace(
            base, rounds=4 if scale is Scale.QUICK else 2, local_epochs=2, batch_size=0.2, learning_rate=0.05
        )
        if data == "cifar10":
            base = replace(base, train_samples=1000)
    return base


_Case = tuple[str, Attack, float | None]  # its name, the attack and its strength


def _cases(attacks: Sequence[Attack], *, noise: bool) -> list[_Case]:
    """No attack, each of some, and the noise that the authors' code sends for sign-flip."""
    found: list[_Case] = [("none", "none", None), *((one, one, None) for one in attacks)]
    return found + ([("sign-flip-noise", "gaussian", 1.0)] if noise else [])


def _attacked(stem: str, where: str, base: TrainConfig, cases: Sequence[_Case]) -> list[Setting]:
    """The median and federated averaging in every case."""
    found = []
    for case in cases:
        config = _byzantine(base, case[1], _attackers(base), case[2])
        found.append(_case_setting(stem, where, case, "median", "HeteroSAg, median", config))
        found.append(_case_setting(stem, where, case, "fedavg", "FedAvg over SecAg", _fedavg(config)))
    return found


def _in_floats_too(stem: str, where: str, base: TrainConfig, cases: Sequence[_Case]) -> list[Setting]:
    """Federated averaging in floats, where attackers do not wrap, in every case with an attack."""
    found = []
    for case in cases[1:]:
        config = _in_floats(_fedavg(_byzantine(base, case[1], _attackers(base), case[2])))
        found.append(_case_setting(stem, where, case, "fedavg-float", "FedAvg in floats", config, "float"))
    return found


def _unfiltered_too(stem: str, where: str, base: TrainConfig, cases: Sequence[_Case]) -> list[Setting]:
    """The median that leaves out no block, in the cases with noise, which the filter of impossible sums removes."""
    found = []
    for case in cases:
        if case[1] == "gaussian":
            config = _byzantine(base, case[1], _attackers(base), case[2])
            label = "HeteroSAg, unfiltered median"
            found.append(_case_setting(stem, where, case, "median-unfiltered", label, config, "unfiltered"))
    return found


def _case_setting(
    stem: str, where: str, case: _Case, kind: str, label: str, config: TrainConfig, scheme: Scheme = "ring"
) -> Setting:
    return Setting(
        name=f"{stem}-{case[0]}-{kind}",
        label=label,
        config=config,
        panel=f"{where}, {'no attack' if case[0] == 'none' else case[0]}",
        scheme=scheme,
        group=stem,
    )


def _attackers(config: TrainConfig) -> int:
    """The paper's 18 of 300, and of fewer users its bound: a quarter of the subgroups, of four users each, less one."""
    return 18 if config.users == 300 else -(-config.users // 16) - 1


# --- BREA ---------------------------------------------------------------------------------------------------------


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
        batch_size=40,
        learning_rate=0.06,
        value_range=0.05,
        secure=False,
        seed=seed,
        checkpoint_every=10,
    )
    if scale is Scale.QUICK and data == "mnist":
        base = replace(base, train_samples=12_000, batch_size=16)
    if data == "digits":
        base = replace(base, batch_size=8, learning_rate=0.3, local_epochs=3)
    few = _attackers(base)
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
            config=_byzantine(base, attack, count),
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
    "brea": beside_brea,
}
"""The settings of the items that train, by scale, seed and the folder of data."""
