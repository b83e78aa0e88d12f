"""Mutation testing of crypto, protocol and privacy: `python tools/mutants.py --summary FILE`.

mutmut changes the source in thousands of small ways in a copy of the tree and runs the tests that reach each place. A
mutant that no test notices either makes no difference, or is a test that is missing. The summary lists all of these;
what only changes the words of an error is counted by itself. `--from FOLDER` collects a run that is there already;
`--after FOLDER ...` builds on runs of before, when tests have been added or some functions have changed. `--sample 200`
runs so many mutants drawn with a fixed seed: the same ones in every tree with the same source, to compare test suites.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UNDER_TEST = ["src/heterosag/crypto/", "src/heterosag/protocol/", "src/heterosag/privacy/"]
TESTS = ["tests/crypto", "tests/protocol", "tests/privacy", "tests/storage", "tests/test_ledger.py"]
APART = "not generator and not command_prints and not every_file_says"  # tests that look outside the copy

CONFIG = f"""
[tool.mutmut]
source_paths = {json.dumps(UNDER_TEST)}
also_copy = ["src/", "tests/", "tools/", "docs/"]
pytest_add_cli_args_test_selection = {json.dumps(TESTS)}
pytest_add_cli_args = ["-p", "no:randomly", "-p", "no:cacheprovider", "-W", "default", "-k", "{APART}"]
"""
NODE_IDS = """

def pytest_collection_modifyitems(items):
    for item in items:
        item._nodeid = item.nodeid  # as mutmut asks for it
"""
_SHOW = """
import json, sys
from mutmut.__main__ import get_diff_for_mutant
print(json.dumps({name: get_diff_for_mutant(name) for name in json.load(sys.stdin)}))
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


def ends_of(folder: Path) -> tuple[dict[str, int | None], dict[str, str]]:
    """By mutant how its tests ended (None: not run), and by function the hash of its source."""
    ends: dict[str, int | None] = {}
    hashes: dict[str, str] = {}
    for meta in sorted(folder.glob("mutants/src/**/*.meta")):
        found = json.loads(meta.read_text(encoding="utf-8"))
        ends |= found["exit_code_by_key"]
        module = next((name.rpartition(".")[0] for name in found["exit_code_by_key"]), "")
        hashes |= {f"{module}.{name}": value for name, value in found["hash_by_function_name"].items()}
    return ends, hashes


def known_ends(folder: Path, before: Sequence[Path]) -> dict[str, int]:
    """What earlier runs killed in functions that are still the same: tests have only been added since."""
    _, now = ends_of(folder)
    known: dict[str, int] = {}
    for earlier in before:
        ends, then = ends_of(earlier)
        same = {name for name in then if now.get(name) == then[name]}
        known |= {name: end for name, end in ends.items() if end and function_of(name) in same}
    return known


def function_of(mutant: str) -> str:
    """The function that a mutant is one of."""
    return mutant.rpartition("__mutmut_")[0]


def collect(folder: Path, before: Sequence[Path] = ()) -> dict[str, object]:
    """Counts, and every mutant that survived, with what it changed."""
    ends, _ = ends_of(folder)
    kept = known_ends(folder, before)
    ends |= {name: end for name, end in kept.items() if ends.get(name, 0) is None}
    names = sorted(name for name, end in ends.items() if end == 0)
    shown = subprocess.run(
        [sys.executable, "-c", _SHOW], cwd=folder, check=True, capture_output=True, text=True, input=json.dumps(names)
    ).stdout
    survivors = []
    for name, text in json.loads(shown).items():
        changed = [line for line in text.splitlines() if line[:1] in "+-" and not line.startswith(("+++", "---"))]
        survivors.append({"mutant": name, "change": changed, "words": _only_words(changed)})
    return {
        "mutants": len(ends),
        "killed": sum(end not in (0, None) for end in ends.values()),
        "killed_by_an_earlier_run": sum(name in kept for name in ends),
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


def run(folder: Path, workers: int, *names: str) -> None:
    """Let mutmut make all mutants, and run the tests of these; all unless named."""
    mutmut = str(Path(sys.executable).parent / "mutmut")
    subprocess.run([mutmut, "run", "--max-children", str(workers), *names], cwd=folder, check=False)


def main() -> None:
    parser = argparse.ArgumentParser(description="Mutation testing of crypto, protocol and privacy.")
    parser.add_argument("--summary", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="work in this new folder and leave it there")
    parser.add_argument("--from", dest="folder", type=Path, help="collect this folder's run instead of a new one")
    parser.add_argument("--after", type=Path, nargs="+", default=[], help="runs of before whose kills still count")
    parser.add_argument("--sample", type=int, help="run only so many mutants, drawn with a fixed seed")
    given = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or given.keep or Path(scratch)
        if given.folder is None:
            folder.mkdir(exist_ok=True)
            prepare(folder)
            if not given.after and not given.sample:
                run(folder, given.workers)
            else:
                run(folder, given.workers, "heterosag.crypto.secret.*")  # a few, so that all are made
                ends, _ = ends_of(folder)
                wanted = sorted(ends.keys() - known_ends(folder, given.after).keys())
                if given.sample:
                    wanted = sorted(random.Random(0).sample(wanted, given.sample))
                run(folder, given.workers, *wanted)
        found = collect(folder, given.after)
    head = {"command": "make mutants", "seed": None, "duration_seconds": round(time.monotonic() - start, 1)}
    given.summary.write_text(json.dumps(head | found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
