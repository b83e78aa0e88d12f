"""Scripts: machines of the whole rounds and of the enrolment, step after step, and the vectors of messages repeated."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import enrolments
from client_refusals import Case
from material import document, hashed, identity, round_secrets
from msgspec.structs import replace
from server_refusals import sent
from whole_rounds import play

from heterosag.crypto import hashing, keys
from heterosag.plan import Plan
from heterosag.protocol import messages as wire

Document = dict[str, Any]
Step = dict[str, Any]

STEPS = ("advertise", "share", "mask", "agree", "unmask")
OTHER = hashed("another context")


def takes(*steps: str) -> list[Step]:
    """A user is given the recorded message for each step, and answers as recorded."""
    return [{"do": step, "gives": "recorded"} for step in steps]


def given(step: str, message: bytes, gives: str) -> Step:
    """A user is given another message."""
    return {"do": step, "message": message.hex(), "gives": gives}


def refuses(error: str, *steps: str) -> list[Step]:
    """A user is given the recorded message for each step, and refuses it."""
    return [{"do": step, "gives": error} for step in steps]


def received(phase: str, user: int, gives: str, message: Any = None) -> Step:
    """A server receives a user's recorded message, or another one."""
    step = {"do": "receive", "phase": phase, "user": user, "gives": gives}
    if message is None:
        return step
    return {**step, "message": (message if isinstance(message, bytes) else wire.encode(message)).hex()}


def collected(*phases: str, without: Sequence[int] = ()) -> list[Step]:
    """A server receives everybody's recorded messages of each phase, and closes it as recorded."""
    steps: list[Step] = []
    for phase in phases:
        steps += [{"do": "receive all", "phase": phase, "without": list(without)}, {"do": "close", "gives": "recorded"}]
    return steps


def script(name: str, party: str, steps: Sequence[Step], **more: Any) -> Document:
    """A case; one that must fail if its last step does."""
    last = steps[-1].get("gives", "")
    error = {"error": last} if last.endswith("Error") else {}
    return {"name": name, "party": party, "steps": list(steps), **more, **error}


def split(about: str, scripts: Sequence[Document]) -> Document:
    """A file of scripts, those that end in an error apart."""
    return document(about, [one for one in scripts if "error" not in one], [one for one in scripts if "error" in one])


# --- duplicates, second messages, and machines that are over ------------------------------------------------------


def repeated() -> list[Document]:
    """Cases of machines.json: messages twice, late or out of order, and machines that are over."""
    return [*_clients(), *_servers(), *_enrolling(), *_enrolments()]


def _clients() -> list[Document]:
    asked = play("signed").asked
    twice = [step for name in STEPS for step in takes(name, name)]
    cut = [
        step
        for name in STEPS
        for step in (
            *([] if name == "advertise" else [given(name, asked[name][0][:-1], "WireError")]),
            *takes(name),
        )
    ]
    early = [
        *refuses("FaultyServerError", "share"),
        *takes("advertise"),
        *refuses("FaultyServerError", "mask", "agree", "unmask"),
        *takes("share"),
        *refuses("FaultyServerError", "agree", "unmask"),
        *takes("mask"),
        *refuses("FaultyServerError", "unmask"),
        *takes("agree", "unmask"),
    ]
    spoilt = [*takes("advertise", "share"), {"do": "mask", "update": "nan", "gives": "UsageError"}, *takes("mask")]
    request = Case("plain", "unmask", 2)
    second = request.changed(survivors=[*request.message.survivors, 8])
    released = [*takes("advertise", "share", "mask", "unmask"), given("unmask", second, "FaultyServerError")]

    def client(name: str, steps: list[Step], ends: str, round_name: str = "signed", user: int = 0) -> Document:
        return script(name, "client", steps, round=round_name, user=user, client_is=ends)

    return [
        client("every message twice", twice, "released"),
        client("messages cut, then whole", cut, "released"),
        client("steps out of order, then in order", early, "released"),
        client("an update that is not finite, then a good one", spoilt, "masked"),
        client(
            "another request once it has released, then the first",
            [*released, *takes("unmask")],
            "released",
            "plain",
            2,
        ),
        *(
            client(f"dead since {name}", [*takes(*STEPS[:place]), *_death(name)], "dead")
            for place, name in enumerate(STEPS)
            if place
        ),
        client("dead since a second roster", [*takes("advertise", "share"), *_death("share")], "dead"),
    ]


