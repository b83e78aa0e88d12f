"""The test of a module is where its name says: tests/protocol/test_steps.py for protocol/steps.py."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "heterosag"


def has_code(text: str) -> bool:
    """Whether some function does something: choices and protocols of types have nothing to test."""
    functions = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return any(
        not (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))
        for function in functions
        for line in function.body
    )


def test_every_module_with_code_has_tests_of_its_name() -> None:
    missing = []
    for path in PACKAGE.rglob("*.py"):
        if path.name.startswith("__") or not has_code(path.read_text(encoding="utf-8")):
            continue  # what a package offers as a whole is tested in tests/project/test_api.py
        where = ROOT / "tests" / path.relative_to(PACKAGE).with_name(f"test_{path.name.lstrip('_')}")
        if not where.exists() or "def test_" not in where.read_text(encoding="utf-8"):
            missing.append(str(where.relative_to(ROOT)))
    assert not missing, f"give these modules tests of their own: {sorted(missing)}"


def test_protocols_and_choices_have_no_code() -> None:
    assert not has_code('class Log(Protocol):\n    def claim(self) -> None:\n        """Claim."""\n')
    assert not has_code("Rule = Literal['mean']\n")
    assert has_code("class Log:\n    def claim(self) -> None:\n        self.claimed = True\n")
