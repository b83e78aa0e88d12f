"""The simulated world: thousands of schedules, replays that are exact, and invariants that can fail."""

import tracemalloc
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from fault_simulation.invariants import measure
from fault_simulation.ledger import BrokenInvariantError
from fault_simulation.malicious import TRAITS
from fault_simulation.network import Envelope
from fault_simulation.pipelined import PipelinedProgram, PipelinedWorld
from fault_simulation.schedule import MOODS, Script
from fault_simulation.users import Disk, Node, Program
from fault_simulation.world import World, simulate
from msgspec.structs import replace

from heterosag.crypto.field import element_to_bytes
from heterosag.errors import FaultyUserError, TooFewSurvivorsError
from heterosag.plan import Plan
from heterosag.protocol import Client, Decoded, Server, ServerPhase
from heterosag.protocol import messages as wire
from heterosag.protocol.guard import Guard
from heterosag.protocol.pipeline import ClientPipeline, Part, ServerPipeline
from heterosag.protocol.steps import Masked
from heterosag.protocol.transitions import Phase

CHUNKS, QUICK = 12, 3  # `make soak` runs thousands
KINDS: dict[type[World], tuple[str, int]] = {World: ("alone", 50), PipelinedWorld: ("pipeline", 20)}

of_both_kinds = pytest.mark.parametrize("kind", KINDS)


@of_both_kinds
@pytest.mark.parametrize(
    "chunk",
    [
        0,
        *(
            pytest.param(chunk, marks=pytest.mark.slow if chunk >= QUICK else pytest.mark.long)
            for chunk in range(1, CHUNKS)
        ),
    ],
)
def test_schedules(chunk: int, kind: type[World]) -> None:
    name, schedules = KINDS[kind]
    for seed in range(chunk * schedules, (chunk + 1) * schedules):
        report = simulate(seed, kind=kind)
        assert not report.failure, "\n".join(
            [f"replay: python tools/fault_simulation --kind {name} --replay {seed}", *report.trace, report.failure]
        )


@pytest.mark.long
@of_both_kinds
def test_a_replay_repeats_every_event_and_every_byte(kind: type[World]) -> None:
    for seed in range(0, 200, 10 if kind is World else 40):
        first, second = (simulate(seed, keep_trace=True, kind=kind) for _ in range(2))
        assert first == second
        assert len(first.trace) > 10


@pytest.mark.slow
@of_both_kinds
def test_schedules_are_of_every_mood_and_meet_every_fault(kind: type[World]) -> None:
    users = {"dropped", "user crashed", "disk lost", "two programs", "lied"}
    network = {"lost", "duplicated", "delayed", "corrupted", "misrouted", "spliced", "tampered", "replayed"}
    ends = {"ended: exact sum", "ended: TooFewSurvivorsError", "ended: AbandonedRoundError", "blocks spoiled"}
    wanted = {*MOODS, *users, *network, "server crashed", *ends}
    if kind is PipelinedWorld:
        wanted |= {"joined", "set-up thrown away"}
        wanted |= {f"begun: {way}" for way in ("nothing set up", "set-up not used", "prepared", "of metrics alone")}
    met: set[str] = set()
    faults: set[str] = set()
    for seed in range(120):
        report = simulate(seed, kind=kind)
        faults |= set(report.faults)
        met |= {report.mood, *faults, *(name for name, count in report.counts.items() if count)}
        if wanted <= met:
            break
    assert wanted <= met, wanted - met
    named = {name for name in met if name.startswith(("ended: ", "begun: "))}
    assert named | faults <= wanted  # this test knows every fault, and every way for a round to begin and end


# --- the invariants can fail ----------------------------------------------------------------------------------------


def first_failure(problem: str, kind: type[World] = World, mood: str = "", **broken: Any) -> int:
    """The first seed, of a mood, in which broken users or a broken server are found out for this very reason."""
    for seed in range(500):
        if mood and Script.of(seed, TRAITS, pipelined=kind is not World).mood != mood:
            continue
        report = simulate(seed, kind=kind, **broken)
        if problem in report.failure:
            assert simulate(seed, kind=kind, **broken).trace == report.trace
            assert not simulate(seed, kind=kind).failure
            return seed
    raise AssertionError(f"no schedule shows: {problem}")


class LeakyProgram(Program):
    """Gives out the other share of one dealer, the one that it must keep, too."""

    def step(self, client: Client, envelope: Envelope) -> bytes:
        state = client._state
        reply = super().step(client, envelope)
        if envelope.phase != "unmask" or not isinstance(state, Masked):
            return reply
        message = wire.decode(wire.Released, reply, plan=self.node.world.script.plan)
        known = message.shares[:32]
        other = next(share for share in map(element_to_bytes, state.held[min(state.held)]) if share != known)
        return wire.encode(replace(message, shares=known + other + message.shares[32:]))


