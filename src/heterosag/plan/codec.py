"""A plan as bytes and as TOML.

The canonical encoding is what the digest covers and what crosses the wire: version, the arguments of `Plan.build`, and
the whole structure beside them. TOML holds the arguments and, to be sure, the digest.
"""

from __future__ import annotations

import json
import re
import tomllib
from typing import TYPE_CHECKING, Any

import msgspec

from heterosag.errors import PlanError
from heterosag.plan.checks import check_classes, check_numbers, choose_counts
from heterosag.vector.quantize import check_range

if TYPE_CHECKING:
    from heterosag.plan.plan import Plan

__all__ = ["ARGUMENTS", "PLAN_VERSION", "arguments_of", "encode", "read", "read_toml", "to_toml"]

PLAN_VERSION = 2
"""Of the TOML form and of what the digest covers; a plan of another version is refused."""

ARGUMENTS = (
    "classes",
    "levels",
    "dimension",
    "design",
    "value_range",
    "subgroup_size",
    "min_survivors",
    "min_block_survivors",
    "max_weight",
    "min_robustness",
    "colluders",
    "users",
    "assignment_seed",
    "dropout",
    "sharing",
    "fill_levels",
    "metrics",
    "rotate",
    "ranges",
    "arrays",
    "scales",
)

_NOISE = ("noise_multiplier", "honest", "adaptive_clip")
"""What the arguments of a plan with noise have besides; its value range is -c to c for the clipping norm c."""

_Structure = tuple[
    list[int | str],
    list[tuple[int, list[int]]],
    list[tuple[int, list[tuple[list[int], int, int, int]]]],
    list[str],
    tuple[int, int, list[int]],
    int,
]
"""What stands beside the arguments: users, subgroups, segments with their blocks, lanes, sharing graph, quorum."""


_LONGEST_TOML = 2**24  # characters: half a million users by their names
_OPENING = re.compile("\"{3}|'{3}|[\"'#]")
_ENDING = {
    '"""': re.compile(r'\\.|"{3,5}', re.DOTALL),
    "'''": re.compile("'{3,5}"),
    '"': re.compile(r'\\.|["\n]', re.DOTALL),
    "'": re.compile(r"['\n]"),
    "#": re.compile(r"\n"),
}
"""How strings and comments of TOML begin, and what ends each, or is a character after a backslash."""
_LONG_KEY = re.compile(r"(?<![\w-])[\w-]++(?:[ \t]*+\.[ \t]*+[\w-]++){3}", re.ASCII)


def arguments_of(plan: Plan) -> dict[str, Any]:
    """The arguments of `Plan.build` that make this plan again."""
    plain = plan.users == tuple(range(len(plan.users)))
    return {
        "classes": list(plan.classes),
        "levels": list(plan.levels),
        "dimension": plan.dimension,
        "design": plan.design.name,
        "value_range": list(plan.value_range),
        "subgroup_size": plan.subgroup_size,
        "min_survivors": plan.min_survivors,
        "min_block_survivors": plan.min_block_survivors,
        "max_weight": plan.max_weight,
        "min_robustness": plan.min_robustness,
        "colluders": plan.colluders,
        "users": None if plain else list(plan.users),
        "assignment_seed": plan.assignment_seed,
        "dropout": plan.dropout,
        "sharing": "complete" if plan.sharing.complete else "sparse",
        "fill_levels": plan.fill_levels,
        "metrics": list(plan.metrics),
        "rotate": plan.rotate,
        "ranges": plan.ranges,
        "arrays": list(plan.arrays),
        "scales": list(plan.scales),
        **_noise_of(plan),
    }


def _noise_of(plan: Plan) -> dict[str, Any]:
    """What a plan with noise is built from in place of its value range."""
    if not plan.noise_multiplier:
        return {}
    return {
        "value_range": None,
        "clipping_norm": plan.clipping_norm,
        "noise_multiplier": plan.noise_multiplier,
        "honest": plan.honest,
        "adaptive_clip": plan.adaptive_clip,
    }


def encode_frame(plan: Plan) -> bytes:
    """The canonical encoding with the range (-1, 1) and without scales: all of it that stays from round to round."""
    return _encode(plan, arguments_of(plan) | {"value_range": [-1.0, 1.0], "scales": []})


def encode(plan: Plan) -> bytes:
    """The canonical encoding: version, arguments and the whole structure as one MessagePack array."""
    return _encode(plan, arguments_of(plan) | {"value_range": list(plan.value_range)})


def _encode(plan: Plan, arguments: dict[str, Any]) -> bytes:
    structure = [
        list(plan.users),
        [[subgroup.user_class, list(subgroup.members)] for subgroup in plan.subgroups],
        [
            [segment.stop, [[list(block.subgroups), block.level, block.bits, block.width] for block in segment.blocks]]
            for segment in plan.segments
        ],
        list(plan.lanes),
        [plan.sharing.neighbours, plan.sharing.threshold, list(plan.sharing.order)],
        plan.agree_quorum,
    ]
    names = (*ARGUMENTS, *_NOISE) if plan.noise_multiplier else ARGUMENTS
    return msgspec.msgpack.encode([PLAN_VERSION, [arguments[name] for name in names], structure])


