"""The plan as it leaves the page: a file, a command, Python, a training run, and the lines of a Flower app."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from heterosag.plan import Plan
from heterosag.planner.private import PrivateProposal
from heterosag.protocol.policy import Policy
from heterosag.report.next_steps import settings_of_private

__all__ = ["export_plan", "export_private_run", "export_run"]

_DATA = "# the digits data set unless you add --data and --model\n"


def export_plan(plan: Plan) -> dict[str, str]:
    """The plan as a file, as a command and as Python."""
    low, high = plan.value_range
    flags = {
        "classes": _commas(plan.classes),
        "levels": _commas(plan.levels),
        "dimension": plan.dimension,
        "design": plan.design.name,
        "subgroup-size": plan.subgroup_size,
        "range": f"{low!r},{high!r}",
        "min-survivors": plan.min_survivors,
        "dropout": plan.dropout,
        "max-weight": plan.max_weight,
        "colluders": plan.colluders,
    }
    words = [_fill_flag(plan), *(["--ranges=single"] if plan.ranges == "single" else [])]
    given = plan.arguments()
    ordered = "# users are numbered by their rate, slowest first\n" if given["users"] is not None else ""
    arguments = "".join(f"    {name}={value!r},\n" for name, value in given.items() if value not in (None, []))
    return {
        "toml": plan.to_toml(),
        "command": ordered + _command("plan", flags, *words),
        "python": f"from heterosag import Plan\n\nplan = Plan.build(\n{arguments})\nprint(plan.digest.hex())\n",
    }


def export_run(plan: Plan, rates: tuple[float, ...], *, deadline: float | None, robust: bool) -> dict[str, str]:
    """A training run and a Flower app with this plan's classes.

    Args:
        plan: The plan, without noise.
        rates: Mb/s of the slowest user of each class.
        deadline: Seconds for an upload.
        robust: Whether malicious users are to be tolerated.

    Returns:
        The text of each, by `train` and `flower`.
    """
    flags = {
        "classes": _commas(plan.classes),
        "levels": _commas(plan.levels),
        "rates": _commas(rates),
        **({} if deadline is None else {"deadline": deadline}),
        "design": plan.design.name,
        "subgroup-size": plan.subgroup_size,
        "min-survivors": plan.min_survivors,
        "dropout": plan.dropout,
        **({"rule": "median"} if robust else {}),
    }
    arguments = {
        "levels": list(plan.levels),
        **({"rate_limits": list(rates[1:])} if len(rates) > 1 else {}),
        **({"rule": "median"} if robust else {}),
        "max_weight": plan.max_weight,
        "options": _options(plan),
    }
    named = [f"{share} with heterosag-class={index}" for index, share in enumerate(plan.classes)]
    return {
        "train": _DATA + _command("train", flags, _fill_flag(plan)),
        "flower": _flower(plan, arguments, named if len(plan.classes) > 1 else []),
    }


def export_private_run(proposal: PrivateProposal) -> dict[str, str]:
    """A training run and a Flower app within the budget of a private plan.

    Args:
        proposal: The plan and its budget.

    Returns:
        The text of each, by `train` and `flower`.
    """
    plan = proposal.plan
    settings = settings_of_private(proposal)
    flags = {name.replace("_", "-"): value for name, value in settings.items() if name != "fill_levels"}
    arguments = {"levels": list(plan.levels), "rule": proposal.rule, "options": _options(plan)}
    budget = (
        f"privacy=Privacy(clipping_norm={plan.clipping_norm!r}, target_epsilon={proposal.target_epsilon!r}, "
        f"target_delta={proposal.delta!r}, rounds={proposal.rounds})"
    )
    return {
        "train": _DATA + _command("train", flags, _fill_flag(plan)),
        "flower": _flower(plan, arguments, [], budget=budget, rounds=proposal.rounds),
    }


def _fill_flag(plan: Plan) -> str:
    return f"--{'' if plan.fill_levels else 'no-'}fill-levels"


def _options(plan: Plan) -> dict[str, Any]:
    """What `SecureGrid` hands on to `Plan.build`."""
    return {
        "design": plan.design.name,
        "subgroup_size": plan.subgroup_size,
        "min_survivors": plan.min_survivors,
        "colluders": plan.colluders,
        "dropout": plan.dropout,
        **({} if plan.fill_levels else {"fill_levels": False}),
    }


def _flower(plan: Plan, arguments: Mapping[str, Any], nodes: list[str], *, budget: str = "", rounds: int = 20) -> str:
    """The lines of both sides of an app; nodes say which class they are in."""
    lines = "".join(f"    {name}={value!r},\n" for name, value in arguments.items())
    lines += f"    {budget},\n" if budget else ""
    usual = Policy()
    weaker = {
        name: own
        for name, own in (("min_survivors", plan.min_survivors), ("min_colluders", plan.colluders))
        if own < getattr(usual, name)
    }
    policy = f", policy=Policy({', '.join(f'{name}={own}' for name, own in weaker.items())})" if weaker else ""
    classes = ""
    if nodes:
        classes = f"# node config of each SuperNode: {nodes[0]},\n"
        classes += "".join(f"#   {one},\n" for one in nodes[1:])
        classes += "#   or heterosag-rate=2.5 (its upload in Mb/s), which rate_limits turn into a class\n"
    return (
        f"# the ServerApp\nfrom heterosag.flower import {'Privacy, ' if budget else ''}SecureGrid\n\n"
        f"secure = SecureGrid(\n    grid,\n{lines})\n"
        f"result = secure.start(strategy, initial_arrays=arrays, num_rounds={rounds})\n\n"
        f"# the ClientApp\n{'from heterosag import Policy' + chr(10) if weaker else ''}"
        "from heterosag.flower import mod\n\n"
        f"app = ClientApp(mods=[mod(trust_server=True{policy})])  # or identities: docs/how-to/identities.md\n"
        f"{classes}"
    )


def _command(name: str, flags: Mapping[str, Any], *more: str) -> str:
    words = [*(f"--{flag}={value}" for flag, value in flags.items()), *more]
    joined = " \\\n  ".join(words)
    return f"heterosag {name} \\\n  {joined}\n"


def _commas(values: Iterable[float]) -> str:
    return ",".join(map(str, values))
