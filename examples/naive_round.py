"""A whole secure-aggregation round, from docs/wire-format.md and the test vectors alone.

It shares no code with the package, and it is no client to use: its release log is a dictionary, and it accepts any
plan. Run it with

    python examples/naive_round.py [folder of vectors]

It replays the rounds of round_plain.json, round_signed.json, round_sparse.json and round_noise.json with the secrets
recorded there: every message of every user and of the server must come out byte for byte, every block sum and mean
exactly. The first difference ends the program with exit code 1.

The bytes and numbers are in naive_wire.py; what comes before a round, the plan and the enrolment, in naive_plan.py;
rounds in a row in naive_trips.py; machines step after step in naive_machines.py; and naive_vectors.py checks all vector
files with the five of them.
"""

import json
import math
import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.poly1305 import Poly1305
from naive_wire import (
    KINDS,
    PRIME,
    Cell,
    Content,
    FaultyBlockError,
    FaultyServerError,
    FaultyUserError,
    PlanError,
    RefusedError,
    TooFewSurvivorsError,
    UsageError,
    WireError,
    add_mask,
    agreement,
    blame,
    commit,
    commit_pair,
    count_trials,
    decode,
    derive,
    digest,
    element,
    encode,
    identity_key,
    is_small_order,
    kind_of,
    mean_of,
    message_limits,
    noise_range,
    noisy_mean_of,
    norm_factor,
    pack,
    pack_vector,
    pair_key,
    public_key,
    quantize,
    rebuild,
    require,
    roster_context,
    rotate,
    round_context,
    rows,
    seal,
    share_at,
    sharers_context,
    sign,
    thresholds,
    u64,
    unpack,
    unpack_vector,
    unseal,
    vector_size,
    verify,
    word_starts,
    words,
)

# The phases in their order: what the server asks with, what a user answers, and what the user has done then
ASKED = {"share": "Roster", "mask": "Inbox", "agree": "SurvivorSet", "unmask": "UnmaskRequest"}
ANSWERED = {
    "advertise": "Advertisement",
    "share": "Shares",
    "mask": "MaskedVector",
    "agree": "Agreement",
    "unmask": "Released",
}
ROUNDS = ("plain", "signed", "sparse", "noise")  # the recorded ones
DONE = {"advertise": "advertised", "share": "shared", "mask": "masked", "agree": "agreed", "unmask": "released"}


def same(what: str, computed: Any, expected: Any) -> None:
    """End at the first difference; floats must have the same shortest decimals."""
    mine, theirs = repr(computed), repr(expected)
    if mine != theirs:
        at = next((i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), 0)
        raise SystemExit(f"{what} differs: computed ...{mine[at:][:100]}, but the vectors say ...{theirs[at:][:100]}")


def spread(low: float, high: float, width: int) -> tuple[float, float]:
    """Widen or narrow the value range to that of a block: three standard deviations are 192."""
    return (low, high) if width == 192 else (low * width / 192, high * width / 192)