def _death(name: str) -> list[Step]:
    """A message of another context, and then the recorded ones of this step and of all others."""
    case = Case("signed", name, 0)
    others = [step for step in STEPS if step != name]
    return [
        given(name, case.changed(context=OTHER), "FaultyServerError"),
        *refuses("FaultyServerError", name, *others),
    ]


def _second(phase: str) -> Any:
    """Another message of user 3 than the recorded one, as good where there is another good one."""
    message = sent("signed", phase, 3)
    if phase == "advertise":
        drawn = round_secrets("signed", 3, "second")
        seal_key, mask_key = keys.public_bytes(drawn.seal_key), keys.public_bytes(drawn.mask_key)
        signature = identity("signed", 3).sign("advertise", message.context, hashing.index_bytes(3), seal_key, mask_key)
        shown = replace(message.advertised, seal_key=seal_key, mask_key=mask_key, signature=signature)
        return replace(message, advertised=shown)
    if phase == "share":
        return replace(message, secret_commitment=OTHER[:16])
    if phase == "mask":
        return replace(message, vector=memoryview(bytes(message.vector)[:-1] + b"\x07"))
    if phase == "agree":
        return replace(message, signature=sent("signed", "agree", 0).signature)
    return replace(message, shares=message.shares[32:] + message.shares[:32])


def _servers() -> list[Document]:
    def server(name: str, steps: list[Step], round_name: str = "signed") -> Document:
        return script(name, "server", steps, round=round_name)

    found = []
    for place, phase in enumerate(STEPS):
        found.append(
            server(
                f"two different messages to {phase}",
                [
                    *collected(*STEPS[:place]),
                    received(phase, 3, "taken"),
                    received(phase, 3, "FaultyUserError", _second(phase)),
                    received(phase, 3, "ignored"),
                    {"do": "receive all", "phase": phase, "without": [3]},
                    {"do": "close", "gives": "recorded"},
                    *collected(*STEPS[place + 1 :]),
                    {"do": "combine", "gives": "recorded"},
                ],
            )
        )
    cut = play("signed").sent["share"][3][:-1]
    late = [
        step
        for place, phase in enumerate(STEPS)
        for step in (
            *(received(before, 3, "ignored") for before in STEPS[:place]),
            *(received(before, 3, "ignored", _second(before)) for before in STEPS[max(0, place - 1) : place]),
            *collected(phase),
        )
    ]
    few = [received("advertise", user, "taken") for user in (0, 2, 3)]
    closes: list[Step] = [{"do": "close", "gives": "TooFewSurvivorsError"}]
    again: list[Step] = [{"do": "close", "gives": "UsageError"}]
    silent: Step = {"do": "receive all", "phase": "mask", "without": [2, 3]}
    unreleased: Step = {"do": "receive all", "phase": "unmask", "without": [6]}
    before = ("advertise", "share", "mask", "agree")
    return [
        *found,
        server("late messages", [*late, {"do": "combine", "gives": "recorded"}]),
        server(
            "a message cut, then whole",
            [
                *collected("advertise"),
                received("share", 3, "WireError", cut),
                received("share", 3, "taken"),
                {"do": "receive all", "phase": "share", "without": [3]},
                {"do": "close", "gives": "recorded"},
            ],
        ),
        server("failed since advertise", [*few, *closes, received("advertise", 5, "ignored"), *again]),
        server(
            "failed since mask",
            [*collected("advertise", "share"), silent, *closes, received("mask", 2, "ignored"), *again],
            "plain",
        ),
        server(
            "failed since unmask", [*collected(*before), unreleased, *closes, received("unmask", 6, "ignored"), *again]
        ),
        server("done", [*collected(*STEPS), received("unmask", 0, "ignored"), *again]),
    ]


