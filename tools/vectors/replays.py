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
from heterosag.protocol import Client, MemoryReleaseLog, Policy, RoundId, Server
from heterosag.protocol.client import Polynomials
from heterosag.protocol.enrolment import Charter, Enrolling, Enrolment
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


def plan_of(arguments: Case) -> Plan:
    seed = arguments.get("assignment_seed")
    return Plan.build(**{**arguments, "assignment_seed": unhex(seed) if isinstance(seed, str) else seed})


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

    def client(
        self, index: int, log: MemoryReleaseLog | None = None, begins: tuple[Plan, RoundId] | None = None
    ) -> Client:
        user = self.case["users"][index]
        identity = Identity.from_private_bytes(unhex(user["identity_private"])) if self.directory else None
        plan, round_id = begins or (self.plan, self.round_id)
        return Client(
            plan,
            user["name"],
            round_id,
            identity=identity,
            directory=self.directory,
            trust_server=identity is None,
            policy=Policy.any_plan(),
            release_log=log,
            settled=begins is None,
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
            whole = np.array(user["update"])[: client.plan.dimension]  # nothing of it in a round of metrics alone
            return client.mask(
                message,
                spoilt.get(update, whole),
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


class Script:
    """A machine that takes the steps of a case; what each step gives is compared by the caller."""

    def __init__(self, file: str, case: Case) -> None:
        self.file, self.case, self.party = file, case, case["party"]
        if self.party in ("client", "server"):
            self.replay = Replay(case["round"])
            begins = self._settled(case["begins"]) if "begins" in case else None
            plan, round_id = begins or (self.replay.plan, self.replay.round_id)
            if self.party == "client":
                self.client = self.replay.client(case["user"], begins=begins)
            else:
                self.server = Server(plan, round_id, directory=self.replay.directory)
            return
        self.enrolled, self.open_phase = Enrolled(), ""
        enrolled = self.enrolled
        options: Case = {"directory": enrolled.directory}
        if self.party == "enrolment":
            self.enrolment = Enrolment(enrolled.charter, **options)
            return
        self.entry = enrolled.case["users"][case["user"]]
        identity = Identity.from_private_bytes(unhex(self.entry["identity_private"]))
        name = enrolled.names[case["user"]]
        self.enrolling = Enrolling(enrolled.charter, name, identity=identity, policy=Policy.any_plan(), **options)

    def _settled(self, given: Case) -> tuple[Plan, RoundId]:
        """The plan and the round that a step names, as recorded but for what it says."""
        recorded = self.replay.case
        plan = unhex(load(self.file)["plans"][given["plan"]]) if "plan" in given else self.replay.plan.encode()
        names = ("session", "number", "model")
        return Plan.decode(plan), round_id_of({name: recorded[name] for name in names} | given)

    def take(self, step: Case) -> Any:
        """What a step gives: bytes of a user, by recorded index what a server sends, or what is said in the file."""
        if step["do"] == "settle":
            (self.client if self.party == "client" else self.server).settle(*self._settled(step))
            return "settled"
        return getattr(self, f"_take_{self.party}")(step)

    def expected(self, step: Case) -> Any:
        """What a step is to give, where that is not an error."""
        if step["gives"] != "recorded":
            known = step["gives"] in ("taken", "ignored", "settled")
            return step["gives"] if known else unhex(step["gives"])
        if self.party == "client":
            return self.replay.sent[step["do"], self.case["user"]]
        if self.party == "server":
            after = self.replay.case["phases"].index(self.closed) + 1
            phase = (*self.replay.case["phases"], "")[after]
            if step["do"] == "combine":
                return [block["sums"] for block in self.replay.case["blocks"]]
            return {user: data for (at, user), data in self.replay.asked.items() if at == phase}
        recorded = self.enrolled.case
        if self.party == "enrolment":
            return {recorded["commitments_message" if self.closed == "commit" else "reveals_message"]}
        sent = {"commit": "commitment_message", "reveal": "reveal_message"}
        return recorded["plan_digest"] if step["do"] == "finish" else unhex(self.entry[sent[step["do"]]])

    def _take_client(self, step: Case) -> Any:
        recorded = self.replay.asked.get((step["do"], self.case["user"]), b"")
        message = unhex(step["message"]) if "message" in step else recorded
        return self.replay.answer(self.client, step["do"], message, step.get("update", ""))

    def _take_server(self, step: Case) -> Any:
        plan = self.replay.plan
        if step["do"] == "combine":
            decoded = self.server.decoded
            last = () if decoded.metrics is None else (decoded.metrics,)
            return [block.elements.tolist() for blocks in (*decoded.segments, last) for block in blocks]
        if step["do"] == "close":
            phase = self.server.phase.value
            told = {plan.index(user): data for user, data in self.server.close().items()}
            self.closed = phase
            return told
        sent = self.replay.sent
        if step["do"] == "receive all":
            users = [user for at, user in sent if at == step["phase"] and user not in step["without"]]
            assert all(self.server.receive(plan.users[user], sent[step["phase"], user]) for user in users)
            return None
        message = unhex(step["message"]) if "message" in step else sent[step["phase"], step["user"]]
        return "taken" if self.server.receive(plan.users[step["user"]], message) else "ignored"

    def _take_enrolling(self, step: Case) -> Any:
        recorded = self.enrolled.case
        if step["do"] == "commit":
            return self.enrolling.commit(nonce=unhex(self.entry["nonce"]))
        kinds = {"reveal": "commitments_message", "finish": "reveals_message"}
        message = unhex(step["message"] if "message" in step else recorded[kinds[step["do"]]])
        if step["do"] == "finish":
            return self.enrolling.finish(message).digest.hex()
        return self.enrolling.reveal(message)

    def _take_enrolment(self, step: Case) -> Any:
        kinds = {"commit": "commitment_message", "reveal": "reveal_message"}
        users = self.enrolled.case["users"]
        if step["do"] == "close":
            told = {data.hex() for data in self.enrolment.close().values()}
            self.closed = self.open_phase
            return told
        self.open_phase = step["phase"]
        if step["do"] == "receive all":
            for user in users:
                if user["index"] not in step["without"]:
                    message = unhex(user[kinds[step["phase"]]])
                    assert self.enrolment.receive(self.enrolled.names[user["index"]], message)
            return None
        message = unhex(step["message"] if "message" in step else users[step["user"]][kinds[step["phase"]]])
        return "taken" if self.enrolment.receive(self.enrolled.names[step["user"]], message) else "ignored"
