"""A page opened in headless Chromium, or a test skipped that says why."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def open_page(page: Path, profile: Path) -> subprocess.CompletedProcess[str]:
    """The page's document as the browser has it on stdout, its console on stderr."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium on this machine: install it to check the page in a browser")
    words = [
        chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        f"--user-data-dir={profile}", "--enable-logging=stderr", "--dump-dom", page.as_uri(),
    ]  # fmt: skip
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
