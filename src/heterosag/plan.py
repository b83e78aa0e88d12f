"""The plan: everything public about the rounds of an epoch, frozen before a single key exists.

`Plan.build` turns a handful of wishes into the whole structure (who, subgroups, design, levels, ring widths,
thresholds) or refuses with the value to change. The plan then states what it guarantees, computed from that
structure. All parties bind its digest into every context, so parties that disagree on anything here cannot be
combined.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Collection, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import msgspec

from heterosag import dropout as chances
from heterosag import graph as sharing_graph
from heterosag.assignment import Subgroup, assign
from heterosag.crypto import hashing
from heterosag.design import Design, Robustness
from heterosag.dropout import LeakProbability
from heterosag.errors import PlanError, UsageError
from heterosag.graph import SharingGraph
from heterosag.recipe import (
    LEAST_CORRUPT,
    Cell,
    PlannedBlock,
    PlannedSegment,
    User,
    check_classes,
    check_floor,
    check_metrics,
    check_min_robustness,
    check_numbers,
    check_thresholds,
    check_users,
    check_width,
    choose_design,
    count,
    cut,
    seed_bytes,
    share,
)
from heterosag.vector.quantize import ValueRange, step
from heterosag.vector.ring import packed_size

__all__ = ["PLAN_VERSION", "Cell", "Plan", "PlannedBlock", "PlannedSegment", "Subgroup", "User"]

PLAN_VERSION = 1
"""Of the TOML form and of what the digest covers; a plan of another version is refused."""

_RECIPE = (
    "classes",
    "levels",
    "dimension",
    "design",
    "value_range",
    "subgroup_size",
    "floor",
    "weight_bound",
    "min_robustness",
    "colluders",
    "users",
    "assignment_seed",
    "dropout",
    "sharing",
    "fill_levels",
    "metrics",
    "rotate",
)


_Structure = tuple[
    list[int | str],
    list[tuple[int, list[int]]],
    list[tuple[int, list[tuple[list[int], int, int]]]],
    list[str],
    tuple[int, int, list[int]],
    int,
]
"""What stands beside the recipe: users, subgroups, segments with their blocks, lanes, sharing graph, quorum."""


@dataclass(frozen=True, slots=True, kw_only=True, init=False)
class Plan:
    """A frozen plan. Make one with `Plan.build`, `Plan.from_toml` or `Plan.decode`; equal plans have equal digests.

    Guarantees (each computed from the structure, none quoted): `inference_robustness`, `byzantine_tolerance`,
    `leak_probability`, `failure_probability`, `quantization_error`. `notes` says what the plan does not give and
    where the paper claims more than is true. The structure always follows from the arguments of `build`:
    `dataclasses.replace` builds it anew.

    - `users`: names in roster order, class by class; `seats`: each one's subgroup, by roster index.
    - `classes`, `levels`, `subgroup_size`, `dimension`, `value_range`, `weight_bound`, `fill_levels`, `floor`,
      `min_robustness`, `colluders`, `dropout`, `assignment_seed`, `metrics`, `rotate`: as `build` took them.
    - `subgroups`: who sits in each; `design`: which of them code each segment together; `segments`: slices of the
      vector with their blocks, levels and rings.
    - `sharing`: who holds whose shares; `agree_quorum`: signatures on a survivor set before anything is released.
    """

    users: tuple[User, ...]
    classes: tuple[int, ...]
    levels: tuple[int, ...]
    subgroup_size: int
    design: Design
    dimension: int
    value_range: ValueRange
    weight_bound: int
    fill_levels: bool
    floor: int
    min_robustness: float
    colluders: int
    dropout: float
    sharing: SharingGraph
    assignment_seed: int | bytes | None
    metrics: tuple[str, ...]
    rotate: bool
    subgroups: tuple[Subgroup, ...] = field(init=False)
    segments: tuple[PlannedSegment, ...] = field(init=False)
    agree_quorum: int = field(init=False)
    notes: tuple[str, ...] = field(init=False, compare=False)
    seats: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _roster: dict[User, int] = field(init=False, repr=False, compare=False)
    _cells: dict[int, tuple[Cell, ...]] = field(init=False, repr=False, compare=False)
    _sizes_on_wire: list[int] = field(init=False, repr=False, compare=False)
    _digest: list[bytes] = field(init=False, repr=False, compare=False)
    _guarded: list[tuple[tuple[int, ...], ...]] = field(init=False, repr=False, compare=False)

    # --- making one ---------------------------------------------------------------------------------------------

    @classmethod
    def build(
        cls,
        classes: Sequence[int],
        levels: Sequence[int],
        dimension: int,
        *,
        value_range: ValueRange | float,
        design: str = "perfect",
        subgroup_size: int = 5,
        floor: int = 3,
        weight_bound: int = 1,
        min_robustness: float | None = None,
        colluders: int = 0,
        users: Sequence[User] | None = None,
        assignment_seed: int | bytes | None = None,
        dropout: float = 0.1,
        sharing: str = "auto",
        fill_levels: bool = False,
        metrics: Sequence[str] = (),
        rotate: bool = False,
    ) -> Plan:
        """Plan the rounds of an epoch, or raise a `PlanError` that says which value to change and to what.

        - `classes`: users per class, slowest link first.
        - `levels`: quantizer levels per class, never falling.
        - `dimension`: elements of the update vector.
        - `value_range`: values outside are clipped; a pair, or the half width of a range around zero. Nothing can be
          assumed here: a range ten times too wide makes the error of few levels ten times larger. Some three standard
          deviations of an update's elements are a good first guess.
        - `design`: perfect, paper, paper-composite, secagg or multigroup.
        - `subgroup_size`: users a subgroup should have at least.
        - `floor`: least survivors of a block whose sum may be unmasked.
        - `weight_bound`: largest weight of a user.
        - `min_robustness`: least inference robustness of a legal survivor set (default: this plan's without losses).
        - `colluders`: users who may collude with the server.
        - `users`: names in class order (default 0..N-1).
        - `assignment_seed`: public seed that shuffles users of a class (None: listed order, chosen by a trusted party).
        - `dropout`: share of users expected to vanish in a round.
        - `sharing`: who holds shares: auto, complete or sparse (neighbours only, which auto takes beyond 256 users).
        - `fill_levels`: raise every block's level as far as its ring holds, at no cost in bits.
        - `metrics`: names of numbers (a loss, an accuracy) that are summed over everybody in one extra block.
        - `rotate`: spread every segment by a randomised Hadamard rotation before it is quantized.
        """
        return cls(
            classes=classes,
            levels=levels,
            dimension=dimension,
            value_range=value_range,
            design=design,
            subgroup_size=subgroup_size,
            floor=floor,
            weight_bound=weight_bound,
            min_robustness=min_robustness,
            colluders=colluders,
            users=users,
            assignment_seed=assignment_seed,
            dropout=dropout,
            sharing=sharing,
            fill_levels=fill_levels,
            metrics=metrics,
            rotate=rotate,
        )

    def __init__(self, **given: Any) -> None:
        """What `build` takes, or what a plan has of the same name: the structure is made anew from it."""
        seed, floor, weight_bound = given["assignment_seed"], given["floor"], given["weight_bound"]
        colluders, dropout, dimension = given["colluders"], given["dropout"], given["dimension"]
        design, sharing = given["design"], given["sharing"]
        if isinstance(design, Design):
            design = design.name
        if isinstance(sharing, SharingGraph):
            sharing = "complete" if sharing.complete else "sparse"
        classes, levels = check_classes(given["classes"], given["levels"])
        roster = check_users(given["users"], sum(classes))
        value_range = check_numbers(
            dimension, given["value_range"], weight_bound, floor, colluders, dropout, len(roster)
        )
        public_seed = seed_bytes(seed)
        counts, adjusted = count(classes, given["subgroup_size"], design, floor, weight_bound, dimension)
        subgroups = assign(classes, counts, public_seed)
        chosen = choose_design(design, len(subgroups))
        segments = cut(chosen, subgroups, levels, dimension, value_range, weight_bound, given["fill_levels"])
        check_floor(chosen, subgroups, segments, floor, weight_bound)
        graph = share(len(roster), colluders, dropout, sharing, public_seed)
        quorum = sharing_graph.majority(len(roster), colluders)
        check_thresholds(graph, quorum, dropout)
        values: dict[str, Any] = {
            "users": roster,
            "classes": classes,
            "levels": levels,
            "subgroup_size": given["subgroup_size"],
            "design": chosen,
            "dimension": dimension,
            "value_range": value_range,
            "weight_bound": weight_bound,
            "fill_levels": bool(given["fill_levels"]),
            "floor": floor,
            "min_robustness": check_min_robustness(given["min_robustness"], float(chosen.robustness())),
            "colluders": colluders,
            "dropout": float(dropout),
            "sharing": graph,
            "assignment_seed": seed,
            "metrics": check_metrics(given["metrics"], len(roster)),
            "rotate": bool(given["rotate"]),
            "subgroups": subgroups,
            "segments": segments,
            "agree_quorum": quorum,
            "seats": tuple(seat for _, seat in sorted((i, g) for g, s in enumerate(subgroups) for i in s.members)),
            "_roster": {user: index for index, user in enumerate(roster)},
            "_cells": {},
            "_sizes_on_wire": [],
            "_digest": [],
            "_guarded": [],
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "notes", tuple(_notes(self, adjusted)))

    def with_value_range(self, value_range: ValueRange | float) -> Plan:
        """The same plan for another value range: what a round that follows the updates' size needs."""
        checked = check_numbers(
            self.dimension, value_range, self.weight_bound, self.floor, self.colluders, self.dropout, len(self.users)
        )
        for block in (block for segment in self.segments for block in segment.blocks):
            check_width(checked, block.level, fill=self.fill_levels)
        other = copy(self)  # nothing else in a plan depends on its range, so nothing is built again
        object.__setattr__(other, "value_range", checked)
        object.__setattr__(other, "_digest", [])
        return other

    # --- who and what -------------------------------------------------------------------------------------------

    @property
    def share_threshold(self) -> int:
        """How many shares rebuild a secret [t]."""
        return self.sharing.threshold

    @property
    def lanes(self) -> tuple[str, ...]:
        """The auxiliary lanes that follow each segment, 64 bits each: `count` is a constant 1."""
        return ("count", "weight", "clipped") if self.weight_bound > 1 else ("count", "clipped")

    def index(self, user: User) -> int:
        """A user's roster index."""
        try:
            return self._roster[user]
        except (KeyError, TypeError):
            few = ", ".join(repr(known) for known in self.users[:3])
            raise UsageError(
                f"{user!r} is not a user of this plan, which has {len(self.users)} users: {few}, ..."
            ) from None

    def subgroup_of(self, user: User) -> int:
        """The index of a user's subgroup."""
        return self.seats[self.index(user)]

    def blocks_of(self, subgroup: int) -> tuple[PlannedBlock, ...]:
        """The block in which a subgroup codes each segment, in the order of the segments."""
        return tuple(
            next(block for block in segment.blocks if subgroup in block.subgroups) for segment in self.segments
        )

    def cells(self, subgroup: int) -> tuple[Cell, ...]:
        """What a user of this subgroup sends, in order: a cell a segment, and one more for metrics."""
        if subgroup not in self._cells:
            cells = [
                Cell(segment=at, start=segment.start, stop=segment.stop, block=block, lanes=self.lanes)
                for at, (segment, block) in enumerate(zip(self.segments, self.blocks_of(subgroup), strict=True))
            ]
            if self.metrics:
                everyone = tuple(range(len(self.subgroups)))
                block = PlannedBlock(subgroups=everyone, users=len(self.users), level=2, bits=1)
                end, lanes = self.dimension, ("count", *self.metrics)
                cells.append(Cell(segment=len(self.segments), start=end, stop=end, block=block, lanes=lanes))
            self._cells[subgroup] = tuple(cells)
        return self._cells[subgroup]

    def vector_sizes(self) -> tuple[int, ...]:
        """Bytes of a packed vector of each subgroup: every cell's elements, then its auxiliary lanes."""
        if not self._sizes_on_wire:
            self._sizes_on_wire.extend(
                sum(packed_size(cell.size, cell.bits) + 8 * len(cell.lanes) for cell in self.cells(subgroup))
                for subgroup in range(len(self.subgroups))
            )
        return tuple(self._sizes_on_wire)

    def guarded_blocks(self) -> tuple[tuple[int, ...], ...]:
        """The sets of subgroups whose sums the server learns, each of which the floor protects.

        With weights in use the sum of weights of every subgroup is public, so each subgroup counts as one too.
        """
        if not self._guarded:
            blocks = {block.subgroups for segment in self.segments for block in segment.blocks}
            if self.weight_bound > 1 and len(self.segments[0].blocks) > 1:
                blocks |= {(subgroup,) for subgroup in range(len(self.subgroups))}
            self._guarded.append(tuple(sorted(blocks)))
        return self._guarded[0]

    def lost_subgroups(self, survivors: Iterable[User]) -> frozenset[int]:
        """The subgroups of which nobody is among the survivors."""
        alive = {self.index(user) for user in survivors}
        return frozenset(index for index, subgroup in enumerate(self.subgroups) if alive.isdisjoint(subgroup.members))

    # --- guarantees ---------------------------------------------------------------------------------------------

    def robustness(self, survivors: Collection[User] | None = None) -> Robustness:
        """Inference robustness, saying whether it is exact or a lower bound."""
        return self.design.robustness(() if survivors is None else self.lost_subgroups(survivors))

    def inference_robustness(self, survivors: Collection[User] | None = None) -> float:
        """The smallest share of segments in which the sum of any proper set of subgroups stays hidden."""
        return float(self.robustness(survivors))

    def byzantine_tolerance(self, survivors: Collection[User] | None = None) -> int:
        """How many faulty users, one a subgroup at worst, leave the median of every segment to sound blocks."""
        return self.design.byzantine_tolerance(() if survivors is None else self.lost_subgroups(survivors))

    def leak_probability(self, dropout: float | None = None) -> LeakProbability:
        """Theorem 3's leak at a dropout rate (the plan's own unless given)."""
        return chances.leak_probability(self.design, self._sizes(), self._rate(dropout))

    def failure_probability(self, dropout: float | None = None) -> float:
        """The probability that a round ends with an error because no legal survivor set is left."""
        return chances.failure_probability(
            self.design,
            self._sizes(),
            self._rate(dropout),
            floor=self.floor,
            needed=max(self.agree_quorum, self.share_threshold if self.sharing.complete else 0),
            losses=self.design.tolerated_losses(self.min_robustness),
            floor_per_subgroup=self.weight_bound > 1,
        )

    def quantization_error(self) -> float:
        """Bound on E||mean of quantized - mean||^2 over all users: Theorem 2, Lemma 2, for any design and sizes.

        With weights up to W a user's share of the mean is at most W/(W+N-1), which is 1/N for W = 1.
        """
        total = math.fsum(
            block.users * segment.size * step(self.value_range, block.level) ** 2 / 4
            for segment in self.segments
            for block in segment.blocks
        )
        return total * (self.weight_bound / (self.weight_bound + len(self.users) - 1)) ** 2

    def _sizes(self) -> list[int]:
        return [len(subgroup.members) for subgroup in self.subgroups]

    def _rate(self, dropout: float | None) -> float:
        rate = self.dropout if dropout is None else dropout
        if not 0 <= rate < 1:
            raise UsageError(f"a dropout rate lies in 0 <= p < 1, not {rate!r}")
        return rate

    # --- in and out ---------------------------------------------------------------------------------------------

    def recipe(self) -> dict[str, Any]:
        """The arguments of `build` that make this plan again."""
        plain = self.users == tuple(range(len(self.users)))
        return {
            "classes": list(self.classes),
            "levels": list(self.levels),
            "dimension": self.dimension,
            "design": self.design.name,
            "value_range": list(self.value_range),
            "subgroup_size": self.subgroup_size,
            "floor": self.floor,
            "weight_bound": self.weight_bound,
            "min_robustness": self.min_robustness,
            "colluders": self.colluders,
            "users": None if plain else list(self.users),
            "assignment_seed": self.assignment_seed,
            "dropout": self.dropout,
            "sharing": "complete" if self.sharing.complete else "sparse",
            "fill_levels": self.fill_levels,
            "metrics": list(self.metrics),
            "rotate": self.rotate,
        }

    def encode(self) -> bytes:
        """The canonical encoding: version, recipe and the whole structure as one MessagePack array."""
        structure = [
            list(self.users),
            [[subgroup.user_class, list(subgroup.members)] for subgroup in self.subgroups],
            [
                [segment.stop, [[list(block.subgroups), block.level, block.bits] for block in segment.blocks]]
                for segment in self.segments
            ],
            list(self.lanes),
            [self.sharing.neighbours, self.sharing.threshold, list(self.sharing.order)],
            self.agree_quorum,
        ]
        recipe = self.recipe()
        return msgspec.msgpack.encode([PLAN_VERSION, [recipe[name] for name in _RECIPE], structure])

    @classmethod
    def decode(cls, data: bytes) -> Plan:
        """The plan of a canonical encoding.

        Guarantees: the plan is built anew from its recipe, and refused unless it encodes to the very same bytes, so
        that nobody can hand over a structure that `build` would not make.
        """
        try:
            version, values, structure = msgspec.msgpack.decode(data, type=tuple[int, list[Any], _Structure])
            recipe: dict[str, Any] = dict(zip(_RECIPE, values, strict=True))
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise PlanError("encoding", f"these bytes are not a plan: {error}") from None
        if version != PLAN_VERSION:
            raise PlanError("version", f"this software reads plans of version {PLAN_VERSION}, not {version}")
        for name, value in recipe.items():
            _check_plain(name, value)
        _check_extent(recipe, structure)
        plan = cls._from_recipe(recipe)
        if plan.encode() != data:
            raise PlanError("encoding", "the recipe in these bytes does not make the structure that stands beside it")
        return plan

    @property
    def digest(self) -> bytes:
        """SHA-256 of the canonical encoding, labelled."""
        if not self._digest:
            self._digest.append(hashing.digest("plan", self.encode()))
        return self._digest[0]

    def to_toml(self) -> str:
        """The recipe as TOML, with the digest that the plan built from it must have."""
        recipe = {name: value for name, value in self.recipe().items() if value is not None}
        if isinstance(self.assignment_seed, bytes):
            recipe["assignment_seed"] = self.assignment_seed.hex()
        table = {"version": PLAN_VERSION, **recipe, "digest": self.digest.hex()}
        # Numbers, plain strings, booleans and flat lists of them are written in TOML as they are in JSON.
        return "".join(f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in table.items())

    @classmethod
    def from_toml(cls, text: str) -> Plan:
        """The plan of a TOML text: the arguments of `build` by name; a `digest`, where given, must match."""
        try:
            table = tomllib.loads(text)
        except (ValueError, RecursionError) as error:  # a number of thousands of digits is a plain ValueError
            raise PlanError("toml", f"not valid TOML: {error}") from None
        for name, value in table.items():
            _check_plain(name, value)
        if table.pop("version", PLAN_VERSION) != PLAN_VERSION:
            raise PlanError("version", f"this software reads plans of version {PLAN_VERSION}")
        expected = table.pop("digest", None)
        if isinstance(table.get("assignment_seed"), str):
            try:
                table["assignment_seed"] = bytes.fromhex(table["assignment_seed"])
            except ValueError:
                raise PlanError("assignment_seed", "a text seed is written in hexadecimal digits") from None
        plan = cls._from_recipe(table)
        if expected is not None and expected != plan.digest.hex():
            raise PlanError("digest", "the values do not make the plan of this digest: if you changed them, delete it")
        return plan

    @classmethod
    def _from_recipe(cls, recipe: dict[str, Any]) -> Plan:
        unknown = sorted(recipe.keys() - set(_RECIPE))
        missing = sorted({"classes", "levels", "dimension", "value_range"} - recipe.keys())
        if unknown or missing:
            problem = f"unknown keys {unknown}" if unknown else f"missing keys {missing}"
            raise PlanError((unknown or missing)[0], f"{problem}; a plan has the keys {', '.join(_RECIPE)}")
        return cls.build(**recipe)


def _check_extent(recipe: dict[str, Any], structure: Any) -> None:
    """Refuse a recipe for more than stands beside it before it is followed: a short one can ask for millions."""
    users, subgroups, segments = structure[:3]
    classes, _ = check_classes(recipe["classes"], recipe["levels"])
    if sum(classes) != len(users):
        raise PlanError("encoding", f"a recipe for {sum(classes)} users beside a structure of {len(users)}")
    dimension, weight_bound, floor = recipe["dimension"], recipe["weight_bound"], recipe["floor"]
    check_numbers(
        dimension, recipe["value_range"], weight_bound, floor, recipe["colluders"], recipe["dropout"], len(users)
    )
    counts, _ = count(classes, recipe["subgroup_size"], recipe["design"], floor, weight_bound, dimension)
    blocks = sum(len(segment[1]) for segment in segments)
    pairs = 0 if recipe["design"] in ("secagg", "multigroup") else sum(counts) * (sum(counts) - 1) // 2
    if sum(counts) != len(subgroups) or pairs > blocks:
        raise PlanError("encoding", f"a recipe for {sum(counts)} subgroups beside a structure of {len(subgroups)}")


def _check_plain(name: str, value: Any) -> None:
    """A recipe is made of plain values and flat lists of them, and a whole number has 64 bits."""
    for part in value if isinstance(value, list) else (value,):
        if isinstance(part, (list, dict)):
            raise PlanError(name, "must be a plain value or a flat list of them")
        if isinstance(part, int) and not -(2**63) <= part < 2**64:
            raise PlanError(name, "a whole number of more than 64 bits")


# --- notes --------------------------------------------------------------------------------------------------------


def _notes(plan: Plan, adjusted: str | None) -> Iterable[str]:
    if adjusted:
        yield adjusted
    yield from _paper_notes(plan)
    if plan.assignment_seed is None and len(plan.subgroups) > 1:
        yield "users are assigned in listed order: whoever lists them is trusted not to place accomplices"
    if not plan.sharing.complete:
        yield (
            f"secrets are shared with {plan.sharing.neighbours} neighbours, {plan.share_threshold} of whom rebuild "
            f"one: 2^-{sharing_graph.PRIVACY_BITS} privacy, 2^-{sharing_graph.FAILURE_BITS} failure at "
            f"{plan.dropout:.0%} dropout and "
            f"{max(plan.colluders, math.floor(LEAST_CORRUPT * len(plan.users)))} colluders"
        )
    if plan.colluders > plan.floor - 2:
        yield (
            f"a block at its floor of {plan.floor} survivors bears {plan.floor - 2} colluders, not all "
            f"{plan.colluders}: a floor of {plan.colluders + 2} would"
        )
    if plan.weight_bound > 1 and len(plan.segments[0].blocks) > 1:
        yield "weights are in use: the sum of weights of every subgroup becomes known to the server"
    if not plan.fill_levels:
        raised = [_filled(plan, g) for g in range(len(plan.levels))]
        if any(more > level for more, level in zip(raised, plan.levels, strict=True)):
            yield (
                f"the rings have room to spare: levels up to {','.join(map(str, raised))} cost the same bits "
                "(fill_levels raises each block's)"
            )
    yield (
        "without identities there is no protection against a server that lies (split views, substituted keys, Sybils); "
        "hiding is computational: it rests on X25519, AES and SHA-256"
    )


def _filled(plan: Plan, user_class: int) -> int:
    """The level a class's own blocks could have at the same bits (its least, over the blocks at its level)."""
    own = [
        ((1 << block.bits) - 1) // (block.users * plan.weight_bound) + 1
        for segment in plan.segments
        for block in segment.blocks
        if min(plan.subgroups[g].user_class for g in block.subgroups) == user_class
    ]
    return min(own, default=plan.levels[user_class])


def _paper_notes(plan: Plan) -> Iterable[str]:
    """Where the paper claims more than holds for this very plan (claims.md has the list)."""
    subgroups = len(plan.subgroups)
    true = plan.robustness()
    if plan.design.name.startswith("paper"):
        claimed = (subgroups - 1) / subgroups if subgroups % 2 else (subgroups - 2) / subgroups
        if abs(claimed - float(true)) > 1e-12:
            yield f"Theorem 1 of the paper claims a robustness of {claimed:.4g} here; it is {true}"
    if plan.design.name == "multigroup" and subgroups > 1:
        yield "the server learns every subgroup's whole sum: this design is a strawman for comparison"
    if plan.design.name != "secagg" and subgroups > 1:
        leak = plan.leak_probability()
        if leak.any > 2 * leak.one:
            yield (
                f"Theorem 3 of the paper counts one subgroup ({leak.one:.2g} at {plan.dropout:.0%} dropout); for any "
                f"of {subgroups} it is {leak.any:.2g}, which is why no block below the floor is ever unmasked"
            )
        if not plan.byzantine_tolerance():
            yield f"{subgroups} subgroups leave no room for the median against even one faulty user"
    if plan.design.name == "secagg":
        yield "one block of everybody at the slowest class's level: no robust rule can be used"
