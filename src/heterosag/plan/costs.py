"""What a plan costs in bits.

The paper's measure (Appendix F): a user sends, for every segment, its elements at the ring width of its block.
*Expansion* compares that with sending the quantized values in plaintext, ceil(log2 K) bits each, and with what the same
levels would take in one block of everybody (`secagg`). Auxiliary lanes are counted apart. What a user sends beside its
vector (keys, shares, signatures) has a formula of its own, which tests compare with the messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heterosag.crypto.field import ELEMENT_SIZE
from heterosag.crypto.hashing import COMMITMENT_SIZE, DIGEST_SIZE
from heterosag.crypto.identity import SIGNATURE_SIZE
from heterosag.crypto.keys import PUBLIC_KEY_SIZE
from heterosag.crypto.seal import SEALED_SIZE
from heterosag.plan.error_bounds import square
from heterosag.plan.plan import Plan
from heterosag.plan.ranges import THREE_DEVIATIONS, best_width, block_range, clip_bias, deviations
from heterosag.vector import ring
from heterosag.vector.quantize import MAX_LEVEL, step

__all__ = ["Costs", "beside_vector", "match_secagg", "of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Bits of one user's masked vector in a round, by subgroup.

    Args:
        upload_bits: What a user of each subgroup sends, elements only.
        plaintext_bits: The same elements without masks.
        secagg_bits: The same elements in one block of everybody.
        auxiliary_bits: The auxiliary lanes that come on top, for everybody alike.
        classes: The class of each subgroup.
    """

    upload_bits: tuple[int, ...]
    plaintext_bits: tuple[int, ...]
    secagg_bits: tuple[int, ...]
    auxiliary_bits: int
    classes: tuple[int, ...]

    def per_class(self) -> tuple[int, ...]:
        """Upload bits of each class: the largest of its subgroups."""
        return tuple(self.upload_bits[g] for g in self._largest())

    def expansion(self) -> tuple[float, ...]:
        """Per class, masked bits over the bits of the same quantized vector in plaintext."""
        return tuple(self.upload_bits[g] / self.plaintext_bits[g] for g in self._largest())

    def against_secagg(self) -> tuple[float, ...]:
        """Per class, masked bits over those of one block of everybody at the same levels."""
        return tuple(self.upload_bits[g] / self.secagg_bits[g] for g in self._largest())

    def _largest(self) -> list[int]:
        """For each class, its subgroup that sends most."""
        return [
            max((g for g, owner in enumerate(self.classes) if owner == index), key=lambda g: self.upload_bits[g])
            for index in range(max(self.classes) + 1)
        ]


def of(plan: Plan) -> Costs:
    """The costs of a plan.

    Args:
        plan: The plan.

    Returns:
        Bits of the masked vector, by subgroup.

    Example:
        >>> from heterosag import Plan
        >>> from heterosag.plan import costs
        >>> costs.of(Plan.build([32], [16], 1000, value_range=1.0, subgroup_size=8)).expansion()
        (2.0,)
    """
    upload, plain, secagg = ([0] * len(plan.subgroups) for _ in range(3))
    for segment in plan.segments:
        for block in segment.blocks:
            for subgroup in block.subgroups:
                upload[subgroup] += segment.size * block.bits
                plain[subgroup] += segment.size * (block.level - 1).bit_length()
                secagg[subgroup] += segment.size * ring.width(len(plan.users), block.level)
    return Costs(
        upload_bits=tuple(upload),
        plaintext_bits=tuple(plain),
        secagg_bits=tuple(secagg),
        auxiliary_bits=64 * len(plan.lanes) * len(plan.segments),
        classes=tuple(subgroup.user_class for subgroup in plan.subgroups),
    )


def largest_vectors(plans: Sequence[Plan]) -> list[int]:
    """Bytes of the largest packed vector of each class, over a plan or the plans of cohorts."""
    largest = [0] * len(plans[0].classes)
    for plan in plans:
        for size, subgroup in zip(plan.vector_sizes(), plan.subgroups, strict=True):
            largest[subgroup.user_class] = max(largest[subgroup.user_class], size)
    return largest


def match_secagg(plan: Plan) -> tuple[int, int]:
    """What one sum of everybody needs to be as precise as this plan: the same levels for all, in one ring.

    Args:
        plan: The plan, without noise.

    Returns:
        The least levels at which the error bound of one block of everybody is no larger than the plan's, and the bits
        that an element then takes.

    Example:
        >>> from heterosag import Plan
        >>> from heterosag.plan import costs
        >>> costs.match_secagg(Plan.build([48, 48], [4, 64], 1000, value_range=1.0, subgroup_size=8))
        (5, 9)
    """
    wanted, users = plan.error_bound(), len(plan.users)
    low, high = 2, 2
    while _error_in_one_block(plan, high) > wanted and high < MAX_LEVEL:
        low, high = high, 2 * high
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if _error_in_one_block(plan, middle) > wanted else (low, middle)
    return high, ring.width(users, high)


def _error_in_one_block(plan: Plan, level: int) -> float:
    """The error bound of one block of everybody at a level: `Plan.error_bound`, without making the plan."""
    users = len(plan.users)
    width = THREE_DEVIATIONS if plan.ranges == "single" else best_width(level, users)
    noise = plan.dimension * square(step(block_range(plan.value_range, width), level)) / 4 / users
    deviation = (plan.value_range[1] - plan.value_range[0]) / 2 / deviations(THREE_DEVIATIONS)
    return noise + (0.0 if plan.ranges == "single" else plan.dimension * clip_bias(width) * square(deviation))


def beside_vector(plan: Plan, user: int, *, identities: bool = False) -> dict[str, int]:
    """Bytes that a user sends in each phase of a round in which everybody takes part, its packed vector not counted.

    Args:
        plan: The plan of the round.
        user: The user's roster index.
        identities: Whether messages are signed, and the survivor set agreed on.

    Returns:
        Bytes by phase: the whole message, in `mask` what stands around the vector.

    Example:
        >>> from heterosag import Plan
        >>> from heterosag.plan.costs import beside_vector
        >>> sent = beside_vector(Plan.build([96], [12], 79_510, value_range=1.0, subgroup_size=8), 0)
        >>> sent["share"], sent["unmask"]
        (10734, 3113)
    """
    holders = len(plan.sharing.holders(user))
    signature = _bin(SIGNATURE_SIZE if identities else 0)
    head = 3 + _bin(DIGEST_SIZE) + _index(user)  # the array, kind and version, the context, and who sends it
    vector = plan.vector_sizes()[plan.assignment[user]]
    found = {
        "advertise": head + 1 + 2 * _bin(PUBLIC_KEY_SIZE) + signature,
        "share": head + _bin(COMMITMENT_SIZE) + _bin(2 * COMMITMENT_SIZE * (holders + 1)) + _bin(SEALED_SIZE * holders),
        "mask": head + signature + 1 + _bin(vector) - vector,
        "agree": head + signature,
        "unmask": head + _bin(ELEMENT_SIZE * (holders + 1)),
    }
    return {phase: size for phase, size in found.items() if identities or phase != "agree"}


def _bin(size: int) -> int:
    """Bytes that so many bytes take in a message, with their header."""
    return size + next(header for header, above in ((2, 1 << 8), (3, 1 << 16), (5, 1 << 32)) if size < above)


def _index(user: int) -> int:
    """Bytes that a roster index takes in a message."""
    return next(width for width, above in ((1, 1 << 7), (2, 1 << 8), (3, 1 << 16), (5, 1 << 32)) if user < above)
