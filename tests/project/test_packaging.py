"""Wheel and sdist: what is in them, what they say of themselves, and that they install with the core's dependencies.

Every extra alone is tried by `make installs`, which takes minutes.
"""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from configparser import ConfigParser
from email.message import Message
from email.parser import Parser
from pathlib import Path

import clean_installs as tool
import pytest

import heterosag

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "heterosag"

DATA = {"report/page.html", "report/style.css"} | {
    f"studio/static/{name}"
    for name in (
        "dom.js",
        "form.js",
        "icon.svg",
        "index.html",
        "plots.js",
        "round.js",
        "runs.js",
        "studio.css",
        "studio.js",
    )
}
METADATA = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
IN_SDIST = {
    ".gitignore", "ARCHITECTURE.md", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "Makefile",
    "PKG-INFO", "README.md", "SECURITY.md", "bench", "constraints.txt", "docs", "examples", "pyproject.toml",
    "reproduction", "requirements-lock.txt", "src", "tests", "tools",
}  # fmt: skip
FOLDERS = r"__pycache__|\.[\w-]*cache|\.hypothesis|\.venv|\.git|runs|build|dist|crashes"
FILES = r".*\.(pyc|pyo|so|nbi|nbc|safetensors|log|tmp|orig|swp)|\.coverage|latest\.json"
LEFTOVER = re.compile(rf"(^|/)({FOLDERS})/|(^|/)({FILES})$")
EXTRAS = {"training", "report", "flower", "studio", "fast", "all", "dev"}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source distribution, and the wheel that is built from it."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    return out


@pytest.fixture(scope="module")
def wheel(dist: Path) -> dict[str, str]:
    """Every file of the wheel, and the text of its metadata."""
    (path,) = dist.glob("*.whl")
    assert path.name == f"heterosag-{heterosag.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name).decode() if ".dist-info/" in name else "" for name in archive.namelist()}


@pytest.fixture(scope="module")
def metadata(wheel: dict[str, str]) -> Message:
    return Parser().parsestr(wheel[f"heterosag-{heterosag.__version__}.dist-info/METADATA"])


def project() -> dict[str, object]:
    found: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


# --- what is in them ----------------------------------------------------------------------------------------------


def test_the_wheel_holds_the_package_and_nothing_else(wheel: dict[str, str]) -> None:
    modules = {path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py")}
    inside = {f"heterosag/{name}" for name in modules | DATA | {"py.typed"}}
    about = {f"heterosag-{heterosag.__version__}.dist-info/{name}" for name in METADATA}
    assert set(wheel) == inside | about


@pytest.mark.long
def test_the_sdist_holds_what_it_takes_to_build_test_and_read(dist: Path) -> None:
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        members = [member for member in archive.getmembers() if not member.isdir()]
    assert all(member.isfile() for member in members), "no links"
    names = {member.name.partition("/")[2] for member in members}
    assert {member.name.partition("/")[0] for member in members} == {f"heterosag-{heterosag.__version__}"}
    assert {name.partition("/")[0] for name in names} == IN_SDIST
    assert not [name for name in names if LEFTOVER.search(name)]
    assert names - {"PKG-INFO"} <= {path.relative_to(ROOT).as_posix() for path in _files()}
    assert {f"src/heterosag/{name}" for name in DATA} <= names
    assert {"tests/plan/test_plan.py", "tools/vectors/generate.py", "docs/conf.py", "docs/figures/design.svg"} <= names
    assert {"examples/demo.toml", "bench/__main__.py", "docs/summaries/plan.json"} <= names
    assert not [name for name in names if name.startswith("reproduction/records/")], "pages are made from summaries"
    assert sum(member.size for member in members) < 12e6


def _files() -> list[Path]:
    """The tree without what environments and tools put there, which is large."""
    tops = [path for path in ROOT.iterdir() if path.name in IN_SDIST]
    return [path for top in tops for path in ([top] if top.is_file() else top.rglob("*"))]


@pytest.mark.parametrize(
    "name",
    ["tests/.mypy_cache/3.11/a.db", "src/heterosag/__pycache__/a.pyc", "bench/latest.json", "runs/a/x", ".coverage"],
)
def test_leftovers_are_recognised(name: str) -> None:
    assert LEFTOVER.search(name)


# --- what they say of themselves ----------------------------------------------------------------------------------


def test_there_is_one_version(metadata: Message) -> None:
    assert metadata["Version"] == heterosag.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", heterosag.__version__)
    assert f"\nversion: {heterosag.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert project()["dynamic"] == ["readme", "version"]


def test_the_metadata_say_what_it_is(metadata: Message) -> None:
    assert metadata["Name"] == "heterosag"
    assert metadata["Author"] == "The HeteroSAg authors"
    assert f"name: {metadata['Author']}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["License-File"] == "LICENSE"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Description-Content-Type"] == "text/markdown"
    classifiers = metadata.get_all("Classifier") or []
    assert "Development Status :: 4 - Beta" in classifiers
    assert "Typing :: Typed" in classifiers
    tested = [one.rpartition(" ")[2] for one in classifiers if one.startswith("Programming Language :: Python :: 3.")]
    assert tested == ["3.11", "3.12", "3.13"]
    page = (ROOT / "docs" / "reference" / "installation.md").read_text(encoding="utf-8")
    assert f"{', '.join(tested[:-1])} and {tested[-1]}" in page
    assert not [one for one in classifiers if one.startswith("License ::")], "the expression says it"


