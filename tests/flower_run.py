"""Stands in for `flwr run` where code blocks are tested: the same app, its nodes in this process instead of under Ray.

`python flower_run.py run FOLDER [local] [--stream] [--run-config "a=1 b='x'"]`. The number of nodes is that of
`--federation-config "num-supernodes=N"`, 2 unless given, as Flower has it.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tomllib
from pathlib import Path
from typing import Any

from flower_nodes import LocalGrid, Node
from flwr.app import Context, RecordDict
from flwr.supercore.task_identity import TaskIdentity


def settings(text: str) -> dict[str, Any]:
    """`a=1 b="x"` as a dictionary."""
    return tomllib.loads("\n".join(text.split())) if text else {}


def load(component: str) -> Any:
    module, _, name = component.partition(":")
    return getattr(importlib.import_module(module), name)


def main() -> None:
    parser = argparse.ArgumentParser(prog="flwr")
    parser.add_argument("command", choices=["run"])
    parser.add_argument("app", type=Path)
    parser.add_argument("federation", nargs="?", choices=["local"])
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--run-config", default="")
    parser.add_argument("--federation-config", default="num-supernodes=2")
    given = parser.parse_args()
    for name in ("_run_id", "_task_id", "_node_id"):  # as Flower's runtime does before an app may make messages
        setattr(TaskIdentity, name, 1)
    table = tomllib.loads((given.app / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["flwr"]["app"]
    config = {**table.get("config", {}), **settings(given.run_config)}
    sys.path.insert(0, str(given.app.resolve()))
    count = int(settings(given.federation_config)["num-supernodes"])
    client_app, server_app = (load(table["components"][name]) for name in ("clientapp", "serverapp"))
    nodes = []
    for place in range(count):
        node = Node(2**63 + 17 + 1000 * place, client_app, {"partition-id": place, "num-partitions": count})
        node.context.run_config = config
        nodes.append(node)
    context = Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config=config)
    server_app(LocalGrid(nodes), context)


if __name__ == "__main__":
    main()
