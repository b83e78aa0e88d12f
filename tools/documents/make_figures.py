"""Draw the figures of docs/concepts: every number and every colour in them comes from the package's own code.

`python tools/documents/make_figures.py` writes docs/figures/concepts/*.svg. Each picture has a function that computes
its data and one that draws them; tests/project/test_concept_figures.py checks the data and draws each picture anew.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle

from heterosag import Plan
from heterosag.choices import DesignName
from heterosag.crypto.field import PRIME
from heterosag.crypto.hashing import digest
from heterosag.crypto.keys import (
    RoundSecrets,
    exchange_keys,
    mask_private_key,
    pair_mask_key,
    public_bytes,
    self_mask_key,
)
from heterosag.crypto.keystream import keystream
from heterosag.errors import TooFewSurvivorsError
from heterosag.plan import costs
from heterosag.plan.design import Design, make, paper, perfect
from heterosag.privacy import NoisyRound, NoisySegment, noise_multiplier_for
from heterosag.protocol import Client, Decoded, Policy, RoundId, Server
from heterosag.protocol import messages as wire
from heterosag.protocol.cells import unpack_cells
from heterosag.protocol.encoding import fill_cells
from heterosag.protocol.rounding import Rounding
from heterosag.protocol.survivors import make_admissible
from heterosag.protocol.update import Update
from heterosag.vector import ring

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["DRAWINGS", "FIGURES", "main", "to_svg"]

FIGURES = Path(__file__).resolve().parents[2] / "docs" / "figures" / "concepts"

# Okabe and Ito's colours, which people with the common colour-vision deficiencies tell apart; pale ones carry text.
BLUE, ORANGE, GREEN, RED = "#0072b2", "#e69f00", "#009e73", "#d55e00"
PALE = ("#bcdcf5", "#fbe0a3", "#b3e0d0", "#f3c6dd", "#d9d9d9", "#f6c3a3")
DARK, GREY, LIGHT = "#222222", "#777777", "#dddddd"
_SALT = "sketch"
_MINUS = "\N{MINUS SIGN}"
_FONTS = "'DejaVu Sans', Verdana"
_SETTINGS: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "svg.fonttype": "none",
    "svg.hashsalt": "heterosag",
    "text.color": DARK,
    "axes.labelcolor": DARK,
    "axes.edgecolor": GREY,
    "xtick.color": DARK,
    "ytick.color": DARK,
}


# --- a round with fixed secrets -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class WatchedRound:
    """A whole round with what only a picture may see: levels and masks beside what the server gets and decodes."""

    plan: Plan
    levels: tuple[tuple[int, ...], ...]
    own_masks: tuple[tuple[int, ...], ...]
    pair_masks: Mapping[tuple[int, int], int]
    received: tuple[tuple[int, ...], ...]
    decoded: Decoded


def watch_round(plan: Plan, updates: np.ndarray[Any, np.dtype[np.float64]]) -> WatchedRound:
    """Run client and server on secrets that are hashes of their names, so that the picture is the same each time."""
    secrets = [_secrets(user) for user in range(len(plan.users))]
    rounding = [Rounding.from_seed(0, user) for user in range(len(plan.users))]
    round_id = RoundId(session=b"a picture")
    clients = [Client(plan, user, round_id, trust_server=True, policy=Policy.any_plan()) for user in plan.users]
    server = Server(plan, round_id)
    for user, client in zip(plan.users, clients, strict=True):
        server.receive(user, client.advertise(secrets=secrets[plan.index(user)]))
    messages = server.close()
    for user, client in zip(plan.users, clients, strict=True):
        server.receive(user, client.share(messages[user]))
    messages = server.close()
    sent = {
        user: client.mask(messages[user], updates[index], rounding=rounding[index])
        for index, (user, client) in enumerate(zip(plan.users, clients, strict=True))
    }
    for user, message in sent.items():
        server.receive(user, message)
    messages = server.close()
    for user, client in zip(plan.users, clients, strict=True):
        server.receive(user, client.unmask(messages[user]))
    server.close()
    masked = [wire.decode(wire.MaskedVector, sent[user], plan=plan) for user in plan.users]
    context, bits = masked[0].context, plan.segments[0].blocks[0].bits
    pairs = {
        (one, other): _first(
            pair_mask_key(
                exchange_keys(secrets[one].mask_key, public_bytes(secrets[other].mask_key)), context, one, other
            ),
            bits,
        )
        for other in range(len(plan.users))
        for one in range(other)
    }
    return WatchedRound(
        plan=plan,
        levels=tuple(
            _row(fill_cells(plan, plan.assignment[index], Update.of(plan, updates[index]), rounding[index]))
            for index in range(len(plan.users))
        ),
        own_masks=tuple(
            (_first(self_mask_key(one.self_secret, context, user), bits),) for user, one in enumerate(secrets)
        ),
        pair_masks=pairs,
        received=tuple(
            _row(unpack_cells(message.vector, plan.cells(plan.assignment[index])))
            for index, message in enumerate(masked)
        ),
        decoded=server.decoded,
    )


def _secrets(user: int) -> RoundSecrets:
    """Secrets of a picture: hashes of their names. A deployment draws them from the system's entropy."""
    numbers = [int.from_bytes(digest(f"{_SALT}/{kind}/{user}"), "little") % PRIME for kind in ("mask", "self")]
    return RoundSecrets(
        mask_secret=numbers[0],
        self_secret=numbers[1],
        mask_key=mask_private_key(numbers[0]),
        seal_key=X25519PrivateKey.from_private_bytes(digest(f"{_SALT}/seal/{user}")),
    )


