"""What experiments say of their training runs: the setting in words, tables, lines of a plot, recurring verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from heterosag.storage.run_log import RunRecord
from heterosag.training.config import TrainConfig
from reproduction.outcome import OURS, Holds, Scale, Series, Table, Trained, Verdict
from reproduction.running import Finished, Job, accuracy, accuracy_series, read_data, repetitions

__all__ = [
    "about",
    "Interval",
    "about_engine",
    "accuracies",
    "differs",
    "percent",
    "points_below",
    "repeated",
    "same_bits",
    "scale_note",
    "trained",
    "values",
    "with_reference",
    "worth_judging",
]

_CHANCE = 0.1  # every data set here has ten labels


def about(config: TrainConfig, rounds: int | None = None) -> str:
    """The setting in words, as run; `rounds` where they are not the configuration's."""
    how = {
        "iid": "IID",
        "sorted": "sorted by label",
        "dirichlet": f"Dirichlet {config.alpha:g}",
        "dirichlet-fedml": f"Dirichlet {config.alpha:g} as FedML draws it",
    }[config.partition]
    falls = f" falling as 1/(1 + {config.decay:g} t) after round {config.decay_start}" if config.decay else ""
    samples = f"{config.train_samples:,} training samples, " if config.train_samples else ""
    return (
        f"As run: {config.data}, {samples}{config.users} users, {how}, {config.local_epochs} local "
        f"epoch{'s' if config.local_epochs > 1 else ''}, batch "
        f"{_batch(config)}, learning rate {config.learning_rate_at(0):g}{falls}, {rounds or config.rounds} rounds."
    )


def differs(found: Iterable[Finished], paper: Mapping[str, TrainConfig], fixed: str) -> str:
    """What of the groups' settings is not the paper's, in a line.

    Args:
        found: The runs.
        paper: The configuration with the paper's sizes of every group.
        fixed: What the paper does not state, and what stands there instead.
    """
    groups: dict[str, Finished] = {}
    for run in found:
        if run.setting.group in paper:
            groups.setdefault(run.setting.group, run)
    words: dict[str, list[str]] = {}
    for group, run in groups.items():
        difference = ", ".join(_differences(run, paper[group]))
        if difference:
            words.setdefault(difference, []).append(run.setting.panel.removesuffix(", no attack"))
    lines = [f"{', '.join(where)}: {what}" if len(groups) > 1 else what for what, where in words.items()]
    return "; ".join([*(lines or ["in nothing that it states"]), f"not stated there and fixed here: {fixed}"]) + "."


def _differences(run: Finished, paper: TrainConfig) -> Iterator[str]:
    """Where a run has less than the paper, or something else."""
    own = run.setting.config
    if own.data != paper.data:
        yield f"the embedded digits instead of {paper.data}, with the model, epochs, batch and learning rate for them"
    if own.users != paper.users:
        yield f"{own.users} of {paper.users} users"
    if own.train_samples and own.data == paper.data:
        yield f"{own.train_samples:,} of {len(read_data(*_source(run)).train_y):,} samples"
    if len(run.record.rounds) != paper.rounds:
        yield f"{len(run.record.rounds)} of {paper.rounds} rounds"
    if own.data == paper.data:
        if own.local_epochs != paper.local_epochs:
            yield f"{own.local_epochs} local epochs instead of {paper.local_epochs}"
        if own.batch_size != paper.batch_size:
            yield f"batch {_batch(own)} instead of {_batch(paper)}"
        if own.learning_rate != paper.learning_rate:
            yield f"learning rate {own.learning_rate:g} instead of {paper.learning_rate:g}"
        if own.model != paper.model:
            yield "the network of the authors' code (191,434 parameters) instead of the table's (117,706)"
    if own.partition != paper.partition:
        yield f"partition {own.partition} instead of {paper.partition}"


def _batch(config: TrainConfig) -> str:
    return f"{config.batch_size:.0%} of a user's data" if config.batch_size < 1 else f"{config.batch_size:.0f}"


def about_engine(found: Iterable[Finished]) -> str:
    """Which engine ran, and how much of it was repeated with real cryptography."""
    runs = list(found)
    checked = [run for run in runs if run.secure_rounds]
    if not checked:
        return "Runs use the plain engine; none of their rounds was repeated with real cryptography."
    rounds = min(run.secure_rounds for run in checked)
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
        holds=Holds.of(equal == len(checked), judged=rounds > 0),
    )


def repeated(job: Job, item: str, found: Iterable[Finished]) -> tuple[str, ...]:
    """What runs came to when they were trained once more; nothing where none was."""
    words = [
        f"{run.setting.label}, seed {first.config['seed']}: {accuracy(second):.1%} on {second.version}, "
        f"{accuracy(first):.1%} before"
        for run in found
        for first, second in repetitions(job, item, run)
    ]
    return (f"Trained once more, test accuracy at the end: {'; '.join(words)}.",) if words else ()


