"""The public surface as text, so that breaking it is a decision: `python tools/api_snapshot.py` writes it anew.

Public is what docs/project/versions.md says: the names of `heterosag` and of the modules on the pages of the API, the
commands with their flags, the keys of JSON and TOML, and the versions of what is stored or sent. The text depends on
the source alone: annotations are taken as written, and defaults that have no short form by their type.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib.util
import inspect
import json
import re
import tempfile
import tomllib
import types
from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SNAPSHOT = ROOT / "tests" / "api_snapshot.json"


def modules() -> list[str]:
    """The modules that the pages of the API show."""
    pages = sorted((ROOT / "docs" / "reference").glob("api*.md"))
    named = [re.findall(r"^\.\. automodule:: ([\w.]+)$", page.read_text(encoding="utf-8"), re.M) for page in pages]
    return ["heterosag", *sorted(name for found in named for name in found)]


def surface() -> dict[str, Any]:
    """All of it, by section."""
    return {
        "modules": {name: describe_module(name) for name in modules()},
        "errors": describe_errors(),
        "commands": describe_commands(),
        "json": describe_json(),
        "toml": describe_toml(),
        "records": describe_records(),
        "formats": describe_formats(),
    }


# --- Python -------------------------------------------------------------------------------------------------------


def describe_module(name: str) -> dict[str, Any]:
    """Every name of a module's `__all__`."""
    module = import_module(name)
    return {one: describe(getattr(module, one), name) for one in sorted(module.__all__)}


def describe(value: Any, place: str) -> Any:
    """A function's signature, a class with its members, a constant; or where else on these pages it is."""
    home = getattr(value, "__module__", None)
    if home != place and home in modules():
        return f"{home}.{value.__name__}"
    if inspect.isclass(value) and value.__module__.startswith("heterosag"):
        return _describe_class(value)
    if inspect.isfunction(value):
        return f"function {signature(value)}"
    if isinstance(value, Mapping):
        return f"mapping of {', '.join(map(str, value))}"
    if isinstance(value, types.GenericAlias | types.UnionType) and not re.search("numpy|heterosag", repr(value)):
        return f"type {value!r}"
    if not isinstance(value, int | float | str | tuple):
        return "type"
    return f"constant {type(value).__name__}"  # a value may change; that the versions do is seen under formats


def _describe_class(cls: type) -> dict[str, Any]:
    found: dict[str, Any] = {"bases": [base.__name__ for base in cls.__bases__ if base is not object]}
    if issubclass(cls, enum.Enum):
        return found | {"members": {member.name: repr(member.value) for member in cls}}
    if dataclasses.is_dataclass(cls):
        fields = (field for field in dataclasses.fields(cls) if not field.name.startswith("_"))
        found["fields"] = [_describe_field(field) for field in fields]
    elif (start := _own(cls, "__init__")) is not None and not getattr(cls, "_is_protocol", False):
        found["made by"] = signature(start)
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("heterosag"):
            for name, member in vars(base).items():
                text = "" if name.startswith("_") else _describe_member(member)
                if text:
                    found[f".{name}"] = text
    return dict(sorted(found.items()))


def _describe_field(field: dataclasses.Field[Any]) -> str:
    default = "" if field.default is dataclasses.MISSING else f" = {short(field.default)}"
    made = " = ..." if field.default_factory is not dataclasses.MISSING else default
    return f"{field.name}: {field.type}{made}" + ("" if field.kw_only else " (by place)")


def _describe_member(member: Any) -> str:
    if isinstance(member, classmethod | staticmethod):
        return f"{type(member).__name__} {signature(member.__func__)}"
    if isinstance(member, property) and member.fget is not None:
        return f"property -> {annotation(inspect.signature(member.fget).return_annotation)}"
    if isinstance(member, cached_property):
        return f"property -> {annotation(inspect.signature(member.func).return_annotation)}"
    return f"method {signature(member)}" if inspect.isfunction(member) else ""


def _own(cls: type, name: str) -> Any:
    """A method that a class of ours defines."""
    ours = (vars(one) for one in cls.__mro__ if one.__module__.startswith("heterosag"))
    return next((members[name] for members in ours if name in members), None)


def signature(function: Any) -> str:
    """As it is written, but for the quotes that differ between versions of Python."""
    given = inspect.signature(function)
    parts, star = [], False
    for one in given.parameters.values():
        if one.kind is inspect.Parameter.KEYWORD_ONLY and not star:
            parts.append("*")
        star = star or one.kind in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_POSITIONAL)
        mark = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(one.kind.name, "")
        kind = "" if one.annotation is inspect.Parameter.empty else f": {annotation(one.annotation)}"
        default = "" if one.default is inspect.Parameter.empty else f" = {short(one.default)}"
        parts.append(f"{mark}{one.name}{kind}{default}")
    back = "" if given.return_annotation is inspect.Signature.empty else f" -> {annotation(given.return_annotation)}"
    return f"({', '.join(parts)}){back}"


