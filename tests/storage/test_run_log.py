"""Records: append-only, readable after a kill, cut back to a checkpoint."""

import dataclasses
import json
import os
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from heterosag import __version__
from heterosag.errors import UsageError
from heterosag.storage.locks import hold
from heterosag.storage.run_log import RECORD, RunRecord, RunWriter, find_runs, is_written, read_run


def write(folder: Path, rounds: int) -> None:
    writer = RunWriter(folder)
    writer.begin({"a": 1}, {"b": 2}, command="heterosag train")
    for number in range(1, rounds + 1):
        writer.write("round", {"round": number})
    writer.close()


def test_a_record_comes_back(tmp_path: Path) -> None:
    write(tmp_path / "run", 3)
    found = read_run(tmp_path / "run")
    assert found.name == "run"
    assert found.config == {"a": 1}
    assert [line["round"] for line in found.rounds] == [1, 2, 3]
    assert found.end is None
    assert (found.version, found.command) == (__version__, "heterosag train")
    assert found.started is not None
    assert datetime.fromisoformat(found.started).utcoffset() == timedelta(0)


def test_a_record_is_written_by_somebody_until_it_is_closed(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path)
    assert is_written(tmp_path)
    writer.close()
    assert not is_written(tmp_path)
    assert not is_written(tmp_path / "nowhere")


def test_a_program_that_was_killed_writes_no_longer(tmp_path: Path) -> None:
    code = "import sys, time, pathlib, heterosag.storage.run_log as r; w = r.RunWriter(pathlib.Path(sys.argv[1])); "
    words = [sys.executable, "-c", code + "print('ready', flush=True); time.sleep(60)", str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        assert is_written(tmp_path)
        program.kill()
        program.wait()
    assert not is_written(tmp_path)


def test_without_locks_a_record_written_lately_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, 1)
    monkeypatch.setitem(sys.modules, "fcntl", None)
    assert is_written(tmp_path)
    os.utime(tmp_path / RECORD, (1000, 1000))
    assert not is_written(tmp_path)


def test_a_folder_names_its_own_run_or_those_below_it_oldest_first(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no run, and no folder in it does"):
        find_runs(tmp_path)
    for place, name in enumerate(("later", "first", "middle")):
        write(tmp_path / name, 1)
        os.utime(tmp_path / name / RECORD, (1000, [3000, 1000, 2000][place]))
    assert [folder.name for folder in find_runs(tmp_path)] == ["first", "middle", "later"]
    assert find_runs(tmp_path / "later") == [tmp_path / "later"]


def test_a_killed_run_leaves_a_readable_record(tmp_path: Path) -> None:
    write(tmp_path, 3)
    path = tmp_path / RECORD
    path.write_text(path.read_text() + '{"kind": "round", "rou')
    assert len(read_run(tmp_path).rounds) == 3


def test_going_on_cuts_back_to_the_checkpoint(tmp_path: Path) -> None:
    write(tmp_path, 7)
    writer = RunWriter(tmp_path, resume=True)
    writer.cut(5)
    writer.write("round", {"round": 6, "again": True})
    writer.close()
    rounds = read_run(tmp_path).rounds
    assert [line["round"] for line in rounds] == [1, 2, 3, 4, 5, 6]
    assert rounds[-1]["again"] is True


def test_going_on_keeps_what_was_judged_later_and_ends_a_line_that_was_cut_off(tmp_path: Path) -> None:
    write(tmp_path, 3)
    path = tmp_path / RECORD
    judged = json.dumps({"kind": "evaluation", "round": 2, "accuracy": 0.5})
    path.write_text(f'{path.read_text()}{judged}\n{{"kind": "end"}}\n{{"kind": "rou')
    for _ in range(2):
        writer = RunWriter(tmp_path, resume=True)
        writer.cut(2)
        writer.close()
        found = read_run(tmp_path)
        assert [(line["round"], line.get("accuracy")) for line in found.rounds] == [(1, None), (2, 0.5)]
        assert found.end is None
        assert path.read_text().endswith(f"{judged}\n")
    path.write_text(path.read_text().removesuffix("\n"))
    writer = RunWriter(tmp_path, resume=True)
    writer.cut(2)
    writer.write("round", {"round": 3})
    writer.close()
    assert [line["round"] for line in read_run(tmp_path).rounds] == [1, 2, 3]


def test_a_run_that_another_program_writes_is_left_alone(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path)
    with pytest.raises(UsageError, match="is being written by another program"):
        RunWriter(tmp_path)
    writer.begin({}, {})
    writer.write("round", {"round": 1})
    with pytest.raises(UsageError, match="is being written by another program"):
        RunWriter(tmp_path, resume=True)
    writer.write("round", {"round": 2})
    writer.close()
    assert [line["round"] for line in read_run(tmp_path).rounds] == [1, 2]
    RunWriter(tmp_path, resume=True).close()


def test_without_locks_a_run_goes_on_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, 3)
    monkeypatch.setitem(sys.modules, "fcntl", None)
    first, second = (RunWriter(tmp_path, resume=True) for _ in range(2))
    second.cut(2)
    second.close()
    first.close()
    assert len(read_run(tmp_path).rounds) == 2


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    write(tmp_path, 1)
    with pytest.raises(UsageError, match="holds a run already"):
        RunWriter(tmp_path)
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / RECORD
    other.write_text("somebody's own")
    with pytest.raises(UsageError, match="holds a run already"):
        RunWriter(tmp_path / "other")
    assert other.read_text() == "somebody's own"


