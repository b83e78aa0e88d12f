"""The table of what few levels cost in accuracy, from the summary of `python tools/few_levels`."""

from __future__ import annotations

from typing import Any

__all__ = ["render"]


def render(found: dict[str, Any]) -> str:
    """The tables of the rule that adapts and of that of 0.1.0, and the bits that levels take."""
    levels = list(next(iter(found["bits"].values())))
    header = ["model", "users", "plain", *(f"{level} levels" for level in levels)]
    rows = {rule: _rows(found, levels, rule) for rule in ("adaptive", "quantile")}
    bits = [
        [users, *("/".join(f"{bits:g}" for bits in by[level]) for level in levels)]
        for users, by in found["bits"].items()
    ]
    seeds = ", ".join(map(str, found["seed"]))
    return "\n".join(
        [
            f"`{found['command']}`: {found['data']}, {found['rounds']} rounds, seeds {seeds}.",
            "",
            *_table(header, rows["adaptive"]),
            "",
            "Bits that a user sends for a parameter, which include what the sums of its block need; class by class, "
            "slowest first, where levels differ:",
            "",
            *_table(["users", *(f"{level} levels" for level in levels)], bits),
            "",
            "The rule of 0.1.0, one range for all that follows the 99.9% quantile of |update|, without rotation and "
            "scales:",
            "",
            *_table(header, rows["quantile"]),
            "",
        ]
    )


def _rows(found: dict[str, Any], levels: list[str], rule: str) -> list[list[str]]:
    """A row for each model and number of users of which there are all runs."""
    last = {
        (run["model"], run["users"], run["levels"], run["rule"], run["seed"]): 100 * run["accuracy"][-1]
        for run in found["runs"]
    }
    rows = []
    for model, users in dict.fromkeys((run["model"], run["users"]) for run in found["runs"]):
        plain = [last[model, users, "plain", "adaptive", seed] for seed in found["seed"]]
        cells = []
        for level in levels:
            runs = [last.get((model, users, level, rule, seed)) for seed in found["seed"]]
            lost = [one - base for one, base in zip(runs, plain, strict=True) if one is not None]
            if len(lost) == len(plain):
                cells.append(f"{sum(lost) / len(lost):+.1f} ({min(lost):+.1f})")
        if len(cells) == len(levels):
            rows.append([model, str(users), f"{sum(plain) / len(plain):.1f}%", *cells])
    return rows


def _table(header: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows)]
