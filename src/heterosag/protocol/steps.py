"""The client's steps: functions from a state and the server's message to the next state and the user's message.

Each phase has a state type of its own, so that a step in the wrong order is a type error; randomness is an argument.
`Client` in client.py holds the state for callers that want an object.

Guarantees, whatever the server does: shares of both secrets of one user are never released; a survivor set is signed,
and shares are released, for one set per context; nothing is masked, signed or released for a set of users that breaks
the plan's least survivors, thresholds or robustness, or that leaves this user out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.poly1305 import Poly1305

from heterosag.crypto import hashing, shamir
from heterosag.crypto.field import element_to_bytes
from heterosag.crypto.identity import Identity, verify
from heterosag.crypto.keys import RoundSecrets, exchange_keys, is_canonical, pair_mask_key, public_bytes, self_mask_key
from heterosag.crypto.seal import SEALED_SIZE, Seal
from heterosag.crypto.secret import Secret
from heterosag.errors import FaultyServerError, TooFewSurvivorsError, UsageError, WireError
from heterosag.plan import Plan
from heterosag.protocol import masks
from heterosag.protocol import messages as wire
from heterosag.protocol.cells import ParallelMap, pack_cells
from heterosag.protocol.context import check_indices, roster_context, sharers_context, survivors_bytes
from heterosag.protocol.encoding import fill_cells
from heterosag.protocol.guard import Guard
from heterosag.protocol.masks import Mask
from heterosag.protocol.release_log import ReleaseLog
from heterosag.protocol.rounding import Rounding
from heterosag.protocol.survivors import check_admissible
from heterosag.protocol.update import Update

__all__ = [
    "Advertised",
    "Fresh",
    "Masked",
    "Polynomials",
    "Shared",
    "advertise",
    "check_inbox",
    "commit_share",
    "mask",
    "mask_partners",
    "release",
    "share",
    "sign_survivors",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Polynomials(Secret):
    """The random polynomials that share a user's two secrets."""

    mask: list[int] = field(repr=False)
    self: list[int] = field(repr=False)

    @classmethod
    def draw(cls, plan: Plan, secrets: RoundSecrets) -> Polynomials:
        """Fresh polynomials from the operating system's entropy."""
        draw = shamir.random_polynomial
        return cls(
            mask=draw(secrets.mask_secret, plan.share_threshold),
            self=draw(secrets.self_secret, plan.share_threshold),
        )


# --- one state a phase --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Fresh:
    """Nothing sent yet. `context` is c0; `model` is the digest of what the round trains from."""

    plan: Plan
    user: int
    context: bytes
    model: bytes
    identity: Identity | None
    directory: dict[int, bytes] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Advertised(Secret):
    """Keys are drawn and advertised."""

    base: Fresh
    secrets: RoundSecrets = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared(Secret):
    """Shares are dealt. `context` is c1, `own` this user's own shares.

    `seals` has the sealing secret of each holder, `pairs` the masking secret of each user of the roster with whom this
    one codes something: agreed as soon as the keys are known, so that nobody waits for it when training has ended.
    """

    base: Fresh
    secrets: RoundSecrets = field(repr=False)
    context: bytes
    roster: frozenset[int]
    pairs: dict[int, bytes] = field(repr=False)
    seals: dict[int, bytes] = field(repr=False)
    own: tuple[int, int] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Masked(Secret):
    """The vector is sent, the secrets are forgotten. `context` is c2; `held` has each dealer's (mask, self) shares."""

    base: Fresh
    context: bytes
    sharers: frozenset[int]
    held: dict[int, tuple[int, int]] = field(repr=False)
    signed: tuple[int, ...] | None = None


# --- the steps ----------------------------------------------------------------------------------------------------


def advertise(state: Fresh, secrets: RoundSecrets) -> tuple[Advertised, bytes]:
    """Phase 0: both public keys, signed over c0 where identities are in use."""
    seal_key, mask_key = public_bytes(secrets.seal_key), public_bytes(secrets.mask_key)
    signature = b""
    if state.identity is not None:
        signature = state.identity.sign("advertise", state.context, hashing.index_bytes(state.user), seal_key, mask_key)
    advertised = wire.Advertised(user=state.user, seal_key=seal_key, mask_key=mask_key, signature=signature)
    message = wire.Advertisement(version=wire.WIRE_VERSION, context=state.context, advertised=advertised)
    return Advertised(base=state, secrets=secrets), wire.encode(message)