class Plan:
    """What a round needs of a plan, out of its canonical encoding; naive_plan.py has what a client checks of it."""

    def __init__(self, encoding: bytes) -> None:
        version, arguments, structure = unpack(encoding)
        require(version == 2, "another plan version", PlanError)
        self.digest = digest("plan", encoding)
        framed = [*arguments[:4], [-1.0, 1.0], *arguments[5:20], [], *arguments[21:]]
        self.frame_encoding = pack([version, framed, structure])
        self.frame = digest("plan/frame", self.frame_encoding)
        (low, high), self.min_survivors, self.min_block, self.bound, self.least = arguments[4], *arguments[6:10]
        self.metrics, self.rotates, (_, sizes, scales) = arguments[16], arguments[17], arguments[18:21]
        self.noise, self.honest, self.adaptive = arguments[21:] or (0.0, 0, False)
        self.clip_norm = high  # under noise
        self.scales = [scale for size, scale in zip(sizes, scales, strict=True) for _ in range(size)] if scales else []
        names, subgroups, segments, self.lanes, (self.neighbours, self.threshold, self.ring), self.quorum = structure
        self.names, self.users, self.segments = names, range(len(names)), len(segments)
        self.members = [members for _, members in subgroups]
        self.subgroup = {user: g for g, members in enumerate(self.members) for user in members}
        starts, everybody = [0, *(stop for stop, _ in segments)], tuple(range(len(subgroups)))
        self.rows = [  # for each segment, and then for what follows, the cells of its blocks
            [
                Cell(
                    bits,
                    stop - starts[s],
                    len(self.lanes),
                    level,
                    tuple(block),
                    starts[s],
                    spread(low, high, width),
                    s,
                    tuple(self.lanes),
                )
                for block, level, bits, width in blocks
            ]
            for s, (stop, blocks) in enumerate(segments)
        ]
        self.several = any(len(row) > 1 for row in self.rows)  # blocks in some segment
        if self.metrics:
            lanes = (*self.lanes[:-1], *self.metrics)  # the count and the weight, but nothing is clipped
            self.rows.append([Cell(1, 0, len(lanes), block=everybody, segment=self.segments, names=lanes)])
        if self.adaptive:
            bits = (16 * len(self.users)).bit_length()
            self.rows.append([Cell(bits, 1, 1, 17, everybody, segment=self.segments, names=("count",))])
        self.limits = self.message_limits()

    def message_limits(self, *, metrics_only: bool = False) -> dict[str, int]:
        """Say how many bytes a message of each kind has at most in a round of this plan."""
        longest = max(vector_size(self.cells(g, metrics_only=metrics_only)) for g in range(len(self.members)))
        return message_limits(len(self.names), self.neighbours, self.quorum, longest, len(self.names))

    def cells(self, subgroup: int, *, metrics_only: bool = False) -> list[Cell]:
        """List what a user of a subgroup sends."""
        row_list = self.rows[-1:] if metrics_only else self.rows
        return [next(cell for cell in row if subgroup in cell.block) for row in row_list]

    def holders(self, user: int) -> list[int]:
        """List who else holds a user's shares; these are also the users whose shares it holds."""
        if not self.ring:
            return [other for other in self.users if other != user]
        return ring_neighbours(self.ring, self.neighbours, user)

    def blocks(self) -> list[list[int]]:
        """List the sets of subgroups whose sums the server learns."""
        return [list(block) for block in sorted({cell.block for row in self.rows[: self.segments] for cell in row})]

    def too_small(self, users: list[int]) -> set[int]:
        """Collect the subgroups that have too few survivors, and those of blocks that have too few."""
        least = {cell.block: self.min_block for row in self.rows[: self.segments] for cell in row}
        if self.several:
            least |= {(g,): max(self.min_survivors, least.get((g,), 0)) for g in range(len(self.members))}
        counts = {block: sum(self.subgroup[user] in block for user in users) for block in least}
        return {g for block, count in counts.items() if 0 < count < least[block] for g in block}

    def robustness(self, users: Sequence[int]) -> float:
        """Compute the least fraction of segments in which a proper set of the surviving subgroups is hidden."""
        alive = sorted({self.subgroup[user] for user in users})
        bit = {g: 1 << place for place, g in enumerate(alive)}
        segments = self.rows[: self.segments]
        most = most_decodable(
            len(alive), tuple(tuple(sum(bit.get(g, 0) for g in cell.block) for cell in row) for row in segments)
        )
        return (self.segments - most) / self.segments  # one division: 1 - most / segments would be rounded twice

    def broken_rule(self, users: list[int], dealers: list[int]) -> str:
        """Name the rule that a set of users breaks, if any; the shares of `dealers` must be within its reach."""
        if len(users) < max(self.quorum, 0 if self.ring else self.threshold):
            return "thresholds"
        if self.too_small(users):
            return "min_survivors"
        if self.robustness(users) < self.least:
            return "robustness"
        reach = [sum(holder in users for holder in [dealer, *self.holders(dealer)]) for dealer in dealers]
        return "thresholds" if min(reach) < self.threshold else ""

    def without_small(self, users: list[int]) -> list[int]:
        """Leave out whole subgroups until none has too few."""
        while low := self.too_small(users):
            users = [user for user in users if self.subgroup[user] not in low]
        return users


@cache
def most_decodable(count: int, segments: tuple[tuple[int, ...], ...]) -> int:
    """Try every proper set of subgroups: in how many segments is it a union of blocks at most?

    A set, and a block, is a number with a bit for each subgroup. If a set is a union of blocks, so is the rest, and it
    is enough to try the sets without the last subgroup.
    """
    most = 0
    for chosen in range(1, 1 << max(0, count - 1)):
        most = max(most, sum(all(block & chosen in (0, block) for block in row) for row in segments))
    return most


def ring_neighbours(ring: list[int], neighbours: int, user: int) -> list[int]:
    """List the nearest on either side of a user on a ring, so many in all."""
    require(neighbours > 0 and neighbours % 2 == 0 and neighbours < len(ring), "no such graph", UsageError)
    require(sorted(ring) == list(range(len(ring))), "not everybody once on the ring", UsageError)
    place, half = ring.index(user), neighbours // 2
    return sorted(ring[(place + step) % len(ring)] for step in range(-half, half + 1) if step)


class Terms:
    """What everybody knows of a round before it begins."""

    def __init__(
        self,
        plan: Plan,
        session: bytes,
        number: int,
        model: bytes,
        *,
        metrics_only: bool = False,
        settled: bool = True,  # whether range and model are those of the round, and do not come later
    ) -> None:
        require(not metrics_only or len(plan.metrics) > 0, "a plan without metrics", UsageError)
        self.plan, self.session, self.number, self.model, self.metrics_only = plan, session, number, model, metrics_only
        self.settled, self.limits = settled, plan.message_limits(metrics_only=metrics_only)
        self.c0 = round_context(plan.frame, session, number)

    def c2(self, c1: bytes, sharers: list[int]) -> bytes:
        """Compute c2 of this round."""
        return sharers_context(c1, self.plan.digest, self.model, sharers, metrics_only=self.metrics_only)

    def cells(self, user: int) -> list[Cell]:
        """List what a user sends."""
        return self.plan.cells(self.plan.subgroup[user], metrics_only=self.metrics_only)

    def shared(self, user: int, other: int) -> list[int]:
        """List the cells that two users share, or all cells of one."""
        return [c for c, cell in enumerate(self.cells(user)) if self.plan.subgroup[other] in cell.block]


Log = dict[tuple[bytes, str], bytes]  # what a client has claimed: for a context and a kind one value


