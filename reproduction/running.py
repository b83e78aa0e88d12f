"""Running the experiments' settings: every run in a folder of its own, reused when finished, resumed when not.

A setting's runs are in OUT/runs/SCALE/ITEM/SETTING/seed-N, and the first rounds of the first once more, with real
cryptography, in seed-N-secure beside it. Last digits differ between machines, so if the first run is another machine's
record, its first rounds are repeated in seed-N-plain too, and the secure ones are compared with these.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from heterosag.errors import UsageError
from heterosag.storage.run_log import RECORD, RunRecord, read_run
from heterosag.training.config import TrainConfig
from heterosag.training.data import DataSet, load
from heterosag.training.runs import CHECKPOINT
from reproduction.baselines import SCHEMES, Scheme
from reproduction.outcome import Scale, Series
from reproduction.records import find_commit, keep, kept
from reproduction.settings import Setting

__all__ = ["Finished", "Job", "accuracy", "accuracy_series", "read_data", "repetitions", "run_all", "train"]

_SECURE_ROUNDS = {Scale.TINY: 1, Scale.QUICK: 1, Scale.FULL: 3}
_PLAINTEXT: tuple[Scheme, ...] = ("float", "naive")  # have no secure rounds to compare with
_SECURE_SETTINGS = {
    Scale.TINY: 2,
    Scale.QUICK: 2,
    Scale.FULL: None,
}  # so many of an item's settings in the ring; None: all
_MOST_SEEDS = 3
_SECURE = "-secure"  # ends the name of the rounds with real cryptography
_PLAIN = "-plain"  # and of those that were repeated without it


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What an item is asked to do: at which scale, with which seed, where runs are kept, whom to tell.

    `only` are beginnings of the names of runs (SETTING/seed-N) that are trained, instead of all. `rounds` are wanted of
    a run in the place of its setting's budget. `as_it_is` trains nothing and takes the runs that have as many. Runs
    that the folder `records` has with as many rounds are taken from there; those that are trained are added to it.
    `commit` is that of the code.
    """

    scale: Scale
    seed: int
    folder: Path
    data_dir: str = ""
    workers: int = 1
    only: tuple[str, ...] = ()
    as_it_is: bool = False
    rounds: int | None = None
    records: Path | None = None
    commit: str = ""
    say: Callable[[str], None] = print


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A setting with a record for every seed, and the first rounds once more with real cryptography, if they were.

    `plain` are the same rounds without, where the first record is of another machine than `secure`.
    """

    setting: Setting
    records: tuple[RunRecord, ...]
    secure: RunRecord | None
    plain: RunRecord | None = None

    @property
    def record(self) -> RunRecord:
        """The record of the first seed."""
        return self.records[0]

    @property
    def accuracies(self) -> tuple[float, ...]:
        """Test accuracy at the end, seed by seed."""
        return tuple(map(accuracy, self.records))

    @property
    def accuracy(self) -> float:
        """Test accuracy at the end, as the mean over the seeds."""
        return sum(self.accuracies) / len(self.records)

    @property
    def secure_rounds(self) -> int:
        """How many rounds were repeated with real cryptography."""
        return 0 if self.secure is None else len(self.secure.rounds)

    @property
    def same_bits(self) -> bool:
        """Whether there were secure rounds and they left the very models of the plain ones."""
        if self.secure is None or not self.secure.rounds:
            return False
        pairs = zip((self.plain or self.record).rounds, self.secure.rounds, strict=False)
        return all(plain["model"] == secure["model"] for plain, secure in pairs)


class _EnoughError(Exception):
    """A run has come to the rounds that were asked for."""


def run_all(job: Job, item: str, settings: Sequence[Setting]) -> list[Finished]:
    """Every setting's runs, one a seed, and a few secure rounds of the first to compare bit for bit.

    Each counts up to the rounds that are wanted of it. Taken as they are, runs that have fewer are left out, and so are
    settings without a run of the first seed.
    """
    if not job.as_it_is:
        train(job, item, settings)
    known = _kept(job, item)
    found = [_read(job, item, setting, known) for setting in settings]
    if not any(found):
        raise UsageError(f"no run of {item} has as many rounds as wanted: train some, or ask for fewer with --rounds")
    return [run for run in found if run is not None]


def train(job: Job, item: str, settings: Sequence[Setting]) -> None:
    """Train what is not trained yet: every setting with its first seed and in secure rounds, then with the others."""
    runs = [(setting, number) for number in range(_MOST_SEEDS) for setting in settings if number < setting.seeds]
    wanted = [(setting, number) for setting, number in runs if _wanted(job, setting, number)]
    if not wanted:
        names = ", ".join(setting.name for setting in settings)
        raise UsageError(f"no run of {item} begins with {' or '.join(job.only)}: its settings are {names}")
    known, checked, commit = _kept(job, item), _checked(job, settings), find_commit()
    for index, (setting, number) in enumerate(wanted, start=1):
        if _find(job, item, setting, number, known) is None:
            began = time.perf_counter()
            place = _folder(job, item, setting, number)
            record = _run(setting.scheme, setting.config_of(number), place, _rounds(job, setting))
            _keep(job, item, _name(setting, number), record, commit)
            spent = time.perf_counter() - began
            job.say(
                f"{item} {index}/{len(wanted)}: {_name(setting, number)} reached {accuracy(record):.1%} in round "
                f"{len(record.rounds)} ({spent:.0f} s)"
            )
        if number == 0 and setting in checked and f"{_name(setting, 0)}{_SECURE}" not in known:
            _run_secure(job, item, setting, commit)


def repetitions(job: Job, item: str, finished: Finished) -> list[tuple[RunRecord, RunRecord]]:
    """Runs of a setting that were trained once more, as far as the first time, and kept in the folder `again` of the
    records: each first record with the second."""
    again = {} if job.records is None else kept(job.records / "again" / job.scale, item)
    found = []
    for first in finished.records:
        second = again.get(f"{finished.setting.name}/seed-{first.config['seed']}")
        if second is not None and len(second.rounds) >= len(first.rounds):
            _check(second, replace(finished.setting.config, seed=first.config["seed"]))
            found.append((first, replace(second, rounds=second.rounds[: len(first.rounds)])))
    return found


def _run_secure(job: Job, item: str, setting: Setting, commit: str) -> None:
    """A setting's first rounds with real cryptography, and without it unless they were trained here."""
    rounds = min(_SECURE_ROUNDS[job.scale], setting.config.rounds)
    here = (_folder(job, item, setting, 0) / RECORD).exists()
    for ending in (_SECURE,) if here else (_PLAIN, _SECURE):
        config = replace(setting.config, secure=ending == _SECURE, rounds=rounds, workers=job.workers)
        record = _run(setting.scheme, config, _beside(job, item, setting, ending), rounds)
        _keep(job, item, f"{_name(setting, 0)}{ending}", record, commit)


