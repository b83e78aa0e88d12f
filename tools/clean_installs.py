"""Build the wheel, install it into fresh environments with every extra alone, and run something small in each.

    python tools/clean_installs.py [--torch REQUIREMENT] [--summary FILE] [ENVIRONMENT ...]

`make installs` runs all of them, which takes minutes and needs a place to install packages from. An environment has the
versions of constraints.txt, but for `newest`, which has what pip finds today, and `least`, which has the least versions
that pyproject.toml allows; both have the extras that ask neither for gigabytes (torch) nor for certain versions of our
own dependencies (Flower). Each must have what its extra promises, must not have what others bring, and says which extra
is missing where one is. What each weighs goes into the summary that docs/supply-chain.md quotes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
RUN = ROOT / "tests" / "formats" / "run-1"

SMALL = "--classes 9,9 --levels 2,5 --subgroup-size 6 --min-survivors 2"

# --- what is run in them ------------------------------------------------------------------------------------------

MOD_AND_GRID = """
from unittest.mock import Mock
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
import heterosag.flower
ClientApp(mods=[heterosag.flower.mod(trust_server=True)])
print(type(heterosag.flower.SecureGrid(Mock(spec=Grid), levels=[16])).__name__)
"""

PAGE_WITHOUT_SERVER = """
import asyncio
from pathlib import Path
from heterosag.studio.app import make_app

async def get(app, path):
    scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
             "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
             "headers": [(b"host", b"127.0.0.1:8642")], "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8642)}
    sent, asked = [], iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive():
        return next(asked, None) or await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)

Path("shown").mkdir(exist_ok=True)
app = make_app(Path("shown"))
for path, what in (("/", b"<!doctype html>"), ("/studio.js", b""), ("/api/runs", b"[")):
    status, body = asyncio.run(get(app, path))
    assert status == 200 and body and what in body.lower(), (path, status, body[:200])
print("served")
"""

COMPILED = """
import numpy as np
from heterosag.vector import _numba, ring
loop = _numba.find(_numba.pack_bits, _numba.WORTH)
assert loop is not None and loop is not _numba.pack_bits
lanes, packed, same = np.arange(64, dtype=np.uint32) % 32, np.zeros(40, np.uint8), np.zeros(40, np.uint8)
loop(lanes, 5, ring._steps(5), packed)
_numba.pack_bits(lanes, 5, ring._steps(5), same)
assert packed.any() and (packed == same).all()
assert _numba.find(_numba.pack_bits, 10) is None
print("compiled")
"""

LIGHT = """
import sys
import heterosag.cli
heavy = {"torch", "flwr", "matplotlib", "starlette", "numba", "sklearn", "ray"} & set(sys.modules)
assert not heavy, heavy
print("light")
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A command of an environment: its words (or Python code), what it prints, the code that it ends with."""

    words: str = ""
    code: str = ""
    prints: str
    ends: int = 0


CORE = (
    Step(words="heterosag --version", prints=r"heterosag \d+\.\d+\.\d+\n"),
    Step(words="python -m heterosag --version", prints=r"heterosag \d+\.\d+\.\d+\n"),
    Step(words="heterosag plan --json", prints=r'"design": "perfect"'),
    Step(words=f"heterosag round --json {SMALL} --dimension 40", prints=r'"exact": true'),
    Step(words="heterosag report --help", prints=r"(?i)runs\.\.\. .*Folders of runs"),
    Step(code=LIGHT, prints="light"),
)
LEARN = (Step(words=f"heterosag train {SMALL} --rounds 1 --quiet --out trained --json", prints=r'"finished": true'),)
REPORT = (
    Step(words=f"heterosag report {RUN} --out page.html --json", prints=r'"report": "page.html"'),
    Step(code="print('<svg' in open('page.html', encoding='utf-8').read())", prints="True"),
)
FLOWER = (Step(code=MOD_AND_GRID, prints="SecureGrid"),)
STUDIO = (Step(code=PAGE_WITHOUT_SERVER, prints="served"),)
FAST = (Step(code=COMPILED, prints="compiled"),)


def refusal(words: str, extra: str) -> Step:
    """A command that says which extra it needs."""
    return Step(words=words, prints=rf"^heterosag: [^\n]*pip install 'heterosag\[{extra}\]'\n$", ends=2)


WITHOUT = {
    "training": (refusal("heterosag train --rounds 1", "training"),),
    "report": (refusal(f"heterosag report {RUN}", "report"),),
    "flower": (Step(code="from heterosag.flower import mod", prints=r"pip install 'heterosag\[flower\]'", ends=1),),
    "studio": (refusal("heterosag studio", "studio"),),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What is installed, what is run, and which packages must not have come along."""

    extra: str = ""
    versions: Literal["constraints", "newest", "least"] = "constraints"
    steps: tuple[Step, ...]
    absent: tuple[str, ...] = ()

    @property
    def needs_torch(self) -> bool:
        return self.extra in ("training", "all")


