"""What each step of a round is made of: its operations, counted, at the price that each has by itself in the same run.

A round of 100 users, a million elements, subgroups of about eight, complete sharing graph. What the parts do not add up
to is the interpreter's: calls, objects, messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.poly1305 import Poly1305

from bench.against_peer import Case
from bench.masking import keystream_alone, stream_size
from bench.round import dropouts, play
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
from heterosag.vector.rotation import rotate_rows

USERS, DIMENSION, LEVEL = 100, 1_000_000, 12

MEASURED: list[dict[str, Any]] = []
"""Step by step: its parts, for the page."""


def rows() -> Iterator[Row]:
    """The parts of a step over the step."""
    case = Case(users=USERS, dimension=DIMENSION, graph="complete", repeats=1)
    plan = case.plan(LEVEL, 1.0)
    updates = np.random.default_rng(0).uniform(-1, 1, (USERS, DIMENSION)).astype(np.float32)
    play(plan, updates, case.lost)  # warms up
    cost = play(plan, updates, case.lost)
    price = _prices(plan, updates[0])
    others, alive = USERS - 1, USERS - case.lost
    mine = plan.assignment[0]
    streams = [masks.shared_cells(plan, mine, plan.assignment[other]) for other in range(1, USERS)]
    user_bytes = sum(stream_size(plan, mine, part) for part in (tuple(range(len(plan.cells(mine)))), *streams))
    lost, server_bytes = dropouts(USERS, case.lost), 0
    for user in set(range(USERS)).difference(lost):
        subgroup = plan.assignment[user]
        server_bytes += stream_size(plan, subgroup, tuple(range(len(plan.cells(subgroup)))))
        for gone in lost:
            server_bytes += stream_size(plan, subgroup, masks.shared_cells(plan, subgroup, plan.assignment[gone]))
    steps: dict[str, tuple[float, dict[str, tuple[float, str]]]] = {
        "user: share": (
            cost.user_seconds["share"],
            {
                "key agreements (X25519)": (2 * others, "agree"),
                "keys of seals": (others, "seal"),
                "sealing": (others, "close"),
                "commitments": (2 * USERS + 1, "commit"),
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
                "keys of seals": (others, "seal"),
                "opening shares": (others, "open"),
                "commitments": (2 * others, "commit"),
                "rotating": (1, "rotate"),
                "quantizing, words drawn": (1, "fill"),
                "packing": (1, "pack"),
                "checking the update": (1, "check"),
                "tag of the message": (1, "checksum"),
            },
        ),
        "server: a vector arrives": (
            cost.server_seconds["mask"] / alive,
            {"checksum of the message": (1, "checksum"), "unpacking and adding": (1, "unpack")},
        ),
        "server: unmask": (
            cost.server_seconds["unmask"],
            {
                "key agreements (X25519)": (case.lost * alive, "agree"),
                "keys of masks": (case.lost * alive + alive, "derive"),
                "opening their streams": (case.lost * alive + alive, "stream"),
                "keystream (AES)": (server_bytes, "byte"),
                "adding it up": (server_bytes, "add"),
                "reading shares": (alive * USERS, "element"),
                "rebuilding secrets": (USERS, "combine"),
                "sums to means": (1, "decode"),
            },
        ),
    }
    for step, (whole, parts) in steps.items():
        listed: list[dict[str, Any]] = [
            {"part": name, "times": count, "each": price[unit], "seconds": count * price[unit]}
            for name, (count, unit) in parts.items()
        ]
        known = sum(part["seconds"] for part in listed)
        MEASURED.append({"step": step, "seconds": whole, "parts": listed})
        yield Row.of(f"{step}: its parts by themselves / the step", [known], whole)


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
    places = list(range(1, USERS + 1))
    chosen = tuple(places[: plan.share_threshold])
    weights, shares = shamir.coefficients(chosen), [one.mask_secret] * len(chosen)
    checked = Update.of(plan, update)
    cells = plan.cells(plan.assignment[0])
    lanes = fill_cells(plan, plan.assignment[0], checked, Rounding.from_system())
    packed = pack_cells(lanes, cells)
    message = bytes(packed)
    everything = tuple(range(len(cells)))
    found = [Mask(bytes([place]) * 32, True, everything) for place in range(16)]
    size = stream_size(plan, plan.assignment[0], everything)
    sums = np.zeros((len(plan.segments[0].blocks), DIMENSION), dtype=np.uint8)

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
        "combine": (20, lambda: shamir.combine(weights, shares)),
        "decode": (1, lambda: sums.mean(axis=0, dtype=np.float64)),
    }
    rotated = update.astype(np.float64)
    whole = plan.segments[0].stop - plan.segments[0].start

    def rotate() -> None:
        for segment in plan.segments:
            part = slice(segment.start, segment.stop)
            rotate_rows(update[None, part], [0], size=whole, dimension=DIMENSION, out=rotated[None, part])

    many["rotate"] = (1, rotate)
    price = {
        name: median(in_turn(partial(_repeat, action, count), clock=CPU)[0]) / count
        for name, (count, action) in many.items()
    }
    price["fill"] -= price["rotate"]  # which it includes
    applied, alone = in_turn(lambda: masks.apply(lanes, found), keystream_alone([size] * 16), clock=CPU)
    price["byte"] = median(alone) / (16 * size)
    price["add"] = max(0.0, median(applied) / (16 * size) - price["byte"])
    return price
