"""What commands print and write, and what they need to be installed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heterosag.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["need_extra", "print_found", "write_file"]


def print_found(found: Callable[[], Any], shown: Callable[[], RenderableType], *, as_json: bool) -> None:
    """JSON for scripts, or what a person reads on a terminal."""
    if as_json:
        print(json.dumps(found(), indent=2))
        return
    from rich.console import Console

    Console(highlight=False).print(shown())


def write_file(path: Path, text: str) -> None:
    """Write a file that was asked for with --save."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error}; choose another file with --save") from None


def need_extra(module: str, extra: str) -> None:
    """Say which extra brings a module that is missing."""
    from importlib.util import find_spec

    for needed in (module, *({"sklearn"} if extra == "training" else ())):
        if find_spec(needed) is None:
            raise UsageError(f"this command needs {needed}: pip install 'heterosag[{extra}]'")
