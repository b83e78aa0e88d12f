"""The command line in this process: what a user would see, without the seconds that a new interpreter takes.

`tests/e2e/test_help.py` starts the installed program itself.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import warnings
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from unittest import mock

__all__ = ["Done", "run_command"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a command left: its exit code and what it wrote."""

    returncode: int
    stdout: str
    stderr: str


def run_command(*words: str, cwd: Path | None = None, expect: int = 0, program: str = "heterosag.cli") -> Done:
    """Run `heterosag` (or the `main` of another module) with these arguments in a folder, and expect this exit code."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        contextlib.chdir(cwd or Path.cwd()),
        mock.patch.object(sys, "argv", ["heterosag", *words]),
        mock.patch.dict(os.environ, {"COLUMNS": "100"}),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # as the program itself does not make them errors
        main = import_module(program).main
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    done = Done(returncode=code, stdout=out.getvalue(), stderr=err.getvalue())
    assert done.returncode == expect, done.stderr
    return done
