"""Flower's commands on the pages are commands that the installed Flower has, with flags that it knows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]  # of the pinned typer


def commands() -> list[tuple[str, list[str]]]:
    """Every command of Flower in a block of a page: where, and its words."""
    found = []
    for page in PAGES:
        for block in re.findall(
            r"^```(?:sh|console)\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
        ):
            for line in block.replace("\\\n", " ").splitlines():
                words = line.removeprefix("$ ").replace("(cd signed && ", "").rstrip(")").partition("   #")[0]
                if re.match(r"(flwr|flower-\w+) ", words):
                    found.append((page.name, shlex.split(_joined(words, block))))
    return found


def _joined(line: str, block: str) -> str:
    """A command whose quotes go over several lines, as one line."""
    if line.count("'") % 2 == 0:
        return line
    rest = block.replace("\\\n", " ").partition(line)[2]
    return line + " " + " ".join(rest.partition("'")[0].split()) + "'"


def flags_of(words: list[str]) -> set[str]:
    if words[0] == "flower-superlink":
        from flwr.superlink.cli.flower_superlink import _parse_args_run_superlink as parser
    elif words[0] == "flower-supernode":
        from flwr.supernode.cli.flower_supernode import _parse_args_run_supernode as parser
    else:
        return _flags_of_flwr(words[1:])
    return set(parser()._option_string_actions)


def _flags_of_flwr(words: list[str]) -> set[str]:
    import typer
    from flwr.cli.app import app

    command: Any = typer.main.get_command(app)
    for word in words:
        if not hasattr(command, "commands"):
            break
        assert word in command.commands, f"flwr has no command {word!r}"
        command = command.commands[word]
    return {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}


def test_flower_knows_the_flags_that_pages_name() -> None:
    listed = commands()
    assert {words[0] for _, words in listed} == {"flwr", "flower-superlink", "flower-supernode"}
    assert len(listed) > 12
    assert [words for _, words in listed if words[1:3] == ["supernode", "register"]]
    for page, words in listed:
        unknown = {word.partition("=")[0] for word in words if word.startswith("--")} - flags_of(words)
        assert not unknown, f"{page}: {' '.join(words)}: {unknown}"


@pytest.mark.parametrize("words", [["flwr", "run", "--nonsense"], ["flower-supernode", "--nonsense"]])
def test_a_flag_that_is_none_is_found(words: list[str]) -> None:
    assert "--nonsense" not in flags_of(words)
    with pytest.raises(AssertionError, match="no command"):
        flags_of(["flwr", "supernode", "nonsense"])
