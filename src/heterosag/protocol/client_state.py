"""A client's state as bytes, for a program that does not live from one message to the next.

A saved client holds its secrets in plaintext, since nothing else could go on with them: keep it where only this user
reads, and erase it when the round is over. It is explicit on purpose; pickling a client stays refused.

Guarantees: a client restored from its saved state answers as the saved one would have; bytes that do not belong to this
plan, user and round, or were cut or changed, are refused. What was released is not decided by this state alone: a log
that outlives the process does that (see release_log.py), because an old state can always be put back.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import msgspec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from heterosag.crypto.field import element_from_bytes, element_to_bytes
from heterosag.crypto.hashing import DIGEST_SIZE, digest
from heterosag.crypto.keys import PUBLIC_KEY_SIZE, RoundSecrets, mask_private_key
from heterosag.crypto.secret import Secret
from heterosag.errors import PlanError, UsageError, WireError
from heterosag.plan import Plan
from heterosag.protocol.steps import Advertised, Fresh, Masked, Shared, mask_partners
from heterosag.protocol.transitions import ClientPhase

__all__ = ["Replies", "load", "save"]

_FORMAT = 5

State = Fresh | Advertised | Shared | Masked | None
Replies = dict[str, tuple[bytes, bytes | None]]
"""By step, the digest of the message that was answered, and the answer (None once it is not given again)."""


_KINDS: dict[ClientPhase, type[Fresh | Advertised | Shared | Masked]] = {
    ClientPhase.FRESH: Fresh,
    ClientPhase.ADVERTISED: Advertised,
    ClientPhase.SHARED: Shared,
    ClientPhase.MASKED: Masked,
    ClientPhase.AGREED: Masked,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Saved(Secret):
    """What is written. Field elements and keys are 32 bytes each."""

    format: int
    context: bytes
    user: int
    phase: str
    kind: str
    replies: Replies = field(repr=False)
    secrets: tuple[bytes, bytes, bytes] | None = field(repr=False, default=None)
    step_context: bytes = b""
    roster: list[int] = field(default_factory=list)
    pairs: dict[int, bytes] = field(repr=False, default_factory=dict)
    seals: dict[int, bytes] = field(repr=False, default_factory=dict)
    own: tuple[bytes, bytes] | None = field(repr=False, default=None)
    sharers: list[int] = field(default_factory=list)
    held: dict[int, tuple[bytes, bytes]] = field(repr=False, default_factory=dict)
    signed: list[int] | None = None
    settled: tuple[float, float, list[float], bool, bytes] | None = None


def save(base: Fresh, state: State, phase: str, replies: Replies) -> bytes:
    """The state as bytes behind their digest."""
    fields: dict[str, object] = {}
    if isinstance(state, (Advertised, Shared)):
        secrets = state.secrets
        fields["secrets"] = (
            element_to_bytes(secrets.mask_secret),
            element_to_bytes(secrets.self_secret),
            secrets.seal_key.private_bytes_raw(),
        )
    if isinstance(state, Shared):
        fields |= {
            "step_context": state.context,
            "roster": sorted(state.roster),
            "pairs": state.pairs,
            "seals": state.seals,
            "own": _pair_to_bytes(state.own),
        }
    if isinstance(state, Masked):
        fields |= {
            "step_context": state.context,
            "sharers": sorted(state.sharers),
            "held": {dealer: _pair_to_bytes(pair) for dealer, pair in state.held.items()},
            "signed": None if state.signed is None else list(state.signed),
            "settled": (*base.plan.value_range, list(base.plan.scales), not base.plan.dimension, base.model),
        }
    saved = _Saved(
        format=_FORMAT,
        context=base.context,
        user=base.user,
        phase=phase,
        kind="none" if state is None else type(state).__name__.lower(),
        replies=replies,
        **fields,  # type: ignore[arg-type]
    )
    body = msgspec.msgpack.encode(saved)
    return digest("saved-client", body) + body


def load(data: bytes, base: Fresh, plan: Plan) -> tuple[Fresh, State, ClientPhase, Replies]:
    """Base, state, phase and replies of the client that `base` describes in a round of `plan`.

    One that has masked already is settled with the value range, scales and model that it masked under.
    """
    check, body = data[:DIGEST_SIZE], data[DIGEST_SIZE:]
    try:
        if check != digest("saved-client", body):
            raise UsageError("this saved client was cut or changed")
        saved = msgspec.msgpack.decode(body, type=_Saved)
        if saved.format != _FORMAT:
            raise UsageError(f"this saved client has format {saved.format}, not {_FORMAT}")
        if (saved.context, saved.user) != (base.context, base.user):
            raise UsageError("this saved client belongs to another plan, user, session or round")
        if saved.settled is not None:
            low, high, scales, metrics_only, model = saved.settled
            settled = plan.with_value_range((low, high), scales)
            base = replace(base, plan=settled.only_metrics() if metrics_only else settled, model=model)
        state, phase = _state(saved, base), ClientPhase(saved.phase)
        if not isinstance(state, _KINDS.get(phase, type(None))):
            raise UsageError(f"the phase {saved.phase!r} with the state {saved.kind!r}")
        if save(base, state, saved.phase, saved.replies) != data:
            raise UsageError("not the one encoding of its state")
        return base, state, phase, saved.replies
    except (msgspec.DecodeError, PlanError, WireError, TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"this is not a saved client: {error}") from None


def _state(saved: _Saved, base: Fresh) -> State:
    if saved.kind == "none":
        return None
    if saved.kind == "fresh":
        return base
    if saved.kind == "masked":
        return Masked(
            base=base,
            context=saved.step_context,
            sharers=frozenset(saved.sharers),
            held={dealer: _pair_from_bytes(pair) for dealer, pair in saved.held.items()},
            signed=None if saved.signed is None else tuple(saved.signed),
        )
    if saved.secrets is None:
        raise TypeError("its secrets are missing")
    mask_secret, self_secret = (element_from_bytes(part) for part in saved.secrets[:2])
    secrets = RoundSecrets(
        mask_secret=mask_secret,
        self_secret=self_secret,
        mask_key=mask_private_key(mask_secret),
        seal_key=X25519PrivateKey.from_private_bytes(saved.secrets[2]),
    )
    if saved.kind == "advertised":
        return Advertised(base=base, secrets=secrets)
    if saved.kind != "shared" or saved.own is None:
        raise TypeError(f"no state is called {saved.kind!r}")
    known = frozenset(saved.roster) <= frozenset(range(len(base.plan.users)))
    partners = set(mask_partners(base, saved.roster)) if known else None
    if saved.pairs.keys() != partners or any(len(key) != PUBLIC_KEY_SIZE for key in saved.pairs.values()):
        raise TypeError("its masking secrets are not those of its roster")
    return Shared(
        base=base,
        secrets=secrets,
        context=saved.step_context,
        roster=frozenset(saved.roster),
        pairs=saved.pairs,
        seals=saved.seals,
        own=_pair_from_bytes(saved.own),
    )


def _pair_to_bytes(pair: tuple[int, int]) -> tuple[bytes, bytes]:
    return element_to_bytes(pair[0]), element_to_bytes(pair[1])


def _pair_from_bytes(pair: tuple[bytes, bytes]) -> tuple[int, int]:
    return element_from_bytes(pair[0]), element_from_bytes(pair[1])