class User:
    """One user's steps, with its secrets as the vectors give them."""

    def __init__(
        self, terms: Terms, given: dict[str, Any], directory: dict[int, bytes], log: Log | None = None
    ) -> None:
        self.terms, self.plan, self.given, self.directory = terms, terms.plan, given, directory
        self.log: Log = {} if log is None else log
        self.me, self.identity = given["index"], given.get("identity_private", b"")
        if directory:
            require(set(self.plan.users) <= set(directory), "a user without a key", UsageError)
            require(identity_key(self.identity) == directory[self.me], "another key than mine", UsageError)
            require(not any(map(is_small_order, directory.values())), "a key that anybody signs for", UsageError)
        self.mask_private = derive("mask-private-key", given["mask_secret"])
        self.keys = [public_key(given["seal_private"]), public_key(self.mask_private)]
        self.state = "fresh"
        self.answers: dict[str, tuple[bytes, bytes]] = {}  # for each step the message that was taken, and the answer
        self.masked = ""  # the update that was masked

    def answer(self, step: str, message: bytes) -> bytes:
        """Take one step: check the message, claim the answer in the log, and give it; in order, and each step once."""
        if step == "mask":
            require(self.terms.settled, "not settled yet", UsageError)
            require(self.masked in ("", self.update()), "another update", UsageError)
        require(self.state != "dead", "the round is over for this client", FaultyServerError)
        if step == "advertise":
            self.state = DONE[step] if self.state == "fresh" else self.state
            return self.advertise()
        if step in self.answers:
            return self.answer_again(step, message)
        left = [one for one in ASKED if one not in self.answers and (self.directory or one != "agree")]
        require(self.state != "fresh" and left[:1] == [step], "a step out of order", FaultyServerError)
        if step == "mask" and not self.plan.noise and not self.terms.metrics_only:
            require(all(map(math.isfinite, self.given["update"])), "no finite update", UsageError)
        fields = decode(ASKED[step], message, self.terms.limits)
        try:
            with blame(FaultyServerError):
                answer = getattr(self, step)(*fields)
                self.claim(step, answer)
        except FaultyServerError:
            self.forget()
            raise
        self.answers[step], self.state = (message, answer), DONE[step]
        self.masked = self.update() if step == "mask" else self.masked
        return answer

    def update(self) -> str:
        """Write what this user puts into its vector, to compare it; a dead client has forgotten it."""
        return repr([self.given.get(name) for name in ("update", "weight", "metrics")]) if self.given else ""

    def answer_again(self, step: str, message: bytes) -> bytes:
        """Give the identical answer to an identical message; anything else ends the round, if it is not over yet."""
        taken, answer = self.answers[step]
        if message != taken:
            if self.state != "released":
                self.forget()
            raise FaultyServerError("a second, different message")
        require(step != "mask" or self.state == "masked", "the answer to an Inbox is forgotten")
        return answer

    def forget(self) -> None:
        """End the round for this client."""
        self.state, self.given, self.held, self.masked = "dead", {}, {}, ""

    def claim(self, step: str, answer: bytes) -> None:
        """Claim an answer in the log, before it is given; another one than the first is refused."""
        if step == "share":
            key, value = (self.terms.c0, "share"), digest("sealed-shares", answer)
        elif step == "mask":
            secret = derive("masked-vector", self.given["seal_private"], self.c2)
            key, value = (self.terms.c0, "mask"), Poly1305.generate_tag(secret, answer)
        else:
            key, value = (self.c2, "sign" if step == "agree" else "unmask"), u64(*self.survivors)
        require(self.log.setdefault(key, value) == value, "claimed otherwise before")

    def settle(self, terms: Terms) -> None:
        """Take the value range and the model of the round, before mask; later the same ones change nothing."""
        require(terms.c0 == self.terms.c0, "another round or frame", FaultyServerError)
        known = [(one.plan.digest, one.model, one.metrics_only) for one in (terms, self.terms)]
        if not self.terms.settled or known[0] != known[1]:
            require(self.state in ("fresh", "advertised", "shared"), "too late to settle", FaultyServerError)
            self.terms, self.plan = terms, terms.plan

    def check(self, users: list[int], within: Any) -> None:
        """Check a list of users that the server sent."""
        require(users == sorted(set(users)) and set(users) <= set(self.plan.users), "not ascending, or a stranger")
        require(self.me in users and set(users) <= set(within), "without this user, or with one that cannot be there")
        require(not self.plan.broken_rule(users, [self.me]), "not admissible")

    def dealers(self, users: list[int]) -> list[int]:
        """List those of the users, except oneself, whose shares this user holds; they hold its shares too."""
        return [dealer for dealer in self.plan.holders(self.me) if dealer in users]

    def cell_mates(self, users: list[int]) -> list[int]:
        """List those of the users, except oneself, with whom this user shares a cell."""
        return [other for other in users if other != self.me and self.terms.shared(self.me, other)]

    def advertise(self) -> bytes:
        """Send both public keys."""
        signature = sign(self.identity, "advertise", self.terms.c0, u64(self.me), *self.keys)
        return encode("Advertisement", self.terms.c0, [self.me, *self.keys, signature])

    def share(self, context: bytes, roster: list[list[Any]]) -> bytes:
        """Take the roster, send every holder its shares."""
        require(context == self.terms.c0, "another context")
        self.check([entry[0] for entry in roster], self.plan.users)
        self.roster = {entry[0]: entry for entry in roster}
        require(self.roster[self.me][1:3] == self.keys, "other keys than mine")
        keys = [key for entry in roster for key in entry[1:3]]
        require(len(set(keys)) == len(keys) and all(element(key) >= 0 for key in keys), "a key twice")
        for user, seal_key, mask_key, signature in roster:
            public = self.directory[user] if self.directory else None
            verify(public, signature, "advertise", self.terms.c0, u64(user), seal_key, mask_key)
        for other in self.cell_mates(list(self.roster)):
            agreement(self.mask_private, self.roster[other][2])  # refused if the key is not usable
        self.c1 = roster_context(self.terms.c0, roster)
        secret = commit("secret", self.c1, self.me, self.me, self.given["self_secret"])
        self.held = {self.me: self.dealt(self.me)}
        sealed, commitments = b"", commit_pair(self.c1, self.me, self.me, self.dealt(self.me))
        for holder in self.dealers(list(self.roster)):
            agreed, pair = agreement(self.given["seal_private"], self.roster[holder][1]), self.dealt(holder)
            sealed += seal(agreed, self.c1, self.me, holder, pair)
            commitments += commit_pair(self.c1, self.me, holder, pair)
        return encode("Shares", self.c1, self.me, secret, commitments, sealed)

    def dealt(self, holder: int) -> list[bytes]:
        """Compute a holder's two shares."""
        return [share_at(self.given[kind + "_polynomial"], holder + 1) for kind in KINDS]

    def mask(self, context: bytes, sharers: list[int], commitments: bytes, sealed: bytes) -> bytes:
        """Take the sharers and what they sealed, send the masked vector."""
        require(context == self.c1, "another context")
        self.check(sharers, self.roster)
        self.sharers, self.c2 = sharers, self.terms.c2(self.c1, sharers)
        count = len(self.dealers(sharers))
        complaints = self.open_all(rows(commitments, 32, count), rows(sealed, 80, count))
        cells, content = self.terms.cells(self.me), self.content()
        key = derive("self-mask", self.given["self_secret"], self.c2, u64(self.me))
        add_mask(content, cells, self.terms.shared(self.me, self.me), key, 1)
        for other in self.cell_mates(sharers):
            key = pair_key(self.mask_private, self.roster[other][2], self.c2, self.me, other)
            add_mask(content, cells, self.terms.shared(self.me, other), key, 1 if self.me < other else -1)
        signature = sign(self.identity, "masked", self.c2, u64(self.me))
        return encode("MaskedVector", self.c2, self.me, signature, complaints, pack_vector(content, cells))

    def open_all(self, commitments: list[bytes], sealed: list[bytes]) -> list[int]:
        """Keep every pair of shares that opens and matches its commitments; list the other dealers."""
        complaints = []
        for dealer, committed, box in zip(self.dealers(self.sharers), commitments, sealed, strict=True):
            agreed = agreement(self.given["seal_private"], self.roster[dealer][1])
            try:
                pair = unseal(agreed, self.c1, dealer, self.me, box)
                require(commit_pair(self.c1, dealer, self.me, pair) == committed, "does not match")
                self.held[dealer] = pair
            except WireError:
                complaints.append(dealer)
        return complaints

    def content(self) -> Content:
        """Fill the cells: the update segment by segment, and what follows the segments."""
        content = [] if self.terms.metrics_only else self.noisy_segments() if self.plan.noise else self.segments()
        if self.plan.metrics:
            weight, names = self.given["weight"], self.plan.rows[-1][0].names
            scale = 2.0**24 * (weight / self.plan.bound)
            lanes = {name: round(value * scale) % 2**64 for name, value in self.given["metrics"].items()}
            content.append(([], [(lanes | {"count": 1, "weight": weight})[name] for name in names]))
        return content

    def segments(self) -> Content:
        """Quantize the update segment by segment, and fill the auxiliary lanes."""
        given, plan, content = self.given, self.plan, []
        weight, update = given["weight"], given["update"]
        dice = words(given["rounding_key"], len(update))
        if plan.scales:
            update = [value / scale for value, scale in zip(update, plan.scales, strict=True)]
        if weight != plan.bound:
            update = [value * (weight / plan.bound) for value in update]
        for cell in self.terms.cells(self.me)[: plan.segments]:
            part = slice(cell.start, cell.start + cell.size)
            values = rotate(update[part], cell.segment) if plan.rotates else update[part]
            elements, clipped = quantize(values, dice[part], cell.level, cell.span)
            lanes = {"count": 1, "weight": weight, "clipped": clipped}
            content.append((elements, [lanes[name] for name in plan.lanes]))
        return content

    def noisy_segments(self) -> Content:
        """Toss the coins of an update segment by segment, and those of the clip bit."""
        given, plan, content = self.given, self.plan, []
        cells, norm, key = self.terms.cells(self.me), plan.clip_norm, given["rounding_key"]
        sizes, trials = [cell.size for cell in cells], [cell.level - 1 for cell in cells]
        factor, within = norm_factor(given["update"], norm)
        update = [value * (factor or 0.0) for value in given["update"]]
        starts = word_starts(sizes, trials)
        for cell, count, first in zip(cells[: plan.segments], trials, starts, strict=False):
            block_range, _, theta = noise_range(cell.size, count, norm, plan.noise, plan.honest)
            values = rotate(update[cell.start : cell.start + cell.size], cell.segment)
            below = thresholds(values, None if factor is None else 1.0, block_range, theta)
            content.append((count_trials(below, count, key, first), [1]))
        if plan.adaptive:
            below = 2**31 if factor is None else 2**31 + 2**29 if within else 2**31 - 2**29
            content.append((count_trials([below], 16, key, starts[-1]), [1]))
        return content

    def agree(self, context: bytes, survivors: list[int], signatures: list[bytes]) -> bytes:
        """Take the survivors, sign them."""
        require(context == self.c2, "another context")
        self.check(survivors, self.sharers)
        dealers = self.dealers(survivors)
        require(len(signatures) == len(dealers), "not one signature for each")
        for user, signature in zip(dealers, signatures, strict=True):
            verify(self.directory[user], signature, "masked", self.c2, u64(user))
        self.survivors = survivors
        return encode("Agreement", self.c2, self.me, sign(self.identity, "survivors", self.c2, u64(*survivors)))

    def unmask(self, context: bytes, survivors: list[int], signed: list[list[Any]]) -> bytes:
        """Take the survivors again, with a quorum of signatures, and release one share of every dealer."""
        require(context == self.c2, "another context")
        self.check(survivors, self.sharers)
        signers = [user for user, _ in signed]
        require(len(signers) == (self.plan.quorum if self.directory else 0), "no quorum")
        if self.directory:
            require(survivors == self.survivors and signers == sorted(set(signers)), "not the set that was signed")
            require(set(signers) <= set(survivors), "signed by one who is no survivor")
            for user, signature in signed:
                verify(self.directory[user], signature, "survivors", self.c2, u64(*survivors))
        self.survivors = survivors
        shares = [self.held[dealer][dealer in survivors] for dealer in sorted(self.held)]
        return encode("Released", self.c2, self.me, b"".join(shares))


