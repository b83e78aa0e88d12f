"""What experiments say of their training runs: the setting in words, tables, lines of a plot, recurring verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from heterosag.storage.run_log import RunRecord
from heterosag.training.config import TrainConfig
from reproduction.outcome import OURS, Holds, Scale, Series, Table, Trained, Verdict
from reproduction.running import Finished, Job, accuracy, accuracy_series, read_data

__all__ = [
    "about",
    "about_engine",
    "accuracies",
    "same_bits",
    "scale_note",
    "trained",
    "with_reference",
    "worth_judging",
]

_CHANCE = 0.1  # every data set here has ten labels


def about(config: TrainConfig) -> str:
    """The setting in words, as run."""
    how = {
        "iid": "IID",
        "sorted": "sorted by label",
        "dirichlet": f"Dirichlet {config.alpha:g}",
        "dirichlet-fedml": f"Dirichlet {config.alpha:g} as FedML draws it",
    }[config.partition]
    falls = f" falling as 1/(1 + {config.decay:g} t) after round {config.decay_start}" if config.decay else ""
    samples = f"{config.train_samples:,} training samples, " if config.train_samples else ""
    batch = f"{config.batch_size:.0%} of a user's data" if config.batch_size < 1 else f"{config.batch_size:.0f}"
    return (
        f"As run: {config.data}, {samples}{config.users} users, {how}, {config.local_epochs} local epochs, batch "
        f"{batch}, learning rate {config.learning_rate_at(0):g}{falls}, {config.rounds} rounds."
    )


def about_engine(found: Iterable[Finished]) -> str:
    """Which engine ran, and how much of it was repeated with real cryptography."""
    runs = list(found)
    checked = [run for run in runs if run.secure_rounds]
    rounds = checked[0].secure_rounds
    which = "each" if len(checked) == len(runs) else f"{len(checked)} of the {len(runs)}"
    first = f"first {rounds} rounds of {which} were" if rounds > 1 else f"first round of {which} was"
    return f"Runs use the plain engine; the {first} repeated with real cryptography and compared bit for bit."


def same_bits(found: Iterable[Finished]) -> Verdict:
    """Whether secure rounds gave the models of the plain ones."""
    checked = [run for run in found if run.secure_rounds]
    equal = sum(run.same_bits for run in checked)
    rounds = sum(run.secure_rounds for run in checked)
    return Verdict(
        claim="Secure rounds leave the same model, bit for bit",
        paper=OURS,
        found=f"{equal} of {len(checked)} settings checked, {rounds} secure rounds",
        holds=Holds.of(equal == len(checked) and rounds > 0),
    )


def trained(found: Iterable[Finished]) -> tuple[Trained, ...]:
    """How large every run was."""
    return tuple(
        Trained(
            name=run.setting.name,
            users=run.setting.config.users,
            samples=run.setting.config.train_samples or len(read_data(*_source(run)).train_y),
            rounds=len(run.record.rounds),
        )
        for run in found
    )


def _source(run: Finished) -> tuple[str, str]:
    return run.setting.config.data, run.setting.config.data_dir


def worth_judging(*reached: float) -> bool:
    """Whether models that nothing disturbed have learned anything: all of them above twice what guessing gives."""
    return min(reached) > 2 * _CHANCE


def accuracies(name: str, title: str, found: Iterable[Finished]) -> Table:
    """What every run came to."""
    return Table(
        name=name,
        title=title,
        head=("setting", "scheme", "test accuracy", "best", "upload of the slowest class, kB", "aggregate's error"),
        rows=tuple(
            (
                run.setting.panel or run.setting.name,
                run.setting.label,
                f"{accuracy(run.record):.1%}",
                f"{max(line['accuracy'] for line in run.record.rounds):.1%}",
                f"{_upload(run.record):.1f}",
                f"{_error(run.record):.2g}",
            )
            for run in found
        ),
    )


def _upload(record: RunRecord) -> float:
    sent = [
        sum(sizes[0] or 0 for sizes in line["sent_bytes"].values()) for line in record.rounds if line["error"] is None
    ]
    return float(np.mean(sent)) / 1000 if sent else 0.0


def _error(record: RunRecord) -> float:
    found = [line["aggregate_error"] for line in record.rounds if line["error"] is None]
    return float(np.mean(found)) if found else float("nan")


def with_reference(found: dict[str, Finished], references: Sequence[str]) -> tuple[Series, ...]:
    """Every run in its panel, and in every panel of an attack the attack-free run of the same data, dashed."""
    panels = dict.fromkeys(run.setting.panel for run in found.values())
    series = [accuracy_series(run) for run in found.values()]
    free = {_where(found[name].setting.panel): found[name] for name in references}
    for panel in panels:
        one = free[_where(panel)]
        if panel != one.setting.panel:
            series.append(replace(accuracy_series(one, panel=panel, dashed=True), label="no attack"))
    return tuple(series)


def _where(panel: str) -> str:
    """The data of a panel, which its name begins with where there are several."""
    head, comma, _ = panel.partition(", ")
    return head if comma and head.startswith(("IID", "Dirichlet")) else ""


def scale_note(job: Job, config: TrainConfig) -> str:
    """What keeps a verdict from being one on the paper's experiment: its scale, or its data."""
    if job.scale is Scale.FULL:
        return ""
    return f"; on {config.data}, far from the paper's sizes at this scale: a sign, not a measurement"
