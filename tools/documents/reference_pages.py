"""Pages of the reference that are made from the program itself: the command line, and every setting.

`make_data.py` writes them with everything else that is generated; tests fail when page and program differ. Meanings are
taken from where the program has them (help texts, docstrings, the configuration's own fields), not written twice.
"""

from __future__ import annotations

import ast
import re
import typing
from pathlib import Path
from typing import Any

import click

SOURCE = Path(__file__).resolve().parents[2] / "src" / "heterosag"

_HEAD = """# Command line

`heterosag COMMAND` or `python -m heterosag COMMAND`. Every command prints its own `--help`; this page is made from it.

| exit code | meaning |
| --- | --- |
| 0 | done |
| 1 | `heterosag round` ran, and the round ended with an error (which it shows); or whoever reads the output is gone |
| 2 | wrong use, or any other error: one line on standard error, `heterosag: ...`, or, for an unknown command or flag \
or a value that a flag does not take, the usage and `Error: ...` |
| 130 | `heterosag train` was interrupted; its last whole round is checkpointed |

Numbers in lists have commas between them and no spaces. With `--json` standard output is one JSON document and nothing
else.
"""

# What `--json` prints, by command: keys and meanings. A test compares the keys with those of the program.
JSON: dict[str, dict[str, str]] = {
    "optimize": {
        "error": "the plan's bound on the squared error of the mean, `quantization_error` and `clip_bias` together",
        "lower_bound": "no plan of these subgroup sizes has less; null with `--cohort`",
        "upload_seconds": "seconds of the masked vector's upload, by class, for its slowest user",
        "upload_bytes": "its bytes, by class",
        "binding": "which requirement costs most, with `--cohort` in a cohort",
        "relaxing": "a list of `{what, error}`: the error bound if one requirement were relaxed",
        "order": "the users, as the rates were listed, in the order of the plan",
        "plan": "the plan, as `heterosag plan --json` prints one, with `--cohort` too",
        "error_before": "with `--from` only: the bound of the run's own plan",
    },
    "optimize --epsilon ...": {
        "error_in_clipping_norms": "bound on the error of the mean that noise makes, in clipping norms",
        "epsilon_server": "epsilon of all rounds, against whoever sees all sums",
        "epsilon_model": "epsilon of all rounds, against whoever sees the released models only, with the rule mean; "
        "null with `--attackers`, which the median is for",
        "delta": "delta of both",
        "rounds": "how many rounds they are for",
        "noise_multiplier": "standard deviation of a block's noise over its honest survivors, in clipping norms",
        "honest": "fewest honest survivors of a block, whom the noise is counted on",
        "chosen": "how the plan was found: `subgroups`, `block_users` (users of a block), `min_block_survivors`, "
        "`honest`, `level`, `noise_multiplier` and `error` (of the mean, in clipping norms)",
        "others": "a list of the same for other numbers of subgroups",
        "plan": "the plan, as `heterosag plan --json` prints one",
    },
    "round": {
        "design": "the design's name",
        "plan": "the plan's digest, in hex",
        "users": "how many users the plan has",
        "cohorts": "how many cohorts they are split into, 1 without `--cohort`",
        "dimension": "elements of the update",
        "rule": "the rule",
        "secure": "false with `--plain`",
        "identities": "whether keys were signed and the survivor set agreed on",
        "seed": "the seed",
        "dropped": "by phase, who dropped out before it",
        "malicious": "the malicious users",
        "error": "null, or `{kind, message}` of the error that ended the round; the keys below are then missing",
        "trips": "how often messages went to the users and back, round by round; null with `--plain` and `--cohort`",
        "total_trips": "their sum",
        "failed_cohorts": "by index, why a cohort failed, whose users have no part in the result",
        "survivors": "how many users are in the sums",
        "faulty_blocks": "a list of `{segment, subgroups, fault}`, and `cohort` with `--cohort`: blocks that the "
        "rule left out",
        "inference_robustness": "of these survivors",
        "byzantine_tolerance": "of these survivors",
        "phases": "a list by phase: `phase`, `users`, `sent_bytes` (`mean` and `max` of a user), `received_bytes` "
        "(`max`), `user_seconds` (mean CPU seconds of a user), `server_seconds` on the clock, `server_cpu_seconds`",
        "classes": "a list by class: `class`, `level`, `users` who sent a vector, `sent_bytes` of such a user in all "
        "phases, `vector_bytes` of them its vector; empty with `--plain`",
        "user_ms": "mean CPU milliseconds of a user over all phases",
        "exact": "whether every block's sum equals the plain integer sum of its survivors",
        "error_rms": "distance of the aggregate from the honest survivors' mean, root mean square",
        "error_max": "the same, largest element",
        "mean_rms": "root mean square of that mean, to compare with",
    },
    "report": {
        "report": "the page's path",
        "runs": "a list: of each run what `heterosag train --json` prints, but for `run`",
    },
    "train": {
        "run": "the run's folder",
        "name": "the folder's name",
        "data": "the data set",
        "design": "the design",
        "rule": "the rule",
        "attack": "the attack, or none",
        "attackers": "how many users attack",
        "secure": "whether the cryptography ran",
        "engine": "embedded or flower",
        "finished": "whether the run came to its end",
        "rounds": "rounds so far, failed ones among them",
        "failed_rounds": "rounds that ended with an error",
        "cohorts": "how many cohorts users are split into, 1 without `--cohort`",
        "failed_cohorts": "by the index of a cohort that failed, in how many rounds",
        "accuracy": "test accuracy after the last round that was judged, or null",
        "best_accuracy": "the best of them, or null",
        "mean_survivors": "users in the sums, mean over the rounds that went well",
        "missed_deadline": "uploads that came too late, all rounds together",
        "faulty_blocks": "blocks left out, all rounds together",
        "refusals": "messages refused, all rounds together",
        "trips": "how often messages went to the nodes and back, by round; null on the embedded engine",
        "aggregate_error": "distance of the aggregate from the honest survivors' mean, root mean square, mean over "
        "rounds, or null, as on Flower and under a privacy budget",
        "relative_error": "the same over the root mean square of that mean, or null",
        "inference_robustness": "the least of any round's survivors, or null",
        "rates": "by class, upload rates in Mb/s; empty where none were given: 1, doubled from class to class; "
        "null on Flower",
        "sent_bytes": "by class, bytes that a user sent in a round, mean",
        "communication_seconds": "seconds of all rounds together: of the slowest survivor's uploads and downloads, "
        "modelled by its rates; on Flower measured, with training",
        "wire_bytes": "on Flower, all bytes that it carried, or null",
        "ledger": "what the sums of all rounds show together, or null "
        "([threat model](../threat-model.md#over-many-rounds))",
        "protocol_seconds": "measured seconds of the protocol, `user` (all together) and `server`",
        "privacy": "what the rounds have cost every user: `epsilon_server` against whoever sees all sums, "
        "`epsilon_model` against whoever sees the models only (null unless the rule is the mean), and the `statement`; "
        "null without noise",
    },
    "identity": {"public": "the public key, in hex"},
    "directory": {
        "users": "how many users it has",
        "digest": "the digest of all of it, which is the same for the same users and keys",
        "keys": "public keys in hex, by user",
    },
}


