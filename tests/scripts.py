"""Scripts of the tree that are no package (docs, examples), as modules that a test can call."""

from __future__ import annotations

import importlib.util
import types
from pathlib import Path


def load_script(path: Path) -> types.ModuleType:
    """Run a script's file under its own name, and give what it defines."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
