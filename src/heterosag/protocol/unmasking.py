"""What the server does with released shares: rebuild one secret of each user, and remove the masks.

For every user who shared, the server rebuilds sigma_self if the user survived and sigma_mask if not, never both. It
tries the first t shares and checks the result against what the user published (its public mask key, or the commitment
of sigma_self); only if that fails does it compare every share with its commitment, leaves the false ones out and tries
again. A secret that cannot be rebuilt spoils the sums of its user's subgroup, not the round: see blocks.py.

Faulty are: a dealer whose t matching shares give a wrong secret, a holder who releases another share than it was dealt,
and whoever is in more disputes, as dealer or holder, than the plan tolerates malicious users: so many colluders, or so
many faulty users as the median does. So no more than these can have an honest user taken for a faulty one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from heterosag.crypto import hashing, shamir
from heterosag.crypto.field import element_from_bytes, element_to_bytes
from heterosag.crypto.hashing import COMMITMENT_SIZE
from heterosag.crypto.keys import exchange_keys, mask_private_key, pair_mask_key, public_bytes, self_mask_key
from heterosag.crypto.secret import Secret
from heterosag.errors import TooFewSurvivorsError, WireError
from heterosag.plan import Plan
from heterosag.protocol import masks
from heterosag.protocol import messages as wire
from heterosag.protocol.cells import CellLanes, ParallelMap
from heterosag.protocol.masks import Mask

__all__ = ["Commitments", "Rebuilt", "rebuild", "remove_masks"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Commitments:
    """What a dealer published: commitments to each holder's pair of shares, its own first, and to all of sigma_self."""

    secret: bytes
    pairs: bytes
    places: dict[int, int]

    @classmethod
    def of(cls, message: wire.Shares, holders: Sequence[int]) -> Commitments:
        """Take them from a dealer's message, whose first pair is its own."""
        places = {holder: place for place, holder in enumerate((message.user, *holders))}
        return cls(secret=message.secret_commitment, pairs=message.commitments, places=places)

    def of_share(self, kind: str, holder: int) -> bytes:
        """The commitment to a holder's share of the given kind."""
        start = wire.PAIR_SIZE * self.places[holder] + COMMITMENT_SIZE * (kind == "self")
        return self.pairs[start : start + COMMITMENT_SIZE]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt(Secret):
    """The secrets that were rebuilt, by user; why the others could not be; and who is faulty."""

    secrets: dict[int, int] = field(repr=False)
    missing: dict[int, str]
    faulty: frozenset[int]


def rebuild(
    plan: Plan,
    *,
    context: bytes,
    survivors: frozenset[int],
    commitments: Mapping[int, Commitments],
    mask_keys: Mapping[int, bytes],
    released: Mapping[int, Mapping[int, bytes]],
    disputes: Iterable[tuple[int, int]] = (),
) -> Rebuilt:
    """sigma_self of every survivor and sigma_mask of every other sharer, each checked against what was published.

    Raises a `TooFewSurvivorsError` if a secret lacks shares though nobody disputes any.
    """
    answers: dict[int, dict[int, int]] = {dealer: {} for dealer in commitments}
    outside: dict[int, set[int]] = {dealer: set() for dealer in commitments}
    for holder in sorted(released):
        for dealer, data in released[holder].items():
            try:
                answers[dealer][holder] = element_from_bytes(data)
            except WireError:  # not a field element, which a holder that was dealt one complains about
                outside[dealer].add(holder)
    disputed: dict[int, set[int]] = {dealer: set() for dealer in commitments}
    for dealer, holder in disputes:
        disputed[dealer].add(holder)
    faulty = _to_blame(disputed, tolerated=max(plan.colluders, plan.byzantine_tolerance())).union(*outside.values())
    secrets: dict[int, int] = {}
    missing: dict[int, str] = {}
    for dealer, shares in answers.items():
        kind, name = "self" if dealer in survivors else "mask", plan.users[dealer]
        check = _SecretCheck(kind, context, dealer, commitments[dealer], mask_keys[dealer])
        secret = _combine(shares, plan.share_threshold)
        if secret is None or not check.secret(secret):
            good = {holder: share for holder, share in shares.items() if check.share(holder, share)}
            false = outside[dealer] | (shares.keys() - good.keys())
            faulty |= false  # a holder that had nothing to complain about had the share that was committed to
            secret = _combine(good, plan.share_threshold)
            if secret is None:
                problem = f"{len(good)} good shares of user {name!r}'s {kind} secret, {plan.share_threshold} are needed"
                suspects = disputed[dealer] | false
                if not suspects:
                    raise TooFewSurvivorsError("thresholds", problem)
                holders = ", ".join(repr(plan.users[holder]) for holder in sorted(suspects))
                missing[dealer] = f"{problem}; disputed by its holders {holders}"
            elif not check.secret(secret):
                missing[dealer] = f"user {name!r} dealt shares that do not give its {kind} secret"
                faulty.add(dealer)
        if dealer not in missing and secret is not None:
            secrets[dealer] = secret
    return Rebuilt(secrets=secrets, missing=missing, faulty=frozenset(faulty))


