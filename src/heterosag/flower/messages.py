"""What both sides of a Flower run agree on: the record they talk in, the parts of a trip, and what a round is about.

A trip is a Flower message with one more record, `heterosag`. It carries parts, each the message of one round's phase,
as parallel lists: `rounds`, `stages`, `messages`, and in a reply `errors`. A part of the advertise phase adds the plan,
the session and the terms of the rounds; one of the mask phase adds the value range, the digest of what the round is
about, and the strategy's own content. What users and server say to each other is the protocol's own messages, as bytes.

Two more kinds of trips come before the phases: `hello`, in which a node names its class, and those of an enrolment,
`commit` and `reveal`, in which the nodes draw who is assigned to which subgroup.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict

from heterosag.crypto.hashing import digest
from heterosag.errors import UsageError, WireError
from heterosag.protocol.transitions import Phase

__all__ = [
    "COMMIT",
    "HELLO",
    "RECORD",
    "REVEAL",
    "SAYS_MORE",
    "STAGES",
    "TERMS",
    "arrays_of",
    "carried",
    "fields_of",
    "is_evaluate",
    "is_train",
    "parts_to_fields",
    "record_of",
    "round_digest",
    "run_config_digest",
    "run_digest",
    "to_record",
    "value",
    "values",
]

RECORD = "heterosag"
HELLO = "hello"
"""The trip in which a node names its class or its rate, once."""

COMMIT, REVEAL = "commit", "reveal"
"""The trips of an enrolment; what everybody revealed comes with the first advertise."""

STAGES = (HELLO, COMMIT, REVEAL, *(phase.value for phase in Phase))
"""All that a trip may be, in order."""

SAYS_MORE = "; the node's own log says more"
"""How everything ends that the mod tells the server of an error."""

TERMS = ("weighted-by", "weight-unit", "classes", "metrics", "exclude", "tied")
"""What the server says of its rounds beside plan and content; bound into their contexts with them."""


def is_train(message: Message) -> bool:
    """Whether a message asks for training."""
    return message.metadata.message_type.partition(".")[0] == "train"


def is_evaluate(message: Message) -> bool:
    """Whether a message asks for an evaluation."""
    return message.metadata.message_type.partition(".")[0] == "evaluate"


def record_of(message: Message) -> ConfigRecord | None:
    """Our record in a message, None where there is none; a message with an error has no content."""
    if not message.has_content():
        return None
    found = message.content.config_records.get(RECORD)
    return found if isinstance(found, ConfigRecord) else None


def value(record: Mapping[str, Any], name: str, kind: type[Any], *, sender: str) -> Any:
    """A field of a record, of the type that it must have."""
    found = record.get(name)
    if not _is(found, kind):
        raise WireError(f"the field {name!r} is missing or no {kind.__name__}", sender=sender)
    return found


def values(
    record: Mapping[str, Any], name: str, kind: type[Any], *, sender: str, may_be_empty: bool = False
) -> list[Any]:
    """A field of a record that is a list of one type; an empty one is not carried."""
    found = record.get(name, [] if may_be_empty else None)
    if not isinstance(found, list) or not all(_is(one, kind) for one in found):
        raise WireError(f"the field {name!r} is missing or no list of {kind.__name__}", sender=sender)
    return found


def carried(fields: Mapping[str, Any]) -> ConfigRecord:
    """The record of these fields without empty lists, on which Flower's mods that count a message's bytes fail."""
    return ConfigRecord({name: found for name, found in fields.items() if found != []})


def _is(found: Any, kind: type[Any]) -> bool:
    return isinstance(found, kind) and not (kind is int and isinstance(found, bool))


def parts_to_fields(parts: Iterable[tuple[int, str, bytes]]) -> dict[str, Any]:
    """Parts, each a round's number, its stage and the message, as fields of a record."""
    rounds, stages, messages = (list(column) for column in zip(*parts, strict=True))
    return {"rounds": rounds, "stages": stages, "messages": messages}


