"""Runs that the studio lists, shows, compares and follows."""

from __future__ import annotations

import http.client
import json
import shutil
import urllib.parse
from typing import Any

import pytest
from records import begin_run, write_round
from studio_server import DAMAGED, Studio


def test_runs_are_listed_shown_and_compared(studio: Studio) -> None:
    _, listed = studio.get("/api/runs")
    names = {run["name"] for run in listed["runs"]}
    assert {"steady", "group/inner"} <= names
    assert not names & {"link", "half", "secret"}
    status, run = studio.get("/api/runs/group/inner")
    assert status == 200
    assert [point["round"] for point in run["points"]] == [1, 2, 3]
    assert run["points"][2]["seconds"] == pytest.approx(1.5)
    assert run["points"][0]["bytes"] == [5900.0, 6300.0]
    _, compared = studio.get("/api/compare?run=steady&run=group/inner")
    assert {"name": "rounds (failed)", "cells": ["6 (0)", "3 (0)"]} in compared["rows"]
    assert {"name": "seed", "cells": ["not recorded", "not recorded"]} in compared["ran"]
    assert compared["differences"] == []
    assert compared["commands"] == ["heterosag train --classes=12,12"] * 2


def test_running_runs_come_first_then_the_newest(studio: Studio) -> None:
    running, stopped = begin_run(studio.folder / "order" / "running"), begin_run(studio.folder / "order" / "stopped")
    for writer in (running, stopped):
        write_round(writer, 1, 0.2)
    stopped.close()
    _, listed = studio.get("/api/runs")
    states = [run.get("state") for run in listed["runs"]]
    order = {"running": 0, "finished": 1, "interrupted": 1, None: 2}  # those that cannot be read come last
    assert [order[state] for state in states] == sorted(order[state] for state in states)
    times = [run["started"] for run in listed["runs"] if run.get("state") in ("finished", "interrupted")]
    assert times == sorted(times, reverse=True)
    found = {run["name"]: run.get("state") for run in listed["runs"]}
    assert (found["order/running"], found["order/stopped"]) == ("running", "interrupted")
    assert found["steady"] == "finished"
    running.close()
    _, listed = studio.get("/api/runs")
    assert {run["name"]: run.get("state") for run in listed["runs"]}["order/running"] == "interrupted"


def test_rounds_that_failed_are_counted_in_the_listing(studio: Studio) -> None:
    writer = begin_run(studio.folder / "failed")
    write_round(writer, 1, 0.1)
    write_round(writer, 2, 0.1, error={"kind": "TooFewSurvivorsError", "message": "too few"})
    writer.close()
    _, listed = studio.get("/api/runs")
    counted = {run["name"]: (run["failed"], run["rounds"]) for run in listed["runs"] if not run["problem"]}
    assert (counted["failed"], counted["steady"]) == ((1, 2), (0, 6))
    shutil.rmtree(studio.folder / "failed")


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_record_is_listed_with_its_problem(studio: Studio, name: str) -> None:
    _, listed = studio.get("/api/runs")
    assert next(run for run in listed["runs"] if run["name"] == name)["problem"]
    for path in (f"/api/runs/{name}", f"/api/compare?run={name}"):
        status, answer = studio.get(path)
        assert status == 422
        assert str(studio.folder) not in answer["error"]


def test_a_run_whose_numbers_are_extreme_is_shown(studio: Studio) -> None:
    writer = begin_run(studio.folder / "extreme")
    write_round(writer, 1, 1e300, aggregate_error=1e300, aggregate_rms=1e-300, round_seconds=1e300)
    writer.close()
    status, run = studio.get("/api/runs/extreme")
    assert status == 200
    assert run["points"][0]["relative_error"] is None
    assert studio.get("/api/compare?run=extreme")[0] == 200
    shutil.rmtree(studio.folder / "extreme")


def test_rounds_arrive_as_they_are_written(studio: Studio) -> None:
    writer = begin_run(studio.folder / "streamed")
    write_round(writer, 1, 0.2)
    connection = http.client.HTTPConnection("127.0.0.1", studio.port, timeout=20)
    connection.request("GET", "/api/events?run=streamed")
    answer = connection.getresponse()
    assert answer.getheader("content-type", "").startswith("text/event-stream")

    def next_event(kind: str) -> Any:
        while True:
            line = answer.readline().decode()
            assert line
            if line.strip() == f"event: {kind}":
                return json.loads(answer.readline().decode().removeprefix("data: "))

    assert len(next_event("run")["points"]) == 1
    write_round(writer, 2, 0.3)
    assert [point["round"] for point in next_event("rounds")["points"]] == [2]
    writer.write("evaluation", {"round": 2, "accuracy": 0.9, "loss": 0.1})
    assert next_event("rounds")["points"][0]["accuracy"] == 0.9
    writer.write("end", {"rounds": 2, "seconds": 1.0})
    assert next_event("rounds")["state"] == "finished"
    writer.close()
    connection.close()


@pytest.mark.parametrize(
    "name",
    [
        "../outside/secret", "..%2Foutside%2Fsecret", "%2e%2e/outside/secret", "%2e%2e%2foutside%2fsecret", "link",
        "link/../../outside/secret", "half", "..", ".", "", "%00", "steady%00", "/etc", "%2Fetc%2Fpasswd",
        "..%5Coutside", "steady/../../outside/secret", "steady/record.jsonl", "%252e%252e/outside", "x" * 5000,
    ],
)  # fmt: skip
def test_a_run_is_named_by_the_listing_and_by_nothing_else(studio: Studio, name: str) -> None:
    for path in (f"/api/runs/{name}", f"/api/compare?run={urllib.parse.quote(name)}", f"/api/compare?run={name}"):
        status, _, body = studio.request("GET", path)
        assert 400 <= status < 500
        assert set(json.loads(body)) == {"error", "field"}
        assert b"outside" not in body
        assert str(studio.folder).encode() not in body