class Server:
    """The server: it takes the messages of the open phase, and closes it with what opens the next one."""

    def __init__(self, terms: Terms, directory: dict[int, bytes]) -> None:
        self.terms, self.plan, self.directory = terms, terms.plan, directory
        self.phases = [phase for phase in ANSWERED if directory or phase != "agree"]
        self.phase, self.context, self.expected = "advertise", terms.c0, list(self.plan.users)
        self.got: dict[int, tuple[bytes, list[Any]]] = {}  # the messages of the open phase and their fields, by user
        self.secrets: dict[int, bytes] | None = None  # once the round has ended with its sums

    def settle(self, terms: Terms) -> None:
        """Take the value range and the model of the round, before share is closed."""
        require(terms.c0 == self.terms.c0 and self.phase in ("advertise", "share"), "too late to settle", UsageError)
        self.terms, self.plan = terms, terms.plan

    def receive(self, user: int, data: bytes) -> bool:
        """Take a message of the open phase; that of a phase before is ignored, anything else is refused.

        Once the round has ended everything is ignored, and so is a message that is identical to the user's first; any
        other one is refused before it is decoded. Says whether the message was taken, and not ignored.
        """
        if not self.phase:
            return False
        closed = self.phases[: self.phases.index(self.phase)]
        if kind_of(data) in [ANSWERED[phase] for phase in closed]:
            return False
        if user in self.got:
            require(self.got[user][0] == data, "a second, different message", FaultyUserError)
            return False
        context, *fields = decode(ANSWERED[self.phase], data, self.terms.limits)
        fields = fields[0] if self.phase == "advertise" else fields
        with blame(FaultyUserError):
            require(fields[0] == user and user in self.expected, "in another name, or of one who is not in this phase")
            require(context == self.context, "another context")
        getattr(self, "check_" + self.phase)(*fields)
        self.got[user] = (data, fields)
        return True

    def verify(self, user: int, signature: bytes, purpose: str, *parts: bytes) -> None:
        """Check what a user signed, or that it signed nothing where there are no identities."""
        with blame(FaultyUserError):
            verify(self.directory.get(user), signature, purpose, *parts)

    def check_advertise(self, user: int, seal_key: bytes, mask_key: bytes, signature: bytes) -> None:
        """Check the keys of a user."""
        self.verify(user, signature, "advertise", self.terms.c0, u64(user), seal_key, mask_key)
        others = [key for other, (_, entry) in self.got.items() if other != user for key in entry[1:3]]
        with blame(FaultyUserError):
            require(len({seal_key, mask_key, *others}) == 2 + len(others), "a key twice")
            for key in (seal_key, mask_key):
                agreement(bytes(32), key)

    def check_share(self, user: int, _: bytes, commitments: bytes, sealed: bytes) -> None:
        """Check that there is a row for each holder."""
        with blame(FaultyUserError):
            self.cut_shares(user, commitments, sealed)

    def cut_shares(self, user: int, commitments: bytes, sealed: bytes) -> tuple[dict[int, bytes], dict[int, bytes]]:
        """Cut the rows of a dealer, its own commitments first, and say whose each row is."""
        holders = [holder for holder in self.plan.holders(user) if holder in self.roster]
        committed = rows(commitments, 32, 1 + len(holders))
        boxes = rows(sealed, 80, len(holders))
        return dict(zip([user, *holders], committed, strict=True)), dict(zip(holders, boxes, strict=True))

    def check_mask(self, user: int, signature: bytes, complaints: list[int], vector: bytes) -> None:
        """Check the signature, the complaints and the form of the vector."""
        self.verify(user, signature, "masked", self.c2, u64(user))
        known = complaints == sorted(set(complaints)) and set(complaints) <= set(self.plan.users)
        require(known, "complaints out of order, or about a stranger")
        dealers = [dealer for dealer in self.plan.holders(user) if dealer in self.sharers]
        require(set(complaints) <= set(dealers), "a complaint about one who is no dealer", FaultyUserError)
        unpack_vector(vector, self.terms.cells(user))

    def check_agree(self, user: int, signature: bytes) -> None:
        """Check the signature on the survivors."""
        self.verify(user, signature, "survivors", self.c2, u64(*self.survivors))

    def check_unmask(self, user: int, shares: bytes) -> None:
        """Check that there is a share of each dealer."""
        with blame(FaultyUserError):
            rows(shares, 32, len(self.held_by(user)))

    def held_by(self, user: int) -> list[int]:
        """List whose shares a user releases."""
        dealers = [dealer for dealer in self.sharers if dealer in [user, *self.plan.holders(user)]]
        return [dealer for dealer in dealers if dealer not in self.complaints[user]]

    def close(self) -> list[tuple[list[int], bytes]]:
        """End the open phase, and say who is sent what to open the next one; an error ends the round."""
        require(self.phase != "", "the round has ended", UsageError)
        closed, self.phase = self.phase, ""
        messages = getattr(self, "close_" + closed)()
        self.got, self.phase = {}, (*self.phases, "")[self.phases.index(closed) + 1]
        self.expected = [user for users, _ in messages for user in users]
        return messages

    def admissible(self, dealers: list[int] | None = None) -> list[int]:
        """Leave out whole subgroups until the users who answered are admissible, or end the round."""
        kept = self.plan.without_small(sorted(self.got))
        rule = self.plan.broken_rule(kept, dealers or kept)
        require(not rule, f"no admissible set is left: {rule}", TooFewSurvivorsError)
        return kept

    def close_advertise(self) -> list[tuple[list[int], bytes]]:
        """Send the roster."""
        users = self.admissible()
        self.roster = {user: self.got[user][1] for user in users}
        self.c1 = self.context = roster_context(self.terms.c0, list(self.roster.values()))
        return [(users, encode("Roster", self.terms.c0, list(self.roster.values())))]

    def close_share(self) -> list[tuple[list[int], bytes]]:
        """Send every sharer what was sealed for it, and keep the commitments."""
        self.sharers = self.admissible()
        self.c2 = self.context = self.terms.c2(self.c1, self.sharers)
        self.secret_digests, self.digests = {}, {}
        boxes: dict[int, list[bytes]] = {user: [b"", b""] for user in self.roster}
        for dealer in self.sharers:
            _, self.secret_digests[dealer], commitments, sealed = self.got[dealer][1]
            self.digests[dealer], sealed_for = self.cut_shares(dealer, commitments, sealed)
            for holder, box in sealed_for.items():
                boxes[holder][0] += self.digests[dealer][holder]
                boxes[holder][1] += box
        return [([user], encode("Inbox", self.c1, self.sharers, *boxes[user])) for user in self.sharers]

    def close_mask(self) -> list[tuple[list[int], bytes]]:
        """Fix the survivors; send them, each with its dealers' signatures, or ask for shares at once."""
        self.survivors = self.admissible(self.sharers)
        fields = {user: fields for user, (_, fields) in self.got.items()}
        self.complaints = {user: complaints for user, (_, _, complaints, _) in fields.items()}
        self.contents = {user: unpack_vector(fields[user][3], self.terms.cells(user)) for user in self.survivors}
        if not self.directory:
            return self.ask_for_shares([])
        messages = []
        for user in self.survivors:
            signatures = [fields[dealer][1] for dealer in self.plan.holders(user) if dealer in self.survivors]
            messages.append(([user], encode("SurvivorSet", self.c2, self.survivors, signatures)))
        return messages

    def close_agree(self) -> list[tuple[list[int], bytes]]:
        """Ask for shares, with a quorum of signatures on the survivors."""
        signed = [fields for _, (_, fields) in sorted(self.got.items())]
        require(len(signed) >= self.plan.quorum, "too few agreed", TooFewSurvivorsError)
        return self.ask_for_shares(signed[: self.plan.quorum])

    def ask_for_shares(self, signed: list[list[Any]]) -> list[tuple[list[int], bytes]]:
        """Send the survivors to all of them."""
        return [(self.survivors, encode("UnmaskRequest", self.c2, self.survivors, signed))]

    def close_unmask(self) -> list[tuple[list[int], bytes]]:
        """Rebuild the secrets, or end the round; nothing is sent any more."""
        found: dict[int, dict[int, bytes]] = {dealer: {} for dealer in self.sharers}
        disputed = {dealer for complaints in self.complaints.values() for dealer in complaints}
        for user, (_, (_, shares)) in sorted(self.got.items()):
            held = self.held_by(user)
            for dealer, share in zip(held, rows(shares, 32, len(held)), strict=True):
                kind = dealer in self.survivors  # of a survivor the self share is released
                committed = rows(self.digests[dealer][user], 16, 2)[kind]
                matches = commit(KINDS[kind], self.c1, dealer, user, share) == committed
                if int.from_bytes(share, "little") >= PRIME or not matches:
                    disputed.add(dealer)
                elif len(found[dealer]) < self.plan.threshold:
                    found[dealer][user + 1] = share
        lacking = {dealer for dealer, shares in found.items() if len(shares) < self.plan.threshold}
        require(lacking <= disputed, "too few shares", TooFewSurvivorsError)
        self.secrets = {dealer: rebuild(shares) for dealer, shares in found.items() if dealer not in lacking}
        wrong = {dealer for dealer, secret in self.secrets.items() if not self.is_secret_of(dealer, secret)}
        self.faulty = {self.plan.subgroup[dealer] for dealer in lacking | wrong}
        self.remove_masks(self.secrets)
        return []

    def is_secret_of(self, user: int, secret: bytes) -> bool:
        """Compare a rebuilt secret with a survivor's commitment, or with the mask key of one who dropped out."""
        if user in self.survivors:
            return commit("secret", self.c1, user, user, secret) == self.secret_digests[user]
        return public_key(derive("mask-private-key", secret)) == self.roster[user][2]

    def remove_masks(self, secrets: dict[int, bytes]) -> None:
        """Take its own mask, and those it shares with users who dropped out, from every survivor's vector."""
        gone = {user: secret for user, secret in secrets.items() if user not in self.survivors}
        for user in (user for user in self.survivors if user in secrets):
            key, cells = derive("self-mask", secrets[user], self.c2, u64(user)), self.terms.cells(user)
            add_mask(self.contents[user], cells, self.terms.shared(user, user), key, -1)
            for other, secret in gone.items():
                private = derive("mask-private-key", secret)
                key = pair_key(private, self.roster[user][2], self.c2, user, other)
                add_mask(self.contents[user], cells, self.terms.shared(user, other), key, -1 if user < other else 1)

    def combine(self) -> list[dict[str, Any]]:
        """Join every block over its survivors; the masks between survivors cancel."""
        require(self.secrets is not None, "the round has not ended with its sums", UsageError)
        blocks = []
        row_list = self.plan.rows[-1:] if self.terms.metrics_only else self.plan.rows
        for c, cell in ((c, cell) for c, row in enumerate(row_list) for cell in row):
            parts = [self.contents[user][c] for user in self.survivors if self.plan.subgroup[user] in cell.block]
            if parts:
                sums = [sum(column) % 2**cell.bits for column in zip(*(part[0] for part in parts), strict=True)]
                lanes = [sum(column) % 2**64 for column in zip(*(part[1] for part in parts), strict=True)]
                block = {"segment": cell.segment, "subgroups": list(cell.block), "survivors": len(parts), "sums": sums}
                block["auxiliary"] = dict(sorted(zip(cell.names, lanes, strict=True)))
                blocks.append(block | {"mean": self.mean(cell, block)})
        return blocks

    def mean(self, cell: Cell, block: dict[str, Any]) -> list[float]:
        """Check the constant lane and the others of a block, and decode its mean."""
        count, lanes = block["survivors"], block["auxiliary"]
        weight, behind = lanes.get("weight", count), cell.segment == self.plan.segments
        with blame(FaultyBlockError):
            require(not self.faulty & set(cell.block), "masks that could not be removed")
            require(lanes["count"] == count <= weight <= self.plan.bound * count, "no such count or weight")
            require(all(one <= count * (cell.level - 1) for one in block["sums"]), "an element too large")
            require(lanes.get("clipped", 0) <= count * cell.size, "more clipped than there are")
            metrics = metrics_of(self.plan, lanes).values() if behind else []
            most = 2**24 + max(1, self.plan.bound * 2**-25)
            require(all(abs(metric) <= most for metric in metrics), "a metric too large")
        if behind:  # the clip bit; a block of metrics has no sums
            return [1 / 2 + 4 * (one / (16 * count) - 1 / 2) for one in block["sums"]]
        if self.plan.noise:
            trials, norm = cell.level - 1, self.plan.clip_norm
            block_range, _, _ = noise_range(cell.size, trials, norm, self.plan.noise, self.plan.honest)
            mean = noisy_mean_of(block["sums"], count, trials, block_range)
        else:
            mean = mean_of(block["sums"], count, cell.level, cell.span)
        if self.plan.bound > 1:
            mean = [value * (count * self.plan.bound / weight) for value in mean]
        mean = rotate(mean, cell.segment, back=True) if self.plan.rotates else mean
        scales = self.plan.scales[cell.start : cell.start + cell.size] or [1.0] * cell.size
        return [value * scale for value, scale in zip(mean, scales, strict=True)]


