"""What a user sends, part by part."""

from pathlib import Path

import pytest
from records import begin_run, write_round, write_run

from heterosag.report.upload import PARTS, reference_bytes, split_upload
from heterosag.storage.run_log import read_run


def test_parts_are_those_of_the_phases_and_add_up(tmp_path: Path) -> None:
    writer = begin_run(tmp_path / "one")
    phases = {"hello": [5.0, 5.0], "advertise": [100.0, 100.0], "share": [4000.0, 4000.0], "unmask": [300.0, 300.0]}
    write_round(writer, 1, 0.1, sent_bytes=phases | {"mask": [1900.0, 2300.0]})
    write_round(writer, 2, 0.1, sent_bytes=phases | {"mask": [1700.0, 2100.0]})
    writer.close()
    update, shares, rest = PARTS
    slow, fast = split_upload(read_run(tmp_path / "one"))
    assert slow == pytest.approx({update: 1800.0, shares: 4300.0, rest: 105.0})
    assert fast == pytest.approx({update: 2200.0, shares: 4300.0, rest: 105.0})


def test_a_class_without_survivors_and_a_failed_round_do_not_count(tmp_path: Path) -> None:
    writer = begin_run(tmp_path / "one")
    write_round(writer, 1, 0.1, sent_bytes={"share": [None, 4000.0], "mask": [None, 2300.0]})
    write_round(writer, 2, 0.1, sent_bytes={"share": [4000.0, 4000.0], "mask": [1900.0, 2300.0]})
    write_round(writer, 3, 0.1, sent_bytes={}, error={"kind": "AbortedError", "message": "too few"})
    writer.close()
    assert [sum(parts.values()) for parts in split_upload(read_run(tmp_path / "one"))] == [5900.0, 6300.0]


def test_references_are_of_the_same_update(tmp_path: Path) -> None:
    assert reference_bytes(write_run(tmp_path / "one", 1)) == {"float32, in plaintext": 4000, "Flower's SecAgg+": 8000}
