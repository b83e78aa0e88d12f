"""Masks against the keystream they are made of: AES-CTR alone, the same bytes, in the same run."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from bench.rows import CPU, Row, in_turn
from heterosag.crypto.keys import RoundSecrets, exchange_keys, pair_mask_key, public_bytes
from heterosag.crypto.keystream import BLOCK_SIZE, CHUNK_SIZE, Keystream, chunk_buffer
from heterosag.plan import Plan
from heterosag.protocol import masks
from heterosag.protocol.cells import empty_cells, pack_cells
from heterosag.protocol.encoding import fill_cells
from heterosag.protocol.masks import Mask
from heterosag.protocol.rounding import Rounding
from heterosag.protocol.unmasking import remove_masks
from heterosag.protocol.update import Update
from heterosag.vector import _numba, ring
from heterosag.vector.rotation import rotate_rows

ELEMENTS = 1_000_000
USERS = 16


def keystream_alone(sizes: list[int]) -> Callable[[], None]:
    """Produce one stream for each size, in a reused buffer, and use nothing of it."""

    def produce() -> None:
        buffer = chunk_buffer()
        for size in sizes:
            stream = Keystream(secrets.token_bytes(32))
            for start in range(0, size, CHUNK_SIZE):
                stream.read_into(buffer, min(CHUNK_SIZE, size - start))

    return produce


def stream_size(plan: Plan, subgroup: int, cells: tuple[int, ...]) -> int:
    """Bytes of one mask's keystream."""
    total = 0
    for place in cells:
        cell = plan.cells(subgroup)[place]
        total += -total % BLOCK_SIZE + cell.size * ring.lane_dtype(cell.bits).itemsize + 8 * len(cell.lanes)
    return total


def rows() -> Iterator[Row]:
    """The user's step and the server's."""
    plan = Plan.build([USERS], [12], ELEMENTS, design="secagg", value_range=1.0, subgroup_size=USERS)
    everything = tuple(range(len(plan.cells(0))))
    found = [Mask(secrets.token_bytes(32), bool(i % 2), everything) for i in range(USERS)]
    alone = keystream_alone([stream_size(plan, 0, everything)] * USERS)
    lanes = empty_cells(plan.cells(0))
    name = f"mask {ELEMENTS:,} elements in a block of {USERS} / keystream alone"
    yield Row.of(name, *in_turn(lambda: masks.apply(lanes, found), alone, repeats=15, clock=CPU), goal=1.6)
    yield from _rotation(lambda: masks.apply(lanes, found))
    yield from _heterogeneous()
    for level, goal in ((12, 2.0), (2, 3.0)):
        yield from _user_step(level, goal)
    yield from _server_step()
    yield from _flat_keystream()


def _rotation(mask: Callable[[], object]) -> Iterator[Row]:
    """The rotation of a vector against masking it in a block of so many users."""
    values = np.random.default_rng(0).normal(size=(1, ELEMENTS))

    def turn() -> None:
        rotate_rows(values, [0], out=values)

    name = f"rotate {ELEMENTS:,} elements"
    against = f"mask them in a block of {USERS}"
    yield Row.of(f"{name} / {against}", *in_turn(turn, mask, repeats=15, clock=CPU), goal=1.0)
    with only_numpy():
        yield Row.of(f"{name}, without Numba / {against}", *in_turn(turn, mask, repeats=15, clock=CPU))


def _heterogeneous() -> Iterator[Row]:
    """What levels that change from segment to segment add to quantizing at one."""
    several, one = (
        Plan.build(classes, levels, ELEMENTS, value_range=1.0, subgroup_size=8)
        for classes, levels in (([24] * 4, [2, 6, 8, 12]), ([96], [12]))
    )
    update = np.random.default_rng(0).uniform(-1, 1, ELEMENTS).astype(np.float32)
    last = len(several.subgroups) - 1  # of the finest level: it has every level in some segment

    def fill(plan: Plan) -> Callable[[], object]:
        checked = Update.of(plan, update)
        return lambda: fill_cells(plan, last, checked)

    name = "quantize for a subgroup with levels 2, 6, 8 and 12 / with 12 levels only"
    yield Row.of(name, *in_turn(fill(several), fill(one), repeats=15, clock=CPU), goal=1.5)


