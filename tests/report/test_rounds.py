"""Rounds as `heterosag round` runs, checks and shows them."""

from typing import Any

import pytest
from rich.console import Console
from rounds import small_plan

from heterosag import Plan
from heterosag.errors import UsageError
from heterosag.report.rounds import run, show


def printed(summary: dict[str, Any]) -> str:
    console = Console(width=160, color_system=None)
    with console.capture() as capture:
        console.print(show(summary))
    return capture.get()


@pytest.mark.parametrize("secure", [True, False])
def test_a_round_is_checked_against_plain_sums(secure: bool) -> None:
    done = run(small_plan(), drop={"mask": 1}, malicious=1, rule="median", secure=secure, seed=3)
    assert done["exact"] is True
    assert done["survivors"] == 11
    assert not set(done["dropped"]["mask"]) & set(done["malicious"])
    assert (
        run(small_plan(), drop={"mask": 1}, malicious=1, rule="median", secure=secure, seed=3)["error_rms"]
        == (done["error_rms"])
    )
    assert "1 before mask" in printed(done)


def test_a_round_says_what_a_user_of_each_class_sent() -> None:
    done = run(small_plan(), drop={"mask": 1})
    assert sum(row["users"] for row in done["classes"]) == len(small_plan().users) - 1
    phases = {row["phase"]: row["sent_bytes"]["mean"] for row in done["phases"]}
    for row in done["classes"]:
        assert 0 < row["vector_bytes"] < phases["mask"] + 1
        assert row["sent_bytes"] > row["vector_bytes"]
    assert "of which vector, kB" in printed(done)
    assert run(small_plan(), secure=False)["classes"] == []


def test_the_error_of_a_round_is_shown_against_the_mean() -> None:
    done = run(small_plan(), seed=1)
    percent = done["error_rms"] / done["mean_rms"]
    assert f"{percent:.0%} of that mean's {done['mean_rms']:.2g}" in printed(done)


def test_a_round_that_fails_says_why() -> None:
    done = run(small_plan(), drop={"share": 10})
    assert done["error"]["kind"]
    assert done["error"]["message"] in printed(done).replace("\n", " ")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"drop": {"lunch": 1}}, "before one of the phases"),
        ({"malicious": 13}, "cannot hold 0 dropouts and 13 malicious users: choose fewer with --drop and --malicious"),
        ({"malicious": -1}, "--malicious is at least 0, not -1"),
        ({"rounds": 0}, "--rounds is at least 1, not 0"),
        ({"rounds": 2, "secure": False}, "several rounds in a row need the cryptography.*: leave --plain out"),
    ],
)
def test_nonsense_is_refused(arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        run(small_plan(), **arguments)


@pytest.mark.parametrize("dimension", [2**60, 2**63 - 1])
def test_updates_beyond_all_memory_are_refused(dimension: int) -> None:
    plan = Plan.build([8], [16], dimension, value_range=0.5, subgroup_size=4)
    with pytest.raises(UsageError, match="more than this machine's memory holds: choose a smaller --dimension"):
        run(plan)
