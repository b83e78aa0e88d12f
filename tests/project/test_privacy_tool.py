"""What a privacy budget costs and gives: tools/privacy on data that needs no files, and what the pages say of it."""

from __future__ import annotations

import importlib
import json
import sys
import types
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tools" / "privacy"
SUMMARY: dict[str, Any] = json.loads((ROOT / "docs" / "summaries" / "privacy.json").read_text(encoding="utf-8"))


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of the tool, by name."""
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.syspath_prepend(str(FOLDER))

    def find(name: str) -> types.ModuleType:
        monkeypatch.delitem(sys.modules, name, raising=False)
        return importlib.import_module(name)

    return find


def test_a_trusted_servers_noise_is_that_of_its_epsilon(load: Any) -> None:
    from heterosag.training import data

    accuracy, digits = load("accuracy"), data.load("digits")
    setting = replace(accuracy.SETTINGS["digits"], rounds=3)
    plain, noisy = (accuracy.measure(digits, setting, "trusted server", epsilon, 0) for epsilon in (None, 0.2))
    assert plain["error_in_clipping_norms"] is None
    assert noisy["error_in_clipping_norms"] > 10
    assert noisy["accuracy"] < plain["accuracy"] - 0.1


@pytest.mark.slow
@pytest.mark.parametrize("blocks", ["one block", "six subgroups", "blocks of 16"])
def test_runs_of_all_blocks_keep_their_budget(blocks: str, load: Any) -> None:
    from heterosag.training import data

    accuracy, digits = load("accuracy"), data.load("digits")
    found = accuracy.measure(digits, replace(accuracy.SETTINGS["digits"], rounds=2), blocks, 8.0, 0)
    assert found["epsilon_server"] <= 8.0
    assert found["honest"] < {"one block": 96, "six subgroups": 32, "blocks of 16": 16}[blocks]


def test_noise_ends_inversion(load: Any) -> None:
    pictures = load("pictures")
    plain, floor = (pictures.invert(noise, 1, 0) for noise in pictures.NOISES[:2])
    assert plain["shown"] > 0.4
    assert floor["shown"] == 0.0
    assert floor["epsilon_of_one_round"] > 10


def test_what_the_pages_say_of_accuracy_is_in_the_summary() -> None:
    """One block is about as good as a trusted server; at epsilon 2 anything else is useless on digits."""
    mean = {
        (data, blocks, epsilon): fmean(
            run["accuracy"]
            for run in SUMMARY["accuracy"]
            if (run["data"], run["blocks"], run["epsilon"]) == (data, blocks, epsilon)
        )
        for data in ("digits", "mnist")
        for blocks in ("one block", "six subgroups", "blocks of 16", "trusted server")
        for epsilon in (None, 8.0, 2.0)
    }
    assert len(SUMMARY["accuracy"]) == 3 * len(mean)
    for data in ("digits", "mnist"):
        for epsilon in (8.0, 2.0):
            assert abs(mean[data, "one block", epsilon] - mean[data, "trusted server", epsilon]) < 0.03
            ordered = [mean[data, blocks, epsilon] for blocks in ("one block", "six subgroups", "blocks of 16")]
            assert ordered == sorted(ordered, reverse=True)
    assert mean["digits", "blocks of 16", 8.0] < mean["digits", "blocks of 16", None] - 0.2
    assert max(mean["digits", blocks, 2.0] for blocks in ("six subgroups", "blocks of 16")) < 0.4
    for blocks in ("six subgroups", "blocks of 16"):
        for epsilon in (8.0, 2.0):
            lost = [mean[data, blocks, None] - mean[data, blocks, epsilon] for data in ("mnist", "digits")]
            assert lost[0] < lost[1]
    assert all(run["epsilon_server"] <= run["epsilon"] for run in SUMMARY["accuracy"] if run["epsilon"])


def test_what_the_pages_say_of_inversion_is_in_the_summary() -> None:
    by_noise: dict[str, list[dict[str, Any]]] = {}
    for run in SUMMARY["inversion"]:
        by_noise.setdefault(run["noise"], []).append(run)
    assert [len(runs) for runs in by_noise.values()] == [3, 3, 3, 3]
    plain, *noisy = by_noise.values()
    assert min(run["shown"] for run in plain) > 0.5
    assert all(run["shown"] == 0.0 for runs in noisy for run in runs)
    areas = [fmean(run["membership"] for run in runs) for runs in by_noise.values()]
    assert areas == sorted(areas, reverse=True)
    assert areas[1] > 0.8
