"""What the source tree may use, what it may reach at run time, and that the lock pins all of it.

The checks read the syntax tree, so a comment or a name that looks alike does not count. What is forbidden wherever it
stands is in pyproject.toml, for ruff; here is what depends on the place.
"""

from __future__ import annotations

import ast
import json
import random
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, metadata, requires
from pathlib import Path

import pytest
from cases import each

from heterosag.crypto.field import random_element
from heterosag.crypto.identity import Identity
from heterosag.crypto.keys import RoundSecrets, public_bytes
from heterosag.crypto.shamir import random_polynomial

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "heterosag"
FILES = {path.relative_to(SOURCE).as_posix(): path for path in sorted(SOURCE.rglob("*.py"))}


# --- reading the source -------------------------------------------------------------------------------------------


@cache
def tree_of(file: str) -> ast.Module:
    return ast.parse(FILES[file].read_text(encoding="utf-8"))


def names_in(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Every module, function or attribute that the code names, by its full dotted name, and the line."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for item in node.names:
                known[item.asname or item.name.partition(".")[0]] = (
                    item.name if item.asname else item.name.split(".")[0]
                )
                yield item.name, node.lineno
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for item in node.names:
                known[item.asname or item.name] = f"{node.module}.{item.name}"
                yield f"{node.module}.{item.name}", node.lineno
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield known.get(node.id, node.id), node.lineno
        elif isinstance(node, ast.Attribute):
            dotted = ast.unparse(node)
            first, _, rest = dotted.partition(".")
            if re.fullmatch(r"[\w.]+", dotted):
                yield f"{known.get(first, first)}.{rest}", node.lineno


@cache
def names_of(file: str) -> frozenset[tuple[str, int]]:
    return frozenset(names_in(tree_of(file)))


def uses(file: str, forbidden: str) -> list[int]:
    """The lines of a file that name this module, something in it, or this function."""
    return sorted(line for name, line in names_of(file) if f"{name}.".startswith(f"{forbidden}."))


def check(forbidden: dict[str, str], files: list[str] | None = None) -> None:
    """No file uses a forbidden name."""
    found = [
        f"{file}:{lines[0]} uses {name}: {why}"
        for file in files or FILES
        for name, why in forbidden.items()
        if (lines := uses(file, name))
    ]
    assert not found, "\n".join(found)


def test_the_reader_sees_through_other_names() -> None:
    source = (
        "import numpy as np, os.path\nfrom torch import load as fetch\nimport pickle\n"
        "np.random.default_rng()\nfetch('x')\nos.system('x')\neval('x')\n'pickle'\npickled = 1\n"
    )
    found = {name for name, _ in names_in(ast.parse(source))}
    assert {"numpy.random.default_rng", "torch.load", "os.system", "eval", "pickle"} <= found
    assert not any(name.startswith("np") for name in found)
    assert "pickle.d" not in found


# --- bytes never become code --------------------------------------------------------------------------------------


@each(
    "code",
    ["import pickle", "from torch import load", "import numpy as np\nnp.load('x')", "import socket", "import random"],
)
def test_what_the_package_never_uses_is_refused(code: str) -> None:
    """ruff's banned-api in pyproject.toml has the list, and `make check` holds the package against it."""
    command = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--select",
        "TID251",
        "--stdin-filename",
        "src/heterosag/new.py",
        "-",
    ]
    done = subprocess.run(command, input=code, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "is banned" in done.stdout


def test_no_string_becomes_code() -> None:
    check(dict.fromkeys(("eval", "exec", "compile"), "runs a string") | {"__import__": "hides what is imported"})


# --- the network --------------------------------------------------------------------------------------------------


@each("framework, package", [("flwr", "flower/"), ("torch", "training/")])
def test_a_framework_stays_in_its_package(framework: str, package: str) -> None:
    assert not [file for file in FILES if uses(file, framework) and not file.startswith(package)]


COMMANDS = {
    "a plan": ["plan", "--json"],
    "a round with signed keys": ["round", "--identities", "--json"],
    "a round with dropouts and malicious users": [
        *("round", "--drop", "share=1,mask=1", "--malicious", "1", "--rule", "median", "--json"),
    ],
}
SMALL = ["--classes", "18,18", "--levels", "2,5", "--dimension", "40", "--subgroup-size", "6", "--min-survivors", "2"]

# An audit hook sees every socket call of the process, whoever makes it, and cannot be taken away again. Pipes to
# forked workers are local sockets, and stay.
OFFLINE = """
import socket, sys

def refuse(event, arguments):
    local = event == "socket.__new__" and arguments[1] == socket.AF_UNIX
    if event.startswith("socket.") and not local:
        raise PermissionError(f"reached for the network: {event}")

sys.addaudithook(refuse)
"""


def run_offline(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", OFFLINE + code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.slow
@each("command", COMMANDS.values(), ids=COMMANDS)
def test_a_command_needs_no_network(command: list[str]) -> None:
    done = run_offline("from heterosag.cli import main\nmain()", *command, *SMALL)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    if command[0] == "round":
        assert printed["exact"] is True


@pytest.mark.slow
def test_training_and_its_report_need_no_network(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    run, page = str(tmp_path / "run"), str(tmp_path / "page.html")
    start = "from heterosag.cli import main\nmain()"
    users = ["--classes", "9,9", "--levels", "2,5", "--subgroup-size", "6", "--min-survivors", "2", "--rounds", "1"]
    for arguments in (["train", *users, "--out", run], ["report", run, "--out", page]):
        done = run_offline(start, *arguments)
        assert done.returncode == 0, done.stderr
    fetched = re.findall(r"""(?:src|href)=["']?(?:https?:)?//[^"' >]+""", Path(page).read_text(encoding="utf-8"))
    assert not fetched, "the page would reach out when it is opened"


@each(
    "code",
    ["import socket; socket.create_connection(('127.0.0.1', 9))", "import socket; socket.getaddrinfo('localhost', 80)"],
    ids=["a connection", "a name looked up"],
)
def test_the_network_is_really_off_in_these_tests(code: str) -> None:
    done = run_offline(code)
    assert done.returncode != 0
    assert "reached for the network" in done.stderr


# --- randomness ---------------------------------------------------------------------------------------------------

SIMULATION = ("training/", "report/", "studio/")  # packages that draw data and example updates
NOT_FOR_SECRETS = {
    "numpy.random": "its generators can be predicted from their output",
    "torch.rand": "its generators can be predicted from their output",
    "torch.random": "its generators can be predicted from their output",
    "uuid": "says when and where, and is not a key",
    "scipy": "brings its own generators",
}


def test_no_simulation_generator_is_near_a_mask() -> None:
    """Outside of simulation every random bit is the system's, or a keystream of a key that is."""
    near = [file for file in FILES if not file.startswith(SIMULATION)]
    assert {
        "crypto/keystream.py",
        "protocol/masks.py",
        "protocol/messages.py",
        "vector/ring.py",
        "protocol/encoding.py",
        "vector/quantize.py",
    } <= set(near)
    check(NOT_FOR_SECRETS, near)


def test_key_code_tells_no_time() -> None:
    inner = [
        file
        for file in FILES
        if file.startswith(("crypto/", "protocol/")) or file in ("protocol/messages.py", "vector/ring.py")
    ]
    check(dict.fromkeys(("time", "datetime"), "a clock is a guessable seed"), inner)


GENERATES = re.compile(r"(secrets\.(randbelow|token_bytes)|os\.urandom|(X25519|Ed25519)PrivateKey\.generate)$")
LOOKS_RANDOM = re.compile(r"(^secrets\.\w+|\burandom|\bgetrandbits|\brandbytes|PrivateKey\.generate|\brandint)$")


@pytest.mark.slow
def test_secrets_are_drawn_from_the_system_in_known_ways() -> None:
    drawn = {
        (file, name)
        for file in FILES
        for name, _ in names_of(file)
        if LOOKS_RANDOM.search(name) and not re.match(r"secrets\.(mask|self|seal)_", name)
    }
    assert not [(file, name) for file, name in drawn if not GENERATES.search(name)]
    assert {file for file, _ in drawn if file.startswith("crypto/")} == {
        "crypto/field.py",
        "crypto/identity.py",
        "crypto/keys.py",
        "crypto/shamir.py",
    }


DRAWS: dict[str, Callable[[], object]] = {
    "a field element": random_element,
    "a polynomial": lambda: tuple(random_polynomial(1, 3)),
    "an identity": lambda: Identity.generate().public,
    "a round's shared secret": lambda: RoundSecrets.generate().mask_secret,
    "a round's sealing key": lambda: public_bytes(RoundSecrets.generate().seal_key),
}


@each("draw", DRAWS.values(), ids=DRAWS)
def test_seeding_a_generator_does_not_fix_a_secret(draw: Callable[[], object]) -> None:
    import numpy as np

    found = set()
    for _ in range(3):
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002 - the global one is what a careless library would use
        found.add(draw())
    assert len(found) == 3


# --- checks stay when Python optimises ----------------------------------------------------------------------------


@each("file", FILES)
def test_nothing_is_checked_by_an_assert(file: str) -> None:
    """`python -O` leaves asserts out, and with them the check."""
    assert not [node.lineno for node in ast.walk(tree_of(file)) if isinstance(node, ast.Assert)]


# --- the lock -----------------------------------------------------------------------------------------------------

LOCK = ROOT / "requirements-lock.txt"
PINNED_OUTSIDE = {"torch": "its wheel depends on the accelerator, so it has no one hash"}
ONLY_LOCKED = {
    "editables": "the build backend needs it to install the package itself in place",
    "setuptools": "torch needs it; pip freeze does not show it",
}

IMPORTED_AS = {"sklearn": "scikit-learn"}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def locked() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Name, version and hashes of every requirement in the lock."""
    text = re.sub(r"\\\n\s*", " ", LOCK.read_text(encoding="utf-8"))
    found = {}
    for line in text.splitlines():
        if line.strip() and not line.strip().startswith("#"):
            requirement, *options = line.split()
            name, _, version = requirement.partition("==")
            found[normal(name)] = version, tuple(options)
    return found


def pinned() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {normal(name): version for name, version in pairs}


def direct() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    return {normal(re.split(r"[\[<>=;~! ]", one)[0]) for one in wanted} - {"heterosag"}


def test_everything_in_the_lock_has_a_version_and_a_hash() -> None:
    assert len(locked()) > 50
    for name, (version, hashes) in locked().items():
        assert re.fullmatch(r"\d[\w.+!]*", version), name
        assert hashes, f"{name} has no hash"
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", one) for one in hashes), name


def test_the_lock_names_no_place_to_fetch_from() -> None:
    """Where packages come from is the installer's business; a hash holds wherever they come from."""
    assert not re.search(r"--(extra-)?index-url|--find-links|--trusted-host|://|file:| @ ", LOCK.read_text())


def test_torch_alone_is_pinned_outside_the_lock() -> None:
    assert not PINNED_OUTSIDE.keys() & locked().keys()
    assert not [name for name in locked() if name.startswith(("nvidia-", "cuda-", "triton"))]
    assert f"torch=={pinned()['torch']}" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_lock_and_constraints_agree() -> None:
    versions = {name: version for name, (version, _) in locked().items()}
    constrained = {name: version for name, version in pinned().items() if name not in PINNED_OUTSIDE}
    assert {name: versions.get(name) for name in constrained} == constrained
    assert versions.keys() - constrained.keys() <= ONLY_LOCKED.keys()


def test_every_package_that_the_source_imports_is_a_direct_dependency() -> None:
    modules = {name.partition(".")[0] for file in FILES for name in imported(tree_of(file))}
    others = modules - sys.stdlib_module_names - {"heterosag"}
    assert {"anyio", "numpy", "sklearn"} <= others
    assert {IMPORTED_AS.get(name, name) for name in others} <= direct()


def imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (item.name for item in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module


def test_every_direct_dependency_is_locked() -> None:
    assert direct() - PINNED_OUTSIDE.keys() <= locked().keys()


def test_what_torch_needs_is_locked() -> None:
    """It is installed apart, but must not bring anything that has no hash."""
    try:
        wanted = requires("torch") or []
    except PackageNotFoundError:
        pytest.skip("torch is not installed")
    own = {normal(re.split(r"[\[<>=;~! (]", one)[0]) for one in wanted if "extra ==" not in one}
    accelerator = {name for name in own if name.startswith(("nvidia-", "cuda-", "triton"))}
    assert own - accelerator <= locked().keys()


def rows() -> dict[str, str]:
    """The licence of every dependency in the page's table."""
    page = (ROOT / "docs" / "supply-chain.md").read_text(encoding="utf-8")
    table = page.partition("\n## Direct dependencies\n")[2].partition("\n## ")[0]
    return {normal(name): said for name, said in re.findall(r"^\| ([\w.-]+) \|.*\| ([^|]+) \|$", table, re.MULTILINE)}


def test_the_page_lists_every_direct_dependency_and_no_other() -> None:
    assert direct() | build_backend() == rows().keys() - {"name", "editables"}


def build_backend() -> set[str]:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    return {normal(re.split(r"[><=]", one)[0]) for one in wanted}


def test_what_builds_the_package_is_locked() -> None:
    """`make` builds without isolation, so that nothing comes from outside the lock."""
    assert build_backend() <= locked().keys() & direct()


def test_licences_on_the_page_are_those_of_the_metadata() -> None:
    """The expression; where a package has none, the classifier's first word (BSD, Apache, MIT, Python)."""
    for name, said in rows().items():
        try:
            found = metadata(name)
        except PackageNotFoundError:
            continue
        classified = [one.split(" :: ")[-1] for one in found.get_all("Classifier") or [] if one.startswith("License")]
        stated = found.get("License-Expression") or (classified[0].split()[0] if classified else "")
        assert said.startswith(stated), f"{name}: {stated!r} in its metadata, {said!r} on the page"
        assert stated or "metadata name none" in said, name


def test_requirements_have_a_least_version_and_no_upper_bound() -> None:
    """An upper bound holds others back; where something breaks, the exception is here with its reason."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    for one in wanted:
        requirement = one.partition(";")[0]
        if not requirement.startswith("heterosag["):
            assert re.fullmatch(r"[\w.-]+(\[\w+\])?>=[\d.]+", requirement), one
