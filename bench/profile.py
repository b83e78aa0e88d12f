"""What each step of a round is made of: its operations, counted, at the price that each has by itself in the same run.

A round of 100 users, a million elements, subgroups of about eight: at 12 levels on the complete and the sparse sharing
graph, and at as many levels as the peer has. What the parts do not add up to is the interpreter's: calls, objects,
messages. Beside it are the peer's own steps (peer_profile.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.poly1305 import Poly1305

from bench import peer_profile
from bench.against_peer import COARSE, FINE, Case, Graph
from bench.masking import keystream_alone, stream_size
from bench.round import Cost, dropouts, play
from bench.rows import CPU, Row, in_turn
from heterosag.crypto import hashing, shamir
from heterosag.crypto.field import element_from_bytes, element_to_bytes
from heterosag.crypto.keys import RoundSecrets, exchange_keys, pair_mask_key, public_bytes
from heterosag.crypto.keystream import Keystream
from heterosag.crypto.seal import Seal
from heterosag.plan import Plan
from heterosag.protocol import masks
from heterosag.protocol.cells import add_cells, pack_cells
from heterosag.protocol.client import Polynomials
from heterosag.protocol.encoding import fill_cells
from heterosag.protocol.masks import Mask
from heterosag.protocol.rounding import Rounding
from heterosag.protocol.update import Update
from heterosag.vector import ring
from heterosag.vector.rotation import rotate_rows

USERS, DIMENSION = 100, 1_000_000

CASES: tuple[tuple[Graph, int, str], ...] = (
    ("complete", COARSE, ""),
    ("sparse", COARSE, "12 levels, sparse graph"),
    ("complete", FINE, "2^22 levels, complete graph"),
)
"""Sharing graph, levels, and the name that tells a case from the first."""

MEASURED: list[dict[str, Any]] = []
"""Step by step: its case, its parts, for the page."""

_ARRIVES = "server: a vector arrives"


def rows() -> Iterator[Row]:
    """The parts of a step over the step."""
    updates = np.random.default_rng(0).uniform(-1, 1, (USERS, DIMENSION)).astype(np.float32)
    for graph, level, label in CASES:
        case = Case(users=USERS, dimension=DIMENSION, graph=graph, repeats=1)
        plan = case.plan(level, 1.0)
        play(plan, updates, case.lost, policy=case.policy)  # warms up
        cost = play(plan, updates, case.lost, policy=case.policy)
        price = _prices(plan, updates[0])
        for step, (whole, parts) in _steps(plan, case.lost, cost).items():
            if label and step == _ARRIVES:
                continue  # the vector alone decides, and the first case shows it
            listed: list[dict[str, Any]] = [
                {"part": name, "times": count, "each": price[unit], "seconds": count * price[unit]}
                for name, (count, unit) in parts.items()
            ]
            known = sum(part["seconds"] for part in listed)
            MEASURED.append({"case": label, "step": step, "seconds": whole, "parts": listed})
            name = f"{step}: its parts by themselves / the step"
            yield Row.of(f"{name} ({label})" if label else name, [known], whole)
    MEASURED.extend(peer_profile.measure(USERS, updates[0]))


def _steps(plan: Plan, lost: int, cost: Cost) -> dict[str, tuple[float, dict[str, tuple[float, str]]]]:
    """Of each step its seconds, and how often it does what."""
    gone = dropouts(USERS, lost)
    left = sorted(set(range(USERS)).difference(gone))
    alive, others, holders = len(left), USERS - 1, len(plan.sharing.holders(0))
    user_bytes = _stream_bytes(plan, 0, range(1, USERS))
    server_bytes = sum(_stream_bytes(plan, user, gone) for user in left)
    rotated = {"rotating": (1.0, "rotate")} if plan.rotate else {}
    return {
        "user: share": (
            cost.user_seconds["share"],
            {
                "key agreements (X25519)": (others + holders, "agree"),
                "keys of seals": (holders, "seal"),
                "sealing": (holders, "close"),
                "commitments": (2 * holders + 3, "commit"),
                "both secrets' shares": (1, "split"),
            },
        ),
        "user: mask": (
            cost.user_seconds["mask"],
            {
                "keystream (AES)": (user_bytes, "byte"),
                "adding it up": (user_bytes, "add"),
                "keys of masks": (USERS, "derive"),
                "opening their streams": (USERS, "stream"),
                "keys of seals": (holders, "seal"),
                "opening shares": (holders, "open"),
                "commitments": (2 * holders, "commit"),
                **rotated,
                "quantizing, words drawn": (1, "fill"),
                "packing": (1, "pack"),
                "checking the update": (1, "check"),
                "tag of the message": (1, "checksum"),
            },
        ),
        _ARRIVES: (
            cost.server_seconds["mask"] / alive,
            {"checksum of the message": (1, "checksum"), "unpacking and adding": (1, "unpack")},
        ),
        "server: unmask": (
            cost.server_seconds["unmask"],
            {
                "key agreements (X25519)": (lost * alive, "agree"),
                "keys of masks": (lost * alive + alive, "derive"),
                "opening their streams": (lost * alive + alive, "stream"),
                "keystream (AES)": (server_bytes, "byte"),
                "adding it up": (server_bytes, "add"),
                "reading shares": (alive * (holders + 1), "element"),
                "weights of shares": (1 if plan.sharing.complete else USERS, "weigh"),
                "rebuilding secrets": (USERS, "combine"),
                "sums to means": (1, "decode"),
            },
        ),
    }


def _stream_bytes(plan: Plan, user: int, partners: Iterable[int]) -> int:
    """Bytes of a user's own mask and of those with its partners, each of whom it codes something with."""
    mine = plan.assignment[user]
    pairs = (masks.shared_cells(plan, mine, plan.assignment[other]) for other in partners)
    return sum(stream_size(plan, mine, cells) for cells in (tuple(range(len(plan.cells(mine)))), *pairs))


