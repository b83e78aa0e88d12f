"""The paper's items at a tiny scale: every one runs, and its verdicts are what they must be."""

import json
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from browser import open_page
from command import Done, run_command
from tolerance import differences_of_drawings

from heterosag.errors import UsageError
from heterosag.storage.run_log import read_run
from heterosag.training.data import DataSet
from heterosag.training.runs import Run, split
from reproduction import command, items, page
from reproduction.descriptions import points_below, trained, values, worth_judging
from reproduction.estimates import full_seconds, kind_of
from reproduction.figures import svg
from reproduction.guarantees import claimed_robustness
from reproduction.labels import label_counts
from reproduction.matrices import algorithm_2
from reproduction.outcome import OURS, Holds, Plot, Scale, Summary, Verdict, load, save
from reproduction.parts import FIGURES, PARTS
from reproduction.running import Job, accuracy_series, run_all, train
from reproduction.settings import (
    EXPERIMENTS,
    Setting,
    cifar_byzantine,
    cifar_links,
    data_for,
    mnist_byzantine,
    mnist_links,
)

ROOT = Path(__file__).parents[2]
Y, P, N = Holds.YES, Holds.PARTLY, Holds.NO

# In the order in which an item states its claims. What a clock or a handful of training rounds decide is left out.
VERDICTS = {
    "examples-1-2": [Y, N, Y, Y, Y],
    "examples-3-4": [Y, Y, Y],
    "appendix-a": [Y, Y, N],
    "matrices": [Y, Y, Y, N],
    "properties": [Y, Y, Y, N, N],
    "theorem-1": [N, N, Y, Y, Y],
    "theorem-3": [Y, N, Y, P, Y],
    "remarks": [N, N, N, Y, N],
    "lemmas": [Y, Y, Y, Y, Y, Y],
    "theorem-2": [Y, N, N, Y, Y, Y],
    "costs": [N, Y, P, P, Y],
    "expansion": [Y, P],
    "labels": [Y],
    "networks": [Y, Y],
    "comparison": [Y, Y],
    "remark-5": [P, Y],
    "inversion": [Y, P],
}
SAME_BITS = "Secure rounds leave the same model, bit for bit"


@pytest.fixture(autouse=True)
def _no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HETEROSAG_DATA", raising=False)


def quiet(line: str) -> None:
    del line


def run(name: str, folder: Path) -> Summary:
    job = Job(scale=Scale.TINY, seed=0, folder=folder, commit="0123456789", say=quiet)
    return items.run_item(items.ITEMS[name], job)


def test_an_item_on_other_data_than_the_papers_says_so_in_its_title(tmp_path: Path) -> None:
    fallen, own = (
        Job(scale=Scale.QUICK, seed=0, folder=tmp_path, say=quiet, data_dir=data_dir) for data_dir in ("", "somewhere")
    )
    item = items.ITEMS["experiment-2"]
    assert items.title_of(item, fallen) == f"{item.title} (on the embedded digits, not on mnist)"
    assert items.title_of(item, own) == item.title
    assert items.title_of(items.ITEMS["theorem-1"], fallen) == items.ITEMS["theorem-1"].title


