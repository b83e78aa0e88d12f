"""The studio's Plan tab as docs/studio.md shows it, at the width of a desk and of a phone.

    python tools/documents/studio_pictures.py

It needs Chromium, so `make docs-data` does not run it: run it after a change of the page.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from browser import Browser  # noqa: E402
from studio_server import Studio  # noqa: E402

WIDTHS = (1280, 390)


def main() -> None:
    """Start a studio and a browser, and take both pictures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        studio, browser = Studio(folder), Browser(folder / "profile")
        try:
            for width in WIDTHS:
                browser.open(studio.base, width=width)
                browser.screenshot(ROOT / "docs" / "figures" / f"studio-{width}.png", whole=True)
        finally:
            browser.close()
            studio.close()


if __name__ == "__main__":
    main()