NONE = (*WITHOUT["training"], *WITHOUT["report"], *WITHOUT["flower"], *WITHOUT["studio"])
ENVIRONMENTS = {
    "core": Environment(steps=(*CORE, *NONE), absent=("torch", "flwr", "matplotlib", "starlette", "numba", "ray")),
    "newest": Environment(extra="report,studio,fast", versions="newest", steps=(*CORE, *REPORT, *STUDIO, *FAST)),
    "least": Environment(extra="report,studio,fast", versions="least", steps=(*CORE, *REPORT, *STUDIO, *FAST)),
    "training": Environment(
        extra="training", steps=(*CORE, *LEARN), absent=("flwr", "matplotlib", "starlette", "numba", "ray")
    ),
    "report": Environment(
        extra="report",
        steps=(*CORE, *REPORT, *WITHOUT["training"]),
        absent=("torch", "flwr", "starlette", "numba", "ray", "scikit-learn"),
    ),
    "flower": Environment(
        extra="flower",
        steps=(*CORE, *FLOWER, *WITHOUT["training"], *WITHOUT["report"]),
        absent=("torch", "matplotlib", "numba", "ray", "scikit-learn"),
    ),
    "studio": Environment(
        extra="studio",
        steps=(*CORE, *STUDIO, *WITHOUT["report"]),
        absent=("torch", "flwr", "matplotlib", "numba", "ray"),
    ),
    "fast": Environment(
        extra="fast",
        steps=(*CORE, *FAST, *WITHOUT["training"]),
        absent=("torch", "flwr", "matplotlib", "starlette", "ray"),
    ),
    "all": Environment(extra="all", steps=(*CORE, *LEARN, *REPORT, *FLOWER, *STUDIO, *FAST), absent=("ray",)),
}

# --- running it ---------------------------------------------------------------------------------------------------


class StepError(Exception):
    """A step did not do what it should; the message shows its output."""


def build(out: Path) -> Path:
    """The wheel of this tree."""
    call([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)], cwd=out)
    (wheel,) = out.glob("*.whl")
    return wheel


