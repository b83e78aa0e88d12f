"""The Round tab: a small round with real keys, shares and masks, told phase by phase.

One user is watched: its messages are taken apart, and what it and the server know is said after every phase. The keys
are fresh for every request and belong to nobody; the updates are drawn from a seed.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from heterosag.aggregation.combine import combine
from heterosag.aggregation.rules import RULES
from heterosag.crypto.field import ELEMENT_SIZE
from heterosag.crypto.seal import SEALED_SIZE
from heterosag.errors import HeteroSagError, PlanError
from heterosag.plan import Plan
from heterosag.protocol import Client, RoundId, Server
from heterosag.protocol import messages as wire
from heterosag.protocol.cells import unpack_cells
from heterosag.protocol.encoding import fill_cells
from heterosag.protocol.rounding import Rounding
from heterosag.protocol.transitions import Phase
from heterosag.protocol.update import Update
from heterosag.simulation.inputs import directory_of, identities_of
from heterosag.simulation.workers import make_clients
from heterosag.studio.forms import Form

__all__ = ["USERS", "step_through"]

USERS = 12
_DIMENSION = 24
_SHOWN = 6  # elements of a vector, and bytes of a key, that the page shows

_TITLES = {
    Phase.ADVERTISE: "Advertise keys",
    Phase.SHARE: "Share secrets",
    Phase.MASK: "Send masked vectors",
    Phase.AGREE: "Agree on the survivors",
    Phase.UNMASK: "Unmask the sums",
}
_WHAT = {
    Phase.ADVERTISE: "Every user makes two key pairs for this round only and sends the public halves.",
    Phase.SHARE: "Every user splits its two secrets into shares, seals one of each for every other user, and sends "
    "them through the server.",
    Phase.MASK: "Every user rounds its update to its block's levels, adds its masks in the block's ring, and sends "
    "the result.",
    Phase.AGREE: "The server says who survived; every survivor signs that one set, once.",
    Phase.UNMASK: "Every survivor releases one share for each user: of the self mask of those who survived, of the "
    "pair masks of those who dropped out. Never both.",
}
_LEFT_OUT = (
    "It is left out with its subgroup, of which too few users are left, and is asked for nothing more: what it has "
    "sent is in no sum."
)


@dataclass(slots=True, kw_only=True)
class _Told:
    """A round under way, and the story so far."""

    plan: Plan
    server: Server
    clients: dict[Any, Client]
    updates: npt.NDArray[np.float64]
    watched: int
    signed: bool
    waiting: dict[Any, bytes] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    steps: list[dict[str, Any]] = field(default_factory=list)


def step_through(form: Form) -> dict[str, Any]:
    """A whole round as a list of steps, and its result or the error it ended with."""
    watched = form.integer("watched", 0, 0, USERS - 1)
    signed = form.flag("identities")
    leaving = {phase: form.places(f"gone_{phase.value}", USERS) for phase in Phase}
    if any(watched in users for users in leaving.values()):
        raise PlanError("watched", "is gone before the end: watch a user who stays, or let this one stay")
    told = _begin(form.integer("seed", 0, 0, 2**32), watched, signed)
    error = None
    try:
        for phase in Phase:
            if phase is not Phase.AGREE or signed:
                told.gone |= leaving[phase]
                _take(told, phase)
        result = _result(told)
    except HeteroSagError as problem:
        error, result = {"kind": type(problem).__name__, "message": str(problem)}, None
    return {"plan": _setting(told.plan), "steps": told.steps, "result": result, "error": error}


def _begin(seed: int, watched: int, signed: bool) -> _Told:
    plan = Plan.build(
        [6, 6],
        [3, 9],
        _DIMENSION,
        value_range=1.0,
        ranges="single",  # what is sent can be read off what was trained
        rotate=False,
        subgroup_size=3,
        min_survivors=2,
        dropout=0.1,
    )
    round_id = RoundId(session=secrets.token_bytes(16), number=1)
    identities = identities_of(plan, signed)
    return _Told(
        plan=plan,
        server=Server(plan, round_id, directory=directory_of(identities)),
        clients=make_clients(plan, round_id, plan.users, identities=identities),
        updates=np.random.default_rng(seed).uniform(-1, 1, (len(plan.users), plan.dimension)),
        watched=watched,
        signed=signed,
        waiting=dict.fromkeys(plan.users, b""),
    )


def _take(told: _Told, phase: Phase) -> None:
    """One phase: everybody who is left answers, the server closes it, and both tell what they know."""
    asked, sent = dict(told.waiting), {}
    roundings = {user: Rounding.from_system() for user in told.plan.users}
    for user in asked:
        if told.plan.index(user) not in told.gone:
            sent[user] = _answer(told, phase, user, roundings[user])
            told.server.receive(user, sent[user])
    step: dict[str, Any] = {
        "phase": phase.value,
        "title": _TITLES[phase],
        "words": _WHAT[phase],
        "up": [len(sent.get(user, b"")) for user in told.plan.users],
        "down": [len(asked.get(user, b"")) for user in told.plan.users],
        "gone": sorted(told.gone),
        "message": _dissect(told, phase, sent),
        "vector": _vectors(told, sent, roundings[told.watched])
        if phase is Phase.MASK and told.watched in sent
        else None,
    }
    told.steps.append(step)
    told.waiting = told.server.close()
    asked_again = told.waiting if phase is not Phase.UNMASK else sent
    knows = _user_knows(told, phase) if told.watched in asked_again else [_LEFT_OUT]
    step |= {"server_knows": _server_knows(told, phase, sent), "user_knows": knows}


def _answer(told: _Told, phase: Phase, user: Any, rounding: Rounding) -> bytes:
    update = told.updates[told.plan.index(user)]
    return told.clients[user].answer(phase, told.waiting[user], update, rounding=rounding)


# --- what crosses -------------------------------------------------------------------------------------------------


def _dissect(told: _Told, phase: Phase, sent: Mapping[Any, bytes]) -> list[dict[str, Any]]:
    """The watched user's message, part by part."""
    if told.watched not in sent:
        return [{"name": "nothing", "bytes": 0, "shown": "left out with its subgroup"}]
    data = sent[told.watched]
    rows = _DISSECT[phase](told, data)
    known = sum(size for _, size, _ in rows)
    rows.append(("framing", len(data) - known, "kind, version, lengths"))
    return [{"name": name, "bytes": size, "shown": shown} for name, size, shown in rows]


