"""Apps on Flower, plain and secure: what the pages claim is in the summary of `python -m bench.apps`, and it runs."""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_two_lines_give_plain_accuracy_with_half_the_bytes() -> None:
    """With the defaults within one point of plain FedAvg on average, and at most half of its bytes, on every app."""
    found = json.loads((ROOT / "docs" / "summaries" / "apps.json").read_text(encoding="utf-8"))
    runs = {(run["app"], run["seed"], run["side"]): run for run in found["runs"]}
    apps = {app for app, _, _ in runs}
    assert apps == {"perceptron", "convolutions", "adapters"}
    assert found["seed"] == [0, 1, 2]
    for app in apps:
        for side in ("secure", "weighted"):
            pairs = [(runs[app, seed, side], runs[app, seed, "plain"]) for seed in found["seed"]]
            assert all(one["parameters"] >= 20_000 for one, _ in pairs)
            lost = [plain["accuracy"] - one["accuracy"] for one, plain in pairs]
            assert sum(lost) / len(lost) <= 0.01, (app, side, lost)
            assert all(one["bytes"] <= plain["bytes"] / 2 for one, plain in pairs), (app, side)
            assert all(one["bytes"] < runs[app, one["seed"], "secagg+"]["bytes"] / 4 for one, _ in pairs), (app, side)


@pytest.mark.slow
def test_an_app_runs_on_every_side(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Seven nodes of a few samples, so that training hardly counts: every side comes to the same mean."""
    pytest.importorskip("flwr")
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(ROOT))
    for name in [name for name in sys.modules if name.partition(".")[0] == "bench"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setenv("HETEROSAG_RELEASES", str(tmp_path))
    from bench import peer
    from bench.apps.models import build
    from bench.apps.sides import SIDES

    logger = logging.getLogger("flwr")
    before = logger.level
    peer.be_a_task()
    logger.setLevel(before)
    whole = build("perceptron", nodes=7, seed=0, rounds=2)
    app = dataclasses.replace(whole, parts=[(x[:32], y[:32]) for x, y in whole.parts])
    found = {name: side(app) for name, side in SIDES.items()}
    assert all(abs(one.accuracy - found["plain"].accuracy) < 0.1 for one in found.values())
    assert found["secure"].bytes < found["plain"].bytes / 2 < found["secagg+"].bytes / 4