class LeakyNode(Node):
    def __init__(self, world: World, user: Any) -> None:
        super().__init__(world, user)
        self.programs = [LeakyProgram(self, 0)]


class ForgetfulDisk(Disk):
    """A log that forgets what was claimed before."""

    def claim(self, context: bytes, kind: str, value: bytes) -> None:
        self.claims[context, kind] = value


class ForgetfulNode(Node):
    def __init__(self, world: World, user: Any) -> None:
        super().__init__(world, user)
        self.disk = ForgetfulDisk(0)


class UnloggedNode(Node):
    """Sends without having claimed."""

    def log(self) -> Disk:
        return Disk(0)


def server_that(change: Callable[[Server, Decoded], Decoded]) -> type[Server]:
    class Changed(Server):
        @property
        def decoded(self) -> Decoded:
            return change(self, super().decoded)

    return Changed


def add_one(server: Server, decoded: Decoded) -> Decoded:
    decoded.segments[-1][-1].elements[-1] ^= 1
    return decoded


def leave_one_out(server: Server, decoded: Decoded) -> Decoded:
    return Decoded(survivors=decoded.survivors[1:], segments=decoded.segments, metrics=decoded.metrics)


class BlamingServer(Server):
    """Blames the first user for whatever arrives late."""

    def receive(self, user: Any, data: bytes) -> bool:
        if not super().receive(user, data) and user == self.plan.users[0]:
            raise FaultyUserError(user, "is late")
        return True


class HoardingServer(Server):
    """Keeps every message."""

    def receive(self, user: Any, data: bytes) -> bool:
        self.__dict__.setdefault("hoard", []).append(data)
        return super().receive(user, data)


class CountingServer(Server):
    """Counts a late message again."""

    def receive(self, user: Any, data: bytes) -> bool:
        return super().receive(user, data) or data[1:2] == b"\x05"


class SilentServer(Server):
    """Ends with an error of no name."""

    def close(self) -> dict[Any, bytes]:
        raise KeyError("lost")


class TimidServer(Server):
    """Gives up where an admissible set of users is left."""

    def close(self) -> dict[Any, bytes]:
        if self.phase is ServerPhase.MASK:
            self._fail()
            raise TooFewSurvivorsError("min_survivors", "perhaps too few")
        return super().close()


def of_kind(node: type[Node], kind: type[World]) -> type[Node]:
    return node if kind is World else type(node.__name__, (node,), {"program": PipelinedProgram})


class LeakyRounds(ClientPipeline):
    """Gives out the share of one dealer that it must keep."""

    def _answer(self, part: Part, lowest: bool, mask: Callable[[Client, Part], bytes]) -> bytes:
        client = self._clients.get(part.number)
        state = client._state if client is not None else None
        reply = super()._answer(part, lowest, mask)
        if part.phase is not Phase.UNMASK or not isinstance(state, Masked):
            return reply
        message = wire.decode(wire.Released, reply, plan=self._plan)
        pair = map(element_to_bytes, state.held[min(state.held)])
        other = next(share for share in pair if share != message.shares[:32])
        return wire.encode(replace(message, shares=other + message.shares[32:]))


class HastyRounds(ClientPipeline):
    """Answers anything in a round ahead."""

    def _answer(self, part: Part, lowest: bool, mask: Callable[[Client, Part], bytes]) -> bytes:
        return super()._answer(part, True, mask)


class KeepingRounds(ClientPipeline):
    """Keeps a round that it has released."""

    def _answer(self, part: Part, lowest: bool, mask: Callable[[Client, Part], bytes]) -> bytes:
        client = self._clients.get(part.number)
        reply = super()._answer(part, lowest, mask)
        if client is not None:
            self._clients[part.number] = client
        return reply


class HoardingRounds(ClientPipeline):
    """Keeps as many rounds as it is asked for."""

    def _answer(self, part: Part, lowest: bool, mask: Callable[[Client, Part], bytes]) -> bytes:
        with patch("heterosag.protocol.pipeline.MOST_ROUNDS", 99):
            return super()._answer(part, lowest, mask)


class WastefulPipeline(ServerPipeline):
    """Throws every set-up away."""

    def begin(self, plan: Plan, *, guard: Guard | None = None) -> bool:
        self.discard()
        return super().begin(plan, guard=guard)


class LateSharesPipeline(ServerPipeline):
    """Lets no shares ride."""

    def _riders(self) -> Any:
        return [rider for rider in super()._riders() if rider[0].phase is not ServerPhase.SHARE]


class ReusingPipeline(ServerPipeline):
    """Uses the numbers of what it threw away again."""

    def discard(self) -> None:
        self._last -= len(self._ahead)
        super().discard()


class CrowdedPipeline(ServerPipeline):
    """Keeps the servers of all rounds."""

    def begin(self, plan: Plan, *, guard: Guard | None = None) -> bool:
        before = self._numbers
        prepared = super().begin(plan, guard=guard)
        self._numbers = before | self._numbers
        return prepared