# --- the command line ---------------------------------------------------------------------------------------------


def commands() -> dict[str, click.Command]:
    """Every command of the program, in the order of its help."""
    import typer

    from heterosag.cli import app

    group = typing.cast("click.Group", typer.main.get_command(app))
    return {name: group.commands[name] for name in group.list_commands(click.Context(group))}


def cli_page() -> str:
    """docs/reference/cli.md: every command with its arguments, flags and JSON."""
    from heterosag.cli import EXAMPLES

    lines = [_HEAD]
    for name, command in commands().items():
        lines += [
            f"## heterosag {name}",
            "",
            (command.help or "").strip(),
            "",
            "```text",
            _usage(name, command),
            "```",
            "",
            "For example:",
            "",
            "```text",
            *EXAMPLES[name],
            "```",
            "",
        ]
        rows = [_row(parameter) for parameter in command.params if parameter.name != "help"]
        lines += _table(("argument or flag", "takes", "default", "meaning"), rows)
        if name == "plan":
            lines += ['With `--json`: [one object](../plans.md#json), or with `--compare` `{"plans": [...]}`.', ""]
        for form, keys in JSON.items():
            if form.split()[0] == name:
                lines += [f"`heterosag {form} --json` prints an object:", ""]
                lines += _table(("key", "meaning"), [(f"`{key}`", words) for key, words in keys.items()])
    return "\n".join(lines).rstrip() + "\n"


