"""Runs that are kept as records: judged without training, and without a difference."""

import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")


from heterosag.errors import UsageError
from heterosag.storage.run_log import RunRecord
from reproduction import records, running
from reproduction.descriptions import accuracies, repeated, trained, values
from reproduction.outcome import Outcome, Scale
from reproduction.page import sizes
from reproduction.records import keep, kept, seconds_of
from reproduction.running import Finished, Job, run_all, train
from reproduction.setting import Setting
from reproduction.settings import mnist_links


def quiet(line: str) -> None:
    pass


def settings() -> list[Setting]:
    none, heterogeneous = mnist_links(Scale.TINY, 25, 0, "")[:2]
    return [replace(none, seeds=2), heterogeneous]


def told(found: list[Finished]) -> tuple[object, ...]:
    """All that verdicts, tables and figures say of runs."""
    curves = [[line["accuracy"] for line in record.rounds] for run in found for record in run.records]
    return accuracies("a", "A", found), values(found), curves, [(run.secure_rounds, run.same_bits) for run in found]


@pytest.mark.long
def test_runs_of_several_folders_are_judged_from_their_records_as_from_themselves(tmp_path: Path) -> None:
    job = Job(scale=Scale.TINY, seed=0, folder=tmp_path / "one", records=tmp_path / "records", say=quiet)
    train(replace(job, only=("none/",)), "item", settings())
    train(replace(job, only=("heterogeneous/",), folder=tmp_path / "two"), "item", settings())
    said: list[str] = []
    fresh = replace(job, folder=tmp_path / "three", say=said.append)
    from_records = run_all(fresh, "item", settings())
    assert said == []
    assert not (tmp_path / "three").exists()
    from_runs = run_all(replace(job, folder=tmp_path / "four", records=None), "item", settings())
    assert told(from_records) == told(from_runs)
    assert [run.same_bits for run in from_records] == [True, True]
    assert all(seconds_of(record) > 0 for run in from_records for record in run.records)


def test_runs_name_their_commit_and_what_came_out_when_they_were_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "find_commit", lambda: "0123456789")
    job = Job(scale=Scale.TINY, seed=0, folder=tmp_path / "one", records=tmp_path / "records", say=quiet)
    setting = settings()[1]
    train(job, "item", [setting])
    found = run_all(job, "item", [setting])
    assert repeated(job, "item", found) == ()
    train(replace(job, folder=tmp_path / "two", records=tmp_path / "records" / "again"), "item", [setting])
    (words,) = repeated(job, "item", found)
    assert f"{setting.label}, seed 0: " in words
    assert "+g0123456789" in words
    (runs,) = trained(found)
    assert runs.oldest == runs.newest
    assert "+g0123456789 (20" in sizes(Outcome(runs=(runs,)))
    unnamed = replace(found[0], records=(*found[0].records, replace(found[0].record, version="0.2.0")))
    (runs,) = trained([unnamed])
    assert "commits" not in sizes(Outcome(runs=(runs,)))


def test_a_shorter_repetition_says_nothing(tmp_path: Path) -> None:
    job = Job(scale=Scale.TINY, seed=0, folder=tmp_path / "one", records=tmp_path / "records", say=quiet)
    setting = settings()[1]
    train(job, "item", [setting])
    found = run_all(job, "item", [setting])
    short = replace(job, folder=tmp_path / "two", records=tmp_path / "records" / "again", rounds=1)
    train(short, "item", [setting])
    assert repeated(job, "item", found) == ()


