"""Scripts: an input read as edits to a valid message, so that it gets past signatures, contexts and digests."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import msgspec

__all__ = ["DEEP", "Script", "change", "promise"]


class Script:
    """The input, read a choice at a time; at its end every choice is 0."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def take(self, size: int) -> bytes:
        """The next bytes, zeros behind the end."""
        part = self._data[self._at : self._at + size]
        self._at += size
        return part.ljust(size, b"\0")

    def below(self, bound: int) -> int:
        """A choice among `bound`."""
        return int.from_bytes(self.take(1 if bound <= 256 else 2), "big") % bound

    def rest(self) -> bytes:
        """Everything that is left."""
        return self.take(max(0, len(self._data) - self._at))


ODD_VALUES: tuple[Any, ...] = (
    *(
        0,
        1,
        2,
        11,
        12,
        127,
        128,
        255,
        256,
        2**16,
        2**20,
        2**31,
        2**32 - 1,
        2**32,
        2**53,
        2**63,
        2**64 - 1,
        -1,
        -(2**63),
    ),
    *(None, True, False, 0.5, 1.0, -1.0, float("nan"), float("inf"), 1e308),
    *("", "text", "share", "dead", "secagg", "paper", "multigroup", "\0", "x" * 300),
    *(b"", bytes(16), bytes(31), bytes(32), bytes(33), b"\xff" * 32, bytes(48), bytes(64), b"\x01" + bytes(31)),
    *([], [0], [[]], {}, {"a": 1}, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
)
HUGE_HEADERS = (b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff")
DEEP = 10_000

_Place = tuple[Any, Any]  # a list or dict, and where in it


def change(message: bytes, script: Script, donor: bytes | None = None) -> bytes:
    """The MessagePack message after the script's edits: of its values first, then of its bytes.

    `donor` is another message whose values may be moved in.
    """
    if not script:
        return message
    tree = msgspec.msgpack.decode(message)
    given = list(_places([msgspec.msgpack.decode(donor)])) if donor is not None else []
    for _ in range(script.below(6)):
        _edit_value(tree, script, given)
    data = msgspec.msgpack.encode(tree)
    for _ in range(script.below(8) - 5):  # mostly none, or few messages would get past the decoder
        data = _edit_bytes(data, script)
    return data


def _places(tree: Any) -> Iterator[_Place]:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for at, value in list(items):
        yield tree, at
        if isinstance(value, (list, dict)):
            yield from _places(value)


def _edit_value(tree: Any, script: Script, given: list[_Place]) -> None:
    places = list(_places(tree))
    if not places:
        return
    parent, at = places[script.below(len(places))]
    value, kind = parent[at], script.below(8)
    if kind == 0:
        parent[at] = copy.deepcopy(ODD_VALUES[script.below(len(ODD_VALUES))])
    elif kind == 1 and isinstance(value, bytes):
        parent[at] = script.take(min(len(value), 64)).ljust(len(value), b"\xaa")
    elif kind == 1:
        parent[at] = int.from_bytes(script.take(4), "big")
    elif kind == 2:
        parent[at] = _nudge(value, script)
    elif kind == 3:
        del parent[at]
    elif kind == 4 and isinstance(parent, list):
        parent[at:at] = [copy.deepcopy(value)] * (1 + script.below(16))
    elif kind == 5 and isinstance(parent, list):
        parent[at], parent[at - 1] = parent[at - 1], value
    elif kind == 6 and given:
        source, where = given[script.below(len(given))]
        parent[at] = copy.deepcopy(source[where])
    else:
        for _ in range(script.below(40)):
            value = [value]
        parent[at] = value


def _nudge(value: Any, script: Script) -> Any:
    if isinstance(value, bytes) and value:
        place = script.below(len(value))
        return value[:place] + bytes([value[place] ^ 1 << script.below(8)]) + value[place + 1 :]
    if isinstance(value, int):
        changed = value + (1, -1, 256, 1 << 31)[script.below(4)]
        return changed if -(2**63) <= changed < 2**64 else 0
    return value[: script.below(len(value) + 1)] if isinstance(value, (str, list)) else value


def _edit_bytes(data: bytes, script: Script) -> bytes:
    kind, place = script.below(7), script.below(len(data) + 1)
    if kind == 0:
        return data[:place] + bytes([script.below(256)]) + data[place + 1 :]
    if kind == 1:
        return data[:place]
    if kind == 2:
        return data + script.take(1 + script.below(8))
    if kind == 3:
        return data[:place] + HUGE_HEADERS[script.below(len(HUGE_HEADERS))] + data[place:]
    if kind == 4:
        return data[:place] + b"\x91" * (DEEP if script.below(8) == 7 else script.below(1100)) + data[place:]
    if kind == 5:
        return data[:place] + data[place + 1 + script.below(8) :]
    return data[:place] + data[script.below(len(data) + 1) :]


def promise(kept: bool, broken: str) -> None:
    """Raise unless a promise about a caught error is kept."""
    if not kept:
        raise AssertionError(broken)