def _usage(name: str, command: click.Command) -> str:
    pieces = command.collect_usage_pieces(click.Context(command, info_name=name))
    return " ".join(["heterosag", name, *pieces])


def _row(parameter: click.Parameter) -> tuple[str, str, str, str]:
    """A parameter's names, what it takes, its default, its meaning."""
    words = parameter.help or ""
    given = parameter.default
    default = str(given) if isinstance(given, str | int | float | Path) and given is not False else ""
    stated = re.fullmatch(r"(.*) \[(.*)\]", words)  # the flags of `train` state the configuration's default themselves
    if stated is not None:
        words, default = stated[1], stated[2]
    if isinstance(parameter, click.Argument):
        names = f"`{parameter.make_metavar(click.Context(click.Command('x')))}`"
    else:
        names = ", ".join(f"`{one}`" for one in (*parameter.opts, *parameter.secondary_opts))
    takes = "" if getattr(parameter, "is_flag", False) else _takes(parameter.type)
    return names, takes, f"`{default}`" if default else "", words.removesuffix(".")


def _takes(kind: Any) -> str:
    return " or ".join(kind.choices) if kind.name == "choice" else _TAKES[kind.name]


_TAKES = {"text": "text", "integer": "integer", "float": "number", "path": "path", "boolean": ""}


# --- settings -----------------------------------------------------------------------------------------------------


def train_reference() -> str:
    """Every key of a training run's TOML."""
    import dataclasses

    from heterosag.training.config import TrainConfig, fields_of

    kinds = fields_of()
    rows = [
        (
            f"`{one.name}`",
            _kind(kinds[one.name]),
            "" if one.default is None else f"`{_toml(one.default)}`",
            one.metadata["help"],
        )
        for one in dataclasses.fields(TrainConfig)
    ]
    return "\n".join(_table(("key", "type", "default", "meaning"), rows))


def plan_reference() -> str:
    """Every key of a plan's TOML: the arguments of `Plan.build`."""
    rows = [
        (name, _plain(kind), f"`{_spell(default)}`" if default not in (None, "None") else "", words)
        for name, kind, default, words in _arguments("plan/plan.py", "Plan", "build")
    ]
    return "\n".join(_table(("key", "type", "default", "meaning"), rows))


def grid_reference() -> str:
    """Every argument of `SecureGrid`."""
    return _python_arguments("flower/grid.py", "SecureGrid", "__init__")


def mod_reference() -> str:
    """Every argument of `mod`."""
    return _python_arguments("flower/node.py", None, "mod")


def policy_reference() -> str:
    """Every field of `Policy`."""
    return _argument_table(_fields("protocol/policy.py", "Policy"))


def node_config_keys() -> set[str]:
    """The keys that a node reads from its node config."""
    return set(re.findall(r'"(heterosag-[a-z]+)"', (SOURCE / "flower" / "node.py").read_text(encoding="utf-8")))


