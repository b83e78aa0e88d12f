"""The page of some runs: complete, and everything inside the one file."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from browser import Browser
from records import begin_run, write_cohorts, write_round, write_run

from heterosag import __version__
from heterosag.errors import UsageError
from heterosag.report.page import make_page, write_page
from heterosag.report.runs import state_results
from heterosag.storage.run_log import RECORD, read_run

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")


def test_the_page_is_self_contained_and_complete(tmp_path: Path) -> None:
    page = make_page([write_run(tmp_path / "one", 3), write_run(tmp_path / "two", 2)])
    assert page.count("<svg") == 7
    for words in (
        "Accuracy over rounds",
        "Accuracy over communication time",
        "Bytes that a user sends",
        "Error of the aggregate",
        "Where the runs differ",
        "All settings are the same",
        "<span>heterosag</span> <span>train</span> <span>--classes=12,12</span></pre>",
        f"heterosag {__version__}",
        "What is guaranteed, and what is exposed: one",
        "No sum over fewer than 3 survivors of a subgroup is unmasked",
    ):
        assert words in page
    outside = [link for link in re.findall(r'(?:src|href)="([^"]+)"', page) if not link.startswith("#")]
    assert not outside
    assert not [link for link in re.findall(r"url\(([^)]+)\)", page) if not link.startswith("#")]
    assert "<script" not in page


def test_a_page_says_what_a_deadline_is_for_where_there_is_one(tmp_path: Path) -> None:
    run = write_run(tmp_path / "one", 2)
    said = "is for the masked vector alone"
    assert said not in make_page([run])
    page = make_page([replace(run, config={**run.config, "deadline": 2.5, "rates": []})])
    assert f"The deadline of 2.5 s {said}" in page
    assert "<td>2 Mb/s (default)</td>" in page


def test_what_a_record_says_is_text_and_never_markup(tmp_path: Path) -> None:
    writer = begin_run(tmp_path / "one")
    write_round(writer, 1, 0.5)
    error = {"kind": "AbortedError", "message": "<script>alert(1)</script>"}
    writer.write("round", {**read_run(tmp_path / "one").rounds[0], "round": 2, "error": error})
    writer.close()
    page = make_page([read_run(tmp_path / "one")])
    assert "round 2: AbortedError: &lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script" not in page


def test_a_page_has_no_character_that_a_page_cannot_have(tmp_path: Path) -> None:
    run = write_run(tmp_path / "one", 1)
    named = replace(run, folder=Path("\udcff \x1b[31m"), command="heterosag\x07")
    write_page([named], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<title>HeteroSAg: \ufffd \ufffd[31m</title>" in page
    assert "<pre><span>heterosag\ufffd</span></pre>" in page
    assert not [char for char in page if ord(char) < 32 and char not in "\n\t"]


@pytest.mark.long
def test_a_page_lists_cohorts_and_says_which_failed(tmp_path: Path) -> None:
    page = make_page([write_cohorts(tmp_path / "one")])
    rows = re.findall(r'<tr><th scope="row">(\d)</th>(.*?)</tr>', page[page.index("<h3>Cohorts</h3>") :])
    assert [re.findall(r"<td>(.*?)</td>", row)[0] for _, row in rows] == ["12", "12", "12"]
    assert [re.findall(r"<td>(.*?)</td>", row)[-1] for _, row in rows] == ["none", "2, 3", "3"]
    assert [re.findall(r"<td>(.*?)</td>", row)[-2] for _, row in rows] == ["12.0", "0.0", "6.0"]
    assert "round 3, cohort 2: TooFewSurvivorsError: too few &lt;b&gt;survivors" in page
    assert "The design</h3>" not in page
    assert "<h3>Cohorts</h3>" not in make_page([write_run(tmp_path / "two", 1)])


def test_a_page_needs_rounds_and_a_place(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least one round"):
        make_page([])
    with pytest.raises(UsageError, match=r"at least one round; without any: .*none$"):
        make_page([write_run(tmp_path / "some", 1), write_run(tmp_path / "none", 0)])
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write"):
        write_page([write_run(tmp_path / "one", 1)], tmp_path / "file" / "page.html")


@pytest.mark.slow
def test_one_run_is_not_compared_and_different_runs_say_where(tmp_path: Path) -> None:
    one = write_run(tmp_path / "one", 2)
    assert "Where the runs differ" not in make_page([one])
    other = replace(one, folder=tmp_path / "two", config=one.config | {"rule": "mean"})
    page = make_page([one, other])
    assert re.search(r'<th scope="row">rule</th><td>median</td><td>mean</td>', page)
    assert "All settings are the same" not in page


@pytest.mark.slow
def test_a_page_says_which_runs_were_secure(tmp_path: Path) -> None:
    secure = write_run(tmp_path / "one", 1)
    plain = replace(secure, folder=tmp_path / "two", config=secure.config | {"secure": False})
    for runs, said in (
        ([secure], "One run of federated training with secure aggregation, 24 users."),
        ([plain, plain], "2 runs of federated training by the plain engine, without cryptography, 24 users."),
        (
            [secure, plain, plain],
            "3 runs of federated training (1 with secure aggregation, 2 by the plain engine, without cryptography), "
            "24 users.",
        ),
    ):
        stated = f"{said} {state_results(runs)}".strip()
        assert f'<p class="lead">{stated}</p>' in make_page(runs)


def test_notes_and_guarantees_of_a_plain_run_are_under_titles_that_say_would(tmp_path: Path) -> None:
    secure = write_run(tmp_path / "one", 1)
    plain = replace(secure, config=secure.config | {"secure": False})
    assert "rests on X25519" in secure.plan["notes"][-1]
    of_secure, of_plain = make_page([secure]), make_page([plain])
    for title in ("<h2>What is guaranteed, and what is exposed</h2>", "<h3>Notes</h3>"):
        assert title in of_secure
        assert title not in of_plain
    for title in (
        "<h2>What would be guaranteed with cryptography</h2>",
        "<h3>Notes on the plan, as it would be with cryptography</h3>",
    ):
        assert title in of_plain
        assert title not in of_secure


@pytest.mark.parametrize(
    ("width", "dark"),
    [(1280, False), (390, True), *(pytest.param(*one, marks=pytest.mark.long) for one in ((1280, True), (390, False)))],
)
def test_the_page_in_a_browser(browser: Browser, tmp_path: Path, width: int, dark: bool) -> None:
    """Wide and narrow, light and dark: its figures are drawn, it fits, and its console is silent."""
    page = tmp_path / "page.html"
    write_page([write_run(tmp_path / name, 2) for name in ("one", "a-run-with-a-rather-long-name")], page)
    browser.open(page.as_uri(), width=width, dark=dark, ready="true")
    assert browser.run("document.querySelectorAll('svg').length") == 7
    assert browser.run("document.documentElement.scrollWidth") <= width
    wide = "[...document.querySelectorAll('.scroll')].filter((one) => one.scrollWidth > one.clientWidth)"
    assert browser.run(f"{wide}.length > 0") == (width < 600)
    signs = f"[...new Set({wide}.map((one) => getComputedStyle(one).backgroundAttachment))]"
    assert browser.run(signs) in ([], ["local, local, scroll, scroll"]), "a table goes on, and no shadow says so"
    shades = "getComputedStyle({}).{}.match(/\\d+/g).slice(0, 3).reduce((sum, one) => sum + Number(one), 0)"
    text, paper = (
        shades.format("document.querySelector('figure svg')", "fill"),
        shades.format("document.querySelector('figure')", "backgroundColor"),
    )
    assert (browser.run(text) > browser.run(paper)) == dark
    small = browser.run(
        "Math.min(...[...document.querySelectorAll('.figures svg')].map((svg) =>"
        " 10 * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width))"
    )
    assert small >= 8, "text of 10 points is too small to read"
    kept = os.environ.get("HETEROSAG_SCREENSHOTS")
    if kept:
        browser.screenshot(Path(kept) / f"report-{width}{'-dark' if dark else ''}.png", whole=True)
    assert [entry for entry in browser.complaints() if entry != page.as_uri()] == []


def test_a_record_that_lacks_something_is_shown_without_it_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heterosag.report.page.draw_runs", lambda runs: [])
    text = (Path(__file__).parents[1] / "formats" / "run-2" / RECORD).read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    refused, lacking = set(), [(0, "config"), (0, "plan"), (1, None)]
    for number, part in lacking:
        whole = lines[number] if part is None else lines[number][part]
        for name in whole:
            fewer = {key: value for key, value in whole.items() if key != name}
            changed = lines.copy()
            changed[number] = fewer if part is None else lines[number] | {part: fewer}
            (tmp_path / RECORD).write_text("".join(f"{json.dumps(line)}\n" for line in changed), encoding="utf-8")
            try:
                make_page([read_run(tmp_path)])
            except UsageError:
                refused.add(name)
    assert {"classes", "secure", "rule"} <= refused
    assert {"notes", "dimension", "leak_probability", "share_threshold"} <= refused
    assert {"kind", "error", "round", "survivors", "participants", "sent_bytes", "accuracy"} <= refused
    assert not refused & {"seed", "rates", "class_levels", "upload_seconds", "ledger", "loss", "model"}
