"""Rounds in a row, from docs/protocol.md and docs/wire-format.md alone, and rounds that nobody recorded.

A trip to the users carries parts of several rounds: the keys and shares of the next one travel with the messages of
this one. The bytes of each message stay what they are in a round by itself, which is how this is checked: a recorded
round is run in the middle of three in a row, and every message of it must come out as it is recorded. How a transport
writes the parts of a trip into one message is not on the pages.

Of metrics alone there is no recorded round. `rehearse` runs one with secrets made up here, and others on a larger
sparse graph and with noise; the sums must be those of the plain cells.
"""

from collections.abc import Callable
from typing import Any

from naive_plan import build_arguments, encode_plan
from naive_round import Plan, Server, Terms, User, recorded, same, sent
from naive_wire import PRIME, FaultyServerError, RefusedError, WireError, digest, identity_key, require, u64

Part = tuple[int, str, bytes]  # the number of a round, a phase, and a message


class RoundsOfUser:
    """A user in several rounds at once. It keeps two rounds at most, each with secrets of its own."""

    def __init__(self, open_round: Callable[[int], User]) -> None:
        self.open_round = open_round
        self.kept: dict[int, User] = {}
        self.forgotten = -1  # the highest round that it has kept and let go

    def answer(self, parts: list[Part]) -> list[Part]:
        """Answer the parts of a trip in the order of their rounds, each alone: a refused one leaves the others."""
        numbers = [number for number, _, _ in parts]
        require(0 < len(parts) <= 3, "a trip of no part, or of too many", FaultyServerError)
        require(len(set(numbers)) == len(numbers), "two parts for one round", FaultyServerError)
        require(all(0 <= number < 2**64 for number in numbers), "no number of a round", FaultyServerError)
        lowest = min(numbers)
        for number in [kept for kept in self.kept if kept < lowest]:
            self.forget(number)
        answers = []
        for number, phase, message in sorted(parts):
            try:
                answers.append((number, phase, self.answer_part(number, phase, message, lowest)))
            except RefusedError as error:
                if not (phase == "mask" and isinstance(error, WireError)):  # a replayed trip ends nobody's round
                    self.forget(number)
        return answers

    def forget(self, number: int) -> None:
        """Let a round go, if it is kept, and never open it again."""
        if self.kept.pop(number, None):
            self.forgotten = max(self.forgotten, number)

    def answer_part(self, number: int, phase: str, message: bytes, lowest: int) -> bytes:
        """Answer one part; above the lowest round of a trip only with keys and shares."""
        require(number == lowest or phase in ("advertise", "share"), "more than keys and shares", FaultyServerError)
        if phase == "advertise" and number not in self.kept:
            require(all(number > one for one in self.kept), "a round below one that is kept", FaultyServerError)
            require(number > self.forgotten, "a round at or below one that is over", FaultyServerError)
            require(len(self.kept) < 2, "a third round", FaultyServerError)
            self.kept[number] = self.open_round(number)
        require(number in self.kept, "a round that is not kept", FaultyServerError)
        answer = self.kept[number].answer(phase, message)
        if phase == "unmask":
            self.forget(number)
        return answer


def trips_of(numbers: list[int], *, identities: bool) -> list[list[tuple[int, str]]]:
    """List the trips of rounds in a row, each with the parts that it carries; the first round was not prepared."""

    def part(number: int, phase: str) -> list[tuple[int, str]]:
        return [(number, phase)] if number in numbers else []

    first = numbers[0]
    trips = [part(first, "advertise"), part(first, "share") + ([] if identities else part(first + 1, "advertise"))]
    for this in numbers:
        trips.append(part(this, "mask") + part(this + 1, "advertise"))
        if identities:
            trips.append(part(this, "agree") + part(this + 1, "advertise"))
        trips.append(part(this, "unmask") + part(this + 1, "share"))
        if not identities:
            trips[-1] += part(this + 2, "advertise")
    return trips


