"""How costs grow: with users, elements, segments and dropout, measured and counted.

The counted cost of a step is what it cannot avoid: its key agreements and the bytes of keystream, at the price that one
of each has in the same run. Slopes are fitted on logarithmic axes to both. Where N is large a few users are timed and
a few subgroups unmasked, and the result stands for all; each series says how many.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

import numpy as np

from bench.masking import keystream_alone, stream_size
from bench.round import dropouts, inbox_of, play
from bench.rows import CPU, Row, in_turn, log_slope, seconds
from heterosag.crypto.keys import RoundSecrets, exchange_keys, pair_mask_key, public_bytes
from heterosag.plan import Plan
from heterosag.protocol import Client, Policy, RoundId, Server, masks
from heterosag.protocol import messages as wire
from heterosag.protocol.cells import ParallelMap, empty_cells, pack_cells
from heterosag.protocol.encoding import fill_cells
from heterosag.protocol.masks import Mask
from heterosag.protocol.rounding import Rounding
from heterosag.protocol.unmasking import remove_masks
from heterosag.protocol.update import Update

SAMPLED_USERS, SAMPLED_SUBGROUPS = 4, 4

SERIES: list[dict[str, Any]] = []
"""The series measured so far: for the page's figures."""


def rows(*, full: bool = False) -> Iterator[Row]:
    """Fitted slope over counted slope, for each series."""
    prices = _prices()
    yield from _with_users((64, 128, 256, 512, 1024, 2048, 4096) if full else (64, 128, 256), prices)
    yield from _with_elements((10**4, 10**5, 10**6, 10**7) if full else (10**4, 10**5, 10**6), prices)
    yield from _with_segments(prices)
    yield from _with_dropout(prices)


def _prices() -> dict[str, float]:
    """Seconds of a key agreement, of deriving a key, and of a byte of keystream."""
    mine, theirs = RoundSecrets.generate(), public_bytes(RoundSecrets.generate().mask_key)
    agreed = exchange_keys(mine.mask_key, theirs)
    agreements, derivations, streams = in_turn(
        lambda: [exchange_keys(mine.mask_key, theirs) for _ in range(100)],
        lambda: [pair_mask_key(agreed, bytes(32), 0, 1) for _ in range(100)],
        keystream_alone([1 << 22]),
        clock=CPU,
    )
    return {
        "agreement": median(agreements) / 100,
        "derivation": median(derivations) / 100,
        "byte": median(streams) / (1 << 22),
    }


def _series(
    name: str, x_name: str, x: Sequence[float], measured: Sequence[float], counted: Sequence[float], note: str
) -> Row:
    fitted, theory = log_slope(x, measured), log_slope(x, counted)
    SERIES.append(
        {"name": name, "x_name": x_name, "x": list(x), "seconds": list(measured), "counted": list(counted)}
        | {"slope": fitted, "counted_slope": theory, "note": note}
    )
    steepest = [m / c for m, c in zip(measured, counted, strict=True)]
    return Row.of(f"{name} as {x_name} grow: measured / counted", steepest, 1.0)


def _with_users(counts: Sequence[int], prices: dict[str, float]) -> Iterator[Row]:
    share, mask, unmask = [], [], []
    counted: dict[str, list[float]] = {"share": [], "mask": [], "unmask": []}
    for users in counts:
        plan = Plan.build([users], [12], 100_000, value_range=1.0, subgroup_size=8, sharing="sparse", dropout=0.1)
        times = _sampled_user(plan)
        share.append(times["share"])
        mask.append(times["mask"])
        spent, agreements, size = _sampled_server(plan)
        unmask.append(spent)
        mine = plan.assignment[0]
        cells = [masks.shared_cells(plan, mine, plan.assignment[other]) for other in range(1, users)]
        stream = sum(stream_size(plan, mine, part) for part in (tuple(range(len(plan.cells(mine)))), *cells))
        pair = prices["agreement"] + prices["derivation"]
        counted["share"].append((len(plan.sharing.holders(0)) + users - 1) * prices["agreement"])
        counted["mask"].append(users * prices["derivation"] + stream * prices["byte"])
        counted["unmask"].append(agreements * pair + size * prices["byte"])
    note = f"m = 100,000, subgroups of 8, sparse sharing graph, 10% dropped; {SAMPLED_USERS} users timed of each N"
    yield _series("a user's share step", "users", counts, share, counted["share"], note)
    yield _series("a user's mask step", "users", counts, mask, counted["mask"], note)
    note = f"m = 100,000, subgroups of 8, 10% dropped; {SAMPLED_SUBGROUPS} subgroups unmasked, times their number"
    yield _series("the server's removal of masks", "users", counts, unmask, counted["unmask"], note)


def _sampled_user(plan: Plan) -> dict[str, float]:
    """Everybody advertises; a few users and those who deal shares to them share, and the few mask for everybody."""
    round_id = RoundId(session=secrets.token_bytes(16))
    server = Server(plan, round_id)
    policy = Policy(sparse_from=len(plan.users))  # the default takes neighbours as holders from 256 users on
    clients = {user: Client(plan, user, round_id, trust_server=True, policy=policy) for user in plan.users}
    for user, client in clients.items():
        server.receive(user, client.advertise())
    roster = server.close()
    chosen = range(SAMPLED_USERS + 1)  # the first does not count
    dealers = sorted({*chosen, *(dealer for user in chosen for dealer in plan.sharing.holders(user))})
    dealt: dict[int, wire.Shares] = {}
    spent: dict[str, list[float]] = {"share": [], "mask": []}
    for dealer in dealers:
        name = plan.users[dealer]
        start = CPU()
        reply = clients[name].share(roster[name])
        spent["share"].append(CPU() - start)
        dealt[dealer] = wire.decode(wire.Shares, reply, plan=plan)
    update = np.random.default_rng(0).uniform(-1, 1, plan.dimension).astype(np.float32)
    for user in chosen:
        inbox = inbox_of(plan, user, dealt)
        client = clients[plan.users[user]]
        spent["mask"].append(seconds(lambda client=client, inbox=inbox: client.mask(inbox, update), CPU))  # type: ignore[misc]
    return {name: median(times[1:]) for name, times in spent.items()}


