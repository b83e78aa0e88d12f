"""Certified bounds, kept in memory and on disk: some take seconds, and none depends on anything but its inputs.

A file holds the bounds of one set of inputs, by order; its name has the inputs and the version of the algorithm, and
its content repeats them behind a checksum. A file that is not exactly as it was written counts as absent and is
written anew; so does one that others than this user can write to, since a budget rests on what is read there. Where no
file can be read or written, or others can write to the folder, memory alone is used.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from heterosag.crypto.hashing import digest

__all__ = ["VERSION", "folder", "look_up"]

VERSION = 1
"""Version of the bounds: a change of what is computed is a new one."""

Inputs = tuple[int, int, int]
"""Honest users, trials, and theta in steps of its grid."""

_MOST_BYTES = 1 << 20
_memory: dict[tuple[Path | None, Inputs], dict[float, float]] = {}


def folder() -> Path | None:
    """Where bounds are kept: below XDG_CACHE_HOME, or .cache in the home folder; None if there is no such place."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    if named and Path(named).is_absolute():
        return Path(named) / "heterosag"
    try:
        return Path.home() / ".cache" / "heterosag"
    except RuntimeError:
        return None


def look_up(
    inputs: Inputs, orders: Sequence[float], compute: Callable[[Sequence[float]], Sequence[float]]
) -> list[float]:
    """The bounds of these inputs for every order; `compute` is asked for those that are not known yet."""
    place = folder()
    known = _memory.setdefault((place, inputs), {})
    if not known.keys() >= set(orders):
        known.update(_read(place, inputs))
    missing = [order for order in dict.fromkeys(orders) if order not in known]
    if missing:
        known.update(zip(missing, compute(missing), strict=True))
        _write(place, inputs, _read(place, inputs) | known)
    return [known[order] for order in orders]


def _is_own(found: os.stat_result) -> bool:
    """Whether nobody but this user can write to a folder or file, as far as the system says."""
    return os.name != "posix" or (found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def _file(place: Path, inputs: Inputs) -> Path:
    honest, trials, theta = inputs
    return place / f"rho-{VERSION}-{honest}-{trials}-{theta}.json"


def _checksum(inputs: Inputs, values: dict[str, str]) -> str:
    content = json.dumps([VERSION, list(inputs), values], sort_keys=True)
    return digest("privacy-bounds", content.encode()).hex()


def _read(place: Path | None, inputs: Inputs) -> dict[float, float]:
    """What a file holds; nothing if it is absent or not as it was written."""
    if place is None:
        return {}
    try:
        if not _is_own(place.stat()):
            return {}
        with _file(place, inputs).open("rb") as file:
            if not _is_own(os.fstat(file.fileno())):
                return {}
            content = json.loads(file.read(_MOST_BYTES))
        values = content["values"]
        if content["checksum"] != _checksum(inputs, values):
            return {}
        found = {float.fromhex(order): float.fromhex(value) for order, value in values.items()}
        return found if all(0 < value < math.inf for value in found.values()) else {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _write(place: Path | None, inputs: Inputs, known: dict[float, float]) -> None:
    """Replace the file at once, so that nobody reads half of one; a disk that cannot be written is no error."""
    if place is None:
        return
    values = {order.hex(): value.hex() for order, value in sorted(known.items())}
    content = json.dumps({"values": values, "checksum": _checksum(inputs, values)})
    path = _file(place, inputs)
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.mkdir(mode=0o700, exist_ok=True)
        if not _is_own(place.stat()):
            return
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(content)
        fresh.replace(path)
    except OSError:
        _remove(fresh)


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return