def _first(key: bytes, bits: int) -> int:
    """The first element that a keystream adds in a ring of so many bits."""
    return int.from_bytes(keystream(key, ring.lane_dtype(bits).itemsize), "little") % (1 << bits)


def _row(cells: Any) -> tuple[int, ...]:
    return tuple(int(value) for cell in cells for value in cell.elements)


# --- what the server sees -----------------------------------------------------------------------------------------


def three_users() -> WatchedRound:
    """One element of three users in one block: small enough to add up by hand."""
    options = {"ranges": "single", "rotate": False, "design": "secagg", "dropout": 0.0}
    plan = Plan.build([3], [4], 1, value_range=1.0, subgroup_size=3, **options)
    return watch_round(plan, np.array([[-0.35], [1.0], [0.4]]))


def draw_masks() -> Figure:
    """Levels, masks and sums of three users, as numbers."""
    seen = three_users()
    modulus = 1 << seen.plan.segments[0].blocks[0].bits
    heads = ["user", "level", "own mask", "mask 0-1", "mask 0-2", "mask 1-2", "the server gets"]
    colours = ["white", PALE[4], PALE[3], PALE[0], PALE[1], PALE[2], "white"]
    rows: list[list[str]] = []
    for user in range(3):
        pairs = [
            f"{'+' if user == pair[0] else _MINUS} {value}" if user in pair else "" for pair, value in _pairs(seen)
        ]
        rows.append([str(user), str(seen.levels[user][0]), f"+ {seen.own_masks[user][0]}", *pairs,
                     f"{seen.received[user][0]}"])  # fmt: skip
    own = sum(mask[0] for mask in seen.own_masks) % modulus
    total = sum(row[0] for row in seen.received) % modulus
    sums = ["sum", str(sum(row[0] for row in seen.levels)), str(own), "0", "0", "0", str(total)]
    figure, axes = _canvas(7.2, 2.75)
    widths = [0.7, 0.8, 1.15, 1.15, 1.15, 1.15, 1.5]
    lefts = [sum(widths[:place]) for place in range(len(widths))]
    axes.set_xlim(0, sum(widths))
    axes.set_ylim(6.0, 0)
    for place, (head, left, wide) in enumerate(zip(heads, lefts, widths, strict=True)):
        axes.text(left + wide / 2, 0.4, head, ha="center", va="center", weight="bold", fontsize=8.5)
        for line, row in enumerate([*rows, sums]):
            top = 0.8 + line + (0.15 if line == 3 else 0)
            if row[place] and place:
                fill = colours[place] if colours[place] != "white" else "#f5f5f5"
                axes.add_patch(Rectangle((left + 0.05, top + 0.07), wide - 0.1, 0.86, facecolor=fill, lw=0))
            weight = "bold" if line == 3 or place == 6 else "normal"
            axes.text(left + wide / 2, top + 0.5, row[place], ha="center", va="center", weight=weight)
    axes.hlines([3.875], 0.05, sum(widths) - 0.05, color=DARK, lw=1)
    block = seen.decoded.segments[0][0]
    axes.text(
        sum(widths) / 2,
        5.45,
        f"all mod {modulus}: the vectors add up to {total}; without the own masks' {own} that is "
        f"{int(block.elements[0])}, the sum of {block.survivors} users' levels",
        ha="center",
        va="center",
        fontsize=8.5,
    )
    return figure


