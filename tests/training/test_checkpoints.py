"""Checkpoints: a state comes back as it was, and a fingerprint tells models apart."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("safetensors")

from heterosag.aggregation.clipping import AdaptiveRange
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
