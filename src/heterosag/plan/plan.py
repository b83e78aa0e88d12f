"""The plan: everything public about the rounds of an epoch, frozen before a single key exists.

`Plan.build` turns a handful of arguments into the whole structure (who, subgroups, design, levels, ring widths,
thresholds) or refuses with the value to change. The plan then states what it guarantees, computed from that
structure. The frame, all of it but value range and scales, is bound into every context, the digest into those of masks
and survivor sets, so messages of parties that disagree on anything here cannot be combined.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Literal

from heterosag.choices import DesignName, RangesName, SharingName
from heterosag.crypto import hashing
from heterosag.errors import PlanError, UsageError
from heterosag.plan import codec, display, error_bounds
from heterosag.plan import dropout as chances
from heterosag.plan.assignment import Subgroup
from heterosag.plan.checks import User, check_numbers, check_ranges, check_scales
from heterosag.plan.design import Design, Robustness
from heterosag.plan.dropout import LeakProbability
from heterosag.plan.layout import Cell, PlannedBlock, PlannedSegment, check_width, lane_names
from heterosag.plan.noise import CLIP_TRIALS, NoiseRange, check_blocks, noise_range, norm_of
from heterosag.plan.notes import notes_of
from heterosag.plan.ranges import THREE_DEVIATIONS, block_range
from heterosag.plan.sharing import SharingGraph
from heterosag.plan.structure import make_structure
from heterosag.vector.quantize import ValueRange
from heterosag.vector.ring import packed_size
from heterosag.vector.ring import width as ring_width

__all__ = ["Plan"]


@dataclass(frozen=True, slots=True, kw_only=True, init=False, repr=False)
class Plan:
    """A frozen plan. Make one with `Plan.build`, `Plan.from_toml` or `Plan.decode`; equal plans have equal digests.

    Guarantees (each computed from the structure, none quoted): `inference_robustness`, `byzantine_tolerance`,
    `leak_probability`, `failure_probability`, `quantization_error`. `notes` says what the plan does not give and
    where the paper claims more than is true. The structure always follows from the arguments of `build`:
    `dataclasses.replace` builds it anew.

    - `users`: names in roster order, class by class; `assignment`: each one's subgroup, by roster index.
    - `classes`, `levels`, `subgroup_size`, `dimension`, `value_range`, `ranges`, `arrays`, `scales`, `max_weight`,
      `fill_levels`, `min_survivors`, `min_block_survivors`, `min_robustness`, `colluders`, `dropout`,
      `assignment_seed`, `metrics`, `rotate`, `noise_multiplier`, `honest`, `adaptive_clip`: as `build` took them, or
      chose them. With noise the value range is -c .. c for the clipping norm c.
    - `subgroups`: who is assigned to each; `design`: which of them code each segment together; `segments`: slices of
      the vector with their blocks, levels and rings.
    - `sharing`: who holds whose shares; `agree_quorum`: signatures on a survivor set before anything is released.
    - `has_several_blocks`: whether a segment has more than one, so that subgroups have sums of their own to hide.
    """

    users: tuple[User, ...]
    classes: tuple[int, ...]
    levels: tuple[int, ...]
    subgroup_size: int
    design: Design
    dimension: int
    value_range: ValueRange
    ranges: RangesName
    arrays: tuple[int, ...]
    scales: tuple[float, ...]
    max_weight: int
    fill_levels: bool
    min_survivors: int
    min_block_survivors: int
    min_robustness: float
    colluders: int
    dropout: float
    sharing: SharingGraph
    assignment_seed: int | bytes | None
    metrics: tuple[str, ...]
    rotate: bool
    noise_multiplier: float
    honest: int
    adaptive_clip: bool
    subgroups: tuple[Subgroup, ...] = field(init=False)
    segments: tuple[PlannedSegment, ...] = field(init=False)
    agree_quorum: int = field(init=False)
    has_several_blocks: bool = field(init=False, compare=False)
    notes: tuple[str, ...] = field(init=False, compare=False)
    assignment: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _roster: dict[User, int] = field(init=False, repr=False, compare=False)
    _cells: dict[int, tuple[Cell, ...]] = field(init=False, repr=False, compare=False)
    _sizes_on_wire: list[int] = field(init=False, repr=False, compare=False)
    _digest: list[bytes] = field(init=False, repr=False, compare=False)
    _frame: list[bytes] = field(init=False, repr=False, compare=False)
    _guarded: list[tuple[tuple[int, ...], ...]] = field(init=False, repr=False, compare=False)

    # --- making one ---------------------------------------------------------------------------------------------

    @classmethod
    def build(
        cls,
        classes: Sequence[int],
        levels: Sequence[int] | Literal["auto"],
        dimension: int,
        *,
        rates: Sequence[float] | float | None = None,
        deadline: float | None = None,
        value_range: ValueRange | float | None = None,
        ranges: RangesName = "levels",
        design: DesignName = "perfect",
        subgroup_size: int = 5,
        min_survivors: int = 3,
        max_weight: int = 1,
        min_robustness: float | None = None,
        min_block_survivors: int | None = None,
        colluders: int | None = None,
        users: Sequence[User] | None = None,
        assignment_seed: int | bytes | None = None,
        dropout: float = 0.1,
        sharing: SharingName = "auto",
        fill_levels: bool | None = None,
        metrics: Sequence[str] = (),
        rotate: bool = True,
        arrays: Sequence[int] = (),
        scales: Sequence[float] = (),
        clipping_norm: float | None = None,
        noise_multiplier: float = 0.0,
        honest: int | None = None,
        adaptive_clip: bool = False,
    ) -> Plan:
        """Plan the rounds of an epoch.

        Args:
            classes: Users per class, slowest link first.
            levels: Quantizer levels per class, non-decreasing; or `auto`, which chooses them from `rates` and
                `deadline` (`heterosag.plan.levels`).
            dimension: Elements of the update vector.
            rates: Upload rate of each class in Mb/s, for `levels="auto"`.
            deadline: Seconds for the upload of a masked vector, for `levels="auto"` (default: what the slowest class
                takes for four levels, or everybody for sixteen where all rates are alike).
            value_range: Three standard deviations of an update's elements, as a half width or a pair. Nothing can be
                assumed here: a range ten times too wide makes the error of few levels ten times larger.
            ranges: How wide a block's own range is, outside of which values are clipped: by its levels and the number
                of users (`heterosag.plan.ranges`), or with `single` the value range itself for all.
            design: Which subgroups code a segment together.
            subgroup_size: Users a subgroup should have at least.
            min_survivors: Least survivors of a subgroup, wherever a segment has several blocks.
            max_weight: Largest weight W of a user. An update is scaled by its weight w/W before it is rounded, so
                weights cost no bits; the value range bounds the scaled update, and must contain zero.
            min_robustness: Least inference robustness of an admissible survivor set (default: this plan's without
                losses).
            min_block_survivors: Least survivors of a block whose sum may be unmasked (default: `min_survivors`; with
                several blocks those of its subgroups together).
            colluders: Users who may collude with the server (default: `min_survivors` - 2, and at least 5% of the
                users of a sparse sharing graph).
            users: Names in class order (default 0..N-1).
            assignment_seed: Public seed that shuffles users of a class (None: listed order, chosen by a trusted
                party).
            dropout: Fraction of users expected to drop out in a round.
            sharing: Who holds shares; auto takes neighbours only beyond 256 users.
            fill_levels: Raise every block's level as far as its ring holds, at no cost in bits (default: with
                `levels="auto"`; levels by number are taken as they are).
            metrics: Names of numbers (a loss, an accuracy) that are summed over everybody in one extra block.
            rotate: Spread every segment by a randomised Hadamard rotation before it is quantized, so that its elements
                are distributed alike. What widths assume; without it few levels need a range that fits the data.
            arrays: Elements of each array of an update, in order, where they have scales of their own.
            scales: The public scale of each array: its elements are divided by it before anything else, and the value
                range is that of the scaled update (default: 1 for all).
            clipping_norm: Largest norm of an update under noise, in place of a value range.
            noise_multiplier: Standard deviation of a block's noise over `honest` users, in units of the clipping norm;
                0: none. With noise there are no weights and no scales, and rotation is on.
            honest: Fewest honest survivors of a block, whom the noise is counted on (default: `min_block_survivors` -
                `colluders`).
            adaptive_clip: Under noise, sum one more noisy coordinate over everybody: whether a user's norm is within
                the clipping norm, by which the next round's follows (`heterosag.aggregation.clipping.follow_norm`).

        Returns:
            The plan, which says what it costs and guarantees.

        Raises:
            PlanError: Says which value to change, and to what.

        Example:
            >>> from heterosag import Plan
            >>> plan = Plan.build([12, 12], [4, 16], 1000, value_range=0.5, subgroup_size=4)
            >>> len(plan.subgroups)
            6
            >>> Plan.build([12, 12], "auto", 1000, rates=[1.0, 4.0], value_range=0.5, subgroup_size=4).levels
            (4, 32)
        """
        return cls(
            classes=classes,
            levels=levels,
            rates=rates,
            deadline=deadline,
            dimension=dimension,
            value_range=value_range,
            design=design,
            subgroup_size=subgroup_size,
            min_survivors=min_survivors,
            max_weight=max_weight,
            min_robustness=min_robustness,
            min_block_survivors=min_block_survivors,
            colluders=colluders,
            users=users,
            assignment_seed=assignment_seed,
            dropout=dropout,
            sharing=sharing,
            fill_levels=fill_levels,
            metrics=metrics,
            rotate=rotate,
            ranges=ranges,
            arrays=arrays,
            scales=scales,
            clipping_norm=clipping_norm,
            noise_multiplier=noise_multiplier,
            honest=honest,
            adaptive_clip=adaptive_clip,
        )

    def __init__(self, **given: Any) -> None:
        """What `build` takes, or what a plan has of the same name: the structure is made anew from it."""
        values, adjusted = make_structure(given)
        values |= {
            "_roster": {user: index for index, user in enumerate(values["users"])},
            "_cells": {},
            "_sizes_on_wire": [],
            "_digest": [],
            "_frame": [],
            "_guarded": [],
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "notes", tuple(notes_of(self, adjusted, weighted=given["max_weight"] > 1)))

    def with_value_range(self, value_range: ValueRange | float, scales: Sequence[float] | None = None) -> Plan:
        """The same plan for another value range, and other scales: what a round that follows the updates' size needs.

        Args:
            value_range: A pair, or the half width of a range around zero.
            scales: The scale of each array (default: this plan's).

        Returns:
            The plan, of the same frame.

        Raises:
            PlanError: `build` would refuse this range, or these scales.

        Example:
            >>> from heterosag import Plan
            >>> plan = Plan.build([8], [16], 10, value_range=0.5, arrays=[4, 6])
            >>> moved = plan.with_value_range(0.25, scales=[1.0, 2.0])
            >>> moved.frame == plan.frame, moved.digest == plan.digest, moved.half_widths
            (True, False, (0.25, 0.5))
        """
        checked = check_numbers(
            self.dimension,
            value_range,
            self.max_weight,
            self.min_survivors,
            self.colluders,
            self.dropout,
            len(self.users),
        )
        check_ranges(self.ranges, checked)
        for block in dict.fromkeys(block for segment in self.segments for block in segment.blocks):
            check_width(checked, block)
        if self.noise_multiplier:
            check_blocks(self.noise_multiplier, norm_of(checked), self.honest, self.design, self.segments, self.metrics)
        other = copy(self)  # nothing else in a plan depends on its range, so nothing is built again
        object.__setattr__(other, "value_range", checked)
        if scales is not None:
            object.__setattr__(other, "scales", check_scales(self.arrays, scales, self.dimension)[1])
        object.__setattr__(other, "_digest", [])
        return other

    def only_metrics(self) -> Plan:
        """What is left of the plan in a round that sums metrics and no update: the cell of metrics, a block of all.

        Users, thresholds, admissible survivor sets, digest and frame are those of the whole plan.

        Returns:
            A plan without segments.

        Raises:
            UsageError: The plan has no metrics.
        """
        if not self.metrics:
            raise UsageError("this plan has no metrics to sum")
        other = copy(self)
        kept: dict[str, Any] = {
            "dimension": 0,
            "segments": (),
            "_cells": {},
            "_sizes_on_wire": [],
            "_digest": [self.digest],
            "_frame": [self.frame],
            "_guarded": [self.guarded_blocks()],
        }
        for name, value in kept.items():
            object.__setattr__(other, name, value)
        return other

    def __repr__(self) -> str:
        return display.line(self)

    def _repr_html_(self) -> str:
        return display.html(self)

    # --- who and what -------------------------------------------------------------------------------------------

    @property
    def share_threshold(self) -> int:
        """How many shares rebuild a secret [t]."""
        return self.sharing.threshold

    @property
    def assignment_matters(self) -> bool:
        """Whether it makes a difference who is assigned where: to a subgroup, or to neighbours that hold shares."""
        return self.has_several_blocks or not self.sharing.complete

    @property
    def lanes(self) -> tuple[str, ...]:
        """The auxiliary lanes that follow each segment, 64 bits each: `count` is a constant 1."""
        return lane_names(weighted=self.max_weight > 1, noise=bool(self.noise_multiplier))

    @property
    def clipping_norm(self) -> float | None:
        """Largest norm of an update under noise [c]; None where there is no noise."""
        return self.value_range[1] if self.noise_multiplier else None

    def noise_range(self, segment: PlannedSegment, level: int) -> NoiseRange:
        """The ranges in which a block of so many levels counts a segment under noise.

        Args:
            segment: The segment.
            level: The levels of the block.

        Returns:
            The ranges of one user's counts.
        """
        return noise_range(self.noise_multiplier, self.value_range[1], self.honest, level - 1, segment.size)

    def index(self, user: User) -> int:
        """A user's roster index.

        Args:
            user: A name in `users`.

        Returns:
            The place of the user in the roster, from 0.

        Raises:
            UsageError: The plan has no such user.
        """
        try:
            return self._roster[user]
        except (KeyError, TypeError):
            few = ", ".join(repr(known) for known in self.users[:3])
            raise UsageError(
                f"{user!r} is not a user of this plan, which has {len(self.users)} users: {few}, ..."
            ) from None

    def subgroup_of(self, user: User) -> int:
        """The index of a user's subgroup.

        Args:
            user: A name in `users`.

        Returns:
            An index into `subgroups`.
        """
        return self.assignment[self.index(user)]

    def blocks_of(self, subgroup: int) -> tuple[PlannedBlock, ...]:
        """The block in which a subgroup codes each segment, in the order of the segments.

        Args:
            subgroup: An index into `subgroups`.

        Returns:
            A block for each segment.
        """
        return tuple(
            next(block for block in segment.blocks if subgroup in block.subgroups) for segment in self.segments
        )

    def cells(self, subgroup: int) -> tuple[Cell, ...]:
        """What a user of this subgroup sends, in order: a cell a segment, and one more for metrics or the clip bit.

        Args:
            subgroup: An index into `subgroups`.

        Returns:
            The cells in the order in which they are sent.
        """
        if subgroup not in self._cells:
            cells = [
                Cell(segment=at, start=segment.start, stop=segment.stop, block=block, lanes=self.lanes)
                for at, (segment, block) in enumerate(zip(self.segments, self.blocks_of(subgroup), strict=True))
            ]
            everyone, count = tuple(range(len(self.subgroups))), len(self.users)
            if self.adaptive_clip:
                level, end = CLIP_TRIALS + 1, self.dimension
                block = PlannedBlock(subgroups=everyone, users=count, level=level, bits=ring_width(count, level))
                cells.append(Cell(segment=len(self.segments), start=end, stop=end + 1, block=block, lanes=self.lanes))
            if self.metrics:
                block = PlannedBlock(subgroups=everyone, users=count, level=2, bits=1)
                end, lanes = self.dimension, (*self.lanes[:-1], *self.metrics)  # counts and weights, as of a segment
                cells.append(Cell(segment=len(self.segments), start=end, stop=end, block=block, lanes=lanes))
            self._cells[subgroup] = tuple(cells)
        return self._cells[subgroup]

    def range_of(self, block: PlannedBlock) -> ValueRange:
        """The range of a block, outside of which scaled and rotated values are clipped.

        Args:
            block: A block of this plan.

        Returns:
            Its two ends.
        """
        return block_range(self.value_range, block.width)

    @property
    def half_widths(self) -> tuple[float, ...]:
        """Half of the value range in the units of each array: times its scale. One number where there are no scales."""
        half = (self.value_range[1] - self.value_range[0]) / 2
        return tuple(half * scale for scale in self.scales or (1.0,))

    @property
    def array_widths(self) -> tuple[tuple[int, float], ...]:
        """`half_widths`, each with the number of elements that have it: what a policy compares from round to round."""
        sizes = self.arrays if self.scales else (self.dimension,)
        return tuple(zip(sizes, self.half_widths, strict=True))

    @property
    def width_factors(self) -> tuple[float, float, int]:
        """What else bounds an element: least and greatest width of a block over the value range's, and `max_weight`.

        An update of weight w is clipped at the half width of its block, times the scale, times `max_weight` / w.
        """
        widths = {block.width for segment in self.segments for block in segment.blocks} or {THREE_DEVIATIONS}
        return min(widths) / THREE_DEVIATIONS, max(widths) / THREE_DEVIATIONS, self.max_weight

    def scaled_parts(self, start: int, stop: int) -> Iterator[tuple[int, int, float]]:
        """The arrays' parts of a slice of the vector, each with its scale; nothing where there are no scales.

        Args:
            start: The first element.
            stop: The one after the last.

        Returns:
            First element, the one after the last, and scale of each part.
        """
        if not self.scales:
            return
        ends = list(accumulate(self.arrays))
        for array in range(bisect_right(ends, start), len(ends)):
            begin = max(start, ends[array] - self.arrays[array])
            if begin >= stop:
                return
            yield begin, min(stop, ends[array]), self.scales[array]

    def vector_sizes(self) -> tuple[int, ...]:
        """Bytes of a packed vector of each subgroup: every cell's elements, then its auxiliary lanes."""
        if not self._sizes_on_wire:
            self._sizes_on_wire.extend(
                sum(packed_size(cell.size, cell.bits) + 8 * len(cell.lanes) for cell in self.cells(subgroup))
                for subgroup in range(len(self.subgroups))
            )
        return tuple(self._sizes_on_wire)

    def guarded_blocks(self) -> tuple[tuple[int, ...], ...]:
        """The sets of subgroups whose sums the server learns."""
        if not self._guarded:
            blocks = {block.subgroups for segment in self.segments for block in segment.blocks}
            self._guarded.append(tuple(sorted(blocks)))
        return self._guarded[0]

    def lost_subgroups(self, survivors: Iterable[User]) -> frozenset[int]:
        """The subgroups of which nobody is among the survivors.

        Args:
            survivors: Names in `users`.

        Returns:
            Indices into `subgroups`.
        """
        alive = {self.index(user) for user in survivors}
        return frozenset(index for index, subgroup in enumerate(self.subgroups) if alive.isdisjoint(subgroup.members))

    # --- guarantees ---------------------------------------------------------------------------------------------

    def robustness(self, survivors: Collection[User] | None = None) -> Robustness:
        """Inference robustness, saying whether it is exact or a lower bound.

        Args:
            survivors: Names in `users`; everybody unless given.

        Returns:
            The value, as a fraction, and whether it is exact.
        """
        return self.design.robustness(() if survivors is None else self.lost_subgroups(survivors))

    def inference_robustness(self, survivors: Collection[User] | None = None) -> float:
        """The smallest fraction of segments in which the sum of any proper set of subgroups stays hidden.

        Args:
            survivors: Names in `users`; everybody unless given.

        Returns:
            A number from 0 to 1; a lower bound where `robustness` says so.
        """
        return float(self.robustness(survivors))

    def byzantine_tolerance(self, survivors: Collection[User] | None = None) -> int:
        """How many faulty users, one a subgroup at worst, leave the median of every segment to sound blocks.

        Args:
            survivors: Names in `users`; everybody unless given.

        Returns:
            A number of users.
        """
        return self.design.byzantine_tolerance(() if survivors is None else self.lost_subgroups(survivors))

    def leak_probability(self, dropout: float | None = None) -> LeakProbability:
        """Theorem 3's leak at a dropout rate.

        Args:
            dropout: The fraction of users who drop out in a round; the plan's own unless given.

        Returns:
            The probabilities for one subgroup, for any, and for a block.
        """
        return chances.leak_probability(self.design, self._sizes(), self._rate(dropout))

    def failure_probability(self, dropout: float | None = None) -> float:
        """The probability that a round ends with an error because no admissible survivor set is left.

        Args:
            dropout: The fraction of users who drop out in a round; the plan's own unless given.

        Returns:
            The probability, an upper bound where `Design.tolerated_losses` is one.
        """
        return chances.failure_probability(
            self.design,
            self._sizes(),
            self._rate(dropout),
            min_survivors=self.min_survivors,
            min_block_survivors=self.min_block_survivors,
            needed=max(self.agree_quorum, self.share_threshold if self.sharing.complete else 0),
            losses=self.design.tolerated_losses(self.min_robustness),
        )

    def quantization_error(self) -> float:
        """Bound on E||mean of quantized - mean||^2 over all users: Theorem 2, Lemma 2, for any design and sizes.

        It is the noise of rounding what lies inside the blocks' ranges, in units of the scaled update; what clipping
        takes away is `clip_bias`. With weights the value range bounds x * w / W, and this is the error of the weighted
        mean when all weights are the largest, W; with weights of w on average it is (W/w)^2 times that, in a range that
        can then be w/W as wide. Under noise it is the noise of all users.
        """
        return error_bounds.noise_of_rounding(self)

    def clip_bias(self) -> float:
        """Bound on ||E mean of quantized - mean||^2, for elements of which the value range holds three deviations.

        It assumes elements that are distributed as a Gaussian, as the rotation makes them, and users who clip the same
        ones, so that nothing of it averages out. A single range is assumed to hold every value: nothing is clipped.
        """
        return error_bounds.bias_of_clipping(self)

    def error_bound(self) -> float:
        """Bound on the squared error of the mean: rounding noise and clip bias together."""
        return self.quantization_error() + self.clip_bias()

    def _sizes(self) -> list[int]:
        return [len(subgroup.members) for subgroup in self.subgroups]

    def _rate(self, dropout: float | None) -> float:
        rate = self.dropout if dropout is None else dropout
        if not 0 <= rate < 1:
            raise UsageError(f"a dropout rate lies in 0 <= p < 1, not {rate!r}")
        return rate

    # --- in and out ---------------------------------------------------------------------------------------------

    def arguments(self) -> dict[str, Any]:
        """The arguments of `build` that make this plan again."""
        return codec.arguments_of(self)

    def encode(self) -> bytes:
        """The canonical encoding: version, arguments and the whole structure as one MessagePack array."""
        return codec.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Plan:
        """The plan of a canonical encoding.

        Args:
            data: What `encode` returned.

        Returns:
            The plan.

        Raises:
            PlanError: The bytes are not the canonical encoding of a plan.

        Guarantees: the plan is built anew from its arguments, and refused unless it encodes to the very same bytes, so
        that nobody can hand over a structure that `build` would not make.
        """
        plan = cls.build(**codec.read(data))
        if plan.encode() != data:
            raise PlanError("encoding", "the arguments in these bytes do not make the structure beside them")
        return plan

    @property
    def digest(self) -> bytes:
        """SHA-256 of the canonical encoding, labelled."""
        if not self._digest:
            self._digest.append(hashing.digest("plan", self.encode()))
        return self._digest[0]

    @property
    def frame(self) -> bytes:
        """A digest of the plan without its value range: of what stays the same from round to round of an epoch."""
        if not self._frame:
            self._frame.append(hashing.digest("plan/frame", codec.encode_frame(self)))
        return self._frame[0]

    def to_toml(self) -> str:
        """The arguments as TOML, with the digest that the plan built from them must have."""
        return codec.to_toml(self)

    @classmethod
    def from_toml(cls, text: str) -> Plan:
        """The plan of a TOML text.

        Args:
            text: The arguments of `build` by name; a `digest`, where given, must match.

        Returns:
            The plan.

        Raises:
            PlanError: Says which value to change.
        """
        arguments, expected = codec.read_toml(text)
        plan = cls.build(**arguments)
        if expected is not None and expected != plan.digest.hex():
            raise PlanError("digest", "the values do not make the plan of this digest: if you changed them, delete it")
        return plan
