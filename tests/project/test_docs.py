"""Pages say what their summaries say, and the summaries what the software says."""

import ast
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from scripts import load_script
from tolerance import differences_of_data, differences_of_drawings, differences_of_texts

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def data() -> types.ModuleType:
    return load_script(ROOT / "tools" / "documents" / "make_data.py")


def test_pages_and_summaries_agree(data: types.ModuleType) -> None:
    for page in data.PAGES:
        text = page.read_text(encoding="utf-8")
        assert data.fill(text) == text, f"run `make docs-pages`: {page.name} differs from its summaries"
        assert set(re.findall(r"fill: (\w+)", text)) <= data.REGIONS.keys()


@pytest.mark.long
def test_summaries_hold_command_seed_and_duration_and_can_be_made_again(data: types.ModuleType) -> None:
    for name in data.COMMANDS:
        summary = data.load(name)
        assert summary["command"] == f"heterosag {data.COMMANDS[name]}"
        assert summary["duration_seconds"] > 0
        assert "seed" in summary
        again = data.run(name)
        different = differences_of_data({**again, "duration_seconds": 0}, {**summary, "duration_seconds": 0}, name)
        assert not different, f"run `make docs-data`: {different}"


def test_every_summary_says_where_it_comes_from(data: types.ModuleType) -> None:
    names = sorted(path.stem for path in data.SUMMARIES.glob("*.json"))
    made_by_heterosag = ["demo", "designs", "plan", "rotation", "round"]
    made_by_tests = [
        *("cohorts", "deployed", "deployment", "installs"),
        *("apps", "benchmarks", "bytes", "coverage", "few_levels", "fuzz", "mutants", "privacy", "soak", "subgroups"),
    ]
    assert names == sorted(made_by_heterosag + made_by_tests)
    for name in names:
        summary = data.load(name)
        assert summary["command"].startswith("heterosag " if name in made_by_heterosag else ("make ", "python "))
        assert summary["duration_seconds"] > 0
        assert "seed" in summary


def test_the_summary_of_the_demo_is_of_the_runs_that_make_demo_starts(data: types.ModuleType) -> None:
    flags = {run["name"]: run["flags"] for run in data.load("demo")["runs"]}
    assert flags == data.demo_commands(), "run `make docs-data`: the demo has changed"
    assert list(flags) == ["heterosag", "one-level", "16-bits", "fedavg"]
    assert "--no-secure" not in flags["heterosag"]


def test_the_demo_shows_what_it_is_for(data: types.ModuleType) -> None:
    ours, same, full, plain = data.load("demo")["runs"]
    assert abs(ours["accuracy"] - full["accuracy"]) < 0.02
    assert ours["communication_seconds"] < 0.5 * full["communication_seconds"]
    assert ours["communication_seconds"] < 1.1 * same["communication_seconds"]
    assert ours["relative_error"] < 0.75 * same["relative_error"]
    assert plain["accuracy"] < ours["accuracy"] - 0.2


def test_the_papers_claim_on_the_page_is_that_of_theorem_1(data: types.ModuleType) -> None:
    assert "claims 0.833; the true value of its design is 0.500" in data.claim()


def test_the_list_of_mutants_is_that_of_its_summary(data: types.ModuleType) -> None:
    assert (ROOT / "docs" / "mutants.md").read_text(encoding="utf-8") == data.mutants_page()


def test_every_test_that_the_threat_model_names_is_there() -> None:
    text = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text)
    assert len(named) > 30
    for path, test in named:
        source = (ROOT / path).read_text(encoding="utf-8")
        assert not test or f"def {test}(" in source, f"{path} has no {test}"


@pytest.mark.long
def test_examples_run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import runpy

    monkeypatch.syspath_prepend(str(ROOT / "examples"))  # as it is for a program in that folder
    for example in sorted((ROOT / "examples").glob("*.py")):
        monkeypatch.setattr(sys, "argv", [str(example)])
        runpy.run_path(str(example), run_name="__main__")
    assert "23 survivors" in capsys.readouterr().out


