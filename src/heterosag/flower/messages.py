"""What both sides of a Flower round agree on: the stages, the record they travel in, and what a model is called.

Every stage is an ordinary `train` message, because Flower routes a message before its mods see it. It carries one more
record, `heterosag`; the stage `mask` carries the strategy's own content beside it. What users and server say to each
other is the protocol's own messages, as bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from heterosag.crypto.hashing import digest
from heterosag.errors import UsageError, WireError

__all__ = [
    "HELLO",
    "RECORD",
    "SURROUNDINGS",
    "TERMS",
    "arrays_of",
    "body_of",
    "is_train",
    "record_of",
    "round_digest",
    "run_config_digest",
    "surroundings_of",
    "to_record",
    "value",
]

RECORD = "heterosag"
HELLO = "hello"
"""The stage before the protocol's phases in which a node names its class or its rate, once."""

TERMS = ("weighted-by", "weight-unit", "classes")
"""What the server says of a round beside plan and content; bound into its context with them."""

SURROUNDINGS = "surroundings"
"""The field in which a node names the digest of what its train function can see beside the message's content."""


def is_train(message: Message) -> bool:
    """Whether a message asks for training."""
    return message.metadata.message_type.partition(".")[0] == "train"


def record_of(message: Message) -> ConfigRecord | None:
    """Our record in a message, None where there is none."""
    found = message.content.config_records.get(RECORD)
    return found if isinstance(found, ConfigRecord) else None


def value(record: Mapping[str, Any], name: str, kind: type[Any], *, sender: str) -> Any:
    """A field of a record, of the type that it must have."""
    found = record.get(name)
    if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
        raise WireError(f"the field {name!r} is missing or no {kind.__name__}", sender=sender)
    return found


def body_of(message: Message, *, sender: str) -> bytes:
    """The protocol's message inside a Flower message."""
    record = record_of(message)
    if record is None:
        raise WireError("the reply carries no heterosag record: its ClientApp has no heterosag mod", sender=sender)
    found: bytes = value(record, "message", bytes, sender=sender)
    return found


def arrays_of(content: RecordDict, whose: str) -> tuple[str, dict[str, npt.NDArray[Any]]]:
    """The one ArrayRecord of a message's content: its name, and its arrays."""
    records = content.array_records
    if len(records) != 1:
        raise UsageError(f"{whose} must carry exactly one ArrayRecord, not {len(records)}")
    name, record = next(iter(records.items()))
    return name, {key: np.asarray(array.numpy()) for key, array in record.items()}


def run_config_digest(run_config: Mapping[str, Any]) -> bytes:
    """A run configuration, whatever the order of its keys."""
    return digest("flower-run-config", repr(sorted(run_config.items())).encode())


def surroundings_of(message: Message, run_id: int, run_config: Mapping[str, Any]) -> bytes:
    """What a train function can see beside its message's content: the run, its configuration, and how it is called.

    A message's other fields (ids, times, sender) differ from node to node by themselves and are not bound.
    """
    about = repr((run_id, message.metadata.message_type, message.metadata.group_id)).encode()
    return digest("flower-surroundings", about, run_config_digest(run_config))


def round_digest(content: Mapping[str, Any], terms: Mapping[str, Any], surroundings: bytes) -> bytes:
    """What a round is about, in its context: everything that the train function will see, and the round's terms.

    Equal only if all of it is, so that a server cannot have one node train on another model, with another learning
    rate, for more epochs or under another weight than the rest: their contexts would differ, and nothing of theirs
    could be combined.
    """
    parts = [surroundings, digest("flower-terms", repr([(name, terms.get(name)) for name in TERMS]).encode())]
    for name in sorted(set(content) - {RECORD}):
        record = content[name]
        if isinstance(record, ArrayRecord):
            parts += [_array_digest(name, key, np.asarray(array.numpy())) for key, array in record.items()]
        else:
            words = repr((name, type(record).__name__, sorted(dict(record).items())))
            parts.append(digest("flower-record", words.encode()))
    return digest("flower-round", *parts)


def _array_digest(record: str, name: str, array: npt.NDArray[Any]) -> bytes:
    about = repr((record, name, array.dtype.str, array.shape)).encode()
    return digest("flower-array", about, np.ascontiguousarray(array).tobytes())


def to_record(arrays: Mapping[str, npt.NDArray[Any]]) -> ArrayRecord:
    """Arrays as Flower carries them."""
    from flwr.app import Array

    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})
