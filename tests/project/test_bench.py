"""The benchmarks' arithmetic: what a row says, when it is met, when it got worse, how a suite is measured again."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import pytest
from scripts import load_script

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _bench_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


def test_a_row_is_a_ratio_of_medians_with_its_spread() -> None:
    from bench.rows import Row

    row = Row.of("a / b", [2.0, 4.0, 9.0], [1.0, 2.0, 3.0], goal=2.0)
    assert (row.ratio, row.low, row.high, row.repeats) == (2.0, 2.0, 3.0, 3)
    assert row.met
    assert not Row.of("a / b", [5.0], 2.0, goal=2.0).met
    assert Row.of("a / b", [5.0], 2.0, goal=2.0, better="higher").met
    assert Row.of("a / b", [5.0], 2.0).met, "no goal, nothing missed"


def test_worse_is_worse_on_either_side() -> None:
    from bench.rows import Row

    assert Row.of("time", [3.0], 1.0).worse_than(2.0) == 1.5
    assert Row.of("gain", [2.0], 1.0, better="higher").worse_than(3.0) == 1.5


def test_slopes_are_those_of_straight_lines() -> None:
    from bench.rows import log_slope

    assert log_slope([1, 10, 100], [5, 500, 50_000]) == pytest.approx(2.0)


def test_the_baseline_is_of_the_committed_run() -> None:
    """The guard compares with what the page shows."""
    baseline = json.loads((ROOT / "bench" / "baseline.json").read_text(encoding="utf-8"))
    summary = json.loads((ROOT / "docs" / "summaries" / "benchmarks.json").read_text(encoding="utf-8"))
    rows = {row["name"]: row["ratio"] for part in summary["rows"].values() for row in part}
    assert baseline == rows


def test_a_suite_measured_again_replaces_its_rows_and_says_so() -> None:
    pytest.importorskip("flwr")
    pytest.importorskip("torch")
    sys.modules.pop("bench.__main__", None)
    from bench.__main__ import _merge

    run = {"command": "all", "commit": "c", "duration_seconds": 9.0, "date": "d", "machine": {}}
    old = run | {"rows": {"a": [1], "b": [2]}, "peer": [1], "series": [1], "large": {"x": 1}, "profile": [1]}
    new = run | {"command": "b", "rows": {"b": [3]}, "peer": [], "series": [], "large": {}, "profile": [2]}
    merged = _merge(old, new)
    assert merged["rows"] == {"a": [1], "b": [3]}
    assert (merged["command"], merged["peer"], merged["profile"]) == ("all", [1], [2])
    assert [again["command"] for again in merged["again"]] == ["b"]


def test_a_part_of_a_suite_measured_again_leaves_its_other_rows() -> None:
    pytest.importorskip("flwr")
    pytest.importorskip("torch")
    sys.modules.pop("bench.__main__", None)
    from bench.__main__ import _merge

    def case(users: int, seconds: int) -> dict[str, object]:
        return {"users": users, "dimension": 1, "graph": "sparse", "seconds": seconds}

    run = {"command": "all", "commit": "c", "duration_seconds": 9.0, "date": "d", "machine": {}}
    old = run | {"rows": {"peer": [{"name": "x", "ratio": 1}, {"name": "y", "ratio": 2}]}}
    new = run | {"rows": {"peer": [{"name": "y", "ratio": 3}]}, "peer": [case(2, 7)]}
    merged = _merge(old | {"peer": [case(1, 5), case(2, 6)]}, new, {"peer", "startup"})
    assert merged["rows"]["peer"] == [{"name": "x", "ratio": 1}, {"name": "y", "ratio": 3}]
    assert merged["peer"] == [case(1, 5), case(2, 7)]


def test_a_second_run_stands_beside_the_first() -> None:
    pytest.importorskip("flwr")
    pytest.importorskip("torch")
    sys.modules.pop("bench.__main__", None)
    from bench.__main__ import _beside

    run = {"command": "one", "commit": "c", "duration_seconds": 9.0, "date": "d", "machine": {}}
    first = run | {"rows": {"a": [{"name": "x", "ratio": 1.0}, {"name": "y", "ratio": 2.0}]}, "profile": [1]}
    second = run | {"command": "two", "rows": {"a": [{"name": "y", "ratio": 3.0}]}, "profile": [2]}
    both = _beside(first, second)
    assert both["rows"] == {"a": [{"name": "x", "ratio": 1.0}, {"name": "y", "ratio": 2.0, "second": 3.0}]}
    assert (both["command"], both["profile"]) == ("one", [1])
    assert [again["command"] for again in both["second"]] == ["two"]


def test_a_run_that_is_interrupted_leaves_what_it_has_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("flwr")
    pytest.importorskip("torch")
    sys.modules.pop("bench.__main__", None)
    from bench import __main__ as bench
    from bench.rows import Row

    def interrupted() -> list[Row]:
        raise KeyboardInterrupt

    row = Row.of("x", [2.0], 1.0)
    monkeypatch.setattr(bench, "FULL", {"startup": lambda: [row], "ledger": interrupted})
    monkeypatch.setattr(sys, "argv", ["bench", "--full", "--summary", str(tmp_path / "summary.json")])
    with pytest.raises(KeyboardInterrupt):
        bench.main()
    left = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    assert [part["name"] for part in left["rows"]["startup"]] == ["x"]
    assert left["command"] == "make bench-full"


def test_the_peers_steps_are_profiled_by_its_own_functions() -> None:
    pytest.importorskip("flwr")
    from importlib import import_module

    import numpy as np

    from bench import peer_profile

    mod = import_module("flwr.client.mod.secure_aggregation.secaggplus_mod")
    before = dict(vars(mod))
    logger = logging.getLogger("flwr")
    level = logger.level
    try:
        found = peer_profile.measure(12, np.linspace(-1, 1, 50, dtype=np.float32))
    finally:
        logger.setLevel(level)  # the benchmark silences the peer for good
    assert vars(mod) == before, "the functions are the peer's again"
    assert [(step["case"], step["step"]) for step in found] == [
        (f"SecAgg+, {graph} graph", f"user: {stage}") for graph in ("complete", "sparse") for stage in ("share", "mask")
    ]
    for step, others in zip(found, (11, 11, 8, 8), strict=True):
        times = {part["part"]: part["times"] for part in step["parts"]}
        assert times["key agreements (P-384)"] == others
        assert times.get("masks (NumPy's generator)", others + 1) == others + 1
        assert sum(part["seconds"] for part in step["parts"]) < step["seconds"]


def test_a_deployed_round_is_summarised_by_its_steady_rounds() -> None:
    from bench.deployed import _summarise

    def one(trips: int, seconds: float, **stages: float) -> dict[str, object]:
        own = dict.fromkeys(stages, 0.25)
        return {"trips": trips, "seconds": seconds, "error": "", "trip_seconds": stages, "node_seconds": own}

    rounds = [
        one(4, 60.0, advertise=20.0, mask=40.0),
        *(one(2, 30.0 + each, mask=20.0, unmask=10.0) for each in (0, 2)),
    ]
    found = _summarise({"rounds": rounds}, 112.0, 7)
    assert (found["trips"], found["steady_seconds"]) == ([4, 2, 2], 31.0)
    assert found["stage_seconds"] == {"mask": 20.0, "unmask": 10.0}
    assert found["client_cpu_seconds_a_message"] == 2.0
    with pytest.raises(RuntimeError, match="all nodes were lost"):
        _summarise({"rounds": [{"error": "all nodes were lost"}]}, 0.0, 7)


def test_cohorts_are_compared_and_a_summary_fills_the_page(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One round per process, replaced here by one that took so long; the page follows from the summary alone."""
    from bench import cohorts

    def apart(users: int, elements: int, cohort: int) -> dict[str, object]:
        many = users // cohort
        base = {"users": users, "cohorts": many, "survivors": users, "workers": 2, "seconds": 9.0, "bytes": 1e8}
        costs = {"server": users / 100, "server_cpu": users / 50, "user_ms": 2.0 * cohort, "blocks": 4}
        return base | costs | {"sent": {"mask": 100.0 * elements}, "received": {"mask": 50}}

    monkeypatch.setattr(cohorts, "_apart", apart)
    monkeypatch.setattr(cohorts, "flower_ms", lambda size: 0.5)
    monkeypatch.setattr(sys, "argv", ["cohorts", "10000", "100", "500", "--summary", str(tmp_path / "s.json")])
    cohorts.main()
    assert "in cohorts of 500, m=100, 10% dropped: 2" in capsys.readouterr().out
    summary = json.loads((tmp_path / "s.json").read_text(encoding="utf-8"))
    assert summary["command"] == "python -m bench.cohorts 10000 100 500"
    assert [row["ratio"] for row in summary["rows"]][:4] == [2.0, 1.0, 1.0, 1.0]
    assert len(summary["rows"]) == 7, "the budgets are those of ten thousand users"
    pages = load_script(ROOT / "tools" / "documents" / "cohort_pages.py")
    monkeypatch.setattr(pages, "SUMMARY", tmp_path / "s.json")
    assert "| cohorts | 20 | 200 | 2,000 |" in pages.carried()
    assert "| the server's core-seconds | 200 | 2,000 | 20,000 |" in pages.carried()
    assert "One server core handles 3,000 users in 60 s, which is 6 cohorts of 500" in pages.processes()
    assert "| 100,000 nodes | 400,000 | 200 |" in pages.superlink()
    assert "all 500 nodes of a cohort are in time in 61% of its trips" in pages.stragglers()
    assert (pages.goals().count("| met |"), pages.goals().count("**missed**")) == (4, 1)
