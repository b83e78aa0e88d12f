"""Vectors of whole rounds, every message of them, with users who drop out at different phases."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import plans
from material import document, elements_hex, fraction, hashed, identity, polynomial, round_secrets, whole

from heterosag.aggregation.combine import combine
from heterosag.aggregation.rules import RULES
from heterosag.crypto.field import element_to_bytes
from heterosag.crypto.keys import public_bytes
from heterosag.plan import Plan, User
from heterosag.protocol import Client, Decoded, Policy, RoundId, Server
from heterosag.protocol.client import Polynomials
from heterosag.protocol.encoding import decode, fill_cells
from heterosag.protocol.rounding import Rounding
from heterosag.protocol.update import Update

Document = dict[str, Any]

PHASES = ("advertise", "share", "mask", "agree", "unmask")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a round is made from; everything else follows."""

    name: str
    round_id: RoundId
    identities: bool
    dropped: dict[int, str]

    @property
    def plan(self) -> Plan:
        return plans.plan_of_round(self.name)

    @property
    def phases(self) -> tuple[str, ...]:
        return PHASES if self.identities else tuple(phase for phase in PHASES if phase != "agree")

    def directory(self) -> dict[User, bytes] | None:
        if not self.identities:
            return None
        return {user: identity(self.name, index).public for index, user in enumerate(self.plan.users)}

    def update(self, index: int) -> list[float]:
        if self.plan.noise_multiplier:
            return self._sixteenths(index)
        return [fraction(-1.2, 1.4, self.name, index, "update", i) for i in range(self.plan.dimension)]

    def _sixteenths(self, index: int) -> list[float]:
        """An update whose squares add up exactly in any order, so that its norm is the same on every machine."""
        most = 2 * (index % 4)  # a user of zeros, and others within the clipping norm and beyond it
        places = range(self.plan.dimension)
        return [(whole(2 * most + 1, self.name, index, "update", i) - most) / 16 for i in places]

    def weight(self, index: int) -> int:
        return 1 + whole(self.plan.max_weight, self.name, index, "weight")

    def metrics(self, index: int) -> dict[str, float]:
        return {name: fraction(-2, 5, self.name, index, "metric", name) for name in self.plan.metrics}

    def rounding_key(self, index: int) -> bytes:
        return hashed(self.name, index, "rounding key")

    def polynomials(self, index: int) -> Polynomials:
        secrets, threshold = round_secrets(self.name, index), self.plan.share_threshold
        return Polynomials(
            mask=polynomial(secrets.mask_secret, threshold, self.name, index, "mask"),
            self=polynomial(secrets.self_secret, threshold, self.name, index, "self"),
        )

    def client(self, index: int) -> Client:
        user = self.plan.users[index]
        if not self.identities:
            return Client(self.plan, user, self.round_id, trust_server=True, policy=Policy.any_plan())
        signer = identity(self.name, index)
        return Client(
            self.plan, user, self.round_id, identity=signer, directory=self.directory(), policy=Policy.any_plan()
        )

    def answer(self, client: Client, phase: str, message: bytes) -> bytes:
        index = self.plan.index(client.user)
        if phase == "advertise":
            return client.advertise(secrets=round_secrets(self.name, index))
        if phase == "share":
            return client.share(message, polynomials=self.polynomials(index))
        if phase == "mask":
            return client.mask(
                message,
                np.array(self.update(index)),
                weight=self.weight(index),
                metrics=self.metrics(index),
                rounding=Rounding(self.rounding_key(index)),
            )
        return client.agree(message) if phase == "agree" else client.unmask(message)


SETTINGS = {
    "plain": Setting(
        name="plain",
        round_id=RoundId(session=b"vectors", number=5),
        identities=False,
        dropped={1: "advertise", 4: "share", 8: "mask", 0: "unmask"},
    ),
    "signed": Setting(
        name="signed",
        round_id=RoundId(session=hashed("session")[:16], number=2**40, model=hashed("model")),
        identities=True,
        dropped={4: "mask", 2: "agree"},
    ),
    "sparse": Setting(
        name="sparse",
        round_id=RoundId(session=b"sparse", number=1, model=hashed("sparse model")),
        identities=True,
        dropped={9: "share", 1: "mask", 10: "agree", 0: "unmask"},
    ),
    "noise": Setting(
        name="noise",
        round_id=RoundId(session=b"noise", number=9),
        identities=False,
        dropped={7: "mask", 1: "unmask"},
    ),
}


@dataclass(frozen=True, kw_only=True)
class Played:
    """A round that was played: by phase what the server asked each user, and what each user sent."""

    setting: Setting
    asked: dict[str, dict[int, bytes]]
    sent: dict[str, dict[int, bytes]]
    decoded: Decoded


@cache
def play(name: str) -> Played:
    """Play a round with everybody's secrets from their names."""
    setting = SETTINGS[name]
    plan = setting.plan
    server = Server(plan, setting.round_id, directory=setting.directory())
    clients = {index: setting.client(index) for index in range(len(plan.users))}
    waiting = dict.fromkeys(clients, b"")
    asked: dict[str, dict[int, bytes]] = {}
    sent: dict[str, dict[int, bytes]] = {}
    for phase in setting.phases:
        asked[phase] = waiting
        sent[phase] = {}
        for index, message in waiting.items():
            gone = setting.dropped.get(index)
            if gone is not None and PHASES.index(gone) <= PHASES.index(phase):
                continue
            sent[phase][index] = setting.answer(clients[index], phase, message)
            server.receive(plan.users[index], sent[phase][index])
        waiting = {plan.index(user): message for user, message in server.close().items()}
    return Played(setting=setting, asked=asked, sent=sent, decoded=server.decoded)


