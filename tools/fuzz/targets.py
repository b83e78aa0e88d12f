"""What the fuzzer feeds: one function a decoder, from bytes to nothing.

A target raises, an AssertionError or whatever escaped, exactly when a promise is broken: another error than the
documented one, a sender not named, a machine that is neither unchanged nor dead, bytes that decode and encode to
others, or more work than the input's length allows. No target needs a fuzzer: tests call them with the corpus and with
inputs of their own.

Some targets take the input as the bytes that arrive. Those called `..._changed` read it as a script of edits to a valid
message of a real round, so that inputs get past signatures, contexts and digests; the empty script changes nothing. All
keys of that round are derived from labels, so that an input does the same in every process.
"""

from __future__ import annotations

import json
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from fuzz.copies import copy_server, write_down
from fuzz.enrolments import enrolment_server, enrolment_user
from fuzz.flower import flower_node, flower_server
from fuzz.pipelines import pipeline_server, pipeline_user
from fuzz.scripts import Script, change, promise
from rounds import ROUND, small_plan

from heterosag.crypto.field import PRIME, element_to_bytes
from heterosag.crypto.hashing import digest
from heterosag.crypto.keys import RoundSecrets, mask_private_key
from heterosag.errors import FaultyServerError, FaultyUserError, HeteroSagError, PlanError, UsageError, WireError
from heterosag.plan import Plan
from heterosag.protocol import Client, ClientPhase, Identity, Policy, Server, ServerPhase
from heterosag.protocol import messages as wire
from heterosag.protocol.cells import pack_cells, unpack_cells
from heterosag.protocol.client import Polynomials
from heterosag.protocol.rounding import Rounding
from heterosag.protocol.steps import Advertised, Fresh, Masked, Shared
from heterosag.storage.identities import load_directory
from heterosag.vector import ring

__all__ = ["KINDS", "TARGETS", "Round", "limited_work", "other_plans", "play"]

PHASES = ("advertise", "share", "mask", "agree", "unmask")
KINDS: dict[str, type[wire.Message]] = {
    "advertisement": wire.Advertisement,
    "roster": wire.Roster,
    "shares": wire.Shares,
    "inbox": wire.Inbox,
    "masked_vector": wire.MaskedVector,
    "survivor_set": wire.SurvivorSet,
    "agreement": wire.Agreement,
    "unmask_request": wire.UnmaskRequest,
    "released": wire.Released,
    "nonce_commitment": wire.NonceCommitment,
    "nonce_commitments": wire.NonceCommitments,
    "nonce_reveal": wire.NonceReveal,
    "nonce_reveals": wire.NonceReveals,
    "cohort_commitments": wire.CohortCommitments,
    "cohort_reveals": wire.CohortReveals,
}
SENT = dict(
    zip(PHASES, (wire.Advertisement, wire.Shares, wire.MaskedVector, wire.Agreement, wire.Released), strict=True)
)

PLAN = small_plan()
ABSENT = 11  # shares, then stays away: so that there are secrets of both kinds to release
USER = 0  # whose client is fuzzed


# --- a round to take messages from ----------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Round:
    """A whole round, taped: what each user was sent and answered, the server and one client before each phase."""

    signed: bool
    directory: dict[Any, bytes] | None
    phases: tuple[str, ...]
    asked: dict[str, dict[int, bytes]] = field(default_factory=dict)
    answered: dict[str, dict[int, bytes]] = field(default_factory=dict)
    servers: dict[str, Server] = field(default_factory=dict)
    saved: dict[str, bytes] = field(default_factory=dict)

    def client(self, user: int = USER, log: Claims | None = None, saved: bytes | None = None) -> Client:
        """A client of this round: fresh, or as it was saved."""
        identity = _identity(user) if self.signed else None
        options: dict[str, Any] = {
            "identity": identity,
            "directory": self.directory,
            "trust_server": not self.signed,
            "policy": Policy.any_plan(),
            "release_log": log or Claims(),
        }
        if saved is not None:
            return Client.restore(saved, PLAN, user, ROUND, **options)
        return Client(PLAN, user, ROUND, **options)

    def server(self, phase: str) -> Server:
        """A server that waits for this phase's messages, to be changed at will."""
        return copy_server(self.servers[phase], [PLAN, PLAN.design])


