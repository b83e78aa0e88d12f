"""`python tools/few_levels --summary FILE`: what few levels cost in accuracy, against plain federated averaging.

Models whose arrays are unlike each other, federations of several sizes, quantizer levels from 2 to 256 and one plan
with all of them, three seeds; ranges and scales follow the updates (`heterosag.aggregation.clipping.AdaptiveRange`).
The rounds are those of the library without the cryptography, which changes no bit. Runs are added to the summary as
they end, so that a command that was stopped goes on where it was.
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
from federation import build, federate, load, plan_of

from heterosag.plan.costs import of

MODELS = ("perceptron", "perceptron x10", "convolutions", "adapters")
USERS = (12, 40, 100)
LEVELS = ("plain", "2", "4", "16", "256", "2,4,16,256")
SEEDS = (0, 1, 2)


def main() -> None:
    """Run what the summary does not have yet."""
    parser = argparse.ArgumentParser(prog="python tools/few_levels", description=str(__doc__).partition("\n")[0])
    parser.add_argument("--summary", type=Path, required=True, help="JSON file that the runs are added to")
    parser.add_argument("--data", default="mnist", help="pictures: mnist, fashion-mnist or digits")
    parser.add_argument("--data-dir", default="", help="folder of the data files (or set HETEROSAG_DATA)")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--users", nargs="+", type=int, default=USERS)
    parser.add_argument("--levels", nargs="+", default=LEVELS)
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    torch.set_num_threads(1)
    summary = _begin(given)
    done = {(run["model"], run["users"], run["levels"], run["rule"], run["seed"]) for run in summary["runs"]}
    pictures = load(given.data, given.data_dir)
    cases: list[tuple[str, int, str, str]] = [
        (name, users, levels, "adaptive") for name, users, levels in product(given.models, given.users, given.levels)
    ]
    old = [name for name in given.models if name.startswith("perceptron")]
    cases += [(name, 12, levels, "quantile") for name, levels in product(old, given.levels) if levels != "plain"]
    models = {name: build(name, pictures) for name in {case[0] for case in cases}}
    for (name, users, levels, rule), seed in product(cases, given.seeds):
        if (name, users, levels, rule, seed) in done:
            continue
        start = time.process_time()
        found = federate(models[name], pictures, users, levels, seed, rounds=given.rounds, rule=rule)
        run: dict[str, Any] = {"model": name, "users": users, "levels": levels, "rule": rule, "seed": seed}
        run |= {"accuracy": [round(one, 4) for one in found], "seconds": round(time.process_time() - start, 1)}
        summary["runs"].append(run)
        summary["duration_seconds"] = round(sum(run["seconds"] for run in summary["runs"]), 1)
        given.summary.write_text(_render(summary), encoding="utf-8")
        print(f"{name}, {users} users, {levels}, {rule}, seed {seed}: {found[-1]:.3f}", flush=True)


def _begin(given: argparse.Namespace) -> dict[str, Any]:
    if given.summary.exists():
        found: dict[str, Any] = json.loads(given.summary.read_text(encoding="utf-8"))
        return found
    return {
        "command": "python tools/few_levels --summary docs/summaries/few_levels.json",
        "seed": list(given.seeds),
        "duration_seconds": 0.0,
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "data": given.data,
        "rounds": given.rounds,
        "bits": {
            f"{users}": {levels: _bits(levels, users) for levels in given.levels if levels != "plain"}
            for users in given.users
        },
        "runs": [],
    }


def _bits(levels: str, users: int) -> list[float]:
    """Bits that a user of each class sends for a parameter."""
    plan = plan_of(levels, users, [100_000])
    return [round(bits / plan.dimension, 2) for bits in of(plan).per_class()]


def _render(summary: dict[str, Any]) -> str:
    """The summary as JSON, a line a run."""
    head = json.dumps({name: value for name, value in summary.items() if name != "runs"}, indent=2)
    runs = ",\n".join(f"    {json.dumps(run)}" for run in summary["runs"])
    return f'{head[:-2]},\n  "runs": [\n{runs}\n  ]\n}}\n'


if __name__ == "__main__":
    main()
