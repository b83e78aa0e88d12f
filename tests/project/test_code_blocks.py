"""Every code block of the README and of the pages under docs runs, or says why it does not.

The blocks of a page run in order in one empty folder (with `examples` and `tests` of this tree in it) and share a
namespace. By language:

- python: executed; beginning with `# NAME.py`: written to that file instead.
- sh: one script of bash, which must succeed. console: lines after `$ ` are run one by one, and what stands below each
  must be what it prints; one that prints `heterosag: ...` must fail.
- toml: a plan or the settings of a training run, by the loaders themselves; with tables in it, it is another program's
  and only parsed; beginning with `# NAME.toml`: also written to that file. json: parsed.
- diff: beginning with `# NAME`: applied to that file. text, mermaid and directives of the site: not run.

A comment directly before a block: `<!-- not run: REASON -->` leaves out a block that would run, `<!-- output -->` says
that a text block is what the block before it prints. In output `...` stands for part of a line, or for whole lines.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from scripts import load_script
from tolerance import shows

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN = {"python", "sh", "console", "toml", "json"}
SHOWN = {"text", "diff", "mermaid"}
NEEDS = {"torch": r"import torch|heterosag train|torch_", "flwr": r"flwr|flower", "matplotlib": r"heterosag report"}

GENERATED = {
    "docs/walkthrough.md": "made by running it: tests/project/test_walkthrough.py",
}

_LONG = (
    "resume-a-run",
    "links-and-deadlines",
    "read-a-report",
    "privacy",
    "choose-a-plan",
    "robust-rules",
    "identities",
    "bring-your-model",
)
TRAINING = {"docs/plans.md", *(f"docs/how-to/{name}.md" for name in _LONG)}
"""Pages that train models, plan, or start many programs for many seconds: run by `make test-all`."""

TUTORIAL = ROOT / "docs" / "tutorial.md"
"""Run by a test of its own."""

_NAMED = re.compile(r"(?:#|//) ([\w./-]+\.(?:py|toml|json))\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block of a page: where its code begins, its language, and the comment directly before it."""

    page: Path
    line: int
    language: str
    code: str
    comment: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT) if self.page.is_relative_to(ROOT) else self.page.name}:{self.line}"

    @property
    def reason(self) -> str:
        """Why it is not run; empty if it is."""
        found = re.fullmatch(r"not run: (.+)", self.comment, re.DOTALL)
        generated = GENERATED.get(self.place.partition(":")[0], "") if self.language in RUN else ""
        return found[1].strip() if found else generated


def blocks_of(page: Path) -> list[Block]:
    tokens = MarkdownIt("commonmark").parse(page.read_text(encoding="utf-8"))
    found = []
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.type == "code_block":
            found.append(Block(page=page, line=_line(token), language="", code=token.content, comment=""))
        if token.type != "fence":
            continue
        comment = ""
        if before is not None and before.type == "html_block":
            last = re.search(r"<!--((?:(?!-->).)*)-->\s*\Z", before.content, re.DOTALL)
            comment = last[1].strip() if last else ""
        language = token.info.split()[0] if token.info.strip() else ""
        found.append(Block(page=page, line=_line(token) + 1, language=language, code=token.content, comment=comment))
    return found


def _line(token: Any) -> int:
    return int(token.map[0]) + 1


# --- running them ---------------------------------------------------------------------------------------------------


