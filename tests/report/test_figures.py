"""Figures: named in words for whoever cannot see them, and their extra named where it is missing."""

import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from records import write_run

from heterosag.errors import UsageError
from heterosag.plan.design import perfect
from heterosag.report.figures import draw_design, draw_runs, to_svg


def test_figures_name_the_extra_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UsageError, match=r"heterosag\[report\]"):
        draw_design(perfect(4))


def test_a_design_is_drawn_cell_by_cell_under_its_title() -> None:
    pytest.importorskip("matplotlib")
    drawn = ET.fromstring(to_svg(draw_design(perfect(4), classes=[0, 0, 1, 1]), title="Four & a <design>"))
    assert drawn.tag.endswith("svg")
    assert "Four & a <design>" in "".join(drawn.itertext())


def test_every_figure_of_runs_has_a_title_and_a_caption(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    figures = draw_runs([write_run(tmp_path / "one", 3), write_run(tmp_path / "two", 2)])
    assert figures[0]["title"] == "Accuracy over communication time"
    assert len(figures) == 5
    assert len({figure["title"] for figure in figures}) == 5
    for figure in figures:
        assert all(figure.values())
        ET.fromstring(figure["svg"])
