"""The page of some runs: complete, and everything inside the one file."""

import re
from pathlib import Path

import pytest
from browser import open_page
from records import begin_run, write_cohorts, write_round, write_run

from heterosag.errors import UsageError
from heterosag.report.page import make_page, write_page
from heterosag.storage.run_log import read_run

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")


def test_the_page_is_self_contained_and_complete(tmp_path: Path) -> None:
    page = make_page([write_run(tmp_path / "one", 3), write_run(tmp_path / "two", 2)])
    assert page.count("<svg") == 7
    for words in (
        "Accuracy over rounds",
        "Accuracy over communication time",
        "Bytes a user sends",
        "what is guaranteed",
        "No sum over fewer than 3 survivors of a subgroup is unmasked",
    ):
        assert words in page
    outside = [link for link in re.findall(r'(?:src|href)="([^"]+)"', page) if not link.startswith("#")]
    assert not outside
    assert not [link for link in re.findall(r"url\(([^)]+)\)", page) if not link.startswith("#")]
    assert "<script" not in page


def test_what_a_record_says_is_text_and_never_markup(tmp_path: Path) -> None:
    writer = begin_run(tmp_path / "one")
    write_round(writer, 1, 0.5)
    error = {"kind": "AbortedError", "message": "<script>alert(1)</script>"}
    writer.write("round", {**read_run(tmp_path / "one").rounds[0], "round": 2, "error": error})
    writer.close()
    page = make_page([read_run(tmp_path / "one")])
    assert "round 2: AbortedError: &lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script" not in page


def test_a_page_lists_cohorts_and_says_which_failed(tmp_path: Path) -> None:
    page = make_page([write_cohorts(tmp_path / "one")])
    rows = re.findall(r'<tr><th scope="row">(\d)</th>(.*?)</tr>', page)
    assert [re.findall(r"<td>(.*?)</td>", row)[0] for _, row in rows] == ["12", "12", "12"]
    assert [re.findall(r"<td>(.*?)</td>", row)[-1] for _, row in rows] == ["none", "2, 3", "3"]
    assert [re.findall(r"<td>(.*?)</td>", row)[-2] for _, row in rows] == ["12.0", "0.0", "6.0"]
    assert "round 3, cohort 2: TooFewSurvivorsError: too few &lt;b&gt;survivors" in page
    assert "The design</h3>" not in page
    assert "<h3>Cohorts</h3>" not in make_page([write_run(tmp_path / "two", 1)])


def test_a_page_needs_rounds_and_a_place(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least one round"):
        make_page([])
    with pytest.raises(UsageError, match="at least one round"):
        make_page([write_run(tmp_path / "none", 0)])
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write"):
        write_page([write_run(tmp_path / "one", 1)], tmp_path / "file" / "page.html")


def test_the_page_in_a_browser(tmp_path: Path) -> None:
    """Headless Chromium loads it without a word on its console, with its five figures and the design drawn."""
    page = tmp_path / "page.html"
    write_page([write_run(tmp_path / "one", 2)], page)
    done = open_page(page, tmp_path / "profile")
    assert done.stdout.count("<svg") == 6
    assert "CONSOLE" not in done.stderr