def _imported(path: Path, root: Path) -> set[str]:
    """The modules that a module of an app imports when it is loaded, with those of the app that it imports."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    own = [root / f"{name.replace('.', '/')}.py" for name in found]
    return found.union(*(_imported(one, root) for one in own if one.exists()))


def test_what_a_node_loads_in_every_stage_imports_no_framework() -> None:
    """A SuperNode starts a process for every stage, and only one of them trains."""
    apps = sorted((ROOT / "examples").rglob("client.py"))
    assert apps
    for app in apps:
        packages = {name.partition(".")[0] for name in _imported(app, app.parents[1])}
        assert "heterosag" in packages
        assert packages.isdisjoint({"torch", "sklearn", "pandas", "tensorflow", "jax"}), app
    task = ROOT / "examples" / "flower" / "digits" / "task.py"
    assert "torch" in _imported(task, task.parents[1])


def test_links_between_pages_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
            if not target.startswith("https://"):
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_json_key_is_documented() -> None:
    from heterosag import Plan
    from heterosag.plan.summary import summarise

    text = (ROOT / "docs" / "plans.md").read_text(encoding="utf-8")
    for key in summarise(Plan.build([5, 5], [2, 4], 100, value_range=1.0)):
        assert f"`{key}`" in text


def test_figures_are_those_the_software_draws(
    data: types.ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    committed = (data.FIGURES / "design.svg").read_text(encoding="utf-8")
    monkeypatch.setattr(data, "FIGURES", tmp_path)
    data.draw()
    assert not differences_of_drawings((tmp_path / "design.svg").read_text(encoding="utf-8"), committed)


def test_the_readmes_figure_is_drawn_from_the_committed_summaries(data: types.ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    import benefit_figure

    benefit_figure.draw(tmp_path / "drawn.svg")
    drawn, committed = (path.read_text(encoding="utf-8") for path in (tmp_path / "drawn.svg", benefit_figure.FIGURE))
    assert not differences_of_drawings(drawn, committed), "run `make docs-data`"
    assert data.BENCHMARKS


def test_what_the_readmes_figure_says_of_bits_and_accuracy_holds(data: types.ModuleType) -> None:
    import benefit_figure

    shown = benefit_figure.find_benefit()
    secagg, plain, fine, *classes = shown.bits.values()
    assert secagg > plain > fine > max(classes)
    assert classes == sorted(classes, reverse=True)
    assert 5 <= min(classes) <= max(classes) <= 8
    for without, with_levels in shown.accuracy.values():
        assert abs(sum(with_levels) - sum(without)) / len(without) < 0.5
    assert data.REGIONS


@pytest.mark.slow
def test_the_benchmarks_figures_are_drawn_from_the_committed_summary(data: types.ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    import benchmark_pages

    benchmark_pages.draw(tmp_path)
    committed = sorted(path.name for path in benchmark_pages.FIGURES.iterdir())
    assert committed == sorted(path.name for path in tmp_path.iterdir())
    for name in committed:
        drawn, there = (folder / name for folder in (tmp_path, benchmark_pages.FIGURES))
        differing = differences_of_drawings(drawn.read_text(encoding="utf-8"), there.read_text(encoding="utf-8"))
        assert not differing, f"run `make docs-data`: {name}: {differing[0]}"
    assert data.BENCHMARKS


def test_a_goal_is_met_if_both_runs_meet_it(data: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    import benchmark_pages

    def row(name: str, better: str, ratio: float, **second: float) -> dict[str, object]:
        return {"name": name, "better": better, "goal": 2.0, "ratio": ratio, "repeats": 1} | second

    found = [
        row("a", "lower", 1.5, second=1.9),
        row("b", "lower", 1.5, second=2.1),
        row("c", "higher", 1.5, second=1.9),
        row("d", "higher", 2.5),
    ]
    monkeypatch.setattr(benchmark_pages, "load", lambda: {"rows": {"some": found}})
    first, _, _, _, *lines = benchmark_pages.goals().splitlines()
    assert first == "2 of 4 goals are met, 1 more in one of two runs."
    assert [line.split(" | ")[-1] for line in lines] == ["met |", "met in one of two |", "**missed** |", "met |"]
    assert [line.split(" | ")[3] for line in lines] == ["1.90", "2.10 (differs)", "1.90", ""]
    assert benchmark_pages._agreement(benchmark_pages.load()) == (
        "Of 3 rows the two runs repeat 2 within a third (b: 1.50 and 2.10).\n"
    )
    assert data.BENCHMARKS


def test_profiles_beside_the_first_are_shown_where_a_summary_has_them(
    data: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    import benchmark_pages

    def step(**case: str) -> dict[str, object]:
        parts = [("a", 0.25), ("b", 0.5), ("c", 0.001)]
        listed = [{"part": name, "times": 2, "each": seconds / 2, "seconds": seconds} for name, seconds in parts]
        return {"step": "user: mask", "seconds": 1.0, "parts": listed} | case

    monkeypatch.setattr(benchmark_pages, "load", lambda: {"profile": [step()]})
    alone = benchmark_pages.profile()
    assert [line.split(" | ")[1] for line in alone.splitlines()[3:]] == ["b", "a", "c", "everything else"]
    assert (benchmark_pages.profile_others(), benchmark_pages.profile_peer()) == ("", "")
    several = [step(case=""), step(case="sparse graph"), step(case="SecAgg+, sparse graph")]
    monkeypatch.setattr(benchmark_pages, "load", lambda: {"profile": several})
    assert benchmark_pages.profile() == alone
    assert benchmark_pages.profile_others().splitlines()[4:] == [
        "| **sparse graph: user: mask** | | | **1.00 s** | |",
        "| | b | 2 | 0.50 s | 50% |",
        "| | a | 2 | 0.25 s | 25% |",
        "| | everything else | | 0.25 s | 25% |",
    ]
    assert benchmark_pages.profile_peer().splitlines()[4].startswith("| **SecAgg+, sparse graph: user: mask**")
    assert data.BENCHMARKS


def test_the_ten_lines_of_the_readme_give_a_good_result(capsys: pytest.CaptureFixture[str]) -> None:
    """Not only a result: the aggregate is near the mean of what was fed, whatever the rounding does."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    code = page.partition("## Ten lines\n\n```python\n")[2].partition("```")[0]
    found: dict[str, Any] = {}
    exec(compile(code, "README.md", "exec"), found)
    assert found["error"] < 0.15
    said = page.partition("It prints `")[2].partition("`")[0]
    assert not differences_of_texts(capsys.readouterr().out.strip(), said)