def fields_of(message: Message, *, sender: str) -> dict[str, Any]:
    """The fields of our record in a reply."""
    record = record_of(message)
    if record is None:
        raise WireError("the reply carries no heterosag record: its ClientApp has no heterosag mod", sender=sender)
    return dict(record)


def arrays_of(content: RecordDict, whose: str) -> tuple[str, dict[str, npt.NDArray[Any]]]:
    """The one ArrayRecord of a message's content: its name, and its arrays."""
    records = content.array_records
    if len(records) != 1:
        problem = f"{whose} must carry exactly one ArrayRecord, not {len(records)}"
        if records:
            problem += (
                f" ({', '.join(map(repr, records))}): put their arrays into one, under names of their own, such as "
                "ArrayRecord({f'head.{name}': array, ...}); what is not to be aggregated stays in the node's Context"
            )
        raise UsageError(problem)
    name, record = next(iter(records.items()))
    try:
        return name, {key: np.asarray(array.numpy()) for key, array in record.items()}
    except Exception as error:  # numpy parses a header and may unzip: what it cannot read has many names
        raise UsageError(f"{whose} carries an array that cannot be read: {error}") from None


def run_config_digest(run_config: Mapping[str, Any]) -> bytes:
    """A run configuration, whatever the order of its keys."""
    return digest("flower-run-config", repr(sorted(run_config.items())).encode())


def run_digest(context: Context) -> bytes:
    """The run as a node sees it: what a node names when it advertises.

    The SuperLink says which series a run is of, and so which state of earlier runs the app's function finds.
    """
    run = repr((context.run_id, context.series_id)).encode()
    return digest("flower-run", run, run_config_digest(context.run_config))


def round_digest(message: Message, terms: Mapping[str, Any], run: bytes) -> bytes:
    """What a round is about, in its context: everything that the app's function will see, and the round's terms.

    Equal only if all of it is, so that a server cannot have one node train on another model, with another learning
    rate, for more epochs or under another weight than the rest: their contexts would differ, and nothing of theirs
    could be combined. A message's other fields (ids, times, sender) differ from node to node by themselves.

    Args:
        message: The message that reaches the app's function; our own record in it does not count.
        terms: The terms of the rounds, by name.
        run: The run as the node sees it (`run_digest`).
    """
    about = repr((message.metadata.message_type, message.metadata.group_id)).encode()
    said = repr([(name, _plain(terms.get(name)) or None) for name in TERMS]).encode()
    parts = [run, digest("flower-message", about), digest("flower-terms", said)]
    content = message.content
    for name in sorted(set(content) - {RECORD}):
        record = content[name]
        if isinstance(record, ArrayRecord):
            parts.append(_arrays_digest(name, record))
        else:
            words = repr((name, type(record).__name__, sorted(dict(record).items())))
            parts.append(digest("flower-record", words.encode()))
    return digest("flower-round", *parts)


def model_digest(content: RecordDict) -> bytes:
    """The model of a message, whatever else the message says: equal for rounds that begin with the same arrays."""
    return digest("flower-model", *(_arrays_digest(name, one) for name, one in sorted(content.array_records.items())))


def _arrays_digest(name: str, record: ArrayRecord) -> bytes:
    arrays = (_array_digest(key, array) for key, array in record.items())
    return digest("flower-arrays", repr((name, len(record))).encode(), *arrays)


def _plain(term: Any) -> Any:
    """A term as both sides have it: Flower's records hold lists where Python has tuples."""
    return list(term) if isinstance(term, Sequence) and not isinstance(term, str | bytes) else term


def _array_digest(name: str, array: Array) -> bytes:
    """An array as Flower carries it, since an app may look at more than what numpy reads from it."""
    about = repr((name, array.dtype, [int(size) for size in array.shape], array.stype)).encode()
    return digest("flower-array", about, array.data)


def to_record(arrays: Mapping[str, npt.NDArray[Any]]) -> ArrayRecord:
    """Arrays as Flower carries them."""
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})
