"""The release log: what a client has given out, so that it never gives out something else under the same context.

Sharing and masking happen once a round, signing a survivor set and releasing shares once per context. The client claims
each in its log before it answers; a log that outlives the process (a network node keeps one in a file) makes that hold
across restarts.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from heterosag.errors import FaultyServerError

__all__ = ["MemoryReleaseLog", "ReleaseLog", "RoundReleaseLog"]


class ReleaseLog(Protocol):
    """Remembers, for good, the first claim under each context and kind."""

    def claim(self, context: bytes, kind: str, value: bytes) -> None:
        """Persist a claim.

        Args:
            context: What it is claimed under.
            kind: What is done once: share, mask, sign, unmask, commit or reveal.
            value: What it is done with.

        Raises:
            FaultyServerError: Another value was claimed before.
        """


@runtime_checkable
class RoundReleaseLog(ReleaseLog, Protocol):
    """A log that is told which round its claims belong to, so that it can remove those of rounds long over.

    Guarantees that it must give: a round whose claims it has removed is refused for ever.
    """

    def of_round(self, session: bytes, number: int, context: bytes) -> ReleaseLog:
        """The log for the claims of one round.

        Args:
            session: The session of the round.
            number: Its number in the session.
            context: The context of its first messages, which tells it from every other round.

        Returns:
            A log for this round alone.
        """


class MemoryReleaseLog:
    """A log for a client that lives and dies with its process."""

    def __init__(self) -> None:
        self._claims: dict[tuple[bytes, str], bytes] = {}

    def claim(self, context: bytes, kind: str, value: bytes) -> None:
        """Keep the first value of each context and kind.

        Args:
            context: What it is claimed under.
            kind: What is done once.
            value: What it is done with.

        Raises:
            FaultyServerError: Another value was claimed before.
        """
        if self._claims.setdefault((context, kind), value) != value:
            raise FaultyServerError(f"asked a second time, for something else, to {kind} under one context")