class RoundsOfServer:
    """The server of rounds in a row, and everybody else, in one program."""

    def __init__(self, rounds: dict[int, Terms], directory: dict[int, bytes], givens: dict[int, list[Any]]) -> None:
        self.rounds, self.directory, self.givens = rounds, directory, givens
        frames = {number: framed(terms) for number, terms in rounds.items()}  # range and model come later
        self.servers = {number: Server(frame, directory) for number, frame in frames.items()}
        everybody = next(iter(rounds.values())).plan.users
        self.users = [
            RoundsOfUser(lambda number, me=me: User(frames[number], givens[number][me], directory)) for me in everybody
        ]
        self.sent: dict[tuple[int, str], list[Any]] = {}  # what the server sends, by round and phase
        self.heard: dict[tuple[int, str], list[Any]] = {}  # what users send

    def run(self, missed: dict[int, tuple[int, str]]) -> None:
        """Make all trips; a user misses those that carry the part it is listed with."""
        for trip in trips_of(list(self.rounds), identities=bool(self.directory)):
            for user, parts in self.opened(trip).items():
                if missed.get(user) not in [(number, phase) for number, phase, _ in parts]:
                    for number, phase, message in self.users[user].answer(parts):
                        self.servers[number].receive(user, message)
                        self.heard.setdefault((number, phase), []).append((user, message))
        for server in self.servers.values():
            server.close()

    def opened(self, trip: list[tuple[int, str]]) -> dict[int, list[Part]]:
        """Open the phases of a trip, and say which parts every user is sent."""
        parts: dict[int, list[Part]] = {}
        for number, phase in trip:
            if phase == "mask":
                self.settle(number)
            if phase == "advertise":  # only those are asked who have not answered yet
                asked = [([user for user in self.servers[number].expected if user not in self.got(number)], b"")]
            else:
                asked = self.sent[number, phase] = self.servers[number].close()
            for user, message in ((user, message) for users, message in asked for user in users):
                parts.setdefault(user, []).append((number, phase, message))
        return parts

    def got(self, number: int) -> list[int]:
        """List who has answered in the open phase of a round."""
        return list(self.servers[number].got)

    def settle(self, number: int) -> None:
        """Tell everybody the value range and the model of a round."""
        self.servers[number].settle(self.rounds[number])
        for user in self.users:
            if number in user.kept:
                user.kept[number].settle(self.rounds[number])


def framed(terms: Terms) -> Terms:
    """Give a round as it is known before its value range and its model: the frame of its plan, and no model."""
    return Terms(Plan(terms.plan.frame_encoding), terms.session, terms.number, bytes(32), settled=False)


def run_recorded_in_a_row(case: dict[str, Any]) -> int:
    """Run a recorded round between two others, compare its messages, and count them."""
    middle, directory = recorded(case)
    numbers = [middle.number - 1, middle.number, middle.number + 1]
    rounds = {number: Terms(middle.plan, middle.session, number, middle.model) for number in numbers}
    made_up = {number: [secrets_of(middle.plan, number, me) for me in middle.plan.users] for number in numbers}
    for number in numbers:  # identities are those of the recording
        for made, given in zip(made_up[number], case["users"], strict=True):
            made["identity_private"] = given.get("identity_private", b"")
    row = RoundsOfServer(rounds, directory, made_up | {middle.number: case["users"]})
    row.run({user: (middle.number, phase) for user, phase in case["dropped"]})
    for phase in case["phases"]:
        told, heard = sent(case, phase)
        same(f"what the server sends in {phase}, in a row", row.sent.get((middle.number, phase), []), told)
        same(f"what users send in {phase}, in a row", sorted(row.heard[middle.number, phase]), heard)
    for number, server in row.servers.items():
        compare_sums(server, rounds[number], row.givens[number])
    return len(case["server_sends"]) + len(case["users_send"])


