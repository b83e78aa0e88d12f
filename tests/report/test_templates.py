"""Pages from templates."""

import sys
from pathlib import Path

import pytest

from heterosag.errors import UsageError
from heterosag.report.templates import render, write


def test_values_are_escaped_and_none_may_be_missing(tmp_path: Path) -> None:
    jinja2 = pytest.importorskip("jinja2")
    template = tmp_path / "page.html"
    template.write_text("<style>{{ style }}</style><p>{{ words }}</p>")
    assert "<p>&lt;b&gt;</p>" in render(template, words="<b>")
    with pytest.raises(jinja2.UndefinedError):
        render(template)


def test_what_no_page_can_hold_is_replaced(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    template = tmp_path / "page.html"
    template.write_text("<p>\t{{ words }}</p>\n")
    assert render(template, words="\x1b\udcff") == "<p>\t\ufffd\ufffd</p>"


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(UsageError, match=r"heterosag\[report\]"):
        render(Path("page.html"))


def test_a_page_is_written_with_its_folder(tmp_path: Path) -> None:
    write(tmp_path / "new" / "page.html", "text")
    assert (tmp_path / "new" / "page.html").read_text() == "text"