def _kept(job: Job, item: str) -> dict[str, RunRecord]:
    return {} if job.records is None else kept(job.records / job.scale, item)


def _keep(job: Job, item: str, name: str, record: RunRecord, commit: str) -> None:
    if job.records is not None:
        keep(job.records / job.scale, item, {name: record}, commit)


def _name(setting: Setting, number: int) -> str:
    return f"{setting.name}/seed-{setting.config_of(number).seed}"


def _wanted(job: Job, setting: Setting, number: int) -> bool:
    return not job.only or _name(setting, number).startswith(job.only)


def _checked(job: Job, settings: Sequence[Setting]) -> Sequence[Setting]:
    """The settings that have secure rounds."""
    ring = [setting for setting in settings if setting.scheme not in _PLAINTEXT]
    return ring[: _SECURE_SETTINGS[job.scale]]


def _folder(job: Job, item: str, setting: Setting, number: int) -> Path:
    return job.folder / "runs" / job.scale / item / _name(setting, number)


def _beside(job: Job, item: str, setting: Setting, ending: str) -> Path:
    """The folder of a setting's first rounds in another way."""
    return _folder(job, item, setting, 0).with_name(f"seed-{setting.config.seed}{ending}")


def _rounds(job: Job, setting: Setting) -> int:
    """How many rounds are wanted of a setting."""
    return min(setting.config.rounds, job.rounds or setting.budget or setting.config.rounds)


