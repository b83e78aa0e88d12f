"""Vectors of settling: machines of the round `signed` that get its range, scales and model after keys and shares."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import plans
from material import hashed, identity
from scripts import Document, Step, collected, given, received, refuses, script, split, takes
from whole_rounds import SETTINGS, play

from heterosag.plan import Plan
from heterosag.protocol import Client, Policy, RoundId
from heterosag.protocol.rounding import Rounding
from heterosag.protocol.update import Update

_SIGNED = SETTINGS["signed"]
_BEGINS = {"plan": "frame", "model": bytes(32).hex()}


@cache
def _plans() -> dict[str, Plan]:
    plan = _SIGNED.plan
    arguments = plans.arguments_of_round("signed")
    return {
        "recorded": plan,
        "frame": plan.with_value_range((-1.0, 1.0), []),
        "another range": plan.with_value_range((-0.75, 1.0)),
        "other scales": plan.with_value_range((-0.75, 1.25), [0.5, 2.0]),
        "no scales": plan.with_value_range((-0.75, 1.25), []),
        "another frame": Plan.build(**{**arguments, "dropout": 0.2}),
    }


def settles(gives: str = "settled", **changed: Any) -> Step:
    """A machine is given plan and model of the round, as recorded but for these."""
    return {"do": "settle", **changed, "gives": gives}


def settled() -> Document:
    """settling.json."""
    about = (
        "Machines of the whole round signed that begin with another range, scales and model, and are settled before "
        "mask. A step has the plan, model, session, number and metrics_only that differ from the recorded ones."
    )
    found = split(about, [*_settled_clients(), *_settled_servers(), *_clients_settled_again(), *_servers_not_settled()])
    return {**found, "plans": {name: plan.encode().hex() for name, plan in _plans().items() if name != "recorded"}}


_CHANGES: dict[str, Document] = {
    "another range": {"plan": "another range"},
    "other scales": {"plan": "other scales"},
    "no scales": {"plan": "no scales"},
    "another model": {"model": hashed("another model").hex()},
    "metrics alone": {"metrics_only": True},
}
_REFUSED: dict[str, Document] = {
    "another number": {"number": 7},
    "another session": {"session": b"another session".hex()},
    "another frame": {"plan": "another frame"},
}


def _masked(changed: Document) -> bytes:
    """What user 0 sends in mask if the round is settled otherwise."""
    recorded = _SIGNED.round_id
    plan = _plans()[changed.get("plan", "recorded")]
    model = bytes.fromhex(changed["model"]) if "model" in changed else recorded.model
    alone = changed.get("metrics_only", False)
    round_id = RoundId(session=recorded.session, number=recorded.number, model=model, metrics_only=alone)
    client = Client(
        plan,
        plan.users[0],
        round_id,
        identity=identity("signed", 0),
        directory=_SIGNED.directory(),
        policy=Policy.any_plan(),
    )
    asked = play("signed").asked
    for step in ("advertise", "share"):
        _SIGNED.answer(client, step, asked[step][0])
    update = Update.of(
        client.plan, np.array([] if alone else _SIGNED.update(0)), weight=_SIGNED.weight(0), metrics=_SIGNED.metrics(0)
    )
    return client.mask(asked["mask"][0], update, rounding=Rounding(_SIGNED.rounding_key(0)))


def client(name: str, ends: str, *steps: Step) -> Document:
    """A client that is not settled when it begins."""
    return script(name, "client", steps, round="signed", user=0, begins=_BEGINS, client_is=ends)


def server(name: str, *steps: Step) -> Document:
    """A server that is not settled when it begins."""
    return script(name, "server", steps, round="signed", begins=_BEGINS)


def _settled_clients() -> list[Document]:
    begun = takes("advertise", "share")
    found = [
        client(
            "settled before mask",
            "released",
            *begun,
            settles(),
            *takes("mask"),
            settles(),
            *takes("mask", "agree", "unmask"),
        ),
        client("settled before it advertises", "masked", settles(), *begun, *takes("mask")),
        client(
            "settled otherwise, then as recorded",
            "masked",
            *begun,
            settles(**_CHANGES["another range"]),
            settles(),
            *takes("mask"),
        ),
        client(
            "not settled, then settled", "masked", *begun, *refuses("UsageError", "mask"), settles(), *takes("mask")
        ),
        client(
            "refusals, then settled",
            "masked",
            *begun,
            *(settles("FaultyServerError", **change) for change in _REFUSED.values()),
            settles(),
            *takes("mask"),
        ),
    ]
    for name, change in _CHANGES.items():
        masked: Step = {"do": "mask", "gives": _masked(change).hex()}
        once: Step = settles("FaultyServerError", **change)
        found += [
            client(f"settled with {name}", "masked", *begun, settles(**change), masked),
            client(f"settled with {name} once it has masked", "masked", *begun, settles(), *takes("mask"), once),
        ]
    otherwise = _CHANGES["another range"]
    masked = {"do": "mask", "gives": _masked(otherwise).hex()}
    agree = refuses("FaultyServerError", "agree")
    found.append(client("asked to agree under another range", "dead", *begun, settles(**otherwise), masked, *agree))
    found += [
        client(f"settled with {name}", "shared", *begun, settles("FaultyServerError", **change))
        for name, change in _REFUSED.items()
    ]
    return [*found, client("masked before it is settled", "shared", *begun, *refuses("UsageError", "mask"))]


def _settled_servers() -> list[Document]:
    shared: list[Step] = [*collected("advertise"), {"do": "receive all", "phase": "share", "without": []}]
    close: Step = {"do": "close", "gives": "recorded"}
    rest = [*collected("mask", "agree", "unmask"), {"do": "combine", "gives": "recorded"}]
    return [
        server("settled when everybody has shared", *shared, settles(), close, *rest),
        server("settled at once", settles(), *shared, close, *rest),
        server(
            "settled otherwise, then as recorded",
            settles(**_CHANGES["another model"]),
            *shared,
            settles(),
            close,
            *rest,
        ),
        *(
            server(
                f"a vector where the server is settled with {name}",
                *shared,
                settles(**change),
                close,
                received("mask", 0, "FaultyUserError"),
            )
            for name, change in _CHANGES.items()
            if name != "metrics alone"
        ),
        server("settled once share is closed", *shared, settles(), close, settles("UsageError")),
        *(server(f"settled with {name}", settles("UsageError", **change)) for name, change in _REFUSED.items()),
    ]


def _clients_settled_again() -> list[Document]:
    """Later than before mask, when dead, and what a client does after a refusal."""
    begun, masked = takes("advertise", "share"), [settles(), *takes("mask")]
    otherwise = settles("FaultyServerError", **_CHANGES["another range"])
    junk = given("share", b"\x93junk", "FaultyServerError")  # it has shared: this ends the round for the client
    return [
        client(
            "refusals once it has masked, then as before",
            "released",
            *begun,
            *masked,
            otherwise,
            *takes("mask", "agree"),
            otherwise,
            settles(),
            *takes("unmask"),
            otherwise,
            settles(),
            *takes("unmask"),
        ),
        client(
            "not settled, and out of order",
            "masked",
            *takes("advertise"),
            *refuses("UsageError", "mask"),
            *takes("share"),
            given("mask", b"\x93junk", "UsageError"),
            *masked,
        ),
        client("dead, settled as it was, then otherwise", "dead", *begun, settles(), junk, settles(), otherwise),
        client(
            "dead before it is settled",
            "dead",
            *begun,
            junk,
            settles("FaultyServerError"),
            *refuses("UsageError", "mask"),
            *refuses("FaultyServerError", "agree"),
        ),
    ]


def _servers_not_settled() -> list[Document]:
    """A server that is not settled, or cannot be, and what it does after a refusal."""
    shared: list[Step] = [*collected("advertise"), {"do": "receive all", "phase": "share", "without": []}]
    close: Step = {"do": "close", "gives": "recorded"}
    refused = [settles("UsageError", **change) for change in _REFUSED.values()]
    few = [received("advertise", user, "taken") for user in (0, 2, 3)]
    return [
        server(
            "refusals, then as recorded",
            *refused,
            *shared,
            *refused,
            settles(),
            close,
            settles("UsageError", **_CHANGES["another range"]),
            *collected("mask", "agree", "unmask"),
            {"do": "combine", "gives": "recorded"},
        ),
        server("not settled when share is closed", *shared, close, received("mask", 0, "FaultyUserError")),
        server(
            "settled once it has failed",
            *few,
            {"do": "close", "gives": "TooFewSurvivorsError"},
            settles("UsageError"),
        ),
        server(
            "a vector where the server is settled with metrics alone",
            *shared,
            settles(**_CHANGES["metrics alone"]),
            close,
            received("mask", 0, "WireError"),
        ),
    ]
