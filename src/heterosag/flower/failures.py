"""Failed rounds in a row: when a run that comes to nothing is stopped, and what it says then."""

from __future__ import annotations

from collections import Counter
from logging import ERROR

from flwr.common.logger import log

from heterosag.errors import StoppedRunError
from heterosag.flower.rounds import ALL_LOST, Round

__all__ = ["Failures"]


class Failures:
    """Counts failed rounds in a row.

    Args:
        most: How many stop the run; 0 for none.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._failed: list[Round] = []

    def note(self, done: Round) -> None:
        """Note how a round ended; raise a `StoppedRunError` if it was one failure too many.

        A round that failed because of nodes who dealt or released false shares does not count: the next is without
        them, and a few who take turns must not end the run. What stops it is said in one line for each distinct
        reason: of the rounds, and of the nodes lost in them.
        """
        if not done.error:
            self._failed.clear()
            return
        if done.faulty:
            return
        self._failed.append(done)
        if self._most and len(self._failed) >= self._most:
            rounds = Counter(_without_nodes(one.error) for one in self._failed)
            nodes = Counter(why for one in self._failed for why in one.lost.values())
            reasons = [f"{count} of {len(self._failed)} rounds: {why}" for why, count in rounds.most_common()]
            reasons += [f"{count} times a node was lost {why}" for why, count in nodes.most_common()]
            log(ERROR, "the run is stopped after %d failed rounds in a row:", len(self._failed))
            for reason in reasons:
                log(ERROR, "\t> %s", reason)
            count = len(self._failed)
            self._failed.clear()
            raise StoppedRunError(count, reasons)


def _without_nodes(error: str) -> str:
    """A round's reason without what is said of its nodes, who have lines of their own."""
    return error.partition(ALL_LOST)[0]
