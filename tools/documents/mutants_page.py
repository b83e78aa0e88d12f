"""docs/mutants.md: every mutant that no test noticed, with the reason that tools/mutants/reasons.toml gives."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

REASONS = Path(__file__).resolve().parents[1] / "mutants" / "reasons.toml"
OPEN = "open"


def reasons() -> dict[str, str]:
    """By mutant, without the package's name, why no test notices it."""
    read = tomllib.loads(REASONS.read_text(encoding="utf-8"))
    return {mutant: one["why"] for one in read["reasons"] for mutant in one["mutants"]}


def render(found: dict[str, Any]) -> str:
    """The page, from the summary of `make mutants`."""
    others = found["mutants"] - found["words"]
    unnoticed = found["survived"] - found["only_words"]
    lines = [
        "# Mutants that no test notices",
        "",
        "`make mutants` changes crypto, protocol (and with it the wire) and privacy in small ways, and runs the tests "
        f"that reach each place. Of {found['mutants']:,} mutants {found['words']:,} change nothing but the words of an "
        f"error or display. Of the other {others:,} the tests notice {others - unnoticed:,}, "
        f"{found['noticed_of_others']:.1%}; the {unnoticed:,} that they do not are below, by what makes them harmless."
        + (f" {found['not_run']:,} more have not been run." if found["not_run"] else ""),
        "",
        "| module | mutants | words | unnoticed | of them words |",
        "| --- | ---: | ---: | ---: | ---: |",
        *(
            f"| `{name.removeprefix('heterosag.')}` | {one['mutants']} | {one['words']} | {one['survived']} "
            f"| {one['only_words']} |"
            for name, one in found["modules"].items()
        ),
    ]
    known = reasons()
    groups: dict[str, list[dict[str, Any]]] = {}
    for mutant in found["survivors"]:
        if not mutant["words"]:
            groups.setdefault(known.get(_short(mutant), OPEN), []).append(mutant)
    for why in sorted(groups, key=lambda one: (one == OPEN, one)):
        lines += ["", f"## {why[0].upper()}{why[1:]}", "", "```diff"]
        for mutant in groups[why]:
            lines += [f"# {_short(mutant)}", *mutant["change"]]
        lines.append("```")
    return "\n".join(lines) + "\n"


def _short(mutant: dict[str, Any]) -> str:
    name: str = mutant["mutant"]
    return name.removeprefix("heterosag.")