LONG = {"brea", "comparison", "computation", "inversion", "lemmas", "remark-6", "theorem-2"} | {
    *("experiment-1-n100", "experiment-2", "experiment-2-cifar")
}
FIRST = {"matrices", "theorem-1", "experiment-1"}  # the others are in `make test-all`


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in LONG else () if name in FIRST else pytest.mark.long)
        for name in items.ITEMS
    ],
)
def test_every_item_runs_and_judges(name: str, tmp_path: Path) -> None:
    summary = run(name, tmp_path)
    holds = [verdict.holds for verdict in summary.outcome.verdicts]
    if name in VERDICTS:
        assert holds == VERDICTS[name]
    assert summary.outcome.text
    assert summary.duration_seconds >= 0
    assert page.took(summary).endswith(" s, commit 0123456789")
    assert load(tmp_path / "summaries" / f"{name}.json") == summary
    for verdict in summary.outcome.verdicts:
        if verdict.claim == SAME_BITS:
            assert verdict.holds is Y
    if name.startswith("experiment"):
        assert summary.outcome.verdicts[-1].claim == SAME_BITS
        assert "the embedded digits instead of" in summary.outcome.differs
    for plot in summary.outcome.plots:
        assert "<svg" in svg(plot)
    if name == "experiment-2":
        values = summary.outcome.values
        for attack in ("gaussian", "label-flip"):
            assert values[f"{attack}-fedavg"] < 0.5 * values["none-fedavg"]
            assert values[f"{attack}-median"] > 0.9 * values["none-median"]
        assert values["strong-fedavg"] < 0.5 * values["none-fedavg"] < values["strong-median"]


@pytest.mark.parametrize("kept", [{"as_it_is": True}, {"records": ROOT}])
def test_what_is_judged_from_kept_runs_names_no_commit_of_today(kept: dict[str, Any], tmp_path: Path) -> None:
    job = Job(scale=Scale.TINY, seed=0, folder=tmp_path, commit="0123456789", say=quiet, **kept)
    assert items.run_item(items.ITEMS["matrices"], job).commit == ""


def test_theorem_1_is_not_reported_true(tmp_path: Path) -> None:
    summary = run("theorem-1", tmp_path)
    first = summary.outcome.verdicts[0]
    assert first.claim.startswith("Theorem 1")
    assert first.holds is Holds.NO
    assert "true for G = " in first.note
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
    record = tmp_path / "cut" / "runs" / "tiny" / "experiment-1" / setting.name / "seed-0" / "record.jsonl"
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


def test_label_maps_are_those_of_the_full_experiments_whatever_order_the_samples_have() -> None:
    config = cifar_links(Scale.FULL, 0.7, 0, "")[0].config
    counts = label_counts(config)
    assert counts.shape == (10, 100)
    assert counts.sum(axis=1).tolist() == [5000] * 10
    y = np.random.default_rng(3).permutation(np.repeat(np.arange(10), 5000))
    x = np.zeros((len(y), 1), dtype=np.float32)
    _, parts = split(config, DataSet(name="shuffled", train_x=x, train_y=y, test_x=x, test_y=y))
    assert counts[3].tolist() == [int((y[part] == 3).sum()) for part in parts]
    assert cifar_byzantine(Scale.FULL, 10.0, 0, "")[0].config.users == 300


def test_figures_9b_and_11d_are_at_full_size(tmp_path: Path) -> None:
    plots = {plot.name: plot for plot in run("costs", tmp_path).outcome.plots}
    for name, parameters, rounds in (("time-100", 79_510, 200), ("time-cifar", 117_706, 250)):
        upload, both = (series.y for series in plots[name].series[:2])
        bits = math.ceil(math.log2(20 * (2 - 1) + 1)), math.ceil(math.log2(40 * (2 - 1) + 1))  # star and pairs
        assert upload[0] == pytest.approx(parameters * (bits[0] + 4 * bits[1]) / 5 * rounds / 1e6, rel=1e-3)
        assert both[0] - upload[0] == pytest.approx(parameters * 32 * rounds / 1e6)
    assert plots["time-cifar"].series[2].y[0] / plots["time-cifar"].series[0].y[0] == pytest.approx(191_434 / 117_706)


def test_every_training_run_names_its_users_samples_and_rounds(tmp_path: Path) -> None:
    summary = run("remark-5", tmp_path)
    assert [(one.name, one.users, one.samples, one.rounds) for one in summary.outcome.runs] == [
        ("same-90", 36, 1437, 4),
        ("fitted-90", 36, 1437, 4),
    ]
    stored = json.loads((tmp_path / "summaries" / "remark-5.json").read_text(encoding="utf-8"))["outcome"]["runs"]
    unnamed = {"oldest": ["", ""], "newest": ["", ""]}  # kept in no folder of records, runs name no commit
    assert stored[0] == {"name": "same-90", "users": 36, "samples": 1437, "rounds": 4, "seeds": 1} | unnamed
    text = page.markdown([summary])["reproduction/dropouts.md"]
    assert "**Training runs:** 2 settings of 36 users, 1,437 samples, 4 rounds, one seed." in text


