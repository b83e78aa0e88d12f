"""A page opened in headless Chromium, or a test skipped that says why."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest


def find_chromium() -> str:
    """The browser's program."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium on this machine: install it to check the page in a browser")
    return chromium


def open_page(page: Path, profile: Path) -> subprocess.CompletedProcess[str]:
    """The page's document as the browser has it on stdout, its console on stderr."""
    words = [
        find_chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        f"--user-data-dir={profile}", "--enable-logging=stderr", "--dump-dom", page.as_uri(),
    ]  # fmt: skip
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)


# Chromium reads commands from descriptor 3 and writes to 4; this puts two pipes there.
_LAUNCH = """
import fcntl, os, sys
reads, writes = (fcntl.fcntl(int(word), fcntl.F_DUPFD, 10) for word in sys.argv[1:3])
os.dup2(reads, 3); os.dup2(writes, 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """One page of headless Chromium, over the DevTools protocol on a pipe: no driver, no port, no dependency."""

    def __init__(self, profile: Path) -> None:
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        words = [
            sys.executable, "-c", _LAUNCH, str(to_read), str(to_write), find_chromium(), "--headless=new",
            "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
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
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)

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

    def open(
        self,
        address: str,
        width: int = 1280,
        height: int = 900,
        dark: bool = False,
        ready: str = "document.querySelector('#matrix td')",
    ) -> None:
        """Go to an address, and wait until the expression is true."""
        self.call("Page.navigate", url="about:blank")
        self.events.clear()
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.call("Page.navigate", url=address)
        self.wait(f"document.readyState === 'complete' && {ready}")

    def press(self, key: str) -> None:
        codes = {"Tab": 9, "Enter": 13, " ": 32, "ArrowLeft": 37, "ArrowRight": 39, "ArrowDown": 40}
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
