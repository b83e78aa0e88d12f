"""A guard over rounds: what a party refuses because of rounds before, though this round by itself is admissible.

The ledger is one. It is above the protocol; clients and servers only know this shape.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["Guard"]


class Guard(Protocol):
    """Looks at survivor sets, as roster indices."""

    def check(self, survivors: frozenset[int]) -> None:
        """Refuse a set whose sums, with those before, would expose too few users.

        Args:
            survivors: Roster indices.

        Raises:
            ExposedUsersError: They would.
        """

    def note(self, survivors: frozenset[int]) -> None:
        """Sums over this set are about to be learned, or could be.

        Args:
            survivors: Roster indices.
        """