@cache
def enrolment() -> Document:
    """The enrolment of enrolment.json."""
    found: Document = enrolments.enrolled()["cases"][0]
    return found


def _enrolling() -> list[Document]:
    case = enrolment()
    plan = charter_plan()
    shown = wire.decode(wire.NonceCommitments, bytes.fromhex(case["commitments_message"]), plan=plan)
    nonces = wire.decode(wire.NonceReveals, bytes.fromhex(case["reveals_message"]), plan=plan)
    cut = bytes.fromhex(case["commitments_message"])[:-1]
    reversed_ones = wire.encode(replace(shown, commitments=shown.commitments[::-1]))
    other = wire.encode(replace(shown, context=OTHER))
    others = wire.encode(replace(nonces, context=OTHER))

    def enrolling(name: str, *steps: Step) -> Document:
        return script(name, "enrolling", steps, user=0)

    return [
        enrolling("every message twice", *takes("commit", "reveal", "reveal", "finish", "finish")),
        enrolling("commitments cut, then whole", *takes("commit"), given("reveal", cut, "WireError"), *takes("reveal")),
        enrolling(
            "steps out of order, then in order",
            *refuses("FaultyServerError", "reveal"),
            *takes("commit"),
            *refuses("FaultyServerError", "finish"),
            *takes("reveal", "finish"),
        ),
        enrolling(
            "other commitments once it has revealed, then its nonces",
            *takes("commit", "reveal"),
            given("reveal", reversed_ones, "FaultyServerError"),
            *takes("reveal", "finish"),
        ),
        enrolling(
            "dead since reveal",
            *takes("commit"),
            given("reveal", other, "FaultyServerError"),
            *refuses("FaultyServerError", "reveal", "finish"),
        ),
        enrolling(
            "dead since finish",
            *takes("commit", "reveal"),
            given("finish", others, "FaultyServerError"),
            *refuses("FaultyServerError", "finish", "reveal"),
        ),
    ]


def charter_plan() -> Plan:
    """The plan of the charter of enrolment.json."""
    return Plan.decode(bytes.fromhex(enrolment()["charter_plan"]))


def _enrolments() -> list[Document]:
    case, plan = enrolment(), charter_plan()
    own = wire.decode(wire.NonceCommitment, bytes.fromhex(case["users"][1]["commitment_message"]), plan=plan)
    revealed = wire.decode(wire.NonceReveal, bytes.fromhex(case["users"][1]["reveal_message"]), plan=plan)
    private = bytes.fromhex(case["users"][1]["identity_private"])
    signer = type(identity("nobody")).from_private_bytes(private)
    commitment = hashing.digest("enrol/nonce", own.context, hashing.index_bytes(1), hashed("a second nonce"))
    signature = signer.sign("commit", own.context, hashing.index_bytes(1), commitment)
    second = replace(own, commitment=commitment, signature=signature)
    another = replace(revealed, nonce=hashed("a second nonce"))
    again: list[Step] = [{"do": "close", "gives": "UsageError"}]

    def server(name: str, *steps: Step) -> Document:
        return script(name, "enrolment", steps)

    def twice(phase: str, message: Any) -> list[Step]:
        return [
            received(phase, 1, "taken"),
            received(phase, 1, "FaultyUserError", message),
            received(phase, 1, "ignored"),
            {"do": "receive all", "phase": phase, "without": [1]},
            {"do": "close", "gives": "recorded"},
        ]

    def withheld(phase: str) -> list[Step]:
        return [
            {"do": "receive all", "phase": phase, "without": [1]},
            {"do": "close", "gives": "WithheldError"},
            received(phase, 1, "UsageError"),
            *again,
        ]

    return [
        server("two different commitments", *twice("commit", second), *collected("reveal")),
        server("two different nonces", *collected("commit"), *twice("reveal", another)),
        server("a late commitment", *collected("commit"), received("commit", 1, "WireError"), *collected("reveal")),
        server("failed since commit", *withheld("commit")),
        server("failed since reveal", *collected("commit"), *withheld("reveal")),
        server("over", *collected("commit", "reveal"), received("reveal", 1, "UsageError"), *again),
    ]