def recorded(case: dict[str, Any]) -> tuple[Terms, dict[int, bytes]]:
    """Give what everybody knows of a recorded round, and the directory of identities."""
    terms = Terms(Plan(case["plan"]), case["session"], case["number"], case["model"])
    return terms, {given["index"]: given["identity_public"] for given in case["users"] if case["identities"]}


def sent(case: dict[str, Any], phase: str) -> tuple[list[Any], list[Any]]:
    """List what the server and what the users sent in a phase of a recorded round."""
    told = [(m["users"], m["bytes"]) for m in case["server_sends"] if m["phase"] == phase]
    return told, [(m["user"], m["bytes"]) for m in case["users_send"] if m["phase"] == phase]


def replay(case: dict[str, Any]) -> int:
    """Run a whole round, compare everything, and count the messages."""
    terms, directory = recorded(case)
    users = [User(terms, given, directory) for given in case["users"]]
    for user, given in zip(users, case["users"], strict=True):
        compare_given(user, given)
    server, gone, asked = Server(terms, directory), set(), [(list(terms.plan.users), b"")]
    for phase in server.phases:
        gone |= {user for user, when in case["dropped"] if when == phase}
        told, heard = sent(case, phase)
        same(f"what the server sends in {phase}", asked if phase != "advertise" else [], told)
        calls = [(user, data) for listeners, data in asked for user in listeners if user not in gone]
        answers = [(user, users[user].answer(phase, data)) for user, data in calls]
        same(f"who answers in {phase}", [user for user, _ in answers], [user for user, _ in heard])
        for answer, expected in zip(answers, heard, strict=True):
            same(f"what a user sends in {phase}", answer, expected)
            server.receive(*answer)
        asked = server.close()
        size = sum(len(data) for _, data in told + heard)
        print(f"{case['name']:7}{phase:10}{len(told):2} from the server, {len(heard)} from users, {size:5} bytes equal")
    same("phases", server.phases, case["phases"])
    same("contexts", [terms.c0, server.c1, server.c2], [case["c0"], case["c1"], case["c2"]])
    compare_result(case, terms.plan, server)
    return len(case["server_sends"]) + len(case["users_send"])


