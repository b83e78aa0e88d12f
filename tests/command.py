"""The command line in this process: what a user would see, without the seconds that a new interpreter takes.

`tests/e2e/test_help.py` starts the installed program itself.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import sys
import warnings
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

__all__ = ["Done", "run_command", "settings_in", "training_command"]


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


def training_command(printed: str) -> list[str]:
    """The words after `heterosag` of the one command to train in a text, which may go on after a backslash."""
    lines = printed.replace("\\\n", " ").splitlines()
    (found,) = (line.partition("heterosag train")[2] for line in lines if "heterosag train" in line)
    return ["train", *shlex.split(found)]


def settings_in(words: list[str]) -> dict[str, Any]:
    """The settings of a command to train, as texts and switches, by name."""
    assert words[0] == "train"
    found: dict[str, Any] = {}
    for word in " ".join(words[1:]).split("--")[1:]:
        flag, _, value = word.strip().replace("=", " ", 1).partition(" ")
        flag = flag.replace("-", "_")
        found[flag.removeprefix("no_")] = value or not flag.startswith("no_")
    return found
