"""Figures: named in words for whoever cannot see them, and their extra named where it is missing."""

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from records import begin_run, write_round, write_run

from heterosag.errors import UsageError
from heterosag.plan.design import perfect
from heterosag.report import figures
from heterosag.report.figures import COLOURS, apply_theme, draw_design, draw_runs, to_svg
from heterosag.storage.run_log import RunRecord, read_run


def timed(run: RunRecord) -> RunRecord:
    """The run with a second of a user's and a second of the server's in every round."""
    seconds = {"user_seconds": {"mask": 1.0}, "server_seconds": {"unmask": 1.0}}
    return replace(run, rounds=tuple(line | seconds for line in run.rounds))


def text_of(figure: dict[str, str]) -> list[str]:
    """What is written in a figure: matplotlib writes text as a comment beside its outlines."""
    return re.findall("<!-- (.*?) -->", figure["svg"])


def draw_all(runs: list[RunRecord], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The figures of matplotlib by their titles, as they were written."""
    drawn: dict[str, Any] = {}

    def keep(figure: Any, *, title: str) -> str:
        drawn[title] = figure
        return to_svg(figure, title=title)

    with monkeypatch.context() as patch:
        patch.setattr(figures, "to_svg", keep)
        draw_runs(runs)
    return drawn


def figure_of(runs: list[RunRecord], title: str) -> dict[str, str] | None:
    return next((one for one in draw_runs(runs) if one["title"].startswith(title)), None)


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
    figures = draw_runs([timed(write_run(tmp_path / "one", 3)), write_run(tmp_path / "two", 2)])
    assert figures[0]["title"] == "Accuracy over communication time"
    assert len(figures) == 6
    assert len({figure["title"] for figure in figures}) == 6
    for figure in figures:
        assert all(figure.values())
        ET.fromstring(figure["svg"])


def test_every_axis_has_a_label_with_its_unit(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    private = begin_run(tmp_path / "private")
    spent = {"epsilon_server": 1.0, "epsilon_model": 0.5, "clipping_norm": 1.0, "within_norm": 0.5}
    for number in (1, 2):
        write_round(private, number, 0.1, privacy=spent)
    private.close()
    figures = draw_runs([timed(write_run(tmp_path / "one", 3)), read_run(tmp_path / "private")])
    wanted = {
        "Accuracy over rounds": {"round", "test accuracy, %"},
        "Accuracy over communication time": {"communication time, s", "test accuracy, %"},
        "Bytes that a user sends in a round": {"kB that a user sends in a round", "float32, in plaintext"},
        "Time of the protocol in a round, by phase": {"time in a round, ms", "mask, user"},
        "Error of the aggregate": {"round", "error, RMS per parameter"},
        "Survivors": {"round", "survivors, users"},
        "Epsilon over rounds": {"round", "epsilon of all rounds so far"},
        "Clipping norm over rounds": {"round", "clipping norm, L2"},
    }
    assert {figure["title"] for figure in figures} == wanted.keys()
    for figure in figures:
        assert wanted[figure["title"]] <= set(text_of(figure)), figure["title"]


def test_an_error_is_drawn_against_the_signal_where_its_size_is_known(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    writer = begin_run(tmp_path / "one")
    write_round(writer, 1, 0.1, aggregate_rms=0.2)
    writer.close()
    (error,) = (one for one in draw_runs([read_run(tmp_path / "one")]) if one["title"] == "Error of the aggregate")
    assert "error, % of update" in error["svg"]
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


@pytest.mark.slow
def test_times_of_the_protocol_are_of_the_runs_that_recorded_some(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    names = ("plain", "first", "second")
    plain, first, second = (write_run(tmp_path / name, 1) for name in names)
    assert figure_of([plain, first], "Time of the protocol") is None
    figure = figure_of([plain, timed(first), timed(second)], "Time of the protocol")
    assert figure is not None
    assert [one for one in text_of(figure) if one in names] == ["first", "second"]
    assert figure["caption"].endswith("Only of first, second: the other runs recorded none.")
    assert COLOURS[0] not in figure["svg"]  # the plain run's
    assert COLOURS[2] in figure["svg"]
    both = figure_of([timed(first), timed(second)], "Time of the protocol")
    assert both is not None
    assert "Only of" not in both["caption"]


@pytest.mark.slow
def test_a_run_has_one_colour_in_all_figures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    known = write_run(tmp_path / "known", 2)
    spent = {"epsilon_server": 1.0, "epsilon_model": 0.5, "clipping_norm": 1.0, "within_norm": 0.5}
    unknown = replace(known, rounds=tuple(line | {"aggregate_error": None} for line in known.rounds))
    private = replace(known, rounds=tuple(line | {"privacy": spent} for line in known.rounds))
    for title in ("Error of the aggregate", "Epsilon over rounds", "Clipping norm over rounds"):
        figure = figure_of([unknown, private], title)
        assert figure is not None
        assert COLOURS[0] not in figure["svg"], title
        assert COLOURS[1] in figure["svg"], title


def test_names_of_runs_are_written_as_they_are_and_never_as_formulas(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    run = timed(write_run(tmp_path / "one", 1))
    names = ("$x^$", r"\frac{$a$", "_hidden", "one\x1b[31m", "\udcff")
    shown = {"$x^$", r"\frac{$a$", "_hidden", "one\ufffd[31m", "\ufffd"}
    for title in ("Accuracy over rounds", "Survivors", "Time of the protocol", "Error of the aggregate", "Bytes"):
        figure = figure_of([replace(run, folder=Path(name)) for name in names], title)
        assert figure is not None
        assert shown <= {text.strip() for text in text_of(figure)}, title


def test_survivors_are_drawn_below_the_number_of_users_with_room_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    run = write_run(tmp_path / "one", 3)
    fewer = replace(run, rounds=tuple(line | {"participants": 20, "survivors": 18} for line in run.rounds))
    (axes,) = draw_all([run, fewer], monkeypatch)["Survivors"].axes
    assert [text.get_text() for text in axes.texts] == ["20 users", "24 users"]
    assert axes.get_ylim()[1] > 1.1 * 24


def test_only_epsilons_that_are_known_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    run = write_run(tmp_path / "one", 2)
    spent = {"epsilon_server": 1.0, "epsilon_model": None, "clipping_norm": 1.0}
    private = replace(run, rounds=tuple(line | {"privacy": spent} for line in run.rounds))
    (axes,) = draw_all([private, private], monkeypatch)["Epsilon over rounds"].axes
    assert not any("models only" in line.get_label() for line in axes.lines)


@pytest.mark.slow
def test_a_label_is_no_longer_than_its_axis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    spent = {"epsilon_server": 1.0, "epsilon_model": 0.5, "clipping_norm": 1.0, "within_norm": 0.5}
    runs = [write_run(tmp_path / name, 2) for name in ("heterosag", "one-level", "16-bits", "fedavg")]
    more = {"privacy": spent, "aggregate_rms": 0.2}
    for relative in (False, True):
        lines = [line | (more if relative else {"privacy": spent}) for line in runs[0].rounds]
        drawn = draw_all([timed(replace(run, rounds=tuple(lines))) for run in runs], monkeypatch)
        assert len(drawn) == 8
        for title, figure in drawn.items():
            (axes,) = figure.axes
            inside = axes.get_window_extent()
            assert axes.yaxis.label.get_window_extent().height <= inside.height, title
            assert axes.xaxis.label.get_window_extent().width <= inside.width, title
