"""Vectors of what client and server refuse on a sparse sharing graph, each a change to that whole round."""

from __future__ import annotations

from typing import Any

from client_refusals import Case, only_of
from material import document, hashed, identity
from msgspec.structs import replace
from server_refusals import fails, received, sent

from heterosag.crypto import hashing
from heterosag.crypto.seal import SEALED_SIZE

Document = dict[str, Any]

_USER = 5  # it holds shares of users 0, 2, 7 and 9, of whom 9 does not share
_FAR = (0, 7, 9)  # without them too few hold its own shares, and nothing else is wrong with the rest


def refused() -> Document:
    """refusals_sparse.json."""
    about = (
        "What a client or the server of the whole round on a sparse sharing graph must refuse because of the graph. "
        "A case with `messages` is one of a client, as in refusals_client.json, one with `changes` of the server."
    )
    return document(about, [], [*_by_client(), *_by_server()])


def _near(users: list[int]) -> list[int]:
    return [user for user in users if user not in _FAR]


def _by_client() -> list[Document]:
    roster, inbox, agree = (Case("sparse", step, _USER) for step in ("share", "mask", "agree"))
    everybody = list(roster.message.advertised)
    sealed, commitments = inbox.message.sealed, inbox.message.commitments
    survivors, signatures = list(agree.message.survivors), list(agree.message.signatures)
    context = agree.message.context

    def masked(user: int) -> bytes:
        return identity("sparse", user).sign("masked", context, hashing.index_bytes(user))

    others = [masked(user) for user in survivors if user != _USER]
    near = [masked(2)]
    return [
        roster.refuses(
            "roster with too few holders of this user's shares",
            roster.changed(advertised=[one for one in everybody if one.user not in _FAR]),
        ),
        inbox.refuses(
            "sharers with too few holders of this user's shares", only_of(inbox, _near(inbox.message.sharers))
        ),
        inbox.refuses(
            "a pair of one whose shares this user does not hold",
            inbox.changed(sealed=sealed + bytes(SEALED_SIZE), commitments=commitments + bytes(32)),
        ),
        agree.refuses(
            "survivors with too few holders of this user's shares",
            agree.changed(survivors=_near(survivors), signatures=near),
        ),
        agree.refuses(
            "a signature of every survivor, more than its limit of bytes holds",
            agree.changed(signatures=others),
            error="WireError",
        ),
        agree.refuses("a signature beside those of dealers", agree.changed(signatures=[*signatures, masked(8)])),
        agree.refuses(
            "a signature of one whose shares this user does not hold",
            agree.changed(signatures=[masked(4), *signatures[1:]]),
        ),
        agree.refuses("a dealer's signature missing", agree.changed(signatures=signatures[:-1])),
    ]


def _by_server() -> list[Document]:
    shares, vector, released = (sent("sparse", phase, _USER) for phase in ("share", "mask", "unmask"))
    commitments, sealed = shares.commitments, shares.sealed
    fewer = replace(shares, commitments=commitments[:-32], sealed=sealed[:-SEALED_SIZE])
    more = replace(shares, commitments=commitments + hashed("nobody"), sealed=sealed + bytes(SEALED_SIZE))
    return [
        received("shares for three of four holders", "sparse", "share", _USER, fewer),
        received("shares for a fifth, more than its limit of bytes holds", "sparse", "share", _USER, more, "WireError"),
        received(
            "a complaint about one who is no dealer of it", "sparse", "mask", _USER, replace(vector, complaints=[4])
        ),
        received(
            "a complaint about a dealer who did not share", "sparse", "mask", _USER, replace(vector, complaints=[9])
        ),
        received(
            "a share of one who is no dealer of it",
            "sparse",
            "unmask",
            _USER,
            replace(released, shares=released.shares + bytes(32)),
        ),
        _silent("too few holders of one user's shares advertise", "advertise", 0, 2, 9),
        _silent("too few holders of one user's shares share", "share", 0, 2),
        _silent("too few holders of the shares of one who dropped out mask", "mask", 8),
        _silent("too few holders of one user's shares release", "unmask", 7),
    ]


def _silent(name: str, phase: str, *users: int) -> Document:
    return fails(name, "sparse", "close", phase, "TooFewSurvivorsError", [(phase, user, None) for user in users])