def _read(job: Job, item: str, setting: Setting, known: Mapping[str, RunRecord]) -> Finished | None:
    """A setting's runs that have enough rounds, in the order of their seeds; None without the first of them."""
    found = [_find(job, item, setting, number, known) for number in range(setting.seeds)]
    records = [record for record in found if record is not None]
    if found[0] is None:
        return None
    secure, plain = (_first_rounds(job, item, setting, ending, known) for ending in (_SECURE, _PLAIN))
    return Finished(setting=setting, records=tuple(records), secure=secure, plain=plain)


def _first_rounds(
    job: Job, item: str, setting: Setting, ending: str, known: Mapping[str, RunRecord]
) -> RunRecord | None:
    place = _beside(job, item, setting, ending)
    return read_run(place) if (place / RECORD).exists() else known.get(f"{_name(setting, 0)}{ending}")


def _find(job: Job, item: str, setting: Setting, number: int, known: Mapping[str, RunRecord]) -> RunRecord | None:
    """A run that has enough rounds, up to those: the one in its folder, or else the one that is kept."""
    rounds = _rounds(job, setting)
    place = _folder(job, item, setting, number)
    own = read_run(place) if (place / RECORD).exists() else None
    record_kept = known.get(_name(setting, number))
    if own is not None and record_kept is not None and own.started == record_kept.started:
        own = replace(own, version=record_kept.version)  # which names its commit
    for record in (own, record_kept):
        if record is not None:
            _check(record, setting.config_of(number))
            if len(record.rounds) >= rounds:
                return replace(record, rounds=record.rounds[:rounds])
    return None


def _run(scheme: Scheme, config: TrainConfig, folder: Path, rounds: int) -> RunRecord:
    """The run in a folder, with so many rounds at least."""
    kind = SCHEMES[scheme]
    if (folder / RECORD).exists() and not (folder / CHECKPOINT).exists():
        shutil.rmtree(folder)  # stopped before its first checkpoint: nothing to go on from
    if (folder / RECORD).exists():
        record = read_run(folder)
        _check(record, config)
        if record.end is not None or len(record.rounds) >= rounds:
            return record
        run = kind.resume(folder, data_set=read_data(config.data, config.data_dir))
    else:
        run = kind(config, folder, data_set=read_data(config.data, config.data_dir))

    def stop(line: dict[str, Any]) -> None:
        if rounds <= line["round"] < config.rounds:
            raise _EnoughError

    with contextlib.suppress(_EnoughError):
        run.train(stop)
    return read_run(folder)


def _check(record: RunRecord, config: TrainConfig) -> None:
    known = TrainConfig.from_dict(record.config).to_dict()  # with settings that are newer than the run
    if _essence(known) != _essence(config.to_dict()):
        raise UsageError(f"{record.folder} holds a run of other settings: give another --out, or delete that folder")


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
    """Accuracy over rounds as a line of a plot: the mean over the seeds, and their range."""
    found = np.array([[100 * line["accuracy"] for line in record.rounds] for record in finished.records])
    several = len(found) > 1
    return Series(
        label=finished.setting.label,
        x=tuple(float(line["round"]) for line in finished.record.rounds),
        y=_rounded(found.mean(axis=0)),
        low=_rounded(found.min(axis=0)) if several else (),
        high=_rounded(found.max(axis=0)) if several else (),
        panel=finished.setting.panel if panel is None else panel,
        dashed=dashed,
    )


def _rounded(values: npt.NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(round(float(value), 2) for value in values)
