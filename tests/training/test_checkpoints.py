"""Checkpoints: a state comes back as it was, and a fingerprint tells models apart."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("safetensors")

from safetensors.numpy import load_file, save_file

from heterosag.aggregation.clipping import AdaptiveRange
from heterosag.errors import UsageError
from heterosag.training.checkpoints import CHECKPOINT, State, read_checkpoint, write_checkpoint

VECTOR = np.random.default_rng(0).normal(0, 0.1, 30).astype(np.float32)
STATE = State(round=7, vector=VECTOR, half_width=0.3, range=AdaptiveRange.start(VECTOR, (10, 20)), faulty=(2, 5))


def test_a_state_comes_back_as_it_was_and_replaces_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / CHECKPOINT
    write_checkpoint(path, replace(STATE, round=6), {})
    write_checkpoint(path, STATE, {"ledger": np.arange(4)})
    found, arrays = read_checkpoint(path)
    assert (found.round, found.half_width, found.faulty) == (7, 0.3, (2, 5))
    assert found.fingerprint() == STATE.fingerprint()
    assert found.range.state_dict() == STATE.range.state_dict()
    assert arrays["ledger"].tolist() == [0, 1, 2, 3]
    assert [one.name for one in tmp_path.iterdir()] == [CHECKPOINT]


def test_a_fingerprint_is_of_every_bit() -> None:
    other = VECTOR.copy()
    other[3] = np.nextafter(other[3], np.float32(1))
    assert replace(STATE, vector=other).fingerprint() != STATE.fingerprint()
    assert replace(STATE, round=8, faulty=()).fingerprint() == STATE.fingerprint()


@pytest.mark.parametrize(
    ("name", "array"),
    [
        *((name, None) for name in ("round", "vector", "half_width", "faulty", "range")),
        ("round", np.array([1, 2])),
        ("round", np.array(-1)),
        ("round", np.array(1.5)),
        ("half_width", np.array([0.1, 0.2])),
        ("half_width", np.array(np.nan)),
        ("half_width", np.array(np.inf)),
        ("half_width", np.array(0.0)),
        ("vector", np.zeros((5, 6), dtype=np.float32)),
        ("vector", np.zeros(30, dtype=np.int64)),
        ("faulty", np.array([[1, 2]])),
        ("faulty", np.array([np.nan])),
        ("range", np.frombuffer(b"[" * 100_000, dtype=np.uint8)),
        ("range", np.frombuffer(b"[]", dtype=np.uint8)),
        ("range", np.frombuffer(b"\xff", dtype=np.uint8)),
        ("range", np.zeros(3)),
    ],
)
def test_what_no_run_writes_is_refused(name: str, array: Any, tmp_path: Path) -> None:
    path = tmp_path / CHECKPOINT
    write_checkpoint(path, STATE, {})
    found = {key: value for key, value in load_file(path).items() if key != name}
    save_file(found if array is None else found | {name: array}, path)
    with pytest.raises(UsageError):
        read_checkpoint(path)