def share(state: Advertised, data: bytes, polynomials: Polynomials, log: ReleaseLog) -> tuple[Shared, bytes]:
    """Phase 1: check the roster, then seal a pair of shares for every holder, in roster order.

    A round is shared once, claimed in the log before it is given out: other shares under the same sealing keys would
    show the difference of the two.
    """
    base = state.base
    roster = wire.decode(wire.Roster, data, plan=base.plan, sender="server")
    _same_context(roster.context, base.context)
    _check_roster(state, roster.advertised)
    context = roster_context(base.context, roster.advertised)
    present = {user.user: user for user in roster.advertised}
    holders = [holder for holder in base.plan.sharing.holders(base.user) if holder in present]
    places = [holder + 1 for holder in (base.user, *holders)]
    own, *dealt = shamir.split_two(polynomials.mask, polynomials.self, places)
    seals, sealed, commitments = {}, [], [_commit_pair(context, base.user, base.user, own)]
    for holder, pair in zip(holders, dealt, strict=True):
        seals[holder] = _exchange_keys(base, state.secrets.seal_key, holder, present[holder].seal_key)
        sealed.append(Seal.of(seals[holder], context, base.user, holder).close(*pair))
        commitments.append(_commit_pair(context, base.user, holder, pair))
    message = wire.Shares(
        version=wire.WIRE_VERSION,
        context=context,
        user=base.user,
        secret_commitment=commit_share("secret", context, base.user, base.user, state.secrets.self_secret),
        commitments=b"".join(commitments),
        sealed=b"".join(sealed),
    )
    shared = Shared(
        base=base,
        secrets=state.secrets,
        context=context,
        roster=frozenset(present),
        pairs=_agree_on_masks(base, state.secrets.mask_key, present),
        seals=seals,
        own=own,
    )
    encoded = wire.encode(message)
    log.claim(base.context, "share", hashing.digest("sealed-shares", encoded))
    return shared, encoded


def check_inbox(state: Shared, data: bytes) -> wire.Inbox:
    """Everything that phase 2 asks of the server's message: who has shared, and a pair of shares from each dealer."""
    base = state.base
    inbox = wire.decode(wire.Inbox, data, plan=base.plan, sender="server")
    _same_context(inbox.context, state.context)
    sharers = _check_set(base, inbox.sharers, state.roster, "the list of users who shared")
    count = len(_dealers(base, sharers))
    if len(inbox.sealed) != SEALED_SIZE * count or len(inbox.commitments) != wire.PAIR_SIZE * count:
        raise FaultyServerError("the inbox does not hold one pair of shares and its commitments from each dealer")
    return inbox


def mask(
    state: Shared,
    data: bytes,
    update: Update,
    log: ReleaseLog,
    *,
    rounding: Rounding | None = None,
    clip: bool = True,
    parallel_map: ParallelMap = map,
) -> tuple[Masked, bytes]:
    """Phase 2: check who shared and what they sealed, then encode the update, mask it and send it packed.

    A round is masked once: one vector under one list of sharers, claimed in the log before it is given out, because two
    vectors under the same masks would show their difference. What is claimed is a tag of the message under a key of
    the round that never leaves this user: it tells two vectors apart as a hash would, in a quarter of the time. With
    identities the list is signed for: see `sign_survivors`.

    Nothing is encoded before every check has passed: a server that names a list without this user's block peers gets a
    refusal instead of a vector in plaintext.
    """
    base = state.base
    inbox = check_inbox(state, data)
    sharers = frozenset(inbox.sharers)
    held, complaints = _open_shares(state, inbox, sharers)
    context = sharers_context(state.context, base.plan, base.model, inbox.sharers)
    subgroup = base.plan.assignment[base.user]
    cells = base.plan.cells(subgroup)
    lanes = fill_cells(base.plan, subgroup, update, rounding, clip=clip, parallel_map=parallel_map)
    masks.apply(lanes, _masks_of(state, sharers, context), parallel_map=parallel_map)
    message = wire.encode(
        wire.MaskedVector(
            version=wire.WIRE_VERSION,
            context=context,
            user=base.user,
            signature=b""
            if base.identity is None
            else base.identity.sign("masked", context, hashing.index_bytes(base.user)),
            complaints=complaints,
            vector=pack_cells(lanes, cells),
        )
    )
    key = hashing.derive("masked-vector", state.secrets.seal_key.private_bytes_raw(), context)
    log.claim(base.context, "mask", Poly1305.generate_tag(key, message))
    return Masked(base=base, context=context, sharers=sharers, held=held), message