def tiny_settings() -> list[Setting]:
    """Two settings of a group with three seeds, and one of another group with a budget."""
    none, heterogeneous = mnist_links(Scale.TINY, 25, 0, "")[:2]
    return [
        replace(none, seeds=3),
        replace(heterogeneous, seeds=3),
        replace(none, name="other", group="other", budget=2),
    ]


@pytest.mark.long
def test_runs_have_seeds_of_their_own_and_go_on_to_their_budget(tmp_path: Path) -> None:
    job = Job(scale=Scale.TINY, seed=0, folder=tmp_path, say=quiet)
    settings = tiny_settings()
    found = {run.setting.name: run for run in run_all(job, "item", settings)}
    assert [record.config["seed"] for record in found["none"].records] == [0, 1, 2]
    assert len(set(found["none"].accuracies)) > 1
    assert found["none"].accuracy == pytest.approx(sum(found["none"].accuracies) / 3)
    series = accuracy_series(found["none"])
    assert all(low <= y <= high for low, y, high in zip(series.low, series.y, series.high, strict=True))
    assert "fill-opacity" in svg(Plot(name="p", title="t", kind="lines", series=(series,)))
    named = values(found.values())
    assert named["none-low"] <= named["none"] <= named["none-high"]
    assert points_below(found["none"], found["none"]).values == (0.0, 0.0, 0.0)
    assert [(one.name, one.rounds, one.seeds) for one in trained(found.values())] == [
        ("none", 3, 3),
        ("heterogeneous", 3, 3),
        ("other", 2, 1),
    ]
    first = [line["model"] for line in found["none"].record.rounds]
    assert [line["model"] for line in found["other"].record.rounds] == first[:2]
    more = run_all(replace(job, rounds=3), "item", settings)[2]
    assert [line["model"] for line in more.record.rounds] == first


def test_single_runs_can_be_trained_and_what_is_there_be_judged_as_it_is(tmp_path: Path) -> None:
    job = Job(scale=Scale.TINY, seed=0, folder=tmp_path, say=quiet)
    settings = tiny_settings()
    as_it_is = replace(job, as_it_is=True)
    with pytest.raises(UsageError, match="as many rounds as wanted"):
        run_all(as_it_is, "item", settings)
    train(replace(job, only=("none/",), rounds=1), "item", settings)
    train(replace(job, only=("heterogeneous/seed-0", "heterogeneous/seed-2"), rounds=2), "item", settings)
    train(replace(job, only=("none/seed-0",)), "item", settings)
    none, heterogeneous = run_all(replace(as_it_is, rounds=2), "item", settings)  # the other has no run
    assert [len(record.rounds) for record in none.records] == [2]  # cut; seeds 1 and 2 did not get so far
    assert [record.config["seed"] for record in heterogeneous.records] == [0, 2]
    assert points_below(none, heterogeneous).values == (100 * (none.accuracy - heterogeneous.accuracies[0]),)
    assert [run.setting.name for run in run_all(as_it_is, "item", settings)] == ["none"]
    with pytest.raises(UsageError, match=r"no run of item begins with x.*none, heterogeneous, other"):
        train(replace(job, only=("x",)), "item", settings)