def read(data: bytes) -> dict[str, Any]:
    """The arguments in a canonical encoding; the caller builds the plan and compares its encoding with these bytes."""
    try:
        version, values, structure = msgspec.msgpack.decode(data, type=tuple[int, list[Any], _Structure])
        names = ARGUMENTS if len(values) == len(ARGUMENTS) else (*ARGUMENTS, *_NOISE)
        arguments: dict[str, Any] = dict(zip(names, values, strict=True))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise PlanError("encoding", f"these bytes are not a plan: {error}") from None
    if version != PLAN_VERSION:
        raise PlanError("version", _of_another_version(version))
    for name, value in arguments.items():
        _check_plain(name, value)
    _check_extent(arguments, structure)
    if "noise_multiplier" in arguments:
        arguments["clipping_norm"] = check_range(arguments.pop("value_range"))[1]
    return arguments


def to_toml(plan: Plan) -> str:
    """The arguments as TOML, with the digest that the plan built from them must have."""
    arguments = {name: value for name, value in arguments_of(plan).items() if value is not None}
    if isinstance(plan.assignment_seed, bytes):
        arguments["assignment_seed"] = plan.assignment_seed.hex()
    table = {"version": PLAN_VERSION, **arguments, "digest": plan.digest.hex()}
    # Numbers, plain strings, booleans and flat lists of them are written in TOML as they are in JSON.
    return "".join(f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in table.items())


def read_toml(text: str) -> tuple[dict[str, Any], str | None]:
    """The arguments in a TOML text, and the digest that the plan must have, if it says one."""
    check_toml(text, "a plan")
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is a plain ValueError
        raise PlanError("toml", f"not valid TOML: {error}") from None
    for name, value in table.items():
        _check_plain(name, value)
    version = table.pop("version", PLAN_VERSION)
    if version != PLAN_VERSION:
        raise PlanError("version", _of_another_version(version))
    expected = table.pop("digest", None)
    if isinstance(table.get("assignment_seed"), str):
        try:
            table["assignment_seed"] = bytes.fromhex(table["assignment_seed"])
        except ValueError:
            raise PlanError("assignment_seed", "a text seed is written in hexadecimal digits") from None
    bounded = "clipping_norm" if "noise_multiplier" in table else "value_range"
    unknown = sorted(table.keys() - {*ARGUMENTS, *_NOISE, "clipping_norm"})
    missing = sorted({"classes", "levels", "dimension", bounded} - table.keys())
    if unknown or missing:
        problem = f"unknown keys {unknown}" if unknown else f"missing keys {missing}"
        raise PlanError(
            (unknown or missing)[0],
            f"{problem}; a plan has the keys {', '.join(ARGUMENTS)}, and one with noise clipping_norm in place of "
            f"value_range, {', '.join(_NOISE)}",
        )
    return table, expected


def check_toml(text: str, what: str) -> None:
    """Refuse what is too long for a plan or settings, and keys of many parts, for which tomllib takes quadratic time.

    Args:
        text: The TOML, of which nothing is known.
        what: What it is meant to be, for the message.

    Raises:
        PlanError: It is too long, or has such keys.
    """
    if len(text) > _LONGEST_TOML:
        raise PlanError("toml", f"{what} has at most {_LONGEST_TOML:,} characters, not {len(text):,}")
    if _LONG_KEY.search(_without_strings(text)):
        raise PlanError("toml", f"{what} has plain names of values, not keys of many parts with dots between them")


def _without_strings(text: str) -> str:
    """TOML with a letter for every string, ended or not, and without comments; each is looked through once."""
    parts, at = [], 0
    while found := _OPENING.search(text, at):
        parts += [text[at : found.start()], "" if found[0] == "#" else "s"]
        ends = (end for end in _ENDING[found[0]].finditer(text, found.end()) if end[0][0] != "\\")
        end = next(ends, None)
        at = len(text) if end is None else end.start() if end[0] == "\n" else end.end()
    return "".join((*parts, text[at:]))


def _of_another_version(version: Any) -> str:
    return (
        f"this software reads plans of version {PLAN_VERSION}, not {version!r}: build it anew from its values with "
        "`heterosag plan --save FILE` (0.1.0 wrote version 1, with `floor` for min_survivors and `weight_bound` for "
        "max_weight)"
    )


def _check_extent(arguments: dict[str, Any], structure: Any) -> None:
    """Refuse arguments for more than stands beside it before it is followed: a short one can ask for millions."""
    users, subgroups, segments = structure[:3]
    classes, _ = check_classes(arguments["classes"], arguments["levels"])
    if sum(classes) != len(users):
        raise PlanError("encoding", f"arguments for {sum(classes)} users beside a structure of {len(users)}")
    dimension, max_weight, min_survivors = arguments["dimension"], arguments["max_weight"], arguments["min_survivors"]
    colluders, dropout = arguments["colluders"], arguments["dropout"]
    check_numbers(dimension, arguments["value_range"], max_weight, min_survivors, colluders, dropout, len(users))
    counts, _ = choose_counts(classes, arguments["subgroup_size"], arguments["design"], min_survivors, dimension)
    blocks = sum(len(segment[1]) for segment in segments)
    pairs = 0 if arguments["design"] in ("secagg", "multigroup") else sum(counts) * (sum(counts) - 1) // 2
    if sum(counts) != len(subgroups) or pairs > blocks:
        raise PlanError("encoding", f"arguments for {sum(counts)} subgroups beside a structure of {len(subgroups)}")


def _check_plain(name: str, value: Any) -> None:
    """Arguments are made of plain values and flat lists of them, and an integer has 64 bits."""
    for part in value if isinstance(value, list) else (value,):
        if isinstance(part, (list, dict)):
            raise PlanError(name, "must be a plain value or a flat list of them")
        if isinstance(part, int) and not -(2**63) <= part < 2**64:
            raise PlanError(name, "an integer of more than 64 bits")
