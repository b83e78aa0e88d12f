"""The randomness of rounding, from a key of its own.

The key comes from the system's entropy in a deployment, from a seed in a simulation, and never from anything that a
mask is made of.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from heterosag.crypto.hashing import digest
from heterosag.crypto.keystream import KEY_SIZE, draw_words
from heterosag.crypto.secret import Secret
from heterosag.errors import UsageError
from heterosag.plan.noise import NoiseRange
from heterosag.privacy import mechanism
from heterosag.vector.ring import Lanes

__all__ = ["Rounding"]


@dataclass(frozen=True, slots=True)
class Rounding(Secret):
    """The random key of one user's rounding in one round."""

    _key: bytes = field(repr=False)

    @classmethod
    def from_system(cls) -> Rounding:
        """A fresh key from the operating system, as a deployment uses it."""
        return cls(secrets.token_bytes(KEY_SIZE))

    @classmethod
    def from_seed(cls, seed: int, user: int, round_number: int = 0) -> Rounding:
        """A reproducible key for a simulation: one for each seed, user (roster index) and round."""
        if not all(isinstance(part, int) and 0 <= part < 2**64 for part in (seed, user, round_number)):
            raise UsageError("a rounding seed, a user's index and a round are integers from 0 to 2^64-1")
        parts = (part.to_bytes(8, "little") for part in (seed, user, round_number))
        return cls(digest("simulated-rounding", *parts))

    def words(self, start: int, count: int) -> npt.NDArray[np.uint32]:
        """The words of elements start..start+count-1: every element of a vector has its own."""
        return np.concatenate(
            [np.empty(0, dtype=np.uint32), *(part.copy() for part in self.draw(start, start + count))]
        )

    def count_trials(
        self,
        values: npt.NDArray[np.floating[Any]],
        factor: float | None,
        ranges: NoiseRange,
        trials: int,
        *,
        first_word: int,
        out: Lanes,
        size: int,
    ) -> None:
        """The noisy counts of some values of a vector, by this key's words; see `privacy.mechanism`."""
        mechanism.count_trials(
            values,
            factor,
            block_range=ranges.block_range,
            theta=ranges.theta,
            trials=trials,
            key=self._key,
            first_word=first_word,
            out=out,
            size=size,
        )

    def draw(self, start: int, stop: int) -> Iterator[npt.NDArray[np.uint32]]:
        """The words of elements start..stop-1, a chunk at a time in one buffer."""
        return draw_words(self._key, start, stop)
