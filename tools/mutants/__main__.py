"""Mutation testing of crypto, protocol and privacy: `python tools/mutants --summary FILE`.

mutmut changes the source in thousands of small ways in a copy of the tree and finds out which tests reach each place;
`forks.py` runs these. A mutant that no test notices either makes no difference, or is a test that is missing. The
summary counts them module by module and lists all that no test noticed; what only changes the words of an error is
counted by itself, and tried on the tests of its own module only.

Parts of a whole run can be run, and are merged into the summary: `--only heterosag.crypto` runs the modules whose names
begin so, `--again` the mutants that the summary lists, after tests have been added; `--new` the modules that it does
not know as they are, beside what else is asked for. The summary holds a digest of every module's code, docstrings
apart: what it said of a module that has changed since is left out of it, and the module counts as not run until it is
run whole. Seconds are added up.
`--sample 200` runs so many mutants drawn with a fixed seed and only prints: the same ones in every tree with the same
source, to compare test suites.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import hashlib
import itertools
import json
import math
import os
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

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
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
# Node ids as mutmut asks for them.
HOOK = """

def pytest_collection_modifyitems(items):
    for item in items:
        item._nodeid = item.nodeid
"""
_WORDS = re.compile(r"f?\"[^\"]*\"|'[^']*'|\bNone\b|\bXX|XX\b")
_SPOKEN = re.compile(r"Error\(|problem|_fault|repr|return f|words|what|^\s*f?\"[^\"]*\"(?!:)")
_NOTHING = re.compile(r"(=|return)\s+None$")  # no fault in the place of one is more than its words
_MUTANT = "__mutmut_"


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


def make(folder: Path) -> dict[str, list[str]]:
    """Let mutmut make all mutants and see which tests reach which function; by mutant the lines that it changes."""
    mutmut = str(Path(sys.executable).parent / "mutmut")
    subprocess.run([mutmut, "run", "--max-children", "1", "heterosag.crypto.secret.*"], cwd=folder, check=False)
    found: dict[str, list[str]] = {}
    for place in UNDER_TEST:
        for path in sorted((folder / "mutants" / place).rglob("*.py")):
            found |= _changes(path.read_text(encoding="utf-8"), _name_of(path.relative_to(folder / "mutants" / "src")))
    return found


def _changes(source: str, module: str) -> dict[str, list[str]]:
    """By mutant of one module the lines that it changes, as mutmut writes mutants beside the original."""
    lines = source.splitlines()
    functions = {
        node.name: "\n".join(lines[node.lineno - 1 : node.end_lineno]).replace(node.name, "", 1).splitlines()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _MUTANT in node.name
    }
    found = {}
    for name, body in functions.items():
        kind, _, number = name.partition(_MUTANT)
        if number != "orig":
            pairs = difflib.ndiff(functions[f"{kind}{_MUTANT}orig"], body)
            found[f"{module}.{name}"] = [line[0] + line[2:].strip() for line in pairs if line[0] in "+-"]
    return found


def tests_of(
    folder: Path, mutants: Mapping[str, list[str]], patience: float
) -> tuple[dict[str, list[str]], dict[str, float]]:
    """By mutant the tests that reach it, those of its module first and short ones before long; by test its seconds.

    Those of other modules only as long as they take no more than `patience` seconds together.
    """
    stats = json.loads((folder / "mutants" / "mutmut-stats.json").read_text(encoding="utf-8"))
    seconds: dict[str, float] = stats["duration_by_test"]
    reaching: dict[str, list[str]] = stats["tests_by_mangled_function_name"]
    found = {}
    for name, change in mutants.items():
        file = f"/test_{module_of(name).rpartition('.')[2]}.py::"
        tests = sorted(reaching.get(name.partition(_MUTANT)[0], []), key=seconds.__getitem__)
        own, others = [test for test in tests if file in test], [test for test in tests if file not in test]
        spent = itertools.accumulate(seconds[test] for test in others)
        within = [test for test, sum_so_far in zip(others, spent, strict=True) if sum_so_far <= patience]
        found[name] = own if own and only_words(change) else own + within
    return found, seconds


def run(folder: Path, workers: int, mutants: Mapping[str, list[str]], patience: float) -> dict[str, bool]:
    """By mutant whether its tests noticed it. What no test reaches is not noticed."""
    tests, seconds = tests_of(folder, mutants, patience)
    reached = {name: own for name, own in tests.items() if own}
    everything = sorted({test for own in reached.values() for test in own}, key=seconds.__getitem__)
    asked, ended = folder / "asked.json", folder / "ended.jsonl"
    asked.write_text(json.dumps({"tests": {"": everything} | reached, "seconds": seconds}), encoding="utf-8")
    ended.unlink(missing_ok=True)
    options = ["-q", "-s", "--tb=native", "--rootdir=.", "-p", "forks", "-p", "no:randomly", "-p", "no:cacheprovider"]
    options += ["-k", APART, "--mutants-of", str(asked), "--ends", str(ended), "--children", str(workers), *TESTS]
    subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=folder / "mutants",
        check=True,
        env=os.environ | {"PYTHONPATH": f"{folder / 'mutants' / 'src'}:{HERE}", "MUTANT_UNDER_TEST": ""},
    )
    ends = dict(json.loads(line) for line in ended.read_text(encoding="utf-8").splitlines())
    if ends.pop("") != 0:
        raise SystemExit("the tests fail without any mutant")
    return {name: ends.get(name, 0) != 0 for name in mutants}


def module_of(mutant: str) -> str:
    """The module that a mutant is one of."""
    return mutant.rpartition(".")[0]


def sources() -> dict[str, str]:
    """A digest of the code of every module under test, docstrings apart."""
    paths = [path for place in UNDER_TEST for path in sorted((ROOT / place).rglob("*.py"))]
    return {_name_of(path.relative_to(ROOT / "src")): _digest(path.read_text(encoding="utf-8")) for path in paths}


def _digest(source: str) -> str:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:16]


def _name_of(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def only_words(changed: list[str]) -> bool:
    """Whether a change is one of texts in an error or in a display: the code around them is the same."""
    old = [line[1:] for line in changed if line.startswith("-")]
    new = [line[1:] for line in changed if line.startswith("+")]
    spoken = any(_SPOKEN.search(line) for line in old) and not any(_NOTHING.search(line) for line in new)
    return spoken and [_WORDS.sub("", line).strip() for line in old] == [_WORDS.sub("", line).strip() for line in new]


def merge(
    before: Mapping[str, Any], made: Mapping[str, list[str]], noticed: Mapping[str, bool], seconds: float
) -> dict[str, Any]:
    """The summary with what these mutants came to, in the place of what it said of them."""
    now = sources()
    modules = {name: dict(one) for name, one in before.get("modules", {}).items() if one["source"] == now.get(name)}
    for module in {module_of(name) for name in made} - modules.keys():
        own = [name for name in made if module_of(name) == module]
        if noticed.keys() >= set(own):
            words = sum(only_words(made[name]) for name in own)
            modules[module] = {"source": now[module], "mutants": len(own), "words": words}
    kept = {
        one["mutant"]: one
        for one in before.get("survivors", [])
        if one["mutant"] in made.keys() - noticed.keys() and module_of(one["mutant"]) in modules
    }
    kept |= {
        name: {"mutant": name, "change": made[name], "words": only_words(made[name])}
        for name, seen in noticed.items()
        if not seen and module_of(name) in modules
    }
    for name, one in modules.items():
        own_kept = [value for key, value in kept.items() if module_of(key) == name]
        one["survived"], one["only_words"] = len(own_kept), sum(value["words"] for value in own_kept)
    mutants = sum(one["mutants"] for one in modules.values())
    words = sum(one["words"] for one in modules.values())
    unnoticed_words = sum(one["words"] for one in kept.values())
    return {
        "command": "make mutants",
        "seed": None,
        "duration_seconds": round(before.get("duration_seconds", 0.0) + seconds, 1),
        "mutants": mutants,
        "killed": mutants - len(kept),
        "survived": len(kept),
        "only_words": unnoticed_words,
        "words": words,
        "noticed_of_others": round(1 - (len(kept) - unnoticed_words) / max(1, mutants - words), 4),
        "not_run": sum(module_of(name) not in modules for name in made),
        "modules": dict(sorted(modules.items())),
        "survivors": [kept[name] for name in sorted(kept)],
    }


def choose(made: Collection[str], before: Mapping[str, Any], given: argparse.Namespace) -> set[str]:
    """The mutants that are asked for: of modules by name, of those that have changed, and those not noticed so far."""
    known, now = before.get("modules", {}), sources()
    changed = {name for name, digest in now.items() if known.get(name, {}).get("source") != digest}
    chosen = {name for name in made if given.new and module_of(name) in changed}
    chosen |= {name for name in made if given.only and name.startswith(tuple(given.only))}
    listed = {one["mutant"] for one in before.get("survivors", [])}
    return chosen | {name for name in made if given.again and name in listed and module_of(name) not in changed}


def main() -> None:
    parser = argparse.ArgumentParser(description="Mutation testing of crypto, protocol and privacy.")
    parser.add_argument("--summary", type=Path, required=True, help="made, or what is run merged into it")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="work in this folder, new or of an earlier call, and leave it there")
    parser.add_argument("--only", nargs="+", default=[], metavar="MODULE", help="run modules whose names begin so")
    parser.add_argument("--again", action="store_true", help="run what the summary lists as not noticed")
    parser.add_argument("--new", action="store_true", help="run modules that the summary does not know as they are")
    parser.add_argument(
        "--patience",
        type=float,
        default=math.inf,
        metavar="SECONDS",
        help="run so many seconds of other modules' tests at most on a mutant that its own module's do not notice",
    )
    parser.add_argument("--sample", type=int, help="run only so many mutants, drawn with a fixed seed, and print")
    given = parser.parse_args()
    start = time.monotonic()
    whole = not (given.only or given.again or given.new)
    before = {} if whole or not given.summary.exists() else json.loads(given.summary.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.keep or Path(scratch)
        folder.mkdir(exist_ok=True)
        prepare(folder)
        made = make(folder)
        wanted = sorted(made if whole else choose(made, before, given))
        if given.sample:
            wanted = sorted(random.Random(0).sample(wanted, given.sample))
        noticed = run(folder, given.workers, {name: made[name] for name in wanted}, given.patience)
    if given.sample:
        print(f"{sum(noticed.values())} of {len(wanted)} mutants noticed")
        return
    found = merge(before, made, noticed, time.monotonic() - start)
    given.summary.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(f"{found['killed']:,} of {found['mutants']:,} mutants noticed, {found['not_run']:,} not run")


if __name__ == "__main__":
    main()