def secrets_of(plan: Plan, number: int, me: int) -> dict[str, Any]:
    """Make up the secrets, the update and the metrics of a user, each the hash of its name."""

    def secret(name: str, place: int = 0) -> bytes:
        return digest("made-up/" + name, u64(number, me, place))

    def field_element(name: str, place: int) -> bytes:
        return (int.from_bytes(secret(name, place), "little") % PRIME).to_bytes(32, "little")

    last = plan.rows[plan.segments - 1][0]
    drawn = [int.from_bytes(secret("update", at)[:4], "little") / 2**32 - 0.5 for at in range(last.start + last.size)]
    given: dict[str, Any] = {"index": me, "update": drawn, "weight": 1 + me % plan.bound}
    given |= {"metrics": dict.fromkeys(plan.metrics, me / 8)}
    given |= {name: secret(name) for name in ("seal_private", "rounding_key", "identity_private")}
    for kind in ("mask", "self"):
        polynomial = [field_element(kind, power) for power in range(plan.threshold)]
        given |= {kind + "_polynomial": polynomial, kind + "_secret": polynomial[0]}
    return given


def compare_sums(server: Server, terms: Terms, givens: list[Any]) -> int:
    """Compare the sums of a round with those of the survivors' plain cells, and count the blocks."""
    contents = {user: User(terms, givens[user], {}).content() for user in server.survivors}
    blocks, first = server.combine(), terms.plan.segments if terms.metrics_only else 0
    for block in blocks:
        users = [user for user in server.survivors if terms.plan.subgroup[user] in block["subgroups"]]
        at, where = block["segment"] - first, f"{block['subgroups']} in segment {block['segment']}"
        columns = zip(*(contents[user][at][0] for user in users), strict=True)
        same(f"sums of {where}", block["sums"], [sum(column) for column in columns])
        columns, names = zip(*(contents[user][at][1] for user in users), strict=True), terms.cells(users[0])[at].names
        lanes = dict(zip(names, (sum(column) % 2**64 for column in columns), strict=True))
        same(f"lanes of {where}", block["auxiliary"], dict(sorted(lanes.items())))
    return len(blocks)


def rehearse(plan: Plan, missed: dict[int, str], *, identities: bool, metrics_only: bool = False) -> int:
    """Run a round by itself with secrets made up, and compare its sums with the plain ones."""
    terms = Terms(plan, b"rehearsal", 7, digest("made-up/model"), metrics_only=metrics_only)
    givens = [secrets_of(plan, terms.number, me) for me in plan.users]
    for given in givens:
        given["identity_private"] = given["identity_private"] if identities else b""
    directory = {given["index"]: identity_key(given["identity_private"]) for given in givens if identities}
    users, server = [User(terms, given, directory) for given in givens], Server(terms, directory)
    asked, gone = [(list(plan.users), b"")], set()
    for phase in server.phases:
        gone |= {user for user, when in missed.items() if when == phase}
        for user, message in ((user, message) for listeners, message in asked for user in listeners):
            if user not in gone:
                server.receive(user, users[user].answer(phase, message))
        asked = server.close()
    return compare_sums(server, terms, givens)


def rehearse_all(plans: dict[str, bytes]) -> list[str]:
    """Run rounds that are not recorded, on plans of plan.json and on a small one with noise."""
    small = {"classes": [8], "levels": [4], "dimension": 50, "subgroup_size": 4, "min_block_survivors": 5}
    small |= {"clipping_norm": 1.0, "noise_multiplier": 3.0, "adaptive_clip": True}
    noisy = Plan(encode_plan(build_arguments(small)))
    sparse, signed = Plan(plans["sparse sharing"]), Plan(plans["signed"])
    gone = {3: "advertise", 12: "share", 8: "mask", 4: "agree", 19: "unmask"}
    return [
        f"sparse  {rehearse(sparse, gone, identities=True)} blocks of a sparse graph are the plain sums",
        f"noise   {rehearse(noisy, {2: 'mask', 6: 'unmask'}, identities=False)} blocks with noise are the plain sums",
        f"metrics {rehearse(signed, {1: 'agree'}, identities=True, metrics_only=True)} block of metrics alone is too",
    ]