def compare_given(user: User, given: dict[str, Any]) -> None:
    """Compare what follows from a user's secrets and update: its keys, polynomials and cells."""
    me, subgroup = given["index"], user.plan.subgroup[given["index"]]
    same(f"user {me}", [user.plan.names[me], subgroup], [given["name"], given["subgroup"]])
    same(f"keys of user {me}", user.keys, [given["seal_public"], given["mask_public"]])
    if user.identity:
        same(f"identity of user {me}", identity_key(user.identity), given["identity_public"])
    for kind in KINDS:
        polynomial = given[kind + "_polynomial"]
        same(f"secret of user {me}", [polynomial[0], len(polynomial)], [given[kind + "_secret"], user.plan.threshold])
    cells = [(cell["elements"], cell["auxiliary"]) for cell in given["cells"]]
    same(f"cells of user {me}", user.content(), cells)


def compare_result(case: dict[str, Any], plan: Plan, server: Server) -> None:
    """Compare the blocks, the mean over the blocks of each segment, and the metrics."""
    blocks, aggregate = server.combine(), []
    same("survivors", server.survivors, case["survivors"])
    for block, expected in zip(blocks, case["blocks"], strict=True):
        if plan.adaptive and block["segment"] == plan.segments:  # the clip bit, whose mean stands apart
            [within], block["mean"] = block["mean"], []
            same("who is within the norm", f"{within:.14e}", f"{case['within_norm']:.14e}")
        for name, value in expected.items():
            same(f"{name} of {expected['subgroups']} in segment {expected['segment']}", block[name], value)
    for segment in range(plan.segments):
        row = [block for block in blocks if block["segment"] == segment]
        weights = [block["auxiliary"].get("weight", block["survivors"]) for block in row]
        columns = zip(*(block["mean"] for block in row), strict=True)
        aggregate += [sum(w * m for w, m in zip(weights, column, strict=True)) / sum(weights) for column in columns]
    same("aggregate", aggregate, case["aggregate"])
    same("metrics", metrics_of(plan, blocks[-1]["auxiliary"]), case["metrics"])
    count = len(case["metrics"])
    print(f"{case['name']:7}combine   {len(blocks)} blocks, {len(aggregate)} elements, {count} metrics equal")


