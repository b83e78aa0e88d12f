"""A Grid around another one: what needs no secure round passes through to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

from heterosag.errors import UsageError
from heterosag.flower.messages import is_evaluate, is_train

__all__ = ["PassingGrid"]


class PassingGrid(Grid):
    """Passes runs, nodes and messages through, but no message that trains or evaluates.

    Args:
        grid: The grid inside.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def set_run(self, run: Any) -> None:
        """Set the run, on the grid inside."""
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        """The run of the grid inside."""
        return self._grid.run

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        """A message of the grid inside."""
        return self._grid.create_message(*args, **kwargs)

    def get_node_ids(self) -> Iterable[int]:
        """The nodes of the grid inside."""
        return self._grid.get_node_ids()

    def get_nodes(self) -> Iterable[Any]:
        """The nodes of the grid inside."""
        return self._grid.get_nodes()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Push messages that need no secure round; train and evaluate messages are refused."""
        listed = list(messages)
        if any(is_train(message) or is_evaluate(message) for message in listed):
            raise UsageError("train and evaluate messages need a secure round: use send_and_receive on the SecureGrid")
        return self._grid.push_messages(listed)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Pull replies from the grid inside."""
        return self._grid.pull_messages(message_ids)