def plain() -> Document:
    """round_plain.json."""
    about = (
        "A whole round without identities: nine users in three subgroups, one drops out before each of the four "
        "phases. Everything secret is given, every message in full, and the sums and means the server ends with."
    )
    return document(about, [_case(play("plain"))])


def signed() -> Document:
    """round_signed.json."""
    about = (
        "A whole round with identities, weights, a metric and rotation: eight users in four subgroups. One drops out "
        "before masking, so that its whole subgroup is left out, and one before agreeing."
    )
    return document(about, [_case(play("signed"))])


def sparse() -> Document:
    """round_sparse.json."""
    about = (
        "A whole round on a sparse sharing graph, with identities: twelve users of four holders each, of whom three "
        "rebuild a secret. One drops out before each phase but the first, two of them holders of one dealer."
    )
    return document(about, [_case(play("sparse"))])


def noisy() -> Document:
    """round_noise.json."""
    about = (
        "A whole round with noise and an adaptive clip: the trials take their words from each user's rounding key, "
        "which a client draws from the system's entropy. Ranges, squares and survivors of a block are such that all "
        "float operations on the page are exact or rounded once. within_norm is the decoded clip bit."
    )
    return document(about, [_case(play("noise"))])


def _case(played: Played) -> Document:
    setting = played.setting
    plan, round_id = setting.plan, setting.round_id
    context = {phase: next(iter(messages.values()))[5:37].hex() for phase, messages in played.sent.items()}
    combined = combine(plan, played.decoded, RULES["mean"])
    return {
        "name": setting.name,
        "recipe": plans.written(plans.arguments_of_round(setting.name)),
        "plan": plan.encode().hex(),
        "session": round_id.session.hex(),
        "number": round_id.number,
        "model": round_id.model.hex(),
        "identities": setting.identities,
        "phases": list(setting.phases),
        "c0": context["advertise"],
        "c1": context["share"],
        "c2": context["mask"],
        "dropped": [[index, phase] for index, phase in sorted(setting.dropped.items())],
        "users": [_user(setting, index) for index in range(len(plan.users))],
        "server_sends": [entry for phase in setting.phases for entry in _asked(phase, played.asked[phase])],
        "users_send": [
            {"phase": phase, "user": index, "bytes": data.hex()}
            for phase in setting.phases
            for index, data in played.sent[phase].items()
        ],
        "survivors": [plan.index(user) for user in played.decoded.survivors],
        "blocks": _blocks(plan, played.decoded),
        "metrics": combined.metrics,
        "aggregate": combined.vector.tolist(),
        **({} if combined.within_norm is None else {"within_norm": combined.within_norm}),
    }


def _user(setting: Setting, index: int) -> Document:
    plan = setting.plan
    secrets, drawn = round_secrets(setting.name, index), setting.polynomials(index)
    update = Update.of(
        plan, np.array(setting.update(index)), weight=setting.weight(index), metrics=setting.metrics(index)
    )
    cells = fill_cells(plan, plan.assignment[index], update, Rounding(setting.rounding_key(index)))
    found: Document = {
        "index": index,
        "name": plan.users[index],
        "subgroup": plan.assignment[index],
        "mask_secret": element_to_bytes(secrets.mask_secret).hex(),
        "self_secret": element_to_bytes(secrets.self_secret).hex(),
        "seal_private": secrets.seal_key.private_bytes_raw().hex(),
        "mask_public": public_bytes(secrets.mask_key).hex(),
        "seal_public": public_bytes(secrets.seal_key).hex(),
        "mask_polynomial": elements_hex(drawn.mask),
        "self_polynomial": elements_hex(drawn.self),
        "rounding_key": setting.rounding_key(index).hex(),
        "update": setting.update(index),
        "weight": setting.weight(index),
        "metrics": setting.metrics(index),
        "cells": [{"elements": cell.elements.tolist(), "auxiliary": cell.auxiliary.tolist()} for cell in cells],
    }
    if setting.identities:
        found["identity_private"] = hashed(setting.name, index, "identity").hex()
        found["identity_public"] = identity(setting.name, index).public.hex()
    return found


def _asked(phase: str, messages: dict[int, bytes]) -> list[Document]:
    """The server's messages, those for several users once."""
    to: dict[bytes, list[int]] = {}
    for index, data in messages.items():
        if data:
            to.setdefault(data, []).append(index)
    return [{"phase": phase, "users": users, "bytes": data.hex()} for data, users in to.items()]


def _blocks(plan: Plan, decoded: Decoded) -> list[Document]:
    found = []
    for segment, blocks in enumerate(decoded.segments):
        for block in blocks:
            mean = decode(plan, block.block, block.elements, block.survivors, block.weight, segment=segment)
            found.append(
                {
                    "segment": segment,
                    "subgroups": list(block.block.subgroups),
                    "survivors": block.survivors,
                    "sums": block.elements.tolist(),
                    "auxiliary": block.auxiliary,
                    "mean": mean.tolist(),
                }
            )
    if decoded.metrics is not None:
        block = decoded.metrics
        found.append(
            {
                "segment": len(plan.segments),
                "subgroups": list(block.block.subgroups),
                "survivors": block.survivors,
                "sums": block.elements.tolist(),
                "auxiliary": block.auxiliary,
                "mean": [],
            }
        )
    return found