def _pairs(seen: WatchedRound) -> list[tuple[tuple[int, int], int]]:
    return sorted(seen.pair_masks.items())


def twelve_users() -> WatchedRound:
    """Twelve users in four subgroups with updates in which a person sees a pattern."""
    plan = Plan.build([12], [16], 24, value_range=1.0, subgroup_size=3)
    place = np.arange(24)
    updates = np.array([np.sin((place + 2 * user) / 24 * 2 * np.pi) * (0.95 - 0.04 * user) for user in range(12)])
    return watch_round(plan, updates)


def draw_server_view() -> Figure:
    """The users' levels, what crosses, and what the server decodes, as pictures."""
    seen = twelve_users()
    plan = seen.plan
    figure = Figure(figsize=(7.2, 5.0), facecolor="white")
    left = figure.add_axes((0.065, 0.50, 0.405, 0.43))
    right = figure.add_axes((0.575, 0.50, 0.405, 0.43))
    below = figure.add_axes((0.065, 0.06, 0.915, 0.29))
    bits = plan.segments[0].blocks[0].bits
    for axes, rows, most, title in (
        (left, seen.levels, 15, "what users have (levels 0 to 15)"),
        (right, seen.received, (1 << bits) - 1, f"what the server gets (0 to {(1 << bits) - 1})"),
    ):
        axes.pcolormesh(np.array(rows), cmap="viridis", vmin=0, vmax=most, edgecolors="none", snap=True)
        axes.set_ylim(12, 0)
        axes.set_yticks([1.5, 4.5, 7.5, 10.5], map(str, range(4)), va="center", fontsize=8)
        axes.set_ylabel("subgroup", fontsize=8.5)
        axes.hlines([3, 6, 9], 0, 24, color="white", lw=1.6)
        axes.set_title(title, fontsize=9)
        _segments(axes, plan, 12)
    for at, segment in enumerate(seen.decoded.segments):
        where = plan.segments[at]
        for line, block in enumerate(segment):
            values = np.array([block.elements], dtype=float)
            most = block.survivors * (block.block.level - 1)
            edges = np.arange(where.start, where.stop + 1), np.array([line + 0.4, line + 0.92])
            below.pcolormesh(*edges, values, cmap="viridis", vmin=0, vmax=most, edgecolors="none", snap=True)
            name = " and ".join(map(str, block.block.subgroups))
            middle = (where.start + where.stop) / 2
            below.text(middle, line + 0.22, f"{name}: {block.survivors} users", ha="center", va="center", fontsize=8.5)
    below.set_ylim(2, 0)
    below.set_yticks([])
    below.set_title("what unmasking leaves: for each segment the sums of two pairs of subgroups", fontsize=9)
    _segments(below, plan, 2)
    return figure


def _segments(axes: Axes, plan: Plan, height: int) -> None:
    """Mark the segments under a picture of vectors."""
    axes.set_xlim(0, plan.dimension)
    axes.vlines([segment.start for segment in plan.segments[1:]], 0, height, color="white", lw=1.6)
    middles = [(segment.start + segment.stop) / 2 for segment in plan.segments]
    axes.set_xticks(middles, [f"segment {at}" for at in range(len(middles))], fontsize=8)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


