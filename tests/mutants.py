"""Mutation testing of crypto, wire and protocol: `python tests/mutants.py --summary FILE`.

mutmut changes the source in thousands of small ways in a copy of the tree and runs the tests that reach each place. A
mutant that no test notices either makes no difference, or is a test that is missing. The summary lists all of these;
what only changes the words of an error is counted by itself. `--from FOLDER` collects a run that is there already.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UNDER_TEST = ["src/heterosag/crypto/", "src/heterosag/wire.py", "src/heterosag/protocol/"]
TESTS = ["crypto", "wire", "client", "server", "saved", "phases", "masks", "enrol", "ledger", "vectors"]
TESTS += ["hostile_primitives", "keyfiles"]
APART = "not generator and not command_prints and not every_file_says"  # tests that look outside the copy

CONFIG = f"""
[tool.mutmut]
source_paths = {json.dumps(UNDER_TEST)}
also_copy = ["src/", "tests/", "docs/"]
pytest_add_cli_args_test_selection = {json.dumps([f"tests/unit/test_{name}.py" for name in TESTS])}
pytest_add_cli_args = ["-p", "no:randomly", "-p", "no:cacheprovider", "-W", "default", "-k", "{APART}"]
"""
NODE_IDS = """

def pytest_collection_modifyitems(items):
    for item in items:
        item._nodeid = item.nodeid  # as mutmut asks for it
"""
_WORDS = re.compile(r"f?\"[^\"]*\"|'[^']*'|\bNone\b|\bXX|XX\b")


def prepare(folder: Path) -> None:
    """A copy of the tree, set up for mutmut."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in listed.splitlines():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target)
    with (folder / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write(CONFIG)
    with (folder / "tests" / "conftest.py").open("a", encoding="utf-8") as file:
        file.write(NODE_IDS)


def collect(folder: Path) -> dict[str, object]:
    """Counts, and every mutant that survived, with what it changed."""
    ends: dict[str, int | None] = {}
    for meta in sorted(folder.glob("mutants/src/**/*.meta")):
        ends |= json.loads(meta.read_text(encoding="utf-8"))["exit_code_by_key"]
    survivors = []
    for name in sorted(name for name, end in ends.items() if end == 0):
        words = [str(Path(sys.executable).parent / "mutmut"), "show", name]
        shown = subprocess.run(words, cwd=folder, check=False, capture_output=True, text=True).stdout
        changed = [line for line in shown.splitlines() if line[:1] in "+-" and not line.startswith(("+++", "---"))]
        survivors.append({"mutant": name, "change": changed, "words": _only_words(changed)})
    return {
        "mutants": len(ends),
        "killed": sum(end not in (0, None) for end in ends.values()),
        "not_run": sum(end is None for end in ends.values()),
        "survived": len(survivors),
        "only_words": sum(one["words"] for one in survivors),
        "survivors": survivors,
    }


def _only_words(changed: list[str]) -> bool:
    """Whether a change is one of texts in an error or in a display: the code around them is the same."""
    old = [line[1:] for line in changed if line.startswith("-")]
    new = [line[1:] for line in changed if line.startswith("+")]
    spoken = any(re.search(r"Error\(|problem|_fault|repr|return f|words|what|^\s*f?\"", line) for line in old)
    return spoken and [_WORDS.sub("", line).strip() for line in old] == [_WORDS.sub("", line).strip() for line in new]


def main() -> None:
    parser = argparse.ArgumentParser(description="Mutation testing of crypto, wire and protocol.")
    parser.add_argument("--summary", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--from", dest="folder", type=Path, help="collect this folder's run instead of a new one")
    given = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch)
        if given.folder is None:
            prepare(folder)
            words = [str(Path(sys.executable).parent / "mutmut"), "run", "--max-children", str(given.workers)]
            subprocess.run(words, cwd=folder, check=False)
        found = collect(folder)
    head = {"command": "make mutants", "seed": None, "duration_seconds": round(time.monotonic() - start, 1)}
    given.summary.write_text(json.dumps(head | found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