def test_the_command_trains_single_runs(tmp_path: Path) -> None:
    words = ("experiment-1", "--scale", "tiny", "-o", "here")
    out = call(*words, "--only", "none/seed-0", "--rounds", "1", cwd=tmp_path).stdout
    assert "none/seed-0 reached" in out
    assert not (tmp_path / "here" / "summaries").exists()
    record = tmp_path / "here" / "runs" / "tiny" / "experiment-1" / "none" / "seed-0"
    assert len(read_run(record).rounds) == 1
    refused = call(*words, "--as-it-is", "--rounds", "1", cwd=tmp_path, expect=2).stderr
    assert "too few rounds yet: heterogeneous" in refused.replace("\n", " ")
    assert "leave --only out" in call("costs", "--only", "x", cwd=tmp_path, expect=2).stderr


def test_cifar_10_has_a_budget_one_seed_at_full_size_and_three_at_a_smaller_one() -> None:
    one = {setting.name: setting for setting in EXPERIMENTS["experiment-1-cifar"](Scale.FULL, 0, "")}
    two = {setting.name: setting for setting in EXPERIMENTS["experiment-2-cifar"](Scale.FULL, 0, "")}
    for name in ("none", "heterogeneous", "homogeneous"):
        assert (one[f"alpha-1-{name}"].budget, one[f"alpha-1-{name}"].seeds) == (100, 1)
        assert (one[f"alpha-1-{name}"].config.users, one[f"alpha-1-{name}"].config.train_samples) == (100, None)
        assert (one[f"small-{name}"].config.users, one[f"small-{name}"].seeds) == (25, 3)
        assert one[f"padded-{name}"].config.model == "cifar10-padded"
        assert one[f"alpha-0.7-{name}"].budget == 30
    for attack in ("none", "gaussian", "sign-flip", "label-flip", "sign-flip-noise"):
        for kind in ("median", "fedavg"):
            if attack != "sign-flip-noise":
                assert (two[f"iid-{attack}-{kind}"].budget, two[f"iid-{attack}-{kind}"].config.users) == (100, 300)
            assert (two[f"small-{attack}-{kind}"].seeds, two[f"small-{attack}-{kind}"].config.attackers) == (
                3,
                0 if attack == "none" else 3,
            )
    for settings in (one, two):
        assert len({setting.name for setting in settings.values()}) == len(settings)


# --- what can be judged ---------------------------------------------------------------------------------------------


def verdict(holds: Holds, paper: str = "stated") -> Verdict:
    return Verdict(claim="c", paper=paper, found="f", holds=holds)


def test_models_at_chance_judge_nothing() -> None:
    assert Holds.of(True, True, judged=False) is Holds.NOT_JUDGED
    assert not worth_judging(0.9, 0.14)
    assert worth_judging(0.9, 0.21)


def test_the_headline_counts_the_papers_claims_and_ours_apart_and_only_what_was_judged(tmp_path: Path) -> None:
    kinds = [verdict(Y), verdict(Y), verdict(P), verdict(N), verdict(Holds.NOT_JUDGED), verdict(P, OURS)]
    kinds.append(verdict(Y, OURS))  # the same claim again
    summary = run("expansion", tmp_path)
    changed = replace(summary, outcome=replace(summary.outcome, verdicts=tuple(kinds)))
    assert page.lead([changed]) == (
        "1 items. Of the paper's claims 4 were judged: 2 hold, 1 holds partly, 1 fails; 1 could not be judged. "
        "Of our own 1 was judged: 0 hold, 1 holds partly, 0 fail."
    )
    pages = page.markdown([changed])
    assert "**not judged**" in pages["reproduction.md"]
    assert "**not judged**" in pages["reproduction/costs.md"]
    assert "| 2 | 1 | 1 | 1 | 1 holds, 1 partly |" in pages["reproduction.md"]
    assert 'class="not judged"' in page.html([changed])