def test_a_client_that_releases_both_secrets_is_found_out() -> None:
    first_failure("released the wrong share", node=LeakyNode)


@of_both_kinds
@pytest.mark.parametrize("step", ["share", "mask"])
def test_a_log_that_forgets_is_found_out_when_a_user_restarts(step: str, kind: type[World]) -> None:
    first_failure(
        f"two different messages to {step} from one disk", kind, "rollback", node=of_kind(ForgetfulNode, kind)
    )


@of_both_kinds
def test_a_user_without_a_log_is_found_out_at_once(kind: type[World]) -> None:
    assert first_failure("did not claim in its log", kind, node=of_kind(UnloggedNode, kind)) < 20


@of_both_kinds
@pytest.mark.parametrize("change", [add_one, leave_one_out])
def test_a_wrong_result_is_found_out(change: Callable[[Server, Decoded], Decoded], kind: type[World]) -> None:
    assert first_failure("not the exact sum", kind, server=server_that(change)) < 100


@of_both_kinds
@pytest.mark.parametrize(
    ("server", "problem"),
    [
        (BlamingServer, "honest user is blamed"),
        (HoardingServer, "the server keeps"),
        (CountingServer, "counts though it is late"),
        (SilentServer, "KeyError"),
        (TimidServer, "the oracle says"),
    ],
)
def test_a_broken_server_is_found_out(server: type[Server], problem: str, kind: type[World]) -> None:
    first_failure(problem, kind, server=server)


@pytest.mark.parametrize(
    ("rounds", "mood", "problem"),
    [
        (LeakyRounds, "", "released the wrong share"),
        (HastyRounds, "hostile", "masks in a round ahead"),
        (KeepingRounds, "", "keeps rounds"),
        (HoardingRounds, "hostile", "keeps rounds"),
    ],
)
def test_a_users_broken_pipeline_is_found_out(rounds: type[ClientPipeline], mood: str, problem: str) -> None:
    program = type("Broken", (PipelinedProgram,), {"pipeline": rounds})
    first_failure(problem, PipelinedWorld, mood, node=type("Broken", (Node,), {"program": program}))


@pytest.mark.parametrize(
    ("rounds", "mood", "problem"),
    [
        (WastefulPipeline, "calm", "was not prepared"),
        (LateSharesPipeline, "calm", "was not prepared"),
        (ReusingPipeline, "network", "again"),
        (CrowdedPipeline, "", "the server keeps"),
    ],
)
def test_a_servers_broken_pipeline_is_found_out(rounds: type[ServerPipeline], mood: str, problem: str) -> None:
    first_failure(problem, PipelinedWorld, mood, pipeline=rounds)


def test_the_ledger_refuses_two_survivor_sets_and_both_secrets() -> None:
    scripts = (Script.of(seed, TRAITS) for seed in range(999))
    world = World(next(script for script in scripts if script.mood == "calm" and script.plan.sharing.complete))
    world.run()
    node, ledger = world.nodes[world.script.plan.users[0]], world.ledger
    node.disk.claims[b"context", "unmask"] = b"one"
    ledger._chosen_once(node, "unmask", b"context", b"one")
    node.disk.claims[b"context", "unmask"] = b"two"
    with pytest.raises(BrokenInvariantError, match="two survivor sets to unmask"):
        ledger._chosen_once(node, "unmask", b"context", b"two")
    threshold = world.script.plan.share_threshold
    with pytest.raises(BrokenInvariantError, match="shares of both secrets"):
        ledger._check_secrets(0, {"mask": {1, 2}, "self": {2}}, 1)
    ledger._check_secrets(0, {"mask": set(range(threshold)), "self": set(range(100, 99 + threshold))}, 1)
    with pytest.raises(BrokenInvariantError, match="both secrets of user"):
        ledger._check_secrets(0, {"mask": set(range(threshold)), "self": set(range(100, 100 + threshold))}, 1)


# --- the server's memory --------------------------------------------------------------------------------------------


def test_a_server_holds_accumulators_and_no_vectors() -> None:
    """By the allocator's own count: many vectors of a megabyte in, one accumulator a subgroup is kept."""
    from rounds import World as Round
    from rounds import small_plan

    plan = small_plan(dimension=200_000, levels=[200, 200])
    world = Round(plan)
    world.run("advertise", "share")
    replies = {user: world.answer("mask", user) for user in plan.users}
    accumulators = measure(world.server)["arrays"]
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for user, reply in replies.items():
            world.server.receive(user, bytes(bytearray(reply)))
        kept = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert accumulators >= len(plan.subgroups) * plan.dimension
    assert kept < 20_000 < len(replies[plan.users[0]])
    assert measure(world.server)["arrays"] == accumulators
