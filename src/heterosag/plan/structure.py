"""From the arguments of a plan to its structure: each checked in turn, then subgroups, design, segments and thresholds.

The order of the checks is part of what a person sees: the first argument that makes no sense is the one that is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heterosag.choices import RangesName
from heterosag.plan.assignment import Subgroup, assign
from heterosag.plan.checks import (
    as_integer,
    check_auto,
    check_classes,
    check_metrics,
    check_min_robustness,
    check_numbers,
    check_ranges,
    check_scales,
    check_survivors,
    check_thresholds,
    check_users,
    choose_counts,
    choose_design,
    choose_graph,
    default_colluders,
    seed_bytes,
)
from heterosag.plan.design import Design
from heterosag.plan.layout import cut, lane_names
from heterosag.plan.levels import check_rates, choose_levels
from heterosag.plan.noise import (
    check_adaptive_clip,
    check_blocks,
    check_honest,
    check_multiplier,
    norm_of,
    range_under_noise,
)
from heterosag.plan.sharing import SharingGraph, majority

__all__ = ["make_structure"]


def make_structure(given: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
    """The fields of a plan from the arguments of `Plan.build`, or from a plan's own fields of the same names.

    Args:
        given: The arguments; those of `dataclasses.replace` have no rates, deadline and clipping norm.

    Returns:
        Every field but the notes, and what the subgroups had to be changed for, if they were.

    Raises:
        PlanError: Says which value to change, and to what.
    """
    min_survivors, max_weight, dimension, colluders, subgroup_size = (
        as_integer(given[name]) for name in ("min_survivors", "max_weight", "dimension", "colluders", "subgroup_size")
    )
    dropout = given["dropout"]
    design, sharing = _names_of(given["design"], given["sharing"])
    classes, levels = check_classes(given["classes"], given["levels"])
    check_auto(levels, given.get("rates"), given.get("deadline"))
    roster = check_users(given["users"], sum(classes))
    if colluders is None:
        colluders = default_colluders(len(roster), min_survivors, sharing)
    noise = check_multiplier(given["noise_multiplier"])
    wanted = given["value_range"]
    if "clipping_norm" in given:  # not from `dataclasses.replace`, which knows it as the range
        wanted = range_under_noise(noise, given["clipping_norm"], wanted)
    value_range = check_numbers(dimension, wanted, max_weight, min_survivors, colluders, dropout, len(roster))
    if noise:
        max_weight = 1
    ranges = check_ranges("single" if noise else given["ranges"], value_range)
    arrays, scales = check_scales(given["arrays"], given["scales"], dimension, noise=noise)
    public_seed = seed_bytes(given["assignment_seed"])
    counts, adjusted = choose_counts(classes, subgroup_size, design, min_survivors, dimension)
    subgroups = assign(classes, counts, public_seed)
    chosen = choose_design(design, len(subgroups))
    fill_levels = levels is None if given["fill_levels"] is None else bool(given["fill_levels"])
    if levels is None:
        lanes = len(lane_names(weighted=max_weight > 1, noise=bool(noise)))
        levels = _levels_of_rates(given, chosen, subgroups, lanes=lanes, ranges=ranges)
    segments = cut(chosen, subgroups, levels, dimension, value_range, fill_levels, ranges)
    least = check_survivors(subgroups, segments, min_survivors, given["min_block_survivors"])
    honest = check_honest(noise, given["honest"], least, colluders)
    metrics = check_metrics(given["metrics"], len(roster))
    adaptive_clip = check_adaptive_clip(noise, given["adaptive_clip"])
    if noise:
        check_blocks(noise, norm_of(value_range), honest, chosen, segments, metrics)
    graph = choose_graph(len(roster), colluders, dropout, sharing, public_seed)
    quorum = majority(len(roster), colluders)
    check_thresholds(graph, quorum, dropout)
    values: dict[str, Any] = {
        "users": roster,
        "classes": classes,
        "levels": levels,
        "subgroup_size": subgroup_size,
        "design": chosen,
        "dimension": dimension,
        "value_range": value_range,
        "ranges": ranges,
        "arrays": arrays,
        "scales": scales,
        "max_weight": max_weight,
        "fill_levels": fill_levels,
        "min_survivors": min_survivors,
        "min_block_survivors": least,
        "min_robustness": check_min_robustness(given["min_robustness"], float(chosen.robustness())),
        "colluders": colluders,
        "dropout": float(dropout) + 0.0,  # no negative zero: equal plans are equal as bytes
        "sharing": graph,
        "assignment_seed": given["assignment_seed"],
        "metrics": metrics,
        "rotate": bool(given["rotate"]) or noise > 0.0,
        "noise_multiplier": noise,
        "honest": honest,
        "adaptive_clip": adaptive_clip,
        "subgroups": subgroups,
        "segments": segments,
        "agree_quorum": quorum,
        "has_several_blocks": any(len(segment.blocks) > 1 for segment in segments),
        "assignment": _places(subgroups),
    }
    return values, adjusted


def _names_of(design: Any, sharing: Any) -> tuple[Any, Any]:
    """The names of a plan's own design and sharing graph; names stay as they are."""
    if isinstance(design, Design):
        design = design.name
    if isinstance(sharing, SharingGraph):
        sharing = "complete" if sharing.complete else "sparse"
    return design, sharing


def _levels_of_rates(
    given: Mapping[str, Any], design: Design, subgroups: tuple[Subgroup, ...], *, lanes: int, ranges: RangesName
) -> tuple[int, ...]:
    """The levels that `auto` chooses."""
    rates, deadline = check_rates(given["rates"], len(given["classes"])), given.get("deadline")
    return choose_levels(design, subgroups, given["dimension"], rates, deadline=deadline, lanes=lanes, ranges=ranges)


def _places(subgroups: tuple[Subgroup, ...]) -> tuple[int, ...]:
    """Each user's subgroup, by roster index."""
    return tuple(subgroup for _, subgroup in sorted((i, g) for g, s in enumerate(subgroups) for i in s.members))
