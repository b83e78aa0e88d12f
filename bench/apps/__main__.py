"""`python -m bench.apps --summary FILE`: three apps on plain Flower, with our two lines and with Flower's SecAgg+.

Every side of a seed begins with the same model and draws the same batches. The app for MNIST needs its files
(`--data-dir` or HETEROSAG_DATA), and is left out without them.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import time
from itertools import product
from pathlib import Path
from typing import Any

import torch

from bench import machine, peer
from bench.apps.models import APPS, build
from bench.apps.sides import SIDES
from heterosag.errors import UsageError

NODES = 12
SEEDS = (0, 1, 2)


def main() -> None:
    """Run all that there is data for, in turn, and write the summary."""
    parser = argparse.ArgumentParser(prog="python -m bench.apps", description=str(__doc__).partition("\n")[0])
    parser.add_argument("--summary", type=Path, help="JSON file to write")
    parser.add_argument("--data-dir", default="", help="folder of MNIST's files (or set HETEROSAG_DATA)")
    parser.add_argument("--apps", nargs="+", choices=APPS, default=APPS)
    parser.add_argument("--sides", nargs="+", choices=tuple(SIDES), default=tuple(SIDES))
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--rounds", type=int, default=0, help="instead of each app's own")
    given = parser.parse_args()
    torch.set_num_threads(1)
    peer.be_a_task()
    began = time.perf_counter()
    found = measure(given)
    if given.summary:
        about: dict[str, Any] = {
            "command": "python -m bench.apps --summary docs/summaries/apps.json",
            "seed": list(given.seeds),
            "duration_seconds": round(time.perf_counter() - began, 1),
            "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
            "machine": machine.describe(),
            "nodes": given.nodes,
        }
        given.summary.write_text(_render(about, found), encoding="utf-8")


def measure(given: argparse.Namespace) -> list[dict[str, Any]]:
    """A line for each run."""
    found: list[dict[str, Any]] = []
    for name, seed in product(given.apps, given.seeds):
        try:
            app = build(name, nodes=given.nodes, seed=seed, rounds=given.rounds, folder=given.data_dir)
        except UsageError as error:
            print(f"{name} is left out: {error}", flush=True)
            continue
        first = app.start()
        about = {"arrays": len(first), "parameters": sum(array.size for array in first.values())}
        for side in given.sides:
            outcome = SIDES[side](app)
            found.append({"app": name, "seed": seed, "side": side, "rounds": app.rounds, **about, **outcome.as_json()})
            print(json.dumps(found[-1]), flush=True)
    return found


def _render(about: dict[str, Any], runs: list[dict[str, Any]]) -> str:
    """The summary as JSON, a line a run."""
    lines = ",\n".join(f"    {json.dumps(run)}" for run in runs)
    return f'{json.dumps(about, indent=2)[:-2]},\n  "runs": [\n{lines}\n  ]\n}}\n'


if __name__ == "__main__":
    main()
