"""What deployed rounds take, from the summaries of `python -m bench.deployed` and `examples/flower/deploy.py`."""

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


def render_example(found: dict[str, Any]) -> str:
    """The example deployed: trips, seconds and survivors of its rounds, set up ahead and each by itself."""
    nodes = found["rounds"][0]["nodes"]
    lines = [
        f"`{found['command']}`, {nodes} SuperNodes on one machine; the last round of the first line loses the node "
        "that is killed, and its partner in a subgroup of two with it:",
        "",
        "| rounds | trips | seconds | survivors | test accuracy |",
        "| --- | --- | --- | --- | ---: |",
    ]
    for way, run in (("set up on the round before", found), ("each by itself", found["each_round_by_itself"])):
        rounds = run["rounds"]
        cells = (
            ", ".join(str(one["trips"]) for one in rounds),
            ", ".join(f"{one['seconds']:.0f}" for one in rounds),
            ", ".join(str(one["survivors"]) for one in rounds),
        )
        lines.append(f"| {way} | {' | '.join(cells)} | {run['accuracy'][-1]:.0%} |")
    return "\n".join(lines) + "\n"
