"""`python -m bench`: measure every row, print a table, write bench/latest.json."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import flower, masking, planning, sharing, startup, training

SUITES = (startup, masking, sharing, training, planning, flower)


def main() -> None:
    found = [row for suite in SUITES for row in suite.rows()]
    table = Table("benchmark", "ratio", "goal", "")
    for row in found:
        sign = "at most" if row.better == "lower" else "at least"
        goal = "" if row.goal is None else f"{sign} {row.goal:g}"
        table.add_row(row.name, f"{row.ratio:.2f}", goal, "" if row.goal is None else "ok" if row.met else "missed")
    Console().print(table)
    latest = Path(__file__).with_name("latest.json")
    latest.write_text(
        json.dumps([row.as_json() for row in found if row.goal is not None], indent=2) + "\n", encoding="utf-8"
    )


main()