def test_a_package_index_shows_the_readme_without_what_leads_nowhere_there(metadata: Message) -> None:
    shown, written = metadata.get_payload(), (ROOT / "README.md").read_text(encoding="utf-8")
    assert isinstance(shown, str)
    assert re.findall(r"^#.*$", shown, re.MULTILINE) == re.findall(r"^#.*$", written, re.MULTILINE)
    assert re.findall(r"```python\n.*?```", shown, re.DOTALL) == re.findall(r"```python\n.*?```", written, re.DOTALL)
    links = re.findall(r"\]\(([^)]+)\)", shown)
    assert links
    assert all(link.startswith("https://") for link in links), "relative links and pictures break on an index"
    named = set(re.findall(r"\]\((?!https?:)([^)#]+)", written))
    figures = {path for path in named if path.endswith(".svg")}
    assert all(f"(`{path}`)" in shown for path in named - figures)
    assert all((ROOT / path).is_file() for path in named)
    assert "Bits a user sends for a parameter" in shown, "words in the picture's place"
    assert "pip install heterosag " in shown
    assert "pip install ." not in shown
    assert "In a clone of this repository" not in shown


def test_the_command_is_there(wheel: dict[str, str]) -> None:
    points = ConfigParser()
    points.read_string(wheel[f"heterosag-{heterosag.__version__}.dist-info/entry_points.txt"])
    assert {name: dict(points[name]) for name in points.sections()} == {
        "console_scripts": {"heterosag": "heterosag.cli:main"}
    }


def test_requirements_are_those_of_the_project_and_nothing_is_pinned(metadata: Message) -> None:
    wanted = metadata.get_all("Requires-Dist") or []
    core = [one for one in wanted if "extra ==" not in one]
    assert sorted(core) == sorted(project()["dependencies"])  # type: ignore[call-overload]
    names = {re.split(r"[><=\[]", one)[0] for one in core}
    assert names == {"cryptography", "msgspec", "numpy", "rich", "typer"}
    assert not [one for one in wanted if "==" in one.partition(";")[0]], "pins are for constraints.txt"
    by_extra = {
        extra: {one.partition(";")[0] for one in wanted if f"extra == '{extra}'" in one}
        for extra in metadata.get_all("Provides-Extra") or []
    }
    assert set(by_extra) == EXTRAS
    assert by_extra["all"] == set().union(*(by_extra[extra] for extra in EXTRAS - {"all", "dev"}))


def test_every_extra_is_on_the_page_with_what_it_brings(metadata: Message) -> None:
    page = (ROOT / "docs" / "reference" / "installation.md").read_text(encoding="utf-8")
    for extra in EXTRAS - {"all", "dev"}:
        (row,) = re.findall(rf"^\| `{extra}` \|.*$", page, re.MULTILINE)
        for one in project()["optional-dependencies"][extra]:  # type: ignore[index]
            assert re.split(r"[><=\[]", one)[0] in row
        assert f"heterosag[{extra}]" in row
    assert all(f"`{extra}`" in page for extra in ("all", "dev"))
    assert str(metadata["Requires-Python"]).removeprefix(">=") in page


# --- that they install --------------------------------------------------------------------------------------------


def test_every_extra_is_tried_alone_and_every_least_version_too() -> None:
    assert EXTRAS - {"dev"} <= {one.extra for one in tool.ENVIRONMENTS.values() if one.versions == "constraints"}
    assert all(isinstance(step, tool.Step) for one in tool.ENVIRONMENTS.values() for step in one.steps)
    least = tool.least_versions(tool.ENVIRONMENTS["least"].extra)
    assert len(least) == len(project()["dependencies"]) + 6  # type: ignore[arg-type]
    assert all(re.fullmatch(r"[\w-]+==[\d.]+", one) for one in least)


@pytest.mark.slow
def test_it_installs_and_runs_in_a_clean_environment(dist: Path, tmp_path: Path) -> None:
    (package,) = dist.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "clean")], check=True)
    python = tmp_path / "clean" / "bin" / "python"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    subprocess.run([*pip, "--constraint", str(ROOT / "constraints.txt"), str(package)], check=True)
    command = python.parent / "heterosag"
    out = subprocess.run([str(command), "plan", "--json"], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert '"design": "perfect"' in out.stdout
    listed = subprocess.check_output([str(python), "-m", "pip", "list", "--format", "freeze"], text=True).lower()
    assert not any(heavy in listed for heavy in ("torch", "flwr", "matplotlib", "starlette", "scikit"))
