"""What a deployed round takes, from the summary of `python -m bench.deployed`."""

from __future__ import annotations

from typing import Any


def render(found: dict[str, Any]) -> str:
    """A row for each deployment and way of setting up: trips, and the seconds of a steady round by stage."""
    imports = "; ".join(f"{name}: {seconds:.1f}" for name, seconds in found["import_cpu_seconds"].items())
    lines = [
        f"`{found['command']}`: {found['nodes']} SuperNodes and the SuperLink on one machine of "
        f"{found['machine']['cores']} cores, a model of digits, no evaluation. CPU seconds of a process that imports "
        f"{imports}.",
        "",
        "| identities | rounds | trips | seconds of a steady round | by stage |",
        "| --- | --- | --- | ---: | --- |",
    ]
    for identities, ways in found["runs"].items():
        for way, run in ways.items():
            stages = ", ".join(f"{stage} {seconds:.0f}" for stage, seconds in run["stage_seconds"].items())
            trips = ", ".join(map(str, run["trips"]))
            lines.append(
                f"| {identities.partition(' ')[0]} | {way} | {trips} | {run['steady_seconds']:.0f} | {stages} |"
            )
    return "\n".join(lines) + "\n"