def call(command: list[str], *, cwd: Path, expected: int = 0) -> str:
    """Run a command without this environment's own paths; what it prints, on both channels."""
    own = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    quiet = {"COLUMNS": "100", "NO_COLOR": "1", "OMP_NUM_THREADS": "1", "FLWR_TELEMETRY_ENABLED": "0"}
    done = subprocess.run(
        command, cwd=cwd, env=own | quiet, text=True, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode != expected:
        raise StepError(
            f"{' '.join(command)[:300]} ends with {done.returncode}, not {expected}:\n{done.stdout[-4000:]}"
        )
    return done.stdout


def install(environment: Environment, folder: Path, wheel: Path, torch: str) -> Path:
    """A fresh environment with the wheel in it; its folder of programs."""
    call([sys.executable, "-m", "venv", str(folder)], cwd=folder.parent)
    programs = folder / "bin"
    pip = [str(programs / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    if environment.versions == "constraints":
        pip += ["--constraint", str(CONSTRAINTS)]
    if environment.needs_torch:  # first and alone, so that nothing asks for a newer one
        call([*pip, torch], cwd=folder)
    pins = least_versions(environment.extra) if environment.versions == "least" else []
    call([*pip, f"{wheel}[{environment.extra}]" if environment.extra else str(wheel), *pins], cwd=folder)
    return programs


def least_versions(extras: str) -> list[str]:
    """The core's dependencies and those of some extras, each at the least version that pyproject.toml allows."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    chosen = [one for extra in extras.split(",") if extra for one in project["optional-dependencies"][extra]]
    return [one.replace(">=", "==") for one in (*project["dependencies"], *chosen)]


def packages(programs: Path) -> dict[str, str]:
    """Names and versions of what is installed."""
    listed = call([str(programs / "python"), "-m", "pip", "list", "--format", "freeze"], cwd=programs)
    return dict(line.lower().split("==") for line in listed.splitlines() if line.count("==") == 1)


def perform(step: Step, programs: Path, folder: Path) -> None:
    """Run a step and look at what it prints."""
    command = [str(programs / "python"), "-c", step.code]
    if step.words:
        program, *words = step.words.split()
        command = [str(programs / program), *words]
    printed = call(command, cwd=folder, expected=step.ends)
    if not re.search(step.prints, printed):
        raise StepError(f"{step.words or step.code} does not print {step.prints!r} but\n{printed[-4000:]}")


SIZES = """
import json
from importlib.metadata import distributions
sizes = {}
for one in distributions():
    paths = [one.locate_file(path) for path in one.files or ()]
    sizes[one.metadata["Name"].lower()] = sum(path.stat().st_size for path in paths if path.is_file()) / 1e6
print(json.dumps(sizes))
"""
OUR_OWN = {"heterosag", "pip"}


def weigh(programs: Path) -> dict[str, float]:
    """Megabytes on disk, with compiled code, of every package that came along."""
    sizes = json.loads(call([str(programs / "python"), "-c", SIZES], cwd=programs))
    return {name: round(sizes[name], 1) for name in sorted(sizes.keys() - OUR_OWN)}


def attempt(name: str, folder: Path, wheel: Path, torch: str) -> dict[str, float]:
    """Install and try one environment; the megabytes of each package."""
    environment = ENVIRONMENTS[name]
    began = time.perf_counter()
    programs = install(environment, folder / name, wheel, torch)
    installed = time.perf_counter()
    unwanted = sorted(packages(programs).keys() & set(environment.absent))
    if unwanted:
        raise StepError(f"{name} has got {', '.join(unwanted)}")
    sizes = weigh(programs)
    work = folder / f"{name}-work"
    work.mkdir()
    for step in environment.steps:
        perform(step, programs, work)
    call([str(programs / "python"), "-m", "pip", "check"], cwd=work)
    took = f"{installed - began:.0f} s to install, {time.perf_counter() - installed:.0f} s to run"
    print(f"{name}: {len(sizes)} packages, {sum(sizes.values()):.0f} MB, {took}", flush=True)
    return sizes


class Summary:
    """A file of what environments weigh; one that was tried again replaces what it had before."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        known = json.loads(path.read_text(encoding="utf-8")) if path and path.exists() else {}
        self.seconds: dict[str, int] = known.get("seconds", {})
        self.megabytes: dict[str, dict[str, float]] = known.get("megabytes", {})

    def keep(self, name: str, sizes: dict[str, float], seconds: float) -> None:
        """Write the file with one more environment."""
        if self.path is None:
            return
        self.seconds[name], self.megabytes[name] = round(seconds), sizes
        text = {
            "command": "make installs",
            "seed": None,
            "duration_seconds": sum(self.seconds.values()),
            "python": platform.python_version(),
            "platform": f"{platform.system()} {platform.machine()}",
            "seconds": self.seconds,
            "megabytes": self.megabytes,
        }
        self.path.write_text(json.dumps(text, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    """Try the environments that were named, or all; end with 1 if one failed."""
    parser = argparse.ArgumentParser(description="Install the wheel with every extra alone and run it.")
    parser.add_argument("names", nargs="*", metavar="ENVIRONMENT", help=", ".join(ENVIRONMENTS))
    parser.add_argument("--torch", default="torch==2.13.0", help="the torch that is installed first")
    parser.add_argument("--summary", type=Path, help="where to keep what the environments weigh")
    chosen = parser.parse_args()
    unknown = set(chosen.names) - ENVIRONMENTS.keys()
    if unknown:
        parser.error(f"no environment is called {', '.join(sorted(unknown))}: choose from {', '.join(ENVIRONMENTS)}")
    names = chosen.names or list(ENVIRONMENTS)
    failed = []
    summary = Summary(chosen.summary)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="heterosag-installs-") as made:
        folder = Path(made)
        (folder / "dist").mkdir()
        wheel = build(folder / "dist")
        print(f"{wheel.name}", flush=True)
        for name in names:
            start = time.perf_counter()
            try:
                sizes = attempt(name, folder, wheel, chosen.torch)
                summary.keep(name, sizes, time.perf_counter() - start)
            except StepError as error:
                failed.append(name)
                print(f"{name}: FAILED\n{error}", flush=True)
            shutil.rmtree(folder / name, ignore_errors=True)
    print(f"{len(names)} environments in {time.perf_counter() - began:.0f} seconds")
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