# --- designs ------------------------------------------------------------------------------------------------------

TABLES = (
    ("secagg", 6, (0, 0.90)),
    ("multigroup", 6, (0, 0.665)),
    ("paper", 5, (1, 0.90)),
    ("paper-composite", 6, (2, 0.90)),
    ("perfect", 5, (1, 0.385)),
    ("perfect", 6, (2, 0.385)),
)
"""Name, subgroups, and where the table stands: its column, and the height of its upper edge."""


def draw_designs() -> Figure:
    """Every design on five or six subgroups, side by side."""
    figure = Figure(figsize=(7.2, 5.5), facecolor="white")
    for name, count, (column, top) in TABLES:
        design = make(name, count)
        left, height = (0.035, 0.37, 0.695)[column], 0.365 * len(design.segments) / 6
        _table(figure.add_axes((left, top - height, 0.28 * count / 6, height)), design)
        figure.text(left, top + 0.08, f"{name}, {count} subgroups", weight="bold", va="center", fontsize=8.5)
        figure.text(
            left,
            top + 0.048,
            f"robustness {float(design.robustness()):.3g}, median tolerates {design.byzantine_tolerance()}",
            fontsize=8,
            va="center",
        )
    for line, words in enumerate(
        (
            "columns: subgroups",
            "rows: segments",
            "one letter in a row: one block,",
            "which gives one sum",
            "*: a subgroup alone",
        )
    ):
        figure.text(0.035, 0.37 - 0.035 * line, words, va="center", fontsize=8.5)
    return figure


def _table(axes: Axes, design: Design, *, ring_around: Sequence[int] = (), rows: Sequence[int] | None = None) -> None:
    """A row a segment, a column a subgroup; one letter and colour a block, a star where a subgroup is alone."""
    for line, segment in enumerate(design.segments):
        pale = rows is not None and line not in rows
        for at, block in enumerate(segment):
            for subgroup in block:
                fill = "#f3f3f3" if pale else PALE[at % len(PALE)]
                axes.add_patch(Rectangle((subgroup, line), 1, 1, facecolor=fill, edgecolor="white", lw=1.5))
                text = "*" if len(block) == 1 and design.subgroups > 1 else "ABCDEF"[at]
                colour = GREY if pale else DARK
                axes.text(subgroup + 0.5, line + 0.5, text, ha="center", va="center", color=colour, fontsize=9)
    for subgroup in ring_around:
        for line in rows or ():
            axes.add_patch(
                Rectangle((subgroup + 0.06, line + 0.06), 0.88, 0.88, facecolor="none", edgecolor=RED, lw=1.8)
            )
    axes.set_xlim(0, design.subgroups)
    axes.set_ylim(len(design.segments), 0)
    axes.set_xticks([g + 0.5 for g in range(design.subgroups)], [str(g) for g in range(design.subgroups)], fontsize=8)
    axes.set_yticks(
        [r + 0.5 for r in range(len(design.segments))], map(str, range(len(design.segments))), va="center", fontsize=8
    )
    axes.xaxis.tick_top()
    axes.tick_params(length=0, pad=2)
    axes.spines[:].set_visible(False)


# --- rings --------------------------------------------------------------------------------------------------------


def example_plan() -> Plan:
    """The plan that README and docs/plans.md talk about."""
    return Plan.build([24] * 4, [2, 6, 8, 12], 79510, value_range=1.0, subgroup_size=8)