_Row = tuple[str, int, str]


def _in_advertisement(told: _Told, data: bytes) -> list[_Row]:
    message = wire.decode(wire.Advertisement, data, plan=told.plan)
    keys = message.advertised
    return [
        ("context c0", len(message.context), _hex(message.context)),
        ("public key for sealing", len(keys.seal_key), _hex(keys.seal_key)),
        ("public key for masks", len(keys.mask_key), _hex(keys.mask_key)),
        *([("signature", len(keys.signature), _hex(keys.signature))] if told.signed else []),
    ]


def _in_shares(told: _Told, data: bytes) -> list[_Row]:
    message = wire.decode(wire.Shares, data, plan=told.plan)
    holders = len(message.sealed) // SEALED_SIZE
    return [
        ("context c1", len(message.context), _hex(message.context)),
        (f"sealed pairs of shares for {holders} users", len(message.sealed), _hex(message.sealed)),
        ("commitments to them, and to its own", len(message.commitments), _hex(message.commitments)),
        ("commitment to its self-mask secret", len(message.secret_commitment), _hex(message.secret_commitment)),
    ]


def _in_vector(told: _Told, data: bytes) -> list[_Row]:
    message = wire.decode(wire.MaskedVector, data, plan=told.plan)
    return [
        ("context c2", len(message.context), _hex(message.context)),
        *([("signature", len(message.signature), _hex(message.signature))] if told.signed else []),
        ("masked vector, packed", len(message.vector), _hex(bytes(message.vector[:16]))),
    ]


def _in_agreement(told: _Told, data: bytes) -> list[_Row]:
    message = wire.decode(wire.Agreement, data, plan=told.plan)
    return [
        ("context c2", len(message.context), _hex(message.context)),
        ("signature on the survivor set", len(message.signature), _hex(message.signature)),
    ]


def _in_release(told: _Told, data: bytes) -> list[_Row]:
    message = wire.decode(wire.Released, data, plan=told.plan)
    own = ELEMENT_SIZE * len(told.waiting)
    pair = len(message.shares) - own
    return [
        ("context c2", len(message.context), _hex(message.context)),
        ("shares of survivors' self-mask secrets", own, _hex(message.shares)),
        ("shares of dropped out users' mask secrets", pair, "none dropped out" if not pair else f"{pair} bytes"),
    ]


