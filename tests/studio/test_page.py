"""The studio's page in headless Chromium."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import time
from pathlib import Path

import pytest
from browser import Browser
from records import begin_run, write_round, write_run
from studio_server import Studio

from heterosag import studio as studio_package
from heterosag.plan import Plan

SHOWN = "document.querySelector('#planned').getAttribute('aria-busy') === 'false'"


PATIENCE = 60.0  # seconds for a plan with noise, whose bounds are computed


FIGURES = "['#figures', '#warnings', '#export'].map((id) => document.querySelector(id).textContent).join('')"


def change(browser: Browser, field: str, value: str, seconds: float = 15) -> tuple[str, str]:
    """The figures and the export before and after a control is changed."""
    browser.wait(SHOWN, seconds)
    before = browser.run(FIGURES)
    browser.set(field, value)
    browser.wait(f"{SHOWN} && ({FIGURES}) !== {json.dumps(before)}", seconds)
    return before, browser.run(FIGURES)


@pytest.mark.slow
def test_every_control_changes_the_numbers(studio: Studio, browser: Browser) -> None:
    browser.open(f"{studio.base}/#plan")
    changes = {
        "users": "120", "slowest": "1.5", "fastest": "30", "dimension": "60000", "deadline": "0.5", "dropout": "0.05",
        "attackers": "3", "min_survivors": "4", "most_subgroups": "14", "most_classes": "2", "value_range": "2",
        "max_weight": "3", "ranges": "single", "rates_kind": "lognormal", "median": "6", "spread": "0.5",
        "corrupt": "0.2",
    }  # fmt: skip
    for name, value in changes.items():
        change(browser, f"#f-{name}", value)
    browser.open(f"{studio.base}/#plan")
    change(browser, "#f-rates_kind", "list")
    change(browser, "#f-rates", "1 x 48, 3 x 48")
    change(browser, "#f-limit", "bits")
    change(browser, "#f-bits", "600000")
    change(browser, "#f-mode", "hand")
    change(browser, "#f-classes", "30,30,30,30")
    change(browser, "#f-levels", "2,4,8,16")
    change(browser, "#f-class_rates", "0.5,2,4,8")
    change(browser, "#f-subgroup_size", "6")
    change(browser, "#f-design", "multigroup")
    change(browser, "#f-colluders", "3")
    browser.click("#f-fill_levels")
    browser.wait("document.querySelector('#export').textContent.includes('fill_levels = false')")
    browser.run("document.querySelector('[aria-label=\"Subgroup size, slider\"]').value = 500")
    browser.run("document.querySelector('[aria-label=\"Subgroup size, slider\"]').dispatchEvent(new Event('input'))")
    browser.wait("document.querySelector('#export').textContent.includes('subgroup_size = 20')")
    assert browser.complaints() == []


@pytest.mark.slow
def test_every_control_of_a_privacy_budget_changes_the_numbers(
    studio: Studio, browser: Browser, tmp_path: Path
) -> None:
    browser.open(f"{studio.base}/#plan")
    browser.wait(SHOWN)
    assert browser.run("document.querySelector('#row-epsilon').hidden")
    browser.set("#f-privacy", "budget")
    browser.wait("document.querySelector('#problem').textContent.includes('off by')", PATIENCE)
    assert not browser.run("document.querySelector('#row-epsilon').hidden")
    browser.set("#f-attackers", "0")
    browser.set("#f-dimension", "5000")
    title = "document.querySelector('#curve-title').textContent === 'Error against epsilon'"
    browser.wait(f"{title} && document.querySelectorAll('#curve path.line').length === 3", PATIENCE)
    kept = Path(os.environ.get("HETEROSAG_SCREENSHOTS", tmp_path))
    browser.screenshot(kept / "studio-privacy.png", whole=True)
    curve = "document.querySelector('#curve').innerHTML"
    for name, value in {"epsilon": "6", "delta": "1e-6", "rounds": "10", "users": "120", "dropout": "0.05"}.items():
        before = browser.run(curve)
        _, figures = change(browser, f"#f-{name}", value, PATIENCE)
        browser.wait(f"document.querySelector('#curve .point') && {curve} !== {json.dumps(before)}", PATIENCE)
        assert "Epsilon, all sums" in figures
    change(browser, "#f-clip", "0.5", PATIENCE)
    assert "clipping_norm = 0.5" in browser.run("document.querySelector('#export').textContent")
    assert "against fair coins" in browser.run("document.querySelector('#binding').textContent")
    slider = "document.querySelector('[aria-label=\"Epsilon, slider\"]')"
    before = browser.run(FIGURES)
    browser.run(f"{slider}.value = 900; {slider}.dispatchEvent(new Event('input'))")
    browser.wait(f"{SHOWN} && ({FIGURES}) !== {json.dumps(before)}", PATIENCE)
    browser.set("#f-privacy", "off")
    browser.wait("document.querySelector('#curve-title').textContent === 'Error against deadline'", PATIENCE)


def test_a_wrong_value_is_pointed_at_and_the_last_plan_stays(studio: Studio, browser: Browser) -> None:
    browser.open(f"{studio.base}/#plan")
    browser.wait(SHOWN)
    browser.set("#f-users", "20000")
    browser.wait("document.querySelector('#f-users').getAttribute('aria-invalid') === 'true'")
    assert "10,000" in browser.run("document.querySelector('#row-users .fault').textContent")
    assert browser.run("document.querySelectorAll('#matrix td').length") > 0
    assert browser.run("document.querySelector('#planned').classList.contains('stale')")
    browser.set("#f-users", "96")
    browser.wait("document.querySelector('#problem').hidden && !document.querySelector('#planned.stale')")


def test_the_plan_is_shown_and_taken_away(studio: Studio, browser: Browser) -> None:
    browser.open(f"{studio.base}/#plan")
    browser.wait("document.querySelector('#curve .point')")
    assert browser.run("document.querySelectorAll('#bytes rect.box').length") > 2
    assert "Theorem" not in browser.run("document.querySelector('#guarantees').textContent")
    browser.click("#claims")
    assert "Theorem 1" in browser.run("document.querySelector('#guarantees').textContent")
    browser.click("#claims")
    assert "Theorem" not in browser.run("document.querySelector('#guarantees').textContent")
    browser.run("document.querySelector('#matrix td[data-row=\"1\"][data-column=\"2\"]').dispatchEvent("
                "new MouseEvent('mouseover', { bubbles: true }))")  # fmt: skip
    words = browser.run("document.querySelector('#cell').textContent")
    assert re.search(r"Segment 1, .*subgroup 2 .* codes with subgroup .* levels in .* The server learns the sum", words)
    toml = browser.run("document.querySelector('#export').textContent")
    assert Plan.from_toml(toml).digest.hex() in toml
    assert browser.run("fetch(document.querySelector('#download').href).then((r) => r.text(), () => 'blocked')") in (
        toml,
        "blocked",
    )
    browser.click("[data-export=command]")
    assert browser.run("document.querySelector('#export').textContent").startswith("heterosag plan")
    browser.click("[data-export=python]")
    assert "Plan.build(" in browser.run("document.querySelector('#export').textContent")
    assert browser.run("document.querySelector('#download').download") == "plan.py"
    browser.click("[data-export=train]")
    assert "heterosag train" in browser.run("document.querySelector('#export').textContent")
    browser.click("[data-export=flower]")
    assert "SecureGrid(" in browser.run("document.querySelector('#export').textContent")
    browser.click("[data-export=toml]")
    assert browser.run("document.querySelector('#export').textContent") == toml


def test_classes_and_savings_are_those_of_the_plan(studio: Studio, browser: Browser) -> None:
    browser.open(f"{studio.base}/#plan")
    browser.wait(SHOWN)
    _, plan = studio.post("/api/plan", {})
    rows = browser.run(
        "[...document.querySelector('#classes').tBodies[0].rows]"
        ".map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    assert [row[0] for row in rows] == [str(index) for index in range(len(plan["classes"]))]
    for row, found in zip(rows, plan["classes"], strict=True):
        assert row[1].replace(",", "") == str(found["users"])
        assert row[3].replace(",", "") == str(found["level"])
        assert float(row[4].replace(",", "")) == pytest.approx(found["bytes"] / 1000, rel=0.01)
        assert float(row[5].removesuffix("\u00d7")) == pytest.approx(found["float32"], rel=0.05)
        assert float(row[6]) == pytest.approx(found["seconds"], rel=0.01)
    tiles = browser.run("document.querySelector('#figures').textContent")
    for reference in ("float32", "secagg"):
        assert f"{plan['savings'][reference]['slowest']:.1f}\u00d7" in tiles


@pytest.mark.slow
def test_the_curve_is_dimmed_until_it_is_the_plans_own(studio: Studio, browser: Browser) -> None:
    """Answers of the trade-off are held back: the old curve is dimmed, and an answer that comes too late is dropped."""
    browser.open(f"{studio.base}/#plan")
    browser.wait("document.querySelector('#curve .point') && !document.querySelector('.stale')")
    browser.run(
        "window.held = []; window.plain = window.fetch; window.fetch = (path, request) => path === '/api/trade-off'"
        " ? new Promise((done) => held.push(() => done(plain(path, { ...request, signal: undefined }))))"
        " : plain(path, request)"
    )
    stale = "document.querySelector('#curve-card').classList.contains('stale')"
    old = browser.run("document.querySelector('#curve').textContent")
    for count, deadline in ((1, "0.5"), (2, "0.6")):
        browser.set("#f-deadline", deadline)
        browser.wait(f"held.length === {count} && {SHOWN}")
        assert browser.run(stale)
        assert browser.run("document.querySelector('#curve').textContent") == old
    browser.run("held[0]()")  # of the plan that is no longer shown
    browser.run("new Promise((done) => setTimeout(done, 1000))")
    assert browser.run(stale)
    assert browser.run("document.querySelector('#curve').textContent") == old
    browser.run("held[1]()")
    browser.wait(f"!{stale}")
    tile = browser.run(
        "[...document.querySelectorAll('#figures div')].find((one) => one.textContent.startsWith('Error of the mean'))"
        ".querySelector('dd').textContent"
    )
    assert f"this plan: {tile} at 0.6 s" in browser.run("document.querySelector('#curve').textContent")
    assert browser.complaints() == []


@pytest.mark.slow
def test_a_link_brings_a_colleague_to_the_same_plan(studio: Studio, browser: Browser) -> None:
    browser.open(f"{studio.base}/#plan")
    browser.wait(SHOWN)
    assert browser.run("location.hash") == "#plan"
    change(browser, "#f-users", "60")
    change(browser, "#f-rates_kind", "lognormal")
    toml = browser.run("document.querySelector('#export').textContent")
    address = browser.run("location.href")
    assert address.endswith("#plan?rates_kind=lognormal&users=60")
    browser.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    browser.click("#link")
    browser.wait("document.querySelector('#link').textContent === 'Copied'")
    assert browser.run("navigator.clipboard.readText()") == address
    browser.click("#copy")
    browser.wait("document.querySelector('#copy').textContent === 'Copied'")
    assert browser.run("navigator.clipboard.readText()") == toml
    browser.open(address)
    browser.wait(SHOWN)
    assert browser.run("document.querySelector('#export').textContent") == toml
    assert browser.run("[document.querySelector('#f-users').value, document.querySelector('#f-rates_kind').value]") == [
        "60",
        "lognormal",
    ]
    browser.click("nav a[href='#attack']")
    browser.wait("document.querySelector('#decode td')")
    browser.click("[aria-label='A curious server: subgroup 1']")
    browser.click("[aria-label='Malicious users: subgroup 2']")
    browser.click("[aria-label='subgroup 0 dropped out']")
    words = "document.querySelector('#decode-words').textContent + document.querySelector('#spoil-words').textContent"
    browser.wait("document.querySelector('#decode-words').textContent.includes('subgroup 1 in')")
    browser.wait("document.querySelectorAll('#decode td.gone').length > 0")
    said, address = browser.run(words), browser.run("location.href")
    assert address.endswith("#attack?rates_kind=lognormal&users=60&subgroups=1&malicious=2&lost=0")
    browser.open(address)
    browser.wait(f"({words}) === {json.dumps(said)}")
    assert browser.complaints() == []


def test_an_address_with_nonsense_is_a_page_all_the_same(studio: Studio, browser: Browser) -> None:
    address = f"{studio.base}/#plan?users=many&mode=magic&deadline=1e9&nothing=1"
    browser.open(address, ready="document.querySelector('#f-deadline')")
    browser.wait("document.querySelector('#f-deadline').getAttribute('aria-invalid') === 'true'", 30)
    assert browser.run("document.querySelector('#f-users').value") == "96"
    browser.set("#f-deadline", "0.5")
    browser.wait(f"{SHOWN} && document.querySelector('#problem').hidden")


def test_the_keyboard_reaches_everything(studio: Studio, browser: Browser) -> None:
    browser.open(f"{studio.base}/#plan")
    browser.wait(SHOWN)
    visited = set()
    for _ in range(80):
        browser.press("Tab")
        here = "(document.activeElement.id || document.activeElement.tagName + document.activeElement.textContent)"
        visited.add(browser.run(here))
    assert {"APlan", "AAttack it", "f-mode", "f-deadline", "copy", "download", "export"} <= visited
    browser.run("document.querySelector('#matrix td[tabindex]').focus()")
    browser.press("ArrowRight")
    browser.press("ArrowDown")
    assert browser.run("document.querySelector('#cell').textContent").startswith("Segment 1,")
    unlabelled = (
        "[...document.querySelectorAll('input, select, textarea, button')].filter((box) => !box.labels?.length"
        " && !box.getAttribute('aria-label') && !box.textContent.trim()).length"
    )
    assert browser.run(unlabelled) == 0
    assert browser.complaints() == []


def test_subgroups_and_malicious_users_are_picked(studio: Studio, browser: Browser) -> None:
    browser.open(f"{studio.base}/#plan")
    browser.wait(SHOWN)
    browser.click("nav a[href='#attack']")
    browser.wait("document.querySelector('#decode td')")
    for subgroup in (0, 1):
        browser.click(f"[aria-label='A curious server: subgroup {subgroup}']")
    browser.wait("document.querySelector('#decode-words').textContent.includes('subgroups 0, 1 in 1 of')")
    assert browser.run("document.querySelectorAll('#decode tbody tr:not(.faint)').length") == 1
    browser.click("[aria-label='Malicious users: subgroup 0']")
    browser.wait("document.querySelector('#spoil-words').textContent.startsWith('One attacker')")
    assert browser.run("document.querySelectorAll('#spoil td.spoiled').length") > 0
    browser.set("#worst", "8")
    browser.click("#place")
    browser.wait("document.querySelector('#spoil-words').textContent.includes('control the median')")
    assert browser.complaints() == []


@pytest.mark.slow
def test_a_run_is_watched_while_it_runs(studio: Studio, browser: Browser) -> None:
    writer = begin_run(studio.folder / "watched")
    write_round(writer, 1, 0.2)
    browser.open(f"{studio.base}/#runs")
    box = "document.querySelector('#listing input[value=watched]')"
    browser.wait(box)
    browser.run(f"{box}.checked || {box}.click()")
    others = "[...document.querySelectorAll('#listing input:checked')].filter((box) => box.value !== 'watched')"
    browser.run(f"{others}.forEach((box) => box.click())")
    dots = "document.querySelectorAll('#accuracy-rounds circle').length"
    browser.wait(f"{dots} === 1")

    def go_on() -> None:
        for number in range(2, 5):
            write_round(writer, number, 0.2 * number)
            time.sleep(0.2)
        writer.write("end", {"rounds": 4, "seconds": 1.0})

    trainer = threading.Thread(target=go_on)
    trainer.start()
    browser.wait(f"{dots} === 4")
    trainer.join()
    writer.close()
    browser.wait("document.querySelector('#compared').textContent.includes('4 (0)')")
    browser.run("document.querySelector('#listing input[value=steady]').click()")
    browser.wait(f"{dots} === 10")
    browser.wait("document.querySelectorAll('#compared thead th').length === 2")
    assert browser.complaints() == []


def test_a_run_whose_one_round_took_for_ever_is_drawn(studio: Studio, browser: Browser) -> None:
    writer = begin_run(studio.folder / "eternal")
    write_round(writer, 1, 0.1, round_seconds=1e20)
    browser.open(f"{studio.base}/#runs")
    box = "document.querySelector('#listing input[value=eternal]')"
    browser.wait(box)
    others = "[...document.querySelectorAll('#listing input:checked')].filter((box) => box.value !== 'eternal')"
    browser.run(f"{others}.forEach((box) => box.click())")
    browser.run(f"{box}.checked || {box}.click()")
    browser.wait("document.querySelectorAll('#accuracy-time circle').length === 1")
    browser.wait("document.querySelector('#accuracy-time .tick')")
    writer.close()
    shutil.rmtree(studio.folder / "eternal")
    assert browser.complaints() == []


def test_runs_are_listed_by_time_with_their_state(studio: Studio, browser: Browser) -> None:
    stopped, going = begin_run(studio.folder / "halted"), begin_run(studio.folder / "going")
    for writer in (stopped, going):
        write_round(writer, 1, 0.2)
    stopped.close()
    browser.open(f"{studio.base}/#runs")
    state = "document.querySelector('#listing input[value={}]')?.closest('tr').querySelector('.state')?.textContent"
    browser.wait(f"{state.format('going')} === 'running' && {state.format('halted')} === 'interrupted'")
    order = "[...document.querySelectorAll('#listing input')].map((box) => box.value)"
    states = "[...document.querySelectorAll('#listing .state')].map((one) => one.textContent)"
    assert browser.run(states) == sorted(browser.run(states), key=lambda word: word != "running")
    going.close()
    browser.wait(f"{state.format('going')} === 'interrupted'")
    browser.set("#filter", "HALT")
    browser.wait(f"JSON.stringify({order}) === '[\"halted\"]'")
    assert browser.run("location.hash").endswith("filter=HALT")
    browser.set("#filter", "")
    browser.wait(f"{order}.length > 5")
    assert browser.complaints() == []


@pytest.mark.slow
def test_lines_are_smoothed_drawn_on_a_log_axis_and_read_by_hovering(studio: Studio, browser: Browser) -> None:
    browser.open(f"{studio.base}/#runs?run=steady&run=group/inner")
    dots = "document.querySelectorAll('#accuracy-rounds circle').length"
    browser.wait(f"{dots} === 9")
    assert browser.run("[...document.querySelectorAll('#listing input:checked')].map((box) => box.value).sort()") == [
        "group/inner",
        "steady",
    ]
    tip = "document.querySelector('#accuracy-rounds .tip')"
    browser.run(
        "(() => { const svg = document.querySelector('#accuracy-rounds svg'), box = svg.getBoundingClientRect();"
        "svg.dispatchEvent(new PointerEvent('pointermove', { clientX: box.right - 20, clientY: box.top + 90 })); })()"
    )
    assert browser.run(f"{tip}.innerText.split('\\n')") == ["round 6", "steady: 60 %"]
    browser.run("document.querySelector('#accuracy-rounds svg').focus()")
    for _ in range(3):
        browser.press("ArrowLeft")
    assert browser.run(f"{tip}.innerText.split('\\n')") == ["round 3", "steady: 30 %", "group/inner: 30 %"]
    browser.run("document.querySelector('#accuracy-rounds svg').dispatchEvent(new PointerEvent('pointerleave'))")
    assert browser.run(f"{tip}.hidden")
    bar = "document.querySelector('#run-bytes rect[height]:not([height=\"8\"])')"
    browser.run(f"{bar}.dispatchEvent(new PointerEvent('pointerenter'))")
    assert browser.run("document.querySelector('#run-bytes .tip').innerText") == "class 0, steady: 5.9 kB"
    plain = browser.run("document.querySelector('#accuracy-rounds svg').innerHTML")
    browser.set("#smooth", "60")
    browser.wait("document.querySelectorAll('#accuracy-rounds path.faint').length === 2")
    assert browser.run("document.querySelector('#smooth-words').textContent") == "0.60"
    smoothed = browser.run("document.querySelector('#accuracy-rounds svg').innerHTML")
    assert smoothed != plain
    browser.click("#log")
    browser.wait(f"document.querySelector('#accuracy-rounds svg').innerHTML !== {json.dumps(smoothed)}")
    address = browser.run("location.href")
    assert address.endswith("#runs?run=steady&run=group%2Finner&smooth=0.6&log=true")
    browser.open(address)
    browser.wait(f"{dots} === 9 && document.querySelectorAll('#accuracy-rounds path.faint').length === 2")
    assert browser.run("document.querySelector('#log').checked")
    browser.wait("document.querySelector('#ran').textContent.includes('parameters')")
    assert "heterosag train" in browser.run("document.querySelector('#commands').textContent")
    assert browser.run("document.querySelector('#difference').hidden") is False
    browser.click("#none")
    browser.wait(f"{dots} === 0 && !document.querySelector('#listing input:checked')")
    assert browser.complaints() == []


def test_figures_say_that_runs_are_loading_until_they_are_there(studio: Studio, browser: Browser) -> None:
    """Events are held back, one kind at a time."""
    browser.open(f"{studio.base}/#plan")
    browser.run(
        "window.held = { list: [], run: [] }; window.EventSource = class extends EventSource {"
        " addEventListener(kind, act) {"
        " super.addEventListener(kind, (event) => (held[kind] ? held[kind].push(() => act(event)) : act(event))); } }"
    )
    said = "document.querySelector('#accuracy-rounds').textContent"
    release = "((kind) => { const now = held[kind]; held[kind] = null; now.forEach((act) => act()); })"
    browser.run("location.hash = 'runs'")
    browser.wait("held.list.length")
    assert browser.run(said) == "Loading runs."
    browser.run(f"{release}('list')")
    browser.wait("document.querySelector('#listing input:checked') && held.run.length")
    assert browser.run(said) == "Loading runs."
    browser.run(f"{release}('run')")
    browser.wait("document.querySelector('#accuracy-rounds circle')")
    browser.click("#none")
    assert browser.run(said) == "Pick a run above."
    browser.open(f"{studio.base}/#runs?run=nowhere")
    browser.wait("document.querySelector('#listing input')")
    assert browser.run(said) == "Nothing of this is known of these runs."
    assert browser.complaints() == []


def test_a_list_of_runs_that_goes_on_has_a_shadow(studio: Studio, browser: Browser) -> None:
    for number in range(12):
        write_run(studio.folder / "long" / str(number), 1)
    browser.open(f"{studio.base}/#runs")
    place = "document.querySelector('#listing').parentElement"
    browser.wait(f"{place}.scrollHeight > {place}.clientHeight")
    kinds = browser.run(f"getComputedStyle({place}).backgroundAttachment").split(", ")
    places = browser.run(f"getComputedStyle({place}).backgroundPosition").split(", ")
    assert ("scroll", "50% 100%") in zip(kinds, places, strict=True), "no shadow below says that the list goes on"
    assert ("local", "50% 100%") in zip(kinds, places, strict=True), "the shadow would stay at the end"
    browser.open(f"{studio.base}/#runs", width=390)
    row = "document.querySelector('#listing input[value=\"long/0\"]')"
    browser.wait(row)
    assert browser.run(f"{row}.closest('tr').offsetHeight") < 50, "a narrow screen shows few runs"


def test_a_ninth_run_is_not_compared_and_the_page_says_why(studio: Studio, browser: Browser) -> None:
    for number in range(9):
        write_run(studio.folder / "many" / str(number), 1)
    picked = "&".join(f"run=many/{number}" for number in range(8))
    browser.open(f"{studio.base}/#runs?{picked}")
    browser.wait("document.querySelectorAll('#listing input:checked').length === 8")
    assert browser.run("document.querySelector('#too-many').hidden")
    browser.click("#listing input[value='many/8']")
    assert not browser.run("document.querySelector('#too-many').hidden")
    assert browser.run("document.querySelectorAll('#listing input:checked').length") == 8


def test_every_control_is_moved_by_a_test() -> None:
    """A control that is added to the page has to be named here, or in a test above."""
    static = Path(studio_package.__file__).with_name("static")
    page, form = ((static / name).read_text(encoding="utf-8") for name in ("index.html", "form.js"))
    tests = Path(__file__).read_text(encoding="utf-8")
    named = re.findall(r'<(?:input|select|textarea|button|a)\b[^>]* id="([\w-]+)"', page)
    assert {"claims", "smooth", "place", "next", "download"} <= set(named)
    missing = [name for name in named if f"#{name}" not in tests]
    missing += [name for name in re.findall(r'data-export="(\w+)"', page) if f"[data-export={name}]" not in tests]
    missing += [
        name for name in re.findall(r'group: "[^"]+", name: "(\w+)"', form) if not re.search(rf'"(#f-)?{name}"', tests)
    ]
    assert not missing


def test_a_round_is_stepped_through(studio: Studio, browser: Browser) -> None:
    browser.open(f"{studio.base}/#round")
    browser.wait("document.querySelectorAll('#steps button').length === 5")
    assert browser.run("document.querySelector('#before').disabled")
    opacity = "Number(getComputedStyle(document.querySelector('#before')).opacity)"
    assert browser.run(opacity) < 0.6
    browser.click("#next")
    assert browser.run(opacity) == 1
    browser.click("#before")
    assert "Advertise keys" in browser.run("document.querySelector('#step').textContent")
    browser.click("#next")
    browser.click("#next")
    words = browser.run("document.querySelector('#step').textContent")
    assert "Gone: user 5" in words
    assert "The vector's way" in words
    browser.click("#next")
    browser.click("#next")
    assert "All that the server has seen in plaintext" in browser.run("document.querySelector('#step').textContent")
    browser.click("#identities")
    browser.click("#round-form button")
    browser.wait("document.querySelectorAll('#steps button').length === 6")
    browser.set("#watched", "3")
    browser.set("#dropping", "7")
    browser.set("#drop-phase", "unmask")
    browser.click("#round-form button")
    browser.wait("document.querySelector('#step').textContent.includes('User 3 knows')")
    browser.run("document.querySelector('#steps li:nth-child(5) button').click()")
    assert "Gone: user 7" in browser.run("document.querySelector('#step').textContent")
    assert browser.complaints() == []


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_fits_wide_and_narrow(studio: Studio, browser: Browser, tmp_path: Path, width: int, dark: bool) -> None:
    """Set HETEROSAG_SCREENSHOTS to a folder to keep the pictures."""
    kept = Path(os.environ.get("HETEROSAG_SCREENSHOTS", tmp_path))
    browser.open(f"{studio.base}/#plan", width=width, height=1400, dark=dark)
    browser.wait("document.querySelector('#curve .point')")
    for tab, ready in (
        ("plan", "#curve .point"),
        ("attack", "#spoil td"),
        ("runs", "#listing"),
        ("round", "#traffic rect"),
    ):
        browser.run(f"location.hash = '{tab}'")
        browser.wait(f"document.querySelector('{ready}')")
        assert browser.run("document.documentElement.scrollWidth") <= width, tab
        browser.run("scrollTo(0, 0); new Promise((done) => setTimeout(done, 150))")
        picture = kept / f"studio-{tab}-{width}{'-dark' if dark else ''}.png"
        browser.screenshot(picture, whole=True)
        assert picture.stat().st_size > 10_000
    assert browser.complaints() == []
