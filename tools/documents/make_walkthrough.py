"""Run walkthrough.py, cell by cell as a notebook does, and write docs/walkthrough.md with what it prints.

`python tools/documents/make_walkthrough.py` writes the page and its figures. A cell begins with `# %%`, a cell of text
with `# %% [markdown]`. What a cell prints stands below it; where its last line is a figure, that is drawn, named by the
words after `# %%`.
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
from pathlib import Path
from typing import Any

from heterosag.report.figures import to_svg

DOCS = Path(__file__).resolve().parents[2] / "docs"
SCRIPT = Path(__file__).with_name("walkthrough.py")
PAGE = DOCS / "walkthrough.md"
FIGURES = DOCS / "figures" / "walkthrough"
_ABOUT = "<!-- made by `make docs-data` from tools/documents/walkthrough.py: change that, and run it again -->\n"


def cells(text: str) -> list[tuple[str, str, int]]:
    """Of each cell the words after `# %%`, its lines, and the number of the first."""
    parts = re.split(r"^# %%(.*)\n", text, flags=re.MULTILINE)
    found, line = [], parts[0].count("\n") + 1
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        found.append((title.strip(), body, line + 1))
        line += 1 + body.count("\n")
    return found


def run(code: str, line: int, names: dict[str, Any]) -> tuple[str, Any]:
    """What a cell prints, and the value of its last line if that is an expression."""
    tree = ast.parse("\n" * (line - 1) + code)
    last = tree.body[-1] if tree.body else None
    value = None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        if isinstance(last, ast.Expr):
            exec(compile(ast.Module(tree.body[:-1], []), str(SCRIPT), "exec"), names)
            value = eval(compile(ast.Expression(last.value), str(SCRIPT), "eval"), names)
        else:
            exec(compile(tree, str(SCRIPT), "exec"), names)
    return printed.getvalue(), value


def make(text: str) -> tuple[str, dict[str, str]]:
    """The page, and its figures as SVG by name."""
    names: dict[str, Any] = {"__name__": "__main__"}
    page, figures = [], {}
    for title, body, line in cells(text):
        if title == "[markdown]":
            page.append("\n".join(row.removeprefix("#").removeprefix(" ") for row in body.strip().splitlines()))
            continue
        printed, value = run(body, line, names)
        page.append(f"```python\n{body.strip()}\n```")
        if printed:
            page.append(f"<!-- output -->\n```text\n{printed}```")
        if hasattr(value, "savefig"):
            name = re.sub(r"\W+", "-", title.lower())
            figures[name] = to_svg(value, title=title)
            page.append(f"![{title}](figures/walkthrough/{name}.svg)")
    head, *rest = page
    return "\n\n".join([head, _ABOUT.strip(), *rest]) + "\n", figures


def main() -> None:
    """Write the page and its figures."""
    page, figures = make(SCRIPT.read_text(encoding="utf-8"))
    PAGE.write_text(page, encoding="utf-8")
    FIGURES.mkdir(parents=True, exist_ok=True)
    for old in FIGURES.glob("*.svg"):
        old.unlink()
    for name, svg in figures.items():
        (FIGURES / f"{name}.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