class Claims:
    """A release log that can be read: what a client gave out."""

    def __init__(self) -> None:
        self.made: list[tuple[bytes, str, bytes]] = []

    def claim(self, context: bytes, kind: str, value: bytes) -> None:
        self.made.append((context, kind, value))


def _identity(user: int) -> Identity:
    return Identity.from_private_bytes(digest("fuzz/identity", bytes([user])))


def _element(label: str, *numbers: int) -> int:
    return int.from_bytes(digest(f"fuzz/{label}", bytes(numbers)), "little") % PRIME


def _secrets(user: int) -> RoundSecrets:
    secret = _element("mask", user)
    seal_key = X25519PrivateKey.from_private_bytes(digest("fuzz/seal", bytes([user])))
    return RoundSecrets(
        mask_secret=secret, self_secret=_element("self", user), mask_key=mask_private_key(secret), seal_key=seal_key
    )


def _polynomials(user: int) -> Polynomials:
    secrets, degrees = _secrets(user), range(1, PLAN.share_threshold)
    return Polynomials(
        mask=[secrets.mask_secret, *(_element("mask-polynomial", user, at) for at in degrees)],
        self=[secrets.self_secret, *(_element("self-polynomial", user, at) for at in degrees)],
    )


def _update(user: int) -> np.ndarray:
    return np.linspace(-1, 1, PLAN.dimension) * (user + 1) / len(PLAN.users)


def answer(client: Client, phase: str, message: bytes) -> bytes:
    """A client's answer to a phase, without any randomness of its own."""
    user = int(client.user)
    if phase == "advertise":
        return client.advertise(secrets=_secrets(user))
    if phase == "share":
        return client.share(message, polynomials=_polynomials(user))
    if phase == "mask":
        return client.mask(message, _update(user), rounding=Rounding.from_seed(1, user))
    return client.agree(message) if phase == "agree" else client.unmask(message)


@lru_cache(maxsize=2)
def play(signed: bool) -> Round:
    """The round, with or without identities; the same bytes in every process."""
    users = range(len(PLAN.users))
    directory = {user: _identity(user).public for user in users} if signed else None
    tape = Round(
        signed=signed, directory=directory, phases=tuple(phase for phase in PHASES if signed or phase != "agree")
    )
    server, clients = Server(PLAN, ROUND, directory=directory), {user: tape.client(user) for user in users}
    waiting: dict[Any, bytes] = dict.fromkeys(users, b"")
    for phase in tape.phases:
        tape.servers[phase], tape.saved[phase] = copy_server(server, [PLAN, PLAN.design]), clients[USER].save()
        tape.asked[phase], tape.answered[phase] = dict(waiting), {}
        for user in waiting:
            if (phase, user) != ("mask", ABSENT):
                tape.answered[phase][user] = answer(clients[user], phase, waiting[user])
                assert server.receive(user, tape.answered[phase][user])
        waiting = server.close()
    tape.servers["done"], tape.saved["done"] = server, clients[USER].save()
    return tape


# --- bounds ---------------------------------------------------------------------------------------------------------


@contextmanager
def limited_work(calls: int) -> Iterator[None]:
    """Counts calls instead of seconds, and raises at the first one too many, so that a bomb does not go off."""
    left = calls

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            sys.setprofile(before)
            raise AssertionError(f"more than {calls} calls")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(before)


# --- the targets ----------------------------------------------------------------------------------------------------


def decode_message(kind: type[wire.Message], data: bytes) -> None:
    """Any bytes as one kind of message."""
    try:
        message = wire.decode(kind, data, plan=PLAN, sender="somebody")
    except WireError as error:
        promise(error.sender == "somebody", "the sender is not named")
        promise(str(error).startswith("from 'somebody'"), "the sender is not in the words")
        return
    assert len(data) <= wire.size_limit(PLAN, kind)
    assert wire.encode(message) == data, "two encodings of one message"


def plan_bytes(data: bytes) -> None:
    """Any bytes as a plan: a `PlanError`, after work that grows with the bytes and not with the numbers in them."""
    try:
        with limited_work(50_000 + 200 * len(data)):
            plan = Plan.decode(data)
    except PlanError as error:
        promise(bool(error.field), "the value is not named")
        return
    assert plan.encode() == data, "two encodings of one plan"