def annotation(given: Any) -> str:
    return given if isinstance(given, str) else getattr(given, "__name__", str(given))


def short(value: Any) -> str:
    """A default in a form that is the same in every run."""
    if isinstance(value, enum.Enum):
        return "None" if value.name == "UNSET" else f"{type(value).__name__}.{value.name}"
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return repr(value)
    if isinstance(value, tuple | list):
        return f"({', '.join(map(short, value))})"
    if isinstance(value, Path):
        return f"Path({value.as_posix()!r})"
    return getattr(value, "__name__", type(value).__name__)


def describe_errors() -> dict[str, str]:
    """The tree: every error and what it is a kind of."""
    from heterosag import errors

    return {name: ", ".join(base.__name__ for base in getattr(errors, name).__bases__) for name in errors.__all__}


# --- the command line, and what is printed and stored -------------------------------------------------------------


def describe_commands() -> dict[str, dict[str, str]]:
    """Every command: its arguments and flags, what they take, and their defaults."""
    import typer

    from heterosag.cli import app

    group: Any = typer.main.get_command(app)
    return {
        name: {
            " ".join([*one.opts, *one.secondary_opts]) if one.param_type_name == "option" else one.name.upper(): (
                f"{'flag' if getattr(one, 'is_flag', False) else one.type.name}"
                f"{' list' if one.nargs != 1 else ''}{', required' if one.required else f' = {short(one.default)}'}"
            )
            for one in command.params
        }
        for name, command in {"": group, **group.commands}.items()
    }


def describe_json() -> dict[str, Any]:
    """The keys of what `--json` prints: those on the page of the command line, and inside plans and rounds."""
    from heterosag.plan import Plan
    from heterosag.plan.summary import summarise
    from heterosag.report import rounds

    spec = importlib.util.spec_from_file_location(
        "reference_pages", ROOT / "tools" / "documents" / "reference_pages.py"
    )
    if spec is None or spec.loader is None:
        raise FileNotFoundError("tools/documents/reference_pages.py")
    pages = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pages)
    plan = Plan.build([6, 6], [2, 4], 20, value_range=1.0, subgroup_size=3, min_survivors=2)
    done = rounds.run(plan, drop={"mask": 1}, secure=False)
    found = {form: sorted(keys) for form, keys in pages.JSON.items() if form != "round"}
    return found | {"plan": keys_of(summarise(plan)), "round": keys_of(done)}


def keys_of(value: Any) -> Any:
    """The keys of a document, and of what is in it; of a list those of its first element."""
    if isinstance(value, dict):
        inner = {str(name): keys_of(one) for name, one in sorted(value.items(), key=lambda pair: str(pair[0]))}
        return inner if any(one is not None for one in inner.values()) else sorted(inner)
    if isinstance(value, list) and value:
        return keys_of(value[0])
    return None


def describe_toml() -> dict[str, list[str]]:
    """The keys of a plan's file and of a training run's."""
    from heterosag.plan import Plan
    from heterosag.training.config import TrainConfig

    plan = Plan.build([6, 6], [2, 4], 20, value_range=1.0, subgroup_size=3, min_survivors=2)
    return {"plan": sorted(tomllib.loads(plan.to_toml())), "train": sorted(tomllib.loads(TrainConfig().to_toml()))}


def describe_records() -> dict[str, Any]:
    """The keys of a run's record by the kind of line, and those that a failed round has."""
    from heterosag.storage.run_log import FAILED, RECORD
    from heterosag.training.config import TrainConfig
    from heterosag.training.runs import Run

    small = TrainConfig(
        classes=(6, 6), levels=(2, 4), subgroup_size=3, min_survivors=2, rounds=1, train_samples=120, secure=False
    )
    with tempfile.TemporaryDirectory() as folder:
        Run(small, Path(folder) / "run").train()
        lines = (Path(folder) / "run" / RECORD).read_text(encoding="utf-8").splitlines()
    return {line["kind"]: sorted(line) for line in map(json.loads, lines)} | {"failed round": sorted(FAILED)}


def describe_formats() -> dict[str, int]:
    """Versions of what is sent and stored; each has a way of its own to change."""
    from heterosag import plan
    from heterosag.protocol import client_state as saved
    from heterosag.protocol import messages as wire
    from heterosag.storage import run_log as records

    return {
        "wire": wire.WIRE_VERSION,
        "plan": plan.PLAN_VERSION,
        "record": records.FORMAT,
        "saved client": saved._FORMAT,
    }


def text(found: dict[str, Any]) -> str:
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SNAPSHOT.write_text(text(surface()), encoding="utf-8")
    print(SNAPSHOT.relative_to(ROOT))
