"""A server in the middle of a round: copied, to be given other bytes, and written down, to see whether they changed it.

The lanes of its sums are what a user's update is in before it is masked, so they refuse to be pickled and thereby to be
copied; here they hold sums that are masked.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest import mock

from heterosag.protocol.cells import CellLanes

__all__ = ["copy_server", "write_down"]

T = TypeVar("T")


def copy_server(server: T, shared: Iterable[Any]) -> T:
    """A server like this one, which shares with it what neither changes."""
    with _lanes_as_values():
        return copy.deepcopy(server, {id(thing): thing for thing in shared})


def write_down(state: Any) -> bytes:
    """Bytes that differ where the state does."""
    with _lanes_as_values():
        return pickle.dumps(state)


@contextmanager
def _lanes_as_values() -> Iterator[None]:
    def reduce(lanes: CellLanes) -> tuple[Any, ...]:
        return CellLanes, (lanes.elements, lanes.auxiliary)

    with mock.patch.object(CellLanes, "__reduce__", reduce):
        yield
