"""The record that a run on Flower leaves."""

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flower_nodes import (
    FIRST_NODE,
    LEVEL,
    OPTIONS,
    arrays,
    grid_of,
    make_nodes,
    messages,
    record,
    result_of,
    train,
)
from flwr.app import Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg

from heterosag import Plan
from heterosag.errors import UsageError
from heterosag.flower import SecureGrid
from heterosag.report.page import make_page
from heterosag.report.runs import summarise_run
from heterosag.storage.run_log import find_runs, read_run


def test_a_run_leaves_the_record_that_every_engine_leaves(tmp_path: Path) -> None:
    def fault(stage: str, node: int, message: Message) -> str:
        return "silent" if (stage, node) == ("share", FIRST_NODE) else ""

    nodes = make_nodes(12, tmp_path / "log", train)
    grid, _ = grid_of(nodes, fault, record=tmp_path, rule="median")
    evaluate = grid.recorded(lambda number, model: MetricRecord({"accuracy": 0.1 * number, "loss": 2.0 - number}))
    strategy = FedAvg(fraction_evaluate=0.0)
    initial = record({"w": np.zeros(30, dtype=np.float32)})
    strategy.start(grid=grid, initial_arrays=initial, num_rounds=2, evaluate_fn=evaluate)
    grid.close()
    run = read_run(tmp_path / "run")
    assert run.config["engine"] == "flower"
    assert run.config["classes"] == [12]
    assert [line["accuracy"] for line in run.rounds] == [0.1, 0.2]
    assert [line["loss"] for line in run.rounds] == [1.0, 0.0]
    assert [line["survivors"] for line in run.rounds] == [11, 11]
    assert all(line["dropped"]["share"] == 1 for line in run.rounds)
    assert run.rounds[0]["sent_bytes"]["mask"][0] > 0
    assert set(run.rounds[0]["user_seconds"]) == {"advertise", "share", "mask", "unmask"}
    assert run.end is not None
    assert run.end["rounds"] == 2
    found = summarise_run(run)
    assert found["accuracy"] == 0.2
    assert found["aggregate_error"] is None
    assert "Accuracy over rounds" in make_page([run])


def test_a_round_that_fails_and_one_that_nobody_judges_are_recorded(tmp_path: Path) -> None:
    down = [True]

    def fault(stage: str, node: int, message: Message) -> str:
        return "silent" if down[0] else ""

    nodes = make_nodes(12, tmp_path / "log", train, config=lambda place: {"heterosag-class": place % 2})
    grid, _ = grid_of(nodes, fault, levels=[3, LEVEL], record=tmp_path, options={**OPTIONS, "min_robustness": 0})
    list(grid.send_and_receive(messages(nodes, arrays())))  # no plan: nobody named its class
    down[0] = False
    list(grid.send_and_receive(messages(nodes, arrays())))
    grid.close()
    run = read_run(tmp_path / "run")
    assert [line["error"] is None for line in run.rounds] == [False, True]
    assert run.rounds[0]["dropped"]["hello"] == 12
    assert run.config["classes"] == [6, 6]
    assert [line["accuracy"] for line in run.rounds] == [None, None]
    assert run.rounds[1]["sent_bytes"]["mask"][1] > run.rounds[1]["sent_bytes"]["mask"][0]
    page = make_page([run])
    assert "rounds (failed)" in page
    assert "nan" not in page.lower().replace("financ", "")


def test_what_nodes_say_of_the_model_is_recorded(tmp_path: Path) -> None:
    """A weighted mean over those who say something that is a number; the others do not count."""
    said: list[dict[str, Any]] = [
        {"num-examples": 10, "accuracy": 0.9, "loss": 1.0},
        {"num-examples": 30, "accuracy": 0.5},
        {"num-examples": 99, "loss": 2.0},
        {"num-examples": 50, "accuracy": float("nan")},
        {"accuracy": 0.1},
        {"num-examples": 0, "accuracy": 0.2},
    ]
    nodes = make_nodes(6, tmp_path / "log", train)
    grid, _ = grid_of(nodes, record=tmp_path)
    list(grid.send_and_receive(messages(nodes, arrays())))
    asked = [Message(RecordDict(), dst_node_id=node.context.node_id, message_type="evaluate") for node in nodes]
    assert grid._recorder is not None
    grid._recorder.note_replies(
        1,
        [
            Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)
            for message, metrics in zip(asked, said, strict=True)
        ],
    )
    grid.close()
    (line,) = read_run(tmp_path / "run").rounds
    assert line["accuracy"] == pytest.approx((10 * 0.9 + 30 * 0.5) / 40)
    assert line["loss"] == pytest.approx((10 * 1.0 + 99 * 2.0) / 109)