def test_settings_of_experiment_2_have_ring_and_floats_filter_and_none_and_both_sign_flips() -> None:
    full = {setting.name: setting for setting in mnist_byzantine(Scale.FULL, 0, "somewhere")}
    for attack in ("gaussian", "sign-flip", "label-flip"):
        assert full[f"{attack}-fedavg-float"].scheme == full[f"{attack}-median-float"].scheme == "float"
        assert full[f"{attack}-median-unfiltered"].scheme == "unfiltered"
        assert full[f"{attack}-naive"].scheme == "naive"
        assert full[f"{attack}-median"].scheme == "ring"
    assert full["gaussian-1-fedavg-float"].config.attack_strength == 1
    assert {setting.config.rounds for setting in full.values()} == {200}
    cifar = {setting.name: setting for setting in EXPERIMENTS["experiment-2-cifar"](Scale.FULL, 0, "somewhere")}
    config = cifar["small-sign-flip-noise-fedavg"].config
    assert (config.attack, config.attack_strength) == ("gaussian", 1.0)
    assert cifar["small-sign-flip-fedavg"].config.attack == "sign-flip"
    assert cifar["small-sign-flip-noise-fedavg-float"].scheme == "float"
    assert cifar["small-sign-flip-noise-median-unfiltered"].scheme == "unfiltered"
    quick = {setting.name for setting in mnist_byzantine(Scale.QUICK, 0, "")}
    assert {"gaussian-fedavg-float", "gaussian-median-unfiltered"} <= quick
    assert "gaussian-naive" not in quick


def test_full_dirichlet_splits_are_fedmls() -> None:
    for settings in (cifar_links, cifar_byzantine):
        assert {one.config.partition for one in settings(Scale.FULL, 1.0, 0, "")} == {"dirichlet-fedml"}
        assert {one.config.partition for one in settings(Scale.QUICK, 1.0, 0, "")} == {"dirichlet"}


def test_the_command_of_a_summary_says_what_was_taken_as_it_is() -> None:
    job = Job(scale=Scale.FULL, seed=0, folder=ROOT, data_dir="x", rounds=30, as_it_is=True)
    assert items.command_of(items.ITEMS["experiment-2"], job) == (
        "python -m reproduction experiment-2 --scale full --seed 0 --data-dir DATA --rounds 30 --as-it-is"
    )
    kept = replace(job, rounds=None, as_it_is=False, records=ROOT)
    assert items.command_of(items.ITEMS["experiment-2"], kept).endswith("DATA --records reproduction/records")


def test_estimates_at_full_scale_are_measured_rounds_times_rounds_and_seeds() -> None:
    for item in ("experiment-1", "experiment-1-n100", "experiment-1-cifar", "experiment-2", "experiment-2-cifar"):
        settings = EXPERIMENTS[item](Scale.FULL, 0, "")
        rounds = sum((setting.budget or setting.config.rounds) * setting.seeds for setting in settings)
        estimate = items.ITEMS[item].estimate(Scale.FULL)
        assert estimate == full_seconds(item)
        assert 0.1 < 2 * estimate / rounds < 60  # seconds of a round on one core
    one, two = (
        next(s for s in mnist_byzantine(Scale.FULL, 0, "") if s.name == n) for n in ("none-median", "none-naive")
    )
    assert kind_of(one) != kind_of(two)


def test_a_quick_run_does_not_replace_a_full_summary(tmp_path: Path) -> None:
    summary = replace(run("expansion", tmp_path), scale=Scale.FULL)
    save(summary, tmp_path / "summaries")
    run("expansion", tmp_path)
    assert load(tmp_path / "summaries" / "expansion.json").scale is Scale.FULL


def test_finished_runs_are_reused_and_other_settings_refused(tmp_path: Path) -> None:
    setting = mnist_links(Scale.TINY, 25, 0, "")[2]
    job = Job(scale=Scale.TINY, seed=0, folder=tmp_path, say=quiet)
    run_all(job, "item", [setting])
    record = tmp_path / "runs" / "tiny" / "item" / setting.name / "seed-0"
    before = (record / "record.jsonl").stat().st_mtime_ns
    run_all(replace(job, workers=2), "item", [setting])
    assert (record / "record.jsonl").stat().st_mtime_ns == before
    changed = Setting(name=setting.name, label="", config=replace(setting.config, learning_rate=1.0))
    with pytest.raises(UsageError, match="run of other settings"):
        run_all(job, "item", [changed])