class Reader:
    """Somebody who reads a page and does what it says, in a folder."""

    def __init__(self, folder: Path, *, seconds: float = 120.0) -> None:
        """seconds: the most a command may take."""
        self.folder = folder
        self.seconds = seconds
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.printed = ""
        own = folder / ".bin"
        own.mkdir()
        others = f'[ "$1" = run ] || exec "{Path(sys.executable).parent / "flwr"}" "$@"'
        runs = f'exec "{sys.executable}" "{ROOT / "tests" / "flower_run.py"}" "$@"'
        (own / "flwr").write_text(f"#!/bin/sh\n{others}\n{runs}\n")
        (own / "flwr").chmod(0o755)
        for name in ("examples", "tests"):
            (folder / name).symlink_to(ROOT / name)
        quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "OMP_NUM_THREADS": "1"}
        path = os.pathsep.join([str(own), str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        home = {"HOME": str(folder), "PATH": path, "COLUMNS": "100", "NO_COLOR": "1"}
        self.environment = {**os.environ, **quiet, **home}

    def use_flower(self) -> None:
        """From here on `flwr run` is Flower's own, and the folder has only what an app of its own would have."""
        for name in (".bin/flwr", "examples", "tests"):
            (self.folder / name).unlink()

    def do(self, block: Block) -> None:
        if block.reason:
            return
        before, self.printed = self.printed, ""
        named = _NAMED.match(block.code)
        if block.language == "diff":
            if named:
                self._change(self.folder / named[1], block.code)
        elif block.language == "text":
            if block.comment == "output":
                compare(before, block.code, block.place)
        elif block.language == "python" and named:
            compile(block.code, named[1], "exec")
            self._write(named[1], block.code)
        elif block.language in RUN:
            getattr(self, f"_{block.language}")(block)
            if named:
                self._write(named[1], block.code)

    def _write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    @staticmethod
    def _change(path: Path, diff: str) -> None:
        text = path.read_text(encoding="utf-8")
        lines = [line if line.strip() else " \n" for line in diff.splitlines(keepends=True)[1:]]
        old = "".join(line[1:] for line in lines if not line.startswith("+"))
        new = "".join(line[1:] for line in lines if not line.startswith("-"))
        assert text.count(old) == 1, f"{path.name} has these lines {text.count(old)} times:\n{old}"
        path.write_text(text.replace(old, new), encoding="utf-8")

    def _python(self, block: Block) -> None:
        shown = io.StringIO()
        code = compile("\n" * (block.line - 1) + block.code, str(block.page), "exec")
        with contextlib.redirect_stdout(shown):
            exec(code, self.names)
        self.printed = shown.getvalue()

    def _sh(self, block: Block) -> None:
        code, self.printed = self._run(block.code)
        assert code == 0, f"{block.place} ends with {code}:\n{self.printed}"

    def _console(self, block: Block) -> None:
        for command, output in commands(block):
            code, printed = self._run(command)
            told = output.startswith("heterosag: ")
            assert (code != 0) == told, f"{block.place}: {command} ends with {code}:\n{printed}"
            if output:
                compare(printed, output, f"{block.place}: {command}")

    def _toml(self, block: Block) -> None:
        table = tomllib.loads(block.code)
        if any(isinstance(value, dict) for value in table.values()):
            return
        if "dimension" in table:
            from heterosag import Plan

            Plan.from_toml(block.code)
        else:
            from heterosag.training.config import TrainConfig

            TrainConfig.from_toml(block.code)

    def _json(self, block: Block) -> None:
        json.loads(block.code)

    def _run(self, script: str) -> tuple[int, str]:
        done = subprocess.run(
            ["bash", "-eu", "-o", "pipefail", "-c", script],
            cwd=self.folder, env=self.environment, text=True, check=False, timeout=self.seconds,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return done.returncode, done.stdout


def commands(block: Block) -> Iterator[tuple[str, str]]:
    """The commands of a console block, each with what stands below it."""
    parts = re.split(r"^\$ ", block.code, flags=re.MULTILINE)
    assert not parts[0].strip(), f"{block.place}: a console block begins with `$ `"
    for part in parts[1:]:
        lines = part.splitlines(keepends=True)
        last = next(at for at, line in enumerate(lines) if not line.endswith("\\\n"))
        yield "".join(lines[: last + 1]), "".join(lines[last + 1 :])


def compare(printed: str, shown: str, place: str) -> None:
    """What was printed is what the page shows: words exactly, numbers as numbers, `...` as anything."""
    if not shows(printed, shown):
        pytest.fail(f"{place} shows\n{shown}\nbut it prints\n{printed}", pytrace=False)


# --- the tests ------------------------------------------------------------------------------------------------------


def _parameter(page: Path) -> Any:
    name = page.relative_to(ROOT).as_posix()
    first = name in ("README.md", "docs/index.md", "docs/plans.md")
    marks = [pytest.mark.slow] if name in TRAINING else [] if first else [pytest.mark.long]
    return pytest.param(page, id=name, marks=marks)


@pytest.mark.parametrize("page", [_parameter(page) for page in PAGES])
def test_every_block_runs_or_says_why_not(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = blocks_of(page)
    for block in blocks:
        known = block.language in RUN | SHOWN or re.fullmatch(r"\{[\w:-]+\}", block.language)
        assert known, f"{block.place}: say the language of this block, or `text`"
        assert block.reason or "not run" not in block.comment, f"{block.place}: not run, and no reason"
        assert not block.reason or block.language in RUN, f"{block.place}: a {block.language} block is never run"
    wanted = [block for block in blocks if not block.reason and block.language in RUN | {"diff", "text"}]
    if page == TUTORIAL or not any(block.language in RUN for block in wanted):
        return
    text = "\n".join(block.code for block in wanted if block.language in RUN)
    for module, pattern in NEEDS.items():
        if re.search(pattern, text):
            pytest.importorskip(module)
    reader = Reader(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("HOME", "COLUMNS", "NO_COLOR"):
        monkeypatch.setenv(name, reader.environment[name])
    for block in wanted:
        reader.do(block)


@pytest.mark.slow
@pytest.mark.longest
def test_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last `flwr run`, which has every change, is Flower's own: Ray, and a SuperLink that is ended afterwards."""
    pytest.importorskip("flwr")
    pytest.importorskip("torch")
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / ".flwr"))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    ports = load_script(ROOT / "examples" / "flower" / "deploy.py").free_ports(2)
    for name, port in zip(("SUPERLINK_HTTP", "CONTROL"), ports, strict=True):
        monkeypatch.setenv(f"FLWR_LOCAL_{name}_API_PORT", str(port))
    reader = Reader(tmp_path, seconds=300.0)
    blocks = blocks_of(TUTORIAL)
    last = max(place for place, block in enumerate(blocks) if "flwr run" in block.code and block.language == "sh")
    try:
        for place, block in enumerate(blocks):
            if place == last and importlib.util.find_spec("ray") is not None:
                reader.use_flower()
            reader.do(block)
    finally:
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if f"FLWR_HOME={tmp_path}/".encode() in (process / "environ").read_bytes():
                    os.kill(int(process.name), signal.SIGKILL)


# --- the reader itself ----------------------------------------------------------------------------------------------


def page_of(folder: Path, text: str) -> list[Block]:
    page = folder / "page.md"
    page.write_text(text, encoding="utf-8")
    return blocks_of(page)


def test_blocks_are_found_with_line_language_and_comment(tmp_path: Path) -> None:
    text = "# A\n\n```python\nx = 1\n```\n\n- b\n\n  <!-- not run: why -->\n  ```sh\n  ls\n  ```\n\n```\nfree\n```\n"
    first, second, third = page_of(tmp_path, text)
    assert (first.line, first.language, first.code, first.comment) == (4, "python", "x = 1\n", "")
    assert (second.line, second.language, second.code, second.reason) == (11, "sh", "ls\n", "why")
    assert (third.language, third.reason) == ("", "")


def test_an_indented_block_is_a_block_without_language(tmp_path: Path) -> None:
    (block,) = page_of(tmp_path, "text\n\n    code\n")
    assert block.language == ""


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("```python\n1 / 0\n```\n", "division"),
        ("```sh\nfalse | true\n```\n", "ends with"),
        ("```console\n$ echo a\nb\n```\n", "but it prints"),
        ("```console\n$ heterosag plan --classes x\n```\n", "ends with 2"),
        ("```console\n$ echo a\nheterosag: a\n```\n", "ends with 0"),
        ("```toml\nclases = [1]\n```\n", "no setting is called"),
        ("```toml\ndimension = 9\nclasses = [12]\nlevel = [2]\n```\n", "unknown keys"),
        ("```json\n{,}\n```\n", "Expecting"),
        ("```python\nprint(1)\n```\n\n<!-- output -->\n```text\n2\n```\n", "but it prints"),
        ("```python\n# a.py\nx = 1\n```\n\n```diff\n# a.py\n-y = 1\n+y = 2\n```\n", "0 times"),
    ],
)
def test_a_block_that_is_wrong_fails(text: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    reader = Reader(folder)
    *fine, wrong = page_of(tmp_path, text)
    for block in fine:
        reader.do(block)
    with pytest.raises((Exception, pytest.fail.Exception), match=what):
        reader.do(wrong)


@pytest.mark.parametrize(
    ("printed", "shown", "same"),
    [
        ("a \nb\n", "a\nb\n", True),
        ("a\nb\nc\n", "...\nc\n", True),
        ("a\nb\nc\n", "a\n...\nc\n", True),
        ("a\nc\n", "a\n...\nc\n...\n", True),
        ("a 1 z\n", "a ... z\n", True),
        ("a 1\nz\n", "a ...z\n", False),
        ("a\nb\n", "a\n", False),
        ("a.b\n", "a.c\n", False),
        ("p 0.1234567, 3 of 4\n", "p 0.1234568, 3 of 4\n", True),
        ("p 0.12 ... 7.5e-11\n", "p ... 7.4e-11\n", True),
        ("p 0.12\n", "p 0.15\n", False),
        ("3 of 4\n", "4 of 4\n", False),
        ("", "a\n", False),
    ],
)
def test_what_is_printed_is_compared(printed: str, shown: str, same: bool) -> None:
    with contextlib.nullcontext() if same else pytest.raises(pytest.fail.Exception, match="but it prints"):
        compare(printed, shown, "here")


def test_blocks_share_names_files_and_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    reader = Reader(folder)
    text = (
        "```python\nx = 20\n```\n\n```python\nprint(x, 'and more')\n```\n\n<!-- output -->\n```text\n20 ...\n```\n\n"
        "```python\n# own.py\nprint('one')\n```\n\n```diff\n# own.py\n-print('one')\n+print('two')\n```\n\n"
        "```console\n$ python \\\n    own.py\ntwo\n```\n"
    )
    for block in page_of(tmp_path, text):
        reader.do(block)
