"""What goes on from round to round of a run, and the file that it goes on from."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file, save

from heterosag.aggregation.clipping import AdaptiveRange
from heterosag.crypto.hashing import digest
from heterosag.errors import UsageError
from heterosag.storage.durable_file import replace_file

__all__ = ["CHECKPOINT", "State", "read_checkpoint", "write_checkpoint"]

CHECKPOINT = "checkpoint.safetensors"
"""The file of a run's folder that `--resume` goes on from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What goes on from round to round, and into a checkpoint.

    Args:
        round: Rounds behind the run.
        vector: The model's parameters.
        half_width: That of the range, where it is a single one; under noise the clipping norm.
        range: The range that follows the updates.
        faulty: Users who dealt or released false shares, and take no part any more.
    """

    round: int
    vector: npt.NDArray[np.float32]
    half_width: float
    range: AdaptiveRange
    faulty: tuple[int, ...] = ()

    def fingerprint(self) -> bytes:
        """What tells two models apart: equal only if they are, bit for bit."""
        return digest("model", self.vector.tobytes())


def write_checkpoint(path: Path, state: State, ledgers: Mapping[str, npt.NDArray[Any]]) -> None:
    """Put a checkpoint in the place of the old one, written through to the disk.

    Args:
        path: Where it goes.
        state: The run's.
        ledgers: Those of its epoch, as arrays.
    """
    found = {
        "vector": state.vector,
        "round": np.array(state.round),
        "half_width": np.array(state.half_width),
        "faulty": np.array(state.faulty, dtype=np.int64),
        "range": np.frombuffer(json.dumps(state.range.state_dict()).encode(), dtype=np.uint8),
        **ledgers,
    }
    replace_file(path, save(found))


def read_checkpoint(path: Path) -> tuple[State, dict[str, npt.NDArray[Any]]]:
    """The state in a checkpoint, and all of its arrays, those of the ledgers among them.

    Args:
        path: The file.

    Returns:
        Both.

    Raises:
        OSError: The file cannot be read.
        SafetensorError: It is no such file.
        UsageError: It lacks something, or something in it makes no sense.
    """
    found = load_file(path)
    state = State(
        round=int(_array(found, "round", 0, "iu")),
        vector=_array(found, "vector", 1, "f"),
        half_width=float(_array(found, "half_width", 0, "f")),
        range=AdaptiveRange.from_state_dict(_read_json(_array(found, "range", 1, "u"))),
        faulty=tuple(_array(found, "faulty", 1, "iu").tolist()),
    )
    if state.round < 0 or not 0 < state.half_width < math.inf:
        raise UsageError(f"after {state.round} rounds with the half width {state.half_width} no run goes on")
    return state, found


def _array(found: Mapping[str, npt.NDArray[Any]], name: str, dimensions: int, kinds: str) -> npt.NDArray[Any]:
    """An array of a checkpoint that has so many dimensions, and numbers of one of some kinds."""
    if name not in found:
        raise UsageError(f"it has no {name}")
    array = found[name]
    if array.ndim != dimensions or array.dtype.kind not in kinds:
        raise UsageError(f"its {name} has the shape {array.shape} of {array.dtype}, which no run writes")
    return array


def _read_json(data: npt.NDArray[Any]) -> Mapping[str, Any]:
    try:
        found = json.loads(data.tobytes())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"its range is not readable: {error}") from None
    if not isinstance(found, dict):
        raise UsageError("its range is not that of a run")
    return found