def draw_rings() -> Figure:
    """The ring of every block: levels and bits, in the order of the segments."""
    plan = example_plan()
    figure = Figure(figsize=(7.2, 4.5), facecolor="white")
    axes = figure.add_axes((0.075, 0.02, 0.735, 0.83))
    shades = dict(zip(sorted(set(plan.levels)), ("#f0f0f0", PALE[1], PALE[2], PALE[0]), strict=True))
    for line, segment in enumerate(plan.segments):
        for block in segment.blocks:
            for subgroup in block.subgroups:
                fill = shades[block.level]
                axes.add_patch(Rectangle((subgroup, line), 1, 1, facecolor=fill, edgecolor="white", lw=1.5))
                axes.text(subgroup + 0.5, line + 0.5, str(block.bits), ha="center", va="center")
    count = len(plan.subgroups)
    borders = [g for g in range(1, count) if plan.subgroups[g].user_class != plan.subgroups[g - 1].user_class]
    axes.vlines(borders, 0, len(plan.segments), color=DARK, lw=1.2)
    axes.set_xlim(0, count)
    axes.set_ylim(len(plan.segments), 0)
    axes.set_xticks([g + 0.5 for g in range(count)], map(str, range(count)), fontsize=8)
    axes.set_yticks(
        [r + 0.5 for r in range(len(plan.segments))], map(str, range(len(plan.segments))), va="center", fontsize=8
    )
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set_xlabel("subgroup, three for each class, slowest class first")
    axes.set_ylabel("segment")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    key = figure.add_axes((0.835, 0.45, 0.16, 0.4))
    key.axis("off")
    key.set_xlim(0, 1)
    key.set_ylim(5, 0)
    key.text(0, 0.5, "levels of a block", va="center", fontsize=8.5, weight="bold")
    for line, (level, shade) in enumerate(shades.items(), start=1):
        key.add_patch(Rectangle((0, line + 0.15), 0.25, 0.7, facecolor=shade, edgecolor=GREY, lw=0.5))
        key.text(0.34, line + 0.5, str(level), va="center", fontsize=8.5)
    figure.text(0.835, 0.40, "numbers: bits\nan element", fontsize=8.5, va="top")
    return figure


def bits_by_class() -> dict[str, list[float]]:
    """Bits a parameter that each class sends: in plaintext, in its blocks, and in one block of everybody."""
    plan = example_plan()
    found = costs.of(plan)
    firsts = [
        next(g for g, subgroup in enumerate(plan.subgroups) if subgroup.user_class == index)
        for index in range(len(plan.classes))
    ]
    sources = {
        "levels in plaintext": found.plaintext_bits,
        "masked, in blocks of two subgroups": found.upload_bits,
        "masked, in one block of everybody": found.secagg_bits,
    }
    return {name: [bits[g] / plan.dimension for g in firsts] for name, bits in sources.items()}


def draw_bits() -> Figure:
    """Bits a parameter by class, three bars each."""
    plan, found = example_plan(), bits_by_class()
    figure = Figure(figsize=(7.2, 3.4), facecolor="white")
    axes = figure.add_axes((0.075, 0.13, 0.915, 0.72))
    for place, ((name, bits), colour) in enumerate(zip(found.items(), (LIGHT, BLUE, ORANGE), strict=True)):
        at = [index + (place - 1) * 0.26 for index in range(len(bits))]
        bars = axes.bar(at, bits, 0.24, color=colour, label=name, edgecolor=GREY, linewidth=0.4)
        axes.bar_label(bars, labels=[f"{value:.1f}" for value in bits], fontsize=8, padding=2)
    axes.set_xticks(
        range(len(plan.levels)), [f"class {g}: up to {level} levels" for g, level in enumerate(plan.levels)]
    )
    axes.set_ylabel("bits a parameter")
    axes.set_ylim(0, 1.1 * max(found["masked, in one block of everybody"]))
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="x", length=0)
    axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 1.01), ncols=3, frameon=False, fontsize=8, columnspacing=1.2)
    return figure


# --- least survivors ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Case:
    """Who is left of six subgroups of four, and what becomes of the round."""

    title: str
    alive: frozenset[int]
    kept: frozenset[int] | None
    reason: str


SURVIVORS: tuple[tuple[str, DesignName, tuple[int, ...]], ...] = (
    ("a few are gone", "perfect", (3, 4, 3, 4, 4, 3)),
    ("one is left of subgroup 2", "perfect", (4, 4, 1, 4, 4, 4)),
    ("nobody is left of subgroup 2", "perfect", (4, 4, 0, 4, 4, 4)),
    ("one each is left of 1 and 2", "perfect", (4, 1, 1, 4, 4, 4)),
    ("the same, one block (secagg)", "secagg", (4, 1, 1, 4, 4, 4)),
    ("half of everybody is gone", "perfect", (4, 4, 4, 0, 0, 0)),
)
"""Title, design, and how many are left of each subgroup."""