def environment_variables() -> set[str]:
    """The variables that the package reads."""
    texts = (path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
    return {name for text in texts for name in re.findall(r'environ\b.*"(HETEROSAG_\w+)"', text)}


Argument = tuple[str, str, str | None, str]
"""Name, annotation, default and meaning."""


def _python_arguments(file: str, owner: str | None, function: str) -> str:
    return _argument_table(_arguments(file, owner, function))


def _argument_table(arguments: list[Argument]) -> str:
    rows = [
        (name, f"`{kind}`".replace("|", "\\|"), f"`{default}`" if default is not None else "", words)
        for name, kind, default, words in arguments
    ]
    return "\n".join(_table(("argument", "type", "default", "meaning"), rows))


def _fields(file: str, owner: str) -> list[Argument]:
    """The same of a dataclass's fields."""
    tree = ast.parse((SOURCE / file).read_text(encoding="utf-8"))
    found = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == owner)
    meanings = _meanings(ast.get_docstring(found))
    return [
        (f"`{name}`", ast.unparse(one.annotation), ast.unparse(one.value) if one.value else None, meanings[name])
        for one in found.body
        if isinstance(one, ast.AnnAssign) and (name := ast.unparse(one.target))
    ]


def _meanings(docstring: str | None) -> dict[str, str]:
    """The Args of a docstring."""
    items = re.findall(
        r"^    (\w+): (.*?)(?=^    \w|^\S|^$|\Z)", (docstring or "") + "\n", flags=re.MULTILINE | re.DOTALL
    )
    return {name: " ".join(words.split()).removesuffix(".") for name, words in items}


def _arguments(file: str, owner: str | None, function: str) -> list[Argument]:
    """Name, annotation, default and meaning of each argument, read from the source: no framework is imported for it.

    Meanings are the Args of the docstring (of the class, for `__init__`). An argument without one is an error.
    """
    tree: Any = ast.parse((SOURCE / file).read_text(encoding="utf-8"))
    for name in filter(None, (owner, function)):
        outer, tree = tree, next(node for node in tree.body if getattr(node, "name", None) == name)
    meanings = _meanings(ast.get_docstring(outer if function == "__init__" else tree))
    given: ast.arguments = tree.args
    places = [one for one in given.args if one.arg not in ("self", "cls")]
    defaults: list[ast.expr | None] = [None] * (len(places) - len(given.defaults))
    pairs = [
        *zip(places, [*defaults, *given.defaults], strict=True),
        *zip(given.kwonlyargs, given.kw_defaults, strict=True),
    ]
    return [
        (
            f"`{one.arg}`",
            ast.unparse(one.annotation) if one.annotation is not None else "",
            ast.unparse(default) if default is not None else None,
            meanings[one.arg],
        )
        for one, default in pairs
    ]


_KINDS = {str: "text", bool: "true or false", int: "integer", float: "number"}
_PLAIN = {
    "Sequence[int]": "list of integers",
    "Sequence[int] | Literal['auto']": "list of integers, or auto",
    "Sequence[float] | float | None": "list of numbers, or a number",
    "bool | None": "true or false",
    "Sequence[str]": "list of text",
    "Sequence[float]": "list of numbers",
    "Sequence[User] | None": "list of integers or text",
    "ValueRange | float | None": "number or two numbers",
    "int | bytes | None": "integer, or bytes in hex",
    "int | None": "integer",
    "float | None": "number",
    **{kind.__name__: words for kind, words in _KINDS.items()},
}


def _kind(kind: Any) -> str:
    """A configuration's type in words."""
    inner = [one for one in typing.get_args(kind) if one is not type(None)]
    if typing.get_origin(kind) is typing.Literal:
        return " or ".join(filter(None, (", ".join(inner[:-1]), inner[-1])))
    if typing.get_origin(kind) is tuple:
        return f"list of {_KINDS[inner[0]]}s".replace("texts", "text") if inner[0] in _KINDS else "list of text"
    return " or ".join(dict.fromkeys(_kind(one) for one in inner)) if inner else _KINDS[kind]


def _plain(annotation: str) -> str:
    from heterosag import choices

    return _kind(getattr(choices, annotation)) if annotation in choices.__all__ else _PLAIN[annotation]


def _toml(value: Any) -> str:
    import json

    return json.dumps(list(value) if isinstance(value, tuple) else value)


def _spell(default: str) -> str:
    return _toml(ast.literal_eval(default))


def _table(head: tuple[str, ...], rows: list[Any]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", f"| {' | '.join('---' for _ in head)} |"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]
