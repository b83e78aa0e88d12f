"""`python -m bench.deployed --summary FILE`: a round on a deployed SuperLink and SuperNodes, and what it is spent on.

Seven nodes in processes of their own on this machine run the example's app: without identities and with them, rounds
that are set up ahead and rounds that are not, without evaluation on nodes. A node starts a process for every message,
so the CPU seconds of these processes are taken, and beside them those of importing Flower, this package and PyTorch in
a fresh process.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.util
import json
import os
import re
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import machine

ROOT = Path(__file__).parents[1]
NODES, ROUNDS = 7, 3
TIMEOUT = 300.0
_ALONE = 2  # rounds that are set up by themselves: the second is as the first
_APP = 'levels="16" rule="mean" subgroup-size=0'  # the plan is the grid's own: one block of everybody
_IMPORTS = {
    "Flower": "import flwr.supernode.cli.flwr_clientapp",
    "and this package": "import flwr.supernode.cli.flwr_clientapp, heterosag.flower; heterosag.flower.mod",
    "and PyTorch": "import flwr.supernode.cli.flwr_clientapp, heterosag.flower, torch; heterosag.flower.mod",
    "and makes an optimiser": (
        "import flwr.supernode.cli.flwr_clientapp, heterosag.flower, torch; heterosag.flower.mod; "
        "torch.optim.SGD([torch.zeros(1, requires_grad=True)])"
    ),
}


def main() -> None:
    """Run the app four times, and write what came out after each."""
    parser = argparse.ArgumentParser(prog="python -m bench.deployed", description=str(__doc__).partition("\n")[0])
    parser.add_argument("--summary", type=Path, help="JSON file to write")
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that nothing is left behind then either
    began = time.perf_counter()
    found: dict[str, Any] = {
        "command": "python -m bench.deployed --summary docs/summaries/deployed.json",
        "seed": None,
        "duration_seconds": 0.0,
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "machine": machine.describe(),
        "load_before": round(os.getloadavg()[0], 2),
        "nodes": given.nodes,
        "rounds": given.rounds,
        "import_cpu_seconds": {name: _import_seconds(code) for name, code in _IMPORTS.items()},
        "runs": {},
    }
    for identities in (False, True):
        runs = found["runs"]["with identities" if identities else "without identities"] = {}
        with tempfile.TemporaryDirectory() as home:
            for name, run in _deploy(Path(home), given.nodes, given.rounds, identities=identities):
                runs[name] = run
                found["duration_seconds"] = round(time.perf_counter() - began, 1)
                print(json.dumps(found, indent=2), flush=True)
                if given.summary:
                    given.summary.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def _import_seconds(code: str) -> float:
    """CPU seconds of a fresh process that imports something, the least of three."""

    def once() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return round(min(once() for _ in range(3)), 2)


def _deploy(home: Path, nodes: int, rounds: int, *, identities: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """A deployment with or without identities: the app with every round set up by itself, then with rounds in a row."""
    script: Any = _load(ROOT / "examples" / "flower" / "deploy.py")
    deployment = script.Deployment(home, nodes)
    directory = home / "everybody.json"
    try:
        key, trusted = home / "owner.key", home / "trusted.yaml"
        trusted.write_text(deployment.make_key(key))
        deployment.sign(script.HERE, key)
        deployment.start_link()
        publics = [
            deployment.call("heterosag", "identity", "--make", str(home / f"key-{place}")) for place in range(nodes)
        ]
        for place in range(nodes):
            config = f"partition-id={place} num-partitions={nodes}"
            if identities:
                config += f' heterosag-key="{home / f"key-{place}"}" heterosag-directory="{directory}"'
            deployment.start_node(place, config, trusted)
        more = _APP
        if identities:
            ids = [_node_id(home / f"node-{place}.log") for place in range(nodes)]
            known = {node: public.split()[-1] for node, public in zip(ids, publics, strict=True)}
            directory.write_text(json.dumps(known), encoding="utf-8")
            more += f' directory="{directory}"'
        for name, count in (("each round by itself", _ALONE), ("rounds in a row", rounds)):
            before, label = _client_cpu(home), name.replace(" ", "-")
            done = script.run_app(deployment, count, label, TIMEOUT, prepare=name == "rounds in a row", more=more)
            yield name, _summarise(done, _client_cpu(home) - before, nodes)
    finally:
        deployment.over.set()
        deployment.kill_all()


def _summarise(done: dict[str, Any], cpu: float, nodes: int) -> dict[str, Any]:
    """What steady rounds took: all but the first, which sets up."""
    failed = [one["error"] for one in done["rounds"] if one["error"]]
    if failed:
        raise RuntimeError(failed[0])
    steady = done["rounds"][1:]
    messages = nodes * sum(one["trips"] for one in done["rounds"])
    stages = list(steady[0]["trip_seconds"])
    return {
        "trips": [one["trips"] for one in done["rounds"]],
        "seconds": [round(one["seconds"], 1) for one in done["rounds"]],
        "steady_seconds": round(statistics.median(one["seconds"] for one in steady), 1),
        "stage_seconds": {
            stage: round(statistics.median(one["trip_seconds"][stage] for one in steady), 1) for stage in stages
        },
        "node_seconds": {
            stage: round(statistics.median(one["node_seconds"].get(stage, 0.0) for one in steady), 2)
            for stage in stages
        },
        "client_cpu_seconds_a_message": round(cpu / messages, 2),
        "load_after": round(os.getloadavg()[0], 2),
    }


def _node_id(log: Path) -> str:
    """The id that the SuperLink gave a node, from the node's log."""
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        named = re.search(r"SuperNode ID: (\d+)", log.read_text(encoding="utf-8", errors="replace"))
        if named:
            return named[1]
        time.sleep(0.5)
    raise TimeoutError("a node has not joined")


def _client_cpu(home: Path) -> float:
    """CPU seconds so far of the processes that nodes have started and that have ended, one for each message."""
    ticks = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"FLWR_HOME={home}/node-".encode() not in (process / "environ").read_bytes():
                continue
            if b"flower-superexec" in (process / "cmdline").read_bytes():
                ticks += sum(map(int, (process / "stat").read_text().rpartition(")")[2].split()[13:15]))
        except OSError:
            continue
    return ticks / os.sysconf("SC_CLK_TCK")


def _load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise RuntimeError(f"{path} is no script")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
