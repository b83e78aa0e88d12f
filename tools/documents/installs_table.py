"""What an installation with each extra weighs, from the summary of `make installs`."""

from __future__ import annotations

from typing import Any

EXTRAS = ("training", "report", "flower", "studio", "fast", "all")
NAMED = 4


def render(found: dict[str, Any]) -> str:
    """A row for the core, then one for each extra with what it adds to the core."""
    core = _brought(found["megabytes"]["core"])
    lines = [
        f"`{found['command']}` with the versions of `constraints.txt` and the CPU build of torch, Python "
        f"{found['python']}, {found['platform']}: megabytes on disk with compiled code, without HeteroSAg, pip and "
        "setuptools.",
        "",
        "| | packages | MB | the heaviest of them |",
        "|---|---:|---:|---|",
        _row("the core", core),
    ]
    for extra in EXTRAS:
        added = {name: size for name, size in _brought(found["megabytes"][extra]).items() if name not in core}
        lines.append(_row(f"`{extra}` adds", added))
    return "\n".join(lines) + "\n"


def _brought(sizes: dict[str, float]) -> dict[str, float]:
    """Without what a fresh environment has already."""
    return {name: size for name, size in sizes.items() if name != "setuptools"}


def _row(what: str, sizes: dict[str, float]) -> str:
    heaviest = sorted(sizes, key=lambda name: -sizes[name])[:NAMED]
    named = ", ".join(f"{name} {sizes[name]:.0f}" for name in heaviest if sizes[name] >= 1)
    return f"| {what} | {len(sizes)} | {sum(sizes.values()):.0f} | {named} |"