def test_damage_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no run"):
        read_run(tmp_path)
    write(tmp_path, 2)
    path = tmp_path / RECORD
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "garbage", lines[2]]) + "\n")
    with pytest.raises(UsageError, match="line 2 of"):
        read_run(tmp_path)
    path.write_text(json.dumps({"kind": "round", "round": 1}) + "\n")
    with pytest.raises(UsageError, match="does not begin with a run"):
        read_run(tmp_path)
    path.write_text(f'{lines[0]}\n{{"kind": "round", "round": "1"}}\n')
    with pytest.raises(UsageError, match=r"line 2 of .* is not one that a run writes: Expected `int`"):
        read_run(tmp_path)
    path.write_text("[" * 100_000 + f"\n{lines[0]}\n")
    with pytest.raises(UsageError, match=r"line 1 of .* is damaged"):
        read_run(tmp_path)
    path.write_bytes(b"\xff\xfe\n")
    with pytest.raises(UsageError, match="is damaged: it is not text in UTF-8"):
        read_run(tmp_path)


def test_what_a_reader_needs_is_there_or_named() -> None:
    good = {
        "round": 1,
        "error": None,
        "sent_bytes": {"mask": [1.0, 2.0]},
        "upload_seconds": [],
        "privacy": {"delta": 0},
    }
    failed = {"round": 2, "error": {"kind": "a", "message": "b"}}
    run = RunRecord(folder=Path("one"), config={"classes": [4, 4]}, plan={"users": 8}, rounds=(good, failed), end=None)
    run.require(config=["classes"], plan=["users"], rounds=["round", "privacy.delta"], good_rounds=["sent_bytes"])
    needs: list[tuple[dict[str, Any], str]] = [
        ({"config": ["rule"]}, "record of one is damaged, or of another program: its run does not say rule"),
        ({"plan": ["notes"]}, "its plan does not say notes"),
        ({"rounds": ["sent_bytes"]}, "round 2 does not say sent_bytes"),
        ({"rounds": ["privacy.honest"]}, "round 1 does not say privacy.honest"),
        ({"good_rounds": ["survivors"]}, "round 1 does not say survivors"),
    ]
    for wanted, problem in needs:
        with pytest.raises(UsageError, match=problem):
            run.require(**wanted)
    for fewer in ({"sent_bytes": {"mask": []}}, {"upload_seconds": [1.0]}):
        with pytest.raises(UsageError, match="round 1 does not say all of every class"):
            dataclasses.replace(run, rounds=(good | fewer, failed)).require()
    with pytest.raises(UsageError, match="round 1 does not say error"):
        dataclasses.replace(run, rounds=({"round": 1},)).require()


def test_numbers_that_json_cannot_hold_are_refused(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path)
    with pytest.raises(ValueError, match="JSON"):
        writer.write("round", {"loss": float("nan")})
    writer.close()


def test_a_run_that_does_not_begin_leaves_its_folder_free(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        RunWriter(tmp_path).begin({"learning_rate": float("inf")}, {})
    assert not list(tmp_path.iterdir())
    for left in ("", '{"ki', '{"kind": "run", "for'):  # of a program that was killed before it had begun
        (tmp_path / RECORD).write_text(left)
        write(tmp_path, 1)
        assert [line["round"] for line in read_run(tmp_path).rounds] == [1]
        (tmp_path / RECORD).unlink()


def test_a_record_that_is_removed_while_it_is_opened_is_opened_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, removed = RunWriter(tmp_path), []

    def hold_late(file: Any) -> bool:
        if not removed:
            other.discard()
            removed.append(file)
        return hold(file)

    monkeypatch.setattr("heterosag.storage.run_log.hold", hold_late)
    write(tmp_path, 2)
    assert removed[0].closed
    assert len(read_run(tmp_path).rounds) == 2


def test_a_place_that_is_no_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UsageError, match="cannot write the record"):
            RunWriter(folder)
    (tmp_path / "run" / RECORD).mkdir(parents=True)
    for resume in (False, True):
        with pytest.raises(UsageError, match="cannot write the record"):
            RunWriter(tmp_path / "run", resume=resume)