def plan_changed(data: bytes) -> None:
    """A valid plan's encoding, edited."""
    script = Script(data)
    plans = other_plans()
    chosen, donor = plans[script.below(len(plans))], plans[script.below(len(plans))]
    plan_bytes(change(chosen, script, donor))


@lru_cache(maxsize=1)
def other_plans() -> tuple[bytes, ...]:
    """Encodings of plans that differ in everything a plan can differ in."""
    names = [f"user-{number}" for number in range(12)]
    plans = (
        PLAN,
        small_plan(design="secagg", metrics=["loss", "accuracy"], rotate=True),
        small_plan(design="multigroup", assignment_seed=b"\x01\x02", fill_levels=True, max_weight=9),
        small_plan(users=names, assignment_seed=5, design="paper-composite", value_range=(-0.25, 2.0)),
        Plan.build(
            classes=[7, 8, 5],
            levels=[2, 3, 70_000],
            dimension=9,
            value_range=1.0,
            subgroup_size=4,
            min_survivors=4,
            colluders=3,
        ),
        Plan.build(
            classes=[60], levels=[4], dimension=30, value_range=1.0, subgroup_size=12, sharing="sparse", dropout=0.02
        ),
    )
    return tuple(plan.encode() for plan in plans)


def plan_toml(data: bytes) -> None:
    """Any text as a plan in TOML."""
    text = data.decode("utf-8", "replace")
    if _asks_for_much(text):
        return
    try:
        plan = Plan.from_toml(text)
        written = plan.to_toml()
    except PlanError as error:
        promise(bool(error.field), "the value is not named")
        return
    assert Plan.from_toml(written) == plan, "a plan that is not the one written"


def _asks_for_much(text: str) -> bool:
    """A plan in TOML is its reader's own requirement, and building a large one takes long: that is not looked for."""
    try:
        classes = tomllib.loads(text).get("classes")
    except (ValueError, RecursionError):
        return False
    return isinstance(classes, list) and sum(size for size in classes if isinstance(size, int)) > 60


def saved_client(data: bytes) -> None:
    """Any bytes as a saved client."""
    try:
        client = play(signed=False).client(saved=data)
    except UsageError:
        return
    assert client.save() == data, "two encodings of one state"
    kinds: dict[ClientPhase, type[Any]] = {
        ClientPhase.FRESH: Fresh,
        ClientPhase.ADVERTISED: Advertised,
        ClientPhase.SHARED: Shared,
        ClientPhase.MASKED: Masked,
        ClientPhase.AGREED: Masked,
    }
    assert isinstance(client._state, kinds.get(client.phase, type(None))), "a phase with another phase's state"


def saved_client_changed(data: bytes) -> None:
    """A saved client, edited and given a right digest: it protects against damage, not against whoever can write."""
    script = Script(data)
    states = tuple(play(signed=False).saved.values())
    chosen, donor = states[script.below(len(states))], states[script.below(len(states))]
    body = change(chosen[32:], script, donor[32:])
    saved_client(digest("saved-client", body) + body)


def ring_vector(data: bytes) -> None:
    """Packed vectors of any width, announced and true length."""
    script = Script(data)
    bits = script.below(66)
    announced = int.from_bytes(script.take(4), "little")
    packed = script.rest()
    fitting = len(packed) * 8 // max(1, bits)
    count = fitting if announced % 4 else announced
    try:
        size = ring.check_packed(packed, bits, count) if bits else 0
        lanes = ring.unpack(packed, bits, count)
    except UsageError:
        assert not 1 <= bits <= ring.MAX_BITS + 1
        return
    except WireError:
        exact = len(packed) == ring.packed_size(count, bits)
        assert not exact or int.from_bytes(packed, "little") >> count * bits, "refused what `pack` makes"
        return
    assert size == len(packed)
    assert lanes.size == count
    assert ring.pack(lanes, bits) == packed, "two encodings of one vector"
    (again,) = ring.unpack_all([memoryview(packed)], bits, [count])
    assert (again == lanes).all()
    ring.add_packed(packed, bits, again)
    assert (again == lanes + lanes).all()


