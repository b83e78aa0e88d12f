"""Pages from templates: one look for all of them, everything inside the one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from heterosag.errors import UsageError

__all__ = ["render", "write"]


def render(template: Path, **values: Any) -> str:
    """A template's page, with the style of all our pages as `style`."""
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError:
        raise UsageError("pages need jinja2: pip install 'heterosag[report]'") from None
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    style = Path(__file__).with_name("style.css").read_text(encoding="utf-8")
    return environment.from_string(template.read_text(encoding="utf-8")).render(style=style, **values)


def write(path: Path, text: str) -> None:
    """Write a page, its folder too."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error}") from None