def _to_blame(disputed: Mapping[int, set[int]], *, tolerated: int) -> set[int]:
    """Who must be faulty by the disputes (holders by dealer), if no more than `tolerated` users are.

    Of dealer and holder in a dispute one is faulty, so whoever is in more disputes than that is faulty itself. The
    user in most of them first, and without it the others are looked at again: two dealers of nothing but false shares
    have everybody complain about both, which must not make everybody faulty.
    """
    left = {(dealer, holder) for dealer, holders in disputed.items() for holder in holders}
    faulty: set[int] = set()
    while left:
        counts = Counter((True, dealer) for dealer, _ in left) + Counter((False, holder) for _, holder in left)
        most, (_, user) = max((count, who) for who, count in counts.items())  # of equals the dealer
        if most <= tolerated:
            break
        faulty.add(user)
        left = {pair for pair in left if user not in pair}
    return faulty


@dataclass(frozen=True, slots=True)
class _SecretCheck:
    """Compares a rebuilt secret, or one share, with what its dealer published."""

    kind: str
    context: bytes
    dealer: int
    commitments: Commitments
    mask_key: bytes

    def secret(self, value: int) -> bool:
        if self.kind == "mask":
            return public_bytes(mask_private_key(value)) == self.mask_key
        committed = hashing.commit("secret", self.context, self.dealer, self.dealer, element_to_bytes(value))
        return committed == self.commitments.secret

    def share(self, holder: int, value: int) -> bool:
        committed = hashing.commit(self.kind, self.context, self.dealer, holder, element_to_bytes(value))
        return committed == self.commitments.of_share(self.kind, holder)


def _combine(shares: Mapping[int, int], threshold: int) -> int | None:
    if len(shares) < threshold:
        return None
    chosen = sorted(shares)[:threshold]
    weights = shamir.coefficients(tuple(holder + 1 for holder in chosen))
    return shamir.combine(weights, [shares[holder] for holder in chosen])


def remove_masks(
    plan: Plan,
    *,
    context: bytes,
    survivors: Sequence[int],
    secrets: Mapping[int, int],
    mask_keys: Mapping[int, bytes],
    sums: Mapping[int, list[CellLanes]],
    parallel_map: ParallelMap = map,
) -> None:
    """Take away, in place, every survivor's own mask and its pair masks with those who shared but did not survive.

    Masks of a user without a secret stay: the blocks of its subgroup are spoiled.
    """
    members: dict[int, list[int]] = {}
    for user in survivors:
        members.setdefault(plan.assignment[user], []).append(user)
    dropped = {user: mask_private_key(secrets[user]) for user in secrets if user not in set(survivors)}
    work = []
    for subgroup, users in members.items():
        everything = tuple(range(len(plan.cells(subgroup))))
        known = [user for user in users if user in secrets]
        removed = [Mask(self_mask_key(secrets[user], context, user), False, everything) for user in known]
        for gone, private in dropped.items():
            cells = masks.shared_cells(plan, subgroup, plan.assignment[gone])
            for user in users if cells else ():
                key = pair_mask_key(exchange_keys(private, mask_keys[user]), context, user, gone)
                removed.append(Mask(key, user > gone, cells))
        work.append((sums[subgroup], removed))
    masks.apply_all(work, parallel_map=parallel_map)