def masked_vector(data: bytes) -> None:
    """Any bytes as a member's packed vector: added as they are, or refused and nothing added."""
    tape = play(signed=False)
    honest = msgspec.msgpack.decode(tape.answered["mask"][USER])
    message = msgspec.msgpack.encode([*honest[:-1], data])
    server = _waiting_server(False, "mask")
    if not _receive(server, False, "mask", USER, message):
        return
    cells = PLAN.cells(PLAN.assignment[USER])
    assert pack_cells(list(unpack_cells(memoryview(data), cells)), cells) == data
    added: Any = server._state
    assert pack_cells(added.sums[PLAN.assignment[USER]], cells) == data, "another vector was added"


def server_raw(data: bytes) -> None:
    """Any bytes to a server in any phase."""
    script = Script(data)
    signed = bool(script.below(2))
    phases = (*play(signed).phases, "done")
    phase, user = phases[script.below(len(phases))], script.below(len(PLAN.users))
    _receive(_waiting_server(signed, phase), signed, phase, user, script.rest())


def server_changed(data: bytes) -> None:
    """A user's valid message, edited, to a server in the phase it belongs to."""
    script = Script(data)
    signed = bool(script.below(2))
    phase, user, message = _changed_answer(signed, script)
    _receive(_waiting_server(signed, phase), signed, phase, user, message)


def server_closing(data: bytes) -> None:
    """Edited messages of several users, then the end of the phase: a result, or an error of the documented tree."""
    script = Script(data)
    signed = bool(script.below(2))
    phase = play(signed).phases[script.below(len(play(signed).phases))]
    tape, server = play(signed), play(signed).server(phase)
    malicious = 1 + script.below(4)
    hostile = {}
    for _ in range(malicious):
        user = script.below(len(PLAN.users))
        if user in tape.answered[phase]:
            edits = Script(script.take(script.below(40)))
            hostile[user] = change(tape.answered[phase][user], edits, tape.answered[phase][(user + 1) % ABSENT])
    for user, honest in tape.answered[phase].items():
        try:
            server.receive(user, hostile.get(user, honest))
        except (FaultyUserError, WireError):
            assert hostile.get(user, honest) != honest, "an honest message was refused"
    try:
        server.close()
    except HeteroSagError as error:
        promise(type(error) is not UsageError, "a fault of others shown as misuse")
        assert server.phase is ServerPhase.FAILED
        return
    assert server.phase is not ServerPhase.FAILED


def _changed_answer(signed: bool, script: Script) -> tuple[str, int, bytes]:
    """A phase, a user who answered in it, and its answer after the script's edits."""
    tape = play(signed)
    phase = tape.phases[script.below(len(tape.phases))]
    users = list(tape.answered[phase])
    user, other = users[script.below(len(users))], users[script.below(len(users))]
    return phase, user, change(tape.answered[phase][user], script, tape.answered[phase][other])


_WAITING: dict[tuple[bool, str], Server] = {}


def _waiting_server(signed: bool, phase: str) -> Server:
    """A server to try; one that refused is used again, since refusing must not have changed it."""
    if (signed, phase) not in _WAITING:
        _WAITING[signed, phase] = play(signed).server(phase)
    return _WAITING[signed, phase]


def _receive(server: Server, signed: bool, phase: str, user: int, message: bytes) -> bool:
    before = _look(server)
    try:
        counted = server.receive(user, message)
    except WireError as error:
        promise(error.sender == user, "the sender is not named")
        counted = None
    except FaultyUserError as error:
        promise(error.user == user, "another user is blamed")
        counted = None
    if counted:
        del _WAITING[signed, phase]
        decoded = wire.decode(SENT[phase], message, plan=PLAN)
        assert wire.encode(decoded) == message, "two encodings of one message"
        assert user not in server.waiting_for
        return True
    assert _look(server) == before, "a message that does not count changed the server"
    if counted is None:
        assert server.refusals.pop().user == user, "a refusal is not recorded"
    assert not server.refusals
    return False


def _look(server: Server) -> bytes:
    """Everything that a message could change."""
    state = {} if server._state is None else getattr(server._state, "__dict__", {})
    kept = {name: value for name, value in state.items() if name not in ("base", "plan", "masked")}
    masked = getattr(state.get("masked"), "sums", None)
    return write_down((server.phase, server._seen, kept, masked))


def client_raw(data: bytes) -> None:
    """Any bytes as the server's message to a client that waits for one."""
    script = Script(data)
    signed = bool(script.below(2))
    phases = play(signed).phases[1:]
    _answer(signed, phases[script.below(len(phases))], script.rest())


