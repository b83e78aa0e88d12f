"""The naive implementation, which knows only the page and the vectors."""

import ast
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAIVE = ROOT / "examples" / "naive_round.py"
VECTORS = ROOT / "tests" / "vectors"


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(NAIVE), str(folder)], capture_output=True, text=True, check=False)


def test_it_makes_every_message_of_both_rounds() -> None:
    done = run(VECTORS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "84 messages reproduced"


def test_it_imports_nothing_of_the_package() -> None:
    names = set()
    for node in ast.walk(ast.parse(NAIVE.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").partition(".")[0])
    assert "heterosag" not in names
    assert names - set(sys.stdlib_module_names) == {"cryptography"}


def test_it_notices_a_changed_message(tmp_path: Path) -> None:
    for path in VECTORS.glob("*.json"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    text = (tmp_path / "round_plain.json").read_text(encoding="utf-8")
    found = json.loads(text)
    message = next(value for value in _strings(found["cases"]) if len(value) > 1000)
    flipped = message[:-2] + ("00" if message[-2:] != "00" else "01")
    (tmp_path / "round_plain.json").write_text(text.replace(message, flipped), encoding="utf-8")
    assert run(tmp_path).returncode == 1


def _strings(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [found for part in inside for found in _strings(part)]
