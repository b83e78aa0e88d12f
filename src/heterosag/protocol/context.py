"""The contexts that bind every message to what was agreed before it.

c0 = H(version, round, frame, session) is what advertisements are signed for; the frame is the plan without its value
range. c1 = H(c0, roster with keys) seals and commits shares. c2 = H(c1, plan, digest of what is trained from, users who
shared) derives masks and signs the survivor set. So keys and shares can be set up before the model and the range of
their round are known, and both are bound before anything is masked. Parties that disagree on anything public end up
with different contexts, and nothing of theirs can be combined.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from heterosag.crypto.hashing import DIGEST_SIZE, digest, index_bytes
from heterosag.errors import UsageError, WireError
from heterosag.plan import Plan
from heterosag.protocol.messages import WIRE_VERSION, Advertised

__all__ = ["RoundId", "check_indices", "roster_context", "sharers_context", "survivors_bytes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundId:
    """Which round this is: of which session, on which model.

    - `session`: 1 to 64 bytes that no other run has, the same for all parties.
    - `number`: the round's number in the session: a serial, never used again, even after a round that failed.
    - `model`: a digest (32 bytes) of the model and of everything else that training sees, zeros if there is none.
    - `metrics_only`: whether the plan's metrics are summed and nothing else, as in an evaluation.
    """

    session: bytes
    number: int = 0
    model: bytes = bytes(DIGEST_SIZE)
    metrics_only: bool = False

    def __post_init__(self) -> None:
        for name, value in (("session", self.session), ("model", self.model)):
            if not isinstance(value, bytes):
                raise UsageError(f"{name} is bytes, not {value!r}")
        if not 1 <= len(self.session) <= 64:
            raise UsageError(f"session is 1 to 64 bytes long, not {len(self.session)}")
        if len(self.model) != DIGEST_SIZE:
            raise UsageError(f"model is a digest of {DIGEST_SIZE} bytes, not of {len(self.model)}")
        if not 0 <= self.number < 2**64:
            raise UsageError(f"number is at least 0 and below 2^64, not {self.number!r}")

    def context(self, plan: Plan) -> bytes:
        """c0: what the round's first messages are bound to, whatever its value range and model will be.

        Args:
            plan: The plan of the round.

        Returns:
            32 bytes.
        """
        return digest("context/round", index_bytes(WIRE_VERSION, self.number), plan.frame, self.session)

    def content(self, plan: Plan) -> tuple[Plan, bytes]:
        """What is masked: the plan, or what is left of it where metrics alone are summed; and what c2 says of it.

        Args:
            plan: The plan of the round.

        Returns:
            The plan of what is masked, and the name that c2 binds: the model digest, of another length where metrics
            alone are summed, so that no model has the name of an evaluation.
        """
        if self.metrics_only:
            return plan.only_metrics(), b"metrics" + self.model
        return plan, self.model


def roster_context(context: bytes, advertised: Sequence[Advertised]) -> bytes:
    """c1. Signatures are left out: they prove the keys, they do not add to them."""
    parts = (index_bytes(user.user) + user.seal_key + user.mask_key for user in advertised)
    return digest("context/roster", context, b"".join(parts))


def sharers_context(context: bytes, plan: Plan, model: bytes, sharers: Iterable[int]) -> bytes:
    """c2: binds the whole plan, with its value range, and the model."""
    return digest("context/sharers", context, plan.digest, model, index_bytes(*sharers))


def survivors_bytes(survivors: Iterable[int]) -> bytes:
    """A survivor set as it is signed."""
    return index_bytes(*survivors)


def check_indices(indices: Sequence[int], users: int, what: str, *, sender: int | str | None = None) -> None:
    """Refuse a list of users that repeats one, is out of order, or names a stranger."""
    if any(a >= b for a, b in pairwise(indices)) or (indices and indices[-1] >= users):
        raise WireError(f"{what} must name known users once each, in roster order", sender=sender)