def _user_step(level: int, goal: float) -> Iterator[Row]:
    """With compiled loops, and without them: the goal is for whoever installed what makes it fast."""
    plan = Plan.build([USERS], [level], ELEMENTS, design="secagg", value_range=1.0, subgroup_size=USERS)
    cells = plan.cells(0)
    everything = tuple(range(len(cells)))
    found = [Mask(secrets.token_bytes(32), bool(i % 2), everything) for i in range(USERS)]
    update = Update.of(plan, np.random.default_rng(0).uniform(-1, 1, ELEMENTS).astype(np.float32))

    def step() -> memoryview:
        lanes = fill_cells(plan, 0, update, Rounding.from_system())
        masks.apply(lanes, found)
        return pack_cells(lanes, cells)

    alone = keystream_alone([stream_size(plan, 0, everything)] * USERS)
    name = f"quantize, mask and pack, {level} levels ({plan.segments[0].blocks[0].bits} bits)"
    yield Row.of(f"{name} / keystream alone", *in_turn(step, alone, repeats=15, clock=CPU), goal=goal)
    with only_numpy():
        yield Row.of(f"{name}, without Numba / keystream alone", *in_turn(step, alone, repeats=15, clock=CPU))


@contextmanager
def only_numpy() -> Iterator[None]:
    """Nothing is large enough for a compiled loop."""
    before, _numba.WORTH = _numba.WORTH, 1 << 62
    yield
    _numba.WORTH = before


def _server_step() -> Iterator[Row]:
    """Unmasking for 80 users, eight of whom dropped: everything after the secrets are rebuilt."""
    plan = Plan.build([80], [12], 400_000, value_range=1.0, subgroup_size=8)
    secret = {user: RoundSecrets.generate() for user in range(80)}
    survivors = [user for user in range(80) if user % 10]
    rebuilt = {u: s.self_secret if u % 10 else s.mask_secret for u, s in secret.items()}
    mask_keys = {user: public_bytes(s.mask_key) for user, s in secret.items()}
    occupied = {plan.assignment[user] for user in survivors}
    sums = {g: empty_cells(plan.cells(g)) for g in occupied}
    sizes = []
    pairs = []
    for user in survivors:
        mine = plan.assignment[user]
        sizes.append(stream_size(plan, mine, tuple(range(len(plan.cells(mine))))))
        for gone in range(0, 80, 10):
            sizes.append(stream_size(plan, mine, masks.shared_cells(plan, mine, plan.assignment[gone])))
            pairs.append((secret[gone].mask_key, mask_keys[user]))

    def unmask() -> None:
        remove_masks(plan, context=bytes(32), survivors=survivors, secrets=rebuilt, mask_keys=mask_keys, sums=sums)

    def agreements() -> None:
        for mine, theirs in pairs:
            pair_mask_key(exchange_keys(mine, theirs), bytes(32), 0, 1)

    whole, agreeing, stream = in_turn(unmask, agreements, keystream_alone(sizes), clock=CPU)
    apart = [one - other for one, other in zip(whole, agreeing, strict=True)]
    name = "server unmask of 80 users, 10% dropped"
    yield Row.of(f"{name}, key agreements apart / keystream alone", apart, stream, goal=2.0)
    needed = [one + other for one, other in zip(agreeing, stream, strict=True)]
    yield Row.of(f"{name} / keystream and key agreements alone", whole, needed, goal=2.0)


def _flat_keystream() -> Iterator[Row]:
    """Bytes of keystream that one user produces, at a fixed subgroup size, as the number of users grows."""

    def produced(users: int) -> int:
        plan = Plan.build([users], [12], 1_000_000, value_range=1.0, subgroup_size=8, sharing="sparse", dropout=0.05)
        mine = plan.assignment[0]
        total = stream_size(plan, mine, tuple(range(len(plan.cells(mine)))))
        for other in range(1, users):
            total += stream_size(plan, mine, masks.shared_cells(plan, mine, plan.assignment[other]))
        return total

    smallest = produced(64)
    for users in (512, 4096):
        name = f"keystream bytes a user produces, N={users} / N=64"
        yield Row.of(name, [produced(users)], [smallest], goal=1.1)
