"""From a proposal to a run: the commands that train with it on this machine, and the lines for Flower.

A printed command makes the plan that was proposed: it names every setting that decides the plan, and a model of as many
parameters as the plan has elements.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from heterosag.plan import Plan
from heterosag.planner import Proposal
from heterosag.planner.cohorts import CohortProposal
from heterosag.planner.private import PrivateProposal

__all__ = ["BUILT_IN", "next_steps", "next_steps_of_cohorts", "next_steps_of_private", "settings_of_private"]

BUILT_IN: dict[int, tuple[dict[str, str], str]] = {
    3610: ({}, "digits, the usual model and data"),
    50_826: ({"model": "digits-large"}, "digits-large"),
    79_510: ({"data": "mnist"}, "MNIST's network"),
    117_706: ({"data": "cifar10"}, "CIFAR-10's network"),
    191_434: ({"data": "cifar10", "model": "cifar10-padded"}, "CIFAR-10's padded network"),
}
"""The models of `heterosag train` by their parameters: the settings that choose each, and what it is called."""

_COLUMNS = 80  # of a terminal that everybody has
_TRAIN, _BESIDE, _MORE = "  train with it here:   ", " " * 24, " " * 28


def next_steps(proposal: Proposal, saved: Path | None) -> str:
    """The commands to try a plan with, and the lines for Flower; `saved` is where the plan is."""
    plan, file = proposal.plan, shlex.quote(str(saved or "plan.toml"))
    rates = [8 * size / (seconds * 1e6) for size, seconds in zip(proposal.bytes, proposal.seconds, strict=True)]
    between = [f"{(slow * fast) ** 0.5:.3g}" for slow, fast in pairwise(rates)]
    limits = f", rate_limits=[{', '.join(between)}]" if between else ""
    options = f'options={{"subgroup_size": {plan.subgroup_size}}}'
    lines = [
        "",
        "what to do next:",
        *([] if saved else ["  keep the plan:        the same command with --save plan.toml"]),
        f"  look at a round:      heterosag round --plan {file}",
        *_train({"plan": file, "rates": ",".join(f"{rate:.3g}" for rate in rates)}, plan.dimension),
        "  use it on Flower:     SecureGrid(grid,",
        f"                            levels={list(plan.levels)}{limits},",
        f"                            {options})",
    ]
    return "\n".join(lines)


def next_steps_of_cohorts(proposal: CohortProposal) -> str:
    """The command to train with cohorts."""
    cohorts = proposal.plan
    plan = cohorts.plans[0]
    rates = [8 * size / (seconds * 1e6) for size, seconds in zip(proposal.bytes, proposal.seconds, strict=True)]
    settings = {
        "classes": _commas(cohorts.classes),
        "levels": _commas(cohorts.levels),
        "rates": ",".join(f"{rate:.3g}" for rate in rates),
        "design": plan.design.name,
        "subgroup_size": plan.subgroup_size,
        "cohort": cohorts.cohort_size,
        "min_survivors": plan.min_survivors,
        "colluders": plan.colluders,
        "dropout": plan.dropout,
        **_filled(plan),
        **({"range_rule": "quantile"} if plan.ranges == "single" else {}),
    }
    return "\n".join(["", "what to do next:", *_train(settings, cohorts.dimension)])


def next_steps_of_private(proposal: PrivateProposal) -> str:
    """The command to train within the budget."""
    return "\n".join(["", "what to do next:", *_train(settings_of_private(proposal), proposal.plan.dimension)])


def settings_of_private(proposal: PrivateProposal) -> dict[str, Any]:
    """What a private plan decides of a training run, by the names of its settings.

    Args:
        proposal: The plan and its budget.

    Returns:
        The settings with which `heterosag train` makes the plan again, noise and thresholds too.
    """
    plan = proposal.plan
    return {
        "epsilon": proposal.target_epsilon,
        "delta": proposal.delta,
        "rounds": proposal.rounds,
        "clip": plan.clipping_norm,
        "classes": _commas(plan.classes),
        "levels": _commas(plan.levels),
        "design": plan.design.name,
        "subgroup_size": plan.subgroup_size,
        "min_survivors": plan.min_survivors,
        "min_block_survivors": plan.min_block_survivors,
        "colluders": plan.colluders,
        "dropout": plan.dropout,
        **_filled(plan),
        "rule": proposal.rule,
    }


def _train(settings: Mapping[str, Any], dimension: int) -> list[str]:
    """The command to train with a plan of so many elements, and what to know of its model."""
    chosen, name = BUILT_IN.get(dimension, ({"model": "package.module:factory"}, ""))
    words = [_flag(setting, value) for setting, value in {**settings, **chosen}.items()]
    remark = f"({dimension:,} parameters: {name})" if name else f"(your model, which has {dimension:,} parameters)"
    lines = [f"{_TRAIN}heterosag train"]
    for word in words:
        if len(lines[-1]) + len(word) + 3 <= _COLUMNS:
            lines[-1] += f" {word}"
        else:
            lines[-1] += " \\"
            lines.append(f"{_MORE}{word}")
    lines.append(f"{_BESIDE}{remark}")
    if "data" in chosen:
        lines.append(f"{_BESIDE}(--data-dir or HETEROSAG_DATA names its files' folder)")
    return lines


def _filled(plan: Plan) -> dict[str, bool]:
    """Levels are raised as far as their rings hold unless told otherwise."""
    return {} if plan.fill_levels else {"fill_levels": False}


def _flag(setting: str, value: Any) -> str:
    flag = setting.replace("_", "-")
    if isinstance(value, bool):
        return f"--{flag}" if value else f"--no-{flag}"
    return f"--{flag} {value}"


def _commas(values: Iterable[int]) -> str:
    return ",".join(map(str, values))