def survivor_cases() -> list[Case]:
    """What the server's rule makes of each case."""
    found = []
    for title, design, counts in SURVIVORS:
        plan = Plan.build([24], [16], 100, value_range=1.0, subgroup_size=4, design=design)
        alive = frozenset(
            user for subgroup, count in zip(plan.subgroups, counts, strict=True) for user in subgroup.members[:count]
        )
        try:
            kept, reason = make_admissible(plan, alive), ""
        except TooFewSurvivorsError as error:
            kept, reason = None, error.reason
        found.append(Case(title=title, alive=alive, kept=kept, reason=reason))
    return found


def draw_survivor_cases() -> Figure:
    """Six small pictures of survivors, each with its verdict."""
    figure = Figure(figsize=(7.2, 4.1), facecolor="white")
    for place, case in enumerate(survivor_cases()):
        axes = figure.add_axes((0.01 + 0.33 * (place % 3), 0.565 - 0.47 * (place // 3), 0.32, 0.42))
        axes.set_xlim(0, 7)
        axes.set_ylim(5.9, -0.9)
        axes.set_aspect("equal")
        axes.axis("off")
        axes.text(3.5, -0.6, case.title, ha="center", va="center", weight="bold", fontsize=8.5)
        for user in range(24):
            subgroup, row = divmod(user, 4)
            alive, kept = user in case.alive, case.kept is not None and user in case.kept
            fill = BLUE if kept else ORANGE if alive else "white"
            spot = Circle((1 + subgroup, 0.45 + row), 0.31, facecolor=fill, edgecolor=DARK if alive else GREY, lw=0.8)
            axes.add_patch(spot)
        for subgroup in range(6):
            axes.text(1 + subgroup, 4.35, str(subgroup), ha="center", va="center", fontsize=8)
        if case.kept is None:
            verdict = f"refused: {case.reason}"
        elif case.kept == case.alive:
            verdict = f"unmasked: all {len(case.kept)}"
        else:
            verdict = f"unmasked: {len(case.kept)} of {len(case.alive)}"
        axes.text(3.5, 5.3, verdict, ha="center", va="center", fontsize=8.5, color=RED if case.kept is None else DARK)
    names = ((BLUE, "in the sums"), (ORANGE, "alive, not in the sums"), ("white", "gone"))
    for place, (fill, name) in enumerate(names):
        key = figure.add_axes((0.17 + 0.27 * place, 0.01, 0.26, 0.05))
        key.axis("off")
        key.set_xlim(0, 9)
        key.set_ylim(0, 1)
        key.set_aspect("equal", anchor="W")
        key.add_patch(Circle((0.5, 0.5), 0.42, facecolor=fill, edgecolor=DARK if fill != "white" else GREY, lw=0.8))
        key.text(1.2, 0.46, name, va="center", fontsize=8.5)
    return figure


SIZES = range(3, 13)
RATES = (0.05, 0.1, 0.2)


def refusals() -> dict[float, list[float]]:
    """By dropout, how often a round of twelve equal subgroups ends for lack of survivors, for each subgroup size."""
    plans = [Plan.build([12 * size], [16], 1000, value_range=1.0, subgroup_size=size) for size in SIZES]
    return {rate: [plan.failure_probability(rate) for plan in plans] for rate in RATES}


def draw_refusals() -> Figure:
    """How subgroup size and dropout decide how often a round is refused."""
    figure = Figure(figsize=(7.2, 3.3), facecolor="white")
    axes = figure.add_axes((0.095, 0.15, 0.885, 0.8))
    least = 1e-12
    for (rate, chances), colour, mark in zip(refusals().items(), (GREEN, BLUE, RED), ("o", "s", "^"), strict=True):
        points = [(size, chance) for size, chance in zip(SIZES, chances, strict=True) if chance > least]
        xs, ys = zip(*points, strict=True)
        axes.plot(xs, ys, color=colour, marker=mark, ms=4.5, lw=1.5, label=f"{rate:.0%} dropout")
    axes.set_yscale("log")
    axes.set_ylim(least, 2)
    axes.set_xlim(2.7, 12.3)
    axes.set_xticks(list(SIZES))
    axes.set_yticks([10.0**-exponent for exponent in (0, 3, 6, 9, 12)], ["1", "1e-3", "1e-6", "1e-9", "1e-12"])
    axes.set_yticks([], minor=True)
    axes.set_xlabel("users in each of 12 subgroups (design perfect, min_survivors 3)")
    axes.set_ylabel("rounds that end without a result")
    axes.grid(color=LIGHT, lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8.5, loc="upper right")
    return figure


# --- noise --------------------------------------------------------------------------------------------------------

BLOCKS = (16, 32, 64, 128, 256, 512, 1000)
"""Honest survivors of a block, of a thousand users."""


def noise_errors() -> dict[float, list[float]]:
    """By epsilon, the error of the mean of 1,000 users and 20,000 elements over 20 rounds, for each size of blocks.

    The noise multiplier is that of 32 honest survivors: it hardly depends on how many there are.
    """
    segment = NoisySegment(size=20_000, trials=1, everywhere=32)
    like = NoisyRound(noise_multiplier=3.0, honest=32, segments=(segment,))
    found = {}
    for epsilon in (1.0, 2.0, 8.0):
        noise = noise_multiplier_for(like, target_epsilon=epsilon, target_delta=1e-5, rounds=20)
        found[epsilon] = [noise * math.sqrt(20_000 / (honest * 1000)) for honest in BLOCKS]
    return found


def draw_noise() -> Figure:
    """How the users of a block decide the error under noise."""
    figure = Figure(figsize=(7.2, 3.3), facecolor="white")
    axes = figure.add_axes((0.095, 0.15, 0.885, 0.8))
    for (epsilon, errors), colour, mark in zip(
        noise_errors().items(), (RED, BLUE, GREEN), ("^", "s", "o"), strict=True
    ):
        axes.plot(BLOCKS, errors, color=colour, marker=mark, ms=4.5, lw=1.5, label=f"epsilon {epsilon:g}")
    axes.axhline(3.0, color=GREY, lw=1.0, ls="--")
    axes.text(20, 3.5, "refused by the planner", fontsize=8.5, color=GREY, va="bottom")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(list(BLOCKS), [f"{size:,}" for size in BLOCKS])
    axes.set_xticks([], minor=True)
    axes.set_yticks([1, 3, 10, 30], ["1", "3", "10", "30"])
    axes.set_yticks([], minor=True)
    axes.set_xlabel("honest survivors of a block (1,000 users, 20,000 elements, 20 rounds, delta 1e-5)")
    axes.set_ylabel("error of the mean, clipping norms")
    axes.grid(color=LIGHT, lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8.5, loc="upper right")
    return figure


# --- Theorem 1 ----------------------------------------------------------------------------------------------------

EVEN = (0, 2, 4)
"""The set of subgroups whose sum the paper's design reveals in half of the segments."""

JOINED = (1, 3)
"""Two segments in which it does."""


def draw_theorem_1() -> Figure:
    """The paper's design and `perfect` on six subgroups: what shows the set, and why."""
    figure = Figure(figsize=(7.2, 5.1), facecolor="white")
    for place, (name, design) in enumerate((("paper-composite", paper(6)), ("perfect", perfect(6)))):
        left = 0.06 + 0.5 * place
        shown = design.decodable(EVEN)
        figure.text(left, 0.975, f"{name}, 6 subgroups", weight="bold", va="center")
        words = "segments that show the sum of 0+2+4: " + (", ".join(map(str, shown)) or "none")
        figure.text(left, 0.94, words, va="center", fontsize=8)
        height = 0.4 * len(design.segments) / 6
        _table(
            figure.add_axes((left, 0.885 - height, 0.4, height)), design, ring_around=EVEN if shown else (),
            rows=shown or None,
        )  # fmt: skip
        _graph(figure.add_axes((left, 0.005, 0.4, 0.37)), design)
        parts = components(design, JOINED)
        words = f"segments {JOINED[0]} and {JOINED[1]} as one graph: " + (
            "connected" if len(parts) == 1 else f"{len(parts)} parts"
        )
        figure.text(left, 0.42, words, va="center", fontsize=8)
    return figure


def components(design: Design, segments: Sequence[int]) -> list[frozenset[int]]:
    """The parts that the pairings of some segments, read as one graph, fall into."""
    parts = [frozenset([subgroup]) for subgroup in range(design.subgroups)]
    for segment in segments:
        for block in design.segments[segment]:
            joined = frozenset[int]().union(*(part for part in parts if not part.isdisjoint(block)))
            parts = [part for part in parts if part.isdisjoint(block)] + [joined]
    return sorted(parts, key=min)


def _graph(axes: Axes, design: Design) -> None:
    """The pairings of two segments as edges on a circle of subgroups."""
    axes.set_aspect("equal")
    axes.axis("off")
    axes.set_xlim(-2.0, 2.0)
    axes.set_ylim(-1.35, 1.3)
    angles = [np.pi / 2 - 2 * np.pi * g / design.subgroups for g in range(design.subgroups)]
    spots = [(float(np.cos(angle)), float(np.sin(angle))) for angle in angles]
    for segment, colour, style in zip(JOINED, (BLUE, ORANGE), ("-", "--"), strict=True):
        for block in design.segments[segment]:
            if len(block) == 2:
                (x, y), (u, v) = spots[block[0]], spots[block[1]]
                axes.plot([x, u], [y, v], color=colour, lw=2.2, linestyle=style, zorder=1)
    for g, (x, y) in enumerate(spots):
        axes.add_patch(
            Circle((x, y), 0.19, facecolor=PALE[5] if g in EVEN else PALE[4], edgecolor=DARK, lw=0.8, zorder=2)
        )
        axes.text(x, y - 0.01, str(g), ha="center", va="center", fontsize=9, zorder=3)
    for line, (segment, colour, style) in enumerate(zip(JOINED, (BLUE, ORANGE), ("-", "--"), strict=True)):
        axes.plot([1.25, 1.75], [-0.85 - 0.28 * line] * 2, color=colour, lw=2.2, linestyle=style)
        axes.text(1.83, -0.86 - 0.28 * line, str(segment), va="center", fontsize=8)


# --- in and out ---------------------------------------------------------------------------------------------------

DRAWINGS: dict[str, tuple[str, Callable[[], Figure]]] = {
    "masks": ("Three users' levels and masks, and what is left of them in the sum", draw_masks),
    "server-view": ("What users have, what the server gets, and what unmasking leaves", draw_server_view),
    "designs": ("The designs as tables of segments and subgroups", draw_designs),
    "rings": ("The ring width of every block of a plan", draw_rings),
    "bits": ("Bits a parameter by class of links", draw_bits),
    "survivor-cases": ("Six sets of survivors and what becomes of the round", draw_survivor_cases),
    "refusals": ("How often a round is refused, by subgroup size and dropout", draw_refusals),
    "noise": ("The error under noise, by the users of a block and epsilon", draw_noise),
    "theorem-1": ("Why the paper's Theorem 1 fails for six groups", draw_theorem_1),
}


def _canvas(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure that is all canvas."""
    figure = Figure(figsize=(width, height), facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.axis("off")
    return figure, axes


def to_svg(name: str) -> str:
    """A figure as SVG: text stays text, and the same bytes come out each time."""
    title, draw = DRAWINGS[name]
    out = io.StringIO()
    with mpl.rc_context(_SETTINGS):
        draw().savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Title": title})
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", out.getvalue(), flags=re.DOTALL)
    text = text.replace("'DejaVu Sans'", _FONTS)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def main() -> None:
    """Draw every figure anew."""
    FIGURES.mkdir(parents=True, exist_ok=True)
    for name in DRAWINGS:
        (FIGURES / f"{name}.svg").write_text(to_svg(name), encoding="utf-8")


if __name__ == "__main__":
    main()