def sign_survivors(state: Masked, data: bytes, log: ReleaseLog, guard: Guard | None = None) -> tuple[Masked, bytes]:
    """Phase 3: sign the survivor set, once per context, claimed in the log before it is given out.

    Every member of the set whose shares this user holds must have signed that it masked under this context. Otherwise a
    server could show one user another list of sharers, have it masked with peers whom everybody else then takes for
    dropped, and strip its masks.

    Guarantees: of a member that did not mask under this context nobody honest releases a share of sigma_self (its
    holders refuse here, others hold none) nor one of sigma_mask (it is named a survivor), so its vector stays masked;
    and with it every block of its subgroup, where the others' masks with it do not cancel. That other members hold no
    proof of it is therefore no loss: see "Which signatures a client checks" in docs/protocol.md.
    """
    base = state.base
    if base.identity is None:
        raise UsageError("this client has no identity to sign a survivor set with")
    request = wire.decode(wire.SurvivorSet, data, plan=base.plan, sender="server")
    _same_context(request.context, state.context)
    chosen = _check_set(base, request.survivors, state.sharers, "the survivor set")
    _check_masked(state, request)
    if guard is not None:
        guard.check(chosen)
    survivors = survivors_bytes(request.survivors)
    log.claim(state.context, "sign", survivors)
    if guard is not None:
        guard.note(chosen)  # once a quorum has signed, others may release though this user is never asked
    signature = base.identity.sign("survivors", state.context, survivors)
    message = wire.Agreement(version=wire.WIRE_VERSION, context=state.context, user=base.user, signature=signature)
    return replace(state, signed=tuple(request.survivors)), wire.encode(message)


def release(state: Masked, data: bytes, log: ReleaseLog, guard: Guard | None = None) -> bytes:
    """Phase 4: a share of sigma_self of every survivor and of sigma_mask of everybody else who shared, once."""
    base = state.base
    request = wire.decode(wire.UnmaskRequest, data, plan=base.plan, sender="server")
    _same_context(request.context, state.context)
    survivors = _check_set(base, request.survivors, state.sharers, "the survivor set")
    if base.identity is not None:
        if tuple(request.survivors) != state.signed:
            raise FaultyServerError("asked to unmask another survivor set than the one this client signed")
        _check_quorum(state, request)
    elif request.signatures:
        raise FaultyServerError("the survivor set is signed, but this client knows no identities")
    if guard is not None:
        guard.check(survivors)
    log.claim(state.context, "unmask", survivors_bytes(request.survivors))
    if guard is not None:
        guard.note(survivors)
    shares = b"".join(
        element_to_bytes(self_share if dealer in survivors else mask_share)
        for dealer, (mask_share, self_share) in sorted(state.held.items())
    )
    return wire.encode(wire.Released(version=wire.WIRE_VERSION, context=state.context, user=base.user, shares=shares))


def commit_share(kind: str, context: bytes, dealer: int, holder: int, share: int) -> bytes:
    """The published commitment of a share (kinds mask and self) or of a whole sigma_self (kind secret)."""
    return hashing.commit(kind, context, dealer, holder, element_to_bytes(share))


def _commit_pair(context: bytes, dealer: int, holder: int, pair: tuple[int, int]) -> bytes:
    return commit_share("mask", context, dealer, holder, pair[0]) + commit_share(
        "self", context, dealer, holder, pair[1]
    )


# --- the checks ---------------------------------------------------------------------------------------------------


def _same_context(theirs: bytes, ours: bytes) -> None:
    if theirs != ours:
        raise FaultyServerError(
            "the server's message belongs to another context: the plan, session, round, model, roster or list of "
            "sharers differs"
        )


def _check_roster(state: Advertised, advertised: Sequence[wire.Advertised]) -> None:
    base = state.base
    indices = [user.user for user in advertised]
    present = _check_set(base, indices, frozenset(range(len(base.plan.users))), "the roster")
    mine = advertised[indices.index(base.user)]
    if (mine.seal_key, mine.mask_key) != (public_bytes(state.secrets.seal_key), public_bytes(state.secrets.mask_key)):
        raise FaultyServerError("the roster shows other keys for this user than it advertised")
    if len({user.mask_key for user in advertised} | {user.seal_key for user in advertised}) != 2 * len(present):
        raise FaultyServerError("two keys of the roster are equal")
    if not all(is_canonical(user.seal_key) and is_canonical(user.mask_key) for user in advertised):
        raise FaultyServerError("the roster shows a key that is not in its one encoding")
    for user in advertised:
        if base.directory is None:
            if user.signature:
                raise FaultyServerError("the roster is signed, but this client knows no identities")
            continue
        parts = (base.context, hashing.index_bytes(user.user), user.seal_key, user.mask_key)
        try:
            verify(base.directory[user.user], user.signature, "advertise", *parts)
        except WireError:
            name = base.plan.users[user.user]
            raise FaultyServerError(f"the keys shown for user {name!r} are not signed by its identity") from None


def _check_set(base: Fresh, indices: Sequence[int], known: frozenset[int], what: str) -> frozenset[int]:
    """A list of users as a set, if it is in order, holds this user, known ones only, and is admissible."""
    try:
        check_indices(indices, len(base.plan.users), what)
    except WireError as error:
        raise FaultyServerError(error.problem) from None
    chosen = frozenset(indices)
    if base.user not in chosen:
        raise FaultyServerError(f"{what} leaves this user out")
    if not chosen <= known:
        raise FaultyServerError(f"{what} names users who did not take part in the step before")
    try:
        check_admissible(base.plan, chosen, dealers=(base.user,))
    except TooFewSurvivorsError as error:
        raise FaultyServerError(f"{what} is not admissible: {error}") from None
    return chosen