def trained(found: Iterable[Finished]) -> tuple[Trained, ...]:
    """How large every run was, and of which commit if that is known."""
    return tuple(
        Trained(
            name=run.setting.name,
            users=run.setting.config.users,
            samples=_samples(run),
            rounds=len(run.record.rounds),
            seeds=len(run.records),
            oldest=min(begun, default=("", "")),
            newest=max(begun, default=("", "")),
        )
        for run in found
        for begun in [_begun(run.records)]
    )


def _begun(records: Sequence[RunRecord]) -> list[tuple[str, str]]:
    """When each run began, and its version with the commit; nothing unless all name one."""
    found = [(record.started or "", record.version or "") for record in records]
    return found if all("+g" in version for _, version in found) else []


def _samples(run: Finished) -> int:
    return run.setting.config.train_samples or len(read_data(*_source(run)).train_y)


def _source(run: Finished) -> tuple[str, str]:
    return run.setting.config.data, run.setting.config.data_dir


def worth_judging(*reached: float) -> bool:
    """Whether models that nothing disturbed have learned anything: all of them above twice what guessing gives."""
    return min(reached) > 2 * _CHANCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """What a figure came to with every seed."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return sum(self.values) / len(self.values)

    def __str__(self) -> str:
        """As points with a sign: the mean, and the least and largest where there are several seeds."""
        ends = f" ({min(self.values):+.1f} to {max(self.values):+.1f})" if len(self.values) > 1 else ""
        return f"{self.mean:+.1f}{ends}"


def points_below(reference: Finished, run: Finished) -> Interval:
    """By how many percentage points a run's accuracy is below a reference's, seed by seed."""
    theirs, own = (
        {record.config["seed"]: reached for record, reached in zip(one.records, one.accuracies, strict=True)}
        for one in (reference, run)
    )
    return Interval(values=tuple(100 * (theirs[seed] - own[seed]) for seed in theirs if seed in own))


def percent(run: Finished) -> str:
    """Accuracy at the end: the mean over the seeds, and the least and largest where there are several."""
    found = run.accuracies
    ends = f" ({min(found):.1%} to {max(found):.1%})" if len(found) > 1 else ""
    return f"{run.accuracy:.1%}{ends}"


def values(found: Iterable[Finished]) -> dict[str, float]:
    """Accuracies by name: the mean, and with several seeds the least (-low) and the largest (-high)."""
    named = {}
    for run in found:
        named[run.setting.name] = run.accuracy
        if len(run.records) > 1:
            named[f"{run.setting.name}-low"] = min(run.accuracies)
            named[f"{run.setting.name}-high"] = max(run.accuracies)
    return {name: round(value, 4) for name, value in named.items()}


def accuracies(name: str, title: str, found: Iterable[Finished]) -> Table:
    """What every setting came to."""
    return Table(
        name=name,
        title=title,
        head=(
            "setting",
            "scheme",
            "test accuracy",
            "least and largest",
            "seeds",
            "users",
            "samples",
            "rounds",
            "upload of the slowest class, kB",
            "aggregate's error",
        ),
        rows=tuple(
            (
                run.setting.panel or run.setting.name,
                run.setting.label,
                f"{run.accuracy:.1%}",
                f"{min(run.accuracies):.1%} to {max(run.accuracies):.1%}" if len(run.records) > 1 else "",
                str(len(run.records)),
                str(run.setting.config.users),
                f"{_samples(run):,}",
                str(len(run.record.rounds)),
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


def with_reference(found: Mapping[str, Finished], references: Sequence[str]) -> tuple[Series, ...]:
    """Every run in its panel, and in every panel of an attack the attack-free run of the same data, dashed."""
    panels = dict.fromkeys(run.setting.panel for run in found.values())
    series = [accuracy_series(run) for run in found.values()]
    free = {_where(found[name].setting.panel): found[name] for name in references if name in found}
    for panel in panels:
        one = free.get(_where(panel))
        if one is not None and panel != one.setting.panel:
            series.append(replace(accuracy_series(one, panel=panel, dashed=True), label="no attack"))
    return tuple(series)


def _where(panel: str) -> str:
    """The data of a panel, which its name begins with where there are several."""
    head, comma, _ = panel.rpartition(", ")
    return head if comma and head.startswith(("IID", "Dirichlet")) else ""


def scale_note(job: Job, config: TrainConfig) -> str:
    """What keeps a verdict from being one on the paper's experiment: its scale, or its data."""
    if job.scale is Scale.FULL:
        return ""
    return f"; on {config.data}, far from the paper's sizes at this scale: a sign, not a measurement"
