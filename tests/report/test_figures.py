"""Figures: named in words for whoever cannot see them, and their extra named where it is missing."""

import re
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from records import begin_run, write_round, write_run

from heterosag.errors import UsageError
from heterosag.plan.design import perfect
from heterosag.report.figures import apply_theme, draw_design, draw_runs, to_svg
from heterosag.storage.run_log import read_run


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
    assert len(figures) == 6
    assert len({figure["title"] for figure in figures}) == 6
    for figure in figures:
        assert all(figure.values())
        ET.fromstring(figure["svg"])


def test_every_axis_has_a_label_with_its_unit(tmp_path: Path) -> None:
    """matplotlib writes text as a comment beside its outlines."""
    pytest.importorskip("matplotlib")
    private = begin_run(tmp_path / "private")
    spent = {"epsilon_server": 1.0, "epsilon_model": 0.5, "clipping_norm": 1.0, "within_norm": 0.5}
    for number in (1, 2):
        write_round(private, number, 0.1, privacy=spent)
    private.close()
    figures = draw_runs([write_run(tmp_path / "one", 3), read_run(tmp_path / "private")])
    wanted = {
        "Accuracy over rounds": {"round", "test accuracy, %"},
        "Accuracy over communication time": {"communication time, s", "test accuracy, %"},
        "Bytes that a user sends in a round": {"kB that a user sends in a round", "float32, in plaintext"},
        "Seconds of protocol in a round, by phase": {"ms a round", "mask, user"},
        "Error of the aggregate": {"round", "error, RMS per parameter"},
        "Survivors": {"round", "survivors, users"},
        "Epsilon over rounds": {"round", "epsilon of all rounds so far"},
        "Clipping norm over rounds": {"round", "clipping norm, L2 norm of an update"},
    }
    assert {figure["title"] for figure in figures} == wanted.keys()
    for figure in figures:
        written = set(re.findall("<!-- (.*?) -->", figure["svg"]))
        assert wanted[figure["title"]] <= written, figure["title"]


def test_an_error_is_drawn_against_the_signal_where_its_size_is_known(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    writer = begin_run(tmp_path / "one")
    write_round(writer, 1, 0.1, aggregate_rms=0.2)
    writer.close()
    (error,) = (one for one in draw_runs([read_run(tmp_path / "one")]) if one["title"] == "Error of the aggregate")
    assert "% of the mean update's RMS" in error["svg"]
    assert "in percent" in error["caption"]


def test_colours_become_the_pages_own() -> None:
    svg = '<?xml?><svg><path style="fill: #ffffff; stroke: #1b7f79"/><path style="fill: #8dd3c7"/></svg>'
    assert apply_theme(svg) == (
        '<svg><path style="fill: var(--card, #ffffff); stroke: var(--c0, #1b7f79)"/><path style="fill: #8dd3c7"/></svg>'
    )


def test_neighbouring_classes_that_send_the_same_have_one_bar(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    run = write_run(tmp_path / "one", 1)
    alike = {"share": [4000.0, 4000.0], "mask": [1900.0, 1905.0]}
    same = replace(run, plan=run.plan | {"class_levels": [8, 8]}, rounds=(run.rounds[0] | {"sent_bytes": alike},))
    for found, bars in ((run, {"class 0, 2 levels", "class 1, 8 levels"}), (same, {"classes 0 to 1, 8 levels"})):
        (upload,) = (one for one in draw_runs([found]) if one["title"].startswith("Bytes"))
        assert bars == {one for one in re.findall("<!-- (.*?) -->", upload["svg"]) if one.startswith("class")}
