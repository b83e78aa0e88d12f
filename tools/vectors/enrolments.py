"""Vectors of an enrolment: from a charter and everybody's nonce to the plan, and what must be refused on the way."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from material import document, hashed, identity, stream
from msgspec.structs import replace

from heterosag.crypto import hashing
from heterosag.plan import Plan
from heterosag.protocol import messages as wire
from heterosag.protocol.enrolment import Charter, Enrolling, Enrolment
from heterosag.protocol.policy import Policy

Document = dict[str, Any]

ARGUMENTS: Document = {
    "classes": [3, 3],
    "levels": [2, 4],
    "dimension": 6,
    "value_range": [-1.0, 1.0],
    "subgroup_size": 3,
    "min_survivors": 2,
    "users": ["ada", "bo", "cy", "dee", "eve", "fay"],
}
EPOCH = b"epoch 1"


def _charter() -> Charter:
    return Charter(epoch=EPOCH, plan=Plan.build(**ARGUMENTS))


def _nonce(index: int) -> bytes:
    return nonce_of("enrolment", index)


def _signer(index: int) -> Any:
    return signer_of("enrolment", index)


def nonce_of(name: str, index: int) -> bytes:
    """A user's nonce in the enrolment of this name."""
    return hashed(name, index, "nonce")


def signer_of(name: str, index: int) -> Any:
    """A user's identity in the enrolment of this name."""
    return identity(name, index)


def play(charter: Charter, name: str) -> Document:
    """Every message of an enrolment, by step, what each user is shown last, and the plan."""
    users = charter.plan.users
    directory = {user: signer_of(name, index).public for index, user in enumerate(users)}
    people = [
        Enrolling(charter, user, identity=signer_of(name, index), directory=directory, policy=Policy.any_plan())
        for index, user in enumerate(users)
    ]
    server = Enrolment(charter, directory=directory)
    commitments = [person.commit(nonce=nonce_of(name, index)) for index, person in enumerate(people)]
    for user, data in zip(users, commitments, strict=True):
        server.receive(user, data)
    listed = server.close()[users[0]]
    reveals = [person.reveal(listed) for person in people]
    for user, data in zip(users, reveals, strict=True):
        server.receive(user, data)
    shown = server.close()
    return {"commitments": commitments, "listed": listed, "reveals": reveals, "shown": shown, "plan": server.plan}


@cache
def _enrol() -> Document:
    played = play(_charter(), "enrolment")
    return played | {"shown": played["shown"][ARGUMENTS["users"][0]]}


def enrolled() -> Document:
    """enrolment.json."""
    played = _enrol()
    charter, plan = _charter(), played["plan"]
    context = played["reveals"][0][5:37]
    case = {
        "name": "six users",
        "epoch": EPOCH.hex(),
        "recipe": ARGUMENTS,
        "charter_plan": charter.plan.encode().hex(),
        "charter_context": charter.context.hex(),
        "commitments_context": context.hex(),
        "users": [
            {
                "index": index,
                "nonce": _nonce(index).hex(),
                "identity_private": hashed("enrolment", index, "identity").hex(),
                "identity_public": _signer(index).public.hex(),
                "commitment_message": played["commitments"][index].hex(),
                "reveal_message": played["reveals"][index].hex(),
            }
            for index in range(len(plan.users))
        ],
        "commitments_message": played["listed"].hex(),
        "reveals_message": played["shown"].hex(),
        "seed": plan.assignment_seed.hex(),
        "plan": plan.encode().hex(),
        "plan_digest": plan.digest.hex(),
    }
    about = (
        "An enrolment: the charter's context, everybody's signed commitment and nonce, the seed and the plan it gives. "
        "A user refuses commitments that are not signed or not its own, and nonces that do not open them."
    )
    return document(about, [case], [*_refused_by_users(), *_refused_by_server()])


def _user_refuses(name: str, step: str, *messages: bytes, error: str = "FaultyServerError", **more: Any) -> Document:
    """User 0 answers all messages but the last, which it refuses."""
    return {
        "name": name,
        "party": "user",
        "user": 0,
        "step": step,
        "messages": [message.hex() for message in messages],
        "error": error,
        **more,
    }


def _refused_by_users() -> list[Document]:
    played, plan = _enrol(), _charter().plan
    listed = wire.decode(wire.NonceCommitments, played["listed"], plan=plan)
    shown = wire.decode(wire.NonceReveals, played["shown"], plan=plan)
    pairs, nonces = list(listed.commitments), list(shown.nonces)
    unsigned = [*pairs[:-1], (hashed("another commitment"), pairs[-1][1])]
    own = hashed("not my commitment")
    signature = _signer(0).sign("commit", listed.context, hashing.index_bytes(0), own)

    def show(pairs: Sequence[tuple[bytes, bytes]]) -> bytes:
        return wire.encode(replace(listed, commitments=list(pairs)))

    def reveal(nonces: Sequence[bytes]) -> bytes:
        return wire.encode(replace(shown, nonces=list(nonces)))

    other = hashed("another context")
    return [
        _user_refuses("commitments cut", "reveal", played["listed"][:-1], error="WireError"),
        _user_refuses("of another charter", "reveal", wire.encode(replace(listed, context=other))),
        _user_refuses("a commitment missing", "reveal", show(pairs[:-1])),
        _user_refuses("a commitment that is not signed", "reveal", show(unsigned)),
        _user_refuses("two users swapped", "reveal", show([*pairs[:-2], pairs[-1], pairs[-2]])),
        _user_refuses("another commitment of this user", "reveal", show([(own, signature), *pairs[1:]])),
        _user_refuses("asked to reveal twice, differently", "reveal", played["listed"], show(list(reversed(pairs)))),
        _user_refuses("nonces of other commitments", "finish", wire.encode(replace(shown, context=other))),
        _user_refuses("a nonce missing", "finish", reveal(nonces[:-1])),
        _user_refuses("a nonce that does not open its commitment", "finish", reveal([*nonces[:-1], other])),
        _user_refuses("a nonce of 31 bytes", "finish", reveal([*nonces[:-1], bytes(31)]), error="WireError"),
    ]


def _refused_by_server() -> list[Document]:
    played, plan = _enrol(), _charter().plan
    own = wire.decode(wire.NonceCommitment, played["commitments"][1], plan=plan)
    nonce = wire.decode(wire.NonceReveal, played["reveals"][1], plan=plan)

    def refuses(name: str, step: str, message: Any, error: str = "FaultyUserError") -> Document:
        data = None if message is None else wire.encode(message)
        hexed = None if data is None else data.hex()
        return {"name": name, "party": "server", "user": 1, "step": step, "bytes": hexed, "error": error}

    return [
        refuses("a commitment with a false signature", "commit", replace(own, signature=stream(64, "false"))),
        refuses("a commitment in another name", "commit", replace(own, user=2)),
        refuses("a commitment for another charter", "commit", replace(own, context=hashed("another context"))),
        refuses("a reveal in the time of commitments", "commit", nonce, "WireError"),
        refuses("no commitment", "commit", None, "WithheldError"),
        refuses("another nonce than committed", "reveal", replace(nonce, nonce=hashed("another nonce"))),
        refuses("a nonce for other commitments", "reveal", replace(nonce, context=hashed("another context"))),
        refuses("no nonce", "reveal", None, "WithheldError"),
    ]
