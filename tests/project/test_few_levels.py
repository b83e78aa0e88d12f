"""Few levels train: tools/few_levels, on data that needs no files, and its table."""

from __future__ import annotations

import importlib
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


@pytest.mark.parametrize("name", ["perceptron", "perceptron x10"])
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
