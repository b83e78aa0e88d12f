"""Vectors of what machines do step after step: messages repeated, and which of several errors comes first."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from scripts import (
    OTHER,
    STEPS,
    Document,
    Step,
    charter_plan,
    collected,
    enrolment,
    given,
    received,
    refuses,
    repeated,
    script,
    split,
    takes,
)
from server_refusals import sent
from whole_rounds import play

from heterosag.protocol import messages as wire

_JUNK = b"\x93junk"
_METRICS: Step = {"do": "settle", "metrics_only": True, "gives": "UsageError"}


def described() -> Document:
    """machines.json."""
    about = (
        "What clients and servers of the whole rounds and of the enrolment do step after step. An identical message "
        "changes nothing, a second, different one is refused, and what an error has ended stays ended."
    )
    return split(about, [*repeated(), *_clients(), *_servers(), *_enrolling(), *_enrolments()])


def masks(gives: str, update: str, message: bytes | None = None) -> Step:
    """A client masks another update, for the recorded Inbox or for other bytes."""
    return {"do": "mask", "update": update, "gives": gives, **({} if message is None else {"message": message.hex()})}


def _clients() -> list[Document]:
    def client(name: str, ends: str, *steps: Step, round_name: str = "signed", user: int = 0) -> Document:
        return script(name, "client", steps, round=round_name, user=user, client_is=ends)

    def junk(gives: str, *steps: str) -> list[Step]:
        return [given(step, _JUNK, gives) for step in steps]

    return [
        client(
            "asked to advertise after every step",
            "released",
            *(step for name in STEPS for step in takes(name, "advertise")),
        ),
        client(
            "bytes that do not decode, out of order",
            "shared",
            *junk("FaultyServerError", "share"),
            *takes("advertise"),
            *junk("FaultyServerError", "mask", "agree", "unmask"),
            *takes("share"),
        ),
        client(
            "bytes that do not decode, for a step that it has taken",
            "dead",
            *takes("advertise", "share"),
            *junk("FaultyServerError", "share", "share", "mask", "agree", "unmask"),
            *refuses("FaultyServerError", "advertise"),
        ),
        client(
            "messages before, once it has released",
            "released",
            *takes(*STEPS, "advertise", "share", "agree"),
            *refuses("WireError", "mask"),
            *junk("FaultyServerError", "share", "mask", "agree", "unmask"),
            *refuses("WireError", "mask"),
            *takes("advertise", "share", "agree", "unmask"),
        ),
        client(
            "another update once it has masked",
            "released",
            *takes("advertise", "share", "mask"),
            masks("UsageError", "zeros"),
            masks("UsageError", "zeros", _JUNK),
            *takes("mask", "agree"),
            masks("UsageError", "zeros"),
            *takes("unmask"),
        ),
        client(
            "an update that is not finite, beside other errors",
            "masked",
            *takes("advertise"),
            masks("FaultyServerError", "nan"),
            *takes("share"),
            masks("UsageError", "nan", _JUNK),
            *junk("WireError", "mask"),
            *takes("mask"),
        ),
        client(
            "asked to agree without identities",
            "released",
            *takes("advertise"),
            *junk("FaultyServerError", "agree"),
            *takes("share", "mask"),
            *junk("FaultyServerError", "agree"),
            *takes("unmask"),
            *junk("FaultyServerError", "agree"),
            *takes("unmask"),
            round_name="plain",
            user=2,
        ),
        client(
            "settled with metrics alone, of which there are none",
            "masked",
            _METRICS,
            *takes("advertise", "share"),
            _METRICS,
            *takes("mask"),
            round_name="plain",
        ),
    ]


def _servers() -> list[Document]:
    def server(name: str, *steps: Step, round_name: str = "signed") -> Document:
        return script(name, "server", steps, round=round_name)

    def combines(gives: str) -> Step:
        return {"do": "combine", "gives": gives}

    few = [received("advertise", user, "taken") for user in (0, 2, 3)]
    closes: Step = {"do": "close", "gives": "TooFewSurvivorsError"}
    vector = sent("signed", "mask", 3)
    advertisement = play("signed").sent["advertise"][3]
    return [
        server(
            "combined before the round has ended",
            combines("UsageError"),
            *collected("advertise", "share"),
            combines("UsageError"),
            *collected("mask", "agree", "unmask"),
            combines("recorded"),
            combines("recorded"),
        ),
        server("combined after the round has failed", *few, closes, combines("UsageError")),
        server(
            "messages that do not decode, late or not",
            received("advertise", 3, "WireError", b""),
            received("advertise", 3, "WireError", _JUNK),
            *collected("advertise"),
            received("advertise", 3, "ignored", advertisement[:-1]),
            received("advertise", 3, "ignored", b"\x00\x01"),
            received("share", 3, "WireError", _JUNK),
            received("mask", 3, "WireError"),
            *collected("share", "mask", "agree", "unmask"),
            received("unmask", 3, "ignored", _JUNK),
            received("unmask", 3, "ignored", b""),
            combines("recorded"),
        ),
        server(
            "messages that do not decode, beside a good one",
            *collected("advertise"),
            received("share", 3, "taken"),
            received("share", 3, "FaultyUserError", _JUNK),
            received("mask", 3, "FaultyUserError"),
            received("advertise", 3, "ignored"),
            received("share", 3, "ignored"),
            {"do": "receive all", "phase": "share", "without": [3]},
            {"do": "close", "gives": "recorded"},
        ),
        server(
            "vectors with two errors, then a good one",
            *collected("advertise", "share"),
            received("mask", 3, "FaultyUserError", replace(vector, signature=bytes(64), vector=memoryview(b""))),
            received("mask", 3, "FaultyUserError", replace(vector, context=OTHER, complaints=[1, 0])),
            received("mask", 3, "WireError", replace(vector, complaints=[8])),
            received("mask", 3, "WireError", replace(vector, complaints=[1, 0])),
            *collected("mask", "agree", "unmask"),
            combines("recorded"),
        ),
        server(
            "settled with metrics alone, of which there are none",
            _METRICS,
            *collected("advertise", "share", "mask", "unmask"),
            combines("recorded"),
            round_name="plain",
        ),
    ]


def _enrolling() -> list[Document]:
    shown = wire.decode(wire.NonceReveals, bytes.fromhex(enrolment()["reveals_message"]), plan=charter_plan())
    other = given("finish", wire.encode(replace(shown, context=OTHER)), "FaultyServerError")

    def enrolling(name: str, *steps: Step) -> Document:
        return script(name, "enrolling", steps, user=0)

    def junk(step: str, gives: str) -> Step:
        return given(step, _JUNK, gives)

    again = refuses("FaultyServerError", "commit")
    return [
        enrolling(
            "asked to commit after every step",
            *takes("commit"),
            *again,
            *takes("reveal"),
            *again,
            *takes("finish"),
            *again,
            *takes("reveal", "finish"),
        ),
        enrolling(
            "other messages once it has the plan",
            *takes("commit", "reveal", "finish"),
            other,
            junk("finish", "FaultyServerError"),
            junk("reveal", "FaultyServerError"),
            *takes("reveal", "finish"),
        ),
        enrolling(
            "bytes that do not decode, in order and out of order",
            junk("reveal", "FaultyServerError"),
            *takes("commit"),
            junk("finish", "FaultyServerError"),
            junk("reveal", "WireError"),
            *takes("reveal"),
            junk("reveal", "FaultyServerError"),
            junk("finish", "WireError"),
            *takes("finish"),
        ),
        enrolling(
            "dead, and asked again",
            *takes("commit", "reveal"),
            other,
            *again,
            junk("reveal", "FaultyServerError"),
            junk("finish", "FaultyServerError"),
        ),
    ]


def _enrolments() -> list[Document]:
    def server(name: str, *steps: Any) -> Document:
        return script(name, "enrolment", steps)

    return [
        server(
            "messages that do not decode",
            received("commit", 1, "WireError", _JUNK),
            received("reveal", 1, "WireError"),
            received("commit", 1, "taken"),
            received("commit", 1, "WireError", _JUNK),
            received("commit", 1, "ignored"),
            {"do": "receive all", "phase": "commit", "without": [1]},
            {"do": "close", "gives": "recorded"},
            received("reveal", 1, "WireError", _JUNK),
            *collected("reveal"),
        ),
        server(
            "a message that does not decode, once it is over",
            *collected("commit", "reveal"),
            received("reveal", 1, "UsageError", _JUNK),
        ),
    ]
