"""What judging the paper's two experiments has in common: their runs, the paper's sizes, groups of settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from heterosag.errors import UsageError
from heterosag.training.config import TrainConfig
from reproduction.outcome import Plot, Scale, Series
from reproduction.running import Finished, Job, run_all
from reproduction.settings import EXPERIMENTS

__all__ = ["all_of", "first_group", "left_out", "of_groups", "papers_configs", "plot_accuracy", "runs_of", "size_of"]


def runs_of(job: Job, item: str, *, whole: bool) -> dict[str, Finished]:
    """An item's runs by the names of their settings, `whole` if none may be missing."""
    settings = EXPERIMENTS[item](job.scale, job.seed, job.data_dir)
    found = {run.setting.name: run for run in run_all(job, item, settings)}
    missing = [setting.name for setting in settings if setting.name not in found]
    if whole and missing:
        raise UsageError(f"{item} cannot be judged as it is: these have too few rounds yet: {', '.join(missing)}")
    return found


def papers_configs(job: Job, item: str, **instead: str) -> dict[str, TrainConfig]:
    """The configuration with the paper's sizes by group; `instead` names the group that stands for a smaller one."""
    settings = EXPERIMENTS[item](Scale.FULL, job.seed, job.data_dir)
    own: dict[str, TrainConfig] = {}
    for setting in settings:
        own.setdefault(setting.group, setting.config)
    return own | {group: own[other] for group, other in instead.items()}


def plot_accuracy(name: str, title: str, series: tuple[Series, ...]) -> Plot:
    """Accuracy over rounds."""
    return Plot(name=name, title=title, kind="lines", x_label="round", y_label="test accuracy, %", series=series)


def first_group(groups: Mapping[str, Finished]) -> Finished:
    """The first group's run without attack or quantization; an error where there is none."""
    if not groups:
        raise UsageError("nothing can be judged as it is: no runs that belong together have the rounds wanted yet")
    return next(iter(groups.values()))


def of_groups(found: Mapping[str, Finished], *beginnings: str) -> dict[str, Finished]:
    """The runs of groups whose names begin so."""
    return {name: run for name, run in found.items() if run.setting.group.startswith(beginnings)}


def size_of(found: Mapping[str, Finished], group: str) -> str:
    """The panel of a group with the rounds and seeds of its runs."""
    runs = [run for run in found.values() if run.setting.group == group]
    seeds = {len(run.records) for run in runs}
    words = "one seed" if seeds == {1} else f"{' to '.join(map(str, sorted({min(seeds), max(seeds)})))} seeds"
    return f"{_place(runs[0])} ({min(len(run.record.rounds) for run in runs)} rounds, {words})"


def _place(run: Finished) -> str:
    return run.setting.panel.removesuffix(", no attack")


def all_of(*kinds: Iterable[bool]) -> list[bool]:
    """Whether all of a kind are true, kind by kind; one that has none says nothing."""
    return [all(kind) for kind in map(list, kinds) if kind]


def left_out(groups: dict[str, Finished], learned: dict[str, Finished]) -> str:
    """What a verdict leaves out, because nothing was learned there."""
    left = [_place(run) for group, run in groups.items() if group not in learned]
    return f"; not judged, as without attack or quantization little was learned: {', '.join(left)}" if left else ""