@pytest.mark.skipif(shutil.which("git") is None, reason="asks git")
def test_a_change_of_a_page_leaves_the_commit_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=b", *words], cwd=tmp_path, check=True)

    for name in ("reproduction/records.py", "docs/page.md", "README.md", "bench/baseline.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("before", encoding="utf-8")
    monkeypatch.setattr(records, "__file__", str(tmp_path / "reproduction" / "records.py"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    git("init", "--quiet")
    git("add", "--all")
    git("commit", "--quiet", "--message=all")
    commit = records.find_commit()
    assert re.fullmatch("[0-9a-f]{10,}", commit)
    for name in ("docs/page.md", "README.md", "bench/baseline.json", "bench/latest.json"):
        (tmp_path / name).write_text("after", encoding="utf-8")
    assert records.find_commit() == commit
    (tmp_path / "reproduction" / "records.py").write_text("after", encoding="utf-8")
    assert records.find_commit() == f"{commit}-dirty"


def test_a_commit_is_named_in_a_repository_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise FileNotFoundError("git")

    assert re.fullmatch(r"([0-9a-f]{10,}(-dirty)?)?", records.find_commit())
    monkeypatch.setattr(records.subprocess, "run", missing)
    assert records.find_commit() == ""


def test_secure_rounds_are_compared_with_rounds_of_their_own_machine(tmp_path: Path) -> None:
    job = Job(scale=Scale.TINY, seed=0, folder=tmp_path / "one", records=tmp_path / "records", say=quiet)
    setting = settings()[1]
    train(job, "item", [setting])
    path = tmp_path / "records" / "tiny" / "item.json"
    elsewhere = json.loads(path.read_text(encoding="utf-8"))
    name = f"{setting.name}/seed-0"
    del elsewhere[f"{name}-secure"]
    elsewhere[name]["models"] = ["00" * 32] * 3  # of another machine, whose last digits differ
    path.write_text(json.dumps(elsewhere), encoding="utf-8")
    (found,) = run_all(replace(job, folder=tmp_path / "two"), "item", [setting])
    assert found.same_bits
    assert found.record.rounds[0]["model"] == "00" * 32
    (judged,) = run_all(replace(job, folder=tmp_path / "three"), "item", [setting])
    assert judged.same_bits
    assert not replace(judged, plain=None).same_bits


def test_a_record_of_too_few_rounds_is_trained_again_and_replaced(tmp_path: Path) -> None:
    job = Job(scale=Scale.TINY, seed=0, folder=tmp_path / "one", records=tmp_path / "records", say=quiet)
    train(replace(job, only=("none/seed-0",), rounds=1), "item", settings())
    assert len(kept(tmp_path / "records" / "tiny", "item")["none/seed-0"].rounds) == 1
    train(replace(job, only=("none/seed-0",), folder=tmp_path / "two"), "item", settings())
    whole = kept(tmp_path / "records" / "tiny", "item")["none/seed-0"]
    assert len(whole.rounds) == 3
    keep(tmp_path / "records" / "tiny", "item", {"none/seed-0": replace(whole, rounds=whole.rounds[:2])})
    assert len(kept(tmp_path / "records" / "tiny", "item")["none/seed-0"].rounds) == 3


def test_a_record_of_other_settings_is_refused(tmp_path: Path) -> None:
    job = Job(scale=Scale.TINY, seed=0, folder=tmp_path / "one", records=tmp_path / "records", say=quiet)
    train(replace(job, only=("heterogeneous/",)), "item", settings())
    changed = [replace(one, config=replace(one.config, learning_rate=0.5)) for one in settings()]
    with pytest.raises(UsageError, match="holds a run of other settings"):
        run_all(replace(job, folder=tmp_path / "two"), "item", changed)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"none/seed-0": {}}', '{"none/seed-0": 3}', '{"none/seed-0": {"accuracy": 1}}']
)
def test_a_file_that_holds_no_records_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "item.json").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=r"item\.json holds no records of runs"):
        kept(tmp_path, "item")


def test_a_failed_round_is_kept_with_its_error(tmp_path: Path) -> None:
    failed = {"kind": "TooFewSurvivorsError", "message": "too few"}
    lines = tuple(
        {
            "round": number,
            "accuracy": 0.1,
            "aggregate_error": None if error else 0.25,
            "sent_bytes": {} if error else {"mask": [10.0, None], "share": [5.0, 1.0]},
            "error": error,
            "model": "ab",
            "seconds": {"training": 1.0, "aggregation": 0.5},
        }
        for number, error in ((1, None), (2, failed))
    )
    record = RunRecord(folder=tmp_path, config={"seed": 0}, plan={"subgroups": [{}, {}]}, rounds=lines, end=None)
    keep(tmp_path, "item", {"a/seed-0": record})
    again = kept(tmp_path, "item")["a/seed-0"]
    assert [line["error"] for line in again.rounds] == [None, failed]
    assert [line["aggregate_error"] for line in again.rounds] == [0.25, None]
    assert [line["sent_bytes"] for line in again.rounds] == [{"all": [15]}, {"all": [0]}]
    assert seconds_of(again) == 3.0
    assert again.plan == {"subgroups": 2}