def metrics_of(plan: Plan, lanes: dict[str, int]) -> dict[str, float]:
    """Decode the metrics from the lanes of the last block."""
    signed = {name: (lanes[name] + 2**63) % 2**64 - 2**63 for name in plan.metrics}
    weight = lanes.get("weight", lanes["count"])
    return {name: value / 2**24 * plan.bound / weight for name, value in signed.items()}


def load(value: Any, key: str = "") -> Any:
    """Read hexadecimal text in a vector file as bytes, except where it is text."""
    if isinstance(value, dict):
        return {name: load(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [load(one, key) for one in value]
    text = ("name", "label", "kind", "function", "phase", "users", "metrics", "reason", "client_is")
    if not isinstance(value, str) or key in text or not re.fullmatch("([0-9a-f]{2})*", value):
        return value
    return bytes.fromhex(value)


def main() -> None:
    """Replay the rounds in the folder named on the command line."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parents[1] / "tests" / "vectors")
    rounds = [load(json.loads((folder / f"round_{name}.json").read_text()))["cases"] for name in ROUNDS]
    print(f"{sum(replay(case) for cases in rounds for case in cases)} messages reproduced")


if __name__ == "__main__":
    try:
        main()
    except RefusedError as error:
        sys.exit(f"refused: {error}")
