"""Mutation testing itself: what counts as words only, and how parts of a run add up."""

from __future__ import annotations

import importlib.util
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def mutants() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("mutants_tool", ROOT / "tools" / "mutants" / "__main__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (['-raise UsageError("no users")', '+raise UsageError("XXno usersXX")'], True),
        (['-raise UsageError("no users")', "+raise UsageError(None)"], True),
        (['-return f"{users} users"', '+return f"{users} USERS"'], True),
        (['-return f"{users} users"', "+return None"], False),
        (['-problem = "no users"', "+problem = None"], False),
        (['-"seed": self._seed,', '+"SEED": self._seed,'], False),
        (['-digest("client-message", message)', '+digest("CLIENT-MESSAGE", message)'], False),
        (["-if users < 2:", "+if users <= 2:"], False),
    ],
)
def test_only_what_an_error_or_a_display_says_is_words(
    mutants: types.ModuleType, change: list[str], expected: bool
) -> None:
    assert mutants.only_words(change) is expected


def test_mutants_are_told_apart_by_the_lines_that_they_change(mutants: types.ModuleType) -> None:
    source = (
        "def x_add__mutmut_orig(a, b=1):\n    return a + b\n"
        "def x_add__mutmut_1(a, b=2):\n    return a + b\n"
        "def x_add__mutmut_2(a, b=1):\n    return a - b\n"
    )
    assert mutants._changes(source, "m") == {
        "m.x_add__mutmut_1": ["-def (a, b=1):", "+def (a, b=2):"],
        "m.x_add__mutmut_2": ["-return a + b", "+return a - b"],
    }


def test_docstrings_are_no_code(mutants: types.ModuleType) -> None:
    plain = 'def f(a: int) -> int:\n    """Double it."""\n    return 2 * a\n'
    assert mutants._digest(plain) == mutants._digest(plain.replace("Double it.", "Twice."))
    assert mutants._digest(plain) != mutants._digest(plain.replace("2", "3"))


def test_changed_modules_and_unnoticed_mutants_are_chosen(
    mutants: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ["one.f__mutmut_1", "one.f__mutmut_2", "two.g__mutmut_1"]
    survivors = [{"mutant": "one.f__mutmut_2"}, {"mutant": "two.g__mutmut_9"}]
    before = {"modules": {"one": {"source": "1"}, "two": {"source": "old"}}, "survivors": survivors}
    monkeypatch.setattr(mutants, "sources", lambda: {"one": "1", "two": "2"})

    def chosen(*, only: list[str] | None = None, again: bool = False, new: bool = False) -> set[str]:
        given = types.SimpleNamespace(only=only or [], again=again, new=new)
        found: set[str] = mutants.choose(made, before, given)
        return found

    assert chosen(again=True) == {"one.f__mutmut_2"}
    assert chosen(new=True) == {"two.g__mutmut_1"}
    assert chosen(only=["one"]) == {"one.f__mutmut_1", "one.f__mutmut_2"}
    assert chosen(again=True, new=True) == {"one.f__mutmut_2", "two.g__mutmut_1"}


def test_parts_of_a_run_add_up_and_changed_modules_are_left_out(
    mutants: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {
        "one.f__mutmut_1": ["-return a + b", "+return a - b"],
        "one.f__mutmut_2": ['-raise UsageError("a")', "+raise UsageError(None)"],
        "two.g__mutmut_1": ["-return a", "+return None"],
    }
    monkeypatch.setattr(mutants, "sources", lambda: {"one": "1", "two": "2"})
    first = mutants.merge({}, made, {"one.f__mutmut_1": False, "one.f__mutmut_2": False}, 1.0)
    assert (first["mutants"], first["words"], first["survived"], first["not_run"]) == (2, 1, 2, 1)
    assert first["noticed_of_others"] == 0
    both = mutants.merge(first, made, {"one.f__mutmut_1": True, "two.g__mutmut_1": True}, 2.0)
    assert (both["mutants"], both["survived"], both["only_words"], both["not_run"]) == (3, 1, 1, 0)
    assert both["noticed_of_others"] == 1
    assert both["duration_seconds"] == 3.0
    monkeypatch.setattr(mutants, "sources", lambda: {"one": "changed", "two": "2"})
    changed = mutants.merge(both, made, {}, 0.0)
    assert (changed["mutants"], changed["survived"], changed["not_run"]) == (1, 0, 2)
    fewer = {name: lines for name, lines in made.items() if name != "one.f__mutmut_2"}
    again = mutants.merge(both, fewer, {"one.f__mutmut_1": True}, 0.0)
    assert (again["mutants"], again["survivors"]) == (2, []), "a mutant that there is no more survives no more"


def test_reasons_are_of_mutants_that_are_listed() -> None:
    import json

    import documents.mutants_page as page

    summary = json.loads((ROOT / "docs" / "summaries" / "mutants.json").read_text(encoding="utf-8"))
    listed = {one["mutant"].removeprefix("heterosag.") for one in summary["survivors"] if not one["words"]}
    assert page.reasons().keys() == listed, "every mutant that is listed has its reason, and no other"
