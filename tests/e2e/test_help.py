"""What `--help` shows, completion in the shell, and `python -m heterosag`."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
COMMANDS = ("train", "optimize", "plan", "round", "report", "studio", "identity", "directory")
PROGRAM = str(Path(sys.executable).with_name("heterosag"))


def run(*words: str, program: tuple[str, ...] = (PROGRAM,), variables: dict[str, str] | None = None) -> str:
    environment = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1", **(variables or {})}
    done = subprocess.run([*program, *words], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def parameters(command: str) -> list[Any]:
    import typer

    from heterosag.cli import app

    group: Any = typer.main.get_command(app)
    found: list[Any] = group.commands[command].params
    return found


# --- help ---------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS)
def test_help_reads_as_it_was_written(command: str) -> None:
    shown = run(command, "--help")
    assert "\\" not in shown, "an escape for a markup that is not in use"
    words = "".join(shown.split())
    for one in parameters(command):
        assert one.help, f"{one.name} of {command} has no help"
        assert "".join(one.help.split()) in words
    assert shown.lower().count("arguments:") <= 1


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("report", r"  RUNS\.\.\.  Folders of runs, or folders that have runs in them\.  \[required\]"),
        ("report", r"  -o, --out PATH  The page to write\.  \[default: report\.html\]"),
        ("studio", r"  \[RUNS\]  Folder whose runs are shown\.  \[default: runs\]"),
        ("identity", r"  KEY_FILE  A private key's file: .*\n +\[required\]"),
        ("train", r"  \[CONFIG\]  A TOML file of settings; flags override it\."),
    ],
)
def test_arguments_have_their_help_and_brackets_stand_plain(command: str, line: str) -> None:
    assert re.search(rf"^{line}$", run(command, "--help"), re.MULTILINE)


def test_train_has_a_flag_for_every_setting_in_their_order() -> None:
    import dataclasses

    from heterosag.training.config import TrainConfig

    settings = [one.name for one in dataclasses.fields(TrainConfig)]
    assert [one.name for one in parameters("train")] == [
        *("config", *settings, "plan_file", "out", "resume", "quiet", "brief", "as_json")
    ]


def test_commands_are_listed_in_the_order_of_use_and_none_is_cut_short() -> None:
    shown = run("--help", variables={"COLUMNS": "80"})
    listed = shown[shown.index("Commands:") :].splitlines()[1:]
    assert [line.split()[0] for line in listed] == list(COMMANDS)
    assert not any("..." in line for line in listed)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_has_three_examples_that_parse_and_fit_a_terminal(command: str) -> None:
    import typer

    from heterosag.cli import app

    shown = run(command, "--help", variables={"COLUMNS": "80"})
    examples = [line.strip() for line in shown[shown.index("Examples:") :].splitlines()[1:]]
    assert len(examples) == len(set(examples)) == 3
    assert max(len(line) for line in shown.splitlines()) <= 80
    group: Any = typer.main.get_command(app)
    for example in examples:
        program, name, *words = shlex.split(example)
        assert (program, name) == ("heterosag", command)
        group.commands[command].make_context(name, words)


@pytest.mark.parametrize("command", ["train", "optimize", "plan", "round"])
def test_options_of_large_commands_are_in_groups(command: str) -> None:
    ungrouped = [one.name for one in parameters(command) if not getattr(one, "rich_help_panel", None)]
    assert set(ungrouped) <= {"config"}


def test_the_command_line_imports_typer_alone() -> None:
    """typer brought click once and has a copy of it now: click itself may not be there."""
    modules = list((ROOT / "src" / "heterosag" / "cli").glob("*.py"))
    assert len(modules) > 1
    for module in modules:
        assert not re.search(r"^\s*(import|from) click\b", module.read_text(encoding="utf-8"), re.MULTILINE), module


# --- the two ways to start ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("words", [("--version",), ("--help",), ("plan", "--help"), ("train", "--help"), ("plan",)])
def test_the_module_is_the_command(words: tuple[str, ...]) -> None:
    assert run(*words, program=(sys.executable, "-m", "heterosag")) == run(*words)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "command", "extra"),
    [
        ("torch", ["train", "--rounds", "1"], "training"),
        ("uvicorn", ["studio"], "studio"),
    ],
)
def test_a_command_names_the_extra_it_needs(module: str, command: list[str], extra: str, tmp_path: Path) -> None:
    code = (
        "import importlib.util as u, sys\nfind = u.find_spec\n"
        f"u.find_spec = lambda name, *more: None if name == {module!r} else find(name, *more)\n"
        "from heterosag.cli import main\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *command], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 2
    assert done.stderr == f"heterosag: this command needs {module}: pip install 'heterosag[{extra}]'\n"
    assert not list(tmp_path.iterdir()), "nothing was begun"
    page = (ROOT / "docs" / "reference" / "installation.md").read_text(encoding="utf-8")
    assert done.stderr.strip() in page


# --- completion ---------------------------------------------------------------------------------------------------


def complete(line: str) -> list[str]:
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1), "_TYPER_COMPLETE_ARGS": line}
    return run(variables={**words, "_HETEROSAG_COMPLETE": "complete_bash"}).split("\n")[:-1]


def test_bash_completes_commands_and_flags() -> None:
    assert complete("heterosag ") == list(COMMANDS)
    assert complete("heterosag re") == ["report"]
    assert complete("heterosag plan --min") == ["--min-survivors", "--min-block-survivors", "--min-robustness"]
    assert complete("heterosag train --local") == ["--local-epochs"]
    assert complete("heterosag plan --design se") == ["secagg"]