def test_a_grid_used_twice_keeps_what_was_judged(tmp_path: Path) -> None:
    nodes = make_nodes(6, tmp_path / "log", train)
    grid, _ = grid_of(nodes, record=tmp_path)
    scores = iter([0.1, 0.5, 0.9, 0.2, 0.6, 0.8])
    evaluate = grid.recorded(lambda number, model: MetricRecord({"accuracy": next(scores)}))
    for _ in range(2):
        initial = record({"w": np.zeros(30, dtype=np.float32)})
        strategy = FedAvg(fraction_evaluate=0.0)
        strategy.start(grid=grid, initial_arrays=initial, num_rounds=2, evaluate_fn=evaluate)
    grid.close()
    grid.close()
    assert [line["accuracy"] for line in read_run(tmp_path / "run").rounds] == [0.5, 0.9, 0.6, 0.8]
    list(grid.send_and_receive(messages(nodes, arrays())))  # not recorded, and no error
    assert len(read_run(tmp_path / "run").rounds) == 4


def test_every_run_has_a_folder_of_its_own_named_by_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    monitored = logging.getLogger("flwr")
    monitored.addHandler(caplog.handler)
    nodes = make_nodes(6, tmp_path / "log", train)
    folders = []
    for number, runs in ((7, "runs"), (8, "runs"), (7, tmp_path / "runs"), (7, "~/runs")):
        monkeypatch.setenv("HOME", str(tmp_path))
        caplog.clear()
        grid, inside = grid_of(nodes)
        inside.set_run(SimpleNamespace(run_id=number))
        grid = SecureGrid(inside, record=runs, max_weight=1)
        assert grid.record_folder is None
        list(grid.send_and_receive(messages(nodes, arrays())))
        grid.close()
        folders.append(grid.record_folder)
        assert f"heterosag report {grid.record_folder}\n" in caplog.text
        assert ("relative path" in caplog.text) == (runs == "runs")
    monitored.removeHandler(caplog.handler)
    assert folders == [tmp_path / "runs" / name for name in ("run-7", "run-8", "run-7-2", "run-7-3")]
    assert [len(read_run(folder).rounds) for folder in find_runs(tmp_path / "runs")] == [1, 1, 1, 1]
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is something else"):
        grid_of(nodes, record="file")


def test_false_times_and_a_full_disk_cost_no_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = make_nodes(6, tmp_path / "log", train)
    for node in nodes[:2]:
        original = node.app

        def lie(message: Message, context: Any, original: Any = original) -> Message:
            reply = original(message, context)
            reply.content.config_records["heterosag"]["seconds"] = 1e308
            return reply  # type: ignore[no-any-return]

        node.app = lie  # type: ignore[assignment]
    grid, _ = grid_of(nodes, record=tmp_path)
    (reply,) = grid.send_and_receive(messages(nodes, arrays()))
    result_of(reply)
    (line,) = read_run(tmp_path / "run").rounds
    assert sum(line["user_seconds"].values()) < 6 * grid.rounds[0].seconds

    def full(*_: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("heterosag.storage.run_log.RunWriter.write", full)
    (reply,) = grid.send_and_receive(messages(nodes, arrays()))
    result_of(reply)


def test_a_run_without_any_plan_leaves_no_record(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nodes = make_nodes(6, tmp_path / "log", train)
    other = Plan.build([6], [LEVEL], 35, users=list("abcdef"), value_range=1.0, **OPTIONS)
    grid, _ = grid_of(nodes, levels=(16,), options=None, plan=other, record=tmp_path)
    (reply,) = grid.send_and_receive(messages(nodes, arrays()))
    assert reply.has_error()
    monitored = logging.getLogger("flwr")
    monitored.addHandler(caplog.handler)
    grid.close()
    monitored.removeHandler(caplog.handler)
    assert "no round had a plan" in caplog.text
    assert not (tmp_path / "run").exists()
