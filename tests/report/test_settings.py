"""What ran, and in which settings runs differ."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from records import write_run

from heterosag import __version__
from heterosag.report.settings import describe_classes, describe_runs, find_differences, list_settings


def test_a_run_says_what_it_was(tmp_path: Path) -> None:
    run = write_run(tmp_path / "one", 3)
    run = replace(run, config=run.config | {"seed": 7, "partition": "sorted", "model": "mnist", "train_samples": 5000})
    found = {name: cells[0] for name, cells in describe_runs([run])}
    assert found["what"] == "training on one machine, with secure aggregation"
    assert found["data"] == "digits, 5,000 samples, split sorted"
    assert found["model"] == "mnist, 1,000 parameters"
    assert found["users"] == "24 in 2 classes: 12, 12"
    assert (found["rounds"], found["seed"], found["took"]) == ("3 of 6", "7", "1.0 s")
    assert found["version"] == f"heterosag {__version__}"
    assert found["started"].endswith(" UTC")


@pytest.mark.parametrize(
    ("changes", "row", "cell"),
    [
        ({"started": None}, "started", "not recorded"),
        ({"started": "2026-11-07T08:05:00+00:00"}, "started", "7 November 2026, 08:05 UTC"),
        ({"version": None}, "version", "not recorded"),
        ({"end": None}, "rounds", "3 of 6, not finished"),
        ({"end": None}, "took", "no end recorded"),
        ({"end": {"seconds": 300.0}}, "took", "5.0 min"),
    ],
)
def test_what_is_not_known_is_said_to_be(changes: dict[str, Any], row: str, cell: str, tmp_path: Path) -> None:
    run = replace(write_run(tmp_path / "one", 3), **changes)
    assert dict(describe_runs([run]))[row] == [cell]


def test_runs_differ_where_their_settings_do(tmp_path: Path) -> None:
    one = write_run(tmp_path / "one", 1)
    two = replace(one, config=one.config | {"rule": "mean", "rates": [1.0, 8.0]})
    assert find_differences([one, one]) == []
    assert find_differences([one, two]) == [("rule", ["median", "mean"]), ("rates", ["-", "1, 8"])]
    assert dict(list_settings([one, two]))["secure"] == ["yes", "yes"]
    sizes = [replace(one, config=one.config | {"batch_size": size}) for size in (16.0, 0.25, float("inf"))]
    assert dict(list_settings(sizes))["batch_size"] == ["16", "0.25", "inf"]


def test_classes_have_their_links_and_levels(tmp_path: Path) -> None:
    run = write_run(tmp_path / "one", 1)
    assert describe_classes(run)[1]["upload"] == "not recorded"
    run = replace(run, config=run.config | {"rates": [1.0, 8.0], "download_rates": [20.0]})
    assert describe_classes(run)[1] == {
        "class": "1", "users": "12", "upload": "8 Mb/s", "download": "20 Mb/s", "levels": "8",
    }  # fmt: skip
