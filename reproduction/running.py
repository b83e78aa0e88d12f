"""Running the experiments' settings: each in a folder of its own, reused when finished, resumed when not."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from heterosag.errors import UsageError
from heterosag.storage.run_log import RECORD, RunRecord, read_run
from heterosag.training.config import TrainConfig
from heterosag.training.data import DataSet, load
from heterosag.training.runs import CHECKPOINT
from reproduction.baselines import SCHEMES, Scheme
from reproduction.outcome import Scale, Series
from reproduction.settings import Setting

__all__ = ["Finished", "Job", "accuracy", "accuracy_series", "read_data", "run_all"]

_SECURE_ROUNDS = {Scale.TINY: 1, Scale.QUICK: 1, Scale.FULL: 5}
_PLAINTEXT: tuple[Scheme, ...] = ("float", "naive")  # have no secure rounds to compare with
_SECURE_SETTINGS = {Scale.TINY: 2, Scale.QUICK: 2, Scale.FULL: None}  # so many of an item's settings; None: all


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What an item is asked to do: at which scale, with which seed, where runs are kept, whom to tell."""

    scale: Scale
    seed: int
    folder: Path
    data_dir: str = ""
    workers: int = 1
    say: Callable[[str], None] = print


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A setting with its record, and the first rounds once more with real cryptography (None where left out)."""

    setting: Setting
    record: RunRecord
    secure: RunRecord | None

    @property
    def secure_rounds(self) -> int:
        """How many rounds were repeated with real cryptography."""
        return 0 if self.secure is None else len(self.secure.rounds)

    @property
    def same_bits(self) -> bool:
        """Whether there were secure rounds and they left the very models of the plain ones."""
        if self.secure is None or not self.secure.rounds:
            return False
        pairs = zip(self.record.rounds, self.secure.rounds, strict=False)
        return all(plain["model"] == secure["model"] for plain, secure in pairs)


def run_all(job: Job, item: str, settings: Sequence[Setting]) -> list[Finished]:
    """Every setting's run, and a few secure rounds of it to compare bit for bit."""
    found = []
    for number, setting in enumerate(settings, start=1):
        place = job.folder / "runs" / job.scale / item / setting.name
        began = time.perf_counter()
        record = _run(setting.scheme, setting.config, place)
        secure = None
        limit = _SECURE_SETTINGS[job.scale]
        if setting.scheme not in _PLAINTEXT and (limit is None or number <= limit):
            rounds = min(_SECURE_ROUNDS[job.scale], setting.config.rounds)
            checked = replace(setting.config, secure=True, rounds=rounds, workers=job.workers)
            secure = _run(setting.scheme, checked, place.with_name(f"{setting.name}-secure"))
        found.append(Finished(setting=setting, record=record, secure=secure))
        spent = time.perf_counter() - began
        reached = accuracy(record)
        job.say(f"{item} {number}/{len(settings)}: {setting.name} reached {reached:.1%} ({spent:.0f} s)")
    return found


def _run(scheme: Scheme, config: TrainConfig, folder: Path) -> RunRecord:
    kind = SCHEMES[scheme]
    if (folder / RECORD).exists() and not (folder / CHECKPOINT).exists():
        shutil.rmtree(folder)  # stopped before its first checkpoint: nothing to go on from
    if not (folder / RECORD).exists():
        kind(config, folder, data_set=read_data(config.data, config.data_dir)).train()
        return read_run(folder)
    record = read_run(folder)
    if _essence(record.config) != _essence(config.to_dict()):
        raise UsageError(f"{folder} holds a run of other settings: give another --out, or delete that folder")
    if record.end is None:
        kind.resume(folder, data_set=read_data(config.data, config.data_dir)).train()
        record = read_run(folder)
    return record


@lru_cache(maxsize=1)
def read_data(name: str, folder: str) -> DataSet:
    """Read once for the runs that follow each other on it; nobody writes into a data set."""
    return load(name, folder)


def _essence(config: dict[str, Any]) -> dict[str, Any]:
    """What a run's result depends on: not where its data lay or how many processes worked."""
    return {name: value for name, value in config.items() if name not in ("data_dir", "workers", "checkpoint_every")}


def accuracy(record: RunRecord) -> float:
    """Test accuracy at the end: the mean over the last tenth of the rounds."""
    last = record.rounds[-max(1, len(record.rounds) // 10) :]
    return float(sum(line["accuracy"] for line in last) / len(last))


def accuracy_series(finished: Finished, *, panel: str | None = None, dashed: bool = False) -> Series:
    """Accuracy over rounds as a line of a plot."""
    rounds = finished.record.rounds
    return Series(
        label=finished.setting.label,
        x=tuple(float(line["round"]) for line in rounds),
        y=tuple(round(100 * line["accuracy"], 2) for line in rounds),
        panel=finished.setting.panel if panel is None else panel,
        dashed=dashed,
    )
