"""Wheel and sdist are built and installed into clean environments, with the core's dependencies only."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    return out


def test_the_wheel_holds_the_package_and_nothing_else(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "heterosag/py.typed" in names
    assert "heterosag/report/page.html" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.split("/")[0].split("-")[0] for name in names} == {"heterosag"}


def test_the_sdist_holds_what_it_takes_to_build_and_test(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "src/heterosag/plan.py"} <= names
    assert "tests/unit/test_plan.py" in names
    assert not any(name.startswith((".venv", ".git/", "bench/latest")) for name in names)


@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_it_installs_and_runs_in_a_clean_environment(dist: Path, kind: str, tmp_path: Path) -> None:
    (package,) = dist.glob(kind)
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "clean")], check=True)
    python = tmp_path / "clean" / "bin" / "python"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    subprocess.run([*pip, "--constraint", str(ROOT / "constraints.txt"), str(package)], check=True)
    command = python.parent / "heterosag"
    out = subprocess.run([str(command), "plan", "--json"], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert '"design": "perfect"' in out.stdout
    listed = subprocess.check_output([str(python), "-m", "pip", "list", "--format", "freeze"], text=True).lower()
    assert not any(heavy in listed for heavy in ("torch", "flwr", "matplotlib", "starlette", "scikit"))
