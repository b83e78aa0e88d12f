"""Figures 10 and 12: which labels the users of the CIFAR-10 experiments have.

The maps are those of the full-size experiments. They need neither files nor training: how many samples of a label a
user gets depends on how many there are, 5,000 of each of ten labels, and not on the pictures.
"""

from __future__ import annotations

import numpy as np

from heterosag.training.config import TrainConfig
from heterosag.training.data import DataSet
from heterosag.training.runs import split
from reproduction.outcome import Holds, Outcome, Plot, Scale, Table, Verdict
from reproduction.running import Job
from reproduction.settings import ALPHAS, cifar_byzantine, cifar_links

__all__ = ["label_counts", "labels"]

_EACH = 5000
_LABELS = 10


def label_counts(config: TrainConfig) -> np.ndarray:
    """For every label (a row) how many of its samples each user (a column) has."""
    y = np.repeat(np.arange(_LABELS), _EACH)
    empty = np.zeros((y.size, 1), dtype=np.float32)
    stand_in = DataSet(name="labels of cifar10", train_x=empty, train_y=y, test_x=empty[:_LABELS], test_y=y[::_EACH])
    _, parts = split(config, stand_in)
    return np.stack([np.bincount(y[part], minlength=_LABELS) for part in parts], axis=1)


def labels(job: Job) -> Outcome:
    """The six maps, and how unequal the users are."""
    figures = {"figure 10": cifar_links, "figure 12": cifar_byzantine}
    plots, rows = [], []
    shares: dict[str, list[float]] = {}
    for figure, settings in figures.items():
        for alpha in ALPHAS:
            config = settings(Scale.FULL, alpha, job.seed, "")[0].config
            counts = label_counts(config)
            sizes = counts.sum(axis=0)
            largest = float((counts.max(axis=0) / sizes).mean())
            shares.setdefault(figure, []).append(largest)
            rows.append((figure, str(config.users), f"{alpha:g}", str(sizes.min()), str(sizes.max()), f"{largest:.0%}"))
            plots.append(
                Plot(
                    name=f"{figure.replace(' ', '-')}-{alpha:g}",
                    title=f"Samples of each label, {config.users} users, Dirichlet {alpha:g}",
                    kind="heat",
                    x_label="user",
                    y_label="label",
                    grid=tuple(tuple(float(value) for value in row) for row in counts),
                )
            )
    return Outcome(
        text=(
            "The splits of the CIFAR-10 experiments at full size: 50,000 samples drawn as FedML does, over 100 and 300 "
            "users. No training is needed.",
        ),
        verdicts=(
            Verdict(
                claim="A larger alpha makes the users' data more IID",
                paper="stated (Appendix J)",
                found="; ".join(
                    f"{figure}: a user's commonest label has {', '.join(f'{share:.0%}' for share in found)} of its "
                    f"samples at {', '.join(f'{alpha:g}' for alpha in ALPHAS)}"
                    for figure, found in shares.items()
                ),
                holds=Holds.of(*(found == sorted(found, reverse=True) for found in shares.values())),
                note="a tenth would be IID",
            ),
        ),
        tables=(
            Table(
                name="sizes",
                title="Samples of a user",
                head=("figure", "users", "alpha", "fewest", "most", "fraction of a user's commonest label"),
                rows=tuple(rows),
            ),
        ),
        plots=tuple(plots),
    )
