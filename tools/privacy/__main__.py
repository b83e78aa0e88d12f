"""`python tools/privacy --summary FILE`: what a privacy budget costs in accuracy, and what noise leaves of an attack.

Accuracy on digits and MNIST against epsilon, for one block, six subgroups, blocks of 16, and a trusted server with
Gaussian noise as the reference; pictures that a curious server inverts from its sums, without noise, above a noise
floor and at epsilon 8. Runs are added to the summary as they end, so that a command that was stopped goes on.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).resolve().parents[2])]  # the reproduction, whose attack is used

import torch
from accuracy import BLOCKS, DELTA, SETTINGS, measure
from pictures import NOISES, invert

from heterosag.training import data

EPSILONS = (None, 8.0, 2.0)
SEEDS = (0, 1, 2)


def main() -> None:
    """Run what the summary does not have yet."""
    parser = argparse.ArgumentParser(prog="python tools/privacy", description=str(__doc__).partition("\n")[0])
    parser.add_argument("--summary", type=Path, required=True, help="JSON file that the runs are added to")
    parser.add_argument("--data", nargs="+", choices=tuple(SETTINGS), default=tuple(SETTINGS))
    parser.add_argument("--data-dir", default="", help="folder of the data files (or set HETEROSAG_DATA)")
    parser.add_argument("--blocks", nargs="+", choices=BLOCKS, default=BLOCKS)
    parser.add_argument("--epsilons", nargs="+", type=float, help="0 for no noise (default: none, 8 and 2)")
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--draws", type=int, default=20, help="of pictures, for the inversion; 0: none of it")
    given = parser.parse_args()
    torch.set_num_threads(1)
    summary = _begin(given)
    for seed, noise in product(given.seeds, NOISES if given.draws else ()):
        if all(run["noise"] != noise or run["seed"] != seed for run in summary["inversion"]):
            _add(given.summary, summary, "inversion", {"noise": noise, "seed": seed}, invert, noise, given.draws, seed)
    epsilons = EPSILONS if given.epsilons is None else [epsilon or None for epsilon in given.epsilons]
    done = {(run["data"], run["blocks"], run["epsilon"], run["seed"]) for run in summary["accuracy"]}
    for name in given.data:
        data_set = data.load(name, given.data_dir)
        for seed, epsilon, blocks in product(given.seeds, epsilons, given.blocks):
            if (name, blocks, epsilon, seed) not in done:
                key = {"data": name, "blocks": blocks, "epsilon": epsilon, "seed": seed}
                _add(given.summary, summary, "accuracy", key, measure, data_set, SETTINGS[name], blocks, epsilon, seed)


def _add(path: Path, summary: dict[str, Any], part: str, key: dict[str, Any], work: Any, *given: Any) -> None:
    """Do one piece of work, and write the summary with it."""
    start = time.process_time()
    found = {name: round(value, 4) if isinstance(value, float) else value for name, value in work(*given).items()}
    run = key | found | {"seconds": round(time.process_time() - start, 1)}
    summary[part].append(run)
    runs = [*summary["accuracy"], *summary["inversion"]]
    summary["duration_seconds"] = round(sum(one["seconds"] for one in runs), 1)
    path.write_text(_render(summary), encoding="utf-8")
    print(f"{part}: {run}", flush=True)


def _begin(given: argparse.Namespace) -> dict[str, Any]:
    if given.summary.exists():
        found: dict[str, Any] = json.loads(given.summary.read_text(encoding="utf-8"))
        return found
    settings = {name: {key: getattr(setting, key) for key in setting.__slots__} for name, setting in SETTINGS.items()}
    return {
        "command": "python tools/privacy --summary docs/summaries/privacy.json",
        "seed": list(given.seeds),
        "duration_seconds": 0.0,
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "settings": settings,
        "delta": DELTA,
        "draws": given.draws,
        "inversion": [],
        "accuracy": [],
    }


def _render(summary: dict[str, Any]) -> str:
    """The summary as JSON, a line a run."""
    lists = ("inversion", "accuracy")
    head = json.dumps({name: value for name, value in summary.items() if name not in lists}, indent=2)
    parts = []
    for name in lists:
        runs = ",\n".join(f"    {json.dumps(run)}" for run in summary[name])
        parts.append(f'  "{name}": [\n{runs}\n  ]' if runs else f'  "{name}": []')
    return f"{head[:-2]},\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    main()
