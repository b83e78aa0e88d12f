"""The docstrings of the public surface: arguments, results, errors, and examples that run."""

from __future__ import annotations

import ast
import dataclasses
import doctest
import enum
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from scripts import load_script

PACKAGE = Path(__file__).parents[2] / "src" / "heterosag"
PUBLIC: tuple[str, ...] = load_script(Path(__file__).with_name("test_reference.py")).PUBLIC
EXTRAS = {"flower": "flwr", "report": "matplotlib", "training": "torch"}

# Public modules without an example of their own.
WITHOUT_EXAMPLE = {
    "aggregation.cohorts": "takes what servers decoded; simulation.cohorts.aggregate_cohorts has the example",
    "aggregation.combine": "takes what a server decoded; heterosag.aggregate has the example",
    "errors": "raised by the others",
    "flower": "needs a deployment; the tutorial has the example",
    "protocol.enrolment": "needs every party; docs/protocol.md has the example",
    "protocol.guard": "a protocol of types",
    "report.figures": "draws",
    "report.page": "writes a page",
    "report.runs": "prints tables",
    "storage.identities": "reads and writes files",
    "storage.release_log": "writes files",
    "storage.run_log": "reads and writes files",
    "training.combining": "what a run hands over; training.runs uses it",
    "training.data": "reads data sets",
    "training.models": "makes networks",
    "training.runs": "trains; README has the example",
}


def load(name: str) -> Any:
    pytest.importorskip(EXTRAS.get(name.partition(".")[0], "numpy"))
    return import_module(f"heterosag.{name}")


def public_things(name: str) -> Iterator[tuple[str, Any]]:
    """Functions, classes and their public methods, but those of somebody else's interface."""
    module = load(name)
    for thing in (getattr(module, word) for word in module.__all__):
        if (
            not (inspect.isfunction(thing) or inspect.isclass(thing))
            or thing.__module__.partition(".")[0] != "heterosag"
        ):
            continue
        yield f"{name}: {thing.__qualname__}", thing
        foreign = [base for base in getattr(thing, "__mro__", ()) if base.__module__.partition(".")[0] != "heterosag"]
        for word, found in vars(thing).items() if inspect.isclass(thing) else ():
            method = found.__func__ if isinstance(found, classmethod | staticmethod) else found
            if inspect.isfunction(method) and not word.startswith("_") and not any(word in vars(b) for b in foreign):
                yield f"{name}: {method.__qualname__}", method


def has_own_constructor(thing: type) -> bool:
    """Errors, enumerations and protocols are not called; a plan is built by `Plan.build`, and settings have a page."""
    made_elsewhere = thing.__qualname__ in ("Plan", "Identity", "TrainConfig")
    return not (issubclass(thing, Exception | enum.Enum) or getattr(thing, "_is_protocol", False) or made_elsewhere)


def names_of(thing: Any) -> list[str]:
    if not inspect.isclass(thing):
        return [name for name in inspect.signature(thing).parameters if name not in ("self", "cls")]
    if not has_own_constructor(thing):
        return []
    if dataclasses.is_dataclass(thing):
        return [field.name for field in dataclasses.fields(thing) if field.init and not field.name.startswith("_")]
    return [name for name in inspect.signature(thing).parameters if not name.startswith("_")]


def raises(function: Callable[..., Any]) -> bool:
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return any(isinstance(node, ast.Raise) and node.exc is not None for node in ast.walk(tree))


def missing_from(thing: Any) -> list[str]:
    """What a docstring does not say. A method without arguments says in its first line what it returns."""
    text = inspect.getdoc(thing) or ""
    names = names_of(thing)
    listed = r"(?m)^(    \*{{0,2}}{0}: |- .*`{0}`.*: )"
    missing = [name for name in names if not re.search(listed.format(re.escape(name)), text)]
    if inspect.isclass(thing):
        return missing
    if names and inspect.signature(thing).return_annotation not in ("None", "NoReturn") and "Returns:" not in text:
        missing += [] if "Yields:" in text else ["Returns:"]
    if raises(thing) and "Raises:" not in text:
        missing.append("Raises:")
    return missing


@pytest.mark.parametrize("name", PUBLIC)
def test_docstrings_say_arguments_results_and_errors(name: str) -> None:
    found = {where: missing for where, thing in public_things(name) if (missing := missing_from(thing))}
    assert not found


def test_a_docstring_that_says_too_little_is_found() -> None:
    def half(whole: float) -> float:
        """Half of it."""
        if whole < 0:
            raise ValueError(whole)
        return whole / 2

    assert missing_from(half) == ["whole", "Returns:", "Raises:"]
    half.__doc__ = "Half.\n\nArgs:\n    whole: All.\n\nReturns:\n    Half.\n\nRaises:\n    ValueError: Below 0.\n"
    assert missing_from(half) == []


WITH_EXAMPLES = [
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    for path in sorted(PACKAGE.rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_run(name: str) -> None:
    result = doctest.testmod(load(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted
    assert not result.failed


def test_every_public_module_has_an_example_or_a_reason() -> None:
    offered = {
        name: {thing.__module__.removeprefix("heterosag.") for _, thing in public_things(name)} for name in PUBLIC
    }
    assert {name for name in PUBLIC if not offered[name] & set(WITH_EXAMPLES)} == WITHOUT_EXAMPLE.keys()
