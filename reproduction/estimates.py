"""How long the experiments take at full scale: seconds of a round, measured, times rounds and seeds.

`python -m reproduction.estimates DATA` measures them anew, with `--missing` only new kinds: three rounds of one
setting of each kind on one core, of which the cheaper of the last two counts, in seconds of processor time, so that
other work on the machine does not. Settings are of one kind if their rounds have the same work: users, samples, epochs,
model, scheme, design and rule for the range.
"""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from heterosag.training.processes import one_thread
from reproduction.baselines import SCHEMES
from reproduction.outcome import Scale
from reproduction.running import read_data
from reproduction.setting import Setting
from reproduction.settings import EXPERIMENTS

__all__ = ["HOW", "full_seconds", "kind_of", "measure"]

HOW = (
    "Estimates were measured: quick in one run of all items on two cores; full of the experiments by the processor "
    "time of a round of each kind of setting, times rounds and seeds, over two cores."
)

_CORES = 2
_STORED = Path(__file__).with_name("round_seconds.json")


def kind_of(setting: Setting) -> str:
    """What the time of a round depends on."""
    config = setting.config
    samples = config.train_samples or "all"
    return (
        f"{config.data}, {config.model}, {config.users} users, {samples} samples, {config.local_epochs} epochs, "
        f"{setting.scheme}, {config.design}, {config.range_rule}"
    )


def full_seconds(item: str) -> float:
    """Seconds of an experiment at full scale on two cores."""
    known = _read()
    return (
        sum(
            known[kind_of(setting)] * (setting.budget or setting.config.rounds) * setting.seeds
            for setting in EXPERIMENTS[item](Scale.FULL, 0, "")
        )
        / _CORES
    )


@lru_cache(maxsize=1)
def _read() -> dict[str, float]:
    found: dict[str, float] = json.loads(_STORED.read_text(encoding="utf-8"))["seconds"]
    return found


def measure(data_dir: str, known: Mapping[str, float]) -> dict[str, float]:
    """Processor seconds of a round of every kind of setting; those that are known are not measured."""
    found = dict(known)
    for item in EXPERIMENTS:
        for setting in EXPERIMENTS[item](Scale.FULL, 0, data_dir):
            kind = kind_of(setting)
            if kind not in found:
                found[kind] = _time(setting)
                print(f"{found[kind]:8.2f} s  {kind}", flush=True)
    return found


def _time(setting: Setting) -> float:
    config = replace(setting.config, rounds=3)
    with tempfile.TemporaryDirectory() as folder, one_thread():
        run = SCHEMES[setting.scheme](config, Path(folder) / "run", data_set=read_data(config.data, config.data_dir))
        marks = [time.process_time()]
        run.train(lambda _: marks.append(time.process_time()))
    return round(min(b - a for a, b in pairwise(marks[1:])), 3)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--missing"]):
        raise SystemExit("usage: python -m reproduction.estimates DATA [--missing] (DATA holds MNIST and CIFAR-10)")
    began = time.perf_counter()
    stored = {
        "command": shlex.join(["python", "-m", "reproduction.estimates", "DATA", *sys.argv[2:]]),
        "seed": 0,
        "seconds": measure(sys.argv[1], _read() if sys.argv[2:] else {}),
        "duration_seconds": round(time.perf_counter() - began, 1),
    }
    _STORED.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