def _sampled_server(plan: Plan) -> tuple[float, int, int]:
    """A few subgroups' masks taken away, a tenth of all users gone: seconds, agreements and bytes for all."""
    count = len(plan.users)
    gone = set(range(0, count, 10))
    chosen = range(min(SAMPLED_SUBGROUPS, len(plan.subgroups)))
    survivors = [user for user in range(count) if plan.assignment[user] in chosen and user not in gone]
    drawn = {user: RoundSecrets.generate() for user in (*gone, *survivors)}
    known = {user: one.mask_secret if user in gone else one.self_secret for user, one in drawn.items()}
    keys = {user: public_bytes(drawn[user].mask_key) for user in survivors}
    sums = {subgroup: empty_cells(plan.cells(subgroup)) for subgroup in chosen}
    spent = seconds(
        lambda: remove_masks(plan, context=bytes(32), survivors=survivors, secrets=known, mask_keys=keys, sums=sums),
        CPU,
    )
    agreements = size = 0
    for user in survivors:
        mine = plan.assignment[user]
        size += stream_size(plan, mine, tuple(range(len(plan.cells(mine)))))
        for lost in gone:
            cells = masks.shared_cells(plan, mine, plan.assignment[lost])
            agreements += bool(cells)
            size += stream_size(plan, mine, cells)
    all_of_them = len(plan.subgroups) / len(chosen)
    return spent * all_of_them, round(agreements * all_of_them), round(size * all_of_them)


def user_step(elements: int, *, parallel_map: ParallelMap = map, threads: int = 1) -> tuple[Plan, float]:
    """Wall seconds over threads, or CPU seconds on one, of quantizing, masking and packing in a block of sixteen."""
    plan = Plan.build([16], [12], elements, design="secagg", value_range=1.0, subgroup_size=16)
    cells = plan.cells(0)
    found = [Mask(secrets.token_bytes(32), bool(i % 2), tuple(range(len(cells)))) for i in range(16)]
    update = Update.of(plan, np.random.default_rng(0).random(elements, dtype=np.float32))

    def step() -> memoryview:
        lanes = fill_cells(plan, 0, update, Rounding.from_system(), parallel_map=parallel_map)
        masks.apply(lanes, found, parallel_map=parallel_map)
        return pack_cells(lanes, cells)

    repeats = 2 if elements > 10**6 else 9
    times = in_turn(step, repeats=repeats, clock=CPU)[0] if threads == 1 else in_turn(step, repeats=repeats)[0]
    return plan, median(times)


def _with_elements(counts: Sequence[int], prices: dict[str, float]) -> Iterator[Row]:
    measured, counted = [], []
    for elements in counts:
        plan, spent = user_step(elements)
        measured.append(spent)
        counted.append(16 * stream_size(plan, 0, tuple(range(len(plan.cells(0))))) * prices["byte"])
    note = "quantize, mask and pack at 12 levels in a block of 16; from 262,144 elements on with compiled loops"
    yield _series("quantizing, masking and packing", "elements", counts, measured, counted, note)


def _with_segments(prices: dict[str, float]) -> Iterator[Row]:
    """A million elements of 96 users, in ever smaller subgroups: the fewer code together, the less keystream."""
    segments, measured, counted = [], [], []
    for size in (32, 16, 12, 8, 6, 4):
        plan = Plan.build([96], [12], 1_000_000, value_range=1.0, subgroup_size=size)
        cost = play(plan, np.zeros((96, plan.dimension), dtype=np.float32), 0)
        mine = plan.assignment[0]
        cells = [masks.shared_cells(plan, mine, plan.assignment[other]) for other in range(1, 96)]
        stream = sum(stream_size(plan, mine, part) for part in (tuple(range(len(plan.cells(mine)))), *cells))
        segments.append(len(plan.segments))
        measured.append(cost.user_seconds["mask"])
        counted.append(96 * prices["derivation"] + stream * prices["byte"])
    yield _series(
        "a user's mask step", "segments", segments, measured, counted, "N = 96, m = 1,000,000, all users timed"
    )


def _with_dropout(prices: dict[str, float]) -> Iterator[Row]:
    shares, measured, counted = [], [], []
    plan = Plan.build([100], [12], 100_000, value_range=1.0, subgroup_size=10)
    updates = np.zeros((100, plan.dimension), dtype=np.float32)
    for lost in (1, 5, 10, 20, 30):
        cost = play(plan, updates, lost)
        gone, size = dropouts(100, lost), 0
        for user in set(range(100)).difference(gone):
            mine = plan.assignment[user]
            size += stream_size(plan, mine, tuple(range(len(plan.cells(mine)))))
            size += sum(stream_size(plan, mine, masks.shared_cells(plan, mine, plan.assignment[one])) for one in gone)
        shares.append(lost / 100)
        measured.append(cost.server_seconds["unmask"])
        counted.append(lost * (100 - lost) * (prices["agreement"] + prices["derivation"]) + size * prices["byte"])
    yield _series(
        "the server's unmask step", "dropouts", shares, measured, counted, "N = 100, m = 100,000, whole rounds"
    )
