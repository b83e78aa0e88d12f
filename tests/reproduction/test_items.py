"""The paper's items at a tiny scale: every one runs, and its verdicts are what they must be."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from browser import open_page
from command import Done, run_command
from tolerance import differences_of_drawings

from heterosag.errors import UsageError
from heterosag.storage.run_log import read_run
from heterosag.training.runs import Run
from reproduction import command, items, page
from reproduction.figures import svg
from reproduction.guarantees import claimed_robustness
from reproduction.matrices import algorithm_2
from reproduction.outcome import Holds, Scale, Summary, load, save
from reproduction.running import Job, run_all
from reproduction.settings import Setting, data_for, mnist_byzantine, mnist_links

ROOT = Path(__file__).parents[2]
Y, P, N = Holds.YES, Holds.PARTLY, Holds.NO

# In the order in which an item states its claims. What a clock or a handful of training rounds decide is left out.
VERDICTS = {
    "examples-1-2": [Y, P, Y, Y, Y],
    "examples-3-4": [Y, Y, Y],
    "appendix-a": [Y, Y, N],
    "matrices": [Y, Y, Y, P],
    "properties": [Y, Y, Y, P, P, P],
    "theorem-1": [P, P, Y, Y, Y],
    "theorem-3": [P, P, Y],
    "remarks": [P, Y, Y, N, Y],
    "lemmas": [Y, Y, Y, Y, Y],
    "theorem-2": [Y, P, Y],
    "costs": [N, Y, P, P, Y],
    "expansion": [Y, P],
    "comparison": [Y, Y],
    "remark-5": [Y, Y],
    "inversion": [Y, P],
}
SAME_BITS = "Secure rounds leave the same model, bit for bit"


@pytest.fixture(autouse=True)
def _no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HETEROSAG_DATA", raising=False)


def quiet(line: str) -> None:
    del line


def run(name: str, folder: Path) -> Summary:
    job = Job(scale=Scale.TINY, seed=0, folder=folder, say=quiet)
    return items.run_item(items.ITEMS[name], job)


LONG = {"experiment-1-n100", "experiment-2", "experiment-2-cifar", "lemmas", "theorem-2"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in items.ITEMS]
)
def test_every_item_runs_and_judges(name: str, tmp_path: Path) -> None:
    summary = run(name, tmp_path)
    holds = [verdict.holds for verdict in summary.outcome.verdicts]
    if name in VERDICTS:
        assert holds == VERDICTS[name]
    assert summary.outcome.text
    assert summary.duration_seconds >= 0
    assert load(tmp_path / "summaries" / f"{name}.json") == summary
    for verdict in summary.outcome.verdicts:
        if verdict.claim == SAME_BITS:
            assert verdict.holds is Y
    if name.startswith("experiment"):
        assert summary.outcome.verdicts[-1].claim == SAME_BITS
    for plot in summary.outcome.plots:
        assert "<svg" in svg(plot)
    if name == "experiment-2":
        values = summary.outcome.values
        for attack in ("gaussian", "label-flip"):
            assert values[f"{attack}-fedavg"] < 0.5 * values["none-fedavg"]
            assert values[f"{attack}-median"] > 0.9 * values["none-median"]
        assert values["strong-fedavg"] < 0.5 * values["none-fedavg"] < values["strong-median"]


def test_theorem_1_is_not_reported_true(tmp_path: Path) -> None:
    summary = run("theorem-1", tmp_path)
    first = summary.outcome.verdicts[0]
    assert first.claim.startswith("Theorem 1")
    assert first.holds is not Holds.YES
    assert summary.outcome.values["six"] == 0.5 != claimed_robustness(6)
    row = next(row for row in summary.outcome.tables[0].rows if row[0] == "6")
    assert row == ("6", "0.6667", "0.5000", "0.8000")


def test_algorithm_2_as_printed_pairs_a_subgroup_with_itself() -> None:
    assert algorithm_2((2, 1, 3)) is None
    assert algorithm_2((1, 2, 2)) is not None


# --- runs -----------------------------------------------------------------------------------------------------------


def test_an_interrupted_experiment_goes_on_where_it_stopped(tmp_path: Path) -> None:
    setting = mnist_links(Scale.TINY, 25, 0, "")[1]
    job = Job(scale=Scale.TINY, seed=0, folder=tmp_path / "whole", say=quiet)
    whole = run_all(job, "experiment-1", [setting])[0].record

    other = replace(job, folder=tmp_path / "cut")
    run_all(other, "experiment-1", [setting])
    record = tmp_path / "cut" / "runs" / "tiny" / "experiment-1" / setting.name / "record.jsonl"
    shutil.rmtree(record.parent)
    stopped = Run(replace(setting.config, checkpoint_every=1), record.parent)
    with pytest.raises(KeyboardInterrupt):
        stopped.train(lambda line: _stop_after_two(line["round"]))
    assert len(read_run(record.parent).rounds) == 2
    assert read_run(record.parent).end is None
    again = run_all(other, "experiment-1", [setting])[0].record
    assert again.end is not None
    assert [line["model"] for line in again.rounds] == [line["model"] for line in whole.rounds]

    (record.parent / "checkpoint.safetensors").unlink()  # killed before its first checkpoint
    record.write_text("".join(record.read_text().splitlines(keepends=True)[:2]))
    anew = run_all(other, "experiment-1", [setting])[0].record
    assert [line["model"] for line in anew.rounds] == [line["model"] for line in whole.rounds]


def _stop_after_two(number: int) -> None:
    if number == 2:
        raise KeyboardInterrupt


def test_label_maps_show_the_split_that_was_trained_on() -> None:
    from heterosag.training import data
    from heterosag.training.runs import split
    from reproduction.experiments import _labels
    from reproduction.settings import cifar_links

    config = cifar_links(Scale.TINY, 0.7, 0, "")[0].config
    thin, parts = split(config, data.load("digits"))
    grid = _labels(config, "labels").grid
    assert [sum(column) for column in zip(*grid, strict=True)] == [len(part) for part in parts]
    assert grid[3][5] == sum(thin.train_y[parts[5]] == 3)


def test_a_quick_run_does_not_replace_a_full_summary(tmp_path: Path) -> None:
    summary = replace(run("expansion", tmp_path), scale=Scale.FULL)
    save(summary, tmp_path / "summaries")
    run("expansion", tmp_path)
    assert load(tmp_path / "summaries" / "expansion.json").scale is Scale.FULL


def test_finished_runs_are_reused_and_other_settings_refused(tmp_path: Path) -> None:
    setting = mnist_links(Scale.TINY, 25, 0, "")[2]
    job = Job(scale=Scale.TINY, seed=0, folder=tmp_path, say=quiet)
    run_all(job, "item", [setting])
    record = tmp_path / "runs" / "tiny" / "item" / setting.name
    before = (record / "record.jsonl").stat().st_mtime_ns
    run_all(replace(job, workers=2), "item", [setting])
    assert (record / "record.jsonl").stat().st_mtime_ns == before
    changed = Setting(name=setting.name, label="", config=replace(setting.config, seed=1))
    with pytest.raises(UsageError, match="run of other settings"):
        run_all(job, "item", [changed])


def test_secure_rounds_that_differ_are_seen(tmp_path: Path) -> None:
    setting = mnist_links(Scale.TINY, 25, 0, "")[1]
    job = Job(scale=Scale.TINY, seed=0, folder=tmp_path, say=quiet)
    finished = run_all(job, "item", [setting])[0]
    assert finished.same_bits
    record = tmp_path / "runs" / "tiny" / "item" / f"{setting.name}-secure" / "record.jsonl"
    record.write_text(re.sub(r'"model": "..', '"model": "zz', record.read_text()))
    assert not replace(finished, secure=read_run(record.parent)).same_bits


def test_full_scale_has_the_papers_sizes() -> None:
    one = {setting.name: setting.config for setting in mnist_links(Scale.FULL, 25, 0, "somewhere")}
    assert one["heterogeneous"].levels == (2, 6, 8, 10, 12)
    assert {config.rounds for config in one.values()} == {200}
    assert {(config.batch_size, config.learning_rate, config.local_epochs) for config in one.values()} == {
        (240, 0.03, 5)
    }
    two = {setting.name: setting.config for setting in mnist_byzantine(Scale.FULL, 0, "somewhere")}
    assert two["gaussian-median"].users == 300
    assert two["gaussian-median"].attackers == 18
    assert two["gaussian-fedavg"].design == "secagg"
    assert two["gaussian-fedavg"].rule == "unchecked_mean"
    assert {config.secure for config in (*one.values(), *two.values())} == {False}


def test_quick_runs_take_the_papers_data_where_it_is() -> None:
    assert data_for(Scale.QUICK, "mnist", "") == "digits"
    assert data_for(Scale.QUICK, "mnist", "/data") == "mnist"
    assert data_for(Scale.FULL, "cifar10", "") == "cifar10"
    assert data_for(Scale.TINY, "cifar10", "/data") == "digits"


# --- pages ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_one_folder_holds_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["matrices", "examples-1-2", "costs"]
    command.run(names, scale="tiny", out=tmp_path, data_dir="", seed=0, workers=1, as_json=True)
    printed = json.loads(capsys.readouterr().out)
    assert [item["item"] for item in printed["items"]] == ["examples-1-2", "matrices", "costs"]
    for path in ("summaries/costs.json", "figures/costs-time.svg", "figures/costs-time.png", "tables/costs-costs.csv",
                 "tables/costs-costs.md", "reproduction.md", "reproduction.html"):  # fmt: skip
        assert (tmp_path / path).stat().st_size > 100
    text = (tmp_path / "reproduction.md").read_text(encoding="utf-8")
    for picture in re.findall(r"\]\((figures/[^)]+)\)", text):
        assert (tmp_path / picture).exists()
    assert "`python -m reproduction costs --scale tiny --seed 0`, seed 0, scale tiny" in text
    assert "3 items, 14 claims: 9 hold, 4 hold partly, 1 fail." in text


@pytest.mark.slow
def test_the_page_in_a_browser(tmp_path: Path) -> None:
    summaries = [run(name, tmp_path) for name in ("examples-3-4", "theorem-1")]
    path = page.write_all(summaries, tmp_path)
    done = open_page(path, tmp_path / "profile")
    assert done.stdout.count("<svg") == 3
    assert "CONSOLE" not in done.stderr


def test_a_damaged_summary_is_named(tmp_path: Path) -> None:
    (tmp_path / "costs.json").write_text("{}")
    with pytest.raises(UsageError, match=r"costs\.json is not a summary"):
        items.known_summaries(tmp_path)


def test_the_committed_page_is_made_of_the_committed_summaries() -> None:
    found = items.known_summaries(ROOT / "docs" / "summaries" / "reproduction")
    assert [summary.item for summary in found] == list(items.ITEMS)
    text = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    assert text == page.markdown(found, "figures/reproduction"), "run `make docs-data`"
    for summary in found:
        job = Job(scale=summary.scale, seed=summary.seed, folder=ROOT, data_dir="DATA")
        assert summary.command == items.command_of(items.ITEMS[summary.item], job)
        assert summary.duration_seconds > 0
        assert summary.scale is not Scale.TINY
    full = {summary.item for summary in found if summary.scale is Scale.FULL}
    assert {"experiment-1", "experiment-2"} <= full


@pytest.mark.slow
def test_the_committed_figures_are_drawn_from_the_committed_summaries() -> None:
    folder = ROOT / "docs" / "figures" / "reproduction"
    found = items.known_summaries(ROOT / "docs" / "summaries" / "reproduction")
    wanted = {f"{summary.item}-{plot.name}.svg": plot for summary in found for plot in summary.outcome.plots}
    assert {path.name for path in folder.iterdir()} == wanted.keys()
    for name, plot in wanted.items():
        differing = differences_of_drawings(svg(plot), (folder / name).read_text(encoding="utf-8"))
        assert not differing, f"run `make docs-data`: {name}: {differing[0]}"


# --- the command ----------------------------------------------------------------------------------------------------


def call(*words: str, cwd: Path, expect: int = 0) -> Done:
    return run_command(*words, cwd=cwd, expect=expect, program="reproduction.__main__")


def test_the_command_lists_runs_and_refuses(tmp_path: Path) -> None:
    listed = call("--list", cwd=tmp_path).stdout
    assert "theorem-1" in listed
    known = json.loads(call("--list", "--json", cwd=tmp_path).stdout)["items"]
    assert [item["item"] for item in known] == list(items.ITEMS)
    assert all(item["estimate_seconds"]["quick"] <= item["estimate_seconds"]["full"] for item in known)
    assert sum(item["estimate_seconds"]["quick"] for item in known) <= 900
    out = call("examples-1-2", "--scale", "tiny", "-o", "here", cwd=tmp_path).stdout
    assert "about 5 s" in out
    assert "holds  Example 1a" in out
    assert "here/reproduction.html" in out.replace("\n", "")
    assert "--list shows them" in call(cwd=tmp_path, expect=2).stderr
    assert "no item is called 'theorem-9'" in call("theorem-9", cwd=tmp_path, expect=2).stderr
    assert "not 'huge'" in call("costs", "--scale", "huge", cwd=tmp_path, expect=2).stderr
    missing = call("experiment-1", "--scale", "full", "-o", "there", cwd=tmp_path, expect=2).stderr
    assert "HETEROSAG_DATA" in missing


def test_summaries_come_back_as_they_were_saved(tmp_path: Path) -> None:
    summary = run("expansion", tmp_path)
    assert load(save(summary, tmp_path / "again")) == summary
