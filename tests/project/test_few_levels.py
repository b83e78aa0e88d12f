"""Few levels train: tools/few_levels, on data that needs no files, and its table."""

from __future__ import annotations

import importlib
import json
import sys
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tools" / "few_levels"


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """The module of the tool that trains, with those beside it."""
    monkeypatch.syspath_prepend(str(FOLDER))
    for name in ("models", "federation"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module("federation")


@pytest.mark.long
@pytest.mark.parametrize("name", ["perceptron", pytest.param("perceptron x10", marks=pytest.mark.slow)])
def test_four_levels_train_as_no_quantization_does_and_one_range_for_all_does_not(
    name: str, tool: types.ModuleType
) -> None:
    """Twelve users of unlike labels, a model with batch normalisation, which moves by 1 where weights move by 0.01."""
    pictures = tool.load("digits", "")
    model = tool.build(name, pictures)

    def reached(levels: str, rule: str = "adaptive") -> float:
        last: float = tool.federate(model, pictures, 12, levels, 0, rounds=10, rule=rule)[-1]
        return last

    plain = reached("plain")
    assert plain > 0.9
    assert reached("4") > plain - 0.03
    assert reached("2") > plain - 0.1
    assert reached("4", "quantile") < plain - 0.3


def test_what_the_pages_say_of_few_levels_is_in_the_summary() -> None:
    """README: four levels, five to six bits, come on average to within half a point of plain with 12 to 100 users."""
    found = json.loads((ROOT / "docs" / "summaries" / "few_levels.json").read_text(encoding="utf-8"))
    last = {
        (run["model"], run["users"], run["levels"], run["seed"]): run["accuracy"][-1]
        for run in found["runs"]
        if run["rule"] == "adaptive"
    }
    lost = {key: last[*key[:2], "plain", key[3]] - reached for key, reached in last.items()}
    assert {key[1] for key in lost} == {12, 40, 100}
    assert {key[3] for key in lost} == {0, 1, 2}
    for levels, most in (("2", 0.1), ("4", 0.03), ("16", 0.01), ("256", 0.01), ("2,4,16,256", 0.03)):
        assert max(one for key, one in lost.items() if key[2] == levels) <= most, levels
    for model, users in {key[:2] for key in lost}:
        assert sum(lost[model, users, "4", seed] for seed in (0, 1, 2)) / 3 <= 0.005, (model, users)
    assert {bits for by in found["bits"].values() for bits in by["4"]} <= {5.0, 6.0}
