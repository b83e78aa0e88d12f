"""The studio's page in headless Chromium."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import select
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from records import begin_run, write_round
from studio_server import Studio

from heterosag.plan import Plan

# Chromium reads commands from descriptor 3 and writes to 4; this puts two pipes there.
_LAUNCH = """
import fcntl, os, sys
reads, writes = (fcntl.fcntl(int(word), fcntl.F_DUPFD, 10) for word in sys.argv[1:3])
os.dup2(reads, 3); os.dup2(writes, 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """One page of headless Chromium, over the DevTools protocol on a pipe: no driver, no port, no dependency."""

    def __init__(self, chromium: str, profile: Path) -> None:
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        words = [
            sys.executable, "-c", _LAUNCH, str(to_read), str(to_write), chromium, "--headless=new", "--no-sandbox",
            "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
            "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--remote-debugging-pipe",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", f"--user-data-dir={profile}", "about:blank",
        ]  # fmt: skip
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(words, pass_fds=(to_read, to_write), stdout=quiet, stderr=quiet)
        os.close(to_read)
        os.close(to_write)
        self._buffer, self._number, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **values: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": values}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]  # type: ignore[no-any-return]
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            assert select.select([self._from], [], [], 30)[0], "the browser does not answer"
            data = os.read(self._from, 1 << 20)
            assert data, "the browser has gone"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(line)  # type: ignore[no-any-return]

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, script: str, seconds: float = 15) -> None:
        """Until the expression is true."""
        end = time.monotonic() + seconds
        while not self.run(f"Boolean({script})"):
            assert time.monotonic() < end, f"never true: {script}"
            time.sleep(0.05)

    def open(self, address: str, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        self.call("Page.navigate", url="about:blank")
        self.events.clear()
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.call("Page.navigate", url=address)
        self.wait("document.readyState === 'complete' && document.querySelector('#matrix td')")

    def press(self, key: str) -> None:
        codes = {"Tab": 9, "Enter": 13, " ": 32, "ArrowRight": 39, "ArrowDown": 40}
        text = {"text": "\r" if key == "Enter" else key} if key in ("Enter", " ") else {}
        for kind in ("keyDown", "keyUp"):
            spelled = text if kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=codes[key], **spelled)

    def set(self, field: str, value: str) -> None:
        """Change a control as a person's input does."""
        self.run(
            f"(() => {{ const box = document.querySelector({json.dumps(field)}); box.value = {json.dumps(value)};"
            "for (const kind of ['input', 'change']) box.dispatchEvent(new Event(kind, { bubbles: true })); })()"
        )

    def click(self, what: str) -> None:
        self.run(f"document.querySelector({json.dumps(what)}).click()")

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))

    def complaints(self) -> list[Any]:
        """Errors and warnings of the console, and requests that went elsewhere."""
        self.run("new Promise((done) => setTimeout(done, 100))")
        found: list[Any] = []
        for event in self.events:
            values = event.get("params", {})
            match event.get("method"):
                case "Runtime.consoleAPICalled" if values["type"] in ("error", "warning", "assert"):
                    found.append(values["args"])
                case "Runtime.exceptionThrown":
                    found.append(values["exceptionDetails"])
                case "Log.entryAdded" if values["entry"]["level"] in ("error", "warning"):
                    found.append(values["entry"])
                case "Network.requestWillBeSent":
                    address = values["request"]["url"]
                    if not address.startswith(("http://127.0.0.1:", "blob:http://127.0.0.1:")):
                        found.append(address)
        return found

    def close(self) -> None:
        self._session = ""
        with contextlib.suppress(AssertionError, OSError):
            self.call("Browser.close")
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self._to)
        os.close(self._from)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium on this machine: install it to check the studio in a browser")
    found = Browser(chromium, tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


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
        "max_weight": "3", "rates_kind": "lognormal", "median": "6", "spread": "0.5", "corrupt": "0.2",
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
    browser.set("#f-users", "96")
    browser.wait("document.querySelector('#problem').hidden")


def test_the_plan_is_shown_and_taken_away(studio: Studio, browser: Browser) -> None:
    browser.open(f"{studio.base}/#plan")
    browser.wait("document.querySelector('#curve .point')")
    assert browser.run("document.querySelectorAll('#bytes rect.box').length") > 2
    assert "does not hold" in browser.run("document.querySelector('#guarantees').textContent")
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


def test_the_keyboard_reaches_everything(studio: Studio, browser: Browser) -> None:
    browser.open(f"{studio.base}/#plan")
    browser.wait(SHOWN)
    visited = set()
    for _ in range(70):
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
    browser.wait("document.querySelector('#spoil-words').textContent.includes('take the median')")
    assert browser.complaints() == []


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
    browser.wait("document.querySelectorAll('#compared thead th').length === 3")
    assert browser.complaints() == []


def test_a_round_is_stepped_through(studio: Studio, browser: Browser) -> None:
    browser.open(f"{studio.base}/#round")
    browser.wait("document.querySelectorAll('#steps button').length === 5")
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
    assert browser.complaints() == []


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