def _repeat(action: Callable[[], object], count: int) -> None:
    for _ in range(count):
        action()


def _prices(plan: Plan, update: Any) -> dict[str, float]:
    """Seconds of one of each operation."""
    one, other = RoundSecrets.generate(), RoundSecrets.generate()
    theirs, context = public_bytes(other.mask_key), bytes(32)
    agreed = exchange_keys(one.mask_key, theirs)
    seal = Seal.of(agreed, context, 0, 1)
    sealed, element = seal.close(one.mask_secret, one.self_secret), element_to_bytes(one.mask_secret)
    places = list(range(1, len(plan.sharing.holders(0)) + 2))
    chosen = tuple(places[: plan.share_threshold])
    fresh_weights = shamir.coefficients.__wrapped__  # the survivors of a round are others than those before
    weights, shares = shamir.coefficients(chosen), [one.mask_secret] * len(chosen)
    checked = Update.of(plan, update)
    cells = plan.cells(plan.assignment[0])
    lanes = fill_cells(plan, plan.assignment[0], checked, Rounding.from_system())
    packed = pack_cells(lanes, cells)
    message = bytes(packed)
    everything = tuple(range(len(cells)))
    found = [Mask(bytes([place]) * 32, True, everything) for place in range(16)]
    size = stream_size(plan, plan.assignment[0], everything)
    blocks = plan.segments[0].blocks
    sums = np.zeros((len(blocks), DIMENSION), dtype=ring.lane_dtype(blocks[0].bits))

    def shared() -> None:
        polynomials = Polynomials.draw(plan, one)
        shamir.split_two(polynomials.mask, polynomials.self, places)

    many: dict[str, tuple[int, Callable[[], object]]] = {
        "agree": (200, lambda: exchange_keys(one.mask_key, theirs)),
        "seal": (200, lambda: Seal.of(agreed, context, 0, 1)),
        "close": (200, lambda: seal.close(one.mask_secret, one.self_secret)),
        "open": (200, lambda: seal.open(sealed)),
        "commit": (200, lambda: hashing.commit("mask", context, 0, 1, element)),
        "split": (1, shared),
        "derive": (200, lambda: pair_mask_key(agreed, context, 0, 1)),
        "stream": (200, lambda: Keystream(agreed)),
        "fill": (1, lambda: fill_cells(plan, plan.assignment[0], checked, Rounding.from_system())),
        "pack": (1, lambda: pack_cells(lanes, cells)),
        "check": (1, lambda: Update.of(plan, update)),
        "checksum": (1, lambda: Poly1305.generate_tag(context, message)),
        "unpack": (1, lambda: add_cells(packed, cells, lanes)),
        "element": (200, lambda: element_from_bytes(element)),
        "weigh": (1, lambda: fresh_weights(chosen)),
        "combine": (20, lambda: shamir.combine(weights, shares)),
        "decode": (1, lambda: sums.mean(axis=0, dtype=np.float64)),
    }
    rotated = update.astype(np.float64)
    whole = plan.segments[0].stop - plan.segments[0].start

    def rotate() -> None:
        for segment in plan.segments:
            part = slice(segment.start, segment.stop)
            rotate_rows(update[None, part], [0], size=whole, dimension=DIMENSION, out=rotated[None, part])

    if plan.rotate:
        many["rotate"] = (1, rotate)
    price = {
        name: median(in_turn(partial(_repeat, action, count), clock=CPU)[0]) / count
        for name, (count, action) in many.items()
    }
    price["fill"] -= price.get("rotate", 0.0)  # which it includes
    applied, alone = in_turn(lambda: masks.apply(lanes, found), keystream_alone([size] * 16), clock=CPU)
    price["byte"] = median(alone) / (16 * size)
    price["add"] = max(0.0, median(applied) / (16 * size) - price["byte"])
    return price
