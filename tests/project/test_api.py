"""The public surface: every `__all__` holds what it says, documents use nothing else, and a change is a decision."""

from __future__ import annotations

import ast
import difflib
import inspect
import json
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import api_snapshot
import pytest
from cases import each

ROOT = Path(__file__).parents[2]


SOURCE = ROOT / "src" / "heterosag"


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")


@cache
def trees() -> dict[str, ast.Module]:
    """Every module by its name, but the one that only runs the command line."""
    found = sorted(path for path in SOURCE.rglob("*.py") if path.name != "__main__.py")
    return {module_name(path): ast.parse(path.read_text(encoding="utf-8")) for path in found}


def is_empty(tree: ast.Module) -> bool:
    """Whether a package says what it holds and nothing else."""
    return all(isinstance(node, ast.Expr) for node in tree.body)


def load(name: str) -> types.ModuleType:
    for package, prefix in (
        ("torch", "heterosag.training"),
        ("flwr", "heterosag.flower"),
    ):
        if name.startswith(prefix):
            pytest.importorskip(package)
    return import_module(name)


@each("name", [name for name, tree in trees().items() if not is_empty(tree)])
def test_a_module_says_what_it_offers_and_explains_it(name: str) -> None:
    module = load(name)
    offered = module.__all__
    assert len(offered) == len(set(offered))
    assert module.__doc__
    for one in offered:
        assert one == "__version__" or not one.startswith("_")
        value = getattr(module, one)
        if inspect.isclass(value) or inspect.isroutine(value):
            assert (value.__doc__ or "").strip(), f"{name}.{one} has no docstring"
            made = (value.__doc__ or "").startswith(f"{one}(")
            assert not made, f"the docstring of {name}.{one} is the one that a dataclass makes"
        elif name in api_snapshot.modules() and one != "__version__":
            assert one in documented(), f"{name}.{one} has no docstring below it"


@cache
def documented() -> set[str]:
    """Constants and aliases with a string right below them."""
    found = set()
    for tree in trees().values():
        for node, after in zip(tree.body, tree.body[1:], strict=False):
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(after, ast.Expr):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found |= {ast.unparse(target) for target in targets}
    return found


@each("name", api_snapshot.modules())
def test_public_classes_explain_their_members(name: str) -> None:
    module = load(name)
    for one in module.__all__:
        value = getattr(module, one)
        if inspect.isclass(value) and value.__module__.startswith("heterosag"):
            for member, function in vars(value).items():
                inner = getattr(function, "__func__", getattr(function, "fget", function))
                if not member.startswith("_") and inspect.isfunction(inner):
                    assert inspect.getdoc(inner) or inspect.getdoc(getattr(value, member)), f"{name}.{one}.{member}"