def test_secure_rounds_that_differ_are_seen(tmp_path: Path) -> None:
    setting = mnist_links(Scale.TINY, 25, 0, "")[1]
    job = Job(scale=Scale.TINY, seed=0, folder=tmp_path, say=quiet)
    finished = run_all(job, "item", [setting])[0]
    assert finished.same_bits
    record = tmp_path / "runs" / "tiny" / "item" / setting.name / "seed-0-secure" / "record.jsonl"
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
                 "tables/costs-costs.md", "reproduction.md", "reproduction/costs.md", "reproduction.html"):  # fmt: skip
        assert (tmp_path / path).stat().st_size > 100
    for path in (tmp_path / "reproduction").glob("*.md"):
        text = path.read_text(encoding="utf-8")
        for picture in re.findall(r"\]\((\.\./figures/[^)]+)\)", text):
            assert (path.parent / picture).exists()
    text = (tmp_path / "reproduction" / "costs.md").read_text(encoding="utf-8")
    assert "(figure 5b of the paper" in text
    assert "`python -m reproduction costs --scale tiny --seed 0`, seed 0, scale tiny" in text
    overview = (tmp_path / "reproduction.md").read_text(encoding="utf-8")
    assert "3 items. Of the paper's claims 13 were judged: 8 hold, 2 hold partly, 3 fail." in overview


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


def test_every_item_is_on_one_page_and_every_figure_of_the_paper_is_named_once() -> None:
    placed = [item for part in PARTS for item in part.items]
    assert len(placed) == len(set(placed))
    assert set(items.ITEMS) <= set(placed)
    assert all(any(name.startswith(f"{item}-") for item in placed) for name in FIGURES)
    found = items.known_summaries(ROOT / "docs" / "summaries" / "reproduction")
    drawn = {f"{summary.item}-{plot.name}" for summary in found for plot in summary.outcome.plots}
    assert {name for name in FIGURES if "cifar" not in name} <= drawn


def test_the_committed_pages_are_made_of_the_committed_summaries() -> None:
    found = items.known_summaries(ROOT / "docs" / "summaries" / "reproduction")
    assert [summary.item for summary in found] == list(items.ITEMS)
    pages = page.markdown(found, "figures/reproduction")
    assert {path.name for path in (ROOT / "docs" / "reproduction").iterdir()} == {
        Path(path).name for path in pages if "/" in path
    }
    for path, text in pages.items():
        assert (ROOT / "docs" / path).read_text(encoding="utf-8") == text, f"run `make docs-data`: {path}"
    for summary in found:
        job = Job(scale=summary.scale, seed=summary.seed, folder=ROOT, data_dir="DATA")
        command_line = items.command_of(items.ITEMS[summary.item], job)
        more = r"( --rounds \d+)?( --as-it-is)?( --records \S+)?"
        assert re.fullmatch(re.escape(command_line) + more, summary.command)
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
    assert re.search("holds +Example 1a", out)
    assert "here/reproduction.html" in out.replace("\n", "")
    assert "--list shows them" in call(cwd=tmp_path, expect=2).stderr
    assert "no item is called 'theorem-9'" in call("theorem-9", cwd=tmp_path, expect=2).stderr
    assert "not 'huge'" in call("costs", "--scale", "huge", cwd=tmp_path, expect=2).stderr
    missing = call("experiment-1", "--scale", "full", "-o", "there", cwd=tmp_path, expect=2).stderr
    assert "HETEROSAG_DATA" in missing


def test_summaries_come_back_as_they_were_saved(tmp_path: Path) -> None:
    summary = run("expansion", tmp_path)
    assert load(save(summary, tmp_path / "again")) == summary