def client_changed(data: bytes) -> None:
    """The server's valid message, edited, to a client in the phase it belongs to (or, at times, in another)."""
    script = Script(data)
    signed = bool(script.below(2))
    phases = play(signed).phases[1:]
    phase, other = phases[script.below(len(phases))], phases[script.below(len(phases))]
    asked = play(signed).asked
    donor = asked[other][1 + script.below(ABSENT - 1)]
    _answer(signed, phase, change(asked[phase][USER], script, donor))


def _answer(signed: bool, phase: str, message: bytes) -> None:
    """Refused: nothing given out, unchanged or dead. Answered: no more than the step gives, and again the same."""
    tape, log = play(signed), Claims()
    client = tape.client(log=log, saved=tape.saved[phase])
    try:
        reply = answer(client, phase, message)
    except WireError as error:
        promise(error.sender == "server", "the sender is not named")
        assert client.save() == tape.saved[phase], "a client that refused bytes is changed"
        assert not log.made, "released and refused"
        return
    except FaultyServerError:
        assert client.phase is ClientPhase.DEAD
        assert client._state is None, "a dead client keeps its secrets"
        assert not client._replies
        assert not log.made, "released and refused"
        return
    assert len(log.made) == 1, "given out without a claim"
    asked = msgspec.msgpack.decode(message), msgspec.msgpack.decode(tape.asked[phase][USER])
    assert asked[0][2] == asked[1][2], "answered a message of another context"
    assert answer(client, phase, message) == reply
    answered = wire.decode(SENT[phase], reply, plan=PLAN)
    if isinstance(answered, wire.Released):
        _check_released(tape, message, answered)
    _check_second_message(client, phase, message)


def _check_released(tape: Round, message: bytes, released: wire.Released) -> None:
    """Of every dealer one share: of sigma_self if the request calls it a survivor, of sigma_mask if not."""
    client = tape.client(saved=tape.saved["unmask"])
    state: Any = client._state
    survivors = wire.decode(wire.UnmaskRequest, message, plan=PLAN).survivors
    expected = [element_to_bytes(pair[dealer in survivors]) for dealer, pair in sorted(state.held.items())]
    assert released.shares == b"".join(expected)


def _check_second_message(client: Client, phase: str, message: bytes) -> None:
    try:
        answer(client, phase, message + b"\0")
    except FaultyServerError:
        assert client._state is None
        return
    raise AssertionError("two different messages were answered in one phase")


def directory_file(data: bytes) -> None:
    """Any bytes as a directory of public keys."""
    path = _scratch() / "directory.json"
    path.write_bytes(data)
    path.chmod(0o600)  # whatever the umask: one that others can write to would be refused unread
    try:
        keys = load_directory(path)
    except UsageError as error:
        promise(str(path) in str(error), "the file is not named")
        return
    assert all(isinstance(user, str) and len(key) == 32 for user, key in keys.items())
    path.write_text(json.dumps({user: key.hex() for user, key in keys.items()}))
    assert load_directory(path) == keys


def key_file(data: bytes) -> None:
    """Any bytes as a private key."""
    try:
        identity = Identity.from_key_file(data)
    except UsageError:
        return
    assert Identity.from_key_file(identity.to_key_file()).public == identity.public


_SCRATCH: list[tempfile.TemporaryDirectory[str]] = []


def _scratch() -> Path:
    if not _SCRATCH:
        _SCRATCH.append(tempfile.TemporaryDirectory())
    return Path(_SCRATCH[0].name)


TARGETS: dict[str, Callable[[bytes], None]] = {
    **{f"wire_{name}": partial(decode_message, kind) for name, kind in KINDS.items()},
    "plan_bytes": plan_bytes,
    "plan_changed": plan_changed,
    "plan_toml": plan_toml,
    "saved_client": saved_client,
    "saved_client_changed": saved_client_changed,
    "ring_vector": ring_vector,
    "masked_vector": masked_vector,
    "server_raw": server_raw,
    "server_changed": server_changed,
    "server_closing": server_closing,
    "client_raw": client_raw,
    "client_changed": client_changed,
    "enrolment_server": enrolment_server,
    "enrolment_user": enrolment_user,
    "pipeline_server": pipeline_server,
    "pipeline_user": pipeline_user,
    "flower_server": flower_server,
    "flower_node": flower_node,
    "directory_file": directory_file,
    "key_file": key_file,
}