def shown_code() -> Iterator[tuple[str, str]]:
    """Python that readers see: blocks of the pages, and the examples."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
        for number, code in enumerate(blocks):
            yield f"{page.relative_to(ROOT)}, block {number + 1}", code
    for path in sorted((ROOT / "examples").rglob("*.py")):
        yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def used_names(code: str) -> Iterator[tuple[str, str]]:
    """Module and name of everything of ours that code imports, or reaches by dots from a module it imports."""
    known: dict[str, str] = {}
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for item in node.names:
                if item.name.split(".")[0] == "heterosag":
                    known[item.asname or "heterosag"] = item.name if item.asname else "heterosag"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "heterosag":
            for item in node.names:
                whole = f"{node.module}.{item.name}"
                if whole in trees():
                    known[item.asname or item.name] = whole
                else:
                    yield str(node.module), item.name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and re.fullmatch(r"[\w.]+", ast.unparse(node)):
            first, *rest = ast.unparse(node).split(".")
            if first in known:
                module = known[first]
                while rest and f"{module}.{rest[0]}" in trees():
                    module = f"{module}.{rest.pop(0)}"
                if rest:
                    yield module, rest[0]


def test_names_are_found_however_they_are_written() -> None:
    code = (
        "import heterosag\nimport heterosag.protocol.messages as bytes_\nfrom heterosag import plan as p, Plan\n"
        "from heterosag.aggregation.rules import RULES\nheterosag.plan.costs.of(1)\nbytes_.encode(2)\np.Plan.build\n"
        "x.heterosag.y\n"
    )
    assert set(used_names(code)) == {
        ("heterosag", "Plan"), ("heterosag.aggregation.rules", "RULES"), ("heterosag.plan.costs", "of"),
        ("heterosag.protocol.messages", "encode"), ("heterosag.plan", "Plan"),
    }  # fmt: skip


LOOK_INSIDE = ("docs/concepts/", "docs/walkthrough.md")  # they show how it works, by means that may change


def test_documents_and_examples_use_public_names_only() -> None:
    seen = 0
    for place, code in shown_code():
        for module, name in used_names(code):
            seen += 1
            assert name in load(module).__all__, f"{place} uses {module}.{name}, which is not in its __all__"
            public = module in api_snapshot.modules() or place.startswith(LOOK_INSIDE)
            assert public, f"{place} uses {module}, which is on no page of the API"
    assert seen > 50


def kept() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(api_snapshot.SNAPSHOT.read_text(encoding="utf-8"))
    return found


def compare(what: str, before: Any, now: Any) -> None:
    if before != now:
        old, new = (api_snapshot.text(one).splitlines() for one in (before, now))
        shown = "\n".join(line for line in difflib.unified_diff(old, new, "kept", "now", lineterm="", n=1))
        pytest.fail(
            f"{what} is not as it was. If that is meant, docs/project/versions.md says which release may bring it, "
            f"CHANGELOG.md names it, and `python tools/api_snapshot.py` keeps it:\n{shown}",
            pytrace=False,
        )


@each("name", api_snapshot.modules())
def test_a_modules_surface_is_as_it_was(name: str) -> None:
    load(name)
    compare(name, kept()["modules"].get(name), api_snapshot.describe_module(name))


def test_no_public_module_went_away() -> None:
    assert list(kept()["modules"]) == api_snapshot.modules()


@each("section", ["errors", "commands", "json", "toml", "records", "formats"])
def test_the_rest_of_the_surface_is_as_it_was(section: str) -> None:
    if section == "records":
        pytest.importorskip("torch")
    compare(section, kept()[section], getattr(api_snapshot, f"describe_{section}")())


def test_a_change_is_seen_and_says_what_to_do() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"(?s)python tools/api_snapshot\.py.*-.*levels.*\+.*stages"):
        compare("x", {"f": "function (levels: int)"}, {"f": "function (stages: int)"})


def test_what_is_described_is_what_matters() -> None:
    def call(self: Any, first: int, /, second: tuple[int, ...] = (1, 2), *rest: str, last: Any = print) -> None: ...

    assert api_snapshot.signature(call) == (
        "(self: Any, first: int, second: tuple[int, ...] = (1, 2), *rest: str, last: Any = print) -> None"
    )


@each("number", [1, 2])
def test_a_record_of_either_format_is_read(number: int) -> None:
    from heterosag.report.page import make_page
    from heterosag.report.runs import summarise_run, summary_rows
    from heterosag.storage.run_log import read_run
    from heterosag.storage.run_requirements import learn_requirements

    run = read_run(ROOT / "tests" / "formats" / f"run-{number}")
    summary = summarise_run(run)
    assert (summary["finished"], summary["rounds"], summary["failed_rounds"]) == (True, 3, 0)
    assert summary["accuracy"] == pytest.approx(0.16389, abs=1e-5)
    assert dict(summary_rows([summary]))["users isolated by comparing rounds, at most"] == ["1 user, 0 pairs"]
    assert run.plan["expansion"].keys() == {"plaintext", "secagg"}
    assert all(line["clipped_fraction"] < 0.1 for line in run.rounds)
    assert learn_requirements(run).min_survivors == 2
    pytest.importorskip("matplotlib")
    assert "No sum over fewer than 2 survivors" in make_page([run])


def test_a_plan_of_this_version_is_read_and_has_its_digest() -> None:
    from heterosag import Plan

    text = (ROOT / "tests" / "formats" / "plan-2.toml").read_text(encoding="utf-8")
    assert Plan.from_toml(text).to_toml() == text


def test_a_plan_of_the_first_version_is_refused_with_what_to_do() -> None:
    from heterosag import Plan, PlanError

    text = (ROOT / "tests" / "formats" / "plan-1.toml").read_text(encoding="utf-8")
    with pytest.raises(PlanError, match=r"heterosag plan --save FILE.*`floor` for min_survivors"):
        Plan.from_toml(text)


_TWO_THREADS = """
import sys, threading
import {loaded}
sys.setswitchinterval(1e-5)
barrier, failed = threading.Barrier(2), []

def load(statement):
    barrier.wait()
    try:
        exec(statement)
    except BaseException as error:
        failed.append(repr(error))

threads = [threading.Thread(target=load, args=(one,)) for one in {statements!r}]
for one in threads:
    one.start()
for one in threads:
    one.join()
print(failed)
"""


@pytest.mark.long
@pytest.mark.parametrize(
    "names",
    [
        ("from heterosag.flower import mod", "from heterosag.flower import SecureGrid"),
        ("from heterosag import Policy", "from heterosag.flower import SecureGrid"),
    ],
)
def test_two_threads_may_load_the_package_at_once(names: tuple[str, str]) -> None:
    """As Flower's simulation does with ClientApp and ServerApp; without care one finds a module half loaded."""
    pytest.importorskip("flwr")
    code = _TWO_THREADS.format(
        loaded="flwr.app, flwr.clientapp, flwr.serverapp.strategy, cryptography", statements=names
    )
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[]"


def test_importing_loads_nothing_heavy() -> None:
    """The package is lazy, and the core never touches an extra."""
    code = "import sys, heterosag; print([m for m in ('numpy', 'cryptography', 'torch', 'flwr') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"
    code = (
        "import sys, heterosag; heterosag.Plan; print([m for m in ('torch', 'flwr', 'matplotlib') if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"


def test_everything_public_resolves() -> None:
    import heterosag

    assert all(getattr(heterosag, name) is not None for name in (*heterosag.__all__, *heterosag._PACKAGES))
    assert set(heterosag.__all__) <= set(dir(heterosag))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = heterosag.nothing