_DISSECT = {
    Phase.ADVERTISE: _in_advertisement,
    Phase.SHARE: _in_shares,
    Phase.MASK: _in_vector,
    Phase.AGREE: _in_agreement,
    Phase.UNMASK: _in_release,
}


def _vectors(told: _Told, sent: Mapping[Any, bytes], rounding: Rounding) -> list[dict[str, Any]] | None:
    """The watched user's first elements of every segment: true, as levels, and as the server sees them."""
    if told.watched not in sent:
        return None
    plan, subgroup = told.plan, told.plan.assignment[told.watched]
    cells = plan.cells(subgroup)
    update = told.updates[told.watched]
    plain = fill_cells(plan, subgroup, Update.of(plan, update), rounding)
    message = wire.decode(wire.MaskedVector, sent[told.watched], plan=plan)
    return [
        {
            "segment": cell.segment,
            "block": list(cell.block.subgroups),
            "level": cell.block.level,
            "bits": cell.bits,
            "true": [round(float(value), 3) for value in update[cell.start : cell.start + _SHOWN]],
            "levels": clear.elements[:_SHOWN].tolist(),
            "masked": hidden.elements[:_SHOWN].tolist(),
        }
        for cell, clear, hidden in zip(cells, plain, unpack_cells(message.vector, cells), strict=True)
    ]


# --- who knows what -----------------------------------------------------------------------------------------------


def _server_knows(told: _Told, phase: Phase, sent: Mapping[Any, bytes]) -> list[str]:
    count, dropped = len(sent), len(told.gone)
    if phase is Phase.ADVERTISE:
        return [f"{2 * count} public keys of {count} users.", "No secret, no share, no vector."]
    if phase is Phase.SHARE:
        return [f"{count} bundles of sealed shares, which it passes on and cannot open.", "Commitments to all of them."]
    if phase is Phase.MASK:
        return [
            f"{count} masked vectors, added up by subgroup and segment as they came; each looks like noise.",
            f"Who dropped out: {dropped} so far.",
        ]
    if phase is Phase.AGREE:
        return [f"{count} signatures on one survivor set, {told.plan.agree_quorum} are needed."]
    blocks = sum(len(segment) for segment in told.server.decoded.segments)
    return [
        f"The exact sums of {blocks} blocks of one or two subgroups.",
        f"{told.plan.share_threshold} shares rebuilt one secret of each user: the self mask of survivors, the pair "
        "masks of the dropped out.",
        "No user's vector.",
    ]


def _user_knows(told: _Told, phase: Phase) -> list[str]:
    count = len(told.waiting)
    if phase is Phase.ADVERTISE:
        return ["Its own two private keys, which never leave it.", f"After this: everybody's keys ({count} users)."]
    if phase is Phase.SHARE:
        return [
            "The seeds of its masks with every user of its blocks, from Diffie-Hellman.",
            f"After this: one share of each secret of {count - 1} others, too few to rebuild any "
            f"({told.plan.share_threshold} are needed).",
        ]
    if phase is Phase.MASK:
        return ["Its own update and masks.", f"After this: that {count} users are said to have survived."]
    if phase is Phase.AGREE:
        return [f"After this: that a quorum of {told.plan.agree_quorum} signed the very set it signed."]
    return ["Nothing of anybody else's update. Its secrets of this round are forgotten."]


def _result(told: _Told) -> dict[str, Any]:
    """The decoded sums against the mean of the survivors' true updates."""
    found = combine(told.plan, told.server.decoded, RULES["mean"])
    alive = [told.plan.index(user) for user in found.survivors]
    true = told.updates[alive].mean(axis=0)
    return {
        "survivors": alive,
        "robustness": found.inference_robustness,
        "blocks": [
            {
                "segment": block.segment,
                "subgroups": list(block.subgroups),
                "survivors": block.survivors,
                "sums": block.sums[:_SHOWN].tolist(),
            }
            for segment in found.blocks
            for block in segment
        ],
        "mean": [round(float(value), 3) for value in found.vector],
        "true": [round(float(value), 3) for value in true],
        "largest_distance": float(np.abs(found.vector - true).max()),
    }


def _setting(plan: Plan) -> dict[str, Any]:
    return {
        "users": len(plan.users),
        "dimension": plan.dimension,
        "segments": len(plan.segments),
        "assignment": list(plan.assignment),
        "levels": list(plan.levels),
        "threshold": plan.share_threshold,
    }


def _hex(data: bytes) -> str:
    return f"{bytes(data[:_SHOWN]).hex(' ')} ..."
