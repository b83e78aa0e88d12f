"""Mutation testing of crypto, protocol and privacy: `python tools/mutants.py --summary FILE`.

mutmut changes the source in thousands of small ways in a copy of the tree and runs the tests that reach each place. A
mutant that no test notices either makes no difference, or is a test that is missing. The summary counts them module by
module and lists all that no test noticed; what only changes the words of an error is counted by itself.

A whole run takes hours, so parts of it can be run, and are merged into the summary: `--only heterosag.crypto` runs the
modules whose names begin so, `--again` only the mutants that the summary lists, after tests have been added. The
summary holds a digest of every module's source: what it said of a module that has changed since is left out of it, and
the module counts as not run until it is run whole. Seconds are added up.
`--sample 200` runs so many mutants drawn with a fixed seed and only prints: the same ones in every tree with the same
source, to compare test suites.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

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
timeout_multiplier = 3.0
timeout_constant = 10.0
"""
# Node ids as mutmut asks for them; and the tests of the module that is changed before others, short ones before long.
HOOK = """

def pytest_collection_modifyitems(items):
    import json, os, pathlib

    stats = pathlib.Path("mutmut-stats.json")
    known = json.loads(stats.read_text())["duration_by_test"] if stats.exists() else {}
    module = os.environ.get("MUTANT_UNDER_TEST", "").rpartition(".")[0].rpartition(".")[2]
    for item in items:
        item._nodeid = item.nodeid
    items.sort(key=lambda item: (item.path.stem != f"test_{module}", known.get(item.nodeid, 0.0)))
"""
_SHOW = """
import json, sys
from mutmut.__main__ import get_diff_for_mutant
print(json.dumps({name: get_diff_for_mutant(name) for name in json.load(sys.stdin)}))
"""
_WORDS = re.compile(r"f?\"[^\"]*\"|'[^']*'|\bNone\b|\bXX|XX\b")
_UNNOTICED = (0, 5, 33)  # tests passed; no test reaches the place


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
        file.write(HOOK)


def run(folder: Path, workers: int, names: Collection[str]) -> None:
    """Let mutmut make all mutants, and run the tests of these, which may be patterns."""
    mutmut = str(Path(sys.executable).parent / "mutmut")
    subprocess.run([mutmut, "run", "--max-children", str(workers), *names], cwd=folder, check=False)


def ends_of(folder: Path) -> dict[str, int | None]:
    """By mutant how its tests ended; None: not run."""
    ends: dict[str, int | None] = {}
    for meta in sorted(folder.glob("mutants/src/**/*.meta")):
        ends |= json.loads(meta.read_text(encoding="utf-8"))["exit_code_by_key"]
    return ends


def module_of(mutant: str) -> str:
    """The module that a mutant is one of."""
    return mutant.rpartition(".")[0]


def sources() -> dict[str, str]:
    """A digest of the source of every module under test."""
    paths = [path for place in UNDER_TEST for path in sorted((ROOT / place).rglob("*.py"))]
    found = {}
    for path in paths:
        name = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
        found[name] = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return found


def survivors_of(folder: Path, names: Collection[str]) -> list[dict[str, Any]]:
    """What each of these mutants changed, and whether it is only words."""
    shown = subprocess.run(
        [sys.executable, "-c", _SHOW],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
        input=json.dumps(sorted(names)),
    ).stdout
    found = []
    for name, text in json.loads(shown).items():
        changed = [line for line in text.splitlines() if line[:1] in "+-" and not line.startswith(("+++", "---"))]
        found.append({"mutant": name, "change": changed, "words": _only_words(changed)})
    return found


def _only_words(changed: list[str]) -> bool:
    """Whether a change is one of texts in an error or in a display: the code around them is the same."""
    old = [line[1:] for line in changed if line.startswith("-")]
    new = [line[1:] for line in changed if line.startswith("+")]
    spoken = any(re.search(r"Error\(|problem|_fault|repr|return f|words|what|^\s*f?\"", line) for line in old)
    return spoken and [_WORDS.sub("", line).strip() for line in old] == [_WORDS.sub("", line).strip() for line in new]


def merge(before: Mapping[str, Any], folder: Path, wanted: Collection[str], seconds: float) -> dict[str, Any]:
    """The summary with what these mutants came to, in the place of what it said of them."""
    ends, now = ends_of(folder), sources()
    modules = {name: dict(one) for name, one in before.get("modules", {}).items() if one["source"] == now.get(name)}
    tried = {name for name in wanted if ends.get(name) is not None}
    for module in {module_of(name) for name in ends} - modules.keys():
        own = [name for name in ends if module_of(name) == module]
        if tried.issuperset(own):
            modules[module] = {"source": now[module], "mutants": len(own)}
    unnoticed = {name for name in tried if ends[name] in _UNNOTICED and module_of(name) in modules}
    kept = {
        one["mutant"]: one
        for one in before.get("survivors", [])
        if one["mutant"] not in tried and module_of(one["mutant"]) in modules
    }
    kept |= {one["mutant"]: one for one in survivors_of(folder, unnoticed)}
    for name, one in modules.items():
        own_kept = [value for key, value in kept.items() if module_of(key) == name]
        one["survived"], one["only_words"] = len(own_kept), sum(value["words"] for value in own_kept)
    mutants = sum(one["mutants"] for one in modules.values())
    return {
        "command": "make mutants",
        "seed": None,
        "duration_seconds": round(before.get("duration_seconds", 0.0) + seconds, 1),
        "mutants": mutants,
        "killed": mutants - len(kept),
        "survived": len(kept),
        "only_words": sum(one["words"] for one in kept.values()),
        "not_run": sum(module_of(name) not in modules for name in ends),
        "modules": dict(sorted(modules.items())),
        "survivors": [kept[name] for name in sorted(kept)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Mutation testing of crypto, protocol and privacy.")
    parser.add_argument("--summary", type=Path, required=True, help="made, or what is run merged into it")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="work in this folder, new or of an earlier call, and leave it there")
    parser.add_argument("--only", nargs="+", default=[], metavar="MODULE", help="run modules whose names begin so")
    parser.add_argument("--again", action="store_true", help="run only what the summary lists as not noticed")
    parser.add_argument("--sample", type=int, help="run only so many mutants, drawn with a fixed seed, and print")
    given = parser.parse_args()
    start = time.monotonic()
    before = json.loads(given.summary.read_text(encoding="utf-8")) if given.summary.exists() else {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.keep or Path(scratch)
        folder.mkdir(exist_ok=True)
        prepare(folder)
        run(folder, given.workers, ["heterosag.crypto.secret.*"])  # a few, so that all are made
        made = sorted(ends_of(folder))
        wanted = [name for name in made if not given.only or name.startswith(tuple(given.only))]
        if given.again:
            listed = {one["mutant"] for one in before.get("survivors", [])}
            wanted = [name for name in wanted if name in listed]
        if given.sample:
            wanted = sorted(random.Random(0).sample(wanted, given.sample))
        named = given.again or given.sample
        run(folder, given.workers, wanted if named else [f"{module}*" for module in given.only])
        if given.sample:
            ends = ends_of(folder)
            print(f"{sum(ends[name] not in _UNNOTICED for name in wanted)} of {len(wanted)} mutants noticed")
            return
        found = merge(before, folder, wanted, time.monotonic() - start)
    given.summary.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(f"{found['killed']:,} of {found['mutants']:,} mutants noticed, {found['not_run']:,} not run")


if __name__ == "__main__":
    main()
