"""Pages from templates: one look for all of them, everything inside the one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from heterosag.errors import UsageError
from heterosag.report.names import printable

__all__ = ["render", "write"]


def render(template: Path, **values: Any) -> str:
    """A template's page, with the style of all our pages as `style`, and without characters that no page may have."""
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError:
        raise UsageError("pages need jinja2: pip install 'heterosag[report]'") from None
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    style = Path(__file__).with_name("style.css").read_text(encoding="utf-8")
    page = environment.from_string(template.read_text(encoding="utf-8")).render(style=style, **values)
    return printable(page, keep="\n\t")


def write(path: Path, text: str) -> None:
    """Write a page, its folder too."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error}") from None