def _dealers(base: Fresh, users: frozenset[int]) -> list[int]:
    """Those of these users whose shares this one holds."""
    return [dealer for dealer in base.plan.sharing.holders(base.user) if dealer in users]


def _open_shares(
    state: Shared, inbox: wire.Inbox, sharers: frozenset[int]
) -> tuple[dict[int, tuple[int, int]], list[int]]:
    """The shares held for each dealer, and the dealers whose shares do not open or do not match."""
    base = state.base
    dealers = _dealers(base, sharers)
    boxes, committed = wire.cut_rows(inbox.sealed, SEALED_SIZE), wire.cut_rows(inbox.commitments, wire.PAIR_SIZE)
    held = {base.user: state.own}
    for dealer, box, commitments in zip(dealers, boxes, committed, strict=True):
        try:
            pair = Seal.of(state.seals[dealer], state.context, dealer, base.user).open(box)
        except WireError:
            continue
        if _commit_pair(state.context, dealer, base.user, pair) == commitments:
            held[dealer] = pair
    return held, [dealer for dealer in dealers if dealer not in held]


def _exchange_keys(base: Fresh, mine: X25519PrivateKey, other: int, theirs: bytes) -> bytes:
    try:
        return exchange_keys(mine, theirs)
    except WireError as error:
        name = base.plan.users[other]
        raise FaultyServerError(f"the roster shows a key of user {name!r} that cannot be used: {error}") from None


def _agree_on_masks(base: Fresh, mine: X25519PrivateKey, present: Mapping[int, wire.Advertised]) -> dict[int, bytes]:
    """The masking secret with every user of the roster whose subgroup codes a cell with this user's."""
    return {user: _exchange_keys(base, mine, user, present[user].mask_key) for user in mask_partners(base, present)}


def mask_partners(base: Fresh, users: Iterable[int]) -> list[int]:
    """Those of these users with whom this one codes something."""
    plan = base.plan
    together = {subgroup for cell in plan.cells(plan.assignment[base.user]) for subgroup in cell.block.subgroups}
    return [user for user in users if user != base.user and plan.assignment[user] in together]


def _masks_of(state: Shared, sharers: frozenset[int], context: bytes) -> list[Mask]:
    """This user's own mask, and one for every listed user that it codes something with."""
    base = state.base
    plan, me = base.plan, base.user
    mine = plan.assignment[me]
    everything = tuple(range(len(plan.cells(mine))))
    found = [Mask(self_mask_key(state.secrets.self_secret, context, me), True, everything)]
    shared = {subgroup: masks.shared_cells(plan, mine, subgroup) for subgroup in range(len(plan.subgroups))}
    for other in sorted(sharers - {me}):
        cells = shared[plan.assignment[other]]
        if cells:
            found.append(Mask(pair_mask_key(state.pairs[other], context, me, other), me < other, cells))
    return found


def _check_masked(state: Masked, request: wire.SurvivorSet) -> None:
    """Each survivor whose shares this user holds signed that it masked under this very list of sharers."""
    base = state.base
    dealers = _dealers(base, frozenset(request.survivors))
    if len(request.signatures) != len(dealers):
        raise FaultyServerError("the survivor set does not carry one signature for each survivor among the dealers")
    for user, signature in zip(dealers, request.signatures, strict=True):
        try:
            verify((base.directory or {})[user], signature, "masked", state.context, hashing.index_bytes(user))
        except WireError:
            name = base.plan.users[user]
            raise FaultyServerError(f"user {name!r} did not mask under this list of sharers") from None


def _check_quorum(state: Masked, request: wire.UnmaskRequest) -> None:
    """A quorum of members of the survivor set, each once, signed exactly this set."""
    base = state.base
    signers = [user for user, _ in request.signatures]
    if any(a >= b for a, b in pairwise(signers)) or not set(signers) <= set(request.survivors):
        raise FaultyServerError("the survivor set carries signatures of strangers, or one twice")
    if len(signers) != base.plan.agree_quorum:
        raise FaultyServerError(
            f"{len(signers)} users signed the survivor set, the plan asks for {base.plan.agree_quorum}"
        )
    survivors = survivors_bytes(request.survivors)
    for user, signature in request.signatures:
        try:
            verify((base.directory or {})[user], signature, "survivors", state.context, survivors)
        except WireError:
            raise FaultyServerError(f"user {base.plan.users[user]!r} did not sign this survivor set") from None
