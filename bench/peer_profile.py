"""What a user's share and mask steps of Flower's SecAgg+ are made of: the functions that its mod calls, timed in place.

The peer's own workflow and mod, as in peer.py. Only a few users take the two steps; what the others would have sealed
for them is sealed for them here, so that a complete graph of many users takes seconds.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import mean
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.common.secure_aggregation.crypto.symmetric_encryption import encrypt, generate_shared_key
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, RECORD_KEY_STATE, Key
from flwr.common.secure_aggregation.secaggplus_utils import share_keys_plaintext_concat
from flwr.supercore.primitives.asymmetric import bytes_to_private_key, bytes_to_public_key

from bench import peer
from bench.against_peer import Case, Graph
from bench.rows import CPU

GRAPHS: tuple[Graph, ...] = ("complete", "sparse")
TIMED = 3
"""Users who take their steps; the first does not count."""

_PARTS = {
    "key agreements (P-384)": ("generate_shared_key",),
    "reading keys": ("bytes_to_private_key", "bytes_to_public_key"),
    "both secrets' shares": ("create_shares",),
    "sealing": ("encrypt",),
    "opening shares": ("decrypt",),
    "masks (NumPy's generator)": ("pseudo_rand_gen",),
    "adding them up": ("parameters_addition", "parameters_subtraction", "parameters_mod"),
    "quantizing": ("parameters_multiply", "quantize"),
    "writing the vector": ("ndarray_to_bytes",),
}
"""Part by part the functions of the peer's mod; none calls another of them."""


def measure(users: int, update: npt.NDArray[np.float32]) -> list[dict[str, Any]]:
    """Step by step: its case and its parts, as those of ours."""
    found: list[dict[str, Any]] = []
    half = float(np.abs(update).max())
    for graph in GRAPHS:
        case = Case(users=users, dimension=len(update), graph=graph, repeats=1)
        grid = _FewCalls(update, users)
        _, stages = peer.begin(grid, half, neighbours=case.neighbours)
        logging.getLogger("flwr").setLevel(logging.CRITICAL)  # its server says that too few mask
        with _timed(grid.spent):
            for stage in ("advertise", "share", "mask"):
                stages[stage]()
        for stage in ("share", "mask"):
            whole, parts = grid.of_stage(stage)
            found.append(
                {"case": f"SecAgg+, {graph} graph", "step": f"user: {stage}", "seconds": whole, "parts": parts}
            )
    return found


class _FewCalls(peer.Calls):
    """A few nodes answer; of the others' shares only those are made that the few open."""

    def __init__(self, update: npt.NDArray[np.float32], users: int) -> None:
        nodes = range(100, 100 + users)
        super().__init__(dict.fromkeys(nodes, update), set())
        self.few = nodes[:TIMED]
        self.spent: dict[str, list[float]] = {}
        self.parts: dict[str, list[dict[str, list[float]]]] = {}

    def carry(self, sent: Message) -> Message:
        """One node's answer, with what its parts took."""
        node, stage = sent.metadata.dst_node_id, peer.stage_of(sent)
        if stage == "advertise" or node in self.few:
            self.spent.clear()
            reply = super().carry(sent)
            self.parts.setdefault(stage, []).append(dict(self.spent))
            return reply
        message = Message(sent.content, dst_node_id=node, message_type=sent.metadata.message_type)
        if stage == "mask":
            return Message(Error(5, "not timed"), reply_to=message)
        own: Any = self.homes[node].state.config_records[RECORD_KEY_STATE]
        keys: Any = sent.content.config_records[RECORD_KEY_CONFIGS]
        sealed = {}
        for to in self.few:
            if str(to) in keys:
                sealed[to] = _seal(node, to, own["sk1"], own["sk2"], keys[str(to)][1])
        answer = ConfigRecord({Key.DESTINATION_LIST: list(sealed), Key.CIPHERTEXT_LIST: list(sealed.values())})
        return Message(RecordDict({RECORD_KEY_CONFIGS: answer}), reply_to=message)

    def of_stage(self, stage: str) -> tuple[float, list[dict[str, Any]]]:
        """A user's mean seconds, and its parts."""
        parts = []
        for part in _PARTS:
            calls = [one for spent in self.parts[stage][1:] for one in spent.get(part, ())]
            if calls:
                count, seconds = len(calls) / (TIMED - 1), sum(calls) / (TIMED - 1)
                parts.append({"part": part, "times": count, "each": seconds / count, "seconds": seconds})
        return mean(self.seconds[stage][1:]), parts


def _seal(node: int, to: int, mask_key: bytes, seal_key: bytes, theirs: bytes) -> bytes:
    """Shares as large as a node's, sealed as it would."""
    shares = (bytes(4 + 16 * (size // 16 + 1)) for size in (32, len(mask_key)))
    agreed = generate_shared_key(bytes_to_private_key(seal_key), bytes_to_public_key(theirs))
    return encrypt(agreed, share_keys_plaintext_concat(node, to, *shares))


@contextmanager
def _timed(spent: dict[str, list[float]]) -> Iterator[None]:
    """The peer's functions note, by part, the seconds of each call."""
    mod = importlib.import_module("flwr.client.mod.secure_aggregation.secaggplus_mod")

    def timed(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            start = CPU()
            found = function(*given)
            spent.setdefault(part, []).append(CPU() - start)
            return found

        return call

    before = {name: getattr(mod, name) for names in _PARTS.values() for name in names}
    for part, names in _PARTS.items():
        for name in names:
            setattr(mod, name, timed(part, before[name]))
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(mod, name, function)
