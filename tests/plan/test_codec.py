"""A plan's encodings: TOML for people, canonical bytes for digests and messages."""

import re
from typing import Any

import pytest
from cases import each
from paper_plan import PAPER

from heterosag.errors import PlanError
from heterosag.plan import Plan, codec

PLANS: list[dict[str, Any]] = [
    PAPER,
    {
        "classes": [10, 11],
        "levels": [2, 4],
        "dimension": 77,
        "value_range": 1.0,
        "users": [f"u{i}é" for i in range(21)],
    },
    {
        "classes": [30],
        "levels": [2**32],
        "dimension": 10**9,
        "value_range": 1.0,
        "assignment_seed": b"\x00\xff" * 16,
        "fill_levels": True,
    },
    {
        "classes": [16],
        "levels": [3],
        "dimension": 50,
        "value_range": 1.0,
        "design": "multigroup",
        "max_weight": 9,
        "subgroup_size": 4,
    },
    {
        "classes": [400],
        "levels": [5],
        "dimension": 999,
        "value_range": 1.0,
        "subgroup_size": 20,
        "assignment_seed": 3,
        "colluders": 9,
    },
    {
        "classes": [6],
        "levels": [2],
        "dimension": 1,
        "design": "secagg",
        "min_robustness": 0.25,
        "value_range": (0, 1e-7),
    },
]


@each("requirements", PLANS)
def test_toml_and_canonical_encoding_come_back(requirements: dict[str, Any]) -> None:
    plan = Plan.build(**requirements)
    assert Plan.from_toml(plan.to_toml()) == plan
    decoded = Plan.decode(plan.encode())
    assert decoded == plan
    assert decoded.digest == plan.digest
    assert decoded.notes == plan.notes
    assert len(plan.digest) == 32


def test_every_value_changes_the_digest() -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"levels": [2, 6, 8, 10, 13]},
        {"dimension": 79511},
        {"design": "multigroup"},
        {"value_range": (-1.0, 1.5)},
        {"min_survivors": 2},
        {"max_weight": 2},
        {"min_robustness": 0.5},
        {"colluders": 0},
        {"min_block_survivors": 4},
        {"users": range(1, 26)},
        {"assignment_seed": 0},
        {"assignment_seed": 1},
        {"dropout": 0.2},
        {"fill_levels": True},
    ]
    digests = {Plan.build(**{**PAPER, **change}).digest for change in changes}
    assert len(digests) == len(changes)


def test_a_hand_written_toml_needs_no_digest_and_an_edited_one_is_noticed() -> None:
    text = "classes = [5, 5]\nlevels = [2, 4]\ndimension = 100\nvalue_range = 1.0\n"
    plan = Plan.from_toml(text)
    assert plan == Plan.build([5, 5], [2, 4], 100, value_range=1.0)
    with pytest.raises(PlanError, match="delete it"):
        Plan.from_toml(plan.to_toml().replace("dimension = 100", "dimension = 101"))


@each(
    "text, field",
    [
        ("classes = [", "toml"),
        ("classes = [5]\nlevels = [2]\n", "dimension"),
        ("classes = [5]\nlevels = [2]\ndimension = 9\nvalue_range = [-1.0, 1.0]\ncolour = 1\n", "colour"),
        ("version = 1\n", "version"),
        (
            'classes = [5]\nlevels = [2]\ndimension = 9\nvalue_range = [-1.0, 1.0]\nassignment_seed = "xyz"\n',
            "assignment_seed",
        ),
    ],
)
def test_bad_toml(text: str, field: str) -> None:
    with pytest.raises(PlanError) as refusal:
        Plan.from_toml(text)
    assert refusal.value.field == field


LONG_KEY = "a." * 100 + "b"


@each(
    "text",
    [
        f"{LONG_KEY} = 1",
        f"[{LONG_KEY}]",
        f"[[{LONG_KEY}]]",
        f"x = {{{LONG_KEY} = 1}}",
        f"# a comment\n {LONG_KEY.replace('.', ' . ')} = 1",
        LONG_KEY.replace("a", '"a\\""') + " = 1",
        LONG_KEY.replace("a", "'\"'") + " = 1",
        f'x = {{y = """a"" \\""""", {LONG_KEY} = 1}}',
        f"x = {{y = '''a'' \"''''', {LONG_KEY} = 1}}",
    ],
)
def test_keys_of_many_parts_are_refused_before_they_are_followed(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that takes quadratic time for them took 16 seconds for 40 kB."""
    with monkeypatch.context() as patch:
        patch.setattr(codec.tomllib, "loads", lambda _: pytest.fail("it was read"))
        with pytest.raises(PlanError, match="toml: a plan has plain names of values"):
            Plan.from_toml(text)


@each("quotes", ['"""', "'''", '"', "'"])
@each("before, end", [("\\", "\\"), ("\\", ""), ("", "\\"), ("", "")])
def test_strings_that_do_not_end_are_looked_through_once(quotes: str, before: str, end: str) -> None:
    """Or else 1 MB would take hours."""
    with pytest.raises(PlanError, match="not valid TOML"):
        Plan.from_toml(f"{before}{quotes}\n" * 200_000 + end)


def test_names_with_dots_and_comments_are_no_keys() -> None:
    users = [f"{place}.a.b.c.d.e.example.org" for place in range(9)]
    plan = Plan.build([9], [4], 12, value_range=1.0, subgroup_size=3, users=users, metrics=("a.b.c.d.e",))
    assert Plan.from_toml(f"# as in a.b.c.d.e.f\n{plan.to_toml()}") == plan


def test_a_text_longer_than_any_plan_is_refused() -> None:
    with pytest.raises(PlanError, match="toml: a plan has at most 16,777,216 characters, not 16,777,217"):
        Plan.from_toml("#" * (2**24 + 1))


def test_keys_that_a_plan_may_have_are_listed_with_those_of_noise() -> None:
    blocks: dict[str, Any] = {"design": "secagg", "subgroup_size": 12, "min_block_survivors": 10}
    noisy = Plan.build([12], [3], 90, **blocks, clipping_norm=1.0, noise_multiplier=4.0)
    with pytest.raises(PlanError, match="unknown keys") as refusal:
        Plan.from_toml("colour = 1\n" + noisy.to_toml())
    listed = set(re.findall(r"\w+", str(refusal.value).partition("has the keys")[2]))
    assert noisy.arguments().keys() | {"clipping_norm"} <= listed


def test_decode_refuses_anything_that_build_would_not_make() -> None:
    import msgspec

    data = Plan.build(**PAPER).encode()
    version, arguments, structure = msgspec.msgpack.decode(data)
    structure[1][0][1] = [0, 1, 2, 3, 5]
    for bad in (
        b"",
        data[:-1],
        data + b"\0",
        msgspec.msgpack.encode([version, arguments, structure]),
        msgspec.msgpack.encode([1, arguments, structure]),
        msgspec.msgpack.encode([version, arguments[:-1], structure]),
        msgspec.msgpack.encode([version, ["x"] * len(arguments), structure]),
        b"\x91" * 100_000,
    ):
        with pytest.raises(PlanError):
            Plan.decode(bad)
