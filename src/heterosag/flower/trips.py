"""A trip to the nodes and back: messages out, replies of the right node in, and why the others are lost."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from logging import INFO
from typing import Any

from flwr.app import Error, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.common.logger import log
from flwr.serverapp import Grid

from heterosag.flower.messages import RECORD, SAYS_MORE, carried, record_of
from heterosag.flower.rounds import TOO_LATE, Work, add_to, wire_size
from heterosag.protocol.transitions import Phase

__all__ = ["Trips"]


class Trips:
    """Carries the stages of a round over a grid.

    Args:
        grid: The grid that Flower gave.
        timeouts: Seconds for each stage, by its name, or one number, or what the strategy says.
        counted: Whether to count all that Flower carries.
    """

    def __init__(self, grid: Grid, timeouts: float | Mapping[str, float] | None, *, counted: bool) -> None:
        self._grid = grid
        self._timeouts = timeouts
        self._counted = counted

    def carry(
        self,
        work: Work,
        stage: str,
        fields: Mapping[int, Mapping[str, Any]],
        timeout: float | None,
        *,
        with_content: Collection[int] = (),
    ) -> dict[int, Message]:
        """Send a stage to its nodes and collect what comes back in time; the others are lost, with the reason.

        Args:
            work: The round, which learns of losses, bytes and seconds.
            stage: What the trip is called.
            fields: Our record, by node. Nodes that Flower says are gone are not asked again in the round.
            timeout: Seconds that the strategy gives it.
            with_content: The nodes that also get the strategy's own content.

        Returns:
            The replies by node.
        """
        work.trips += 1
        sent = {
            node: self._message(work, node, record, node in with_content)
            for node, record in fields.items()
            if node not in work.gone
        }
        if self._counted:
            for node, message in sent.items():
                add_to(work.wire_sent, stage, node, wire_size(message))
        log(INFO, "\t%s: asking %d nodes", stage, len(sent))
        began = time.perf_counter()
        replies = list(self._grid.send_and_receive(list(sent.values()), timeout=self._timeout(stage, timeout)))
        elapsed = time.perf_counter() - began
        work.trip_seconds[stage] = work.trip_seconds.get(stage, 0.0) + elapsed
        by_message = {message.metadata.message_id: node for node, message in sent.items()}
        found: dict[int, Message] = {}
        for reply in replies:
            node_id = by_message.get(reply.metadata.reply_to_message_id)
            if node_id is None:
                continue  # a reply to something else, or too late
            if reply.has_error():
                if reply.error.code == ErrorCode.NODE_UNAVAILABLE:
                    work.gone.add(node_id)
                work.lose(node_id, stage, _why(stage, reply.error))
                continue
            found[node_id] = reply
            if self._counted:
                add_to(work.wire_received, stage, node_id, wire_size(reply))
            work.note_seconds(stage, node_id, record_of(reply), elapsed)
        for node in sent.keys() - found.keys() - work.lost.keys():
            work.lose(node, stage, TOO_LATE)
        return {node: found[node] for node in sent if node in found}

    def _message(self, work: Work, node: int, record: Mapping[str, Any], with_content: bool) -> Message:
        original = work.messages[node]
        beside = dict(original.content) if with_content else {}
        return Message(
            RecordDict({**beside, RECORD: carried(record)}),
            dst_node_id=node,
            message_type=original.metadata.message_type if with_content else work.message_type,
            group_id=original.metadata.group_id,
        )

    def _timeout(self, stage: str, whole: float | None) -> float | None:
        if isinstance(self._timeouts, Mapping):
            return self._timeouts.get(stage, whole)
        return whole if self._timeouts is None else float(self._timeouts)


def _why(stage: str, error: Error) -> str:
    """Why a node was lost.

    An app's own function runs in one stage only: where it fails in others, there is no mod. What our mod or a mod after
    it refuses is told in our words, so other words are those of a mod before it.
    """
    said = error.reason or "an error without a reason"
    if error.code == ErrorCode.MOD_FAILED_PRECONDITION and not said.endswith(SAYS_MORE):
        return f"{said} (another mod says so: in the list of its ClientApp the heterosag mod comes before it)"
    if error.code == ErrorCode.CLIENT_APP_RAISED_EXCEPTION and stage != Phase.MASK.value:
        return f"{said.strip()} (does its ClientApp have the heterosag mod?)"
    return said
