"""The test vectors as another implementation reads them: nothing here knows the generator."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from heterosag.crypto.field import element_from_bytes
from heterosag.crypto.identity import Identity
from heterosag.crypto.keys import RoundSecrets, mask_private_key
from heterosag.plan import Plan
from heterosag.protocol import Client, MemoryReleaseLog, Policy, RoundId
from heterosag.protocol.client import Polynomials
from heterosag.protocol.enrolment import Charter, Enrolling
from heterosag.protocol.rounding import Rounding

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "vectors"
Case = dict[str, Any]

unhex = bytes.fromhex


@cache
def load(name: str) -> Case:
    found: Case = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return found


def cases(name: str, *functions: str) -> list[Case]:
    return [case for case in load(name)["cases"] if not functions or case["function"] in functions]


def plan_of(recipe: Case) -> Plan:
    seed = recipe.get("assignment_seed")
    return Plan.build(**{**recipe, "assignment_seed": unhex(seed) if isinstance(seed, str) else seed})


def round_id_of(case: Case) -> RoundId:
    return RoundId(
        session=unhex(case["session"]),
        number=case["number"],
        model=unhex(case["model"]),
        metrics_only=case.get("metrics_only", False),
    )


class Replay:
    """One of the whole rounds, from its file."""

    def __init__(self, name: str) -> None:
        self.case = case = load(f"round_{name}")["cases"][0]
        self.plan = Plan.decode(unhex(case["plan"]))
        self.round_id = round_id_of(case)
        self.directory = None
        if case["identities"]:
            self.directory = {user["name"]: unhex(user["identity_public"]) for user in case["users"]}
        self.asked = {
            (sent["phase"], user): unhex(sent["bytes"]) for sent in case["server_sends"] for user in sent["users"]
        }
        self.sent = {(sent["phase"], sent["user"]): unhex(sent["bytes"]) for sent in case["users_send"]}

    def client(self, index: int, log: MemoryReleaseLog | None = None) -> Client:
        user = self.case["users"][index]
        identity = Identity.from_private_bytes(unhex(user["identity_private"])) if self.directory else None
        return Client(
            self.plan,
            user["name"],
            self.round_id,
            identity=identity,
            directory=self.directory,
            trust_server=identity is None,
            policy=Policy.any_plan(),
            release_log=log,
        )

    def answer(self, client: Client, step: str, message: bytes, update: str = "") -> bytes:
        user = self.case["users"][self.plan.index(client.user)]
        if step == "advertise":
            return client.advertise(secrets=secrets_of(user))
        if step == "share":
            mask, own = (_elements(user[f"{kind}_polynomial"]) for kind in ("mask", "self"))
            return client.share(message, polynomials=Polynomials(mask=mask, self=own))
        if step == "mask":
            spoilt = {"nan": np.full(self.plan.dimension, np.nan), "zeros": np.zeros(self.plan.dimension)}
            return client.mask(
                message,
                spoilt.get(update, np.array(user["update"])),
                weight=user["weight"],
                metrics=user["metrics"],
                rounding=Rounding(unhex(user["rounding_key"])),
            )
        return client.agree(message) if step == "agree" else client.unmask(message)

    def take(self, client: Client, steps: list[str]) -> None:
        index = self.plan.index(client.user)
        for step in steps:
            self.answer(client, step, self.asked.get((step, index), b""))


def secrets_of(user: Case) -> RoundSecrets:
    mask_secret = element_from_bytes(unhex(user["mask_secret"]))
    return RoundSecrets(
        mask_secret=mask_secret,
        self_secret=element_from_bytes(unhex(user["self_secret"])),
        mask_key=mask_private_key(mask_secret),
        seal_key=X25519PrivateKey.from_private_bytes(unhex(user["seal_private"])),
    )


def _elements(written: list[str]) -> list[int]:
    return [element_from_bytes(unhex(one)) for one in written]


class Enrolled:
    """The enrolment of its file."""

    def __init__(self) -> None:
        self.case = case = cases("enrolment")[0]
        self.charter = Charter(epoch=unhex(case["epoch"]), plan=plan_of(case["recipe"]))
        self.names = self.charter.plan.users
        self.directory = {self.names[user["index"]]: unhex(user["identity_public"]) for user in case["users"]}

    def user(self, index: int, step: str) -> Enrolling:
        """A user before the step named."""
        entry = self.case["users"][index]
        identity = Identity.from_private_bytes(unhex(entry["identity_private"]))
        person = Enrolling(
            self.charter, self.names[index], identity=identity, directory=self.directory, policy=Policy.any_plan()
        )
        assert person.commit(nonce=unhex(entry["nonce"])).hex() == entry["commitment_message"]
        if step == "finish":
            assert person.reveal(unhex(self.case["commitments_message"])).hex() == entry["reveal_message"]
        return person
